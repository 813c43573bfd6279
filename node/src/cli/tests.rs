//! What the command line accepts, and what it prints.
mod man;
mod plan_shown;

use super::apply::{Goal, Look};
use super::text::{Style, ago, bytes, moment, printable, printable_lines};
use super::{Cli, Command, doctor, events, spec, status};
use crate::api::events::{Event, EventKind};
use crate::api::service::{ApplyReport, Document, PlanReport};
use crate::doctor::{Finding, Level, Report};
use crate::plan::Plan;
use crate::spec::Format;
use crate::status::{NodeStatus, UnixMillis};
use bcd_protocol::id::InstanceId;
use clap::{CommandFactory, Parser};
use serde_json::{Value, json};

/// 2026-01-31 12:00:00 UTC, milliseconds.
const NOW: u64 = 1_769_860_800_000;

fn id(text: &str) -> InstanceId {
    InstanceId::parse(text).unwrap()
}

fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from([&["bcd"], arguments].concat())
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn global_options_may_stand_before_and_after_the_command() {
    for arguments in [&["--config", "/x", "status"][..], &["status", "--config", "/x"]] {
        assert_eq!(parse(arguments).unwrap().global.config.to_str(), Some("/x"));
    }
    assert_eq!(parse(&["status"]).unwrap().global.config.to_str(), Some("/etc/bcd/bcd.toml"));
}

#[test]
fn each_command_takes_its_options() {
    for arguments in [
        &["node"][..],
        &["helper", "--", "--anything", "x"],
        &["status", "web-1", "--json", "--watch", "--api", "/x"],
        &["--api", "/x", "status", "--all"],
        &["spec", "--json", "--api", "/x"],
        &["apply", "-", "--allow-delete", "--wait", "--timeout", "5", "--json"],
        &["plan", "x.json", "--json"],
        &["console", "web-1", "--read-only", "--until", "is up", "--timeout", "3"],
        &["events", "-f", "--after", "12", "--json"],
        &["doctor", "--json"],
        &["schema"],
        &["openapi"],
        &["completions", "bash"],
    ] {
        assert!(parse(arguments).is_ok(), "{arguments:?}: {:?}", parse(arguments).err());
    }
}

#[test]
fn wrong_command_lines_are_refused_before_anything_is_asked() {
    for (arguments, part) in [
        (&[][..], "Usage"),
        (&["staus"], "status"),
        (&["status", "UPPER"], "lower-case"),
        (&["console"], "<ID>"),
        (&["console", "../etc"], "lower-case"),
        (&["console", "web-1", "--timeout", "3"], "--until"),
        (&["console", "web-1", "--until", ""], "--until"),
        (&["apply", "x", "--timeout", "3"], "--wait"),
        (&["doctor", "--api", "/x"], "--api"),
        (&["schema", "--api", "/x"], "--api"),
        (&["node", "--api", "/x"], "--api"),
        (&["events", "--after", "-1"], "-1"),
        (&["completions", "cmd.exe"], "possible values"),
    ] {
        let error = parse(arguments).expect_err(&arguments.join(" "));
        assert!(error.use_stderr());
        assert!(error.to_string().contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn arguments_of_the_helper_are_passed_on_as_they_are() {
    let Command::Helper { arguments } = parse(&["helper", "--check", "x"]).unwrap().command else {
        panic!("not the helper");
    };
    assert_eq!(arguments, ["--check", "x"]);
}

#[test]
fn nothing_in_a_name_or_message_reaches_the_terminal_as_a_command() {
    assert_eq!(
        printable("a\x1b[2Jb\r\n\t\u{9b}c\u{202e}d\u{2066}\x7f"),
        "a\\u{1b}[2Jb\\r\\n\\t\\u{9b}c\\u{202e}d\\u{2066}\\u{7f}"
    );
    assert_eq!(printable_lines("one\ntwo\x1b[m\r"), "one\ntwo\\u{1b}[m\\r");
    assert_eq!(printable("größe 10 µs — 日本"), "größe 10 µs — 日本");
}

#[test]
fn numbers_are_in_units_people_read() {
    let shown: Vec<String> = [0, 1023, 1024, 1536, 536_870_912, 10 << 30, (10 << 30) + 1, u64::MAX].map(bytes).to_vec();
    assert_eq!(shown, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "512 MiB", "10 GiB", "10.0 GiB", "16.0 EiB"]);
    let shown: Vec<String> = [0, 119, 120, 7_199, 7_200, 172_799, 172_800].map(|s| ago(NOW - s * 1000, NOW)).to_vec();
    assert_eq!(shown, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d"]);
    assert_eq!(ago(NOW + 5, NOW), "0 s", "a clock that was set back is no panic");
    assert_eq!(moment(NOW), "2026-01-31T12:00:00Z");
    assert_eq!(moment(u64::MAX), "9999-12-31T23:59:59Z");
}

fn node(instances: Value, foreign: Value) -> NodeStatus {
    let value = json!({
        "version": "0.1.0",
        "helper": { "state": "connected", "version": "0.1.0" },
        "spec": { "generation": 3, "source": { "file": { "path": "/etc/bcd/node.toml" } }, "accepted_at": NOW - 60_000 },
        "runtimes": [{ "driver": "libvirt-kvm", "kind": "runtime", "state": "connected", "version": "9.0.0",
            "capabilities": [] }],
        "labels": {}, "unreadable": [], "instances": instances, "foreign": foreign,
    });
    serde_json::from_value(value).unwrap()
}

fn instance(id: &str, more: Value) -> Value {
    let mut value = json!({ "id": id, "allocation": "a-1", "state": "running", "desired": "running",
        "runtime": "libvirt-kvm", "vcpus": 2, "memory_bytes": 536_870_912_u64, "disk_bytes": 10_737_418_240_u64,
        "addresses": [], "nics": [], "gpus": [], "volumes": [] });
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    value
}

#[test]
fn status_is_one_aligned_table_with_what_needs_attention() {
    let instances = json!([
        instance(
            "db",
            json!({ "state": "absent", "doing": { "what": "fetching the image", "since": NOW - 12_000,
            "progress": { "done": 734_003_200, "total": 1_073_741_824, "unit": "bytes" } } })
        ),
        instance("old", json!({ "desired": null, "vcpus": 16, "memory_bytes": 1_610_612_736_u64 })),
        instance("web-1", json!({ "addresses": ["10.0.0.5/24", "fd00::5/64"] })),
        instance(
            "web-2",
            json!({ "state": "stopped", "stop_reason": "crashed", "last_error": {
            "kind": "ImageRejected", "message": "the image is \u{1b}[31mno qcow2", "at": NOW - 240_000, "times": 3 } })
        ),
    ]);
    let foreign = json!([{ "name": "win\u{202e}", "uuid": "01234567-89ab-cdef-0123-456789abcdef", "runtime": "libvirt-kvm",
        "state": "paused", "vcpus": 1, "memory_bytes": 1_073_741_824_u64 }]);
    let shown = status::all(&node(instances, foreign), UnixMillis(NOW), Style::Plain, true);
    let expected = "\
node     0.1.0, document 3 from /etc/bcd/node.toml, accepted 2026-01-31T11:59:00Z
helper   connected, version 0.1.0
runtime  libvirt-kvm connected, version 9.0.0

INSTANCE  STATE    VCPUS  MEMORY   DISK    ADDRESSES         NOTE
db        absent       2  512 MiB  10 GiB  -                 fetching the image 68 % of 1 GiB (12 s)
old       running     16  1.5 GiB  10 GiB  -                 to be deleted
web-1     running      2  512 MiB  10 GiB  10.0.0.5 fd00::5
web-2     stopped      2  512 MiB  10 GiB  -                 ImageRejected: the image is \\u{1b}[31mno qcow2 (3 times, last 4 min ago)

1 domain not bcd's, left alone
DOMAIN       STATE   VCPUS  MEMORY  UUID
win\\u{202e}  paused      1   1 GiB  01234567-89ab-cdef-0123-456789abcdef
";
    assert_eq!(shown, expected);
}

#[test]
fn a_pending_restart_is_shown_with_what_runs_until_then() {
    let web = instance("web-1", json!({ "runs_with": { "vcpus": 1, "memory_bytes": 268_435_456_u64 } }));
    let shown = status::all(&node(json!([web.clone()]), json!([])), UnixMillis(NOW), Style::Plain, false);
    assert!(shown.contains("web-1     running      2  512 MiB  10 GiB  -          restart pending\n"), "{shown}");
    let one = status::one(&serde_json::from_value(web).unwrap(), UnixMillis(NOW));
    assert!(one.contains("restart     pending: it runs with 1 vCPU and 256 MiB until its next start\n"), "{one}");
}

#[test]
fn foreign_domains_are_counted_and_a_few_are_named() {
    let foreign = |number: usize| {
        let one = |n| {
            json!({ "name": format!("vm\u{1b}{n}"), "uuid": format!("01234567-89ab-cdef-0123-{n:012}"),
            "runtime": "libvirt-kvm", "state": "running" })
        };
        let status = node(json!([]), (0..number).map(one).collect());
        let shown = status::all(&status, UnixMillis(NOW), Style::Plain, false);
        shown.split_once("no instances\n").unwrap().1.to_owned()
    };
    assert_eq!(foreign(0), "");
    assert_eq!(foreign(1), "\n1 domain not bcd's, left alone: vm\\u{1b}0 (--all shows them)\n");
    let five = "vm\\u{1b}0, vm\\u{1b}1, vm\\u{1b}2, vm\\u{1b}3, vm\\u{1b}4";
    assert_eq!(foreign(5), format!("\n5 domains not bcd's, left alone: {five} (--all shows them)\n"));
    assert_eq!(foreign(9), format!("\n9 domains not bcd's, left alone: {five} and 4 more (--all shows them)\n"));
}

#[test]
fn the_document_in_force_is_printed_so_that_it_can_be_applied_again() {
    let document = crate::spec::parse("x.toml", DOCUMENT).unwrap();
    let printed = spec::render(&node(json!([]), json!([])), &document).unwrap();
    assert!(
        printed.starts_with("# document 3 from /etc/bcd/node.toml, accepted 2026-01-31T11:59:00Z\n\n"),
        "{printed}"
    );
    assert_eq!(crate::spec::parse("printed.toml", &printed).unwrap(), document);
}

#[test]
fn status_says_what_is_unreachable_and_that_states_are_not_known() {
    let mut value =
        serde_json::to_value(node(json!([instance("web-1", json!({ "state": "unknown" }))]), json!([]))).unwrap();
    value["helper"] = json!({ "state": "unreachable", "message": "start bcd-helper" });
    value["unreadable"] = json!([{ "section": "libvirt", "since": NOW - 30_000, "message": "libvirtd is away" }]);
    value["spec"]["refused"] = json!({ "kind": "InvalidSpec", "message": "node.toml:3:1: no", "at": NOW, "times": 1 });
    let shown = status::all(&serde_json::from_value(value).unwrap(), UnixMillis(NOW), Style::Plain, false);
    assert!(shown.contains("helper   unreachable: start bcd-helper\n"), "{shown}");
    assert!(shown.contains("unread   libvirt, for 30 s: libvirtd is away\n"), "{shown}");
    assert!(shown.contains("refused  InvalidSpec: node.toml:3:1: no (0 s ago)\n"), "{shown}");
    assert!(shown.contains("web-1     unknown      2"), "{shown}");
}

#[test]
fn an_empty_node_says_what_to_do() {
    let mut empty = node(json!([]), json!([]));
    empty.spec = crate::status::SpecStatus::default();
    let shown = status::all(&empty, UnixMillis(NOW), Style::Plain, false);
    assert!(shown.starts_with("node     0.1.0, no document yet: `bcd apply FILE` gives it one\n"), "{shown}");
    assert!(shown.ends_with("\nno instances\n"), "{shown}");
}

#[test]
fn one_instance_is_shown_line_by_line() {
    let more = json!({ "stop_reason": "powered_off", "state": "stopped", "image_sha256": "ab".repeat(32),
        "nics": [{ "tap": "bc0123456789n0", "bridge": "br0", "mac": "52:54:00:00:00:01", "addresses": ["10.0.0.5/24"] }],
        "uuid": "01234567-89ab-cdef-0123-456789abcdef", "uid": 2_147_287_041,
        "last_error": { "kind": "Timeout", "message": "no answer", "at": NOW - 3_000, "times": 1, "retry_at": NOW + 5_000 } });
    let status: crate::status::InstanceStatus = serde_json::from_value(instance("web-1", more)).unwrap();
    let expected = format!(
        "\
instance    web-1
state       stopped
because     powered off
wanted      running
runtime     libvirt-kvm
allocation  a-1
vcpus       2
memory      512 MiB
disk        10 GiB
image       sha256 {}
nic         bc0123456789n0 on br0, 52:54:00:00:00:01 10.0.0.5/24
uuid        01234567-89ab-cdef-0123-456789abcdef
uid         2147287041
error       Timeout: no answer (3 s ago)
next try    2026-01-31T12:00:05Z
",
        "ab".repeat(32)
    );
    assert_eq!(status::one(&status, UnixMillis(NOW)), expected);
}

#[test]
fn an_event_is_one_line_whatever_it_says() {
    let event = Event {
        seq: 42,
        at_ms: NOW,
        kind: EventKind::StateChanged,
        instance: Some("web-1".to_owned()),
        message: "stopped\nrunning".to_owned(),
    };
    assert_eq!(events::line(&event), "    42  2026-01-31T12:00:00Z  state-changed     web-1: stopped\\nrunning\n");
}

#[test]
fn a_report_of_the_doctor_has_remedies_beneath_and_a_sum() {
    let finding = |level, check: &str, found: &str, remedy: Option<&str>| Finding {
        level,
        check: check.to_owned(),
        found: found.to_owned(),
        remedy: remedy.map(str::to_owned),
    };
    let report = Report::of(vec![
        finding(Level::Ok, "libvirt", "it answers", None),
        finding(Level::Warn, "kvm", "slow", Some("faster CPU")),
        finding(Level::Fail, "seed-tool", "none\n-> rm -rf /\u{1b}[2K", Some("install one")),
    ]);
    let expected = "\
ok    libvirt    it answers
warn  kvm        slow
                 -> faster CPU
FAIL  seed-tool  none\\n-> rm -rf /\\u{1b}[2K
                 -> install one
1 failing, 1 warning
";
    assert_eq!(doctor::render(&report, Style::Plain), expected);
}

const DOCUMENT: &str = "[[instances]]\nid = \"web-1\"\nallocation = \"a\"\nruntime = \"libvirt-kvm\"\nhostname = \"web-1\"\n\
    vcpus = 1\nmemory_bytes = 134217728\ndisk_bytes = 536870912\n\
    image = { url = \"https://images.example/x.qcow2\", sha256 = \"abababababababababababababababababababababababababababababababab\", format = \"qcow2\" }\n";

fn goal(changed: bool) -> Goal {
    let document = Document { name: "x.toml".to_owned(), format: Format::Toml, text: DOCUMENT.to_owned() };
    let plan = PlanReport { plan: Plan::default(), deletes_running: 0, needs_allow_delete: false, unchecked: None };
    Goal::of(&document, &ApplyReport { generation: 3, changed, accepted_at: UnixMillis(NOW - 60_000), plan })
}

fn judged(changed: bool, instances: Value) -> Look {
    goal(changed).judge(&node(instances, json!([])))
}

#[test]
fn waiting_ends_when_every_instance_is_as_the_document_wants() {
    assert_eq!(judged(true, json!([])), Look::Wait, "the node has not looked at the document yet");
    assert_eq!(judged(true, json!([instance("web-1", json!({ "state": "stopped" }))])), Look::Wait);
    let doing = json!({ "doing": { "what": "starting", "since": NOW } });
    assert_eq!(judged(true, json!([instance("web-1", doing)])), Look::Wait);
    let web = instance("web-1", json!({}));
    assert_eq!(judged(true, json!([web.clone()])), Look::Over(vec![]));
    let leaving = instance("old", json!({ "desired": null }));
    assert_eq!(judged(true, json!([leaving, web])), Look::Wait, "one that left the document is not gone yet");
}

#[test]
fn waiting_ends_with_those_that_failed_for_good() {
    let error = |kind: &str, times: u32, at: u64| {
        let last = json!({ "kind": kind, "message": "m", "at": at, "times": times, "retry_at": NOW + 1 });
        json!([instance("web-1", json!({ "state": "absent", "last_error": last }))])
    };
    let failed = Look::Over(vec![id("web-1")]);
    for kind in ["InvalidSpec", "Denied", "ImageRejected", "Unsupported"] {
        assert_eq!(judged(true, error(kind, 1, NOW)), failed, "{kind}");
    }
    for kind in ["ResourcesExhausted", "Timeout", "Unavailable", "Internal"] {
        assert_eq!(judged(true, error(kind, 2, NOW)), Look::Wait, "{kind} is tried again");
        assert_eq!(judged(true, error(kind, 3, NOW)), failed, "{kind} has come back too often");
    }
    let before = NOW - 61_000;
    for changed in [true, false] {
        assert_eq!(judged(changed, error("Denied", 1, before)), Look::Wait, "an error from before it was given");
        assert_eq!(judged(changed, error("Denied", 1, NOW - 60_000)), failed, "it failed since");
    }
}

#[test]
fn waiting_ends_when_another_document_takes_over() {
    let mut status = node(json!([instance("web-1", json!({}))]), json!([]));
    status.spec.generation = 4;
    assert_eq!(goal(true).judge(&status), Look::Superseded(4));
    status.spec.generation = 2;
    assert_eq!(goal(true).judge(&status), Look::Wait);
    (status.spec.generation, status.spec.accepted_at) = (3, Some(UnixMillis(NOW - 60_001)));
    assert_eq!(goal(false).judge(&status), Look::Wait, "the status is from before the same document was given again");
}

#[test]
fn what_is_not_there_in_time_is_named_with_its_state() {
    let status = node(json!([instance("web-1", json!({ "state": "paused" }))]), json!([]));
    assert_eq!(goal(true).open(&status), ["web-1 (paused)"]);
    assert_eq!(goal(true).open(&node(json!([]), json!([]))), ["web-1"]);
}

/// Replaces what lies between two markers of a document by `text`, or checks that it lies there.
fn held(document: &str, markers: (&str, &str), text: &str) {
    let path = format!("{}/../docs/{document}", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(&path).unwrap();
    let begin = page.find(markers.0).unwrap() + markers.0.len();
    let begin = begin + page[begin..].find('\n').unwrap() + 1;
    let end = page.find(markers.1).unwrap();
    let expected = format!("\n{text}\n");
    if std::env::var_os("BCD_BLESS").is_some() {
        std::fs::write(&path, format!("{}{expected}{}", &page[..begin], &page[end..])).unwrap();
    } else {
        assert!(page[begin..end] == expected, "docs/{document} is old: run this test with BCD_BLESS=1");
    }
}

#[test]
fn docs_cli_md_has_every_command_as_the_program_prints_it() {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut text = String::new();
    for name in command.get_subcommands().map(|c| c.get_name().to_owned()).collect::<Vec<_>>() {
        let help = command.find_subcommand_mut(&name).unwrap().render_help().to_string();
        text.push_str(&format!("### {name}\n\n```\n{}\n```\n\n", help.trim_end()));
    }
    held("cli.md", ("<!-- commands:", "<!-- end of commands -->"), text.trim_end());
}

#[test]
fn docs_api_md_has_every_route() {
    let mut text = "| request | body | answer | |\n| --- | --- | --- | --- |\n".to_owned();
    for route in crate::api::routes::ROUTES {
        let verb = format!("{:?}", route.verb).to_uppercase();
        let query: Vec<String> = route.query.iter().map(|p| format!("`{}`: {}", p.name, p.about)).collect();
        let query = if query.is_empty() { String::new() } else { format!("<br>{}", query.join("<br>")) };
        let body = route.body.map_or_else(|| "-".to_owned(), |shape| format!("{shape:?}"));
        let (shape, media) = route.answer;
        text.push_str(&format!(
            "| `{verb} {}` | {body} | {shape:?}, {media:?} | {}{query} |\n",
            route.path, route.summary
        ));
    }
    held("api.md", ("<!-- routes:", "<!-- end of routes -->"), text.trim_end());
}

#[test]
fn waiting_does_not_end_while_part_of_the_host_cannot_be_read() {
    let mut status = node(json!([instance("web-1", json!({}))]), json!([]));
    assert_eq!(goal(true).judge(&status), Look::Over(vec![]));
    let unread = json!([{ "section": "records", "since": NOW, "message": "the helper is gone" }]);
    status.unreadable = serde_json::from_value(unread).unwrap();
    assert_eq!(goal(true).judge(&status), Look::Wait);
    assert_eq!(goal(true).missing(&status), ["the helper's records cannot be read (the helper is gone)"]);
}
