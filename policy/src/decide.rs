//! The pipeline: who asks, what must be looked at, what is granted.
//!
//! Room: `policy`. Every request passes the same gates in the same order: peer, greeting, unfinished work, phase, judge.
//! The whole list of requests is matched once, in [`decide()`], and without a wildcard.
use crate::denial::{Denial, Rule};
use crate::effect::Grant;
use crate::facts::{DomainFact, DomainQuestion, Facts, Questions};
use crate::judge::{self, Case};
use crate::name::DomainName;
use crate::phase::Phase;
use crate::record::{Record, RecordChange, Records};
use crate::table::{self, Needs, Row};
use bcd_protocol::config::Config;
use bcd_protocol::id::{GuestUid, InstanceId};
use bcd_protocol::request::{Request, Verb};

#[cfg(test)]
mod tests;

/// Who asks, as the kernel says (`SO_PEERCRED`): nothing that the client claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The uid it connected with.
    pub uid: u32,
    /// Its process, for the log alone.
    pub pid: i32,
}

/// Everything a decision depends on beside the facts and the request.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The uid of the configured node user.
    pub node_uid: u32,
    /// What root remembers.
    pub records: &'a Records,
    /// A number that changes with every change of the records.
    pub generation: u64,
    /// Who asks.
    pub peer: Peer,
    /// Whether this connection has said `hello`.
    pub greeted: bool,
    /// Whether guests run under software emulation.
    pub software: bool,
    /// This helper's package version, for people.
    pub package: &'static str,
}

/// What has to be looked at before `request` can be decided.
///
/// # Errors
/// The denial, where none of it matters: a wrong peer, no greeting, no such record.
pub fn questions(setting: &Setting<'_>, request: &Request) -> Result<Questions, Denial> {
    let row = admit(setting, request.verb())?;
    let Some(instance) = request.instance() else { return Ok(Questions::default()) };
    let record = setting.records.get(instance);
    if record.is_none() && !row.needs.allow(Phase::Absent) {
        return Err(no_record(instance));
    }
    Ok(Questions {
        domain: Some(DomainQuestion { name: DomainName::of(instance), uuid: record.map(|record| record.uuid) }),
        ..judge::questions(record, request)
    })
}

/// Grants or denies `request`.
///
/// A grant holds for the records it was made from: whoever calls must let no other change into them until
/// [`Grant::intent`] is in them, or two instances may be given one uid or MAC. [`Records::admits`] is the second lock on
/// that door.
///
/// # Errors
/// The denial: the first gate that it does not pass.
pub fn decide(setting: &Setting<'_>, facts: &Facts, request: &Request) -> Result<Grant, Denial> {
    let row = admit(setting, request.verb())?;
    let case = |instance| about(setting, facts, row, instance);
    match request {
        Request::Hello { version } => judge::session::hello(setting, *version),
        Request::Records { after, limit } => Ok(judge::session::records(setting, after.as_ref(), *limit)),
        Request::LibvirtPlan { instance, definition } => case(instance)?.plan(definition),
        Request::LibvirtDefine { instance, definition } => case(instance)?.define(definition),
        Request::LibvirtUndefine { instance } => case(instance)?.undefine(),
        Request::LibvirtStart { instance, paused } => case(instance)?.start(*paused),
        Request::LibvirtShutdown { instance } => case(instance)?.shutdown(),
        Request::LibvirtDestroy { instance } => case(instance)?.destroy(),
        Request::LibvirtSuspend { instance } => case(instance)?.suspend(),
        Request::LibvirtResume { instance } => case(instance)?.resume(),
        Request::LibvirtBlockResize { instance, disk } => case(instance)?.block_resize(*disk),
        Request::Console { instance } => case(instance)?.console(),
    }
}

/// What becomes of a record with an intent, now that libvirt was asked [`DomainQuestion::of`] it. `None`: it cannot be
/// told yet, or there is nothing to settle.
///
/// A record is forgotten only when what bcd was removing is gone *by its UUID*: a domain that was renamed meanwhile still
/// runs as the record's uid. A domain that was being created and is not seen keeps its record (and is then missing): the
/// request may still be in libvirt's hands, and a domain that arrives after its record is gone would be nobody's. The
/// node defines it again, or forgets it.
#[must_use]
pub fn reconcile(record: &Record, fact: &DomainFact) -> Option<RecordChange> {
    let intent = record.intent.as_ref()?;
    let is_there = match fact {
        DomainFact::Unknown => return None,
        DomainFact::Seen { by_uuid, by_name: _ } => by_uuid.is_some(),
    };
    Some(match intent.verb {
        Verb::LibvirtUndefine if !is_there => RecordChange::Remove(record.instance.clone()),
        Verb::LibvirtUndefine
        | Verb::LibvirtDefine
        | Verb::LibvirtBlockResize
        | Verb::LibvirtStart
        | Verb::LibvirtShutdown
        | Verb::LibvirtDestroy
        | Verb::LibvirtSuspend
        | Verb::LibvirtResume
        | Verb::Hello
        | Verb::Records
        | Verb::LibvirtPlan
        | Verb::Console => RecordChange::Put(record.doubted()),
    })
}

/// The gates that need nothing but the connection.
fn admit(setting: &Setting<'_>, verb: Verb) -> Result<Row, Denial> {
    let Peer { uid, pid: _ } = setting.peer;
    // Whatever the configuration says: root has no business here, and a guest's VMM least of all.
    let never = uid == 0 || GuestUid::new(uid).is_ok();
    if never || uid != setting.node_uid {
        return Err(Denial::new(
            Rule::PeerUid,
            format!("uid {uid} is not the node user's: only {} is answered", setting.config.helper.node_user.as_str()),
        ));
    }
    let row = table::row(verb);
    match (row.needs, setting.greeted) {
        (Needs::Connection, true) => Err(Denial::new(Rule::HelloTwice, "hello was said already on this connection")),
        (Needs::Greeting | Needs::Phases(_), false) => {
            Err(Denial::new(Rule::HelloFirst, format!("{verb} was asked before hello: say hello first")))
        }
        (Needs::Connection, false) | (Needs::Greeting | Needs::Phases(_), true) => Ok(row),
    }
}

/// The gates that every verb about an instance passes, and what its judge then works on.
fn about<'a>(
    setting: &'a Setting<'a>,
    facts: &'a Facts,
    row: Row,
    instance: &'a InstanceId,
) -> Result<Case<'a>, Denial> {
    let record = setting.records.get(instance);
    if record.is_some_and(|record| record.intent.is_some()) {
        return Err(Denial::new(
            Rule::Unfinished,
            format!("what was begun on instance {instance} is not settled yet: ask again once libvirt answers"),
        ));
    }
    let fact = facts.domain.as_ref().ok_or_else(|| fact_missing("the domain's state"))?;
    let phase = Phase::of(&DomainName::of(instance), record, fact);
    in_phase(row, instance, phase)?;
    Ok(Case { setting, facts, instance, record, phase })
}

fn in_phase(row: Row, instance: &InstanceId, phase: Phase) -> Result<(), Denial> {
    if row.needs.allow(phase) {
        return Ok(());
    }
    let name = DomainName::of(instance);
    Err(match phase {
        Phase::Unknown => {
            Denial::new(Rule::DomainUnknown, format!("libvirt does not say how domain {name} is: ask again"))
        }
        Phase::Foreign => Denial::new(
            Rule::DomainForeign,
            format!("domain {name} was not created by bcd: rename or remove it, or use another instance id"),
        ),
        Phase::Absent => no_record(instance),
        Phase::Missing | Phase::Stopped | Phase::Running | Phase::Paused => {
            Denial::new(Rule::Phase, format!("{} is not allowed while instance {instance} is {phase}", row.verb))
        }
    })
}

pub(crate) fn no_record(instance: &InstanceId) -> Denial {
    Denial::new(Rule::NoRecord, format!("bcd has no record of instance {instance}: define it first"))
}

pub(crate) fn fact_missing(what: &str) -> Denial {
    Denial::new(Rule::FactMissing, format!("{what} was not looked up: this is a defect of bcd-helper"))
}
