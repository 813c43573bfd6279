//! The command line: what a person or a script says to this host's node.
//!
//! Room: `node`. Parsing here, one file per command below. Values go to stdout, everything else to stderr. An error is
//! printed once, with its causes and what to do next.
//!
//! | exit code | means |
//! | --- | --- |
//! | 0 | done |
//! | 1 | refused or failed; `plan`: part would be; `apply --wait`: an instance failed; `doctor`: something fails |
//! | 2 | the command line is wrong; `doctor`: warnings only |
//! | 3 | the node does not answer |
//! | 4 | not within `--timeout` |
use bcd_protocol::config;
use bcd_protocol::id::InstanceId;
use clap::{Args, Parser, Subcommand};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

mod apply;
mod console;
pub(crate) mod doctor;
mod events;
pub mod failure;
mod log;
mod plan;
mod progress;
mod setup;
mod spec;
mod status;
#[cfg(test)]
mod tests;
pub mod text;
mod until;

use failure::Failure;

/// Runs virtual machines on this host as a NodeSpec says.
#[derive(Debug, Parser)]
#[command(name = "bcd", version, propagate_version = true, disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    /// The node's API socket, for commands that ask a node: status, apply, plan, spec, console, events [env: BCD_API]
    #[arg(long = "api", id = "api-before", value_name = "SOCKET", help_heading = "Which node")]
    api: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The configuration both daemons share
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = config::DEFAULT_PATH,
        env = "BCD_CONFIG",
        hide_env_values = true,
        help_heading = "Which node"
    )]
    config: PathBuf,
}

/// Options of the commands that ask a node.
#[derive(Debug, Args)]
pub(crate) struct Asks {
    /// The node's API socket [default: node.api of the configuration]
    #[arg(long, value_name = "SOCKET", env = "BCD_API", hide_env_values = true, help_heading = "Which node")]
    api: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the node in the foreground, as an unprivileged user
    Node {
        /// Started as root: start the helper as well, and go on as the node's user without any of root
        #[arg(long)]
        standalone: bool,
        /// Started as root: give up root as a standalone start does, and end
        #[arg(long, hide = true, conflicts_with = "standalone")]
        give_up_root_and_end: bool,
        /// What a standalone start becomes once it has given up root: a node whose helper, of this pid, is its child
        #[arg(long, hide = true, value_name = "PID", conflicts_with_all = ["standalone", "give_up_root_and_end"])]
        helper_on_stdin: Option<i32>,
        /// The child that copies this node's log
        #[arg(long, hide = true, value_name = "PID", requires = "helper_on_stdin")]
        log_relay: Option<i32>,
    },
    /// Run the root helper, whose page is bcd-helper(8), in the foreground
    Helper {
        /// Passed on to bcd-helper
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// Show the node and its instances
    Status {
        /// Only this instance, with all that is known of it
        id: Option<InstanceId>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Print it again whenever it changes, until interrupted
        #[arg(long)]
        watch: bool,
        /// Show every domain that is not bcd's, one by one
        #[arg(long, conflicts_with = "id")]
        all: bool,
        #[command(flatten)]
        asks: Asks,
    },
    /// Put a NodeSpec in force
    Apply {
        /// The document: TOML, or JSON if its name ends in .json; - reads TOML or JSON from stdin
        file: PathBuf,
        /// Allow a document that deletes more than half of the running instances, disks and all
        #[arg(long)]
        allow_delete: bool,
        /// Wait until every instance is as the document wants it; fail if one fails
        #[arg(long)]
        wait: bool,
        /// With --wait: give up after so many seconds, with exit code 4; the node goes on
        #[arg(long, value_name = "SECONDS", requires = "wait", default_value_t = 600)]
        timeout: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        asks: Asks,
    },
    /// Show what a NodeSpec would change; nothing is done
    Plan {
        /// The document, as for apply
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        asks: Asks,
    },
    /// Print the document that is in force, and where it came from
    Spec {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        asks: Asks,
    },
    /// Attach to an instance's serial console; ^] leaves
    Console {
        /// The instance
        id: InstanceId,
        /// Only read: whoever has the input keeps it
        #[arg(long)]
        read_only: bool,
        /// Print what comes until this text has appeared, then end
        #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
        until: Option<String>,
        /// With --until: give up after so many seconds, with exit code 4 [default: wait for ever]
        #[arg(long, value_name = "SECONDS", requires = "until")]
        timeout: Option<u64>,
        #[command(flatten)]
        asks: Asks,
    },
    /// Show what happened
    Events {
        /// Go on with what happens, until interrupted
        #[arg(long, short)]
        follow: bool,
        /// Only events behind the one of this number, which stands first on its line; a node that was started anew counts
        /// from 1 again [default: all that the node still has]
        #[arg(long, value_name = "NUMBER")]
        after: Option<u64>,
        /// Print JSON, one event a line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        asks: Asks,
    },
    /// Tell what this host can run and what is missing; works without the node
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Ask as the node's user: what a doctor that is root starts for it, with pipes alone
        #[arg(long, hide = true, conflicts_with = "json")]
        probe: bool,
    },
    /// Print the JSON Schema of a NodeSpec
    Schema,
    /// Print the OpenAPI document of the node's API
    Openapi,
    /// Print a completion script
    Completions {
        /// For this shell
        shell: clap_complete::Shell,
    },
}

/// Parses the process's arguments and does what they say.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout and are no error.
            let code = if error.use_stderr() { failure::USAGE } else { 0 };
            return match error.print() {
                Ok(()) => ExitCode::from(code),
                Err(_) => ExitCode::FAILURE,
            };
        }
    };
    match run(cli) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

impl Command {
    /// Whether it asks a running node.
    fn asks_a_node(&self) -> bool {
        match self {
            Self::Status { .. }
            | Self::Apply { .. }
            | Self::Plan { .. }
            | Self::Spec { .. }
            | Self::Console { .. }
            | Self::Events { .. } => true,
            Self::Node { .. }
            | Self::Helper { .. }
            | Self::Doctor { .. }
            | Self::Schema
            | Self::Openapi
            | Self::Completions { .. } => false,
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let (global, before) = (cli.global, cli.api);
    if before.is_some() && !cli.command.asks_a_node() {
        return Err(Failure::new("--api is for commands that ask a node, and this one asks none").code(failure::USAGE));
    }
    let client = |asks: Asks| setup::client(&global, before.or(asks.api));
    match cli.command {
        Command::Node { standalone: true, .. } => Err(setup::standalone(&global)?),
        Command::Node { give_up_root_and_end: true, .. } => setup::rehearse(&global),
        Command::Node { helper_on_stdin: Some(helper), log_relay, .. } => {
            setup::node_with_helper(&global, Pid::from_raw(helper), log_relay.map(Pid::from_raw))
        }
        Command::Node { helper_on_stdin: None, .. } => setup::node(&global),
        Command::Helper { arguments } => Err(setup::exec_helper(&global, &arguments)),
        Command::Status { id, json, watch, all, asks } => {
            setup::block_on(async { status::run(&client(asks)?, id.as_ref(), status::How { json, watch, all }).await })
        }
        Command::Apply { file, allow_delete, wait, timeout, json, asks } => {
            let document = setup::document(&file)?;
            let wait = wait.then(|| std::time::Duration::from_secs(timeout));
            setup::block_on(async { apply::run(&client(asks)?, &document, allow_delete, wait, json).await })
        }
        Command::Plan { file, json, asks } => {
            let document = setup::document(&file)?;
            setup::block_on(async { plan::run(&client(asks)?, &document, json).await })
        }
        Command::Spec { json, asks } => setup::block_on(async { spec::run(&client(asks)?, json).await }),
        Command::Console { id, read_only, until, timeout, asks } => {
            let wanted = until.map(|text| until::Wanted::new(text, timeout.map(std::time::Duration::from_secs)));
            setup::block_on(async { console::run(&client(asks)?, &id, read_only, wanted).await })
        }
        Command::Events { follow, after, json, asks } => {
            setup::block_on(async { events::run(&client(asks)?, follow, after, json).await })
        }
        Command::Doctor { json: _, probe: true } => text::print(&crate::doctor::answer()?),
        Command::Doctor { json, probe: false } => setup::doctor(&global, json),
        Command::Schema => text::print(&format!("{:#}\n", crate::spec::schema().to_value())),
        Command::Openapi => text::print(&crate::api::openapi::text()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut <Cli as clap::CommandFactory>::command(), "bcd", &mut script);
            text::print(&String::from_utf8_lossy(&script))
        }
    }
}
