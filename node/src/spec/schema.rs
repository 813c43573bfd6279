//! The published JSON Schema (2020-12): of the document, and of the protocol's values wherever the node shows them.
//!
//! Room: `node`. The protocol crate knows no schemas, so each of its values has a twin here that states the same rule;
//! tests hold twin and parser together.
use bcd_protocol::limits;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

macro_rules! twin {
    ($(#[$doc:meta])* $name:ident, $published:literal, $schema:tt) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $name {}

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                $published.into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

twin!(
    /// [`bcd_protocol::id::InstanceId`].
    InstanceIdSchema,
    "InstanceId",
    {
        "type": "string",
        "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        "description": "An instance's id: 1 to 63 lower-case letters, digits and inner hyphens.",
    }
);

twin!(
    /// [`bcd_protocol::id::AllocationId`].
    AllocationIdSchema,
    "AllocationId",
    {
        "type": "string",
        "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        "description": "The allocation an instance belongs to: 1 to 64 letters, digits, '-', '_' and '.', the first a letter or digit.",
    }
);

twin!(
    /// [`bcd_protocol::id::BridgeName`].
    BridgeNameSchema,
    "BridgeName",
    {
        "type": "string",
        "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$",
        "description": "A host bridge: 1 to 15 letters, digits, '-', '_' and '.', the first a letter or digit.",
    }
);

twin!(
    /// [`bcd_protocol::id::Sha256Digest`].
    Sha256Schema,
    "Sha256",
    {
        "type": "string",
        "pattern": "^[0-9a-f]{64}$",
        "description": "A SHA-256 digest: 64 lower-case hex digits.",
    }
);

twin!(
    /// [`bcd_protocol::id::DomainUuid`].
    DomainUuidSchema,
    "DomainUuid",
    {
        "type": "string",
        "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
        "description": "A domain's UUID: 8-4-4-4-12 lower-case hex digits.",
    }
);

twin!(
    /// [`bcd_protocol::id::GuestUid`].
    GuestUidSchema,
    "GuestUid",
    {
        "type": "integer",
        "minimum": limits::GUEST_UID_FIRST,
        "maximum": limits::GUEST_UID_LAST,
        "description": "The uid that a guest's VMM runs as.",
    }
);

twin!(
    /// [`bcd_protocol::net::MacAddress`].
    MacSchema,
    "MacAddress",
    {
        "type": "string",
        "pattern": "^([0-9A-Ea-e][02468ACEace]|[Ff][02468ACac])(:[0-9A-Fa-f]{2}){5}$",
        "not": {"const": "00:00:00:00:00:00"},
        "description": "A unicast MAC address, six two-digit hex numbers joined by ':'; not all zero and not fe:…, which is the host's end of a tap. Shown in lower case.",
    }
);

twin!(
    /// [`ipnet::IpNet`].
    IpNetSchema,
    "IpNet",
    {
        "type": "string",
        "pattern": "^[0-9A-Fa-f:.]{2,45}/[0-9]{1,3}$",
        "description": "An address with its prefix length, such as 192.0.2.10/24 or 2001:db8::10/64.",
    }
);

twin!(
    /// [`std::net::IpAddr`].
    IpSchema,
    "IpAddress",
    {
        "type": "string",
        "pattern": "^[0-9A-Fa-f:.]{2,45}$",
        "description": "An address without a prefix length.",
    }
);

twin!(
    /// [`bcd_protocol::definition::Addresses`].
    AddressesSchema,
    "Addresses",
    {
        "type": "array",
        "items": {
            "type": "string",
            "pattern": "^[0-9A-Fa-f:.]{2,45}/[0-9]{1,3}$",
            "description": "An address with its prefix length, such as 192.0.2.10/24 or 2001:db8::10/64.",
        },
        "maxItems": limits::ADDRESSES_PER_NIC,
    }
);

twin!(
    /// [`bcd_protocol::size::MemoryBytes`].
    MemoryBytesSchema,
    "MemoryBytes",
    {
        "type": "integer",
        "minimum": limits::MEMORY_MIN,
        "maximum": limits::MEMORY_MAX,
        "multipleOf": limits::MEMORY_UNIT,
        "description": "Memory in bytes: a whole number of 1048576 (1 MiB).",
    }
);

twin!(
    /// [`bcd_protocol::size::DiskBytes`].
    DiskBytesSchema,
    "DiskBytes",
    {
        "type": "integer",
        "minimum": limits::DISK_MIN,
        "maximum": limits::DISK_MAX,
        "multipleOf": limits::SECTOR,
        "description": "The virtual size of a disk in bytes: a whole number of 512-byte sectors.",
    }
);

twin!(
    /// [`bcd_protocol::size::Vcpus`].
    VcpusSchema,
    "Vcpus",
    {
        "type": "integer",
        "minimum": 1,
        "maximum": limits::VCPUS,
        "description": "A number of virtual CPUs.",
    }
);

/// The schema of the document, JSON Schema 2020-12.
#[must_use]
pub fn schema() -> Schema {
    schemars::schema_for!(super::NodeSpec)
}
