//! The words that bcd's node and helper share.
//!
//! Room: `protocol`. No I/O, no clock, no unsafe, no panic. A value of a type from this crate has been parsed: its
//! bounds hold for as long as it lives, because every field is private or itself such a type and every decoder goes
//! through the same constructor as a person's input does.
//!
//! Nothing here names a host object: a request carries instance ids, indexes, digests, bridge names and numbers, and
//! the helper derives every path, name and uid from its own configuration and records.
#![forbid(unsafe_code)]
#![deny(
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
        clippy::arithmetic_side_effects
    )
)]

pub mod codec;
pub mod config;
pub mod definition;
pub mod id;
pub mod limits;
pub mod net;
pub mod node_user;
pub mod reply;
pub mod request;
pub mod size;
mod text;

/// The protocol's version. The handshake refuses any other: both daemons come from one package.
pub const PROTOCOL_VERSION: u16 = 1;
