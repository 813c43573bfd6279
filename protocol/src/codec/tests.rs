//! Tests of the codec: pinned bytes, hostile datagrams, arbitrary messages.
mod arbitrary;
mod golden;
mod hostile;
mod largest;
mod properties;
mod reference;
mod samples;

use super::*;

/// Two lower-case hex digits a byte.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").unwrap();
        out
    })
}
