//! Identifiers: of instances, allocations, bridges, images, GPUs' and domains' UUIDs, guests' uids.
//!
//! Room: `protocol`. Each parses from text at the edge and cannot hold anything else; serde goes through the same
//! constructor.
use crate::limits;
use crate::text::text_serde;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Why a text is not the identifier it should be. Names the kind, the text (cut) and the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {found:?} is not valid: {rule}")]
pub struct InvalidId {
    what: &'static str,
    found: String,
    rule: &'static str,
}

impl InvalidId {
    pub(crate) fn new(what: &'static str, found: &str, rule: &'static str) -> Self {
        Self { what, found: found.chars().take(80).collect(), rule }
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        text_serde!($name, $what, $name::parse);

        impl $name {
            /// Parses `text`.
            ///
            /// # Errors
            /// [`InvalidId`] with the rule that `text` breaks.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(text.to_owned())) } else { Err(InvalidId::new($what, text, $rule)) }
            }

            /// The identifier's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

fn is_label(text: &str) -> bool {
    text.len() <= limits::INSTANCE_ID_CHARS
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && text.bytes().next().is_some_and(|b| b != b'-')
        && text.bytes().last().is_some_and(|b| b != b'-')
}

/// 1 to `most` letters, digits, `-`, `_`, `.`, the first a letter or digit.
fn is_word(text: &str, most: usize) -> bool {
    text.len() <= most
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

text_id!(
    /// The id of one instance: a lower-case DNS label, 1 to 63 characters. Directory, domain name and tap names are
    /// derived from it.
    InstanceId,
    "instance id",
    "use 1 to 63 lower-case letters, digits and inner hyphens",
    is_label
);

text_id!(
    /// The allocation an instance belongs to, as the control plane calls it; names its user data. 1 to 64 letters,
    /// digits, `-`, `_`, `.`, the first a letter or digit: never a path.
    AllocationId,
    "allocation",
    "use 1 to 64 letters, digits, '-', '_' and '.', the first a letter or digit",
    |text| is_word(text, limits::ALLOCATION_CHARS)
);

text_id!(
    /// The name of a host bridge: 1 to 15 letters, digits, `-`, `_`, `.` (the kernel's `IFNAMSIZ` less the NUL).
    BridgeName,
    "bridge",
    "use 1 to 15 letters, digits, '-', '_' and '.', the first a letter or digit",
    |text| is_word(text, limits::INTERFACE_CHARS)
);

/// A SHA-256 digest of an image: 64 lower-case hex digits as text, 32 bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256Digest([u8; 32]);

/// A domain's UUID, chosen by the helper: 8-4-4-4-12 lower-case hex digits as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainUuid([u8; 16]);

fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => digit.checked_sub(b'0'),
        b'a'..=b'f' => digit.checked_sub(b'a').and_then(|v| v.checked_add(10)),
        _ => None,
    }
}

fn hex_bytes<const N: usize>(digits: impl Iterator<Item = u8>) -> Option<[u8; N]> {
    let mut out = [0u8; N];
    let mut digits = digits;
    for byte in &mut out {
        let high = hex_value(digits.next()?)?;
        let low = hex_value(digits.next()?)?;
        *byte = (high << 4) | low;
    }
    digits.next().is_none().then_some(out)
}

impl Sha256Digest {
    /// A digest from its 32 bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses 64 lower-case hex digits.
    ///
    /// # Errors
    /// [`InvalidId`] for any other text, capitals included: the digest names a file, and a name has one spelling.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        hex_bytes(text.bytes()).map(Self).ok_or_else(|| InvalidId::new("sha256", text, "use 64 lower-case hex digits"))
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl DomainUuid {
    /// A version 4 UUID from 16 random bytes: the version and variant bits are set here (RFC 9562, section 5.4).
    #[must_use]
    pub fn from_random(bytes: [u8; 16]) -> Self {
        let mut bytes = bytes;
        if let Some(byte) = bytes.get_mut(6) {
            *byte = (*byte & 0x0f) | 0x40;
        }
        if let Some(byte) = bytes.get_mut(8) {
            *byte = (*byte & 0x3f) | 0x80;
        }
        Self(bytes)
    }

    /// A UUID from its 16 bytes as they are.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Parses 8-4-4-4-12 lower-case hex digits.
    ///
    /// # Errors
    /// [`InvalidId`] for any other text.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let hyphens = [8usize, 13, 18, 23];
        let well_placed =
            text.len() == 36 && text.bytes().enumerate().all(|(i, b)| (b == b'-') == hyphens.contains(&i));
        let bytes = if well_placed { hex_bytes(text.bytes().filter(|b| *b != b'-')) } else { None };
        bytes.map(Self).ok_or_else(|| InvalidId::new("uuid", text, "use 8-4-4-4-12 lower-case hex digits"))
    }
}

impl fmt::Display for DomainUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

macro_rules! bytes_serde {
    ($name:ident, $len:literal) => {
        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    let text = String::deserialize(deserializer)?;
                    Self::parse(&text).map_err(serde::de::Error::custom)
                } else {
                    <[u8; $len]>::deserialize(deserializer).map(Self)
                }
            }
        }
    };
}

bytes_serde!(Sha256Digest, 32);
bytes_serde!(DomainUuid, 16);

/// The uid that one guest's VMM runs as, chosen by the helper:
/// [`limits::GUEST_UID_FIRST`]`..=`[`limits::GUEST_UID_LAST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct GuestUid(u32);

impl GuestUid {
    /// A guest's uid.
    ///
    /// # Errors
    /// [`InvalidId`] when `uid` lies outside the range.
    pub fn new(uid: u32) -> Result<Self, InvalidId> {
        if (limits::GUEST_UID_FIRST..=limits::GUEST_UID_LAST).contains(&uid) {
            Ok(Self(uid))
        } else {
            Err(InvalidId::new("guest uid", &uid.to_string(), "the range is 2147287040 to 2147319807"))
        }
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for GuestUid {
    type Error = InvalidId;
    fn try_from(uid: u32) -> Result<Self, InvalidId> {
        Self::new(uid)
    }
}

impl From<GuestUid> for u32 {
    fn from(uid: GuestUid) -> u32 {
        uid.0
    }
}

impl fmt::Display for GuestUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;
