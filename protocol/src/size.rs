//! Sizes and counts with their units: memory, disks, vCPUs.
//!
//! Room: `protocol`. Nothing is ever rounded: a size that is no whole number of its unit is refused.
use crate::limits;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a number is not the size or count it should be. Names the kind, the number and the bound.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {found} is not valid: {rule}")]
pub struct InvalidSize {
    what: &'static str,
    found: u64,
    rule: &'static str,
}

/// Guest memory in bytes: a whole number of MiB, 16 MiB to 16 TiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct MemoryBytes(u64);

/// The virtual size of a disk in bytes: a whole number of 512-byte sectors, 1 MiB to 64 TiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct DiskBytes(u64);

/// The number of virtual CPUs: 1 to 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Vcpus(u32);

impl MemoryBytes {
    /// Guest memory of `bytes`.
    ///
    /// # Errors
    /// [`InvalidSize`] below 16 MiB, above 16 TiB, or when `bytes` is no whole number of MiB.
    pub fn new(bytes: u64) -> Result<Self, InvalidSize> {
        let rule = if bytes < limits::MEMORY_MIN {
            "the unit is bytes and the least is 16777216 (16 MiB)"
        } else if bytes > limits::MEMORY_MAX {
            "the unit is bytes and the most is 17592186044416 (16 TiB)"
        } else if !bytes.is_multiple_of(limits::MEMORY_UNIT) {
            "the unit is bytes and it must be a whole number of 1048576 (1 MiB)"
        } else {
            return Ok(Self(bytes));
        };
        Err(InvalidSize { what: "memory size", found: bytes, rule })
    }

    /// A size known to be within the bounds: for defaults.
    pub(crate) const fn known(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Bytes.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// KiB, the unit of libvirt's XML.
    #[must_use]
    pub fn kib(self) -> u64 {
        self.0 >> 10
    }
}

impl DiskBytes {
    /// A disk of `bytes`.
    ///
    /// # Errors
    /// [`InvalidSize`] below 1 MiB, above 64 TiB, or when `bytes` is no whole number of 512-byte sectors.
    pub fn new(bytes: u64) -> Result<Self, InvalidSize> {
        let rule = if bytes < limits::DISK_MIN {
            "the unit is bytes and the least is 1048576 (1 MiB)"
        } else if bytes > limits::DISK_MAX {
            "the unit is bytes and the most is 70368744177664 (64 TiB)"
        } else if !bytes.is_multiple_of(limits::SECTOR) {
            "the unit is bytes and it must be a whole number of 512-byte sectors"
        } else {
            return Ok(Self(bytes));
        };
        Err(InvalidSize { what: "disk size", found: bytes, rule })
    }

    /// A size known to be within the bounds: for defaults.
    pub(crate) const fn known(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Bytes.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl Vcpus {
    /// `count` virtual CPUs.
    ///
    /// # Errors
    /// [`InvalidSize`] for 0 and for more than 255.
    pub fn new(count: u64) -> Result<Self, InvalidSize> {
        u32::try_from(count).ok().filter(|n| (1..=limits::VCPUS).contains(n)).map(Self).ok_or(InvalidSize {
            what: "vCPU count",
            found: count,
            rule: "use 1 to 255",
        })
    }

    /// The count.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

macro_rules! number {
    ($name:ident) => {
        impl TryFrom<u64> for $name {
            type Error = InvalidSize;
            fn try_from(value: u64) -> Result<Self, InvalidSize> {
                Self::new(value)
            }
        }

        impl From<$name> for u64 {
            fn from(value: $name) -> u64 {
                u64::from(value.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(MemoryBytes);
number!(DiskBytes);
number!(Vcpus);

#[cfg(test)]
mod tests;
