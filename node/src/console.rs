//! Serial consoles: one hub per running instance drains its pty always, keeps a bounded backlog and serves viewers.
//!
//! Room: `node`. Invariant: whatever viewers do or fail to do, the pty is read, so the guest never stalls. Every queue
//! here is bounded, and what does not fit ends that viewer alone, with a notice.
//!
//! ```text
//! guest -> pty -> hub -+-> pending -> console.head, console.tail (first and latest MiB)
//!                      +-> each viewer's queue (bounded; a viewer that overruns it is dropped)
//! newest viewer -> input queue -> hub -> pty          older viewers read on, their input is refused
//! ```
//! Who writes: the viewer that attached last without asking to read only. The one it takes over from is told so and
//! goes on reading. A viewer stays attached while its guest stops and starts again.
use crate::fault::{Fault, FaultKind};
use crate::layout::Layout;
use bcd_protocol::id::InstanceId;
use futures_util::future::BoxFuture;
use hub::Hub;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

mod hub;
mod pty;
mod session;
mod store;
#[cfg(test)]
mod tests;

pub use session::{Input, InputRefused, Session};

/// Viewers that one console serves at once.
pub const VIEWERS: usize = 16;

/// Opens an instance's console: the helper, in a running node.
pub trait ConsoleOpener: Send + Sync + 'static {
    /// The descriptor of the instance's serial pty, or of a socket that stands for it.
    ///
    /// # Errors
    /// Any [`Fault`]; the hub tries again until it is told that the guest has stopped.
    fn open<'a>(&'a self, instance: &'a InstanceId) -> BoxFuture<'a, Result<OwnedFd, Fault>>;
}

/// How to attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Attach {
    /// Take over the input.
    #[default]
    Control,
    /// Read only; whoever writes goes on writing.
    ReadOnly,
}

/// Which start of a guest this is: any number that differs from start to start, e.g. libvirt's domain id. With a new
/// one the backlog begins anew, with the same one (a restart of the node) it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boot(pub u64);

/// All consoles of a node. Cheap to clone.
#[derive(Clone)]
pub struct Consoles {
    layout: Layout,
    opener: Arc<dyn ConsoleOpener>,
    hubs: Arc<Mutex<BTreeMap<InstanceId, Arc<Hub>>>>,
}

impl Consoles {
    /// No consoles yet.
    #[must_use]
    pub fn new(layout: &Layout, opener: Arc<dyn ConsoleOpener>) -> Self {
        Self { layout: layout.clone(), opener, hubs: Arc::default() }
    }

    /// An instance runs (or is paused) in its start `boot`: connects to its console and keeps connected. Idempotent and
    /// cheap. Call within a tokio runtime.
    pub fn started(&self, instance: &InstanceId, boot: Boot) {
        self.hub(instance).start(boot, &self.opener);
    }

    /// An instance does not run any more. Its viewers are told and stay; what is left in the pty is still read.
    pub fn stopped(&self, instance: &InstanceId) {
        let hub = self.hubs().get(instance).cloned();
        if let Some(hub) = hub {
            hub.stop();
        }
    }

    /// An instance is deleted: its viewers are told and end. Its files go with its directory.
    pub fn removed(&self, instance: &InstanceId) {
        let hub = self.hubs().remove(instance);
        if let Some(hub) = hub {
            hub.close();
        }
    }

    /// Waits until the console is connected, `wait` at the most, and answers whether it is. A guest that is started
    /// paused and resumed after this has none of its first lines lost: QEMU drops what nobody listens to.
    pub async fn connected(&self, instance: &InstanceId, wait: Duration) -> bool {
        let hub = self.hubs().get(instance).cloned();
        match hub {
            Some(hub) => hub.connected(wait).await,
            None => false,
        }
    }

    /// Attaches a viewer: backlog first, then what comes. A stopped instance's backlog is that of its latest start.
    ///
    /// # Errors
    /// `ResourcesExhausted` with [`VIEWERS`] attached already, `Unavailable` when the instance is being deleted.
    pub async fn attach(&self, instance: &InstanceId, attach: Attach) -> Result<Session, Fault> {
        let hub = self.hub(instance);
        let session = tokio::task::spawn_blocking(move || hub.attach(attach)).await;
        session.map_err(|e| Fault::because(FaultKind::Internal, format!("cannot attach to console {instance}"), e))?
    }

    fn hub(&self, instance: &InstanceId) -> Arc<Hub> {
        let mut hubs = self.hubs();
        if let Some(hub) = hubs.get(instance) {
            return Arc::clone(hub);
        }
        let hub = Hub::new(instance, self.layout.instance(instance));
        hubs.insert(instance.clone(), Arc::clone(&hub));
        hub
    }

    fn hubs(&self) -> MutexGuard<'_, BTreeMap<InstanceId, Arc<Hub>>> {
        self.hubs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Consoles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consoles").field("hubs", &self.hubs().len()).finish_non_exhaustive()
    }
}
