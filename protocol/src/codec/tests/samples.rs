//! One message of every kind, with values that meet every width of integer and every optional part.
use crate::definition::{Addresses, Definition, ImageFormat, ImageRef, Nic, Nics};
use crate::id::{AllocationId, BridgeName, DomainUuid, GuestUid, InstanceId, Sha256Digest};
use crate::net::MacAddress;
use crate::reply::{
    Defined, Denied, DomainXml, Failed, FailureKind, RecordView, RecordViews, RecordsPage, Reply, ReplyMessage,
    RuleName, Sentence, Welcome,
};
use crate::request::{Request, RequestId, RequestMessage};
use crate::size::{DiskBytes, MemoryBytes, Vcpus};

pub(super) fn instance() -> InstanceId {
    InstanceId::parse("web-1").unwrap()
}

fn nic(bridge: &str, last: u8, addresses: &[&str]) -> Nic {
    let addresses: Vec<_> = addresses.iter().map(|a| a.parse().unwrap()).collect();
    Nic {
        bridge: BridgeName::parse(bridge).unwrap(),
        mac: MacAddress::from_bytes([0x52, 0x54, 0x00, 0xab, 0xcd, last]).unwrap(),
        addresses: Addresses::try_from(addresses).unwrap(),
    }
}

/// Two NICs, one of them with an address of either family.
pub(super) fn definition() -> Definition {
    Definition {
        allocation: AllocationId::parse("A.7_x").unwrap(),
        vcpus: Vcpus::new(2).unwrap(),
        memory: MemoryBytes::new(512 << 20).unwrap(),
        disk: DiskBytes::new(10 << 30).unwrap(),
        image: ImageRef {
            sha256: Sha256Digest::from_bytes(std::array::from_fn(|i| u8::try_from(i * 8).unwrap())),
            format: ImageFormat::Qcow2,
        },
        nics: Nics::try_from(vec![nic("br0", 1, &["192.0.2.7/24", "2001:db8::7/64"]), nic("br-2", 2, &[])]).unwrap(),
    }
}

/// No NIC, a raw image, and vCPUs that take three bytes.
fn bare_definition() -> Definition {
    Definition {
        vcpus: Vcpus::new(255).unwrap(),
        image: ImageRef { sha256: Sha256Digest::from_bytes([0xff; 32]), format: ImageFormat::Raw },
        nics: Nics::default(),
        ..definition()
    }
}

pub(super) fn record() -> RecordView {
    RecordView {
        instance: instance(),
        uuid: DomainUuid::from_bytes(std::array::from_fn(|i| u8::try_from(i).unwrap())),
        uid: GuestUid::new(0x7FFD_0001).unwrap(),
        definition: definition(),
        unfinished: true,
    }
}

fn request(id: u64, request: Request) -> RequestMessage {
    RequestMessage { id: RequestId(id), request }
}

fn reply(id: u64, reply: Reply) -> ReplyMessage {
    ReplyMessage { id: RequestId(id), reply }
}

pub(super) fn requests() -> Vec<(&'static str, RequestMessage)> {
    let instance = instance();
    let after = Some(InstanceId::parse("a").unwrap());
    let disk = DiskBytes::new(20 << 30).unwrap();
    vec![
        ("hello", request(0, Request::Hello { version: 1 })),
        ("hello-other-version", request(1, Request::Hello { version: u16::MAX })),
        ("records-first", request(250, Request::Records { after: None, limit: 14 })),
        ("records-after", request(251, Request::Records { after, limit: 251 })),
        ("records-generation", request(65_536, Request::Records { after: None, limit: 0 })),
        ("plan", request(3, Request::LibvirtPlan { instance: instance.clone(), definition: bare_definition() })),
        ("define", request(4, Request::LibvirtDefine { instance: instance.clone(), definition: definition() })),
        ("undefine", request(5, Request::LibvirtUndefine { instance: instance.clone() })),
        ("start", request(6, Request::LibvirtStart { instance: instance.clone(), paused: false })),
        ("start-paused", request(u64::MAX, Request::LibvirtStart { instance: instance.clone(), paused: true })),
        ("shutdown", request(7, Request::LibvirtShutdown { instance: instance.clone() })),
        ("destroy", request(8, Request::LibvirtDestroy { instance: instance.clone() })),
        ("suspend", request(9, Request::LibvirtSuspend { instance: instance.clone() })),
        ("resume", request(10, Request::LibvirtResume { instance: instance.clone() })),
        ("blockresize", request(11, Request::LibvirtBlockResize { instance: instance.clone(), disk })),
        ("console", request(12, Request::Console { instance })),
    ]
}

fn page(generation: u64, total: u32, records: Vec<RecordView>, more: bool) -> Reply {
    Reply::Records(RecordsPage { generation, total, records: RecordViews::try_from(records).unwrap(), more })
}

pub(super) fn replies() -> Vec<(&'static str, ReplyMessage)> {
    let record = record();
    let (uuid, uid) = (record.uuid, record.uid);
    let bare = RecordView { definition: bare_definition(), unfinished: false, ..record.clone() };
    let failed = |kind| Reply::Failed(Failed { kind, detail: Sentence::new("no") });
    let xml = DomainXml::try_from("<domain/>".to_owned()).unwrap();
    let rule = RuleName::try_from("bridge-not-listed".to_owned()).unwrap();
    vec![
        ("hello", reply(0, Reply::Hello(Welcome { version: 1, package: Sentence::new("0.1.0") }))),
        ("records", reply(1, page(u64::MAX, 300, vec![record, bare], true))),
        ("records-none", reply(251, page(7, 0, Vec::new(), false))),
        ("plan", reply(2, Reply::Plan(xml))),
        ("defined", reply(3, Reply::Defined(Defined { uuid, uid, changed: true }))),
        ("done-changed", reply(65_535, Reply::Done { changed: true })),
        ("done-as-it-was", reply(65_536, Reply::Done { changed: false })),
        ("console", reply(4_294_967_296, Reply::Console)),
        ("denied", reply(5, Reply::Denied(Denied { rule, detail: Sentence::new("br9 is not listed…") }))),
        ("failed-resources", reply(6, failed(FailureKind::ResourcesExhausted))),
        ("failed-unavailable", reply(7, failed(FailureKind::Unavailable))),
        ("failed-timeout", reply(8, failed(FailureKind::Timeout))),
        ("failed-refused", reply(9, failed(FailureKind::Refused))),
        ("failed-ledger", reply(10, failed(FailureKind::Ledger))),
    ]
}
