//! The table: every verb is one row. What is not in it is refused.
//!
//! Room: `policy`. The judges in [`crate::judge`] add what depends on values; who may ask, in which phase, what is
//! answered with a descriptor and what is written down before the effect is decided by these rows alone.
//! `docs/protocol.md` is generated from them.
use crate::phase::Phase;
use bcd_protocol::request::Verb;

/// What a verb needs before it may be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it opens the connection.
    Connection,
    /// A connection that has said `hello`.
    Greeting,
    /// The domain in one of these phases.
    Phases(&'static [Phase]),
}

/// One verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The verb.
    pub verb: Verb,
    /// What must hold before it is judged.
    pub needs: Needs,
    /// Whether an intent is written before the effect and an outcome after it.
    pub recorded: bool,
    /// Descriptors that travel with a positive reply.
    pub descriptors: usize,
    /// What a repetition does.
    pub repeat: &'static str,
}

/// All verbs, in the order of [`Verb::ALL`].
pub const TABLE: [Row; Verb::ALL.len()] = [
    Row {
        verb: Verb::Hello,
        needs: Needs::Connection,
        recorded: false,
        descriptors: 0,
        repeat: "refused: once a connection",
    },
    Row { verb: Verb::Records, needs: Needs::Greeting, recorded: false, descriptors: 0, repeat: "answers again" },
    Row {
        verb: Verb::LibvirtPlan,
        needs: Needs::Phases(&[Phase::Absent, Phase::Missing, Phase::Stopped, Phase::Running, Phase::Paused]),
        recorded: false,
        descriptors: 0,
        repeat: "answers again",
    },
    Row {
        verb: Verb::LibvirtDefine,
        needs: Needs::Phases(&[Phase::Absent, Phase::Missing, Phase::Stopped, Phase::Running, Phase::Paused]),
        recorded: true,
        descriptors: 0,
        repeat: "nothing changes when the definition is the recorded one",
    },
    Row {
        verb: Verb::LibvirtUndefine,
        needs: Needs::Phases(&[Phase::Absent, Phase::Missing, Phase::Stopped]),
        recorded: true,
        descriptors: 0,
        repeat: "nothing changes when there is neither record nor domain",
    },
    Row {
        verb: Verb::LibvirtStart,
        needs: Needs::Phases(&[Phase::Stopped, Phase::Running, Phase::Paused]),
        recorded: true,
        descriptors: 0,
        repeat: "nothing changes when it runs, or is paused and paused was asked",
    },
    Row {
        verb: Verb::LibvirtShutdown,
        needs: Needs::Phases(&[Phase::Stopped, Phase::Running]),
        recorded: true,
        descriptors: 0,
        repeat: "presses again; nothing changes when stopped",
    },
    Row {
        verb: Verb::LibvirtDestroy,
        needs: Needs::Phases(&[Phase::Missing, Phase::Stopped, Phase::Running, Phase::Paused]),
        recorded: true,
        descriptors: 0,
        repeat: "nothing changes when stopped",
    },
    Row {
        verb: Verb::LibvirtSuspend,
        needs: Needs::Phases(&[Phase::Running, Phase::Paused]),
        recorded: true,
        descriptors: 0,
        repeat: "nothing changes when paused",
    },
    Row {
        verb: Verb::LibvirtResume,
        needs: Needs::Phases(&[Phase::Running, Phase::Paused]),
        recorded: true,
        descriptors: 0,
        repeat: "nothing changes when running",
    },
    Row {
        verb: Verb::LibvirtBlockResize,
        needs: Needs::Phases(&[Phase::Running, Phase::Paused]),
        recorded: true,
        descriptors: 0,
        repeat: "nothing changes when the size is the recorded one",
    },
    Row {
        verb: Verb::Console,
        needs: Needs::Phases(&[Phase::Running, Phase::Paused]),
        recorded: false,
        descriptors: 1,
        repeat: "opens again",
    },
];

/// The row of a verb. `None` only if the table lacks it, which is a refusal (and a test's failure).
#[must_use]
pub fn row(verb: Verb) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.verb == verb)
}
