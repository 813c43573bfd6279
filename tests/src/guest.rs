//! The small bootable guest image, built from packages by `packaging/guest/build`.
//!
//! Room: `tests`.
use std::path::PathBuf;

/// The image's path, from `BCD_TEST_GUEST_IMAGE`. Prints why a test is skipped without one.
#[must_use]
pub fn image(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("BCD_TEST_GUEST_IMAGE").map(PathBuf::from).filter(|path| path.exists());
    if path.is_none() {
        eprintln!("{test} skipped: no guest image at BCD_TEST_GUEST_IMAGE; tests/run real builds one");
    }
    path
}
