//! kill -9 of every part, while a guest runs and while one is being made: the guest's process is the same, and the pair
//! finishes or undoes what it had begun.
use bcd_tests::daemons::{self, wait_for};
use bcd_tests::domains;
use bcd_tests::pair::{Pair, Wish};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Node,
    Helper,
    Both,
    Libvirtd,
}

const VICTIMS: [Victim; 4] = [Victim::Node, Victim::Helper, Victim::Both, Victim::Libvirtd];

/// Of this checkout, or of the copy that the test host was given.
fn dev_libvirt() -> PathBuf {
    let copy = std::env::var_os("BCD_PACKAGING").map(PathBuf::from);
    copy.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging")).join("dev/libvirt")
}

/// Kills `victim` with SIGKILL and starts it again.
fn kill_and_restart(pair: &mut Pair, victim: Victim) {
    match victim {
        Victim::Node => pair.node.take().expect("runs").kill(),
        Victim::Helper => pair.helper.take().expect("runs").kill(),
        Victim::Both => {
            pair.node.take().expect("runs").kill();
            pair.helper.take().expect("runs").kill();
        }
        Victim::Libvirtd => {
            let output = Command::new(dev_libvirt()).arg("restart").output().expect("run packaging/dev/libvirt");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    if pair.helper.is_none() {
        pair.helper = Some(daemons::helper(&pair.place));
    }
    if pair.node.is_none() {
        pair.node = Some(daemons::node(&pair.place));
    }
}

fn records(pair: &Pair) -> usize {
    std::fs::read_dir(pair.place.state().join("records")).expect("read").count()
}

#[test]
fn a_running_guest_outlives_kill_9_of_every_part() {
    if !bcd_tests::real("a_running_guest_outlives_kill_9_of_every_part") {
        return;
    }
    let Some(mut pair) = Pair::start("outlives", &["outlives"], "") else { return };
    pair.apply(&[Wish::running("outlives")], &[]);
    let _ = pair.up_line("outlives");
    let pid = domains::qemu_pid("outlives");
    // What a console printed in the last tenth of a second before a kill may be lost; what is on disk is not.
    let backlog = pair.place.data().join("instances/outlives/console.head");
    wait_for("the up line on disk", 10, || std::fs::read_to_string(&backlog).is_ok_and(|text| text.contains("is up")));
    for victim in VICTIMS {
        kill_and_restart(&mut pair, victim);
        // Unknown is allowed meanwhile; stopped, failed or absent never is.
        wait_for(&format!("status after kill -9 of {victim:?}"), 60, || {
            let state = pair.state("outlives");
            assert!(
                matches!(state.as_deref(), None | Some("unknown" | "running")),
                "{state:?} after kill -9 of {victim:?}"
            );
            state.as_deref() == Some("running")
        });
        assert_eq!(domains::qemu_pid("outlives"), pid, "after kill -9 of {victim:?}");
        let error = pair.instance("outlives").expect("a row")["last_error"].clone();
        eprintln!("after kill -9 of {victim:?}: running, last error {error}");
    }
    // Nothing was lost on the way: the boot is still in the console's backlog, and the whole still works.
    let _ = pair.up_line("outlives");
    pair.apply(&[Wish { id: "outlives", state: "stopped", more: String::new() }], &[]);
    pair.wait_state("outlives", "stopped", 100);
    pair.apply(&[], &["--allow-delete"]);
    pair.wait_gone("outlives", 60);
    assert_eq!(records(&pair), 0);
}

#[test]
fn what_is_being_made_when_a_part_is_killed_is_finished() {
    if !bcd_tests::real("what_is_being_made_when_a_part_is_killed_is_finished") {
        return;
    }
    const IDS: [&str; 12] = ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9", "m10", "m11"];
    let Some(mut pair) = Pair::start("making", &IDS, "") else { return };
    for (round, id) in IDS.into_iter().enumerate() {
        let victim = VICTIMS[round % VICTIMS.len()];
        // From before anything is on disk to after the start.
        let delay = Duration::from_millis([0, 60, 150, 300, 500, 900][round % 6]);
        pair.apply(&[Wish::running(id)], &["--allow-delete"]);
        std::thread::sleep(delay);
        kill_and_restart(&mut pair, victim);
        pair.wait_state(id, "running", 90);
        assert!(domains::qemu_pid(id).is_some(), "{id} after kill -9 of {victim:?} at {delay:?}");
        wait_for("the one record", 60, || records(&pair) == 1);
        eprintln!("{id}: {victim:?} killed after {delay:?}, and it runs");
    }
    // And while the last one is deleted.
    for victim in VICTIMS {
        pair.apply(&[Wish::running(IDS[0])], &["--allow-delete"]);
        pair.wait_state(IDS[0], "running", 90);
        pair.apply(&[], &["--allow-delete"]);
        std::thread::sleep(Duration::from_millis(100));
        kill_and_restart(&mut pair, victim);
        pair.wait_gone(IDS[0], 120);
        wait_for("no record", 30, || records(&pair) == 0);
        assert_eq!(domains::qemu_pid(IDS[0]), None, "deleted although {victim:?} was killed");
        let left = std::fs::read_dir(pair.place.data().join("instances")).expect("read").count();
        assert_eq!(left, 0, "directories left after kill -9 of {victim:?}");
    }
}
