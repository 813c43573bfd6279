//! What the helper gives up before it reads a first byte from a peer.
//!
//! Room: `helper`. Order matters: limits and capabilities while they can still be changed, then no_new_privs, then
//! Landlock, then seccomp. All of it happens on the first thread before any other is made, so every thread has it.
use bcd_confine::landlock::{Got, Rules};
use bcd_confine::sandbox::{self, Incomplete};
use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::SigSet;
use std::path::PathBuf;

mod landlock;
mod relay_calls;
mod seccomp;

/// The capabilities that are kept, each with the verb that needs it. They are kept permitted and raised for a single
/// call ([`Raised`]): the rest of the helper runs with none.
pub(crate) const KEPT: [(Capability, &str); 2] = [
    (
        Capability::CAP_DAC_READ_SEARCH,
        "libvirt.define and libvirt.start: look at an instance's files below data_dir, which is the node's",
    ),
    (Capability::CAP_DAC_OVERRIDE, "console: open the guest's pty, which is its own uid's alone"),
];

/// The directories that the helper still reaches.
#[derive(Debug, Clone)]
pub(crate) struct Reachable {
    /// Its own state: read, written.
    pub(crate) state_dir: PathBuf,
    /// Where its socket lies, when it made that itself: the name is removed at the end.
    pub(crate) socket_dir: Option<PathBuf>,
}

/// Why the sandbox is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HardenError {
    /// A step failed.
    #[error("cannot {what}: {cause}")]
    Step {
        /// Which step.
        what: &'static str,
        /// Why.
        cause: String,
    },
    /// The kernel gave less than all, and `require_sandbox` is set.
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
    /// More is left in the bounding set than is kept, and `require_sandbox` is set.
    #[error(
        "the bounding set cannot be reduced ({0}) and helper.require_sandbox is true: start the helper with CAP_SETPCAP, or \
         with the two capabilities of its unit alone"
    )]
    Unbounded(String),
}

/// The sandbox that the helper ended up with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sandbox {
    capabilities: String,
    bounding: String,
    landlock: Got,
    seccomp: bool,
}

impl Sandbox {
    /// Logs it, once.
    pub(crate) fn log(&self) {
        tracing::info!(
            capabilities = %self.capabilities,
            bounding = %self.bounding,
            no_new_privs = true,
            landlock = %self.landlock,
            seccomp = self.seccomp,
            "sandbox"
        );
    }
}

/// Bounds on what this process may take. Before anything else: they hold from the first file on. The kernel exempts root
/// from a limit on processes: seccomp refuses to make any.
///
/// # Errors
/// [`HardenError`] with the limit.
pub(crate) fn limits() -> Result<(), HardenError> {
    let bounds = [
        // No secret of a core file, no memory pinned.
        (Resource::RLIMIT_CORE, 0, "limit core files"),
        (Resource::RLIMIT_MEMLOCK, 0, "limit locked memory"),
        // 16 peers, 4 libvirt connections, the ledger, and descriptors on their way.
        (Resource::RLIMIT_NOFILE, 256, "limit open files"),
        // Private memory: some fifty times of what it uses.
        (Resource::RLIMIT_DATA, 512 << 20, "limit memory"),
    ];
    for (resource, most, what) in bounds {
        setrlimit(resource, most, most).map_err(|e| HardenError::Step { what, cause: e.to_string() })?;
    }
    prctl::set_dumpable(false).map_err(|e| HardenError::Step { what: "refuse tracing", cause: e.to_string() })
}

/// Gives up all but two descriptors: for the process that copies a standalone node's log. It cannot be ended or stopped by
/// what ends or stops the node, and ends when nobody writes any more.
///
/// # Errors
/// [`HardenError`] when a step fails. What a kernel does not know is no error: this process opens nothing by itself.
pub(crate) fn enter_for_relay() -> Result<(), HardenError> {
    SigSet::all().thread_block().map_err(|e| HardenError::Step { what: "block signals", cause: e.to_string() })?;
    limits()?;
    prctl::set_name(c"bcd-node-log").map_err(|e| HardenError::Step { what: "take a name", cause: e.to_string() })?;
    drop_capabilities(&CapsHashSet::new())?;
    prctl::set_no_new_privs().map_err(|e| HardenError::Step { what: "set no_new_privs", cause: e.to_string() })?;
    let _as_far_as_known = sandbox::enter(Rules::without(Rules::all_ports()), &relay_calls::FILTER);
    Ok(())
}

/// Gives up everything that is not needed from here on.
///
/// # Errors
/// [`HardenError`] when a step fails, or when the kernel gives less than all and `required` is set.
pub(crate) fn enter(reachable: &Reachable, required: bool) -> Result<Sandbox, HardenError> {
    let kept = KEPT.iter().map(|(capability, _)| *capability).collect();
    let left = drop_capabilities(&kept)?;
    for (capability, verb) in KEPT {
        if !left.permitted.contains(&capability) {
            tracing::warn!(%capability, verb, "a capability is missing");
        }
    }
    let unbounded = names(left.bounding.difference(&kept));
    prctl::set_no_new_privs().map_err(|e| HardenError::Step { what: "set no_new_privs", cause: e.to_string() })?;
    let sandbox = sandbox::enter(landlock::rules(reachable), &seccomp::FILTER);
    if required {
        sandbox.whole()?;
        if !unbounded.is_empty() {
            return Err(HardenError::Unbounded(unbounded));
        }
    }
    if !unbounded.is_empty() {
        tracing::warn!(capabilities = %unbounded, "the bounding set stays wider than it need be, without CAP_SETPCAP");
    }
    if let Some(missing) = sandbox.missing() {
        tracing::warn!(%missing, "the sandbox is incomplete: see `bcd doctor`");
    }
    Ok(Sandbox {
        capabilities: names(&left.permitted),
        bounding: names(&left.bounding),
        landlock: sandbox.landlock(),
        seccomp: sandbox.seccomp(),
    })
}

/// The capabilities that a process is left with.
struct Left {
    /// Permitted: of those that are kept, the ones it had.
    permitted: CapsHashSet,
    /// In the bounding set: what no execution could give back, if one were possible.
    bounding: CapsHashSet,
}

/// Leaves the `kept` capabilities permitted, and none effective, inheritable or ambient. The bounding set is emptied where the
/// process may do that (`CAP_SETPCAP`); under a unit that reduced it to the kept ones it stays so.
fn drop_capabilities(kept: &CapsHashSet) -> Result<Left, HardenError> {
    let step = |what| move |e: caps::errors::CapsError| HardenError::Step { what, cause: e.to_string() };
    let has = caps::read(None, CapSet::Permitted).map_err(step("read its capabilities"))?;
    caps::clear(None, CapSet::Ambient).map_err(step("clear ambient capabilities"))?;
    let mut bounding = CapsHashSet::new();
    for capability in caps::all() {
        // Not known to this kernel: not there to drop.
        if !caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false) {
            continue;
        }
        if has.contains(&Capability::CAP_SETPCAP) {
            caps::drop(None, CapSet::Bounding, capability).map_err(step("bound its capabilities"))?;
        } else {
            bounding.insert(capability);
        }
    }
    let permitted: CapsHashSet = kept.intersection(&has).copied().collect();
    caps::clear(None, CapSet::Effective).map_err(step("drop effective capabilities"))?;
    caps::clear(None, CapSet::Inheritable).map_err(step("drop inheritable capabilities"))?;
    caps::set(None, CapSet::Permitted, &permitted).map_err(step("drop permitted capabilities"))?;
    Ok(Left { permitted, bounding })
}

/// Capabilities by name, in one order.
fn names<'a>(capabilities: impl IntoIterator<Item = &'a Capability>) -> String {
    let mut names: Vec<_> = capabilities.into_iter().map(ToString::to_string).collect();
    names.sort();
    names.join(" ")
}

/// A kept capability in effect on this thread, until dropped.
#[derive(Debug)]
pub(crate) struct Raised(Option<Capability>);

impl Raised {
    /// Raises `capability`. Where it was not kept the calls behind it fail as they would for anyone.
    pub(crate) fn new(capability: Capability) -> Self {
        let effective = caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false);
        if effective {
            // Not hardened (a test): nothing to raise and nothing to lower.
            return Self(None);
        }
        match caps::raise(None, CapSet::Effective, capability) {
            Ok(()) => Self(Some(capability)),
            Err(cause) => {
                tracing::debug!(%capability, %cause, "not raised");
                Self(None)
            }
        }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        if let Some(capability) = self.0
            && let Err(cause) = caps::drop(None, CapSet::Effective, capability)
        {
            tracing::error!(%capability, %cause, "a capability stays in effect");
        }
    }
}
