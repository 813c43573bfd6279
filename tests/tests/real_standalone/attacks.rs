//! What somebody with the node's rights tries against root's side: its terminal, its log, what its shell left open, and the
//! files that a start looks at.
use super::*;
use bcd_tests::daemons::spawn_standalone;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;

/// Writes into a standalone node's log as the node itself would, for it has no other way to standard error.
fn as_node_writes(node: Pid) -> fs::File {
    OpenOptions::new().write(true).open(format!("/proc/{node}/fd/2")).expect("the node's standard error")
}

/// Lines of a log that the node cannot have written.
fn roots_lines(log: &str) -> Vec<&str> {
    log.lines().filter(|line| !line.starts_with("node: ")).collect()
}

#[test]
fn what_a_node_writes_is_no_event_of_the_helpers_and_keeps_none_of_them_away() {
    if !bcd_tests::real("what_a_node_writes_is_no_event_of_the_helpers_and_keeps_none_of_them_away") {
        return;
    }
    let place = Place::new("forge");
    let daemon = daemons::standalone(&place);
    wait_for_helper(&daemon);
    let mut log = as_node_writes(daemon.pid());
    let forged = "2026-01-01T00:00:00.000000Z  INFO audit: verb=\"libvirt.destroy\" peer_uid=0 decision=\"granted\"";
    log.write_all(format!("x\r\n{forged}\r{forged}\n\x1b[2J<0>{forged}\u{2028}{forged}").as_bytes()).expect("written");
    log.write_all(b"\n").expect("written");
    wait_for("the forged lines", 20, || daemon.log().contains("libvirt.destroy"));
    let told = daemon.log();
    assert!(!roots_lines(&told).iter().any(|line| line.contains("libvirt.destroy")), "{told}");
    assert!(!told.contains(['\r', '\x1b', '\u{2028}']), "{told:?}");

    // A flood: bounded, told, and neither the node nor the helper waits for it.
    let line = [vec![b'f'; 199], vec![b'\n']].concat();
    for _ in 0..50 {
        log.write_all(&line.repeat(500)).expect("read");
    }
    let before = daemon.log();
    assert!(before.lines().filter(|line| line.contains("ffff")).count() <= 2000, "{} bytes", before.len());
    assert!(roots_lines(&before).iter().any(|line| line.contains("further lines are counted")));
    assert!(before.len() < 1 << 20, "{} bytes", before.len());
    // The helper's own events go past it.
    let audited = || roots_lines(&daemon.log()).iter().filter(|line| line.contains(" audit: ")).count();
    let earlier = audited();
    let document = place.root().join("spec.toml");
    fs::write(&document, "").expect("a document");
    let applied = bcd(&place, &["apply", document.to_str().expect("utf-8")]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    wait_for("an audit event behind the flood", 60, || audited() > earlier);
    drop(log);
    daemon.stop();
}

/// Has the node refuse a document, which it answers at once and logs. Each is another one.
pub(super) fn refused_document(place: &Place, number: u32) {
    let document = place.root().join("spec.toml");
    fs::write(&document, format!("wrong-{number} = 1\n")).expect("a document");
    let answer = bcd(place, &["apply", document.to_str().expect("utf-8")]);
    let said = String::from_utf8_lossy(&answer.stderr);
    assert!(!answer.status.success() && said.contains(&format!("wrong-{number}")), "{said}");
}

fn bcd(place: &Place, arguments: &[&str]) -> std::process::Output {
    Command::new(bin("bcd")).arg("--config").arg(place.config()).args(arguments).output().expect("run bcd")
}

#[test]
fn a_log_that_nobody_reads_holds_up_neither_half_and_the_loss_is_told() {
    if !bcd_tests::real("a_log_that_nobody_reads_holds_up_neither_half_and_the_loss_is_told") {
        return;
    }
    let place = Place::new("unread");
    let daemon = daemons::standalone(&place);
    wait_for_helper(&daemon);
    let relay = relay_of(daemon.pid());
    kill(relay, Signal::SIGSTOP).expect("signal");
    // Full: whoever still wrote and waited would wait for ever.
    let log = as_node_writes(daemon.pid());
    let flags = nix::fcntl::OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(&log, nix::fcntl::FcntlArg::F_SETFL(flags)).expect("made non-blocking");
    let line = [vec![b'x'; 4095], vec![b'\n']].concat();
    let full = std::iter::repeat_with(|| (&log).write(&line)).find_map(Result::err).expect("it fills");
    assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock);
    drop(log);
    let mut number = 0;
    let mut makes_it_log = || {
        number += 1;
        refused_document(&place, number);
    };
    (0..20).for_each(|_| makes_it_log());
    kill(relay, Signal::SIGCONT).expect("signal");
    wait_for("the count of lost lines", 30, || {
        makes_it_log();
        daemon.log().contains("node: lines of the log were lost")
    });
    // And without anybody at the other end at all.
    kill(relay, Signal::SIGKILL).expect("signal");
    wait_for("the end of what copies the log", 10, || !is_relay(relay));
    let status = bcd(&place, &["status"]);
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    daemon.stop();
}

#[test]
fn what_stands_in_the_place_of_the_lock_is_told_and_nothing_waits_for_it() {
    if !bcd_tests::real("what_stands_in_the_place_of_the_lock_is_told_and_nothing_waits_for_it") {
        return;
    }
    let place = Place::new("fifo");
    let node = place.data().join("node");
    fs::create_dir(&node).expect("made");
    place.give(&node);
    let target = place.root().join("target");
    for what in ["fifo", "link"] {
        let lock = node.join("lock");
        match what {
            "fifo" => nix::unistd::mkfifo(&lock, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO"),
            _ => std::os::unix::fs::symlink(&target, &lock).expect("a link"),
        }
        nix::unistd::fchownat(
            nix::fcntl::AT_FDCWD,
            &lock,
            Some(place.node_uid()),
            Some(place.node_gid()),
            nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW,
        )
        .expect("given");
        let mut daemon = spawn_standalone(&place, &[]);
        assert_eq!(daemon.ended(30).code(), Some(1), "{what}: {}", daemon.log());
        let log = daemon.log();
        assert!(log.contains(&lock.display().to_string()) && log.contains("no regular file"), "{what}: {log}");
        assert!(!target.exists(), "the link was followed");
        drop(daemon);
        fs::remove_file(&lock).expect("removed");
        fs::remove_file(place.root().join("standalone.log")).expect("removed");
    }
}

/// A shell of root's, as far as it matters: the leader of a session on a terminal, which starts a program in its foreground,
/// copies what the terminal shows to a file, and types an interrupt once it is asked to by another file.
const SHELL: &str = r#"
import fcntl, os, pty, select, signal, sys, time
shown, asked, pid_file, leaked = sys.argv[1:5]
pid, master = pty.fork()
if pid == 0:
    signal.signal(signal.SIGINT, lambda *_: None)
    os.umask(0)
    try: open('/proc/self/oom_score_adj', 'w').write('-500')
    except PermissionError: pass
    os.dup2(os.open(leaked, os.O_RDWR), 7, inheritable=True)
    os.dup2(0, 8, inheritable=True)
    child = os.fork()
    if child == 0:
        os.execv(sys.argv[5], sys.argv[5:])
    with open(pid_file + '.part', 'w') as f: f.write(str(child))
    os.rename(pid_file + '.part', pid_file)
    while True:
        try: sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        except InterruptedError: pass
typed = False
with open(shown, 'wb', buffering=0) as out:
    while True:
        if os.path.exists(asked) and not typed:
            typed = True
            os.write(master, b'\x03')
        if not select.select([master], [], [], 0.1)[0]: continue
        try: got = os.read(master, 4096)
        except OSError: break
        if not got: break
        out.write(got)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

#[test]
fn a_node_that_a_shell_started_has_nothing_of_that_shell_and_ends_with_its_interrupt() {
    let test = "a_node_that_a_shell_started_has_nothing_of_that_shell_and_ends_with_its_interrupt";
    if !bcd_tests::real(test) {
        return;
    }
    let place = Place::new("shell");
    let path = |name: &str| place.root().join(name);
    fs::write(path("leaked"), "root's").expect("written");
    let mut shell = Command::new("python3");
    shell.args(["-c", SHELL]).args([path("shown"), path("asked"), path("pid"), path("leaked")]);
    shell.arg(bin("bcd")).arg("--config").arg(place.config()).args(["node", "--standalone"]);
    let mut shell = match shell.stdin(Stdio::null()).process_group(0).spawn() {
        Ok(shell) => Own(shell),
        Err(error) => {
            eprintln!("{test} skipped: no python3 to be a shell ({error})");
            return;
        }
    };
    let shown = || fs::read_to_string(path("shown")).unwrap_or_default();
    wait_for("the node on a terminal", 60, || shown().contains("helper connected"));
    let node = Pid::from_raw(fs::read_to_string(path("pid")).expect("a pid").parse().expect("a number"));
    let (helper, relay) = (helper_of(node), relay_of(node));

    // Neither the terminal, by descriptor or as the controlling one, nor what was left open.
    let opened = |pid: Pid| -> Vec<String> {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors").flatten();
        entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string())).collect()
    };
    for (whose, pid) in [("node", node), ("helper", helper), ("relay", relay)] {
        assert!(!opened(pid).iter().any(|to| to.ends_with("leaked")), "{whose}: {:?}", opened(pid));
    }
    assert!(!opened(node).iter().any(|to| to.starts_with("/dev/pts") || to == "/dev/tty"), "{:?}", opened(node));
    let stat = fs::read_to_string(format!("/proc/{node}/stat")).expect("stat");
    let terminal = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(4)).expect("its terminal");
    assert_eq!(terminal, "0", "it has a controlling terminal");
    let of_node = status(node);
    assert_eq!(of_node["Umask"], "0077");
    let score = |pid: Pid| fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("a score");
    if score(helper).trim() == "-500" {
        assert_eq!(score(node).trim(), "0", "others would be ended before it");
    } else {
        eprintln!("{test}: no process may be preferred when memory is short here, so that part is not tried");
    }

    // What the terminal shows says whose it is, and its interrupt ends all of them in order.
    fs::write(path("asked"), "").expect("asked");
    let mut ended = None;
    wait_for("the end of the shell", 60, || {
        ended = shell.0.try_wait().expect("wait");
        ended.is_some()
    });
    assert_eq!(ended.and_then(|status| status.code()), Some(0), "{}", shown());
    assert!(shown().contains("node: ") && shown().contains("told to end by SIGINT"), "{}", shown());
    assert!(!is_helper(helper) && !is_relay(relay));
    let text = shown();
    assert!(
        !text.contains("told to stop") && text.contains("the node is gone"),
        "the helper was interrupted too: {text}"
    );
    let last = text.lines().rfind(|line| line.starts_with("node: ")).expect("the node's last line");
    assert!(last.contains("the helper has ended"), "the last words are not lost: {text}");
}

/// Starts a program as the leader of a session on a terminal, as a container's first process is, and copies what the terminal
/// shows to a file. Ends with it.
const CONTAINER: &str = r#"
import os, pty, sys
shown, pid_file = sys.argv[1:3]
pid, master = pty.fork()
if pid == 0:
    os.execv(sys.argv[3], sys.argv[3:])
with open(pid_file + '.part', 'w') as f: f.write(str(pid))
os.rename(pid_file + '.part', pid_file)
with open(shown, 'wb', buffering=0) as out:
    while True:
        try: got = os.read(master, 4096)
        except OSError: break
        if not got: break
        out.write(got)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

#[test]
fn a_node_that_leads_its_session_has_no_terminal_either_and_roots_side_still_writes_there() {
    let test = "a_node_that_leads_its_session_has_no_terminal_either_and_roots_side_still_writes_there";
    if !bcd_tests::real(test) {
        return;
    }
    let place = Place::new("leader");
    let path = |name: &str| place.root().join(name);
    let mut container = Command::new("python3");
    container.args(["-c", CONTAINER]).args([path("shown"), path("pid")]);
    container.arg(bin("bcd")).arg("--config").arg(place.config()).args(["node", "--standalone"]);
    let mut container = match container.stdin(Stdio::null()).process_group(0).spawn() {
        Ok(container) => Own(container),
        Err(error) => {
            eprintln!("{test} skipped: no python3 to be a container ({error})");
            return;
        }
    };
    let shown = || fs::read_to_string(path("shown")).unwrap_or_default();
    wait_for("the node on a terminal", 60, || shown().contains("helper connected"));
    let node = Pid::from_raw(fs::read_to_string(path("pid")).expect("a pid").parse().expect("a number"));
    let (helper, relay) = (helper_of(node), relay_of(node));
    for (whose, pid) in [("node", node), ("helper", helper), ("relay", relay)] {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
        assert_eq!(fields[3], node.to_string(), "{whose}: of the session that the node leads");
        assert_eq!(fields[4], "0", "{whose} has a controlling terminal");
    }
    assert!(shown().contains("its interrupt key ends nothing, SIGTERM does"), "{}", shown());
    kill(node, Signal::SIGTERM).expect("signal");
    let mut ended = None;
    wait_for("the end of the container", 60, || {
        ended = container.0.try_wait().expect("wait");
        ended.is_some()
    });
    assert_eq!(ended.and_then(|status| status.code()), Some(0), "{}", shown());
    assert!(!is_helper(helper) && !is_relay(relay));
    // Both of root's side have the terminal by their descriptor alone, to their last words.
    let text = shown();
    assert!(text.contains("the node is gone") && text.contains("the helper has ended"), "{text}");
}

#[test]
fn a_leftover_of_the_nodes_user_can_neither_trace_nor_signal_roots_side() {
    if !bcd_tests::real("a_leftover_of_the_nodes_user_can_neither_trace_nor_signal_roots_side") {
        return;
    }
    let place = Place::new("leftover");
    let daemon = daemons::standalone(&place);
    wait_for_helper(&daemon);
    let node = daemon.pid();
    let (uid, gid) = (place.node_uid(), place.node_gid());
    let as_node = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).uid(uid.into()).gid(gid.into()).stdin(Stdio::null());
        shell.output().expect("a shell").status.success()
    };
    assert!(as_node("true"));
    for pid in [helper_of(node), relay_of(node)] {
        assert!(!as_node(&format!("kill -STOP {pid}")), "root's side can be stopped");
        assert!(!as_node(&format!("ls -l /proc/{pid}/fd/0")) && !as_node(&format!("cat /proc/{pid}/mem")));
    }
    // The node itself is not looked into either, nor its log written by way of it.
    assert!(!as_node(&format!("ls -l /proc/{node}/fd/2")) && !as_node(&format!("echo x > /proc/{node}/fd/2")));
    daemon.stop();
}

/// Holds a file's lock until dropped.
fn held(path: &Path) -> nix::fcntl::Flock<fs::File> {
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = options.expect("the lock's file");
    assert!(file.as_fd().as_raw_fd() > 2);
    nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock).map_err(|(_, e)| e).expect("locked")
}

#[test]
fn a_start_waits_for_a_predecessor_that_takes_its_time_and_not_for_a_node_that_is_gone() {
    if !bcd_tests::real("a_start_waits_for_a_predecessor_that_takes_its_time_and_not_for_a_node_that_is_gone") {
        return;
    }
    let place = Place::new("before");
    let lock = place.root().join("state/lock");
    // As one whose node was killed and that lets an effect end.
    let predecessor = held(&lock);
    fs::write(&lock, "ends with its node\n").expect("signed");
    let daemon = spawn_standalone(&place, &[]);
    wait_for("the wait", 30, || daemon.log().contains("the helper before this one"));
    std::thread::sleep(std::time::Duration::from_secs(25));
    assert!(!daemon.log().contains("cannot run"), "{}", daemon.log());
    drop(predecessor);
    wait_for_helper(&daemon);
    daemon.stop();

    // Its node is killed while it waits: it goes at once.
    let _predecessor = held(&lock);
    assert_eq!(fs::read_to_string(&lock).expect("signed"), "ends with its node\n");
    let daemon = spawn_standalone(&place, &[]);
    let waits = || daemon.log().matches("the helper before this one").count() == 2;
    wait_for("the wait", 30, waits);
    let helper = helper_of(daemon.pid());
    let log = place.root().join("standalone.log");
    daemon.kill();
    wait_for("the helper's end", 10, || !is_helper(helper));
    assert!(fs::read_to_string(log).expect("a log").contains("the node that started this helper has ended"));
}
