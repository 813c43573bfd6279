//! Brings the helper up: configuration, ledger, socket, sandbox, then the runtime.
//!
//! Room: `helper`. Order is the point: everything that needs root's full power comes before the sandbox, every thread and
//! every byte of a peer after it.
use crate::accel;
use crate::harden::{self, HardenError, Reachable};
use crate::ledger::{self, Holder, Ledger, LoadError};
use crate::libvirt;
use crate::listen::{self, ListenError};
use crate::node_user::{self, UnfitUser};
use crate::pair::{self, Pair, PairError};
use crate::pipeline::Helper;
use crate::serve::{self, Source};
use crate::sys;
use bcd_confine::memory;
use bcd_confine::trust::{self, Untrusted};
use bcd_policy::Records;
use bcd_protocol::config::{Config, InvalidConfig};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Threads for blocking calls: all of libvirt's, and a few for the ledger and for files.
const BLOCKING_THREADS: usize = libvirt::CALLS + 4;

/// Their stacks, bytes. libvirt's client encodes messages on the heap.
const STACK_BYTES: usize = 512 * 1024;

/// The allocator's arenas: no path here is bound by its lock.
const ARENAS: i32 = 1;

/// How long the helper of a node that was started anew waits for the one before it, which ends with its node and lets effects
/// end for 75 s. Less than what the node waits for its first answer.
const PREDECESSOR: Duration = Duration::from_secs(80);

/// How long it waits for one that listens, which does not end by itself: no longer than one that has just taken the ledger
/// needs to say what it is.
const NEIGHBOUR: Duration = Duration::from_secs(1);

/// Where clients come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clients {
    /// A listening socket: the service manager's, or one that is bound here.
    Socket,
    /// The one connection on standard input: the node's that started this helper.
    Stdin,
}

/// Why the helper does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// Not root.
    #[error("bcd-helper must be started as root, not as uid {0}")]
    NotRoot(u32),
    /// The configuration file is not root's alone, or cannot be read.
    #[error("the configuration cannot be trusted")]
    ConfigFile(#[source] Untrusted),
    /// There is none.
    #[error(
        "there is no configuration {}: put one there (packaging/bcd.toml explains every key), or name another with --config \
         or BCD_CONFIG", .0.display()
    )]
    NoConfig(PathBuf),
    /// It is not valid; in one line, as editors jump to it.
    #[error("{path}:{cause}", path = path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// Where and what is wrong.
        cause: InvalidConfig,
    },
    /// The node's user is missing, or not the node's alone.
    #[error(transparent)]
    NodeUser(#[from] UnfitUser),
    /// The ledger.
    #[error("the records cannot be read")]
    Ledger(#[from] LoadError),
    /// The socket.
    #[error("there is no socket to listen on")]
    Listen(#[from] ListenError),
    /// The node that started this helper has ended meanwhile.
    #[error("the node that started this helper has ended, while the helper before it had not")]
    NodeEnded,
    /// The connection on standard input.
    #[error("standard input is no connection to serve")]
    Pair(#[from] PairError),
    /// libvirt's library.
    #[error("libvirt's client library cannot be used: {0}")]
    Libvirt(String),
    /// The sandbox.
    #[error("the sandbox is not there")]
    Harden(#[from] HardenError),
    /// The runtime.
    #[error("the helper cannot run: {0}")]
    Run(#[from] std::io::Error),
}

/// Runs the helper until it is told to stop.
///
/// # Errors
/// [`StartError`]: why it did not come up, or could not go on.
pub(crate) fn run(config_path: &Path, clients: Clients) -> Result<(), StartError> {
    if !geteuid().is_root() {
        return Err(StartError::NotRoot(geteuid().as_raw()));
    }
    ending_signals().thread_block().map_err(std::io::Error::from)?;
    // The helper of a standalone node is not in its terminal's foreground, and writes its log there all the same.
    SigSet::from(Signal::SIGTTOU).thread_block().map_err(std::io::Error::from)?;
    memory::bound_allocator(ARENAS, None);
    umask(Mode::from_bits_truncate(0o077));
    harden::limits()?;
    let config = read_config(config_path)?;
    let node = node_user::find(&config.helper.node_user)?;
    let accel = accel::resolve(config.libvirt.accel);
    let pair = match clients {
        Clients::Socket => None,
        Clients::Stdin => Some(pair::take()?),
    };
    let (ledger, records) = open_ledger(config.helper.state_dir.as_path(), pair.as_ref())?;
    let (source, bound) = match pair {
        None => {
            let listening = match listen::passed()? {
                Some(listening) => listening,
                None => listen::bound(config.helper.socket.as_path(), node.gid)?,
            };
            let (socket, bound) = listening.into_parts();
            (Source::Listening(socket), bound)
        }
        Some(pair) => (Source::Pair(pair), None),
    };
    virt::error::clear_error_callback();
    sys::libvirt_initialize().map_err(|e| StartError::Libvirt(e.message().to_owned()))?;
    let mut generation = [0; 8];
    getrandom::fill(&mut generation).map_err(|e| std::io::Error::other(e.to_string()))?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        node_user = config.helper.node_user.as_str(),
        node_uid = node.uid.as_raw(),
        records = records.len(),
        software = accel.software,
        because = accel.because,
        "starting"
    );
    let reachable = Reachable {
        state_dir: config.helper.state_dir.as_path().to_owned(),
        socket_dir: bound.as_ref().and_then(|_| config.helper.socket.as_path().parent()).map(Path::to_owned),
    };
    match memory::give_back_startup_pages() {
        Ok(bytes) => tracing::debug!(bytes, "pages of libraries given back"),
        Err(cause) => tracing::debug!(%cause, "pages of libraries stay"),
    }
    harden::enter(&reachable, config.helper.require_sandbox)?.log();
    libvirt::start_events().map_err(StartError::Libvirt)?;
    let generation = u64::from_le_bytes(generation);
    let helper = Helper::new(config, node.uid.as_raw(), accel.software, (ledger, records), generation);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_stack_size(STACK_BYTES)
        .thread_name("blocking")
        .build()?;
    let ended = runtime.block_on(serve::run(Arc::new(helper), source));
    // A call that is stuck in libvirt must not hold the exit.
    runtime.shutdown_background();
    if let Some(bound) = bound {
        bound.remove();
    }
    Ok(ended?)
}

/// Opens the ledger; the helper of a node that was started anew waits a while for the one before it, as long as that node is
/// there.
fn open_ledger(state_dir: &Path, pair: Option<&Pair>) -> Result<(Ledger, Records), StartError> {
    let Some(pair) = pair else { return Ok(ledger::open(state_dir, Holder::Listens)?) };
    let (start, mut told) = (Instant::now(), false);
    loop {
        let locked = match ledger::open(state_dir, Holder::EndsWithItsNode) {
            Err(locked @ LoadError::Locked { .. }) => locked,
            opened => return Ok(opened?),
        };
        let ends = matches!(locked, LoadError::Locked { holder: Holder::EndsWithItsNode, .. });
        let patience = if ends { PREDECESSOR } else { NEIGHBOUR };
        if start.elapsed() >= patience {
            return Err(locked.into());
        }
        if pair.is_over() {
            return Err(StartError::NodeEnded);
        }
        if ends && !told {
            told = true;
            tracing::info!(
                seconds = PREDECESSOR.as_secs(),
                "the helper before this one lets what is under way end: waiting for it"
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Reads the configuration.
fn read_config(path: &Path) -> Result<Config, StartError> {
    let path = trust::spelt_out(path)?;
    let text = trust::read_file(&path, trust::CONFIG_BYTES).map_err(|untrusted| match untrusted {
        Untrusted::Open { cause: Errno::ENOENT, .. } => StartError::NoConfig(path.clone()),
        Untrusted::Open { .. }
        | Untrusted::Owner { .. }
        | Untrusted::Writable { .. }
        | Untrusted::Kind { .. }
        | Untrusted::Read { .. } => StartError::ConfigFile(untrusted),
    })?;
    Config::parse(&text).map_err(|cause| StartError::Config { path, cause })
}

/// The signals that tell the helper to stop. They wait from the start until someone listens to them, so that one that
/// comes early still ends the helper in good order.
pub(crate) fn ending_signals() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT].into_iter().collect()
}

/// Tells the service manager that the socket is served.
pub(crate) fn ready() {
    tell(&[sd_notify::NotifyState::Ready]);
}

/// Tells the service manager that the helper is on its way out.
pub(crate) fn stopping() {
    tell(&[sd_notify::NotifyState::Stopping]);
}

/// Tells the service manager, where there is one.
pub(crate) fn tell(state: &[sd_notify::NotifyState<'_>]) {
    if let Err(cause) = sd_notify::notify(false, state) {
        tracing::warn!(%cause, "the service manager cannot be told");
    }
}
