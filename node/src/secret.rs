//! User data from a directory of secrets: one file per allocation, named by it.
//!
//! Room: `node`. User data never travels in a document. It is read when a new instance's seed is written, held in memory
//! that is wiped when it is dropped, and never logged: a [`Secret`] shows its length alone. Which file is read follows
//! from the allocation, whose text can be no path.
use crate::fault::{Fault, FaultKind};
use bcd_protocol::id::AllocationId;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use zeroize::Zeroizing;

#[cfg(test)]
mod tests;

/// Most bytes of one instance's user data. Clouds allow 16 to 64 KiB; a seed has room for more.
pub const USER_DATA_BYTES: usize = 1024 * 1024;

/// Bytes that nobody may see: wiped when dropped.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// The bytes.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

/// Reads the user data of an allocation from `directory`; `None` when it has no file there. Blocks on the file system.
///
/// # Errors
/// `Denied` when directory or file could be read or changed by somebody else, is another user's, or is no regular file
/// of its own name; `InvalidSpec` above [`USER_DATA_BYTES`]; `Unavailable` when it cannot be read. The sentence names
/// the file and what to do.
pub fn user_data(directory: &Path, allocation: &AllocationId) -> Result<Option<Secret>, Fault> {
    let file = directory.join(allocation.as_str());
    match open_checked(directory, allocation)? {
        Some((opened, stat)) => read(&file, opened, &stat).map(Some),
        None => Ok(None),
    }
}

/// Whether [`user_data`] would read the file of an allocation, which is not read. No file is fine too.
///
/// # Errors
/// As there.
pub(crate) fn check(directory: &Path, allocation: &AllocationId) -> Result<(), Fault> {
    open_checked(directory, allocation).map(drop)
}

/// The file of an allocation, if there is one and nobody else could read or change it.
fn open_checked(directory: &Path, allocation: &AllocationId) -> Result<Option<(OwnedFd, FileStat)>, Fault> {
    let file = directory.join(allocation.as_str());
    let Some(folder) = folder(directory)? else { return Ok(None) };
    // Without O_NONBLOCK a FIFO under that name would hold this thread until somebody writes to it.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    let opened = match openat(&folder, allocation.as_str(), flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::ENOENT) => return Ok(None),
        Err(Errno::ELOOP) => return Err(denied(&file, "is a link: put the file itself there")),
        Err(errno) => return Err(unreadable(&file, errno)),
    };
    let stat = fstat(&opened).map_err(|errno| unreadable(&file, errno))?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(denied(&file, "is no regular file: put a file there"));
    }
    judge_owner(&file, &stat)?;
    if stat.st_mode & 0o077 != 0 {
        return Err(denied(
            &file,
            &format!("has mode {:04o}, so that others may read it: chmod 0600", stat.st_mode & 0o7777),
        ));
    }
    Ok(Some((opened, stat)))
}

/// The directory, if there is one that nobody else can put files into.
fn folder(directory: &Path) -> Result<Option<OwnedFd>, Fault> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let folder = match open(directory, flags, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::ENOENT) => return Ok(None),
        Err(Errno::ENOTDIR) => return Err(denied(directory, "is no directory: node.secrets must name one")),
        Err(errno) => return Err(unreadable(directory, errno)),
    };
    let stat = fstat(&folder).map_err(|errno| unreadable(directory, errno))?;
    judge_owner(directory, &stat)?;
    if stat.st_mode & 0o022 != 0 {
        return Err(denied(
            directory,
            &format!("has mode {:04o}, so that others may put files there: chmod 0700", stat.st_mode & 0o7777),
        ));
    }
    Ok(Some(folder))
}

fn judge_owner(path: &Path, stat: &FileStat) -> Result<(), Fault> {
    let own = nix::unistd::geteuid().as_raw();
    if stat.st_uid == own || stat.st_uid == 0 {
        return Ok(());
    }
    Err(denied(path, &format!("belongs to uid {}: chown it to uid {own}, the node's, or to root", stat.st_uid)))
}

fn read(path: &Path, opened: OwnedFd, stat: &FileStat) -> Result<Secret, Fault> {
    let size = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
    if size > USER_DATA_BYTES {
        return Err(Fault::new(
            FaultKind::InvalidSpec,
            format!("user data {} has {size} bytes: the most is {USER_DATA_BYTES}", path.display()),
        ));
    }
    // The buffer is as large as it will ever be: one that grew would leave copies behind that nobody wipes. read_to_end
    // needs a byte to spare to see the end.
    let mut bytes = Zeroizing::new(Vec::with_capacity(size + 64));
    let most = u64::try_from(size).unwrap_or(u64::MAX).saturating_add(1);
    File::from(opened).take(most).read_to_end(&mut bytes).map_err(|e| {
        Fault::because(FaultKind::Unavailable, format!("user data {} cannot be read", path.display()), e)
    })?;
    if bytes.len() != size {
        return Err(Fault::new(
            FaultKind::Unavailable,
            format!("user data {} changed while it was read: write it beside and rename it there", path.display()),
        ));
    }
    Ok(Secret(bytes))
}

fn denied(path: &Path, what: &str) -> Fault {
    Fault::new(FaultKind::Denied, format!("user data: {} {what}", path.display()))
}

fn unreadable(path: &Path, errno: Errno) -> Fault {
    let own = nix::unistd::geteuid().as_raw();
    let remedy =
        if errno == Errno::EACCES { format!(": let uid {own} read it (chown, mode 0600)") } else { String::new() };
    Fault::because(
        FaultKind::Unavailable,
        format!("user data {} cannot be opened by the node's user{remedy}", path.display()),
        errno,
    )
}
