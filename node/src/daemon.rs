//! `bcd node`: puts the parts together, and takes them apart without touching a guest.
//!
//! Room: `node`. Invariants: it never runs as root or with a capability; one node per `data_dir`; once it is up, an
//! outage of the helper or of libvirt never ends it; ending it, by signal or by crash, leaves every guest as it is.
//!
//! ```text
//! configuration ─> sandbox ─> data_dir locked and prepared ─> kept document ─> converger ─> API, watched file ─> ready
//!                                                                                              SIGTERM, SIGINT ─> end
//! ```
use crate::api::caller::Admission;
use crate::api::events::EventLog;
use crate::api::{Api, Listener};
use crate::console::{ConsoleOpener, Consoles};
use crate::converge::{self, Converger, Parts, Timing};
use crate::fault::{Fault, FaultKind};
use crate::helper::Helper;
use crate::image::Store;
use crate::layout::Layout;
use crate::runtime::libvirt_kvm::LibvirtKvm;
use crate::sandbox;
use crate::share;
use crate::standalone;
use bcd_protocol::config::Config;
use bcd_protocol::id::InstanceId;
use futures_util::future::BoxFuture;
use nix::unistd::Pid;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

mod identity;
mod memory;
mod notify;
mod service;
#[cfg(test)]
mod tests;
mod watch;

/// The uid that the helper must have.
const ROOT: u32 = 0;
/// Threads that await. Two, so that one busy with TLS or hashing does not hold up the API.
const WORKERS: usize = 2;
/// How long work on files that cannot be interrupted may hold up the node's end.
const END_TIME: Duration = Duration::from_secs(3);
/// How much later than its helper a standalone node may be told to end, for both to have been told at once.
const TOLD_TOO: Duration = Duration::from_millis(500);
/// Threads that work on files at once; more wait in a queue.
const FILE_THREADS: usize = 16;

/// Where the node's helper is.
#[derive(Debug)]
pub enum HelperAt {
    /// At the configured socket.
    Socket,
    /// At the other end of standard input: this process started it, with this pid, when it was root
    /// ([`crate::standalone`]).
    Stdin(Pid),
}

/// Runs the node until it is told to end. Blocking; starts its own threads, so call it from a process that has none.
///
/// # Errors
/// `Denied` as root or with a capability, `Unavailable` when `data_dir` is not there, not its own, or another node's;
/// `InvalidSpec` for a configuration or a kept document that cannot be read; `Unsupported` when the host cannot share
/// files by ACL, or when the whole sandbox is required and cannot be had. A standalone node ends with `Unavailable` when its
/// helper does.
pub fn run(configuration: &Path, helper: HelperAt) -> Result<(), Fault> {
    identity::close()?;
    let config = read_config(configuration)?;
    identity::check()?;
    if matches!(helper, HelperAt::Socket) && identity::on_anothers_terminal()? {
        tracing::warn!(
            "started on the terminal of another session, which a process of the node's user could type into at that moment: \
             use the unit, --standalone, or setsid with input and output elsewhere"
        );
    }
    let (pair, helper) = match helper {
        HelperAt::Socket => (None, None),
        HelperAt::Stdin(pid) => (Some(standalone::take_pair()?), Some(pid)),
    };
    identity::raise_descriptor_limit()?;
    memory::settle();
    // Before anything that the node's user owns is opened, and before any thread is started: threads that are there already
    // would stay outside.
    sandbox::enter(&config)?;
    let layout = Layout::new(config.data_dir.as_path());
    let _lock = identity::lock(&layout)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(FILE_THREADS)
        .enable_all()
        .build()
        .map_err(|e| Fault::because(FaultKind::Internal, "the node's threads cannot be started", e))?;
    let outcome = runtime.block_on(serve(config, layout, pair));
    // What is still being written to a file then is what a crash would leave: the next start takes it up.
    runtime.shutdown_timeout(END_TIME);
    if let Some(helper) = helper {
        standalone::wait_for_helper(helper);
    }
    outcome
}

/// Reads the configuration. Who may write it is checked by the helper, which enforces what it says.
pub(crate) fn read_config(path: &Path) -> Result<Config, Fault> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        if e.kind() == std::io::ErrorKind::NotFound {
            return no_config(path);
        }
        Fault::because(FaultKind::InvalidSpec, format!("configuration {} cannot be read", path.display()), e)
    })?;
    parse_config(path, &text)
}

/// That there is none.
pub(crate) fn no_config(path: &Path) -> Fault {
    let sentence = format!(
        "there is no configuration {}: put one there (packaging/bcd.toml explains every key), or name another with --config or \
         BCD_CONFIG",
        path.display()
    );
    Fault::new(FaultKind::InvalidSpec, sentence)
}

/// What `text`, the file `path`, says.
pub(crate) fn parse_config(path: &Path, text: &str) -> Result<Config, Fault> {
    Config::parse(text).map_err(|e| Fault::new(FaultKind::InvalidSpec, format!("{}:{e}", path.display())))
}

async fn serve(config: Config, layout: Layout, pair: Option<OwnedFd>) -> Result<(), Fault> {
    let ended = |e| Fault::because(FaultKind::Internal, "signals cannot be waited for", e);
    let mut terminate = signal(SignalKind::terminate()).map_err(ended)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ended)?;
    share::prepare(&layout)?;
    let kept = converge::load(&layout)?;
    let is_kept = kept.is_some();
    let helper = match pair {
        None => Helper::connect(config.helper.socket.as_path(), ROOT),
        Some(pair) => Helper::over(pair),
    };
    let node = start(&config, helper.clone(), layout.clone(), kept)?;
    let listener = Listener::bind(config.node.api.as_path())?;
    let api = Api::new(Arc::new(node.clone()));
    let api = tokio::spawn(listener.serve(api, Admission::of_this_process()));
    let file = config.node.spec.as_ref().map(|path| {
        let path = path.as_path().to_owned();
        tokio::spawn(watch::follow(path, node.converger().clone(), layout.file_digest(), is_kept))
    });
    info!(version = env!("CARGO_PKG_VERSION"), api = %config.node.api, "node is up");
    let watchdog = notify::ready(node.converger().clone());
    let outcome = tokio::select! {
        _ = terminate.recv() => { info!("told to end by SIGTERM"); Ok(()) }
        _ = interrupt.recv() => { info!("told to end by SIGINT"); Ok(()) }
        reason = helper.lost() => {
            // Who tells a whole control group to end tells both halves, and the helper may be the faster one.
            let told_too = async { tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} } };
            match tokio::time::timeout(TOLD_TOO, told_too).await {
                Ok(()) => { info!("told to end, as the helper was"); Ok(()) }
                Err(_) => {
                    let sentence =
                        format!("{reason}; a standalone node ends with its helper: start it again, which starts both");
                    Err(Fault::new(FaultKind::Unavailable, sentence))
                }
            }
        }
    };
    notify::stopping();
    for task in [Some(api), file, watchdog].into_iter().flatten() {
        task.abort();
    }
    node.converger().stop().await;
    helper.hang_up();
    info!("node ends; guests go on");
    outcome
}

/// Puts the node's parts together and starts to converge.
fn start(
    config: &Config,
    helper: Helper,
    layout: Layout,
    kept: Option<crate::spec::NodeSpec>,
) -> Result<service::Node, Fault> {
    let runtime = Arc::new(LibvirtKvm::start(&config.libvirt.uri)?);
    let events = EventLog::default();
    let parts = Parts {
        images: Store::open(&layout, &config.node.images)?,
        secrets: config.node.secrets.as_path().to_owned(),
        consoles: Consoles::new(&layout, Arc::new(HelperConsoles(helper.clone()))),
        events: events.clone(),
        helper: helper.clone(),
        runtime,
        layout,
        timing: Timing::default(),
    };
    let consoles = parts.consoles.clone();
    let (converger, task) = Converger::start(parts, kept);
    tokio::spawn(async move {
        if let Err(error) = task.await {
            warn!(%error, "the converger ended by a defect: the node ends, to be started again");
            std::process::exit(70);
        }
    });
    Ok(service::Node::new(converger, events, consoles, helper, config.helper.max_instances))
}

/// Consoles come from the helper.
#[derive(Debug)]
struct HelperConsoles(Helper);

impl ConsoleOpener for HelperConsoles {
    fn open<'a>(&'a self, instance: &'a InstanceId) -> BoxFuture<'a, Result<OwnedFd, Fault>> {
        Box::pin(self.0.console(instance))
    }
}
