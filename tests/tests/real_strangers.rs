//! Users who reach the helper's socket, because they are members of its group, and are not the one whom it answers.
//!
//! Room: `tests`. Needs root and no libvirtd.
use bcd_protocol::limits;
use bcd_tests::daemons;
use bcd_tests::place::Place;
use bcd_tests::wire::{Wire, as_user};
use nix::unistd::Pid;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A member of the group who is nobody to the helper.
const STRANGER: u32 = 65_534;

/// How many connections such a user makes.
const CROWD: usize = 1_000;

/// What a process of this number has: open descriptors, and kibibytes of private memory.
fn held(pid: Pid) -> (usize, u64) {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its memory");
    (descriptors, line.trim().trim_end_matches(" kB").parse().expect("a number"))
}

fn records(wire: &mut Wire) -> Duration {
    let begun = Instant::now();
    let _ = wire.records();
    begun.elapsed()
}

/// Ends a flood, also when the test fails meanwhile.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_crowd_of_strangers_in_the_nodes_group_keeps_the_node_from_nothing() {
    if !bcd_tests::real("a_crowd_of_strangers_in_the_nodes_group_keeps_the_node_from_nothing") {
        return;
    }
    let place = Place::new("strangers");
    let helper = daemons::helper(&place);
    let gid = place.node_gid().as_raw();
    // The node's own, some of them before their first word: the crowd must not drive out one of them.
    let greeted: Vec<Wire> = (0..2).map(|_| Wire::welcomed(&place)).collect();
    let before = held(helper.pid());
    let silent: Vec<Wire> = (0..2).map(|_| Wire::of_node(&place).expect("connect")).collect();

    let crowd: Vec<Wire> = (0..CROWD)
        .map(|n| {
            Wire::connect_as(&place.helper_socket(), STRANGER, gid).unwrap_or_else(|e| panic!("stranger {n}: {e}"))
        })
        .collect();
    let begun = Instant::now();
    for stranger in &crowd {
        assert!(stranger.is_closed(), "a stranger is answered nothing");
    }
    assert!(begun.elapsed() < Duration::from_secs(limits::HANDSHAKE_SECONDS), "closed at once and not as silent");
    drop(crowd);
    for wire in silent {
        records(&mut wire.greeted());
    }

    // And while they come without end.
    let end = AtomicBool::new(false);
    let slowest = std::thread::scope(|scope| {
        let flooding = Ends(&end);
        let flood = scope.spawn(|| {
            as_user(STRANGER, gid, || {
                let mut connections = 0;
                while !end.load(Ordering::Relaxed) {
                    connections += usize::from(Wire::connect(&place.helper_socket()).is_ok());
                }
                connections
            })
        });
        let mut slowest = Duration::ZERO;
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            let begun = Instant::now();
            let mut wire = Wire::welcomed(&place);
            records(&mut wire);
            slowest = slowest.max(begun.elapsed());
        }
        let (descriptors, memory) = held(helper.pid());
        assert!(descriptors <= before.0 + 2 + 8, "{descriptors} descriptors, {} before", before.0);
        assert!(memory <= before.1 + 4 * 1024, "{memory} KiB, {} before", before.1);
        drop(flooding);
        let connections = flood.join().expect("the flood");
        assert!(connections > CROWD, "{connections} connections are no flood");
        eprintln!("{connections} more connections of a stranger; the node's slowest answer took {slowest:?}");
        slowest
    });
    assert!(slowest < Duration::from_secs(1), "the node waited {slowest:?}");
    for mut wire in greeted {
        records(&mut wire);
    }
    let log = helper.log();
    let lines = log.lines().filter(|line| line.contains(&format!("peer_uid={STRANGER}"))).count();
    assert!((1..=63).contains(&lines), "{lines} lines about strangers: they are counted");
    assert!(!log.contains("makes room"), "{log}");
    helper.stop();
}
