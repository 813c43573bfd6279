//! `/etc/bcd/bcd.toml`: one file, root-owned, read by both daemons.
//!
//! Room: `protocol`. Parsing only; who may own or write the file is checked by whoever opens it. Every key has a default
//! that is safe on a fresh host: no bridge is listed, so no instance gets a NIC until an administrator lists one.
use crate::id::BridgeName;
use crate::size::{DiskBytes, MemoryBytes};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

mod locate;
mod read;
#[cfg(test)]
mod tests;

/// The configuration's default place.
pub const DEFAULT_PATH: &str = "/etc/bcd/bcd.toml";

/// Why a configuration cannot be used, as one line: `LINE:COLUMN: key: what is wrong and what to write instead`. Whoever
/// read the file puts its name and a colon before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {key}{}{message}", if key.is_empty() { "" } else { ": " })]
pub struct InvalidConfig {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The key with its tables, such as `helper.max_vcpus`; empty for a fault of syntax.
    pub key: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// Why a value cannot be used: what is wrong with it and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(String);

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
    /// The node's API socket. Default `/run/bcd/node/node.sock`.
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
    /// Hosts (`name` or `name:port`, in lower case) that images may be fetched from; empty: any.
    #[serde(deserialize_with = "read::hosts")]
    pub allowed_hosts: Vec<String>,
    /// A PEM file of authorities trusted beside the system's.
    pub ca_file: Option<HostPath>,
    /// Most bytes of one image file, 1 MiB to 64 TiB. Default 64 GiB.
    #[serde(deserialize_with = "read::image_bytes")]
    pub max_bytes: u64,
    /// Downloads under way at once, 1 to 64. Default 2.
    #[serde(deserialize_with = "read::downloads")]
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
    #[serde(deserialize_with = "read::bridges")]
    pub instance_bridges: Vec<BridgeName>,
    /// Most instances, 1 to 4096. Default 1024.
    #[serde(deserialize_with = "read::instances")]
    pub max_instances: u32,
    /// Most vCPUs of one instance, 1 to 255. Default 64.
    #[serde(deserialize_with = "read::vcpus")]
    pub max_vcpus: u32,
    /// Most memory of one instance, bytes. Default 256 GiB.
    #[serde(deserialize_with = "read::memory")]
    pub max_memory_bytes: MemoryBytes,
    /// Most virtual size of one disk, bytes. Default 4 TiB.
    #[serde(deserialize_with = "read::disk")]
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
    /// KVM where the CPU has it and `/dev/kvm` can be opened, software emulation elsewhere.
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
            api: HostPath::known("/run/bcd/node/node.sock"),
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
    /// [`InvalidConfig`] with place and key for a syntax error, an unknown key, a wrong type or a value out of range.
    pub fn parse(text: &str) -> Result<Self, InvalidConfig> {
        let config: Self = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            locate::invalid(text, at, locate::key(text, at).unwrap_or_default(), e.message())
        })?;
        if config.data_dir.contains(&config.helper.state_dir) || config.helper.state_dir.contains(&config.data_dir) {
            // One of them is given, since the defaults lie apart.
            let (key, at) = ["helper.state_dir", "data_dir"]
                .into_iter()
                .find_map(|key| Some((key, locate::value(text, key)?)))
                .unwrap_or_default();
            let message = format!(
                "helper.state_dir {} and data_dir {} lie within each other, and the node may write the one and never the \
                 other: move one of them",
                config.helper.state_dir, config.data_dir
            );
            return Err(locate::invalid(text, at, key.to_owned(), &message));
        }
        Ok(config)
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
    type Error = InvalidValue;
    fn try_from(text: String) -> Result<Self, InvalidValue> {
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
            Err(InvalidValue(format!(
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
    type Error = InvalidValue;
    fn try_from(text: String) -> Result<Self, InvalidValue> {
        let fits = (1..=32).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'))
            && text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
        if !fits {
            return Err(InvalidValue(format!(
                "user {text:?} is not a user name: use 1 to 32 of a-z, 0-9, '_' and '-'"
            )));
        }
        if text == "root" {
            return Err(InvalidValue("node_user is root: the node must be an unprivileged user".to_owned()));
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
    type Error = InvalidValue;
    fn try_from(text: String) -> Result<Self, InvalidValue> {
        let local = text.strip_prefix("qemu:///system");
        let fits = match local {
            Some("") => true,
            Some(rest) => rest.strip_prefix("?socket=").is_some_and(|path| HostPath::try_from(path.to_owned()).is_ok()),
            None => false,
        };
        if fits {
            Ok(Self(text))
        } else {
            Err(InvalidValue(format!(
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
