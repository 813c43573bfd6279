//! How a standalone node and root's side end: by whom, in which order, and with their last words told.
use super::*;
use bcd_tests::daemons::spawn_standalone;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;

#[test]
fn the_last_words_of_a_node_are_there_before_it_is_gone() {
    if !bcd_tests::real("the_last_words_of_a_node_are_there_before_it_is_gone") {
        return;
    }
    let place = Place::new("words");
    // In order, and for a reason of its own: no data_dir.
    let daemon = daemons::standalone(&place);
    wait_for_helper(&daemon);
    let (log, relay) = (place.root().join("standalone.log"), relay_of(daemon.pid()));
    daemon.stop();
    // Read once: whoever started it sees no more than this.
    let text = fs::read_to_string(&log).expect("a log");
    assert!(text.lines().last().is_some_and(|line| line.contains("the helper has ended")), "{text}");
    assert!(!is_relay(relay));

    fs::remove_dir_all(place.data()).expect("removed");
    let mut daemon = spawn_standalone(&place, &[]);
    assert_eq!(daemon.ended(30).code(), Some(1));
    let text = fs::read_to_string(&log).expect("a log");
    assert!(text.contains("node: bcd: data_dir"), "{text}");
}

#[test]
fn both_halves_told_to_end_at_once_end_well_whichever_is_the_faster() {
    if !bcd_tests::real("both_halves_told_to_end_at_once_end_well_whichever_is_the_faster") {
        return;
    }
    let place = Place::new("both");
    let mut daemon = daemons::standalone(&place);
    wait_for_helper(&daemon);
    let helper = helper_of(daemon.pid());
    kill(helper, Signal::SIGTERM).expect("signal");
    wait_for("the loss of the helper", 10, || daemon.log().contains("helper connection ended"));
    kill(daemon.pid(), Signal::SIGTERM).expect("signal");
    assert_eq!(daemon.ended(20).code(), Some(0), "{}", daemon.log());
    assert!(daemon.log().contains("told to end, as the helper was"), "{}", daemon.log());
    assert!(!is_helper(helper));
}

#[test]
fn a_terminal_or_journal_that_goes_away_ends_neither_half() {
    if !bcd_tests::real("a_terminal_or_journal_that_goes_away_ends_neither_half") {
        return;
    }
    let place = Place::new("gone");
    let mut command = Command::new(bin("bcd"));
    command.arg("--config").arg(place.config()).args(["node", "--standalone"]).process_group(0);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("start");
    let mut child = Own(child);
    let mut lines = BufReader::new(child.0.stderr.take().expect("its log")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains("helper connected"))), "it ended");
    let node = Pid::from_raw(i32::try_from(child.0.id()).expect("a pid"));
    let (helper, relay) = (helper_of(node), relay_of(node));
    drop(lines);
    wait_for("its socket", 30, || std::os::unix::net::UnixStream::connect(place.node_socket()).is_ok());
    // Told by the node into nothing; what it asks of the helper meanwhile is told by that.
    (0..3).for_each(|number| attacks::refused_document(&place, number));
    let document = place.root().join("spec.toml");
    fs::write(&document, "").expect("a document");
    let output = Command::new(bin("bcd")).arg("--config").arg(place.config()).arg("apply").arg(&document).output();
    let output = output.expect("run bcd");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(is_helper(helper) && is_relay(relay));
    let output = Command::new(bin("bcd")).arg("--config").arg(place.config()).args(["status", "--json"]).output();
    let status: serde_json::Value = serde_json::from_slice(&output.expect("run bcd").stdout).expect("a status");
    assert_eq!(status["helper"]["state"], "connected", "{status}");
    kill(node, Signal::SIGTERM).expect("signal");
    let mut ended = None;
    wait_for("the node's end", 20, || {
        ended = child.0.try_wait().expect("wait");
        ended.is_some()
    });
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    wait_for("the end of root's side", 10, || !is_helper(helper) && !is_relay(relay));
}

/// Takes every socket of a process and its output, as one that it forked would have them, says how many sockets, and keeps them.
const FORK: &str = r#"
import ctypes, os, sys, time
node = int(sys.argv[1])
pidfd, kernel, sockets = os.pidfd_open(node), ctypes.CDLL(None), 0
for fd in os.listdir(f'/proc/{node}/fd'):
    to = os.readlink(f'/proc/{node}/fd/{fd}')
    if to.startswith(('socket:', 'pipe:')):
        if kernel.syscall(438, pidfd, int(fd), 0) < 0: sys.exit(f'{fd}: {to}')
        sockets += to.startswith('socket:')
print(sockets, flush=True)
time.sleep(600)
"#;

#[test]
fn roots_side_ends_with_its_node_though_a_fork_of_that_keeps_the_pair_and_the_pipe() {
    let test = "roots_side_ends_with_its_node_though_a_fork_of_that_keeps_the_pair_and_the_pipe";
    if !bcd_tests::real(test) {
        return;
    }
    let place = Place::new("fork");
    let daemon = daemons::standalone(&place);
    wait_for_helper(&daemon);
    let node = daemon.pid();
    let (helper, relay, log) = (helper_of(node), relay_of(node), place.root().join("standalone.log"));
    let mut fork = Command::new("python3");
    fork.args(["-c", FORK, &node.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut fork = match fork.spawn() {
        Ok(fork) => Own(fork),
        Err(error) => {
            eprintln!("{test} skipped: no python3 to be a fork ({error})");
            return;
        }
    };
    let said = BufReader::new(fork.0.stdout.take().expect("its output")).lines().next();
    let sockets: u32 = said.and_then(Result::ok).and_then(|line| line.parse().ok()).expect("it has them");
    assert!(sockets > 0, "it has no pair");
    daemon.kill();
    wait_for("the helper's end", 10, || !is_helper(helper));
    wait_for("the end of what copies the log", 10, || !is_relay(relay));
    assert!(fork.0.try_wait().expect("wait").is_none(), "it holds both still");
    let text = fs::read_to_string(&log).expect("a log");
    assert!(text.contains("the node is gone") && text.contains("stopped"), "{text}");
}
