//! How the document's types are read: numbers only from whole numbers, tables only from tables.
//!
//! Room: `node`. serde's derived code would take a list for a table (its fields by position) and say `expected u64`
//! where a person needs the unit; both are closed here.
use super::values::HugepageSize;
use bcd_protocol::limits;
use bcd_protocol::size::{DiskBytes, MemoryBytes, Vcpus};
use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// A number with a unit.
pub(super) trait Quantity: TryFrom<u64, Error: fmt::Display> {
    /// What a person is told to write.
    fn rule() -> String;
}

impl Quantity for MemoryBytes {
    fn rule() -> String {
        format!(
            "memory in bytes: a whole number of {} (1 MiB), {} (16 MiB) to {} (16 TiB)",
            limits::MEMORY_UNIT,
            limits::MEMORY_MIN,
            limits::MEMORY_MAX
        )
    }
}

impl Quantity for DiskBytes {
    fn rule() -> String {
        format!(
            "a size in bytes: a whole number of {}-byte sectors, {} (1 MiB) to {} (64 TiB)",
            limits::SECTOR,
            limits::DISK_MIN,
            limits::DISK_MAX
        )
    }
}

impl Quantity for Vcpus {
    fn rule() -> String {
        format!("a number of virtual CPUs: 1 to {}", limits::VCPUS)
    }
}

impl Quantity for HugepageSize {
    fn rule() -> String {
        "a page size in bytes: 0, 2097152 (2 MiB) or 1073741824 (1 GiB)".to_owned()
    }
}

/// The rule of the number that a field of this name holds.
pub(super) fn rule_of(field: &str) -> Option<String> {
    match field {
        "memory_bytes" => Some(MemoryBytes::rule()),
        "disk_bytes" | "size_bytes" => Some(DiskBytes::rule()),
        "vcpus" => Some(Vcpus::rule()),
        "hugepage_size_bytes" => Some(HugepageSize::rule()),
        _ => None,
    }
}

/// Reads a quantity: a whole number as it stands, nothing converted and nothing rounded.
pub(super) fn quantity<'de, D: Deserializer<'de>, Q: Quantity>(deserializer: D) -> Result<Q, D::Error> {
    deserializer.deserialize_u64(Whole(PhantomData))
}

struct Whole<Q>(PhantomData<Q>);

impl<Q: Quantity> Visitor<'_> for Whole<Q> {
    type Value = Q;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Q::rule())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Q, E> {
        Q::try_from(number).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Q, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<Q, E> {
        self.visit_large(number)
    }

    fn visit_u128<E: Error>(self, number: u128) -> Result<Q, E> {
        self.visit_large(number)
    }
}

impl<Q: Quantity> Whole<Q> {
    fn visit_large<E: Error, N: TryInto<u64> + fmt::Display + Copy>(self, number: N) -> Result<Q, E> {
        match number.try_into() {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Other(&format!("integer `{number}`")), &self)),
        }
    }
}

/// Gives types that derive with `#[serde(remote = "Self")]` their `Serialize` and `Deserialize`: the derived ones, but
/// from a table alone.
macro_rules! tables {
    ($($name:ident: $what:literal),+ $(,)?) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Table;
                impl<'de> serde::de::Visitor<'de> for Table {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!($what, ", as a table of its fields"))
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        $name::deserialize(serde::de::value::MapAccessDeserializer::new(map))
                    }
                }
                deserializer.deserialize_map(Table)
            }
        }
    )+};
}
pub(super) use tables;
