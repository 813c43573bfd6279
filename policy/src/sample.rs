//! A small host for this crate's tests: configuration, records, and what libvirt and the kernel would answer.
//!
//! Room: `policy`, tests alone. Invariant: questions are answered truthfully from the fields, so a test changes one field
//! and asks.
use crate::decide::{Peer, Setting, decide, questions};
use crate::denial::Denial;
use crate::effect::Grant;
use crate::facts::{DomainFact, DomainState, Facts, FileFact, FileRole, Questions, Sighting};
use crate::name::{DomainName, TapName};
use crate::phase::Phase;
use crate::record::{RECORD_VERSION, Record, RecordChange, Records};
use bcd_protocol::config::Config;
use bcd_protocol::definition::{Addresses, Definition, ImageFormat, ImageRef, Nic, Nics};
use bcd_protocol::id::{AllocationId, BridgeName, DomainUuid, GuestUid, InstanceId, Sha256Digest};
use bcd_protocol::limits;
use bcd_protocol::net::MacAddress;
use bcd_protocol::request::Request;
use bcd_protocol::size::{DiskBytes, MemoryBytes, Vcpus};
use std::collections::BTreeMap;

pub(crate) const NODE: u32 = 990;
pub(crate) const GIB: u64 = 1 << 30;

pub(crate) fn id(text: &str) -> InstanceId {
    InstanceId::parse(text).unwrap()
}

pub(crate) fn web() -> InstanceId {
    id("web")
}

pub(crate) fn disk(gib: u64) -> DiskBytes {
    DiskBytes::new(gib * GIB).unwrap()
}

pub(crate) fn bridge(name: &str) -> BridgeName {
    BridgeName::parse(name).unwrap()
}

pub(crate) fn mac(last: u8) -> MacAddress {
    MacAddress::from_bytes([0x52, 0x54, 0, 0, 0, last]).unwrap()
}

pub(crate) fn nic(name: &str, last: u8) -> Nic {
    Nic { bridge: bridge(name), mac: mac(last), addresses: Addresses::default() }
}

pub(crate) fn nics(list: &[(&str, u8)]) -> Nics {
    Nics::try_from(list.iter().map(|(name, last)| nic(name, *last)).collect::<Vec<_>>()).unwrap()
}

/// One GiB of memory, ten of disk, one NIC on `br0` with the MAC `…:01`.
pub(crate) fn definition() -> Definition {
    Definition {
        allocation: AllocationId::parse("alloc-1").unwrap(),
        vcpus: Vcpus::new(2).unwrap(),
        memory: MemoryBytes::new(GIB).unwrap(),
        disk: disk(10),
        image: ImageRef { sha256: Sha256Digest::from_bytes([7; 32]), format: ImageFormat::Qcow2 },
        nics: nics(&[("br0", 1)]),
    }
}

/// The record of an instance with the uid and UUID number `number`.
pub(crate) fn record(instance: &InstanceId, number: u32, definition: Definition) -> Record {
    Record {
        version: RECORD_VERSION,
        instance: instance.clone(),
        uuid: uuid(number),
        uid: uid(number),
        definition,
        intent: None,
    }
}

pub(crate) fn uid(number: u32) -> GuestUid {
    GuestUid::new(limits::GUEST_UID_FIRST + number).unwrap()
}

pub(crate) fn uuid(number: u32) -> DomainUuid {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    DomainUuid::from_random(bytes)
}

/// Records that have every guest uid but number 17.
pub(crate) fn all_uids_but_17() -> Records {
    static ALL: std::sync::OnceLock<Records> = std::sync::OnceLock::new();
    let make = || {
        let mut records = Records::default();
        let definition = Definition { nics: nics(&[]), ..definition() };
        for number in (0..=(limits::GUEST_UID_LAST - limits::GUEST_UID_FIRST)).filter(|number| *number != 17) {
            records.apply(RecordChange::Put(record(&id(&format!("n{number}")), number, definition.clone())));
        }
        records
    };
    ALL.get_or_init(make).clone()
}

/// A host where the bridges `br0` and `br1` are listed.
pub(crate) struct Host {
    pub(crate) config: Config,
    pub(crate) records: Records,
    pub(crate) peer: Peer,
    pub(crate) greeted: bool,
    /// libvirt's domains; `None`: it cannot be asked.
    pub(crate) domains: Option<Vec<Sighting>>,
    pub(crate) files: BTreeMap<FileRole, FileFact>,
    pub(crate) taps: Vec<TapName>,
    pub(crate) random: [u8; 16],
}

pub(crate) fn good_file() -> FileFact {
    FileFact::Regular { uid: NODE, links: 1, bytes: 4096 }
}

impl Host {
    pub(crate) fn new() -> Self {
        Self {
            config: Config::parse("[helper]\ninstance_bridges = [\"br0\", \"br1\"]\n").unwrap(),
            records: Records::default(),
            peer: Peer { uid: NODE, pid: 1 },
            greeted: true,
            domains: Some(Vec::new()),
            files: [FileRole::Disk, FileRole::Seed, FileRole::Base].map(|role| (role, good_file())).into(),
            taps: Vec::new(),
            random: [0xab; 16],
        }
    }

    /// A host where `web` is in `phase`.
    pub(crate) fn with_web(phase: Phase) -> Self {
        let mut host = Self::new();
        let number = 0;
        let state = match phase {
            Phase::Absent => return host,
            Phase::Foreign => {
                host.add_domain("bcd-web", 99, DomainState::Shutoff);
                return host;
            }
            Phase::Missing => None,
            Phase::Unknown => {
                host.domains = None;
                None
            }
            Phase::Stopped => Some(DomainState::Shutoff),
            Phase::Running => Some(DomainState::Running),
            Phase::Paused => Some(DomainState::Paused),
        };
        host.add_record(record(&web(), number, definition()));
        if let Some(state) = state {
            host.add_domain("bcd-web", number, state);
        }
        host
    }

    pub(crate) fn add_record(&mut self, record: Record) {
        self.records.admits(&record).unwrap();
        self.records.apply(RecordChange::Put(record));
    }

    pub(crate) fn add_domain(&mut self, name: &str, number: u32, state: DomainState) {
        let domain = Sighting { name: name.to_owned(), uuid: uuid(number), state };
        self.domains.as_mut().unwrap().push(domain);
    }

    pub(crate) fn setting(&self) -> Setting<'_> {
        Setting {
            config: &self.config,
            node_uid: NODE,
            records: &self.records,
            generation: 5,
            peer: self.peer,
            greeted: self.greeted,
            software: false,
            package: "1.2.3",
        }
    }

    pub(crate) fn look(&self, questions: &Questions) -> Facts {
        let domain = questions.domain.as_ref().map(|question| match &self.domains {
            None => DomainFact::Unknown,
            Some(domains) => DomainFact::Seen {
                by_name: domains.iter().find(|domain| domain.name == question.name.as_str()).cloned(),
                by_uuid: question.uuid.and_then(|uuid| domains.iter().find(|domain| domain.uuid == uuid).cloned()),
            },
        });
        Facts {
            domain,
            files: questions.files.iter().map(|question| (question.role, self.files[&question.role])).collect(),
            taps: Some(questions.taps.iter().filter(|tap| self.taps.contains(tap)).cloned().collect()),
            random: questions.entropy.then_some(self.random),
        }
    }

    /// What the helper does with a request.
    pub(crate) fn ask(&self, request: &Request) -> Result<Grant, Denial> {
        let setting = self.setting();
        decide(&setting, &self.look(&questions(&setting, request)?), request)
    }

    /// The same with facts that the test made.
    pub(crate) fn ask_with(&self, facts: &Facts, request: &Request) -> Result<Grant, Denial> {
        decide(&self.setting(), facts, request)
    }

    pub(crate) fn record(&self) -> &Record {
        self.records.get(&web()).unwrap()
    }

    /// What the record becomes while `request` is under way.
    pub(crate) fn begun(&self, request: &Request) -> Record {
        match self.ask(request).unwrap().intent() {
            Some(RecordChange::Put(record)) => record.clone(),
            other => panic!("no intent to put a record: {other:?}"),
        }
    }
}

pub(crate) fn define(definition: Definition) -> Request {
    Request::LibvirtDefine { instance: web(), definition }
}

pub(crate) fn start(paused: bool) -> Request {
    Request::LibvirtStart { instance: web(), paused }
}

pub(crate) fn resize(disk: DiskBytes) -> Request {
    Request::LibvirtBlockResize { instance: web(), disk }
}

pub(crate) fn domain_name() -> DomainName {
    DomainName::of(&web())
}
