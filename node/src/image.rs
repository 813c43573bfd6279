//! Base images: fetched over https, checked, published under their digest.
//!
//! Room: `node`. Invariant: a file under its final name `images/<sha256>.<format>` is whole, has that digest, and passed
//! the tenant image check; nothing else ever gets such a name.
use crate::fault::Fault;
use crate::layout::Layout;
use bcd_protocol::config::ImagesConfig;
use bcd_protocol::definition::ImageRef;
use std::collections::HashSet;
use std::path::PathBuf;

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
#[derive(Debug, Clone)]
pub struct Store {
    layout: Layout,
}

impl Store {
    /// Opens the store, and removes what an earlier run left half-made.
    ///
    /// # Errors
    /// A fault when the directory cannot be made or read, or when the configured CA file cannot be used.
    pub fn open(layout: &Layout, config: &ImagesConfig) -> Result<Self, Fault> {
        let _ = config;
        Ok(Self { layout: layout.clone() })
    }

    /// Makes sure that `image` lies under its final name: fetches it from `url` unless it does. Calls for one image
    /// share one download and its result. `progress` is called as bytes arrive.
    ///
    /// # Errors
    /// `InvalidSpec` for an unusable URL, `Denied` for a host that is not allowed, `ImageRejected` for a wrong digest
    /// or a failed check, `ResourcesExhausted` for a full disk, `Timeout` and `Unavailable` for the network.
    pub async fn ensure(
        &self,
        url: &str,
        image: ImageRef,
        progress: impl Fn(Progress) + Send + Sync,
    ) -> Result<BaseImage, Fault> {
        let _ = (url, progress);
        Err(Fault::new(
            crate::fault::FaultKind::Internal,
            format!("image {} is not there", self.layout.image(&image).display()),
        ))
    }

    /// Removes every published base that is not `in_use`; answers what was removed. Blocking.
    ///
    /// # Errors
    /// A fault when the directory cannot be read or a file cannot be removed.
    pub fn sweep(&self, in_use: &HashSet<ImageRef>) -> Result<Vec<ImageRef>, Fault> {
        let _ = in_use;
        Ok(Vec::new())
    }
}
