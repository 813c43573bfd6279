//! Whether a path is root's alone: no one else may replace the file or any directory on the way to it.
//!
//! Room: `confine`. What root reads before it acts is checked so: the helper's configuration and records, and the configuration
//! by which a launcher becomes the node. The walk goes from `/` by descriptor, one part at a time, and follows no link: what was checked is
//! what is opened. A group that may write counts as someone else, and a sticky directory such as `/tmp` is no exception.
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

#[cfg(test)]
mod tests;

/// Largest configuration file, bytes.
pub const CONFIG_BYTES: u64 = 1024 * 1024;

/// Why a path is not trusted, or cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// A part of it cannot be opened.
    #[error("cannot open {path}: {cause}", path = path.display())]
    Open {
        /// As far as the walk came.
        path: PathBuf,
        /// Why.
        cause: Errno,
    },
    /// A part of it belongs to someone else.
    #[error("{path} belongs to uid {uid}: it must be root's (chown root it)", path = path.display())]
    Owner {
        /// The part.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// A part of it can be written by someone else.
    #[error("{path} has mode {mode:04o} and no one but root may write to it: {}", mend(*mode), path = path.display())]
    Writable {
        /// The part.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is no regular file, or has several names, or is too large.
    #[error("{path} is not usable: {what}", path = path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// It could not be read.
    #[error("cannot read {path}: {cause}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
}

/// What to do about a mode. Where everybody may write and the sticky bit is set, as in `/tmp`, it is so on purpose: what lies
/// there has to move.
fn mend(mode: u32) -> &'static str {
    if mode & 0o1002 != 0o1002 {
        "chmod go-w it"
    } else {
        "use a directory that is root's alone, such as /etc/bcd, instead"
    }
}

/// How strict the last directory of a walk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// Root's, writable by root alone.
    Closed,
    /// As `Closed`, and made with mode 0700 when it is missing.
    Made,
}

fn check(path: &Path, stat: &FileStat) -> Result<(), Untrusted> {
    let mode = stat.st_mode & 0o7777;
    if stat.st_uid != 0 {
        return Err(Untrusted::Owner { path: path.to_owned(), uid: stat.st_uid });
    }
    if mode & 0o022 != 0 {
        return Err(Untrusted::Writable { path: path.to_owned(), mode });
    }
    Ok(())
}

/// Opens a directory (for use as the base of `*at` calls and for reading) after checking every one on the way.
///
/// # Errors
/// [`Untrusted`] with the part that is not root's alone.
pub fn open_directory(path: &Path, last: Last) -> Result<OwnedFd, Untrusted> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
    let mut walked = PathBuf::from("/");
    let open_error = |path: &Path, cause| Untrusted::Open { path: path.to_owned(), cause };
    let mut directory = nix::fcntl::open("/", flags, Mode::empty()).map_err(|e| open_error(&walked, e))?;
    check(&walked, &fstat(&directory).map_err(|e| open_error(&walked, e))?)?;
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let name = match part {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => continue,
            Component::ParentDir => return Err(open_error(path, Errno::EINVAL)),
            Component::Normal(name) => name,
        };
        let is_last = parts.peek().is_none();
        walked.push(name);
        let next = match openat(&directory, name, flags, Mode::empty()) {
            Err(Errno::ENOENT) if is_last && last == Last::Made => {
                mkdirat(&directory, name, Mode::from_bits_truncate(0o700)).map_err(|e| open_error(&walked, e))?;
                openat(&directory, name, flags, Mode::empty()).map_err(|e| open_error(&walked, e))?
            }
            opened => opened.map_err(|e| open_error(&walked, e))?,
        };
        directory = next;
        let stat = fstat(&directory).map_err(|e| open_error(&walked, e))?;
        check(&walked, &stat)?;
    }
    Ok(directory)
}

/// A path as the walk takes it. A relative one is of the directory that the process was started in; `..` leaves the part before
/// it, which is right since no part may be a link.
///
/// # Errors
/// When it is empty, or the working directory cannot be told.
pub fn spelt_out(path: &Path) -> std::io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    Ok(absolute.components().fold(PathBuf::new(), |mut path, part| {
        if part == Component::ParentDir {
            path.pop();
        } else {
            path.push(part);
        }
        path
    }))
}

/// Reads a regular file of at most `most` bytes after checking it and every directory on the way.
///
/// # Errors
/// [`Untrusted`] with the part that is not root's alone, or why it cannot be read.
pub fn read_file(path: &Path, most: u64) -> Result<String, Untrusted> {
    let kind = |what| Untrusted::Kind { path: path.to_owned(), what };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(kind("it names no file"));
    };
    let directory = open_directory(parent, Last::Closed)?;
    read_within(&directory, name, path, most)
}

/// Reads a regular file of at most `most` bytes in an already trusted directory; `path` is for messages.
///
/// # Errors
/// As [`read_file`].
pub fn read_within(directory: &OwnedFd, name: &OsStr, path: &Path, most: u64) -> Result<String, Untrusted> {
    let kind = |what| Untrusted::Kind { path: path.to_owned(), what };
    // O_NONBLOCK: a FIFO in the file's place must not hold the open.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let open_error = |cause| Untrusted::Open { path: path.to_owned(), cause };
    let file = openat(directory, name, flags, Mode::empty()).map_err(open_error)?;
    let stat = fstat(&file).map_err(open_error)?;
    if SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) != SFlag::S_IFREG {
        return Err(kind("it is no regular file"));
    }
    check(path, &stat)?;
    let mut text = String::new();
    let read_error = |cause| Untrusted::Read { path: path.to_owned(), cause };
    let read = File::from(file).take(most.saturating_add(1)).read_to_string(&mut text).map_err(read_error)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > most {
        return Err(kind("it is too large"));
    }
    Ok(text)
}
