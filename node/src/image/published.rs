//! The directory of published images: find one, remove leftovers, sweep what nobody uses.
//!
//! Room: `node`. Blocking. A file is taken for an image by its name alone only when it is a regular file of the node's
//! own, with one name, that nobody else may write.
use super::{BaseImage, PART_PREFIX, check, storage_fault};
use crate::fault::{Fault, FaultKind};
use crate::layout::Layout;
use bcd_protocol::definition::{ImageFormat, ImageRef};
use bcd_protocol::id::Sha256Digest;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Makes `images/` unless it is there.
pub(super) fn make_directory(layout: &Layout) -> Result<(), Fault> {
    let path = layout.images();
    match DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(storage_fault(&path, error)),
    }
}

/// Removes downloads that an earlier run did not end.
pub(super) fn remove_leftovers(layout: &Layout) -> Result<(), Fault> {
    let directory = layout.images();
    for entry in fs::read_dir(&directory).map_err(|e| storage_fault(&directory, e))? {
        let entry = entry.map_err(|e| storage_fault(&directory, e))?;
        if entry.file_name().to_string_lossy().starts_with(PART_PREFIX) {
            remove(&entry.path())?;
            tracing::info!(path = %entry.path().display(), "an unfinished download was removed");
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), Fault> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(storage_fault(path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The published image, when it is there.
pub(super) fn find(layout: &Layout, image: ImageRef) -> Result<Option<BaseImage>, Fault> {
    let path = layout.image(&image);
    // A FIFO must not make this wait, nor a link lead it elsewhere.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Err(foreign(&path, "is a link")),
        Err(error) => return Err(storage_fault(&path, error)),
    };
    let metadata = file.metadata().map_err(|e| storage_fault(&path, e))?;
    if !metadata.is_file() {
        return Err(foreign(&path, "is no regular file"));
    }
    if metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Err(foreign(&path, "belongs to another user"));
    }
    if metadata.nlink() != 1 {
        return Err(foreign(&path, "has a second name"));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(foreign(&path, "can be written by others"));
    }
    let virtual_bytes = check::known_size(&file, image.format).map_err(|e| {
        let sentence =
            format!("{} was changed after it was published: remove it, it will be fetched again", path.display());
        Fault::because(FaultKind::ImageRejected, sentence, e)
    })?;
    Ok(Some(BaseImage { path, image, virtual_bytes }))
}

fn foreign(path: &Path, what: &str) -> Fault {
    let sentence = format!("{} {what}: it was not published by this node; remove it", path.display());
    Fault::new(FaultKind::Internal, sentence)
}

/// Removes the published images that `keep` does not want.
pub(super) fn sweep(layout: &Layout, keep: impl Fn(&ImageRef) -> bool) -> Result<Vec<ImageRef>, Fault> {
    let directory = layout.images();
    let mut removed = Vec::new();
    for entry in fs::read_dir(&directory).map_err(|e| storage_fault(&directory, e))? {
        let entry = entry.map_err(|e| storage_fault(&directory, e))?;
        let Some(image) = entry.file_name().to_str().and_then(named) else { continue };
        if !keep(&image) {
            remove(&entry.path())?;
            tracing::info!(image = %image.sha256, "an unused image was removed");
            removed.push(image);
        }
    }
    Ok(removed)
}

/// The image that a file of this name is.
fn named(name: &str) -> Option<ImageRef> {
    let (digest, extension) = name.split_once('.')?;
    let format = [ImageFormat::Qcow2, ImageFormat::Raw].into_iter().find(|format| format.as_str() == extension)?;
    Some(ImageRef { sha256: Sha256Digest::parse(digest).ok()?, format })
}
