//! Where things lie under `data_dir`: the one place that knows, in step with what the helper derives.
//!
//! Room: `node`.
//!
//! ```text
//! data_dir/                              0710 bcd, search for group kvm by one ACL entry
//!   images/<sha256>.<format>             checked base images, never changed; 0640, an ACL entry per guest that uses one
//!   images/.part-<sha256>                a download under way; removed at start
//!   instances/<id>/disk.qcow2            the overlay
//!   instances/<id>/seed.iso              the NoCloud seed
//!   instances/<id>/console.*             the console's backlog: names in console/store.rs
//!   node/spec.json                       the document last accepted
//!   node/file.sha256                     which text of the watched file was put in force last
//!   node/lock                            held for as long as a node runs
//! ```
use bcd_protocol::definition::ImageRef;
use bcd_protocol::id::InstanceId;
use std::path::{Path, PathBuf};

/// The paths under one `data_dir`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout of `data_dir`.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self { root: data_dir.to_owned() }
    }

    /// `data_dir` itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of base images.
    #[must_use]
    pub fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    /// One base image.
    #[must_use]
    pub fn image(&self, image: &ImageRef) -> PathBuf {
        self.images().join(format!("{}.{}", image.sha256, image.format))
    }

    /// The directory of all instances.
    #[must_use]
    pub fn instances(&self) -> PathBuf {
        self.root.join("instances")
    }

    /// One instance's directory.
    #[must_use]
    pub fn instance(&self, id: &InstanceId) -> PathBuf {
        self.instances().join(id.as_str())
    }

    /// An instance's root disk.
    #[must_use]
    pub fn disk(&self, id: &InstanceId) -> PathBuf {
        self.instance(id).join("disk.qcow2")
    }

    /// An instance's seed.
    #[must_use]
    pub fn seed(&self, id: &InstanceId) -> PathBuf {
        self.instance(id).join("seed.iso")
    }

    /// The node's own state.
    #[must_use]
    pub fn node(&self) -> PathBuf {
        self.root.join("node")
    }

    /// The document last accepted.
    #[must_use]
    pub fn accepted_spec(&self) -> PathBuf {
        self.node().join("spec.json")
    }

    /// The digest of the watched file's text that was put in force last.
    #[must_use]
    pub fn file_digest(&self) -> PathBuf {
        self.node().join("file.sha256")
    }

    /// What a running node holds locked.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.node().join("lock")
    }
}
