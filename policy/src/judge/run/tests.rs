//! `libvirt.start` and what follows it.
use super::*;
use crate::effect::Outcome;
use crate::facts::{Facts, FileFact, FileRole};
use crate::name::TapName;
use crate::record::{Intent, RecordChange};
use crate::sample::{Host, definition, disk, domain_name, id, resize, start, uid, uuid, web};
use bcd_protocol::reply::FailureKind;
use bcd_protocol::request::Request;

fn about(verb: Verb) -> Request {
    let instance = web();
    match verb {
        Verb::LibvirtShutdown => Request::LibvirtShutdown { instance },
        Verb::LibvirtDestroy => Request::LibvirtDestroy { instance },
        Verb::LibvirtSuspend => Request::LibvirtSuspend { instance },
        Verb::LibvirtResume => Request::LibvirtResume { instance },
        _ => Request::Console { instance },
    }
}

fn changes_nothing(host: &Host, request: &Request) -> bool {
    let grant = host.ask(request).unwrap();
    let (effect, intent) = (grant.effect().clone(), grant.intent().cloned());
    let settled = grant.settle(Outcome::Done);
    effect == Effect::Nothing
        && intent.is_none()
        && settled.change.is_none()
        && settled.reply == Reply::Done { changed: false }
}

/// The verb of the effect and the domain it names.
fn acts(effect: &Effect) -> Option<(Verb, &OwnDomain)> {
    match effect {
        Effect::Nothing => None,
        Effect::LibvirtDefine(it) => Some((Verb::LibvirtDefine, it.domain())),
        Effect::LibvirtUndefine(it) => Some((Verb::LibvirtUndefine, it.domain())),
        Effect::LibvirtStart(it) => Some((Verb::LibvirtStart, it.domain())),
        Effect::LibvirtShutdown(it) => Some((Verb::LibvirtShutdown, it.domain())),
        Effect::LibvirtDestroy(it) => Some((Verb::LibvirtDestroy, it.domain())),
        Effect::LibvirtSuspend(it) => Some((Verb::LibvirtSuspend, it.domain())),
        Effect::LibvirtResume(it) => Some((Verb::LibvirtResume, it.domain())),
        Effect::LibvirtBlockResize(it) => Some((Verb::LibvirtBlockResize, it.domain())),
        Effect::ConsoleOpen(it) => Some((Verb::Console, it.domain())),
    }
}

#[test]
fn each_verb_acts_on_the_recorded_domain_and_is_recorded() {
    for (verb, phases) in [
        (Verb::LibvirtShutdown, &[Phase::Running][..]),
        (Verb::LibvirtDestroy, &[Phase::Running, Phase::Paused]),
        (Verb::LibvirtSuspend, &[Phase::Running]),
        (Verb::LibvirtResume, &[Phase::Paused]),
    ] {
        for phase in phases {
            let host = Host::with_web(*phase);
            let grant = host.ask(&about(verb)).unwrap();
            let (acted, domain) = acts(grant.effect()).unwrap();
            assert_eq!((acted, domain.name(), domain.uuid()), (verb, &domain_name(), uuid(0)));
            assert_eq!(host.begun(&about(verb)), host.record().intending(verb));
            let settled = grant.settle(Outcome::Done);
            assert_eq!(settled.change, Some(RecordChange::Put(host.record().clone())));
            assert_eq!(settled.reply, Reply::Done { changed: true });
        }
    }
}

#[test]
fn what_is_so_already_changes_nothing() {
    for (verb, phase) in [
        (Verb::LibvirtShutdown, Phase::Stopped),
        (Verb::LibvirtDestroy, Phase::Stopped),
        (Verb::LibvirtDestroy, Phase::Missing),
        (Verb::LibvirtSuspend, Phase::Paused),
        (Verb::LibvirtResume, Phase::Running),
    ] {
        assert!(changes_nothing(&Host::with_web(phase), &about(verb)), "{verb} while {phase}");
    }
    assert!(changes_nothing(&Host::with_web(Phase::Running), &start(false)));
    assert!(changes_nothing(&Host::with_web(Phase::Paused), &start(true)));
}

#[test]
fn a_start_defines_from_the_record_and_keeps_it_as_it_is() {
    for paused in [false, true] {
        let host = Host::with_web(Phase::Stopped);
        let grant = host.ask(&start(paused)).unwrap();
        let Effect::LibvirtStart(effect) = grant.effect() else { panic!() };
        assert_eq!(*effect.paused(), paused);
        assert_eq!((effect.domain().name(), effect.domain().uuid()), (&domain_name(), uuid(0)));
        assert!(effect.xml().as_str().contains("52:54:00:00:00:01"));
        assert_eq!(host.begun(&start(paused)), host.record().intending(Verb::LibvirtStart));
        let failed = grant.settle(Outcome::Failed(FailureKind::ResourcesExhausted, "memory".to_owned()));
        assert_eq!(failed.change, Some(RecordChange::Put(host.record().clone())));
    }
}

#[test]
fn a_domain_in_memory_is_not_started_into_the_other_state() {
    for (phase, paused, instead) in [(Phase::Running, true, "suspend it"), (Phase::Paused, false, "resume it")] {
        let denial = Host::with_web(phase).ask(&start(paused)).unwrap_err();
        assert_eq!(denial.rule(), Rule::Phase);
        let detail = denial.detail().as_str();
        assert!(detail.contains(phase.as_str()) && detail.ends_with(instead), "{detail}");
    }
}

#[test]
fn a_start_is_judged_by_the_configuration_of_the_moment() {
    let mut host = Host::with_web(Phase::Stopped);
    host.config.helper.instance_bridges.clear();
    assert_eq!(host.ask(&start(false)).unwrap_err().rule(), Rule::BridgeNotListed);
    let mut host = Host::with_web(Phase::Stopped);
    host.config.helper.max_vcpus = 1;
    assert_eq!(host.ask(&start(false)).unwrap_err().rule(), Rule::MaxVcpus);
    // How many instances there may be does not matter to one that is there.
    let mut host = Host::with_web(Phase::Stopped);
    host.config.helper.max_instances = 1;
    let _ = host.ask(&start(false)).unwrap();
}

#[test]
fn a_start_needs_its_files_and_none_of_its_taps() {
    for role in [FileRole::Disk, FileRole::Seed, FileRole::Base] {
        let mut host = Host::with_web(Phase::Stopped);
        host.files.insert(role, FileFact::Missing);
        assert_eq!(host.ask(&start(false)).unwrap_err().rule(), Rule::FileMissing);
    }
    let mut host = Host::with_web(Phase::Stopped);
    host.taps = vec![TapName::of(&web(), 1), TapName::of(&id("other"), 0)];
    let _ = host.ask(&start(false)).unwrap();
    host.taps.push(TapName::of(&web(), 0));
    assert_eq!(host.ask(&start(false)).unwrap_err().rule(), Rule::TapExists);
}

#[test]
fn taps_that_nobody_looked_for_are_not_taken_for_absent() {
    let host = Host::with_web(Phase::Stopped);
    let questions = crate::decide::questions(&host.setting(), &start(false)).unwrap();
    let facts = Facts { taps: None, ..host.look(&questions) };
    assert_eq!(host.ask_with(&facts, &start(false)).unwrap_err().rule(), Rule::FactMissing);
}

#[test]
fn a_disk_in_memory_grows_and_the_record_with_it() {
    for phase in [Phase::Running, Phase::Paused] {
        let host = Host::with_web(phase);
        let grant = host.ask(&resize(disk(20))).unwrap();
        let Effect::LibvirtBlockResize(effect) = grant.effect() else { panic!() };
        assert_eq!((*effect.disk(), effect.domain().uuid()), (disk(20), uuid(0)));
        let begun = host.begun(&resize(disk(20)));
        assert_eq!(begun.intent, Some(Intent { verb: Verb::LibvirtBlockResize, before: Some(definition()) }));
        let larger = Definition { disk: disk(20), ..definition() };
        assert_eq!(begun.definition, larger);
        let refused = grant.clone().settle(Outcome::Failed(FailureKind::Refused, "no space".to_owned()));
        assert_eq!(refused.change, Some(RecordChange::Put(host.record().clone())));
        let Some(RecordChange::Put(after)) = grant.settle(Outcome::Done).change else { panic!() };
        assert_eq!((after.definition, after.intent), (larger, None));
    }
}

#[test]
fn the_recorded_size_is_told_again_and_a_smaller_or_too_large_one_never() {
    let host = Host::with_web(Phase::Running);
    let grant = host.ask(&resize(disk(10))).unwrap();
    assert!(matches!(grant.effect(), Effect::LibvirtBlockResize(_)));
    assert_eq!(grant.settle(Outcome::Done).change, Some(RecordChange::Put(host.record().clone())));
    let below = DiskBytes::new(disk(10).get() - 512).unwrap();
    assert_eq!(host.ask(&resize(below)).unwrap_err().rule(), Rule::DiskShrinks);
    let _ = host.ask(&resize(disk(4096))).unwrap();
    let above = DiskBytes::new(disk(4096).get() + 512).unwrap();
    assert_eq!(host.ask(&resize(above)).unwrap_err().rule(), Rule::MaxDisk);
}

#[test]
fn a_console_is_opened_of_the_recorded_domain_and_uid_and_not_recorded() {
    for phase in [Phase::Running, Phase::Paused] {
        let grant = Host::with_web(phase).ask(&about(Verb::Console)).unwrap();
        let Effect::ConsoleOpen(effect) = grant.effect() else { panic!() };
        assert_eq!((effect.domain().uuid(), *effect.uid()), (uuid(0), uid(0)));
        assert_eq!(grant.intent(), None);
        let settled = grant.clone().settle(Outcome::Done);
        assert_eq!((settled.change, settled.reply), (None, Reply::Console));
        let failed = grant.settle(Outcome::Failed(FailureKind::Refused, "no pty".to_owned()));
        assert_eq!(failed.change, None);
    }
}
