//! What the sandboxes leave is what the daemons need, and no more: every system call that a whole life of a guest makes is
//! listed, every listed one is made or says why not; each capability that is kept has a verb that fails without it; and a
//! kernel that gives less is told of, or refused.
//!
//! The calls are those that strace sees once the filter is in force. So an entry that is taken out of a list fails the test by
//! name: the call is made, and not listed any more.
use bcd_protocol::reply::{FailureKind, Reply};
use bcd_protocol::request::{Request, Verb};
use bcd_tests::daemons::{self, bin, wait_for};
use bcd_tests::pair::{Pair, Wish};
use bcd_tests::place::Place;
use bcd_tests::sources;
use bcd_tests::{domains, files};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

mod list;
mod trace;

use list::Listed;
use trace::{Calls, Tracer};

const BRIDGE: &str = "bcdsbx0";

/// A bridge for the guest's NIC; removed when dropped.
struct Bridge;

impl Bridge {
    fn make() -> Self {
        let _left_over = Command::new("ip").args(["link", "del", BRIDGE]).stderr(Stdio::null()).status();
        files::run("ip", &["link", "add", BRIDGE, "type", "bridge"]);
        Self
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _gone = Command::new("ip").args(["link", "del", BRIDGE]).status();
    }
}

fn has_strace(test: &str) -> bool {
    let there = Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    if !there {
        eprintln!("{test} skipped: strace is not installed; packaging/dev/install trace does");
    }
    there
}

/// A whole life of a guest with all that the command line can ask, by document, by API and by file.
fn a_whole_life(pair: &Pair, watched: &Path) {
    let nic =
        format!("nics = [{{ bridge = \"{BRIDGE}\", mac = \"52:54:00:b5:bc:01\", addresses = [\"192.0.2.2/24\"] }}]\n");
    let wish = |state, more: &str| Wish { id: "calls", state, more: format!("{nic}{more}") };
    let secret = pair.place.root().join("secrets/test");
    fs::write(&secret, "#cloud-config\n{}\n").expect("user data");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("chmod");
    pair.place.give(&secret);
    pair.apply(&[wish("running", "")], &[]);
    let _ = pair.up_line("calls");
    let _events = pair.ok(&["events"]);
    let _status = pair.ok(&["status", "calls"]);
    let _plan = pair.bcd(&["plan", pair.write("").to_str().expect("utf-8")]);
    // A console with input, and one whose viewer goes away.
    let mut viewer = Command::new(bin("bcd"))
        .arg("--config")
        .arg(pair.place.config())
        .args(["console", "calls"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a viewer");
    viewer.stdin.as_mut().expect("input").write_all(b"\n").expect("typed");
    std::thread::sleep(std::time::Duration::from_millis(300));
    viewer.kill().expect("signal");
    viewer.wait().expect("wait");
    pair.apply(&[wish("paused", "")], &[]);
    pair.wait_state("calls", "paused", 60);
    pair.apply(&[wish("running", "")], &[]);
    pair.wait_state("calls", "running", 60);
    // libvirtd goes and comes back, and both connect to it again.
    let restarted =
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/dev/libvirt")).arg("restart").output();
    assert!(restarted.as_ref().is_ok_and(|output| output.status.success()), "{restarted:?}");
    wait_for("libvirt again", 60, || pair.bcd(&["status", "calls"]).status.success());
    pair.wait_state("calls", "running", 60);
    // The document as a watched file, replaced by rename: the guest's disk grows while it runs, then it stops.
    let grown = pair.document(&[wish("running", "")]).replace(&(512 << 20).to_string(), &(1024 << 20).to_string());
    for text in [grown.clone(), grown.replace("\"running\"", "\"stopped\"")] {
        let new = watched.with_extension("new");
        fs::write(&new, text).expect("write");
        fs::rename(&new, watched).expect("rename");
        wait_for("the watched document's effect", 120, || {
            pair.instance("calls").is_some_and(|row| {
                row["state"] == if text_wants_stop(watched) { "stopped" } else { "running" }
                    && row["disk_bytes"] == 1024u64 << 20
            })
        });
    }
    pair.apply(&[], &["--allow-delete"]);
    pair.wait_gone("calls", 120);
}

fn text_wants_stop(watched: &Path) -> bool {
    fs::read_to_string(watched).is_ok_and(|text| text.contains("\"stopped\""))
}

/// What is wrong with a list, given the calls of a whole life.
fn faults(listed: &Listed, made: &Calls) -> Vec<String> {
    let mut faults = Vec::new();
    for call in &made.names() {
        if !listed.calls().contains(call) && !listed.refused.contains_key(call) {
            faults.push(format!("{call} is made and not listed: {}", made.example(call)));
        }
    }
    for (call, reason) in &listed.allowed {
        if reason.is_none() && !made.names().contains(call) {
            faults.push(format!("{call} is listed and never made: remove it, or say in which rare case it is"));
        }
    }
    for (call, values) in &listed.only {
        for (value, reason) in values {
            if reason.is_none() && !made.with(call, value) {
                faults.push(format!("{call} with {value} is listed and never made"));
            }
        }
    }
    faults
}

#[test]
fn every_listed_call_is_made_or_says_why_not_and_no_other_is() {
    let test = "every_listed_call_is_made_or_says_why_not_and_no_other_is";
    if !bcd_tests::real(test) || !has_strace(test) {
        return;
    }
    let _bridge = Bridge::make();
    let keys = format!("instance_bridges = [\"{BRIDGE}\"]");
    let Some(mut pair) = Pair::prepare("calls", &["calls"], &keys) else { return };
    let watched = pair.place.root().join("node.toml");
    let text = fs::read_to_string(pair.place.config()).expect("configuration");
    pair.place.configure_whole(&text.replace("[node]\n", &format!("[node]\nspec = \"{}\"\n", watched.display())));
    let (of_helper, of_node) = (Tracer::new(&pair.place, "helper"), Tracer::new(&pair.place, "node"));
    let manager = pair.place.root().join("notify");
    let _manager = UnixDatagram::bind(&manager).expect("a service manager's socket");
    fs::set_permissions(&manager, fs::Permissions::from_mode(0o666)).expect("chmod");
    pair.helper = Some(daemons::helper_under(&pair.place, &of_helper.command(&manager)));
    pair.node = Some(daemons::node_under(&pair.place, &of_node.command(&manager)));
    a_whole_life(&pair, &watched);
    pair.node.take().expect("runs").stop();
    pair.helper.take().expect("runs").stop();

    let mut wrong = Vec::new();
    for (name, file, tracer) in
        [("helper", "helper/src/harden/seccomp.rs", of_helper), ("node", "node/src/sandbox/seccomp.rs", of_node)]
    {
        let made = tracer.calls();
        assert!(made.names().len() > 30, "{name}: strace saw {:?}", made.names());
        let found = faults(&list::read(file), &made);
        wrong.extend(found.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn what_copies_a_nodes_log_makes_the_calls_of_its_list_and_no_other() {
    let test = "what_copies_a_nodes_log_makes_the_calls_of_its_list_and_no_other";
    if !bcd_tests::real(test) || !has_strace(test) {
        return;
    }
    let place = Place::new("relay");
    let tracer = Tracer::new(&place, "relay");
    let prefix = tracer.command(Path::new("/nonexistent"));
    let mut relay = Command::new(&prefix[0]);
    relay.args(&prefix[1..]).arg(bin("bcd-helper")).arg("--copy-node-log");
    let mut relay = relay.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("start");
    let mut input = relay.stdin.take().expect("its input");
    let writes = std::thread::spawn(move || {
        // Ordinary lines, control characters, a line that is too long, more than the rate, and an end without one.
        let (long, many) = (vec![b'a'; 100_000], b"line\n".repeat(3_000));
        for part in [b"one\n\x1b[2J\n".as_slice(), &long, b"\n", &many, b"last"] {
            input.write_all(part).expect("read to the end");
        }
    });
    let output = relay.wait_with_output().expect("its end");
    writes.join().expect("written");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.starts_with("node: one\nnode: \\u{1b}[2J\nnode: aaa") && text.contains("…\nnode: line\n"), "{text}");
    assert!(text.trim_end().ends_with("counted and not written: 2004"), "{text}");
    let listed = list::read("helper/src/harden/relay_calls.rs");
    assert_eq!(listed.intruder, BTreeSet::new(), "the helper's is used");
    let found = faults(&listed, &tracer.calls());
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn each_entry_that_no_guest_needs_every_time_says_in_words_when_it_is_needed() {
    for file in ["helper/src/harden/seccomp.rs", "node/src/sandbox/seccomp.rs"] {
        let listed = list::read(file);
        assert!(listed.allowed.len() > 50, "{file}: {} entries", listed.allowed.len());
        let reasons = listed.allowed.values().flatten().chain(listed.refused.values());
        for reason in reasons {
            assert!(reason.split_whitespace().count() >= 3, "{file}: {reason:?} is no reason");
        }
        let both: Vec<_> = listed.intruder.intersection(&listed.calls()).cloned().collect();
        assert_eq!(both, Vec::<String>::new(), "{file}: allowed, and the end of the process too");
    }
}

/// The helper without one capability; what verbs then do.
fn without(place: &Place, capability: &str) -> daemons::Daemon {
    let prefix = ["setpriv".to_owned(), format!("--bounding-set=-{capability}"), "--".to_owned()];
    daemons::helper_under(place, &prefix)
}

#[test]
fn each_kept_capability_has_a_verb_that_fails_without_it() {
    if !bcd_tests::real("each_kept_capability_has_a_verb_that_fails_without_it") {
        return;
    }
    let Some(mut pair) = Pair::prepare("caps", &["caps"], "") else { return };
    // With both it works: a guest runs, and its console is opened.
    pair.start_services();
    pair.apply(&[Wish::running("caps")], &[]);
    let _ = pair.up_line("caps");
    pair.node.take().expect("runs").stop();
    pair.helper.take().expect("runs").stop();

    // What each is needed for is what then fails, and nothing else on the way.
    type Fails = fn(&Reply) -> bool;
    let (console, start) = (files::id("caps"), files::id("caps"));
    let tried: [(&str, Verb, Request, Fails); 2] = [
        ("dac_override", Verb::Console, Request::Console { instance: console }, |reply| {
            let Reply::Failed(failed) = reply else { return false };
            failed.kind == FailureKind::Refused && failed.detail.as_str().contains("cannot be opened: EACCES")
        }),
        (
            "dac_read_search",
            Verb::LibvirtStart,
            Request::LibvirtStart { instance: start, paused: false },
            |reply| matches!(reply, Reply::Denied(denied) if denied.rule.as_str() == "file-unreadable"),
        ),
    ];
    let kept = sources::kept_capabilities();
    assert_eq!(kept, tried.iter().map(|(name, ..)| format!("CAP_{}", name.to_uppercase())).collect::<BTreeSet<_>>());
    for (capability, verb, request, fails) in tried {
        if verb == Verb::LibvirtStart {
            domains::connect().lookup_domain_by_name("bcd-caps").expect("it is there").destroy().expect("stopped");
        }
        let with = daemons::helper(&pair.place);
        let answer = pair.wire().call(&request);
        assert!(!is_refusal(&answer), "with all: {verb} answered {answer:?}");
        if verb == Verb::LibvirtStart {
            domains::connect().lookup_domain_by_name("bcd-caps").expect("it is there").destroy().expect("stopped");
        }
        with.stop();
        let less = without(&pair.place, capability);
        let answer = pair.wire().call(&request);
        assert!(fails(&answer), "without {capability}: {verb} answered {answer:?}");
        let log = less.log();
        // The log is that of all helpers here: the last such line is this one's.
        let told =
            log.lines().rfind(|line| line.contains("a capability is missing")).unwrap_or_else(|| panic!("{log}"));
        assert!(told.contains(&format!("CAP_{}", capability.to_uppercase())), "{told}");
        // Only what needs it.
        let page = pair.wire().call(&Request::Records { after: None, limit: 1 });
        assert!(!is_refusal(&page), "without {capability}: records answered {page:?}");
        less.stop();
    }
}

fn is_refusal(reply: &Reply) -> bool {
    matches!(reply, Reply::Denied(_) | Reply::Failed(_))
}

/// Kernels that give less, as strace plays them: what it makes of a call, and what both daemons then say is missing.
const LESSER_KERNELS: [(&str, &str); 4] = [
    ("landlock_create_ruleset:error=ENOSYS", "no Landlock"),
    ("landlock_create_ruleset:error=EOPNOTSUPP", "no Landlock"),
    // The first such call asks for the version: Linux 5.13's.
    ("landlock_create_ruleset:retval=1:when=1", "a part of Landlock only"),
    ("seccomp:error=EINVAL", "seccomp cannot be set"),
];

#[test]
fn a_kernel_that_gives_less_is_refused_by_both_where_the_whole_is_required_and_told_where_not() {
    let test = "a_kernel_that_gives_less_is_refused_by_both_where_the_whole_is_required_and_told_where_not";
    if !bcd_tests::real(test) || !has_strace(test) {
        return;
    }
    for (injected, missing) in LESSER_KERNELS {
        let call = injected.split(':').next().expect("a call");
        let prefix: Vec<String> = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e"]
            .into_iter()
            .map(str::to_owned)
            .chain([format!("trace={call}"), "-e".to_owned(), format!("inject={injected}")])
            .collect();
        let place = Place::new("lesser");
        place.configure("require_sandbox = true");
        for mut daemon in [daemons::spawn_helper_under(&place, &prefix), daemons::spawn_node_under(&place, &prefix)] {
            let status = daemon.ended(30);
            assert_eq!(status.code(), Some(1), "{injected}:\n{}", daemon.log());
            let log = daemon.log();
            assert!(log.contains(missing) && log.contains("require_sandbox is true"), "{injected}:\n{log}");
        }
        let place = Place::new("told");
        let helper = daemons::helper_under(&place, &prefix);
        let node = daemons::node_under(&place, &prefix);
        // An older kernel's Landlock is no warning at every start: the line about the sandbox says it.
        let told = if missing.contains("part of") { "landlock=partial" } else { missing };
        for daemon in [&helper, &node] {
            wait_for("the line about the sandbox", 30, || daemon.log().contains("no_new_privs=true"));
            assert!(daemon.log().contains(told), "{injected}:\n{}", daemon.log());
            assert_eq!(daemon.log().matches("no_new_privs=true").count(), 1, "{}", daemon.log());
        }
        node.stop();
        helper.stop();
    }
}
