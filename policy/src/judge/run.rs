//! Judges `libvirt.start`, `shutdown`, `destroy`, `suspend`, `resume`, `blockresize` and `console`: what a domain does.
//!
//! Room: `policy`.
use crate::decide::fact_missing;
use crate::denial::{Denial, Rule};
use crate::effect::{self, Effect, Grant, OwnDomain};
use crate::judge::Case;
use crate::phase::Phase;
use bcd_protocol::definition::Definition;
use bcd_protocol::reply::Reply;
use bcd_protocol::request::Verb;
use bcd_protocol::size::DiskBytes;

#[cfg(test)]
mod tests;

impl Case<'_> {
    pub(crate) fn start(&self, paused: bool) -> Result<Grant, Denial> {
        let record = self.own_record()?;
        match (self.phase, paused) {
            (Phase::Running, false) | (Phase::Paused, true) => return Ok(Grant::unchanged()),
            (Phase::Running, true) => return Err(self.out_of_phase("start paused", "suspend it")),
            (Phase::Paused, false) => return Err(self.out_of_phase("start", "resume it")),
            (Phase::Absent | Phase::Foreign | Phase::Missing | Phase::Stopped | Phase::Unknown, _) => {}
        }
        self.judge_definition(&record.definition)?;
        self.judge_files()?;
        let taps = self.facts.taps.as_ref().ok_or_else(|| fact_missing("whether its taps exist"))?;
        if let Some(tap) = taps.first() {
            return Err(Denial::new(
                Rule::TapExists,
                format!(
                    "network interface {tap} exists already and is not bcd's: remove it before instance {} starts",
                    self.instance
                ),
            ));
        }
        let (xml, domain) = (self.xml(record)?, self.own(record));
        let effect = Effect::LibvirtStart(effect::LibvirtStart { domain, xml, paused });
        Ok(Grant::recorded(record.intending(Verb::LibvirtStart), effect, Reply::Done { changed: true }))
    }

    pub(crate) fn shutdown(&self) -> Result<Grant, Denial> {
        self.simple(Verb::LibvirtShutdown, Phase::Stopped, |domain| {
            Effect::LibvirtShutdown(effect::LibvirtShutdown { domain })
        })
    }

    pub(crate) fn destroy(&self) -> Result<Grant, Denial> {
        self.simple(Verb::LibvirtDestroy, Phase::Stopped, |domain| {
            Effect::LibvirtDestroy(effect::LibvirtDestroy { domain })
        })
    }

    pub(crate) fn suspend(&self) -> Result<Grant, Denial> {
        self.simple(Verb::LibvirtSuspend, Phase::Paused, |domain| {
            Effect::LibvirtSuspend(effect::LibvirtSuspend { domain })
        })
    }

    pub(crate) fn resume(&self) -> Result<Grant, Denial> {
        self.simple(Verb::LibvirtResume, Phase::Running, |domain| {
            Effect::LibvirtResume(effect::LibvirtResume { domain })
        })
    }

    /// A verb that leads from any allowed phase to `aim` and needs nothing else.
    fn simple(&self, verb: Verb, aim: Phase, effect: fn(OwnDomain) -> Effect) -> Result<Grant, Denial> {
        let record = self.own_record()?;
        if self.phase == aim || self.phase == Phase::Missing {
            return Ok(Grant::unchanged());
        }
        let effect = effect(self.own(record));
        Ok(Grant::recorded(record.intending(verb), effect, Reply::Done { changed: true }))
    }

    /// The recorded size is granted too: after an interruption nobody knows whether the VMM was told.
    pub(crate) fn block_resize(&self, disk: DiskBytes) -> Result<Grant, Denial> {
        let record = self.own_record()?;
        self.judge_disk(disk)?;
        let effect = effect::LibvirtBlockResize { domain: self.own(record), disk };
        let definition = Definition { disk, ..record.definition.clone() };
        let record = record.changing(Verb::LibvirtBlockResize, definition);
        Ok(Grant::recorded(record, Effect::LibvirtBlockResize(effect), Reply::Done { changed: true }))
    }

    pub(crate) fn console(&self) -> Result<Grant, Denial> {
        let record = self.own_record()?;
        let effect = effect::ConsoleOpen { domain: self.own(record), uid: record.uid };
        Ok(Grant::unrecorded(Effect::ConsoleOpen(effect), Reply::Console))
    }

    fn out_of_phase(&self, what: &str, instead: &str) -> Denial {
        Denial::new(
            Rule::Phase,
            format!("{what} is not allowed while instance {} is {}: {instead}", self.instance, self.phase),
        )
    }
}
