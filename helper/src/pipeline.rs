//! One request from question to reply: what policy asks for is looked at, what it grants is written down, done, and
//! written down again.
//!
//! Room: `helper`. The only path from a request to an effect.
//!
//! ```text
//! questions ─▶ look ─▶ reconcile ─▶ decide ─▶ write intent ─▶ effect ─▶ write outcome ─▶ reply
//!                          │ changed: ask anew     └── one at a time over all records: no two get one uid or MAC
//! ```
use crate::audit::Decision;
use crate::effect::{self, Carried};
use crate::failpoint::{self, Step};
use crate::ledger::{Ledger, WriteError};
use crate::libvirt::Libvirt;
use crate::log;
use crate::observe;
use crate::turn::{Turn, Turns};
use bcd_policy::{
    Denial, DomainFact, DomainQuestion, Effect, Facts, Grant, Outcome, Peer, Questions, RecordChange, Records, Setting,
};
use bcd_protocol::config::Config;
use bcd_protocol::id::InstanceId;
use bcd_protocol::limits;
use bcd_protocol::reply::{Failed, FailureKind, Reply, Sentence};
use bcd_protocol::request::{Request, Verb};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Requests under way at once over all connections, those of vanished clients included: as many as all places together
/// may have.
const UNDER_WAY: usize = limits::CONNECTIONS * limits::IN_FLIGHT;

/// Console descriptors that may be open at once on their way to a peer: a client that asks for many and reads none of the
/// replies must not use up the helper's descriptors.
const CONSOLES: usize = 32;

/// Looks at files that may be under way at once. A filesystem that hangs holds these threads and not the ledger's.
const LOOKS: usize = 2;

/// How often unfinished records are looked at again while libvirt does not tell.
const SETTLE_EVERY: Duration = Duration::from_secs(5);

/// Everything that a request needs.
#[derive(Debug)]
pub(crate) struct Helper {
    config: Config,
    node_uid: u32,
    software: bool,
    memory: Mutex<Memory>,
    ledger: Arc<Ledger>,
    libvirt: Arc<Libvirt>,
    turns: Arc<Turns>,
    /// Held from a decision until its intent is durable: the next decision sees it.
    deciding: tokio::sync::Mutex<()>,
    consoles: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    under_way: AtomicUsize,
    ended: Notify,
}

/// The records as they are on disk.
#[derive(Debug)]
struct Memory {
    records: Records,
    generation: u64,
}

/// A descriptor on its way to a peer, counted until it is sent or dropped.
#[derive(Debug)]
pub(crate) struct Passed {
    descriptor: OwnedFd,
    _counted: OwnedSemaphorePermit,
}

impl AsFd for Passed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// An answer with what the audit event needs to know.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The reply.
    pub(crate) reply: Reply,
    /// The descriptor that travels with it.
    pub(crate) descriptor: Option<Passed>,
    /// What was decided.
    pub(crate) decision: Decision,
}

impl Answer {
    fn denied(denial: &Denial) -> Self {
        let decision = Decision::Denied(denial.rule());
        Self { reply: Reply::Denied(denial.to_reply()), descriptor: None, decision }
    }

    fn granted(reply: Reply, descriptor: Option<Passed>) -> Self {
        Self { reply, descriptor, decision: Decision::Granted }
    }

    /// A failure of the helper's own.
    pub(crate) fn failed(kind: FailureKind, detail: &str, decision: Decision) -> Self {
        let reply = Reply::Failed(Failed { kind, detail: Sentence::new(detail) });
        Self { reply, descriptor: None, decision }
    }

    fn ledger(cause: &WriteError, decision: Decision) -> Self {
        tracing::error!(cause = %log::chain(cause), "the ledger cannot be written");
        Self::failed(FailureKind::Ledger, "the helper cannot write its records: see its log", decision)
    }
}

/// A request that is counted as under way until dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Helper>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
        self.0.ended.notify_waiters();
    }
}

impl Helper {
    /// A helper with what was read at start.
    pub(crate) fn new(
        config: Config,
        node_uid: u32,
        software: bool,
        (ledger, records): (Ledger, Records),
        generation: u64,
    ) -> Self {
        let libvirt = Arc::new(Libvirt::new(config.libvirt.uri.clone()));
        Self {
            config,
            node_uid,
            software,
            memory: Mutex::new(Memory { records, generation }),
            ledger: Arc::new(ledger),
            libvirt,
            turns: Arc::default(),
            deciding: tokio::sync::Mutex::default(),
            consoles: Arc::new(Semaphore::new(CONSOLES)),
            looks: Arc::new(Semaphore::new(LOOKS)),
            under_way: AtomicUsize::new(0),
            ended: Notify::new(),
        }
    }

    /// The one uid that is answered.
    pub(crate) fn node_uid(&self) -> u32 {
        self.node_uid
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Changes are whole: a panic elsewhere cannot have left it half done.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_setting<T>(&self, peer: Peer, greeted: bool, work: impl FnOnce(&Setting<'_>) -> T) -> T {
        let memory = self.memory();
        work(&Setting {
            config: &self.config,
            node_uid: self.node_uid,
            records: &memory.records,
            generation: memory.generation,
            peer,
            greeted,
            software: self.software,
            package: env!("CARGO_PKG_VERSION"),
        })
    }

    /// The answer to a request that can be given at once: it needs no look at anything, or is denied whatever is there.
    /// `None`: it has to go through [`Helper::answer`]. So has everything on an instance with a request under way, whose
    /// outcome it may depend on.
    pub(crate) fn answer_at_once(&self, peer: Peer, greeted: bool, request: &Request) -> Option<Answer> {
        if request.instance().is_some_and(|instance| self.turns.busy(instance)) {
            return None;
        }
        self.with_setting(peer, greeted, |setting| {
            let grant = match bcd_policy::questions(setting, request) {
                Err(denial) => return Some(Answer::denied(&denial)),
                Ok(questions) if questions != Questions::default() => return None,
                Ok(_) => bcd_policy::decide(setting, &Facts::default(), request),
            };
            match grant {
                Err(denial) => Some(Answer::denied(&denial)),
                Ok(grant) if *grant.effect() == Effect::Nothing && grant.intent().is_none() => {
                    let settled = grant.settle(Outcome::Done);
                    settled.change.is_none().then(|| Answer::granted(settled.reply, None))
                }
                Ok(_) => None,
            }
        })
    }

    /// Counts one more request as under way; `None` when there are too many.
    pub(crate) fn count(self: &Arc<Self>) -> Option<Counted> {
        let more = |now: usize| (now < UNDER_WAY).then(|| now.saturating_add(1));
        self.under_way.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Counted(Arc::clone(self)))
    }

    /// Requests under way.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Acquire)
    }

    /// Ends when no request is under way.
    pub(crate) async fn idle(&self) {
        loop {
            let ended = self.ended.notified();
            if self.under_way() == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Takes the request's place among those on its instance; `None` when it is about none.
    pub(crate) fn turn(&self, request: &Request) -> Option<Turn> {
        request.instance().map(|instance| self.turns.take(instance))
    }

    /// Works a request off. Once polled to its effect, the effect runs to its end even when this future is dropped; the
    /// callers never drop it.
    pub(crate) async fn answer(&self, peer: Peer, greeted: bool, request: &Request, turn: Option<Turn>) -> Answer {
        let mut turn = turn;
        if let Some(turn) = &mut turn {
            turn.wait().await;
        }
        // Twice: a record that was unfinished is settled first, and what is asked then may be something else.
        for _ in 0..2 {
            let questions = self.with_setting(peer, greeted, |setting| bcd_policy::questions(setting, request));
            let questions = match questions {
                Ok(questions) => questions,
                Err(denial) => return Answer::denied(&denial),
            };
            let facts = observe::gather(&self.libvirt, &self.looks, self.config.data_dir.as_path(), questions).await;
            match self.reconcile(request.instance(), facts.domain.as_ref()).await {
                Ok(true) => {}
                Ok(false) => return self.decide_and_act(peer, greeted, request, &facts).await,
                Err(cause) => return Answer::ledger(&cause, Decision::None),
            }
        }
        Answer::failed(FailureKind::Unavailable, "the record is being settled: ask again", Decision::None)
    }

    async fn decide_and_act(&self, peer: Peer, greeted: bool, request: &Request, facts: &Facts) -> Answer {
        let verb = request.verb();
        let deciding = self.deciding.lock().await;
        let grant = self.with_setting(peer, greeted, |setting| bcd_policy::decide(setting, facts, request));
        let grant = match grant {
            Ok(grant) => grant,
            Err(denial) => return Answer::denied(&denial),
        };
        if let Some(intent) = grant.intent() {
            failpoint::reach(verb, Step::BeforeIntent);
            if let Err(cause) = self.write(intent.clone()).await {
                return Answer::ledger(&cause, Decision::Granted);
            }
            failpoint::reach(verb, Step::AfterIntent);
        }
        drop(deciding);
        self.act(verb, grant).await
    }

    async fn act(&self, verb: Verb, grant: Grant) -> Answer {
        let data_dir = self.config.data_dir.as_path();
        let passes = matches!(grant.effect(), Effect::ConsoleOpen(_));
        let place = passes.then(|| Arc::clone(&self.consoles).try_acquire_owned().ok()).flatten();
        if passes && place.is_none() {
            let detail = "too many consoles are on their way to clients that do not read: ask again";
            return Answer::failed(FailureKind::Unavailable, detail, Decision::Granted);
        }
        let carried = effect::carry_out(&self.libvirt, data_dir, verb, grant.effect()).await;
        let Carried { outcome, descriptor, interrupted } = carried;
        failpoint::reach(verb, Step::AfterEffect);
        let settled = grant.settle(outcome);
        if let Some(change) = settled.change {
            if let Err(cause) = self.write(change).await {
                return Answer::ledger(&cause, Decision::Granted);
            }
            failpoint::reach(verb, Step::AfterOutcome);
        }
        let passed = descriptor.zip(place).map(|(descriptor, counted)| Passed { descriptor, _counted: counted });
        let decision = if interrupted { Decision::Interrupted } else { Decision::Granted };
        Answer { decision, ..Answer::granted(settled.reply, passed) }
    }

    /// Settles an unfinished record by what libvirt says. Answers whether the records changed.
    async fn reconcile(&self, instance: Option<&InstanceId>, fact: Option<&DomainFact>) -> Result<bool, WriteError> {
        let (Some(instance), Some(fact)) = (instance, fact) else { return Ok(false) };
        let change = self.memory().records.get(instance).and_then(|record| bcd_policy::reconcile(record, fact));
        match change {
            None => Ok(false),
            Some(change) => {
                let kept = matches!(change, RecordChange::Put(_));
                self.write(change).await?;
                tracing::info!(%instance, kept, "an unfinished record is settled");
                Ok(true)
            }
        }
    }

    /// Makes a change durable, then takes it over. A record that contradicts another is not written: policy never grants
    /// one, and a ledger with one would not be read again.
    async fn write(&self, change: RecordChange) -> Result<(), WriteError> {
        if let RecordChange::Put(record) = &change {
            let admitted = self.memory().records.admits(record);
            admitted.map_err(|cause| WriteError::contradiction(record.instance.clone(), cause))?;
        }
        let (ledger, written) = (Arc::clone(&self.ledger), change.clone());
        let instance = change.instance().clone();
        let done = tokio::task::spawn_blocking(move || ledger.write(&written)).await;
        done.unwrap_or_else(|_| Err(WriteError::interrupted(instance)))?;
        let mut memory = self.memory();
        memory.records.apply(change);
        memory.generation = memory.generation.wrapping_add(1);
        Ok(())
    }

    /// Settles what earlier runs and lost connections left unfinished, as soon as libvirt tells. Never ends.
    pub(crate) async fn settle_unfinished(self: Arc<Self>) {
        loop {
            let unfinished: Vec<InstanceId> = {
                let memory = self.memory();
                let unfinished = memory.records.iter().filter(|record| record.intent.is_some());
                unfinished.map(|record| record.instance.clone()).collect()
            };
            for instance in unfinished {
                // With a request under way it is that request's to settle.
                if !self.turns.busy(&instance) {
                    self.settle(&instance).await;
                }
            }
            tokio::time::sleep(SETTLE_EVERY).await;
        }
    }

    async fn settle(&self, instance: &InstanceId) {
        let mut turn = self.turns.take(instance);
        turn.wait().await;
        let question = {
            let memory = self.memory();
            memory.records.get(instance).filter(|record| record.intent.is_some()).map(DomainQuestion::of)
        };
        let Some(question) = question else { return };
        let fact = observe::domain(&self.libvirt, question).await;
        if let Err(cause) = self.reconcile(Some(instance), Some(&fact)).await {
            tracing::error!(cause = %log::chain(&cause), "an unfinished record cannot be settled");
        }
    }
}
