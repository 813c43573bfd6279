//! One connection to the helper at a time: connecting, handshake, sending, matching replies.
//!
//! Room: `node`. Callers send by themselves; one task reads. A request's slot and its share of the in-flight bound are
//! held until its reply comes or the connection ends, also when its caller has stopped waiting: the helper works on it
//! all the same. A pair is one connection, and there is none after it.
use super::Reach;
use super::dial::dial;
use crate::fault::{Fault, FaultKind, chain};
use bcd_protocol::PROTOCOL_VERSION;
use bcd_protocol::codec;
use bcd_protocol::limits;
use bcd_protocol::reply::{Reply, ReplyMessage};
use bcd_protocol::request::{Request, RequestId, RequestMessage};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio_seqpacket::UnixSeqpacket;
use tokio_seqpacket::ancillary::OwnedAncillaryMessage;
use tracing::{debug, info, warn};

/// First wait before connecting again; doubles up to [`BACKOFF_MOST`].
const BACKOFF_LEAST: Duration = Duration::from_millis(50);
/// Longest wait before connecting again: a helper that comes back is used within this time.
const BACKOFF_MOST: Duration = Duration::from_secs(1);
/// Requests of one connection that may go unanswered before it is made anew.
const OVERDUE_MOST: usize = limits::IN_FLIGHT / 2;
/// Room for control messages: one descriptor needs 24 bytes; a peer that sends more is seen by the truncation flag or
/// by the count.
const CONTROL_WORDS: usize = 16;

/// How long the helper at the other end of a pair may take for its first answer: it starts at the same time as the node, and
/// may have to wait for the one before it.
const PAIR_HANDSHAKE: Duration = Duration::from_secs(90);

/// Where the helper is.
#[derive(Debug)]
pub(super) enum Origin {
    /// It listens at a path, and must run as this uid.
    Path {
        /// Its socket.
        path: PathBuf,
        /// Its uid.
        helper_uid: u32,
    },
    /// At the other end of this socket, until that is taken.
    Pair(Mutex<Option<OwnedFd>>),
}

/// A reply and what travelled with it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) reply: Reply,
    pub(super) descriptor: Option<OwnedFd>,
}

/// Why a connection is not usable.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error("cannot connect to the helper at {path}: start bcd-helper, or see its log")]
    Connect { path: String, source: io::Error },
    #[error("the helper's socket {path} belongs to uid {found}, not {wanted}: something else listens there")]
    Peer { path: String, found: u32, wanted: u32 },
    #[error("the socket pair to the helper was not made by this process: start bcd node --standalone as root")]
    Foreign,
    #[error("the helper took longer than {} s for its handshake", .0.as_secs())]
    Slow(Duration),
    #[error("the helper refused the handshake: {0}")]
    Refused(String),
    #[error("the helper speaks protocol {found}, this bcd {PROTOCOL_VERSION}: install both from one package")]
    Version { found: u16 },
    #[error("the connection to the helper failed")]
    Io(#[source] io::Error),
    #[error("the helper closed the connection")]
    Closed,
    #[error("the helper sent a datagram that is not valid: {0}")]
    Malformed(String),
}

/// The shared state of all handles.
pub(super) struct Link {
    origin: Origin,
    patience: Duration,
    reach: watch::Sender<Reach>,
    current: Mutex<Option<Arc<Connection>>>,
    lost: watch::Sender<Option<Arc<str>>>,
}

/// One welcomed connection.
struct Connection {
    socket: UnixSeqpacket,
    slots: Arc<Semaphore>,
    overdue: AtomicUsize,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    last: u64,
    closed: bool,
    waiting: HashMap<u64, Waiting>,
}

struct Waiting {
    answer: oneshot::Sender<Answer>,
    _slot: OwnedSemaphorePermit,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("origin", &self.origin)
            .field("reach", &*self.reach.borrow())
            .finish_non_exhaustive()
    }
}

/// The data behind a mutex stays whole at every await-free step here, so a poisoned one is used on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    pub(super) fn new(origin: Origin, patience: Duration) -> Self {
        let reason = Arc::from("the helper has not answered yet");
        let reach = watch::Sender::new(Reach::Down { reason });
        Self { origin, patience, reach, current: Mutex::new(None), lost: watch::Sender::new(None) }
    }

    /// Ends once no connection can come any more, with the reason.
    pub(super) async fn lost(&self) -> Arc<str> {
        let mut lost = self.lost.subscribe();
        match lost.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone()) {
            Some(reason) => reason,
            // The sender lives as long as `self`.
            None => std::future::pending().await,
        }
    }

    /// Longest time of the greeting.
    fn handshake(&self) -> Duration {
        match self.origin {
            Origin::Path { .. } => Duration::from_secs(limits::HANDSHAKE_SECONDS),
            Origin::Pair(_) => PAIR_HANDSHAKE,
        }
    }

    /// A connected socket whose other end is the helper's.
    async fn connect(&self) -> Result<UnixSeqpacket, LinkError> {
        match &self.origin {
            Origin::Path { path, helper_uid } => {
                let shown = || path.display().to_string();
                let socket = dial(path).await.map_err(|source| LinkError::Connect { path: shown(), source })?;
                let found = socket.peer_cred().map_err(LinkError::Io)?.uid();
                if found != *helper_uid {
                    return Err(LinkError::Peer { path: shown(), found, wanted: *helper_uid });
                }
                Ok(socket)
            }
            Origin::Pair(pair) => {
                let pair = lock(pair).take().ok_or(LinkError::Closed)?;
                // It came as standard input, which nobody expects to be anything but blocking.
                let flags = fcntl(&pair, FcntlArg::F_GETFL).map_err(|e| LinkError::Io(e.into()))?;
                let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
                fcntl(&pair, FcntlArg::F_SETFL(flags)).map_err(|e| LinkError::Io(e.into()))?;
                let socket = UnixSeqpacket::try_from(pair).map_err(LinkError::Io)?;
                // Of a pair the kernel tells who made it: this process, before it became what it is now.
                let maker = socket.peer_cred().map_err(LinkError::Io)?.pid();
                if maker.and_then(|pid| u32::try_from(pid).ok()) != Some(std::process::id()) {
                    return Err(LinkError::Foreign);
                }
                Ok(socket)
            }
        }
    }

    /// Longest time that a request may take.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Counts a request whose caller gave up. Each holds its place on the connection, and enough of them would leave none
    /// for other instances: then the connection is given up, and the next one has all places free.
    pub(super) fn note_overdue(&self) {
        let Some(connection) = lock(&self.current).clone() else { return };
        let overdue = connection.overdue.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if overdue >= OVERDUE_MOST {
            warn!(overdue, "requests without an answer: the connection to the helper is made anew");
            if let Err(error) = connection.socket.shutdown(Shutdown::Both) {
                debug!(%error, "the connection was gone already");
            }
        }
    }

    /// Ends the connection, or the pair before it was one, whoever still holds this link.
    pub(super) fn hang_up(&self) {
        if let Origin::Pair(pair) = &self.origin {
            drop(lock(pair).take());
        }
        if let Some(connection) = lock(&self.current).take()
            && let Err(error) = connection.socket.shutdown(Shutdown::Both)
        {
            debug!(%error, "the connection was gone already");
        }
    }

    pub(super) fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }

    /// The fault of a request that could not be sent or lost its connection.
    pub(super) fn unreachable(&self) -> Fault {
        let reason = match &*self.reach.borrow() {
            Reach::Up { .. } => Arc::from("the helper closed the connection"),
            Reach::Down { reason } => Arc::clone(reason),
        };
        Fault::new(FaultKind::Unavailable, &*reason)
    }

    /// Sends a request on the current connection and waits for its reply.
    pub(super) async fn call(&self, request: Request) -> Result<Answer, Fault> {
        let connection = lock(&self.current).clone().ok_or_else(|| self.unreachable())?;
        let slot = Arc::clone(&connection.slots).acquire_owned().await.map_err(|_| self.unreachable())?;
        let (answer, waiting) = oneshot::channel();
        let id = connection.enter(Waiting { answer, _slot: slot }).ok_or_else(|| self.unreachable())?;
        let datagram = match codec::encode(&RequestMessage { id: RequestId(id), request }) {
            Ok(datagram) => datagram,
            Err(error) => {
                connection.leave(id);
                return Err(Fault::because(FaultKind::Internal, "the request cannot be sent", error));
            }
        };
        if let Err(error) = connection.socket.send(&datagram).await {
            debug!(%error, "sending to the helper failed");
            connection.leave(id);
            return Err(Fault::because(FaultKind::Unavailable, "the helper cannot be reached", error));
        }
        waiting.await.map_err(|_| self.unreachable())
    }

    fn set_down(&self, reason: &str) {
        lock(&self.current).take();
        let down = Reach::Down { reason: Arc::from(reason) };
        self.reach.send_if_modified(|reach| {
            let changed = *reach != down;
            *reach = down;
            changed
        });
    }

    fn set_up(&self, connection: &Arc<Connection>, number: u64, package: &str) {
        *lock(&self.current) = Some(Arc::clone(connection));
        self.reach.send_replace(Reach::Up { connection: number, package: Arc::from(package) });
    }

    async fn open(&self) -> Result<(Connection, Arc<str>), LinkError> {
        let greeting = async {
            let socket = self.connect().await?;
            let hello = RequestMessage { id: RequestId(0), request: Request::Hello { version: PROTOCOL_VERSION } };
            let datagram = codec::encode(&hello).map_err(|e| LinkError::Malformed(e.to_string()))?;
            socket.send(&datagram).await.map_err(LinkError::Io)?;
            let mut buffer = vec![0u8; limits::MESSAGE_BYTES];
            let (message, descriptor) = receive(&socket, &mut buffer).await?;
            match (message.id, message.reply, descriptor) {
                (RequestId(0), Reply::Hello(welcome), None) if welcome.version == PROTOCOL_VERSION => {
                    Ok((Connection::new(socket), Arc::from(welcome.package.as_str())))
                }
                (_, Reply::Hello(welcome), _) if welcome.version != PROTOCOL_VERSION => {
                    Err(LinkError::Version { found: welcome.version })
                }
                (_, Reply::Denied(denied), _) => Err(LinkError::Refused(denied.detail.to_string())),
                (
                    _,
                    Reply::Hello(_)
                    | Reply::Records(_)
                    | Reply::Plan(_)
                    | Reply::Defined(_)
                    | Reply::Done { .. }
                    | Reply::Console
                    | Reply::Failed(_),
                    _,
                ) => Err(LinkError::Malformed("the handshake's reply is none to a hello".to_owned())),
            }
        };
        let patience = self.handshake();
        tokio::time::timeout(patience, greeting).await.map_err(|_| LinkError::Slow(patience))?
    }
}

impl Connection {
    fn new(socket: UnixSeqpacket) -> Self {
        let slots = Arc::new(Semaphore::new(limits::IN_FLIGHT));
        Self { socket, slots, overdue: AtomicUsize::new(0), pending: Mutex::default() }
    }

    /// Enters a waiting request; `None` once the connection has ended.
    fn enter(&self, waiting: Waiting) -> Option<u64> {
        let mut pending = lock(&self.pending);
        if pending.closed {
            return None;
        }
        pending.last = pending.last.wrapping_add(1);
        let id = pending.last;
        pending.waiting.insert(id, waiting);
        Some(id)
    }

    fn leave(&self, id: u64) -> Option<Waiting> {
        lock(&self.pending).waiting.remove(&id)
    }

    /// Ends every request that is under way.
    fn close(&self) {
        self.slots.close();
        let mut pending = lock(&self.pending);
        pending.closed = true;
        pending.waiting.clear();
    }

    async fn read_until_end(&self) -> LinkError {
        let mut buffer = vec![0u8; limits::MESSAGE_BYTES];
        loop {
            let (message, descriptor) = match receive(&self.socket, &mut buffer).await {
                Ok(received) => received,
                Err(error) => return error,
            };
            let fits = matches!(message.reply, Reply::Console) == descriptor.is_some();
            if !fits {
                return LinkError::Malformed("a reply has a descriptor that does not belong to it".to_owned());
            }
            let RequestId(id) = message.id;
            let Some(waiting) = self.leave(id) else {
                return LinkError::Malformed(format!("a reply to request {id}, which is not under way"));
            };
            // A caller that has stopped waiting drops the answer, and with it closes the descriptor.
            drop(waiting.answer.send(Answer { reply: message.reply, descriptor }));
        }
    }
}

/// Receives one message and its descriptor, if any. The buffer for control messages is aligned for `cmsghdr`.
async fn receive(socket: &UnixSeqpacket, buffer: &mut [u8]) -> Result<(ReplyMessage, Option<OwnedFd>), LinkError> {
    let mut control = Control([0; CONTROL_WORDS * 8]);
    let (info, reader) = socket.recv_with_ancillary(buffer, &mut control.0).await.map_err(LinkError::Io)?;
    if info.truncated() || info.ancillary_truncated() || reader.is_truncated() {
        return Err(LinkError::Malformed("it is longer than a datagram may be".to_owned()));
    }
    let mut descriptors = Vec::new();
    for message in reader.into_messages() {
        match message {
            OwnedAncillaryMessage::FileDescriptors(list) => descriptors.extend(list),
            OwnedAncillaryMessage::Other(_) => {
                return Err(LinkError::Malformed("it has a control message that none should have".to_owned()));
            }
        }
    }
    if descriptors.len() > limits::REPLY_DESCRIPTORS {
        return Err(LinkError::Malformed(format!("it has {} descriptors", descriptors.len())));
    }
    let datagram = buffer.get(..info.bytes_read()).unwrap_or_default();
    // An empty datagram and the end of the connection look alike.
    if datagram.is_empty() {
        return Err(LinkError::Closed);
    }
    let message = codec::decode(datagram).map_err(|e| LinkError::Malformed(e.to_string()))?;
    Ok((message, descriptors.pop()))
}

#[repr(align(8))]
struct Control([u8; CONTROL_WORDS * 8]);

/// Connects, reads until the connection ends, and begins again, until aborted; over a pair once only.
pub(super) async fn keep(link: Arc<Link>) {
    let mut wait = BACKOFF_LEAST;
    let mut number = 0u64;
    loop {
        match link.open().await {
            Ok((connection, package)) => {
                number = number.wrapping_add(1);
                wait = BACKOFF_LEAST;
                let connection = Arc::new(connection);
                link.set_up(&connection, number, &package);
                info!(connection = number, %package, "helper connected");
                let ended = connection.read_until_end().await;
                let reason = chain(&ended);
                link.set_down(&reason);
                connection.close();
                warn!(%reason, "helper connection ended");
            }
            Err(error) => {
                let reason = chain(&error);
                let again = matches!(&*link.reach.borrow(), Reach::Down { reason: last } if **last == *reason);
                if again {
                    debug!(%reason, "helper still unreachable");
                } else {
                    warn!(%reason, "helper unreachable");
                }
                link.set_down(&reason);
            }
        }
        if let (Origin::Pair(_), Reach::Down { reason }) = (&link.origin, &*link.reach.borrow()) {
            link.lost.send_replace(Some(Arc::clone(reason)));
            return;
        }
        tokio::time::sleep(wait).await;
        wait = wait.saturating_mul(2).min(BACKOFF_MOST);
    }
}
