//! Doctor and daemons say the same of who may own and write what: each place is broken, doctor fails, the daemon refuses to
//! start; doctor's remedy is run as it stands, and both are content. So no remedy leads from one refusal into another.
//!
//! Room: `tests`. Needs root and no libvirtd.
use bcd_tests::daemons::{self, Daemon, bin};
use bcd_tests::place::Place;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refuses {
    Helper,
    Node,
}

/// A place whose daemons make their sockets as the package has it: the node in a directory of its own below the helper's.
fn place(name: &str) -> Place {
    let place = Place::new(name);
    place.configure("");
    let text = fs::read_to_string(place.config()).expect("read");
    fs::write(place.config(), text.replace("/node-run/node.sock", "/run/node/node.sock")).expect("write");
    let (uid, gid) = (place.node_uid().as_raw(), place.node_gid().as_raw());
    own(&place.root().join("run"), 0, gid, 0o750);
    fs::create_dir(below(&place)).expect("make");
    own(&below(&place), uid, gid, 0o710);
    place
}

/// The directory of the node's socket.
fn below(place: &Place) -> PathBuf {
    place.root().join("run/node")
}

fn own(path: &Path, uid: u32, gid: u32, mode: u32) {
    std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("chown");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

/// What doctor finds wrong under the name `check`: the remedies.
fn failing(place: &Place, check: &str) -> Vec<String> {
    let output = Command::new(bin("bcd")).arg("--config").arg(place.config()).args(["doctor", "--json"]).output();
    let output = output.expect("run doctor");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("findings").iter();
    let wrong = findings.filter(|f| f["check"] == check && f["level"] == "fail");
    wrong.map(|f| f["remedy"].as_str().expect("a remedy").to_owned()).collect()
}

/// Waits until a daemon serves its socket (true) or has ended (false).
fn serves(daemon: &mut Daemon, ready: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if !daemon.is_alive() {
            return false;
        }
        if ready() {
            return true;
        }
        assert!(Instant::now() < end, "it neither serves nor ends:\n{}", daemon.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts helper, then node, and says which of them comes up.
fn start(place: &Place) -> (bool, bool) {
    let socket = below(place).join("node.sock");
    let mut helper = daemons::spawn_helper(place, &[]);
    let helper_up = serves(&mut helper, || place.helper_socket().exists());
    let mut node = daemons::spawn_node(place);
    let node_up = serves(&mut node, || UnixStream::connect(&socket).is_ok());
    drop(node);
    drop(helper);
    let _ = fs::remove_file(socket);
    let _ = fs::remove_file(place.helper_socket());
    (helper_up, node_up)
}

#[test]
fn what_doctor_fails_the_daemons_refuse_and_its_remedy_satisfies_both() {
    if !bcd_tests::real("what_doctor_fails_the_daemons_refuse_and_its_remedy_satisfies_both") {
        return;
    }
    type Break = fn(&Place);
    let breaks: [(&str, Refuses, Break); 14] = [
        ("configuration", Refuses::Helper, |p| own(&p.config(), 0, 0, 0o664)),
        ("configuration", Refuses::Helper, |p| own(&p.config(), p.node_uid().as_raw(), 0, 0o644)),
        ("configuration", Refuses::Helper, |p| own(p.root(), 0, 0, 0o775)),
        ("sockets", Refuses::Helper, |p| own(&p.root().join("run"), 0, p.node_gid().as_raw(), 0o770)),
        ("sockets", Refuses::Helper, |p| own(&p.root().join("run"), 0, p.node_gid().as_raw(), 0o1770)),
        ("sockets", Refuses::Helper, |p| own(&p.root().join("run"), p.node_uid().as_raw(), 0, 0o755)),
        ("sockets", Refuses::Helper, |p| fs::rename(p.root().join("run"), p.root().join("was")).expect("move")),
        ("sockets", Refuses::Node, |p| own(&p.root().join("run"), 0, 0, 0o750)),
        ("sockets", Refuses::Node, |p| own(&below(p), 0, 0, 0o1777)),
        ("sockets", Refuses::Node, |p| own(&below(p), 0, 0, 0o755)),
        ("sockets", Refuses::Node, |p| fs::remove_dir(below(p)).expect("remove")),
        ("state-dir", Refuses::Helper, |p| own(&p.state(), 0, 0, 0o770)),
        ("state-dir", Refuses::Helper, |p| own(&p.state(), p.node_uid().as_raw(), 0, 0o700)),
        ("data-dir", Refuses::Node, |p| own(&p.data(), 0, 0, 0o755)),
    ];
    for (number, (check, refuses, breaks)) in breaks.into_iter().enumerate() {
        let place = place(&format!("doctor-{number}"));
        assert_eq!(failing(&place, check), Vec::<String>::new(), "{number}: sound at first");
        breaks(&place);
        let remedies = failing(&place, check);
        let [remedy] = remedies.as_slice() else { panic!("{number}: one finding of {check}, not {remedies:?}") };
        let (helper, node) = start(&place);
        let refused = match refuses {
            Refuses::Helper => !helper,
            Refuses::Node => helper && !node,
        };
        assert!(refused, "{number}: doctor fails {check} and the daemons came up: helper {helper}, node {node}");
        let mut left = vec![remedy.to_owned()];
        // A second one where one directory lies in the other, and both were gone.
        for _ in 0..2 {
            for remedy in &left {
                let mended = Command::new("sh").args(["-c", remedy]).status().expect("run the remedy");
                assert!(mended.success(), "{number}: {remedy}");
            }
            left = failing(&place, check);
        }
        assert_eq!(left, Vec::<String>::new(), "{number}: after {remedy}");
        assert_eq!(start(&place), (true, true), "{number}: after {remedy}");
    }
}

#[test]
fn doctor_as_root_asks_as_the_nodes_user() {
    if !bcd_tests::real("doctor_as_root_asks_as_the_nodes_user") {
        return;
    }
    let place = place("doctor-asks");
    let _helper = daemons::helper(&place);
    let report = |place: &Place| {
        let output = Command::new(bin("bcd")).arg("--config").arg(place.config()).arg("doctor").output().expect("run");
        String::from_utf8(output.stdout).expect("text")
    };
    let text = report(&place);
    assert!(text.contains(&format!("bcd-helper {} answers on ", env!("CARGO_PKG_VERSION"))), "{text}");
    // What root can read and the node's user cannot.
    own(&place.config(), 0, 0, 0o600);
    let text = report(&place);
    let told = format!("bcd cannot read the configuration: {}: Permission denied", place.config().display());
    let access: Vec<&str> = text.lines().filter(|line| line.starts_with("FAIL  access ")).collect();
    assert!(matches!(access.as_slice(), [line] if line.ends_with(&told)), "{text}");
    assert!(text.contains(&format!("bcd-helper {} answers on ", env!("CARGO_PKG_VERSION"))), "{text}");
}
