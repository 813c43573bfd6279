//! The pipeline: who asks, what must be looked at, what is granted.
//!
//! Room: `policy`. Every request passes the same gates in the same order: peer, greeting, table, phase, judge.
use crate::denial::{Denial, Rule};
use crate::effect::{Grant, undo};
use crate::facts::{DomainFact, DomainQuestion, Facts, Questions};
use crate::judge;
use crate::name::DomainName;
use crate::phase::Phase;
use crate::record::{Record, RecordChange, Records};
use crate::table::{self, Needs, Row};
use bcd_protocol::config::Config;
use bcd_protocol::id::InstanceId;
use bcd_protocol::request::{Request, Verb};

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
    let row = admit(setting, request)?;
    let Some(instance) = request.instance() else { return Ok(Questions::default()) };
    let record = setting.records.get(instance);
    if record.is_none() && matches!(row.needs, Needs::Phases(phases) if !phases.contains(&Phase::Absent)) {
        return Err(no_record(instance));
    }
    let mut questions = judge::questions(record, request);
    questions.domain = Some(DomainQuestion { name: DomainName::of(instance), uuid: record.map(|record| record.uuid) });
    Ok(questions)
}

/// Grants or denies `request`.
///
/// # Errors
/// The denial: the first gate that it does not pass.
pub fn decide(setting: &Setting<'_>, facts: &Facts, request: &Request) -> Result<Grant, Denial> {
    let row = admit(setting, request)?;
    let Some(instance) = request.instance() else { return judge::about_helper(setting, request) };
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
    judge::about_domain(&judge::Case { setting, facts, instance, record, phase }, request)
}

/// What becomes of a record with an intent, now that libvirt says what is there. `None`: it cannot be told yet, or there
/// is nothing to settle.
#[must_use]
pub fn reconcile(record: &Record, fact: &DomainFact) -> Option<RecordChange> {
    let intent = record.intent.as_ref()?;
    let phase = Phase::of(&DomainName::of(&record.instance), Some(record), fact);
    let gone = match phase {
        Phase::Unknown => return None,
        Phase::Missing | Phase::Foreign | Phase::Absent => true,
        Phase::Stopped | Phase::Running | Phase::Paused => false,
    };
    Some(match intent.verb {
        // Whether a new definition arrived is plain to see. Whether a changed one did is not: the record goes back, the node
        // asks again, and a start defines from the record anyway.
        Verb::LibvirtDefine if record.is_being_created() && !gone => RecordChange::Put(record.finished()),
        Verb::LibvirtUndefine if gone => RecordChange::Remove(record.instance.clone()),
        Verb::LibvirtDefine
        | Verb::LibvirtUndefine
        | Verb::LibvirtBlockResize
        | Verb::LibvirtStart
        | Verb::LibvirtShutdown
        | Verb::LibvirtDestroy
        | Verb::LibvirtSuspend
        | Verb::LibvirtResume
        | Verb::Hello
        | Verb::Records
        | Verb::LibvirtPlan
        | Verb::Console => undo(record),
    })
}

/// The gates that need nothing but the connection.
fn admit(setting: &Setting<'_>, request: &Request) -> Result<&'static Row, Denial> {
    let Peer { uid, pid: _ } = setting.peer;
    if uid != setting.node_uid {
        return Err(Denial::new(
            Rule::PeerUid,
            format!("uid {uid} is not the node user's: only {} is answered", setting.config.helper.node_user.as_str()),
        ));
    }
    let verb = request.verb();
    let row = table::row(verb).ok_or_else(|| Denial::new(Rule::Phase, format!("{verb} is not in the table")))?;
    match (row.needs, setting.greeted) {
        (Needs::Connection, true) => Err(Denial::new(Rule::HelloTwice, "hello was said already on this connection")),
        (Needs::Greeting | Needs::Phases(_), false) => {
            Err(Denial::new(Rule::HelloFirst, format!("{verb} was asked before hello: say hello first")))
        }
        (Needs::Connection, false) | (Needs::Greeting | Needs::Phases(_), true) => Ok(row),
    }
}

fn in_phase(row: &Row, instance: &InstanceId, phase: Phase) -> Result<(), Denial> {
    let Needs::Phases(phases) = row.needs else { return Ok(()) };
    if phases.contains(&phase) {
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

fn no_record(instance: &InstanceId) -> Denial {
    Denial::new(Rule::NoRecord, format!("bcd has no record of instance {instance}: define it first"))
}

pub(crate) fn fact_missing(what: &str) -> Denial {
    Denial::new(Rule::FactMissing, format!("{what} was not looked up: this is a defect of bcd-helper"))
}
