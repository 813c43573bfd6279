//! The NodeSpec: what this host should run. Strict: unknown fields, wrong units and out-of-range numbers are refused
//! with file, line and field, and a refused document changes nothing.
//!
//! Room: `node`. Pure: reading the file is the caller's. The JSON Schema is derived from the same types.
use bcd_protocol::definition::{Addresses, ImageFormat};
use bcd_protocol::id::{AllocationId, BridgeName, InstanceId, Sha256Digest};
use bcd_protocol::net::MacAddress;
use bcd_protocol::size::{DiskBytes, MemoryBytes, Vcpus};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// The instances this host should have. One that leaves the document is deleted, disks and all.
    #[serde(default)]
    pub instances: Vec<Instance>,
    /// Volumes, attached to instances by serial.
    #[serde(default)]
    pub volumes: Vec<Volume>,
    /// Memory reserved for others.
    #[serde(default)]
    pub holds: Vec<Hold>,
}

/// One virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// Its id.
    pub id: InstanceId,
    /// The allocation it belongs to; names its user data.
    pub allocation: AllocationId,
    /// The runtime's driver id, e.g. `libvirt-kvm`.
    pub runtime: String,
    /// The host name the guest is given.
    pub hostname: String,
    /// Virtual CPUs.
    pub vcpus: Vcpus,
    /// Memory, bytes.
    pub memory_bytes: MemoryBytes,
    /// The root disk's virtual size, bytes; may grow, never shrink.
    pub disk_bytes: DiskBytes,
    /// The base image.
    pub image: Image,
    /// NICs in order.
    #[serde(default)]
    pub nics: Vec<NicSpec>,
    /// Who may reach the guest.
    #[serde(default)]
    pub network_policy: NetworkPolicy,
    /// SSH only from this host.
    #[serde(default)]
    pub ssh_from_host_only: bool,
    /// GPUs passed through, by UUID.
    #[serde(default)]
    pub gpu_device_ids: Vec<String>,
    /// Volumes attached.
    #[serde(default)]
    pub volumes: Vec<VolumeAttachment>,
    /// Pinning, NUMA, huge pages, balloon.
    #[serde(default)]
    pub placement: Option<Placement>,
    /// A snapshot to restore a new instance from.
    #[serde(default)]
    pub restore_from: Option<RestoreFrom>,
    /// The reference of the identity a restored guest is to take.
    #[serde(default)]
    pub identity_rebind_ref: Option<String>,
    /// The state to keep it in.
    #[serde(default)]
    pub desired_state: DesiredState,
}
