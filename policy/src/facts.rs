//! What the helper looks up before a decision, and what it found.
//!
//! Room: `policy`. The questions name host objects that policy derived; the answers are plain data, and policy trusts
//! them as far as they were asked of the kernel or of libvirt by root.
use crate::name::{DataPath, DomainName, TapName};
use crate::record::Record;
use bcd_protocol::id::DomainUuid;

/// What has to be looked up for one request.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Questions {
    /// Look this domain up in libvirt.
    pub domain: Option<DomainQuestion>,
    /// Look at these files below `data_dir`.
    pub files: Vec<FileQuestion>,
    /// Which of these network interfaces exist?
    pub taps: Vec<TapName>,
    /// Draw 16 random bytes.
    pub entropy: bool,
}

/// A domain to look up, by name and, where a record has one, by UUID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainQuestion {
    /// Its name.
    pub name: DomainName,
    /// Its UUID.
    pub uuid: Option<DomainUuid>,
}

impl DomainQuestion {
    /// What to ask about a record's domain: the answer settles its intent, see [`crate::reconcile`].
    #[must_use]
    pub fn of(record: &Record) -> Self {
        Self { name: DomainName::of(&record.instance), uuid: Some(record.uuid) }
    }
}

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileRole {
    /// The instance's own disk.
    Disk,
    /// The instance's seed.
    Seed,
    /// The base image.
    Base,
}

impl FileRole {
    /// The name in sentences.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Seed => "seed",
            Self::Base => "base image",
        }
    }
}

/// A file to look at: every part is walked beneath `data_dir` without following any link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileQuestion {
    /// What it is for.
    pub role: FileRole,
    /// The parts of its path below `data_dir`.
    pub parts: DataPath,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// The domain; `None` when it was not asked for.
    pub domain: Option<DomainFact>,
    /// The files, one answer a question.
    pub files: Vec<(FileRole, FileFact)>,
    /// Those of the asked interfaces that exist; `None` when nobody looked, which is not the same as none.
    pub taps: Option<Vec<TapName>>,
    /// 16 random bytes from the kernel, when asked for.
    pub random: Option<[u8; 16]>,
}

/// What libvirt says of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DomainFact {
    /// libvirt could not be asked.
    Unknown,
    /// It answered.
    Seen {
        /// The domain of that name.
        by_name: Option<Sighting>,
        /// The domain of that UUID; asked only where a record has one.
        by_uuid: Option<Sighting>,
    },
}

/// One domain in libvirt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: DomainUuid,
    /// What it does.
    pub state: DomainState,
}

/// libvirt's domain states (`virDomainState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DomainState {
    /// `VIR_DOMAIN_RUNNING`.
    Running,
    /// `VIR_DOMAIN_BLOCKED`.
    Blocked,
    /// `VIR_DOMAIN_PAUSED`.
    Paused,
    /// `VIR_DOMAIN_SHUTDOWN`: on its way down, still in memory.
    ShuttingDown,
    /// `VIR_DOMAIN_SHUTOFF`.
    Shutoff,
    /// `VIR_DOMAIN_CRASHED`: the guest panicked and its VMM is still there. (QEMU's end is `VIR_DOMAIN_SHUTOFF`, whatever
    /// the reason.)
    Crashed,
    /// `VIR_DOMAIN_PMSUSPENDED`: the guest sleeps.
    Suspended,
    /// `VIR_DOMAIN_NOSTATE` or a state of a later libvirt: treated as in memory, so nothing is removed under it.
    Unknown,
}

/// What the kernel says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileFact {
    /// Nothing there.
    Missing,
    /// A regular file.
    Regular {
        /// Its owner.
        uid: u32,
        /// How many names it has.
        links: u64,
        /// Its length.
        bytes: u64,
    },
    /// A link on the way, a directory, a FIFO, a socket or a device.
    Other,
    /// It could not be looked at.
    Unreadable,
}
