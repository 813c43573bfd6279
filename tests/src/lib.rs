//! What the tests of real processes share: a place on the host, the daemons, a raw client of the wire, libvirt.
//!
//! Room: `tests`. Everything here acts on the real thing; nothing is faked. A test that needs root and libvirt asks
//! [`real`] first, which prints why it is skipped.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test names the one answer it wants")]

pub mod daemons;
pub mod domains;
pub mod files;
pub mod guest;
pub mod host;
pub mod images;
pub mod operator;
pub mod pair;
pub mod place;
pub mod sources;
pub mod wire;

/// Whether tests may use this host's libvirt. Prints why not.
#[must_use]
pub fn real(test: &str) -> bool {
    let set = std::env::var_os("BCD_REAL").is_some_and(|value| value == "1");
    if !set {
        eprintln!("{test} skipped: it needs root and a real libvirtd; run tests/run real (which sets BCD_REAL=1)");
    }
    set
}
