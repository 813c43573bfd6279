//! The node's API: HTTP/1.1 with JSON over a unix socket.
//!
//! Room: `node`. `service` is what the daemon implements, `events` the log it keeps; `routes` is the one table that
//! both the router and the OpenAPI document are made from. Who may call is decided from the kernel's word about the
//! peer, before a byte of the request is read.
//!
//! ```text
//! socket (0660) -> caller -> connection (bounds, deadlines) -> routes -> handlers -> service
//! ```

pub mod caller;
pub mod events;
mod handlers;
pub mod openapi;
pub mod problem;
mod relay;
pub mod routes;
pub mod serve;
pub mod service;
#[cfg(test)]
mod tests;

pub use problem::{Problem, ProblemKind};
pub use serve::{Api, Listener};

/// The protocol that a console request upgrades to: raw bytes both ways.
pub const CONSOLE_PROTOCOL: &str = "bcd-console";
