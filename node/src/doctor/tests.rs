//! Each verdict: a host on which all is well, and what one change to it does.
use super::facts::{Configuration, Device, Directory, Document, Facts, Helper, Interface, Landlock, Libvirt, Search};
use super::judge::judge;
use super::{Finding, Level, Report, gather};
use bcd_protocol::config::{Accel, Config};
use std::path::PathBuf;

/// A host with hardware virtualisation on which everything is as it should be.
fn healthy() -> Facts {
    let mut config = Config::parse("[helper]\ninstance_bridges = [\"br0\"]\n").unwrap();
    config.node.spec = Some("/etc/bcd/node.toml".to_owned().try_into().unwrap());
    Facts {
        configuration: Configuration::Fine(PathBuf::from("/etc/bcd/bcd.toml"), Vec::new()),
        config,
        node_user: Some((990, 991)),
        kvm_group: Some(107),
        virtualisation: true,
        kvm: Some(Device { gid: 107, mode: 0o660 }),
        libvirt: Ok(Libvirt { version: 9_000_000, qemu: Some(7_002_000) }),
        virtlogd: Some(true),
        qemu_directory: Ok(Search::Allowed),
        helper: Helper::Welcome(env!("CARGO_PKG_VERSION").to_owned()),
        seed_tool: Some("genisoimage"),
        bridges: vec![("br0".to_owned(), Interface::Bridge { up: true })],
        data_dir: Directory::There { uid: 990, mode: 0o710, free: Some(100 << 30) },
        secrets: Directory::There { uid: 990, mode: 0o700, free: None },
        ca_file: Some((PathBuf::from("/etc/bcd/ca.pem"), Ok(2))),
        document: Some((PathBuf::from("/etc/bcd/node.toml"), Document::Fine(3))),
        landlock: Landlock::Works(4),
        seccomp: true,
        memory: Some(64 << 30),
        clock: 1_800_000_000,
    }
}

fn worst(facts: &Facts) -> Vec<Finding> {
    judge(facts).into_iter().filter(|f| f.level != Level::Ok).collect()
}

/// Applies one change and expects exactly one finding of this level, check and text.
fn expect(change: impl FnOnce(&mut Facts), level: Level, check: &str, part: &str) {
    let mut facts = healthy();
    change(&mut facts);
    let found = worst(&facts);
    let [finding] = found.as_slice() else { panic!("{check}: one finding expected, not {found:#?}") };
    assert_eq!((finding.level, finding.check.as_str()), (level, check), "{finding:?}");
    assert!(finding.found.contains(part), "{part:?} is not in {finding:?}");
    assert!(finding.remedy.as_ref().is_some_and(|r| !r.is_empty()), "a remedy for {finding:?}");
}

#[test]
fn a_healthy_host_has_no_finding_and_no_remedy() {
    let findings = judge(&healthy());
    assert!(findings.iter().all(|f| f.level == Level::Ok && f.remedy.is_none()), "{findings:#?}");
    assert_eq!(Report::of(findings).exit_code(), 0);
}

#[test]
fn what_keeps_instances_from_running_fails() {
    let path = || PathBuf::from("/etc/bcd/bcd.toml");
    let wrong = |why: &str| Configuration::Wrong(path(), why.to_owned());
    expect(|f| f.configuration = wrong("line 3"), Level::Fail, "configuration", "line 3");
    let open = vec!["/etc/bcd has mode 0775: others than root may write to it".to_owned()];
    expect(
        |f| f.configuration = Configuration::Fine(path(), open),
        Level::Fail,
        "configuration",
        "/etc/bcd has mode 0775",
    );
    expect(
        |f| f.configuration = Configuration::Unreadable(path(), "denied".into()),
        Level::Fail,
        "configuration",
        "denied",
    );
    expect(|f| f.node_user = None, Level::Fail, "node-user", "no user bcd");
    expect(|f| f.kvm_group = None, Level::Fail, "kvm-group", "no group kvm");
    expect(|f| f.libvirt = Err("refused".to_owned()), Level::Fail, "libvirt", "qemu:///system: refused");
    expect(
        |f| f.libvirt = Ok(Libvirt { version: 9_000_000, qemu: None }),
        Level::Fail,
        "libvirt",
        "libvirt 9.0.0 answers",
    );
    expect(|f| f.virtlogd = Some(false), Level::Fail, "virtlogd", "every start");
    expect(|f| f.qemu_directory = Ok(Search::Refused), Level::Fail, "qemu-directory", "group kvm may not search");
    expect(|f| f.helper = Helper::Unreachable("gone".to_owned()), Level::Fail, "helper", "gone");
    expect(|f| f.seed_tool = None, Level::Fail, "seed-tool", "genisoimage nor xorriso");
    expect(|f| f.bridges[0].1 = Interface::Missing, Level::Fail, "bridges", "no bridge br0");
    expect(|f| f.bridges[0].1 = Interface::Other, Level::Fail, "bridges", "br0 is no bridge");
    expect(|f| f.data_dir = Directory::Missing, Level::Fail, "data-dir", "no /var/lib/bcd");
    expect(|f| f.data_dir = Directory::Other, Level::Fail, "data-dir", "no directory");
    let there = |uid, mode, free| Directory::There { uid, mode, free: Some(free) };
    expect(
        |f| f.data_dir = there(0, 0o710, 100 << 30),
        Level::Fail,
        "data-dir",
        "belongs to uid 0, not to bcd (uid 990)",
    );
    expect(|f| f.data_dir = there(990, 0o710, 1 << 20), Level::Fail, "data-dir", "1 MiB free");
    expect(|f| f.secrets = there(0, 0o700, 0), Level::Fail, "secrets", "closed to bcd");
    expect(|f| f.secrets = Directory::Other, Level::Fail, "secrets", "no directory");
    expect(|f| f.ca_file = Some((path(), Ok(0))), Level::Fail, "images", "no certificate");
    expect(|f| f.ca_file = Some((path(), Err("denied".into()))), Level::Fail, "images", "denied");
    expect(|f| f.document = Some((path(), Document::Wrong("x:3:1".into()))), Level::Fail, "document", "x:3:1");
    expect(|f| f.clock = 0, Level::Fail, "clock", "1970-01-01");
    expect(|f| f.clock = u64::MAX, Level::Fail, "clock", "9999-12-31");
}

#[test]
fn what_only_limits_or_cannot_be_seen_warns() {
    let path = || PathBuf::from("/etc/bcd/bcd.toml");
    let there = |mode, free| Directory::There { uid: 990, mode, free: Some(free) };
    expect(|f| f.configuration = Configuration::Missing(path()), Level::Warn, "configuration", "defaults");
    expect(|f| f.virtualisation = false, Level::Warn, "kvm", "software emulation");
    expect(|f| f.kvm = None, Level::Warn, "kvm", "no /dev/kvm");
    expect(|f| f.qemu_directory = Err("denied".to_owned()), Level::Warn, "qemu-directory", "denied");
    expect(|f| f.helper = Helper::Welcome("0.0.1".to_owned()), Level::Warn, "helper", "version 0.0.1");
    expect(|f| f.helper = Helper::Forbidden, Level::Warn, "helper", "may not connect");
    expect(|f| f.bridges.clear(), Level::Warn, "bridges", "no NIC");
    expect(|f| f.bridges[0].1 = Interface::Bridge { up: false }, Level::Warn, "bridges", "br0 is down");
    expect(|f| f.data_dir = there(0o755, 100 << 30), Level::Warn, "data-dir", "mode 0755");
    expect(|f| f.data_dir = there(0o710, 5 << 30), Level::Warn, "data-dir", "5 GiB free");
    expect(|f| f.data_dir = Directory::Unseen("denied".to_owned()), Level::Warn, "data-dir", "denied");
    expect(|f| f.secrets = there(0o750, 0), Level::Warn, "secrets", "mode 0750");
    expect(|f| f.document = Some((path(), Document::Missing)), Level::Warn, "document", "no /etc/bcd/bcd.toml yet");
    expect(|f| f.landlock = Landlock::Missing, Level::Warn, "sandbox", "no Landlock");
    expect(|f| f.landlock = Landlock::Off, Level::Warn, "sandbox", "not switched on");
    expect(|f| f.landlock = Landlock::Works(1), Level::Warn, "sandbox", "ABI 1 only");
    expect(|f| f.seccomp = false, Level::Warn, "sandbox", "no seccomp");
    expect(|f| f.memory = Some(1 << 30), Level::Warn, "memory", "1 GiB");
}

#[test]
fn what_the_configuration_insists_on_fails_where_it_would_only_warn() {
    expect(
        |f| (f.virtualisation, f.config.libvirt.accel) = (false, Accel::Kvm),
        Level::Fail,
        "kvm",
        "libvirt.accel asks for kvm",
    );
    expect(
        |f| (f.landlock, f.config.helper.require_sandbox) = (Landlock::Off, true),
        Level::Fail,
        "sandbox",
        "require_sandbox",
    );
}

#[test]
fn a_kvm_device_that_vmms_cannot_open_fails_whatever_the_cpu_can() {
    for (gid, mode) in [(0, 0o600), (0, 0o660), (107, 0o600), (107, 0o640), (107, 0o620)] {
        expect(|f| f.kvm = Some(Device { gid, mode }), Level::Fail, "kvm-device", "cannot open it");
    }
    for (gid, mode) in [(107, 0o660), (0, 0o666), (107, 0o666)] {
        let mut facts = healthy();
        facts.kvm = Some(Device { gid, mode });
        assert_eq!(worst(&facts), [], "{gid} {mode:o}");
    }
}

#[test]
fn software_emulation_by_choice_is_no_finding() {
    let mut facts = healthy();
    (facts.virtualisation, facts.kvm, facts.config.libvirt.accel) = (false, None, Accel::Tcg);
    assert_eq!(worst(&facts), []);
}

#[test]
fn a_helper_that_answers_another_user_alone_is_fine() {
    let mut facts = healthy();
    facts.helper = Helper::Listens;
    assert_eq!(worst(&facts), []);
}

#[test]
fn the_exit_code_is_the_worst_findings() {
    let report = |change: fn(&mut Facts)| {
        let mut facts = healthy();
        change(&mut facts);
        Report::of(judge(&facts)).exit_code()
    };
    assert_eq!(report(|f| f.virtualisation = false), 2);
    assert_eq!(report(|f| f.seed_tool = None), 1);
    assert_eq!(report(|f| (f.virtualisation, f.seed_tool) = (false, None)), 1);
}

#[test]
fn cpu_flags_are_whole_words_of_the_flags_line() {
    assert!(gather::cpu_flags("processor\t: 0\nflags\t\t: fpu vme vmx ssse3\n"));
    assert!(gather::cpu_flags("flags\t\t: fpu\n\nflags\t\t: svm\n"));
    assert!(!gather::cpu_flags("flags\t\t: fpu vmxoff svm_lock\nmodel name\t: svm vmx\nvmx flags\t: vnmi vmx\n"));
    assert!(!gather::cpu_flags(""));
}

#[test]
fn memory_is_read_in_bytes() {
    assert_eq!(gather::mem_total("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16_384 * 1024));
    assert_eq!(gather::mem_total("MemFree: 1 kB\n"), None);
    assert_eq!(gather::mem_total("MemTotal: many kB\n"), None);
}

#[test]
fn this_host_is_looked_at_without_a_node_or_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("bcd.toml");
    let facts = gather::gather(&missing);
    assert_eq!(facts.configuration, Configuration::Missing(missing.clone()));
    assert!(facts.memory.is_some_and(|m| m > 1 << 20));
    assert!(facts.seccomp);
    std::fs::write(&missing, "nonsense = 1\n").unwrap();
    let facts = gather::gather(&missing);
    assert!(matches!(facts.configuration, Configuration::Wrong(_, why) if why.contains("nonsense")));

    // A file in a directory that everyone may write is not root's alone, whoever owns the file.
    std::fs::write(&missing, "[helper]\ninstance_bridges = [\"no-such-bridge\", \"lo\"]\n").unwrap();
    let facts = gather::gather(&missing);
    let Configuration::Fine(_, open) = &facts.configuration else { panic!("{:?}", facts.configuration) };
    assert!(open.iter().any(|part| part.starts_with("/tmp ") || part.contains("belongs to uid")), "{open:?}");
    assert_eq!(facts.bridges[0].1, Interface::Missing);
    assert_eq!(facts.bridges[1].1, Interface::Other);
}
