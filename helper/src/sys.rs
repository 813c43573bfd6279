//! The crate's one file with `unsafe`: what no safe wrapper offers, or what a wrapper gets wrong.
//!
//! Room: `helper`. Each function upholds its own safety conditions; callers have none.
#![allow(unsafe_code)]
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
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

/// Takes a descriptor that the service manager passed.
///
/// The number must come from `sd_notify::listen_fds`, which says what this process was given and says it once: nothing
/// else owns it.
pub(crate) fn adopt_passed(descriptor: RawFd) -> OwnedFd {
    // SAFETY: by the condition above the descriptor is open and owned by nothing else in this process.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
