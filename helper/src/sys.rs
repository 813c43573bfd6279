//! The crate's one file with `unsafe`: what no safe wrapper offers, or what a wrapper gets wrong.
//!
//! Room: `helper`. Each function upholds its own safety conditions; callers have none.
#![allow(unsafe_code)]
use nix::errno::Errno;
use nix::unistd::Pid;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use virt::domain::Domain;
use virt::sys;

/// The state of a domain as libvirt's number (`virDomainState`).
///
/// `Domain::state` of the `virt` crate 0.5.0 drops the call's error: a domain that vanished reads as an unknown state.
///
/// # Errors
/// libvirt's, e.g. that there is no such domain any more.
pub(crate) fn domain_state(domain: &Domain) -> Result<sys::virDomainState, virt::error::Error> {
    let mut state: libc::c_int = -1;
    // SAFETY: the domain's pointer is valid while `domain` lives, `state` outlives the call, and a null reason is
    // allowed (libvirt-domain.h: "reason ... may be NULL").
    let result = unsafe { sys::virDomainGetState(domain.as_ptr(), &raw mut state, std::ptr::null_mut(), 0) };
    match (result, sys::virDomainState::try_from(state)) {
        (0, Ok(state)) => Ok(state),
        _ => Err(virt::error::Error::last_error()),
    }
}

/// Loads and initialises libvirt's client library: what it opens at that moment (its TLS library's settings among them)
/// is opened before the sandbox closes.
///
/// # Errors
/// libvirt's.
pub(crate) fn libvirt_initialize() -> Result<(), virt::error::Error> {
    // SAFETY: takes nothing, may be called any number of times from any thread (libvirt-host.h).
    if unsafe { sys::virInitialize() } < 0 { Err(virt::error::Error::last_error()) } else { Ok(()) }
}

/// A descriptor of the process `pid`, which can be read from once that process has ended.
///
/// # Errors
/// The kernel's: `ESRCH` when there is no such process.
pub(crate) fn open_process(pid: Pid) -> Result<OwnedFd, Errno> {
    // SAFETY: two integers.
    let result = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })?;
    let descriptor = RawFd::try_from(result).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made it for this process, closed on execution.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A descriptor that the runtime tells of when it can be read from.
///
/// # Errors
/// When it cannot be waited for.
pub(crate) fn readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: what is owned stays the same open descriptor for as long as the result, which takes it over, has it.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

/// Takes a descriptor that the service manager passed.
///
/// The number must come from `sd_notify::listen_fds`, which says what this process was given and says it once: nothing
/// else owns it.
pub(crate) fn adopt_passed(descriptor: RawFd) -> OwnedFd {
    // SAFETY: by the condition above the descriptor is open and owned by nothing else in this process.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
