//! Sharing files with one guest's own uid by POSIX ACL entries.
//!
//! Room: `node`. Blocking functions. Links are never followed; owners never change. Invariant: a guest's uid reaches its
//! own disk (rw), its own seed and its base image (r), and nothing else of ours.
//!
//! ```text
//! data_dir/  images/  instances/     group kvm: x      one entry each: an inode holds about 500
//! instances/<id>/                    the guest: x      exactly this guest
//! instances/<id>/disk.qcow2          the guest: rw     exactly this guest
//! instances/<id>/seed.iso            the guest: r      exactly this guest
//! images/<sha256>.<format>           the guest: r      beside every other guest that uses it
//! ```
use crate::fault::{Fault, FaultKind};
use crate::image::storage_fault;
use crate::layout::Layout;
use bcd_protocol::definition::ImageRef;
use bcd_protocol::id::{GuestUid, InstanceId};
use posix_acl::{ACL_EXECUTE, ACL_READ, ACL_WRITE, ACLEntry, PosixACL, Qualifier};
use std::collections::HashSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

mod held;

#[cfg(test)]
mod tests;

use held::{Held, Kind};

/// The group that every VMM runs in.
const GROUP: &str = "kvm";

/// Base images are shared by guests: an entry is added by reading, changing and writing the whole list, one at a time.
static BASES: Mutex<()> = Mutex::new(());

/// Makes `images/` and `instances/` unless they are there, and makes them and `data_dir` searchable for group kvm and
/// closed to everyone else. Blocking.
///
/// # Errors
/// `Unsupported` when the host has no group kvm or the file system no ACLs; `Internal` when `data_dir` is not the node's.
pub fn prepare(layout: &Layout) -> Result<(), Fault> {
    let group = nix::unistd::Group::from_name(GROUP)
        .map_err(|e| Fault::because(FaultKind::Internal, format!("group {GROUP} cannot be looked up"), e))?;
    let group = group.ok_or_else(|| {
        let sentence = format!("this host has no group {GROUP}, which VMMs run in: install qemu-system-x86");
        Fault::new(FaultKind::Unsupported, sentence)
    })?;
    let entry = ACLEntry { qual: Qualifier::Group(group.gid.as_raw()), perm: ACL_EXECUTE };
    for path in [layout.root().to_owned(), layout.images(), layout.instances()] {
        if path != layout.root() {
            make(&path)?;
        }
        let directory = Held::open(layout, &path, Kind::Directory)?.ok_or_else(|| missing(&path))?;
        directory.refuse_default_acl()?;
        directory.set_exactly(entry)?;
    }
    Ok(())
}

fn make(path: &Path) -> Result<(), Fault> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(storage_fault(path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Shares the instance's directory, disk and seed and its base image with `uid`, and with no other guest but for the base.
/// Repeating it changes nothing. Blocking.
///
/// # Errors
/// `ResourcesExhausted` when the base image can carry no further entry; `Internal` when one of the files is missing or is
/// not the node's own.
pub fn with_guest(layout: &Layout, id: &InstanceId, uid: GuestUid, image: &ImageRef) -> Result<(), Fault> {
    let entry = |perm| ACLEntry { qual: Qualifier::User(uid.get()), perm };
    let base = layout.image(image);
    {
        let _one_at_a_time = BASES.lock().unwrap_or_else(PoisonError::into_inner);
        held(layout, &base, Kind::File)?.add(entry(ACL_READ))?;
    }
    held(layout, &layout.disk(id), Kind::File)?.set_exactly(entry(ACL_READ | ACL_WRITE))?;
    held(layout, &layout.seed(id), Kind::File)?.set_exactly(entry(ACL_READ))?;
    // The directory last: until then nothing in it can be reached.
    held(layout, &layout.instance(id), Kind::Directory)?.set_exactly(entry(ACL_EXECUTE))
}

/// Takes the guest's entry off its base image. Fine when there is none, or no image. Blocking.
///
/// # Errors
/// A fault when the entry cannot be removed.
pub fn withdraw(layout: &Layout, uid: GuestUid, image: &ImageRef) -> Result<(), Fault> {
    remove(layout, image, |found| found == uid).map(|_| ())
}

/// Takes the entries of all guests but those `alive` off a base image, such as a crash between a delete and its
/// [`withdraw`] leaves; answers how many. `alive` must name every guest whose domain is defined or being defined. Blocking.
///
/// # Errors
/// A fault when the entries cannot be removed.
pub fn retain(layout: &Layout, image: &ImageRef, alive: &HashSet<GuestUid>) -> Result<usize, Fault> {
    remove(layout, image, |uid| !alive.contains(&uid))
}

fn remove(layout: &Layout, image: &ImageRef, which: impl Fn(GuestUid) -> bool) -> Result<usize, Fault> {
    let _one_at_a_time = BASES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(base) = Held::open(layout, &layout.image(image), Kind::File)? else { return Ok(0) };
    base.remove_guests(which)
}

fn held(layout: &Layout, path: &Path, kind: Kind) -> Result<Held, Fault> {
    Held::open(layout, path, kind)?.ok_or_else(|| missing(path))
}

fn missing(path: &Path) -> Fault {
    Fault::new(FaultKind::Internal, format!("{} is not there: it cannot be shared", path.display()))
}

/// Whether two lists say the same; their order has no meaning.
fn same(a: &[ACLEntry], b: &[ACLEntry]) -> bool {
    a.len() == b.len() && a.iter().all(|entry| b.contains(entry))
}

/// The guest an entry is for, if it is one.
fn guest(entry: &ACLEntry) -> Option<GuestUid> {
    match entry.qual {
        Qualifier::User(uid) => GuestUid::new(uid).ok(),
        Qualifier::Undefined
        | Qualifier::UserObj
        | Qualifier::GroupObj
        | Qualifier::Other
        | Qualifier::Group(_)
        | Qualifier::Mask => None,
    }
}

/// The descriptor's name under /proc: what a library that only takes paths can be given without a link being followed.
fn proc_path(descriptor: i32) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{descriptor}"))
}

/// An ACL of the owner's rights and nothing else.
fn owner_only(kind: Kind) -> PosixACL {
    PosixACL::new(match kind {
        Kind::Directory => 0o700,
        Kind::File => 0o600,
    })
}
