//! The NodeSpec: what this host should run. Strict: a field it does not know, or a value it would have to guess
//! about, refuses the document with file, line and field, and a refused document changes nothing.
//!
//! Room: `node`. Pure: reading the file is the caller's. The JSON Schema is derived from the same types.
use crate::spec::schema::{
    AddressesSchema, AllocationIdSchema, BridgeNameSchema, DiskBytesSchema, InstanceIdSchema, IpSchema, MacSchema,
    MemoryBytesSchema, Sha256Schema, VcpusSchema,
};
use bcd_protocol::definition::{Addresses, ImageRef};
use bcd_protocol::id::{AllocationId, BridgeName, InstanceId, Sha256Digest};
use bcd_protocol::limits;
use bcd_protocol::net::MacAddress;
use bcd_protocol::size::{DiskBytes, MemoryBytes, Vcpus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

mod advise;
mod check;
mod locate;
pub mod parse;
pub mod schema;
mod strict;
#[cfg(test)]
mod tests;
pub mod values;

use strict::{quantity, tables};

pub use parse::{DOCUMENT_BYTES, Format, SpecError, parse, parse_as, parse_kept};
pub use schema::schema;
pub use values::*;

/// What one host should run: its instances, the volumes they attach, and memory kept free for others. Sizes are bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct NodeSpec {
    /// The instances this host should have. One that leaves the document is deleted, disks and all.
    #[serde(default)]
    pub instances: AtMost<Instance, INSTANCES>,
    /// Volumes, attached to instances by serial.
    #[serde(default)]
    pub volumes: AtMost<Volume, VOLUMES>,
    /// Memory reserved for others.
    #[serde(default)]
    pub holds: AtMost<Hold, HOLDS>,
}

/// One virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Instance {
    /// Its id, unique in the document.
    #[schemars(with = "InstanceIdSchema")]
    pub id: InstanceId,
    /// The allocation it belongs to; names its user data. It never changes while the instance exists.
    #[schemars(with = "AllocationIdSchema")]
    pub allocation: AllocationId,
    /// The runtime's driver id, e.g. `libvirt-kvm`.
    pub runtime: RuntimeId,
    /// The host name the guest is given.
    pub hostname: Hostname,
    /// Virtual CPUs.
    #[serde(deserialize_with = "quantity")]
    #[schemars(with = "VcpusSchema")]
    pub vcpus: Vcpus,
    /// Memory, bytes.
    #[serde(deserialize_with = "quantity")]
    #[schemars(with = "MemoryBytesSchema")]
    pub memory_bytes: MemoryBytes,
    /// The root disk's virtual size, bytes; may grow, never shrink.
    #[serde(deserialize_with = "quantity")]
    #[schemars(with = "DiskBytesSchema")]
    pub disk_bytes: DiskBytes,
    /// The base image. It never changes while the instance exists.
    pub image: Image,
    /// NICs in order.
    #[serde(default)]
    pub nics: AtMost<NicSpec, { limits::NICS }>,
    /// Who may reach the guest.
    #[serde(default)]
    pub network_policy: NetworkPolicy,
    /// SSH only from this host.
    #[serde(default)]
    pub ssh_from_host_only: bool,
    /// GPUs passed through, by UUID.
    #[serde(default)]
    pub gpu_device_ids: AtMost<GpuUuid, GPUS>,
    /// Volumes attached, in order: `vdb` onward.
    #[serde(default)]
    pub volumes: AtMost<VolumeAttachment, VOLUMES_PER_INSTANCE>,
    /// Pinning, NUMA, huge pages, balloon.
    #[serde(default)]
    pub placement: Option<Placement>,
    /// A snapshot to restore a new instance from.
    #[serde(default)]
    pub restore_from: Option<RestoreFrom>,
    /// The reference of the identity a restored guest is to take.
    #[serde(default)]
    pub identity_rebind_ref: Option<RebindRef>,
    /// The state to keep it in.
    #[serde(default)]
    pub desired_state: DesiredState,
}

/// A base image: where it is, what it must be.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Image {
    /// Where it is fetched from.
    pub url: HttpsUrl,
    /// SHA-256 of the whole file.
    #[schemars(with = "Sha256Schema")]
    pub sha256: Sha256Digest,
    /// Its format: stated, never probed.
    pub format: ImageFormat,
}

impl Image {
    /// The image as the helper names it; `None` for an `iso`, which backs no disk.
    #[must_use]
    pub fn reference(&self) -> Option<ImageRef> {
        let format = match self.format {
            ImageFormat::Qcow2 => bcd_protocol::definition::ImageFormat::Qcow2,
            ImageFormat::Raw => bcd_protocol::definition::ImageFormat::Raw,
            ImageFormat::Iso => return None,
        };
        Some(ImageRef { sha256: self.sha256, format })
    }
}

/// The formats of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageFormat {
    /// QEMU copy-on-write, version 2 or 3.
    Qcow2,
    /// The disk's bytes as they are.
    Raw,
    /// A bootable optical disc; boots onto a blank disk.
    Iso,
}

impl ImageFormat {
    /// The name in the document and in file names.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
            Self::Iso => "iso",
        }
    }
}

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct NicSpec {
    /// The host bridge it is plugged into.
    #[schemars(with = "BridgeNameSchema")]
    pub bridge: BridgeName,
    /// Its MAC, unique on that bridge.
    #[schemars(with = "MacSchema")]
    pub mac: MacAddress,
    /// Static addresses with their prefix lengths; none: DHCP.
    #[serde(default)]
    #[schemars(with = "AddressesSchema")]
    pub addresses: Addresses,
    /// The default route; needs an address of its family on this NIC.
    #[serde(default)]
    #[schemars(with = "Option<IpSchema>")]
    pub gateway: Option<IpAddr>,
    /// Name servers.
    #[serde(default)]
    #[schemars(with = "AtMost<IpSchema, NAMESERVERS>")]
    pub nameservers: AtMost<IpAddr, NAMESERVERS>,
}

/// Who may reach the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkPolicy {
    /// Whoever the bridge reaches.
    #[default]
    Public,
    /// Guests of the same allocation and this host.
    Private,
    /// Nobody.
    None,
}

/// A volume as one instance sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct VolumeAttachment {
    /// The volume, declared under `volumes`.
    pub id: VolumeId,
    /// The serial the guest finds it by, unique in the instance.
    pub serial: VolumeSerial,
    /// Attach it read-only. A volume has at most one writer that is not stopped.
    #[serde(default)]
    pub read_only: bool,
}

/// Where on the host the guest's CPUs and memory lie.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Placement {
    /// Host CPUs: at least as many as vCPUs. Exactly as many: vCPU i is pinned to the i-th.
    #[serde(default)]
    pub cpus: Option<CpuList>,
    /// NUMA nodes that the memory is bound to.
    #[serde(default)]
    pub mems: Option<CpuList>,
    /// Bytes of the huge pages that back the memory.
    #[serde(default, deserialize_with = "quantity")]
    #[schemars(with = "HugepageSize")]
    pub hugepage_size_bytes: HugepageSize,
    /// Give the guest a balloon. Not beside huge pages.
    #[serde(default)]
    pub balloon: bool,
}

/// A snapshot that a new instance starts from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RestoreFrom {
    /// Where it is fetched from.
    pub url: HttpsUrl,
    /// SHA-256 of the whole archive.
    #[schemars(with = "Sha256Schema")]
    pub sha256: Sha256Digest,
}

/// The state to keep an instance in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DesiredState {
    /// Running; a guest that powers off is started again.
    #[default]
    Running,
    /// Defined, not running.
    Stopped,
    /// Started, its CPUs paused.
    Paused,
}

/// A volume: a sparse raw file of the host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Volume {
    /// Its id, unique in the document.
    pub id: VolumeId,
    /// Its size, bytes; may grow, never shrink.
    #[serde(deserialize_with = "quantity")]
    #[schemars(with = "DiskBytesSchema")]
    pub size_bytes: DiskBytes,
}

/// Memory reserved for others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Hold {
    /// Its id, unique in the document.
    pub id: HoldId,
    /// Memory, bytes.
    #[serde(deserialize_with = "quantity")]
    #[schemars(with = "MemoryBytesSchema")]
    pub memory_bytes: MemoryBytes,
}

tables!(
    NodeSpec: "a NodeSpec",
    Instance: "an instance",
    Image: "an image",
    NicSpec: "a NIC",
    VolumeAttachment: "an attached volume",
    Placement: "a placement",
    RestoreFrom: "a snapshot to restore",
    Volume: "a volume",
    Hold: "a hold",
);
