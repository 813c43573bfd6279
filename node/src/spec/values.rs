//! Values of the NodeSpec that only parse: what the protocol has no word for because it never crosses the wire.
//!
//! Room: `node`. Each holds nothing but what its rule allows; serde goes through the same constructor as a person's
//! input does, and the published schema states the same rule as a pattern or a range.
use bcd_protocol::limits;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

mod at_most;
mod cpu_list;
mod url;

pub use at_most::AtMost;
pub use cpu_list::CpuList;
pub use url::HttpsUrl;

/// Why a text or number is not the value it should be. Names the kind, the text (cut) and the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {found} is not valid: {rule}")]
pub struct InvalidValue {
    what: &'static str,
    found: String,
    rule: Cow<'static, str>,
}

impl InvalidValue {
    fn text(what: &'static str, found: &str, rule: impl Into<Cow<'static, str>>) -> Self {
        let cut: String = found.chars().take(80).collect();
        Self { what, found: format!("{cut:?}"), rule: rule.into() }
    }
}

macro_rules! text_value {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $pattern:expr, $never:expr, $most:expr, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Parses `text`.
            ///
            /// # Errors
            /// [`InvalidValue`] with the rule that `text` breaks.
            pub fn parse(text: &str) -> Result<Self, InvalidValue> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(text.to_owned())) } else { Err(InvalidValue::text($what, text, $rule)) }
            }

            /// The text.
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
            type Err = InvalidValue;
            fn from_str(text: &str) -> Result<Self, InvalidValue> {
                Self::parse(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidValue;
            fn try_from(text: String) -> Result<Self, InvalidValue> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let never: Option<&str> = $never;
                let mut schema = json_schema!({
                    "type": "string",
                    "pattern": $pattern,
                    "minLength": 1,
                    "maxLength": $most,
                    "description": concat!($what, ": ", $rule),
                });
                if let Some(pattern) = never {
                    schema.insert("not".to_owned(), serde_json::json!({"pattern": pattern}));
                }
                schema
            }
        }
    };
}

/// Whether `text` is one label of a host name (RFC 1123, section 2.1): 1 to 63 letters, digits and inner hyphens.
fn is_host_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Whether `text` is made of letters, digits and `-`, `_`, `.`, the first a letter or digit, and has 1 to `most` bytes.
fn is_word(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

text_value!(
    /// The host name a guest is given: RFC 1123 labels joined by dots, at most 253 characters, not all digits and dots
    /// (which would read as an address).
    Hostname,
    "hostname",
    "use labels of 1 to 63 letters, digits and inner hyphens, joined by dots, at most 253 characters, with a letter in the last label",
    r"^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$",
    Some(r"(^|\.)[0-9-]+$"),
    253,
    |text| {
        text.len() <= 253
            && text.split('.').all(is_host_label)
            && text.rsplit('.').next().is_some_and(|last| last.bytes().any(|b| b.is_ascii_alphabetic()))
    }
);

text_value!(
    /// A runtime's driver id: `libvirt-kvm`, `cloud-hypervisor`, or a plugin's.
    RuntimeId,
    "runtime",
    "use 1 to 63 lower-case letters, digits and inner hyphens, such as libvirt-kvm",
    r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
    None,
    63,
    |text| is_host_label(text) && !text.bytes().any(|b| b.is_ascii_uppercase())
);

text_value!(
    /// A GPU's UUID as NVML writes it: `GPU-` and 8-4-4-4-12 lower-case hex digits.
    GpuUuid,
    "GPU id",
    "use GPU- and 8-4-4-4-12 lower-case hex digits, as nvidia-smi -L shows it",
    r"^GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    None,
    40,
    |text| text.strip_prefix("GPU-").is_some_and(|uuid| bcd_protocol::id::DomainUuid::parse(uuid).is_ok())
);

text_value!(
    /// A volume's id: 1 to 64 letters, digits, `-`, `_`, `.`, the first a letter or digit; it names the volume's file.
    VolumeId,
    "volume id",
    "use 1 to 64 letters, digits, '-', '_' and '.', the first a letter or digit",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
    None,
    64,
    |text| is_word(text, 64)
);

text_value!(
    /// A volume's serial as the guest sees it (`/dev/disk/by-id/virtio-<serial>`): virtio-blk holds 20 bytes and cuts
    /// longer ones without a word, so they are refused.
    VolumeSerial,
    "volume serial",
    "use 1 to 20 letters, digits, '-', '_' and '.', the first a letter or digit: virtio cuts longer serials",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,19}$",
    None,
    20,
    |text| is_word(text, 20)
);

text_value!(
    /// A reservation's name: 1 to 64 letters, digits, `-`, `_`, `.`, the first a letter or digit.
    HoldId,
    "hold id",
    "use 1 to 64 letters, digits, '-', '_' and '.', the first a letter or digit",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
    None,
    64,
    |text| is_word(text, 64)
);

text_value!(
    /// The reference of the identity that a restored guest is to take: opaque to bcd, 1 to 256 printable ASCII
    /// characters without spaces.
    RebindRef,
    "identity_rebind_ref",
    "use 1 to 256 printable ASCII characters without spaces",
    r"^[!-~]{1,256}$",
    None,
    256,
    |text| (1..=256).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
);

/// The size of huge pages that back a guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub enum HugepageSize {
    /// Normal pages.
    #[default]
    None,
    /// 2 MiB.
    TwoMiB,
    /// 1 GiB.
    OneGiB,
}

impl HugepageSize {
    /// Bytes of one page; 0 for normal pages.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::None => 0,
            Self::TwoMiB => 2 << 20,
            Self::OneGiB => 1 << 30,
        }
    }
}

impl TryFrom<u64> for HugepageSize {
    type Error = InvalidValue;
    fn try_from(bytes: u64) -> Result<Self, InvalidValue> {
        match bytes {
            0 => Ok(Self::None),
            0x20_0000 => Ok(Self::TwoMiB),
            0x4000_0000 => Ok(Self::OneGiB),
            other => Err(InvalidValue {
                what: "huge page size",
                found: other.to_string(),
                rule: "the unit is bytes: use 0, 2097152 (2 MiB) or 1073741824 (1 GiB)".into(),
            }),
        }
    }
}

impl From<HugepageSize> for u64 {
    fn from(size: HugepageSize) -> Self {
        size.bytes()
    }
}

impl JsonSchema for HugepageSize {
    fn schema_name() -> Cow<'static, str> {
        "HugepageSize".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "integer",
            "enum": [0, 2_097_152, 1_073_741_824],
            "description": "Bytes of one huge page: 0 (normal pages), 2097152 (2 MiB) or 1073741824 (1 GiB).",
        })
    }
}

/// Most numbers of one NIC's nameservers. resolv.conf takes 3; systemd-resolved more.
pub const NAMESERVERS: usize = 8;
/// Most GPUs of one instance: what one host chassis holds.
pub const GPUS: usize = 16;
/// Most volumes of one instance: `vdb` to `vdy`; `vdz` belongs to the identity rebind.
pub const VOLUMES_PER_INSTANCE: usize = 24;
/// Most instances of one document: as many as the helper keeps records.
pub const INSTANCES: usize = limits::RECORDS;
/// Most volumes of one document.
pub const VOLUMES: usize = 4 * limits::RECORDS;
/// Most holds of one document.
pub const HOLDS: usize = 1024;
