//! The client against a small server that speaks the protocol's codec and misbehaves on demand.
use super::*;
use bcd_protocol::codec;
use bcd_protocol::id::{AllocationId, DomainUuid, GuestUid, Sha256Digest};
use bcd_protocol::reply::{Denied, Failed, RecordViews, ReplyMessage, RuleName, Sentence, Welcome};
use bcd_protocol::request::{RequestId, RequestMessage};
use bcd_protocol::size::{MemoryBytes, Vcpus};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use tokio_seqpacket::ancillary::AncillaryMessageWriter;
use tokio_seqpacket::{UnixSeqpacket, UnixSeqpacketListener};

const PATIENCE: Duration = Duration::from_secs(5);

fn own_uid() -> u32 {
    nix::unistd::getuid().as_raw()
}

fn id(text: &str) -> InstanceId {
    InstanceId::parse(text).expect("an instance id")
}

fn definition() -> Definition {
    Definition {
        allocation: AllocationId::parse("a1").expect("an allocation"),
        vcpus: Vcpus::new(1).expect("a vCPU count"),
        memory: MemoryBytes::new(64 << 20).expect("a memory size"),
        disk: DiskBytes::new(64 << 20).expect("a disk size"),
        image: bcd_protocol::definition::ImageRef {
            sha256: Sha256Digest::from_bytes([7; 32]),
            format: bcd_protocol::definition::ImageFormat::Raw,
        },
        nics: Default::default(),
    }
}

fn record(name: &str) -> RecordView {
    RecordView {
        instance: id(name),
        uuid: DomainUuid::from_random([1; 16]),
        uid: GuestUid::new(limits::GUEST_UID_FIRST).expect("a guest uid"),
        definition: definition(),
        unfinished: false,
    }
}

struct Server {
    _dir: tempfile::TempDir,
    path: PathBuf,
    listener: UnixSeqpacketListener,
}

impl Server {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("helper.sock");
        let listener = UnixSeqpacketListener::bind(&path).expect("a listener");
        Self { _dir: dir, path, listener }
    }

    async fn accept(&mut self) -> Peer {
        Peer(self.listener.accept().await.expect("a connection"))
    }

    async fn welcome(&mut self) -> Peer {
        let peer = self.accept().await;
        let hello = peer.next().await;
        assert_eq!(hello.request, Request::Hello { version: bcd_protocol::PROTOCOL_VERSION });
        peer.reply(hello.id, welcome(bcd_protocol::PROTOCOL_VERSION)).await;
        peer
    }
}

fn welcome(version: u16) -> Reply {
    Reply::Hello(Welcome { version, package: Sentence::new("0.0.0-test") })
}

struct Peer(UnixSeqpacket);

impl Peer {
    async fn next(&self) -> RequestMessage {
        let mut buffer = vec![0; limits::MESSAGE_BYTES];
        let info = self.0.recv(&mut buffer).await.expect("a datagram");
        assert!(info.bytes_read() > 0, "the client closed the connection");
        codec::decode(&buffer[..info.bytes_read()]).expect("a request")
    }

    async fn reply(&self, id: RequestId, reply: Reply) {
        self.0.send(&codec::encode(&ReplyMessage { id, reply }).expect("a datagram")).await.expect("sent");
    }

    async fn reply_with(&self, id: RequestId, reply: Reply, descriptors: &[std::os::fd::BorrowedFd<'_>]) {
        let datagram = codec::encode(&ReplyMessage { id, reply }).expect("a datagram");
        let mut room = [0; 128];
        let mut writer = AncillaryMessageWriter::new(&mut room);
        writer.add_fds(descriptors).expect("room for descriptors");
        self.0.send_with_ancillary(&datagram, &mut writer).await.expect("sent");
    }

    async fn is_closed(&self) -> bool {
        let mut buffer = [0; 16];
        matches!(
            tokio::time::timeout(PATIENCE, self.0.recv(&mut buffer)).await.expect("no answer"),
            Ok(info) if info.bytes_read() == 0
        )
    }
}

async fn pair() -> (Helper, Peer, Server) {
    let mut server = Server::new();
    let helper = Helper::connect(&server.path, own_uid());
    let peer = server.welcome().await;
    helper.wait_until_up(PATIENCE).await.expect("up");
    (helper, peer, server)
}

fn page(generation: u64, names: &[&str], more: bool) -> Reply {
    let records: Vec<_> = names.iter().map(|n| record(n)).collect();
    Reply::Records(RecordsPage { generation, total: 9, records: RecordViews::try_from(records).expect("a page"), more })
}

#[tokio::test]
async fn replies_out_of_order_reach_the_requests_they_answer() {
    let (helper, peer, _server) = pair().await;
    let (a, b) = (id("a"), id("b"));
    let first = helper.start(&a, false);
    let second = helper.destroy(&b);
    let server = async {
        let one = peer.next().await;
        let two = peer.next().await;
        assert_eq!(one.request, Request::LibvirtStart { instance: a.clone(), paused: false });
        assert_eq!(two.request, Request::LibvirtDestroy { instance: b.clone() });
        peer.reply(two.id, Reply::Done { changed: false }).await;
        peer.reply(one.id, Reply::Done { changed: true }).await;
    };
    let (started, destroyed, ()) = tokio::join!(first, second, server);
    assert!(started.expect("started"));
    assert!(!destroyed.expect("destroyed"));
}

#[tokio::test]
async fn a_denial_names_its_rule_and_detail() {
    let (helper, peer, _server) = pair().await;
    let server = async {
        let request = peer.next().await;
        let rule = RuleName::try_from("bridge-not-listed".to_owned()).expect("a rule");
        peer.reply(request.id, Reply::Denied(Denied { rule, detail: Sentence::new("br7 is not listed") })).await;
    };
    let instance = id("a");
    let (answer, ()) = tokio::join!(helper.define(&instance, definition()), server);
    let fault = answer.expect_err("denied");
    assert_eq!(fault.kind(), FaultKind::Denied);
    assert!(fault.chain().contains("bridge-not-listed") && fault.chain().contains("br7 is not listed"), "{fault}");
}

#[tokio::test]
async fn failures_keep_their_kind() {
    let (helper, peer, _server) = pair().await;
    let cases = [
        (FailureKind::ResourcesExhausted, FaultKind::ResourcesExhausted),
        (FailureKind::Unavailable, FaultKind::Unavailable),
        (FailureKind::Timeout, FaultKind::Timeout),
        (FailureKind::Refused, FaultKind::Internal),
        (FailureKind::Ledger, FaultKind::Internal),
    ];
    for (sent, kept) in cases {
        let server = async {
            let request = peer.next().await;
            peer.reply(request.id, Reply::Failed(Failed { kind: sent, detail: Sentence::new("why") })).await;
        };
        let instance = id("a");
        let (answer, ()) = tokio::join!(helper.resume(&instance), server);
        assert_eq!(answer.expect_err("failed").kind(), kept);
    }
}

#[tokio::test]
async fn a_console_arrives_as_a_working_descriptor_that_closes_on_exec() {
    let (helper, peer, _server) = pair().await;
    let (near, mut far) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let server = async {
        let request = peer.next().await;
        peer.reply_with(request.id, Reply::Console, &[near.as_fd()]).await;
    };
    let instance = id("a");
    let (answer, ()) = tokio::join!(helper.console(&instance), server);
    let descriptor = answer.expect("a console");
    let flags = nix::fcntl::fcntl(&descriptor, nix::fcntl::FcntlArg::F_GETFD).expect("flags");
    assert_ne!(flags & libc::FD_CLOEXEC, 0);
    std::fs::File::from(descriptor).write_all(b"up").expect("written");
    let mut text = [0; 2];
    far.read_exact(&mut text).expect("read");
    assert_eq!(&text, b"up");
}

#[tokio::test]
async fn a_console_without_its_descriptor_ends_the_connection() {
    let (helper, peer, _server) = pair().await;
    let server = async {
        let request = peer.next().await;
        peer.reply(request.id, Reply::Console).await;
    };
    let instance = id("a");
    let (answer, ()) = tokio::join!(helper.console(&instance), server);
    assert_eq!(answer.expect_err("no descriptor").kind(), FaultKind::Unavailable);
    assert!(peer.is_closed().await);
}

#[tokio::test]
async fn a_stray_descriptor_ends_the_connection_and_is_closed() {
    let (helper, peer, _server) = pair().await;
    let (near, mut far) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let server = async {
        let request = peer.next().await;
        peer.reply_with(request.id, Reply::Done { changed: true }, &[near.as_fd()]).await;
        drop(near);
    };
    let instance = id("a");
    let (answer, ()) = tokio::join!(helper.suspend(&instance), server);
    assert_eq!(answer.expect_err("stray descriptor").kind(), FaultKind::Unavailable);
    assert!(peer.is_closed().await);
    far.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(far.read(&mut [0; 1]).expect("end of file"), 0, "the client kept the descriptor");
}

#[tokio::test]
async fn two_descriptors_on_one_reply_end_the_connection() {
    let (helper, peer, _server) = pair().await;
    let (near, far) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let server = async {
        let request = peer.next().await;
        peer.reply_with(request.id, Reply::Console, &[near.as_fd(), far.as_fd()]).await;
    };
    let instance = id("a");
    let (answer, ()) = tokio::join!(helper.console(&instance), server);
    assert_eq!(answer.expect_err("two descriptors").kind(), FaultKind::Unavailable);
    assert!(peer.is_closed().await);
}

#[tokio::test]
async fn a_reply_nobody_asked_for_ends_the_connection() {
    let (_helper, peer, _server) = pair().await;
    peer.reply(RequestId(77), Reply::Done { changed: true }).await;
    assert!(peer.is_closed().await);
}

#[tokio::test]
async fn trailing_bytes_end_the_connection() {
    let (helper, peer, _server) = pair().await;
    let server = async {
        let request = peer.next().await;
        let reply = ReplyMessage { id: request.id, reply: Reply::Done { changed: true } };
        let mut datagram = codec::encode(&reply).expect("a datagram");
        datagram.push(0);
        peer.0.send(&datagram).await.expect("sent");
    };
    let instance = id("a");
    let (answer, ()) = tokio::join!(helper.suspend(&instance), server);
    assert_eq!(answer.expect_err("trailing").kind(), FaultKind::Unavailable);
    assert!(peer.is_closed().await);
}

#[tokio::test]
async fn what_was_under_way_is_unavailable_and_the_next_connection_works() {
    let (helper, peer, mut server) = pair().await;
    let lost = async {
        peer.next().await;
        drop(peer);
    };
    let instance = id("a");
    let (answer, ()) = tokio::join!(helper.start(&instance, true), lost);
    assert_eq!(answer.expect_err("lost").kind(), FaultKind::Unavailable);
    let peer = server.welcome().await;
    helper.wait_until_up(PATIENCE).await.expect("up again");
    assert!(matches!(&*helper.reach().borrow(), Reach::Up { connection: 2, .. }));
    let server = async {
        let request = peer.next().await;
        assert_eq!(request.request, Request::LibvirtResume { instance: id("b") }, "the lost request came again");
        peer.reply(request.id, Reply::Done { changed: true }).await;
    };
    let instance = id("b");
    let (answer, ()) = tokio::join!(helper.resume(&instance), server);
    assert!(answer.expect("resumed"));
}

#[tokio::test]
async fn no_more_requests_are_under_way_than_the_bound() {
    let (helper, peer, _server) = pair().await;
    let callers: Vec<_> = (0..limits::IN_FLIGHT + 3)
        .map(|n| {
            let helper = helper.clone();
            tokio::spawn(async move { helper.resume(&id(&format!("i{n}"))).await })
        })
        .collect();
    let mut open = Vec::new();
    for _ in 0..limits::IN_FLIGHT {
        open.push(peer.next().await.id);
    }
    let one_more = tokio::time::timeout(Duration::from_millis(200), peer.next()).await;
    assert!(one_more.is_err(), "one request too many was sent");
    // A caller that stops waiting does not free its slot: the helper still works on it.
    callers[0].abort();
    let one_more = tokio::time::timeout(Duration::from_millis(200), peer.next()).await;
    assert!(one_more.is_err(), "an abandoned request freed its slot before its reply");
    for id in open {
        peer.reply(id, Reply::Done { changed: true }).await;
    }
    for _ in 0..3 {
        let request = tokio::time::timeout(PATIENCE, peer.next()).await.expect("a waiting request");
        peer.reply(request.id, Reply::Done { changed: true }).await;
    }
    for caller in callers.into_iter().skip(1) {
        assert!(caller.await.expect("not aborted").expect("resumed"));
    }
}

#[tokio::test]
async fn a_crowd_before_the_socket_is_waited_for_and_not_taken_for_another_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("helper.sock");
    let listener = UnixSeqpacketListener::bind_with_backlog(&path, 1).expect("a listener");
    let mut server = Server { _dir: dir, path, listener };
    let crowd = [UnixSeqpacket::connect(&server.path).await, UnixSeqpacket::connect(&server.path).await];
    let helper = Helper::connect(&server.path, own_uid());
    let fault = helper.wait_until_up(Duration::from_millis(200)).await.expect_err("there is no room");
    assert!(fault.chain().contains("has not answered yet"), "{fault}");
    let begun = std::time::Instant::now();
    for connection in crowd {
        drop((server.accept().await, connection.expect("a connection")));
    }
    let _peer = server.welcome().await;
    helper.wait_until_up(Duration::from_secs(5)).await.expect("up");
    assert!(begun.elapsed() < Duration::from_millis(500), "it asked again only after {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_server_of_another_uid_is_not_spoken_to() {
    let mut server = Server::new();
    let helper = Helper::connect(&server.path, own_uid().wrapping_add(1));
    let peer = server.accept().await;
    assert!(peer.is_closed().await, "the client greeted a server that is not root");
    let fault = helper.wait_until_up(Duration::from_millis(300)).await.expect_err("not up");
    assert!(fault.chain().contains("belongs to uid"), "{fault}");
}

#[tokio::test]
async fn another_protocol_version_is_told_as_such() {
    let mut server = Server::new();
    let helper = Helper::connect(&server.path, own_uid());
    let peer = server.accept().await;
    let hello = peer.next().await;
    peer.reply(hello.id, welcome(bcd_protocol::PROTOCOL_VERSION + 1)).await;
    let fault = helper.wait_until_up(Duration::from_millis(300)).await.expect_err("not up");
    assert!(fault.chain().contains("install both from one package"), "{fault}");
    assert!(peer.is_closed().await);
}

#[tokio::test]
async fn without_a_helper_a_request_fails_at_once_and_names_the_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let helper = Helper::connect(&dir.path().join("none.sock"), own_uid());
    let mut reach = helper.reach();
    let tried = reach.wait_for(|r| matches!(r, Reach::Down { reason } if reason.contains("none.sock")));
    tokio::time::timeout(PATIENCE, tried).await.expect("no attempt").expect("no reason");
    let fault = helper.generation().await.expect_err("down");
    assert_eq!(fault.kind(), FaultKind::Unavailable);
    assert!(fault.chain().contains("none.sock"), "{fault}");
}

#[tokio::test]
async fn records_are_read_page_by_page_and_anew_when_they_change_between_pages() {
    let (helper, peer, _server) = pair().await;
    let server = async {
        let request = peer.next().await;
        peer.reply(request.id, page(1, &["a", "b"], true)).await;
        let request = peer.next().await;
        assert_eq!(
            request.request,
            Request::Records { after: Some(id("b")), limit: limits::RECORDS_PER_PAGE },
            "the second page does not begin behind the first"
        );
        peer.reply(request.id, page(2, &["c"], false)).await;
        let request = peer.next().await;
        assert_eq!(request.request, Request::Records { after: None, limit: limits::RECORDS_PER_PAGE });
        peer.reply(request.id, page(2, &["a"], true)).await;
        let request = peer.next().await;
        peer.reply(request.id, page(2, &["c"], false)).await;
    };
    let (records, ()) = tokio::join!(helper.records(), server);
    let records = records.expect("records");
    assert_eq!(records.generation, 2);
    assert_eq!(records.records.iter().map(|r| r.instance.as_str()).collect::<Vec<_>>(), ["a", "c"]);
}

#[tokio::test]
async fn pages_that_never_end_are_a_fault() {
    let (helper, peer, _server) = pair().await;
    let server = async {
        let request = peer.next().await;
        peer.reply(request.id, page(1, &["a"], true)).await;
        let request = peer.next().await;
        peer.reply(request.id, page(1, &[], true)).await;
    };
    let (records, ()) = tokio::join!(helper.records(), server);
    assert_eq!(records.expect_err("endless").kind(), FaultKind::Internal);
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_connection() {
    let (helper, peer, _server) = pair().await;
    let clone = helper.clone();
    drop(helper);
    let server = async {
        let request = peer.next().await;
        peer.reply(request.id, page(5, &[], false)).await;
    };
    let (answer, ()) = tokio::join!(clone.generation(), server);
    assert_eq!(answer.expect("a generation"), (5, 9));
    drop(clone);
    assert!(peer.is_closed().await);
}

#[tokio::test]
async fn requests_that_are_never_answered_do_not_use_the_connection_up() {
    let mut server = Server::new();
    let helper = Helper::connect_with_patience(&server.path, own_uid(), Duration::from_millis(50));
    let stuck = server.welcome().await;
    helper.wait_until_up(PATIENCE).await.expect("up");
    for n in 0..limits::IN_FLIGHT / 2 {
        assert!(matches!(&*helper.reach().borrow(), Reach::Up { connection: 1, .. }), "given up after {n}");
        let fault = helper.resume(&id("stuck")).await.expect_err("no answer");
        assert_eq!(fault.kind(), FaultKind::Timeout);
    }
    let peer = tokio::time::timeout(PATIENCE, server.welcome()).await.expect("a new connection");
    helper.wait_until_up(PATIENCE).await.expect("up again");
    let server = async {
        let request = peer.next().await;
        peer.reply(request.id, Reply::Done { changed: true }).await;
    };
    let instance = id("other");
    let (answer, ()) = tokio::join!(helper.resume(&instance), server);
    assert!(answer.expect("resumed"));
    drop(stuck);
}

/// The node's end of a pair, and the helper's.
fn socket_pair() -> (OwnedFd, Peer) {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).expect("a pair");
    // Each end has its own mode; the node's stays as it comes.
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(&theirs, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("non-blocking");
    (ours, Peer(UnixSeqpacket::try_from(theirs).expect("a socket")))
}

#[tokio::test]
async fn a_pair_is_one_connection_and_its_end_is_told_once_and_for_all() {
    let (ours, peer) = socket_pair();
    let helper = Helper::over(ours);
    let hello = peer.next().await;
    peer.reply(hello.id, welcome(bcd_protocol::PROTOCOL_VERSION)).await;
    helper.wait_until_up(PATIENCE).await.expect("up");
    let asking = {
        let helper = helper.clone();
        tokio::spawn(async move { helper.start(&id("a"), false).await })
    };
    let request = peer.next().await;
    peer.reply(request.id, Reply::Done { changed: true }).await;
    assert!(asking.await.expect("a task").expect("started"));

    assert!(tokio::time::timeout(Duration::from_millis(50), helper.lost()).await.is_err(), "it is not lost yet");
    drop(peer);
    let reason = tokio::time::timeout(PATIENCE, helper.lost()).await.expect("lost");
    assert!(reason.contains("closed the connection"), "{reason}");
    assert_eq!(helper.start(&id("a"), false).await.expect_err("gone").kind(), FaultKind::Unavailable);
}

#[tokio::test]
async fn hanging_up_is_seen_at_the_other_end_though_handles_are_left() {
    let (ours, peer) = socket_pair();
    let helper = Helper::over(ours);
    let hello = peer.next().await;
    peer.reply(hello.id, welcome(bcd_protocol::PROTOCOL_VERSION)).await;
    helper.wait_until_up(PATIENCE).await.expect("up");
    let kept = helper.clone();
    helper.hang_up();
    assert!(peer.is_closed().await);
    drop(kept);

    // Nor does one that was never begun keep the other end waiting.
    let (ours, peer) = socket_pair();
    let helper = Helper::over(ours);
    helper.hang_up();
    assert!(peer.is_closed().await);
}
