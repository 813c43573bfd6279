//! `hello` and `records`.
use super::*;
use crate::effect::{Effect, Outcome};
use crate::sample::{Host, definition, id, nics, record};
use bcd_protocol::definition::Definition;
use bcd_protocol::request::Request;

fn host(count: u32) -> Host {
    let mut host = Host::new();
    for number in 0..count {
        let definition = Definition { nics: nics(&[]), ..definition() };
        host.add_record(record(&id(&format!("n{number:03}")), number, definition));
    }
    host
}

fn page(host: &Host, after: Option<&str>, limit: u16) -> RecordsPage {
    let grant = host.ask(&Request::Records { after: after.map(id), limit }).unwrap();
    assert_eq!((grant.effect(), grant.intent()), (&Effect::Nothing, None));
    match grant.settle(Outcome::Done).reply {
        Reply::Records(page) => page,
        other => panic!("{other:?}"),
    }
}

#[test]
fn hello_agrees_on_exactly_this_version() {
    let host = Host { greeted: false, ..Host::new() };
    let grant = host.ask(&Request::Hello { version: PROTOCOL_VERSION }).unwrap();
    let settled = grant.settle(Outcome::Done);
    assert_eq!(settled.change, None);
    let Reply::Hello(welcome) = settled.reply else { panic!() };
    assert_eq!((welcome.version, welcome.package.as_str()), (PROTOCOL_VERSION, "1.2.3"));
    for version in [PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1, u16::MAX] {
        let denial = host.ask(&Request::Hello { version }).unwrap_err();
        assert_eq!(denial.rule(), Rule::Version);
        assert!(denial.detail().as_str().contains(&format!("version {version} ")));
    }
}

#[test]
fn records_come_in_pages_without_gap_or_repetition() {
    let host = host(33);
    let mut ids = Vec::new();
    loop {
        let page = page(&host, ids.last().map(String::as_str), 14);
        assert_eq!((page.generation, page.total), (5, 33));
        ids.extend(page.records.iter().map(|view| view.instance.to_string()));
        assert_eq!(page.more, ids.len() < 33);
        if !page.more {
            break;
        }
    }
    assert_eq!(ids, (0..33).map(|number| format!("n{number:03}")).collect::<Vec<_>>());
}

#[test]
fn a_page_holds_as_many_as_asked_but_never_more_than_the_wire_takes() {
    let host = host(20);
    for (limit, expected) in [(0, 0), (1, 1), (13, 13), (14, 14), (15, 14), (u16::MAX, 14)] {
        let page = page(&host, None, limit);
        assert_eq!(page.records.len(), expected, "limit {limit}");
        assert!(page.more);
    }
    assert!(!page(&host, Some("n005"), 14).more);
    assert!(page(&host, Some("n004"), 14).more);
    assert_eq!(page(&host, Some("zzz"), 14).records.len(), 0);
    assert_eq!(page(&host, Some("n0045"), 1).records[0].instance, id("n005"));
}

#[test]
fn a_view_says_whether_work_is_unfinished() {
    let mut host = host(1);
    let record = host.records.get(&id("n000")).unwrap().intending(bcd_protocol::request::Verb::LibvirtStart);
    assert!(!page(&host, None, 1).records[0].unfinished);
    host.records.apply(crate::record::RecordChange::Put(record.clone()));
    let view = page(&host, None, 1).records[0].clone();
    assert!(view.unfinished);
    assert_eq!(
        (view.instance, view.uuid, view.uid, view.definition),
        (record.instance, record.uuid, record.uid, record.definition)
    );
}
