//! `libvirt.plan`, `libvirt.define`, `libvirt.undefine`.
use super::*;
use crate::effect::Outcome;
use crate::facts::{Facts, FileFact, FileRole};
use crate::record::RecordChange;
use crate::sample::{Host, define, definition, disk, domain_name, id, nics, record, uid, uuid, web};
use bcd_protocol::reply::{Defined, FailureKind};
use bcd_protocol::request::Request;
use bcd_protocol::size::Vcpus;

fn plan(definition: Definition) -> Request {
    Request::LibvirtPlan { instance: web(), definition }
}

fn undefine() -> Request {
    Request::LibvirtUndefine { instance: web() }
}

fn bigger() -> Definition {
    Definition { vcpus: Vcpus::new(4).unwrap(), ..definition() }
}

#[test]
fn a_new_domain_is_given_a_uid_and_a_uuid_of_its_own() {
    let mut host = Host::new();
    host.add_record(record(&id("other"), 6, Definition { nics: nics(&[]), ..definition() }));
    let grant = host.ask(&define(definition())).unwrap();
    let Some(RecordChange::Put(begun)) = grant.intent().cloned() else { panic!() };
    assert_eq!((begun.instance.clone(), begun.uid), (web(), uid(7)));
    assert_eq!(begun.uuid, DomainUuid::from_random([0xab; 16]));
    assert_eq!(begun.intent, Some(Intent { verb: Verb::LibvirtDefine, before: None }));
    let Effect::LibvirtDefine(effect) = grant.effect() else { panic!() };
    assert_eq!((effect.domain().name(), effect.domain().uuid()), (&domain_name(), begun.uuid));
    assert!(effect.xml().as_str().contains(&format!("<uuid>{}</uuid>", begun.uuid)));
    let settled = grant.settle(Outcome::Done);
    assert_eq!(settled.change, Some(RecordChange::Put(begun.finished())));
    assert_eq!(settled.reply, Reply::Defined(Defined { uuid: begun.uuid, uid: begun.uid, changed: true }));
}

#[test]
fn a_refused_create_leaves_no_record_and_a_refused_change_the_earlier_one() {
    let refused = || Outcome::Failed(FailureKind::Refused, "no".to_owned());
    let grant = Host::new().ask(&define(definition())).unwrap();
    assert_eq!(grant.settle(refused()).change, Some(RecordChange::Remove(web())));
    let host = Host::with_web(Phase::Stopped);
    let changed = Definition { disk: disk(12), ..bigger() };
    let grant = host.ask(&define(changed)).unwrap();
    assert_eq!(grant.settle(refused()).change, Some(RecordChange::Put(host.record().clone())));
}

#[test]
fn the_recorded_definition_again_changes_nothing_unless_the_domain_is_missing() {
    for phase in [Phase::Stopped, Phase::Running, Phase::Paused] {
        let grant = Host::with_web(phase).ask(&define(definition())).unwrap();
        assert_eq!((grant.effect(), grant.intent()), (&Effect::Nothing, None));
        let settled = grant.settle(Outcome::Done);
        assert_eq!(settled.change, None);
        assert_eq!(settled.reply, Reply::Defined(Defined { uuid: uuid(0), uid: uid(0), changed: false }));
    }
    let grant = Host::with_web(Phase::Missing).ask(&define(definition())).unwrap();
    assert!(matches!(grant.effect(), Effect::LibvirtDefine(_)));
}

#[test]
fn a_change_keeps_uid_and_uuid_and_remembers_what_was() {
    for phase in [Phase::Missing, Phase::Stopped, Phase::Running, Phase::Paused] {
        let host = Host::with_web(phase);
        let begun = host.begun(&define(bigger()));
        assert_eq!((begun.uid, begun.uuid), (uid(0), uuid(0)));
        assert_eq!(begun.definition, bigger());
        assert_eq!(begun.intent, Some(Intent { verb: Verb::LibvirtDefine, before: Some(definition()) }));
    }
}

#[test]
fn a_uuid_that_a_record_has_is_not_given_again() {
    let mut host = Host::new();
    let mut other = record(&id("other"), 1, Definition { nics: nics(&[]), ..definition() });
    other.uuid = DomainUuid::from_random(host.random);
    host.add_record(other);
    assert_eq!(host.ask(&define(definition())).unwrap_err().rule(), Rule::FactMissing);
}

#[test]
fn a_new_domain_without_entropy_is_denied_and_an_existing_one_needs_none() {
    let host = Host::new();
    let questions = crate::decide::questions(&host.setting(), &define(definition())).unwrap();
    let facts = Facts { random: None, ..host.look(&questions) };
    assert_eq!(host.ask_with(&facts, &define(definition())).unwrap_err().rule(), Rule::FactMissing);
    assert_eq!(host.ask_with(&facts, &plan(definition())).unwrap_err().rule(), Rule::FactMissing);
    let host = Host::with_web(Phase::Stopped);
    let questions = crate::decide::questions(&host.setting(), &define(bigger())).unwrap();
    let facts = host.look(&questions);
    assert_eq!(facts.random, None);
    let _ = host.ask_with(&facts, &define(bigger())).unwrap();
}

#[test]
fn a_plan_answers_what_define_defines_and_changes_nothing() {
    for phase in [Phase::Absent, Phase::Missing, Phase::Stopped, Phase::Running, Phase::Paused] {
        let host = Host::with_web(phase);
        let grant = host.ask(&plan(bigger())).unwrap();
        assert_eq!((grant.effect(), grant.intent()), (&Effect::Nothing, None));
        let settled = grant.settle(Outcome::Done);
        assert_eq!(settled.change, None);
        let Effect::LibvirtDefine(effect) = host.ask(&define(bigger())).unwrap().effect().clone() else { panic!() };
        assert_eq!(settled.reply, Reply::Plan(effect.xml().clone()), "{phase}");
    }
}

#[test]
fn a_plan_is_denied_what_define_is_denied_but_for_files() {
    let mut host = Host::new();
    let bad = Definition { nics: nics(&[("br9", 1)]), ..definition() };
    assert_eq!(host.ask(&plan(bad)).unwrap_err().rule(), Rule::BridgeNotListed);
    host.files.insert(FileRole::Disk, FileFact::Missing);
    let _ = host.ask(&plan(definition())).unwrap();
}

#[test]
fn undefining_what_is_not_there_changes_nothing() {
    let grant = Host::with_web(Phase::Absent).ask(&undefine()).unwrap();
    assert_eq!((grant.effect(), grant.intent()), (&Effect::Nothing, None));
    let settled = grant.settle(Outcome::Done);
    assert_eq!((settled.change, settled.reply), (None, Reply::Done { changed: false }));
}

#[test]
fn undefining_a_missing_domain_forgets_its_record_without_any_effect() {
    let grant = Host::with_web(Phase::Missing).ask(&undefine()).unwrap();
    assert_eq!((grant.effect(), grant.intent()), (&Effect::Nothing, None));
    let settled = grant.settle(Outcome::Done);
    assert_eq!((settled.change, settled.reply), (Some(RecordChange::Remove(web())), Reply::Done { changed: true }));
}

#[test]
fn undefining_a_stopped_domain_forgets_its_record_only_afterwards() {
    let host = Host::with_web(Phase::Stopped);
    let grant = host.ask(&undefine()).unwrap();
    let Effect::LibvirtUndefine(effect) = grant.effect() else { panic!() };
    assert_eq!((effect.domain().name(), effect.domain().uuid()), (&domain_name(), uuid(0)));
    assert_eq!(host.begun(&undefine()), host.record().intending(Verb::LibvirtUndefine));
    let refused = grant.clone().settle(Outcome::Failed(FailureKind::Refused, "busy".to_owned()));
    assert_eq!(refused.change, Some(RecordChange::Put(host.record().clone())));
    let settled = grant.settle(Outcome::Done);
    assert_eq!((settled.change, settled.reply), (Some(RecordChange::Remove(web())), Reply::Done { changed: true }));
}
