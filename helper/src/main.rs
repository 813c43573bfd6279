//! `bcd-helper`: the root daemon of bcd. It answers a closed table of verbs over a unix socket and does nothing else.
//!
//! Room: `helper`. This file only wires. The path of a request is [`session`] (datagrams), [`pipeline`] (look, decide,
//! write, act), [`observe`] and [`effect`] (the two that touch libvirt), [`ledger`] (what root remembers).
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

mod accel;
mod audit;
mod budget;
mod daemon;
mod effect;
mod failpoint;
mod harden;
mod ledger;
mod libvirt;
mod listen;
mod log;
mod node_user;
mod observe;
mod pair;
mod pipeline;
mod relay;
mod serve;
mod session;
mod sys;
mod turn;
mod watchdog;
mod xmlpty;

use daemon::Clients;
use lexopt::Arg;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
The root daemon of bcd: answers the node over a unix socket.

Usage: bcd-helper [--config FILE] [--connection-on-stdin]
       bcd-helper --copy-node-log

  --config FILE           the configuration [default: BCD_CONFIG, else
                          /etc/bcd/bcd.toml]
  --connection-on-stdin   serve the one connection that is standard input, and end
                          with it: how bcd node --standalone starts its helper
  --copy-node-log         copy standard input to standard error, each line marked
                          as the node's, and end with it: nothing else is done.
                          How bcd node --standalone has its node's log written
  -V, --version           the version
  -h, --help              this text

The log goes to standard error, under systemd to the journal; BCD_LOG sets its level (error, warn, info, debug, trace).
";

enum Asked {
    Run(PathBuf, Clients),
    CopyNodeLog,
    Print(String),
}

fn main() -> ExitCode {
    let asked = match arguments(lexopt::Parser::from_env()) {
        Ok(asked) => asked,
        Err(cause) => {
            eprintln!("bcd-helper: {cause}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (config, clients) = match asked {
        Asked::Run(config, clients) => (config, clients),
        Asked::CopyNodeLog => return copy_node_log(),
        Asked::Print(text) => {
            use std::io::Write;
            let _closed = std::io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
    };
    log::start();
    match daemon::run(&config, clients) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(cause = %log::chain(&error), "bcd-helper cannot run");
            ExitCode::FAILURE
        }
    }
}

fn copy_node_log() -> ExitCode {
    let failed = |why: String| {
        eprintln!("bcd-helper: the node's log cannot be copied: {why}");
        ExitCode::FAILURE
    };
    // Whoever starts this becomes the node.
    let node = match sys::open_process(nix::unistd::getppid()) {
        // Closed by the end of this process, which may call nothing for it.
        Ok(node) => std::mem::ManuallyDrop::new(node),
        Err(cause) => return failed(format!("the process that started this one cannot be followed: {cause}")),
    };
    match harden::enter_for_relay() {
        Ok(()) => {
            relay::run(&node);
            ExitCode::SUCCESS
        }
        Err(error) => failed(log::chain(&error)),
    }
}

fn arguments(mut parser: lexopt::Parser) -> Result<Asked, lexopt::Error> {
    let named = std::env::var_os("BCD_CONFIG").filter(|path| !path.is_empty());
    let mut config = named.map_or_else(|| PathBuf::from(bcd_protocol::config::DEFAULT_PATH), PathBuf::from);
    let mut clients = Clients::Socket;
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("config") => config = parser.value()?.into(),
            Arg::Long("connection-on-stdin") => clients = Clients::Stdin,
            Arg::Long("copy-node-log") => return Ok(Asked::CopyNodeLog),
            Arg::Short('V') | Arg::Long("version") => {
                return Ok(Asked::Print(format!("bcd-helper {}\n", env!("CARGO_PKG_VERSION"))));
            }
            Arg::Short('h') | Arg::Long("help") => return Ok(Asked::Print(USAGE.to_owned())),
            Arg::Short(_) | Arg::Long(_) | Arg::Value(_) => return Err(argument.unexpected()),
        }
    }
    Ok(Asked::Run(config, clients))
}
