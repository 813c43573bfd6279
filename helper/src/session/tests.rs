//! Tests of one connection against a real helper without libvirt: framing, order, bounds, ends.
//!
//! The ledger belongs to root, so they are skipped for others.
use super::*;
use crate::ledger;
use bcd_protocol::PROTOCOL_VERSION;
use bcd_protocol::config::Config;
use bcd_protocol::id::InstanceId;
use bcd_protocol::reply::RecordsPage;
use bcd_protocol::request::Request;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::os::fd::AsRawFd;

const NODE: u32 = 999;

struct World {
    socket: UnixSeqpacket,
    place: Arc<Place>,
    stop: watch::Sender<bool>,
    session: tokio::task::JoinHandle<()>,
    _state: tempfile::TempDir,
}

fn world(uid: u32) -> Option<World> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: the ledger belongs to root");
        return None;
    }
    let state = tempfile::Builder::new().prefix("bcd-session-test-").tempdir_in("/var/lib").unwrap();
    let config = Config::parse("[libvirt]\nuri = \"qemu:///system?socket=/nonexistent/socket\"\n").unwrap();
    let opened = ledger::open(state.path(), ledger::Holder::Listens).unwrap();
    let helper = Arc::new(Helper::new(config, NODE, true, opened, 1));
    let (ours, socket) = UnixSeqpacket::pair().unwrap();
    let peer = Peer { uid, pid: 1 };
    let place = Arc::new(Place::new(peer, Duration::from_secs(limits::HANDSHAKE_SECONDS), std::time::Instant::now()));
    let (stop, stopping) = watch::channel(false);
    let session = tokio::spawn(run(helper, ours, peer, Arc::clone(&place), stopping));
    Some(World { socket, place, stop, session, _state: state })
}

impl World {
    async fn send(&self, id: u64, request: Request) {
        let bytes = codec::encode(&RequestMessage { id: RequestId(id), request }).unwrap();
        self.socket.send(&bytes).await.unwrap();
    }

    async fn recv(&self) -> Option<ReplyMessage> {
        let mut buffer = vec![0; limits::MESSAGE_BYTES];
        let got = tokio::time::timeout(Duration::from_secs(600), self.socket.recv(&mut buffer)).await.unwrap();
        let length = got.map_or(0, |got| got.bytes_read());
        (length > 0).then(|| codec::decode(&buffer[..length]).unwrap())
    }

    async fn greet(&self) {
        self.send(0, Request::Hello { version: PROTOCOL_VERSION }).await;
        assert!(matches!(self.recv().await.unwrap().reply, Reply::Hello(_)));
    }

    async fn rule(&self) -> String {
        let reply = self.recv().await.unwrap().reply;
        let Reply::Denied(denied) = &reply else { panic!("not denied: {reply:?}") };
        denied.rule.to_string()
    }
}

fn records() -> Request {
    Request::Records { after: None, limit: 1 }
}

fn undefine(id: &str) -> Request {
    Request::LibvirtUndefine { instance: InstanceId::parse(id).unwrap() }
}

#[tokio::test]
async fn what_is_not_a_message_closes_the_connection() {
    let message = codec::encode(&RequestMessage { id: RequestId(1), request: records() }).unwrap();
    let cut = message[..message.len() - 1].to_vec();
    let trailing = [message.as_slice(), &[0]].concat();
    let unknown = vec![0, 200];
    for bytes in [cut, trailing, unknown, vec![0xff; 16], vec![0; limits::MESSAGE_BYTES], Vec::new()] {
        let Some(world) = world(NODE) else { return };
        world.greet().await;
        world.socket.send(&bytes).await.unwrap();
        assert_eq!(world.recv().await, None, "{} bytes", bytes.len());
        world.session.await.unwrap();
    }
}

#[tokio::test]
async fn one_byte_too_many_closes_the_connection() {
    let Some(world) = world(NODE) else { return };
    world.greet().await;
    // A valid message at its beginning must not be taken for the whole.
    let mut bytes = codec::encode(&RequestMessage { id: RequestId(1), request: records() }).unwrap();
    bytes.resize(limits::MESSAGE_BYTES + 1, 0);
    world.socket.send(&bytes).await.unwrap();
    assert_eq!(world.recv().await, None);
}

#[tokio::test]
async fn a_descriptor_closes_the_connection_and_is_not_kept() {
    let Some(world) = world(NODE) else { return };
    world.greet().await;
    let (reader, writer) = nix::unistd::pipe().unwrap();
    let bytes = codec::encode(&RequestMessage { id: RequestId(1), request: records() }).unwrap();
    let passed = [writer.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&passed)];
    sendmsg::<()>(world.socket.as_raw_fd(), &[IoSlice::new(&bytes)], &rights, MsgFlags::empty(), None).unwrap();
    drop(writer);
    assert_eq!(world.recv().await, None, "not answered");
    world.session.await.unwrap();
    let mut byte = [0];
    assert_eq!(nix::unistd::read(&reader, &mut byte), Ok(0), "no copy of the other end is left anywhere");
}

#[tokio::test]
async fn a_stranger_is_told_once_and_closed() {
    for uid in [0, NODE + 1] {
        let Some(world) = world(uid) else { return };
        world.send(1, Request::Hello { version: PROTOCOL_VERSION }).await;
        assert_eq!(world.rule().await, "peer-uid");
        assert_eq!(world.recv().await, None, "one answer, then the end");
    }
}

#[tokio::test]
async fn nothing_is_answered_before_hello_and_hello_once() {
    let Some(world) = world(NODE) else { return };
    world.send(1, records()).await;
    assert_eq!(world.rule().await, "hello-first");
    world.send(2, Request::Hello { version: PROTOCOL_VERSION + 1 }).await;
    assert_eq!(world.rule().await, "protocol-version");
    world.greet().await;
    world.send(3, Request::Hello { version: PROTOCOL_VERSION }).await;
    assert_eq!(world.rule().await, "hello-twice");
}

#[tokio::test]
async fn pipelined_requests_are_each_answered_once() {
    let Some(world) = world(NODE) else { return };
    world.greet().await;
    let count = 4 * u64::try_from(limits::IN_FLIGHT).unwrap();
    let sending = async {
        for id in 0..count {
            let request = if id % 3 == 0 { undefine(&format!("i{}", id % 7)) } else { records() };
            world.send(id, request).await;
        }
    };
    let receiving = async {
        let mut seen = Vec::new();
        for _ in 0..count {
            seen.push(world.recv().await.unwrap().id.0);
        }
        seen
    };
    let ((), mut seen) = tokio::join!(sending, receiving);
    seen.sort_unstable();
    assert_eq!(seen, (0..count).collect::<Vec<_>>());
}

#[tokio::test]
async fn requests_on_one_instance_are_answered_in_their_order() {
    let Some(world) = world(NODE) else { return };
    world.greet().await;
    // Denied at once when it is alone; behind one that asks libvirt it has to wait for its turn.
    let start = Request::LibvirtStart { instance: InstanceId::parse("a").unwrap(), paused: false };
    world.send(1, undefine("a")).await;
    world.send(2, start).await;
    world.send(3, records()).await;
    let order = [world.recv().await.unwrap(), world.recv().await.unwrap(), world.recv().await.unwrap()];
    let of = |id: u64| order.iter().position(|reply| reply.id.0 == id).unwrap();
    assert!(of(1) < of(2), "{order:?}");
    assert_eq!(of(3), 0, "another request overtakes: {order:?}");
}

#[tokio::test]
async fn without_libvirt_nothing_is_known_and_nothing_done() {
    let Some(world) = world(NODE) else { return };
    world.greet().await;
    world.send(1, undefine("a")).await;
    assert_eq!(world.rule().await, "domain-unknown");
    world.send(2, records()).await;
    let reply = world.recv().await.unwrap().reply;
    assert!(matches!(reply, Reply::Records(RecordsPage { total: 0, generation: 1, .. })), "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_never_greets_is_closed() {
    let Some(world) = world(NODE) else { return };
    let begun = Instant::now();
    assert_eq!(world.recv().await, None);
    assert_eq!(begun.elapsed().as_secs(), limits::HANDSHAKE_SECONDS);
}

#[tokio::test(start_paused = true)]
async fn one_that_has_greeted_may_be_silent() {
    let Some(world) = world(NODE) else { return };
    world.greet().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    world.send(1, records()).await;
    assert!(world.recv().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_is_closed_and_asks_no_more_than_the_bounds() {
    let Some(world) = world(NODE) else { return };
    world.greet().await;
    let begun = Instant::now();
    let bytes = codec::encode(&RequestMessage { id: RequestId(1), request: records() }).unwrap();
    let mut sent = 0usize;
    while world.socket.send(&bytes).await.is_ok() {
        sent += 1;
        assert!(sent < 100_000, "it goes on reading although nobody reads its replies");
    }
    world.session.await.unwrap();
    assert!(begun.elapsed() >= STALL && begun.elapsed() < 2 * STALL, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_evicted_connection_ends() {
    let Some(world) = world(NODE) else { return };
    world.greet().await;
    world.place.evict();
    assert_eq!(world.recv().await, None);
}

#[tokio::test]
async fn told_to_stop_it_answers_what_is_under_way_and_reads_no_more() {
    let Some(world) = world(NODE) else { return };
    world.greet().await;
    world.send(1, undefine("a")).await;
    // The one behind it was read too once it is answered: it overtakes.
    world.send(2, records()).await;
    assert_eq!(world.recv().await.unwrap().id.0, 2);
    world.stop.send(true).unwrap();
    assert_eq!(world.recv().await.unwrap().id.0, 1, "what was read is answered");
    assert_eq!(world.recv().await, None, "and then it ends");
    world.session.await.unwrap();
}

#[test]
fn a_request_that_ends_after_it_was_answered_as_too_slow_is_told_by_its_audit_event_alone() {
    let request = Request::LibvirtStart { instance: InstanceId::parse("web-1").unwrap(), paused: false };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let text = crate::log::captured(|| {
        runtime.block_on(async {
            let entry = Entry::begin(Peer { uid: NODE, pid: 1 }, &request);
            let ends = async { Answer::failed(FailureKind::Refused, "what libvirt said", Decision::Granted) };
            late(tokio::spawn(ends), entry.clone()).await;
            late(tokio::spawn(async { panic!("a mistake") }), entry).await;
        });
    });
    let of_it = |line: &str| line.contains("verb=\"libvirt.start\"") && line.contains("instance=\"web-1\"");
    assert!(text.lines().all(of_it), "{text}");
    let [ended, lost] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(ended.contains("outcome=\"failed-refused\"") && !ended.contains("libvirt said"), "{text}");
    assert!(lost.contains("outcome=\"unknown\""), "{text}");
}
