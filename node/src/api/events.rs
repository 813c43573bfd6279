//! The node's events: numbered, kept in a ring, followed live.
//!
//! Room: `node`. Numbers grow by one and are never used twice while the node runs; a reader that asks from a number
//! the ring no longer has, or that reads too slowly, is told how many it missed and goes on.
use bcd_protocol::id::InstanceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

#[cfg(test)]
mod tests;

/// Events kept. A pass over a thousand instances that all change leaves a few thousand.
pub const KEPT: usize = 4096;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A document was accepted.
    SpecAccepted,
    /// A document was refused.
    SpecRefused,
    /// A step for an instance was begun.
    StepBegun,
    /// A step for an instance was done.
    StepDone,
    /// A step for an instance failed; retried as its kind allows.
    StepFailed,
    /// An instance's state changed.
    StateChanged,
    /// An instance and its files are gone.
    InstanceDeleted,
    /// A runtime's state cannot be read any more.
    RuntimeLost,
    /// A runtime's state can be read (again).
    RuntimeFound,
    /// The helper cannot be reached any more.
    HelperLost,
    /// The helper can be reached (again).
    HelperFound,
    /// A reader missed events: `message` says how many. Sent to that reader alone, under the number before the next.
    Missed,
}

impl EventKind {
    /// The name in JSON and tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SpecAccepted => "spec-accepted",
            Self::SpecRefused => "spec-refused",
            Self::StepBegun => "step-begun",
            Self::StepDone => "step-done",
            Self::StepFailed => "step-failed",
            Self::StateChanged => "state-changed",
            Self::InstanceDeleted => "instance-deleted",
            Self::RuntimeLost => "runtime-lost",
            Self::RuntimeFound => "runtime-found",
            Self::HelperLost => "helper-lost",
            Self::HelperFound => "helper-found",
            Self::Missed => "missed",
        }
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Its number, from 1.
    pub seq: u64,
    /// When, milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// What happened.
    pub kind: EventKind,
    /// To which instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// A sentence.
    pub message: String,
}

/// The log: cheap to clone, all clones are one log.
#[derive(Debug, Clone)]
pub struct EventLog {
    ring: Arc<Mutex<Ring>>,
    latest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Ring {
    last: u64,
    events: VecDeque<Arc<Event>>,
    kept: usize,
}

impl Default for EventLog {
    fn default() -> Self {
        Self::with_room_for(KEPT)
    }
}

impl EventLog {
    /// A log that keeps the latest `kept` events, at least 1.
    #[must_use]
    pub fn with_room_for(kept: usize) -> Self {
        let ring = Ring { last: 0, events: VecDeque::new(), kept: kept.max(1) };
        Self { ring: Arc::new(Mutex::new(ring)), latest: watch::Sender::new(0) }
    }

    /// Adds an event and answers its number. Never waits for a reader.
    pub fn push(&self, kind: EventKind, instance: Option<&InstanceId>, message: impl Into<String>) -> u64 {
        let mut ring = self.lock();
        let seq = ring.last.saturating_add(1);
        let instance = instance.map(|id| id.as_str().to_owned());
        ring.events.push_back(Arc::new(Event { seq, at_ms: now_ms(), kind, instance, message: message.into() }));
        if ring.events.len() > ring.kept {
            ring.events.pop_front();
        }
        ring.last = seq;
        drop(ring);
        self.latest.send_replace(seq);
        seq
    }

    /// The number of the latest event; 0 before the first.
    #[must_use]
    pub fn latest(&self) -> u64 {
        self.lock().last
    }

    /// Reads the events after number `after`; `None`: from now on.
    #[must_use]
    pub fn subscribe(&self, after: Option<u64>) -> Subscription {
        let changed = self.latest.subscribe();
        // A number from before a restart of the node lies beyond the end: such a reader is given all there is.
        let latest = self.latest();
        let read = match after {
            None => latest,
            Some(seq) if seq > latest => 0,
            Some(seq) => seq,
        };
        Subscription { log: self.clone(), read, changed }
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader of the log.
#[derive(Debug)]
pub struct Subscription {
    log: EventLog,
    read: u64,
    changed: watch::Receiver<u64>,
}

impl Subscription {
    /// The next event that is already there.
    pub fn ready(&mut self) -> Option<Arc<Event>> {
        let ring = self.log.lock();
        let first = ring.events.front()?;
        let missed = first.seq.saturating_sub(self.read).saturating_sub(1);
        if missed > 0 {
            self.read = first.seq.saturating_sub(1);
            let message = format!("{missed} events before this one are no longer kept");
            let kind = EventKind::Missed;
            return Some(Arc::new(Event { seq: self.read, at_ms: first.at_ms, kind, instance: None, message }));
        }
        let index = usize::try_from(self.read.saturating_add(1).saturating_sub(first.seq)).ok()?;
        let event = ring.events.get(index).cloned()?;
        self.read = event.seq;
        Some(event)
    }

    /// The next event, when it comes. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Arc<Event> {
        loop {
            self.changed.mark_unchanged();
            if let Some(event) = self.ready() {
                return event;
            }
            // The log is ours too, so the sender lives and this cannot fail.
            if self.changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
