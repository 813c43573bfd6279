//! What the node may ask of the helper.
//!
//! Room: `protocol`. The enum is closed: policy fails to compile while its table lacks a verb.
use crate::definition::Definition;
use crate::id::InstanceId;
use crate::size::DiskBytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Matches a reply to its request. Chosen by the client; the helper only echoes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// One datagram from the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestMessage {
    /// Echoed in the reply.
    pub id: RequestId,
    /// What is asked.
    pub request: Request,
}

/// Every request there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// First on every connection: the protocol's version, [`crate::PROTOCOL_VERSION`].
    Hello {
        /// The client's version.
        version: u16,
    },
    /// A page of the helper's records, in the order of their ids.
    Records {
        /// Only ids behind this one.
        after: Option<InstanceId>,
        /// At most this many; the helper caps it at [`crate::limits::RECORDS_PER_PAGE`]. 0 answers the generation alone.
        limit: u16,
    },
    /// The XML that `LibvirtDefine` would define; changes nothing.
    LibvirtPlan {
        /// The instance.
        instance: InstanceId,
        /// What it would be made of.
        definition: Definition,
    },
    /// Defines a domain, or changes an existing one of ours. Never starts it.
    LibvirtDefine {
        /// The instance.
        instance: InstanceId,
        /// What it is to be made of.
        definition: Definition,
    },
    /// Removes a stopped domain's definition (NVRAM, managed save and all) and its record.
    LibvirtUndefine {
        /// The instance.
        instance: InstanceId,
    },
    /// Starts a stopped domain.
    LibvirtStart {
        /// The instance.
        instance: InstanceId,
        /// Leave its CPUs paused.
        paused: bool,
    },
    /// Presses the guest's ACPI power button once.
    LibvirtShutdown {
        /// The instance.
        instance: InstanceId,
    },
    /// Ends a domain at once.
    LibvirtDestroy {
        /// The instance.
        instance: InstanceId,
    },
    /// Pauses a running domain's CPUs.
    LibvirtSuspend {
        /// The instance.
        instance: InstanceId,
    },
    /// Lets a paused domain's CPUs run.
    LibvirtResume {
        /// The instance.
        instance: InstanceId,
    },
    /// Grows the root disk of a running or paused domain.
    LibvirtBlockResize {
        /// The instance.
        instance: InstanceId,
        /// The new virtual size.
        disk: DiskBytes,
    },
    /// Opens a running domain's serial console; the reply carries its descriptor.
    Console {
        /// The instance.
        instance: InstanceId,
    },
}

/// A request's name without its arguments, as tables, logs and metrics use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is the request of the same name")]
pub enum Verb {
    Hello,
    Records,
    LibvirtPlan,
    LibvirtDefine,
    LibvirtUndefine,
    LibvirtStart,
    LibvirtShutdown,
    LibvirtDestroy,
    LibvirtSuspend,
    LibvirtResume,
    LibvirtBlockResize,
    Console,
}

impl Verb {
    /// Every verb, in the order of the wire's tags.
    pub const ALL: [Self; 12] = [
        Self::Hello,
        Self::Records,
        Self::LibvirtPlan,
        Self::LibvirtDefine,
        Self::LibvirtUndefine,
        Self::LibvirtStart,
        Self::LibvirtShutdown,
        Self::LibvirtDestroy,
        Self::LibvirtSuspend,
        Self::LibvirtResume,
        Self::LibvirtBlockResize,
        Self::Console,
    ];

    /// The name in tables, logs and documents, e.g. `libvirt.define`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Records => "records",
            Self::LibvirtPlan => "libvirt.plan",
            Self::LibvirtDefine => "libvirt.define",
            Self::LibvirtUndefine => "libvirt.undefine",
            Self::LibvirtStart => "libvirt.start",
            Self::LibvirtShutdown => "libvirt.shutdown",
            Self::LibvirtDestroy => "libvirt.destroy",
            Self::LibvirtSuspend => "libvirt.suspend",
            Self::LibvirtResume => "libvirt.resume",
            Self::LibvirtBlockResize => "libvirt.blockresize",
            Self::Console => "console",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Request {
    /// The request's verb.
    #[must_use]
    pub fn verb(&self) -> Verb {
        match self {
            Self::Hello { .. } => Verb::Hello,
            Self::Records { .. } => Verb::Records,
            Self::LibvirtPlan { .. } => Verb::LibvirtPlan,
            Self::LibvirtDefine { .. } => Verb::LibvirtDefine,
            Self::LibvirtUndefine { .. } => Verb::LibvirtUndefine,
            Self::LibvirtStart { .. } => Verb::LibvirtStart,
            Self::LibvirtShutdown { .. } => Verb::LibvirtShutdown,
            Self::LibvirtDestroy { .. } => Verb::LibvirtDestroy,
            Self::LibvirtSuspend { .. } => Verb::LibvirtSuspend,
            Self::LibvirtResume { .. } => Verb::LibvirtResume,
            Self::LibvirtBlockResize { .. } => Verb::LibvirtBlockResize,
            Self::Console { .. } => Verb::Console,
        }
    }

    /// The instance it is about; `None` for requests about the helper itself.
    #[must_use]
    pub fn instance(&self) -> Option<&InstanceId> {
        match self {
            Self::Hello { .. } | Self::Records { .. } => None,
            Self::LibvirtPlan { instance, .. }
            | Self::LibvirtDefine { instance, .. }
            | Self::LibvirtUndefine { instance }
            | Self::LibvirtStart { instance, .. }
            | Self::LibvirtShutdown { instance }
            | Self::LibvirtDestroy { instance }
            | Self::LibvirtSuspend { instance }
            | Self::LibvirtResume { instance }
            | Self::LibvirtBlockResize { instance, .. }
            | Self::Console { instance } => Some(instance),
        }
    }
}

#[cfg(test)]
mod tests;
