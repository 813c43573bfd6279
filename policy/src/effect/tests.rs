//! What an outcome makes of the record.
use super::*;
use crate::phase::Phase;
use crate::sample::{Host, define, definition, disk, resize, start, web};
use bcd_protocol::definition::Definition;
use bcd_protocol::request::Request;

fn grants() -> Vec<Grant> {
    let stopped = Host::with_web(Phase::Stopped);
    let running = Host::with_web(Phase::Running);
    vec![
        Host::new().ask(&define(definition())).unwrap(),
        stopped.ask(&define(Definition { disk: disk(11), ..definition() })).unwrap(),
        stopped.ask(&start(false)).unwrap(),
        stopped.ask(&Request::LibvirtUndefine { instance: web() }).unwrap(),
        running.ask(&Request::LibvirtDestroy { instance: web() }).unwrap(),
        running.ask(&resize(disk(12))).unwrap(),
    ]
}

#[test]
fn a_failure_that_may_still_have_happened_leaves_the_intent_standing() {
    for grant in grants() {
        for kind in [FailureKind::Unavailable, FailureKind::Timeout, FailureKind::Ledger] {
            let settled = grant.clone().settle(Outcome::Failed(kind, "lost".to_owned()));
            assert_eq!(settled.change, None);
            let failed = Failed { kind, detail: Sentence::new("lost") };
            assert_eq!(settled.reply, Reply::Failed(failed));
        }
    }
}

#[test]
fn a_failure_that_certainly_did_not_happen_undoes_the_intent() {
    for grant in grants() {
        for kind in [FailureKind::ResourcesExhausted, FailureKind::Refused] {
            let settled = grant.clone().settle(Outcome::Failed(kind, "no".to_owned()));
            let Some(RecordChange::Put(begun)) = grant.intent() else { panic!() };
            let expected = match &begun.intent.as_ref().unwrap().before {
                None if matches!(grant.effect(), Effect::LibvirtDefine(_)) => RecordChange::Remove(web()),
                before => {
                    let definition = before.clone().unwrap_or_else(definition);
                    RecordChange::Put(Record { definition, intent: None, ..begun.clone() })
                }
            };
            assert_eq!(settled.change, Some(expected));
            assert_eq!(settled.reply, Reply::Failed(Failed { kind, detail: Sentence::new("no") }));
        }
    }
}

#[test]
fn an_outcome_leaves_no_intent_behind() {
    for grant in grants() {
        match grant.settle(Outcome::Done).change {
            Some(RecordChange::Put(record)) => assert_eq!(record.intent, None),
            Some(RecordChange::Remove(instance)) => assert_eq!(instance, web()),
            None => panic!("nothing settled"),
        }
    }
}
