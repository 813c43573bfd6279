//! One instance's steps: made, brought to its state, changed, or stopped although it is refused.
//!
//! Room: `node`. Pure. What reaches this file has been read and is not foreign.
use super::desired::Wanted;
use super::guard::may_run;
use super::judge::Verdict;
use super::{DiskFile, InstanceFiles, Refusal, Step};
use crate::fault::FaultKind;
use crate::spec::DesiredState;
use crate::status::InstanceState;
use bcd_protocol::definition::Definition;
use bcd_protocol::id::InstanceId;
use bcd_protocol::reply::RecordView;

/// A new instance. Files that this process did not just make for this very wish are leftovers of a crash or of an
/// instance that had the same id: no guest may see them, and making them again costs little. But a disk with data in it
/// is not removed for an instance that is wanted: a helper whose records were lost must not cost the guests' data too.
pub(super) fn create(id: &InstanceId, wanted: &Wanted, files: Option<&InstanceFiles>, has_image: bool) -> Verdict {
    let mut steps = Vec::new();
    match files.map(|files| files.disk) {
        Some(DiskFile::Ready { written: true, .. } | DiskFile::Unreadable) => {
            return Verdict::refused(Refusal::new(
                FaultKind::Unavailable,
                format!(
                    "instances/{id}/disk.qcow2 has been written to and the helper has no record of its domain: save it if \
                     its data is needed, then take the instance out of the document, which removes it, and put it back"
                ),
            ));
        }
        Some(DiskFile::Ready { written: false, .. } | DiskFile::Missing) | None => {}
    }
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
    steps.push(Step::Define);
    match wanted.state() {
        DesiredState::Running => steps.extend([Step::Share, Step::Start { paused: false }]),
        DesiredState::Paused => steps.extend([Step::Share, Step::Start { paused: true }]),
        // Nobody reads its files. A base holds about 500 entries, and those that run need them.
        DesiredState::Stopped => {}
    }
    Verdict { steps, ..Verdict::default() }
}

/// What is done for a refused instance: stopping or pausing it needs nothing of what is refused.
pub(super) fn obey(state: InstanceState, want: DesiredState) -> Verdict {
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
pub(super) struct Known<'a> {
    pub(super) definition: &'a Definition,
    pub(super) record: &'a RecordView,
    pub(super) files: Option<&'a InstanceFiles>,
    pub(super) has_image: bool,
}

impl Known<'_> {
    pub(super) fn converge(&self, state: InstanceState, wanted: &Wanted) -> Verdict {
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
        let refusal = self.change(&mut steps, state, want, files);
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
            DiskFile::Ready { virtual_bytes, .. } if want.disk.get() < virtual_bytes => Err(shrinks(virtual_bytes)),
            DiskFile::Ready { .. } => Ok(files),
        }
    }

    /// Brings files and definition to what is wanted. Answers what has to wait for a stop.
    fn change(
        &self,
        steps: &mut Vec<Step>,
        state: InstanceState,
        wanted: DesiredState,
        files: &InstanceFiles,
    ) -> Option<Refusal> {
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
        } else if !matches!(files.disk, DiskFile::Ready { virtual_bytes, .. } if virtual_bytes == disk_bytes.get()) {
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
        // One that stays stopped needs no entry on its base, which holds about 500: it is shared before it starts.
        let opened = in_memory || wanted != DesiredState::Stopped;
        if opened && (files.shared != Some(self.record.uid) || !self.has_image || !files.seed) {
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
