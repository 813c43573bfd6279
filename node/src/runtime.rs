//! What a runtime holds, in words that every runtime shares: domains, their states, and why they are in them.
//!
//! Room: `node`. Reading only. Invariant: a state that could not be read is a fault, never `Stopped`.
use crate::fault::Fault;
use bcd_protocol::id::{DomainUuid, InstanceId};
use futures_util::future::BoxFuture;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

pub mod libvirt_kvm;

/// What comes before an instance's id in the name of its domain; the helper calls them so.
const DOMAIN_PREFIX: &str = "bcd-";

/// The name of an instance's domain.
#[must_use]
pub fn domain_name(id: &InstanceId) -> String {
    format!("{DOMAIN_PREFIX}{id}")
}

/// The part of a domain's name that would be the instance's id; `None` where no instance's domain is called so.
#[must_use]
pub fn id_in_name(name: &str) -> Option<&str> {
    name.strip_prefix(DOMAIN_PREFIX)
}

/// What a domain does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DomainState {
    /// Its CPUs run.
    Running,
    /// Its CPUs are held.
    Paused(PauseReason),
    /// It is on its way to being stopped.
    ShuttingDown,
    /// No VMM runs.
    Stopped(StopReason),
    /// The guest sleeps (ACPI S3); its VMM runs.
    Asleep,
    /// The runtime answers with a state that bcd does not know, or with none.
    Other,
}

/// Why a domain's CPUs are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PauseReason {
    /// Someone asked.
    Asked,
    /// It is just being started.
    Starting,
    /// A read or write on one of its disks failed.
    DiskError,
    /// The guest crashed and its VMM was kept.
    Crashed,
    /// The runtime holds it for a while: saving, dumping, migrating, taking a snapshot.
    Busy,
    /// Its watchdog fired.
    Watchdog,
    /// The runtime does not say, or says something bcd does not know.
    Unsaid,
}

/// Why no VMM runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// The guest powered itself off, asked or not.
    GuestShutdown,
    /// Its VMM was ended from outside.
    Destroyed,
    /// The guest or its VMM crashed.
    Crashed,
    /// It could not be started.
    StartFailed,
    /// Its state lies in a file.
    Saved,
    /// The runtime's daemon ended it.
    Daemon,
    /// It was never started, or the runtime does not say.
    Unsaid,
}

/// Whether a runtime can be asked now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Connected.
    Up,
    /// Not connected, and why.
    Down {
        /// A sentence for status and doctor.
        reason: Arc<str>,
    },
}

/// What the converger needs of a runtime. Reading only: changes go through the helper.
pub trait Runtime: Send + Sync + 'static {
    /// Every domain and its state.
    ///
    /// # Errors
    /// `Unavailable` or `Timeout`: states are then unknown.
    fn list(&self) -> BoxFuture<'_, Result<Arc<Listing>, Fault>>;

    /// What the definitions of `domains` say; one that is gone meanwhile is left out.
    ///
    /// # Errors
    /// As [`Runtime::list`].
    fn details(&self, domains: Vec<DomainUuid>) -> BoxFuture<'_, Result<HashMap<DomainUuid, Arc<Details>>, Fault>>;

    /// What the VMMs of running `domains` were started with; one that is gone meanwhile is left out.
    ///
    /// # Errors
    /// As [`Runtime::list`].
    fn live(&self, domains: Vec<DomainUuid>) -> BoxFuture<'_, Result<HashMap<DomainUuid, Arc<Details>>, Fault>>;

    /// Which start of the domain called `name` runs now; `None` also when that cannot be told. Unlike [`Runtime::list`] it
    /// does not wait for domains that are just being started.
    fn boot<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<u32>>;

    /// Rises whenever something happened that a listing would show.
    fn wakes(&self) -> watch::Receiver<u64>;

    /// Whether it can be asked, with every change from now on.
    fn reach(&self) -> watch::Receiver<Reach>;

    /// Its version as it says itself, such as `9.0.0`; `None` before it has answered for the first time.
    fn version(&self) -> Option<String>;
}

/// One domain, ours or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Its UUID.
    pub uuid: DomainUuid,
    /// Its name.
    pub name: Arc<str>,
    /// What it does.
    pub state: DomainState,
    /// Which start of it this is: libvirt's domain id, which differs from start to start. `None` while it is stopped.
    pub boot: Option<u32>,
}

/// Every domain that a runtime holds, at one moment. A pass that finds nothing changed answers the same allocation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// In the runtime's order.
    pub domains: Vec<Domain>,
    /// Rises whenever a definition may have changed: what was read with [`Runtime::details`] before is
    /// then old.
    pub definitions: u64,
}

/// What a domain's definition says, or what its VMM was started with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Details {
    /// Virtual CPUs.
    pub vcpus: Option<u32>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
}
