//! Random lives of a helper against an independent model: see `model/mod.rs` for what must hold.
//!
//! Room: `policy`, tests.
use proptest::prelude::*;

mod model;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_requests_failures_and_crashes_breaks_ownership(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        model::run(&bytes);
    }
}

/// Every seed of the fuzz target, and everything it ever found.
#[test]
fn the_seeds_of_the_fuzz_target_pass() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/decision_sequence");
    let mut count = 0;
    for entry in std::fs::read_dir(seeds).unwrap() {
        model::run(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 8, "{count} seeds");
}
