//! The steps of one instance's task, each thin: the files are the node's own, the rest is asked of the helper.
//!
//! Room: `node`. Invariants: a task that is told to stop does so between two steps, or within one that only waits
//! (a download, a guest that shuts down), never between a request and its reply; whatever happened, the outcome says
//! what the instance's files are afterwards.
use super::Parts;
use super::work::Doing;
use crate::api::events::EventKind;
use crate::console::Boot;
use crate::disk;
use crate::fault::{Fault, FaultKind};
use crate::image::BaseImage;
use crate::observe::look_at;
use crate::plan::{DomainView, Fingerprint, InstanceFiles, Step};
use crate::runtime::domain_name;
use crate::secret;
use crate::seed::{self, SeedInput, SeedNic};
use crate::share;
use crate::spec::Instance;
use crate::status::{InstanceState, Progress, ProgressUnit};
use bcd_protocol::definition::{Definition, ImageRef};
use bcd_protocol::id::{GuestUid, InstanceId};
use bcd_protocol::reply::RecordView;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

/// One instance's task.
pub(super) struct Job {
    pub(super) id: InstanceId,
    pub(super) steps: Vec<Step>,
    /// What the document says, unless the instance left it.
    pub(super) wanted: Option<(Instance, Fingerprint, Option<Definition>)>,
    pub(super) record: Option<RecordView>,
    pub(super) files: Option<InstanceFiles>,
    pub(super) view: watch::Receiver<DomainView>,
    pub(super) cancel: watch::Receiver<bool>,
    pub(super) doing: Doing,
}

/// How a task ended.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) id: InstanceId,
    pub(super) result: Result<(), Fault>,
    /// It was told to stop before its steps were done.
    pub(super) cancelled: bool,
    /// What the instance's files are now; `None`: its directory is gone.
    pub(super) files: Option<InstanceFiles>,
    /// The base image that was found or fetched.
    pub(super) image: Option<ImageRef>,
    /// The instance and its files are gone.
    pub(super) deleted: bool,
}

/// Why a step did not finish.
enum Ended {
    Failed(Fault),
    Cancelled,
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

struct Task {
    parts: Parts,
    id: InstanceId,
    wanted: Option<(Instance, Fingerprint, Option<Definition>)>,
    image: Option<ImageRef>,
    uid: Option<GuestUid>,
    shared: Option<GuestUid>,
    made_for: Option<Fingerprint>,
    base: Option<BaseImage>,
    view: watch::Receiver<DomainView>,
    cancel: watch::Receiver<bool>,
    doing: Doing,
}

/// Runs a task's steps in order, until one fails or the task is told to stop.
pub(super) async fn run(parts: Parts, job: Job) -> Outcome {
    let files = job.files.unwrap_or_default();
    let deletes = job.steps.last() == Some(&Step::RemoveFiles);
    let mut task = Task {
        image: job.record.as_ref().map(|r| r.definition.image),
        uid: job.record.as_ref().map(|r| r.uid),
        shared: files.shared,
        // Behind a record a guest may have run on them: when it is gone they are leftovers.
        made_for: files.made_for.filter(|_| job.record.is_none()),
        base: None,
        parts,
        id: job.id,
        wanted: job.wanted,
        view: job.view,
        cancel: job.cancel,
        doing: job.doing,
    };
    let mut result = Ok(());
    let mut cancelled = false;
    for step in job.steps {
        // A deletion that has come this far goes on: a disk without a record helps nobody.
        if *task.cancel.borrow() && step != Step::RemoveFiles {
            cancelled = true;
            break;
        }
        match task.step(step).await {
            Ok(()) => {}
            Err(Ended::Cancelled) => {
                cancelled = true;
                break;
            }
            Err(Ended::Failed(fault)) => {
                result = Err(fault);
                break;
            }
        }
    }
    let deleted = deletes && !cancelled && result.is_ok() && task.wanted.is_none();
    task.outcome(result, cancelled, deleted).await
}

impl Task {
    async fn outcome(self, result: Result<(), Fault>, cancelled: bool, deleted: bool) -> Outcome {
        let (layout, id) = (self.parts.layout.clone(), self.id.clone());
        let found = tokio::task::spawn_blocking(move || look_at(&layout, &id)).await.unwrap_or_default();
        let files = found.map(|files| InstanceFiles { shared: self.shared, made_for: self.made_for, ..files });
        Outcome { id: self.id, result, cancelled, files, image: self.base.map(|b| b.image), deleted }
    }

    async fn step(&mut self, step: Step) -> Result<(), Ended> {
        let began = Instant::now();
        self.doing.begin(step.doing());
        self.parts.events.push(EventKind::StepBegun, Some(&self.id), step.doing());
        let outcome = self.act(step).await;
        let elapsed = began.elapsed();
        match &outcome {
            Ok(()) => {
                info!(instance = %self.id, step = %step, ?elapsed, "step done");
                self.parts.events.push(EventKind::StepDone, Some(&self.id), step.doing());
            }
            Err(Ended::Cancelled) => {
                info!(instance = %self.id, step = %step, ?elapsed, "step given up: the document changed")
            }
            Err(Ended::Failed(fault)) => {
                warn!(instance = %self.id, step = %step, ?elapsed, kind = ?fault.kind(), fault = fault.chain(), "step failed");
                let message = format!("{}: {}", step.doing(), fault.chain());
                self.parts.events.push(EventKind::StepFailed, Some(&self.id), message);
            }
        }
        outcome
    }

    async fn act(&mut self, step: Step) -> Result<(), Ended> {
        let helper = self.parts.helper.clone();
        match step {
            Step::FetchImage => self.fetch_image().await.map(drop),
            Step::CreateDisk => self.create_disk().await,
            Step::WriteSeed => Ok(self.write_seed().await?),
            Step::Define => {
                let definition = self.definition()?;
                self.image = Some(definition.image);
                let defined = helper.define(&self.id, definition).await?;
                self.uid = Some(defined.uid);
                Ok(())
            }
            Step::Share => Ok(self.share().await?),
            Step::GrowFile { disk_bytes } => {
                self.blocking(move |parts, id| disk::grow(&parts.layout, id, disk_bytes)).await?;
                Ok(())
            }
            Step::GrowLive { disk_bytes } => {
                helper.block_resize(&self.id, disk_bytes).await?;
                Ok(())
            }
            Step::Start { paused } => Ok(self.start(paused).await?),
            Step::Suspend => Ok(helper.suspend(&self.id).await.map(drop)?),
            Step::Resume => Ok(helper.resume(&self.id).await.map(drop)?),
            Step::PowerOff => self.power_off().await,
            Step::Destroy => Ok(helper.destroy(&self.id).await.map(drop)?),
            Step::Undefine => Ok(self.undefine().await?),
            Step::RemoveFiles => {
                self.parts.consoles.removed(&self.id);
                self.blocking(|parts, id| disk::remove_directory(&parts.layout, id)).await?;
                self.made_for = None;
                self.shared = None;
                Ok(())
            }
        }
    }

    /// The base image under its final name; fetched unless it is there. Given up when the task is told to stop.
    async fn fetch_image(&mut self) -> Result<BaseImage, Ended> {
        let (instance, ..) = self.wanted.as_ref().ok_or_else(unwanted)?;
        let doing = self.doing.clone();
        let progress = move |p: crate::image::Progress| {
            doing.progress(Progress { done: p.received, total: p.total, unit: ProgressUnit::Bytes });
        };
        let base = tokio::select! {
            base = self.parts.images.ensure(&instance.image, progress) => base?,
            () = stopped(self.cancel.clone()) => return Err(Ended::Cancelled),
        };
        self.base = Some(base.clone());
        Ok(base)
    }

    async fn create_disk(&mut self) -> Result<(), Ended> {
        let base = match &self.base {
            Some(base) => base.clone(),
            None => self.fetch_image().await?,
        };
        let (instance, fingerprint, _) = self.wanted.as_ref().ok_or_else(unwanted)?;
        let size = instance.disk_bytes;
        self.made_for = Some(*fingerprint);
        self.blocking(move |parts, id| {
            disk::make_directory(&parts.layout, id)?;
            disk::create(&parts.layout, id, &base, size)
        })
        .await?;
        Ok(())
    }

    async fn write_seed(&mut self) -> Result<(), Fault> {
        let (instance, ..) = self.wanted.as_ref().ok_or_else(unwanted)?;
        let allocation = instance.allocation.clone();
        let secret = self.blocking(move |parts, _| secret::user_data(&parts.secrets, &allocation)).await?;
        let input = SeedInput {
            instance: self.id.clone(),
            hostname: instance.hostname.clone(),
            nics: instance.nics.iter().map(SeedNic::from).collect(),
            user_data: secret,
        };
        seed::write(&self.parts.layout, &input).await?;
        // The file is new: whoever could read the old one cannot read this one yet.
        self.shared = None;
        Ok(())
    }

    async fn share(&mut self) -> Result<(), Fault> {
        let (Some(uid), Some(image)) = (self.uid, self.image) else {
            return Err(Fault::new(FaultKind::Internal, "the files cannot be shared before the domain is defined"));
        };
        self.blocking(move |parts, id| share::with_guest(&parts.layout, id, uid, &image)).await?;
        self.shared = Some(uid);
        Ok(())
    }

    /// Starts the guest with its CPUs held until its console is read: what it prints first would be lost otherwise.
    async fn start(&mut self, paused: bool) -> Result<(), Fault> {
        self.parts.helper.start(&self.id, true).await?;
        // A console is not worth failing a start for.
        let name = domain_name(&self.id);
        let boot = timeout(self.parts.timing.console, self.parts.runtime.boot(&name)).await.ok().flatten();
        if let Some(boot) = boot {
            self.parts.consoles.started(&self.id, Boot(u64::from(boot)));
            if !self.parts.consoles.connected(&self.id, self.parts.timing.console).await {
                warn!(instance = %self.id, "console not connected in time: the guest's first lines may be lost");
            }
        }
        if !paused {
            self.parts.helper.resume(&self.id).await?;
        }
        Ok(())
    }

    /// Presses the power button again and again until the guest is down, and ends it at the deadline: it may not be
    /// listening yet, or never.
    async fn power_off(&mut self) -> Result<(), Ended> {
        let timing = self.parts.timing;
        let began = Instant::now();
        loop {
            let waited = began.elapsed();
            if is_down(&self.view.borrow()) {
                return Ok(());
            }
            if waited >= timing.power_off {
                warn!(instance = %self.id, ?waited, "guest did not shut down: it is ended");
                self.parts.helper.destroy(&self.id).await?;
                return Ok(());
            }
            self.doing.progress(Progress {
                done: waited.as_secs(),
                total: Some(timing.power_off.as_secs()),
                unit: ProgressUnit::Seconds,
            });
            if let Err(fault) = self.parts.helper.shutdown(&self.id).await {
                // It may just have gone down, or the helper may be back for the next press.
                warn!(instance = %self.id, fault = fault.chain(), "power button not pressed");
            }
            let patience = timing.press.min(timing.power_off.saturating_sub(waited));
            self.wait_down(patience).await?;
        }
    }

    async fn wait_down(&mut self, patience: Duration) -> Result<(), Ended> {
        let cancel = self.cancel.clone();
        tokio::select! {
            // The actor drops the sender only together with this task.
            _ = timeout(patience, self.view.wait_for(is_down)) => Ok(()),
            () = stopped(cancel) => Err(Ended::Cancelled),
        }
    }

    /// Takes the guest's uid off the base image first: once the record is gone, another guest may be given that uid.
    async fn undefine(&mut self) -> Result<(), Fault> {
        if let (Some(uid), Some(image)) = (self.uid, self.image) {
            self.blocking(move |parts, _| share::withdraw(&parts.layout, uid, &image)).await?;
            self.shared = None;
        }
        self.parts.helper.undefine(&self.id).await?;
        Ok(())
    }

    fn definition(&self) -> Result<Definition, Fault> {
        self.wanted.as_ref().and_then(|(_, _, definition)| definition.clone()).ok_or_else(unwanted)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Parts, &InstanceId) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let (parts, id) = (self.parts.clone(), self.id.clone());
        tokio::task::spawn_blocking(move || work(&parts, &id))
            .await
            .map_err(|e| Fault::because(FaultKind::Internal, "a step on the instance's files ended early", e))?
    }
}

fn is_down(view: &DomainView) -> bool {
    match view.state {
        InstanceState::Absent | InstanceState::Stopped => true,
        InstanceState::Running
        | InstanceState::Paused
        | InstanceState::ShuttingDown
        | InstanceState::Crashed
        | InstanceState::Unknown => false,
    }
}

/// Ends once the task is told to stop.
async fn stopped(mut cancel: watch::Receiver<bool>) {
    if cancel.wait_for(|cancelled| *cancelled).await.is_err() {
        // The actor is gone, and this task with it soon.
        sleep(Duration::MAX).await;
    }
}

fn unwanted() -> Fault {
    Fault::new(FaultKind::Internal, "the planner asked for a step that needs the document of an instance not in it")
}
