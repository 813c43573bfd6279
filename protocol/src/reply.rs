//! What the helper answers.
//!
//! Room: `protocol`.
use crate::definition::{Definition, TooMany, bounded};
use crate::id::{DomainUuid, GuestUid, InstanceId};
use crate::limits;
use crate::request::RequestId;
use crate::text::text_serde;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One datagram from the helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyMessage {
    /// The id of the request it answers.
    pub id: RequestId,
    /// The answer.
    pub reply: Reply,
}

/// Every answer there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To `Hello`.
    Hello(Welcome),
    /// To `Records`.
    Records(RecordsPage),
    /// To `LibvirtPlan`: the XML.
    Plan(DomainXml),
    /// To `LibvirtDefine`.
    Defined(Defined),
    /// To a verb that changes a domain's state or existence.
    Done {
        /// Whether anything was changed; `false` when it already was so.
        changed: bool,
    },
    /// To `Console`; one descriptor travels with it.
    Console,
    /// The policy refused. Nothing was done.
    Denied(Denied),
    /// The policy granted and the effect failed. The helper's log has the whole chain of causes.
    Failed(Failed),
}

/// The helper's side of the handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The helper's protocol version.
    pub version: u16,
    /// The helper's package version, for people.
    pub package: Sentence,
}

/// A page of records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsPage {
    /// Changes whenever any record does, and never returns to an earlier value while the helper runs. It begins at a
    /// random number, so that a restart is seen too.
    pub generation: u64,
    /// How many records there are in all.
    pub total: u32,
    /// The page, in the order of their ids.
    pub records: RecordViews,
    /// Whether more follow.
    pub more: bool,
}

/// What the node may know of a record: everything but how it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecordView {
    /// The instance.
    pub instance: InstanceId,
    /// The domain's UUID.
    pub uuid: DomainUuid,
    /// The uid its VMM runs as: the node shares the instance's files with it.
    pub uid: GuestUid,
    /// What it was defined from.
    pub definition: Definition,
    /// Whether an effect was begun and its outcome is not known yet.
    pub unfinished: bool,
}

/// To `LibvirtDefine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defined {
    /// The domain's UUID.
    pub uuid: DomainUuid,
    /// The uid its VMM runs as.
    pub uid: GuestUid,
    /// Whether anything was changed.
    pub changed: bool,
}

/// A refusal by the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denied {
    /// The rule's id, e.g. `bridge-not-listed`. The rules are listed in docs/protocol.md.
    pub rule: RuleName,
    /// A sentence that names the field or number and says what to do next.
    pub detail: Sentence,
}

/// A granted effect that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// What kind of failure.
    pub kind: FailureKind,
    /// One sentence; never a path outside bcd's own directories.
    pub detail: Sentence,
}

/// Kinds of failed effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailureKind {
    /// The host lacks memory or another resource for it now.
    ResourcesExhausted,
    /// libvirt or the kernel could not be reached; ask again.
    Unavailable,
    /// It took longer than its deadline.
    Timeout,
    /// The hypervisor or the kernel refused.
    Refused,
    /// The helper's own state could not be read or written.
    Ledger,
}

macro_rules! bounded_text {
    ($name:ident, $what:literal, $fits:expr) => {
        text_serde!($name, $what, $name::checked);

        impl $name {
            fn checked(text: &str) -> Result<Self, InvalidText> {
                let fits: fn(&str) -> bool = $fits;
                if fits(text) { Ok(Self(text.to_owned())) } else { Err(InvalidText($what)) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidText;
            fn try_from(text: String) -> Result<Self, InvalidText> {
                Self::checked(&text)
            }
        }
    };
}

/// A sentence for people, at most [`limits::DETAIL_CHARS`] characters, without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sentence(String);

impl Sentence {
    /// Makes a sentence of any text: control characters become spaces, and what is too long is cut with `…`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let mut out: String = text.chars().take(limits::DETAIL_CHARS).map(clean).collect();
        if text.chars().nth(limits::DETAIL_CHARS).is_some() {
            out.pop();
            out.push('…');
        }
        Self(out)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

bounded_text!(Sentence, "a sentence", |text| {
    text.chars().count() <= limits::DETAIL_CHARS && !text.chars().any(char::is_control)
});

impl From<Sentence> for String {
    fn from(sentence: Sentence) -> Self {
        sentence.0
    }
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A rule's id: lower-case words joined by hyphens, at most [`limits::RULE_CHARS`] characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RuleName(String);

impl RuleName {
    /// Makes a rule's id of any text: other characters become hyphens, and what is too long is cut.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let id: String =
            text.bytes().take(limits::RULE_CHARS).map(|b| if fits(b) { char::from(b) } else { '-' }).collect();
        Self(if id.is_empty() { "-".to_owned() } else { id })
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

bounded_text!(RuleName, "a rule's id", |text| {
    !text.is_empty()
        && text.len() <= limits::RULE_CHARS
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
});

impl From<RuleName> for String {
    fn from(rule: RuleName) -> Self {
        rule.0
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A domain's XML, at most [`limits::XML_BYTES`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DomainXml(String);

impl DomainXml {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

bounded_text!(DomainXml, "a domain's XML", |text| text.len() <= limits::XML_BYTES);

impl From<DomainXml> for String {
    fn from(xml: DomainXml) -> Self {
        xml.0
    }
}

/// A text in a reply that breaks its type's bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} in a reply is too long or has characters it may not have")]
pub struct InvalidText(&'static str);

bounded!(
    /// The records of one page, at most [`limits::RECORDS_PER_PAGE`].
    RecordViews,
    RecordView,
    limits::RECORDS_PER_PAGE as usize,
    "records of one page"
);

#[cfg(test)]
mod tests;
