//! What root remembers, durably: one file a record, written whole before it counts.
//!
//! Room: `helper`. A change is in memory only after it is on disk (temp file, fsync, rename, fsync of the directory). What
//! cannot be read at start stops the start: an unreadable ledger is never an empty one.
//!
//! ```text
//! state_dir/            0700 root
//!   lock                held for as long as a helper runs; says whether it ends with its node
//!   records/<id>.json   one record
//!   records/.<id>.part  a write under way; removed at start
//! ```
use bcd_confine::trust::{self, Last, Untrusted};
use bcd_policy::record::{Contradiction, RECORD_VERSION};
use bcd_policy::{Record, RecordChange, Records};
use bcd_protocol::id::InstanceId;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::sys::uio::{pread, pwrite};
use nix::unistd::{UnlinkatFlags, fsync, ftruncate, unlinkat};
use serde::Deserialize;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// Largest file of a record, bytes. The largest record is well under 16 KiB as JSON.
const RECORD_BYTES: u64 = 64 * 1024;

/// What a helper is, as far as who comes after it is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// One that listens: it stays.
    Listens,
    /// A standalone node's: it ends soon after that node.
    EndsWithItsNode,
}

/// The whole content of the lock file of a helper that ends with its node.
const ENDS: &[u8] = b"ends with its node\n";

/// Why the ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The state directory or something in it is not root's alone.
    #[error("the helper's state is not safe")]
    Untrusted(#[from] Untrusted),
    /// Another helper holds it.
    #[error("{path} is locked: another bcd-helper runs on this state", path = path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// What the one who holds it is.
        holder: Holder,
    },
    /// A system call failed.
    #[error("cannot {what} {path}: {cause}", path = path.display())]
    System {
        /// What failed.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        cause: Errno,
    },
    /// A file is not a record.
    #[error(
        "{path} is not a record that this bcd-helper can read ({what}): restore it or move it away, its guest is then no \
         longer bcd's", path = path.display()
    )]
    NotARecord {
        /// The file.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// The records contradict each other.
    #[error("the records in {path} contradict each other", path = path.display())]
    Contradiction {
        /// The directory.
        path: PathBuf,
        /// How.
        #[source]
        cause: Contradiction,
    },
}

/// Why a change is not durable.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} the record of instance {instance}: {cause}")]
pub(crate) struct WriteError {
    what: &'static str,
    instance: InstanceId,
    cause: std::io::Error,
}

impl WriteError {
    /// The record contradicts another one.
    pub(crate) fn contradiction(instance: InstanceId, cause: Contradiction) -> Self {
        Self { what: "admit", instance, cause: std::io::Error::other(cause) }
    }

    /// The write ended without a word: whoever did it panicked.
    pub(crate) fn interrupted(instance: InstanceId) -> Self {
        Self { what: "write", instance, cause: std::io::Error::from(std::io::ErrorKind::Interrupted) }
    }
}

/// The opened ledger. Writing blocks on the disk.
#[derive(Debug)]
pub(crate) struct Ledger {
    records: OwnedFd,
    _lock: Flock<OwnedFd>,
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

fn file_name(instance: &InstanceId) -> String {
    format!("{instance}.json")
}

fn part_name(instance: &InstanceId) -> String {
    format!(".{instance}.part")
}

/// Opens the ledger in `state_dir`, makes what is missing, removes unfinished writes, reads every record.
///
/// The lock says what `holder` is.
///
/// # Errors
/// [`LoadError`], naming the file.
pub(crate) fn open(state_dir: &Path, holder: Holder) -> Result<(Ledger, Records), LoadError> {
    let directory = trust::open_directory(state_dir, Last::Made)?;
    let lock_path = state_dir.join("lock");
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let lock = openat(&directory, "lock", flags, Mode::from_bits_truncate(0o600))
        .map_err(|cause| LoadError::System { what: "open", path: lock_path.clone(), cause })?;
    let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(lock, cause)| {
        let path = lock_path.clone();
        if cause == Errno::EWOULDBLOCK {
            LoadError::Locked { path, holder: who_holds(&lock) }
        } else {
            LoadError::System { what: "lock", path, cause }
        }
    })?;
    sign(&lock, holder).map_err(|cause| LoadError::System { what: "write", path: lock_path.clone(), cause })?;
    let path = state_dir.join("records");
    let records = trust::open_directory(&path, Last::Made)?;
    let system = |what, cause| LoadError::System { what, path: path.clone(), cause };
    fsync(&directory).map_err(|e| system("sync the directory of", e))?;
    let listing = records.try_clone().map_err(|_| system("list", Errno::EMFILE))?;
    let mut found = Vec::new();
    for entry in Dir::from_fd(listing).map_err(|e| system("list", e))? {
        let entry = entry.map_err(|e| system("list", e))?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let bytes = name.as_bytes();
        if bytes == b"." || bytes == b".." {
            continue;
        }
        if bytes.starts_with(b".") && bytes.ends_with(b".part") {
            unlinkat(&records, name, UnlinkatFlags::NoRemoveDir).map_err(|e| system("remove a leftover in", e))?;
            continue;
        }
        found.push(read(&records, name, &path.join(name))?);
    }
    let records_read = Records::load(found).map_err(|cause| LoadError::Contradiction { path: path.clone(), cause })?;
    Ok((Ledger { records, _lock: lock }, records_read))
}

/// Notes in the lock who holds it.
fn sign(lock: &OwnedFd, holder: Holder) -> Result<(), Errno> {
    ftruncate(lock, 0)?;
    match holder {
        Holder::Listens => Ok(()),
        Holder::EndsWithItsNode => pwrite(lock, ENDS, 0).map(drop),
    }
}

/// Who holds the lock, as far as that is noted already.
fn who_holds(lock: &OwnedFd) -> Holder {
    let mut noted = [0; ENDS.len()];
    match pread(lock, &mut noted, 0) {
        Ok(_) if noted == ENDS => Holder::EndsWithItsNode,
        Ok(_) | Err(_) => Holder::Listens,
    }
}

fn read(directory: &OwnedFd, name: &OsStr, path: &Path) -> Result<Record, LoadError> {
    let not_a_record = |what: String| LoadError::NotARecord { path: path.to_owned(), what };
    let text = trust::read_within(directory, name, path, RECORD_BYTES)?;
    let Versioned { version } = serde_json::from_str(&text).map_err(|e| not_a_record(e.to_string()))?;
    if version != RECORD_VERSION {
        return Err(not_a_record(format!("it has version {version}, this bcd-helper reads {RECORD_VERSION}")));
    }
    let record: Record = serde_json::from_str(&text).map_err(|e| not_a_record(e.to_string()))?;
    if name.as_bytes() != file_name(&record.instance).as_bytes() {
        return Err(not_a_record(format!("it is of instance {}, which is not its name", record.instance)));
    }
    Ok(record)
}

impl Ledger {
    /// Makes `change` durable. When it fails, the record on disk is the old one or the new one, whole.
    ///
    /// # Errors
    /// [`WriteError`] with the step that failed.
    pub(crate) fn write(&self, change: &RecordChange) -> Result<(), WriteError> {
        let instance = change.instance();
        let error = |what, cause: std::io::Error| WriteError { what, instance: instance.clone(), cause };
        match change {
            RecordChange::Put(record) => {
                let mut text = serde_json::to_vec_pretty(record).map_err(|e| error("encode", e.into()))?;
                text.push(b'\n');
                self.replace(instance, &text).map_err(|(what, cause)| error(what, cause))?;
            }
            RecordChange::Remove(_) => {
                match unlinkat(&self.records, file_name(instance).as_str(), UnlinkatFlags::NoRemoveDir) {
                    Ok(()) | Err(Errno::ENOENT) => {}
                    Err(cause) => return Err(error("remove", cause.into())),
                }
            }
        }
        fsync(&self.records).map_err(|e| error("sync the directory of", e.into()))
    }

    fn replace(&self, instance: &InstanceId, text: &[u8]) -> Result<(), (&'static str, std::io::Error)> {
        let part = part_name(instance);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&self.records, part.as_str(), flags, Mode::from_bits_truncate(0o600))
            .map_err(|e| ("create", e.into()))?;
        let mut file = File::from(file);
        file.write_all(text).map_err(|e| ("write", e))?;
        file.sync_all().map_err(|e| ("sync", e))?;
        renameat(&self.records, part.as_str(), &self.records, file_name(instance).as_str())
            .map_err(|e| ("publish", e.into()))
    }
}
