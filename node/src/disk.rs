//! An instance's root disk: a qcow2 overlay on a base image.
//!
//! Room: `node`. Blocking functions: call them within `spawn_blocking`. Invariant: a file under the name `disk.qcow2` is
//! a whole qcow2 with an explicit backing path and format.
use crate::fault::{Fault, FaultKind};
use crate::image::BaseImage;
use crate::layout::Layout;
use bcd_protocol::definition::ImageFormat;
use bcd_protocol::id::InstanceId;
use bcd_protocol::size::DiskBytes;
use std::path::PathBuf;

/// What a disk's own header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFacts {
    /// Its virtual size, bytes.
    pub virtual_bytes: u64,
    /// The base image it lies on, as written in the overlay.
    pub backing: Option<Backing>,
}

/// What an overlay names as its base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backing {
    /// The path.
    pub path: PathBuf,
    /// The format.
    pub format: ImageFormat,
}

/// What `grow` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// It already had that size.
    Already,
    /// It grew from so many bytes.
    From(u64),
}

/// Makes the instance's directory (0700) unless it is there. Blocking.
///
/// # Errors
/// A fault when it cannot be made, or when something else lies under its name.
pub fn make_directory(layout: &Layout, id: &InstanceId) -> Result<(), Fault> {
    Err(Fault::new(FaultKind::Internal, format!("{} cannot be made", layout.instance(id).display())))
}

/// Removes the instance's directory with all that is in it; never follows a link. Fine when there is none. Blocking.
///
/// # Errors
/// A fault when something in it cannot be removed.
pub fn remove_directory(layout: &Layout, id: &InstanceId) -> Result<(), Fault> {
    Err(Fault::new(FaultKind::Internal, format!("{} cannot be removed", layout.instance(id).display())))
}

/// Makes the overlay `disk.qcow2` of `size` on `base`, in the directory that [`make_directory`] made. Does nothing when
/// an overlay on that base is there already. Blocking.
///
/// # Errors
/// `InvalidSpec` when `size` is smaller than the base's virtual size; `ResourcesExhausted` for a full disk.
pub fn create(layout: &Layout, id: &InstanceId, base: &BaseImage, size: DiskBytes) -> Result<(), Fault> {
    let _ = (base, size);
    Err(Fault::new(FaultKind::Internal, format!("{} cannot be made", layout.disk(id).display())))
}

/// Grows the disk of a stopped instance to `size`. Repeating it is fine. Blocking.
///
/// # Errors
/// `InvalidSpec` when the disk is larger already; `Unavailable` while a VMM has it open.
pub fn grow(layout: &Layout, id: &InstanceId, size: DiskBytes) -> Result<Growth, Fault> {
    let _ = size;
    Err(Fault::new(FaultKind::Internal, format!("{} cannot be grown", layout.disk(id).display())))
}

/// Reads what the disk's header says. `None` when there is no disk. Blocking.
///
/// # Errors
/// A fault when it cannot be read or is no qcow2 of ours.
pub fn inspect(layout: &Layout, id: &InstanceId) -> Result<Option<DiskFacts>, Fault> {
    Err(Fault::new(FaultKind::Internal, format!("{} cannot be read", layout.disk(id).display())))
}
