//! The judges: what each verb checks beyond the table, and the grant it gives.
//!
//! Room: `policy`. One function a family; values are checked against configuration, records and facts, in this order, so
//! that the first thing wrong is the one named.
use crate::decide::{Setting, fact_missing};
use crate::denial::{Denial, Rule};
use crate::effect::{self, Effect, Grant, OwnDomain};
use crate::facts::{Facts, FileFact, FileQuestion, FileRole, Questions};
use crate::name::{self, DomainName, TapName};
use crate::phase::Phase;
use crate::record::{Intent, RECORD_VERSION, Record};
use crate::xml;
use bcd_protocol::PROTOCOL_VERSION;
use bcd_protocol::definition::{Definition, ImageRef};
use bcd_protocol::id::{DomainUuid, GuestUid, InstanceId};
use bcd_protocol::limits;
use bcd_protocol::reply::{DomainXml, RecordView, RecordViews, RecordsPage, Reply, Sentence, Welcome};
use bcd_protocol::request::{Request, Verb};
use bcd_protocol::size::DiskBytes;
use std::collections::HashSet;

/// One request about one instance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) setting: &'a Setting<'a>,
    pub(crate) facts: &'a Facts,
    pub(crate) instance: &'a InstanceId,
    pub(crate) record: Option<&'a Record>,
    pub(crate) phase: Phase,
}

/// What a verb needs to know beside the domain's state.
pub(crate) fn questions(record: Option<&Record>, request: &Request) -> Questions {
    match request {
        Request::LibvirtDefine { instance, definition } => Questions {
            domain: None,
            files: files(instance, &definition.image),
            taps: Vec::new(),
            entropy: record.is_none(),
        },
        Request::LibvirtPlan { .. } => Questions { entropy: record.is_none(), ..Questions::default() },
        Request::LibvirtStart { instance, .. } => record.map_or_else(Questions::default, |record| Questions {
            domain: None,
            files: files(instance, &record.definition.image),
            taps: TapName::all(instance, record.definition.nics.len()),
            entropy: false,
        }),
        Request::Hello { .. }
        | Request::Records { .. }
        | Request::LibvirtUndefine { .. }
        | Request::LibvirtShutdown { .. }
        | Request::LibvirtDestroy { .. }
        | Request::LibvirtSuspend { .. }
        | Request::LibvirtResume { .. }
        | Request::LibvirtBlockResize { .. }
        | Request::Console { .. } => Questions::default(),
    }
}

fn files(instance: &InstanceId, image: &ImageRef) -> Vec<FileQuestion> {
    vec![
        FileQuestion { role: FileRole::Disk, parts: name::disk_parts(instance).to_vec() },
        FileQuestion { role: FileRole::Seed, parts: name::seed_parts(instance).to_vec() },
        FileQuestion { role: FileRole::Base, parts: name::image_parts(image).to_vec() },
    ]
}

/// Requests about the helper itself.
pub(crate) fn about_helper(setting: &Setting<'_>, request: &Request) -> Result<Grant, Denial> {
    match request {
        Request::Hello { version } => hello(setting, *version),
        Request::Records { after, limit } => Ok(records(setting, after.as_ref(), *limit)),
        Request::LibvirtPlan { .. }
        | Request::LibvirtDefine { .. }
        | Request::LibvirtUndefine { .. }
        | Request::LibvirtStart { .. }
        | Request::LibvirtShutdown { .. }
        | Request::LibvirtDestroy { .. }
        | Request::LibvirtSuspend { .. }
        | Request::LibvirtResume { .. }
        | Request::LibvirtBlockResize { .. }
        | Request::Console { .. } => Err(fact_missing("the instance")),
    }
}

/// Requests about one instance.
pub(crate) fn about_domain(case: &Case<'_>, request: &Request) -> Result<Grant, Denial> {
    match request {
        Request::Hello { .. } | Request::Records { .. } => about_helper(case.setting, request),
        Request::LibvirtPlan { definition, .. } => case.plan(definition),
        Request::LibvirtDefine { definition, .. } => case.define(definition),
        Request::LibvirtUndefine { .. } => case.undefine(),
        Request::LibvirtStart { paused, .. } => case.start(*paused),
        Request::LibvirtShutdown { .. } => case.simple(Verb::LibvirtShutdown, Phase::Stopped, |domain| {
            Effect::LibvirtShutdown(effect::LibvirtShutdown { domain })
        }),
        Request::LibvirtDestroy { .. } => case.simple(Verb::LibvirtDestroy, Phase::Stopped, |domain| {
            Effect::LibvirtDestroy(effect::LibvirtDestroy { domain })
        }),
        Request::LibvirtSuspend { .. } => case.simple(Verb::LibvirtSuspend, Phase::Paused, |domain| {
            Effect::LibvirtSuspend(effect::LibvirtSuspend { domain })
        }),
        Request::LibvirtResume { .. } => case.simple(Verb::LibvirtResume, Phase::Running, |domain| {
            Effect::LibvirtResume(effect::LibvirtResume { domain })
        }),
        Request::LibvirtBlockResize { disk, .. } => case.block_resize(*disk),
        Request::Console { .. } => case.console(),
    }
}

fn hello(setting: &Setting<'_>, version: u16) -> Result<Grant, Denial> {
    if version == PROTOCOL_VERSION {
        let package = Sentence::new(setting.package);
        return Ok(Grant::answer(Reply::Hello(Welcome { version: PROTOCOL_VERSION, package })));
    }
    Err(Denial::new(
        Rule::Version,
        format!(
            "the client speaks protocol version {version} and this helper {PROTOCOL_VERSION}: install one package and \
             restart both daemons"
        ),
    ))
}

fn records(setting: &Setting<'_>, after: Option<&InstanceId>, limit: u16) -> Grant {
    let most = usize::from(limit.min(limits::RECORDS_PER_PAGE));
    let mut rest = setting.records.after(after);
    let page: Vec<RecordView> = rest.by_ref().take(most).map(Record::view).collect();
    Grant::answer(Reply::Records(RecordsPage {
        generation: setting.generation,
        total: u32::try_from(setting.records.len()).unwrap_or(u32::MAX),
        more: rest.next().is_some(),
        records: RecordViews::try_from(page).unwrap_or_default(),
    }))
}

impl Case<'_> {
    fn plan(&self, definition: &Definition) -> Result<Grant, Denial> {
        self.judge_definition(definition)?;
        let record = self.record_of(definition)?;
        Ok(Grant::answer(Reply::Plan(self.xml(&record)?)))
    }

    fn define(&self, definition: &Definition) -> Result<Grant, Denial> {
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

    fn undefine(&self) -> Result<Grant, Denial> {
        let Some(record) = self.record else { return Ok(Grant::unchanged()) };
        if self.phase == Phase::Missing {
            return Ok(Grant::forgetting_now(record.clone()));
        }
        let effect = Effect::LibvirtUndefine(effect::LibvirtUndefine { domain: self.own(record) });
        Ok(Grant::forgetting(record.intending(Verb::LibvirtUndefine), effect))
    }

    fn start(&self, paused: bool) -> Result<Grant, Denial> {
        let record = self.own_record()?;
        match (self.phase, paused) {
            (Phase::Running, false) | (Phase::Paused, true) => return Ok(Grant::unchanged()),
            (Phase::Running, true) => return Err(self.out_of_phase("start paused", "suspend it")),
            (Phase::Paused, false) => return Err(self.out_of_phase("start", "resume it")),
            (Phase::Absent | Phase::Foreign | Phase::Missing | Phase::Stopped | Phase::Unknown, _) => {}
        }
        self.judge_definition(&record.definition)?;
        self.judge_files()?;
        if let Some(tap) = self.facts.taps.first() {
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

    /// A verb that leads from any allowed phase to `aim` and needs nothing else.
    fn simple(&self, verb: Verb, aim: Phase, effect: fn(OwnDomain) -> Effect) -> Result<Grant, Denial> {
        let record = self.own_record()?;
        if self.phase == aim || self.phase == Phase::Missing {
            return Ok(Grant::unchanged());
        }
        let effect = effect(self.own(record));
        Ok(Grant::recorded(record.intending(verb), effect, Reply::Done { changed: true }))
    }

    fn block_resize(&self, disk: DiskBytes) -> Result<Grant, Denial> {
        let record = self.own_record()?;
        self.judge_disk(disk)?;
        if disk == record.definition.disk {
            return Ok(Grant::unchanged());
        }
        let effect = effect::LibvirtBlockResize { domain: self.own(record), disk };
        let definition = Definition { disk, ..record.definition.clone() };
        let record = record.changing(Verb::LibvirtBlockResize, definition);
        Ok(Grant::recorded(record, Effect::LibvirtBlockResize(effect), Reply::Done { changed: true }))
    }

    fn console(&self) -> Result<Grant, Denial> {
        let record = self.own_record()?;
        let effect = effect::ConsoleOpen { domain: self.own(record), uid: record.uid };
        Ok(Grant::unrecorded(Effect::ConsoleOpen(effect), Reply::Console))
    }

    /// Everything a definition must keep to, whether it is new, changed, or about to start.
    fn judge_definition(&self, definition: &Definition) -> Result<(), Denial> {
        let config = &self.setting.config.helper;
        if self.record.is_none() {
            let most = usize::try_from(config.max_instances).unwrap_or(usize::MAX);
            if self.setting.records.len() >= most {
                return Err(Denial::new(
                    Rule::MaxInstances,
                    format!("there are {most} instances, the most that helper.max_instances allows"),
                ));
            }
        }
        let (vcpus, most) = (definition.vcpus.get(), config.max_vcpus);
        if vcpus > most {
            return Err(Denial::new(Rule::MaxVcpus, format!("vcpus is {vcpus}: helper.max_vcpus allows {most}")));
        }
        let (memory, most) = (definition.memory, config.max_memory_bytes);
        if memory > most {
            return Err(Denial::new(
                Rule::MaxMemory,
                format!("memory_bytes is {memory}: helper.max_memory_bytes allows {most}"),
            ));
        }
        self.judge_disk(definition.disk)?;
        self.judge_nics(definition)?;
        self.judge_change(definition)
    }

    fn judge_disk(&self, disk: DiskBytes) -> Result<(), Denial> {
        let most = self.setting.config.helper.max_disk_bytes;
        if disk > most {
            return Err(Denial::new(
                Rule::MaxDisk,
                format!("disk_bytes is {disk}: helper.max_disk_bytes allows {most}"),
            ));
        }
        match self.record.map(|record| record.definition.disk) {
            Some(now) if disk < now => Err(Denial::new(
                Rule::DiskShrinks,
                format!("disk_bytes is {disk} and the disk has {now}: a disk only grows"),
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn judge_nics(&self, definition: &Definition) -> Result<(), Denial> {
        let mut seen = HashSet::new();
        for (index, nic) in definition.nics.iter().enumerate() {
            if !self.setting.config.helper.instance_bridges.contains(&nic.bridge) {
                return Err(Denial::new(
                    Rule::BridgeNotListed,
                    format!("nics[{index}]: bridge {} is not in helper.instance_bridges", nic.bridge),
                ));
            }
            if !seen.insert((&nic.bridge, nic.mac)) {
                return Err(Denial::new(
                    Rule::MacTwice,
                    format!("nics[{index}]: mac {} is there twice on bridge {}", nic.mac, nic.bridge),
                ));
            }
            let holder = self.setting.records.mac_holder(&nic.bridge, nic.mac);
            if let Some(other) = holder.filter(|other| *other != self.instance) {
                return Err(Denial::new(
                    Rule::MacTaken,
                    format!("nics[{index}]: mac {} on bridge {} is instance {other}'s", nic.mac, nic.bridge),
                ));
            }
        }
        Ok(())
    }

    /// What may not change on an existing domain.
    fn judge_change(&self, definition: &Definition) -> Result<(), Denial> {
        let Some(record) = self.record else { return Ok(()) };
        let now = &record.definition;
        if definition.image != now.image {
            return Err(Denial::new(
                Rule::ImageFixed,
                format!(
                    "image is {} and the disk lies on {}: create another instance for another image",
                    definition.image.sha256, now.image.sha256
                ),
            ));
        }
        let in_memory = matches!(self.phase, Phase::Running | Phase::Paused);
        if in_memory && definition.nics != now.nics {
            return Err(Denial::new(
                Rule::NicsFixed,
                format!("nics of instance {} cannot change while it is {}: stop it first", self.instance, self.phase),
            ));
        }
        if in_memory && definition.disk != now.disk {
            return Err(Denial::new(
                Rule::DiskInUse,
                format!("the disk of instance {} is in use: grow it with libvirt.blockresize", self.instance),
            ));
        }
        Ok(())
    }

    fn judge_files(&self) -> Result<(), Denial> {
        for role in [FileRole::Disk, FileRole::Seed, FileRole::Base] {
            let what = role.as_str();
            let of = self.instance;
            let fact = self.facts.files.iter().find(|(found, _)| *found == role).map(|(_, fact)| *fact);
            match fact {
                None => return Err(fact_missing(what)),
                Some(FileFact::Missing) => {
                    return Err(Denial::new(Rule::FileMissing, format!("the {what} of instance {of} is not there")));
                }
                Some(FileFact::Other) => {
                    return Err(Denial::new(
                        Rule::FileKind,
                        format!("the {what} of instance {of} is no regular file, or a link leads to it"),
                    ));
                }
                Some(FileFact::Unreadable) => {
                    return Err(Denial::new(
                        Rule::FileUnreadable,
                        format!("the {what} of instance {of} could not be looked at: ask again"),
                    ));
                }
                Some(FileFact::Regular { uid, links, bytes: _ }) => {
                    if uid != self.setting.node_uid {
                        return Err(Denial::new(
                            Rule::FileOwner,
                            format!("the {what} of instance {of} belongs to uid {uid} and not to the node's user"),
                        ));
                    }
                    if links != 1 {
                        return Err(Denial::new(
                            Rule::FileLinks,
                            format!("the {what} of instance {of} has {links} names: remove the others"),
                        ));
                    }
                }
            }
        }
        Ok(())
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
            Denial::new(Rule::UidsUsedUp, format!("all guest uids from {} on are taken", limits::GUEST_UID_FIRST))
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

    fn xml(&self, record: &Record) -> Result<DomainXml, Denial> {
        xml::render(&xml::Parts {
            data_dir: self.setting.config.data_dir.as_path(),
            software: self.setting.software,
            record,
        })
        .ok_or_else(|| {
            Denial::new(
                Rule::XmlTooLarge,
                format!("the definition of instance {} is larger than {} bytes", self.instance, limits::XML_BYTES),
            )
        })
    }

    fn own(&self, record: &Record) -> OwnDomain {
        OwnDomain { name: DomainName::of(self.instance), uuid: record.uuid }
    }

    fn own_record(&self) -> Result<&Record, Denial> {
        self.record.ok_or_else(|| fact_missing("the record"))
    }

    fn out_of_phase(&self, what: &str, instead: &str) -> Denial {
        Denial::new(
            Rule::Phase,
            format!("{what} is not allowed while instance {} is {}: {instead}", self.instance, self.phase),
        )
    }
}
