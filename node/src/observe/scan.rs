//! Looks at the node's own files: at all of them when it starts, at one instance's after it changed them.
//!
//! Room: `node`. Blocking functions. Reading only.
use crate::disk;
use crate::fault::{Fault, FaultKind};
use crate::layout::Layout;
use crate::plan::{DiskFile, InstanceFiles};
use bcd_protocol::definition::{ImageFormat, ImageRef};
use bcd_protocol::id::{InstanceId, Sha256Digest};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use tracing::warn;

/// What lies under `data_dir`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Instances' files by directory.
    pub files: BTreeMap<InstanceId, InstanceFiles>,
    /// Base images under their final names.
    pub images: HashSet<ImageRef>,
}

/// Looks at all of the node's files.
///
/// # Errors
/// `Unavailable` when a directory cannot be read. One instance's unreadable disk is no error of the whole.
pub fn scan(layout: &Layout) -> Result<Found, Fault> {
    let mut found = Found::default();
    for name in names(&layout.instances())? {
        match InstanceId::parse(&name) {
            Ok(id) => {
                if let Some(files) = look_at(layout, &id) {
                    found.files.insert(id, files);
                }
            }
            Err(_) => warn!(name, "an entry in the instances' directory is not ours and is left alone"),
        }
    }
    found.images.extend(names(&layout.images())?.iter().filter_map(|name| image(name)));
    Ok(found)
}

/// Looks at one instance's files; `None` when it has no directory. Whom they are shared with is not read: sharing again
/// changes nothing.
#[must_use]
pub fn look_at(layout: &Layout, id: &InstanceId) -> Option<InstanceFiles> {
    if !is_directory(&layout.instance(id)) {
        return None;
    }
    let disk = match disk::inspect(layout, id) {
        Ok(Some(facts)) => DiskFile::Ready { virtual_bytes: facts.virtual_bytes, written: facts.written },
        Ok(None) => DiskFile::Missing,
        Err(fault) => {
            warn!(instance = %id, fault = fault.chain(), "disk not readable");
            DiskFile::Unreadable
        }
    };
    Some(InstanceFiles { disk, seed: is_file(&layout.seed(id)), shared: None, made_for: None })
}

fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|m| m.is_dir())
}

fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|m| m.is_file())
}

/// The names in a directory; none when it is not there.
fn names(directory: &Path) -> Result<Vec<String>, Fault> {
    let fault = |error| {
        Fault::because(
            FaultKind::Unavailable,
            format!("directory {} cannot be read: it must belong to the node's user", directory.display()),
            error,
        )
    };
    match std::fs::read_dir(directory) {
        Ok(entries) => {
            entries.map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned()).map_err(fault)).collect()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(fault(error)),
    }
}

fn image(name: &str) -> Option<ImageRef> {
    let (digest, format) = name.split_once('.')?;
    Some(ImageRef { sha256: Sha256Digest::parse(digest).ok()?, format: ImageFormat::named(format)? })
}
