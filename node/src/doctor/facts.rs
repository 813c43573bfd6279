//! What the doctor looked at, as plain values.
//!
//! Room: `node`. No judgement here: a value says what is, or why it could not be seen.
use bcd_protocol::config::Config;
use std::path::PathBuf;

/// Everything that was looked at.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The configuration file.
    pub configuration: Configuration,
    /// What it says; the defaults when it is missing or wrong.
    pub config: Config,
    /// The uid and the group of the configured node user, if that user exists.
    pub node_user: Option<(u32, u32)>,
    /// The gid of group kvm.
    pub kvm_group: Option<u32>,
    /// Whether the CPU shows vmx or svm.
    pub virtualisation: bool,
    /// `/dev/kvm`.
    pub kvm: Option<Device>,
    /// What libvirt's daemon answers on the read-only connection.
    pub libvirt: Result<Libvirt, String>,
    /// Whether virtlogd's socket is there, where libvirt uses the default sockets.
    pub virtlogd: Option<bool>,
    /// Who may search libvirt's directory for QEMU.
    pub qemu_directory: Result<Search, String>,
    /// The helper.
    pub helper: Helper,
    /// The tool that makes seeds.
    pub seed_tool: Option<&'static str>,
    /// The configured bridges: name, and what lies under it.
    pub bridges: Vec<(String, Interface)>,
    /// `data_dir`.
    pub data_dir: Directory,
    /// The directory of user data.
    pub secrets: Directory,
    /// What `node.images.ca_file` is, if it is set: how many certificates, or why it cannot be read.
    pub ca_file: Option<(PathBuf, Result<usize, String>)>,
    /// The watched document, if one is set: whether it parses.
    pub document: Option<(PathBuf, Document)>,
    /// What the kernel's Landlock gives.
    pub landlock: Landlock,
    /// Whether the kernel has seccomp filters.
    pub seccomp: bool,
    /// Memory of the host, bytes.
    pub memory: Option<u64>,
    /// The clock, seconds since 1970.
    pub clock: u64,
}

/// The configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Configuration {
    /// There is none: the defaults hold.
    Missing(PathBuf),
    /// It cannot be read.
    Unreadable(PathBuf, String),
    /// It is wrong.
    Wrong(PathBuf, String),
    /// It is fine, but for the parts of its path that others than root may write.
    Fine(PathBuf, Vec<String>),
}

/// A device file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Its group.
    pub gid: u32,
    /// Its permission bits.
    pub mode: u32,
}

/// What libvirt's daemon says of itself, as `major * 1,000,000 + minor * 1,000 + release`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Libvirt {
    /// The daemon's version.
    pub version: u32,
    /// QEMU's version; `None`: libvirt knows no emulator.
    pub qemu: Option<u32>,
}

/// Who may search a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Group kvm may.
    Allowed,
    /// Group kvm may not.
    Refused,
}

/// How the helper answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Helper {
    /// It welcomed this process; its package version.
    Welcome(String),
    /// It listens, and this process is not whom it answers.
    Listens,
    /// This process may not connect to its socket.
    Forbidden,
    /// It does not answer, and why.
    Unreachable(String),
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

/// A directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Directory {
    /// There is none.
    Missing,
    /// It cannot be looked at.
    Unseen(String),
    /// It is no directory, or a link.
    Other,
    /// It is there.
    There {
        /// Its owner.
        uid: u32,
        /// Its permission bits.
        mode: u32,
        /// Free bytes of its file system; `None` where that could not be seen.
        free: Option<u64>,
    },
}

/// The watched document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    /// It parses; the number of its instances.
    Fine(usize),
    /// There is none yet.
    Missing,
    /// It cannot be read.
    Unreadable(String),
    /// It does not parse.
    Wrong(String),
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
