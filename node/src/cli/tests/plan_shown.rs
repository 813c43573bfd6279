//! A plan as a person sees it, and whether the command ends well.
use super::super::plan;
use super::id;
use crate::api::service::PlanReport;
use crate::fault::FaultKind;
use crate::plan::{Change, Phase, Plan, Refusal, Step};
use crate::status::Section;
use bcd_protocol::size::DiskBytes;

fn change(name: &str, phase: Phase, steps: &[Step], refusal: Option<&str>) -> Change {
    let refusal = refusal.map(|message| Refusal { kind: FaultKind::Unsupported, message: message.to_owned() });
    Change { instance: id(name), phase, steps: steps.to_vec(), refusal }
}

#[test]
fn a_plan_is_a_line_per_instance_and_a_sum() {
    let disk_bytes = DiskBytes::new(20 << 30).unwrap();
    let plan = Plan {
        changes: vec![
            change("old", Phase::Delete, &[Step::Destroy, Step::Undefine, Step::RemoveFiles], None),
            change("db", Phase::Change, &[Step::GrowLive { disk_bytes }], None),
            change(
                "web-10",
                Phase::Change,
                &[
                    Step::FetchImage,
                    Step::CreateDisk,
                    Step::WriteSeed,
                    Step::Define,
                    Step::Share,
                    Step::Start { paused: false },
                ],
                None,
            ),
            change("gpu", Phase::Held, &[], Some("gpu_device_ids is not built yet")),
            change("gone", Phase::Held, &[], None),
        ],
        unchanged: 7,
        unreadable: Vec::new(),
        refusal: None,
    };
    let report = PlanReport { plan, deletes_running: 1, needs_allow_delete: true, unchecked: None };
    let expected = "\
- old     end, undefine, remove the files
~ db      grow the disk to 20 GiB while it runs
+ web-10  fetch the image, create the disk, write the seed, define, share the files, start
! gpu     Unsupported: gpu_device_ids is not built yet
! gone    nothing can be decided: its state is not known
3 instances to change, 2 instances refused, 7 instances unchanged
it deletes 1 running instance, more than half of them: apply needs --allow-delete
";
    assert_eq!(plan::render(&report), expected);
    let nothing = PlanReport { plan: Plan::default(), deletes_running: 0, needs_allow_delete: false, unchecked: None };
    assert_eq!(plan::render(&nothing), "nothing to do\n");
    assert!(!plan::is_whole(&report) && plan::is_whole(&nothing));
}

#[test]
fn a_plan_that_is_not_carried_out_as_a_whole_never_ends_as_if_nothing_were_wrong() {
    let of = |plan: Plan| PlanReport { plan, deletes_running: 0, needs_allow_delete: false, unchecked: None };
    let refused = of(Plan {
        changes: vec![change("web", Phase::Held, &[], Some("nics[0]: bridge br9 is not listed (bridge-not-listed)"))],
        unchanged: 2,
        ..Plan::default()
    });
    assert_eq!(
        plan::render(&refused),
        "! web  Unsupported: nics[0]: bridge br9 is not listed (bridge-not-listed)\n1 instance refused, 2 instances unchanged\n"
    );
    let unread = of(Plan { unreadable: vec![Section::Records], ..Plan::default() });
    assert_eq!(
        plan::render(&unread),
        "? nothing is decided before the helper's records can be read: `bcd status` says why it cannot\n\
         nothing can be decided yet\n"
    );
    let whole = of(Plan {
        refusal: Some(Refusal::new(FaultKind::Unsupported, "this host runs no instance runtime")),
        ..Plan::default()
    });
    assert!(plan::render(&whole).ends_with("\nall refused\n"), "{}", plan::render(&whole));
    let unchecked = PlanReport { unchecked: Some("the helper does not answer".to_owned()), ..of(Plan::default()) };
    assert_eq!(
        plan::render(&unchecked),
        "nothing to do\nnot checked against what the helper allows: the helper does not answer\n"
    );
    let deletes = PlanReport { needs_allow_delete: true, ..of(Plan::default()) };
    for report in [refused, unread, whole, unchecked, deletes] {
        assert!(!plan::is_whole(&report), "{report:?}");
    }
    let stopped = of(Plan { changes: vec![change("web", Phase::Stop, &[Step::PowerOff], None)], ..Plan::default() });
    assert!(plan::is_whole(&stopped));
}

#[test]
fn a_new_definition_of_a_guest_that_goes_on_says_from_when_it_counts() {
    let of = |steps: &[Step]| {
        let plan = Plan { changes: vec![change("db", Phase::Change, steps, None)], ..Plan::default() };
        plan::render(&PlanReport { plan, deletes_running: 0, needs_allow_delete: false, unchecked: None })
    };
    let later = "~ db  change the definition (counts from its next start)\n1 instance to change\n";
    assert_eq!(of(&[Step::Define]), later);
    assert_eq!(of(&[Step::Define, Step::Start { paused: false }]), "~ db  define, start\n1 instance to change\n");
}

#[test]
fn an_instance_that_waits_for_another_is_begun_and_not_counted_as_refused() {
    let why = "nics[0].mac: 52:54:00:00:00:01 on bridge br0 is still instance a's: waits until that is deleted";
    let later = |phase, steps: &[Step]| Change {
        refusal: Some(Refusal::new(FaultKind::Unavailable, why)),
        ..change("b", phase, steps, None)
    };
    let of = |changes: Vec<Change>| {
        let plan = Plan { changes, ..Plan::default() };
        PlanReport { plan, deletes_running: 0, needs_allow_delete: false, unchecked: None }
    };
    let gone = || change("a", Phase::Delete, &[Step::Undefine, Step::RemoveFiles], None);
    let report = of(vec![gone(), later(Phase::Change, &[Step::CreateDisk, Step::WriteSeed])]);
    let expected = format!(
        "- a  undefine, remove the files\n+ b  create the disk, write the seed; {why}\n\
         2 instances to change, 1 of them waits\n"
    );
    assert_eq!(plan::render(&report), expected);
    assert!(!plan::is_whole(&report), "it is not known yet that it will be done");
    let held = of(vec![gone(), later(Phase::Held, &[])]);
    assert!(
        plan::render(&held).contains(&format!("\n! b  Unavailable: {why}\n1 instance to change, 1 instance refused"))
    );
    let stopped = of(vec![later(Phase::Stop, &[Step::PowerOff])]);
    assert!(plan::render(&stopped).starts_with("! b  Unavailable: "), "a stop is not what it waits with");
}
