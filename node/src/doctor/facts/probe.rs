//! What a process finds that asks as the node's user.
//!
//! Room: `node`. It crosses a pipe from a process that the node's user may do everything to but trace, so it holds no path
//! and no free text: numbers, names of a closed list, [`Words`] and [`Version`]. Paths are the reader's, out of the
//! configuration. What does not parse is no answer.
use super::words::{Version, Words};
use bcd_protocol::id::AllocationId;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Everything that was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// How the helper answers.
    pub helper: Helper,
    /// What libvirt's daemon answers on the read-only connection.
    pub libvirt: Result<Libvirt, Words>,
    /// How the node answers.
    pub node: Node,
    /// What cannot be got at, and the kernel's number for why.
    pub barred: Vec<(Need, i32)>,
    /// Files of user data that the node would not read; `None`: the directory cannot be listed.
    pub secrets: Option<Secrets>,
    /// Certificates in `node.images.ca_file`, if it is set.
    pub certificates: Option<Result<usize, Unread>>,
    /// The watched document, if one is set.
    pub document: Option<Document>,
}

/// What the node has to get at: the configuration says where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Need {
    /// The configuration itself.
    Configuration,
    /// `data_dir`.
    DataDir,
    /// `node.secrets`.
    Secrets,
}

/// Why no process asked as the node's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unasked {
    /// There is no such user, or it is none that the node may run as: another finding says so.
    NoUser,
    /// It was to ask and gave no answer.
    Silent(Words),
}

/// What libvirt's daemon says of itself, as `major * 1,000,000 + minor * 1,000 + release`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Libvirt {
    /// The daemon's version.
    pub version: u32,
    /// QEMU's version; `None`: libvirt knows no emulator.
    pub qemu: Option<u32>,
}

/// How the helper answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Helper {
    /// It welcomed this process; its package version.
    Welcome(Version),
    /// It listens, and this process is not whom it answers.
    Listens,
    /// This process may not connect to its socket.
    Forbidden,
    /// It does not answer, and why.
    Unreachable(Words),
}

/// How the node answers. All of it is the node's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Node {
    /// It answers.
    Answers {
        /// Its version.
        version: Version,
        /// What it cannot read.
        unread: Vec<Words>,
        /// The version of the helper that answers it, if one does.
        helper: Option<Version>,
    },
    /// It does not admit this process.
    Forbidden,
    /// It does not answer, and why.
    Unreachable(Words),
}

/// Files of user data that the node would not read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secrets {
    /// The first of those whose name is an allocation's.
    pub named: Vec<AllocationId>,
    /// How many others there are.
    pub others: usize,
    /// Whether the directory holds more than was looked at.
    pub more: bool,
}

/// Why a file could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unread {
    /// The kernel's number for it.
    Errno(i32),
    /// It is no regular file.
    NoFile,
    /// It is larger than such a file can be.
    TooLarge,
    /// It is not text.
    NoText,
}

impl Unread {
    /// Whether there is nothing at all.
    #[must_use]
    pub fn is_missing(self) -> bool {
        self == Self::Errno(Errno::ENOENT as i32)
    }
}

impl From<Errno> for Unread {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno as i32)
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Errno(number) => Errno::from_raw(*number).desc(),
            Self::NoFile => "it is no regular file",
            Self::TooLarge => "it is too large",
            Self::NoText => "it is not text",
        })
    }
}

/// The watched document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Document {
    /// It parses; the number of its instances.
    Fine(usize),
    /// There is none yet.
    Missing,
    /// It cannot be read.
    Unreadable(Unread),
    /// It does not parse.
    Wrong {
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong: some of it may be out of the document.
        what: Words,
    },
}
