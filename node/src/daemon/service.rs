//! The running node as its API sees it.
//!
//! Room: `node`. Thin: reading is from the converger's snapshots, changing goes through it.
use crate::api::events::{EventLog, Subscription};
use crate::api::service::{ApplyOptions, ApplyReport, Document, NodeService, PlanReport};
use crate::console::{Attach, Consoles, Session};
use crate::converge::Converger;
use crate::fault::{Fault, FaultKind};
use crate::spec::{self, NodeSpec};
use crate::status::{NodeStatus, SpecSource};
use bcd_protocol::id::InstanceId;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Longest wait of a document for a host that cannot be read now.
const LOOK_TIME: Duration = Duration::from_secs(5);
/// How often that is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A running node.
#[derive(Debug, Clone)]
pub(super) struct Node {
    converger: Converger,
    events: EventLog,
    consoles: Consoles,
}

impl Node {
    pub(super) fn new(converger: Converger, events: EventLog, consoles: Consoles) -> Self {
        Self { converger, events, consoles }
    }

    pub(super) fn converger(&self) -> &Converger {
        &self.converger
    }
}

impl Node {
    /// Waits a moment while the host cannot be read: a node that has just started has not looked yet, and would refuse
    /// a document because it cannot tell what that deletes.
    async fn wait_for_a_look(&self, spec: &NodeSpec) {
        let looked = async {
            while self.converger.plan(spec.clone()).await.is_ok_and(|report| !report.plan.unreadable.is_empty()) {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        // Past that, the converger's own answer says what cannot be read.
        let _ = tokio::time::timeout(LOOK_TIME, looked).await;
    }
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
            self.converger.apply(spec, SpecSource::Api, options.allow_delete).await
        })
    }

    fn plan(&self, document: Document) -> BoxFuture<'_, Result<PlanReport, Fault>> {
        Box::pin(async move { self.converger.plan(parse(&document)?).await })
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
