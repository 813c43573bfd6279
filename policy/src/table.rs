//! The table: every verb is one row. What is not in it is refused.
//!
//! Room: `policy`. The judges in [`crate::judge`] add what depends on values; who may ask, in which phase, what is
//! answered with a descriptor and what is written down before the effect is decided by these rows alone.
//! `docs/protocol.md` is generated from them. The rows are the arms of one closed match, so that a verb without a
//! row is a compiler error.
use crate::phase::Phase;
use bcd_protocol::request::Verb;

/// What a verb needs before it may be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it opens the connection.
    Connection,
    /// A connection that has said `hello`.
    Greeting,
    /// That, and the domain in one of these phases.
    Phases(&'static [Phase]),
}

impl Needs {
    /// Whether the verb may be judged in `phase`.
    #[must_use]
    pub fn allow(self, phase: Phase) -> bool {
        match self {
            Self::Connection | Self::Greeting => true,
            Self::Phases(phases) => phases.contains(&phase),
        }
    }
}

/// What the same request does when it comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// It is denied.
    Refused,
    /// It is answered again: it never changes anything.
    Answered,
    /// No effect, and the reply says that nothing changed.
    Nothing,
    /// The effect happens again, which does no harm.
    Again,
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
    /// What it does, for people.
    pub effect: &'static str,
    /// What a repetition does.
    pub repeat: Repeat,
    /// The same for people.
    pub repetition: &'static str,
}

/// Any phase in which it is known what is there and that it is nobody else's.
const KNOWN: Needs = Needs::Phases(&[Phase::Absent, Phase::Missing, Phase::Stopped, Phase::Running, Phase::Paused]);
/// In memory.
const IN_MEMORY: Needs = Needs::Phases(&[Phase::Running, Phase::Paused]);

/// The row of a verb.
#[must_use]
pub const fn row(verb: Verb) -> Row {
    match verb {
        Verb::Hello => Row {
            verb,
            needs: Needs::Connection,
            recorded: false,
            descriptors: 0,
            effect: "agrees on the protocol's version",
            repeat: Repeat::Refused,
            repetition: "refused: once a connection",
        },
        Verb::Records => Row {
            verb,
            needs: Needs::Greeting,
            recorded: false,
            descriptors: 0,
            effect: "answers a page of the records",
            repeat: Repeat::Answered,
            repetition: "answers again",
        },
        Verb::LibvirtPlan => Row {
            verb,
            needs: KNOWN,
            recorded: false,
            descriptors: 0,
            effect: "answers the XML that `libvirt.define` would define",
            repeat: Repeat::Answered,
            repetition: "answers again",
        },
        Verb::LibvirtDefine => Row {
            verb,
            needs: KNOWN,
            recorded: true,
            descriptors: 0,
            effect: "defines the domain, or changes its definition",
            repeat: Repeat::Nothing,
            repetition: "nothing changes when the definition is the recorded one",
        },
        Verb::LibvirtUndefine => Row {
            verb,
            needs: Needs::Phases(&[Phase::Absent, Phase::Missing, Phase::Stopped]),
            recorded: true,
            descriptors: 0,
            effect: "removes the definition and forgets the record",
            repeat: Repeat::Nothing,
            repetition: "nothing changes when there is neither record nor domain",
        },
        Verb::LibvirtStart => Row {
            verb,
            needs: Needs::Phases(&[Phase::Stopped, Phase::Running, Phase::Paused]),
            recorded: true,
            descriptors: 0,
            effect: "defines the domain afresh from the record and starts it",
            repeat: Repeat::Nothing,
            repetition: "nothing changes when it runs, or is paused and paused was asked",
        },
        Verb::LibvirtShutdown => Row {
            verb,
            needs: Needs::Phases(&[Phase::Stopped, Phase::Running]),
            recorded: true,
            descriptors: 0,
            effect: "presses the ACPI power button",
            repeat: Repeat::Again,
            repetition: "presses again; nothing changes once it is stopped",
        },
        Verb::LibvirtDestroy => Row {
            verb,
            needs: Needs::Phases(&[Phase::Missing, Phase::Stopped, Phase::Running, Phase::Paused]),
            recorded: true,
            descriptors: 0,
            effect: "ends the domain at once",
            repeat: Repeat::Nothing,
            repetition: "nothing changes when it is stopped or gone",
        },
        Verb::LibvirtSuspend => Row {
            verb,
            needs: IN_MEMORY,
            recorded: true,
            descriptors: 0,
            effect: "stops its CPUs",
            repeat: Repeat::Nothing,
            repetition: "nothing changes when it is paused",
        },
        Verb::LibvirtResume => Row {
            verb,
            needs: IN_MEMORY,
            recorded: true,
            descriptors: 0,
            effect: "lets its CPUs run",
            repeat: Repeat::Nothing,
            repetition: "nothing changes when it runs",
        },
        Verb::LibvirtBlockResize => Row {
            verb,
            needs: IN_MEMORY,
            recorded: true,
            descriptors: 0,
            effect: "tells the running VMM that its root disk is larger",
            repeat: Repeat::Again,
            repetition: "tells it again: the size is the same",
        },
        Verb::Console => Row {
            verb,
            needs: IN_MEMORY,
            recorded: false,
            descriptors: 1,
            effect: "opens the serial console",
            repeat: Repeat::Again,
            repetition: "opens it again",
        },
    }
}

/// All rows, in the order of [`Verb::ALL`].
pub const TABLE: [Row; Verb::ALL.len()] = {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = Verb::ALL;
    [row(a), row(b), row(c), row(d), row(e), row(f), row(g), row(h), row(i), row(j), row(k), row(l)]
};
