//! Grants, their effects, and what becomes of the record afterwards.
//!
//! Room: `policy`. Fields are private and constructors are this crate's: an executor can only be handed what
//! [`crate::decide()`] granted.
use crate::name::DomainName;
use crate::record::{Record, RecordChange};
use bcd_protocol::id::{DomainUuid, GuestUid};
use bcd_protocol::reply::{Defined, DomainXml, Failed, FailureKind, Reply, Sentence};
use bcd_protocol::size::DiskBytes;

#[cfg(test)]
mod tests;

/// A domain of ours in libvirt: whoever acts looks it up by UUID and checks the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnDomain {
    pub(crate) name: DomainName,
    pub(crate) uuid: DomainUuid,
}

impl OwnDomain {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &DomainName {
        &self.name
    }

    /// Its UUID.
    #[must_use]
    pub fn uuid(&self) -> DomainUuid {
        self.uuid
    }
}

macro_rules! effect {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $(pub(crate) $field: $type,)*
        }

        impl $name {
            $($(#[$field_doc])* #[must_use] pub fn $field(&self) -> &$type { &self.$field })*
        }
    };
}

effect!(
    /// Define a domain from this XML.
    LibvirtDefine {
        /// The domain.
        domain: OwnDomain,
        /// Its whole definition.
        xml: DomainXml,
    }
);
effect!(
    /// Remove a stopped domain's definition: NVRAM, managed save, snapshot and checkpoint metadata and all.
    LibvirtUndefine {
        /// The domain.
        domain: OwnDomain,
    }
);
effect!(
    /// Define the domain afresh from the record, then start it: what starts is what root remembers, whatever happened to
    /// libvirt's copy meanwhile. A managed save is not resumed but discarded (`VIR_DOMAIN_START_FORCE_BOOT`): its XML is of
    /// another day, and may have NICs that are another instance's by now.
    LibvirtStart {
        /// The domain.
        domain: OwnDomain,
        /// Its whole definition.
        xml: DomainXml,
        /// Leave its CPUs stopped.
        paused: bool,
    }
);
effect!(
    /// Press the ACPI power button.
    LibvirtShutdown {
        /// The domain.
        domain: OwnDomain,
    }
);
effect!(
    /// End the domain at once.
    LibvirtDestroy {
        /// The domain.
        domain: OwnDomain,
    }
);
effect!(
    /// Stop its CPUs.
    LibvirtSuspend {
        /// The domain.
        domain: OwnDomain,
    }
);
effect!(
    /// Let its CPUs run.
    LibvirtResume {
        /// The domain.
        domain: OwnDomain,
    }
);
effect!(
    /// Tell the running VMM that its root disk is larger. libvirt itself would also cut it: whoever acts asks for the disk's
    /// capacity first and refuses a smaller size.
    LibvirtBlockResize {
        /// The domain.
        domain: OwnDomain,
        /// The new virtual size.
        disk: DiskBytes,
    }
);
effect!(
    /// Open the domain's serial pty. libvirt's live XML names it, and QEMU told libvirt: what is opened must be a terminal
    /// on devpts that belongs to the guest's uid.
    ConsoleOpen {
        /// The domain.
        domain: OwnDomain,
        /// The uid that the pty must belong to.
        uid: GuestUid,
    }
);

/// What to do. One executor a variant; there is no other way to act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: the answer is known.
    Nothing,
    /// See [`LibvirtDefine`].
    LibvirtDefine(LibvirtDefine),
    /// See [`LibvirtUndefine`].
    LibvirtUndefine(LibvirtUndefine),
    /// See [`LibvirtStart`].
    LibvirtStart(LibvirtStart),
    /// See [`LibvirtShutdown`].
    LibvirtShutdown(LibvirtShutdown),
    /// See [`LibvirtDestroy`].
    LibvirtDestroy(LibvirtDestroy),
    /// See [`LibvirtSuspend`].
    LibvirtSuspend(LibvirtSuspend),
    /// See [`LibvirtResume`].
    LibvirtResume(LibvirtResume),
    /// See [`LibvirtBlockResize`].
    LibvirtBlockResize(LibvirtBlockResize),
    /// See [`ConsoleOpen`].
    ConsoleOpen(ConsoleOpen),
}

/// What the record becomes when the effect happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum After {
    /// It stays as it is: no intent was written.
    Same,
    /// What was begun is done.
    Finished(Record),
    /// The domain is gone.
    Removed(Record),
}

/// A granted request: write the intent, do the effect, settle the outcome.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    effect: Effect,
    intent: Option<RecordChange>,
    after: After,
    reply: Reply,
}

/// How an effect ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It happened.
    Done,
    /// It failed, with one sentence.
    Failed(FailureKind, String),
}

/// What to write and what to answer.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The change to make durable before the reply is sent.
    pub change: Option<RecordChange>,
    /// The reply.
    pub reply: Reply,
}

impl Grant {
    /// An answer that needs no effect.
    pub(crate) fn answer(reply: Reply) -> Self {
        Self { effect: Effect::Nothing, intent: None, after: After::Same, reply }
    }

    /// An answer to a repetition: nothing changes.
    pub(crate) fn unchanged() -> Self {
        Self::answer(Reply::Done { changed: false })
    }

    /// An effect that no record tells of.
    pub(crate) fn unrecorded(effect: Effect, reply: Reply) -> Self {
        Self { effect, intent: None, after: After::Same, reply }
    }

    /// An effect that `record` (with its intent) tells of.
    pub(crate) fn recorded(record: Record, effect: Effect, reply: Reply) -> Self {
        Self { effect, intent: Some(RecordChange::Put(record.clone())), after: After::Finished(record), reply }
    }

    /// An effect after which `record` is forgotten.
    pub(crate) fn forgetting(record: Record, effect: Effect) -> Self {
        let reply = Reply::Done { changed: true };
        Self { effect, intent: Some(RecordChange::Put(record.clone())), after: After::Removed(record), reply }
    }

    /// Forgets `record` without any effect: its domain is gone already.
    pub(crate) fn forgetting_now(record: Record) -> Self {
        let reply = Reply::Done { changed: true };
        Self { effect: Effect::Nothing, intent: None, after: After::Removed(record), reply }
    }

    /// What to do.
    #[must_use]
    pub fn effect(&self) -> &Effect {
        &self.effect
    }

    /// What to make durable before it is done.
    #[must_use]
    pub fn intent(&self) -> Option<&RecordChange> {
        self.intent.as_ref()
    }

    /// What to make durable and to answer now that it ended so.
    ///
    /// A failure whose effect may still have happened (the other side could not be reached, or took too long) leaves the
    /// intent standing: it is reconciled before the record's next request.
    pub fn settle(self, outcome: Outcome) -> Settled {
        match outcome {
            Outcome::Done => {
                let change = match self.after {
                    After::Same => None,
                    After::Finished(record) => Some(RecordChange::Put(record.finished())),
                    After::Removed(record) => Some(RecordChange::Remove(record.instance)),
                };
                Settled { change, reply: self.reply }
            }
            Outcome::Failed(kind, detail) => {
                let change = match (kind, self.after) {
                    (FailureKind::Unavailable | FailureKind::Timeout | FailureKind::Ledger, _) | (_, After::Same) => {
                        None
                    }
                    (
                        FailureKind::ResourcesExhausted | FailureKind::Refused,
                        After::Finished(record) | After::Removed(record),
                    ) => Some(undo(&record)),
                };
                Settled { change, reply: Reply::Failed(Failed { kind, detail: Sentence::new(&detail) }) }
            }
        }
    }
}

/// What a record whose intent did not happen becomes.
pub(crate) fn undo(record: &Record) -> RecordChange {
    if record.is_being_created() {
        RecordChange::Remove(record.instance.clone())
    } else {
        RecordChange::Put(record.undone())
    }
}

/// The reply to a definition.
pub(crate) fn defined(record: &Record, changed: bool) -> Reply {
    Reply::Defined(Defined { uuid: record.uuid, uid: record.uid, changed })
}
