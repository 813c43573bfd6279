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
use crate::facts::{DomainFact, DomainState};
use crate::name::DomainName;
use crate::record::Record;
use std::fmt;

/// The phase of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// No record, and no domain of that name.
    Absent,
    /// No record, or one with another UUID, and a domain of that name (or that UUID): somebody else's.
    Foreign,
    /// A record whose domain is not in libvirt any more.
    Missing,
    /// Defined and not running.
    Stopped,
    /// Running, shutting down, or blocked.
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
            return if by_name.is_some() { Self::Foreign } else { Self::Absent };
        };
        match (by_name, by_uuid) {
            (None, None) => Self::Missing,
            (Some(named), Some(identified)) if named.uuid == record.uuid && identified.name == name.as_str() => {
                match identified.state {
                    DomainState::Shutoff | DomainState::Crashed => Self::Stopped,
                    DomainState::Running
                    | DomainState::Blocked
                    | DomainState::ShuttingDown
                    | DomainState::Suspended
                    | DomainState::Unknown => Self::Running,
                    DomainState::Paused => Self::Paused,
                }
            }
            (Some(_), _) | (None, Some(_)) => Self::Foreign,
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
