//! Values as people read them, and nothing that a guest or a foreign name could do to a terminal.
//!
//! Room: `node`. Pure, but for [`print`].
use super::failure::Failure;
use comfy_table::{Cell, ContentArrangement, Table, presets};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

/// Whether and how a table may use the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Plain text, one line per row, for pipes and tests.
    Plain,
    /// Colours and line wrapping.
    Terminal,
}

impl Style {
    /// What suits stdout.
    #[must_use]
    pub fn of_stdout() -> Self {
        let plain = !io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        if plain { Self::Plain } else { Self::Terminal }
    }
}

/// Prints to stdout.
///
/// # Errors
/// When it cannot be written; a reader that left is no error.
pub fn print(text: &str) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints one value as JSON, for people too.
///
/// # Errors
/// As [`print`].
pub fn print_json<T: Serialize>(value: &T) -> Result<ExitCode, Failure> {
    print(&format!("{}\n", json(value, serde_json::to_string_pretty)?))
}

/// Prints one value as one line of JSON.
///
/// # Errors
/// As [`print`].
pub fn print_json_line<T: Serialize>(value: &T) -> Result<ExitCode, Failure> {
    print(&format!("{}\n", json(value, serde_json::to_string)?))
}

fn json<T: Serialize>(value: &T, write: fn(&T) -> serde_json::Result<String>) -> Result<String, Failure> {
    write(value).map_err(|e| Failure::because("the answer cannot be written as JSON", &e))
}

/// `text` with every character escaped that a terminal might act on or that changes the direction of what follows.
#[must_use]
pub fn printable(text: &str) -> String {
    escaped(text, false)
}

/// As [`printable`], but line breaks stay.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    escaped(text, true)
}

fn escaped(text: &str, lines: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let directs =
            matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
        let breaks = matches!(c, '\u{2028}' | '\u{2029}');
        if lines && c == '\n' {
            out.push(c);
        } else if c.is_control() || directs || breaks {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Bytes in the largest binary unit that leaves at least 1, with one decimal where it is not whole: `512 MiB`,
/// `1.5 GiB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut shown = format!("{count} B");
    for (power, unit) in (1_u32..).zip(UNITS) {
        let one = 1_u64 << (10 * power);
        if count < one {
            break;
        }
        shown = if count.is_multiple_of(one) {
            format!("{} {unit}", count / one)
        } else {
            format!("{:.1} {unit}", count as f64 / one as f64)
        };
    }
    shown
}

/// How long ago, in its largest unit: `12 s`, `3 min`, `5 h`, `2 d`.
#[must_use]
pub fn ago(millis: u64, now: u64) -> String {
    let seconds = now.saturating_sub(millis) / 1000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A moment, UTC: `2026-01-31T12:00:00Z`.
#[must_use]
pub fn moment(millis: u64) -> String {
    // What humantime can write ends with the year 9999.
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(millis.min(253_402_300_799_000))).unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// `1 instance`, `2 instances`.
#[must_use]
pub fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// A table without lines: columns two spaces apart, nothing behind the last.
#[must_use]
pub fn table(style: Style, header: &[&str], rows: Vec<Vec<Cell>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec()).add_rows(rows);
    match style {
        Style::Plain => {
            table.force_no_tty().set_content_arrangement(ContentArrangement::Disabled);
        }
        Style::Terminal => {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
    }
    let last = header.len().saturating_sub(1);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index == last { 0 } else { 2 }));
    }
    let mut out = String::new();
    for line in table.lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
