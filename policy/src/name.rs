//! Names of host objects, derived from instance ids and never taken from a request.
//!
//! Room: `policy`. Whoever holds one of these values holds a name that bcd owns.
use bcd_protocol::definition::ImageRef;
use bcd_protocol::id::InstanceId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// A libvirt domain's name: `bcd-` and the instance id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// The host's end of a NIC: `bc`, the first ten hex digits of SHA-256 of the instance id, `n`, the NIC's index. The
/// node derives the same name for its status, and network rules match taps by it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TapName(String);

impl TapName {
    /// The tap of an instance's NIC `index`.
    #[must_use]
    pub fn of(instance: &InstanceId, index: usize) -> Self {
        let digest = Sha256::digest(instance.as_str().as_bytes());
        let mut name = String::from("bc");
        for byte in digest.iter().take(5) {
            name.push_str(&format!("{byte:02x}"));
        }
        name.push('n');
        name.push_str(&index.to_string());
        Self(name)
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

/// An instance's root disk, below `data_dir`.
#[must_use]
pub fn disk_parts(instance: &InstanceId) -> [String; 3] {
    ["instances".to_owned(), instance.to_string(), "disk.qcow2".to_owned()]
}

/// An instance's seed, below `data_dir`.
#[must_use]
pub fn seed_parts(instance: &InstanceId) -> [String; 3] {
    ["instances".to_owned(), instance.to_string(), "seed.iso".to_owned()]
}

/// A base image, below `data_dir`.
#[must_use]
pub fn image_parts(image: &ImageRef) -> [String; 2] {
    ["images".to_owned(), format!("{}.{}", image.sha256, image.format)]
}
