//! libvirt's QEMU driver, read-only: what domains there are and what they do.
//!
//! Room: `node`. One thread owns the connection and makes every blocking call; callers await. Invariant: while there is
//! no connection every question is answered `Unavailable`, so that nobody takes silence for "stopped".
//!
//! ```text
//! Down ── open, keepalive, register events ──> Up ── close callback, or a call fails and the daemon is gone ──> Down
//!   └── backoff 100 ms .. 2 s                        └── lifecycle events wake the converger
//! ```
use super::{Details, Domain, DomainState, Listing, PauseReason, Reach, Runtime, StopReason};
use crate::fault::{Fault, FaultKind};
use bcd_protocol::config::LibvirtUri;
use bcd_protocol::id::DomainUuid;
use futures_util::future::BoxFuture;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use tracing::{debug, info, warn};
use virt::connect::Connect;
use virt::sys as raw;

mod sys;
#[cfg(test)]
mod tests;
mod xml;

use sys::{Hooks, Row, Session};

/// First wait before opening again; doubles up to [`BACKOFF_MOST`].
const BACKOFF_LEAST: Duration = Duration::from_millis(100);
/// Longest wait before opening again: a daemon that is back is seen within this time.
const BACKOFF_MOST: Duration = Duration::from_secs(2);
/// Longest time that one question may take. Keepalive ends a hung connection after 15 s, and the thread with it.
const ANSWER_TIME: Duration = Duration::from_secs(20);

/// A handle to the runtime. Clones share the connection; its thread ends with the last one.
#[derive(Debug, Clone)]
pub struct LibvirtKvm {
    questions: mpsc::Sender<Question>,
    wakes: watch::Receiver<u64>,
    reach: watch::Receiver<Reach>,
    shared: SharedConnect,
    version: SharedVersion,
}

/// The version of libvirt's daemon, as the last connection said.
type SharedVersion = Arc<Mutex<Option<String>>>;

/// The connection while there is one, for questions that must not queue behind a slow listing: libvirt's client takes
/// calls from many threads, and the bulk call waits for the lock of every domain that is just being started.
#[derive(Clone, Default)]
struct SharedConnect(Arc<Mutex<Option<Connect>>>);

impl SharedConnect {
    fn lock(&self) -> MutexGuard<'_, Option<Connect>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SharedConnect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SharedConnect").field(&self.lock().is_some()).finish()
    }
}

enum Question {
    List(oneshot::Sender<Result<Arc<Listing>, Fault>>),
    Details(Vec<DomainUuid>, oneshot::Sender<Result<HashMap<DomainUuid, Arc<Details>>, Fault>>),
    Live(Vec<DomainUuid>, oneshot::Sender<Result<HashMap<DomainUuid, Arc<Details>>, Fault>>),
    /// Times the bulk call alone.
    Time(oneshot::Sender<Result<(Duration, usize), Fault>>),
    /// The connection of this number is gone.
    Closed(u64),
}

/// What the callbacks of one connection write to.
struct Wire {
    number: u64,
    questions: mpsc::Sender<Question>,
    wakes: Arc<watch::Sender<u64>>,
    redefined: Arc<Mutex<Redefined>>,
}

/// Domains whose definition changed since the thread last looked.
#[derive(Default)]
struct Redefined {
    total: u64,
    since: Vec<DomainUuid>,
}

impl Hooks for Wire {
    fn lifecycle(&self, uuid: DomainUuid, redefined: bool) {
        if redefined {
            let mut seen = self.redefined.lock().unwrap_or_else(PoisonError::into_inner);
            seen.total = seen.total.wrapping_add(1);
            seen.since.push(uuid);
        }
        self.wakes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn closed(&self) {
        // The thread may have ended: then nobody needs to know.
        drop(self.questions.send(Question::Closed(self.number)));
    }
}

impl LibvirtKvm {
    /// Starts the thread that connects to `uri`, and keeps connecting for as long as a handle lives.
    ///
    /// # Errors
    /// `Internal` when libvirt's event loop or the thread cannot be started. A daemon that does not answer is no error:
    /// it is [`Reach::Down`].
    pub fn start(uri: &LibvirtUri) -> Result<Self, Fault> {
        sys::run_event_loop().map_err(|e| Fault::new(FaultKind::Internal, e))?;
        let (questions, inbox) = mpsc::channel();
        let (wakes, woken) = watch::channel(0);
        let (reach, reached) = watch::channel(Reach::Down { reason: Arc::from("libvirt has not answered yet") });
        let shared = SharedConnect::default();
        let version = SharedVersion::default();
        let thread = Thread {
            shared: shared.clone(),
            version: Arc::clone(&version),
            uri: uri.as_str().to_owned(),
            wakes: Arc::new(wakes),
            reach,
            redefined: Arc::default(),
            session: None,
            number: 0,
            names: HashMap::new(),
            last: Arc::default(),
            details: HashMap::new(),
        };
        let own = questions.clone();
        std::thread::Builder::new()
            .name("libvirt".to_owned())
            .spawn(move || thread.run(&inbox, &own))
            .map_err(|e| Fault::because(FaultKind::Internal, "the thread for libvirt cannot be started", e))?;
        Ok(Self { questions, wakes: woken, reach: reached, shared, version })
    }

    /// How long the bulk call takes by itself, and how many domains it answers: what a pass is measured against.
    ///
    /// # Errors
    /// As [`Runtime::list`].
    pub async fn time_bulk_call(&self) -> Result<(Duration, usize), Fault> {
        let (answer, answered) = oneshot::channel();
        self.ask(Question::Time(answer), answered).await
    }

    async fn ask<T>(&self, question: Question, answered: oneshot::Receiver<Result<T, Fault>>) -> Result<T, Fault> {
        let ended = || Fault::new(FaultKind::Internal, "the thread for libvirt has ended");
        self.questions.send(question).map_err(|_| ended())?;
        match tokio::time::timeout(ANSWER_TIME, answered).await {
            Ok(answer) => answer.map_err(|_| ended())?,
            Err(_) => Err(Fault::new(
                FaultKind::Timeout,
                format!("libvirt gave no answer in {} s: see libvirtd's log", ANSWER_TIME.as_secs()),
            )),
        }
    }
}

impl Runtime for LibvirtKvm {
    fn list(&self) -> BoxFuture<'_, Result<Arc<Listing>, Fault>> {
        let (answer, answered) = oneshot::channel();
        Box::pin(self.ask(Question::List(answer), answered))
    }

    fn details(&self, domains: Vec<DomainUuid>) -> BoxFuture<'_, Result<HashMap<DomainUuid, Arc<Details>>, Fault>> {
        let (answer, answered) = oneshot::channel();
        Box::pin(self.ask(Question::Details(domains, answer), answered))
    }

    fn live(&self, domains: Vec<DomainUuid>) -> BoxFuture<'_, Result<HashMap<DomainUuid, Arc<Details>>, Fault>> {
        let (answer, answered) = oneshot::channel();
        Box::pin(self.ask(Question::Live(domains, answer), answered))
    }

    fn boot<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<u32>> {
        let (connect, name) = (self.shared.lock().clone(), name.to_owned());
        Box::pin(async move {
            let connect = connect?;
            let look_up = move || connect.lookup_domain_by_name(&name).ok()?.id();
            tokio::task::spawn_blocking(look_up).await.ok().flatten()
        })
    }

    fn wakes(&self) -> watch::Receiver<u64> {
        self.wakes.clone()
    }

    fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.clone()
    }

    fn version(&self) -> Option<String> {
        self.version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The thread that owns the connection.
struct Thread {
    shared: SharedConnect,
    version: SharedVersion,
    uri: String,
    wakes: Arc<watch::Sender<u64>>,
    reach: watch::Sender<Reach>,
    redefined: Arc<Mutex<Redefined>>,
    session: Option<Session>,
    number: u64,
    names: HashMap<DomainUuid, Arc<str>>,
    last: Arc<Listing>,
    details: HashMap<DomainUuid, Arc<Details>>,
}

impl Thread {
    /// Serves until the last handle is gone. `own` is this thread's sender for callbacks, so the inbox alone does not
    /// tell: the receivers of `reach` do.
    fn run(mut self, inbox: &mpsc::Receiver<Question>, own: &mpsc::Sender<Question>) {
        let mut wait = BACKOFF_LEAST;
        let mut next_try = Instant::now();
        while !self.reach.is_closed() {
            if self.session.is_none() && Instant::now() >= next_try {
                if self.open(own) {
                    wait = BACKOFF_LEAST;
                } else {
                    next_try = Instant::now().checked_add(wait).unwrap_or(next_try);
                    wait = wait.saturating_mul(2).min(BACKOFF_MOST);
                }
            }
            let patience =
                if self.session.is_some() { BACKOFF_MOST } else { next_try.saturating_duration_since(Instant::now()) };
            match inbox.recv_timeout(patience) {
                // A caller that has stopped waiting drops the answer.
                Ok(Question::List(answer)) => drop(answer.send(self.list())),
                Ok(Question::Details(domains, answer)) => drop(answer.send(self.read_details(&domains))),
                Ok(Question::Live(domains, answer)) => drop(answer.send(self.read_live(&domains))),
                Ok(Question::Time(answer)) => drop(answer.send(self.time())),
                Ok(Question::Closed(number)) if number == self.number && self.session.is_some() => {
                    self.down("libvirtd closed the connection");
                    next_try = Instant::now();
                }
                Ok(Question::Closed(_)) | Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        self.shared.lock().take();
        debug!("libvirt thread ends");
    }

    fn open(&mut self, own: &mpsc::Sender<Question>) -> bool {
        self.number = self.number.wrapping_add(1);
        let hooks: Arc<dyn Hooks> = Arc::new(Wire {
            number: self.number,
            questions: own.clone(),
            wakes: Arc::clone(&self.wakes),
            redefined: Arc::clone(&self.redefined),
        });
        match Session::open(&self.uri, &hooks) {
            Ok(session) => {
                *self.shared.lock() = Some(session.connect().clone());
                // Before anybody is told that it answers: who shows the one shows the other.
                let version = session.connect().lib_version().ok().map(written);
                *self.version.lock().unwrap_or_else(PoisonError::into_inner) = version;
                self.session = Some(session);
                // Definitions may have changed unseen while nobody listened.
                self.details.clear();
                let mut seen = self.redefined.lock().unwrap_or_else(PoisonError::into_inner);
                seen.total = seen.total.wrapping_add(1);
                seen.since.clear();
                drop(seen);
                info!(connection = self.number, uri = %self.uri, "libvirt connected");
                self.reach.send_replace(Reach::Up);
                self.wakes.send_modify(|count| *count = count.wrapping_add(1));
                true
            }
            Err(error) => {
                let reason = format!("libvirt cannot be reached at {}, see that libvirtd runs", self.uri);
                self.down(&format!("{reason}: {}", error.message()));
                false
            }
        }
    }

    /// Drops the connection; the reason is logged when it is another than before.
    fn down(&mut self, reason: &str) {
        self.shared.lock().take();
        self.session = None;
        let down = Reach::Down { reason: Arc::from(reason) };
        let changed = self.reach.send_if_modified(|reach| {
            let changed = *reach != down;
            *reach = down;
            changed
        });
        if changed {
            warn!(%reason, "libvirt unreachable");
            self.wakes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    fn unreachable(&self) -> Fault {
        let reason = match &*self.reach.borrow() {
            Reach::Up => Arc::from("libvirt closed the connection"),
            Reach::Down { reason } => Arc::clone(reason),
        };
        Fault::new(FaultKind::Unavailable, &*reason)
    }

    /// Forgets details of domains that were redefined, and answers how often any was.
    fn definitions(&mut self) -> u64 {
        let mut seen = self.redefined.lock().unwrap_or_else(PoisonError::into_inner);
        for uuid in seen.since.drain(..) {
            self.details.remove(&uuid);
        }
        seen.total
    }

    fn list(&mut self) -> Result<Arc<Listing>, Fault> {
        let definitions = self.definitions();
        let session = self.session.as_ref().ok_or_else(|| self.unreachable())?;
        let (names, last) = (&mut self.names, &self.last);
        let mut domains = Vec::with_capacity(last.domains.len());
        let mut same = last.definitions == definitions;
        let outcome = session.for_each_domain(|row| {
            // libvirt answers in a stable order: the domain at the same place is mostly the same one.
            let before = last.domains.get(domains.len());
            let before = before.filter(|d| d.uuid == row.uuid && d.name.as_bytes() == row.name);
            same &= before.is_some_and(|d| d.state == row.state && d.boot == row.boot);
            let name = before.map_or_else(|| known_name(names, &row), |d| Arc::clone(&d.name));
            domains.push(Domain { uuid: row.uuid, name, state: row.state, boot: row.boot });
        });
        match outcome {
            Ok(_) if same && domains.len() == self.last.domains.len() => {}
            Ok(_) => {
                if self.names.len() > domains.len() {
                    let alive: std::collections::HashSet<_> = domains.iter().map(|d| d.uuid).collect();
                    self.names.retain(|uuid, _| alive.contains(uuid));
                    self.details.retain(|uuid, _| alive.contains(uuid));
                }
                self.last = Arc::new(Listing { domains, definitions });
            }
            Err(error) => return Err(self.failed("libvirt cannot list its domains", &error)),
        }
        Ok(Arc::clone(&self.last))
    }

    fn time(&mut self) -> Result<(Duration, usize), Fault> {
        let session = self.session.as_ref().ok_or_else(|| self.unreachable())?;
        let began = Instant::now();
        match session.bulk_call() {
            Ok(count) => Ok((began.elapsed(), count)),
            Err(error) => Err(self.failed("libvirt cannot list its domains", &error)),
        }
    }

    /// The fault of a failed call; drops the connection when the daemon is gone.
    fn failed(&mut self, what: &str, error: &virt::error::Error) -> Fault {
        let alive = self.session.as_ref().is_some_and(|s| s.connect().is_alive().unwrap_or(false));
        if !alive {
            self.down(&format!("libvirtd is gone: {}", error.message()));
        }
        Fault::new(FaultKind::Unavailable, format!("{what}: {}", error.message()))
    }

    /// The XML of what runs; nothing is kept, since each start is asked about once.
    fn read_live(&mut self, domains: &[DomainUuid]) -> Result<HashMap<DomainUuid, Arc<Details>>, Fault> {
        let mut found = HashMap::with_capacity(domains.len());
        for uuid in domains {
            let session = self.session.as_ref().ok_or_else(|| self.unreachable())?;
            let domain = session.connect().lookup_domain_by_uuid_string(&uuid.to_string());
            match domain.and_then(|domain| domain.xml_desc(0)) {
                Ok(text) => drop(found.insert(*uuid, Arc::new(xml::read(&text)))),
                Err(error) => {
                    let fault = self.failed("libvirt cannot read what a domain runs with", &error);
                    if self.session.is_none() {
                        return Err(fault);
                    }
                }
            }
        }
        Ok(found)
    }

    fn read_details(&mut self, domains: &[DomainUuid]) -> Result<HashMap<DomainUuid, Arc<Details>>, Fault> {
        self.definitions();
        let mut found = HashMap::with_capacity(domains.len());
        for uuid in domains {
            if let Some(known) = self.details.get(uuid) {
                found.insert(*uuid, Arc::clone(known));
                continue;
            }
            let session = self.session.as_ref().ok_or_else(|| self.unreachable())?;
            let text = session
                .connect()
                .lookup_domain_by_uuid_string(&uuid.to_string())
                .and_then(|domain| domain.xml_desc(raw::VIR_DOMAIN_XML_INACTIVE).or_else(|_| domain.xml_desc(0)));
            match text {
                Ok(text) => {
                    let details = Arc::new(xml::read(&text));
                    self.details.insert(*uuid, Arc::clone(&details));
                    found.insert(*uuid, details);
                }
                Err(error) => {
                    let fault = self.failed("libvirt cannot read a domain's definition", &error);
                    if self.session.is_none() {
                        return Err(fault);
                    }
                    debug!(domain = %uuid, error = error.message(), "definition not read");
                }
            }
        }
        Ok(found)
    }
}

/// libvirt's number for a version as people write it.
fn written(version: u32) -> String {
    format!("{}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000)
}

/// The name in the row: one that was seen before is not allocated again.
fn known_name(names: &mut HashMap<DomainUuid, Arc<str>>, row: &Row<'_>) -> Arc<str> {
    let text = String::from_utf8_lossy(row.name);
    let known = names.get(&row.uuid).filter(|known| ***known == *text).cloned();
    let name = known.unwrap_or_else(|| Arc::from(text));
    names.insert(row.uuid, Arc::clone(&name));
    name
}

/// libvirt's numbers in our words (virDomainState and the reasons that belong to each).
fn domain_state(state: c_int, reason: c_int) -> DomainState {
    match state.cast_unsigned() {
        raw::VIR_DOMAIN_RUNNING | raw::VIR_DOMAIN_BLOCKED => DomainState::Running,
        raw::VIR_DOMAIN_PAUSED => DomainState::Paused(match reason.cast_unsigned() {
            raw::VIR_DOMAIN_PAUSED_USER => PauseReason::Asked,
            raw::VIR_DOMAIN_PAUSED_STARTING_UP => PauseReason::Starting,
            raw::VIR_DOMAIN_PAUSED_IOERROR => PauseReason::DiskError,
            raw::VIR_DOMAIN_PAUSED_CRASHED => PauseReason::Crashed,
            raw::VIR_DOMAIN_PAUSED_WATCHDOG => PauseReason::Watchdog,
            raw::VIR_DOMAIN_PAUSED_MIGRATION
            | raw::VIR_DOMAIN_PAUSED_SAVE
            | raw::VIR_DOMAIN_PAUSED_DUMP
            | raw::VIR_DOMAIN_PAUSED_SNAPSHOT
            | raw::VIR_DOMAIN_PAUSED_SHUTTING_DOWN => PauseReason::Busy,
            _ => PauseReason::Unsaid,
        }),
        raw::VIR_DOMAIN_SHUTDOWN => DomainState::ShuttingDown,
        raw::VIR_DOMAIN_SHUTOFF => DomainState::Stopped(match reason.cast_unsigned() {
            raw::VIR_DOMAIN_SHUTOFF_SHUTDOWN => StopReason::GuestShutdown,
            raw::VIR_DOMAIN_SHUTOFF_DESTROYED => StopReason::Destroyed,
            raw::VIR_DOMAIN_SHUTOFF_CRASHED => StopReason::Crashed,
            raw::VIR_DOMAIN_SHUTOFF_FAILED => StopReason::StartFailed,
            raw::VIR_DOMAIN_SHUTOFF_SAVED => StopReason::Saved,
            raw::VIR_DOMAIN_SHUTOFF_DAEMON => StopReason::Daemon,
            _ => StopReason::Unsaid,
        }),
        // With on_crash=preserve the VMM of a crashed guest stays, its CPUs held.
        raw::VIR_DOMAIN_CRASHED => DomainState::Paused(PauseReason::Crashed),
        raw::VIR_DOMAIN_PMSUSPENDED => DomainState::Asleep,
        _ => DomainState::Other,
    }
}
