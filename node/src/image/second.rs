//! The second opinion: an independent qcow2 reader that must agree about the disk's size.
//!
//! Room: `node`. `imago` gets a view of the file that cannot be written and cannot open anything, and may open nothing
//! by itself. Two readers that disagree about a header are how a file shows one face to the check and another later.
use super::qcow2::{ACCEPTED_INCOMPATIBLE, INCOMPATIBLE_AT};
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::qcow2::Qcow2;
use imago::storage::drivers::CommonStorageHelper;
use imago::{DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder, Storage};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Opens the image with the second reader and answers the size it sees, bytes.
///
/// # Errors
/// What the second reader says, also when it fails on a defect of its own.
pub(super) fn virtual_bytes(file: &File) -> io::Result<u64> {
    let view = View { file: file.try_clone()?, length: file.metadata()?.len(), helper: CommonStorageHelper::default() };
    // A defect in the reader must refuse one image, not end the task that asked.
    catch_unwind(AssertUnwindSafe(|| open(view))).unwrap_or_else(|_| Err(io::Error::other("the reader gave up")))
}

fn open(view: View) -> io::Result<u64> {
    let image = Qcow2::<View>::builder(view).write(false).open(DenyImplicitOpenGate::default())?;
    if image.requires_external_data_file() || image.implicit_external_data_file().is_some() {
        return Err(io::Error::other("it sees a data file"));
    }
    if image.implicit_backing_file().is_some() {
        return Err(io::Error::other("it sees a backing file"));
    }
    Ok(FormatAccess::new(image).size())
}

/// The file, read-only, with the feature bits taken out that the first reader has judged and the second does not know.
#[derive(Debug)]
struct View {
    file: File,
    length: u64,
    helper: CommonStorageHelper,
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("image")
    }
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the image is only looked at")
}

impl Storage for View {
    fn size(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    unsafe fn pure_readv(&self, bufv: IoVectorMut<'_>, offset: u64) -> io::Result<()> {
        let mut at = offset;
        for mut slice in bufv.into_inner() {
            let there = self.length.saturating_sub(at).min(slice.len() as u64) as usize;
            let (inside, beyond) = slice.split_at_mut(there);
            self.file.read_exact_at(inside, at)?;
            beyond.fill(0);
            hide_accepted_bits(inside, at);
            at = at.saturating_add(slice.len() as u64);
        }
        Ok(())
    }

    unsafe fn pure_writev(&self, _: IoVector<'_>, _: u64) -> io::Result<()> {
        Err(refused())
    }

    unsafe fn pure_write_zeroes(&self, _: u64, _: u64) -> io::Result<()> {
        Err(refused())
    }

    unsafe fn pure_write_allocated_zeroes(&self, _: u64, _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    unsafe fn invalidate_cache(&self) -> io::Result<()> {
        Ok(())
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        &self.helper
    }
}

/// Clears the accepted bits in what was read from `offset` on, wherever it lies over the field.
fn hide_accepted_bits(read: &mut [u8], offset: u64) {
    for (mask, at) in ACCEPTED_INCOMPATIBLE.to_be_bytes().into_iter().zip(INCOMPATIBLE_AT..) {
        let place = at.checked_sub(offset).and_then(|place| usize::try_from(place).ok());
        if let Some(byte) = place.and_then(|place| read.get_mut(place)) {
            *byte &= !mask;
        }
    }
}
