//! Any bytes, read as what happens to a helper: what must hold then is in the model's header.
//!
//! Room: `policy/fuzz`. The model is the one that `policy/tests/decision_model.rs` runs.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/model/mod.rs"]
mod model;

/// Eight steps or so: what matters needs no more, and a million inputs take minutes.
const MOST_BYTES: usize = 40;

fuzz_target!(|bytes: &[u8]| model::run(bytes.get(..MOST_BYTES).unwrap_or(bytes)));
