//! Follows the NodeSpec file: puts it in force when it changes.
//!
//! Room: `node`. The directory is watched, not the file, so that a file replaced by rename is seen, and looked at now and
//! then besides, so that nothing is lost where watching does not work. A file that is refused changes nothing; one that
//! vanishes changes nothing either. Which text was put in force last is remembered across restarts: a file that did not
//! change since does not undo what was applied after it.
use crate::converge::Converger;
use crate::fault::{Fault, FaultKind};
use crate::own_file;
use crate::spec;
use crate::status::SpecSource;
use bcd_protocol::id::Sha256Digest;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use sha2::{Digest, Sha256};
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

/// Writers that do not rename write in pieces: this long without another event, and the file is read.
const QUIET: Duration = Duration::from_millis(150);
/// The longest that a busy directory holds a change up.
const QUIET_MOST: Duration = Duration::from_secs(2);
/// Between two looks when no event comes.
const LOOK: Duration = Duration::from_secs(10);
/// Between two tries to put a document in force that cannot be judged yet.
const AGAIN: Duration = Duration::from_secs(2);

/// What tells one version of the file from another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// Follows `path` until aborted. The digest of the text put in force last is kept in `memory`; `None`: nothing that was
/// in force before the start is in force now.
pub(super) async fn follow(path: PathBuf, converger: Converger, memory: PathBuf, kept: bool) {
    let changed = Arc::new(Notify::new());
    let mut watcher = None;
    let mut seen = None;
    let mut text = Text { memory, last: None, unread: false };
    if kept {
        text.last = recall(&text.memory).await;
    }
    loop {
        if watcher.is_none() {
            watcher = watch(&path, &changed);
        }
        let again = look(&path, &converger, &mut seen, &mut text).await;
        if timeout(if again { AGAIN } else { LOOK }, changed.notified()).await.is_ok() {
            settle(&changed).await;
        }
    }
}

/// Waits until the directory has been quiet for a moment.
async fn settle(changed: &Notify) {
    let end = Instant::now().checked_add(QUIET_MOST);
    while end.is_some_and(|end| Instant::now() < end) && timeout(QUIET, changed.notified()).await.is_ok() {}
}

/// Watches the file's directory; without it there is still the look now and then.
fn watch(path: &Path, changed: &Arc<Notify>) -> Option<RecommendedWatcher> {
    let (directory, name) = (path.parent()?, path.file_name()?.to_owned());
    let notify = Arc::clone(changed);
    let handler = move |event: notify::Result<notify::Event>| {
        let ours =
            |event: &notify::Event| event.need_rescan() || event.paths.iter().any(|p| p.file_name() == Some(&name));
        if event.as_ref().map_or(true, ours) {
            notify.notify_one();
        }
    };
    let watcher = RecommendedWatcher::new(handler, notify::Config::default()).and_then(|mut watcher| {
        watcher.watch(directory, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    watcher.inspect_err(|error| debug!(%error, directory = %directory.display(), "directory not watched")).ok()
}

/// Reads the file when it is another than before and puts it in force. Answers whether to try again soon.
async fn look(path: &Path, converger: &Converger, seen: &mut Option<Version>, text: &mut Text) -> bool {
    let (owned, known) = (path.to_owned(), seen.clone());
    let read = tokio::task::spawn_blocking(move || read(&owned, known.as_ref())).await;
    let (version, now) = match read {
        Ok(Ok(Some(read))) => read,
        Ok(Ok(None)) => return false,
        Ok(Err(fault)) => {
            // Told once: again only after it could be read.
            *seen = None;
            if !std::mem::replace(&mut text.unread, true) {
                converger.refused(fault).await;
            }
            return false;
        }
        Err(error) => {
            warn!(%error, "document not read");
            return false;
        }
    };
    text.unread = false;
    let digest = Sha256Digest::from_bytes(Sha256::digest(&now).into()).to_string();
    if text.last.as_ref() == Some(&digest) {
        *seen = Some(version);
        return false;
    }
    let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    let accepted = match spec::parse(&name, &now) {
        Ok(spec) => match converger.apply(spec, SpecSource::File { path: path.display().to_string() }, false).await {
            Ok(_) => true,
            Err(fault) if fault.kind() == FaultKind::Unavailable => return true,
            Err(_) => false,
        },
        Err(error) => {
            converger.refused(Fault::new(FaultKind::InvalidSpec, error.to_string())).await;
            false
        }
    };
    if accepted {
        info!(path = %path.display(), "document read");
        remember(&text.memory, &digest).await;
    }
    *seen = Some(version);
    text.last = Some(digest);
    false
}

/// The text seen last.
struct Text {
    /// Where the digest of the text put in force last is kept.
    memory: PathBuf,
    /// The digest of the text seen last.
    last: Option<String>,
    /// The file could not be read, and that was told.
    unread: bool,
}

async fn recall(memory: &Path) -> Option<String> {
    let memory = memory.to_owned();
    let read = move || io::read_to_string(own_file::open(&memory, OpenOptions::new().read(true))?);
    tokio::task::spawn_blocking(read).await.ok()?.ok().map(|text| text.trim().to_owned())
}

/// Losing it costs no more than reading the file once too often.
async fn remember(memory: &Path, digest: &str) {
    let (path, digest) = (memory.to_owned(), digest.to_owned());
    let write = move || {
        own_file::open(&path, OpenOptions::new().write(true).create(true).truncate(true))?.write_all(digest.as_bytes())
    };
    if let Ok(Err(error)) = tokio::task::spawn_blocking(write).await {
        warn!(%error, path = %memory.display(), "digest of the document not kept");
    }
}

/// The file's text, unless it is the version `known` or is not there: a file to come is no fault.
fn read(path: &Path, known: Option<&Version>) -> Result<Option<(Version, String)>, Fault> {
    let fault = |error: io::Error| {
        Fault::because(FaultKind::Unavailable, format!("document {} cannot be read", path.display()), error)
    };
    // A FIFO in its place must not hold the node up.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault(error)),
    };
    let meta = file.metadata().map_err(fault)?;
    let most = u64::try_from(spec::parse::DOCUMENT_BYTES).unwrap_or(u64::MAX);
    if !meta.is_file() || meta.len() > most {
        let sentence = format!("document {} is no regular file of at most {most} bytes", path.display());
        return Err(Fault::new(FaultKind::InvalidSpec, sentence));
    }
    let version = Version {
        device: meta.dev(),
        inode: meta.ino(),
        size: meta.size(),
        modified: (meta.mtime(), meta.mtime_nsec()),
    };
    if known == Some(&version) {
        return Ok(None);
    }
    let mut text = String::new();
    Read::by_ref(&mut file).take(most).read_to_string(&mut text).map_err(fault)?;
    Ok(Some((version, text)))
}
