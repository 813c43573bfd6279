//! One file or directory of ours, held by a descriptor while its ACL changes.
//!
//! Room: `node`. The descriptor is opened beneath `data_dir` without a link anywhere on the way, and says what it is
//! before anything is changed. An ACL that is already right is not written.
use super::{guest, owner_only, proc_path, same};
use crate::fault::{Fault, FaultKind};
use crate::image::storage_fault;
use crate::layout::Layout;
use bcd_protocol::id::GuestUid;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use posix_acl::{ACLEntry, ACLError, PosixACL, Qualifier};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// What a path must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A directory.
    Directory,
    /// A regular file with one name.
    File,
}

/// A file or directory of ours.
#[derive(Debug)]
pub(super) struct Held {
    descriptor: OwnedFd,
    path: PathBuf,
    kind: Kind,
}

impl Held {
    /// Opens `path`, which lies beneath `data_dir` or is it; `None` when there is nothing.
    ///
    /// # Errors
    /// A fault when it is something else, is reached by a link, has a second name or belongs to someone else.
    pub(super) fn open(layout: &Layout, path: &Path, kind: Kind) -> Result<Option<Self>, Fault> {
        let descriptor = match descriptor(layout.root(), path) {
            Ok(descriptor) => descriptor,
            Err(Errno::ENOENT) => return Ok(None),
            Err(Errno::ELOOP) => return Err(foreign(path, "is reached by a link or by what is no directory")),
            Err(Errno::ENOTDIR) => {
                let root = layout.root().display();
                let sentence =
                    format!("data_dir {root} is no directory: set it to one, not to a link that leads there");
                return Err(Fault::new(FaultKind::Internal, sentence));
            }
            Err(error) => return Err(storage_fault(path, error.into())),
        };
        let stat = fstat(&descriptor).map_err(|e| storage_fault(path, e.into()))?;
        let found = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
        let fits = match kind {
            Kind::Directory => found == SFlag::S_IFDIR,
            Kind::File => found == SFlag::S_IFREG,
        };
        if !fits {
            return Err(foreign(path, "is of another type than it should be"));
        }
        if kind == Kind::File && stat.st_nlink != 1 {
            return Err(foreign(path, "has a second name"));
        }
        if stat.st_uid != nix::unistd::geteuid().as_raw() {
            return Err(foreign(path, "does not belong to the node's user"));
        }
        Ok(Some(Self { descriptor, path: path.to_owned(), kind }))
    }

    /// Gives the owner its rights, `entry` its own, and nobody else any.
    pub(super) fn set_exactly(&self, entry: ACLEntry) -> Result<(), Fault> {
        let mut acl = owner_only(self.kind);
        acl.set(entry.qual, entry.perm);
        acl.fix_mask();
        if same(&acl.entries(), &self.read()?.entries()) {
            return Ok(());
        }
        self.write(&mut acl).map_err(|e| self.fault(e))
    }

    /// Adds `entry` to those that are there; the owning group and others get no rights.
    pub(super) fn add(&self, entry: ACLEntry) -> Result<(), Fault> {
        let mut acl = self.read()?;
        let before = acl.entries();
        acl.set(entry.qual, entry.perm);
        acl.set(Qualifier::GroupObj, 0);
        acl.set(Qualifier::Other, 0);
        acl.fix_mask();
        if same(&acl.entries(), &before) {
            return Ok(());
        }
        let guests = before.iter().filter(|entry| guest(entry).is_some()).count();
        self.write(&mut acl).map_err(|error| self.exhausted(guests, error))
    }

    /// Removes the entries of the guests that `which` picks; answers how many there were.
    pub(super) fn remove_guests(&self, which: impl Fn(GuestUid) -> bool) -> Result<usize, Fault> {
        let mut acl = self.read()?;
        let gone: Vec<_> = acl.entries().into_iter().filter(|entry| guest(entry).is_some_and(&which)).collect();
        for entry in &gone {
            acl.remove(entry.qual);
        }
        if !gone.is_empty() {
            self.write(&mut acl).map_err(|e| self.fault(e))?;
        }
        Ok(gone.len())
    }

    /// A default ACL would give entries of its own to every file made in the directory.
    pub(super) fn refuse_default_acl(&self) -> Result<(), Fault> {
        let acl = PosixACL::read_default_acl(proc_path(self.descriptor.as_raw_fd())).map_err(|e| self.fault(e))?;
        if acl.entries().is_empty() {
            return Ok(());
        }
        let path = self.path.display();
        let sentence =
            format!("{path} has a default ACL, which would share new files: remove it with setfacl -k {path}");
        Err(Fault::new(FaultKind::Internal, sentence))
    }

    fn read(&self) -> Result<PosixACL, Fault> {
        PosixACL::read_acl(proc_path(self.descriptor.as_raw_fd())).map_err(|e| self.fault(e))
    }

    fn write(&self, acl: &mut PosixACL) -> Result<(), ACLError> {
        acl.write_acl(proc_path(self.descriptor.as_raw_fd()))
    }

    fn fault(&self, error: ACLError) -> Fault {
        match error.as_io_error().and_then(io::Error::raw_os_error) {
            Some(libc::EOPNOTSUPP) => {
                let path = self.path.display();
                let sentence = format!("the file system of {path} has no POSIX ACLs: put data_dir on one that has");
                Fault::because(FaultKind::Unsupported, sentence, error)
            }
            Some(code) => storage_fault(&self.path, io::Error::from_raw_os_error(code)),
            None => {
                Fault::because(FaultKind::Internal, format!("the ACL of {} is not valid", self.path.display()), error)
            }
        }
    }

    /// What adding a guest to a base ran into: an inode's ACL is full long before a disk is.
    fn exhausted(&self, guests: usize, error: ACLError) -> Fault {
        let code = error.as_io_error().and_then(io::Error::raw_os_error);
        let blocks_left = nix::sys::statvfs::fstatvfs(&self.descriptor).is_ok_and(|stat| stat.blocks_available() > 0);
        let list_is_full = match code {
            Some(libc::ENOSPC) => blocks_left,
            Some(libc::E2BIG | libc::ERANGE) => true,
            Some(_) | None => false,
        };
        if !list_is_full {
            return self.fault(error);
        }
        let sentence = format!(
            "{} is shared with {guests} guests, and the file system takes no further ACL entry on one file: delete \
             instances of this image, or place further ones on another host",
            self.path.display()
        );
        Fault::because(FaultKind::ResourcesExhausted, sentence, error)
    }
}

/// `path` beneath `root` as a descriptor that names it and can do nothing else. One part at a time, and not by `openat2`: the
/// unit's `RestrictSUIDSGID=` takes that from the node, since no filter sees what it is asked for.
fn descriptor(root: &Path, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut held = open(root, flags | OFlag::O_DIRECTORY, Mode::empty())?;
    let mut parts = path.strip_prefix(root).map_err(|_| Errno::EXDEV)?.components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else { return Err(Errno::EXDEV) };
        let kind = if parts.peek().is_some() { OFlag::O_DIRECTORY } else { OFlag::empty() };
        let opened = openat(&held, name, flags | kind, Mode::empty());
        // A link in a directory's place is found to be none.
        held = opened.map_err(|error| if error == Errno::ENOTDIR { Errno::ELOOP } else { error })?;
    }
    Ok(held)
}

fn foreign(path: &Path, what: &str) -> Fault {
    let sentence = format!("{} {what}: it is not shared; remove it", path.display());
    Fault::new(FaultKind::Internal, sentence)
}
