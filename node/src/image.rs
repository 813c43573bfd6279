//! Base images: fetched over https, checked, published under their digest.
//!
//! Room: `node`. Invariant: a file under its final name `images/<sha256>.<format>` is whole, has that digest, and passed
//! the tenant image check; nothing else ever gets such a name.
//!
//! ```text
//! ensure ─┬─ there already ───────────────────────────────────────────────────────────▶ BaseImage
//!         └─ wait for a place ─▶ https ─▶ .part-… (hash, write) ─▶ digest ─▶ check ─▶ fsync, rename, fsync
//! ```
use crate::fault::{Fault, FaultKind};
use crate::layout::Layout;
use crate::spec;
use bcd_protocol::config::ImagesConfig;
use bcd_protocol::definition::ImageRef;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, mpsc, watch};

pub(crate) mod bytes;
pub(crate) mod check;
mod fetch;
mod hosts;
mod part;
mod published;
pub(crate) mod qcow2;
mod second;
mod sniff;

#[cfg(test)]
mod tests;

/// What the names of downloads under way begin with.
const PART_PREFIX: &str = ".part-";
/// Pieces between the network and the disk. A piece has 16 KiB to some 400 KiB, as the connection's buffer grows.
const PIECES: usize = 8;

/// A checked base image that lies under its final name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseImage {
    /// Its absolute path.
    pub path: PathBuf,
    /// Digest and format.
    pub image: ImageRef,
    /// The size of the disk that the image holds, bytes: a multiple of 512, never 0.
    pub virtual_bytes: u64,
}

/// How far a download is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes received.
    pub received: u64,
    /// Bytes in all, when the server says so.
    pub total: Option<u64>,
}

/// The base images of one node. Cheap to clone; clones share downloads under way.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
    flights: Arc<Mutex<HashMap<ImageRef, Flight>>>,
}

struct Inner {
    layout: Layout,
    fetcher: fetch::Fetcher,
    places: Semaphore,
}

/// What a flight ends with; everyone who waits gets a copy.
type Landing = Result<BaseImage, (FaultKind, String)>;
type FlightFuture = Shared<BoxFuture<'static, Landing>>;

/// A download under way. It lives as long as someone waits for it.
struct Flight {
    future: WeakShared<BoxFuture<'static, Landing>>,
    progress: watch::Receiver<Progress>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("images", &self.inner.layout.images()).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store, and removes what an earlier run left half-made. Blocking, briefly.
    ///
    /// # Errors
    /// `InvalidSpec` when the configured CA file or list of hosts cannot be used; another fault when the directory cannot
    /// be made or read.
    pub fn open(layout: &Layout, config: &ImagesConfig) -> Result<Self, Fault> {
        Self::with_patience(layout, config, fetch::Patience::default())
    }

    fn with_patience(layout: &Layout, config: &ImagesConfig, patience: fetch::Patience) -> Result<Self, Fault> {
        published::make_directory(layout)?;
        published::remove_leftovers(layout)?;
        let fetcher = fetch::Fetcher::new(config, patience)?;
        let places = Semaphore::new(config.max_downloads as usize);
        let inner = Arc::new(Inner { layout: layout.clone(), fetcher, places });
        Ok(Self { inner, flights: Arc::default() })
    }

    /// Makes sure that `image` lies under its final name, and fetches it unless it does. Calls for the same image share
    /// one download and its result; it is given up when nobody waits for it any more. `progress` is called as bytes
    /// arrive, with the latest figures.
    ///
    /// # Errors
    /// `Unsupported` for an `iso`, `InvalidSpec` for an unusable URL, `Denied` for a host that is not allowed,
    /// `ImageRejected` for a wrong digest, a failed check or an image beyond the configured size, `ResourcesExhausted`
    /// for a full disk, `Timeout` and `Unavailable` for the network.
    pub async fn ensure(
        &self,
        image: &spec::Image,
        progress: impl Fn(Progress) + Send + Sync,
    ) -> Result<BaseImage, Fault> {
        let Some(reference) = image.reference() else {
            let sentence = "image.format iso is not supported yet: use a qcow2 or raw image";
            return Err(Fault::new(FaultKind::Unsupported, sentence));
        };
        let (mut flight, mut figures) = self.board(image.url.as_str(), reference);
        let mut open = true;
        let landing = loop {
            tokio::select! {
                landing = &mut flight => break landing,
                changed = figures.changed(), if open => match changed {
                    Ok(()) => progress(*figures.borrow_and_update()),
                    Err(_) => open = false,
                },
            }
        };
        landing.map_err(|(kind, sentence)| Fault::new(kind, sentence))
    }

    /// Joins the flight for `image`, or starts one.
    fn board(&self, url: &str, image: ImageRef) -> (FlightFuture, watch::Receiver<Progress>) {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(&image)
            && let Some(future) = flight.future.upgrade()
        {
            return (future, flight.progress.clone());
        }
        flights.retain(|_, flight| flight.future.upgrade().is_some());
        let (sender, receiver) = watch::channel(Progress::default());
        let (inner, url) = (Arc::clone(&self.inner), url.to_owned());
        let flight =
            async move { inner.fly(&url, image, &sender).await.map_err(|fault| (fault.kind(), fault.chain())) };
        let future = flight.boxed().shared();
        if let Some(weak) = future.downgrade() {
            flights.insert(image, Flight { future: weak, progress: receiver.clone() });
        }
        (future, receiver)
    }

    /// Removes every published base that is not `in_use`; answers what was removed. Blocking. The caller must count as in
    /// use every image of its spec and of every record: a removed base makes its overlays unreadable.
    ///
    /// # Errors
    /// A fault when the directory cannot be read or a file cannot be removed.
    pub fn sweep(&self, in_use: &HashSet<ImageRef>) -> Result<Vec<ImageRef>, Fault> {
        published::sweep(&self.inner.layout, |image| {
            in_use.contains(image) || {
                let flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
                flights.get(image).is_some_and(|flight| flight.future.upgrade().is_some())
            }
        })
    }
}

impl Inner {
    async fn fly(&self, url: &str, image: ImageRef, progress: &watch::Sender<Progress>) -> Result<BaseImage, Fault> {
        if let Some(base) = self.published(image).await? {
            return Ok(base);
        }
        let _place = self.places.acquire().await.map_err(|e| Fault::because(FaultKind::Internal, "no downloads", e))?;
        tracing::info!(image = %image.sha256, "image download begins");
        let download = self.fetcher.open(url).await?;
        self.has_room(download.total)?;
        let part = part::Part::create(&self.layout, &image)?;
        let (sink, pieces) = mpsc::channel(PIECES);
        let (layout, shown) = (self.layout.clone(), download.shown.clone());
        let writer = tokio::task::spawn_blocking(move || part.receive(&layout, image, &shown, pieces));
        let passed = self.fetcher.pass(download, sink, progress).await;
        // The sink is closed now, so the writer ends: wait for it, so that nothing is left when this returns.
        let written = writer.await.map_err(|e| Fault::because(FaultKind::Internal, "the image's writer failed", e))?;
        let base = passed.and(written)?;
        tracing::info!(image = %image.sha256, virtual_bytes = base.virtual_bytes, "image published");
        Ok(base)
    }

    async fn published(&self, image: ImageRef) -> Result<Option<BaseImage>, Fault> {
        let layout = self.layout.clone();
        let found = tokio::task::spawn_blocking(move || published::find(&layout, image)).await;
        found.map_err(|e| Fault::because(FaultKind::Internal, "looking for the image failed", e))?
    }

    /// Refuses what cannot fit before the first byte is written.
    fn has_room(&self, total: Option<u64>) -> Result<(), Fault> {
        let directory = self.layout.images();
        let free = std::fs::File::open(&directory).and_then(part::free_bytes);
        let free = free.map_err(|e| storage_fault(&directory, e))?;
        let needed = total.unwrap_or(0).saturating_add(part::RESERVE);
        if free >= needed {
            return Ok(());
        }
        let sentence = format!(
            "the image needs {needed} bytes ({} of them kept free) and {} has {free} left: free some space",
            part::RESERVE,
            directory.display()
        );
        Err(Fault::new(FaultKind::ResourcesExhausted, sentence))
    }
}

/// A fault of reading or writing our own files, with its kind by the kernel's answer.
pub(crate) fn storage_fault(path: &Path, error: io::Error) -> Fault {
    let shown = path.display();
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        let sentence = format!("{shown} cannot be written, the file system is full: free some space");
        return Fault::because(FaultKind::ResourcesExhausted, sentence, error);
    }
    if error.kind() == io::ErrorKind::PermissionDenied {
        let sentence = format!("{shown} cannot be used: it must belong to the node's user");
        return Fault::because(FaultKind::Internal, sentence, error);
    }
    Fault::because(FaultKind::Internal, format!("{shown} cannot be used"), error)
}
