//! In which phase of its life a record's domain is.
//!
//! Room: `policy`. Root's record says whether the domain is ours; libvirt says what it does. The phase is both together,
//! worked out anew for every request.
//!
//! ```text
//!            define                 start                 suspend
//!  Absent ───────────▶ Stopped ───────────▶ Running ◀──────────────▶ Paused
//!    ▲  ◀───────────── │  ▲                    │         resume        │
//!    │     undefine    │  └────────────────────┴───────────────────────┘
//!    │                 │            destroy, or the guest powers off
//!    └── Missing ◀─────┘ somebody undefined it behind our back: define it again, or undefine to forget it
//! ```
use crate::facts::{DomainFact, DomainState, Sighting};
use crate::name::DomainName;
use crate::record::Record;
use std::fmt;

#[cfg(test)]
mod tests;

/// The phase of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// No record, and no domain of that name.
    Absent,
    /// A domain of that name or UUID is there and is not the record's, name and UUID both: somebody else's.
    Foreign,
    /// A record whose domain is not in libvirt any more.
    Missing,
    /// Defined and not running.
    Stopped,
    /// Running, shutting down, blocked, crashed or asleep: in memory.
    Running,
    /// In memory with its CPUs stopped.
    Paused,
    /// libvirt could not be asked.
    Unknown,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 7] =
        [Self::Absent, Self::Foreign, Self::Missing, Self::Stopped, Self::Running, Self::Paused, Self::Unknown];

    /// The phase of `record` as libvirt's `fact` shows it.
    #[must_use]
    pub fn of(name: &DomainName, record: Option<&Record>, fact: &DomainFact) -> Self {
        let (by_name, by_uuid) = match fact {
            DomainFact::Unknown => return Self::Unknown,
            DomainFact::Seen { by_name, by_uuid } => (by_name, by_uuid),
        };
        let Some(record) = record else {
            return if by_name.is_some() || by_uuid.is_some() { Self::Foreign } else { Self::Absent };
        };
        let is_ours = |sighting: &Sighting| sighting.uuid == record.uuid && sighting.name == name.as_str();
        match (by_name, by_uuid) {
            (None, None) => Self::Missing,
            (Some(named), Some(identified)) if is_ours(named) && is_ours(identified) => Self::ours(identified.state),
            (Some(_), _) | (None, Some(_)) => Self::Foreign,
        }
    }

    /// The phase of a domain of ours. What may still be in memory counts as running, so that nothing is taken from under
    /// a VMM.
    fn ours(state: DomainState) -> Self {
        match state {
            DomainState::Shutoff => Self::Stopped,
            DomainState::Paused => Self::Paused,
            DomainState::Running
            | DomainState::Blocked
            | DomainState::ShuttingDown
            | DomainState::Crashed
            | DomainState::Suspended
            | DomainState::Unknown => Self::Running,
        }
    }

    /// The name in tables and sentences.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Foreign => "foreign",
            Self::Missing => "missing",
            Self::Stopped => "stopped",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
