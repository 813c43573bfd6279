//! What lies in `packaging/` agrees with the code, and with itself.
//!
//! Room: `tests`. Nothing here needs root or a daemon. That the package installs, restarts and goes without touching a
//! guest is tried on a whole host.
mod configuration;
mod package;
mod units;

use std::path::{Path, PathBuf};

fn path(inside: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(inside)
}

fn read(inside: &str) -> String {
    let path = path(inside);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Holds a generated file against what it is generated from, or writes it.
fn held(inside: &str, expected: &str) {
    if std::env::var_os("BCD_BLESS").is_some() {
        std::fs::write(path(inside), expected).expect("write");
    }
    assert!(read(inside) == expected, "{inside} is old: run this test with BCD_BLESS=1");
}
