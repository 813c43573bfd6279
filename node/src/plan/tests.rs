//! Tests of the planner: from wanted and observed to steps.
use super::*;
use crate::spec::{self, NodeSpec};
use bcd_protocol::definition::Definition;
use bcd_protocol::id::DomainUuid;
use serde_json::{Value, json};
use std::sync::Arc;

mod model;

/// What a test's host holds, all readable unless it says otherwise.
#[derive(Clone)]
struct Stage {
    records: BTreeMap<InstanceId, RecordView>,
    domains: BTreeMap<InstanceId, DomainView>,
    files: BTreeMap<InstanceId, InstanceFiles>,
    images: HashSet<ImageRef>,
    runtimes: BTreeSet<RuntimeId>,
    foreign: Vec<ForeignDomain>,
    unreadable: Vec<Section>,
}

impl Default for Stage {
    fn default() -> Self {
        Self {
            records: BTreeMap::new(),
            domains: BTreeMap::new(),
            files: BTreeMap::new(),
            images: HashSet::new(),
            runtimes: BTreeSet::from([RuntimeId::parse(LIBVIRT_KVM).expect("an id")]),
            foreign: Vec::new(),
            unreadable: Vec::new(),
        }
    }
}

impl Stage {
    fn observed(&self) -> Observed<'_> {
        fn reading<T>(value: T, section: Section, unreadable: &[Section]) -> Reading<T> {
            if unreadable.contains(&section) { Reading::Unknown } else { Reading::Known(value) }
        }
        Observed {
            records: reading(&self.records, Section::Records, &self.unreadable),
            domains: reading(&self.domains, Section::Libvirt, &self.unreadable),
            files: reading(&self.files, Section::Files, &self.unreadable),
            images: &self.images,
            runtimes: &self.runtimes,
            foreign: &self.foreign,
        }
    }

    /// A host on which every instance of the document is as wanted, and running.
    fn converged(desired: &Desired) -> Self {
        let mut stage = Self::default();
        for (number, (id, wanted)) in desired.iter().enumerate() {
            let definition = wanted.definition().expect("a definition").clone();
            stage.images.insert(definition.image);
            stage.hold(id, definition, number, InstanceState::Running);
        }
        stage
    }

    fn hold(&mut self, id: &InstanceId, definition: Definition, number: usize, state: InstanceState) {
        let uid = GuestUid::new(0x7FFD_0000 + u32::try_from(number).expect("small")).expect("a uid");
        let uuid = DomainUuid::from_bytes([u8::try_from(number % 256).expect("small"); 16]);
        let disk = DiskFile::Ready { virtual_bytes: definition.disk.get(), written: true };
        self.files.insert(id.clone(), InstanceFiles { disk, seed: true, shared: Some(uid), made_for: None });
        self.records.insert(id.clone(), RecordView { instance: id.clone(), uuid, uid, definition, unfinished: false });
        self.domains.insert(id.clone(), DomainView { state, stop_reason: None });
    }

    fn set(&mut self, name: &str, state: InstanceState) {
        self.domains.get_mut(&id(name)).expect("a domain").state = state;
    }

    fn plan(&self, desired: &Desired) -> Plan {
        plan(desired, &self.observed())
    }
}

fn id(text: &str) -> InstanceId {
    InstanceId::parse(text).expect("an id")
}

fn instance(name: &str, more: Value) -> Value {
    let mut instance = json!({
        "id": name, "allocation": "x", "runtime": "libvirt-kvm", "hostname": "h", "vcpus": 1,
        "memory_bytes": 1 << 28, "disk_bytes": 1 << 30,
        "image": {"url": "https://a.example/x", "sha256": "0".repeat(64), "format": "qcow2"},
    });
    for (key, value) in more.as_object().expect("fields") {
        instance[key] = value.clone();
    }
    instance
}

fn spec(instances: &[Value]) -> Arc<NodeSpec> {
    let text = json!({ "instances": instances }).to_string();
    Arc::new(spec::parse("a.json", &text).expect("a document"))
}

fn desired(instances: &[Value]) -> Desired {
    Desired::of(spec(instances))
}

fn one(more: Value) -> Desired {
    desired(&[instance("a", more)])
}

/// The only change of a plan.
#[track_caller]
fn only(plan: &Plan) -> &Change {
    assert_eq!(plan.changes.len(), 1, "{plan:?}");
    &plan.changes[0]
}

#[track_caller]
fn refusal(plan: &Plan) -> &Refusal {
    only(plan).refusal.as_ref().expect("a refusal")
}

fn disk(bytes: u64) -> DiskBytes {
    DiskBytes::new(bytes).expect("a size")
}

const NEW: [Step; 4] = [Step::FetchImage, Step::CreateDisk, Step::WriteSeed, Step::Define];

#[test]
fn a_new_instance_is_made_defined_shared_and_brought_to_its_state() {
    for (state, last) in [
        ("running", &[Step::Share, Step::Start { paused: false }][..]),
        ("paused", &[Step::Share, Step::Start { paused: true }]),
        ("stopped", &[]),
    ] {
        let wanted = one(json!({ "desired_state": state }));
        let plan = Stage::default().plan(&wanted);
        assert_eq!(only(&plan).steps, [&NEW, last].concat());
        assert_eq!(only(&plan).phase, Phase::Change);
        let mut stage = Stage::default();
        stage.images.extend(wanted.images());
        assert_eq!(only(&stage.plan(&wanted)).steps[0], Step::CreateDisk, "an image that is there is not fetched");
    }
}

#[test]
fn a_host_as_wanted_needs_nothing() {
    let wanted = desired(&[instance("a", json!({})), instance("b", json!({}))]);
    let plan = Stage::converged(&wanted).plan(&wanted);
    assert_eq!(plan, Plan { unchanged: 2, ..Plan::default() });
    assert_eq!(describe(&plan), ["2 instances are as wanted"]);
}

#[test]
fn every_state_leads_to_every_wanted_one() {
    use InstanceState::{Absent, Crashed, Paused, Running, ShuttingDown, Stopped};
    let start = Step::Start { paused: false };
    let start_paused = Step::Start { paused: true };
    let table: [(InstanceState, &str, &[Step]); 18] = [
        (Running, "running", &[]),
        (Running, "paused", &[Step::Suspend]),
        (Running, "stopped", &[Step::PowerOff]),
        (Paused, "running", &[Step::Resume]),
        (Paused, "paused", &[]),
        (Paused, "stopped", &[Step::Resume, Step::PowerOff]),
        (Stopped, "running", &[start]),
        (Stopped, "paused", &[start_paused]),
        (Stopped, "stopped", &[]),
        (ShuttingDown, "running", &[]),
        (ShuttingDown, "paused", &[]),
        (ShuttingDown, "stopped", &[Step::PowerOff]),
        (Crashed, "running", &[Step::Destroy, start]),
        (Crashed, "paused", &[Step::Destroy, start_paused]),
        (Crashed, "stopped", &[Step::Destroy]),
        (Absent, "running", &[Step::Define, start]),
        (Absent, "paused", &[Step::Define, start_paused]),
        (Absent, "stopped", &[Step::Define]),
    ];
    for (state, want, steps) in table {
        let wanted = one(json!({ "desired_state": want }));
        let mut stage = Stage::converged(&wanted);
        if state == Absent {
            stage.domains.clear();
        } else {
            stage.set("a", state);
        }
        let plan = stage.plan(&wanted);
        let found: &[Step] = plan.changes.first().map_or(&[], |change| &change.steps);
        assert_eq!(found, steps, "{state:?} to {want}");
        let phase = plan.changes.first().map(|change| change.phase);
        let stops = matches!(steps.last(), Some(Step::PowerOff | Step::Destroy));
        assert_eq!(phase == Some(Phase::Stop), stops, "{state:?} to {want}");
    }
}

#[test]
fn nothing_is_decided_from_what_could_not_be_read() {
    let wanted = desired(&[instance("a", json!({})), instance("b", json!({"ssh_from_host_only": true}))]);
    for section in [Section::Records, Section::Libvirt, Section::Files] {
        let stage = Stage { unreadable: vec![section], ..Stage::default() };
        let plan = stage.plan(&wanted);
        assert_eq!(plan.unreadable, [section]);
        assert!(plan.changes.iter().all(|change| change.steps.is_empty()), "{plan:?}");
        assert_eq!(only(&plan).instance, id("b"), "what fails anyway is still said");
    }
    let mut stage = Stage::converged(&one(json!({})));
    stage.set("a", InstanceState::Unknown);
    for wanted in [one(json!({"desired_state": "stopped"})), desired(&[])] {
        let plan = stage.plan(&wanted);
        assert_eq!((only(&plan).phase, &only(&plan).steps[..]), (Phase::Held, &[][..]));
        assert_eq!(refusal(&plan).kind, FaultKind::Unavailable);
    }
}

#[test]
fn an_instance_that_left_the_document_is_deleted_with_its_files() {
    let wanted = one(json!({}));
    let mut stage = Stage::converged(&wanted);
    let gone = desired(&[]);
    let plan = stage.plan(&gone);
    assert_eq!(only(&plan).steps, [Step::Destroy, Step::Undefine, Step::RemoveFiles]);
    assert_eq!(only(&plan).phase, Phase::Delete);
    stage.set("a", InstanceState::Stopped);
    assert_eq!(only(&stage.plan(&gone)).steps, [Step::Undefine, Step::RemoveFiles]);
    stage.domains.clear();
    assert_eq!(only(&stage.plan(&gone)).steps, [Step::Undefine, Step::RemoveFiles], "only the record is left");
    stage.files.clear();
    assert_eq!(only(&stage.plan(&gone)).steps, [Step::Undefine]);
    let mut stage = Stage::converged(&wanted);
    (stage.records, stage.domains) = (BTreeMap::new(), BTreeMap::new());
    assert_eq!(only(&stage.plan(&gone)).steps, [Step::RemoveFiles], "only the directory is left");
}

#[test]
fn files_that_no_record_stands_for_are_made_again_unless_this_process_made_them_for_this_wish() {
    let wanted = one(json!({}));
    let mut stage = Stage::default();
    stage.images.extend(wanted.images());
    let disk = DiskFile::Ready { virtual_bytes: 1 << 30, written: false };
    let mut files = InstanceFiles { disk, seed: true, shared: None, made_for: None };
    stage.files.insert(id("a"), files);
    let made = [Step::CreateDisk, Step::WriteSeed, Step::Define, Step::Share, Step::Start { paused: false }];
    assert_eq!(only(&stage.plan(&wanted)).steps, [&[Step::RemoveFiles], &made[..]].concat());
    let other = one(json!({"allocation": "y"}));
    files.made_for = other.get(&id("a")).map(Wanted::fingerprint);
    stage.files.insert(id("a"), files);
    assert_eq!(only(&stage.plan(&wanted)).steps[0], Step::RemoveFiles, "made for another allocation");
    files.made_for = wanted.get(&id("a")).map(Wanted::fingerprint);
    stage.files.insert(id("a"), files);
    assert_eq!(only(&stage.plan(&wanted)).steps, made[2..]);
    files.seed = false;
    stage.files.insert(id("a"), files);
    assert_eq!(only(&stage.plan(&wanted)).steps, made[1..]);
}

#[test]
fn a_disk_with_data_and_no_record_is_kept_for_a_wanted_instance_and_removed_with_one_that_left() {
    let wanted = one(json!({}));
    for disk in [DiskFile::Ready { virtual_bytes: 1 << 30, written: true }, DiskFile::Unreadable] {
        for made_for in [None, wanted.get(&id("a")).map(Wanted::fingerprint)] {
            let mut stage = Stage::default();
            stage.files.insert(id("a"), InstanceFiles { disk, seed: true, shared: None, made_for });
            let plan = stage.plan(&wanted);
            assert!(only(&plan).steps.is_empty(), "{plan:?}");
            assert!(refusal(&plan).message.contains("instances/a/disk.qcow2"), "{plan:?}");
            assert_eq!(only(&stage.plan(&desired(&[]))).steps, [Step::RemoveFiles]);
        }
    }
}

#[test]
fn a_fingerprint_covers_what_files_are_made_from_and_nothing_else() {
    let of = |more: Value| one(more).get(&id("a")).map(Wanted::fingerprint).expect("wanted");
    let base = of(json!({}));
    for same in [json!({"vcpus": 2}), json!({"memory_bytes": 1 << 29}), json!({"desired_state": "stopped"})] {
        assert_eq!(of(same.clone()), base, "{same}");
    }
    for other in [
        json!({"allocation": "y"}),
        json!({"hostname": "i"}),
        json!({"disk_bytes": 1u64 << 31}),
        json!({"image": {"url": "https://a.example/x", "sha256": "1".repeat(64), "format": "qcow2"}}),
        json!({"nics": [{"bridge": "b0", "mac": "52:54:00:00:00:01"}]}),
    ] {
        assert_ne!(of(other.clone()), base, "{other}");
    }
}

#[test]
fn a_foreign_domain_and_the_directory_it_may_use_are_left_alone() {
    let wanted = one(json!({}));
    let foreign = ForeignDomain {
        name: "bcd-a".to_owned(),
        uuid: DomainUuid::from_bytes([9; 16]),
        runtime: RuntimeId::parse(LIBVIRT_KVM).expect("an id"),
        state: InstanceState::Running,
        vcpus: None,
        memory_bytes: None,
    };
    let mut stage = Stage::converged(&wanted);
    (stage.records, stage.domains, stage.foreign) = (BTreeMap::new(), BTreeMap::new(), vec![foreign.clone()]);
    for wanted in [wanted, desired(&[])] {
        let plan = stage.plan(&wanted);
        assert!(only(&plan).steps.is_empty());
        assert_eq!(refusal(&plan).kind, FaultKind::Denied);
        assert!(refusal(&plan).message.contains("bcd-a"), "{plan:?}");
    }
    let others = Stage { foreign: vec![ForeignDomain { name: "somebody".to_owned(), ..foreign }], ..Stage::default() };
    assert_eq!(others.plan(&desired(&[])), Plan::default(), "and is no reason to do anything");
}

#[test]
fn a_disk_grows_in_its_file_while_stopped_and_live_while_in_memory() {
    let larger = one(json!({"disk_bytes": 1u64 << 31, "desired_state": "running"}));
    let grown = disk(1 << 31);
    let mut stage = Stage::converged(&one(json!({})));
    assert_eq!(only(&stage.plan(&larger)).steps, [Step::GrowLive { disk_bytes: grown }]);
    stage.set("a", InstanceState::Stopped);
    assert_eq!(
        only(&stage.plan(&larger)).steps,
        [Step::GrowFile { disk_bytes: grown }, Step::Define, Step::Start { paused: false }]
    );
    let stopped = one(json!({"disk_bytes": 1u64 << 31, "desired_state": "stopped"}));
    stage.set("a", InstanceState::Running);
    assert_eq!(
        only(&stage.plan(&stopped)).steps,
        [Step::PowerOff, Step::GrowFile { disk_bytes: grown }, Step::Define],
        "one that is to stop grows behind its stop"
    );
    // A crash between growing the file and defining.
    stage.set("a", InstanceState::Stopped);
    stage.files.get_mut(&id("a")).expect("files").disk = DiskFile::Ready { virtual_bytes: 1 << 31, written: true };
    assert_eq!(only(&stage.plan(&stopped)).steps, [Step::Define]);
}

#[test]
fn what_can_never_change_is_refused_with_both_values_and_the_instance_left_as_it_is() {
    let stage = Stage::converged(&one(json!({"disk_bytes": 1u64 << 31})));
    let image = json!({"url": "https://a.example/x", "sha256": "1".repeat(64), "format": "qcow2"});
    for (more, parts) in [
        (json!({}), vec!["1073741824".to_owned(), "2147483648".to_owned()]),
        (json!({"image": image, "disk_bytes": 1u64 << 31}), vec!["0".repeat(64), "1".repeat(64)]),
        (json!({"allocation": "y", "disk_bytes": 1u64 << 31}), vec!["is y".to_owned(), "for x".to_owned()]),
    ] {
        let plan = stage.plan(&one(more));
        assert_eq!((only(&plan).phase, &only(&plan).steps[..]), (Phase::Held, &[][..]));
        assert_eq!(refusal(&plan).kind, FaultKind::InvalidSpec);
        assert!(parts.iter().all(|part| refusal(&plan).message.contains(part)), "{plan:?}");
    }
    let mut ahead = Stage::converged(&one(json!({})));
    ahead.files.get_mut(&id("a")).expect("files").disk = DiskFile::Ready { virtual_bytes: 1 << 32, written: true };
    let plan = ahead.plan(&one(json!({"disk_bytes": 1u64 << 31})));
    assert!(refusal(&plan).message.contains("4294967296"), "the file counts, not only the record: {plan:?}");
}

#[test]
fn a_lost_disk_is_never_replaced_by_an_empty_one() {
    let wanted = one(json!({}));
    for lose in [
        (|stage: &mut Stage| stage.files.clear()) as fn(&mut Stage),
        |stage| stage.files.get_mut(&id("a")).expect("files").disk = DiskFile::Missing,
        |stage| stage.files.get_mut(&id("a")).expect("files").disk = DiskFile::Unreadable,
    ] {
        for state in [InstanceState::Running, InstanceState::Stopped] {
            let mut stage = Stage::converged(&wanted);
            stage.set("a", state);
            lose(&mut stage);
            let plan = stage.plan(&wanted);
            assert!(only(&plan).steps.is_empty(), "{plan:?}");
            assert!(refusal(&plan).message.contains("instances/a/disk.qcow2"), "{plan:?}");
        }
    }
}

#[test]
fn a_changed_definition_is_defined_and_changed_nics_wait_for_a_stop() {
    let stage = Stage::converged(&one(json!({})));
    for more in [json!({"vcpus": 2}), json!({"memory_bytes": 1 << 29})] {
        assert_eq!(only(&stage.plan(&one(more))).steps, [Step::Define]);
    }
    let nics = json!([{"bridge": "br0", "mac": "52:54:00:00:00:01"}]);
    let plan = stage.plan(&one(json!({"nics": nics, "vcpus": 2})));
    assert!(only(&plan).steps.is_empty(), "{plan:?}");
    assert!(refusal(&plan).message.contains("nics"), "{plan:?}");
    let plan = stage.plan(&one(json!({"nics": nics, "desired_state": "stopped"})));
    assert_eq!((&only(&plan).steps[..], &only(&plan).refusal), (&[Step::PowerOff, Step::Define][..], &None));
    let plan = stage.plan(&one(json!({"nics": nics, "desired_state": "paused", "disk_bytes": 1u64 << 31})));
    assert_eq!(only(&plan).steps, [Step::GrowLive { disk_bytes: disk(1 << 31) }, Step::Suspend], "the rest goes on");
}

#[test]
fn a_mac_that_changes_hands_is_waited_for_and_nothing_else_is() {
    let with = |name: &str, mac: &str| instance(name, json!({"nics": [{"bridge": "br0", "mac": mac}]}));
    let (mac, other) = ("52:54:00:00:00:01", "52:54:00:00:00:02");
    let stage = Stage::converged(&desired(&[with("b", mac), with("c", other)]));
    let plan = stage.plan(&desired(&[with("a", mac), with("c", other), instance("d", json!({}))]));
    let [b, a, d] = &plan.changes[..] else { panic!("{plan:?}") };
    assert_eq!((b.instance.as_str(), b.phase), ("b", Phase::Delete));
    assert_eq!(a.steps, [Step::CreateDisk, Step::WriteSeed], "what needs no MAC goes on");
    let refusal = a.refusal.as_ref().expect("it waits");
    assert_eq!(refusal.kind, FaultKind::Unavailable);
    assert!(refusal.message.contains("instance b's") && refusal.message.contains(mac), "{}", refusal.message);
    assert!(refusal.message.ends_with("is deleted"), "{}", refusal.message);
    assert_eq!((d.instance.as_str(), &d.refusal), ("d", &None));
    let mut stopped = stage.clone();
    stopped.set("c", InstanceState::Stopped);
    let plan = stopped.plan(&desired(&[instance("b", json!({})), with("c", mac)]));
    let c = plan.changes.iter().find(|change| change.instance == id("c")).expect("c");
    assert!(c.steps.is_empty(), "not started with the NICs it had: {plan:?}");
    assert!(c.refusal.as_ref().is_some_and(|refusal| refusal.message.ends_with("has other NICs")), "{plan:?}");
    let elsewhere = json!({"nics": [{"bridge": "br1", "mac": mac}]});
    let plan = stage.plan(&desired(&[with("b", mac), with("c", other), instance("a", elsewhere)]));
    assert_eq!(only(&plan).refusal, None, "on another bridge it is another network");
}

#[test]
fn an_unfinished_record_a_lost_seed_a_lost_base_and_a_lost_share_are_put_right() {
    let wanted = one(json!({}));
    let stage = Stage::converged(&wanted);
    let mut unfinished = stage.clone();
    unfinished.records.get_mut(&id("a")).expect("a record").unfinished = true;
    assert_eq!(only(&unfinished.plan(&wanted)).steps, [Step::Define]);
    let mut seedless = stage.clone();
    seedless.files.get_mut(&id("a")).expect("files").seed = false;
    assert_eq!(only(&seedless.plan(&wanted)).steps, [Step::WriteSeed, Step::Share]);
    let mut baseless = stage.clone();
    baseless.images.clear();
    assert_eq!(only(&baseless.plan(&wanted)).steps, [Step::FetchImage, Step::Share]);
    for shared in [None, Some(GuestUid::new(0x7FFD_0777).expect("a uid"))] {
        let mut unshared = stage.clone();
        unshared.files.get_mut(&id("a")).expect("files").shared = shared;
        assert_eq!(only(&unshared.plan(&wanted)).steps, [Step::Share]);
    }
}

#[test]
fn files_of_an_instance_that_stays_stopped_are_shared_only_before_it_starts() {
    let mut stage = Stage::converged(&one(json!({})));
    stage.files.get_mut(&id("a")).expect("files").shared = None;
    stage.domains.get_mut(&id("a")).expect("a domain").state = InstanceState::Stopped;
    assert!(stage.plan(&one(json!({"desired_state": "stopped"}))).changes.is_empty());
    let start = Step::Start { paused: false };
    assert_eq!(only(&stage.plan(&one(json!({"desired_state": "running"})))).steps, [Step::Share, start]);
}

#[test]
fn a_document_made_ready_answers_for_each_of_its_instances() {
    let document = spec(&[instance("b", json!({"vcpus": 2})), instance("a", json!({"desired_state": "paused"}))]);
    let wanted = Desired::of(Arc::clone(&document));
    assert!(Arc::ptr_eq(wanted.spec(), &document));
    assert_eq!((wanted.len(), wanted.is_empty(), desired(&[]).is_empty()), (2, false, true));
    for (place, name) in [(0, "b"), (1, "a")] {
        assert_eq!(wanted.instance(&id(name)), Some(&document.instances[place]));
    }
    assert_eq!(wanted.instance(&id("c")), None);
    assert_eq!(wanted.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(wanted.images().count(), 2);
    let b = wanted.get(&id("b")).and_then(|wanted| wanted.definition().ok()).expect("a definition");
    assert_eq!((b.vcpus.get(), b.memory.get(), b.disk.get()), (2, 1 << 28, 1 << 30));
}

#[test]
fn one_bad_instance_fails_alone_and_by_its_field() {
    let gpu = "GPU-6f3d0c8e-0d3c-4b7e-9d5e-2f1f0a6f8a11";
    let snapshot = json!({"url": "https://a.example/x", "sha256": "0".repeat(64)});
    let iso = json!({"url": "https://a.example/x", "sha256": "0".repeat(64), "format": "iso"});
    for (field, more) in [
        ("image.format", json!({ "image": iso })),
        ("network_policy", json!({"network_policy": "private"})),
        ("network_policy", json!({"network_policy": "none"})),
        ("ssh_from_host_only", json!({"ssh_from_host_only": true})),
        ("gpu_device_ids", json!({ "gpu_device_ids": [gpu] })),
        ("placement", json!({"placement": {"cpus": "0"}})),
        ("placement", json!({"placement": {"mems": "0"}})),
        ("placement", json!({"placement": {"balloon": true}})),
        ("placement", json!({"placement": {"hugepage_size_bytes": 2_097_152}})),
        ("restore_from", json!({ "restore_from": snapshot })),
        ("identity_rebind_ref", json!({"identity_rebind_ref": "r"})),
    ] {
        let wanted = desired(&[instance("bad", more), instance("good", json!({}))]);
        let plan = Stage::default().plan(&wanted);
        let [good, bad] = &plan.changes[..] else { panic!("{plan:?}") };
        assert_eq!((good.instance.as_str(), &good.refusal, good.steps.len()), ("good", &None, 6));
        let refusal = bad.refusal.as_ref().expect("refused");
        assert_eq!((bad.steps.len(), refusal.kind), (0, FaultKind::Unsupported));
        assert!(refusal.message.starts_with(field), "{field}: {}", refusal.message);
    }
    let plain = one(json!({"placement": {}}));
    assert_eq!(Stage::default().plan(&plain).changes[0].refusal, None, "an empty placement asks for nothing");
}

#[test]
fn volumes_fail_their_instance_and_what_concerns_none_is_noted() {
    let text = json!({
        "instances": [instance("a", json!({"volumes": [{"id": "v", "serial": "s"}]}))],
        "volumes": [{"id": "v", "size_bytes": 1 << 30}],
        "holds": [{"id": "h", "memory_bytes": 1 << 30}],
    });
    let wanted = Desired::of(Arc::new(spec::parse("a.json", &text.to_string()).expect("a document")));
    assert!(refusal(&Stage::default().plan(&wanted)).message.starts_with("volumes"));
    assert_eq!(wanted.notes().len(), 2);
}

#[test]
fn a_refused_instance_is_still_stopped_and_paused_when_that_is_wanted() {
    let stage = Stage::converged(&one(json!({})));
    for (state, steps) in [("running", vec![]), ("paused", vec![Step::Suspend]), ("stopped", vec![Step::PowerOff])] {
        for bad in [json!({"ssh_from_host_only": true}), json!({"allocation": "y"}), json!({"runtime": "other"})] {
            let mut more = bad.clone();
            more["desired_state"] = json!(state);
            let plan = stage.plan(&one(more));
            assert_eq!(only(&plan).steps, steps, "{bad} {state}");
            assert!(only(&plan).refusal.is_some());
        }
    }
}

#[test]
fn an_absent_runtime_fails_its_instance_and_a_host_without_any_fails_all() {
    let wanted = desired(&[instance("a", json!({"runtime": "cloud-hypervisor"})), instance("b", json!({}))]);
    let plan = Stage::default().plan(&wanted);
    let bad = plan.changes.iter().find(|change| change.instance == id("a")).expect("a");
    let message = &bad.refusal.as_ref().expect("refused").message;
    assert!(message.starts_with("runtime is not installed on this host"), "{message}");
    assert_eq!(bad.refusal.as_ref().map(|r| r.kind), Some(FaultKind::Unsupported));
    assert_eq!(plan.changes[0].steps.len(), 6, "the neighbour is made");
    let unknown = Stage::default().plan(&desired(&[instance("a", json!({"runtime": "libvirt-kwm"}))]));
    let refusal = only(&unknown).refusal.as_ref().expect("refused");
    assert_eq!(
        (refusal.kind, refusal.message.as_str()),
        (FaultKind::InvalidSpec, "runtime: there is no runtime libvirt-kwm: use one of libvirt-kvm, cloud-hypervisor")
    );
    let bare = Stage { runtimes: BTreeSet::new(), ..Stage::default() };
    let plan = bare.plan(&wanted);
    let whole = plan.refusal.clone().expect("the section is refused");
    assert!(whole.message.starts_with("this host runs no instance runtime"), "{}", whole.message);
    assert_eq!(plan.changes.len(), 2);
    assert!(plan.changes.iter().all(|c| c.steps.is_empty() && c.refusal.as_ref() == Some(&whole)), "{plan:?}");
    assert_eq!(bare.plan(&desired(&[])), Plan::default(), "none wanted, none missed");
}

#[test]
fn what_gives_back_comes_before_what_takes() {
    let before = desired(&[instance("a", json!({})), instance("c", json!({})), instance("e", json!({}))]);
    let mut stage = Stage::converged(&before);
    stage.set("a", InstanceState::Stopped);
    let after = desired(&[
        instance("a", json!({})),
        instance("b", json!({})),
        instance("c", json!({"desired_state": "stopped"})),
        instance("d", json!({"ssh_from_host_only": true})),
    ]);
    let plan = stage.plan(&after);
    let order: Vec<_> = plan.changes.iter().map(|change| (change.instance.as_str(), change.phase)).collect();
    assert_eq!(
        order,
        [("e", Phase::Delete), ("c", Phase::Stop), ("a", Phase::Change), ("b", Phase::Change), ("d", Phase::Held)]
    );
    let lines = describe(&plan);
    assert_eq!(lines[0], "delete e: end it at once, remove its domain, remove its files");
    assert_eq!(lines[1], "stop c: press its power button, and end it after 60 seconds");
    assert_eq!(lines[2], "change a: start it");
    assert!(lines[3].starts_with("create b: create its disk, write its seed, define its domain"), "{lines:?}");
    assert!(lines[4].starts_with("leave d: ssh_from_host_only"), "{lines:?}");
}

#[test]
fn a_plan_reads_back_from_its_json() {
    let stage = Stage::converged(&one(json!({})));
    let plan = stage.plan(&one(json!({"disk_bytes": 1u64 << 31, "desired_state": "paused"})));
    let value = serde_json::to_value(&plan).expect("json");
    assert_eq!(value["changes"][0]["steps"][0], json!({"step": "grow_live", "disk_bytes": 1u64 << 31}));
    assert_eq!(serde_json::from_value::<Plan>(value).expect("a plan"), plan);
}

#[test]
fn deleting_more_than_half_of_what_runs_needs_to_be_allowed() {
    let names = ["a", "b", "c", "d"];
    let all = desired(&names.map(|name| instance(name, json!({}))));
    let keep = |names: &[&str]| desired(&names.iter().map(|name| instance(name, json!({}))).collect::<Vec<_>>());
    let count = |stage: &Stage, wanted: &Desired| deletions(wanted, &stage.observed()).expect("readable");
    let stage = Stage::converged(&all);
    assert_eq!(count(&stage, &keep(&["a", "b"])), Deletions { running: 4, deleted: 2 });
    assert!(!count(&stage, &keep(&["a", "b"])).needs_allow_delete(), "half is not more than half");
    let most = count(&stage, &keep(&["a"]));
    let refused = most.check(false).expect_err("refused");
    assert_eq!(refused.kind, FaultKind::Denied);
    assert!(refused.message.contains("3 of 4") && refused.message.contains("--allow-delete"), "{}", refused.message);
    assert_eq!(most.check(true), Ok(()));
    // What is stopped does not count, and what could not be read counts as running.
    let mut some = stage.clone();
    for (name, state) in [("a", InstanceState::Stopped), ("b", InstanceState::Stopped), ("c", InstanceState::Unknown)] {
        some.set(name, state);
    }
    assert_eq!(count(&some, &keep(&["a", "b", "d"])), Deletions { running: 2, deleted: 1 });
    assert_eq!(count(&some, &keep(&["d", "c"])), Deletions { running: 2, deleted: 0 });
    let blind = Stage { unreadable: vec![Section::Libvirt], ..stage.clone() };
    assert!(count(&blind, &keep(&["a"])).needs_allow_delete());
    assert_eq!(count(&Stage::default(), &desired(&[])), Deletions { running: 0, deleted: 0 });
    assert!(!count(&Stage::default(), &desired(&[])).needs_allow_delete());
    let dark = Stage { unreadable: vec![Section::Records], ..stage };
    assert_eq!(deletions(&all, &dark.observed()), None);
}

#[test]
fn a_thousand_unchanged_instances_are_planned_in_a_few_milliseconds() {
    let all: Vec<Value> = (0..1000).map(|i| instance(&format!("instance-{i}"), json!({}))).collect();
    let wanted = desired(&all);
    let stage = Stage::converged(&wanted);
    let fastest = (0..20)
        .map(|_| {
            let begun = std::time::Instant::now();
            assert_eq!(stage.plan(&wanted).unchanged, 1000);
            begun.elapsed()
        })
        .min()
        .expect("twenty runs");
    eprintln!("fastest of twenty: {fastest:?}");
    // An unoptimised build on a busy machine; what counts is that it stays far below one look at libvirt.
    assert!(fastest < std::time::Duration::from_millis(10), "{fastest:?}");
}
