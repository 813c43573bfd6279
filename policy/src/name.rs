//! Names of host objects, derived from instance ids and never taken from a request.
//!
//! Room: `policy`. Whoever holds one of these values holds a name that bcd owns.
use bcd_protocol::definition::ImageRef;
use bcd_protocol::id::InstanceId;
use sha2::{Digest, Sha256};
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// A libvirt domain's name: `bcd-` and the instance id.
///
/// It cannot be read from anywhere, only derived:
///
/// ```compile_fail
/// let taken: bcd_policy::DomainName = serde_json::from_str("\"bcd-somebody\"").unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainName(String);

impl DomainName {
    /// The name of an instance's domain.
    #[must_use]
    pub fn of(instance: &InstanceId) -> Self {
        Self(format!("bcd-{instance}"))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What all tap names of one instance begin with: `bc` and the first ten hex digits of SHA-256 of the instance id.
///
/// Forty bits of a digest of a text that the node chooses: whoever wants two ids with one stem finds them in a million
/// tries. So [`crate::Records`] keeps stems unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TapStem([u8; 5]);

impl TapStem {
    /// The stem of an instance's taps.
    #[must_use]
    pub fn of(instance: &InstanceId) -> Self {
        let digest = Sha256::digest(instance.as_str().as_bytes());
        let mut stem = [0; 5];
        for (to, from) in stem.iter_mut().zip(digest) {
            *to = from;
        }
        Self(stem)
    }
}

impl fmt::Display for TapStem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bc")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The host's end of a NIC: the instance's [`TapStem`], `n`, the NIC's index. The node derives the same name for its
/// status, and network rules match taps by it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TapName(String);

impl TapName {
    /// The tap of an instance's NIC `index`.
    #[must_use]
    pub fn of(instance: &InstanceId, index: usize) -> Self {
        Self(format!("{}n{index}", TapStem::of(instance)))
    }

    /// The taps of an instance's first `count` NICs.
    #[must_use]
    pub fn all(instance: &InstanceId, count: usize) -> Vec<Self> {
        (0..count).map(|index| Self::of(instance, index)).collect()
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TapName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The place of a file below `data_dir`, part by part: whoever looks walks it without following any link. Only the
/// functions here build one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DataPath(Vec<String>);

impl DataPath {
    /// An instance's root disk.
    #[must_use]
    pub fn disk(instance: &InstanceId) -> Self {
        Self(vec!["instances".to_owned(), instance.to_string(), "disk.qcow2".to_owned()])
    }

    /// An instance's seed.
    #[must_use]
    pub fn seed(instance: &InstanceId) -> Self {
        Self(vec!["instances".to_owned(), instance.to_string(), "seed.iso".to_owned()])
    }

    /// A base image.
    #[must_use]
    pub fn image(image: &ImageRef) -> Self {
        Self(vec!["images".to_owned(), format!("{}.{}", image.sha256, image.format)])
    }

    /// The whole path.
    #[must_use]
    pub fn beneath(&self, data_dir: &Path) -> PathBuf {
        self.0.iter().fold(data_dir.to_owned(), |path, part| path.join(part))
    }
}

impl Deref for DataPath {
    type Target = [String];
    fn deref(&self) -> &[String] {
        &self.0
    }
}
