//! The test host as its administrator sees it: bcd from its package, systemd, and the installed node's command line.
//!
//! Room: `tests`. Tests of the binaries `host_*` run inside a host that `tests/host/run` boots, one at a time and as root; they ask
//! [`inside`] first, which prints why they are skipped elsewhere. What a test changes it puts back: the host is for all of them.
use crate::daemons::wait_for;
use crate::operator::{Operator, Wish};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// The configuration of the installed pair.
pub const CONFIG: &str = "/etc/bcd/bcd.toml";
/// The installed node's files.
pub const DATA: &str = "/var/lib/bcd";
/// The installed helper's records.
pub const RECORDS: &str = "/var/lib/bcd-helper/records";
/// The installed helper's socket.
pub const HELPER_SOCKET: &str = "/run/bcd/helper.sock";
/// The host's bridge, made by its administrator, with the host's own address on it.
pub const BRIDGE: &str = "brtest";

/// Makes the bridge again as it was, if it is gone.
pub const BRIDGE_BACK: &str = "ip link show brtest >/dev/null 2>&1 || systemctl restart systemd-networkd.service";

/// How long anything that takes a guest's start may take, seconds: emulation on a machine that does other things is slow, and each
/// start has AppArmor compile a profile.
pub const PATIENCE: u64 = 240;

/// Whether this is the test host. Prints why not.
#[must_use]
pub fn inside(test: &str) -> bool {
    let set = std::env::var_os("BCD_TEST_HOST").is_some_and(|value| value == "1");
    if !set {
        eprintln!(
            "{test} skipped: it changes the host it runs on, so it runs inside the test host alone: tests/host/run"
        );
    }
    set
}

/// Runs a shell command of the administrator.
///
/// # Panics
/// When it cannot be run.
#[must_use]
pub fn sh(command: &str) -> Output {
    Command::new("bash").args(["-o", "pipefail", "-c", command]).output().expect("run bash")
}

/// Runs a shell command that must succeed, and returns what it printed.
///
/// # Panics
/// When it fails.
pub fn ok(command: &str) -> String {
    let output = sh(command);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command}\nended with {}:\n{out}\n{err}", output.status);
    out.trim_end().to_owned()
}

/// A property of a unit, as systemd tells it.
#[must_use]
pub fn unit(name: &str, property: &str) -> String {
    ok(&format!("systemctl show --value -p {property} {name}"))
}

/// The user that the package made for the node.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn node_user() -> User {
    User::from_name("bcd").expect("read users").expect("the package made user bcd")
}

/// The operator of the installed node. The image is served over https by the unit `test-images`.
#[must_use]
pub fn operator() -> Operator {
    let image = PathBuf::from(std::env::var_os("BCD_TEST_GUEST_IMAGE").expect("the test host has a guest image"));
    // In memory, so that an operator can write while the disk is full.
    let desk = Path::new("/run/test-host");
    fs::create_dir_all(desk).expect("make a directory");
    Operator::new(
        Path::new("/usr/bin/bcd"),
        Path::new(CONFIG),
        desk,
        &image,
        "https://localhost:8443/guest.qcow2".to_owned(),
        PATIENCE,
    )
}

/// As [`operator`], of a node that has no instance, on a host with its bridge: what a test that failed left is put right.
///
/// # Panics
/// When it cannot be.
#[must_use]
pub fn empty() -> Operator {
    let operator = operator();
    let _ = ok(BRIDGE_BACK);
    clear(&operator);
    operator
}

/// An instance on the host's bridge with this last byte of its address and MAC.
#[must_use]
pub fn wired(id: &'static str, last: u8) -> Wish {
    let more = format!(
        "nics = [{{ bridge = \"{BRIDGE}\", mac = \"52:54:00:62:63:{last:02x}\", addresses = [\"198.18.213.{last}/24\"] }}]"
    );
    Wish { id, state: "running", more }
}

/// Whether the guest of [`wired`] answers a ping from the host.
#[must_use]
pub fn pings(last: u8) -> bool {
    sh(&format!("ping -n -q -c 1 -W 2 198.18.213.{last}")).status.success()
}

/// Removes every instance of the installed node and waits until nothing is left of any.
///
/// # Panics
/// When something is left after four minutes.
pub fn clear(operator: &Operator) {
    let _ = operator.apply(&[], &["--allow-delete"]);
    wait_for("the end of all instances", PATIENCE, || {
        let gone = |dir: &str| fs::read_dir(dir).map_or(0, Iterator::count) == 0;
        gone(&format!("{DATA}/instances"))
            && gone(RECORDS)
            && operator.status().is_some_and(|status| status["instances"].as_array().is_some_and(Vec::is_empty))
    });
    assert_eq!(ok("virsh -q -c qemu:///system list --all --name | grep '^bcd-' || true"), "", "domains are left");
}

fn state() -> PathBuf {
    PathBuf::from(std::env::var_os("BCD_TEST_HOST_STATE").expect("the test host's own directory"))
}

/// How often the power was cut in this test so far. A test that asks for a cut is run again from its beginning after the boot.
#[must_use]
pub fn cuts() -> u32 {
    fs::read_to_string(state().join("cuts")).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Asks whoever emulates this host to kill the emulator, and waits for that.
///
/// # Panics
/// When the power is still on after a minute.
pub fn cut_power() -> ! {
    let path = state().join("cuts");
    let next = cuts() + 1;
    let mut file = File::create(&path).expect("remember the cut");
    writeln!(file, "{next}").and_then(|()| file.sync_all()).expect("remember the cut");
    File::open(state()).and_then(|dir| dir.sync_all()).expect("remember the cut");
    File::options()
        .write(true)
        .open("/dev/ttyS1")
        .and_then(|mut port| port.write_all(b"cut\n"))
        .expect("ask for the cut");
    std::thread::sleep(Duration::from_secs(60));
    panic!("the power is still on");
}

/// A ping that goes on, five a second, while things happen.
#[derive(Debug)]
pub struct Pinging(Child);

impl Pinging {
    /// Begins to ping the guest of [`wired`].
    ///
    /// # Panics
    /// When ping cannot be run.
    #[must_use]
    pub fn begin(last: u8) -> Self {
        let ping = Command::new("ping")
            .args(["-n", "-i", "0.2", "-W", "5", &format!("198.18.213.{last}")])
            .stdout(Stdio::piped())
            .spawn();
        Self(ping.expect("run ping"))
    }

    /// Ends it; every stretch without an answer was shorter than a second or so.
    ///
    /// # Panics
    /// When one was not.
    pub fn end_without_a_gap(self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).expect("a pid"));
        kill(pid, Signal::SIGINT).expect("end ping");
        let output = self.0.wait_with_output().expect("ping's output");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = |line: &str, before: &str| line.split_once(before)?.1.split(' ').next()?.parse::<u32>().ok();
        let answers: Vec<u32> = text.lines().filter_map(|line| number(line, "icmp_seq=")).collect();
        let sent = text.lines().find_map(|line| line.split_once(" packets transmitted")?.0.parse::<u32>().ok());
        let sent = sent.unwrap_or_else(|| panic!("ping did not count: {text}"));
        let longest = answers.windows(2).map(|two| two[1].saturating_sub(two[0])).max().unwrap_or(u32::MAX);
        eprintln!("{} of {sent} pings were answered; the longest gap is {longest}", answers.len());
        assert!(longest <= 5, "the network was away for {longest} pings, a fifth of a second each");
        assert!(
            answers.last().is_some_and(|last| last + 5 >= sent),
            "the last of {sent} answers are missing: {answers:?}"
        );
    }
}

/// Waits until the node tells of a running guest again. A node that does not answer and a state that is unknown are allowed
/// meanwhile; a node that answers and calls it stopped or failed, or leaves it out, never is.
///
/// # Panics
/// When it does, or is silent for a minute and a half.
pub fn told_again(operator: &Operator, id: &str, after: &str) {
    wait_for(&format!("status after {after}"), 90, || {
        let Some(status) = operator.status() else { return false };
        let rows = status["instances"].as_array().expect("instances");
        let row = rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("{id} is left out after {after}"));
        assert!(row["state"] == "unknown" || row["state"] == "running", "{row} after {after}");
        row["state"] == "running"
    });
}

/// Waits until the node answers and its helper answers it.
///
/// # Panics
/// When that takes longer than a minute and a half.
pub fn wait_connected(operator: &Operator) {
    wait_for("a node with its helper", 90, || {
        operator.status().is_some_and(|status| status["helper"]["state"] == "connected")
    });
}

/// What puts right what a test is about to do to the host: a shell command, run when this is dropped. It is kept on the disk until
/// then, so that a test that is ended from outside, by its time limit or with the host, is put right by the host itself.
#[derive(Debug)]
pub struct Undo {
    file: PathBuf,
    command: String,
}

impl Undo {
    /// Remembers the command: call it before the host is changed. Later ones are undone first.
    ///
    /// # Panics
    /// When it cannot be remembered.
    #[must_use]
    pub fn with(command: impl Into<String>) -> Self {
        let (dir, command) = (state().join("undo"), command.into());
        let numbers = fs::read_dir(&dir).expect("the list of what is to be undone").flatten();
        let last = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max().unwrap_or(0);
        let file = dir.join(format!("{:06}", last + 1));
        let mut text = File::create(&file).expect("remember what is to be undone");
        writeln!(text, "{command}").and_then(|()| text.sync_all()).expect("remember what is to be undone");
        File::open(&dir).and_then(|dir| dir.sync_all()).expect("remember what is to be undone");
        Self { file, command }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let output = sh(&self.command);
        if output.status.success() {
            let _ = fs::remove_file(&self.file);
            return;
        }
        let why = format!("{} failed: {}", self.command, String::from_utf8_lossy(&output.stderr));
        assert!(std::thread::panicking(), "{why}");
        eprintln!("{why}");
    }
}
