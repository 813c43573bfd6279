//! Sets of host CPUs and NUMA nodes in the kernel's list syntax.
//!
//! Room: `node`.
use super::InvalidValue;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// A set of host CPUs or NUMA nodes in the kernel's list syntax, in the order given: `0-3,8,10-12`. Each number is at
/// most 1,048,575, one range spans at most 4,096, and no number comes twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuList {
    text: String,
    members: Vec<u32>,
}

impl CpuList {
    /// Most numbers that one range may span, and that a whole list may have.
    pub const MOST: usize = 4096;
    /// Highest number of a CPU or node.
    pub const HIGHEST: u32 = (1 << 20) - 1;

    /// Parses `text`.
    ///
    /// # Errors
    /// [`InvalidValue`] for another syntax, a reversed or too wide range, a number twice, or more than 4,096 numbers.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let no = |rule: &'static str| InvalidValue::text("list", text, rule);
        let number = |digits: &str| -> Result<u32, InvalidValue> {
            if digits.is_empty() || digits.len() > 7 || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return Err(no("use numbers and ranges joined by commas, such as 0-3,8"));
            }
            digits.parse().ok().filter(|n| *n <= Self::HIGHEST).ok_or_else(|| no("the highest number is 1048575"))
        };
        let mut members = Vec::new();
        for part in text.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => number(part).map(|n| (n, n))?,
            };
            if last < first {
                return Err(no("a range runs from its lower to its higher number"));
            }
            let span = usize::try_from(last - first).map_or(usize::MAX, |n| n.saturating_add(1));
            if span > Self::MOST || members.len() + span > Self::MOST {
                return Err(no("a range, and the whole list, has at most 4096 numbers"));
            }
            members.extend(first..=last);
        }
        let mut sorted = members.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| matches!(pair, [a, b] if a == b)) {
            return Err(no("a number comes twice"));
        }
        Ok(Self { text: text.to_owned(), members })
    }

    /// The text as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The numbers in the order given.
    #[must_use]
    pub fn members(&self) -> &[u32] {
        &self.members
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for CpuList {
    type Error = InvalidValue;
    fn try_from(text: String) -> Result<Self, InvalidValue> {
        Self::parse(&text)
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> Self {
        list.text
    }
}

impl JsonSchema for CpuList {
    fn schema_name() -> Cow<'static, str> {
        "CpuList".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^[0-9]{1,7}(-[0-9]{1,7})?(,[0-9]{1,7}(-[0-9]{1,7})?)*$",
            "description": "Numbers in the kernel's list syntax, such as 0-3,8: each at most 1048575, none twice, 4096 in all at the most.",
        })
    }
}
