//! What a process has from whoever started it, and must not keep when it becomes somebody else, or starts somebody: open
//! descriptors, the terminal, the session's keys.
//!
//! Room: `confine`. With `unsafe`: calls of the kernel and of the C library that no safe wrapper offers. Invariant: each function either does
//! what it says or answers with an error; "there is no such thing here" is done.
#![allow(unsafe_code, reason = "calls that no safe wrapper offers; each block says why it is sound")]
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

/// What became of a process's controlling terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// There was none.
    None,
    /// This process has it no more; its session does, and what the terminal sends to its foreground (an interrupt key) comes.
    Left,
    /// This process led the session, which has no terminal any more: the interrupt key and the terminal's end tell nobody.
    LeftBySession,
}

/// Gives up this process's controlling terminal: `/dev/tty` opens it no more, and nothing can be asked of it by that right.
/// Descriptors of the terminal stay what they are, in whatever process: whoever gives it up has none.
///
/// The leader of a session takes it from the whole session: called by one, while nobody else in it needs the terminal. What the
/// kernel sends to the terminal's foreground then, a hangup, is not for this process.
///
/// # Errors
/// When `/dev/tty` cannot be opened although there is a terminal.
pub fn leave_terminal() -> io::Result<Terminal> {
    let flags = libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let terminal = match OpenOptions::new().read(true).custom_flags(flags).open("/dev/tty") {
        Ok(terminal) => terminal,
        // No controlling terminal; no such file, which then leads nobody else to it either.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) || error.kind() == ErrorKind::NotFound => {
            return Ok(Terminal::None);
        }
        Err(error) => return Err(error),
    };
    // SAFETY: take an integer or nothing and answer one.
    let leads = unsafe { libc::getsid(0) == libc::getpid() };
    let left = || {
        // SAFETY: the descriptor is open for as long as `terminal` lives, and the request takes no argument.
        if unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCNOTTY) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    if leads {
        deaf_to_hangup(left)?;
        Ok(Terminal::LeftBySession)
    } else {
        left()?;
        Ok(Terminal::Left)
    }
}

/// Does `what` while a hangup of this process is discarded as it comes.
fn deaf_to_hangup<T>(what: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // SAFETY: no code of ours runs as a handler: the disposition is one of the kernel's, and afterwards what it was before.
    let before = unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    if before == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    let outcome = what();
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGHUP, before) };
    outcome
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
