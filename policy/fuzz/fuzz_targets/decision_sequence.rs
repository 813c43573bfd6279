//! Any bytes, read as what happens to a helper: what must hold then is in the model's header.
//!
//! Room: `policy/fuzz`. The model is the one that `policy/tests/decision_model.rs` runs.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/model/mod.rs"]
mod model;

fuzz_target!(|bytes: &[u8]| model::run(bytes));
