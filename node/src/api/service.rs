//! What the API and the command line need of a running node. The daemon implements [`NodeService`]; tests put a fake in
//! its place.
//!
//! Room: `node`. Nothing here acts: reading is from snapshots that are replaced whole, and a document that is not
//! accepted leaves everything as it was.
use super::events::Subscription;
use crate::console::{Attach, Session};
use crate::fault::Fault;
use crate::plan::Plan;
use crate::spec::{Format, NodeSpec};
use crate::status::{NodeStatus, UnixMillis};
use bcd_protocol::id::InstanceId;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::watch;

/// A running node, as its API sees it.
pub trait NodeService: Send + Sync + 'static {
    /// The latest status: one snapshot, never waits.
    fn status(&self) -> Arc<NodeStatus>;

    /// Follows the status. The receiver sees at least the latest value after each change.
    fn watch(&self) -> watch::Receiver<Arc<NodeStatus>>;

    /// The document in force.
    fn spec(&self) -> Arc<NodeSpec>;

    /// Puts `document` in force: parsed, checked, stored durably, then answered. Converging goes on after the answer.
    ///
    /// # Errors
    /// `InvalidSpec` with file, line and field; `Denied` when it would delete more than half of the running instances
    /// and `options` does not allow that; `Unavailable` when it cannot be stored. Nothing is changed then.
    fn apply(&self, document: Document, options: ApplyOptions) -> BoxFuture<'_, Result<ApplyReport, Fault>>;

    /// What [`NodeService::apply`] of `document` would lead to. Changes nothing.
    ///
    /// # Errors
    /// `InvalidSpec` with file, line and field.
    fn plan(&self, document: Document) -> BoxFuture<'_, Result<PlanReport, Fault>>;

    /// The events after sequence number `after` that the log still has, then new ones as they come. `None`: new ones
    /// alone; 0: all it has.
    fn events(&self, after: Option<u64>) -> Subscription;

    /// Attaches to an instance's serial console: its backlog, then what comes.
    ///
    /// # Errors
    /// `InvalidSpec` when no instance has this id, `Unsupported` when its runtime has no console, `Unavailable` when
    /// the backlog cannot be read or too many are attached.
    fn console<'a>(&'a self, instance: &'a InstanceId, attach: Attach) -> BoxFuture<'a, Result<Session, Fault>>;
}

/// A NodeSpec as text, not yet parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// What to call it in messages: a file's name without its directories, ending `.toml` or `.json` as its format is.
    pub name: String,
    /// How it is written.
    pub format: Format,
    /// The text.
    pub text: String,
}

/// How to apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ApplyOptions {
    /// Whether more than half of the running instances may be deleted.
    pub allow_delete: bool,
}

/// A document that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyReport {
    /// The document's number, as in the status once it is in force.
    pub generation: u64,
    /// Whether the document differs from the one before.
    pub changed: bool,
    /// When it was accepted, by the node's clock. What failed before is tried at once: older errors say nothing about it.
    pub accepted_at: UnixMillis,
    /// What it asks for, as seen when it was accepted.
    pub plan: PlanReport,
}

/// What a document would lead to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanReport {
    /// What would be done, by the state observed last.
    pub plan: Plan,
    /// How many running instances it deletes.
    pub deletes_running: u32,
    /// Whether it deletes so many that `apply` needs `--allow-delete`.
    pub needs_allow_delete: bool,
    /// Why the helper was not asked, for all or some of it, what it would refuse; absent: it was asked, and what it refuses
    /// is in the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unchecked: Option<String>,
}
