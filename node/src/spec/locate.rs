//! Where in a document's text a field is.
//!
//! Room: `node`. Pure. Both readers find spans with the parser that read the document: TOML's keeps them, and a raw JSON
//! value borrows from the text, so that its place is where it begins.
use super::parse::Format;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use toml::de::{DeTable, DeValue};

/// One part of a field's path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Key(Cow<'static, str>),
    Index(usize),
}

/// A field's path, shown as `instances[3].nics[0].mac`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FieldPath(Vec<Part>);

impl FieldPath {
    /// The field `key` of the document itself.
    pub(super) fn of(key: &'static str) -> Self {
        Self(vec![Part::Key(Cow::Borrowed(key))])
    }

    /// A field of the table at this path.
    pub(super) fn key(mut self, key: &'static str) -> Self {
        self.0.push(Part::Key(Cow::Borrowed(key)));
        self
    }

    /// An entry of the list at this path.
    pub(super) fn index(mut self, index: usize) -> Self {
        self.0.push(Part::Index(index));
        self
    }

    /// The last key.
    pub(super) fn last_key(&self) -> Option<&str> {
        self.0.iter().rev().find_map(|part| match part {
            Part::Key(key) => Some(key.as_ref()),
            Part::Index(_) => None,
        })
    }
}

impl From<&serde_path_to_error::Path> for FieldPath {
    fn from(path: &serde_path_to_error::Path) -> Self {
        use serde_path_to_error::Segment;
        let part = |segment: &Segment| match segment {
            Segment::Seq { index } => Some(Part::Index(*index)),
            Segment::Map { key } => Some(Part::Key(Cow::Owned(key.clone()))),
            // The document's enums are plain words, and an unknown segment is a place that was never reached.
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        Self(path.iter().map_while(part).collect())
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.0.iter().enumerate() {
            match part {
                Part::Key(key) if i == 0 => write!(f, "{key}")?,
                Part::Key(key) => write!(f, ".{key}")?,
                Part::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// The byte offset at which the value of `path` begins; `None` where the text has no such field.
pub(super) fn offset(format: Format, text: &str, path: &FieldPath) -> Option<usize> {
    match format {
        Format::Toml => toml_offset(text, path),
        Format::Json => json_offset(text, path),
    }
}

fn toml_offset(text: &str, path: &FieldPath) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let mut found = table.span();
    let mut value: Option<&DeValue<'_>> = None;
    for part in &path.0 {
        let next = match (part, value) {
            (Part::Key(key), None) => table.get_ref().get(key.as_ref())?,
            (Part::Key(key), Some(DeValue::Table(table))) => table.get(key.as_ref())?,
            (Part::Index(index), Some(DeValue::Array(array))) => array.get(*index)?,
            (Part::Key(_) | Part::Index(_), _) => return None,
        };
        found = next.span();
        value = Some(next.get_ref());
    }
    Some(found.start)
}

fn json_offset(text: &str, path: &FieldPath) -> Option<usize> {
    let mut value: &RawValue = serde_json::from_str(text).ok()?;
    for part in &path.0 {
        value = match part {
            Part::Key(key) => {
                let fields: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(value.get()).ok()?;
                fields.get(key.as_ref()).copied()?
            }
            Part::Index(index) => {
                let entries: Vec<&RawValue> = serde_json::from_str(value.get()).ok()?;
                entries.get(*index).copied()?
            }
        };
    }
    (value.get().as_ptr() as usize).checked_sub(text.as_ptr() as usize)
}

/// Line and column of a byte offset, both from 1; columns count characters.
pub(super) fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before.get(line_start..).unwrap_or_default().chars().count() + 1)
}

/// The byte offset of a line and column as serde_json counts them: lines from 1, columns in bytes.
pub(super) fn byte_offset(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let mut offset = (start + column.saturating_sub(1)).min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}
