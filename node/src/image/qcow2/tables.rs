//! Whether the mapping tables point into the file: what shows that an image was cut before it was published.
//!
//! Room: `node`. Reads at most [`L2_BYTES_MAX`] of second-level tables beside the first-level one, one table at a time.
use super::{Header, HeaderError, Lie};
use crate::image::bytes::Bytes;

/// Most bytes of second-level tables looked at: 128 GiB of allocated clusters of 64 KiB. What lies beyond is left to the
/// hypervisor, which reports a bad entry as an I/O error of that guest.
const L2_BYTES_MAX: u64 = 16 << 20;
/// Bytes of the first-level table read at once.
const CHUNK: u64 = 64 << 10;

/// Bits 9 to 55: the offset of a table or cluster.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
/// Bit 63: the refcount is exactly one.
const COPIED: u64 = 1 << 63;
/// Bit 62 of a second-level entry.
const COMPRESSED: u64 = 1 << 62;
/// Bit 0 of a second-level entry in version 3: reads as zeroes, whatever the offset.
const ZERO: u64 = 1;

/// Checks that every entry of the first-level table, and those of the second-level tables as far as the budget goes,
/// points into the file.
pub(crate) fn check_tables(header: &Header, file: &impl Bytes) -> Result<(), HeaderError> {
    let cluster = header.cluster_bytes();
    let mut left = L2_BYTES_MAX;
    let mut table = vec![0; usize::try_from(cluster).unwrap_or_default()];
    let (mut at, end) = (header.l1_offset, header.l1_offset + u64::from(header.l1_entries) * 8);
    let mut chunk = vec![0; CHUNK as usize];
    while at < end {
        let part = chunk.get_mut(..CHUNK.min(end - at) as usize).unwrap_or_default();
        file.read_at(at, part)?;
        for entry in entries(part) {
            if entry == 0 {
                continue;
            }
            if entry & !(OFFSET | COPIED) != 0 {
                return Err(Lie::new("L1 entry", format!("{entry:#018x}"), "reserved bits are set").into());
            }
            super::within("L1 entry", entry & OFFSET, cluster, cluster, file.length())?;
            if let Some(rest) = left.checked_sub(cluster) {
                left = rest;
                file.read_at(entry & OFFSET, &mut table)?;
                for entry in entries(&table).filter(|entry| *entry != 0) {
                    second_level(header, entry, file.length())?;
                }
            }
        }
        at += CHUNK;
    }
    Ok(())
}

fn entries(table: &[u8]) -> impl Iterator<Item = u64> {
    let (chunks, _) = table.as_chunks::<8>();
    chunks.iter().map(|chunk| u64::from_be_bytes(*chunk))
}

fn second_level(header: &Header, entry: u64, length: u64) -> Result<(), Lie> {
    let lie = |rule: String| Err(Lie::new("L2 entry", format!("{entry:#018x}"), rule));
    if entry & COMPRESSED != 0 {
        // The offset's width depends on the cluster size; the rest counts the further sectors (of 512 bytes) touched.
        let offset_bits = 62 - (header.cluster_bits - 8);
        let offset = entry & ((1 << offset_bits) - 1);
        let sectors = (entry & !(COPIED | COMPRESSED)) >> offset_bits;
        let last_sector = (offset / 512).saturating_add(sectors);
        if offset >= length || last_sector.saturating_mul(512) >= length {
            return lie(format!("the compressed cluster ends beyond the file's {length} bytes"));
        }
        return Ok(());
    }
    if header.version >= 3 && entry & ZERO != 0 {
        return Ok(());
    }
    let offset = entry & OFFSET;
    if offset == 0 {
        return Ok(());
    }
    if !offset.is_multiple_of(header.cluster_bytes()) {
        return lie(format!("the offset is no multiple of the cluster size {}", header.cluster_bytes()));
    }
    if offset >= length {
        return lie(format!("the cluster lies beyond the file's {length} bytes"));
    }
    Ok(())
}
