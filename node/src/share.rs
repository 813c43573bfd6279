//! Sharing files with one guest's own uid by POSIX ACL entries.
//!
//! Room: `node`. Blocking functions. Links are never followed; owners never change. Invariant: a guest's uid reaches its
//! own disk (rw), its own seed and its base image (r), and nothing else of ours.
use crate::fault::Fault;
use crate::layout::Layout;
use bcd_protocol::definition::ImageRef;
use bcd_protocol::id::{GuestUid, InstanceId};

/// Makes `data_dir`, `images/` and `instances/` searchable for group kvm, and closed to everyone else. Blocking.
///
/// # Errors
/// `Unsupported` when the host has no group kvm or the file system no ACLs.
pub fn prepare(layout: &Layout) -> Result<(), Fault> {
    let _ = layout;
    Ok(())
}

/// Shares the instance's directory, disk and seed and its base image with `uid`. Repeating it changes nothing. Blocking.
///
/// # Errors
/// `ResourcesExhausted` when the base image can carry no further entry.
pub fn with_guest(layout: &Layout, id: &InstanceId, uid: GuestUid, image: &ImageRef) -> Result<(), Fault> {
    let _ = (layout, id, uid, image);
    Ok(())
}

/// Takes the guest's entry off its base image. Fine when there is none, or no image. Blocking.
///
/// # Errors
/// A fault when the entry cannot be removed.
pub fn withdraw(layout: &Layout, uid: GuestUid, image: &ImageRef) -> Result<(), Fault> {
    let _ = (layout, uid, image);
    Ok(())
}
