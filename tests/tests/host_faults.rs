//! What an operator's host does to bcd sooner or later: a full disk, no memory, a bridge that is gone, a libvirtd that is down, a
//! clock that jumps. Each time the behaviour is a stated one, nothing is lost, and no hand is needed afterwards.
use bcd_tests::daemons::wait_for;
use bcd_tests::domains;
use bcd_tests::host::{self, DATA, RECORDS, Undo, ok, sh};
use bcd_tests::operator::{Operator, Wish};
use std::fs;
use std::time::{Duration, Instant, SystemTime};

/// An operator of a host with one running guest and nothing else, and the pid of its QEMU. The guest of the test before does.
fn with_neighbour() -> (Operator, Option<i32>) {
    let operator = host::operator();
    let _ = ok(host::BRIDGE_BACK);
    let _ = operator.apply(&[neighbour()], &["--allow-delete"]);
    operator.wait_state("neighbour", "running", host::PATIENCE);
    wait_for("the end of all others", host::PATIENCE, || {
        let one = |dir: String| fs::read_dir(dir).map_or(0, Iterator::count) == 1;
        one(format!("{DATA}/instances")) && one(RECORDS.to_owned())
    });
    let pid = domains::qemu_pid("neighbour");
    assert!(pid.is_some(), "the neighbour runs");
    (operator, pid)
}

fn neighbour() -> Wish {
    host::wired("neighbour", 40)
}

/// Waits for an instance's error of this kind; its sentence.
fn error_of(operator: &Operator, id: &str, kind: &str) -> String {
    let mut last = None;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(90) {
        last = operator.instance(id).map(|row| row["last_error"].clone());
        if let Some(error) = last.as_ref().filter(|error| error["kind"] == kind) {
            let sentence = error["message"].as_str().expect("a sentence").to_owned();
            eprintln!("{id}: {kind}: {sentence}");
            return sentence;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("{id} has no error of kind {kind} but {last:?}");
}

fn records() -> usize {
    fs::read_dir(RECORDS)
        .expect("read")
        .flatten()
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .count()
}

#[test]
fn a_full_disk_fails_what_is_new_and_touches_nothing_else() {
    if !host::inside("a_full_disk_fails_what_is_new_and_touches_nothing_else") {
        return;
    }
    let (operator, pid) = with_neighbour();
    let undo = Undo::with("rm -f /var/filler && sync");
    // All that the file system has left, with what it keeps for root.
    let _ = sh("fallocate -l $(($(stat -f -c %f /) * 4096 - (1 << 20))) /var/filler; cat /dev/zero >>/var/filler");
    let free: u64 = ok("stat -f -c %a /").parse().expect("blocks");
    assert!(free < 64, "{free} blocks are free");
    let wishes = [neighbour(), Wish::running("after")];
    let path = operator.write(&operator.document(&wishes));
    let taken = operator.bcd(&["apply", path.to_str().expect("utf-8")]);
    if taken.status.success() {
        let sentence = error_of(&operator, "after", "ResourcesExhausted");
        assert!(sentence.contains("full") || sentence.contains("space"), "{sentence}");
    } else {
        // The document could not be kept: then it is not in force either, and the answer says why.
        let error = String::from_utf8_lossy(&taken.stderr).into_owned();
        eprintln!("refused: {error}");
        assert!(error.contains("full") || error.contains("space"), "{error}");
        assert!(operator.instance("after").is_none());
    }
    assert_eq!(operator.state("neighbour").as_deref(), Some("running"));
    assert_eq!(domains::qemu_pid("neighbour"), pid, "the neighbour runs on");
    drop(undo);
    if !taken.status.success() {
        let _ = operator.apply(&wishes, &[]);
    }
    operator.wait_state("after", "running", host::PATIENCE);
    assert_eq!(domains::qemu_pid("neighbour"), pid, "the neighbour runs on");
    assert_eq!(records(), 2);
    let _ = ok(&format!("qemu-img check -q -U {DATA}/instances/neighbour/disk.qcow2"));
}

#[test]
fn a_start_without_memory_is_a_matter_of_capacity_and_is_tried_again() {
    if !host::inside("a_start_without_memory_is_a_matter_of_capacity_and_is_tried_again") {
        return;
    }
    let (operator, pid) = with_neighbour();
    let undo = Undo::with("sysctl -q vm.overcommit_memory=0 vm.overcommit_ratio=50");
    // The kernel promises no more than 600 MiB beyond what it has promised already.
    let promised: u64 = ok("awk '/Committed_AS/ { print $2 }' /proc/meminfo").parse().expect("KiB");
    let _ = ok(&format!("sysctl -q vm.overcommit_kbytes={} vm.overcommit_memory=2", promised + 600 * 1024));
    let large = Wish::running("large");
    let text = operator.document(&[neighbour(), large.clone()]);
    let at = text.rfind(&format!("memory_bytes = {}", 128 << 20)).expect("the large one's memory");
    let text =
        format!("{}{}", &text[..at], text[at..].replacen(&(128u64 << 20).to_string(), &(1024u64 << 20).to_string(), 1));
    let path = operator.write(&text);
    let _ = operator.ok(&["apply", path.to_str().expect("utf-8")]);
    let _ = error_of(&operator, "large", "ResourcesExhausted");
    assert_eq!(operator.state("large").as_deref(), Some("stopped"));
    assert_eq!(domains::qemu_pid("neighbour"), pid, "the neighbour runs on");
    drop(undo);
    operator.wait_state("large", "running", host::PATIENCE);
    assert_eq!(domains::qemu_pid("neighbour"), pid);
}

#[test]
fn a_guest_waits_for_a_missing_bridge_and_its_neighbour_does_not() {
    if !host::inside("a_guest_waits_for_a_missing_bridge_and_its_neighbour_does_not") {
        return;
    }
    let operator = host::empty();
    let undo = Undo::with(host::BRIDGE_BACK);
    let _ = ok("ip link delete brtest");
    let _ = operator.apply(&[host::wired("cut-off", 41), Wish::running("alone")], &[]);
    operator.wait_state("alone", "running", host::PATIENCE);
    let mut sentence = String::new();
    wait_for("the error of the one on the bridge", 60, || {
        let error = operator.instance("cut-off").map(|row| row["last_error"].clone()).unwrap_or_default();
        sentence = error["message"].as_str().unwrap_or_default().to_owned();
        !sentence.is_empty()
    });
    eprintln!("{sentence}");
    assert!(sentence.contains("brtest"), "the bridge is named: {sentence}");
    assert!(domains::qemu_pid("cut-off").is_none());
    drop(undo);
    wait_for("the bridge", 30, || sh("ip -br addr show brtest | grep -q 198.18.213.1").status.success());
    let _ = operator.up_line("cut-off");
    wait_for("an answer over the bridge", 60, || host::pings(41));
}

#[test]
fn while_libvirtd_is_down_guests_run_and_nothing_is_called_stopped() {
    if !host::inside("while_libvirtd_is_down_guests_run_and_nothing_is_called_stopped") {
        return;
    }
    let (operator, pid) = with_neighbour();
    let _ = operator.up_line("neighbour");
    let undo = Undo::with("systemctl start libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirtd.service");
    let _ = ok("systemctl stop libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirtd.service");
    let end = Instant::now() + Duration::from_secs(60);
    let mut asked = false;
    let mut unknown = 0;
    while Instant::now() < end {
        let state = operator.state("neighbour");
        assert!(matches!(state.as_deref(), Some("unknown" | "running")), "{state:?} while libvirtd is down");
        unknown += u32::from(state.as_deref() == Some("unknown"));
        if !asked {
            let _ = operator.apply(&[neighbour(), Wish::running("meanwhile")], &[]);
            asked = true;
        }
        assert_eq!(domains::qemu_pid("neighbour"), pid);
        std::thread::sleep(Duration::from_secs(2));
    }
    assert!(unknown > 0, "status told a state that nobody could know");
    assert!(host::pings(40), "the guest's network");
    drop(undo);
    operator.wait_state("neighbour", "running", host::PATIENCE);
    operator.wait_state("meanwhile", "running", host::PATIENCE);
    assert_eq!(domains::qemu_pid("neighbour"), pid, "the guest's process");
}

#[test]
fn a_clock_that_jumps_holds_up_nothing() {
    if !host::inside("a_clock_that_jumps_holds_up_nothing") {
        return;
    }
    /// Puts the clock this many days away from where it would be by now.
    fn jump(from: (SystemTime, Instant), days: i64) {
        let now = (from.0 + from.1.elapsed()).duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
        let _ = ok(&format!("date -s @{}", i64::try_from(now).expect("seconds") + days * 86_400));
    }
    let (operator, pid) = with_neighbour();
    // The emulated clock chip goes on as it was.
    let undo = Undo::with("hwclock --hctosys --utc");
    let begun = (SystemTime::now(), Instant::now());
    for (days, id) in [(400, "future"), (-400, "past")] {
        jump(begun, days);
        let _ = operator.apply(&[neighbour(), Wish::running(id)], &[]);
        operator.wait_state(id, "running", host::PATIENCE);
        assert_eq!(domains::qemu_pid("neighbour"), pid, "{days} days away");
        assert_eq!(operator.state("neighbour").as_deref(), Some("running"), "{days} days away");
        let _ = operator.apply(&[neighbour()], &["--allow-delete"]);
        operator.wait_gone(id, host::PATIENCE);
    }
    drop(undo);
    assert_eq!(domains::qemu_pid("neighbour"), pid);
}
