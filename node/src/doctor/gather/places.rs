//! Looks at directories and files, and at who may do what with them.
//!
//! Room: `node`. Root does this too, and the node's user may swap what lies in its own directories at any time. So each
//! part of a path is opened from the one before, only to look (`O_PATH`), and no link is followed, whoever made it. A file
//! system that does not answer is not waited for.
use super::super::facts::{Entry, Kind, Part, Place, Search, Seen, Unread};
use super::{ask, within};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::sys::statvfs::fstatvfs;
use posix_acl::{ACL_EXECUTE, PosixACL, Qualifier};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// Longest time that a file system has to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A path, part after part; what is there is held open.
struct Walk {
    way: Vec<Part>,
    /// Of the first parts of the way, as far as there is something.
    opened: Vec<OwnedFd>,
}

impl Walk {
    /// What the whole path leads to.
    fn end(&self) -> Option<&OwnedFd> {
        self.opened.get(self.way.len().checked_sub(1)?)
    }
}

fn walk(path: &Path) -> Walk {
    let look = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut walk = Walk { way: Vec::new(), opened: Vec::new() };
    let mut so_far = PathBuf::new();
    for component in absolute.components() {
        so_far.push(component);
        let seen = match walk.way.last().map(|part| &part.seen) {
            None => Ok(open("/", look, Mode::empty())),
            Some(Seen::There(Entry { kind: Kind::Link, .. }) | Seen::Behind) => Err(Seen::Behind),
            Some(Seen::There(_)) => match (walk.opened.last(), component) {
                (Some(above), Component::Normal(_) | Component::ParentDir) => {
                    Ok(openat(above, component.as_os_str(), look, Mode::empty()))
                }
                (Some(_) | None, _) => Err(Seen::Missing),
            },
            Some(other) => Err(other.clone()),
        };
        let seen = match seen {
            Ok(Ok(opened)) => match see(&opened) {
                Ok(entry) => {
                    walk.opened.push(opened);
                    Seen::There(entry)
                }
                Err(errno) => Seen::Unseen(errno.desc().to_owned()),
            },
            Ok(Err(Errno::ENOENT)) => Seen::Missing,
            Ok(Err(errno)) => Seen::Unseen(errno.desc().to_owned()),
            Err(seen) => seen,
        };
        walk.way.push(Part { path: so_far.clone(), seen });
    }
    walk
}

fn see(opened: &OwnedFd) -> Result<Entry, Errno> {
    let stat = fstat(opened)?;
    let kind = match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFDIR => Kind::Directory,
        SFlag::S_IFREG => Kind::File,
        SFlag::S_IFLNK => Kind::Link,
        SFlag::S_IFSOCK => Kind::Socket,
        _ => Kind::Other,
    };
    Ok(Entry { kind, uid: stat.st_uid, gid: stat.st_gid, mode: stat.st_mode & 0o7777 })
}

/// Runs `look`, which may hang, at `path`.
fn patiently<T: Send + 'static>(path: &Path, look: impl FnOnce(&Path) -> T + Send + 'static) -> Option<T> {
    let path = path.to_owned();
    within(PATIENCE, move || look(&path))
}

/// What is said of a path whose file system does not answer.
fn hangs(path: &Path) -> Vec<Part> {
    let why = format!("its file system does not answer within {} s", PATIENCE.as_secs());
    vec![Part { path: path.to_owned(), seen: Seen::Unseen(why) }]
}

/// Every part of `path`, from `/` on, and what is free there.
pub(in super::super) fn place(path: &Path) -> Place {
    let looked = patiently(path, |path| {
        let walk = walk(path);
        let free = walk.end().and_then(|opened| fstatvfs(opened).ok());
        let free = free.map(|s| s.blocks_available().saturating_mul(s.fragment_size()));
        Place { way: walk.way, free }
    });
    looked.unwrap_or_else(|| Place { way: hangs(path), free: None })
}

/// The way to `path` and the text of the regular file there, of `most` bytes at the most; no link is followed, and nothing is
/// opened for reading but where `may` says of the way to it that it may be.
pub(in super::super) fn text(path: &Path, most: u64, may: fn(&[Part]) -> bool) -> (Vec<Part>, Result<String, Unread>) {
    let read = patiently(path, move |path| {
        let walk = walk(path);
        let text = match (walk.end(), walk.way.last().map(|part| &part.seen)) {
            (Some(_), _) if !may(&walk.way) => Err(Unread::from(Errno::EPERM)),
            (Some(opened), Some(Seen::There(Entry { kind: Kind::File, .. }))) => {
                let reopened = File::open(by_descriptor(opened));
                let errno = |e: std::io::Error| Unread::Errno(e.raw_os_error().unwrap_or(Errno::EIO as i32));
                reopened.map_err(errno).and_then(|file| ask::read_opened(file, most))
            }
            (Some(_), _) => Err(Unread::NoFile),
            (None, Some(Seen::Missing)) => Err(Unread::from(Errno::ENOENT)),
            (None, Some(Seen::Behind)) => Err(Unread::from(Errno::ELOOP)),
            (None, _) => Err(Unread::from(Errno::EACCES)),
        };
        (walk.way, text)
    });
    read.unwrap_or_else(|| (hangs(path), Err(Unread::from(Errno::ETIMEDOUT))))
}

/// The directories above `path` that group kvm, whose gid `kvm` is, may not search; what cannot be told is left out.
pub(super) fn closed(path: &Path, kvm: Result<u32, String>) -> Vec<PathBuf> {
    let closed = patiently(path, move |path| {
        let walk = walk(path);
        let above = walk.way.iter().zip(&walk.opened).take(walk.way.len().saturating_sub(1));
        let closed = above.filter(|(_, opened)| may_search(opened, kvm.clone()) == Ok(Search::Refused));
        closed.map(|(part, _)| part.path.clone()).collect()
    });
    closed.unwrap_or_default()
}

/// Whether group kvm may search the directory `path`.
pub(in super::super) fn searchable(path: &Path, kvm: Result<u32, String>) -> Result<Search, String> {
    let looked = patiently(path, move |path| {
        let walk = walk(path);
        match (walk.end(), walk.way.last().map(|part| &part.seen)) {
            (Some(opened), Some(Seen::There(Entry { kind: Kind::Directory, .. }))) => may_search(opened, kvm),
            (_, Some(Seen::Missing)) => Err(Errno::ENOENT.desc().to_owned()),
            (_, Some(Seen::Unseen(why))) => Err(why.clone()),
            (_, Some(Seen::Behind)) => Err("it lies behind a link".to_owned()),
            (_, Some(Seen::There(_)) | None) => Err(Errno::ENOTDIR.desc().to_owned()),
        }
    });
    looked.unwrap_or_else(|| Err("its file system does not answer".to_owned()))
}

fn may_search(opened: &OwnedFd, kvm: Result<u32, String>) -> Result<Search, String> {
    let gid = fstat(opened).map_err(|errno| errno.desc().to_owned())?.st_gid;
    let kvm = kvm?;
    let acl = PosixACL::read_acl(by_descriptor(opened)).map_err(|e| e.to_string())?;
    let mask = acl.get(Qualifier::Mask).unwrap_or(ACL_EXECUTE);
    let named = acl.get(Qualifier::Group(kvm)).map(|perm| perm & mask);
    let owning = acl.get(Qualifier::GroupObj).filter(|_| gid == kvm).map(|perm| perm & mask);
    // An entry that names the group decides; without one, what everyone has.
    let perm = match (named, owning) {
        (None, None) => acl.get(Qualifier::Other).unwrap_or_default(),
        (named, owning) => named.unwrap_or_default() | owning.unwrap_or_default(),
    };
    Ok(if perm & ACL_EXECUTE != 0 { Search::Allowed } else { Search::Refused })
}

/// What is open already, as a path for those who take no descriptor: it leads nowhere else.
fn by_descriptor(opened: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}
