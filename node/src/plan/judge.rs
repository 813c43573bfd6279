//! The planner: one instance at a time, from what is wanted and what is there.
//!
//! Room: `node`. Pure. Invariants: a domain whose state is not known gets no step; a foreign domain is in no step, and
//! neither is a directory that a foreign domain of the same name may be using; files are removed only behind a domain
//! that is gone; what no record stands for was never run and is made anew rather than trusted; a MAC is given to one
//! instance after another has given it up.
use super::desired::{RUNTIMES, Wanted};
use super::guard::may_run;
use super::steps::{Known, create, obey};
use super::{Change, Desired, DomainView, InstanceFiles, Observed, Phase, Plan, Reading, Refusal, Step};
use crate::fault::FaultKind;
use crate::runtime::{domain_name, id_in_name};
use crate::status::{InstanceState, Section};
use bcd_protocol::definition::Definition;
use bcd_protocol::id::{BridgeName, InstanceId};
use bcd_protocol::net::MacAddress;
use bcd_protocol::reply::RecordView;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What is to be done so that the host becomes as `desired`.
#[must_use]
pub fn plan(desired: &Desired, observed: &Observed<'_>) -> Plan {
    let mut plan = Plan::default();
    if observed.runtimes.is_empty() && !desired.is_empty() {
        plan.refusal = Some(Refusal::new(
            FaultKind::Unsupported,
            "this host runs no instance runtime: install libvirt and QEMU, then see bcd doctor",
        ));
    }
    let (Reading::Known(records), Reading::Known(domains), Reading::Known(files)) =
        (observed.records, observed.domains, observed.files)
    else {
        return unread(plan, desired, observed);
    };
    let foreign = foreign_ids(observed);
    let host = Host { records, domains, files, observed, desired, foreign, macs: OnceCell::new() };
    for (id, wanted) in desired.iter() {
        plan.add(id, host.keep(id, wanted, plan.refusal.as_ref()));
    }
    for (id, record) in records {
        if desired.get(id).is_none() {
            plan.add(id, host.delete(id, Some(record)));
        }
    }
    for id in files.keys() {
        if desired.get(id).is_none() && !records.contains_key(id) {
            plan.add(id, host.delete(id, None));
        }
    }
    plan.changes.sort_by(|a, b| (a.phase, &a.instance).cmp(&(b.phase, &b.instance)));
    plan
}

/// What can be said while something could not be read: what fails whatever the host holds.
fn unread(mut plan: Plan, desired: &Desired, observed: &Observed<'_>) -> Plan {
    for (section, unknown) in [
        (Section::Records, matches!(observed.records, Reading::Unknown)),
        (Section::Libvirt, matches!(observed.domains, Reading::Unknown)),
        (Section::Files, matches!(observed.files, Reading::Unknown)),
    ] {
        if unknown {
            plan.unreadable.push(section);
        }
    }
    for (id, wanted) in desired.iter() {
        if let Err(refusal) = admitted(wanted, observed, plan.refusal.as_ref()) {
            plan.add(id, Verdict::refused(refusal));
        }
    }
    plan
}

/// What was found for one instance.
#[derive(Default)]
pub(super) struct Verdict {
    pub(super) steps: Vec<Step>,
    pub(super) refusal: Option<Refusal>,
    pub(super) deletes: bool,
}

impl Verdict {
    pub(super) fn refused(refusal: Refusal) -> Self {
        Self { refusal: Some(refusal), ..Self::default() }
    }
}

impl Plan {
    fn add(&mut self, id: &InstanceId, verdict: Verdict) {
        let Verdict { steps, refusal, deletes } = verdict;
        if steps.is_empty() && refusal.is_none() {
            self.unchanged += 1;
            return;
        }
        let stops = steps.iter().any(|step| matches!(step, Step::PowerOff | Step::Destroy))
            && !steps.iter().any(|step| matches!(step, Step::Start { .. }));
        let phase = if steps.is_empty() {
            Phase::Held
        } else if deletes {
            Phase::Delete
        } else if stops {
            Phase::Stop
        } else {
            Phase::Change
        };
        self.changes.push(Change { instance: id.clone(), phase, steps, refusal });
    }
}

/// What an instance is to be made of, or why it is refused whatever the host holds of it.
fn admitted<'w>(
    wanted: &'w Wanted,
    observed: &Observed<'_>,
    all_refused: Option<&Refusal>,
) -> Result<&'w Definition, Refusal> {
    if let Some(refusal) = all_refused {
        return Err(refusal.clone());
    }
    let runtime = wanted.runtime();
    if !observed.runtimes.contains(runtime) && !RUNTIMES.contains(&runtime.as_str()) {
        return Err(Refusal::new(
            FaultKind::InvalidSpec,
            format!("runtime: there is no runtime {}: use one of {}", runtime.as_str(), RUNTIMES.join(", ")),
        ));
    }
    if !observed.runtimes.contains(runtime) {
        return Err(Refusal::new(
            FaultKind::Unsupported,
            format!(
                "runtime is not installed on this host: {} (bcd doctor says what is missing)",
                wanted.runtime().as_str()
            ),
        ));
    }
    wanted.definition().map_err(Clone::clone)
}

/// The ids whose domain name somebody else's domain has.
fn foreign_ids<'a>(observed: &Observed<'a>) -> HashSet<&'a str> {
    observed.foreign.iter().filter_map(|domain| id_in_name(&domain.name)).collect()
}

fn foreign_refusal(id: &InstanceId) -> Refusal {
    Refusal::new(
        FaultKind::Denied,
        format!(
            "domain {} was not created by this bcd and is left alone: rename or remove it, or use \
             another instance id",
            domain_name(id)
        ),
    )
}

fn unknown_state() -> Refusal {
    Refusal::new(
        FaultKind::Unavailable,
        "its state could not be read, so that it may be running: nothing is done until it can be read",
    )
}

/// Whose MAC is whose, by the records.
type Macs<'a> = HashMap<(&'a BridgeName, MacAddress), &'a InstanceId>;

fn mac_holders(records: &BTreeMap<InstanceId, RecordView>) -> Macs<'_> {
    let mut macs = HashMap::new();
    for (id, record) in records {
        macs.extend(record.definition.nics.iter().map(|nic| ((&nic.bridge, nic.mac), id)));
    }
    macs
}

/// What the host holds, all of it read.
struct Host<'a> {
    records: &'a BTreeMap<InstanceId, RecordView>,
    domains: &'a BTreeMap<InstanceId, DomainView>,
    files: &'a BTreeMap<InstanceId, InstanceFiles>,
    observed: &'a Observed<'a>,
    desired: &'a Desired,
    foreign: HashSet<&'a str>,
    /// Which record has which MAC: worked out when a NIC is new, which few passes see.
    macs: OnceCell<Macs<'a>>,
}

impl Host<'_> {
    /// An instance that the document wants.
    fn keep(&self, id: &InstanceId, wanted: &Wanted, all_refused: Option<&Refusal>) -> Verdict {
        if self.foreign.contains(id.as_str()) {
            return Verdict::refused(foreign_refusal(id));
        }
        let record = self.records.get(id);
        let state = record.map_or(InstanceState::Absent, |_| self.state(id));
        if state == InstanceState::Unknown {
            return Verdict::refused(unknown_state());
        }
        let files = self.files.get(id);
        let definition = match admitted(wanted, self.observed, all_refused) {
            Ok(definition) => definition,
            Err(refusal) => return Verdict { refusal: Some(refusal), ..obey(state, wanted.state()) },
        };
        let has_image = self.has_image(definition);
        let verdict = match record {
            Some(record) => Known { definition, record, files, has_image }.converge(state, wanted),
            None => create(id, wanted, files, has_image),
        };
        self.wait_for_macs(id, definition, verdict)
    }

    /// Leaves out what needs a MAC that another instance's record still has: the helper would refuse it, and what is
    /// deleted or changed in this very pass gives it up soon.
    fn wait_for_macs(&self, id: &InstanceId, definition: &Definition, mut verdict: Verdict) -> Verdict {
        let Some(define) = verdict.steps.iter().position(|step| *step == Step::Define) else { return verdict };
        if self.records.get(id).is_some_and(|record| record.definition.nics == definition.nics) {
            return verdict;
        }
        let macs = self.macs.get_or_init(|| mac_holders(self.records));
        for (n, nic) in definition.nics.iter().enumerate() {
            let Some(other) = macs.get(&(&nic.bridge, nic.mac)).filter(|other| **other != id) else { continue };
            let when = if self.desired.get(other).is_some() { "has other NICs" } else { "is deleted" };
            verdict.steps.truncate(define);
            verdict.refusal = Some(Refusal::new(
                FaultKind::Unavailable,
                format!(
                    "nics[{n}].mac: {} on bridge {} is still instance {other}'s: waits until that {when}",
                    nic.mac, nic.bridge
                ),
            ));
            break;
        }
        verdict
    }

    /// What left the document: its domain, its record, its directory, or what there is of them.
    fn delete(&self, id: &InstanceId, record: Option<&RecordView>) -> Verdict {
        if self.foreign.contains(id.as_str()) {
            return Verdict::refused(foreign_refusal(id));
        }
        let mut steps = Vec::new();
        if record.is_some() {
            let state = self.state(id);
            if state == InstanceState::Unknown {
                return Verdict::refused(unknown_state());
            }
            if may_run(state) {
                steps.push(Step::Destroy);
            }
            steps.push(Step::Undefine);
        }
        if self.files.contains_key(id) {
            steps.push(Step::RemoveFiles);
        }
        Verdict { steps, refusal: None, deletes: true }
    }

    fn state(&self, id: &InstanceId) -> InstanceState {
        self.domains.get(id).map_or(InstanceState::Absent, |domain| domain.state)
    }

    fn has_image(&self, definition: &Definition) -> bool {
        self.observed.images.contains(&definition.image)
    }
}
