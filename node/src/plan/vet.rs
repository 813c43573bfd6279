//! What the helper's configuration makes of a plan: the parts that it would refuse are refusals in it.
//!
//! Room: `node`. Pure. The node knows no policy: the helper is asked by `libvirt.plan` what it would say to each definition
//! now, and this weighs the answers against the rest of the plan, which it does not know. Invariant: a plan loses steps
//! here and gains none.
use super::{Change, Phase, Plan, Refusal, Step};
use crate::fault::FaultKind;
use bcd_protocol::id::InstanceId;
use bcd_protocol::reply::Denied;
use std::collections::{BTreeMap, HashSet};

/// What the helper says to a definition; `Err`: it could not be asked.
pub type Verdict = Result<Option<Denied>, String>;

/// Rules that speak of what the plan itself changes before the definition is made.
const PASSING: [&str; 3] = ["phase", "nics-fixed", "disk-in-use"];
/// Rules that say that the helper cannot tell now.
const UNTOLD: [&str; 3] = ["domain-unknown", "unfinished", "fact-missing"];
/// Rules that a deletion of the same plan may satisfy.
const FREED: [&str; 4] = ["max-instances", "mac-taken", "tap-taken", "uids-used-up"];

/// The instances whose definition the helper will be asked to make, or to start from.
pub fn questions(plan: &Plan) -> impl Iterator<Item = &InstanceId> {
    plan.changes.iter().filter(|change| change.steps.iter().any(asks)).map(|change| &change.instance)
}

fn asks(step: &Step) -> bool {
    match step {
        Step::Define | Step::Start { .. } | Step::GrowLive { .. } => true,
        Step::FetchImage
        | Step::CreateDisk
        | Step::WriteSeed
        | Step::Share
        | Step::GrowFile { .. }
        | Step::Suspend
        | Step::Resume
        | Step::PowerOff
        | Step::Destroy
        | Step::Undefine
        | Step::RemoveFiles => false,
    }
}

/// Whether a refused instance is still brought to this step, as it needs nothing of what is refused.
fn stops(step: &Step) -> bool {
    matches!(step, Step::PowerOff | Step::Destroy | Step::Suspend | Step::Resume)
}

/// Takes the helper's answers into the plan. Answers why the plan is not checked as a whole, if it is not. `recorded`
/// are the instances that the helper has, and `most` is how many it may have.
pub fn vet(
    plan: &mut Plan,
    verdicts: &BTreeMap<InstanceId, Verdict>,
    recorded: &HashSet<InstanceId>,
    most: usize,
) -> Option<String> {
    let mut untold = None;
    let deletes = plan.changes.iter().any(|change| change.phase == Phase::Delete);
    for change in &mut plan.changes {
        match verdicts.get(&change.instance) {
            None | Some(Ok(None)) => {}
            Some(Err(why)) => untold = untold.or_else(|| Some(why.clone())),
            Some(Ok(Some(denied))) => {
                let rule = denied.rule.as_str();
                let passes = PASSING.contains(&rule) || (deletes && FREED.contains(&rule));
                if UNTOLD.contains(&rule) {
                    untold = untold.or_else(|| Some(denied.detail.to_string()));
                } else if !passes {
                    refuse(change, format!("{} ({rule})", denied.detail));
                }
            }
        }
    }
    count(plan, recorded, most);
    plan.changes.sort_by(|a, b| (a.phase, &a.instance).cmp(&(b.phase, &b.instance)));
    untold
}

/// The helper answers for one instance at a time: how many the whole plan makes is counted here.
fn count(plan: &mut Plan, recorded: &HashSet<InstanceId>, most: usize) {
    let gone = plan.changes.iter().filter(|c| c.phase == Phase::Delete && recorded.contains(&c.instance)).count();
    let mut room = most.saturating_sub(recorded.len().saturating_sub(gone));
    for change in &mut plan.changes {
        let makes = change.steps.contains(&Step::Define) && !recorded.contains(&change.instance);
        if makes && room == 0 {
            refuse(
                change,
                format!(
                    "the document has more instances than the {most} that helper.max_instances allows: remove some or \
                     raise it (max-instances)"
                ),
            );
        } else if makes {
            room -= 1;
        }
    }
}

/// An instance that is refused already keeps its words: it is refused before the helper is asked.
fn refuse(change: &mut Change, message: String) {
    if change.refusal.is_none() {
        change.refusal = Some(Refusal::new(FaultKind::Denied, message));
    }
    let kept = change.steps.iter().take_while(|step| stops(step)).count();
    change.steps.truncate(kept);
    if change.steps.is_empty() {
        change.phase = Phase::Held;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bcd_protocol::reply::{RuleName, Sentence};

    fn id(text: &str) -> InstanceId {
        InstanceId::parse(text).unwrap()
    }

    fn change(name: &str, phase: Phase, steps: &[Step]) -> Change {
        Change { instance: id(name), phase, steps: steps.to_vec(), refusal: None }
    }

    const NEW: [Step; 6] =
        [Step::FetchImage, Step::CreateDisk, Step::WriteSeed, Step::Define, Step::Share, Step::Start { paused: false }];

    fn plan(changes: Vec<Change>) -> Plan {
        Plan { changes, ..Plan::default() }
    }

    fn denied(rule: &str) -> Verdict {
        Ok(Some(Denied { rule: RuleName::new(rule), detail: Sentence::new("as it is") }))
    }

    fn vetted(plan: &mut Plan, verdicts: Vec<(&str, Verdict)>) -> Option<String> {
        let verdicts = verdicts.into_iter().map(|(name, verdict)| (id(name), verdict)).collect();
        vet(plan, &verdicts, &HashSet::from([id("old"), id("kept")]), 100)
    }

    #[test]
    fn only_what_the_helper_has_to_grant_is_asked() {
        let all = plan(vec![
            change("gone", Phase::Delete, &[Step::Destroy, Step::Undefine, Step::RemoveFiles]),
            change("stop", Phase::Stop, &[Step::PowerOff]),
            change("new", Phase::Change, &NEW),
            change("start", Phase::Change, &[Step::Start { paused: true }]),
            change("resume", Phase::Change, &[Step::Resume]),
            change("held", Phase::Held, &[]),
        ]);
        let asked: Vec<&str> = questions(&all).map(InstanceId::as_str).collect();
        assert_eq!(asked, ["new", "start"]);
    }

    #[test]
    fn what_the_helper_denies_is_refused_with_its_sentence_and_rule_and_nothing_is_left_to_do() {
        let mut all = plan(vec![change("a", Phase::Change, &NEW), change("b", Phase::Change, &NEW)]);
        assert_eq!(vetted(&mut all, vec![("a", denied("bridge-not-listed")), ("b", Ok(None))]), None);
        let [b, a] = all.changes.as_slice() else { panic!("{all:?}") };
        assert_eq!((b.instance.as_str(), b.steps.as_slice(), &b.refusal), ("b", &NEW[..], &None));
        assert_eq!((a.phase, a.steps.len()), (Phase::Held, 0), "a held one comes last");
        let refusal = a.refusal.as_ref().unwrap();
        assert_eq!((refusal.kind, refusal.message.as_str()), (FaultKind::Denied, "as it is (bridge-not-listed)"));
    }

    #[test]
    fn one_that_is_refused_is_still_stopped() {
        let steps = [Step::PowerOff, Step::Define, Step::Start { paused: false }];
        let mut all = plan(vec![change("old", Phase::Change, &steps)]);
        vetted(&mut all, vec![("old", denied("max-vcpus"))]);
        assert_eq!(all.changes[0].steps, [Step::PowerOff]);
        assert!(all.changes[0].refusal.is_some());
    }

    #[test]
    fn what_the_plan_itself_changes_first_is_no_refusal() {
        for rule in PASSING {
            let mut all = plan(vec![change("old", Phase::Change, &[Step::PowerOff, Step::Define])]);
            assert_eq!(vetted(&mut all, vec![("old", denied(rule))]), None);
            assert_eq!((all.changes[0].steps.len(), &all.changes[0].refusal), (2, &None), "{rule}");
        }
        for rule in FREED {
            let new = || change("a", Phase::Change, &NEW);
            let mut beside = plan(vec![change("old", Phase::Delete, &[Step::Undefine]), new()]);
            vetted(&mut beside, vec![("a", denied(rule))]);
            assert_eq!(beside.changes[1].refusal, None, "{rule}: a deletion may make room");
            let mut alone = plan(vec![new()]);
            vetted(&mut alone, vec![("a", denied(rule))]);
            assert!(alone.changes[0].refusal.is_some(), "{rule}: nothing makes room");
        }
    }

    #[test]
    fn what_cannot_be_told_is_said_once_and_changes_nothing() {
        for rule in UNTOLD {
            let mut all = plan(vec![change("a", Phase::Change, &NEW)]);
            assert_eq!(vetted(&mut all, vec![("a", denied(rule))]).as_deref(), Some("as it is"));
            assert_eq!((all.changes[0].steps.len(), &all.changes[0].refusal), (NEW.len(), &None), "{rule}");
        }
        let mut all = plan(vec![change("a", Phase::Change, &NEW), change("b", Phase::Change, &NEW)]);
        let away = |why: &str| Err(why.to_owned());
        assert_eq!(vetted(&mut all, vec![("a", away("gone")), ("b", away("late"))]).as_deref(), Some("gone"));
    }

    #[test]
    fn more_instances_than_the_helper_may_have_are_refused_by_their_number() {
        let recorded = HashSet::from([id("old"), id("kept")]);
        let of = |names: &[&str]| names.iter().map(|name| change(name, Phase::Change, &NEW)).collect::<Vec<_>>();
        let refused = |plan: &Plan| -> Vec<String> {
            plan.changes.iter().filter(|c| c.refusal.is_some()).map(|c| c.instance.to_string()).collect()
        };
        let mut two = plan(of(&["a", "b"]));
        vet(&mut two, &BTreeMap::new(), &recorded, 4);
        assert_eq!(refused(&two), Vec::<String>::new(), "two and two are four");
        let mut three = plan(of(&["a", "b", "c"]));
        vet(&mut three, &BTreeMap::new(), &recorded, 4);
        assert_eq!(refused(&three), ["c"]);
        assert!(three.changes[2].refusal.as_ref().unwrap().message.contains("the 4 that helper.max_instances allows"));
        let mut exchanged = plan(of(&["a", "b", "c"]));
        exchanged.changes.insert(0, change("old", Phase::Delete, &[Step::Undefine]));
        vet(&mut exchanged, &BTreeMap::new(), &recorded, 4);
        assert_eq!(refused(&exchanged), Vec::<String>::new(), "one that goes makes room");
        let mut changed = plan(vec![change("old", Phase::Change, &[Step::Define])]);
        vet(&mut changed, &BTreeMap::new(), &recorded, 2);
        assert_eq!(refused(&changed), Vec::<String>::new(), "one that is there already needs no room");
        let mut leftover = plan(of(&["a"]));
        leftover.changes.insert(0, change("files", Phase::Delete, &[Step::RemoveFiles]));
        vet(&mut leftover, &BTreeMap::new(), &recorded, 2);
        assert_eq!(refused(&leftover), ["a"], "files without a record are no instance of the helper's");
    }

    #[test]
    fn the_planners_own_refusal_keeps_its_words() {
        let mut own = change("old", Phase::Stop, &[Step::PowerOff, Step::Define]);
        own.refusal = Some(Refusal::new(FaultKind::Unsupported, "own words"));
        let mut all = plan(vec![own]);
        vetted(&mut all, vec![("old", denied("max-vcpus"))]);
        assert_eq!(all.changes[0].refusal.as_ref().unwrap().message, "own words");
        assert_eq!(all.changes[0].steps, [Step::PowerOff]);
    }
}
