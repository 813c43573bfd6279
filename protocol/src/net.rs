//! Link-layer values: MAC addresses.
//!
//! Room: `protocol`.
use crate::id::InvalidId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A guest NIC's MAC address: unicast, not all zero, and not `fe:…`, which libvirt gives to the host's end of a tap so
/// that a bridge never takes its address from there. Always shown in lower case: the kernel's spelling, which
/// cloud-init compares as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    /// A MAC address from its six bytes.
    ///
    /// # Errors
    /// [`InvalidId`] for a multicast, all-zero or `fe:…` address.
    pub fn from_bytes(bytes: [u8; 6]) -> Result<Self, InvalidId> {
        let [first, ..] = bytes;
        let rule = if bytes == [0; 6] {
            "it is all zero"
        } else if first & 1 == 1 {
            "it is a multicast address (the first byte is odd)"
        } else if first == 0xfe {
            "addresses that begin with fe are the host's end of a tap"
        } else {
            return Ok(Self(bytes));
        };
        Err(InvalidId::new("mac", &Self(bytes).to_string(), rule))
    }

    /// Parses six hex pairs separated by colons, in either case.
    ///
    /// # Errors
    /// [`InvalidId`] for another form, and as [`MacAddress::from_bytes`].
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let form = || InvalidId::new("mac", text, "use six two-digit hex numbers separated by ':'");
        let mut bytes = [0u8; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or_else(form)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(form());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| form())?;
        }
        if parts.next().is_some() {
            return Err(form());
        }
        Self::from_bytes(bytes)
    }

    /// The six bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 6] {
        &self.0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddress {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::parse(text)
    }
}

impl Serialize for MacAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for MacAddress {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            Self::parse(&text).map_err(serde::de::Error::custom)
        } else {
            Self::from_bytes(<[u8; 6]>::deserialize(deserializer)?).map_err(serde::de::Error::custom)
        }
    }
}

#[cfg(test)]
mod tests;
