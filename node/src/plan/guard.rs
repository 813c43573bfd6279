//! How much a document would delete, before it is put in force.
//!
//! Room: `node`. Pure.
use super::{Desired, Observed, Reading, Refusal};
use crate::fault::FaultKind;
use crate::status::InstanceState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a document would delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Deletions {
    /// Instances of ours that run now: running, paused, shutting down, crashed with their VMM still there, or in a state
    /// that could not be read, since those may be running.
    pub running: u32,
    /// Those of them that the document does not name.
    pub deleted: u32,
}

/// Counts what putting `desired` in force would delete. `None`: the helper's records cannot be read, so nobody knows.
#[must_use]
pub fn deletions(desired: &Desired, observed: &Observed<'_>) -> Option<Deletions> {
    let Reading::Known(records) = observed.records else { return None };
    let mut count = Deletions { running: 0, deleted: 0 };
    for id in records.keys() {
        let state = match observed.domains {
            Reading::Known(domains) => domains.get(id).map_or(InstanceState::Absent, |domain| domain.state),
            Reading::Unknown => InstanceState::Unknown,
        };
        if may_run(state) {
            count.running += 1;
            count.deleted += u32::from(desired.get(id).is_none());
        }
    }
    Some(count)
}

impl Deletions {
    /// Whether it needs to be allowed by hand: more than half of what runs.
    #[must_use]
    pub fn needs_allow_delete(self) -> bool {
        u64::from(self.deleted) * 2 > u64::from(self.running)
    }

    /// Refuses a document that deletes too much.
    ///
    /// # Errors
    /// `Denied` with both numbers.
    pub fn check(self, allow_delete: bool) -> Result<(), Refusal> {
        if allow_delete || !self.needs_allow_delete() {
            return Ok(());
        }
        Err(Refusal::new(
            FaultKind::Denied,
            format!(
                "this document would delete {} of {} running instances, disks and all: apply it with --allow-delete if \
                 that is meant",
                self.deleted, self.running
            ),
        ))
    }
}

/// Whether a guest may be in memory in this state.
pub(super) fn may_run(state: InstanceState) -> bool {
    match state {
        InstanceState::Absent | InstanceState::Stopped => false,
        InstanceState::Running
        | InstanceState::Paused
        | InstanceState::ShuttingDown
        | InstanceState::Crashed
        | InstanceState::Unknown => true,
    }
}
