//! Strategies for every message there can be.
use crate::definition::{Addresses, Definition, ImageFormat, ImageRef, Nic, Nics};
use crate::id::{AllocationId, BridgeName, DomainUuid, GuestUid, InstanceId, Sha256Digest};
use crate::limits;
use crate::net::MacAddress;
use crate::reply::{
    Defined, Denied, DomainXml, Failed, FailureKind, RecordView, RecordViews, RecordsPage, Reply, ReplyMessage,
    RuleName, Sentence, Welcome,
};
use crate::request::{Request, RequestId, RequestMessage};
use crate::size::{DiskBytes, MemoryBytes, Vcpus};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::collection::vec;
use proptest::prelude::*;

/// Numbers of every width, the edges of each width more often than chance would give them.
fn number() -> impl Strategy<Value = u64> {
    let edges = vec![0, 1, 250, 251, 255, 256, 65_535, 65_536, 4_294_967_295, 4_294_967_296, u64::MAX];
    prop_oneof![prop::sample::select(edges), any::<u64>(), 0..1000_u64]
}

fn instance() -> impl Strategy<Value = InstanceId> {
    "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?".prop_map(|text| InstanceId::parse(&text).unwrap())
}

fn address() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (any::<[u8; 4]>(), 0..=32_u8).prop_map(|(ip, len)| IpNet::V4(Ipv4Net::new(ip.into(), len).unwrap())),
        (any::<[u8; 16]>(), 0..=128_u8).prop_map(|(ip, len)| IpNet::V6(Ipv6Net::new(ip.into(), len).unwrap())),
    ]
}

fn nic() -> impl Strategy<Value = Nic> {
    let mac = any::<[u8; 6]>().prop_filter_map("no guest's MAC", |bytes| MacAddress::from_bytes(bytes).ok());
    ("[a-zA-Z0-9][a-zA-Z0-9._-]{0,14}", mac, vec(address(), 0..=limits::ADDRESSES_PER_NIC)).prop_map(
        |(bridge, mac, addresses)| Nic {
            bridge: BridgeName::parse(&bridge).unwrap(),
            mac,
            addresses: Addresses::try_from(addresses).unwrap(),
        },
    )
}

fn definition() -> impl Strategy<Value = Definition> {
    let format = prop::sample::select(vec![ImageFormat::Qcow2, ImageFormat::Raw]);
    (
        "[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}",
        1..=255_u64,
        16..=16_777_216_u64,
        disk(),
        any::<[u8; 32]>(),
        format,
        vec(nic(), 0..=limits::NICS),
    )
        .prop_map(|(allocation, vcpus, mib, disk, sha256, format, nics)| Definition {
            allocation: AllocationId::parse(&allocation).unwrap(),
            vcpus: Vcpus::new(vcpus).unwrap(),
            memory: MemoryBytes::new(mib << 20).unwrap(),
            disk,
            image: ImageRef { sha256: Sha256Digest::from_bytes(sha256), format },
            nics: Nics::try_from(nics).unwrap(),
        })
}

fn disk() -> impl Strategy<Value = DiskBytes> {
    (2_048..=137_438_953_472_u64).prop_map(|sectors| DiskBytes::new(sectors * 512).unwrap())
}

fn uid() -> impl Strategy<Value = GuestUid> {
    (limits::GUEST_UID_FIRST..=limits::GUEST_UID_LAST).prop_map(|uid| GuestUid::new(uid).unwrap())
}

fn uuid() -> impl Strategy<Value = DomainUuid> {
    any::<[u8; 16]>().prop_map(DomainUuid::from_bytes)
}

fn record() -> impl Strategy<Value = RecordView> {
    (instance(), uuid(), uid(), definition(), any::<bool>()).prop_map(
        |(instance, uuid, uid, definition, unfinished)| RecordView { instance, uuid, uid, definition, unfinished },
    )
}

fn sentence() -> impl Strategy<Value = Sentence> {
    "\\PC{0,512}".prop_map(|text| Sentence::new(&text))
}

pub(super) fn request() -> impl Strategy<Value = RequestMessage> {
    let request = prop_oneof![
        any::<u16>().prop_map(|version| Request::Hello { version }),
        (prop::option::of(instance()), any::<u16>()).prop_map(|(after, limit)| Request::Records { after, limit }),
        (instance(), definition()).prop_map(|(instance, definition)| Request::LibvirtPlan { instance, definition }),
        (instance(), definition()).prop_map(|(instance, definition)| Request::LibvirtDefine { instance, definition }),
        instance().prop_map(|instance| Request::LibvirtUndefine { instance }),
        (instance(), any::<bool>()).prop_map(|(instance, paused)| Request::LibvirtStart { instance, paused }),
        instance().prop_map(|instance| Request::LibvirtShutdown { instance }),
        instance().prop_map(|instance| Request::LibvirtDestroy { instance }),
        instance().prop_map(|instance| Request::LibvirtSuspend { instance }),
        instance().prop_map(|instance| Request::LibvirtResume { instance }),
        (instance(), disk()).prop_map(|(instance, disk)| Request::LibvirtBlockResize { instance, disk }),
        instance().prop_map(|instance| Request::Console { instance }),
    ];
    (number(), request).prop_map(|(id, request)| RequestMessage { id: RequestId(id), request })
}

pub(super) fn reply() -> impl Strategy<Value = ReplyMessage> {
    let page = (number(), any::<u32>(), vec(record(), 0..=usize::from(limits::RECORDS_PER_PAGE)), any::<bool>());
    let kind = prop::sample::select(vec![
        FailureKind::ResourcesExhausted,
        FailureKind::Unavailable,
        FailureKind::Timeout,
        FailureKind::Refused,
        FailureKind::Ledger,
    ]);
    let reply = prop_oneof![
        (any::<u16>(), sentence()).prop_map(|(version, package)| Reply::Hello(Welcome { version, package })),
        page.prop_map(|(generation, total, records, more)| {
            Reply::Records(RecordsPage { generation, total, records: RecordViews::try_from(records).unwrap(), more })
        }),
        "\\PC{0,2000}".prop_map(|text| Reply::Plan(DomainXml::try_from(text).unwrap())),
        (uuid(), uid(), any::<bool>()).prop_map(|(uuid, uid, changed)| Reply::Defined(Defined { uuid, uid, changed })),
        any::<bool>().prop_map(|changed| Reply::Done { changed }),
        Just(Reply::Console),
        ("[a-z0-9-]{1,48}", sentence())
            .prop_map(|(rule, detail)| { Reply::Denied(Denied { rule: RuleName::try_from(rule).unwrap(), detail }) }),
        (kind, sentence()).prop_map(|(kind, detail)| Reply::Failed(Failed { kind, detail })),
    ];
    (number(), reply).prop_map(|(id, reply)| ReplyMessage { id: RequestId(id), reply })
}
