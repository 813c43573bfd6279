//! The header's extensions: a list of typed pieces behind the header, within the first cluster.
//!
//! Room: `node`. The walk is bounded, and a known type may come once: a second one is how a file shows two faces.
use super::{HeaderError, Lie};
use crate::image::bytes::Bytes;

const END: u32 = 0;
const BACKING_FORMAT: u32 = 0xe279_2aca;
const FEATURE_NAMES: u32 = 0x6803_f857;
const BITMAPS: u32 = 0x2385_2875;
const ENCRYPTION: u32 = 0x0537_be77;
const DATA_FILE: u32 = 0x4441_5441;

/// Most extensions in one header. QEMU writes at most five.
const MOST: usize = 64;
/// Most bytes of a name in an extension: as of a backing file's.
const NAME_MAX: u32 = 1023;
/// Bytes of the bitmaps extension.
const BITMAPS_BYTES: u32 = 24;
/// Most bitmaps: QEMU's `QCOW2_MAX_BITMAPS`.
const BITMAPS_MAX: u32 = 65535;
/// Most bytes of the bitmap directory: QEMU's `QCOW2_MAX_BITMAP_DIRECTORY_SIZE`.
const BITMAP_DIRECTORY_MAX: u64 = 64 << 20;

/// What the extensions say that matters here. Unknown ones may be ignored by the format's own rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Extensions {
    /// The name of the backing file's format.
    pub(crate) backing_format: Option<Vec<u8>>,
    /// The name of the data file, whatever the feature bit says: QEMU opens it all the same.
    pub(crate) data_file: Option<Vec<u8>>,
    /// Whether there is an encryption header.
    pub(crate) encryption: bool,
    /// Whether there are bitmaps.
    pub(crate) bitmaps: bool,
    feature_names: bool,
}

impl Extensions {
    /// Walks the extensions from `begin` to `end`, offsets in the file.
    pub(super) fn read(file: &impl Bytes, begin: u64, end: u64, cluster: u64) -> Result<Self, HeaderError> {
        let mut found = Self::default();
        let mut at = begin;
        for _ in 0..MOST {
            // Nothing left, or too little for another: the list may end with the area.
            if end.saturating_sub(at) < 8 {
                return Ok(found);
            }
            let mut head = [0; 8];
            file.read_at(at, &mut head)?;
            let [a, b, c, d, e, f, g, h] = head;
            let (kind, bytes) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
            at = at.saturating_add(8);
            if kind == END {
                return Ok(found);
            }
            if u64::from(bytes) > end.saturating_sub(at) {
                let rule = format!("{bytes} bytes of extension {kind:#010x} end beyond the header's area");
                return Err(Lie::new("header extension length", bytes, rule).into());
            }
            found.take(file, kind, at, bytes, cluster)?;
            at = at.saturating_add(u64::from(bytes).next_multiple_of(8));
        }
        Err(Lie::new("header extensions", "more", format!("the most is {MOST}")).into())
    }

    fn take(&mut self, file: &impl Bytes, kind: u32, at: u64, bytes: u32, cluster: u64) -> Result<(), HeaderError> {
        let again = match kind {
            BACKING_FORMAT => self.backing_format.replace(name(file, at, bytes)?).is_some(),
            DATA_FILE => self.data_file.replace(name(file, at, bytes)?).is_some(),
            ENCRYPTION => std::mem::replace(&mut self.encryption, true),
            FEATURE_NAMES => std::mem::replace(&mut self.feature_names, true),
            BITMAPS => {
                bitmaps(file, at, bytes, cluster)?;
                std::mem::replace(&mut self.bitmaps, true)
            }
            _ => false,
        };
        if again {
            return Err(Lie::new("header extension", format!("{kind:#010x}"), "it is there twice").into());
        }
        Ok(())
    }
}

fn name(file: &impl Bytes, at: u64, bytes: u32) -> Result<Vec<u8>, HeaderError> {
    if bytes > NAME_MAX {
        return Err(Lie::new("header extension length", bytes, format!("a name has at most {NAME_MAX} bytes")).into());
    }
    let mut text = vec![0; bytes as usize];
    file.read_at(at, &mut text)?;
    Ok(text)
}

/// The directory of bitmaps must lie within the file. The bitmaps themselves are of no use to a guest and never read.
fn bitmaps(file: &impl Bytes, at: u64, bytes: u32, cluster: u64) -> Result<(), HeaderError> {
    if bytes != BITMAPS_BYTES {
        return Err(Lie::new("bitmaps extension length", bytes, format!("it has {BITMAPS_BYTES} bytes")).into());
    }
    let mut body = [0; BITMAPS_BYTES as usize];
    file.read_at(at, &mut body)?;
    let part = |from: usize| body.get(from..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u64::from_be_bytes(*b));
    let (count, reserved) = ((part(0) >> 32) as u32, part(0) as u32);
    let (directory_bytes, offset) = (part(8), part(16));
    if count == 0 || count > BITMAPS_MAX || reserved != 0 {
        return Err(Lie::new("nb_bitmaps", count, format!("use 1 to {BITMAPS_MAX}")).into());
    }
    if directory_bytes == 0 || directory_bytes > BITMAP_DIRECTORY_MAX {
        let rule = format!("use 1 to {BITMAP_DIRECTORY_MAX}");
        return Err(Lie::new("bitmap_directory_size", directory_bytes, rule).into());
    }
    Ok(super::within("bitmap_directory_offset", offset, directory_bytes, cluster, file.length())?)
}
