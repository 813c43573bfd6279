//! The actor: owns what is known of the host, waits for reasons to look again, and publishes the status.
//!
//! Room: `node`. It never blocks: looks at the host, files and tasks run beside it, so that it answers at once.
use super::act::Sweep;
use super::show::{self, Sources};
use super::steps::Outcome;
use super::work::{Wish, Work};
use super::{Command, Parts, keep};
use crate::api::events::EventKind;
use crate::api::service::{ApplyReport, PlanReport};
use crate::fault::{Fault, FaultKind};
use crate::helper::Reach as HelperReach;
use crate::observe::{Fetched, Found, Observer, Unread, fetch, scan};
use crate::plan::{self, Desired, DomainView, Plan};
use crate::runtime::{Details, Reach as RuntimeReach};
use crate::spec::NodeSpec;
use crate::status::{LastError, NodeStatus, SpecSource, SpecStatus, UnixMillis};
use bcd_protocol::id::{DomainUuid, InstanceId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{Id, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{error, info, warn};

/// How long a node that stops waits for its tasks to reach a safe point.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// The status is built at most this share of the time: a thousand instances cost a millisecond or two.
const PUBLISH_SHARE: u32 = 20;

/// What the definitions of foreign domains say.
type Described = HashMap<DomainUuid, Arc<Details>>;

/// What guests run with, and which of them were asked about.
type Lived = (Vec<Unread>, Result<Described, Fault>);

/// Work beside the actor, of which at most one of each kind is under way.
#[derive(Default)]
struct Beside {
    fetch: Option<(u64, JoinHandle<Fetched>)>,
    details: Option<JoinHandle<Result<Described, Fault>>>,
    live: Option<JoinHandle<Lived>>,
    files: Option<JoinHandle<Result<Found, Fault>>>,
}

pub(super) struct Actor {
    pub(super) parts: Parts,
    pub(super) observer: Observer,
    pub(super) desired: Option<Arc<Desired>>,
    pub(super) works: BTreeMap<InstanceId, Work>,
    pub(super) plan: Plan,
    /// The plan is of another document or host than now.
    pub(super) stale: bool,
    /// How many looks at the host were begun.
    pub(super) looks: u64,
    /// The last of them that was taken in.
    absorbed: u64,
    pub(super) tasks: JoinSet<Outcome>,
    pub(super) owners: HashMap<Id, InstanceId>,
    pub(super) dirty: Arc<Notify>,
    pub(super) seen: BTreeMap<InstanceId, (DomainView, Option<u32>)>,
    pub(super) sweep: Sweep,
    /// Their receivers, which have seen `helper` and `runtime`: what changes before the loop runs is a change to it.
    reaches: (watch::Receiver<HelperReach>, watch::Receiver<RuntimeReach>),
    helper: HelperReach,
    runtime: RuntimeReach,
    spec: SpecStatus,
    status: watch::Sender<Arc<NodeStatus>>,
    document: watch::Sender<Arc<NodeSpec>>,
}

impl Actor {
    pub(super) fn new(
        parts: Parts,
        kept: Option<NodeSpec>,
    ) -> (Self, watch::Receiver<Arc<NodeStatus>>, watch::Receiver<Arc<NodeSpec>>) {
        let mut reaches = (parts.helper.reach(), parts.runtime.reach());
        let helper = reaches.0.borrow_and_update().clone();
        let runtime = reaches.1.borrow_and_update().clone();
        let observer = Observer::default();
        let mut spec = SpecStatus::default();
        let kept = kept.map(Arc::new);
        if kept.is_some() {
            spec.generation = 1;
            spec.source = Some(SpecSource::Kept);
            spec.accepted_at = Some(UnixMillis::now());
        }
        let desired = kept.clone().map(|s| Arc::new(Desired::of(s)));
        let works = BTreeMap::new();
        let empty = show::node(&Sources {
            observer: &observer,
            desired: desired.as_deref(),
            works: &works,
            look: 0,
            spec: &spec,
            helper: &helper,
            runtime: &runtime,
            runtime_version: None,
        });
        let (status, watched) = watch::channel(Arc::new(empty));
        let (document, documents) = watch::channel(kept.unwrap_or_default());
        let actor = Self {
            parts,
            observer,
            desired,
            works,
            plan: Plan::default(),
            stale: true,
            looks: 0,
            absorbed: 0,
            tasks: JoinSet::new(),
            owners: HashMap::new(),
            dirty: Arc::default(),
            seen: BTreeMap::new(),
            sweep: Sweep::default(),
            reaches,
            helper,
            runtime,
            spec,
            status,
            document,
        };
        (actor, watched, documents)
    }

    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        let mut wakes = self.parts.runtime.wakes();
        // A copy has seen what the first one has.
        let (mut helper_reach, mut runtime_reach) = self.reaches.clone();
        let mut beside = Beside::default();
        let mut look = true;
        let mut asked = Instant::now();
        let mut next_pass = later(self.parts.timing.pass);
        let mut published = Instant::now();
        let mut cost = Duration::ZERO;
        let mut publish_at = None;
        self.adopt_wishes();
        beside.files = Some(self.scan_files());
        loop {
            if look && beside.fetch.is_none() {
                look = false;
                beside.fetch = Some(self.look());
                next_pass = later(self.parts.timing.pass);
            }
            if self.sweep.due(&self.observer) {
                self.begin_sweep();
            }
            let due = self.works.values().filter_map(Work::due).filter(|due| *due > asked).min();
            let due = due.map_or(next_pass, |due| due.min(next_pass));
            let mut changed = false;
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(Command::Stop { done }) => {
                        self.finish().await;
                        // Whoever asked may have stopped waiting.
                        let _ = done.send(());
                        return;
                    }
                    Some(command) => { self.command(command).await; look = true; changed = true; }
                    None => return self.finish().await,
                },
                woken = wakes.changed() => { look |= woken.is_ok(); }
                moved = helper_reach.changed() => {
                    if moved.is_ok() { self.helper_moved(helper_reach.borrow_and_update().clone()); }
                    look = true; changed = true;
                }
                moved = runtime_reach.changed() => {
                    if moved.is_ok() { self.runtime_moved(runtime_reach.borrow_and_update().clone()); }
                    look = true; changed = true;
                }
                fetched = joined(&mut beside.fetch) => {
                    if let Some((number, fetched)) = fetched { changed = self.absorb(number, fetched, &mut beside); }
                }
                details = one(&mut beside.details) => {
                    match details {
                        Some(Ok(details)) => { self.observer.describe(details); changed = true; }
                        Some(Err(_)) | None => self.observer.forget_descriptions(),
                    }
                }
                live = one(&mut beside.live) => {
                    // What could not be read is asked again when something changed.
                    if let Some((asked, Ok(found))) = live {
                        self.observer.take_live(asked, &found);
                        self.read_live(&mut beside);
                        changed = true;
                    }
                }
                found = one(&mut beside.files) => {
                    if let Some(found) = found { self.observer.take_files(found); }
                    self.stale = true; look = true; changed = true;
                }
                swept = self.sweep.join() => { self.swept(swept); }
                ended = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => {
                    if let Some(ended) = ended { self.ended(ended); look = true; changed = true; }
                }
                () = self.dirty.notified() => { changed = true; }
                () = sleep_until(due) => {
                    look = true;
                    // A look may be under way already: what was due must not wake the actor again meanwhile.
                    asked = Instant::now();
                    next_pass = later(self.parts.timing.pass);
                    if !self.observer.files_known() && beside.files.is_none() {
                        beside.files = Some(self.scan_files());
                    }
                }
                () = until(publish_at) => {
                    publish_at = None;
                    let began = Instant::now();
                    self.publish();
                    published = Instant::now();
                    cost = published.saturating_duration_since(began);
                }
            }
            if changed && publish_at.is_none() {
                let rest = cost.saturating_mul(PUBLISH_SHARE).min(self.parts.timing.publish);
                publish_at = Some(published.checked_add(rest).unwrap_or(published));
            }
        }
    }

    /// Begins one look at the host.
    fn look(&mut self) -> (u64, JoinHandle<Fetched>) {
        self.looks = self.looks.saturating_add(1);
        let (helper, runtime) = (self.parts.helper.clone(), Arc::clone(&self.parts.runtime));
        (self.looks, tokio::spawn(fetch(helper, runtime, self.observer.generation())))
    }

    fn scan_files(&self) -> JoinHandle<Result<Found, Fault>> {
        let layout = self.parts.layout.clone();
        tokio::task::spawn_blocking(move || scan(&layout))
    }

    /// Takes in one look and acts on it. Answers whether anything shown changed.
    fn absorb(&mut self, number: u64, fetched: Fetched, beside: &mut Beside) -> bool {
        let changes = self.observer.absorb(fetched);
        self.absorbed = number;
        if let Some(foreign) = changes.foreign {
            if foreign.is_empty() {
                self.observer.describe(HashMap::new());
            } else if beside.details.is_none() {
                let runtime = Arc::clone(&self.parts.runtime);
                beside.details = Some(tokio::spawn(async move { runtime.details(foreign).await }));
            } else {
                self.observer.forget_descriptions();
            }
        }
        if changes.any {
            self.stale = true;
            self.notice();
            self.read_live(beside);
        }
        self.pass(number) || changes.any
    }

    /// Begins to read what guests run with that were started since.
    fn read_live(&mut self, beside: &mut Beside) {
        if beside.live.is_some() {
            return;
        }
        let asked = self.observer.unread_live();
        if !asked.is_empty() {
            let runtime = Arc::clone(&self.parts.runtime);
            let uuids = asked.iter().map(|unread| unread.uuid).collect();
            beside.live = Some(tokio::spawn(async move { (asked, runtime.live(uuids).await) }));
        }
    }

    async fn command(&mut self, command: Command) {
        match command {
            // The callers may have gone; what was done stays done.
            Command::Apply { spec, source, allow_delete, answer } => {
                drop(answer.send(self.apply(*spec, source, allow_delete).await));
            }
            Command::Plan { spec, answer } => {
                drop(answer.send(self.preview(&Desired::of(Arc::new(*spec)))));
            }
            Command::Refused { fault } => self.show_refused(&fault),
            // Whoever asks may have stopped waiting.
            Command::Ping { answer } => {
                let _ = answer.send(());
            }
            Command::Stop { done } => drop(done),
        }
    }

    async fn apply(&mut self, spec: NodeSpec, source: SpecSource, allow_delete: bool) -> Result<ApplyReport, Fault> {
        let outcome = self.accept(spec, source, allow_delete).await;
        if let Err(fault) = &outcome {
            self.show_refused(fault);
        }
        outcome
    }

    async fn accept(&mut self, spec: NodeSpec, source: SpecSource, allow_delete: bool) -> Result<ApplyReport, Fault> {
        let spec = Arc::new(spec);
        let desired = Arc::new(Desired::of(Arc::clone(&spec)));
        let plan = self.preview(&desired);
        if self.desired.as_ref().is_some_and(|now| *now.spec() == spec) {
            self.spec.refused = None;
            let accepted_at = self.asked_again();
            return Ok(ApplyReport { generation: self.spec.generation, changed: false, accepted_at, plan });
        }
        self.guard(&desired, allow_delete)?;
        let (layout, stored) = (self.parts.layout.clone(), Arc::clone(&spec));
        tokio::task::spawn_blocking(move || keep::store(&layout, &stored))
            .await
            .map_err(|e| Fault::because(FaultKind::Internal, "the document could not be stored", e))??;
        for note in desired.notes() {
            warn!(note, "document asks for more than this bcd does");
        }
        self.spec = SpecStatus {
            generation: self.spec.generation.saturating_add(1),
            source: Some(source),
            accepted_at: Some(UnixMillis::now()),
            refused: None,
        };
        let generation = self.spec.generation;
        info!(generation, instances = desired.len(), "document in force");
        let count = desired.len();
        let message =
            format!("document {generation} with {count} instance{} is in force", if count == 1 { "" } else { "s" });
        self.parts.events.push(EventKind::SpecAccepted, None, message);
        self.desired = Some(desired);
        self.document.send_replace(spec);
        self.stale = true;
        self.adopt_wishes();
        let accepted_at = self.asked_again();
        Ok(ApplyReport { generation, changed: true, accepted_at, plan })
    }

    /// Refuses a document that deletes too much, or of which that cannot be told.
    fn guard(&self, desired: &Desired, allow_delete: bool) -> Result<(), Fault> {
        if allow_delete {
            return Ok(());
        }
        if let Some(deletions) = plan::deletions(desired, &self.observer.observed()) {
            return deletions.check(allow_delete).map_err(Fault::from);
        }
        // What there is cannot be read now. A document that drops nothing of the one before deletes nothing.
        match &self.desired {
            Some(now) if now.iter().all(|(id, _)| desired.get(id).is_some()) => Ok(()),
            Some(_) | None => Err(Fault::new(
                FaultKind::Unavailable,
                "the helper's records cannot be read, so it cannot be told how much this document would delete: see that \
                 bcd-helper runs, or apply it with --allow-delete",
            )),
        }
    }

    fn preview(&self, desired: &Desired) -> PlanReport {
        let observed = self.observer.observed();
        let plan = plan::plan(desired, &observed);
        let deletions = plan::deletions(desired, &observed);
        PlanReport {
            plan,
            deletes_running: deletions.map_or(0, |d| d.deleted),
            needs_allow_delete: deletions.is_some_and(plan::Deletions::needs_allow_delete),
            unchecked: None,
        }
    }

    fn show_refused(&mut self, fault: &Fault) {
        let message = fault.chain();
        let times = self.spec.refused.as_ref().filter(|r| r.message == message).map_or(0, |r| r.times);
        if times == 0 {
            warn!(kind = ?fault.kind(), fault = message, "document refused");
            self.parts.events.push(EventKind::SpecRefused, None, message);
        }
        let refused = LastError::first(fault, UnixMillis::now());
        self.spec.refused = Some(LastError { times: times.saturating_add(1), ..refused });
    }

    /// Tells every instance's memory what is wanted of it now; tasks that work for something else stop.
    fn adopt_wishes(&mut self) {
        let Some(desired) = &self.desired else { return };
        for (id, wanted) in desired.iter() {
            self.works.entry(id.clone()).or_default().wish(Some(Wish::of(wanted)));
        }
        for (id, work) in &mut self.works {
            if desired.get(id).is_none() {
                work.wish(None);
            }
        }
    }

    fn helper_moved(&mut self, reach: HelperReach) {
        let (was, is) = (matches!(self.helper, HelperReach::Up { .. }), matches!(reach, HelperReach::Up { .. }));
        if is {
            // A new helper may have another configuration: what it refused before is asked again.
            self.try_again(|error| matches!(error.kind, FaultKind::Unavailable | FaultKind::Denied));
            self.parts.events.push(EventKind::HelperFound, None, "the helper answers");
        } else if was && let HelperReach::Down { reason } = &reach {
            self.parts.events.push(EventKind::HelperLost, None, &**reason);
        }
        self.helper = reach;
    }

    fn runtime_moved(&mut self, reach: RuntimeReach) {
        match (&self.runtime, &reach) {
            (RuntimeReach::Down { .. }, RuntimeReach::Up) => {
                self.try_again(|error| matches!(error.kind, FaultKind::Unavailable));
                self.parts.events.push(EventKind::RuntimeFound, None, "libvirt answers");
            }
            (RuntimeReach::Up, RuntimeReach::Down { reason }) => {
                self.parts.events.push(EventKind::RuntimeLost, None, &**reason);
            }
            (RuntimeReach::Up, RuntimeReach::Up) | (RuntimeReach::Down { .. }, RuntimeReach::Down { .. }) => {}
        }
        self.runtime = reach;
    }

    /// Whoever gives a document may have mended what failed: it is tried at once, also where this document changes nothing.
    fn asked_again(&mut self) -> UnixMillis {
        let now = UnixMillis::now();
        self.spec.accepted_at = Some(now);
        for work in self.works.values_mut() {
            work.asked_again(now);
        }
        now
    }

    fn try_again(&mut self, kinds: impl Fn(&LastError) -> bool + Copy) {
        for work in self.works.values_mut() {
            work.reachable_again(kinds);
        }
    }

    fn publish(&mut self) {
        let status = show::node(&Sources {
            observer: &self.observer,
            desired: self.desired.as_deref(),
            works: &self.works,
            look: self.absorbed,
            spec: &self.spec,
            helper: &self.helper,
            runtime: &self.runtime,
            runtime_version: self.parts.runtime.version(),
        });
        self.status.send_if_modified(|shown| {
            let changed = **shown != status;
            if changed {
                *shown = Arc::new(status);
            }
            changed
        });
    }

    /// Ends every task at its next safe point, or when patience ends. Guests go on.
    async fn finish(&mut self) {
        for work in self.works.values() {
            if let Some(running) = &work.running {
                running.cancel.send_replace(true);
            }
        }
        let drained = timeout(STOP_PATIENCE, async { while self.tasks.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            error!(tasks = self.tasks.len(), "tasks are still under way: the next start takes up what they left");
        }
    }
}

fn later(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait).unwrap_or(now)
}

/// Ends at a moment, if there is one.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Waits for a task beside the actor, if there is one; `None` when it ended early.
async fn one<T>(task: &mut Option<JoinHandle<T>>) -> Option<T> {
    let Some(handle) = task else { return std::future::pending().await };
    let outcome = handle.await;
    *task = None;
    outcome.inspect_err(|error| error!(%error, "a task of the node ended early")).ok()
}

async fn joined<T>(task: &mut Option<(u64, JoinHandle<T>)>) -> Option<(u64, T)> {
    let Some((number, handle)) = task else { return std::future::pending().await };
    let number = *number;
    let outcome = handle.await;
    *task = None;
    outcome.inspect_err(|error| error!(%error, "a look at the host ended early")).ok().map(|t| (number, t))
}
