//! Keeps the node's resident memory to what it uses.
//!
//! Room: `node`. Called while there is one thread. The second file of the crate with `unsafe`, beside
//! `runtime/libvirt_kvm/sys.rs`.
#![allow(unsafe_code, reason = "two calls of the C library; each block says why it is sound")]
use std::fs;
use std::io;

/// The allocator's arenas: it would make one for each thread that happens to allocate while another does, and never give
/// it back.
const ARENAS: libc::c_int = 2;
/// From this size on, bytes, a block is a mapping of its own and goes back to the kernel when it is freed. It is glibc's
/// first value; left alone it grows with the blocks that are freed, and then a status of a thousand instances, once made
/// into JSON, would stay resident for ever.
const MAPPED_FROM: libc::c_int = 128 * 1024;

/// Sets the allocator, and gives back the pages that only starting up needed.
pub(super) fn settle() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and changes the allocator's parameters only.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
    }
    // Has the libraries behind libvirt's client set themselves up now: a local connection needs none of that again.
    let libvirt = virt::connect::Connect::version();
    tracing::debug!(?libvirt, "libvirt's client is set up");
    match give_back_startup_pages() {
        Ok(bytes) => tracing::debug!(bytes, "pages of libraries given back"),
        Err(error) => tracing::debug!(%error, "pages of libraries stay"),
    }
}

/// Gives back the pages of programs and libraries: the loader's work and the constructors of the some fifty libraries
/// behind libvirt's client touched many that are never needed again. Those that are come back from the page cache.
/// Answers how many bytes of mappings were given back.
fn give_back_startup_pages() -> io::Result<usize> {
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

/// Start and length of each mapping of a file in `smaps` that is private, not writable, and has no page of its own.
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
    Some((start, usize::from_str_radix(end, 16).ok()?.checked_sub(start)?))
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
        assert!(give_back_startup_pages().expect("mappings") > 0);
        assert_eq!(constant, before);
    }
}
