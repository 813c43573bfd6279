//! `bcd apply`: sends a document and, with `--wait`, watches until the host is as it says.
//!
//! Room: `node`. `judge` decides from a status alone whether the waiting is over; the rest shows progress.
use super::failure::{Failure, LATE, NO_NODE};
use super::plan;
use super::progress::Shown;
use super::status::{error, is};
use super::text::{count, print, print_json, printable};
use crate::api::service::{ApplyOptions, ApplyReport, Document};
use crate::client::Client;
use crate::fault::FaultKind;
use crate::spec::{self, DesiredState};
use crate::status::{InstanceStatus, LastError, NodeStatus, UnixMillis};
use bcd_protocol::id::InstanceId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

/// Failures in a row of something that is retried, after which waiting for it ends.
const PATIENCE: u32 = 3;

/// What `--wait --json` prints.
#[derive(Debug, Serialize)]
struct Waited<'a> {
    apply: &'a ApplyReport,
    instances: &'a [InstanceStatus],
    failed: Vec<&'a InstanceId>,
}

pub(super) async fn run(
    client: &Client,
    document: &Document,
    allow_delete: bool,
    wait: Option<Duration>,
    json: bool,
) -> Result<ExitCode, Failure> {
    let report = client.apply(document, ApplyOptions { allow_delete }).await?;
    if !json {
        let same = if report.changed { "" } else { " (the same as before)" };
        print(&format!("{}document {} accepted{same}\n", plan::render(&report.plan), report.generation))?;
    }
    let Some(wait) = wait else {
        return if json { print_json(&report) } else { Ok(ExitCode::SUCCESS) };
    };
    let goal = Goal::of(document, &report);
    let waited = tokio::time::timeout(wait, settle(client, &goal)).await;
    match waited {
        Ok(settled) => finish(&report, &settled?, json),
        Err(_) => {
            // What the node says at the deadline names those that are not there yet.
            let status = client.status().await?;
            let late = goal.missing(&status).join(", ");
            let sentence = format!("not as wanted within {} s: {late}", wait.as_secs());
            Err(Failure::new(sentence).code(LATE).next("the node goes on: `bcd status --watch` shows it"))
        }
    }
}

/// What the waiting is for.
#[derive(Debug)]
pub(super) struct Goal {
    generation: u64,
    /// Errors from before say nothing about it.
    accepted_at: UnixMillis,
    wanted: BTreeMap<InstanceId, DesiredState>,
}

/// How one look at the status went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Not all is as wanted yet.
    Wait,
    /// Everything is as wanted, or has failed for good: those that failed.
    Over(Vec<InstanceId>),
    /// Another document is in force.
    Superseded(u64),
}

impl Goal {
    pub(super) fn of(document: &Document, report: &ApplyReport) -> Self {
        // The node has accepted it, so it parses here too, unless the node is of another version.
        let instances = spec::parse_as(document.format, &document.name, &document.text).unwrap_or_default().instances;
        let wanted = instances.iter().map(|i| (i.id.clone(), i.desired_state)).collect();
        Self { generation: report.generation, accepted_at: report.accepted_at, wanted }
    }

    /// Decides from one status. While part of the host cannot be read nothing is known to be as wanted. An instance counts as
    /// failed when its error is of a kind that trying again does not help, or has come back [`PATIENCE`] times.
    pub(super) fn judge(&self, status: &NodeStatus) -> Look {
        if status.spec.generation > self.generation {
            return Look::Superseded(status.spec.generation);
        }
        let stale = status.spec.generation < self.generation || status.spec.accepted_at < Some(self.accepted_at);
        if stale || !status.unreadable.is_empty() || !self.open(status).is_empty() {
            return Look::Wait;
        }
        Look::Over(status.instances.iter().filter(|i| self.failed(i)).map(|i| i.id.clone()).collect())
    }

    /// What is still missing: what cannot be read, and the instances that are neither as wanted nor failed.
    pub(super) fn missing(&self, status: &NodeStatus) -> Vec<String> {
        let unread =
            status.unreadable.iter().map(|u| format!("{} cannot be read ({})", u.section, printable(&u.message)));
        unread.chain(self.open(status)).collect()
    }

    /// The instances that are neither as wanted nor failed.
    pub(super) fn open(&self, status: &NodeStatus) -> Vec<String> {
        let known: BTreeMap<&InstanceId, &InstanceStatus> = status.instances.iter().map(|i| (&i.id, i)).collect();
        let missing = self.wanted.keys().filter(|id| !known.contains_key(id)).map(ToString::to_string);
        let open = status.instances.iter().filter(|i| !self.done(i) && !self.failed(i));
        missing.chain(open.map(|i| format!("{} ({})", i.id, i.state.as_str()))).collect()
    }

    fn done(&self, instance: &InstanceStatus) -> bool {
        let wanted = self.wanted.get(&instance.id);
        instance.doing.is_none()
            && wanted.is_some_and(|wanted| is(instance.state, *wanted))
            && instance.last_error.is_none()
    }

    fn failed(&self, instance: &InstanceStatus) -> bool {
        let told = |e: &&LastError| e.at >= self.accepted_at;
        instance.doing.is_none() && instance.last_error.as_ref().filter(told).is_some_and(is_final)
    }
}

fn is_final(error: &LastError) -> bool {
    match error.kind {
        FaultKind::InvalidSpec | FaultKind::Denied | FaultKind::ImageRejected | FaultKind::Unsupported => true,
        FaultKind::ResourcesExhausted | FaultKind::Timeout | FaultKind::Unavailable | FaultKind::Internal => {
            error.times >= PATIENCE
        }
    }
}

/// Follows the status until [`Goal::judge`] says that it is over.
async fn settle(client: &Client, goal: &Goal) -> Result<(NodeStatus, Vec<InstanceId>), Failure> {
    let mut shown = Shown::new();
    let mut statuses = client.watch().await?;
    while let Some(status) = statuses.next().await? {
        match goal.judge(&status) {
            Look::Wait => shown.update(&status),
            Look::Over(failed) => {
                shown.update(&status);
                return Ok((status, failed));
            }
            Look::Superseded(generation) => {
                let ours = goal.generation;
                return Err(Failure::new(format!("document {ours} was replaced by document {generation} meanwhile"))
                    .next("whoever applied that one decides now: `bcd status` shows it"));
            }
        }
    }
    Err(Failure::new("the node ended while it worked on the document")
        .code(NO_NODE)
        .next("it goes on once it runs again"))
}

fn finish(
    report: &ApplyReport,
    (status, failed): &(NodeStatus, Vec<InstanceId>),
    json: bool,
) -> Result<ExitCode, Failure> {
    if json {
        let failed = failed.iter().collect();
        print_json(&Waited { apply: report, instances: &status.instances, failed })?;
    } else if failed.is_empty() {
        print(&format!("{} as wanted\n", count(status.instances.len(), "instance")))?;
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let now = UnixMillis::now();
    let told = failed.iter().filter_map(|id| {
        let instance = status.instances.iter().find(|i| i.id == *id)?;
        Some(format!("{id}: {}", error(instance.last_error.as_ref()?, now)))
    });
    let told: Vec<String> = told.collect();
    let sentence = format!("{} failed\n     {}", count(failed.len(), "instance"), printable_join(&told));
    Err(Failure::new(sentence).next("the others are as wanted; change the document or the host and apply again"))
}

fn printable_join(lines: &[String]) -> String {
    lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n     ")
}
