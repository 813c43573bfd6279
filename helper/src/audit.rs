//! One audit event per request: who asked what, what was decided by which rule, how it ended.
//!
//! Room: `helper`. Called once a request, by the session alone. Invariant: what may have had an effect is always told. What
//! had none is told up to a rate and counted above it: a peer that floods the helper must not push the events of its
//! effects out of a journal that limits what a service may write.
use bcd_policy::{Peer, Rule};
use bcd_protocol::id::InstanceId;
use bcd_protocol::reply::{FailureKind, Reply};
use bcd_protocol::request::{Request, Verb};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Events without an effect that are told within [`WINDOW`]; a third of what journald takes of one service by default (10,000
/// in 30 s). A node that starts with a thousand instances makes a few hundred.
const TOLD: u32 = 1000;

/// The time over which they are counted.
const WINDOW: Duration = Duration::from_secs(10);

/// What was told and counted of late.
static RECENT: Mutex<Recent> = Mutex::new(Recent::new());

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

    /// Writes the event, or counts it.
    pub(crate) fn end(self, decision: Decision, reply: &Reply) {
        if !may_have_had_an_effect(decision, reply) && !told(self.peer.pid) {
            return;
        }
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

/// Whether an event without an effect, of the peer `pid`, is to be written; else it is counted. For lines about connections as
/// well: all of them together keep to the rate.
pub(crate) fn told(pid: i32) -> bool {
    let tell = RECENT.lock().unwrap_or_else(PoisonError::into_inner).tell(Instant::now());
    match tell {
        Tell::Event => true,
        Tell::AfterCounted(untold) => {
            tracing::warn!(target: "audit", untold, "events without effect were counted and not written");
            true
        }
        Tell::Beginning => {
            let seconds = WINDOW.as_secs();
            tracing::warn!(
                target: "audit", peer_pid = pid, most = TOLD, seconds,
                "a flood: further events without effect are counted"
            );
            false
        }
        Tell::Nothing => false,
    }
}

/// Whether something may have been done for a request, or is still being done.
fn may_have_had_an_effect(decision: Decision, reply: &Reply) -> bool {
    match reply {
        Reply::Hello(_) | Reply::Records(_) | Reply::Plan(_) | Reply::Denied(_) => false,
        Reply::Defined(defined) => defined.changed,
        Reply::Done { changed } => *changed,
        Reply::Console => true,
        Reply::Failed(failed) => match decision {
            Decision::Granted => true,
            // It was answered that it takes too long, and goes on. Any other end without a decision came before an effect.
            Decision::None => failed.kind == FailureKind::Timeout,
            Decision::Denied(_) => false,
        },
    }
}

/// What to write of an event without an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tell {
    /// It.
    Event,
    /// It, and before it how many were counted since the last one.
    AfterCounted(u64),
    /// That counting begins.
    Beginning,
    /// Nothing: it is counted.
    Nothing,
}

/// Events without an effect within the current window.
#[derive(Debug)]
struct Recent {
    since: Option<Instant>,
    told: u32,
    untold: u64,
}

impl Recent {
    const fn new() -> Self {
        Self { since: None, told: 0, untold: 0 }
    }

    fn tell(&mut self, now: Instant) -> Tell {
        let over = self.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW);
        if over {
            let untold = std::mem::take(&mut self.untold);
            (self.since, self.told) = (Some(now), 1);
            return if untold == 0 { Tell::Event } else { Tell::AfterCounted(untold) };
        }
        if self.told < TOLD {
            self.told = self.told.saturating_add(1);
            return Tell::Event;
        }
        self.untold = self.untold.saturating_add(1);
        if self.untold == 1 { Tell::Beginning } else { Tell::Nothing }
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
        let text = captured(|| {
            for _ in 0..10 * TOLD {
                entry(&hello).end(Decision::Granted, &welcome);
                entry(&start).end(Decision::Denied(Rule::NoRecord), &Reply::Done { changed: false });
            }
            for reply in [Reply::Done { changed: true }, Reply::Console, failed(FailureKind::Refused)] {
                entry(&start).end(Decision::Granted, &reply);
            }
            entry(&start).end(Decision::None, &failed(FailureKind::Timeout));
        });
        // Other tests of this process may have told some of theirs within the window.
        assert!(text.lines().count() <= TOLD as usize + 5, "{} lines", text.lines().count());
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
    fn what_was_counted_is_told_once_the_window_is_over() {
        let (mut recent, start) = (Recent::new(), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        for _ in 0..TOLD {
            assert_eq!(recent.tell(at(0)), Tell::Event);
        }
        assert_eq!(recent.tell(at(1)), Tell::Beginning);
        assert_eq!(recent.tell(at(9_999)), Tell::Nothing);
        assert_eq!(recent.tell(at(10_000)), Tell::AfterCounted(2));
        assert_eq!(recent.tell(at(10_001)), Tell::Event);
        assert_eq!(recent.tell(at(25_000)), Tell::Event, "nothing was counted meanwhile");
    }

    #[test]
    fn what_is_refused_before_a_decision_counts_as_without_effect_unless_it_goes_on() {
        assert!(!may_have_had_an_effect(Decision::None, &failed(FailureKind::Unavailable)));
        assert!(may_have_had_an_effect(Decision::None, &failed(FailureKind::Timeout)));
        assert!(may_have_had_an_effect(Decision::Granted, &failed(FailureKind::Ledger)));
        assert!(!may_have_had_an_effect(Decision::Granted, &Reply::Done { changed: false }));
    }
}
