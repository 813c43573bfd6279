//! Judges `libvirt.plan`, `libvirt.define` and `libvirt.undefine`: what a domain is.
//!
//! Room: `policy`. A new domain is given its uid and UUID here, once: they stay its own until its record is forgotten.
use crate::decide::fact_missing;
use crate::denial::{Denial, Rule};
use crate::effect::{self, Effect, Grant};
use crate::judge::Case;
use crate::phase::Phase;
use crate::record::{Intent, RECORD_VERSION, Record};
use bcd_protocol::definition::Definition;
use bcd_protocol::id::{DomainUuid, GuestUid};
use bcd_protocol::limits;
use bcd_protocol::reply::Reply;
use bcd_protocol::request::Verb;

#[cfg(test)]
mod tests;

impl Case<'_> {
    pub(crate) fn plan(&self, definition: &Definition) -> Result<Grant, Denial> {
        self.judge_definition(definition)?;
        let record = self.record_of(definition)?;
        Ok(Grant::answer(Reply::Plan(self.xml(&record)?)))
    }

    pub(crate) fn define(&self, definition: &Definition) -> Result<Grant, Denial> {
        self.judge_definition(definition)?;
        self.judge_files()?;
        let record = self.record_of(definition)?;
        let same = self.record.is_some_and(|old| old.definition == *definition);
        if same && self.phase != Phase::Missing {
            return Ok(Grant::answer(effect::defined(&record, false)));
        }
        let (xml, domain, reply) = (self.xml(&record)?, self.own(&record), effect::defined(&record, true));
        Ok(Grant::recorded(record, Effect::LibvirtDefine(effect::LibvirtDefine { domain, xml }), reply))
    }

    pub(crate) fn undefine(&self) -> Result<Grant, Denial> {
        let Some(record) = self.record else { return Ok(Grant::unchanged()) };
        if self.phase == Phase::Missing {
            return Ok(Grant::forgetting_now(record.clone()));
        }
        let effect = Effect::LibvirtUndefine(effect::LibvirtUndefine { domain: self.own(record) });
        Ok(Grant::forgetting(record.intending(Verb::LibvirtUndefine), effect))
    }

    /// The record that a definition leads to: the old one's uid and UUID, or a new one's.
    fn record_of(&self, definition: &Definition) -> Result<Record, Denial> {
        if let Some(old) = self.record {
            return Ok(old.changing(Verb::LibvirtDefine, definition.clone()));
        }
        let uid = self.fresh_uid()?;
        let uuid = self.fresh_uuid()?;
        Ok(Record {
            version: RECORD_VERSION,
            instance: self.instance.clone(),
            uuid,
            uid,
            definition: definition.clone(),
            intent: Some(Intent { verb: Verb::LibvirtDefine, before: None }),
        })
    }

    fn fresh_uid(&self) -> Result<GuestUid, Denial> {
        self.setting.records.free_uid().ok_or_else(|| {
            Denial::new(
                Rule::UidsUsedUp,
                format!("all guest uids from {} on are taken: remove an instance", limits::GUEST_UID_FIRST),
            )
        })
    }

    fn fresh_uuid(&self) -> Result<DomainUuid, Denial> {
        let random = self.facts.random.ok_or_else(|| fact_missing("a random number"))?;
        let uuid = DomainUuid::from_random(random);
        if self.setting.records.has_uuid(&uuid) {
            return Err(fact_missing("a random number that no record has"));
        }
        Ok(uuid)
    }
}
