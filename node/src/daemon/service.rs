//! The running node as its API sees it.
//!
//! Room: `node`. Thin: reading is from the converger's snapshots, changing goes through it.
use crate::api::events::{EventLog, Subscription};
use crate::api::service::{ApplyOptions, ApplyReport, Document, NodeService, PlanReport};
use crate::console::{Attach, Consoles, Session};
use crate::converge::Converger;
use crate::fault::{Fault, FaultKind};
use crate::helper::Helper;
use crate::plan::Desired;
use crate::plan::vet::{self, Verdict};
use crate::spec::{self, NodeSpec};
use crate::status::{Link, NodeStatus, Section, SpecSource, UnixMillis};
use bcd_protocol::definition::Definition;
use bcd_protocol::id::InstanceId;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Longest wait of a document for a host that cannot be read now.
const LOOK_TIME: Duration = Duration::from_secs(5);
/// How long the helper or libvirt has to be away before a document waits for it no more: a daemon that starts again is back
/// within it.
const AWAY_TIME: Duration = Duration::from_secs(2);
/// Longest time between two looks meanwhile. Each one asks the helper, which writes it down, so it is the status that says
/// when to look.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Longest wait for what the helper says to a plan: one that is busy with an instance answers for it afterwards.
const ASK_TIME: Duration = Duration::from_secs(5);
/// Questions of that kind under way at once: the connection has room for others beside them.
const ASKED_AT_ONCE: usize = 16;

/// A running node.
#[derive(Debug, Clone)]
pub(super) struct Node {
    converger: Converger,
    events: EventLog,
    consoles: Consoles,
    helper: Helper,
    /// How many instances the helper may have.
    most: usize,
}

impl Node {
    pub(super) fn new(converger: Converger, events: EventLog, consoles: Consoles, helper: Helper, most: u32) -> Self {
        Self { converger, events, consoles, helper, most: usize::try_from(most).unwrap_or(usize::MAX) }
    }

    pub(super) fn converger(&self) -> &Converger {
        &self.converger
    }
}

impl Node {
    /// Waits a moment while the host cannot be read: a node that has just started has not looked yet, and would refuse
    /// a document because it cannot tell what that deletes. What is known to be away is not waited for.
    async fn wait_for_a_look(&self, spec: &NodeSpec) {
        let looked = async {
            let mut status = self.converger.status();
            loop {
                status.mark_unchanged();
                let Ok(report) = self.converger.plan(spec.clone()).await else { return };
                let waits = !report.plan.unreadable.iter().all(|section| is_away(*section, &status.borrow()));
                if !waits {
                    return;
                }
                // An end of the converger is seen by the next question to it.
                let _ = tokio::time::timeout(LOOK_AGAIN, status.changed()).await;
            }
        };
        // Past that, the converger's own answer says what cannot be read.
        let _ = tokio::time::timeout(LOOK_TIME, looked).await;
    }

    /// What a document would lead to, with what the helper would refuse of it.
    async fn checked_plan(&self, spec: &NodeSpec) -> Result<PlanReport, Fault> {
        let mut report = self.converger.plan(spec.clone()).await?;
        let desired = Desired::of(Arc::new(spec.clone()));
        let status = self.status();
        let recorded = status.instances.iter().filter(|i| i.uuid.is_some()).map(|i| i.id.clone()).collect();
        let wanted = vet::questions(&report.plan).filter_map(|id| {
            let definition = desired.get(id)?.definition().ok()?;
            Some((id.clone(), definition.clone()))
        });
        let wanted: Vec<_> = wanted.collect();
        let verdicts = self.ask(wanted).await;
        report.unchecked = vet::vet(&mut report.plan, &verdicts, &recorded, self.most);
        if report.plan.unreadable.contains(&Section::Records) {
            report.unchecked = Some("the helper does not answer".to_owned());
        }
        Ok(report)
    }

    /// What the helper says to each definition. Whoever waits for the plan waits for all of it, at most [`ASK_TIME`].
    async fn ask(&self, wanted: Vec<(InstanceId, Definition)>) -> BTreeMap<InstanceId, Verdict> {
        let until = tokio::time::Instant::now().checked_add(ASK_TIME);
        let answers = futures_util::stream::iter(wanted.into_iter().map(|(id, definition)| async move {
            let asked = self.helper.plan(&id, definition);
            let answer = match until {
                Some(until) => tokio::time::timeout_at(until, asked).await,
                None => Ok(asked.await),
            };
            let verdict = match answer {
                Ok(Ok(Ok(_))) => Ok(None),
                Ok(Ok(Err(denied))) => Ok(Some(denied)),
                Ok(Err(fault)) => Err(fault.chain()),
                Err(_) => Err(format!("the helper did not answer for each instance in {} s", ASK_TIME.as_secs())),
            };
            (id, verdict)
        }));
        answers.buffer_unordered(ASKED_AT_ONCE).collect().await
    }
}

/// Whether a part of the host has been looked at, and cannot be read for some time already.
fn is_away(section: Section, status: &NodeStatus) -> bool {
    let Some(unread) = status.unreadable.iter().find(|unread| unread.section == section) else { return false };
    let reached = match section {
        Section::Records => status.helper.state == Link::Connected,
        Section::Libvirt => status.runtimes.iter().any(|runtime| runtime.state == Link::Connected),
        Section::Files => false,
    };
    let since = UnixMillis::now().0.saturating_sub(unread.since.0);
    !reached && u128::from(since) >= AWAY_TIME.as_millis()
}

fn parse(document: &Document) -> Result<NodeSpec, Fault> {
    spec::parse_as(document.format, &document.name, &document.text)
        .map_err(|error| Fault::new(FaultKind::InvalidSpec, error.to_string()))
}

impl NodeService for Node {
    fn status(&self) -> Arc<NodeStatus> {
        self.converger.status().borrow().clone()
    }

    fn watch(&self) -> watch::Receiver<Arc<NodeStatus>> {
        self.converger.status()
    }

    fn spec(&self) -> Arc<NodeSpec> {
        self.converger.spec().borrow().clone()
    }

    fn apply(&self, document: Document, options: ApplyOptions) -> BoxFuture<'_, Result<ApplyReport, Fault>> {
        Box::pin(async move {
            let spec = match parse(&document) {
                Ok(spec) => spec,
                Err(fault) => {
                    let shown = Fault::new(fault.kind(), fault.chain());
                    self.converger.refused(shown).await;
                    return Err(fault);
                }
            };
            self.wait_for_a_look(&spec).await;
            // Asked before: afterwards the helper is at work on it already.
            let checked = self.checked_plan(&spec).await;
            let mut report = self.converger.apply(spec, SpecSource::Api, options.allow_delete).await?;
            if let Ok(checked) = checked {
                report.plan = checked;
            }
            Ok(report)
        })
    }

    fn plan(&self, document: Document) -> BoxFuture<'_, Result<PlanReport, Fault>> {
        Box::pin(async move { self.checked_plan(&parse(&document)?).await })
    }

    fn events(&self, after: Option<u64>) -> Subscription {
        self.events.subscribe(after)
    }

    fn console<'a>(&'a self, instance: &'a InstanceId, attach: Attach) -> BoxFuture<'a, Result<Session, Fault>> {
        Box::pin(async move {
            let known = self.status().instances.iter().any(|i| i.id == *instance);
            if !known {
                let sentence = format!("no instance is called {instance}: bcd status lists them");
                return Err(Fault::new(FaultKind::InvalidSpec, sentence));
            }
            self.consoles.attach(instance, attach).await
        })
    }
}
