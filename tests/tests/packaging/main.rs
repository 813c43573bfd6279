//! What lies in `packaging/` agrees with the code, and with itself.
//!
//! Room: `tests`. Nothing here needs root or a daemon. That the package installs, restarts and goes without touching a
//! guest is tried on a whole host.
mod configuration;
mod package;
mod units;

use bcd_tests::sources::{self, top};
use std::path::PathBuf;

fn path(inside: &str) -> PathBuf {
    top().join(inside)
}

fn read(inside: &str) -> String {
    sources::read(&path(inside))
}

/// Holds a generated file against what it is generated from, or writes it.
fn held(inside: &str, expected: &str) {
    if std::env::var_os("BCD_BLESS").is_some() {
        std::fs::write(path(inside), expected).expect("write");
    }
    assert!(read(inside) == expected, "{inside} is old: run this test with BCD_BLESS=1");
}
