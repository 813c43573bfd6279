//! One connection: datagrams in, replies out.
//!
//! Room: `helper`. At most [`limits::IN_FLIGHT`] requests are open on a connection, and no more than [`QUEUED_BYTES`] of
//! replies wait for its peer: until then nothing more is read from it. What is not a message closes this connection and
//! no other. No descriptor is ever taken from a peer: there is no room for one, and the kernel says when one was sent.
use crate::audit::{self, Decision, Entry};
use crate::effect;
use crate::pipeline::{Answer, Helper, Passed};
use crate::serve::Place;
use bcd_policy::{Peer, Rule};
use bcd_protocol::codec::{self, DecodeError};
use bcd_protocol::limits;
use bcd_protocol::reply::{FailureKind, Reply, ReplyMessage};
use bcd_protocol::request::{RequestId, RequestMessage};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Sleep};
use tokio_seqpacket::UnixSeqpacket;
use tokio_seqpacket::ancillary::AncillaryMessageWriter;

#[cfg(test)]
mod tests;

/// Bytes of replies that may wait for a peer that does not read.
const QUEUED_BYTES: usize = 256 * 1024;

/// How long a peer may leave a reply lying in a full socket.
const STALL: Duration = Duration::from_secs(30);

/// How long a request may take until it is answered that it takes too long. Its effect goes on, and is recorded. Less
/// than what the node waits for.
const DEADLINE: Duration = Duration::from_secs(110);

/// A reply on its way.
#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    descriptor: Option<Passed>,
}

/// Why a connection ends, when it is not the peer's own wish.
#[derive(Debug, thiserror::Error)]
enum Closed {
    #[error("more than {} bytes in one datagram", limits::MESSAGE_BYTES)]
    Oversized,
    #[error("descriptors or other control data came with a datagram")]
    Control,
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    #[error("no hello within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("a reply lay unread for {} s", STALL.as_secs())]
    Stalled,
    #[error("it is not the node user's")]
    Stranger,
    #[error("it made room for another")]
    Evicted,
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// Serves one connection to its end.
pub(crate) async fn run(
    helper: Arc<Helper>,
    socket: UnixSeqpacket,
    peer: Peer,
    place: Arc<Place>,
    stopping: watch::Receiver<bool>,
) {
    tracing::debug!(peer_uid = peer.uid, peer_pid = peer.pid, "connected");
    let (finished, finish) = mpsc::channel(limits::IN_FLIGHT);
    let session = Session {
        helper,
        socket,
        peer,
        place,
        greeted: false,
        stranger: false,
        open: 0,
        queue: VecDeque::new(),
        queued: 0,
        finished,
    };
    match session.serve(finish, stopping).await {
        Ok(()) => tracing::debug!(peer_uid = peer.uid, peer_pid = peer.pid, "disconnected"),
        // Whoever drove it out was logged already, and a flood drives out many.
        Err(Closed::Evicted) => tracing::debug!(peer_uid = peer.uid, peer_pid = peer.pid, "made room"),
        Err(cause) if audit::told(peer) => {
            tracing::warn!(target: "wire", peer_uid = peer.uid, peer_pid = peer.pid, %cause, "connection closed");
        }
        Err(_) => {}
    }
}

struct Session {
    helper: Arc<Helper>,
    socket: UnixSeqpacket,
    peer: Peer,
    place: Arc<Place>,
    greeted: bool,
    stranger: bool,
    /// Requests under way whose reply is not in the queue yet.
    open: usize,
    queue: VecDeque<Outgoing>,
    queued: usize,
    finished: mpsc::Sender<Outgoing>,
}

impl Session {
    async fn serve(
        mut self,
        mut finish: mpsc::Receiver<Outgoing>,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), Closed> {
        let mut buffer = vec![0; limits::MESSAGE_BYTES].into_boxed_slice();
        let clock = tokio::time::sleep(self.place.greeting());
        tokio::pin!(clock);
        let mut stalling = false;
        let mut stop = *stopping.borrow();
        loop {
            if self.queue.is_empty() && self.open == 0 && stop {
                return Ok(());
            }
            if self.queue.is_empty() && self.stranger {
                return Err(Closed::Stranger);
            }
            let sending = !self.queue.is_empty();
            if self.greeted && sending != stalling {
                stalling = sending;
                if sending {
                    arm(clock.as_mut(), STALL);
                }
            }
            let room = !stop && !self.stranger && self.has_room();
            tokio::select! {
                biased;
                () = self.place.evicted() => return Err(Closed::Evicted),
                sent = send(&self.socket, self.queue.front()), if sending => {
                    match sent {
                        Ok(()) => {}
                        // It left without waiting for the answer: its own wish, and no news however often.
                        Err(cause) if is_gone(&cause) => return Ok(()),
                        Err(cause) => return Err(cause.into()),
                    }
                    if let Some(sent) = self.queue.pop_front() {
                        self.queued = self.queued.saturating_sub(sent.bytes.len());
                    }
                    stalling = false;
                }
                Some(reply) = finish.recv() => {
                    self.open = self.open.saturating_sub(1);
                    self.push(reply);
                }
                got = self.socket.recv(&mut buffer), if room => {
                    let got = match got {
                        Ok(got) => got,
                        Err(cause) if is_gone(&cause) => return Ok(()),
                        Err(cause) => return Err(cause.into()),
                    };
                    if got.truncated() {
                        return Err(Closed::Oversized);
                    }
                    if got.ancillary_truncated() {
                        return Err(Closed::Control);
                    }
                    let Some(datagram) = buffer.get(..got.bytes_read()).filter(|datagram| !datagram.is_empty()) else {
                        // The end, or an empty datagram: the two look alike, and neither asks anything.
                        return Ok(());
                    };
                    let message = codec::decode(datagram)?;
                    self.place.touch();
                    self.receive(message);
                    // One request a turn: whoever asks without an end does not keep the others waiting for it.
                    tokio::task::yield_now().await;
                }
                changed = stopping.changed(), if !stop => stop = changed.is_err() || *stopping.borrow(),
                () = clock.as_mut(), if !self.greeted || stalling => {
                    return Err(if self.greeted { Closed::Stalled } else { Closed::Silent(self.place.greeting()) });
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        self.open.saturating_add(self.queue.len()) < limits::IN_FLIGHT && self.queued < QUEUED_BYTES
    }

    fn push(&mut self, reply: Outgoing) {
        self.queued = self.queued.saturating_add(reply.bytes.len());
        self.queue.push_back(reply);
    }

    /// Answers a request at once or sets it going.
    fn receive(&mut self, message: RequestMessage) {
        let RequestMessage { id, request } = message;
        let entry = Entry::begin(self.peer, &request);
        if let Some(answer) = self.helper.answer_at_once(self.peer, self.greeted, &request) {
            if matches!(answer.reply, Reply::Hello(_)) {
                self.greeted = true;
                self.place.greet();
            }
            self.stranger |= answer.decision == Decision::Denied(Rule::PeerUid);
            let reply = finish(entry, id, answer);
            self.push(reply);
            return;
        }
        let Some(counted) = self.helper.count() else {
            let detail = "the helper has too many requests under way: ask again";
            let reply = finish(entry, id, Answer::failed(FailureKind::Unavailable, detail, Decision::None));
            self.push(reply);
            return;
        };
        self.open = self.open.saturating_add(1);
        let turn = self.helper.turn(&request);
        let (helper, peer, greeted) = (Arc::clone(&self.helper), self.peer, self.greeted);
        let finished = self.finished.clone();
        let mut work = tokio::spawn(async move {
            let answer = helper.answer(peer, greeted, &request, turn).await;
            drop(counted);
            answer
        });
        tokio::spawn(async move {
            let answer = match tokio::time::timeout(DEADLINE, &mut work).await {
                Ok(Ok(answer)) => answer,
                // How far it came is not known: an intent that was written stands, and is settled by what is found.
                Ok(Err(_)) => Answer::failed(FailureKind::Unavailable, effect::UNKNOWN, Decision::Lost),
                Err(_) => {
                    tokio::spawn(late(work, entry.clone()));
                    let detail = format!("it takes longer than {} s and goes on: ask again", DEADLINE.as_secs());
                    Answer::failed(FailureKind::Timeout, &detail, Decision::None)
                }
            };
            let reply = finish(entry, id, answer);
            // Nobody waits any more: the effect is done and recorded all the same.
            let _gone = finished.send(reply).await;
        });
    }
}

/// Tells how a request ended that was answered already that it takes too long: by an audit event of its own.
async fn late(work: tokio::task::JoinHandle<Answer>, entry: Entry) {
    let answer = match work.await {
        Ok(answer) => answer,
        Err(_) => Answer::failed(FailureKind::Unavailable, effect::UNKNOWN, Decision::Lost),
    };
    entry.end(answer.decision, &answer.reply);
}

/// Whether an error says no more than that the peer has left.
fn is_gone(cause: &std::io::Error) -> bool {
    matches!(cause.kind(), std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset)
}

fn arm(clock: std::pin::Pin<&mut Sleep>, after: Duration) {
    let now = Instant::now();
    clock.reset(now.checked_add(after).unwrap_or(now));
}

/// Writes the audit event and encodes the reply.
fn finish(entry: Entry, id: RequestId, answer: Answer) -> Outgoing {
    let Answer { reply, descriptor, decision } = answer;
    entry.end(decision, &reply);
    match codec::encode(&ReplyMessage { id, reply }) {
        Ok(bytes) => Outgoing { bytes, descriptor },
        Err(cause) => {
            tracing::error!(%cause, "a reply cannot be encoded");
            let detail = "the reply is too large";
            let Answer { reply, .. } = Answer::failed(FailureKind::Refused, detail, decision);
            Outgoing { bytes: codec::encode(&ReplyMessage { id, reply }).unwrap_or_default(), descriptor: None }
        }
    }
}

async fn send(socket: &UnixSeqpacket, reply: Option<&Outgoing>) -> std::io::Result<()> {
    let Some(reply) = reply else { return Ok(()) };
    match &reply.descriptor {
        None => socket.send(&reply.bytes).await?,
        Some(descriptor) => {
            let mut room = [0; 64];
            let mut control = AncillaryMessageWriter::new(&mut room);
            control.add_fds([descriptor.as_fd()]).map_err(std::io::Error::other)?;
            socket.send_vectored_with_ancillary(&[IoSlice::new(&reply.bytes)], &mut control).await?
        }
    };
    Ok(())
}
