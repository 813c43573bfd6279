//! `bcd node --standalone`: root is given up for good, guests and records are those of the two services, and neither half
//! outlives the other.
use bcd_protocol::request::Request;
use bcd_tests::daemons::{self, Daemon, bin, wait_for};
use bcd_tests::domains;
use bcd_tests::pair::{Pair, Wish};
use bcd_tests::place::Place;
use bcd_tests::wire::Wire;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

mod attacks;
mod ends;

fn status(pid: Pid) -> HashMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect()
}

/// A process of a test's own: killed when dropped, also by a failure.
struct Own(Child);

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the process `pid` was started with `argument` and has not ended.
fn is_started_with(pid: Pid, argument: &str) -> bool {
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes()))
}

fn is_helper(pid: Pid) -> bool {
    is_started_with(pid, "--connection-on-stdin")
}

fn is_relay(pid: Pid) -> bool {
    is_started_with(pid, "--copy-node-log")
}

/// The one child of `node` that is what `is` says.
fn child_of(node: Pid, what: &str, is: fn(Pid) -> bool) -> Pid {
    let mut found = Vec::new();
    wait_for(what, 10, || {
        found = fs::read_dir("/proc")
            .expect("processes")
            .flatten()
            .filter_map(|entry| Some(Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)))
            .filter(|pid| {
                fs::read_to_string(format!("/proc/{pid}/status"))
                    .is_ok_and(|text| text.lines().any(|line| line == format!("PPid:\t{node}")))
            })
            .filter(|pid| is(*pid))
            .collect();
        !found.is_empty()
    });
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

/// The helper that a standalone node started.
fn helper_of(node: Pid) -> Pid {
    child_of(node, "the standalone node's helper", is_helper)
}

/// Root's side of its log.
fn relay_of(node: Pid) -> Pid {
    child_of(node, "the process that copies the standalone node's log", is_relay)
}

fn input_of(pid: Pid) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/fd/0")).expect("standard input")
}

/// Waits until a node, however started, has its helper.
fn wait_for_helper(daemon: &Daemon) {
    wait_for("the helper's answer", 60, || daemon.log().contains("helper connected"));
}

#[test]
fn a_standalone_node_has_nothing_of_root_left_and_its_helper_all_it_needs() {
    if !bcd_tests::real("a_standalone_node_has_nothing_of_root_left_and_its_helper_all_it_needs") {
        return;
    }
    let place = Place::new("left");
    let mut daemon = daemons::spawn_standalone(&place, &[("SECRET_OF_ROOT", "in-the-environment"), ("HOME", "/root")]);
    wait_for("its helper", 60, || {
        assert!(daemon.is_alive(), "it ended:\n{}", daemon.log());
        daemon.log().contains("helper connected")
    });
    let (node, helper) = (daemon.pid(), helper_of(daemon.pid()));

    let (uid, gid) = (place.node_uid().to_string(), place.node_gid().to_string());
    let of_node = status(node);
    assert_eq!(of_node["Name"], "bcd");
    assert_eq!(of_node["Uid"], [&*uid; 4].join(" "));
    assert_eq!(of_node["Gid"], [&*gid; 4].join(" "));
    let groups: Vec<_> = of_node["Groups"].split(' ').filter(|group| !group.is_empty()).collect();
    assert!(!groups.contains(&"0"), "{groups:?}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(of_node[set], "0000000000000000", "{set}");
    }
    assert_eq!(of_node["NoNewPrivs"], "1");
    assert_eq!(of_node["Seccomp"], "2");

    let of_helper = status(helper);
    assert_eq!(of_helper["Uid"], "0 0 0 0");
    assert_eq!(of_helper["CapEff"], "0000000000000000");
    assert_eq!(of_helper["Seccomp"], "2");
    // The pair is held once at each end, and has no name.
    assert_eq!(input_of(node), Path::new("/dev/null"));
    assert_eq!(input_of(helper), Path::new("/dev/null"));
    assert!(!place.helper_socket().exists(), "the helper listens too");

    // Its words go to root's side alone, which is root without any of root's rights.
    let relay = relay_of(node);
    let of_relay = status(relay);
    assert_eq!(of_relay["Uid"], "0 0 0 0", "the node could signal and trace it");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(of_relay[set], "0000000000000000", "{set}");
    }
    assert_eq!((of_relay["NoNewPrivs"].as_str(), of_relay["Seccomp"].as_str()), ("1", "2"));
    let to = |pid: Pid, descriptor: u32| fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).expect("a descriptor");
    assert_eq!((to(node, 1), to(node, 2)), (to(relay, 0), to(relay, 0)));
    assert!(to(relay, 0).display().to_string().starts_with("pipe:"));
    assert_eq!(fs::read_dir(format!("/proc/{relay}/fd")).expect("descriptors").count(), 4);

    let environment = fs::read(format!("/proc/{node}/environ")).expect("environment");
    let environment = String::from_utf8_lossy(&environment);
    assert!(!environment.contains("SECRET_OF_ROOT") && !environment.contains("HOME=/root"), "{environment}");
    let environment = fs::read(format!("/proc/{helper}/environ")).expect("environment");
    assert!(!String::from_utf8_lossy(&environment).contains("SECRET_OF_ROOT"));
    // What the kernel says of the peer is what the helper writes down.
    assert!(daemon.log().contains(&format!("peer_uid={uid} peer_pid={node}")), "{}", daemon.log());

    daemon.stop();
    assert!(!is_helper(helper), "the helper outlives a node that ended in order");
    assert!(!is_relay(relay), "what copies its log outlives it");
}

#[test]
fn root_is_given_up_in_order_and_tried_again_in_vain_before_a_document_is_read() {
    if !bcd_tests::real("root_is_given_up_in_order_and_tried_again_in_vain_before_a_document_is_read") {
        return;
    }
    let place = Place::new("order");
    let spec = place.root().join("spec.toml");
    fs::write(&spec, "").expect("a document");
    let text = fs::read_to_string(place.config()).expect("configuration");
    let with_spec = text.replace("[node]\n", &format!("[node]\nspec = \"{}\"\n", spec.display()));
    place.configure_whole(&with_spec);
    let traces = place.root().join("traces");
    fs::create_dir(&traces).expect("make a directory");
    let calls = "trace=setgroups,setresgid,setresuid,setreuid,setregid,socketpair,execve,openat,prctl,sendto,sendmsg,\
                 close_range,wait4,keyctl,seccomp,umask";
    let child = Command::new("strace")
        // A file for each thread: what one of them does is never interrupted by another's line.
        .args(["-ff", "-s", "200", "-o"])
        .arg(traces.join("of"))
        .args(["-e", calls])
        .arg(bin("bcd"))
        .arg("--config")
        .arg(place.config())
        .args(["node", "--standalone"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: strace is not installed");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let spec_read = format!("\"{}\"", spec.display());
    let lines = || -> HashMap<i32, String> {
        fs::read_dir(&traces)
            .expect("traces")
            .flatten()
            .filter_map(|entry| {
                let pid = entry.path().extension()?.to_str()?.parse().ok()?;
                Some((pid, fs::read_to_string(entry.path()).ok()?))
            })
            .collect()
    };
    wait_for("the document's reading", 90, || lines().values().any(|text| text.contains(&spec_read)));
    let executed = "execve(\"/proc/self/exe\"";
    let becomes_node = "--helper-on-stdin";
    let node = *lines().iter().find(|(_, text)| text.contains(becomes_node)).expect("the node's trace").0;
    kill(Pid::from_raw(node), Signal::SIGTERM).expect("signal");
    child.wait().expect("strace");

    let all = lines();
    let own: Vec<&str> = all[&node].lines().collect();
    let (uid, gid) = (place.node_uid(), place.node_gid());
    let mut at = 0;
    for wanted in [
        "close_range(3, ".to_owned(),
        // Giving up root was tried by a child of its own, which has ended well.
        "wait4(".to_owned(),
        format!("setresuid(-1, {uid}, -1) = 0"),
        "socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0,".to_owned(),
        "setresuid(-1, 0, -1) = 0".to_owned(),
        "prctl(PR_CAPBSET_DROP, CAP_CHOWN".to_owned(),
        "setgroups(".to_owned(),
        format!("setresgid({gid}, {gid}, {gid}) = 0"),
        format!("setresuid({uid}, {uid}, {uid}) = 0"),
        "prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) = 0".to_owned(),
        "setresuid(0, 0, 0) = -1 EPERM".to_owned(),
        "setresgid(0, 0, 0) = -1 EPERM".to_owned(),
        "keyctl(KEYCTL_JOIN_SESSION_KEYRING".to_owned(),
        "seccomp(SECCOMP_SET_MODE_FILTER".to_owned(),
        "execve(\"/proc/self/exe\"".to_owned(),
        "umask(077)".to_owned(),
        "prctl(PR_SET_DUMPABLE, SUID_DUMP_DISABLE".to_owned(),
        // The whole sandbox is there before anything that the node's user owns is opened.
        "seccomp(SECCOMP_SET_MODE_FILTER".to_owned(),
        format!("openat(AT_FDCWD, \"{}/", place.data().display()),
    ] {
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let found = own[at..].iter().position(|line| squeezed(line).starts_with(&wanted));
        at += found.unwrap_or_else(|| {
            let asked: Vec<_> = own.iter().filter(|line| !line.starts_with("openat")).copied().collect();
            panic!("no {wanted} after line {at} of\n{}", asked.join("\n"))
        }) + 1;
    }
    let executed = own.iter().position(|line| line.starts_with(executed)).expect("executed");
    let before = &own[..executed];
    let sandboxed = own.iter().rposition(|line| line.starts_with("seccomp(SECCOMP_SET_MODE_FILTER")).expect("a filter");
    let data = format!("\"{}", place.data().display());
    let opened = own[executed..sandboxed].iter().find(|line| line.contains(&data) && !line.contains("O_PATH"));
    assert_eq!(opened, None, "a file of the node's is opened outside its sandbox");
    let rehearsal = all.values().find(|text| text.contains("--give-up-root-and-end")).expect("the rehearsal's trace");
    assert!(rehearsal.contains("setresuid(0, 0, 0)") && !rehearsal.contains("--helper-on-stdin"), "{rehearsal}");
    // Threads of the node read it later; the helper never does.
    assert!(!before.iter().any(|line| line.contains(&spec_read)), "the document was read as root");
    let helper = all.values().find(|text| text.contains("--connection-on-stdin")).expect("the helper's trace");
    assert!(!helper.contains(&spec_read), "the helper read the document");
    // Root says nothing over the pair.
    assert!(!before.iter().any(|line| line.starts_with("send")), "something was sent before root was given up");
    let again = own[executed..].iter().filter(|line| line.starts_with("setres") || line.starts_with("setre"));
    assert_eq!(again.filter(|line| line.ends_with("= 0")).count(), 0, "ids are changed after root was given up");
}

#[test]
fn a_guest_goes_over_from_one_way_of_running_to_the_other_and_outlives_every_end() {
    if !bcd_tests::real("a_guest_goes_over_from_one_way_of_running_to_the_other_and_outlives_every_end") {
        return;
    }
    let Some(mut pair) = Pair::prepare("alone", &["alone"], "") else { return };
    pair.start_standalone();
    pair.apply(&[Wish::running("alone")], &[]);
    let _ = pair.up_line("alone");
    let qemu = domains::qemu_pid("alone").expect("it runs");

    // Doctor finds the helper, though it has no socket.
    let report: serde_json::Value = serde_json::from_slice(&pair.bcd(&["doctor", "--json"]).stdout).expect("a report");
    let findings = report["findings"].as_array().expect("findings");
    let of_helper = findings.iter().find(|finding| finding["check"] == "helper").expect("a finding");
    assert_eq!(of_helper["level"], "ok", "{of_helper}");

    // kill -9 of the node ends its helper, and nothing else.
    let node = pair.node.take().expect("runs");
    let (helper, relay) = (helper_of(node.pid()), relay_of(node.pid()));
    node.kill();
    wait_for("the helper's end", 20, || !is_helper(helper));
    wait_for("the end of what copies the log", 20, || !is_relay(relay));
    assert_eq!(domains::qemu_pid("alone"), Some(qemu));

    // A second start finds the guest.
    pair.start_standalone();
    pair.wait_state("alone", "running", 60);
    assert_eq!(domains::qemu_pid("alone"), Some(qemu));
    pair.apply(&[Wish { id: "alone", state: "paused", more: String::new() }], &[]);
    pair.wait_state("alone", "paused", 60);

    // So do the two services, and they can go on with it.
    pair.node.take().expect("runs").stop();
    pair.start_services();
    pair.wait_state("alone", "paused", 60);
    pair.apply(&[Wish::running("alone")], &[]);
    pair.wait_state("alone", "running", 60);
    assert_eq!(domains::qemu_pid("alone"), Some(qemu));

    // And back, to the end of it.
    pair.node.take().expect("runs").stop();
    pair.helper.take().expect("runs").stop();
    pair.start_standalone();
    pair.wait_state("alone", "running", 60);
    assert_eq!(domains::qemu_pid("alone"), Some(qemu));
    pair.apply(&[], &["--allow-delete"]);
    pair.wait_gone("alone", 120);
    assert_eq!(domains::qemu_pid("alone"), None);
    assert_eq!(fs::read_dir(pair.place.state().join("records")).expect("read").count(), 0);
}

#[test]
fn a_standalone_node_ends_with_its_helper_and_says_so() {
    if !bcd_tests::real("a_standalone_node_ends_with_its_helper_and_says_so") {
        return;
    }
    let place = Place::new("ends");
    let mut daemon = daemons::standalone(&place);
    wait_for_helper(&daemon);
    kill(helper_of(daemon.pid()), Signal::SIGKILL).expect("signal");
    let status = daemon.ended(20);
    assert_eq!(status.code(), Some(1), "{}", daemon.log());
    assert!(daemon.log().contains("a standalone node ends with its helper"), "{}", daemon.log());
}

#[test]
fn what_a_standalone_node_cannot_start_with_is_told_and_nothing_is_left_running() {
    if !bcd_tests::real("what_a_standalone_node_cannot_start_with_is_told_and_nothing_is_left_running") {
        return;
    }
    let place = Place::new("cannot");

    // Not root.
    let output = Command::new("setpriv")
        .args(["--reuid", &place.node_uid().to_string(), "--regid", &place.node_gid().to_string(), "--clear-groups"])
        .arg(bin("bcd"))
        .arg("--config")
        .arg(place.config())
        .args(["node", "--standalone"])
        .output()
        .expect("run");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("run it as root"), "{said}");

    // A user that the helper would refuse, and a root that cannot be given up: the helper is not even started.
    let text = fs::read_to_string(place.config()).expect("configuration");
    place.configure_whole(&text.replace("[helper]\n", "[helper]\nnode_user = \"nobody\"\n"));
    let mut daemon = daemons::spawn_standalone(&place, &[]);
    assert_eq!(daemon.ended(30).code(), Some(1), "{}", daemon.log());
    let log = daemon.log();
    assert!(log.contains("helper.node_user nobody has uid 65534") && !log.contains("helper started"), "{log}");
    drop(daemon);
    place.configure_whole(&text);
    let output = Command::new("setpriv")
        .args(["--bounding-set=-setpcap", "--"])
        .arg(bin("bcd"))
        .arg("--config")
        .arg(place.config())
        .args(["node", "--standalone"])
        .output()
        .expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("root cannot be given up here") && said.contains("bounding set"), "{said}");
    assert!(!said.contains("helper started"), "{said}");

    // A configuration that is not root's alone: nobody is become by it, and the helper is not even started. Nor by way of a
    // directory in which another may put it.
    let spoilt = |what: &Path, said: &str| {
        let mut daemon = daemons::spawn_standalone(&place, &[]);
        assert_eq!(daemon.ended(60).code(), Some(1), "{}", daemon.log());
        let log = daemon.log();
        assert!(log.contains("the configuration cannot be trusted") && log.contains(said), "{log}");
        assert!(log.contains(&what.display().to_string()) && !log.contains("helper started"), "{log}");
    };
    let config = place.config();
    place.give(&config);
    spoilt(&config, "it must be root's");
    nix::unistd::chown(&config, Some(0.into()), Some(0.into())).expect("chown");
    let way = config.parent().expect("a directory");
    let bits = |path: &Path| fs::metadata(path).expect("its mode").permissions();
    let as_was = bits(way);
    for mode in [0o777, 0o1777] {
        fs::set_permissions(way, PermissionsExt::from_mode(mode)).expect("chmod");
        spoilt(way, "no one but root may write to it");
    }
    fs::set_permissions(way, as_was).expect("chmod");

    // The records are another helper's.
    let services = daemons::helper(&place);
    let mut daemon = daemons::spawn_standalone(&place, &[]);
    assert_eq!(daemon.ended(90).code(), Some(1), "{}", daemon.log());
    assert!(daemon.log().contains("another bcd-helper runs on this state"), "{}", daemon.log());
    services.stop();
}

#[test]
fn a_helper_refuses_a_pair_that_its_maker_was_root_for() {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    if !bcd_tests::real("a_helper_refuses_a_pair_that_its_maker_was_root_for") {
        return;
    }
    let place = Place::new("root-pair");
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).expect("a pair");
    let mut child = Command::new(bin("bcd-helper"))
        .arg("--config")
        .arg(place.config())
        .arg("--connection-on-stdin")
        .stdin(theirs)
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let mut wire = Wire::over(ours).expect("a wire");
    assert_eq!(wire.denied(&Request::Hello { version: bcd_protocol::PROTOCOL_VERSION }), "peer-uid");
    assert!(wire.is_closed());
    wait_for("the helper's end", 20, || child.try_wait().expect("wait").is_some());
    assert!(child.wait().expect("wait").success());
}
