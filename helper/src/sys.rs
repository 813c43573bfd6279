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

/// Keeps the allocator to one arena: each further one costs resident memory per thread, and no path here is bound by
/// the allocator's lock.
pub(crate) fn one_allocator_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and changes the allocator's parameters only.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives back the pages of programs and libraries that only starting up needed: the loader, the constructors of the some
/// fifty libraries behind libvirt's client (TLS, Kerberos, LDAP, …), none of which a local connection calls. What is
/// needed again comes back from the page cache. Answers how many bytes of mappings were given back.
///
/// # Errors
/// When the kernel does not tell the mappings.
pub(crate) fn give_back_startup_pages() -> std::io::Result<usize> {
    let smaps = std::fs::read_to_string("/proc/self/smaps")?;
    let mut given = 0;
    for (start, length) in clean_file_mappings(&smaps) {
        // SAFETY: the range is a whole mapping of a file that cannot be written to and of which no page differs from the
        // file (`clean_file_mappings`), and no other thread runs yet that could change either. Its content after the call
        // is what it was: that of the file, read again when it is touched (madvise(2), MADV_DONTNEED).
        let result = unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED) };
        if result == 0 {
            given = usize::saturating_add(given, length);
        }
    }
    Ok(given)
}

/// Start and length of each mapping of a file in `smaps` that is private, not writable, and has no page of its own: no
/// relocated one, no copied one.
fn clean_file_mappings(smaps: &str) -> Vec<(usize, usize)> {
    let mut clean = Vec::new();
    let mut candidate = None;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some("Anonymous:"), Some("0")) => clean.extend(candidate.take()),
            (Some(range), Some("r--p" | "r-xp")) if line.contains(" /") => candidate = range_of(range),
            (Some(range), Some(_)) if !range.ends_with(':') => candidate = None,
            _ => {}
        }
    }
    clean
}

fn range_of(text: &str) -> Option<(usize, usize)> {
    let (start, end) = text.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let length = usize::from_str_radix(end, 16).ok()?.checked_sub(start)?;
    Some((start, length))
}

/// Takes a descriptor that the service manager passed.
///
/// The number must come from `sd_notify::listen_fds`, which says what this process was given and says it once: nothing
/// else owns it.
pub(crate) fn adopt_passed(descriptor: RawFd) -> OwnedFd {
    // SAFETY: by the condition above the descriptor is open and owned by nothing else in this process.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(header: &str, anonymous: u32) -> String {
        format!("{header}\nSize:  8 kB\nRss:  8 kB\nPrivate_Dirty: 0 kB\nAnonymous: {anonymous} kB\nVmFlags: rd mr\n")
    }

    #[test]
    fn only_clean_unwritable_mappings_of_files_are_given_back() {
        let smaps = [
            mapping("1000-3000 r-xp 00000000 fd:00 7 /usr/lib/a.so", 0),
            mapping("3000-4000 r--p 00002000 fd:00 7 /usr/lib/a.so", 4),
            mapping("4000-5000 rw-p 00003000 fd:00 7 /usr/lib/a.so", 0),
            mapping("5000-6000 r--s 00000000 fd:00 8 /var/cache/shared", 0),
            mapping("6000-7000 r-xp 00000000 00:00 0 [vdso]", 0),
            mapping("7000-8000 r--p 00000000 00:00 0", 0),
            mapping("8000-9000 r--p 00000000 fd:00 9 /usr/bin/b", 0),
        ]
        .concat();
        assert_eq!(clean_file_mappings(&smaps), [(0x1000, 0x2000), (0x8000, 0x1000)]);
    }

    #[test]
    fn what_was_given_back_reads_the_same_afterwards() {
        let constant: &'static [u8] = include_bytes!("sys.rs");
        let before = constant.to_vec();
        assert!(give_back_startup_pages().unwrap() > 0);
        assert_eq!(constant, before);
    }
}
