//! The node's API: HTTP/1.1 with JSON over a unix socket.
//!
//! Room: `node`. `service` is what the daemon implements, `events` the log it keeps; the rest serves them. Who may call
//! is decided from the kernel's word about the peer, before a byte of the request is read.

pub mod events;
pub mod service;
