//! What the doctor looked at, as plain values.
//!
//! Room: `node`. No judgement here: a value says what is, or why it could not be seen.
use bcd_protocol::config::Config;
use bcd_protocol::node_user::Candidate;
use std::path::PathBuf;

mod firewall;
mod probe;
mod words;

pub use firewall::{Chain, Family, Firewall, Handed, Hook, Match, Names, Rule, Tool, Verdict};
pub use probe::{Document, Helper, Libvirt, Need, Node, Probe, Secrets, Unasked, Unread};
pub use words::{Version, Words};

/// Everything that was looked at.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The configuration file.
    pub configuration: Configuration,
    /// What holds whatever the configuration says.
    pub host: Host,
    /// What the configuration names; `None` without a configuration that can be used: nothing is judged by defaults.
    pub configured: Option<Configured>,
}

/// What holds whatever the configuration says.
#[derive(Debug, Clone)]
pub struct Host {
    /// The gid of group kvm, if there is one; or why the user database does not say.
    pub kvm_group: Result<Option<u32>, String>,
    /// Whether the CPU shows vmx or svm.
    pub virtualisation: bool,
    /// `/dev/kvm`.
    pub kvm: Option<Device>,
    /// What PCI devices could be passed through with.
    pub iommu: Iommu,
    /// The tool that makes seeds.
    pub seed_tool: Option<&'static str>,
    /// cloud-hypervisor, if it is installed.
    pub cloud_hypervisor: Option<CloudHypervisor>,
    /// The service manager, if systemd is it; its version, where that can be told.
    pub systemd: Option<Option<u32>>,
    /// Control groups.
    pub cgroups: Cgroups,
    /// What the kernel's Landlock gives.
    pub landlock: Landlock,
    /// Whether the kernel has seccomp filters.
    pub seccomp: bool,
    /// Memory of the host, bytes.
    pub memory: Option<u64>,
    /// The clock, seconds since 1970.
    pub clock: u64,
    /// Whether something keeps the clock right; `None` where nobody says.
    pub synchronised: Option<bool>,
}

/// What the configuration names.
#[derive(Debug, Clone)]
pub struct Configured {
    /// The configuration.
    pub config: Config,
    /// Where that lies.
    pub file: PathBuf,
    /// The configured node user, if that user exists; or why the user database does not say.
    pub node_user: Result<Option<Candidate>, String>,
    /// What a process finds that asks as the node's user; one of another user's where doctor is neither root nor that user.
    pub probe: Result<Probe, Unasked>,
    /// Whether [`Configured::probe`] was really made by the node's user.
    pub probed_as_node: bool,
    /// Whether virtlogd's socket is there, where libvirt uses the default sockets.
    pub virtlogd: Option<bool>,
    /// Who may search libvirt's directory for QEMU.
    pub qemu_directory: Result<Search, String>,
    /// The configured bridges: name, and what lies under it.
    pub bridges: Vec<(String, Interface)>,
    /// What filters bridged packets.
    pub firewall: Firewall,
    /// `data_dir`.
    pub data_dir: Place,
    /// Directories above `data_dir` that group kvm may not search.
    pub data_dir_closed: Vec<PathBuf>,
    /// `helper.state_dir`.
    pub state_dir: Place,
    /// The directory of the helper's socket.
    pub helper_sockets: Place,
    /// The helper's socket itself.
    pub helper_socket: Place,
    /// The directory of the node's socket.
    pub node_sockets: Place,
    /// The directory of user data.
    pub secrets: Place,
}

impl Configured {
    /// The uid and the group of the node's user, where they are known.
    #[must_use]
    pub fn node_ids(&self) -> Option<(u32, u32)> {
        self.node_user.as_ref().ok()?.as_ref().map(|user| (user.uid, user.gid))
    }
}

/// The configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Configuration {
    /// There is none.
    Missing(PathBuf),
    /// It cannot be read; the way to it from `/`, itself last.
    Unreadable(Vec<Part>, Unread),
    /// It is wrong: file, place, key and what to write instead.
    Wrong(String),
    /// Somebody else than root may change it, so nothing of it is believed; the way to it from `/`, itself last.
    Open(Vec<Part>),
    /// It can be used; the way to it from `/`, itself last.
    Fine(Vec<Part>),
}

/// A device file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its group.
    pub gid: u32,
    /// Its permission bits.
    pub mode: u32,
    /// Why it cannot be opened, for another reason than permissions.
    pub broken: Option<String>,
}

/// What PCI devices could be passed through with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iommu {
    /// Groups that the kernel made; 0: there is no IOMMU, or it is off.
    pub groups: usize,
    /// Whether vfio-pci is there, loaded or to be loaded.
    pub vfio_pci: bool,
}

/// cloud-hypervisor as it is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudHypervisor {
    /// The program.
    pub path: PathBuf,
    /// What it says of itself, such as `54.0`.
    pub version: Option<String>,
    /// Whether its firmware lies in its usual place.
    pub firmware: bool,
}

/// How control groups are mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cgroups {
    /// Version 2 alone, with these controllers.
    Unified(Vec<String>),
    /// Version 1, or both.
    Legacy,
}

/// Who may search a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Group kvm may.
    Allowed,
    /// Group kvm may not.
    Refused,
}

/// What lies under a bridge's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    /// A bridge; whether it is up.
    Bridge {
        /// Whether it is up.
        up: bool,
    },
    /// An interface that is no bridge.
    Other,
    /// Nothing.
    Missing,
}

/// A directory, with the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Every part from `/` on, itself last.
    pub way: Vec<Part>,
    /// Free bytes of its file system; `None` where that could not be seen.
    pub free: Option<u64>,
}

/// One part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The path so far.
    pub path: PathBuf,
    /// What lies there.
    pub seen: Seen,
}

/// What lies at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Missing,
    /// It cannot be looked at.
    Unseen(String),
    /// It lies behind a link, which is not followed.
    Behind,
    /// This.
    There(Entry),
}

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its kind.
    pub kind: Kind,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits.
    pub mode: u32,
}

impl Entry {
    /// Whether it is root's and nobody else may write to it.
    #[must_use]
    pub fn is_roots_alone(&self) -> bool {
        self.uid == 0 && self.mode & 0o022 == 0
    }
}

/// Kinds of directory entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link; never followed.
    Link,
    /// A socket.
    Socket,
    /// Anything else.
    Other,
}

/// What Landlock gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landlock {
    /// The kernel has none.
    Missing,
    /// The kernel has it, but it is not switched on.
    Off,
    /// It works, up to this ABI.
    Works(i32),
}
