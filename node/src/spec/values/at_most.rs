//! Lists with a bound.
//!
//! Room: `node`.
use super::InvalidValue;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A list of at most `MOST` entries.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct AtMost<T, const MOST: usize>(Vec<T>);

impl<T, const MOST: usize> Default for AtMost<T, MOST> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MOST: usize> TryFrom<Vec<T>> for AtMost<T, MOST> {
    type Error = InvalidValue;
    fn try_from(items: Vec<T>) -> Result<Self, InvalidValue> {
        if items.len() <= MOST {
            Ok(Self(items))
        } else {
            Err(InvalidValue {
                what: "a list of",
                found: items.len().to_string(),
                rule: format!("the most is {MOST} entries").into(),
            })
        }
    }
}

impl<T, const MOST: usize> std::ops::Deref for AtMost<T, MOST> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T, const MOST: usize> IntoIterator for &'a AtMost<T, MOST> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for AtMost<T, MOST> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(Vec::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl<T: JsonSchema, const MOST: usize> JsonSchema for AtMost<T, MOST> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("AtMost{MOST}{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({"type": "array", "items": items, "maxItems": MOST})
    }
}
