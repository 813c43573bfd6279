//! Every rule is broken here once, by the smallest request that breaks it and nothing else.
use super::*;
use crate::facts::{Facts, FileFact, FileRole};
use crate::judge;
use crate::name::TapName;
use crate::phase::Phase;
use crate::record::RecordChange;
use crate::sample::{self, Host, define, definition, disk, id, nics, record, resize, start, web};
use bcd_protocol::definition::Definition;
use bcd_protocol::id::{GuestUid, Sha256Digest};
use bcd_protocol::limits;
use bcd_protocol::request::Request;
use bcd_protocol::size::{DiskBytes, MemoryBytes, Vcpus};
use std::collections::BTreeSet;

fn records() -> Request {
    Request::Records { after: None, limit: 1 }
}

fn with_file(role: FileRole, fact: FileFact) -> Result<crate::effect::Grant, Denial> {
    let mut host = Host::new();
    host.files.insert(role, fact);
    host.ask(&define(definition()))
}

/// The denial of a request that breaks `rule`. The match is closed: a new rule does not compile until it is broken here.
fn breaking(rule: Rule) -> Denial {
    let result = match rule {
        Rule::PeerUid => {
            let mut host = Host::new();
            host.peer.uid += 1;
            host.ask(&records())
        }
        Rule::HelloFirst => Host { greeted: false, ..Host::new() }.ask(&records()),
        Rule::HelloTwice => Host::new().ask(&Request::Hello { version: bcd_protocol::PROTOCOL_VERSION }),
        Rule::Version => Host { greeted: false, ..Host::new() }.ask(&Request::Hello { version: 0 }),
        Rule::NoRecord => Host::new().ask(&start(false)),
        Rule::DomainForeign => Host::with_web(Phase::Foreign).ask(&define(definition())),
        Rule::Phase => Host::with_web(Phase::Running).ask(&Request::LibvirtUndefine { instance: web() }),
        Rule::DomainUnknown => Host::with_web(Phase::Unknown).ask(&start(false)),
        Rule::Unfinished => {
            let mut host = Host::with_web(Phase::Stopped);
            let begun = host.begun(&start(false));
            host.records.apply(RecordChange::Put(begun));
            host.ask(&start(false))
        }
        Rule::MaxInstances => {
            let mut host = Host::new();
            host.config.helper.max_instances = 1;
            host.add_record(record(&id("other"), 1, Definition { nics: nics(&[]), ..definition() }));
            host.ask(&define(definition()))
        }
        Rule::MaxVcpus => Host::new().ask(&define(Definition { vcpus: Vcpus::new(65).unwrap(), ..definition() })),
        Rule::MaxMemory => {
            let memory = MemoryBytes::new(257 * sample::GIB).unwrap();
            Host::new().ask(&define(Definition { memory, ..definition() }))
        }
        Rule::MaxDisk => Host::new().ask(&define(Definition { disk: disk(4097), ..definition() })),
        Rule::BridgeNotListed => Host::new().ask(&define(Definition { nics: nics(&[("br2", 1)]), ..definition() })),
        Rule::MacTaken => {
            let mut host = Host::new();
            host.add_record(record(&id("other"), 1, definition()));
            host.ask(&define(definition()))
        }
        Rule::TapTaken => {
            // Two ids whose SHA-256 begin with the same five bytes: found in a second.
            let mut host = Host::new();
            host.add_record(record(&id("vm-117852"), 1, definition()));
            let definition = Definition { nics: nics(&[]), ..definition() };
            host.ask(&Request::LibvirtDefine { instance: id("vm-1532487"), definition })
        }
        Rule::MacTwice => {
            Host::new().ask(&define(Definition { nics: nics(&[("br0", 1), ("br0", 1)]), ..definition() }))
        }
        Rule::ImageFixed => {
            let mut changed = definition();
            changed.image.sha256 = Sha256Digest::from_bytes([8; 32]);
            Host::with_web(Phase::Stopped).ask(&define(changed))
        }
        Rule::NicsFixed => Host::with_web(Phase::Running).ask(&define(Definition { nics: nics(&[]), ..definition() })),
        Rule::DiskInUse => Host::with_web(Phase::Running).ask(&define(Definition { disk: disk(11), ..definition() })),
        Rule::DiskShrinks => Host::with_web(Phase::Running).ask(&resize(disk(9))),
        Rule::UidsUsedUp => {
            let mut host = Host::new();
            host.config.helper.max_instances = u32::MAX;
            host.records = sample::all_uids_but_17();
            host.records.apply(RecordChange::Put(record(
                &id("n17"),
                17,
                Definition { nics: nics(&[]), ..definition() },
            )));
            host.ask(&define(definition()))
        }
        Rule::FileMissing => with_file(FileRole::Disk, FileFact::Missing),
        Rule::FileKind => with_file(FileRole::Seed, FileFact::Other),
        Rule::FileOwner => with_file(FileRole::Base, FileFact::Regular { uid: 0, links: 1, bytes: 1 }),
        Rule::FileLinks => with_file(FileRole::Disk, FileFact::Regular { uid: sample::NODE, links: 2, bytes: 1 }),
        Rule::FileUnreadable => with_file(FileRole::Base, FileFact::Unreadable),
        Rule::TapExists => {
            let mut host = Host::with_web(Phase::Stopped);
            host.taps.push(TapName::of(&web(), 0));
            host.ask(&start(false))
        }
        Rule::FactMissing => Host::new().ask_with(&Facts::default(), &define(definition())),
        // Not by any definition within today's limits (tests/golden.rs holds that), so the bound itself is asked.
        Rule::XmlTooLarge => return judge::bounded(&web(), None).unwrap_err(),
    };
    result.unwrap_err()
}

#[test]
fn every_rule_is_broken_by_some_request_and_by_its_id() {
    for rule in Rule::ALL {
        let denial = breaking(*rule);
        assert_eq!(denial.rule(), *rule, "{denial:?}");
        let denied = denial.to_reply();
        assert_eq!(denied.rule.as_str(), rule.id());
        assert_eq!(denied.detail.as_str(), denial.detail().as_str());
    }
}

#[test]
fn a_detail_names_what_broke_the_rule_with_both_numbers() {
    let detail = |rule| breaking(rule).detail().as_str().to_owned();
    assert_eq!(detail(Rule::MaxVcpus), "vcpus is 65: helper.max_vcpus allows 64");
    assert_eq!(
        detail(Rule::MaxMemory),
        format!("memory_bytes is {}: helper.max_memory_bytes allows {}", 257 * sample::GIB, 256 * sample::GIB)
    );
    assert_eq!(
        detail(Rule::DiskShrinks),
        format!("disk_bytes is {} and the disk has {}: a disk only grows", 9 * sample::GIB, 10 * sample::GIB)
    );
    assert!(detail(Rule::MacTaken).contains("nics[0]: mac 52:54:00:00:00:01 on bridge br0 is instance other's"));
    assert!(detail(Rule::MacTwice).starts_with("nics[1]: "));
    assert!(detail(Rule::TapTaken).contains("vm-117852"));
    assert!(detail(Rule::FileOwner).contains("base image of instance web belongs to uid 0"));
    assert!(detail(Rule::TapExists).contains("bc4b5e57f6ebn0"));
    assert!(detail(Rule::PeerUid).contains("uid 991"));
}

#[test]
fn every_id_is_a_rule_name_and_every_meaning_a_sentence_and_no_two_are_alike() {
    let mut ids = BTreeSet::new();
    let mut meanings = BTreeSet::new();
    for rule in Rule::ALL {
        assert!(ids.insert(rule.id()), "{rule} is there twice");
        assert!(meanings.insert(rule.meaning()), "two rules say: {}", rule.meaning());
        RuleName::try_from(rule.id().to_owned()).unwrap();
        assert_eq!(rule.to_string(), rule.id());
        assert!(rule.meaning().ends_with('.') && !rule.meaning().contains("  "), "{:?}", rule.meaning());
        assert_eq!(rule.meaning(), rule.meaning().trim());
    }
    assert_eq!(ids.len(), Rule::ALL.len());
}

#[test]
fn limits_themselves_are_allowed() {
    let mut host = Host::new();
    host.config.helper.max_instances = 2;
    host.add_record(record(&id("other"), 1, Definition { nics: nics(&[("br1", 1)]), ..definition() }));
    let at_limit = Definition {
        vcpus: Vcpus::new(64).unwrap(),
        memory: MemoryBytes::new(256 * sample::GIB).unwrap(),
        disk: disk(4096),
        ..definition()
    };
    let _ = host.ask(&define(at_limit.clone())).unwrap();
    for (changed, rule) in [
        (Definition { vcpus: Vcpus::new(65).unwrap(), ..at_limit.clone() }, Rule::MaxVcpus),
        (
            Definition {
                memory: MemoryBytes::new(256 * sample::GIB + limits::MEMORY_UNIT).unwrap(),
                ..at_limit.clone()
            },
            Rule::MaxMemory,
        ),
        (
            Definition { disk: DiskBytes::new(4096 * sample::GIB + limits::SECTOR).unwrap(), ..at_limit.clone() },
            Rule::MaxDisk,
        ),
    ] {
        assert_eq!(host.ask(&define(changed)).unwrap_err().rule(), rule);
    }
}

#[test]
fn a_guest_uid_and_root_are_never_the_node_even_if_the_configuration_says_so() {
    let host = Host::new();
    for uid in [0, limits::GUEST_UID_FIRST, limits::GUEST_UID_LAST] {
        let peer = crate::decide::Peer { uid, pid: 1 };
        let setting = crate::decide::Setting { node_uid: uid, peer, ..host.setting() };
        let denial = crate::decide::questions(&setting, &records()).unwrap_err();
        assert_eq!(denial.rule(), Rule::PeerUid, "uid {uid}");
    }
    for uid in [1, limits::GUEST_UID_FIRST - 1, limits::GUEST_UID_LAST + 1] {
        assert!(GuestUid::new(uid).is_err());
        let peer = crate::decide::Peer { uid, pid: 1 };
        let setting = crate::decide::Setting { node_uid: uid, peer, ..host.setting() };
        let _ = crate::decide::questions(&setting, &records()).unwrap();
    }
}
