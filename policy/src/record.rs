//! What root remembers of each domain.
//!
//! Room: `policy`. The helper keeps a record durably before an effect (with its intent) and after it (without); the node
//! can neither read nor write one. A record is proof that bcd created the domain.
use bcd_protocol::definition::Definition;
use bcd_protocol::id::{BridgeName, DomainUuid, GuestUid, InstanceId};
use bcd_protocol::limits;
use bcd_protocol::net::MacAddress;
use bcd_protocol::reply::RecordView;
use bcd_protocol::request::Verb;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

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
    uids: BTreeMap<GuestUid, InstanceId>,
    uuids: HashMap<DomainUuid, InstanceId>,
    macs: HashMap<(BridgeName, MacAddress), InstanceId>,
    last_uid: Option<GuestUid>,
}

impl Records {
    /// The records read at start.
    ///
    /// # Errors
    /// [`Contradiction`] when two of them claim one uid, UUID or MAC, or one has an unknown version: root's memory is
    /// then not to be trusted, and the helper must not start on it.
    pub fn load(records: Vec<Record>) -> Result<Self, Contradiction> {
        let mut all = Self::default();
        for record in records {
            if record.version != RECORD_VERSION {
                return Err(Contradiction::Version(record.instance, record.version));
            }
            let id = &record.instance;
            if let Some(other) = all.uids.get(&record.uid) {
                return Err(Contradiction::Uid(other.clone(), id.clone(), record.uid));
            }
            if let Some(other) = all.uuids.get(&record.uuid) {
                return Err(Contradiction::Uuid(other.clone(), id.clone(), record.uuid));
            }
            for (key, mac) in macs_of(&record) {
                if let Some(other) = all.macs.get(&key).filter(|other| *other != id) {
                    return Err(Contradiction::Mac(other.clone(), id.clone(), mac));
                }
            }
            all.apply(RecordChange::Put(record));
            if all.by_id.len() > limits::RECORDS {
                return Err(Contradiction::TooMany);
            }
        }
        Ok(all)
    }

    /// Takes over a change that is durable by now.
    pub fn apply(&mut self, change: RecordChange) {
        match change {
            RecordChange::Put(record) => {
                self.unindex(&record.instance);
                self.uids.insert(record.uid, record.instance.clone());
                self.uuids.insert(record.uuid, record.instance.clone());
                for (key, _) in macs_of(&record) {
                    self.macs.insert(key, record.instance.clone());
                }
                self.last_uid = self.last_uid.max(Some(record.uid));
                self.by_id.insert(record.instance.clone(), record);
            }
            RecordChange::Remove(instance) => {
                self.unindex(&instance);
                self.by_id.remove(&instance);
            }
        }
    }

    fn unindex(&mut self, instance: &InstanceId) {
        if let Some(old) = self.by_id.get(instance) {
            self.uids.remove(&old.uid);
            self.uuids.remove(&old.uuid);
            for (key, _) in macs_of(old) {
                self.macs.remove(&key);
            }
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

    /// Whose MAC this is on this bridge. A running domain keeps the NICs it was started with until it stops, so a MAC
    /// that an unfinished change gives up still counts as taken.
    #[must_use]
    pub fn mac_holder(&self, bridge: &BridgeName, mac: MacAddress) -> Option<&InstanceId> {
        self.macs.get(&(bridge.clone(), mac))
    }

    /// Whether a record has this UUID.
    #[must_use]
    pub fn has_uuid(&self, uuid: &DomainUuid) -> bool {
        self.uuids.contains_key(uuid)
    }

    /// A uid that no record has: the one above the highest that was ever given while this helper runs, else the lowest
    /// free one. So a uid comes back as late as possible, when nothing of its last owner is left.
    #[must_use]
    pub fn free_uid(&self) -> Option<GuestUid> {
        let next = self.last_uid.and_then(|uid| uid.get().checked_add(1)).unwrap_or(limits::GUEST_UID_FIRST);
        let taken: BTreeSet<u32> = self.uids.keys().map(|uid| uid.get()).collect();
        (next..=limits::GUEST_UID_LAST)
            .chain(limits::GUEST_UID_FIRST..=limits::GUEST_UID_LAST)
            .find(|uid| !taken.contains(uid))
            .and_then(|uid| GuestUid::new(uid).ok())
    }
}

type MacKey = (BridgeName, MacAddress);

/// The MACs a record holds: of its definition, and of what a begun change would return to.
fn macs_of(record: &Record) -> Vec<(MacKey, MacAddress)> {
    let before = record.intent.as_ref().and_then(|intent| intent.before.as_ref());
    std::iter::once(&record.definition)
        .chain(before)
        .flat_map(|definition| definition.nics.iter())
        .map(|nic| ((nic.bridge.clone(), nic.mac), nic.mac))
        .collect()
}
