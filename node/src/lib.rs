//! The unprivileged daemon of bcd and its command line.
//!
//! Room: `node`. It observes (read-only), plans (a pure function), and acts thinly: on its own files by itself, on
//! everything else by asking the helper. Nothing here runs with a capability but `standalone`, which starts the helper and gives
//! up root before any other part begins.

pub mod api;
pub mod cli;
pub mod client;
pub mod console;
pub mod converge;
pub mod daemon;
pub mod disk;
pub mod doctor;
pub mod fault;
pub mod helper;
pub mod image;
pub mod layout;
mod node_user;
pub mod observe;
mod own_file;
pub mod plan;
pub mod runtime;
pub mod sandbox;
pub mod secret;
pub mod seed;
pub mod share;
pub mod spec;
pub mod standalone;
pub mod status;
