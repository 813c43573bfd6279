//! The read-write connections to libvirt: a few, opened when needed, replaced when they die.
//!
//! Room: `helper`. libvirt's calls block, so each runs on a thread of the blocking pool, with a lease on a connection. One
//! connection carries at most five calls at once (libvirtd's `max_client_requests`), hence several. A keepalive ends the
//! calls of a libvirtd that no longer answers; it needs libvirt's event loop, which has a thread of its own.
use bcd_protocol::config::LibvirtUri;
use bcd_protocol::reply::FailureKind;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use virt::connect::Connect;
use virt::error::{Error, ErrorNumber};

#[cfg(test)]
mod tests;

/// Connections kept at the most.
const CONNECTIONS: usize = 4;

/// Calls under way at once, over all connections: three on each leave libvirtd's limit of five untouched.
pub(crate) const CALLS: usize = 12;

/// Of them, those that may wait for VMMs, beginning ones included. A VMM that its guest has taken over never answers, and
/// libvirt waits for it without end: what is left is for looking, and for ending such a VMM.
const VMM_CALLS: usize = 10;

/// Of those, the ones that may wait for VMMs that run guests: what is left is for starting others.
const GUEST_CALLS: usize = 8;

/// How long a request waits for a place among the calls, then for a connection.
const PATIENCE: Duration = Duration::from_secs(20);

/// Seconds between keepalive messages, and how many may stay unanswered: a dead libvirtd is noticed within 20 s.
const KEEPALIVE: (i32, u32) = (5, 3);

/// libvirt cannot be asked now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("libvirt does not answer: {0}")]
pub(crate) struct Unreachable(String);

/// The connections.
#[derive(Debug)]
pub(crate) struct Libvirt {
    uri: LibvirtUri,
    slots: Mutex<Slots>,
    opening: Arc<tokio::sync::Mutex<()>>,
    calls: Arc<Semaphore>,
    vmm_calls: Arc<Semaphore>,
    guest_calls: Arc<Semaphore>,
}

/// Whose answer a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// libvirtd's alone.
    Libvirtd,
    /// A VMM's that begins: no guest's code has run in it.
    NewVmm,
    /// A VMM's that runs a guest, and may never answer.
    Guest,
}

#[derive(Debug, Default)]
struct Slots {
    slots: [Slot; CONNECTIONS],
    reachable: Option<bool>,
}

#[derive(Debug, Default)]
struct Slot {
    connect: Option<Arc<Connect>>,
    busy: usize,
}

/// The use of one connection for one piece of work.
#[derive(Debug)]
pub(crate) struct Lease {
    libvirt: Arc<Libvirt>,
    connect: Arc<Connect>,
    slot: usize,
    _calls: Vec<OwnedSemaphorePermit>,
}

impl Lease {
    /// The connection.
    pub(crate) fn connect(&self) -> &Connect {
        &self.connect
    }

    /// Whether the connection is gone, so that an error of a call on it says nothing about its effect.
    pub(crate) fn is_lost(&self) -> bool {
        !self.connect.is_alive().unwrap_or(false)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut slots = self.libvirt.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.slots.get_mut(self.slot) {
            slot.busy = slot.busy.saturating_sub(1);
        }
    }
}

/// Readies libvirt's client library: no messages of its own on standard error, its event loop on a thread of its own.
///
/// # Errors
/// libvirt's, or that the thread cannot be made.
pub(crate) fn start_events() -> Result<(), String> {
    virt::event::event_register_default_impl().map_err(|e| e.message().to_owned())?;
    let run = || {
        loop {
            if let Err(error) = virt::event::event_run_default_impl() {
                tracing::warn!(%error, "libvirt's event loop failed and goes on");
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    };
    std::thread::Builder::new()
        .name("libvirt-events".to_owned())
        .stack_size(256 * 1024)
        .spawn(run)
        .map(drop)
        .map_err(|e| e.to_string())
}

impl Libvirt {
    /// No connection yet.
    pub(crate) fn new(uri: LibvirtUri) -> Self {
        Self {
            uri,
            slots: Mutex::default(),
            opening: Arc::new(tokio::sync::Mutex::new(())),
            calls: Arc::new(Semaphore::new(CALLS)),
            vmm_calls: Arc::new(Semaphore::new(VMM_CALLS)),
            guest_calls: Arc::new(Semaphore::new(GUEST_CALLS)),
        }
    }

    /// A connection for one piece of work: the least busy, or a new one.
    ///
    /// # Errors
    /// [`Unreachable`] at once when libvirt refuses, after a while when it does not answer or all calls are stuck.
    pub(crate) async fn lease(self: &Arc<Self>, waits: Waits) -> Result<Lease, Unreachable> {
        let slow = |what: &str| Unreachable(format!("{what} for {} s", PATIENCE.as_secs()));
        let calls = tokio::time::timeout(PATIENCE, self.places(waits))
            .await
            .map_err(|_| match waits {
                Waits::Libvirtd => slow("all calls are busy"),
                Waits::NewVmm | Waits::Guest => slow("other VMMs have not answered"),
            })?
            .map_err(|_| Unreachable("the helper is stopping".to_owned()))?;
        if let Some((slot, connect)) = self.ready() {
            return Ok(Lease { libvirt: Arc::clone(self), connect, slot, _calls: calls });
        }
        // One opens at a time, and keeps the others out even when its caller has given up: a libvirtd that accepts and
        // never answers holds one thread, not all.
        let opening = tokio::time::timeout(PATIENCE, Arc::clone(&self.opening).lock_owned())
            .await
            .map_err(|_| slow("it has not answered"))?;
        if let Some((slot, connect)) = self.ready() {
            return Ok(Lease { libvirt: Arc::clone(self), connect, slot, _calls: calls });
        }
        let uri = self.uri.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let opened = open(&uri);
            drop(opening);
            opened
        });
        let opened = match tokio::time::timeout(PATIENCE, opened).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => Err("opening a connection panicked".to_owned()),
            Err(_) => return Err(self.seen(Err(slow("it has not answered").0))),
        };
        match opened {
            Ok(connect) => {
                let (slot, connect) = self.adopt(connect);
                Ok(Lease { libvirt: Arc::clone(self), connect, slot, _calls: calls })
            }
            Err(cause) => Err(self.seen(Err(cause))),
        }
    }

    /// Places among the calls. The narrowest is taken first: who waits for it holds none of the others.
    async fn places(&self, waits: Waits) -> Result<Vec<OwnedSemaphorePermit>, tokio::sync::AcquireError> {
        let narrowing: &[&Arc<Semaphore>] = match waits {
            Waits::Libvirtd => &[&self.calls],
            Waits::NewVmm => &[&self.vmm_calls, &self.calls],
            Waits::Guest => &[&self.guest_calls, &self.vmm_calls, &self.calls],
        };
        let mut places = Vec::with_capacity(narrowing.len());
        for calls in narrowing {
            places.push(Arc::clone(calls).acquire_owned().await?);
        }
        Ok(places)
    }

    /// A living connection, unless all are busy and another may be opened.
    fn ready(&self) -> Option<(usize, Arc<Connect>)> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in &mut slots.slots {
            if slot.connect.as_ref().is_some_and(|connect| !connect.is_alive().unwrap_or(false)) {
                slot.connect = None;
            }
        }
        let free = slots.slots.iter().any(|slot| slot.connect.is_none());
        let living = slots.slots.iter_mut().enumerate().filter(|(_, slot)| slot.connect.is_some());
        let (index, slot) = living.min_by_key(|(_, slot)| slot.busy)?;
        if slot.busy > 0 && free {
            return None;
        }
        slot.busy = slot.busy.saturating_add(1);
        slot.connect.clone().map(|connect| (index, connect))
    }

    fn adopt(&self, connect: Connect) -> (usize, Arc<Connect>) {
        let connect = Arc::new(connect);
        let index = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            let empty = slots.slots.iter_mut().enumerate().find(|(_, slot)| slot.connect.is_none());
            // None: others opened meanwhile. This connection then serves this one lease; its place in the count is the
            // first slot's.
            match empty {
                Some((index, slot)) => {
                    slot.connect = Some(Arc::clone(&connect));
                    slot.busy = slot.busy.saturating_add(1);
                    index
                }
                None => CONNECTIONS,
            }
        };
        let _reached = self.seen(Ok(()));
        (index, connect)
    }

    /// Logs when libvirt begins or ceases to answer.
    fn seen(&self, result: Result<(), String>) -> Unreachable {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let before = slots.reachable.replace(result.is_ok());
        match &result {
            Ok(()) if before != Some(true) => tracing::info!(uri = self.uri.as_str(), "libvirt answers"),
            Err(cause) if before != Some(false) => {
                tracing::warn!(uri = self.uri.as_str(), %cause, "libvirt does not answer");
            }
            Ok(()) | Err(_) => {}
        }
        Unreachable(result.err().unwrap_or_default())
    }
}

fn open(uri: &LibvirtUri) -> Result<Connect, String> {
    let connect = Connect::open(Some(uri.as_str())).map_err(|e| e.message().to_owned())?;
    let (interval, count) = KEEPALIVE;
    connect.set_keep_alive(interval, count).map_err(|e| e.message().to_owned())?;
    Ok(connect)
}

/// Whether the error says that there is no such domain.
pub(crate) fn is_no_domain(error: &Error) -> bool {
    number(error) == Some(ErrorNumber::NoDomain)
}

fn number(error: &Error) -> Option<ErrorNumber> {
    match error.code() {
        virt::enumutil::Enum::Known(number) => Some(number),
        virt::enumutil::Enum::Unknown(_) => None,
    }
}

/// What kind of failure an effect's error is, on a connection that is or is not `lost`.
pub(crate) fn failure(error: &Error, lost: bool) -> FailureKind {
    // An error of the client's own half of the connection says nothing about what libvirtd did.
    let on_the_way = matches!(error.domain(), virt::enumutil::Enum::Known(virt::error::ErrorDomain::Rpc));
    if lost || on_the_way {
        return FailureKind::Unavailable;
    }
    // QEMU and the kernel say it in words alone: libvirt passes their last line on as an internal error.
    let message = error.message();
    let memory = ["Cannot allocate memory", "cannot set up guest memory", "unable to map backing store for guest RAM"];
    if memory.iter().any(|words| message.contains(words)) {
        return FailureKind::ResourcesExhausted;
    }
    match number(error) {
        Some(ErrorNumber::NoMemory) => FailureKind::ResourcesExhausted,
        Some(ErrorNumber::Rpc | ErrorNumber::NoConnect) => FailureKind::Unavailable,
        // Another job holds the domain's lock: nothing was done, but whether it was is libvirt's word, so it is
        // looked up before the record's next request.
        Some(ErrorNumber::OperationTimeout) => FailureKind::Timeout,
        Some(_) | None => FailureKind::Refused,
    }
}

/// libvirt's message as one sentence that names no path outside `data_dir`.
pub(crate) fn sentence(error: &Error, data_dir: &Path) -> String {
    without_paths(error.message(), data_dir)
}

/// Replaces every absolute path that does not lie beneath `data_dir` by `<path>`.
fn without_paths(message: &str, data_dir: &Path) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | ',' | ';' | ')' | '(' | '<' | '>' | '`' | '=');
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    let mut before = ' ';
    while let Some(next) = rest.chars().next() {
        if next == '/' && !before.is_alphanumeric() {
            let length = rest.find(ends).unwrap_or(rest.len());
            let (path, tail) = rest.split_at(length);
            let bare = path.trim_end_matches([':', '.']);
            let beneath = Path::new(bare).starts_with(data_dir)
                && !Path::new(bare).components().any(|part| part == std::path::Component::ParentDir);
            out.push_str(if beneath { path } else { "<path>" });
            if !beneath {
                out.push_str(path.get(bare.len()..).unwrap_or_default());
            }
            rest = tail;
            before = 'x';
        } else {
            out.push(next);
            before = next;
            rest = rest.get(next.len_utf8()..).unwrap_or_default();
        }
    }
    out
}
