//! The largest messages there can be fit a datagram, and the codec's own limit lets them through.
use super::*;
use crate::definition::{Addresses, Definition, ImageFormat, ImageRef, Nic, Nics};
use crate::id::{AllocationId, BridgeName, DomainUuid, GuestUid, InstanceId, Sha256Digest};
use crate::limits;
use crate::net::MacAddress;
use crate::reply::{Denied, DomainXml, RecordView, RecordViews, RecordsPage, Reply, ReplyMessage, RuleName, Sentence};
use crate::request::{Request, RequestId, RequestMessage};
use crate::size::{DiskBytes, MemoryBytes, Vcpus};

/// Each field as long as it can be.
fn definition() -> Definition {
    let addresses = vec!["2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/128".parse().unwrap(); limits::ADDRESSES_PER_NIC];
    let nic = Nic {
        bridge: BridgeName::parse(&"b".repeat(limits::INTERFACE_CHARS)).unwrap(),
        mac: MacAddress::from_bytes([0xfc; 6]).unwrap(),
        addresses: Addresses::try_from(addresses).unwrap(),
    };
    Definition {
        allocation: AllocationId::parse(&"a".repeat(limits::ALLOCATION_CHARS)).unwrap(),
        vcpus: Vcpus::new(255).unwrap(),
        memory: MemoryBytes::new(limits::MEMORY_MAX).unwrap(),
        disk: DiskBytes::new(limits::DISK_MAX).unwrap(),
        image: ImageRef { sha256: Sha256Digest::from_bytes([255; 32]), format: ImageFormat::Raw },
        nics: Nics::try_from(vec![nic; limits::NICS]).unwrap(),
    }
}

fn instance() -> InstanceId {
    InstanceId::parse(&"i".repeat(limits::INSTANCE_ID_CHARS)).unwrap()
}

fn record() -> RecordView {
    RecordView {
        instance: instance(),
        uuid: DomainUuid::from_bytes([255; 16]),
        uid: GuestUid::new(limits::GUEST_UID_LAST).unwrap(),
        definition: definition(),
        unfinished: true,
    }
}

fn replies() -> Vec<Reply> {
    let records = vec![record(); usize::from(limits::RECORDS_PER_PAGE)];
    let records = RecordViews::try_from(records).unwrap();
    let detail = Sentence::new(&"\u{10ffff}".repeat(limits::DETAIL_CHARS));
    let rule = RuleName::try_from("r".repeat(limits::RULE_CHARS)).unwrap();
    vec![
        Reply::Records(RecordsPage { generation: u64::MAX, total: u32::MAX, records, more: true }),
        Reply::Plan(DomainXml::try_from("x".repeat(limits::XML_BYTES)).unwrap()),
        Reply::Denied(Denied { rule, detail }),
    ]
}

#[test]
fn the_largest_replies_fit_and_come_back() {
    for reply in replies() {
        let message = ReplyMessage { id: RequestId(u64::MAX), reply };
        let bytes = encode(&message).unwrap();
        assert_eq!(decode::<ReplyMessage>(&bytes).unwrap(), message);
    }
}

#[test]
fn the_largest_request_fits_and_comes_back() {
    let request = Request::LibvirtDefine { instance: instance(), definition: definition() };
    let message = RequestMessage { id: RequestId(u64::MAX), request };
    let bytes = encode(&message).unwrap();
    assert!(bytes.len() < 4096, "{} bytes", bytes.len());
    assert_eq!(decode::<RequestMessage>(&bytes).unwrap(), message);
}

#[test]
fn the_largest_record_is_under_4_kib_as_the_page_size_assumes() {
    let bytes = encode(&record()).unwrap().len();
    assert!((2_500..4_096).contains(&bytes), "{bytes} bytes");
    assert!(usize::from(limits::RECORDS_PER_PAGE) * 4_096 < MESSAGE_BYTES);
}

#[test]
fn one_more_than_a_list_may_hold_is_refused_on_the_wire() {
    // A page with one record more than its bound, written by hand around encoded records.
    let record = encode(&record()).unwrap();
    let page = |count: u8| {
        let mut bytes = vec![1, 1, 0, 0, count];
        (0..count).for_each(|_| bytes.extend_from_slice(&record));
        bytes.push(0);
        decode::<ReplyMessage>(&bytes)
    };
    page(14).unwrap();
    let refused = page(15).unwrap_err().to_string();
    assert!(refused.contains("more than 14 records of one page"), "{refused}");
}
