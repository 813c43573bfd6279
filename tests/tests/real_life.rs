//! The life of a real guest through the pair: who runs as whom, what stays whose, and that every state is reached and told.
use bcd_tests::daemons::wait_for;
use bcd_tests::domains::{self, Foreign};
use bcd_tests::images::Manner;
use bcd_tests::pair::{Pair, Wish};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Owner, group and mode of everything below a directory.
fn owners(dir: &Path) -> BTreeMap<String, (u32, u32)> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).expect("read a directory").flatten() {
            let meta = fs::symlink_metadata(entry.path()).expect("look at a file");
            found.insert(entry.path().display().to_string(), (meta.uid(), meta.gid()));
            if meta.is_dir() {
                left.push(entry.path());
            }
        }
    }
    found
}

/// One digest over names and contents below libvirt's directory, but for the definitions of domains: those are the domains
/// themselves and no configuration.
fn digest(dir: &Path) -> String {
    let mut all = Sha256::new();
    let domains = dir.join("qemu");
    for path in owners(dir).keys().filter(|path| !Path::new(path).starts_with(&domains)) {
        all.update(path.as_bytes());
        if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file()) {
            all.update(fs::read(path).expect("read a file"));
        }
    }
    format!("{:?}", all.finalize())
}

fn proc_status(pid: i32) -> BTreeMap<String, String> {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .expect("the process is there")
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect()
}

#[test]
fn a_guest_boots_runs_as_its_own_uid_and_leaves_nothing() {
    let test = "a_guest_boots_runs_as_its_own_uid_and_leaves_nothing";
    if !bcd_tests::real(test) {
        return;
    }
    let host_config = digest(Path::new("/etc/libvirt"));
    let Some(mut pair) = Pair::start("life", &["life", "still"], "") else { return };
    let wishes = [Wish::running("life"), Wish { id: "still", state: "stopped", more: String::new() }];
    pair.apply(&wishes, &[]);
    pair.wait_state("life", "running", 120);
    let console = pair.up_line("life");
    assert!(!console.contains("panic"), "{console}");
    pair.wait_state("still", "stopped", 60);
    assert_eq!(domains::qemu_pid("still"), None, "what is to be stopped never starts");

    let node_uid = pair.place.node_uid().as_raw().to_string();
    let node = proc_status(pair.node.as_ref().expect("runs").pid().as_raw());
    assert_eq!(node["Uid"].split_whitespace().collect::<Vec<_>>(), vec![node_uid.as_str(); 4], "the node's uids");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(u64::from_str_radix(&node[set], 16), Ok(0), "the node's {set}");
    }
    assert_eq!((node["NoNewPrivs"].as_str(), node["Seccomp"].as_str()), ("1", "2"));
    let helper = proc_status(pair.helper.as_ref().expect("runs").pid().as_raw());
    let caps = u64::from_str_radix(&helper["CapEff"], 16).expect("a set");
    assert!(caps.count_ones() <= 3, "the helper's capabilities: {caps:x}");
    assert_eq!(helper["CapEff"], helper["CapBnd"], "the helper can get no more than it has");
    assert_eq!((helper["NoNewPrivs"].as_str(), helper["Seccomp"].as_str()), ("1", "2"));

    let pid = domains::qemu_pid("life").expect("QEMU runs");
    let qemu = proc_status(pid);
    let uids: Vec<u32> = qemu["Uid"].split_whitespace().map(|uid| uid.parse().expect("a uid")).collect();
    assert!(uids.iter().all(|uid| *uid == uids[0] && *uid >= 0x7FFD_0000), "QEMU's uids: {uids:?}");
    assert_eq!(pair.instance("life").expect("a row")["uid"], uids[0], "status names the uid that QEMU runs as");
    for set in ["CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(u64::from_str_radix(&qemu[set], 16), Ok(0), "QEMU's {set}");
    }

    let node_owner = (pair.place.node_uid().as_raw(), pair.place.node_gid().as_raw());
    let while_running = owners(&pair.place.data());
    assert!(while_running.values().all(|owner| *owner == node_owner), "{while_running:?}");

    pair.apply(&[Wish { id: "life", state: "stopped", more: String::new() }, wishes[1].clone()], &[]);
    pair.wait_state("life", "stopped", 90);
    let console = pair.ok(&["console", "life", "--until", "is up", "--timeout", "5"]);
    assert!(console.contains("is up"), "the backlog outlives the guest");
    let after_stop = owners(&pair.place.data());
    assert!(after_stop.values().all(|owner| *owner == node_owner), "{after_stop:?}");
    let records = pair.place.state();
    assert!(owners(&records).values().all(|owner| *owner == (0, 0)), "root's records are root's");

    pair.apply(&[], &["--allow-delete"]);
    pair.wait_gone("life", 60);
    pair.wait_gone("still", 60);
    assert_eq!(fs::read_dir(pair.place.data().join("instances")).expect("read").count(), 0);
    assert_eq!(fs::read_dir(records.join("records")).expect("read").count(), 0);
    let connection = domains::connect();
    for id in ["life", "still"] {
        assert!(connection.lookup_domain_by_name(&format!("bcd-{id}")).is_err(), "domain of {id}");
    }
    pair.node.take().expect("runs").stop();
    pair.helper.take().expect("runs").stop();
    assert_eq!(digest(Path::new("/etc/libvirt")), host_config, "the host's libvirt configuration");
}

#[test]
fn every_state_is_reached_from_every_other() {
    if !bcd_tests::real("every_state_is_reached_from_every_other") {
        return;
    }
    let Some(pair) = Pair::start("states", &["states"], "") else { return };
    let wish = |state| [Wish { id: "states", state, more: String::new() }];
    pair.apply(&wish("running"), &[]);
    let _ = pair.up_line("states");
    for state in ["paused", "running", "stopped", "paused", "stopped", "running"] {
        pair.apply(&wish(state), &[]);
        pair.wait_state("states", state, 100);
        assert_eq!(domains::qemu_pid("states").is_some(), state != "stopped", "{state}");
    }
    pair.apply(&[], &["--allow-delete"]);
    pair.wait_gone("states", 90);
}

#[test]
fn a_disk_grows_stopped_and_running_and_never_shrinks() {
    if !bcd_tests::real("a_disk_grows_stopped_and_running_and_never_shrinks") {
        return;
    }
    let Some(pair) = Pair::start("grow", &["grow"], "") else { return };
    let sized = |state: &str, mib: u64| {
        pair.document(&[Wish { id: "grow", state: "running", more: String::new() }])
            .replace("desired_state = \"running\"", &format!("desired_state = \"{state}\""))
            .replace(&format!("disk_bytes = {}", 512 << 20), &format!("disk_bytes = {}", mib << 20))
    };
    let apply = |text: &str| {
        let path = pair.write(text);
        pair.bcd(&["apply", path.to_str().expect("utf-8")])
    };
    let size = || {
        let disk = pair.place.data().join("instances/grow/disk.qcow2");
        let output = std::process::Command::new("qemu-img")
            .args(["info", "-U", "--output=json", disk.to_str().expect("utf-8")])
            .output()
            .expect("qemu-img");
        let info: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(info["virtual-size"].as_u64()? >> 20)
    };
    assert!(apply(&sized("stopped", 512)).status.success());
    pair.wait_state("grow", "stopped", 60);
    assert!(apply(&sized("stopped", 600)).status.success());
    wait_for("a stopped disk of 600 MiB", 30, || size() == Some(600));
    assert!(apply(&sized("running", 600)).status.success());
    let _ = pair.up_line("grow");
    let pid = domains::qemu_pid("grow");
    assert!(apply(&sized("running", 700)).status.success());
    wait_for("a running disk of 700 MiB", 30, || size() == Some(700));
    assert_eq!(domains::qemu_pid("grow"), pid, "growing restarts nothing");
    let _ = apply(&sized("running", 650));
    wait_for("the refusal to shrink", 30, || {
        pair.instance("grow").is_some_and(|row| row["last_error"]["kind"] == "InvalidSpec")
    });
    let message = pair.instance("grow").expect("a row")["last_error"]["message"].to_string();
    assert!(
        message.contains(&(650u64 << 20).to_string()) && message.contains(&(700u64 << 20).to_string()),
        "{message}"
    );
    assert_eq!(size(), Some(700));
    assert_eq!(domains::qemu_pid("grow"), pid);
    pair.apply(&[], &["--allow-delete"]);
    pair.wait_gone("grow", 90);
}

#[test]
fn a_bad_image_is_refused_and_its_neighbour_runs() {
    if !bcd_tests::real("a_bad_image_is_refused_and_its_neighbour_runs") {
        return;
    }
    let Some(pair) = Pair::start("images", &["good", "bad"], "") else { return };
    let images = || -> Vec<String> {
        let read = fs::read_dir(pair.place.data().join("images")).expect("read");
        read.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    pair.images.behave(Manner::CutAfter(100_000));
    pair.apply(&[Wish::running("bad")], &[]);
    wait_for("the fault of a cut download", 60, || {
        pair.instance("bad").is_some_and(|row| row["last_error"]["kind"] == "Unavailable")
    });
    wait_for("nothing left of a cut download", 10, || images().is_empty());
    pair.images.behave(Manner::Honest);
    let wrong = format!("{:064x}", 7);
    let text = pair.document(&[Wish::running("good"), Wish::running("bad")]);
    let at = text.rfind(&pair.sha256).expect("the digest");
    let text = format!("{}{wrong}{}", &text[..at], &text[at + 64..]);
    let path = pair.write(&text);
    let _ = pair.bcd(&["apply", path.to_str().expect("utf-8")]);
    wait_for("the fault of a wrong digest", 60, || {
        pair.instance("bad").is_some_and(|row| row["last_error"]["kind"] == "ImageRejected")
    });
    let message = pair.instance("bad").expect("a row")["last_error"]["message"].to_string();
    assert!(message.contains(&wrong) && message.contains(&pair.sha256), "both digests are named: {message}");
    let _ = pair.up_line("good");
    assert_eq!(images(), [format!("{}.qcow2", pair.sha256)], "one base image and nothing else");
    pair.apply(&[], &["--allow-delete"]);
    pair.wait_gone("good", 90);
}

#[test]
fn a_bad_document_changes_nothing_and_a_large_deletion_is_asked_for() {
    if !bcd_tests::real("a_bad_document_changes_nothing_and_a_large_deletion_is_asked_for") {
        return;
    }
    let Some(pair) = Pair::start("documents", &["doc"], "") else { return };
    pair.apply(&[Wish::running("doc")], &[]);
    pair.wait_state("doc", "running", 120);
    let pid = domains::qemu_pid("doc");
    let good = pair.document(&[Wish::running("doc")]);
    for (what, bad, line, field) in [
        ("an unknown field", good.replace("vcpus = 1", "vcpu = 1"), 6, "vcpu"),
        (
            "a number without its unit",
            good.replace(&format!("disk_bytes = {}", 512 << 20), "disk_bytes = 50"),
            8,
            "disk_bytes",
        ),
        ("a negative number", good.replace("vcpus = 1", "vcpus = -1"), 6, "vcpus"),
        ("a string for a number", good.replace("vcpus = 1", "vcpus = \"1\""), 6, "vcpus"),
        ("a float", good.replace(&format!("memory_bytes = {}", 128 << 20), "memory_bytes = 1e30"), 7, "memory_bytes"),
    ] {
        let path = pair.write(&bad);
        let output = pair.bcd(&["apply", path.to_str().expect("utf-8")]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{what} was accepted");
        assert!(error.contains("spec.toml"), "{what}: the file is named: {error}");
        assert!(error.contains(&format!("{line}")) && error.contains(field), "{what}: line and field: {error}");
        assert_eq!(pair.state("doc").as_deref(), Some("running"), "{what}");
    }
    let path = pair.write("");
    let output = pair.bcd(&["apply", path.to_str().expect("utf-8")]);
    assert!(!output.status.success(), "an empty document deletes all that runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("--allow-delete"), "{error}");
    assert_eq!(domains::qemu_pid("doc"), pid, "the guest runs on");
    pair.apply(&[], &["--allow-delete"]);
    pair.wait_gone("doc", 90);
}

#[test]
fn foreign_domains_are_listed_and_left_alone() {
    if !bcd_tests::real("foreign_domains_are_listed_and_left_alone") {
        return;
    }
    let connection = domains::connect();
    let other = Foreign::define(&connection, "somebody-elses-vm", None);
    let taken = Foreign::define(&connection, "bcd-taken", None);
    let before = [other.xml(), taken.xml()];
    let Some(pair) = Pair::start("foreign", &[], "") else { return };
    let names = || {
        let status = pair.status()?;
        let rows = status["foreign"].as_array()?.clone();
        Some(rows.iter().map(|row| row["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>())
    };
    wait_for("both foreign domains in status", 30, || {
        names()
            .is_some_and(|names| ["somebody-elses-vm", "bcd-taken"].iter().all(|name| names.iter().any(|n| n == name)))
    });
    pair.apply(&[Wish::running("taken")], &[]);
    wait_for("the refusal of a taken name", 60, || {
        pair.instance("taken").is_some_and(|row| row["last_error"]["kind"] == "Denied")
    });
    let message = pair.instance("taken").expect("a row")["last_error"]["message"].to_string();
    assert!(message.contains("bcd-taken"), "{message}");
    pair.apply(&[], &["--allow-delete"]);
    pair.wait_gone("taken", 30);
    assert_eq!([other.xml(), taken.xml()], before);
}

#[test]
fn a_guest_that_ends_by_itself_is_seen_and_started_again() {
    if !bcd_tests::real("a_guest_that_ends_by_itself_is_seen_and_started_again") {
        return;
    }
    let Some(pair) = Pair::start("ends", &["ends"], "") else { return };
    pair.apply(&[Wish::running("ends")], &[]);
    let _ = pair.up_line("ends");
    let first = domains::qemu_pid("ends").expect("QEMU runs");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(first), nix::sys::signal::Signal::SIGKILL).expect("kill");
    wait_for("another QEMU", 60, || domains::qemu_pid("ends").is_some_and(|pid| pid != first));
    pair.wait_state("ends", "running", 30);
    let events = pair.ok(&["events", "--json"]);
    assert!(events.contains("\"ends\""), "{events}");
    pair.apply(&[], &["--allow-delete"]);
    pair.wait_gone("ends", 90);
}
