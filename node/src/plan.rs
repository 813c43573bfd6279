//! From what is wanted and what is there to what is to be done: a pure function.
//!
//! Room: `node`. No I/O, no clock, no memory of earlier passes. [`Desired`] is made once per accepted document,
//! [`Observed`] borrows what the observer holds, and [`plan`] walks both without copying, so a pass that finds nothing
//! to do costs next to nothing.
//!
//! ```text
//! absent ── FetchImage CreateDisk WriteSeed Define Share ──> stopped ── Start ──> running ── Suspend ──> paused
//!                                                              ^  ^                 │  ^                  │
//!                                                              │  └──── PowerOff ───┘  └───── Resume ─────┘
//! left the document: Destroy Undefine RemoveFiles              └─ the guest powered off by itself: Start again
//! ```
//!
//! Why an instance stopped is shown and not planned from: one that is wanted running is started again whether its guest
//! powered off, crashed or was killed. How often a start that keeps failing is tried is the converger's.
use crate::fault::{Fault, FaultKind};
use crate::spec::RuntimeId;
use crate::spec::schema::{DiskBytesSchema, InstanceIdSchema};
use crate::status::{ForeignDomain, InstanceState, Section, StopReason};
use bcd_protocol::definition::ImageRef;
use bcd_protocol::id::{GuestUid, InstanceId};
use bcd_protocol::reply::RecordView;
use bcd_protocol::size::DiskBytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};

mod describe;
mod desired;
mod guard;
mod judge;
mod steps;
#[cfg(test)]
mod tests;
pub mod vet;
pub use describe::describe;
pub use desired::{Desired, Fingerprint, LIBVIRT_KVM, RUNTIMES, Wanted};
pub use guard::{Deletions, deletions};
pub use judge::plan;

/// What was read, or that it could not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading<T> {
    /// It was read.
    Known(T),
    /// It could not be read: nothing that depends on it is decided.
    Unknown,
}

/// What the host holds. It borrows from the observer, which keeps its own copies across passes.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// The helper's records by instance.
    pub records: Reading<&'a BTreeMap<InstanceId, RecordView>>,
    /// Our domains by instance: those whose name and UUID are both as a record says.
    pub domains: Reading<&'a BTreeMap<InstanceId, DomainView>>,
    /// What lies in `instances/`, by directory.
    pub files: Reading<&'a BTreeMap<InstanceId, InstanceFiles>>,
    /// Base images that are there, checked and whole.
    pub images: &'a HashSet<ImageRef>,
    /// Runtimes found on this host, whether or not they answer now.
    pub runtimes: &'a BTreeSet<RuntimeId>,
    /// Domains that are not ours.
    pub foreign: &'a [ForeignDomain],
}

/// One of our domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainView {
    /// What it is now; never [`InstanceState::Absent`].
    pub state: InstanceState,
    /// Why it stopped, where libvirt says so.
    pub stop_reason: Option<StopReason>,
}

/// What lies in one instance's directory. An entry means that the directory is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InstanceFiles {
    /// The overlay.
    pub disk: DiskFile,
    /// Whether the seed is there under its final name.
    pub seed: bool,
    /// The uid that the files are shared with.
    pub shared: Option<GuestUid>,
    /// Set by the executor for files that this process made and that no record stands for yet:
    /// [`Wanted::fingerprint`] of what they were made for. Files without a record that say anything else are leftovers:
    /// removed before anything is made, unless somebody's data is in them.
    pub made_for: Option<Fingerprint>,
}

/// An overlay as the node finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiskFile {
    /// None under its final name.
    #[default]
    Missing,
    /// Its header was read.
    Ready {
        /// The virtual size that its header says, bytes.
        virtual_bytes: u64,
        /// Whether anything was ever written to it; a guest that runs writes soon.
        written: bool,
    },
    /// It is there and its header makes no sense, or cannot be read.
    Unreadable,
}

/// Why an instance, or a document, is not acted on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// Its stable kind.
    pub kind: FaultKind,
    /// A sentence that names the field or number and says what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal.
    #[must_use]
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.kind, refusal.message)
    }
}

/// One thing to do for one instance. Steps of an instance run in order; the first that fails ends them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "step", rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Fetch and check the base image.
    FetchImage,
    /// Make the directory and the overlay.
    CreateDisk,
    /// Fetch the user data and write the seed.
    WriteSeed,
    /// Have the helper define the domain, or change its definition.
    Define,
    /// Share the files with the guest's uid.
    Share,
    /// Grow the overlay of a stopped instance.
    GrowFile {
        /// The new virtual size, bytes.
        #[schemars(with = "DiskBytesSchema")]
        disk_bytes: DiskBytes,
    },
    /// Grow the disk of a running instance.
    GrowLive {
        /// The new virtual size, bytes.
        #[schemars(with = "DiskBytesSchema")]
        disk_bytes: DiskBytes,
    },
    /// Start it.
    Start {
        /// Leave its CPUs paused.
        paused: bool,
    },
    /// Pause its CPUs.
    Suspend,
    /// Let its CPUs run.
    Resume,
    /// Press its power button, again while it runs, and end it at [`POWER_OFF_SECONDS`].
    PowerOff,
    /// End it at once.
    Destroy,
    /// Remove its definition and record.
    Undefine,
    /// Remove its directory.
    RemoveFiles,
}

/// How long a guest has to shut down before it is ended, seconds.
pub const POWER_OFF_SECONDS: u64 = 60;

/// What a change gives back or takes: what gives back comes first in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It left the document and is deleted.
    Delete,
    /// It is stopped.
    Stop,
    /// It is made, changed, started, paused or resumed.
    Change,
    /// Nothing is done: it is refused, or its state is not known.
    Held,
}

/// What is to be done for one instance, or why nothing is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The instance.
    #[schemars(with = "InstanceIdSchema")]
    pub instance: InstanceId,
    /// Where in the order it stands.
    pub phase: Phase,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// Why it is not brought to what the document wants. A refused instance is still stopped when that is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
}

/// What is to be done: only instances that differ from what is wanted are in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The changes: deletions, stops, then the rest, each in the order of ids. They may all run at once, but are begun
    /// in this order.
    pub changes: Vec<Change>,
    /// How many instances are as wanted.
    pub unchanged: usize,
    /// What could not be read: nothing that depends on it is decided, and nothing is done until it can be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Section>,
    /// Why the whole `instances` section is refused: each of its instances is held with the same words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
}
