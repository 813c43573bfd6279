//! The judges: what each verb checks beyond the table, and the grant it gives.
//!
//! Room: `policy`. One file a family: [`session`] (the helper itself), [`define`] (what a domain is), [`run`] (what it
//! does), with the checks they share in [`check`]. Values are checked against configuration, records and facts, in this
//! order, so that the first thing wrong is the one named.
use crate::decide::{Setting, no_record};
use crate::denial::{Denial, Rule};
use crate::effect::OwnDomain;
use crate::facts::{Facts, FileQuestion, FileRole, Questions};
use crate::name::{DataPath, DomainName, TapName};
use crate::phase::Phase;
use crate::record::Record;
use crate::xml;
use bcd_protocol::definition::ImageRef;
use bcd_protocol::id::InstanceId;
use bcd_protocol::limits;
use bcd_protocol::reply::DomainXml;
use bcd_protocol::request::Request;

pub(crate) mod check;
pub(crate) mod define;
pub(crate) mod run;
pub(crate) mod session;

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
        Request::LibvirtDefine { instance, definition } => {
            Questions { files: files(instance, &definition.image), entropy: record.is_none(), ..Questions::default() }
        }
        Request::LibvirtPlan { .. } => Questions { entropy: record.is_none(), ..Questions::default() },
        Request::LibvirtStart { instance, .. } => record.map_or_else(Questions::default, |record| Questions {
            files: files(instance, &record.definition.image),
            taps: TapName::all(instance, record.definition.nics.len()),
            ..Questions::default()
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
        FileQuestion { role: FileRole::Disk, parts: DataPath::disk(instance) },
        FileQuestion { role: FileRole::Seed, parts: DataPath::seed(instance) },
        FileQuestion { role: FileRole::Base, parts: DataPath::image(image) },
    ]
}

impl Case<'_> {
    /// The record, for verbs that have nothing to do without one.
    fn own_record(&self) -> Result<&Record, Denial> {
        self.record.ok_or_else(|| no_record(self.instance))
    }

    /// The domain of a record, for an effect.
    fn own(&self, record: &Record) -> OwnDomain {
        OwnDomain { name: DomainName::of(self.instance), uuid: record.uuid }
    }

    /// The XML that a record is defined as.
    fn xml(&self, record: &Record) -> Result<DomainXml, Denial> {
        let data_dir = self.setting.config.data_dir.as_path();
        bounded(self.instance, xml::render(&xml::Parts { data_dir, software: self.setting.software, record }))
    }
}

pub(crate) fn bounded(instance: &InstanceId, xml: Option<DomainXml>) -> Result<DomainXml, Denial> {
    xml.ok_or_else(|| {
        Denial::new(
            Rule::XmlTooLarge,
            format!(
                "the definition of instance {instance} is larger than {} bytes: give it fewer NICs or addresses",
                limits::XML_BYTES
            ),
        )
    })
}
