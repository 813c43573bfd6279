//! Tests of the observer: what records and listing amount to together.
use super::*;
use crate::fault::FaultKind;
use crate::runtime::Domain;
use bcd_protocol::definition::{Definition, ImageFormat};
use bcd_protocol::id::{AllocationId, GuestUid, Sha256Digest};
use bcd_protocol::limits;
use bcd_protocol::size::{DiskBytes, MemoryBytes, Vcpus};

fn id(text: &str) -> InstanceId {
    InstanceId::parse(text).expect("an id")
}

fn uuid(n: u8) -> DomainUuid {
    DomainUuid::from_bytes([n; 16])
}

fn record(name: &str, n: u8) -> RecordView {
    RecordView {
        instance: id(name),
        uuid: uuid(n),
        uid: GuestUid::new(limits::GUEST_UID_FIRST).expect("a uid"),
        definition: Definition {
            allocation: AllocationId::parse("a1").expect("an allocation"),
            vcpus: Vcpus::new(1).expect("a count"),
            memory: MemoryBytes::new(64 << 20).expect("a size"),
            disk: DiskBytes::new(64 << 20).expect("a size"),
            image: ImageRef { sha256: Sha256Digest::from_bytes([1; 32]), format: ImageFormat::Raw },
            nics: Default::default(),
        },
        unfinished: false,
    }
}

fn records(generation: u64, records: Vec<RecordView>) -> Result<Option<Records>, Fault> {
    Ok(Some(Records { generation, records }))
}

fn domain(name: &str, n: u8, state: DomainState) -> Domain {
    Domain { uuid: uuid(n), name: Arc::from(name), state, boot: (state == DomainState::Running).then_some(7) }
}

fn listing(domains: Vec<Domain>) -> Arc<Listing> {
    Arc::new(Listing { domains, definitions: 1 })
}

fn down() -> Fault {
    Fault::new(FaultKind::Unavailable, "down")
}

#[test]
fn a_domain_is_ours_only_by_name_and_uuid_together() {
    let mut observer = Observer::default();
    let listed = listing(vec![
        domain("bcd-a", 1, DomainState::Running),
        domain("bcd-b", 9, DomainState::Running),
        domain("other", 3, DomainState::Running),
        domain("bcd-d", 4, DomainState::Stopped(StopReason::Crashed)),
    ]);
    let known = vec![record("a", 1), record("b", 2), record("c", 3)];
    let changes = observer.absorb(Fetched { listing: Ok(listed), records: records(1, known) });
    assert!(changes.any);
    assert_eq!(observer.domains().keys().map(InstanceId::as_str).collect::<Vec<_>>(), ["a"]);
    assert_eq!(observer.boot(&id("a")), Some(7));
    let foreign: Vec<_> = observer.foreign().iter().map(|d| (d.name.as_str(), d.state)).collect();
    let running = InstanceState::Running;
    assert_eq!(foreign, [("bcd-b", running), ("bcd-d", InstanceState::Stopped), ("other", running)]);
    assert_eq!(observer.state(&id("b")).state, InstanceState::Absent);
}

#[test]
fn what_cannot_be_read_is_unknown_and_never_stopped() {
    let mut observer = Observer::default();
    assert_eq!(observer.state(&id("a")).state, InstanceState::Unknown, "before the first look");
    let listed = listing(vec![domain("bcd-a", 1, DomainState::Stopped(StopReason::Unsaid))]);
    observer.absorb(Fetched { listing: Ok(listed.clone()), records: records(1, vec![record("a", 1)]) });
    assert_eq!(observer.state(&id("a")).state, InstanceState::Stopped);

    observer.absorb(Fetched { listing: Err(down()), records: Ok(None) });
    assert_eq!(observer.state(&id("a")).state, InstanceState::Unknown);
    assert!(matches!(observer.observed().domains, Reading::Unknown));
    assert!(matches!(observer.observed().records, Reading::Known(_)));
    assert_eq!(observer.unreadable().iter().map(|u| u.section).collect::<Vec<_>>(), [Section::Libvirt]);

    // Without the helper the states are still read, by the records as last known; but nothing is planned from them.
    observer.absorb(Fetched { listing: Ok(listed), records: Err(down()) });
    assert_eq!(observer.state(&id("a")).state, InstanceState::Stopped);
    assert!(matches!(observer.observed().records, Reading::Unknown));
    assert_eq!(observer.unreadable().iter().map(|u| u.section).collect::<Vec<_>>(), [Section::Records]);
}

#[test]
fn a_state_that_bcd_does_not_know_is_unknown() {
    assert_eq!(view(DomainState::Other).state, InstanceState::Unknown);
}

#[test]
fn the_moment_something_became_unreadable_stays_while_the_reason_stays() {
    let mut observer = Observer::default();
    observer.absorb(Fetched { listing: Err(down()), records: Ok(None) });
    let first = observer.unreadable();
    std::thread::sleep(std::time::Duration::from_millis(5));
    let changes = observer.absorb(Fetched { listing: Err(down()), records: Ok(None) });
    assert_eq!(observer.unreadable(), first);
    assert!(!changes.any, "nothing new to tell");
}

#[test]
fn a_second_look_at_the_same_host_changes_nothing_and_asks_for_nothing() {
    let mut observer = Observer::default();
    let listed = listing(vec![domain("bcd-a", 1, DomainState::Running), domain("x", 5, DomainState::Running)]);
    let first = observer.absorb(Fetched { listing: Ok(listed.clone()), records: records(1, vec![record("a", 1)]) });
    assert_eq!(first.foreign, Some(vec![uuid(5)]));
    assert_eq!(observer.absorb(Fetched { listing: Ok(listed), records: Ok(None) }), Changes::default());
}

#[test]
fn foreign_definitions_are_read_again_when_definitions_or_foreign_domains_change_and_not_for_states() {
    let mut observer = Observer::default();
    let look = |definitions, domains| Fetched {
        listing: Ok(Arc::new(Listing { domains, definitions })),
        records: records(1, vec![]),
    };
    let running = vec![domain("x", 5, DomainState::Running)];
    assert!(observer.absorb(look(1, running.clone())).foreign.is_some());
    let details = Details { vcpus: Some(2), memory_bytes: Some(5 << 20) };
    observer.describe(HashMap::from([(uuid(5), Arc::new(details))]));
    let stopped = vec![domain("x", 5, DomainState::Stopped(StopReason::Destroyed))];
    assert_eq!(observer.absorb(look(1, stopped)).foreign, None);
    assert_eq!(observer.foreign()[0].vcpus, Some(2), "what is known of it was forgotten");
    assert!(observer.absorb(look(2, running.clone())).foreign.is_some());
    observer.absorb(look(2, running.clone()));
    observer.forget_descriptions();
    assert!(observer.absorb(look(2, running)).foreign.is_some());
}

#[test]
fn what_a_guest_was_started_with_counts_for_that_start_alone() {
    let mut observer = Observer::default();
    let started = |boot| {
        let domain = Domain { boot: Some(boot), ..domain("bcd-a", 1, DomainState::Running) };
        Fetched { listing: Ok(listing(vec![domain])), records: records(1, vec![record("a", 1)]) }
    };
    observer.absorb(started(7));
    let asked = observer.unread_live();
    assert_eq!(asked.iter().map(|unread| unread.uuid).collect::<Vec<_>>(), [uuid(1)]);
    assert_eq!(observer.unread_live(), asked, "until it is answered it is to be asked");
    let other = HashMap::from([(uuid(1), Arc::new(Details { vcpus: Some(99), memory_bytes: None }))]);
    observer.take_live(asked.clone(), &other);
    assert_eq!(observer.runs_with(&id("a")).and_then(|d| d.vcpus), Some(99));
    assert_eq!(observer.unread_live(), [], "once for each start");
    observer.absorb(started(8));
    assert_eq!(observer.runs_with(&id("a")), None, "another start has other CPUs");
    assert_eq!(observer.unread_live().len(), 1);
    observer.take_live(asked, &other);
    assert_eq!(observer.runs_with(&id("a")), None, "an answer that comes too late");
    let asked = observer.unread_live();
    observer.take_live(asked, &HashMap::new());
    assert_eq!(observer.unread_live(), [], "one that the runtime did not find is not asked about for ever");
}

#[test]
fn a_record_alone_shows_that_the_runtime_is_installed() {
    let mut observer = Observer::default();
    observer.absorb(Fetched { listing: Err(down()), records: records(1, vec![]) });
    assert!(observer.runtimes().is_empty());
    observer.absorb(Fetched { listing: Err(down()), records: records(2, vec![record("a", 1)]) });
    assert_eq!(observer.runtimes().len(), 1);
}

#[test]
fn files_are_found_by_directory_and_images_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let layout = crate::layout::Layout::new(dir.path());
    assert_eq!(scan(&layout).expect("nothing yet"), Found::default());
    std::fs::create_dir_all(layout.instance(&id("a"))).expect("a directory");
    std::fs::create_dir_all(layout.instances().join("Not-An-Id")).expect("a directory");
    std::fs::create_dir_all(layout.images()).expect("a directory");
    std::fs::write(layout.instances().join("b"), "a file").expect("a file");
    std::fs::write(layout.seed(&id("a")), "seed").expect("a file");
    std::fs::write(layout.disk(&id("a")), "no qcow2").expect("a file");
    let image = ImageRef { sha256: Sha256Digest::from_bytes([3; 32]), format: ImageFormat::Qcow2 };
    for name in [format!("{}.qcow2", image.sha256), ".part-x".to_owned(), format!("{}.iso", image.sha256)] {
        std::fs::write(layout.images().join(name), "x").expect("a file");
    }
    let found = scan(&layout).expect("found");
    assert_eq!(found.files.keys().map(InstanceId::as_str).collect::<Vec<_>>(), ["a"]);
    let files = found.files.get(&id("a")).expect("a");
    assert!(files.seed);
    assert_eq!(files.disk, crate::plan::DiskFile::Unreadable, "a disk that makes no sense is not taken for none");
    assert_eq!(found.images, HashSet::from([image]));
}
