//! One client that floods the helper, and a second one that still gets its answers.
use bcd_protocol::reply::Reply;
use bcd_protocol::request::Request;
use bcd_tests::daemons::bin;
use bcd_tests::host::{self, HELPER_SOCKET, unit};
use bcd_tests::wire::Wire;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the flood lasts, seconds.
const SECONDS: u64 = 20;
/// The longest that a second client may wait.
const BOUND: Duration = Duration::from_secs(1);
/// What the helper may have had resident at the most, KiB.
const RESIDENT_KIB: u64 = 64 * 1024;

/// Connects, greets, and asks one question: how long all of it took.
fn answered() -> Duration {
    let user = host::node_user();
    let begun = Instant::now();
    let wire = Wire::connect_as(Path::new(HELPER_SOCKET), user.uid.as_raw(), user.gid.as_raw()).expect("connect");
    let reply = wire.greeted().call(&Request::Records { after: None, limit: 1 });
    assert!(matches!(reply, Reply::Records(_)), "{reply:?}");
    begun.elapsed()
}

/// The slowest and the middle one of as many answers as fit into `time`.
fn measure(time: Duration) -> (Duration, Duration, usize) {
    let end = Instant::now() + time;
    let mut took = Vec::new();
    while Instant::now() < end {
        took.push(answered());
        std::thread::sleep(Duration::from_millis(20));
    }
    took.sort();
    (*took.last().expect("one"), took[took.len() / 2], took.len())
}

#[test]
fn a_flood_keeps_nobody_from_an_answer_and_takes_no_memory() {
    if !host::inside("a_flood_keeps_nobody_from_an_answer_and_takes_no_memory") {
        return;
    }
    let pid = unit("bcd-helper.service", "MainPID");
    let (quiet, middle, count) = measure(Duration::from_secs(4));
    eprintln!("without a flood: {count} answers, {middle:?} in the middle, {quiet:?} at the most");

    // In a control group of its own, as a node that was taken over is.
    let flood = Command::new("systemd-run")
        .args(["--quiet", "--pipe", "--wait", "--collect", "--uid=bcd", "--gid=bcd"])
        .arg(bin("flood"))
        .args([HELPER_SOCKET, &SECONDS.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the flood");
    std::thread::sleep(Duration::from_secs(1));
    let (slowest, middle, count) = measure(Duration::from_secs(SECONDS - 3));
    let most_files = fs::read_dir(format!("/proc/{pid}/fd")).expect("the helper's descriptors").count();
    let output = flood.wait_with_output().expect("the flood's end");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    eprintln!(
        "during it: {count} answers, {middle:?} in the middle, {slowest:?} at the most; {most_files} descriptors\n{told}"
    );
    assert!(output.status.success(), "{told}");
    for line in told.lines() {
        let many = line.split_once(' ').and_then(|(number, _)| number.parse::<u64>().ok()).expect("a number");
        assert!(many >= 20, "that was no flood: {line}");
    }
    assert!(count >= 8, "a second client got {count} answers in all");
    assert!(slowest < BOUND, "a second client waited {slowest:?}, without a flood {quiet:?}");

    assert_eq!(unit("bcd-helper.service", "MainPID"), pid, "the helper was started again");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the helper's status");
    let resident =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let peak = fs::read_to_string("/sys/fs/cgroup/system.slice/bcd-helper.service/memory.peak").expect("memory.peak");
    eprintln!("the helper's memory: {resident:?} KiB resident at the most, its control group {} bytes", peak.trim());
    assert!(resident.expect("VmHWM") <= RESIDENT_KIB, "{resident:?} KiB");
    assert!(most_files < 128, "{most_files} descriptors");
    // And it has forgotten the flood.
    let (after, _, _) = measure(Duration::from_secs(2));
    assert!(after < BOUND, "{after:?} after the flood");
}
