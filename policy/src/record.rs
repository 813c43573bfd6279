//! What root remembers of each domain.
//!
//! Room: `policy`. The helper keeps a record durably before an effect (with its intent) and after it (without); the node
//! can neither read nor write one. A record is proof that bcd created the domain.
use crate::name::TapStem;
use crate::table;
use bcd_protocol::definition::Definition;
use bcd_protocol::id::{BridgeName, DomainUuid, GuestUid, InstanceId};
use bcd_protocol::limits;
use bcd_protocol::net::MacAddress;
use bcd_protocol::reply::RecordView;
use bcd_protocol::request::Verb;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

#[cfg(test)]
mod tests;

/// The format of stored records. A record of another version is refused, never guessed at.
pub const RECORD_VERSION: u32 = 1;

/// An effect that was begun and whose outcome is not recorded yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// The verb.
    pub verb: Verb,
    /// For a change of an existing definition or disk: what was there before, to return to if the effect did not
    /// happen.
    pub before: Option<Definition>,
}

/// One domain of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The instance.
    pub instance: InstanceId,
    /// The domain's UUID, chosen by root when it was first defined.
    pub uuid: DomainUuid,
    /// The uid that its VMM runs as, no other record's.
    pub uid: GuestUid,
    /// What it was last defined from.
    pub definition: Definition,
    /// What was begun and not finished.
    pub intent: Option<Intent>,
}

impl Record {
    /// What the node may see.
    #[must_use]
    pub fn view(&self) -> RecordView {
        RecordView {
            instance: self.instance.clone(),
            uuid: self.uuid,
            uid: self.uid,
            definition: self.definition.clone(),
            unfinished: self.intent.is_some(),
        }
    }

    /// The same record with an intent that leaves its definition as it is.
    pub(crate) fn intending(&self, verb: Verb) -> Self {
        Self { intent: Some(Intent { verb, before: None }), ..self.clone() }
    }

    /// The record of a definition that is to replace this one's.
    pub(crate) fn changing(&self, verb: Verb, definition: Definition) -> Self {
        let before = Some(self.definition.clone());
        Self { definition, intent: Some(Intent { verb, before }), ..self.clone() }
    }

    /// The same record with what was under way done.
    pub(crate) fn finished(&self) -> Self {
        Self { intent: None, ..self.clone() }
    }

    /// The same record as if what was under way had never been begun.
    pub(crate) fn undone(&self) -> Self {
        let before = self.intent.as_ref().and_then(|intent| intent.before.clone());
        Self { intent: None, definition: before.unwrap_or_else(|| self.definition.clone()), ..self.clone() }
    }

    /// The same record when nobody can tell whether what was under way happened. The earlier definition comes back, because
    /// the node asks again and a start defines from the record anyway; but the disk counts as large as it may be by now,
    /// so that a later request cannot cut it.
    pub(crate) fn doubted(&self) -> Self {
        let undone = self.undone();
        let disk = undone.definition.disk.max(self.definition.disk);
        Self { definition: Definition { disk, ..undone.definition }, ..undone }
    }

    /// Whether the intent is to define a domain that there was none of before.
    pub(crate) fn is_being_created(&self) -> bool {
        self.intent.as_ref().is_some_and(|intent| intent.verb == Verb::LibvirtDefine && intent.before.is_none())
    }
}

/// One durable change of the records.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one lives for one request; a box would only hide the record")]
pub enum RecordChange {
    /// Keep this record, in place of an earlier one of the same instance.
    Put(Record),
    /// Forget the record.
    Remove(InstanceId),
}

impl RecordChange {
    /// The instance whose record changes.
    #[must_use]
    pub fn instance(&self) -> &InstanceId {
        match self {
            Self::Put(record) => &record.instance,
            Self::Remove(instance) => instance,
        }
    }
}

/// Why a set of records contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// Two records share a uid.
    #[error("records {0} and {1} have the same uid {2}")]
    Uid(InstanceId, InstanceId, GuestUid),
    /// Two records share a domain UUID.
    #[error("records {0} and {1} have the same uuid {2}")]
    Uuid(InstanceId, InstanceId, DomainUuid),
    /// Two records share a MAC on one bridge.
    #[error("records {0} and {1} have the same mac {2} on one bridge")]
    Mac(InstanceId, InstanceId, MacAddress),
    /// Two instances have the same tap names.
    #[error("records {0} and {1} have taps of the same names")]
    Taps(InstanceId, InstanceId),
    /// Two records are of one instance, or one changes the uid or UUID it was given for life.
    #[error("there are two different records of instance {0}")]
    Twice(InstanceId),
    /// An intent to do what is never recorded.
    #[error("record {0} has an intent to {1}, which is not recorded")]
    Intent(InstanceId, Verb),
    /// A record of another format.
    #[error("record {0} has version {1}: this bcd-helper reads version {RECORD_VERSION}")]
    Version(InstanceId, u32),
    /// More records than the helper can hold.
    #[error("there are more records than the most of {}", limits::RECORDS)]
    TooMany,
}

/// All records, with the indexes that the judges need. The indexes follow from the records and are never stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records {
    by_id: BTreeMap<InstanceId, Record>,
    uids: HashMap<GuestUid, InstanceId>,
    uuids: HashMap<DomainUuid, InstanceId>,
    taps: HashMap<TapStem, InstanceId>,
    macs: HashMap<(BridgeName, MacAddress), InstanceId>,
    last_uid: Option<GuestUid>,
}

impl Records {
    /// The records read at start.
    ///
    /// # Errors
    /// [`Contradiction`] when two of them claim one instance, uid, UUID, MAC or tap name, or one cannot be understood:
    /// root's memory is then not to be trusted, and the helper must not start on it.
    pub fn load(records: Vec<Record>) -> Result<Self, Contradiction> {
        let mut all = Self::default();
        for record in records {
            if all.by_id.contains_key(&record.instance) {
                return Err(Contradiction::Twice(record.instance));
            }
            all.admits(&record)?;
            all.apply(RecordChange::Put(record));
        }
        all.last_uid = all.uids.keys().max().copied();
        Ok(all)
    }

    /// Whether `record` can stand among the others. What [`crate::decide()`] grants always can, as long as no other change
    /// comes between the decision and this one.
    ///
    /// # Errors
    /// The [`Contradiction`] it would make.
    pub fn admits(&self, record: &Record) -> Result<(), Contradiction> {
        let id = &record.instance;
        let other = |holder: Option<&InstanceId>| holder.filter(|holder| *holder != id).cloned();
        if record.version != RECORD_VERSION {
            return Err(Contradiction::Version(id.clone(), record.version));
        }
        if let Some(intent) = record.intent.as_ref().filter(|intent| !table::row(intent.verb).recorded) {
            return Err(Contradiction::Intent(id.clone(), intent.verb));
        }
        match self.by_id.get(id) {
            Some(now) if (now.uid, now.uuid) != (record.uid, record.uuid) => {
                return Err(Contradiction::Twice(id.clone()));
            }
            None if self.by_id.len() >= limits::RECORDS => return Err(Contradiction::TooMany),
            Some(_) | None => {}
        }
        if let Some(other) = other(self.uids.get(&record.uid)) {
            return Err(Contradiction::Uid(other, id.clone(), record.uid));
        }
        if let Some(other) = other(self.uuids.get(&record.uuid)) {
            return Err(Contradiction::Uuid(other, id.clone(), record.uuid));
        }
        if let Some(other) = other(self.taps.get(&TapStem::of(id))) {
            return Err(Contradiction::Taps(other, id.clone()));
        }
        for key in macs_of(record) {
            if let Some(other) = other(self.macs.get(&key)) {
                return Err(Contradiction::Mac(other, id.clone(), key.1));
            }
        }
        Ok(())
    }

    /// Takes over a change that is durable by now. What another record holds stays that one's, whatever `change` says:
    /// see [`Records::admits`].
    pub fn apply(&mut self, change: RecordChange) {
        let old = self.by_id.remove(change.instance());
        if let Some(old) = &old {
            let id = &old.instance;
            release(&mut self.uids, &old.uid, id);
            release(&mut self.uuids, &old.uuid, id);
            release(&mut self.taps, &TapStem::of(id), id);
            for key in macs_of(old) {
                release(&mut self.macs, &key, id);
            }
        }
        match change {
            RecordChange::Put(record) => {
                let id = &record.instance;
                self.uids.entry(record.uid).or_insert_with(|| id.clone());
                self.uuids.entry(record.uuid).or_insert_with(|| id.clone());
                self.taps.entry(TapStem::of(id)).or_insert_with(|| id.clone());
                for key in macs_of(&record) {
                    self.macs.entry(key).or_insert_with(|| id.clone());
                }
                if old.is_none() {
                    self.last_uid = Some(record.uid);
                }
                self.by_id.insert(id.clone(), record);
            }
            RecordChange::Remove(_) => {}
        }
    }

    /// The record of an instance.
    #[must_use]
    pub fn get(&self, instance: &InstanceId) -> Option<&Record> {
        self.by_id.get(instance)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// All records in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.by_id.values()
    }

    /// Those behind `after` in the order of their ids.
    pub fn after(&self, after: Option<&InstanceId>) -> impl Iterator<Item = &Record> {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range::<InstanceId, _>((from, Bound::Unbounded)).map(|(_, record)| record)
    }

    /// Whose MAC this is on this bridge. One that an unfinished change gives up, or takes, still counts.
    #[must_use]
    pub fn mac_holder(&self, bridge: &BridgeName, mac: MacAddress) -> Option<&InstanceId> {
        self.macs.get(&(bridge.clone(), mac))
    }

    /// Whose taps have names with this stem.
    #[must_use]
    pub fn tap_holder(&self, stem: TapStem) -> Option<&InstanceId> {
        self.taps.get(&stem)
    }

    /// Whether a record has this UUID.
    #[must_use]
    pub fn has_uuid(&self, uuid: &DomainUuid) -> bool {
        self.uuids.contains_key(uuid)
    }

    /// A uid that no record has: the next free one above the one given last, and behind the range's end from its
    /// beginning again. So a uid comes back as late as possible, when nothing of its last owner is left. (A helper that
    /// starts anew counts the highest that it finds as the last.)
    #[must_use]
    pub fn free_uid(&self) -> Option<GuestUid> {
        let next = self.last_uid.and_then(|uid| uid.get().checked_add(1)).unwrap_or(limits::GUEST_UID_FIRST);
        (next..=limits::GUEST_UID_LAST)
            .chain(limits::GUEST_UID_FIRST..=limits::GUEST_UID_LAST)
            .filter_map(|uid| GuestUid::new(uid).ok())
            .find(|uid| !self.uids.contains_key(uid))
    }
}

type MacKey = (BridgeName, MacAddress);

/// The MACs a record holds: of its definition, and of what a begun change would return to.
fn macs_of(record: &Record) -> Vec<MacKey> {
    let before = record.intent.as_ref().and_then(|intent| intent.before.as_ref());
    std::iter::once(&record.definition)
        .chain(before)
        .flat_map(|definition| definition.nics.iter())
        .map(|nic| (nic.bridge.clone(), nic.mac))
        .collect()
}

/// Removes `key` if it is `holder`'s.
fn release<K: Eq + std::hash::Hash>(index: &mut HashMap<K, InstanceId>, key: &K, holder: &InstanceId) {
    if index.get(key) == Some(holder) {
        index.remove(key);
    }
}
