//! What a process has from whoever started it, and must not keep when it becomes somebody else, or starts somebody: open
//! descriptors, the terminal, the session's keys.
//!
//! Room: `confine`. With `unsafe`: three calls of the kernel that no safe wrapper offers. Invariant: each function either does
//! what it says or answers with an error; "there is no such thing here" is done.
#![allow(unsafe_code, reason = "three calls of the kernel; each block says why it is sound")]
use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// The first descriptor that is not one of the standard three.
const BEYOND_STANDARD: libc::c_uint = 3;

/// Makes every open descriptor but standard input, output and error end with the next execution, in this process and in the
/// children it makes from here on. What a shell or a supervisor left open is nobody's business who is started.
///
/// # Errors
/// The kernel's: those before 5.11 do not know the call.
pub fn close_on_exec() -> io::Result<()> {
    // SAFETY: three integers. No descriptor is closed now: one flag of each is set, which changes nothing for its owner.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, BEYOND_STANDARD, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives up this process's controlling terminal: `/dev/tty` opens it no more, and nothing can be asked of it by that right.
/// Signals that the terminal sends to its foreground (an interrupt key) still come. Descriptors of the terminal stay what
/// they are: whoever gives it up has none.
///
/// The leader of a session keeps it: the session is its own, nobody's shell, and its end would be that of the terminal for
/// every process in it.
///
/// # Errors
/// When `/dev/tty` cannot be opened although there is a terminal.
pub fn leave_terminal() -> io::Result<()> {
    // SAFETY: take an integer or nothing and answer one.
    if unsafe { libc::getsid(0) == libc::getpid() } {
        return Ok(());
    }
    let flags = libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let terminal = match OpenOptions::new().read(true).custom_flags(flags).open("/dev/tty") {
        Ok(terminal) => terminal,
        // No controlling terminal; no such file, which then leads nobody else to it either.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) || error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // SAFETY: the descriptor is open for as long as `terminal` lives, and the request takes no argument.
    if unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCNOTTY) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Gives this process a session keyring of its own, empty, in the place of the one that it has from its starter. It belongs
/// to the user that the process is then: called after the user was changed.
///
/// # Errors
/// The kernel's, but not that there are no keyrings here (a kernel or a container without them).
pub fn new_session_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: with a null name the kernel makes a keyring without a name and reads nothing (keyctl(2)).
    let result = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) };
    if result >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // A filter that refuses the call refuses it to whoever is started as well.
        Some(libc::ENOSYS | libc::EPERM) => Ok(()),
        _ => Err(error),
    }
}

/// The number of the session keyring, which is made when there is none; -1 where there are no keyrings.
#[cfg(test)]
fn session_keyring() -> libc::c_long {
    const GET_KEYRING_ID: libc::c_long = 0;
    const SESSION_KEYRING: libc::c_long = -3;
    // SAFETY: integers alone.
    unsafe { libc::syscall(libc::SYS_keyctl, GET_KEYRING_ID, SESSION_KEYRING, 1) }
}

#[cfg(test)]
mod tests;
