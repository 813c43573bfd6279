//! Loading, indexes, uids.
use super::*;
use crate::sample::{definition, disk, id, nics, record, uid, uuid};

fn with_macs(name: &str, number: u32, list: &[(&str, u8)]) -> Record {
    record(&id(name), number, Definition { nics: nics(list), ..definition() })
}

fn load(records: &[&Record]) -> Result<Records, Contradiction> {
    Records::load(records.iter().map(|record| (*record).clone()).collect())
}

#[test]
fn records_that_agree_load_in_any_order() {
    let a = with_macs("a", 1, &[("br0", 1), ("br1", 1)]);
    let b = with_macs("b", 2, &[("br0", 2)]);
    let loaded = load(&[&b, &a]).unwrap();
    assert_eq!(loaded, load(&[&a, &b]).unwrap());
    assert_eq!((loaded.len(), loaded.is_empty()), (2, false));
    assert_eq!(loaded.iter().collect::<Vec<_>>(), [&a, &b]);
    assert_eq!(loaded.after(Some(&id("a"))).collect::<Vec<_>>(), [&b]);
    assert_eq!(loaded.after(None).count(), 2);
    assert_eq!(loaded.mac_holder(&crate::sample::bridge("br1"), crate::sample::mac(1)), Some(&id("a")));
    assert_eq!(loaded.mac_holder(&crate::sample::bridge("br1"), crate::sample::mac(2)), None);
    assert!(Records::default().is_empty());
    assert_eq!(load(&[]).unwrap(), Records::default());
}

#[test]
fn records_that_contradict_each_other_do_not_load_and_both_are_named() {
    let a = with_macs("a", 1, &[("br0", 1)]);
    let mut same_uid = with_macs("b", 2, &[]);
    same_uid.uid = a.uid;
    assert_eq!(load(&[&a, &same_uid]), Err(Contradiction::Uid(id("a"), id("b"), uid(1))));
    let mut same_uuid = with_macs("b", 2, &[]);
    same_uuid.uuid = a.uuid;
    assert_eq!(load(&[&a, &same_uuid]), Err(Contradiction::Uuid(id("a"), id("b"), uuid(1))));
    let same_mac = with_macs("b", 2, &[("br0", 2), ("br0", 1)]);
    assert_eq!(load(&[&a, &same_mac]), Err(Contradiction::Mac(id("a"), id("b"), crate::sample::mac(1))));
    let (one, two) = (with_macs("vm-117852", 3, &[]), with_macs("vm-1532487", 4, &[]));
    assert_eq!(load(&[&one, &two]), Err(Contradiction::Taps(one.instance, two.instance)));
    assert_eq!(load(&[&a, &a]), Err(Contradiction::Twice(id("a"))));
    assert_eq!(load(&[&a, &with_macs("a", 2, &[])]), Err(Contradiction::Twice(id("a"))));
}

#[test]
fn a_record_that_cannot_be_understood_does_not_load() {
    let mut future = with_macs("a", 1, &[]);
    future.version = RECORD_VERSION + 1;
    assert_eq!(load(&[&future]), Err(Contradiction::Version(id("a"), RECORD_VERSION + 1)));
    for row in table::TABLE {
        let begun = with_macs("a", 1, &[]).intending(row.verb);
        let expected = if row.recorded { Ok(()) } else { Err(Contradiction::Intent(id("a"), row.verb)) };
        assert_eq!(load(&[&begun]).map(drop), expected);
    }
}

#[test]
fn as_many_records_load_as_the_format_allows_and_no_more() {
    let many = |count: usize| (0..count).map(|n| with_macs(&format!("n{n}"), u32::try_from(n).unwrap(), &[])).collect();
    let full = Records::load(many(limits::RECORDS)).unwrap();
    assert_eq!(full.len(), limits::RECORDS);
    assert_eq!(Records::load(many(limits::RECORDS + 1)), Err(Contradiction::TooMany));
    // One that is there already is always admitted.
    full.admits(&with_macs("n0", 0, &[("br0", 1)])).unwrap();
}

#[test]
fn a_record_keeps_its_uid_and_uuid_for_life() {
    let records = load(&[&with_macs("a", 1, &[])]).unwrap();
    records.admits(&with_macs("a", 1, &[("br0", 1)])).unwrap();
    let mut other_uid = with_macs("a", 1, &[]);
    other_uid.uid = uid(2);
    let mut other_uuid = with_macs("a", 1, &[]);
    other_uuid.uuid = uuid(2);
    for changed in [other_uid, other_uuid] {
        assert_eq!(records.admits(&changed), Err(Contradiction::Twice(id("a"))));
    }
}

#[test]
fn what_one_record_holds_is_neither_taken_nor_dropped_by_another() {
    let a = with_macs("a", 1, &[("br0", 1)]);
    let mut records = load(&[&a]).unwrap();
    let mut thief = with_macs("b", 1, &[("br0", 1)]);
    records.apply(RecordChange::Put(thief.clone()));
    records.apply(RecordChange::Remove(id("b")));
    assert_eq!(records, load(&[&a]).unwrap());
    thief.instance = id("vm-117852");
    let held = with_macs("vm-1532487", 2, &[]);
    records.apply(RecordChange::Put(held.clone()));
    records.apply(RecordChange::Put(thief));
    assert_eq!(records.tap_holder(TapStem::of(&held.instance)), Some(&held.instance));
    records.apply(RecordChange::Remove(id("vm-117852")));
    assert_eq!(records.tap_holder(TapStem::of(&held.instance)), Some(&held.instance));
    assert!(records.has_uuid(&uuid(1)) && records.has_uuid(&uuid(2)));
    assert_eq!(records.mac_holder(&crate::sample::bridge("br0"), crate::sample::mac(1)), Some(&id("a")));
}

#[test]
fn a_removed_record_gives_everything_back() {
    let mut records = load(&[&with_macs("a", 1, &[("br0", 1)])]).unwrap();
    records.apply(RecordChange::Remove(id("a")));
    assert!(records.is_empty() && !records.has_uuid(&uuid(1)));
    assert_eq!(records.get(&id("a")), None);
    assert_eq!(records.mac_holder(&crate::sample::bridge("br0"), crate::sample::mac(1)), None);
    assert_eq!(records.tap_holder(TapStem::of(&id("a"))), None);
    records.apply(RecordChange::Remove(id("a")));
    records.admits(&with_macs("b", 1, &[("br0", 1)])).unwrap();
}

#[test]
fn a_changed_record_gives_back_what_it_no_longer_has() {
    let mut records = load(&[&with_macs("a", 1, &[("br0", 1)])]).unwrap();
    records.apply(RecordChange::Put(with_macs("a", 1, &[("br0", 2)])));
    assert_eq!(records, load(&[&with_macs("a", 1, &[("br0", 2)])]).unwrap());
}

#[test]
fn a_uid_comes_back_as_late_as_possible() {
    let last = limits::GUEST_UID_LAST - limits::GUEST_UID_FIRST;
    let mut records = Records::default();
    assert_eq!(records.free_uid(), Some(uid(0)));
    let a = with_macs("a", 0, &[]);
    records.apply(RecordChange::Put(a.clone()));
    records.apply(RecordChange::Remove(id("a")));
    assert_eq!(records.free_uid(), Some(uid(1)), "the uid just given back is not the next");
    records.apply(RecordChange::Put(with_macs("b", last, &[])));
    assert_eq!(records.free_uid(), Some(uid(0)), "behind the end comes the beginning");
    records.apply(RecordChange::Put(a.clone()));
    records.apply(RecordChange::Remove(id("a")));
    assert_eq!(records.free_uid(), Some(uid(1)), "and it goes on from there");
    records.apply(RecordChange::Put(with_macs("b", last, &[("br0", 1)])));
    assert_eq!(records.free_uid(), Some(uid(1)), "a change of a record gives no uid");
    records.apply(RecordChange::Put(with_macs("c", 1, &[])));
    records.apply(RecordChange::Put(with_macs("d", 3, &[])));
    assert_eq!(records.free_uid(), Some(uid(4)));
    assert_eq!(load(&[&with_macs("d", 3, &[]), &with_macs("c", 1, &[])]).unwrap().free_uid(), Some(uid(4)));
}

#[test]
fn the_last_free_uid_is_found_and_then_none() {
    let mut records = crate::sample::all_uids_but_17();
    assert_eq!(records.free_uid(), Some(uid(17)));
    records.apply(RecordChange::Put(with_macs("n17", 17, &[])));
    assert_eq!(records.free_uid(), None);
}

#[test]
fn a_record_survives_its_stored_form_and_nothing_else_does() {
    let begun =
        with_macs("a", 1, &[("br0", 1)]).changing(Verb::LibvirtDefine, Definition { disk: disk(20), ..definition() });
    let text = serde_json::to_string(&begun).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), begun);
    for bad in [
        text.replacen("\"uid\":2147287041", "\"uid\":0", 1),
        text.replacen("\"instance\":\"a\"", "\"instance\":\"../a\"", 1),
        text.replacen("{\"version\"", "{\"extra\":1,\"version\"", 1),
    ] {
        assert_ne!(bad, text);
        assert!(serde_json::from_str::<Record>(&bad).is_err(), "{bad}");
    }
}

#[test]
fn a_change_names_its_instance() {
    let a = with_macs("a", 1, &[]);
    assert_eq!(RecordChange::Remove(id("a")).instance(), &id("a"));
    assert_eq!(RecordChange::Put(a).instance(), &id("a"));
}
