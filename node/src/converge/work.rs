//! What the converger remembers of one instance: its task, its last error, when it may be tried again.
//!
//! Room: `node`.
use super::retry;
use crate::fault::Fault;
use crate::plan::{DomainView, Fingerprint, Phase, Refusal, Step, Wanted};
use crate::spec::DesiredState;
use crate::status::{Activity, LastError, Progress, UnixMillis};
use bcd_protocol::definition::Definition;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// A guest that ran at least this long before it stopped is started again at once.
const STEADY: Duration = Duration::from_secs(30);

/// Everything about an instance that its task works for: a change makes the task stop at the next safe point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    fingerprint: Fingerprint,
    state: DesiredState,
    definition: Result<Definition, Refusal>,
}

impl Wish {
    pub(super) fn of(wanted: &Wanted) -> Self {
        Self {
            fingerprint: wanted.fingerprint(),
            state: wanted.state(),
            definition: wanted.definition().cloned().map_err(Clone::clone),
        }
    }
}

/// What a task shows while it runs.
#[derive(Debug, Clone)]
pub(super) struct Doing {
    shown: Arc<Mutex<Option<Activity>>>,
    dirty: Arc<Notify>,
}

impl Doing {
    pub(super) fn new(dirty: Arc<Notify>) -> Self {
        Self { shown: Arc::default(), dirty }
    }

    pub(super) fn begin(&self, what: &str) {
        *self.lock() = Some(Activity { what: what.to_owned(), since: UnixMillis::now(), progress: None });
        self.dirty.notify_one();
    }

    pub(super) fn progress(&self, progress: Progress) {
        if let Some(activity) = self.lock().as_mut() {
            activity.progress = Some(progress);
        }
        self.dirty.notify_one();
    }

    pub(super) fn shown(&self) -> Option<Activity> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Activity>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that runs.
#[derive(Debug)]
pub(super) struct Running {
    /// Told true when the task should stop at the next safe point.
    pub(super) cancel: watch::Sender<bool>,
    /// Told what the instance is, whenever that changes.
    pub(super) view: watch::Sender<DomainView>,
    /// What it shows.
    pub(super) doing: Doing,
    /// Whether it starts or resumes the guest.
    starts: bool,
    /// Whether it deletes the instance.
    deletes: bool,
}

impl Running {
    pub(super) fn new(view: DomainView, phase: Phase, steps: &[Step], dirty: Arc<Notify>) -> Self {
        let starts = sets_going(steps);
        let deletes = phase == Phase::Delete;
        let doing = Doing::new(dirty);
        Self { cancel: watch::Sender::new(false), view: watch::Sender::new(view), doing, starts, deletes }
    }
}

/// Whether the guest runs after `steps` and did not before.
fn sets_going(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::Start { .. } | Step::Resume))
}

/// One instance's memory.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) running: Option<Running>,
    pub(super) error: Option<LastError>,
    /// The error is the planner's refusal: it holds for as long as the planner says so.
    refused: bool,
    /// After this many looks at the host the instance may be acted on again.
    pub(super) not_before: u64,
    retry_at: Option<Instant>,
    blocked: bool,
    wish: Option<Wish>,
    started_at: Option<Instant>,
    quick: u32,
}

impl Work {
    /// Takes in what is wanted now. Another wish than before is tried at once, whatever happened to the last one; its
    /// task, if any, is told to stop.
    pub(super) fn wish(&mut self, wish: Option<Wish>) {
        if self.wish == wish {
            return;
        }
        self.wish = wish;
        self.error = None;
        self.refused = false;
        self.blocked = false;
        self.retry_at = None;
        self.quick = 0;
        self.started_at = None;
        // A deletion that was begun is finished: an instance that comes back under the id is a new one.
        if let Some(running) = self.running.as_ref().filter(|r| !r.deletes) {
            running.cancel.send_replace(true);
        }
    }

    /// Forgets waits for things that were out of reach: they are there again.
    pub(super) fn reachable_again(&mut self, kinds: impl Fn(&LastError) -> bool) {
        if self.error.as_ref().is_some_and(kinds) {
            self.retry_at = None;
        }
    }

    /// The document was given again at `now`: what failed is tried at once, and what the planner refuses is refused as of then.
    /// A guest that ends as soon as it is started is held back all the same.
    pub(super) fn asked_again(&mut self, now: UnixMillis) {
        let Some(error) = &mut self.error else { return };
        if self.refused {
            error.at = now;
        } else {
            self.retry_at = None;
            self.blocked = false;
        }
    }

    /// Whether `steps` may be begun now; otherwise when, if ever.
    pub(super) fn may_begin(&mut self, steps: &[Step], look: u64, now: Instant) -> Result<(), Option<Instant>> {
        if self.running.is_some() || look < self.not_before || self.blocked {
            return Err(None);
        }
        if let Some(at) = self.retry_at.filter(|at| *at > now) {
            return Err(Some(at));
        }
        let restarts = sets_going(steps);
        match self.started_at {
            Some(at) if restarts && now.saturating_duration_since(at) < STEADY => {
                self.quick = self.quick.saturating_add(1);
                self.started_at = None;
                let again = now.checked_add(retry::restart(self.quick)).unwrap_or(now);
                self.retry_at = Some(again);
                Err(Some(again))
            }
            Some(_) if restarts => {
                self.quick = 0;
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Takes in how a task ended. Answers the fault when it is another than the last one.
    pub(super) fn ended(&mut self, result: &Result<(), Fault>, cancelled: bool, now: Instant) {
        let starts = self.running.take().is_some_and(|r| r.starts);
        match result {
            Ok(()) if cancelled => {}
            Ok(()) => {
                self.error = None;
                self.refused = false;
                self.retry_at = None;
                if starts {
                    self.started_at = Some(now);
                }
            }
            Err(fault) if !cancelled => self.failed(fault, now),
            // What failed was no longer wanted.
            Err(_) => {}
        }
    }

    fn failed(&mut self, fault: &Fault, now: Instant) {
        let at = UnixMillis::now();
        let times = self.error.as_ref().filter(|e| !self.refused && e.kind == fault.kind()).map_or(0, |e| e.times);
        let times = times.saturating_add(1);
        let wait = retry::after(fault.kind(), times);
        self.blocked = wait.is_none();
        self.retry_at = wait.and_then(|w| now.checked_add(w));
        let retry_at = wait.map(|w| UnixMillis(at.0.saturating_add(u64::try_from(w.as_millis()).unwrap_or(u64::MAX))));
        self.error = Some(LastError { times, retry_at, ..LastError::first(fault, at) });
        self.refused = false;
    }

    /// Takes in the planner's refusal. Answers whether it is news.
    pub(super) fn refuse(&mut self, refusal: Option<&Refusal>) -> bool {
        match refusal {
            Some(refusal) => {
                let known = self.refused && self.error.as_ref().is_some_and(|e| e.message == refusal.message);
                if !known {
                    let (kind, message, at) = (refusal.kind, refusal.message.clone(), UnixMillis::now());
                    self.error = Some(LastError { kind, message, at, times: 1, retry_at: None });
                    self.refused = true;
                }
                !known
            }
            None if self.refused => {
                self.refused = false;
                self.error = None;
                true
            }
            None => false,
        }
    }

    /// Nothing is left to do for the instance: what failed before no longer matters.
    pub(super) fn settle(&mut self) -> bool {
        self.retry_at = None;
        self.blocked = false;
        self.error.take().is_some()
    }

    /// When it is to be tried again.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.running.is_some() { None } else { self.retry_at }
    }
}
