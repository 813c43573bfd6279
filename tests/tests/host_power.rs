//! The power goes while guests run, start and are deleted: afterwards the wanted ones run, and nothing is half-made or lost.
use bcd_tests::domains;
use bcd_tests::host::{self, DATA, RECORDS, ok};
use bcd_tests::operator::{Operator, Wish};
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// How long after the last document was taken the power goes, milliseconds: while the new guest's files are made, while it
/// starts, and while the old one is on its way out.
const DELAYS: [u64; 3] = [150, 1_500, 4_000];

/// The one that each round makes, and the next one deletes.
const NEW: [&str; 4] = ["round-0", "round-1", "round-2", "round-3"];

fn names(dir: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("read {dir}: {e}"));
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// What the document wishes for after round `round` was begun.
fn wishes(round: usize) -> Vec<Wish> {
    vec![host::wired("steady", 31), Wish::stopped("resting"), Wish::running(NEW[round])]
}

fn all_is_well(operator: &Operator, round: usize) {
    let wanted: BTreeSet<String> = ["steady", "resting", NEW[round]].map(str::to_owned).into();
    for id in ["steady", NEW[round]] {
        operator.wait_state(id, "running", host::PATIENCE);
        assert!(domains::qemu_pid(id).is_some(), "{id} runs");
    }
    operator.wait_state("resting", "stopped", host::PATIENCE);
    if round > 0 {
        operator.wait_gone(NEW[round - 1], host::PATIENCE);
        assert!(domains::qemu_pid(NEW[round - 1]).is_none(), "the deleted one runs");
    }
    bcd_tests::daemons::wait_for("one directory for each instance", 60, || {
        names(&format!("{DATA}/instances")) == wanted
    });
    let records: BTreeSet<String> = wanted.iter().map(|id| format!("{id}.json")).collect();
    bcd_tests::daemons::wait_for("one record for each instance and nothing else", 60, || names(RECORDS) == records);
    let defined: BTreeSet<String> = ok("virsh -q -c qemu:///system list --all --name")
        .lines()
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    assert_eq!(defined, wanted.iter().map(|id| format!("bcd-{id}")).collect(), "libvirt's domains");
    assert_eq!(
        names(&format!("{DATA}/images")),
        [format!("{}.qcow2", operator.sha256)].into(),
        "one base image, whole"
    );
    assert_eq!(ok(&format!("sha256sum <{DATA}/images/*.qcow2")), format!("{}  -", operator.sha256));
    for id in &wanted {
        let _ = ok(&format!("qemu-img check -q -U {DATA}/instances/{id}/disk.qcow2"));
        assert!(fs::metadata(format!("{DATA}/instances/{id}/seed.iso")).expect("the seed").len() > 0);
    }
}

#[test]
fn after_a_power_cut_the_wanted_guests_run_and_nothing_is_half_made_or_lost() {
    if !host::inside("after_a_power_cut_the_wanted_guests_run_and_nothing_is_half_made_or_lost") {
        return;
    }
    let operator = host::operator();
    let cuts = usize::try_from(host::cuts()).expect("a count");
    if cuts == 0 {
        host::clear(&operator);
        let _ = operator.apply(&wishes(0), &[]);
        let _ = operator.up_line("steady");
    } else {
        // By itself: nobody has asked for anything since the boot.
        all_is_well(&operator, cuts);
        eprintln!("cut {cuts}: the wanted guests run again");
    }
    let Some(delay) = DELAYS.get(cuts) else {
        let _ = operator.up_line("steady");
        bcd_tests::daemons::wait_for("an answer over the bridge", 60, || host::pings(31));
        host::clear(&operator);
        return;
    };
    operator.wait_state(NEW[cuts], "running", host::PATIENCE);
    let _ = operator.apply(&wishes(cuts + 1), &[]);
    std::thread::sleep(Duration::from_millis(*delay));
    host::cut_power();
}
