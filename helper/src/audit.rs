//! Audit events of requests: who asked what, what was decided by which rule, how it ended.
//!
//! Room: `helper`. The session ends an entry once for each answer that it knows: a request that was answered as taking too
//! long has a second event when it ends. Invariant: what may have had an effect is always told. What
//! had none is told up to a rate and counted above it: a peer that floods the helper must not push the events of its
//! effects out of a journal that limits what a service may write. Strangers, who get no session, have a rate of their own: they
//! must not silence the node's events either.
use crate::budget::{Budget, Tell, WINDOW};
use bcd_policy::{Peer, Rule};
use bcd_protocol::id::InstanceId;
use bcd_protocol::reply::{FailureKind, Reply};
use bcd_protocol::request::{Request, Verb};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Events without an effect that are told within [`WINDOW`]; a third of what journald takes of one service by default (10,000
/// in 30 s). A node that starts with a thousand instances makes a few hundred.
const TOLD: u32 = 1000;

/// Strangers that are told of within [`WINDOW`]: enough to see who it is.
const STRANGERS_TOLD: u32 = 20;

/// What an event says where the helper does not know.
const UNKNOWN: &str = "unknown";

/// What was told and counted of late, of the node's user.
static EVENTS: Rate = Rate::new(TOLD, "events without effect");

/// The same of everybody else.
pub(crate) static STRANGERS: Rate = Rate::new(STRANGERS_TOLD, "connections of strangers");

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
    /// The policy granted it, and the helper failed while it was carried out: what was done is not known. The record's intent
    /// stands and is settled by what is found.
    Interrupted,
    /// The policy refused by this rule.
    Denied(Rule),
    /// There was none when the request was answered: a part of the helper was not there or too slow.
    None,
    /// The helper failed on the way, and neither what was decided nor what was done is known.
    Lost,
}

impl Entry {
    /// Begins to measure.
    pub(crate) fn begin(peer: Peer, request: &Request) -> Self {
        Self { verb: request.verb(), instance: request.instance().cloned(), peer, begun: Instant::now() }
    }

    /// Writes the event, or counts it.
    pub(crate) fn end(self, decision: Decision, reply: &Reply) {
        self.end_within(&EVENTS, decision, reply);
    }

    fn end_within(self, rate: &Rate, decision: Decision, reply: &Reply) {
        if !may_have_had_an_effect(decision, reply) && !rate.admits(self.peer) {
            return;
        }
        let (said, rule, outcome) = match decision {
            Decision::Granted => ("granted", None, outcome(reply)),
            Decision::Interrupted => ("granted", None, UNKNOWN),
            Decision::Denied(rule) => ("denied", Some(rule.id()), outcome(reply)),
            Decision::None => ("none", None, outcome(reply)),
            Decision::Lost => (UNKNOWN, None, UNKNOWN),
        };
        let elapsed = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::info!(
            target: "audit",
            verb = self.verb.as_str(),
            instance = self.instance.as_ref().map(InstanceId::as_str),
            peer_uid = self.peer.uid,
            peer_pid = self.peer.pid,
            decision = said,
            rule,
            outcome,
            elapsed_us = elapsed,
        );
    }
}

/// Whether an event without an effect, of `peer`, is to be written; else it is counted. For lines about connections as
/// well: all of them together keep to the rate.
pub(crate) fn told(peer: Peer) -> bool {
    EVENTS.admits(peer)
}

/// Writes that a stranger was hung up on, or counts it, by the rate of `strangers`.
pub(crate) fn stranger(strangers: &Rate, peer: Peer) {
    if strangers.admits(peer) {
        let (peer_uid, peer_pid) = (peer.uid, peer.pid);
        tracing::warn!(target: "audit", peer_uid, peer_pid, "a connection that is not the node user's: hung up on");
    }
}

/// Whether something may have been done for a request, or is still being done.
fn may_have_had_an_effect(decision: Decision, reply: &Reply) -> bool {
    if matches!(decision, Decision::Interrupted | Decision::Lost) {
        return true;
    }
    match reply {
        Reply::Hello(_) | Reply::Records(_) | Reply::Plan(_) | Reply::Denied(_) => false,
        Reply::Defined(defined) => defined.changed,
        Reply::Done { changed } => *changed,
        Reply::Console => true,
        Reply::Failed(failed) => {
            // It was answered that it takes too long, and goes on. Any other end without a decision came before an effect.
            let goes_on = decision == Decision::None && failed.kind == FailureKind::Timeout;
            goes_on || decision == Decision::Granted
        }
    }
}

/// A kind of event, of which a number is told within [`WINDOW`].
#[derive(Debug)]
pub(crate) struct Rate {
    budget: Mutex<Budget>,
    kind: &'static str,
}

impl Rate {
    pub(crate) const fn new(most: u32, kind: &'static str) -> Self {
        Self { budget: Mutex::new(Budget::of(most)), kind }
    }

    /// Whether one more, of `peer`, is to be written; else it is counted.
    fn admits(&self, peer: Peer) -> bool {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let (tell, most) = (budget.spend(Instant::now(), 0), budget.most());
        drop(budget);
        let (kind, peer_uid, peer_pid) = (self.kind, peer.uid, peer.pid);
        match tell {
            Tell::It => true,
            Tell::AfterCounted(untold) => {
                tracing::warn!(target: "audit", untold, kind, "some were counted and not written");
                true
            }
            Tell::Beginning => {
                let seconds = WINDOW.as_secs();
                tracing::warn!(
                    target: "audit", peer_uid, peer_pid, kind, most, seconds, "a flood: further ones are counted"
                );
                false
            }
            Tell::Nothing => false,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::captured;
    use bcd_protocol::PROTOCOL_VERSION;
    use bcd_protocol::reply::{Failed, Sentence, Welcome};

    fn entry(request: &Request) -> Entry {
        Entry::begin(Peer { uid: 990, pid: 4711 }, request)
    }

    fn failed(kind: FailureKind) -> Reply {
        Reply::Failed(Failed { kind, detail: Sentence::new("no") })
    }

    #[test]
    fn a_flood_of_requests_without_effect_never_keeps_an_effect_out_of_the_log() {
        let start = Request::LibvirtStart { instance: InstanceId::parse("web-1").unwrap(), paused: false };
        let hello = Request::Hello { version: PROTOCOL_VERSION };
        let welcome = Reply::Hello(Welcome { version: PROTOCOL_VERSION, package: Sentence::new("0") });
        let rate = Rate::new(7, "a kind");
        let text = captured(|| {
            for _ in 0..50 {
                entry(&hello).end_within(&rate, Decision::Granted, &welcome);
                entry(&start).end_within(&rate, Decision::Denied(Rule::NoRecord), &Reply::Done { changed: false });
            }
            for reply in [Reply::Done { changed: true }, Reply::Console, failed(FailureKind::Refused)] {
                entry(&start).end_within(&rate, Decision::Granted, &reply);
            }
            entry(&start).end_within(&rate, Decision::None, &failed(FailureKind::Timeout));
        });
        assert_eq!(text.lines().count(), 7 + 1 + 4, "seven, that there were more, and the effects: {text}");
        assert_eq!(text.matches("a flood: ").count(), 1);
        let effects: Vec<_> = text.lines().skip_while(|line| !line.contains("a flood: ")).skip(1).collect();
        let outcomes = ["done", "done", "failed-refused", "failed-timeout"];
        assert_eq!(effects.len(), outcomes.len(), "{effects:?}");
        for (line, outcome) in effects.iter().zip(outcomes) {
            assert!(
                line.contains("verb=\"libvirt.start\"") && line.contains(&format!("outcome=\"{outcome}\"")),
                "{line}"
            );
        }
    }

    #[test]
    fn strangers_are_named_a_few_times_and_counted_above_it() {
        let strangers = Rate::new(2, "strangers");
        let text = captured(|| {
            for pid in 1..100 {
                stranger(&strangers, Peer { uid: 1000, pid });
            }
        });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(
            lines[2].contains("a flood: ") && lines[2].contains("peer_uid=1000") && lines[2].contains("peer_pid=3"),
            "{text}"
        );
        assert_eq!(strangers.budget.lock().unwrap().untold(), 97);
    }

    #[test]
    fn what_the_helper_failed_at_is_always_told_and_its_outcome_is_unknown() {
        let start = Request::LibvirtStart { instance: InstanceId::parse("web-1").unwrap(), paused: false };
        let rate = Rate::new(1, "a kind");
        let text = captured(|| {
            assert!(rate.admits(Peer { uid: 990, pid: 4711 }), "one, and no more");
            entry(&start).end_within(&rate, Decision::None, &failed(FailureKind::Unavailable));
            entry(&start).end_within(&rate, Decision::Interrupted, &failed(FailureKind::Unavailable));
            entry(&start).end_within(&rate, Decision::Lost, &failed(FailureKind::Unavailable));
        });
        let told: Vec<_> = text.lines().filter(|line| line.contains("verb=")).collect();
        let [interrupted, lost] = told.as_slice() else { panic!("{text}") };
        assert!(interrupted.contains("decision=\"granted\"") && interrupted.contains("outcome=\"unknown\""), "{text}");
        assert!(lost.contains("decision=\"unknown\"") && lost.contains("outcome=\"unknown\""), "{text}");
    }

    #[test]
    fn what_is_refused_before_a_decision_counts_as_without_effect_unless_it_goes_on() {
        assert!(!may_have_had_an_effect(Decision::None, &failed(FailureKind::Unavailable)));
        assert!(may_have_had_an_effect(Decision::None, &failed(FailureKind::Timeout)));
        assert!(may_have_had_an_effect(Decision::Granted, &failed(FailureKind::Ledger)));
        assert!(!may_have_had_an_effect(Decision::Granted, &Reply::Done { changed: false }));
    }
}
