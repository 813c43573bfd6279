//! What a domain is made of, in typed values: the helper renders the XML from these and its own configuration.
//!
//! Room: `protocol`. No path, name or uid of the host is here.
use crate::id::{AllocationId, BridgeName, Sha256Digest};
use crate::limits;
use crate::net::MacAddress;
use crate::size::{DiskBytes, MemoryBytes, Vcpus};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The formats of base images that can back an instance's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageFormat {
    /// QEMU copy-on-write, version 2 or 3.
    Qcow2,
    /// The disk's bytes as they are.
    Raw,
}

impl ImageFormat {
    /// The name that QEMU, libvirt and file names use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
        }
    }

    /// The format of that name; `None` for any other text.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Qcow2, Self::Raw].into_iter().find(|format| format.as_str() == name)
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which base image a disk lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageRef {
    /// SHA-256 of the image file.
    pub sha256: Sha256Digest,
    /// Its format, never probed.
    pub format: ImageFormat,
}

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// The host bridge it is plugged into: one that the helper's configuration lists.
    pub bridge: BridgeName,
    /// Its MAC, unique on that bridge.
    pub mac: MacAddress,
    /// The addresses the guest is told to use, with their prefix lengths; kept in the domain's metadata.
    pub addresses: Addresses,
}

/// A list that cannot be longer than its bound: built by `TryFrom<Vec<_>>`, read by serde item by item, so that one
/// with a false or large length is refused before more than the bound is reserved for it.
macro_rules! bounded {
    ($(#[$doc:meta])* $name:ident, $item:ty, $most:expr, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
        pub struct $name(Vec<$item>);

        impl TryFrom<Vec<$item>> for $name {
            type Error = TooMany;
            fn try_from(items: Vec<$item>) -> Result<Self, TooMany> {
                if items.len() <= $most { Ok(Self(items)) } else { Err(TooMany::new($what, $most)) }
            }
        }

        impl From<$name> for Vec<$item> {
            fn from(list: $name) -> Self {
                list.0
            }
        }

        impl std::ops::Deref for $name {
            type Target = [$item];
            fn deref(&self) -> &[$item] {
                &self.0
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.serialize(serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Items;

                impl<'de> serde::de::Visitor<'de> for Items {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        write!(f, "at most {} {}", $most, $what)
                    }

                    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<$name, A::Error> {
                        let mut items = Vec::with_capacity(seq.size_hint().unwrap_or_default().min($most));
                        while let Some(item) = seq.next_element()? {
                            if items.len() == $most {
                                return Err(serde::de::Error::custom(TooMany::new($what, $most)));
                            }
                            items.push(item);
                        }
                        Ok($name(items))
                    }
                }

                deserializer.deserialize_seq(Items)
            }
        }
    };
}

pub(crate) use bounded;

/// A list that is longer than its bound.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("more than {most} {what}")]
pub struct TooMany {
    what: &'static str,
    most: usize,
}

impl TooMany {
    pub(crate) fn new(what: &'static str, most: usize) -> Self {
        Self { what, most }
    }
}

bounded!(
    /// The addresses of one NIC, at most [`limits::ADDRESSES_PER_NIC`].
    Addresses,
    IpNet,
    limits::ADDRESSES_PER_NIC,
    "addresses of one NIC"
);

bounded!(
    /// The NICs of one instance in order, at most [`limits::NICS`].
    Nics,
    Nic,
    limits::NICS,
    "NICs of one instance"
);

/// Everything that a domain is made of. The rest (paths, names, uid, machine type, console) is the helper's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The allocation, kept in the domain's metadata.
    pub allocation: AllocationId,
    /// Virtual CPUs.
    pub vcpus: Vcpus,
    /// Memory.
    pub memory: MemoryBytes,
    /// The root disk's virtual size. It may grow, never shrink.
    pub disk: DiskBytes,
    /// The base image. It never changes while the record lives.
    pub image: ImageRef,
    /// The NICs in order: the index is in the tap's name.
    pub nics: Nics,
}

#[cfg(test)]
mod tests;
