//! Keeps a daemon's resident memory to what it uses.
//!
//! Room: `confine`. With `unsafe`: two calls of the C library, each with its reason. Called while there is one thread.
#![allow(unsafe_code, reason = "two calls of the C library; each block says why it is sound")]
use std::fs;
use std::io;

/// Bounds the allocator: at most `arenas` of them, and a block of `mapped_from` bytes or more is a mapping of its own, which
/// goes back to the kernel when it is freed. Without the latter glibc's own limit grows with the blocks that are freed.
/// Each arena costs resident memory for each thread that happens to use it. With another C library nothing is done.
pub fn bound_allocator(arenas: i32, mapped_from: Option<i32>) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and changes the allocator's parameters only.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, arenas);
        if let Some(bytes) = mapped_from {
            libc::mallopt(libc::M_MMAP_THRESHOLD, bytes);
        }
    }
    #[cfg(not(target_env = "gnu"))]
    let _unused = (arenas, mapped_from);
}

/// Gives back the pages of programs and libraries that only starting up needed: the loader, the constructors of the some
/// fifty libraries behind libvirt's client (TLS, Kerberos, LDAP, …), none of which a local connection calls. What is
/// needed again comes back from the page cache. Answers how many bytes of mappings were given back.
///
/// # Errors
/// When the kernel does not tell the mappings.
pub fn give_back_startup_pages() -> io::Result<usize> {
    let smaps = fs::read_to_string("/proc/self/smaps")?;
    let mut given = 0usize;
    for (start, length) in clean_file_mappings(&smaps) {
        // SAFETY: the range is a whole mapping of a file that cannot be written to and of which no page differs from the
        // file (`clean_file_mappings`), and no other thread runs yet that could change either. Its content after the call
        // is what it was: that of the file, read again when it is touched (madvise(2), MADV_DONTNEED).
        let result = unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED) };
        if result == 0 {
            given = given.saturating_add(length);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(header: &str, anonymous: u32) -> String {
        format!("{header}\nSize:  8 kB\nRss:  8 kB\nPrivate_Dirty: 0 kB\nAnonymous: {anonymous} kB\nVmFlags: rd mr\n")
    }

    #[test]
    fn only_clean_unwritable_private_mappings_of_files_are_given_back() {
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
        let constant: &'static [u8] = include_bytes!("memory.rs");
        let before = constant.to_vec();
        assert!(give_back_startup_pages().unwrap() > 0);
        assert_eq!(constant, before);
    }
}
