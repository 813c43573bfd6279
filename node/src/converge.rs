//! Brings the host to what the document wants: observe, plan, act, again.
//!
//! Room: `node`. One actor owns what is known; each instance that differs has one task of its own, which never waits for
//! another. Invariants: at most one task per instance; a task's outcome is followed by a fresh look before that instance
//! is acted on again; a document is stored before it is in force.
//!
//! ```text
//!            wakes: document, lifecycle event, helper or libvirt back, task ended, retry due, timer
//!              │
//!   fetch ──> absorb ──> plan ──> begin tasks ──> publish status
//!              ▲                     │
//!              └──── outcome ◄───────┘   steps of one instance, in order, until one fails
//! ```
use crate::api::events::EventLog;
use crate::api::service::{ApplyReport, PlanReport};
use crate::console::Consoles;
use crate::fault::{Fault, FaultKind};
use crate::helper::Helper;
use crate::image::Store;
use crate::layout::Layout;
use crate::plan::POWER_OFF_SECONDS;
use crate::runtime::Runtime;
use crate::spec::NodeSpec;
use crate::status::{NodeStatus, SpecSource};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

mod act;
mod actor;
mod keep;
mod retry;
mod show;
mod steps;
#[cfg(test)]
pub(crate) mod tests;
mod work;

pub use keep::load;

/// Everything a converger works with.
#[derive(Clone)]
pub struct Parts {
    /// Where things lie.
    pub layout: Layout,
    /// The way to the helper.
    pub helper: Helper,
    /// The runtime.
    pub runtime: Arc<dyn Runtime>,
    /// Base images.
    pub images: Store,
    /// The directory of user data, by allocation.
    pub secrets: PathBuf,
    /// Consoles.
    pub consoles: Consoles,
    /// Events.
    pub events: EventLog,
    /// How long things may take.
    pub timing: Timing,
}

/// How long things may take. The default is what operators get; tests use shorter ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The longest time between two passes when nothing wakes one: what no event told is seen within it.
    pub pass: Duration,
    /// Between two presses of a guest's power button: guests miss one that comes before they listen.
    pub press: Duration,
    /// From the first press to the hard stop.
    pub power_off: Duration,
    /// How long the start of a guest waits for its console to be connected, so that none of its first lines is lost.
    pub console: Duration,
    /// Between two publications of the status while progress is made.
    pub publish: Duration,
    /// How long a base image that nothing uses is kept.
    pub image_grace: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            pass: Duration::from_secs(10),
            press: Duration::from_secs(5),
            power_off: Duration::from_secs(POWER_OFF_SECONDS),
            console: Duration::from_secs(2),
            publish: Duration::from_millis(200),
            image_grace: Duration::from_secs(600),
        }
    }
}

/// A handle to a running converger.
#[derive(Debug, Clone)]
pub struct Converger {
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<Arc<NodeStatus>>,
    spec: watch::Receiver<Arc<NodeSpec>>,
}

#[derive(Debug)]
enum Command {
    Apply {
        spec: Box<NodeSpec>,
        source: SpecSource,
        allow_delete: bool,
        answer: oneshot::Sender<Result<ApplyReport, Fault>>,
    },
    Plan {
        spec: Box<NodeSpec>,
        answer: oneshot::Sender<PlanReport>,
    },
    Refused {
        fault: Fault,
    },
    Ping {
        answer: oneshot::Sender<()>,
    },
    Stop {
        done: oneshot::Sender<()>,
    },
}

impl Converger {
    /// Starts one. `kept` is the document that was in force when the node stopped last.
    #[must_use]
    pub fn start(parts: Parts, kept: Option<NodeSpec>) -> (Self, JoinHandle<()>) {
        let (commands, inbox) = mpsc::channel(64);
        let (actor, status, spec) = actor::Actor::new(parts, kept);
        let task = tokio::spawn(actor.run(inbox));
        (Self { commands, status, spec }, task)
    }

    /// The latest status, with every change from now on.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Arc<NodeStatus>> {
        self.status.clone()
    }

    /// The document in force, with every change from now on.
    #[must_use]
    pub fn spec(&self) -> watch::Receiver<Arc<NodeSpec>> {
        self.spec.clone()
    }

    /// Puts a document in force: checks what it would delete, stores it, then answers. Converging goes on afterwards.
    ///
    /// # Errors
    /// `Denied` when it would delete more than half of the running instances and that is not allowed; `Unavailable`
    /// when that cannot be told or the document cannot be stored. Nothing is changed then.
    pub async fn apply(&self, spec: NodeSpec, source: SpecSource, allow_delete: bool) -> Result<ApplyReport, Fault> {
        let (answer, answered) = oneshot::channel();
        self.send(Command::Apply { spec: Box::new(spec), source, allow_delete, answer }).await?;
        answered.await.map_err(|_| ended())?
    }

    /// What [`Converger::apply`] of a document would lead to. Changes nothing.
    ///
    /// # Errors
    /// `Unavailable` when the node is stopping.
    pub async fn plan(&self, spec: NodeSpec) -> Result<PlanReport, Fault> {
        let (answer, answered) = oneshot::channel();
        self.send(Command::Plan { spec: Box::new(spec), answer }).await?;
        answered.await.map_err(|_| ended())
    }

    /// Shows that a document was refused before it came here.
    pub async fn refused(&self, fault: Fault) {
        // A node that is stopping shows nothing any more.
        drop(self.send(Command::Refused { fault }).await);
    }

    /// Whether the converger still takes its turns.
    pub async fn answers(&self) -> bool {
        let (answer, answered) = oneshot::channel();
        self.send(Command::Ping { answer }).await.is_ok() && answered.await.is_ok()
    }

    /// Ends what is under way at the next safe point, and waits for that. Guests go on.
    pub async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        if self.send(Command::Stop { done }).await.is_ok() {
            drop(stopped.await);
        }
    }

    async fn send(&self, command: Command) -> Result<(), Fault> {
        self.commands.send(command).await.map_err(|_| ended())
    }
}

fn ended() -> Fault {
    Fault::new(FaultKind::Unavailable, "the node is stopping")
}
