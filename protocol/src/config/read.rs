//! How the configuration's numbers and lists are read: a value of another kind is told what to write instead.
//!
//! Room: `protocol`. A number is taken as it stands, also one below zero, so that what is said of it is its range and not the
//! type that the program keeps it in.
use crate::id::BridgeName;
use crate::limits;
use crate::size::{DiskBytes, MemoryBytes};
use serde::Deserializer;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Error, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

/// A whole number within its range.
struct Whole {
    range: RangeInclusive<u64>,
    /// What it counts, where its name does not say.
    unit: &'static str,
}

impl Whole {
    fn found<E: Error>(&self, found: i128) -> Result<u64, E> {
        match u64::try_from(found) {
            Ok(number) if self.range.contains(&number) => Ok(number),
            Ok(_) | Err(_) => Err(E::custom(format!("{found} is out of range: use {self}"))),
        }
    }
}

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}{}", self.range.start(), self.range.end(), self.unit)
    }
}

impl Visitor<'_> for Whole {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number: use {self}")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        self.found(i128::from(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        self.found(i128::from(number))
    }
}

/// A count of which `range` says what is usable.
fn count<'de, D: Deserializer<'de>>(deserializer: D, range: RangeInclusive<u32>) -> Result<u32, D::Error> {
    let range = u64::from(*range.start())..=u64::from(*range.end());
    let number = deserializer.deserialize_u64(Whole { range, unit: "" })?;
    u32::try_from(number).map_err(D::Error::custom)
}

pub(super) fn instances<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    count(deserializer, 1..=limits::RECORDS as u32)
}

pub(super) fn vcpus<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    count(deserializer, 1..=limits::VCPUS)
}

pub(super) fn downloads<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    count(deserializer, 1..=64)
}

pub(super) fn image_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let range = limits::DISK_MIN..=limits::DISK_MAX;
    deserializer.deserialize_u64(Whole { range, unit: ", in bytes" })
}

/// Any number that is not below zero: the size's own rule says the rest.
fn size<'de, D: Deserializer<'de>>(deserializer: D, range: RangeInclusive<u64>) -> Result<u64, D::Error> {
    struct Size(Whole);

    impl Visitor<'_> for Size {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.expecting(f)
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
            u64::try_from(number).or_else(|_| self.0.found(i128::from(number)))
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
            Ok(number)
        }
    }

    deserializer.deserialize_u64(Size(Whole { range, unit: ", in bytes" }))
}

pub(super) fn memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MemoryBytes, D::Error> {
    MemoryBytes::new(size(deserializer, limits::MEMORY_MIN..=limits::MEMORY_MAX)?).map_err(D::Error::custom)
}

pub(super) fn disk<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DiskBytes, D::Error> {
    DiskBytes::new(size(deserializer, limits::DISK_MIN..=limits::DISK_MAX)?).map_err(D::Error::custom)
}

/// A list of texts; a text alone is told to be written as one.
struct List<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of texts, such as [\"one\", \"two\"]")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        Err(E::custom(format!("{text:?} is no list: write [{text:?}]")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Vec<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq))
    }
}

pub(super) fn bridges<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<BridgeName>, D::Error> {
    deserializer.deserialize_seq(List(PhantomData))
}

pub(super) fn hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let hosts: Vec<String> = deserializer.deserialize_seq(List(PhantomData))?;
    let usable = |host: &String| {
        (1..=255).contains(&host.len())
            && host.bytes().all(|b| {
                b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_' | b':' | b'[' | b']')
            })
    };
    match hosts.iter().find(|host| !usable(host)) {
        None => Ok(hosts),
        Some(host) => Err(D::Error::custom(format!(
            "host {host:?} is not usable: use 'name' or 'name:port' in lower case, without scheme and path"
        ))),
    }
}
