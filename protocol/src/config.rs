//! `/etc/bcd/bcd.toml`: one file, root-owned, read by both daemons.
//!
//! Room: `protocol`. Parsing only; who may own or write the file is checked by whoever opens it. Every key has a default
//! that is safe on a fresh host: no bridge is listed, so no instance gets a NIC until an administrator lists one.
use crate::id::BridgeName;
use crate::limits;
use crate::size::{DiskBytes, MemoryBytes};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// The configuration's default place.
pub const DEFAULT_PATH: &str = "/etc/bcd/bcd.toml";

/// Why a configuration cannot be used; names line and key.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConfig(String);

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where instances, images and volumes live; owned by the node's user. Default `/var/lib/bcd`.
    pub data_dir: HostPath,
    /// What the node alone reads.
    pub node: NodeConfig,
    /// What the helper enforces.
    pub helper: HelperConfig,
    /// How libvirt is reached and what its guests run on.
    pub libvirt: LibvirtConfig,
}

/// `[node]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConfig {
    /// A NodeSpec file to watch (`.toml` or `.json`). None: specs come by `bcd apply` alone.
    pub spec: Option<HostPath>,
    /// The node's API socket. Default `/run/bcd/node.sock`.
    pub api: HostPath,
    /// A directory with one file per allocation, named by it, mode 0600: its instances' user data. Default
    /// `/etc/bcd/secrets`.
    pub secrets: HostPath,
    /// Where images may come from.
    pub images: ImagesConfig,
}

/// `[node.images]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImagesConfig {
    /// Hosts (`name` or `name:port`) that images may be fetched from; empty: any.
    pub allowed_hosts: Vec<String>,
    /// A PEM file of authorities trusted beside the system's.
    pub ca_file: Option<HostPath>,
    /// Most bytes of one image file. Default 64 GiB.
    pub max_bytes: u64,
    /// Downloads under way at once. Default 2.
    pub max_downloads: u32,
}

/// `[helper]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct HelperConfig {
    /// The node's user: the only one the helper answers. Default `bcd`.
    pub node_user: UserName,
    /// The helper's socket. Default `/run/bcd/helper.sock`.
    pub socket: HostPath,
    /// The helper's own state, root's alone. Default `/var/lib/bcd-helper`.
    pub state_dir: HostPath,
    /// Bridges that instances may be plugged into. None listed: no NIC.
    pub instance_bridges: Vec<BridgeName>,
    /// Most instances. Default 1024, at most 4096.
    pub max_instances: u32,
    /// Most vCPUs of one instance. Default 64.
    pub max_vcpus: u32,
    /// Most memory of one instance, bytes. Default 256 GiB.
    pub max_memory_bytes: MemoryBytes,
    /// Most virtual size of one disk, bytes. Default 4 TiB.
    pub max_disk_bytes: DiskBytes,
    /// Refuse to start when the kernel cannot give the whole sandbox (Landlock and seccomp). Default false.
    pub require_sandbox: bool,
}

/// `[libvirt]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LibvirtConfig {
    /// The connection. Default `qemu:///system`.
    pub uri: LibvirtUri,
    /// What guests run on.
    pub accel: Accel,
}

/// What guests run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// KVM where `/dev/kvm` opens and the CPU shows vmx or svm, software emulation elsewhere.
    #[default]
    Auto,
    /// Hardware virtualisation.
    Kvm,
    /// Software emulation.
    Tcg,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: HostPath::known("/var/lib/bcd"),
            node: NodeConfig::default(),
            helper: HelperConfig::default(),
            libvirt: LibvirtConfig::default(),
        }
    }
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            spec: None,
            api: HostPath::known("/run/bcd/node.sock"),
            secrets: HostPath::known("/etc/bcd/secrets"),
            images: ImagesConfig::default(),
        }
    }
}

impl Default for ImagesConfig {
    fn default() -> Self {
        Self { allowed_hosts: Vec::new(), ca_file: None, max_bytes: 64 << 30, max_downloads: 2 }
    }
}

impl Default for HelperConfig {
    fn default() -> Self {
        Self {
            node_user: UserName("bcd".to_owned()),
            socket: HostPath::known("/run/bcd/helper.sock"),
            state_dir: HostPath::known("/var/lib/bcd-helper"),
            instance_bridges: Vec::new(),
            max_instances: 1024,
            max_vcpus: 64,
            max_memory_bytes: MemoryBytes::known(256 << 30),
            max_disk_bytes: DiskBytes::known(4 << 40),
            require_sandbox: false,
        }
    }
}

impl Default for LibvirtConfig {
    fn default() -> Self {
        Self { uri: LibvirtUri("qemu:///system".to_owned()), accel: Accel::Auto }
    }
}

impl Config {
    /// Parses the text of a configuration file.
    ///
    /// # Errors
    /// [`InvalidConfig`] with line and key for a syntax error, an unknown key, a wrong type or a value out of range.
    pub fn parse(text: &str) -> Result<Self, InvalidConfig> {
        let config: Self = toml::from_str(text).map_err(|e| InvalidConfig(e.to_string()))?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), InvalidConfig> {
        let most = u32::try_from(limits::RECORDS).unwrap_or(u32::MAX);
        if !(1..=most).contains(&self.helper.max_instances) {
            return Err(InvalidConfig(format!(
                "helper.max_instances is {}: use 1 to {most}",
                self.helper.max_instances
            )));
        }
        if !(1..=limits::VCPUS).contains(&self.helper.max_vcpus) {
            return Err(InvalidConfig(format!(
                "helper.max_vcpus is {}: use 1 to {}",
                self.helper.max_vcpus,
                limits::VCPUS
            )));
        }
        if !(1..=64).contains(&self.node.images.max_downloads) {
            return Err(InvalidConfig(format!(
                "node.images.max_downloads is {}: use 1 to 64",
                self.node.images.max_downloads
            )));
        }
        if self.data_dir.contains(&self.helper.state_dir) || self.helper.state_dir.contains(&self.data_dir) {
            return Err(InvalidConfig(format!(
                "helper.state_dir {} and data_dir {} lie within each other: the node may write the one and never the other",
                self.helper.state_dir, self.data_dir
            )));
        }
        Ok(())
    }
}

/// An absolute path of letters, digits, `.`, `_`, `-`, `+`, `@` and `/`, without empty, `.` or `..` parts and not `/`
/// itself, at most 200 characters: it needs no escaping in any file that root renders.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPath(PathBuf);

impl HostPath {
    fn known(path: &'static str) -> Self {
        Self(PathBuf::from(path))
    }

    /// The path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Whether `other` is this path or lies beneath it.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }
}

impl TryFrom<String> for HostPath {
    type Error = InvalidConfig;
    fn try_from(text: String) -> Result<Self, InvalidConfig> {
        let fits = text.len() <= 200
            && text.strip_prefix('/').is_some_and(|rest| {
                rest.split('/').all(|part| {
                    !matches!(part, "" | "." | "..")
                        && part
                            .bytes()
                            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'+' | b'@'))
                })
            });
        if fits {
            Ok(Self(PathBuf::from(text)))
        } else {
            Err(InvalidConfig(format!(
                "path {text:?} is not usable: give an absolute path of letters, digits and . _ - + @, without '..', at \
                 most 200 characters"
            )))
        }
    }
}

impl From<HostPath> for String {
    fn from(path: HostPath) -> Self {
        path.0.to_string_lossy().into_owned()
    }
}

impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

/// The name of a host user: what `useradd` takes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct UserName(String);

impl UserName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for UserName {
    type Error = InvalidConfig;
    fn try_from(text: String) -> Result<Self, InvalidConfig> {
        let fits = (1..=32).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'))
            && text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
        if !fits {
            return Err(InvalidConfig(format!(
                "user {text:?} is not a user name: use 1 to 32 of a-z, 0-9, '_' and '-'"
            )));
        }
        if text == "root" {
            return Err(InvalidConfig("node_user is root: the node must be an unprivileged user".to_owned()));
        }
        Ok(Self(text))
    }
}

impl From<UserName> for String {
    fn from(name: UserName) -> Self {
        name.0
    }
}

/// A libvirt URI of the QEMU driver: `qemu:///system`, with `?socket=` for tests.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct LibvirtUri(String);

impl LibvirtUri {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for LibvirtUri {
    type Error = InvalidConfig;
    fn try_from(text: String) -> Result<Self, InvalidConfig> {
        let local = text.strip_prefix("qemu:///system");
        let fits = match local {
            Some("") => true,
            Some(rest) => rest.strip_prefix("?socket=").is_some_and(|path| HostPath::try_from(path.to_owned()).is_ok()),
            None => false,
        };
        if fits {
            Ok(Self(text))
        } else {
            Err(InvalidConfig(format!(
                "libvirt uri {text:?} is not usable: use qemu:///system or qemu:///system?socket=/absolute/path"
            )))
        }
    }
}

impl From<LibvirtUri> for String {
    fn from(uri: LibvirtUri) -> Self {
        uri.0
    }
}
