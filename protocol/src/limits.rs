//! Every bound on the wire and on what one instance may ask for, each with its reason.
//!
//! Room: `protocol`. These are the format's ceilings; an administrator's own, lower limits are in [`crate::config`].

/// Largest datagram either side sends or accepts, bytes. A page of records or one domain's XML fits well inside, and a
/// default socket buffer (212,992 bytes on Linux) holds three of them.
pub const MESSAGE_BYTES: usize = 64 * 1024;

/// Descriptors that one reply may carry. A console is one; nothing sends more.
pub const REPLY_DESCRIPTORS: usize = 1;

/// Descriptors that one request may carry: none of today's verbs takes any, and a stray one is refused.
pub const REQUEST_DESCRIPTORS: usize = 0;

/// Requests of one connection that may be under way at once. A node runs one step per instance; more than this many
/// wait in its own queue. The helper stops reading from a connection that has as many open.
pub const IN_FLIGHT: usize = 64;

/// Connections the helper serves at once. The node holds one; a second is a command line or a restart that overlaps.
pub const CONNECTIONS: usize = 16;

/// Time a fresh connection has for its handshake, seconds.
pub const HANDSHAKE_SECONDS: u64 = 5;

/// Records in one page of a `records` reply. The largest record encodes to under 4 KiB.
pub const RECORDS_PER_PAGE: u16 = 14;

/// Records the helper keeps at the most, whatever the configuration says: one guest uid each, and each an open file at
/// start.
pub const RECORDS: usize = 4096;

/// Characters of an instance id: a DNS label, so that the id can be a host name and, behind a prefix, a domain name.
pub const INSTANCE_ID_CHARS: usize = 63;

/// Characters of an allocation id.
pub const ALLOCATION_CHARS: usize = 64;

/// Characters of an interface name: `IFNAMSIZ` less the NUL.
pub const INTERFACE_CHARS: usize = 15;

/// NICs of one instance. Tap names have one decimal digit for the index within 15 characters
/// (`bc` + 10 hex digits + `n` + index).
pub const NICS: usize = 8;

/// Addresses of one NIC.
pub const ADDRESSES_PER_NIC: usize = 16;

/// Most vCPUs of one instance: what QEMU's q35 machine takes without an IOMMU in the guest.
pub const VCPUS: u32 = 255;

/// Least memory of one instance, bytes: below it no current kernel boots.
pub const MEMORY_MIN: u64 = 16 * 1024 * 1024;

/// Most memory of one instance, bytes (16 TiB).
pub const MEMORY_MAX: u64 = 16 << 40;

/// Memory is a whole number of these, bytes: libvirt counts in KiB and QEMU aligns to 1 MiB.
pub const MEMORY_UNIT: u64 = 1024 * 1024;

/// Least size of a disk, bytes.
pub const DISK_MIN: u64 = 1024 * 1024;

/// Most size of a disk, bytes (64 TiB): what a qcow2 with 64 KiB clusters addresses within a 1 GiB first-level table
/// is far more; this is what one host plausibly holds sparse.
pub const DISK_MAX: u64 = 64 << 40;

/// Sizes of disks are a whole number of these, bytes: a virtio sector.
pub const SECTOR: u64 = 512;

/// Characters of the detail sentence in a denial or failure; longer ones are cut with `…`.
pub const DETAIL_CHARS: usize = 512;

/// Characters of a rule's id.
pub const RULE_CHARS: usize = 48;

/// Bytes of one domain's XML in a reply.
pub const XML_BYTES: usize = 32 * 1024;

/// First uid that a guest may run as; there are 32,768. The range lies between what systemd gives to containers (up to
/// 0x6FFFFFFF) and to foreign images (from 0x7FFE0000): its UIDS-GIDS.md.
pub const GUEST_UID_FIRST: u32 = 0x7FFD_0000;

/// Last uid that a guest may run as.
pub const GUEST_UID_LAST: u32 = 0x7FFD_7FFF;

#[cfg(test)]
mod tests;
