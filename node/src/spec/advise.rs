//! What a person is told beside the parsers' own words, where those name what is wrong and not what to write.
//!
//! Room: `node`. Pure.
use super::locate::FieldPath;
use super::parse::Format;
use std::net::IpAddr;

/// The lists of tables, with their headers.
const TABLES: [(&str, &str); 5] = [
    ("instances", "[[instances]]"),
    ("volumes", "[[volumes]]"),
    ("holds", "[[holds]]"),
    ("nics", "[[instances.nics]]"),
    ("volumes", "[[instances.volumes]]"),
];

/// A parser's message about the value that begins at byte `at`, with what to write instead where that is known.
pub(super) fn value(format: Format, text: &str, path: &FieldPath, at: usize, message: &str) -> String {
    let Some(field) = path.last_key() else {
        // The document as a whole is no table: `[[instances]]` begins a list where JSON is read.
        return syntax(format, text, message);
    };
    if message.contains("invalid IP address syntax") {
        return address(field, quoted(text, at).unwrap_or_default(), message);
    }
    if message.starts_with("invalid type: map, expected ") {
        return match (format, header(path, field)) {
            (Format::Toml, Some(header)) => format!("{message}: write {header}, in two brackets, once for each"),
            (Format::Json, Some(_)) => format!("{message}: write a list, [{{…}}], also of one"),
            (Format::Toml | Format::Json, None) => message.to_owned(),
        };
    }
    message.to_owned()
}

/// A fault of syntax in a text that is written in the other language than its name says.
pub(super) fn syntax(format: Format, text: &str, message: &str) -> String {
    let looks_like_json = text.trim_start_matches('\u{feff}').trim_start().starts_with('{');
    match format {
        Format::Toml if looks_like_json => format!("{message}: if this is JSON, name the file .json"),
        Format::Json if !looks_like_json && !text.trim().is_empty() => {
            format!("{message}: if this is TOML, name the file .toml")
        }
        Format::Toml | Format::Json => message.to_owned(),
    }
}

fn address(field: &str, found: &str, message: &str) -> String {
    let alone = found.split_once('/').map_or(found, |(address, _)| address);
    match (field, alone.parse::<IpAddr>()) {
        ("addresses", Ok(ip)) if alone == found => {
            let length = if ip.is_ipv4() { 24 } else { 64 };
            format!("{found:?} has no prefix length: give it too, such as {ip}/{length}")
        }
        ("addresses", Ok(IpAddr::V4(_))) => format!("{found:?} has no usable prefix length: use 0 to 32"),
        ("addresses", Ok(IpAddr::V6(_))) => format!("{found:?} has no usable prefix length: use 0 to 128"),
        ("addresses", Err(_)) => {
            format!("{found:?} is no address with its prefix length: write such as 192.0.2.10/24 or 2001:db8::10/64")
        }
        (_, Ok(ip)) => format!("{found:?} is no address alone: write {ip}, without a prefix length"),
        (_, Err(_)) => format!("{message}: {found:?}"),
    }
}

/// The header of the list of tables at `path`, if one belongs there.
fn header(path: &FieldPath, field: &str) -> Option<&'static str> {
    let inner = path.to_string().contains('.');
    let of_instance = |header: &str| header.starts_with("[[instances.");
    TABLES.iter().find(|(name, header)| *name == field && of_instance(header) == inner).map(|(_, header)| *header)
}

/// The text in the quotes that begin at byte `at`; a list's first where a list begins there.
fn quoted(text: &str, at: usize) -> Option<&str> {
    let rest = text.get(at..)?;
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    rest.get(1..)?.split(quote).next()
}
