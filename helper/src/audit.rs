//! One audit event per request: who asked what, what was decided by which rule, how it ended.
//!
//! Room: `helper`. Called once a request, by the session alone.
use bcd_policy::{Peer, Rule};
use bcd_protocol::id::InstanceId;
use bcd_protocol::reply::{FailureKind, Reply};
use bcd_protocol::request::{Request, Verb};
use std::time::Instant;

/// A request under way, as the audit event will name it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    verb: Verb,
    instance: Option<InstanceId>,
    peer: Peer,
    begun: Instant,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The policy granted it.
    Granted,
    /// The policy refused by this rule.
    Denied(Rule),
    /// It never came to a decision: a part of the helper failed or was too slow.
    None,
}

impl Entry {
    /// Begins to measure.
    pub(crate) fn begin(peer: Peer, request: &Request) -> Self {
        Self { verb: request.verb(), instance: request.instance().cloned(), peer, begun: Instant::now() }
    }

    /// Writes the event.
    pub(crate) fn end(self, decision: Decision, reply: &Reply) {
        let (decision, rule) = match decision {
            Decision::Granted => ("granted", None),
            Decision::Denied(rule) => ("denied", Some(rule.id())),
            Decision::None => ("none", None),
        };
        let elapsed = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::info!(
            target: "audit",
            verb = self.verb.as_str(),
            instance = self.instance.as_ref().map(InstanceId::as_str),
            peer_uid = self.peer.uid,
            peer_pid = self.peer.pid,
            decision,
            rule,
            outcome = outcome(reply),
            elapsed_us = elapsed,
        );
    }
}

fn outcome(reply: &Reply) -> &'static str {
    match reply {
        Reply::Hello(_) | Reply::Records(_) | Reply::Plan(_) => "answered",
        Reply::Defined(defined) if defined.changed => "done",
        Reply::Done { changed: true } | Reply::Console => "done",
        Reply::Defined(_) | Reply::Done { changed: false } => "unchanged",
        Reply::Denied(_) => "nothing",
        Reply::Failed(failed) => match failed.kind {
            FailureKind::ResourcesExhausted => "failed-resources-exhausted",
            FailureKind::Unavailable => "failed-unavailable",
            FailureKind::Timeout => "failed-timeout",
            FailureKind::Refused => "failed-refused",
            FailureKind::Ledger => "failed-ledger",
        },
    }
}
