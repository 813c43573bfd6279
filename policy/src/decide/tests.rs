//! The gates, verb by verb and phase by phase, and what becomes of unfinished work.
use super::*;
use crate::effect::Effect;
use crate::facts::{DomainState, FileRole, Sighting};
use crate::name::TapName;
use crate::record::Intent;
use crate::sample::{Host, NODE, define, definition, disk, domain_name, id, nics, record, resize, start, uuid, web};
use crate::table::TABLE;
use bcd_protocol::definition::Definition;
use bcd_protocol::size::Vcpus;

/// A request of `verb` about `web` that is right in every other way.
fn request(verb: Verb) -> Request {
    let instance = web();
    match verb {
        Verb::Hello => Request::Hello { version: bcd_protocol::PROTOCOL_VERSION },
        Verb::Records => Request::Records { after: None, limit: 1 },
        Verb::LibvirtPlan => Request::LibvirtPlan { instance, definition: definition() },
        Verb::LibvirtDefine => define(definition()),
        Verb::LibvirtUndefine => Request::LibvirtUndefine { instance },
        Verb::LibvirtStart => start(false),
        Verb::LibvirtShutdown => Request::LibvirtShutdown { instance },
        Verb::LibvirtDestroy => Request::LibvirtDestroy { instance },
        Verb::LibvirtSuspend => Request::LibvirtSuspend { instance },
        Verb::LibvirtResume => Request::LibvirtResume { instance },
        Verb::LibvirtBlockResize => resize(disk(20)),
        Verb::Console => Request::Console { instance },
    }
}

/// Which verbs pass in which phase, written down a second time: whoever changes the table changes this too.
fn passes(verb: Verb, phase: Phase) -> bool {
    use Phase::{Absent, Foreign, Missing, Paused, Running, Stopped, Unknown};
    match (verb, phase) {
        (Verb::Hello | Verb::Records, _) => true,
        (_, Foreign | Unknown) => false,
        (Verb::LibvirtPlan | Verb::LibvirtDefine, Absent | Missing | Stopped | Running | Paused) => true,
        (Verb::LibvirtUndefine, phase) => matches!(phase, Absent | Missing | Stopped),
        (Verb::LibvirtStart, phase) => matches!(phase, Stopped | Running | Paused),
        (Verb::LibvirtShutdown, phase) => matches!(phase, Stopped | Running),
        (Verb::LibvirtDestroy, phase) => matches!(phase, Missing | Stopped | Running | Paused),
        (Verb::LibvirtSuspend | Verb::LibvirtResume | Verb::LibvirtBlockResize | Verb::Console, phase) => {
            matches!(phase, Running | Paused)
        }
    }
}

#[test]
fn every_verb_passes_in_exactly_the_phases_of_its_row_and_breaks_the_right_rule_in_every_other() {
    for row in TABLE {
        for phase in Phase::ALL {
            let mut host = Host::with_web(phase);
            host.greeted = row.verb != Verb::Hello;
            let result = host.ask(&request(row.verb));
            assert_eq!(row.needs.allow(phase), passes(row.verb, phase), "{} while {phase}", row.verb);
            let rule = result.as_ref().err().map(Denial::rule);
            // A running domain cannot be started paused or the other way round: the one verb that depends on more.
            if row.verb == Verb::LibvirtStart && phase == Phase::Paused {
                assert_eq!(rule, Some(Rule::Phase));
                continue;
            }
            let expected = match phase {
                _ if passes(row.verb, phase) => None,
                Phase::Unknown => Some(Rule::DomainUnknown),
                // Without a record the answer is known before libvirt is asked.
                Phase::Foreign if row.needs.allow(Phase::Absent) => Some(Rule::DomainForeign),
                Phase::Foreign | Phase::Absent => Some(Rule::NoRecord),
                Phase::Missing | Phase::Stopped | Phase::Running | Phase::Paused => Some(Rule::Phase),
            };
            assert_eq!(rule, expected, "{} while {phase}: {result:?}", row.verb);
        }
    }
}

#[test]
fn a_domain_that_took_the_place_of_a_recorded_one_is_foreign_to_every_verb() {
    for row in TABLE.iter().filter(|row| matches!(row.needs, Needs::Phases(_))) {
        let ours = Sighting { name: "bcd-web".into(), uuid: uuid(0), state: DomainState::Running };
        let usurper = Sighting { uuid: uuid(9), ..ours.clone() };
        let renamed = Sighting { name: "web".into(), ..ours.clone() };
        for domains in [vec![usurper.clone()], vec![renamed.clone()], vec![usurper, renamed]] {
            let mut host = Host::with_web(Phase::Missing);
            host.domains = Some(domains);
            let denial = host.ask(&request(row.verb)).unwrap_err();
            assert_eq!(denial.rule(), Rule::DomainForeign, "{}", row.verb);
            assert!(denial.detail().as_str().contains("domain bcd-web was not created by bcd"));
        }
    }
}

#[test]
fn nobody_but_the_node_is_answered_anything() {
    for row in TABLE {
        let mut host = Host::with_web(Phase::Running);
        host.greeted = row.verb != Verb::Hello;
        host.peer.uid = NODE - 1;
        assert_eq!(host.ask(&request(row.verb)).unwrap_err().rule(), Rule::PeerUid, "{}", row.verb);
        let facts = Facts::default();
        assert_eq!(host.ask_with(&facts, &request(row.verb)).unwrap_err().rule(), Rule::PeerUid, "{}", row.verb);
    }
}

#[test]
fn hello_comes_first_and_once() {
    for row in TABLE {
        let mut host = Host::with_web(Phase::Running);
        host.greeted = row.verb == Verb::Hello;
        let expected = if row.verb == Verb::Hello { Rule::HelloTwice } else { Rule::HelloFirst };
        assert_eq!(host.ask(&request(row.verb)).unwrap_err().rule(), expected, "{}", row.verb);
        assert_eq!(host.ask_with(&Facts::default(), &request(row.verb)).unwrap_err().rule(), expected, "{}", row.verb);
    }
}

#[test]
fn nothing_is_asked_of_a_record_whose_work_is_unfinished() {
    for row in TABLE.iter().filter(|row| matches!(row.needs, Needs::Phases(_))) {
        for phase in [Phase::Stopped, Phase::Running, Phase::Unknown] {
            let mut host = Host::with_web(phase);
            let begun = host.record().intending(Verb::LibvirtSuspend);
            host.records.apply(RecordChange::Put(begun));
            assert_eq!(host.ask(&request(row.verb)).unwrap_err().rule(), Rule::Unfinished, "{}", row.verb);
        }
    }
}

#[test]
fn a_verb_about_an_instance_needs_the_domain_fact() {
    for row in TABLE.iter().filter(|row| matches!(row.needs, Needs::Phases(_))) {
        let host = Host::with_web(Phase::Running);
        let denial = host.ask_with(&Facts::default(), &request(row.verb)).unwrap_err();
        assert_eq!(denial.rule(), Rule::FactMissing, "{}", row.verb);
    }
}

#[test]
fn what_the_table_records_has_an_intent_and_what_it_does_not_has_none() {
    for row in TABLE {
        let phase = if row.needs.allow(Phase::Running) { Phase::Running } else { Phase::Stopped };
        let phase = if row.verb == Verb::LibvirtStart { Phase::Stopped } else { phase };
        let mut host = Host::with_web(phase);
        host.greeted = row.verb != Verb::Hello;
        let request = match row.verb {
            Verb::LibvirtDefine => define(Definition { vcpus: Vcpus::new(3).unwrap(), ..definition() }),
            Verb::LibvirtResume => {
                host = Host::with_web(Phase::Paused);
                request(row.verb)
            }
            _ => request(row.verb),
        };
        let grant = host.ask(&request).unwrap();
        let intent = grant.intent().map(|change| match change {
            RecordChange::Put(record) => record.intent.as_ref().unwrap().verb,
            RecordChange::Remove(instance) => panic!("removes {instance} before the effect"),
        });
        assert_eq!(intent, row.recorded.then_some(row.verb));
        let acts = !matches!(row.verb, Verb::Hello | Verb::Records | Verb::LibvirtPlan);
        assert_eq!(*grant.effect() != Effect::Nothing, acts, "{}", row.verb);
    }
}

#[test]
fn questions_are_those_that_the_verb_needs() {
    let files = [FileRole::Disk, FileRole::Seed, FileRole::Base].to_vec();
    for row in TABLE.iter().filter(|row| matches!(row.needs, Needs::Phases(_))) {
        for recorded in [false, true] {
            let host = Host::with_web(if recorded { Phase::Running } else { Phase::Absent });
            let Ok(questions) = questions(&host.setting(), &request(row.verb)) else {
                assert!(!recorded && !row.needs.allow(Phase::Absent));
                continue;
            };
            let domain = questions.domain.unwrap();
            assert_eq!(domain, DomainQuestion { name: domain_name(), uuid: recorded.then(|| uuid(0)) });
            let roles: Vec<FileRole> = questions.files.iter().map(|question| question.role).collect();
            let wants_files = matches!(row.verb, Verb::LibvirtDefine | Verb::LibvirtStart);
            assert_eq!(roles, if wants_files { files.clone() } else { vec![] }, "{}", row.verb);
            let taps = if row.verb == Verb::LibvirtStart { vec![TapName::of(&web(), 0)] } else { vec![] };
            assert_eq!(questions.taps, taps, "{}", row.verb);
            let wants_entropy = !recorded && matches!(row.verb, Verb::LibvirtDefine | Verb::LibvirtPlan);
            assert_eq!(questions.entropy, wants_entropy, "{}", row.verb);
        }
    }
    let host = Host::new();
    assert_eq!(questions(&host.setting(), &request(Verb::Records)).unwrap(), Questions::default());
}

#[test]
fn questions_about_files_name_the_places_that_the_xml_names() {
    let host = Host::with_web(Phase::Stopped);
    for request in [define(definition()), start(false)] {
        let questions = questions(&host.setting(), &request).unwrap();
        let places: Vec<String> = questions.files.iter().map(|question| question.parts.join("/")).collect();
        let image = format!("images/{}.qcow2", "07".repeat(32));
        assert_eq!(places, ["instances/web/disk.qcow2", "instances/web/seed.iso", &image]);
        let Effect::LibvirtStart(started) = host.ask(&start(false)).unwrap().effect().clone() else { panic!() };
        for question in &questions.files {
            let path = question.parts.beneath(host.config.data_dir.as_path());
            let attribute = format!("file=\"{}\"", path.display());
            assert!(started.xml().as_str().contains(&attribute), "{attribute}");
        }
    }
}

/// A record with an intent, and the domain fact that libvirt gives of it.
fn begun(verb: Verb, before: Option<Definition>) -> Record {
    Record { intent: Some(Intent { verb, before }), ..record(&web(), 0, definition()) }
}

fn seen(by_name: Option<Sighting>, by_uuid: Option<Sighting>) -> DomainFact {
    DomainFact::Seen { by_name, by_uuid }
}

fn ours(state: DomainState) -> Sighting {
    Sighting { name: "bcd-web".into(), uuid: uuid(0), state }
}

#[test]
fn nothing_is_settled_while_libvirt_is_silent_or_nothing_was_begun() {
    for row in TABLE.iter().filter(|row| row.recorded) {
        assert_eq!(reconcile(&begun(row.verb, None), &DomainFact::Unknown), None);
    }
    let settled = record(&web(), 0, definition());
    assert_eq!(reconcile(&settled, &seen(None, None)), None);
}

#[test]
fn an_interrupted_undefine_forgets_the_record_only_when_the_uuid_is_gone() {
    let begun = begun(Verb::LibvirtUndefine, None);
    let here = ours(DomainState::Shutoff);
    let renamed = Sighting { name: "other".into(), ..here.clone() };
    let usurper = Sighting { uuid: uuid(9), ..here.clone() };
    let kept = Some(RecordChange::Put(record(&web(), 0, definition())));
    let forgotten = Some(RecordChange::Remove(web()));
    assert_eq!(reconcile(&begun, &seen(None, None)), forgotten);
    assert_eq!(reconcile(&begun, &seen(Some(usurper.clone()), None)), forgotten);
    assert_eq!(reconcile(&begun, &seen(Some(here.clone()), Some(here))), kept);
    assert_eq!(reconcile(&begun, &seen(None, Some(renamed.clone()))), kept);
    assert_eq!(reconcile(&begun, &seen(Some(usurper), Some(renamed))), kept);
}

#[test]
fn an_interrupted_create_keeps_its_record_whether_the_domain_is_seen_or_not() {
    let begun = begun(Verb::LibvirtDefine, None);
    let kept = Some(RecordChange::Put(record(&web(), 0, definition())));
    let here = ours(DomainState::Shutoff);
    let usurper = Sighting { uuid: uuid(9), ..here.clone() };
    assert_eq!(reconcile(&begun, &seen(None, None)), kept);
    assert_eq!(reconcile(&begun, &seen(Some(here.clone()), Some(here))), kept);
    assert_eq!(reconcile(&begun, &seen(Some(usurper), None)), kept);
}

#[test]
fn an_interrupted_change_goes_back_but_the_disk_never_counts_smaller_than_it_may_be() {
    let before = Definition { disk: disk(5), nics: nics(&[("br1", 9)]), ..definition() };
    for verb in [Verb::LibvirtDefine, Verb::LibvirtBlockResize] {
        let begun = begun(verb, Some(before.clone()));
        for fact in [seen(None, None), seen(Some(ours(DomainState::Running)), Some(ours(DomainState::Running)))] {
            let Some(RecordChange::Put(record)) = reconcile(&begun, &fact) else { panic!() };
            assert_eq!(record.intent, None);
            assert_eq!(record.definition, Definition { disk: disk(10), ..before.clone() });
        }
    }
    let larger_before = Definition { disk: disk(11), ..definition() };
    let begun = begun(Verb::LibvirtDefine, Some(larger_before.clone()));
    let Some(RecordChange::Put(record)) = reconcile(&begun, &seen(None, None)) else { panic!() };
    assert_eq!(record.definition, larger_before);
}

#[test]
fn every_recorded_intent_is_settled_once_libvirt_answers() {
    for row in TABLE.iter().filter(|row| row.recorded) {
        for domain in [None, Some(ours(DomainState::Shutoff)), Some(ours(DomainState::Running))] {
            let change = reconcile(&begun(row.verb, None), &seen(domain.clone(), domain.clone())).unwrap();
            match change {
                RecordChange::Put(record) => {
                    assert_eq!(record, crate::sample::record(&web(), 0, definition()), "{}", row.verb);
                }
                RecordChange::Remove(instance) => {
                    assert_eq!((row.verb, domain, instance), (Verb::LibvirtUndefine, None, web()));
                }
            }
        }
    }
}

#[test]
fn the_question_about_an_unfinished_record_has_its_name_and_uuid() {
    let record = record(&id("db"), 3, definition());
    let question = DomainQuestion::of(&record);
    assert_eq!((question.name.as_str(), question.uuid), ("bcd-db", Some(uuid(3))));
}
