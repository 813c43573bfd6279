//! Definitions and files.
use super::*;
use crate::facts::{FileFact, FileRole};
use crate::sample::{Host, NODE, define, definition, disk, good_file, id, nic, nics, record, web};
use bcd_protocol::definition::{ImageFormat, Nics};
use bcd_protocol::id::AllocationId;
use bcd_protocol::limits;
use bcd_protocol::request::Request;
use bcd_protocol::size::{MemoryBytes, Vcpus};

fn rule(host: &Host, definition: Definition) -> Option<Rule> {
    host.ask(&define(definition)).err().map(|denial| denial.rule())
}

fn with_nics(list: &[(&str, u8)]) -> Definition {
    Definition { nics: nics(list), ..definition() }
}

#[test]
fn as_many_instances_as_configured_and_no_more() {
    let mut host = Host::new();
    for number in 0..3 {
        host.add_record(record(&id(&format!("n{number}")), number, with_nics(&[])));
    }
    for (most, expected) in [(2, Some(Rule::MaxInstances)), (3, Some(Rule::MaxInstances)), (4, None)] {
        host.config.helper.max_instances = most;
        assert_eq!(rule(&host, definition()), expected, "{most}");
    }
    // One that is there may still change.
    host.config.helper.max_instances = 1;
    let definition = Definition { vcpus: Vcpus::new(1).unwrap(), ..with_nics(&[]) };
    host.add_domain("bcd-n0", 0, crate::facts::DomainState::Shutoff);
    let _ = host.ask(&Request::LibvirtDefine { instance: id("n0"), definition }).unwrap();
}

#[test]
fn every_nic_is_checked_and_named_by_its_index() {
    let host = Host::new();
    let list: Vec<_> = (0..8).map(|last| ("br0", last)).collect();
    assert_eq!(rule(&host, with_nics(&list)), None);
    for index in 0..8 {
        let mut bad = list.clone();
        bad[index].0 = "br2";
        let denial = host.ask(&define(with_nics(&bad))).unwrap_err();
        assert_eq!(denial.rule(), Rule::BridgeNotListed);
        assert!(denial.detail().as_str().starts_with(&format!("nics[{index}]: bridge br2 ")));
    }
}

#[test]
fn a_mac_is_one_of_a_kind_on_its_bridge_alone() {
    let mut host = Host::new();
    assert_eq!(rule(&host, with_nics(&[("br0", 1), ("br1", 1)])), None);
    assert_eq!(rule(&host, with_nics(&[("br0", 1), ("br1", 1), ("br0", 1)])), Some(Rule::MacTwice));
    host.add_record(record(&id("other"), 1, with_nics(&[("br0", 1)])));
    assert_eq!(rule(&host, with_nics(&[("br0", 2), ("br0", 1)])), Some(Rule::MacTaken));
    assert_eq!(rule(&host, with_nics(&[("br1", 1)])), None);
}

#[test]
fn a_mac_that_an_unfinished_change_gives_up_or_takes_is_still_taken() {
    let mut host = Host::new();
    let other = record(&id("other"), 1, with_nics(&[("br0", 1)]));
    let changing = other.changing(bcd_protocol::request::Verb::LibvirtDefine, with_nics(&[("br0", 2)]));
    host.add_record(changing.clone());
    assert_eq!(rule(&host, with_nics(&[("br0", 1)])), Some(Rule::MacTaken));
    assert_eq!(rule(&host, with_nics(&[("br0", 2)])), Some(Rule::MacTaken));
    host.records.apply(crate::record::RecordChange::Put(changing.finished()));
    assert_eq!(rule(&host, with_nics(&[("br0", 1)])), None);
    assert_eq!(rule(&host, with_nics(&[("br0", 2)])), Some(Rule::MacTaken));
}

#[test]
fn a_domain_that_moves_its_own_macs_about_is_not_its_own_rival() {
    let host = Host::with_web(Phase::Stopped);
    assert_eq!(rule(&host, with_nics(&[("br1", 1), ("br0", 1)])), None);
}

#[test]
fn the_image_is_fixed_in_digest_and_format_in_every_phase() {
    for phase in [Phase::Missing, Phase::Stopped, Phase::Running, Phase::Paused] {
        let host = Host::with_web(phase);
        let mut changed = definition();
        changed.image.format = ImageFormat::Raw;
        assert_eq!(rule(&host, changed), Some(Rule::ImageFixed), "{phase}");
    }
}

#[test]
fn nics_and_disk_are_fixed_in_memory_and_free_otherwise() {
    let moved = with_nics(&[("br1", 3)]);
    let mut addressed = definition();
    let addresses = vec!["192.0.2.7/24".parse().unwrap()].try_into().unwrap();
    addressed.nics = Nics::try_from(vec![bcd_protocol::definition::Nic { addresses, ..nic("br0", 1) }]).unwrap();
    let grown = Definition { disk: disk(11), ..definition() };
    for phase in [Phase::Running, Phase::Paused] {
        let host = Host::with_web(phase);
        assert_eq!(rule(&host, moved.clone()), Some(Rule::NicsFixed));
        assert_eq!(rule(&host, addressed.clone()), Some(Rule::NicsFixed));
        assert_eq!(rule(&host, grown.clone()), Some(Rule::DiskInUse));
        let denial = host.ask(&define(grown.clone())).unwrap_err();
        assert!(denial.detail().as_str().contains("libvirt.blockresize"));
    }
    for phase in [Phase::Missing, Phase::Stopped] {
        let host = Host::with_web(phase);
        for free in [&moved, &addressed, &grown] {
            assert_eq!(rule(&host, free.clone()), None);
        }
    }
}

#[test]
fn a_definition_never_shrinks_the_disk() {
    for phase in [Phase::Missing, Phase::Stopped, Phase::Running, Phase::Paused] {
        let shrunk = Definition { disk: disk(9), ..definition() };
        assert_eq!(rule(&Host::with_web(phase), shrunk), Some(Rule::DiskShrinks), "{phase}");
    }
}

#[test]
fn everything_else_may_change_in_memory() {
    for phase in [Phase::Running, Phase::Paused] {
        let host = Host::with_web(phase);
        for free in [
            Definition { vcpus: Vcpus::new(8).unwrap(), ..definition() },
            Definition { memory: MemoryBytes::new(limits::MEMORY_MIN).unwrap(), ..definition() },
            Definition { allocation: AllocationId::parse("alloc-2").unwrap(), ..definition() },
        ] {
            assert_eq!(rule(&host, free), None);
        }
    }
}

#[test]
fn each_file_is_checked_and_the_denial_says_which() {
    let bad = [
        (FileFact::Missing, Rule::FileMissing),
        (FileFact::Other, Rule::FileKind),
        (FileFact::Unreadable, Rule::FileUnreadable),
        (FileFact::Regular { uid: NODE + 1, links: 1, bytes: 1 }, Rule::FileOwner),
        (FileFact::Regular { uid: NODE, links: 0, bytes: 1 }, Rule::FileLinks),
        (FileFact::Regular { uid: NODE, links: 2, bytes: 1 }, Rule::FileLinks),
    ];
    for (role, name) in [(FileRole::Disk, "disk"), (FileRole::Seed, "seed"), (FileRole::Base, "base image")] {
        for (fact, rule) in bad {
            let mut host = Host::new();
            host.files.insert(role, fact);
            let denial = host.ask(&define(definition())).unwrap_err();
            assert_eq!(denial.rule(), rule, "{name} {fact:?}");
            assert!(denial.detail().as_str().starts_with(&format!("the {name} of instance web ")));
        }
        let host = Host::new();
        let questions = crate::decide::questions(&host.setting(), &define(definition())).unwrap();
        let mut facts = host.look(&questions);
        facts.files.retain(|(found, fact)| *found != role && *fact == good_file());
        assert_eq!(host.ask_with(&facts, &define(definition())).unwrap_err().rule(), Rule::FactMissing);
    }
}

#[test]
fn an_id_whose_taps_would_be_called_like_anothers_is_refused_only_to_a_new_instance() {
    let (first, second) = (id("vm-117852"), id("vm-1532487"));
    assert_eq!(TapStem::of(&first), TapStem::of(&second));
    let mut host = Host::new();
    host.add_record(record(&first, 1, with_nics(&[])));
    let request = |instance| Request::LibvirtDefine { instance, definition: definition() };
    let denial = host.ask(&request(second.clone())).unwrap_err();
    assert_eq!(denial.rule(), Rule::TapTaken);
    let _ = host.ask(&request(first.clone())).unwrap();
    host.records.apply(crate::record::RecordChange::Remove(first));
    let _ = host.ask(&request(second)).unwrap();
    assert_ne!(TapStem::of(&web()), TapStem::of(&id("web2")));
}
