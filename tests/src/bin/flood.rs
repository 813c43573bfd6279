//! One client of the helper that wants more than its share: `flood SOCKET SECONDS`, as the node's user.
//!
//! Room: `tests`. A process of its own, since that is what the helper counts by. It does four things at once and as fast as it
//! can: opens connections and greets on all of them, asks without an end, asks and never reads, sends descriptors and bytes
//! that mean nothing. At the end it prints how much of each.
use bcd_protocol::limits;
use bcd_protocol::request::Request;
use bcd_tests::wire::Wire;
use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Connections that the first of the four keeps open.
const KEPT: usize = 100;

/// One way of flooding a socket until a point in time; how much it was.
type Flood = fn(&Path, Instant) -> u64;

fn hello() -> Request {
    Request::Hello { version: bcd_protocol::PROTOCOL_VERSION }
}

fn page() -> Request {
    Request::Records { after: None, limit: limits::RECORDS_PER_PAGE }
}

/// Opens a connection and greets, without waiting for the welcome.
fn greet(socket: &Path) -> Option<Wire> {
    let mut wire = Wire::connect(socket).ok()?;
    wire.send(&hello()).ok()?;
    Some(wire)
}

fn connections(socket: &Path, end: Instant) -> u64 {
    let (mut kept, mut count) = (VecDeque::new(), 0);
    while Instant::now() < end {
        if let Some(wire) = greet(socket) {
            count += 1;
            kept.push_back(wire);
        }
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
    count
}

fn requests(socket: &Path, end: Instant) -> u64 {
    let mut count = 0;
    while Instant::now() < end {
        let Some(mut wire) = greet(socket) else { continue };
        let mut open = 0;
        while Instant::now() < end {
            if wire.send(&page()).is_err() {
                break;
            }
            open += 1;
            count += 1;
            if open >= limits::IN_FLIGHT && !matches!(wire.recv_raw(), Ok(Some(_))) {
                break;
            }
        }
    }
    count
}

fn deaf(socket: &Path, end: Instant) -> u64 {
    let mut count = 0;
    while Instant::now() < end {
        let Some(mut wire) = greet(socket) else { continue };
        let brief = nix::sys::time::TimeVal::new(0, 200_000);
        let _ = nix::sys::socket::setsockopt(wire.fd(), nix::sys::socket::sockopt::SendTimeout, &brief);
        while Instant::now() < end && wire.send(&page()).is_ok() {
            count += 1;
        }
    }
    count
}

fn rubbish(socket: &Path, end: Instant) -> u64 {
    let mut count = 0;
    let bytes = vec![0xA5; limits::MESSAGE_BYTES];
    while Instant::now() < end {
        let Some(wire) = greet(socket) else { continue };
        // As many descriptors as one message can carry.
        let fds = vec![wire.fd().as_raw_fd(); 253];
        while Instant::now() < end && wire.send_raw(&bytes, &fds).is_ok() {
            count += 1;
        }
    }
    count
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let socket = PathBuf::from(arguments.next().expect("the socket"));
    let seconds = arguments.next().and_then(|text| text.parse().ok()).expect("seconds");
    let end = Instant::now() + Duration::from_secs(seconds);
    let kinds: [(&str, Flood); 4] = [
        ("connections", connections),
        ("requests", requests),
        ("requests never read", deaf),
        ("messages of rubbish", rubbish),
    ];
    std::thread::scope(|scope| {
        for (name, work) in kinds {
            let socket = &socket;
            scope.spawn(move || {
                let line = format!("{} {name}\n", work(socket, end));
                std::io::stdout().write_all(line.as_bytes()).expect("print");
            });
        }
    });
}
