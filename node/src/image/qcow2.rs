//! Reads a qcow2 header without trusting one byte of it.
//!
//! Room: `node`. Memory-safe, reads a bounded amount, opens nothing. Two questions are kept apart: is the header well
//! formed ([`Header::read`], for our own overlays too), and may a tenant's image be used ([`Header::tenant`]). The
//! numbers are those of QEMU's docs/interop/qcow2.txt and of the limits in QEMU's block/qcow2.h.
use super::bytes::Bytes;
use bcd_protocol::limits;
use std::io;

mod extension;
mod tables;

#[cfg(test)]
mod tests;

pub(crate) use extension::Extensions;
pub(crate) use tables::check_tables;

/// `QFI\xfb`: also that of the first version, which is another format.
pub(crate) const MAGIC: [u8; 4] = *b"QFI\xfb";

/// Bytes of a version 2 header.
const V2_BYTES: u64 = 72;
/// Bytes of the shortest version 3 header.
const V3_BYTES: u64 = 104;
/// Bytes of a version 3 header with the compression type.
const V3_COMPRESSION_BYTES: u64 = 112;
/// Most bytes of a first-level table. QEMU's own limit is 32 MiB; a quarter of it keeps both readers within 64 MiB and a
/// second, and still spans 32 GiB with the smallest clusters (512 bytes) and 512 TiB with the usual ones.
const L1_BYTES_MAX: u64 = 8 << 20;
/// Most bytes of a refcount table: QEMU's `QCOW_MAX_REFTABLE_SIZE`.
const REFCOUNT_TABLE_BYTES_MAX: u64 = 8 << 20;
/// Most bytes of a backing file's name.
const BACKING_NAME_MAX: u32 = 1023;

const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const DATA_FILE: u64 = 1 << 2;
const COMPRESSION: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;
/// The incompatible feature bits that qcow2 defines.
const KNOWN_INCOMPATIBLE: u64 = DIRTY | CORRUPT | DATA_FILE | COMPRESSION | EXTENDED_L2;
const AUTOCLEAR_BITMAPS: u64 = 1;
const AUTOCLEAR_RAW_DATA: u64 = 1 << 1;

/// Incompatible bits that a tenant's image may have although the second reader knows none: the judge here has decided
/// about them, and they change nothing that the second reader looks at.
pub(crate) const ACCEPTED_INCOMPATIBLE: u64 = COMPRESSION;
/// Where the virtual size lies: eight bytes, big-endian.
pub(crate) const SIZE_AT: u64 = 24;
/// Where the incompatible feature bits lie in a version 3 header.
pub(crate) const INCOMPATIBLE_AT: u64 = 72;

/// Why a qcow2 is refused: the field, what it says, and the rule it breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("qcow2 field {field} is {found}: {rule}")]
pub(crate) struct Lie {
    field: &'static str,
    found: String,
    rule: String,
}

impl Lie {
    pub(crate) fn new(field: &'static str, found: impl ToString, rule: impl Into<String>) -> Self {
        Self { field, found: found.to_string(), rule: rule.into() }
    }

    /// The field's name as in QEMU's description of the format.
    #[cfg(test)]
    pub(crate) fn field(&self) -> &'static str {
        self.field
    }
}

/// A header that cannot be used, or a file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeaderError {
    /// The header breaks a rule.
    #[error(transparent)]
    Lie(#[from] Lie),
    /// The file could not be read.
    #[error("reading the image failed")]
    Read(#[from] io::Error),
}

/// A well-formed header: every offset lies within the file and every number within the format's bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) cluster_bits: u32,
    /// Bytes; a multiple of 512, not 0.
    pub(crate) virtual_bytes: u64,
    pub(crate) l1_offset: u64,
    pub(crate) l1_entries: u32,
    pub(crate) backing_name: Option<Vec<u8>>,
    pub(crate) extensions: Extensions,
    crypt_method: u32,
    snapshots: u32,
    incompatible: u64,
    autoclear: u64,
}

/// The fields as they lie in the file.
struct Fields {
    buffer: [u8; V3_COMPRESSION_BYTES as usize],
}

impl Fields {
    fn u32(&self, at: usize) -> u32 {
        self.buffer.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    fn u64(&self, at: usize) -> u64 {
        self.buffer.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    fn byte(&self, at: usize) -> u8 {
        self.buffer.get(at).copied().unwrap_or(0)
    }
}

/// Version-dependent fields.
struct Third {
    incompatible: u64,
    autoclear: u64,
    header_length: u64,
}

impl Header {
    /// Reads and checks the form of the header, its extensions and the places of its tables.
    pub(crate) fn read(file: &impl Bytes) -> Result<Self, HeaderError> {
        let length = file.length();
        if length < V2_BYTES {
            return Err(Lie::new("file length", length, format!("a header alone has {V2_BYTES} bytes")).into());
        }
        let mut fields = Fields { buffer: [0; V3_COMPRESSION_BYTES as usize] };
        let there = length.min(V3_COMPRESSION_BYTES) as usize;
        file.read_at(0, fields.buffer.get_mut(..there).unwrap_or_default())?;
        if !fields.buffer.starts_with(&MAGIC) {
            return Err(Lie::new("magic", format!("{:#010x}", fields.u32(0)), "a qcow2 begins with 0x514649fb").into());
        }
        let version = fields.u32(4);
        if !(2..=3).contains(&version) {
            return Err(Lie::new("version", version, "2 and 3 are known").into());
        }
        let cluster_bits = fields.u32(20);
        if !(9..=21).contains(&cluster_bits) {
            return Err(Lie::new("cluster_bits", cluster_bits, "use 9 to 21").into());
        }
        let cluster = 1u64 << cluster_bits;
        let third = third(&fields, version, length, cluster)?;
        let virtual_bytes = virtual_bytes(fields.u64(SIZE_AT as usize))?;
        let (l1_offset, l1_entries) = first_level(&fields, cluster, virtual_bytes, length, third.incompatible)?;
        let refcounts = refcount_table(&fields, cluster, length)?;
        let l1_end = l1_offset.saturating_add(u64::from(l1_entries).saturating_mul(8));
        if l1_offset < refcounts.1 && refcounts.0 < l1_end {
            return Err(Lie::new("l1_table_offset", l1_offset, "the table lies over the refcount table").into());
        }
        let (backing_name, extensions_end) = backing_name(&fields, file, cluster, third.header_length)?;
        let extensions = Extensions::read(file, third.header_length, extensions_end, cluster)?;
        Ok(Self {
            version,
            cluster_bits,
            virtual_bytes,
            l1_offset,
            l1_entries,
            backing_name,
            extensions,
            crypt_method: fields.u32(32),
            snapshots: fields.u32(60),
            incompatible: third.incompatible,
            autoclear: third.autoclear,
        })
    }

    /// Whether a tenant's image with this header may be used: it names no other file, is not encrypted, holds no
    /// snapshots, was closed properly, and needs nothing that bcd's readers do not know.
    pub(crate) fn tenant(&self) -> Result<(), Lie> {
        if let Some(name) = &self.backing_name {
            return Err(Lie::new("backing_file_offset", shown(name), "an image must not name a backing file"));
        }
        let bits = |bit: u64| self.incompatible & bit != 0;
        let incompatible =
            |rule: &str| Err(Lie::new("incompatible_features", format!("{:#x}", self.incompatible), rule));
        if let Some(name) = &self.extensions.data_file {
            return Err(Lie::new("data file extension", shown(name), "an image must not name a data file"));
        }
        if let Some(format) = &self.extensions.backing_format {
            return Err(Lie::new("backing format extension", shown(format), "an image must not have a backing file"));
        }
        if bits(DATA_FILE) {
            return incompatible("bit 2 says that the data lies in another file");
        }
        if bits(CORRUPT) {
            return incompatible("bit 1 marks it as corrupt; repair it with qemu-img check -r all");
        }
        if bits(DIRTY) {
            return incompatible("bit 0 says that it was not closed properly; repair it with qemu-img check -r all");
        }
        if bits(EXTENDED_L2) {
            return incompatible("bit 4, extended L2 entries, is not supported; convert with -o extended_l2=off");
        }
        if self.autoclear & AUTOCLEAR_RAW_DATA != 0 {
            return Err(Lie::new(
                "autoclear_features",
                self.autoclear,
                "bit 1 says that the data lies in another file",
            ));
        }
        if self.autoclear & AUTOCLEAR_BITMAPS != 0 && !self.extensions.bitmaps {
            return Err(Lie::new("autoclear_features", self.autoclear, "bit 0 needs the bitmaps extension"));
        }
        if self.crypt_method != 0 || self.extensions.encryption {
            return Err(Lie::new("crypt_method", self.crypt_method, "encrypted images cannot be used"));
        }
        if self.snapshots != 0 {
            return Err(Lie::new("nb_snapshots", self.snapshots, "internal snapshots are refused; convert the image"));
        }
        Ok(())
    }

    /// Whether a disk with this header can be one that bcd made and a VMM wrote to: its data lie in itself, in clear.
    pub(crate) fn overlay(&self) -> Result<(), Lie> {
        let own = self.incompatible & (DATA_FILE | CORRUPT | EXTENDED_L2) == 0;
        if !own || self.extensions.data_file.is_some() {
            let found = format!("{:#x}", self.incompatible);
            return Err(Lie::new("incompatible_features", found, "its data must lie in itself and be whole"));
        }
        if self.crypt_method != 0 || self.extensions.encryption {
            return Err(Lie::new("crypt_method", self.crypt_method, "encrypted disks cannot be used"));
        }
        Ok(())
    }

    /// Bytes of one cluster.
    pub(crate) fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }
}

/// A name out of a hostile file, cut and escaped for people.
fn shown(name: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(name).chars().take(80).collect();
    format!("{text:?}")
}

fn virtual_bytes(bytes: u64) -> Result<u64, Lie> {
    if bytes == 0 {
        Err(Lie::new("size", bytes, "the disk would be empty"))
    } else if !bytes.is_multiple_of(limits::SECTOR) {
        Err(Lie::new("size", bytes, "it must be a whole number of 512-byte sectors"))
    } else if bytes > limits::DISK_MAX {
        Err(Lie::new("size", bytes, format!("the most is {}", limits::DISK_MAX)))
    } else {
        Ok(bytes)
    }
}

fn third(fields: &Fields, version: u32, length: u64, cluster: u64) -> Result<Third, Lie> {
    if version == 2 {
        return Ok(Third { incompatible: 0, autoclear: 0, header_length: V2_BYTES });
    }
    let header_length = u64::from(fields.u32(100));
    if length < V3_BYTES {
        return Err(Lie::new("file length", length, format!("a header alone has {V3_BYTES} bytes")));
    }
    if header_length < V3_BYTES || !header_length.is_multiple_of(8) || header_length > cluster {
        let rule = "it must be a multiple of 8, at least 104 and at most one cluster";
        return Err(Lie::new("header_length", header_length, rule));
    }
    if header_length > length {
        return Err(Lie::new("header_length", header_length, format!("the file has {length} bytes")));
    }
    let incompatible = fields.u64(INCOMPATIBLE_AT as usize);
    let unknown = incompatible & !KNOWN_INCOMPATIBLE;
    if unknown != 0 {
        let rule = format!("bits {unknown:#x} are unknown");
        return Err(Lie::new("incompatible_features", format!("{incompatible:#x}"), rule));
    }
    let refcount_order = fields.u32(96);
    if refcount_order > 6 {
        return Err(Lie::new("refcount_order", refcount_order, "the most is 6"));
    }
    let compression = if header_length >= V3_COMPRESSION_BYTES { fields.byte(104) } else { 0 };
    let well_said = match (incompatible & COMPRESSION != 0, compression) {
        (false, 0) | (true, 1) => true,
        (false | true, _) => false,
    };
    if !well_said {
        let rule = "0 is zlib, without bit 3 of incompatible_features; 1 is zstd, with it";
        return Err(Lie::new("compression_type", compression, rule));
    }
    Ok(Third { incompatible, autoclear: fields.u64(88), header_length })
}

/// Where the first-level table lies and how many entries it has: within the file and enough for the disk.
fn first_level(
    fields: &Fields,
    cluster: u64,
    virtual_bytes: u64,
    length: u64,
    incompatible: u64,
) -> Result<(u64, u32), Lie> {
    let (entries, offset) = (fields.u32(36), fields.u64(40));
    let entry_bytes = if incompatible & EXTENDED_L2 != 0 { 16 } else { 8 };
    let spanned = cluster.saturating_mul(cluster / entry_bytes);
    let needed = virtual_bytes.div_ceil(spanned);
    let bytes = u64::from(entries).saturating_mul(8);
    if u64::from(entries) < needed {
        return Err(Lie::new("l1_size", entries, format!("a disk of {virtual_bytes} bytes needs {needed} entries")));
    }
    if bytes > L1_BYTES_MAX {
        return Err(Lie::new("l1_size", entries, format!("the most is {} entries", L1_BYTES_MAX / 8)));
    }
    within("l1_table_offset", offset, bytes, cluster, length)?;
    Ok((offset, entries))
}

/// Where the refcount table lies: begin and end, within the file.
fn refcount_table(fields: &Fields, cluster: u64, length: u64) -> Result<(u64, u64), Lie> {
    let (offset, clusters) = (fields.u64(48), fields.u32(56));
    let bytes = u64::from(clusters).saturating_mul(cluster);
    if clusters == 0 || bytes > REFCOUNT_TABLE_BYTES_MAX {
        let rule = format!("use 1 cluster to {REFCOUNT_TABLE_BYTES_MAX} bytes");
        return Err(Lie::new("refcount_table_clusters", clusters, rule));
    }
    within("refcount_table_offset", offset, bytes, cluster, length)?;
    Ok((offset, offset.saturating_add(bytes)))
}

/// A table begins at a cluster behind the header's own and ends within the file.
fn within(field: &'static str, offset: u64, bytes: u64, cluster: u64, length: u64) -> Result<(), Lie> {
    if offset < cluster || !offset.is_multiple_of(cluster) {
        return Err(Lie::new(field, offset, format!("it must be a multiple of the cluster size {cluster}, not 0")));
    }
    match offset.checked_add(bytes) {
        Some(end) if end <= length => Ok(()),
        Some(_) | None => {
            Err(Lie::new(field, offset, format!("{bytes} bytes from there end beyond the file's {length}")))
        }
    }
}

/// The backing file's name, and where the header's extensions must end.
fn backing_name(
    fields: &Fields,
    file: &impl Bytes,
    cluster: u64,
    header_length: u64,
) -> Result<(Option<Vec<u8>>, u64), HeaderError> {
    let (offset, size) = (fields.u64(8), fields.u32(16));
    if offset == 0 {
        // The size means nothing then.
        return Ok((None, cluster.min(file.length())));
    }
    if size == 0 || size > BACKING_NAME_MAX {
        return Err(Lie::new("backing_file_size", size, format!("use 1 to {BACKING_NAME_MAX}")).into());
    }
    let end = offset.checked_add(u64::from(size)).filter(|end| *end <= cluster.min(file.length()));
    if offset < header_length || end.is_none() {
        return Err(Lie::new("backing_file_offset", offset, "the name must lie in the first cluster").into());
    }
    let mut name = vec![0; size as usize];
    file.read_at(offset, &mut name)?;
    Ok((Some(name), offset))
}
