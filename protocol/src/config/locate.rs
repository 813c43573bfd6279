//! Where in the configuration's text something is, for messages.
//!
//! Room: `protocol`. The same parser that reads the values keeps their places.
use super::InvalidConfig;
use toml::de::{DeTable, DeValue};

/// The fault at a byte of the text, as one line.
pub(super) fn invalid(text: &str, at: usize, key: String, message: &str) -> InvalidConfig {
    let before = text.get(..at).unwrap_or_default();
    let line = before.matches('\n').count().saturating_add(1);
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count().saturating_add(1);
    let message = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(", ");
    InvalidConfig { line, column, key, message }
}

/// The key, with its tables, whose name or value is at byte `at`; `None` where there is none, or the text is no TOML.
pub(super) fn key(text: &str, at: usize) -> Option<String> {
    let table = DeTable::parse(text).ok()?;
    within(table.get_ref(), at)
}

fn within(table: &DeTable<'_>, at: usize) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref();
        let inner = match value.get_ref() {
            // Where a table is spread over the text its own span is its header alone.
            DeValue::Table(inner) => within(inner, at).map(|inner| format!("{name}.{inner}")),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => None,
        };
        inner.or_else(|| (key.span().contains(&at) || value.span().contains(&at)).then(|| name.to_string()))
    })
}

/// The byte at which the value of `key` begins, if the text has it.
pub(super) fn value(text: &str, key: &str) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let (mut table, mut rest) = (table.get_ref(), key);
    while let Some((name, inner)) = rest.split_once('.') {
        let (_, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
        (table, rest) = (value.get_ref().as_table()?, inner);
    }
    let (_, value) = table.iter().find(|(key, _)| key.get_ref() == rest)?;
    Some(value.span().start)
}
