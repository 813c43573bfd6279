//! Accepts connections, keeps their number within bounds, and ends in good order.
//!
//! Room: `helper`. When all places are taken, the newcomer gets in and another goes: first one that has not greeted, of
//! the process that holds most connections, the longest silent. So a flood drives out itself. Losing a connection loses
//! no effect.
use crate::pipeline::Helper;
use crate::session;
use bcd_policy::Peer;
use bcd_protocol::limits;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_seqpacket::{UnixSeqpacket, UnixSeqpacketListener};

#[cfg(test)]
mod tests;

/// How long effects under way may take to end when the helper is told to stop. Below systemd's default of 90 s.
const GRACE: Duration = Duration::from_secs(75);

/// What the server and one session both know of a connection.
#[derive(Debug)]
pub(crate) struct Place {
    pid: i32,
    greeted: AtomicBool,
    /// Microseconds from the server's start to the last request.
    last: AtomicU64,
    start: Instant,
    evicted: Notify,
}

impl Place {
    /// A connection of process `pid` that has not greeted; `start` is the server's.
    pub(crate) fn new(pid: i32, start: Instant) -> Self {
        let place =
            Self { pid, greeted: AtomicBool::new(false), last: AtomicU64::new(0), start, evicted: Notify::new() };
        place.touch();
        place
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
    /// Adds a connection, and drives another out when all places are taken.
    fn add(&self, place: Arc<Place>) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= limits::CONNECTIONS
            && let Some(index) = victim(&places)
        {
            let out = places.swap_remove(index);
            tracing::warn!(
                peer_pid = out.pid,
                greeted = out.greeted.load(Ordering::Relaxed),
                "all places are taken: a connection makes room"
            );
            out.evict();
        }
        places.push(place);
    }

    fn remove(&self, place: &Arc<Place>) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|other| !Arc::ptr_eq(other, place));
    }
}

/// Which of `places` makes room.
fn victim(places: &[Arc<Place>]) -> Option<usize> {
    let mut held: HashMap<i32, usize> = HashMap::new();
    for place in places {
        let count = held.entry(place.pid).or_default();
        *count = count.saturating_add(1);
    }
    let rank = |place: &Place| {
        let many = held.get(&place.pid).copied().unwrap_or_default();
        (place.greeted.load(Ordering::Relaxed), std::cmp::Reverse(many), place.last.load(Ordering::Relaxed))
    };
    places.iter().enumerate().min_by_key(|(_, place)| rank(place)).map(|(index, _)| index)
}

/// Serves until the process is told to stop, then lets what is under way end.
///
/// # Errors
/// When the listener or the signals cannot be used.
pub(crate) async fn run(helper: Arc<Helper>, socket: OwnedFd) -> std::io::Result<()> {
    let mut listener = UnixSeqpacketListener::try_from(socket)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    crate::daemon::ending_signals().thread_unblock()?;
    let (stop, stopping) = watch::channel(false);
    let places = Arc::new(Places::default());
    let start = Instant::now();
    let mut sessions = JoinSet::new();
    let settling = tokio::spawn(Arc::clone(&helper).settle_unfinished());
    crate::daemon::ready();
    loop {
        tokio::select! {
            biased;
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            Some(_) = sessions.join_next(), if !sessions.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok(socket) => {
                    if let Some(peer) = peer_of(&socket) {
                        let place = Arc::new(Place::new(peer.pid, start));
                        places.add(Arc::clone(&place));
                        let (helper, places, stopping) = (Arc::clone(&helper), Arc::clone(&places), stopping.clone());
                        sessions.spawn(async move {
                            session::run(helper, socket, peer, Arc::clone(&place), stopping).await;
                            places.remove(&place);
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
    tracing::info!(under_way = helper.under_way(), "told to stop: what is under way ends first");
    crate::daemon::stopping();
    drop(listener);
    settling.abort();
    let _none_listens = stop.send(true);
    let ended = async {
        while sessions.join_next().await.is_some() {}
        helper.idle().await;
    };
    tokio::select! {
        () = ended => tracing::info!("stopped"),
        _ = terminate.recv() => tracing::warn!("told to stop again: leaving at once"),
        _ = interrupt.recv() => tracing::warn!("told to stop again: leaving at once"),
        () = tokio::time::sleep(GRACE) => {
            tracing::warn!(under_way = helper.under_way(), "some effects have not ended: leaving; they are reconciled");
        }
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
