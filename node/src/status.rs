//! What the node reports: of itself, of each instance, of domains that are not ours.
//!
//! Room: `node`. These types are the API's JSON and the command line's `--json`; their schemas are published.
