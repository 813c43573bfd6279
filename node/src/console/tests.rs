//! Consoles over real ptys: the test plays QEMU at the master, the hub has the slave.
use super::*;
use bytes::Bytes;
use nix::fcntl::OFlag;
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Instant;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(10);

/// Gives the hub one prepared descriptor after the other; none left: `Unavailable`.
#[derive(Default)]
struct Opener {
    ready: Mutex<VecDeque<OwnedFd>>,
}

impl ConsoleOpener for Opener {
    fn open<'a>(&'a self, _: &'a InstanceId) -> BoxFuture<'a, Result<OwnedFd, Fault>> {
        let fd = self.ready.lock().unwrap().pop_front();
        Box::pin(async move { fd.ok_or_else(|| Fault::new(FaultKind::Unavailable, "no console yet")) })
    }
}

struct Bench {
    dir: TempDir,
    opener: Arc<Opener>,
    consoles: Consoles,
    id: InstanceId,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let id = InstanceId::parse("web-1").unwrap();
        let layout = Layout::new(dir.path());
        std::fs::create_dir_all(layout.instance(&id)).unwrap();
        let opener = Arc::new(Opener::default());
        let consoles = Consoles::new(&layout, Arc::clone(&opener) as Arc<dyn ConsoleOpener>);
        Self { dir, opener, consoles, id }
    }

    /// A guest's port: the master stays here, the slave waits for the hub.
    fn port(&self) -> PtyMaster {
        let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOCTTY);
        let slave = options.open(ptsname_r(&master).unwrap()).unwrap();
        self.opener.ready.lock().unwrap().push_back(slave.into());
        master
    }

    async fn started(&self, boot: u64) -> PtyMaster {
        let master = self.port();
        self.consoles.started(&self.id, Boot(boot));
        assert!(self.consoles.connected(&self.id, PATIENCE).await);
        master
    }

    async fn attach(&self, attach: Attach) -> Session {
        self.consoles.attach(&self.id, attach).await.unwrap()
    }
}

/// Writes as a guest does, on a thread of its own; answers how long it took.
async fn print(master: PtyMaster, text: Vec<u8>) -> (PtyMaster, Duration) {
    let begun = Instant::now();
    let printing = tokio::task::spawn_blocking(move || {
        let mut master = master;
        master.write_all(&text).unwrap();
        master
    });
    let master = tokio::time::timeout(PATIENCE, printing).await.expect("the guest stalls").unwrap();
    (master, begun.elapsed())
}

/// Reads a session until `text` has come.
async fn read_until(session: &mut Session, text: &str) -> String {
    let mut seen = Vec::new();
    let found = tokio::time::timeout(PATIENCE, async {
        while let Some(piece) = session.next().await {
            // Only the end is searched, or long outputs take long.
            let from = seen.len().saturating_sub(text.len());
            seen.extend_from_slice(&piece);
            if seen[from..].windows(text.len()).any(|w| w == text.as_bytes()) {
                return true;
            }
        }
        false
    });
    let found = found.await.unwrap_or(false);
    let seen = String::from_utf8_lossy(&seen).into_owned();
    let end = seen.get(seen.len().saturating_sub(300)..).unwrap_or(&seen);
    assert!(found, "{text:?} did not come; {} bytes did, at the end {end:?}", seen.len());
    seen
}

/// What the guest received, once it is `length` bytes.
async fn received(master: PtyMaster, length: usize) -> (PtyMaster, Vec<u8>) {
    let reading = tokio::task::spawn_blocking(move || {
        let mut master = master;
        let mut bytes = vec![0_u8; length];
        master.read_exact(&mut bytes).unwrap();
        (master, bytes)
    });
    tokio::time::timeout(PATIENCE, reading).await.expect("input reaches the guest").unwrap()
}

#[tokio::test]
async fn a_late_viewer_sees_what_was_printed_before_and_then_what_comes_each_once() {
    let bench = Bench::new();
    let master = bench.started(1).await;
    let (master, _) = print(master, b"first line\r\n".to_vec()).await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    let (master, _) = print(master, b"second line\r\n".to_vec()).await;
    let mut viewer = bench.attach(Attach::Control).await;
    let (_master, _) = print(master, b"third line\r\n".to_vec()).await;
    let seen = read_until(&mut viewer, "third line\r\n").await;
    assert_eq!(seen, "first line\r\nsecond line\r\nthird line\r\n");
}

#[tokio::test]
async fn a_guest_that_nobody_watches_never_stalls_and_its_first_and_latest_mebibyte_are_kept() {
    let bench = Bench::new();
    let mut master = bench.started(1).await;
    let line = |n: u32| format!("line {n:09}\r\n").into_bytes();
    // 5 MiB in lines of 16 bytes, far more than a pty's own buffer.
    for block in 0..5_u32 {
        let text: Vec<u8> = (0..65_536).flat_map(|n| line(block * 65_536 + n)).collect();
        (master, _) = print(master, text).await;
    }
    let mut viewer = bench.attach(Attach::ReadOnly).await;
    let seen = read_until(&mut viewer, "line 000327679").await;
    assert!(seen.starts_with("line 000000000\r\nline 000000001\r\n"));
    assert!(seen.contains("bytes are left out here]"), "the gap is told");
    assert!(seen.contains("line 000065535\r\n\r\n[bcd: "), "the first MiB is whole up to the notice");
    assert!(seen.contains("line 000262145\r\n"), "the latest MiB is whole");
    assert!(seen.len() < 3 << 20, "the backlog is bounded: {}", seen.len());
    drop(master);
}

#[tokio::test]
async fn a_viewer_that_reads_nothing_is_dropped_with_a_notice_and_stalls_neither_guest_nor_others() {
    let bench = Bench::new();
    let master = bench.started(1).await;
    let mut stuck = bench.attach(Attach::ReadOnly).await;
    let mut good = bench.attach(Attach::Control).await;
    let reading = tokio::spawn(async move { read_until(&mut good, "the end").await.len() });
    let mut text = vec![b'x'; 3 << 20];
    text.extend_from_slice(b"the end");
    let (_master, took) = print(master, text).await;
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert_eq!(reading.await.unwrap(), (3 << 20) + "the end".len(), "the other viewer misses nothing");
    let mut seen = Vec::new();
    while let Some(piece) = tokio::time::timeout(PATIENCE, stuck.next()).await.expect("it ends") {
        seen.extend_from_slice(&piece);
    }
    let seen = String::from_utf8_lossy(&seen);
    assert!(seen.contains("bytes behind and is detached"), "…{}", &seen[seen.len().saturating_sub(100)..]);
    assert!(seen.len() <= session::QUEUE_BYTES + 200, "its queue was bounded: {}", seen.len());
}

#[tokio::test]
async fn the_newest_viewer_writes_and_the_one_before_is_told_and_reads_on() {
    let bench = Bench::new();
    let master = bench.started(1).await;
    let mut first = bench.attach(Attach::Control).await;
    first.input().write(Bytes::from_static(b"one")).await.unwrap();
    let (master, bytes) = received(master, 3).await;
    assert_eq!(bytes, b"one");

    let second = bench.attach(Attach::Control).await;
    read_until(&mut first, "another client has taken over the input").await;
    assert_eq!(first.input().write(Bytes::from_static(b"lost")).await, Err(InputRefused::ReadOnly));
    second.input().write(Bytes::from_static(b"two")).await.unwrap();
    let (master, bytes) = received(master, 3).await;
    assert_eq!(bytes, b"two");
    let (master, _) = print(master, b"both see this\r\n".to_vec()).await;
    read_until(&mut first, "both see this").await;

    // A reader takes nothing over, and when the writer leaves nobody inherits the input unasked.
    let reader = bench.attach(Attach::ReadOnly).await;
    assert_eq!(reader.input().write(Bytes::from_static(b"no")).await, Err(InputRefused::ReadOnly));
    second.input().write(Bytes::from_static(b"still two")).await.unwrap();
    let (_master, bytes) = received(master, 9).await;
    assert_eq!(bytes, b"still two");
    drop(second);
    assert_eq!(first.input().write(Bytes::from_static(b"no")).await, Err(InputRefused::ReadOnly));
}

#[tokio::test]
async fn input_is_not_echoed_or_edited_by_the_port() {
    let bench = Bench::new();
    let master = bench.started(1).await;
    let mut viewer = bench.attach(Attach::Control).await;
    // Each of these means something to a terminal in its usual mode.
    let typed = b"a\x03b\x04c\x7f\r\n\x11\x13\x1a";
    viewer.input().write(Bytes::from_static(typed)).await.unwrap();
    let (master, bytes) = received(master, typed.len()).await;
    assert_eq!(bytes, typed);
    let (_master, _) = print(master, b"end\n".to_vec()).await;
    assert_eq!(read_until(&mut viewer, "end").await, "end\n", "no echo, no carriage return added");
}

#[tokio::test]
async fn a_guest_that_takes_no_input_still_prints() {
    let bench = Bench::new();
    let master = bench.started(1).await;
    let mut viewer = bench.attach(Attach::Control).await;
    let input = viewer.input();
    let typing = tokio::spawn(async move {
        for _ in 0..256 {
            input.write(Bytes::from(vec![b'y'; 4096])).await.unwrap();
        }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (_master, _) = print(master, b"alive\r\n".to_vec()).await;
    read_until(&mut viewer, "alive").await;
    assert!(!typing.is_finished(), "a mebibyte of input waits with its sender");
    typing.abort();
}

#[tokio::test]
async fn input_gets_through_while_the_guest_floods_its_console() {
    let bench = Bench::new();
    let mut master = bench.started(1).await;
    let mut viewer = bench.attach(Attach::Control).await;
    let mut listening = master.as_fd().try_clone_to_owned().map(std::fs::File::from).unwrap();
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let flood = tokio::task::spawn_blocking(move || {
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            master.write_all(&[b'f'; 4096]).unwrap();
        }
    });
    let reading = tokio::spawn(async move {
        viewer.input().write(Bytes::from_static(b"\x03")).await.unwrap();
        while viewer.next().await.is_some() {}
    });
    let typed = tokio::task::spawn_blocking(move || {
        let mut byte = [0_u8; 1];
        listening.read_exact(&mut byte).unwrap();
        byte
    });
    let typed = tokio::time::timeout(PATIENCE, typed).await;
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    flood.await.unwrap();
    reading.abort();
    assert_eq!(typed.expect("the interrupt arrives").unwrap(), *b"\x03");
}

#[tokio::test]
async fn a_console_that_is_lost_is_opened_again_within_a_second() {
    let bench = Bench::new();
    let master = bench.started(1).await;
    let mut viewer = bench.attach(Attach::Control).await;
    let (master, _) = print(master, b"before\r\n".to_vec()).await;
    read_until(&mut viewer, "before").await;
    // The other end goes: the hub sees a hang-up. The next port is there a moment later.
    drop(master);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    let master = bench.port();
    assert!(bench.consoles.connected(&bench.id, Duration::from_secs(1)).await);
    let (master, _) = print(master, b"after\r\n".to_vec()).await;
    read_until(&mut viewer, "after").await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    viewer.input().write(Bytes::from_static(b"still mine")).await.unwrap();
    assert_eq!(received(master, 10).await.1, b"still mine");
}

#[tokio::test]
async fn a_viewer_stays_while_its_guest_stops_and_starts_and_the_backlog_begins_anew() {
    let bench = Bench::new();
    let master = bench.started(1).await;
    let mut viewer = bench.attach(Attach::Control).await;
    let (master, _) = print(master, b"first boot\r\n".to_vec()).await;
    read_until(&mut viewer, "first boot").await;
    bench.consoles.stopped(&bench.id);
    drop(master);
    read_until(&mut viewer, "the guest is stopped").await;
    assert_eq!(viewer.input().write(Bytes::from_static(b"typed at nobody")).await, Ok(()));

    let mut late = bench.attach(Attach::ReadOnly).await;
    assert_eq!(read_until(&mut late, "boot\r\n").await, "first boot\r\n", "a stopped guest's last output is shown");

    let master = bench.started(2).await;
    read_until(&mut viewer, "the guest is started").await;
    let (master, _) = print(master, b"second boot\r\n".to_vec()).await;
    read_until(&mut viewer, "second boot").await;
    let mut late = bench.attach(Attach::Control).await;
    assert_eq!(read_until(&mut late, "boot\r\n").await, "second boot\r\n");
    late.input().write(Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(received(master, 1).await.1, b"x", "what was typed at the stopped guest never reaches the next start");
}

#[tokio::test]
async fn the_last_words_of_a_stopped_guest_are_kept() {
    let bench = Bench::new();
    let master = bench.started(1).await;
    // Printed, and the stop known, before the hub has had a chance to read.
    let mut master = master;
    master.write_all(b"kernel panic - not syncing\r\n").unwrap();
    bench.consoles.stopped(&bench.id);
    let mut late = bench.attach(Attach::ReadOnly).await;
    read_until(&mut late, "kernel panic").await;
}

#[tokio::test]
async fn the_backlog_goes_on_after_a_restart_of_the_node() {
    let mut bench = Bench::new();
    let master = bench.started(7).await;
    let (master, _) = print(master, b"before the restart\r\n".to_vec()).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    drop(master);
    // A new node: new hubs over the same files, the same start of the guest.
    let layout = Layout::new(bench.dir.path());
    bench.consoles = Consoles::new(&layout, Arc::clone(&bench.opener) as Arc<dyn ConsoleOpener>);
    let master = bench.started(7).await;
    let (_master, _) = print(master, b"after the restart\r\n".to_vec()).await;
    let mut viewer = bench.attach(Attach::ReadOnly).await;
    let seen = read_until(&mut viewer, "after the restart").await;
    assert!(seen.starts_with("before the restart\r\nafter the restart"), "{seen:?}");
}

#[tokio::test]
async fn viewers_of_a_deleted_instance_are_told_and_end_and_nobody_may_write() {
    let bench = Bench::new();
    let _master = bench.started(1).await;
    let mut viewer = bench.attach(Attach::Control).await;
    let input = viewer.input();
    bench.consoles.removed(&bench.id);
    read_until(&mut viewer, "the instance is deleted").await;
    assert_eq!(viewer.next().await, None);
    assert_eq!(input.write(Bytes::from_static(b"x")).await, Err(InputRefused::Closed));
}

#[tokio::test]
async fn one_viewer_too_many_is_refused_and_a_place_is_free_once_one_leaves() {
    let bench = Bench::new();
    let mut viewers = Vec::new();
    for _ in 0..VIEWERS {
        viewers.push(bench.attach(Attach::ReadOnly).await);
    }
    let fault = bench.consoles.attach(&bench.id, Attach::ReadOnly).await.expect_err("too many");
    assert_eq!(fault.kind(), FaultKind::ResourcesExhausted);
    viewers.pop();
    bench.attach(Attach::ReadOnly).await;
}

#[tokio::test]
async fn a_backlog_that_cannot_be_written_keeps_nobody_out() {
    let bench = Bench::new();
    std::fs::remove_dir_all(bench.dir.path().join("instances")).unwrap();
    let master = bench.started(1).await;
    let (master, _) = print(master, b"unkept\r\n".to_vec()).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut viewer = bench.attach(Attach::Control).await;
    let (_master, _) = print(master, b"live\r\n".to_vec()).await;
    read_until(&mut viewer, "live").await;
}
