//! An instance's root disk: a qcow2 overlay on a base image.
//!
//! Room: `node`. Blocking functions: call them within `spawn_blocking`. Invariant: a file under the name `disk.qcow2` is
//! a whole qcow2 with an explicit backing path and format, and its first-level table spans the largest disk there may
//! be, so that growing is one write of eight bytes and a crash leaves either size, never half of one.
use crate::fault::{Fault, FaultKind};
use crate::image::bytes::{FileBytes, window};
use crate::image::qcow2::{self, Header, HeaderError};
use crate::image::{BaseImage, storage_fault};
use crate::layout::Layout;
use bcd_protocol::definition::ImageFormat;
use bcd_protocol::id::InstanceId;
use bcd_protocol::limits;
use bcd_protocol::size::DiskBytes;
use imago::qcow2::Qcow2;
use imago::{FormatCreateBuilder, StorageOpenOptions};
use nix::fcntl::{FallocateFlags, FcntlArg, fallocate, fcntl};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// What the names of half-made files in an instance's directory begin with.
pub(crate) const HALF_MADE: &str = ".making-";

/// The bytes that QEMU locks of an image it has open: `RAW_LOCK_PERM_BASE` (100) and `RAW_LOCK_SHARED_BASE` (200) in its
/// block/file-posix.c, with 64 permissions each.
const QEMU_LOCK: std::ops::Range<i64> = 100..264;

/// What a disk's own header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFacts {
    /// Its virtual size, bytes.
    pub virtual_bytes: u64,
    /// The base image it lies on, as written in the overlay.
    pub backing: Option<Backing>,
    /// Whether anything was ever written to it: `false` for an overlay as [`create`] makes it.
    pub written: bool,
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

/// Makes the instance's directory (0700) unless it is there, and removes what an earlier attempt left half-made in it.
/// Blocking.
///
/// # Errors
/// A fault when it cannot be made, or when something else lies under its name.
pub fn make_directory(layout: &Layout, id: &InstanceId) -> Result<(), Fault> {
    let path = layout.instance(id);
    match DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => return sync_directory(&layout.instances()).map_err(|e| storage_fault(&path, e)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(storage_fault(&path, error)),
    }
    let metadata = fs::symlink_metadata(&path).map_err(|e| storage_fault(&path, e))?;
    if !metadata.is_dir() || metadata.uid() != nix::unistd::geteuid().as_raw() {
        let sentence = format!("{} is no directory of the node's own: remove it", path.display());
        return Err(Fault::new(FaultKind::Internal, sentence));
    }
    for entry in fs::read_dir(&path).map_err(|e| storage_fault(&path, e))? {
        let entry = entry.map_err(|e| storage_fault(&path, e))?;
        if entry.file_name().as_bytes().starts_with(HALF_MADE.as_bytes()) {
            remove_any(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes the instance's directory with all that is in it; never follows a link. Fine when there is none. Blocking.
///
/// # Errors
/// A fault when something in it cannot be removed.
pub fn remove_directory(layout: &Layout, id: &InstanceId) -> Result<(), Fault> {
    remove_any(&layout.instance(id))?;
    sync_directory(&layout.instances()).map_err(|e| storage_fault(&layout.instances(), e))
}

/// Removes a file or a directory with its content; a link is removed, not what it leads to.
fn remove_any(path: &Path) -> Result<(), Fault> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(storage_fault(path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Makes the overlay `disk.qcow2` of `size` on `base`, in the directory that [`make_directory`] made. Does nothing when
/// an overlay on that base is there already, whatever its size. Blocking.
///
/// # Errors
/// `InvalidSpec` when `size` is smaller than the base's virtual size; `ResourcesExhausted` for a full disk; `Internal`
/// when another disk lies there.
pub fn create(layout: &Layout, id: &InstanceId, base: &BaseImage, size: DiskBytes) -> Result<(), Fault> {
    if size.get() < base.virtual_bytes {
        let sentence = format!(
            "disk_bytes is {size}, and the image holds a disk of {} bytes: use at least that",
            base.virtual_bytes
        );
        return Err(Fault::new(FaultKind::InvalidSpec, sentence));
    }
    let path = layout.disk(id);
    let wanted = Backing { path: base.path.clone(), format: base.image.format };
    match inspect(layout, id)? {
        Some(DiskFacts { backing: Some(backing), .. }) if backing == wanted => return Ok(()),
        Some(_) => {
            let sentence = format!("{} is there already and lies on another base: remove the instance", path.display());
            return Err(Fault::new(FaultKind::Internal, sentence));
        }
        None => {}
    }
    make(&path, &wanted, size).map_err(|e| storage_fault(&path, e))
}

fn make(path: &Path, backing: &Backing, size: DiskBytes) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let name = backing.path.to_str().ok_or(io::ErrorKind::InvalidInput)?;
    let made = tempfile::Builder::new().prefix(HALF_MADE).tempfile_in(directory)?;
    let storage =
        imago::file::File::from_open_file(made.as_file().try_clone()?, StorageOpenOptions::new().write(true))?;
    Qcow2::<imago::file::File>::create_builder(storage)
        .size(limits::DISK_MAX)
        .backing(name.to_owned(), backing.format.as_str().to_owned())
        .create()?;
    let file = made.as_file();
    set_size(file, size.get())?;
    let facts = read(file)?;
    if facts.header.virtual_bytes != size.get() || facts.facts.backing.as_ref() != Some(backing) {
        return Err(io::Error::other("the new disk's header is not what was asked for"));
    }
    // The table is empty: as a hole it takes no space. A file system without holes keeps it as it is.
    let l1_bytes = i64::from(facts.header.l1_entries) * 8;
    if let Ok(offset) = i64::try_from(facts.header.l1_offset) {
        let _ = fallocate(
            file,
            FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE,
            offset,
            l1_bytes,
        );
    }
    file.sync_all()?;
    made.persist_noclobber(path).map_err(|e| e.error)?;
    sync_directory(directory)
}

/// Grows the disk of a stopped instance to `size`. Repeating it is fine. Blocking.
///
/// # Errors
/// `InvalidSpec` when the disk is larger already; `Unavailable` while a VMM has it open; `Internal` when there is none.
pub fn grow(layout: &Layout, id: &InstanceId, size: DiskBytes) -> Result<Growth, Fault> {
    let path = layout.disk(id);
    let file = open(&path, OpenOptions::new().read(true).write(true))?
        .ok_or_else(|| Fault::new(FaultKind::Internal, format!("{} is not there: it cannot grow", path.display())))?;
    lock(&file).map_err(|e| {
        let sentence = format!("{} is open in a VMM: stop the instance, or let it grow while it runs", path.display());
        Fault::because(FaultKind::Unavailable, sentence, e)
    })?;
    let found = read(&file).map_err(|e| unreadable(&path, e))?.header;
    if found.virtual_bytes == size.get() {
        return Ok(Growth::Already);
    }
    if found.virtual_bytes > size.get() {
        let sentence = format!(
            "disk_bytes is {size}, and the disk has {} bytes already: a disk never shrinks, use at least that",
            found.virtual_bytes
        );
        return Err(Fault::new(FaultKind::InvalidSpec, sentence));
    }
    let span =
        u64::from(found.l1_entries).saturating_mul(found.cluster_bytes() / 8).saturating_mul(found.cluster_bytes());
    if span < size.get() {
        let sentence = format!("{} was not made by bcd: its tables span {span} bytes, not {size}", path.display());
        return Err(Fault::new(FaultKind::Internal, sentence));
    }
    set_size(&file, size.get()).and_then(|()| file.sync_all()).map_err(|e| storage_fault(&path, e))?;
    Ok(Growth::From(found.virtual_bytes))
}

/// Reads what the disk's header says. `None` when there is no disk. Blocking.
///
/// # Errors
/// A fault when it cannot be read or is no qcow2 of ours: a VMM can write anything into it.
pub fn inspect(layout: &Layout, id: &InstanceId) -> Result<Option<DiskFacts>, Fault> {
    let path = layout.disk(id);
    let Some(file) = open(&path, OpenOptions::new().read(true))? else { return Ok(None) };
    read(&file).map(|read| Some(read.facts)).map_err(|e| unreadable(&path, e))
}

struct Read {
    header: Header,
    facts: DiskFacts,
}

/// Reads a disk of ours: its header must be well formed and name its base with a known format.
fn read(file: &File) -> io::Result<Read> {
    let bytes = FileBytes::new(file)?;
    let header = Header::read(&bytes).map_err(|error| match error {
        HeaderError::Lie(lie) => io::Error::new(io::ErrorKind::InvalidData, lie),
        HeaderError::Read(error) => error,
    })?;
    header.overlay().map_err(|lie| io::Error::new(io::ErrorKind::InvalidData, lie))?;
    let backing = match (&header.backing_name, &header.extensions.backing_format) {
        (Some(name), Some(format)) => {
            let format = std::str::from_utf8(format)
                .ok()
                .and_then(ImageFormat::named)
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the backing format is unknown"))?;
            Some(Backing { path: PathBuf::from(OsStr::from_bytes(name)), format })
        }
        (Some(_), None) | (None, _) => None,
    };
    let facts = DiskFacts { virtual_bytes: header.virtual_bytes, backing, written: is_written(&bytes, &header)? };
    Ok(Read { header, facts })
}

/// Whether the first-level table has an entry. It lies within the file: [`Header::read`] saw to that. The table has room
/// for a disk that grows to the most there may be; no guest writes beyond the size it has, so only that part is read: a
/// node that starts looks at every disk.
fn is_written(bytes: &FileBytes<'_>, header: &Header) -> io::Result<bool> {
    let covered = header.cluster_bytes().saturating_mul(header.cluster_bytes() / 8).max(1);
    let entries = header.virtual_bytes.div_ceil(covered).min(u64::from(header.l1_entries));
    let (mut at, end) = (header.l1_offset, header.l1_offset + entries * 8);
    while at < end {
        let chunk: [u8; 4096] = window(bytes, at)?;
        let here = usize::try_from(end - at).unwrap_or(usize::MAX).min(chunk.len());
        if chunk.iter().take(here).any(|byte| *byte != 0) {
            return Ok(true);
        }
        at += chunk.len() as u64;
    }
    Ok(false)
}

/// Opens a disk of ours: a regular file with one name that the node's user owns. `None` when there is nothing.
fn open(path: &Path, options: &mut OpenOptions) -> Result<Option<File>, Fault> {
    // A FIFO must not make this wait, nor a link lead it elsewhere.
    let file = match options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(storage_fault(path, error)),
    };
    let metadata = file.metadata().map_err(|e| storage_fault(path, e))?;
    if !metadata.is_file() || metadata.nlink() != 1 || metadata.uid() != nix::unistd::geteuid().as_raw() {
        let sentence = format!("{} is no regular file of the node's own with one name: remove it", path.display());
        return Err(Fault::new(FaultKind::Internal, sentence));
    }
    Ok(Some(file))
}

/// Takes the locks that a VMM would hold, for as long as `file` lives.
fn lock(file: &File) -> io::Result<()> {
    let range = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: QEMU_LOCK.start,
        l_len: QEMU_LOCK.end - QEMU_LOCK.start,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&range))?;
    Ok(())
}

/// Eight bytes within the first sector: the kernel and the disk write them whole or not at all.
fn set_size(file: &File, bytes: u64) -> io::Result<()> {
    file.write_all_at(&bytes.to_be_bytes(), qcow2::SIZE_AT)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn unreadable(path: &Path, error: io::Error) -> Fault {
    Fault::because(FaultKind::Internal, format!("{} is not a disk that bcd made, or is damaged", path.display()), error)
}
