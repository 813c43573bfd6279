//! Accepts connections, keeps their number within bounds, and ends in good order.
//!
//! Room: `helper`. Connections come from a listener, or there is the one that the node made when it started this helper, and
//! then the helper ends with it, and with that node: a process that the node left behind may hold the other end still. A listener's mode lets through more users than the one that is answered: a connection of
//! another is closed as it is accepted, and costs no place, buffer or task. Among those of the node's user, when all places are
//! taken, the newcomer gets in and another goes: first one of a process that holds more than its share, then one that has not
//! greeted, of the process that holds most connections, the longest silent. So a flood drives out itself, and before it costs a
//! session: all that wait come in at once. Losing a connection loses no effect.
use crate::audit::{self, Rate};
use crate::pair::Pair;
use crate::pipeline::Helper;
use crate::session;
use crate::sys;
use crate::watchdog::{self, Watchdog};
use bcd_policy::Peer;
use bcd_protocol::limits;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_seqpacket::{UnixSeqpacket, UnixSeqpacketListener};

#[cfg(test)]
mod tests;

/// How long effects under way may take to end when the helper is told to stop. Below systemd's default of 90 s.
const GRACE: Duration = Duration::from_secs(75);

/// How long a peer that connected may take for its first request.
const GREETING: Duration = Duration::from_secs(limits::HANDSHAKE_SECONDS);

/// The same of the node that started this helper: it starts at the same time. It keeps nobody from a place.
const GREETING_OF_A_PAIR: Duration = Duration::from_secs(120);

/// As many as may wait to be accepted: more than that do not come in at once.
const AT_ONCE: usize = 128;

/// How long settling rests after it failed on the way.
const PAUSE: Duration = Duration::from_secs(5);

/// Connections beyond which a process holds more than its share. A node holds one, and two while it connects anew.
const SHARE: usize = limits::CONNECTIONS / 4;

/// Where connections come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A listening socket.
    Listening(OwnedFd),
    /// The one connection, and who is at its other end.
    Pair(Pair),
}

/// The same, ready to be awaited.
enum Door {
    Listener(UnixSeqpacketListener),
    /// Until it was let in.
    One(Option<UnixSeqpacket>),
}

impl Door {
    /// The door, and of a pair the process at its other end.
    fn new(source: Source) -> std::io::Result<(Self, Option<AsyncFd<OwnedFd>>)> {
        Ok(match source {
            Source::Listening(socket) => (Self::Listener(UnixSeqpacketListener::try_from(socket)?), None),
            Source::Pair(pair) => {
                let (socket, node) = pair.into_parts();
                let node = sys::readable(node)?;
                (Self::One(Some(UnixSeqpacket::try_from(socket)?)), Some(node))
            }
        })
    }

    /// The next connection. Nothing is lost when this is dropped before its end.
    async fn accept(&mut self) -> std::io::Result<UnixSeqpacket> {
        match self {
            Self::Listener(listener) => listener.accept().await,
            Self::One(connection) => match connection.take() {
                Some(connection) => Ok(connection),
                None => std::future::pending().await,
            },
        }
    }

    /// The next connection, if one waits already.
    async fn accept_waiting(&mut self) -> Option<std::io::Result<UnixSeqpacket>> {
        tokio::select! {
            biased;
            accepted = self.accept() => Some(accepted),
            () = std::future::ready(()) => None,
        }
    }

    /// Whether a connection gets a place. Of a pair the session tells its peer by which rule it is not answered: nobody else
    /// can come meanwhile.
    fn admits(&self, peer: Peer, node_uid: u32) -> bool {
        match self {
            Self::Listener(_) => peer.uid == node_uid,
            Self::One(_) => true,
        }
    }

    fn greeting(&self) -> Duration {
        match self {
            Self::Listener(_) => GREETING,
            Self::One(_) => GREETING_OF_A_PAIR,
        }
    }

    /// Whether no connection can come any more once those that came are gone.
    fn is_over(&self) -> bool {
        matches!(self, Self::One(None))
    }
}

/// Ends when the process has; never, where there is none to end with.
async fn ended(process: Option<&AsyncFd<OwnedFd>>) {
    match process {
        // An error is one of a runtime that shuts down.
        Some(process) => drop(process.readable().await),
        None => std::future::pending().await,
    }
}

/// What the server and one session both know of a connection.
#[derive(Debug)]
pub(crate) struct Place {
    peer: Peer,
    greeting: Duration,
    greeted: AtomicBool,
    /// Microseconds from the server's start to the last request.
    last: AtomicU64,
    start: Instant,
    evicted: Notify,
}

impl Place {
    /// A connection of `peer`, which has not greeted and has `greeting` to do so; `start` is the server's.
    pub(crate) fn new(peer: Peer, greeting: Duration, start: Instant) -> Self {
        let (greeted, last, evicted) = (AtomicBool::new(false), AtomicU64::new(0), Notify::new());
        let place = Self { peer, greeting, greeted, last, start, evicted };
        place.touch();
        place
    }

    /// How long the peer may take to greet.
    pub(crate) fn greeting(&self) -> Duration {
        self.greeting
    }

    /// Notes that the peer has just asked something.
    pub(crate) fn touch(&self) {
        let now = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Notes that the peer has greeted.
    pub(crate) fn greet(&self) {
        self.greeted.store(true, Ordering::Relaxed);
    }

    /// Makes the connection's session end. A session that is not waiting just now hears of it when it does.
    pub(crate) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Ends when the connection has to make room.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// The connections that are served.
#[derive(Debug, Default)]
struct Places(Mutex<Vec<Arc<Place>>>);

impl Places {
    /// Adds a connection. When all places are taken, another is driven out, and returned.
    fn add(&self, place: Arc<Place>) -> Option<Arc<Place>> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full = taken.len() >= limits::CONNECTIONS;
        let out = full.then(|| victim(&taken, place.peer.pid)).flatten().map(|index| taken.swap_remove(index));
        taken.push(place);
        drop(taken);
        if let Some(out) = &out {
            let greeted = out.greeted.load(Ordering::Relaxed);
            if audit::told(out.peer) {
                tracing::warn!(peer_pid = out.peer.pid, greeted, "all places are taken: a connection makes room");
            }
            out.evict();
        }
        out
    }

    fn remove(&self, place: &Arc<Place>) {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|other| !Arc::ptr_eq(other, place));
    }
}

/// A place that is given back however its session ends, by a panic too.
struct Taken {
    places: Arc<Places>,
    place: Arc<Place>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.places.remove(&self.place);
    }
}

/// Which of `places` makes room for a connection of process `newcomer`.
fn victim(places: &[Arc<Place>], newcomer: i32) -> Option<usize> {
    let mut held = HashMap::from([(newcomer, 1_usize)]);
    for place in places {
        let count = held.entry(place.peer.pid).or_default();
        *count = count.saturating_add(1);
    }
    let rank = |place: &Place| {
        let many = held.get(&place.peer.pid).copied().unwrap_or_default();
        let greeted = place.greeted.load(Ordering::Relaxed);
        (many <= SHARE, greeted, std::cmp::Reverse(many), place.last.load(Ordering::Relaxed))
    };
    places.iter().enumerate().min_by_key(|(_, place)| rank(place)).map(|(index, _)| index)
}

/// One that was let in and has no session yet.
struct Newcomer {
    socket: UnixSeqpacket,
    peer: Peer,
    place: Arc<Place>,
}

/// Lets in the connection that was accepted and all that wait behind it; those that did not have to make room at once.
async fn let_in(
    door: &mut Door,
    node_uid: u32,
    places: &Places,
    start: Instant,
    strangers: &Rate,
    first: UnixSeqpacket,
) -> Vec<Newcomer> {
    let mut newcomers: Vec<Newcomer> = Vec::new();
    let mut next = Some(first);
    let mut left = AT_ONCE;
    while let Some(socket) = next.take() {
        let peer = peer_of(&socket);
        if let Some(stranger) = peer.filter(|peer| !door.admits(*peer, node_uid)) {
            drop(socket);
            audit::stranger(strangers, stranger);
        } else if let Some(peer) = peer {
            let place = Arc::new(Place::new(peer, door.greeting(), start));
            if let Some(out) = places.add(Arc::clone(&place)) {
                newcomers.retain(|other| !Arc::ptr_eq(&other.place, &out));
            }
            newcomers.push(Newcomer { socket, peer, place });
        }
        left = left.saturating_sub(1);
        // It takes none that it does not let in.
        if left > 0 {
            // The next turn meets an error again, if it lasts.
            next = door.accept_waiting().await.and_then(Result::ok);
        }
    }
    newcomers
}

/// Serves until the process is told to stop or its one connection is gone, then lets what is under way end.
///
/// # Errors
/// When the listener or the signals cannot be used.
pub(crate) async fn run(helper: Arc<Helper>, source: Source) -> std::io::Result<()> {
    let (mut door, node) = Door::new(source)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    crate::daemon::ending_signals().thread_unblock()?;
    let (stop, stopping) = watch::channel(false);
    let places = Arc::new(Places::default());
    let start = Instant::now();
    let mut sessions = JoinSet::new();
    let settle = |after: Duration| {
        let helper = Arc::clone(&helper);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            helper.settle_unfinished().await;
        })
    };
    let mut settling = settle(Duration::ZERO);
    let mut watchdog = Watchdog::of_this_process();
    crate::daemon::ready();
    let mut told = true;
    loop {
        if door.is_over() && sessions.is_empty() {
            told = false;
            break;
        }
        tokio::select! {
            biased;
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            // Before the rest: a flood keeps the rest busy for ever, and is no hang.
            () = watchdog.due() => watchdog::feed(),
            () = ended(node.as_ref()) => {
                told = false;
                break;
            }
            Some(_) = sessions.join_next(), if !sessions.is_empty() => {}
            // It never ends but by a panic, which must not leave what is unfinished so for ever.
            _ = &mut settling => settling = settle(PAUSE),
            accepted = door.accept() => match accepted {
                Ok(socket) => {
                    let strangers = &audit::STRANGERS;
                    let newcomers = let_in(&mut door, helper.node_uid(), &places, start, strangers, socket).await;
                    for Newcomer { socket, peer, place } in newcomers {
                        let (helper, stopping) = (Arc::clone(&helper), stopping.clone());
                        let taken = Taken { places: Arc::clone(&places), place };
                        sessions.spawn(async move {
                            session::run(helper, socket, peer, Arc::clone(&taken.place), stopping).await;
                        });
                    }
                    // A flood must not keep the sessions from their first message.
                    tokio::task::yield_now().await;
                }
                Err(cause) => {
                    // Out of descriptors or memory: what is open goes on, and a moment later there may be room.
                    tracing::error!(%cause, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    let why = if told { "told to stop" } else { "the node is gone" };
    tracing::info!(under_way = helper.under_way(), "{why}: what is under way ends first");
    crate::daemon::stopping();
    drop(door);
    settling.abort();
    let _none_listens = stop.send(true);
    let ends = async {
        while sessions.join_next().await.is_some() {}
        helper.idle().await;
    };
    tokio::pin!(ends);
    let grace = tokio::time::sleep(GRACE);
    tokio::pin!(grace);
    loop {
        tokio::select! {
            () = &mut ends => tracing::info!("stopped"),
            // Effects that take their time are no hang either.
            () = watchdog.due() => {
                watchdog::feed();
                continue;
            }
            // The service manager tells all of a service that has lost its node: that is the first time, not the second.
            _ = terminate.recv() => {
                if !std::mem::replace(&mut told, true) {
                    continue;
                }
                tracing::warn!("told to stop again: leaving at once");
            }
            _ = interrupt.recv() => {
                if !std::mem::replace(&mut told, true) {
                    continue;
                }
                tracing::warn!("told to stop again: leaving at once");
            }
            () = &mut grace => {
                tracing::warn!(under_way = helper.under_way(), "some effects have not ended: leaving; they are reconciled");
            }
        }
        break;
    }
    Ok(())
}

fn peer_of(socket: &UnixSeqpacket) -> Option<Peer> {
    match socket.peer_cred() {
        Ok(credentials) => Some(Peer { uid: credentials.uid(), pid: credentials.pid().unwrap_or_default() }),
        Err(cause) => {
            tracing::warn!(%cause, "the kernel does not say who connected: closed");
            None
        }
    }
}
