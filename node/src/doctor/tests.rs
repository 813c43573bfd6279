//! Each verdict: a host on which all is well, and what one change to it does.
use super::facts::{
    Cgroups, Chain, CloudHypervisor, Configuration, Configured, Device, Document, Entry, Facts, Family, Firewall,
    Handed, Helper, Host, Interface, Iommu, Kind, Landlock, Libvirt, Need, Node, Part, Place, Probe, Search, Secrets,
    Seen, Unasked, Unread, Version, Words,
};
use super::judge::judge;
use super::{Finding, Level, Report, gather};
use bcd_protocol::config::{Accel, Config};
use bcd_protocol::node_user::Candidate;
use std::path::{Path, PathBuf};

mod daemons;
mod firewall;
mod host;
mod network;
mod places;
mod plants;
mod this_host;
mod words;

const NODE: (u32, u32) = (990, 991);

fn entry(uid: u32, gid: u32, mode: u32) -> Seen {
    Seen::There(Entry { kind: Kind::Directory, uid, gid, mode })
}

/// The way to `path`: every part above it root's and 0755.
fn way(path: &str, last: Seen) -> Vec<Part> {
    let mut way: Vec<Part> = Path::new(path)
        .ancestors()
        .skip(1)
        .map(|above| Part { path: above.to_owned(), seen: entry(0, 0, 0o755) })
        .collect();
    way.reverse();
    way.push(Part { path: PathBuf::from(path), seen: last });
    way
}

fn place(path: &str, last: Seen) -> Place {
    Place { way: way(path, last), free: Some(100 << 30) }
}

/// A user of these ids and no further group, on a host with the groups kvm (107) and libvirt (106).
fn user((uid, gid): (u32, u32)) -> Candidate {
    Candidate { uid, gid, groups: vec![gid], guests: Some(107), libvirt: Some(106) }
}

/// A host with hardware virtualisation on which everything is as it should be.
fn healthy() -> Facts {
    let mut config = Config::parse("[helper]\ninstance_bridges = [\"br0\"]\n").unwrap();
    config.node.spec = Some("/etc/bcd/node.toml".to_owned().try_into().unwrap());
    config.node.images.ca_file = Some("/etc/bcd/ca.pem".to_owned().try_into().unwrap());
    let file = Seen::There(Entry { kind: Kind::File, uid: 0, gid: 0, mode: 0o644 });
    Facts {
        configuration: Configuration::Fine(way("/etc/bcd/bcd.toml", file)),
        host: Host {
            kvm_group: Ok(Some(107)),
            virtualisation: true,
            kvm: Some(Device { gid: 107, mode: 0o660, broken: None }),
            iommu: Iommu { groups: 14, vfio_pci: true },
            seed_tool: Some("genisoimage"),
            cloud_hypervisor: None,
            systemd: Some(Some(252)),
            cgroups: Cgroups::Unified(["cpu", "cpuset", "io", "memory", "pids"].map(str::to_owned).to_vec()),
            landlock: Landlock::Works(4),
            seccomp: true,
            memory: Some(64 << 30),
            clock: 1_800_000_000,
            synchronised: Some(true),
        },
        configured: Some(Configured {
            config,
            node_user: Ok(Some(user(NODE))),
            file: PathBuf::from("/etc/bcd/bcd.toml"),
            probe: Ok(Probe {
                helper: Helper::Welcome(own()),
                libvirt: Ok(Libvirt { version: 9_000_000, qemu: Some(7_002_000) }),
                node: Node::Answers { version: own(), unread: Vec::new(), helper: Some(own()) },
                barred: Vec::new(),
                secrets: Some(Secrets::default()),
                certificates: Some(Ok(2)),
                document: Some(Document::Fine(3)),
            }),
            probed_as_node: true,
            virtlogd: Some(true),
            qemu_directory: Ok(Search::Allowed),
            bridges: vec![("br0".to_owned(), Interface::Bridge { up: true })],
            firewall: Firewall {
                ipv4: Handed::Of(Vec::new()),
                ipv6: Handed::Of(Vec::new()),
                chains: Ok(Vec::new()),
                as_root: true,
                unread: Vec::new(),
            },
            data_dir: place("/var/lib/bcd", entry(NODE.0, NODE.1, 0o710)),
            data_dir_closed: Vec::new(),
            state_dir: place("/var/lib/bcd-helper", entry(0, 0, 0o700)),
            helper_sockets: place("/run/bcd", entry(0, NODE.1, 0o750)),
            helper_socket: place("/run/bcd/helper.sock", socket(0)),
            node_sockets: place("/run/bcd/node", entry(NODE.0, NODE.1, 0o710)),
            secrets: place("/etc/bcd/secrets", entry(NODE.0, NODE.1, 0o700)),
        }),
    }
}

fn own() -> Version {
    Version::from(env!("CARGO_PKG_VERSION"))
}

fn socket(uid: u32) -> Seen {
    Seen::There(Entry { kind: Kind::Socket, uid, gid: NODE.1, mode: 0o660 })
}

/// What the node's user finds there.
fn asked(facts: &mut Facts) -> &mut Probe {
    named(facts).probe.as_mut().unwrap()
}

/// What the configuration names on it.
fn named(facts: &mut Facts) -> &mut Configured {
    facts.configured.as_mut().unwrap()
}

#[track_caller]
fn worst(facts: &Facts) -> Vec<Finding> {
    let findings = judge(facts);
    findings.iter().filter_map(|f| f.remedy.as_deref()).for_each(assert_pastes);
    findings.into_iter().filter(|f| f.level != Level::Ok).collect()
}

/// The findings that one change leads to, the good ones left out.
#[track_caller]
fn found(change: impl FnOnce(&mut Facts)) -> Vec<Finding> {
    let mut facts = healthy();
    change(&mut facts);
    worst(&facts)
}

/// Applies one change and expects exactly one finding of this level, check and text. Answers its remedy.
#[track_caller]
fn expect(change: impl FnOnce(&mut Facts), level: Level, check: &str, part: &str) -> String {
    let found = found(change);
    let [finding] = found.as_slice() else { panic!("{check}: one finding expected, not {found:#?}") };
    assert_eq!((finding.level, finding.check.as_str()), (level, check), "{finding:?}");
    assert!(finding.found.contains(part), "{part:?} is not in {finding:?}");
    assert!(finding.remedy.is_some(), "{finding:?}");
    finding.remedy.clone().unwrap_or_default()
}

/// A remedy is a sentence, or a command that a shell takes as it stands. Nothing for the reader stands behind a command:
/// the shells that know no comments on a terminal (zsh, csh) would take its words for names of files.
#[track_caller]
fn assert_pastes(remedy: &str) {
    assert!(!remedy.is_empty() && !remedy.contains('\n'), "one line: {remedy:?}");
    assert!(!remedy.contains('#'), "a comment is none for every shell: {remedy}");
    let command = remedy;
    let first = command.split(' ').next().unwrap();
    let programs = [
        "apt-get",
        "chgrp",
        "chmod",
        "chown",
        "gpasswd",
        "install",
        "ip",
        "iptables",
        "ip6tables",
        "libvirtd",
        "modprobe",
        "mv",
        "namei",
        "nft",
        "rm",
        "setfacl",
        "sysctl",
        "systemctl",
        "useradd",
        "virtlogd",
    ];
    if programs.contains(&first) {
        assert!(shlex::split(command).is_some(), "{remedy}");
        let prose = command.chars().any(|c| matches!(c, ',' | '(' | ')' | '…' | '?'));
        assert!(!prose && !command.contains(" or ") && !command.contains(" then "), "words for a shell: {remedy}");
    } else {
        assert!(
            first.chars().all(|c| c.is_ascii_alphabetic() || c == ','),
            "neither a command nor a sentence: {remedy}"
        );
    }
}

/// Applies one change and expects a good finding of this check with this text.
#[track_caller]
fn expect_ok(change: impl FnOnce(&mut Facts), check: &str, part: &str) -> Finding {
    let mut facts = healthy();
    change(&mut facts);
    assert_eq!(worst(&facts), []);
    let finding = judge(&facts).into_iter().find(|f| f.check == check).unwrap_or_else(|| panic!("no {check}"));
    assert!(finding.found.contains(part), "{part:?} is not in {finding:?}");
    finding
}

#[test]
fn a_healthy_host_has_no_finding_and_no_remedy() {
    let findings = judge(&healthy());
    assert!(findings.iter().all(|f| f.level == Level::Ok && f.remedy.is_none()), "{findings:#?}");
    assert_eq!(Report::of(findings).exit_code(), 0);
}

#[test]
fn without_a_usable_configuration_nothing_is_judged_by_defaults() {
    let closed = way("/etc/bcd/bcd.toml", Seen::There(Entry { kind: Kind::File, uid: 0, gid: 0, mode: 0o600 }));
    let broken = [
        (Configuration::Missing(PathBuf::from("/etc/bcd/bcd.toml")), "there is no /etc/bcd/bcd.toml"),
        (Configuration::Unreadable(closed.clone(), Unread::Errno(13)), "Permission denied"),
        (Configuration::Unreadable(closed.clone(), Unread::Errno(5)), "I/O error"),
        (Configuration::Unreadable(closed, Unread::NoFile), "it is no regular file"),
        (Configuration::Wrong("/etc/bcd/bcd.toml:3:1: no such key".into()), "/etc/bcd/bcd.toml:3:1: no such key"),
    ];
    for (configuration, part) in broken {
        let change = |f: &mut Facts| (f.configuration, f.configured) = (configuration, None);
        expect(change, Level::Fail, "configuration", part);
    }
    let mut facts = healthy();
    (facts.configuration, facts.configured) = (Configuration::Missing(PathBuf::from("/x")), None);
    let checks: Vec<String> = judge(&facts).into_iter().map(|f| f.check).collect();
    for named in
        ["node-user", "libvirt", "helper", "node", "bridges", "firewall", "data-dir", "state-dir", "sockets", "secrets"]
    {
        assert!(!checks.iter().any(|c| c == named), "{named} was judged without a configuration");
    }
    for host in ["kvm", "seed-tool", "systemd", "cgroups", "sandbox", "clock"] {
        assert!(checks.iter().any(|c| c == host), "{host} needs no configuration: {checks:?}");
    }
}

#[test]
fn the_exit_code_is_the_worst_findings() {
    let report = |change: fn(&mut Facts)| {
        let mut facts = healthy();
        change(&mut facts);
        Report::of(judge(&facts)).exit_code()
    };
    assert_eq!(report(|f| f.host.virtualisation = false), 2);
    assert_eq!(report(|f| f.host.seed_tool = None), 1);
    assert_eq!(report(|f| (f.host.virtualisation, f.host.seed_tool) = (false, None)), 1);
}
