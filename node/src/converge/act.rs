//! What the actor does with what it sees: notices changes, begins tasks, takes in their outcomes, drops unused images.
//!
//! Room: `node`.
use super::actor::Actor;
use super::steps::{self, Job, Outcome};
use super::work::Running;
use crate::api::events::EventKind;
use crate::console::Boot;
use crate::fault::{Fault, FaultKind};
use crate::observe::Observer;
use crate::plan::{self, Change, DomainView};
use crate::share;
use crate::status::{InstanceState, StopReason};
use bcd_protocol::definition::ImageRef;
use bcd_protocol::id::InstanceId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{Id, JoinError, JoinHandle};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

impl Actor {
    /// Notices what our domains do now: events, log lines, consoles, and tasks that wait for a state.
    pub(super) fn notice(&mut self) {
        for (id, work) in &self.works {
            if let Some(running) = &work.running {
                let view = self.observer.state(id);
                running.view.send_if_modified(|known| {
                    let changed = *known != view;
                    *known = view;
                    changed
                });
            }
        }
        // While libvirt does not answer nothing is known to have changed: the loss itself is told once.
        let plan::Reading::Known(domains) = self.observer.observed().domains else { return };
        let now: BTreeMap<InstanceId, (DomainView, Option<u32>)> =
            domains.iter().map(|(id, view)| (id.clone(), (*view, self.observer.boot(id)))).collect();
        for (id, (view, boot)) in &now {
            let before = self.seen.get(id).copied();
            let was = before.map_or(InstanceState::Absent, |(view, _)| view.state);
            if was != view.state {
                let why = view.stop_reason.map_or("", because);
                info!(instance = %id, from = was.as_str(), to = view.state.as_str(), why, "state changed");
                let why = if why.is_empty() { String::new() } else { format!(": {why}") };
                let message = format!("{} → {}{why}", was.as_str(), view.state.as_str());
                self.parts.events.push(EventKind::StateChanged, Some(id), message);
            }
            if before.and_then(|(_, boot)| boot) != *boot {
                match boot {
                    Some(boot) => self.parts.consoles.started(id, Boot(u64::from(*boot))),
                    None => self.parts.consoles.stopped(id),
                }
            }
        }
        for (id, (view, _)) in &self.seen {
            if !now.contains_key(id) {
                info!(instance = %id, from = view.state.as_str(), to = "absent", "state changed");
                let message = format!("{} → absent", view.state.as_str());
                self.parts.events.push(EventKind::StateChanged, Some(id), message);
                self.parts.consoles.stopped(id);
            }
        }
        self.seen = now;
    }

    /// Plans from what was seen in look `number`, and begins what may begin. Answers whether anything shown changed.
    pub(super) fn pass(&mut self, number: u64) -> bool {
        let Some(desired) = self.desired.clone() else { return false };
        if self.stale {
            self.plan = plan::plan(&desired, &self.observer.observed());
            self.stale = false;
            self.tidy_shares();
            self.sweep.note_use(&self.observer, &desired, self.parts.timing.image_grace);
        }
        let now = Instant::now();
        let plan = std::mem::take(&mut self.plan);
        let mut shown = false;
        for change in &plan.changes {
            let work = self.works.entry(change.instance.clone()).or_default();
            if work.running.is_some() || number < work.not_before {
                continue;
            }
            if work.refuse(change.refusal.as_ref()) {
                shown = true;
                if let Some(refusal) = &change.refusal {
                    warn!(instance = %change.instance, kind = ?refusal.kind, refusal = refusal.message, "instance refused");
                    self.parts.events.push(EventKind::StepFailed, Some(&change.instance), &*refusal.message);
                }
            }
            if !change.steps.is_empty() && work.may_begin(&change.steps, number, now).is_ok() {
                self.begin(change, &desired);
                shown = true;
            }
        }
        let differs: HashSet<&InstanceId> = plan.changes.iter().map(|c| &c.instance).collect();
        let whole = plan.unreadable.is_empty();
        for (id, work) in &mut self.works {
            if whole && work.running.is_none() && number >= work.not_before && !differs.contains(id) {
                shown |= work.settle();
            }
        }
        // Who left the document and is gone needs no memory.
        if whole {
            let (records, observer) = (self.observer.records(), &self.observer);
            self.works.retain(|id, work| {
                work.running.is_some()
                    || number < work.not_before
                    || desired.get(id).is_some()
                    || records.contains_key(id)
                    || observer.files(id).is_some()
            });
        }
        self.plan = plan;
        shown
    }

    fn begin(&mut self, change: &Change, desired: &plan::Desired) {
        let id = &change.instance;
        let wanted = desired
            .instance(id)
            .zip(desired.get(id))
            .map(|(instance, wanted)| (instance.clone(), wanted.fingerprint(), wanted.definition().ok().cloned()));
        let running = Running::new(self.observer.state(id), change.phase, &change.steps, Arc::clone(&self.dirty));
        let job = Job {
            id: id.clone(),
            steps: change.steps.clone(),
            wanted,
            record: self.observer.records().get(id).cloned(),
            files: self.observer.files(id),
            view: running.view.subscribe(),
            cancel: running.cancel.subscribe(),
            doing: running.doing.clone(),
        };
        debug!(instance = %id, steps = ?change.steps, "task begins");
        let handle = self.tasks.spawn(steps::run(self.parts.clone(), job));
        self.owners.insert(handle.id(), id.clone());
        self.works.entry(id.clone()).or_default().running = Some(running);
    }

    /// Takes in how a task ended.
    pub(super) fn ended(&mut self, ended: Result<(Id, Outcome), JoinError>) {
        let (task, outcome) = match ended {
            Ok((task, outcome)) => (task, Some(outcome)),
            Err(error) => (error.id(), None),
        };
        let Some(id) = self.owners.remove(&task) else { return };
        let outcome = outcome.unwrap_or_else(|| {
            error!(instance = %id, "task ended by a defect");
            Outcome {
                id: id.clone(),
                result: Err(Fault::new(FaultKind::Internal, "the task ended by a defect: see the log")),
                cancelled: false,
                files: self.observer.files(&id),
                image: None,
                deleted: false,
            }
        });
        self.observer.set_files(&outcome.id, outcome.files);
        if let Some(image) = outcome.image {
            self.observer.add_image(image);
        }
        self.stale = true;
        let next = self.looks.saturating_add(1);
        let work = self.works.entry(outcome.id.clone()).or_default();
        work.not_before = next;
        // The document may have changed between the task's last step and now: that counts as told to stop.
        let cancelled = outcome.cancelled || work.running.as_ref().is_some_and(|r| *r.cancel.borrow());
        work.ended(&outcome.result, cancelled, Instant::now());
        if outcome.deleted {
            info!(instance = %outcome.id, "instance deleted");
            self.parts.events.push(EventKind::InstanceDeleted, Some(&outcome.id), "its domain and its files are gone");
        }
    }

    /// Once, before the first task: takes the entries off base images that a node left there which ended between a delete
    /// and its last step. A uid is given again some day, and must open nothing of its last owner's.
    fn tidy_shares(&mut self) {
        let observed = self.observer.observed();
        if self.sweep.tidied || !self.observer.files_known() || matches!(observed.records, plan::Reading::Unknown) {
            return;
        }
        self.sweep.tidied = true;
        let alive = self.observer.records().values().map(|record| record.uid).collect();
        for image in self.observer.images() {
            match share::retain(&self.parts.layout, image, &alive) {
                Ok(0) => {}
                Ok(entries) => {
                    info!(sha256 = %image.sha256, entries, "a base image is no longer shared with past guests")
                }
                Err(fault) => warn!(fault = fault.chain(), "a base image stays shared with past guests"),
            }
        }
    }

    /// Removes base images that nothing has used for a while.
    pub(super) fn begin_sweep(&mut self) {
        let (store, keep) = (self.parts.images.clone(), self.sweep.kept());
        self.sweep.task = Some(tokio::task::spawn_blocking(move || store.sweep(&keep)));
    }

    pub(super) fn swept(&mut self, swept: Option<Result<Vec<ImageRef>, Fault>>) {
        match swept {
            Some(Ok(removed)) => {
                for image in removed {
                    info!(sha256 = %image.sha256, format = %image.format, "unused base image removed");
                    self.observer.remove_image(&image);
                }
                self.stale = true;
            }
            Some(Err(fault)) => warn!(fault = fault.chain(), "unused base images not removed"),
            None => {}
        }
    }
}

/// Why a guest stopped, in words.
fn because(reason: StopReason) -> &'static str {
    match reason {
        StopReason::PoweredOff => "the guest powered off",
        StopReason::Destroyed => "it was ended",
        StopReason::Crashed => "the guest or its VMM crashed",
        StopReason::FailedToStart => "it could not be started",
        StopReason::Saved => "its memory was saved to a file",
    }
}

/// Which base images nothing uses, and since when.
#[derive(Default)]
pub(super) struct Sweep {
    used: HashSet<ImageRef>,
    unused: HashMap<ImageRef, Instant>,
    task: Option<JoinHandle<Result<Vec<ImageRef>, Fault>>>,
    /// Entries of past guests were taken off the base images.
    tidied: bool,
}

impl Sweep {
    /// Notes what is used now; what is not is removed after `grace`.
    fn note_use(&mut self, observer: &Observer, desired: &plan::Desired, grace: Duration) {
        // Without the records nobody knows what is used.
        if matches!(observer.observed().records, plan::Reading::Unknown) {
            self.unused.clear();
            return;
        }
        self.used = observer.records().values().map(|r| r.definition.image).chain(desired.images()).collect();
        let now = Instant::now();
        let at = now.checked_add(grace).unwrap_or(now);
        let (used, images) = (&self.used, observer.images());
        self.unused.retain(|image, _| images.contains(image) && !used.contains(image));
        for image in images.difference(used) {
            self.unused.entry(*image).or_insert(at);
        }
    }

    /// Whether some image's grace is over.
    pub(super) fn due(&self, observer: &Observer) -> bool {
        let now = Instant::now();
        self.task.is_none() && self.unused.iter().any(|(image, at)| *at <= now && observer.images().contains(image))
    }

    /// The images that stay.
    fn kept(&mut self) -> HashSet<ImageRef> {
        let now = Instant::now();
        let waiting = self.unused.iter().filter(|(_, at)| **at > now).map(|(image, _)| *image);
        let kept = self.used.iter().copied().chain(waiting).collect();
        self.unused.retain(|_, at| *at > now);
        kept
    }

    /// Waits for the removal under way, if any.
    pub(super) async fn join(&mut self) -> Option<Result<Vec<ImageRef>, Fault>> {
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let outcome = task.await;
        self.task = None;
        outcome.inspect_err(|error| error!(%error, "removing unused base images ended early")).ok()
    }
}
