//! The rules, each with its id, and denials: what a refused request is answered.
//!
//! Room: `policy`. A denial is data: it is decided here and logged once, by the session.
use bcd_protocol::reply::{Denied, RuleName, Sentence};
use std::fmt;

#[cfg(test)]
mod tests;

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident = $id:literal,)*) => {
        /// A rule that a request can break. Ids are stable: logs, tests and clients match on them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $($(#[doc = $doc])+ $name,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The rule's id.
            #[must_use]
            pub fn id(self) -> &'static str {
                match self {
                    $(Self::$name => $id,)*
                }
            }

            /// What the rule says, in one sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)*
                }
            }
        }
    };
}

rules! {
    /// The peer's uid, as the kernel says, is not the configured node user's, or is root's or a guest's.
    PeerUid = "peer-uid",
    /// Something was asked before `hello`.
    HelloFirst = "hello-first",
    /// `hello` came a second time.
    HelloTwice = "hello-twice",
    /// The client speaks another version of the protocol.
    Version = "protocol-version",
    /// No record of that instance: bcd did not create it.
    NoRecord = "no-record",
    /// A domain of that name or UUID is there and bcd did not create it.
    DomainForeign = "domain-foreign",
    /// The verb is not allowed in the phase the domain is in.
    Phase = "phase",
    /// libvirt cannot be asked, so nothing can be known about the domain.
    DomainUnknown = "domain-unknown",
    /// An effect on this record was begun and its outcome cannot be told yet.
    Unfinished = "unfinished",
    /// As many instances as the configuration allows.
    MaxInstances = "max-instances",
    /// More vCPUs than the configuration allows.
    MaxVcpus = "max-vcpus",
    /// More memory than the configuration allows.
    MaxMemory = "max-memory",
    /// A larger disk than the configuration allows.
    MaxDisk = "max-disk",
    /// The bridge is not in `instance_bridges`.
    BridgeNotListed = "bridge-not-listed",
    /// Another instance has that MAC on that bridge.
    MacTaken = "mac-taken",
    /// Another instance's tap names begin with the same hash: use another id.
    TapTaken = "tap-taken",
    /// One instance names a MAC twice on one bridge.
    MacTwice = "mac-twice",
    /// The base image of an existing instance cannot change.
    ImageFixed = "image-fixed",
    /// The NICs of a domain in memory cannot change.
    NicsFixed = "nics-fixed",
    /// The disk of a domain in memory grows by `libvirt.blockresize`, not by a definition.
    DiskInUse = "disk-in-use",
    /// A disk cannot shrink.
    DiskShrinks = "disk-shrinks",
    /// No guest uid is free.
    UidsUsedUp = "uids-used-up",
    /// A file that the domain needs is not there.
    FileMissing = "file-missing",
    /// A file is no regular file, or a link lies on the way.
    FileKind = "file-kind",
    /// A file belongs to somebody else.
    FileOwner = "file-owner",
    /// A file has a second name.
    FileLinks = "file-links",
    /// A file could not be looked at.
    FileUnreadable = "file-unreadable",
    /// A network interface with one of the instance's tap names exists although the domain does not run.
    TapExists = "tap-exists",
    /// A fact that the decision needs was not gathered.
    FactMissing = "fact-missing",
    /// The rendered definition is larger than the wire allows.
    XmlTooLarge = "xml-too-large",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// A refusal: the rule and a sentence that names what broke it.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    rule: Rule,
    detail: Sentence,
}

impl Denial {
    pub(crate) fn new(rule: Rule, detail: impl AsRef<str>) -> Self {
        Self { rule, detail: Sentence::new(detail.as_ref()) }
    }

    /// The broken rule.
    #[must_use]
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// What broke it and what to do next.
    #[must_use]
    pub fn detail(&self) -> &Sentence {
        &self.detail
    }

    /// The reply's form.
    #[must_use]
    pub fn to_reply(&self) -> Denied {
        Denied { rule: RuleName::new(self.rule.id()), detail: self.detail.clone() }
    }
}
