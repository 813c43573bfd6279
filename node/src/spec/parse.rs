//! Text to document: syntax, types and bounds, each fault with file, line, column and field.
//!
//! Room: `node`. Pure.
use super::NodeSpec;
use std::fmt;
use std::path::Path;

/// Largest document, bytes: four thousand instances fit.
pub const DOCUMENT_BYTES: usize = 4 * 1024 * 1024;

/// What a document is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// TOML 1.0.
    Toml,
    /// JSON (RFC 8259).
    Json,
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

/// Parses a document; its format is told by the name's ending (`.json`, anything else TOML).
///
/// # Errors
/// [`SpecError`] for the first fault found.
pub fn parse(file: &str, text: &str) -> Result<NodeSpec, SpecError> {
    let json = Path::new(file).extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"));
    parse_as(if json { Format::Json } else { Format::Toml }, file, text)
}

/// Parses a document of a known format.
///
/// # Errors
/// [`SpecError`] for the first fault found.
pub fn parse_as(format: Format, file: &str, text: &str) -> Result<NodeSpec, SpecError> {
    let at = |field: String, message: String| SpecError { file: file.to_owned(), line: 1, column: 1, field, message };
    match format {
        Format::Toml => {
            let de = toml::Deserializer::parse(text).map_err(|e| at(String::new(), e.to_string()))?;
            serde_path_to_error::deserialize(de).map_err(|e| at(e.path().to_string(), e.inner().to_string()))
        }
        Format::Json => serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(text))
            .map_err(|e| at(e.path().to_string(), e.inner().to_string())),
    }
}
