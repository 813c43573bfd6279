//! Tests of the ledger on a real directory. They need root, whose alone it must be, and a place that no one else may write.
use super::*;
use bcd_policy::record::Intent;
use bcd_protocol::definition::{Definition, ImageFormat, ImageRef, Nics};
use bcd_protocol::id::{AllocationId, DomainUuid, GuestUid, Sha256Digest};
use bcd_protocol::limits::GUEST_UID_FIRST;
use bcd_protocol::request::Verb;
use bcd_protocol::size::{DiskBytes, MemoryBytes, Vcpus};
use std::os::unix::fs::{PermissionsExt, symlink};

fn record(id: &str, number: u8) -> Record {
    Record {
        version: RECORD_VERSION,
        instance: InstanceId::parse(id).unwrap(),
        uuid: DomainUuid::from_random([number; 16]),
        uid: GuestUid::new(GUEST_UID_FIRST + u32::from(number)).unwrap(),
        definition: Definition {
            allocation: AllocationId::parse("test").unwrap(),
            vcpus: Vcpus::new(1).unwrap(),
            memory: MemoryBytes::new(64 << 20).unwrap(),
            disk: DiskBytes::new(1 << 30).unwrap(),
            image: ImageRef { sha256: Sha256Digest::from_bytes([7; 32]), format: ImageFormat::Qcow2 },
            nics: Nics::default(),
        },
        intent: Some(Intent { verb: Verb::LibvirtDefine, before: None }),
    }
}

/// A state directory of root's alone; `None` where this is not root.
fn state() -> Option<tempfile::TempDir> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: the ledger belongs to root");
        return None;
    }
    Some(tempfile::Builder::new().prefix("bcd-ledger-test-").tempdir_in("/var/lib").unwrap())
}

/// Opens it as a helper that listens.
fn open(state: &Path) -> Result<(Ledger, Records), LoadError> {
    super::open(state, Holder::Listens)
}

fn names(state: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(state.join("records"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_written_is_read_again() {
    let Some(state) = state() else { return };
    let (ledger, records) = open(state.path()).unwrap();
    assert!(records.is_empty());
    ledger.write(&RecordChange::Put(record("a", 1))).unwrap();
    ledger.write(&RecordChange::Put(record("b", 2))).unwrap();
    let done = Record { intent: None, ..record("a", 1) };
    ledger.write(&RecordChange::Put(done.clone())).unwrap();
    ledger.write(&RecordChange::Remove(record("b", 2).instance)).unwrap();
    ledger.write(&RecordChange::Remove(record("b", 2).instance)).unwrap();
    drop(ledger);
    let (_ledger, records) = open(state.path()).unwrap();
    assert_eq!(records.iter().collect::<Vec<_>>(), [&done]);
    assert_eq!(names(state.path()), ["a.json"], "nothing else is left");
    let mode = std::fs::metadata(state.path().join("records/a.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_missing_state_directory_is_made_for_root_alone() {
    let Some(parent) = state() else { return };
    let path = parent.path().join("state");
    let _opened = open(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
    assert_eq!(std::fs::metadata(path.join("records")).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn unfinished_writes_are_removed_at_start() {
    let Some(state) = state() else { return };
    let (ledger, _) = open(state.path()).unwrap();
    ledger.write(&RecordChange::Put(record("a", 1))).unwrap();
    drop(ledger);
    std::fs::write(state.path().join("records/.a.part"), "{\"version\": 1, \"inst").unwrap();
    let (_ledger, records) = open(state.path()).unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!(names(state.path()), ["a.json"]);
}

#[test]
fn what_cannot_be_read_stops_the_start_and_is_named() {
    let good = serde_json::to_string(&record("a", 1)).unwrap();
    let cases: [(&str, String, &str); 7] = [
        ("a.json", String::new(), "EOF"),
        ("a.json", good[..good.len() / 2].to_owned(), "EOF"),
        ("a.json", good.replace("\"version\":1", "\"version\":2"), "version 2"),
        ("b.json", good.clone(), "not its name"),
        ("a.json.bak", good.clone(), "not its name"),
        ("a.json", good.replace("\"intent\"", "\"intend\""), "intend"),
        ("notes.txt", "hello".to_owned(), "expected"),
    ];
    for (name, text, reason) in cases {
        let Some(state) = state() else { return };
        drop(open(state.path()).unwrap());
        let path = state.path().join("records").join(name);
        std::fs::write(&path, &text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let said = crate::log::chain(&open(state.path()).unwrap_err());
        assert!(said.contains(name) && said.contains(reason), "{name}: {said}");
        assert!(path.exists(), "nothing is removed");
    }
}

#[test]
fn records_that_contradict_each_other_stop_the_start() {
    let Some(state) = state() else { return };
    let (ledger, _) = open(state.path()).unwrap();
    ledger.write(&RecordChange::Put(record("a", 1))).unwrap();
    ledger.write(&RecordChange::Put(Record { uuid: DomainUuid::from_random([9; 16]), ..record("b", 1) })).unwrap();
    drop(ledger);
    let said = crate::log::chain(&open(state.path()).unwrap_err());
    assert!(said.contains("same uid"), "{said}");
}

#[test]
fn two_helpers_do_not_share_a_state() {
    let Some(state) = state() else { return };
    let (_ledger, _) = open(state.path()).unwrap();
    assert!(matches!(open(state.path()), Err(LoadError::Locked { holder: Holder::Listens, .. })));
}

/// A way to spoil the state, and its name.
type Spoil = (&'static str, fn(&Path));

#[test]
fn a_state_that_others_can_change_is_refused() {
    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    fn give(path: &Path) {
        nix::unistd::chown(path, Some(nix::unistd::Uid::from_raw(65534)), None).unwrap();
    }
    let spoils: [Spoil; 5] = [
        ("mode", |state| mode(state, 0o770)),
        ("owner", |state| give(state)),
        ("record's owner", |state| give(&state.join("records/a.json"))),
        ("record's mode", |state| mode(&state.join("records/a.json"), 0o622)),
        ("record behind a link", |state| {
            std::fs::rename(state.join("records/a.json"), state.join("elsewhere")).unwrap();
            symlink(state.join("elsewhere"), state.join("records/a.json")).unwrap();
        }),
    ];
    for (what, spoil) in spoils {
        let Some(parent) = state() else { return };
        let path = parent.path().join("state");
        let (ledger, _) = open(&path).unwrap();
        ledger.write(&RecordChange::Put(record("a", 1))).unwrap();
        drop(ledger);
        spoil(&path);
        assert!(matches!(open(&path), Err(LoadError::Untrusted(_))), "{what}");
    }
}

#[test]
fn a_directory_on_the_way_that_others_can_change_is_refused_even_when_sticky() {
    let Some(parent) = state() else { return };
    let way = parent.path().join("way");
    std::fs::create_dir(&way).unwrap();
    for mode in [0o777, 0o1777, 0o775] {
        std::fs::set_permissions(&way, PermissionsExt::from_mode(mode)).unwrap();
        let said = open(&way.join("state")).unwrap_err();
        let LoadError::Untrusted(untrusted @ Untrusted::Writable { .. }) = said else { panic!("{mode:o}: {said:?}") };
        // Nobody is told to take /tmp away from everybody else.
        assert_eq!(untrusted.to_string().contains("chmod go-w"), mode & 0o1000 == 0, "{untrusted}");
        assert!(!way.join("state").exists(), "nothing is made there");
    }
    std::fs::set_permissions(&way, PermissionsExt::from_mode(0o755)).unwrap();
    symlink(&way, parent.path().join("link")).unwrap();
    assert!(matches!(open(&parent.path().join("link/state")), Err(LoadError::Untrusted(Untrusted::Open { .. }))));
}

#[test]
fn whoever_finds_the_ledger_taken_learns_whether_its_holder_ends_with_a_node() {
    let Some(state) = state() else { return };
    for holder in [Holder::EndsWithItsNode, Holder::Listens, Holder::EndsWithItsNode] {
        let held = super::open(state.path(), holder).unwrap();
        let Err(LoadError::Locked { holder: found, .. }) = open(state.path()) else { panic!("it is open twice") };
        assert_eq!(found, holder, "not what the one before was");
        drop(held);
    }
}
