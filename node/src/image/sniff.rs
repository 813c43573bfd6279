//! What a file's content looks like, whatever its name or its declared format.
//!
//! Room: `node`. Each mark is from the format's own description; a raw disk of ours never begins with one. Boot records,
//! partition tables and file systems are what raw disks consist of and are no marks here.
use super::bytes::{Bytes, window};
use std::io;

/// A mark: bytes at a fixed offset from the file's begin.
struct Mark {
    at: usize,
    bytes: &'static [u8],
    name: &'static str,
}

const fn mark(at: usize, bytes: &'static [u8], name: &'static str) -> Mark {
    Mark { at, bytes, name }
}

/// Marks in the first sector.
const MARKS: &[Mark] = &[
    mark(0, b"QFI\xfb\0\0\0\x01", "a qcow disk of version 1"),
    mark(0, b"QFI\xfb", "a qcow2 disk"),
    mark(0, b"KDMV", "a VMDK disk"),
    mark(0, b"COWD", "a VMDK disk (COWD)"),
    mark(0, b"\xbe\xba\xfe\xca\0\0\0\0", "a VMDK disk (SESparse)"),
    mark(0, b"conectix", "a VHD disk"),
    mark(0, b"cxsparse", "a VHD disk"),
    mark(0, b"vhdxfile", "a VHDX disk"),
    mark(0x40, b"\x7f\x10\xda\xbe", "a VDI disk"),
    mark(0, b"<<< ", "a VDI disk"),
    mark(0, b"QED\0", "a QED disk"),
    mark(0, b"LUKS\xba\xbe", "a LUKS volume"),
    mark(0, b"SKUL\xba\xbe", "a LUKS volume"),
    mark(0, b"WithoutFreeSpace", "a Parallels disk"),
    mark(0, b"WithouFreSpacExt", "a Parallels disk"),
    mark(0, b"Bochs Virtual HD Image", "a Bochs disk"),
    mark(0, b"\x1f\x8b", "a gzip archive"),
    mark(0, b"\xfd7zXZ\0", "an xz archive"),
    mark(0, b"\x28\xb5\x2f\xfd", "a zstd archive"),
    mark(0, b"\x04\x22\x4d\x18", "an lz4 archive"),
    mark(0, b"LZIP", "an lzip archive"),
    mark(0, b"PK\x03\x04", "a zip archive"),
    mark(0, b"PK\x05\x06", "a zip archive"),
    mark(0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    mark(0, b"Rar!\x1a\x07", "a rar archive"),
    mark(0, b"070701", "a cpio archive"),
    mark(0, b"070702", "a cpio archive"),
    mark(257, b"ustar", "a tar archive"),
    mark(0, b"\x7fELF", "a program"),
    mark(0, b"hsqs", "a squashfs file system"),
];

/// Bytes of one sector, and of a VHD footer.
const SECTOR: usize = 512;
/// Where an ISO 9660 file system has its first volume descriptor's mark: sector 16 of 2,048 bytes, from its second byte.
const ISO_AT: u64 = 16 * 2048 + 1;

/// What the content looks like, as a noun with its article; `None` for what may well be a raw disk.
///
/// # Errors
/// Whatever reading says.
pub(super) fn looks_like(file: &impl Bytes) -> io::Result<Option<&'static str>> {
    let first: [u8; SECTOR] = window(file, 0)?;
    let there = file.length().min(SECTOR as u64) as usize;
    let begin = first.get(..there).unwrap_or_default();
    if begin.is_empty() {
        return Ok(Some("an empty file"));
    }
    if let Some(mark) = MARKS.iter().find(|mark| begin.get(mark.at..).is_some_and(|rest| rest.starts_with(mark.bytes)))
    {
        return Ok(Some(mark.name));
    }
    if is_bzip2(begin) {
        return Ok(Some("a bzip2 archive"));
    }
    if let Some(text) = text(begin) {
        return Ok(Some(text));
    }
    let iso: [u8; 5] = window(file, ISO_AT)?;
    if &iso == b"CD001" {
        return Ok(Some("an ISO 9660 image"));
    }
    footer(file)
}

/// A fixed VHD is a raw disk with a footer of 512 bytes (511 in the oldest); a DMG has one of 512.
fn footer(file: &impl Bytes) -> io::Result<Option<&'static str>> {
    let footer: [u8; SECTOR] = window(file, file.length().saturating_sub(SECTOR as u64))?;
    let [_, shorter @ ..] = &footer;
    if footer.starts_with(b"conectix") || shorter.starts_with(b"conectix") {
        return Ok(Some("a VHD disk"));
    }
    Ok(footer.starts_with(b"koly\0\0\0\x04").then_some("a DMG disk"))
}

/// `BZh`, the block size, and the mark of a block or of the stream's end (the first digits of pi and of its root).
fn is_bzip2(begin: &[u8]) -> bool {
    begin.starts_with(b"BZh")
        && begin.get(3).is_some_and(u8::is_ascii_digit)
        && begin
            .get(4..)
            .is_some_and(|rest| rest.starts_with(b"1AY&SY") || rest.starts_with(b"\x17\x72\x45\x38\x50\x90"))
}

/// Text fills the first sector of no disk: a boot record ends in 55 AA and an empty sector has zero bytes.
fn text(begin: &[u8]) -> Option<&'static str> {
    let begin = begin.strip_prefix(b"\xef\xbb\xbf").unwrap_or(begin);
    let readable = |b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..=0xff);
    // A descriptor is padded with zero bytes in some VMDK files.
    let padded = begin.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
    let words = begin.get(..padded).unwrap_or_default();
    if !words.iter().all(readable) || words.is_empty() {
        return None;
    }
    let lower = words.trim_ascii_start().to_ascii_lowercase();
    let begins = |mark: &str| lower.starts_with(mark.as_bytes());
    if lower.windows(21).any(|w| w == b"# disk descriptorfile") {
        Some("a VMDK descriptor")
    } else if begins("<!doctype html") || begins("<html") || begins("<head") || begins("<body") {
        Some("an HTML page")
    } else if begins("<?xml") || begins("<") {
        Some("an XML document")
    } else if begins("{") || begins("[") {
        Some("a JSON document")
    } else if padded == begin.len() && words.iter().all(|b| b.is_ascii()) {
        Some("a text file")
    } else {
        None
    }
}
