//! How a daemon of bcd shuts itself in, as far as it is the same for the helper and the node.
//!
//! Room: `confine`. The mechanics alone: which files and which system calls are left is each daemon's own list, in
//! `helper/src/harden` and `node/src/sandbox`. Beside that, what a process must not keep of its starter's, what keeps their
//! logs one line an event, whom root believes a file, and what the host's user database says. Invariant: it knows nothing of
//! requests, records or instances, and links neither `protocol` nor `policy`. Why it is a crate of its own: docs/adr/0010-confine.md.
#![deny(
    unsafe_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::print_stdout
    )
)]

pub mod inherited;
pub mod landlock;
pub mod log;
pub mod memory;
pub mod sandbox;
pub mod seccomp;
pub mod trust;
pub mod users;
