//! What the helper adds to a bare round trip, and how many requests it answers when they are pipelined.
use crate::echo::{Echo, turn};
use crate::report::{Direction, Report, median};
use bcd_protocol::codec;
use bcd_protocol::limits;
use bcd_protocol::reply::{Reply, ReplyMessage};
use bcd_protocol::request::{Request, RequestId, RequestMessage};
use bcd_tests::daemons;
use bcd_tests::domains::Cleaner;
use bcd_tests::files::{self, id};
use bcd_tests::place::Place;
use bcd_tests::wire::{Wire, as_user};
use std::time::Instant;
use tokio_seqpacket::UnixSeqpacket;

const RUNS: usize = 7;
const TURNS: usize = 4_000;
const PIPELINED: u64 = 20_000;

fn records(number: u64) -> Vec<u8> {
    let request = Request::Records { after: None, limit: 1 };
    codec::encode(&RequestMessage { id: RequestId(number), request }).expect("encode")
}

pub(crate) fn run(report: &mut Report) {
    let place = Place::new("bench-wire");
    let _cleaner = Cleaner { instances: vec!["bench".to_owned()] };
    let helper = daemons::helper(&place);
    let (uid, gid) = (place.node_uid().as_raw(), place.node_gid().as_raw());
    let base = files::base(&place);
    files::instance(&place, "bench", &base);
    let mut wire = Wire::welcomed(&place);
    let definition = files::definition(&base, Vec::new());
    let reply = wire.call(&Request::LibvirtDefine { instance: id("bench"), definition });
    assert!(matches!(reply, Reply::Defined(_)), "{reply:?}");

    let echo_path = place.root().join("echo.sock");
    let _echo = Echo::start(&echo_path);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        let bare = UnixSeqpacket::connect(&echo_path).await.expect("connect to the echo");
        let socket = greeted(&place, uid, gid).await;
        let mut buffer = vec![0u8; limits::MESSAGE_BYTES];
        // One reply's bytes, for the echo to carry the larger of the two ways.
        let length = turn(&socket, &records(1), &mut buffer).await;
        let message: ReplyMessage = codec::decode(&buffer[..length]).expect("a reply");
        assert!(matches!(&message.reply, Reply::Records(page) if page.records.len() == 1), "{message:?}");
        let same_size = vec![1u8; length];
        for _ in 0..RUNS {
            let bare_p50 = p50(&bare, &same_size).await;
            let helper_p50 = p50(&socket, &records(2)).await;
            println!("  echo p50 {bare_p50:.1} us, helper p50 {helper_p50:.1} us");
            ratios.push(helper_p50 / bare_p50);
            rates.push(pipelined(&socket).await);
        }
    });
    report.figure("helper_round_trip", "x bare echo", &ratios, Direction::AtMost, 4.0);
    report.figure("helper_requests_per_s", "requests/s", &rates, Direction::AtLeast, 10_000.0);
    assert_eq!(wire.call(&Request::LibvirtUndefine { instance: id("bench") }), Reply::Done { changed: true });
    helper.stop();
}

async fn greeted(place: &Place, uid: u32, gid: u32) -> UnixSeqpacket {
    // The kernel's credentials are those of the thread that connects.
    let path = place.helper_socket();
    let socket = as_user(uid, gid, || Wire::connect(&path).expect("connect")).into_fd();
    nix::fcntl::fcntl(&socket, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).expect("non-blocking");
    let socket = UnixSeqpacket::try_from(socket).expect("a socket");
    let request = Request::Hello { version: bcd_protocol::PROTOCOL_VERSION };
    let hello = codec::encode(&RequestMessage { id: RequestId(0), request }).expect("encode");
    let mut buffer = vec![0u8; limits::MESSAGE_BYTES];
    let length = turn(&socket, &hello, &mut buffer).await;
    let message: ReplyMessage = codec::decode(&buffer[..length]).expect("a reply");
    assert!(matches!(message.reply, Reply::Hello(_)), "{message:?}");
    socket
}

/// The median round trip, microseconds.
async fn p50(socket: &UnixSeqpacket, message: &[u8]) -> f64 {
    let mut buffer = vec![0u8; limits::MESSAGE_BYTES];
    let mut times = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        let begun = Instant::now();
        turn(socket, message, &mut buffer).await;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    median(&times)
}

/// Requests a second with as many under way as the protocol allows. Every reply is decoded and counted.
async fn pipelined(socket: &UnixSeqpacket) -> f64 {
    let in_flight = u64::try_from(limits::IN_FLIGHT).expect("a number");
    let mut buffer = vec![0u8; limits::MESSAGE_BYTES];
    let begun = Instant::now();
    let (mut sent, mut answered) = (0u64, 0u64);
    while answered < PIPELINED {
        while sent < PIPELINED && sent - answered < in_flight {
            socket.send(&records(sent)).await.expect("send");
            sent += 1;
        }
        let info = socket.recv(&mut buffer).await.expect("receive");
        let message: ReplyMessage = codec::decode(&buffer[..info.bytes_read()]).expect("a reply");
        assert!(matches!(message.reply, Reply::Records(_)), "{message:?}");
        answered += 1;
    }
    f64::from(u32::try_from(PIPELINED).expect("a number")) / begun.elapsed().as_secs_f64()
}
