//! What the VMMs of running instances were started with, where a definition may have changed since.
//!
//! Room: `node`. Pure. It is asked once for each start of a domain, a few at a time: reading is one call for each. An
//! answer counts for the start that it was asked of and for no other.
use crate::runtime::Details;
use bcd_protocol::id::{DomainUuid, InstanceId};
use bcd_protocol::reply::RecordView;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Most domains asked about at once: the runtime's own thread reads them, and states come from the same thread.
const AT_ONCE: usize = 32;

/// A running instance of which it is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// Its domain.
    pub uuid: DomainUuid,
    instance: InstanceId,
    boot: u32,
}

/// What is known, by instance and start.
#[derive(Debug, Default)]
pub(super) struct Live(HashMap<InstanceId, (u32, Option<Arc<Details>>)>);

impl Live {
    /// The next few to ask about; forgets those that do not run any more.
    pub(super) fn unread(
        &mut self,
        boots: &BTreeMap<InstanceId, u32>,
        records: &BTreeMap<InstanceId, RecordView>,
    ) -> Vec<Unread> {
        self.0.retain(|id, (boot, _)| boots.get(id) == Some(boot));
        let unread = boots.iter().filter(|(id, _)| !self.0.contains_key(id)).filter_map(|(id, boot)| {
            let uuid = records.get(id)?.uuid;
            Some(Unread { uuid, instance: id.clone(), boot: *boot })
        });
        unread.take(AT_ONCE).collect()
    }

    /// Takes in what was read; one that the runtime did not find is not asked about again.
    pub(super) fn take(&mut self, asked: Vec<Unread>, found: &HashMap<DomainUuid, Arc<Details>>) {
        for Unread { uuid, instance, boot } in asked {
            self.0.insert(instance, (boot, found.get(&uuid).cloned()));
        }
    }

    /// What an instance's VMM was started with, if it is this start and differs from the record.
    pub(super) fn other_than(&self, record: &RecordView, boot: u32) -> Option<&Details> {
        let (known, details) = self.0.get(&record.instance)?;
        let details = details.as_deref().filter(|_| *known == boot)?;
        let (vcpus, memory) = (record.definition.vcpus.get(), record.definition.memory.get());
        let same = details.vcpus.is_none_or(|v| v == vcpus) && details.memory_bytes.is_none_or(|m| m == memory);
        (!same).then_some(details)
    }
}
