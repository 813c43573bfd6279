//! How the helper comes up and goes down: what it refuses to start on, what it gives up, whose socket it takes, and that
//! being told to stop cuts nothing short.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test names the one answer it wants")]

use bcd_protocol::reply::{FailureKind, Reply};
use bcd_protocol::request::Request;
use bcd_tests::daemons::{self, bin, wait_for};
use bcd_tests::domains::{Cleaner, connect as libvirt};
use bcd_tests::files::{self, id};
use bcd_tests::place::Place;
use bcd_tests::wire::Wire;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket, socketpair};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn listening(path: &Path, kind: SockType) -> OwnedFd {
    let fd = socket(AddressFamily::Unix, kind, SockFlag::empty(), None).expect("a socket");
    bind(fd.as_raw_fd(), &UnixAddr::new(path).expect("an address")).expect("bind");
    if kind != SockType::Datagram {
        listen(&fd, Backlog::new(8).expect("a backlog")).expect("listen");
    }
    fd
}

/// Starts a helper that must end by itself, and returns what it said.
fn refused(place: &Place) -> String {
    let mut helper = daemons::spawn_helper(place, &[]);
    let status = helper.ended(20);
    assert_eq!(status.code(), Some(1), "it must refuse to start: {}", helper.log());
    let log = helper.log();
    let _ = fs::remove_file(place.root().join("helper.log"));
    log
}

#[test]
fn it_refuses_what_it_cannot_trust_and_names_it() {
    if !bcd_tests::real("it_refuses_what_it_cannot_trust_and_names_it") {
        return;
    }
    let mode = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    let place = Place::new("trust");
    let config = place.config();
    mode(&config, 0o666);
    assert!(refused(&place).contains("bcd.toml has mode 0666"));
    mode(&config, 0o644);
    place.give(&config);
    assert!(refused(&place).contains("bcd.toml belongs to uid"));
    place.configure_whole("[helper]\nnode_usr = \"bcd\"\n");
    nix::unistd::chown(&config, Some(0.into()), Some(0.into())).expect("chown");
    let said = refused(&place);
    let place_and_key = format!("{}:2:1: helper.node_usr: unknown field", config.display());
    assert!(said.contains(&place_and_key), "one line that an editor can jump to: {said}");
    fs::rename(&config, place.root().join("real.toml")).expect("rename");
    symlink("real.toml", &config).expect("link");
    assert!(refused(&place).contains("bcd.toml"));
    fs::remove_file(&config).expect("remove");
    let said = refused(&place);
    assert!(said.contains(&format!("there is no configuration {}", config.display())), "{said}");
    assert!(said.contains("--config or BCD_CONFIG"), "a missing file's message says what to do: {said}");

    place.configure("");
    mode(place.root(), 0o1777);
    assert!(refused(&place).contains("has mode 1777"), "a sticky directory is no safe place for the configuration");
    mode(place.root(), 0o755);
    mode(&place.state(), 0o770);
    assert!(refused(&place).contains("state has mode 0770"));
    mode(&place.state(), 0o700);
    fs::create_dir(place.state().join("records")).expect("make");
    let torn = place.state().join("records/torn.json");
    fs::write(&torn, "{\"version\": 1,").expect("write");
    mode(&torn, 0o600);
    let said = refused(&place);
    assert!(said.contains("records/torn.json is not a record"), "an unreadable ledger is never an empty one: {said}");
    assert!(torn.exists());
    assert!(!place.helper_socket().exists(), "nobody could connect");
    fs::remove_file(&torn).expect("remove");
    daemons::helper(&place).stop();
}

#[test]
fn the_configuration_is_named_by_a_relative_path_or_the_environment() {
    if !bcd_tests::real("the_configuration_is_named_by_a_relative_path_or_the_environment") {
        return;
    }
    let place = Place::new("named");
    place.configure_whole("[helper]\nmax_vcpus = 0\n");
    let whole = place.config();
    let inner = place.root().join("inner");
    fs::create_dir(&inner).expect("make");
    let says = |change: &dyn for<'a> Fn(&'a mut Command) -> &'a mut Command| {
        let mut command = Command::new(bin("bcd-helper"));
        let command = change(command.env_remove("BCD_CONFIG").current_dir(&inner));
        let output = command.output().expect("run");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).expect("text")
    };
    let wanted = format!("{}:2:13: helper.max_vcpus: 0 is out of range", whole.display());
    let relative = says(&|c| c.args(["--config", "../bcd.toml"]));
    assert!(relative.contains(&wanted), "{relative}");
    let by_environment = says(&|c| c.env("BCD_CONFIG", &whole));
    assert!(by_environment.contains(&wanted), "{by_environment}");
    let both = says(&|c| c.env("BCD_CONFIG", &whole).args(["--config", "none.toml"]));
    let none = format!("there is no configuration {}", inner.join("none.toml").display());
    assert!(both.contains(&none), "the option comes before the environment: {both}");
}

#[test]
fn only_a_stale_socket_of_roots_is_replaced() {
    if !bcd_tests::real("only_a_stale_socket_of_roots_is_replaced") {
        return;
    }
    let place = Place::new("socket");
    let path = place.helper_socket();
    fs::write(&path, "a file").expect("write");
    assert!(refused(&place).contains("is not a socket"));
    assert_eq!(fs::read_to_string(&path).expect("still there"), "a file");
    fs::remove_file(&path).expect("remove");
    symlink("/nowhere", &path).expect("link");
    assert!(refused(&place).contains("is not a socket"));
    fs::remove_file(&path).expect("remove");
    {
        let _live = listening(&path, SockType::SeqPacket);
        assert!(refused(&place).contains("is the socket of a running helper"));
        place.give(&path);
        assert!(refused(&place).contains("is a socket that is not root's"));
    }
    fs::remove_file(&path).expect("remove");
    {
        let _other = listening(&path, SockType::Stream);
        assert!(refused(&place).contains("is a socket of another type"));
    }
    fs::remove_file(&path).expect("remove");
    drop(listening(&path, SockType::SeqPacket));
    let helper = daemons::helper(&place);
    let meta = fs::symlink_metadata(&path).expect("the socket");
    assert!(meta.file_type().is_socket());
    let owners = (meta.uid(), meta.gid(), meta.mode() & 0o7777);
    assert_eq!(owners, (0, place.node_gid().as_raw(), 0o660));
    let mut second = daemons::spawn_helper(&place, &[]);
    assert_eq!(second.ended(20).code(), Some(1));
    assert!(second.log().contains("another bcd-helper runs on this state"), "{}", second.log());
    let _wire = Wire::welcomed(&place);
    helper.stop();
    assert!(!path.exists(), "its name goes with it");

    let run = place.root().join("run");
    place.give(&run);
    assert!(refused(&place).contains("run belongs to uid"));
    nix::unistd::chown(&run, Some(0.into()), Some(place.node_gid())).expect("chown");
    for mode in [0o770, 0o1770] {
        fs::set_permissions(&run, fs::Permissions::from_mode(mode)).expect("chmod");
        let said = refused(&place);
        let wanted = format!("run has mode {mode:04o} and no one but root may write to it: chmod go-w it");
        assert!(said.contains(&wanted), "not where the node's user could put something in the socket's place: {said}");
    }
    fs::set_permissions(&run, fs::Permissions::from_mode(0o750)).expect("chmod");
    daemons::helper(&place).stop();
}

#[test]
fn a_socket_that_the_service_manager_passes_is_served_and_left() {
    if !bcd_tests::real("a_socket_that_the_service_manager_passes_is_served_and_left") {
        return;
    }
    let place = Place::new("passed");
    let notify = place.root().join("run/notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&notify).expect("a notification socket");
    manager.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let told = || {
        let mut text = [0u8; 256];
        let length = manager.recv(&mut text).expect("a notification");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let run = |passed: &OwnedFd| {
        let number = passed.as_raw_fd();
        let mut command = Command::new("sh");
        command.args(["-c", "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" --config \"$1\""]);
        command.arg(bin("bcd-helper")).arg(place.config()).env("NOTIFY_SOCKET", &notify);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        // SAFETY: dup2 and nothing else between fork and exec.
        unsafe {
            command.pre_exec(
                move || if libc::dup2(number, 3) == 3 { Ok(()) } else { Err(std::io::Error::last_os_error()) },
            );
        }
        command.spawn().expect("start the helper")
    };
    for (kind, said) in [(SockType::Stream, "not SEQPACKET"), (SockType::Datagram, "not SEQPACKET")] {
        let path = place.root().join("run/other.sock");
        let output = run(&listening(&path, kind)).wait_with_output().expect("wait");
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && log.contains(said), "{log}");
        fs::remove_file(&path).expect("remove");
    }
    let path = place.helper_socket();
    let passed = listening(&path, SockType::SeqPacket);
    place.give(&path);
    let child = run(&passed);
    drop(passed);
    assert_eq!(told().trim(), "READY=1");
    let mut wires: Vec<Wire> = (0..3).map(|_| Wire::welcomed(&place)).collect();
    let records = Request::Records { after: None, limit: 1 };
    for wire in &mut wires {
        assert!(matches!(wire.call(&records), Reply::Records(_)), "the listener does not block the others");
    }
    kill(nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a pid")), Signal::SIGTERM).expect("signal");
    assert_eq!(told().trim(), "STOPPING=1");
    let output = child.wait_with_output().expect("wait");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(path.exists(), "the name is the service manager's");
}

#[test]
fn it_gives_up_what_it_does_not_need_and_says_what_it_kept() {
    if !bcd_tests::real("it_gives_up_what_it_does_not_need_and_says_what_it_kept") {
        return;
    }
    let place = Place::new("sandbox");
    place.configure("require_sandbox = true");
    let helper = daemons::helper(&place);
    let _wire = Wire::welcomed(&place);
    let mut tasks = 0;
    for task in fs::read_dir(format!("/proc/{}/task", helper.pid())).expect("its threads").flatten() {
        let status = fs::read_to_string(task.path().join("status")).expect("a thread's status");
        let has = |line: &str| assert!(status.lines().any(|l| l == line), "{line:?} is not in {status}");
        // CAP_DAC_OVERRIDE is 1 and CAP_DAC_READ_SEARCH is 2.
        for line in ["CapInh:\t0000000000000000", "CapPrm:\t0000000000000006", "CapEff:\t0000000000000000"] {
            has(line);
        }
        for line in ["CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
            has(line);
        }
        tasks += 1;
    }
    assert!(tasks >= 2, "libvirt's events have a thread");
    let limits = fs::read_to_string(format!("/proc/{}/limits", helper.pid())).expect("its limits");
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).expect("a limit");
        line[26..].split_whitespace().next().map(str::to_owned)
    };
    assert_eq!(limit("Max core file size"), Some("0".to_owned()));
    assert_eq!(limit("Max locked memory"), Some("0".to_owned()));
    assert_eq!(limit("Max open files"), Some("256".to_owned()));
    let log = helper.log();
    let said: Vec<_> = log.lines().filter(|line| line.contains(" sandbox ")).collect();
    assert_eq!(said.len(), 1, "said once: {log}");
    for part in ["CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH", "no_new_privs=true", "landlock=full", "seccomp=true"] {
        assert!(said[0].contains(part), "{part} is not in {}", said[0]);
    }
    helper.stop();
}

#[test]
fn a_bounding_set_that_cannot_be_reduced_is_told_and_refused_where_the_whole_is_required() {
    if !bcd_tests::real("a_bounding_set_that_cannot_be_reduced_is_told_and_refused_where_the_whole_is_required") {
        return;
    }
    let without = |list: &str| ["setpriv".to_owned(), format!("--bounding-set={list}"), "--".to_owned()];
    let place = Place::new("bounded");
    let helper = daemons::helper_under(&place, &without("-setpcap"));
    // Its socket is there before.
    wait_for("what it ended up with", 20, || helper.log().contains(" sandbox capabilities="));
    let log = helper.log();
    let told: Vec<_> = log.lines().filter(|line| line.contains("the bounding set stays wider")).collect();
    assert_eq!(told.len(), 1, "{log}");
    assert!(told[0].contains("CAP_CHOWN") && !told[0].contains("CAP_DAC_OVERRIDE"), "{log}");
    helper.stop();

    let place = Place::new("unbounded");
    place.configure("require_sandbox = true");
    let mut helper = daemons::spawn_helper_under(&place, &without("-setpcap"));
    assert_eq!(helper.ended(30).code(), Some(1), "{}", helper.log());
    assert!(helper.log().contains("the bounding set cannot be reduced (CAP_"), "{}", helper.log());

    // As the unit reduces it: that is the whole. (It also makes the socket, for which CAP_CHOWN would be needed here.)
    let last: u32 = fs::read_to_string("/proc/sys/kernel/cap_last_cap").expect("a number").trim().parse().expect("one");
    let others: Vec<String> = (0..=last).filter(|cap| ![1, 2].contains(cap)).map(|cap| format!("-cap_{cap}")).collect();
    let prefix = without(&others.join(","));
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).expect("a pair");
    let mut command = Command::new(&prefix[0]);
    command.args(&prefix[1..]).arg(bin("bcd-helper")).arg("--config").arg(place.config()).arg("--connection-on-stdin");
    // With nobody at the other end it ends once it has come up.
    drop(ours);
    let output = command.stdin(theirs).output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("bounding=CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH "), "{said}");
    assert!(!said.contains("bounding set"), "{said}");
}

#[test]
fn being_told_to_stop_lets_a_start_end_and_be_answered() {
    if !bcd_tests::real("being_told_to_stop_lets_a_start_end_and_be_answered") {
        return;
    }
    let place = Place::new("stop");
    let base = files::base(&place);
    files::instance(&place, "stop", &base);
    let _cleaner = Cleaner { instances: vec!["stop".to_owned()] };
    let helper = daemons::helper(&place);
    let mut wire = Wire::welcomed(&place);
    let definition = files::definition(&base, Vec::new());
    let Reply::Defined(defined) = wire.call(&Request::LibvirtDefine { instance: id("stop"), definition }) else {
        panic!("not defined")
    };
    files::share(&place, "stop", defined.uid.get(), &base);
    let asked = wire.send(&Request::LibvirtStart { instance: id("stop"), paused: false }).expect("send");
    let record = place.state().join("records/stop.json");
    let intent =
        || fs::read_to_string(&record).is_ok_and(|text| text.contains("libvirt") || text.contains("LibvirtStart"));
    wait_for("the intent to start", 20, intent);
    let pid = helper.pid();
    kill(pid, Signal::SIGTERM).expect("signal");
    let (reply, _) = wire.recv();
    assert_eq!((reply.id, reply.reply), (asked, Reply::Done { changed: true }), "the start ends and is answered");
    assert!(wire.is_closed());
    wait_for("the helper's end", 20, || !Path::new(&format!("/proc/{pid}/exe")).exists());
    let kept = fs::read_to_string(&record).expect("the record");
    assert!(kept.contains("\"intent\": null"), "the outcome is recorded: {kept}");
    let domain = libvirt().lookup_domain_by_name("bcd-stop").expect("the domain");
    assert!(domain.is_active().expect("its state"), "the guest runs on");
    drop(helper);
    let helper = daemons::helper(&place);
    let mut wire = Wire::welcomed(&place);
    assert_eq!(wire.call(&Request::LibvirtDestroy { instance: id("stop") }), Reply::Done { changed: true });
    assert_eq!(wire.call(&Request::LibvirtUndefine { instance: id("stop") }), Reply::Done { changed: true });
    helper.stop();
}

#[test]
fn a_ledger_that_cannot_be_written_stops_the_effect() {
    if !bcd_tests::real("a_ledger_that_cannot_be_written_stops_the_effect") {
        return;
    }
    let place = Place::new("full");
    let base = files::base(&place);
    files::instance(&place, "full", &base);
    let _cleaner = Cleaner { instances: vec!["full".to_owned()] };
    // A filesystem of a few pages as the state directory.
    let state = place.state().to_str().expect("utf-8").to_owned();
    files::run("mount", &["-t", "tmpfs", "-o", "size=64k,mode=0700", "none", &state]);
    let _mounted = Mounted(state);
    let helper = daemons::helper(&place);
    let mut wire = Wire::welcomed(&place);
    let filler = place.state().join("filler");
    let mut size = 64 * 1024;
    while size > 0 && fs::write(&filler, vec![1u8; size]).is_err() {
        size -= 4096;
    }
    let define = Request::LibvirtDefine { instance: id("full"), definition: files::definition(&base, Vec::new()) };
    match wire.call(&define) {
        Reply::Failed(failed) => assert_eq!(failed.kind, FailureKind::Ledger, "{failed:?}"),
        other => panic!("it was done without being written down: {other:?}"),
    }
    assert!(libvirt().lookup_domain_by_name("bcd-full").is_err(), "no effect without an intent");
    let Reply::Records(page) = wire.call(&Request::Records { after: None, limit: 1 }) else { panic!("a page") };
    assert_eq!(page.total, 0, "what is not on disk is not in memory");
    fs::remove_file(&filler).expect("make room");
    assert!(matches!(wire.call(&define), Reply::Defined(defined) if defined.changed), "it goes on once there is room");
    assert_eq!(wire.call(&Request::LibvirtUndefine { instance: id("full") }), Reply::Done { changed: true });
    helper.stop();
}

struct Mounted(String);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.0]).status();
    }
}
