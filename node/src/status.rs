//! What the node reports: of itself, of each instance, of domains that are not ours.
//!
//! Room: `node`. These types are the API's JSON and the command line's `--json`; their schemas are published, so names
//! are stable: fields are added, never renamed. Unknown is a state of its own and never reported as stopped.
use crate::fault::{Fault, FaultKind};
use crate::spec::schema::{
    AllocationIdSchema, BridgeNameSchema, DomainUuidSchema, GuestUidSchema, InstanceIdSchema, IpNetSchema, MacSchema,
    Sha256Schema,
};
use crate::spec::{DesiredState, GpuUuid, RuntimeId, VolumeId, VolumeSerial};
use bcd_protocol::id::{AllocationId, BridgeName, DomainUuid, GuestUid, InstanceId, Sha256Digest};
use bcd_protocol::net::MacAddress;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(test)]
mod tests;

/// Everything the node reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeStatus {
    /// The node's package version.
    pub version: String,
    /// The helper.
    pub helper: HelperStatus,
    /// The document in force.
    pub spec: SpecStatus,
    /// The runtimes found on this host.
    pub runtimes: Vec<RuntimeStatus>,
    /// Labels of this node, such as `bc.dev/driver.libvirt-kvm`.
    pub labels: BTreeMap<String, String>,
    /// What could not be read in the last pass: the states that depend on it are `unknown`.
    pub unreadable: Vec<Unreadable>,
    /// The instances: those of the document, and those that left it and are not gone yet. In the order of their ids.
    pub instances: Vec<InstanceStatus>,
    /// Domains that bcd did not create: listed, never touched.
    pub foreign: Vec<ForeignDomain>,
}

/// The node's view of its helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HelperStatus {
    /// Whether it answers.
    pub state: Link,
    /// Its package version, once it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it does not answer, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Whether something that the node depends on answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// It answers.
    Connected,
    /// It does not; the node tries again by itself.
    Unreachable,
}

/// The document in force.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpecStatus {
    /// Counts the documents accepted since the node started; 0: none yet, and nothing is changed on the host.
    pub generation: u64,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SpecSource>,
    /// When it was accepted last: the same document given again counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<UnixMillis>,
    /// The document refused since then, if any: the one in force was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<LastError>,
}

/// Where a document came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SpecSource {
    /// The watched file.
    File {
        /// Its path.
        path: String,
    },
    /// `bcd apply` or another client of the node's API.
    Api,
    /// Kept from before the node started.
    Kept,
}

/// A runtime of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuntimeStatus {
    /// Its driver id.
    pub driver: RuntimeId,
    /// What kind of driver it is: always `runtime`.
    pub kind: DriverKind,
    /// Whether it answers now.
    pub state: Link,
    /// Its version, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What it can do beyond running instances, such as `instance.placement`.
    pub capabilities: Vec<String>,
    /// Why it does not answer, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Kinds of drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriverKind {
    /// Runs instances.
    Runtime,
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unreadable {
    /// What.
    pub section: Section,
    /// Since when.
    pub since: UnixMillis,
    /// Why, and what to do.
    pub message: String,
}

/// Sections of what the node observes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// The helper's records.
    Records,
    /// libvirt's domains.
    Libvirt,
    /// The node's own files.
    Files,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Records => "the helper's records",
            Self::Libvirt => "libvirt",
            Self::Files => "the instances' directory",
        })
    }
}

/// One instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InstanceStatus {
    /// Its id.
    #[schemars(with = "InstanceIdSchema")]
    pub id: InstanceId,
    /// The allocation it belongs to; absent when only a leftover directory is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<AllocationIdSchema>")]
    pub allocation: Option<AllocationId>,
    /// What it is now.
    pub state: InstanceState,
    /// Why it stopped, where the runtime says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// What the document wants; absent: it left the document and is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<DesiredState>,
    /// Its runtime.
    pub runtime: RuntimeId,
    /// Virtual CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    /// Memory, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The root disk's virtual size, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// SHA-256 of its base image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Sha256Schema>")]
    pub image_sha256: Option<Sha256Digest>,
    /// Every address of its NICs.
    #[schemars(with = "Vec<IpNetSchema>")]
    pub addresses: Vec<IpNet>,
    /// Its NICs in order.
    pub nics: Vec<NicStatus>,
    /// Its GPUs.
    pub gpus: Vec<GpuUuid>,
    /// Its open volumes.
    pub volumes: Vec<VolumeStatus>,
    /// The domain's UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<DomainUuidSchema>")]
    pub uuid: Option<DomainUuid>,
    /// The uid its VMM runs as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<GuestUidSchema>")]
    pub uid: Option<GuestUid>,
    /// What its VMM was started with, where its definition has changed since: the change comes with its next start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_with: Option<RunsWith>,
    /// What is being done for it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing: Option<Activity>,
    /// What went wrong last and still holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
}

/// What an instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    /// Nothing of it is there yet, or only files.
    Absent,
    /// Defined, not running.
    Stopped,
    /// Running.
    Running,
    /// Its CPUs are paused.
    Paused,
    /// The guest is shutting down.
    ShuttingDown,
    /// The guest crashed and its VMM is still there.
    Crashed,
    /// It could not be read: it may be running.
    Unknown,
}

impl InstanceState {
    /// The name in JSON and in tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Stopped => "stopped",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::ShuttingDown => "shutting_down",
            Self::Crashed => "crashed",
            Self::Unknown => "unknown",
        }
    }
}

/// Why an instance is not running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The guest powered itself off, or did so when asked.
    PoweredOff,
    /// It was ended without asking the guest.
    Destroyed,
    /// The guest or its VMM crashed, or the VMM was killed.
    Crashed,
    /// It never came up.
    FailedToStart,
    /// Its memory was saved to a file by somebody else.
    Saved,
}

/// One NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NicStatus {
    /// The host interface.
    pub tap: String,
    /// The bridge.
    #[schemars(with = "BridgeNameSchema")]
    pub bridge: BridgeName,
    /// The MAC, lower case.
    #[schemars(with = "MacSchema")]
    pub mac: MacAddress,
    /// Its addresses as the document gives them.
    #[schemars(with = "Vec<IpNetSchema>")]
    pub addresses: Vec<IpNet>,
}

/// An open volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeStatus {
    /// The volume.
    pub id: VolumeId,
    /// The serial the guest finds it by.
    pub serial: VolumeSerial,
    /// Whether it is attached read-only.
    pub read_only: bool,
}

/// What a VMM was started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunsWith {
    /// Virtual CPUs, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    /// Memory, bytes, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// What is being done for an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Activity {
    /// What, in a few words: `fetching the image`.
    pub what: String,
    /// Since when.
    pub since: UnixMillis,
    /// How far it is, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

/// How far something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Done so far.
    pub done: u64,
    /// In all, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// What is counted.
    pub unit: ProgressUnit,
}

/// What progress counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgressUnit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

/// An error that still holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LastError {
    /// Its stable kind.
    pub kind: FaultKind,
    /// A sentence that names the field, file or number and says what to do.
    pub message: String,
    /// When it happened last.
    pub at: UnixMillis,
    /// How often in a row.
    pub times: u32,
    /// When it is tried again by itself; absent: not before the document or the host changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<UnixMillis>,
}

impl LastError {
    /// The first occurrence of a fault.
    #[must_use]
    pub fn first(fault: &Fault, at: UnixMillis) -> Self {
        Self { kind: fault.kind(), message: fault.chain(), at, times: 1, retry_at: None }
    }
}

/// A domain that bcd did not create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForeignDomain {
    /// Its name.
    pub name: String,
    /// Its UUID.
    #[schemars(with = "DomainUuidSchema")]
    pub uuid: DomainUuid,
    /// The runtime that holds it.
    pub runtime: RuntimeId,
    /// What it is now.
    pub state: InstanceState,
    /// Virtual CPUs, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    /// Memory, bytes, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// A moment: milliseconds since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// Now, by the host's clock.
    #[must_use]
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }
}

impl From<SystemTime> for UnixMillis {
    fn from(time: SystemTime) -> Self {
        let millis = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
        Self(u64::try_from(millis).unwrap_or(u64::MAX))
    }
}
