//! The installed units: how little they are exposed, and what their processes really have.
use bcd_tests::daemons::wait_for;
use bcd_tests::host::{self, Undo, ok, unit};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// What `systemd-analyze security` says of a unit: 0 is safest, 10 is what libvirtd and virtlogd nearly get (9.6).
fn exposure(name: &str) -> f64 {
    let text = ok(&format!("systemd-analyze security --no-pager {name} | tail -n 1"));
    let number = text.split_once("level for ").and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
    number.unwrap_or_else(|| panic!("no exposure in: {text}"))
}

#[test]
fn the_units_are_exposed_no_further_than_promised() {
    if !host::inside("the_units_are_exposed_no_further_than_promised") {
        return;
    }
    let (node, helper, libvirtd) =
        (exposure("bcd-node.service"), exposure("bcd-helper.service"), exposure("libvirtd.service"));
    eprintln!("exposure: node {node}, helper {helper}, libvirtd {libvirtd}");
    assert!(libvirtd > 9.0, "the measure is another one: libvirtd has {libvirtd}");
    assert!(node <= 1.3, "node: {node}");
    assert!(helper <= 3.0, "helper: {helper}");
}

fn status_of(name: &str) -> BTreeMap<String, String> {
    let pid = unit(name, "MainPID");
    fs::read_to_string(format!("/proc/{pid}/status"))
        .expect("the daemon runs")
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect()
}

#[test]
fn the_installed_daemons_have_what_they_say_and_no_more() {
    if !host::inside("the_installed_daemons_have_what_they_say_and_no_more") {
        return;
    }
    let user = host::node_user();
    for (name, uid, most) in [("bcd-node.service", user.uid.as_raw(), 0), ("bcd-helper.service", 0, 3)] {
        let status = status_of(name);
        let uids: Vec<u32> = status["Uid"].split_whitespace().map(|uid| uid.parse().expect("a uid")).collect();
        assert_eq!(uids, [uid; 4], "{name}");
        for set in ["CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            let held = u64::from_str_radix(&status[set], 16).expect("a set").count_ones();
            assert!(held <= most, "{name} has {held} capabilities in {set}");
        }
        assert_eq!((status["NoNewPrivs"].as_str(), status["Seccomp"].as_str()), ("1", "2"), "{name}");
        let invocation = unit(name, "InvocationID");
        let journal = format!("journalctl -q --no-pager -o cat _SYSTEMD_INVOCATION_ID={invocation}");
        let told = ok(&format!("{journal} | grep -E 'sandbox.*no_new_privs'"));
        assert_eq!(told.lines().count(), 1, "{name} tells its sandbox once: {told}");
        // Linux 6.1 knows Landlock's second ABI, which is not the whole.
        let landlock = ["landlock=partial", "landlock=full"].iter().any(|word| told.contains(word));
        assert!(landlock && told.contains("seccomp=true"), "{name}: {told}");
        assert_eq!(unit(name, "Restart"), "always", "{name}");
    }
    for limit in ["MemoryMax", "TasksMax"] {
        for name in ["bcd-node.service", "bcd-helper.service"] {
            assert!(unit(name, limit).parse::<u64>().is_ok_and(|most| most < u64::MAX), "{name} has no {limit}");
        }
    }
}

#[test]
fn a_daemon_that_hangs_is_started_again_by_its_watchdog() {
    if !host::inside("a_daemon_that_hangs_is_started_again_by_its_watchdog") {
        return;
    }
    let operator = host::operator();
    for name in ["bcd-helper.service", "bcd-node.service"] {
        assert_ne!(unit(name, "WatchdogUSec"), "0", "{name} has a watchdog");
        // The same, sooner.
        let dir = format!("/run/systemd/system/{name}.d");
        let reload = format!("systemctl daemon-reload && systemctl restart {name}");
        let undo = Undo::with(format!("rm -r {dir} && {reload}"));
        let _ = ok(&format!("mkdir -p {dir} && printf '[Service]\\nWatchdogSec=8\\n' >{dir}/soon.conf && {reload}"));
        let pid = unit(name, "MainPID");
        std::thread::sleep(std::time::Duration::from_secs(12));
        assert_eq!(unit(name, "MainPID"), pid, "{name} feeds its watchdog");
        let _ = ok(&format!("kill -STOP {pid}"));
        wait_for(&format!("another process of {name}"), 60, || {
            let now = unit(name, "MainPID");
            now != pid && now != "0"
        });
        drop(undo);
        host::wait_connected(&operator);
    }
}

/// Owner, group and mode of what lies at a path; no link is followed.
fn access(path: &str) -> (u32, u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert!(!meta.is_symlink(), "{path} is a link");
    (meta.uid(), meta.gid(), meta.mode() & 0o7777)
}

#[test]
fn the_directories_of_the_sockets_outlive_each_unit_and_an_upgrade_clears_what_lay_in_the_way() {
    let test = "the_directories_of_the_sockets_outlive_each_unit_and_an_upgrade_clears_what_lay_in_the_way";
    if !host::inside(test) {
        return;
    }
    let operator = host::operator();
    let user = host::node_user();
    let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
    let directories = || [access("/run/bcd"), access("/run/bcd/node")];
    let promised = [(0, gid, 0o750), (uid, gid, 0o710)];
    let answers = || wait_for("the node's answer", 60, || operator.status().is_some());
    assert_eq!(directories(), promised);
    let sockets = || [access(host::HELPER_SOCKET), access("/run/bcd/node/node.sock")];
    assert_eq!(sockets(), [(0, gid, 0o660), (uid, gid, 0o660)]);
    for units in ["bcd-node.service", "bcd-helper.service", "bcd-helper.socket bcd-helper.service"] {
        let _ = ok(&format!("systemctl stop {units}"));
        assert_eq!(directories(), promised, "after the stop of {units}");
        let _ = ok(&format!("systemctl start {units}"));
        answers();
    }

    // The older layout, and what the node's user could do in it.
    let payload = std::env::var("BCD_PACKAGING").expect("the test host has packages");
    let as_node = "setpriv --reuid bcd --regid bcd --clear-groups";
    let _ = ok(
        "systemctl stop bcd-node.service bcd-helper.socket bcd-helper.service && rm -r /run/bcd/node && chmod 1770 /run/bcd",
    );
    let _ = ok(&format!("{as_node} sh -c 'mkdir /run/bcd/helper.sock && ln -s /etc/bcd /run/bcd/node'"));
    let before = access("/etc/bcd");
    assert!(!host::sh("systemctl start bcd-helper.socket").status.success(), "a directory cannot be bound over");
    let _ = ok(&format!("dpkg --force-confold --install {payload}/../packages/newer.deb"));
    assert_eq!(directories(), promised);
    assert_eq!(sockets(), [(0, gid, 0o660), (uid, gid, 0o660)]);
    assert_eq!(access("/etc/bcd"), before, "no link was followed");
    answers();
}
