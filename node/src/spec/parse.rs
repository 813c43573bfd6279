//! Text to document: syntax, types, bounds and what the text alone shows to be wrong, each with file, line, column and
//! field.
//!
//! Room: `node`. Pure. What a text alone shows to be wrong refuses the whole document, so that whoever writes it hears of
//! it at once and nothing has changed. What depends on the host or on an instance's past (a runtime that is absent, a
//! feature that is not built, a disk that would shrink) is the planner's and fails that instance alone.
use super::check::{Flaw, check};
use super::locate::{FieldPath, byte_offset, line_column, offset};
use super::strict::rule_of;
use super::{NodeSpec, advise};
use std::fmt;
use std::path::Path;

/// Largest document, bytes: the most instances with a few NICs each fit.
pub const DOCUMENT_BYTES: usize = 4 * 1024 * 1024;

/// What a document is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// TOML 1.0.
    Toml,
    /// JSON (RFC 8259).
    Json,
}

impl Format {
    /// The format of a file by its name's ending: `.json`, and anything else TOML.
    #[must_use]
    pub fn of(file: &str) -> Self {
        if Path::new(file).extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json")) {
            Self::Json
        } else {
            Self::Toml
        }
    }
}

/// Why a document is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct SpecError {
    /// The document's name as the caller gave it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The field's path, e.g. `instances[3].memory_bytes`; empty for a fault of syntax.
    pub field: String,
    /// What is wrong and what to use instead.
    pub message: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

impl From<SpecError> for crate::fault::Fault {
    fn from(error: SpecError) -> Self {
        Self::new(crate::fault::FaultKind::InvalidSpec, error.to_string())
    }
}

/// Parses a document; its format is told by the name's ending (`.json`, anything else TOML).
///
/// # Errors
/// [`SpecError`] for the first fault found.
pub fn parse(file: &str, text: &str) -> Result<NodeSpec, SpecError> {
    parse_as(Format::of(file), file, text)
}

/// Parses a document of a known format.
///
/// # Errors
/// [`SpecError`] for the first fault found: more than [`DOCUMENT_BYTES`], syntax, an unknown, missing or repeated field,
/// a wrong type, a value out of its range, or values that contradict each other.
pub fn parse_as(format: Format, file: &str, text: &str) -> Result<NodeSpec, SpecError> {
    let source = Source { file, text };
    if text.len() > DOCUMENT_BYTES {
        return Err(source.error(
            0,
            &FieldPath::default(),
            format!("the document has {} bytes: the most is {DOCUMENT_BYTES}", text.len()),
        ));
    }
    source.document(format)
}

/// Parses a document that the node wrote itself, as JSON: [`DOCUMENT_BYTES`] bounds what others send, and the node's own
/// spelling of the same document, with every default written out, may be longer.
///
/// # Errors
/// As [`parse_as`], but for the size.
pub fn parse_kept(file: &str, text: &str) -> Result<NodeSpec, SpecError> {
    Source { file, text }.document(Format::Json)
}

struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn document(&self, format: Format) -> Result<NodeSpec, SpecError> {
        let spec = match format {
            Format::Toml => self.toml()?,
            Format::Json => self.json()?,
        };
        match check(&spec) {
            Ok(()) => Ok(spec),
            Err(Flaw { path, message }) => {
                Err(self.error(offset(format, self.text, &path).unwrap_or_default(), &path, message))
            }
        }
    }

    fn error(&self, offset: usize, path: &FieldPath, message: String) -> SpecError {
        let (line, column) = line_column(self.text, offset);
        SpecError { file: self.file.to_owned(), line, column, field: path.to_string(), message }
    }

    fn toml(&self) -> Result<NodeSpec, SpecError> {
        let at = |error: &toml::de::Error| error.span().map_or(0, |span| span.start);
        let deserializer = toml::Deserializer::parse(self.text).map_err(|e| {
            let message = advise::syntax(Format::Toml, self.text, e.message());
            self.error(at(&e), &FieldPath::default(), message)
        })?;
        serde_path_to_error::deserialize(deserializer).map_err(|e| {
            let path = FieldPath::from(e.path());
            let unit = match path.last_key().and_then(rule_of) {
                Some(rule) if e.inner().message().contains("overflow") => format!(": expected {rule}"),
                Some(_) | None => String::new(),
            };
            let at = at(e.inner());
            let message = advise::value(Format::Toml, self.text, &path, at, e.inner().message());
            self.error(at, &path, format!("{message}{unit}"))
        })
    }

    fn json(&self) -> Result<NodeSpec, SpecError> {
        let mut deserializer = serde_json::Deserializer::from_str(self.text);
        let spec = serde_path_to_error::deserialize(&mut deserializer).map_err(|e| {
            let (path, error) = (FieldPath::from(e.path()), e.inner());
            if error.is_data() {
                let at = self.json_place(&path, error);
                self.error(at, &path, advise::value(Format::Json, self.text, &path, at, &json_message(error)))
            } else {
                self.json_syntax(error)
            }
        })?;
        deserializer.end().map_err(|e| self.json_syntax(&e))?;
        Ok(spec)
    }

    fn json_syntax(&self, error: &serde_json::Error) -> SpecError {
        let at = byte_offset(self.text, error.line(), error.column());
        self.error(at, &FieldPath::default(), advise::syntax(Format::Json, self.text, &json_message(error)))
    }

    /// Where a field's fault is: its value, and for a field that should not be there, or stands there twice, its name.
    fn json_place(&self, path: &FieldPath, error: &serde_json::Error) -> usize {
        let reported = byte_offset(self.text, error.line(), error.column());
        let message = error.to_string();
        if message.starts_with("unknown field") || message.starts_with("duplicate field") {
            // serde_json has just read the name and stands on its closing quote.
            let before = self.text.get(..reported).unwrap_or_default();
            return before.rfind('"').unwrap_or(reported);
        }
        offset(Format::Json, self.text, path).unwrap_or(reported)
    }
}

/// serde_json's message without its own line and column.
fn json_message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) if error.line() > 0 => text.get(..end).unwrap_or(&text).to_owned(),
        Some(_) | None => text,
    }
}
