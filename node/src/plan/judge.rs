//! The planner: one instance at a time, from what is wanted and what is there.
//!
//! Room: `node`. Pure. Invariants: a domain whose state is not known gets no step; a foreign domain is in no step, and
//! neither is a directory that a foreign domain of the same name may be using; files are removed only behind a domain
//! that is gone; what no record stands for was never run and is made anew rather than trusted.
use super::desired::Wanted;
use super::guard::may_run;
use super::{Change, Desired, DiskFile, DomainView, InstanceFiles, Observed, Phase, Plan, Reading, Refusal, Step};
use crate::fault::FaultKind;
use crate::spec::DesiredState;
use crate::status::{InstanceState, Section};
use bcd_protocol::definition::Definition;
use bcd_protocol::id::InstanceId;
use bcd_protocol::reply::RecordView;
use std::collections::{BTreeMap, HashSet};

/// What the domains of instances are called, less the id; the helper calls them so.
const DOMAIN_PREFIX: &str = "bcd-";

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
    let host = Host { records, domains, files, observed, foreign: foreign_ids(observed) };
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
        let refusal = plan.refusal.clone().or_else(|| beforehand(wanted, observed));
        if refusal.is_some() {
            plan.add(id, Verdict { steps: Vec::new(), refusal, deletes: false });
        }
    }
    plan
}

/// What was found for one instance.
#[derive(Default)]
struct Verdict {
    steps: Vec<Step>,
    refusal: Option<Refusal>,
    deletes: bool,
}

impl Verdict {
    fn refused(refusal: Refusal) -> Self {
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

/// Why an instance is refused whatever the host holds of it.
fn beforehand(wanted: &Wanted, observed: &Observed<'_>) -> Option<Refusal> {
    if !observed.runtimes.contains(wanted.runtime()) {
        return Some(Refusal::new(
            FaultKind::Unsupported,
            format!(
                "runtime is not installed on this host: {} (bcd doctor says what is missing)",
                wanted.runtime().as_str()
            ),
        ));
    }
    wanted.definition().err().cloned()
}

/// The ids whose domain name somebody else's domain has.
fn foreign_ids<'a>(observed: &Observed<'a>) -> HashSet<&'a str> {
    observed.foreign.iter().filter_map(|domain| domain.name.strip_prefix(DOMAIN_PREFIX)).collect()
}

fn foreign_refusal(id: &InstanceId) -> Refusal {
    Refusal::new(
        FaultKind::Denied,
        format!(
            "domain {DOMAIN_PREFIX}{id} was not created by this bcd and is left alone: rename or remove it, or use \
             another instance id"
        ),
    )
}

fn unknown_state() -> Refusal {
    Refusal::new(
        FaultKind::Unavailable,
        "its state could not be read, so that it may be running: nothing is done until it can be read",
    )
}

/// What the host holds, all of it read.
struct Host<'a> {
    records: &'a BTreeMap<InstanceId, RecordView>,
    domains: &'a BTreeMap<InstanceId, DomainView>,
    files: &'a BTreeMap<InstanceId, InstanceFiles>,
    observed: &'a Observed<'a>,
    foreign: HashSet<&'a str>,
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
        let refusal = all_refused.cloned().or_else(|| beforehand(wanted, self.observed));
        match (wanted.definition(), record, refusal) {
            (Ok(definition), Some(record), None) => {
                Known { definition, record, files, has_image: self.has_image(definition) }.converge(state, wanted)
            }
            (Ok(definition), None, None) => {
                Verdict { steps: create(wanted, files, self.has_image(definition)), ..Verdict::default() }
            }
            (Err(refusal), _, None) => Verdict { refusal: Some(refusal.clone()), ..obey(state, wanted.state()) },
            (_, _, Some(refusal)) => Verdict { refusal: Some(refusal), ..obey(state, wanted.state()) },
        }
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

/// A new instance. Files that this process did not just make for this very wish are leftovers of a crash or of an
/// instance that had the same id: no guest may see them, and making them again costs little.
fn create(wanted: &Wanted, files: Option<&InstanceFiles>, has_image: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    let fresh = files.filter(|files| files.made_for == Some(wanted.fingerprint()));
    if files.is_some() && fresh.is_none() {
        steps.push(Step::RemoveFiles);
    }
    if !has_image {
        steps.push(Step::FetchImage);
    }
    if !fresh.is_some_and(|files| matches!(files.disk, DiskFile::Ready { .. })) {
        steps.push(Step::CreateDisk);
    }
    if !fresh.is_some_and(|files| files.seed) {
        steps.push(Step::WriteSeed);
    }
    steps.extend([Step::Define, Step::Share]);
    match wanted.state() {
        DesiredState::Running => steps.push(Step::Start { paused: false }),
        DesiredState::Paused => steps.push(Step::Start { paused: true }),
        DesiredState::Stopped => {}
    }
    steps
}

/// What is done for a refused instance: stopping or pausing it needs nothing of what is refused.
fn obey(state: InstanceState, want: DesiredState) -> Verdict {
    let steps = match (want, state) {
        (DesiredState::Stopped, _) => stop(state),
        (DesiredState::Paused, InstanceState::Running) => vec![Step::Suspend],
        (DesiredState::Paused | DesiredState::Running, _) => Vec::new(),
    };
    Verdict { steps, ..Verdict::default() }
}

/// Stops a domain, whatever it does now. A paused guest cannot see its power button.
fn stop(state: InstanceState) -> Vec<Step> {
    match state {
        InstanceState::Absent | InstanceState::Stopped | InstanceState::Unknown => Vec::new(),
        InstanceState::Running | InstanceState::ShuttingDown => vec![Step::PowerOff],
        InstanceState::Paused => vec![Step::Resume, Step::PowerOff],
        InstanceState::Crashed => vec![Step::Destroy],
    }
}

/// An instance with a record.
struct Known<'a> {
    definition: &'a Definition,
    record: &'a RecordView,
    files: Option<&'a InstanceFiles>,
    has_image: bool,
}

impl Known<'_> {
    fn converge(&self, state: InstanceState, wanted: &Wanted) -> Verdict {
        let want = wanted.state();
        let files = match self.judge() {
            Ok(files) => files,
            Err(refusal) => return Verdict { refusal: Some(refusal), ..obey(state, want) },
        };
        let (mut steps, state) = match (want, state) {
            (DesiredState::Stopped, _) | (_, InstanceState::Crashed) if may_run(state) => {
                (stop(state), InstanceState::Stopped)
            }
            (DesiredState::Running | DesiredState::Paused | DesiredState::Stopped, _) => (Vec::new(), state),
        };
        let refusal = self.change(&mut steps, state, files);
        match (want, state) {
            (DesiredState::Running, InstanceState::Absent | InstanceState::Stopped) => {
                steps.push(Step::Start { paused: false });
            }
            (DesiredState::Paused, InstanceState::Absent | InstanceState::Stopped) => {
                steps.push(Step::Start { paused: true });
            }
            (DesiredState::Running, InstanceState::Paused) => steps.push(Step::Resume),
            (DesiredState::Paused, InstanceState::Running) => steps.push(Step::Suspend),
            // One that shuts down is waited for: the next pass finds it stopped.
            (DesiredState::Running, InstanceState::Running | InstanceState::ShuttingDown)
            | (DesiredState::Paused, InstanceState::Paused | InstanceState::ShuttingDown)
            | (DesiredState::Stopped, _)
            | (_, InstanceState::Crashed | InstanceState::Unknown) => {}
        }
        Verdict { steps, refusal, deletes: false }
    }

    /// What may never change on an existing instance, and what must be there.
    fn judge(&self) -> Result<&InstanceFiles, Refusal> {
        let (want, now) = (self.definition, &self.record.definition);
        if want.image != now.image {
            return Err(invalid(format!(
                "image is {} ({}) and the disk lies on {} ({}): an instance keeps its image, use another instance id for \
                 another image",
                want.image.sha256, want.image.format, now.image.sha256, now.image.format
            )));
        }
        if want.allocation != now.allocation {
            return Err(invalid(format!(
                "allocation is {} and the instance was made for {}: an instance keeps its allocation, use another \
                 instance id",
                want.allocation, now.allocation
            )));
        }
        let shrinks = |now: u64| {
            invalid(format!(
                "disk_bytes is {} and the disk has {now}: a disk only grows, give {now} or more",
                want.disk
            ))
        };
        if want.disk < now.disk {
            return Err(shrinks(now.disk.get()));
        }
        let lost = |what: &str| {
            Refusal::new(
                FaultKind::Unavailable,
                format!(
                    "instances/{0}/disk.qcow2 {what}: put it back, or take the instance out of the document to give its \
                     data up",
                    self.record.instance
                ),
            )
        };
        let files = self.files.ok_or_else(|| lost("is gone"))?;
        match files.disk {
            DiskFile::Missing => Err(lost("is gone")),
            DiskFile::Unreadable => Err(lost("cannot be read")),
            DiskFile::Ready { virtual_bytes } if want.disk.get() < virtual_bytes => Err(shrinks(virtual_bytes)),
            DiskFile::Ready { .. } => Ok(files),
        }
    }

    /// Brings files and definition to what is wanted. Answers what has to wait for a stop.
    fn change(&self, steps: &mut Vec<Step>, state: InstanceState, files: &InstanceFiles) -> Option<Refusal> {
        let (want, now) = (self.definition, &self.record.definition);
        if !self.has_image {
            steps.push(Step::FetchImage);
        }
        if !files.seed {
            steps.push(Step::WriteSeed);
        }
        let in_memory = may_run(state);
        let disk_bytes = want.disk;
        if in_memory {
            if want.disk > now.disk {
                steps.push(Step::GrowLive { disk_bytes });
            }
        } else if !matches!(files.disk, DiskFile::Ready { virtual_bytes } if virtual_bytes == disk_bytes.get()) {
            steps.push(Step::GrowFile { disk_bytes });
        }
        let mut refusal = None;
        if in_memory && want.nics != now.nics {
            refusal = Some(Refusal::new(
                FaultKind::Unsupported,
                "nics changed: they change only while the instance is stopped, so set desired_state to stopped and \
                 then to running again",
            ));
        } else if self.record.unfinished || state == InstanceState::Absent || !as_recorded(want, now, in_memory) {
            steps.push(Step::Define);
        }
        if files.shared != Some(self.record.uid) || !self.has_image || !files.seed {
            steps.push(Step::Share);
        }
        refusal
    }
}

/// Whether the record holds what is wanted. Growing a disk in use changes its record by itself.
fn as_recorded(want: &Definition, now: &Definition, in_memory: bool) -> bool {
    let Definition { allocation, vcpus, memory, disk, image, nics } = want;
    (in_memory || *disk == now.disk)
        && *vcpus == now.vcpus
        && *memory == now.memory
        && *image == now.image
        && *allocation == now.allocation
        && *nics == now.nics
}

fn invalid(message: String) -> Refusal {
    Refusal::new(FaultKind::InvalidSpec, message)
}
