//! Plans carried out on a model host, with crashes, failures and meddling between any two steps.
//!
//! The model refuses what the helper would refuse and fails the test on what must never be asked: growing a disk that is
//! in memory, removing files behind a record or a guest, running a guest on files that were not made for it, stopping or
//! deleting what nobody asked to stop or delete, touching what is foreign.
use super::*;
use crate::spec::DesiredState;
use proptest::prelude::*;
use proptest::sample::select;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Passes that must suffice to converge once nothing fails any more.
const ENOUGH: usize = 6;

#[derive(Clone, Default)]
struct World {
    stage: Stage,
    /// What made the disk that lies there, and whether a guest ever ran on it.
    disks: BTreeMap<InstanceId, (Fingerprint, bool)>,
    next_uid: u32,
}

/// One thing that happens to the host.
#[derive(Debug, Clone)]
enum Event {
    /// Another document is put in force.
    Document(Vec<Wish>),
    /// A pass that goes well until its `n`-th step, which fails; or happens and its outcome is lost.
    Pass { fails_at: usize, half_done: bool },
    /// A whole pass.
    GoodPass,
    /// The node is killed: what it only remembered is gone.
    Restart,
    /// A guest powers itself off.
    GuestOff(usize),
    /// A guest crashes.
    GuestCrash(usize),
    /// Somebody undefines a stopped domain behind bcd's back.
    Undefined(usize),
    /// The helper's state and libvirt's are lost: only the files are left.
    Amnesia,
    /// Somebody defines a domain under a name that an instance would have.
    Squatter(usize),
}

/// What a document says of one instance.
#[derive(Debug, Clone, PartialEq)]
struct Wish {
    name: usize,
    state: &'static str,
    disk: u64,
    vcpus: u32,
    mac: usize,
    nic: u8,
    image: &'static str,
    allocation: &'static str,
    unbuilt: bool,
}

impl Wish {
    fn json(&self) -> Value {
        instance(
            NAMES[self.name],
            json!({
                "desired_state": self.state, "disk_bytes": self.disk << 30, "vcpus": self.vcpus,
                "allocation": self.allocation, "ssh_from_host_only": self.unbuilt,
                "image": {"url": "https://a.example/x", "sha256": self.image.repeat(64), "format": "raw"},
                "nics": [{"bridge": "br0", "mac": format!("52:54:00:00:{:02x}:{:02x}", self.mac, self.nic)}],
            }),
        )
    }
}

fn wish(name: usize) -> impl Strategy<Value = Wish> {
    let rare = |common: &'static str, other: &'static str| select(vec![common, common, common, common, common, other]);
    (
        select(vec!["running", "running", "stopped", "paused"]),
        1u64..3,
        1u32..3,
        0u8..2,
        rare("0", "1"),
        rare("x", "y"),
        proptest::bool::weighted(0.1),
    )
        .prop_map(move |(state, disk, vcpus, nic, image, allocation, unbuilt)| Wish {
            name,
            mac: name,
            state,
            disk,
            vcpus,
            nic,
            image,
            allocation,
            unbuilt,
        })
}

fn document() -> impl Strategy<Value = Vec<Wish>> {
    let each = |name| proptest::option::weighted(0.7, wish(name));
    // The MACs go round among the names from one document to the next.
    (each(0), each(1), each(2), prop_oneof![3 => Just(0usize), 1 => 1usize..3]).prop_map(|(a, b, c, turn)| {
        let turned = |wish: Wish| Wish { mac: (wish.name + turn) % 3, ..wish };
        [a, b, c].into_iter().flatten().map(turned).collect()
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => document().prop_map(Event::Document),
        4 => (0usize..12, any::<bool>()).prop_map(|(fails_at, half_done)| Event::Pass { fails_at, half_done }),
        2 => Just(Event::GoodPass),
        1 => Just(Event::Restart),
        1 => (0usize..3).prop_map(Event::GuestOff),
        1 => (0usize..3).prop_map(Event::GuestCrash),
        1 => (0usize..3).prop_map(Event::Undefined),
        1 => (0usize..3).prop_map(Event::Squatter),
        1 => Just(Event::Amnesia),
    ]
}

/// A step that the helper or the file system refuses.
#[derive(Debug)]
struct Refused;

impl World {
    fn state(&self, id: &InstanceId) -> InstanceState {
        self.stage.domains.get(id).map_or(InstanceState::Absent, |domain| domain.state)
    }

    fn in_memory(&self, id: &InstanceId) -> bool {
        self.stage.records.contains_key(id) && guard::may_run(self.state(id))
    }

    fn enter(&mut self, id: &InstanceId, state: InstanceState) {
        self.stage.domains.insert(id.clone(), DomainView { state, stop_reason: None });
    }

    fn files(&mut self, id: &InstanceId) -> Result<&mut InstanceFiles, Refused> {
        self.stage.files.get_mut(id).ok_or(Refused)
    }

    fn squatted(&self, id: &InstanceId) -> bool {
        self.stage.foreign.iter().any(|domain| domain.name == format!("bcd-{id}"))
    }

    /// Carries out one step as the host would.
    fn carry_out(&mut self, id: &InstanceId, step: Step, desired: &Desired) -> Result<(), Refused> {
        assert!(!self.squatted(id), "{step:?} on {id}, whose name a foreign domain has");
        let wanted = desired.get(id);
        let recorded = self.stage.records.contains_key(id);
        match step {
            Step::FetchImage => {
                let definition = wanted.and_then(|w| w.definition().ok()).expect("fetched for an instance");
                self.stage.images.insert(definition.image);
            }
            Step::CreateDisk => {
                assert!(!recorded, "a new disk for {id}, which has a record");
                let wanted = wanted.expect("made for an instance");
                let definition = wanted.definition().expect("a definition");
                assert!(self.stage.images.contains(&definition.image), "an overlay without its base");
                let here = self.stage.files.entry(id.clone()).or_default();
                here.disk = DiskFile::Ready { virtual_bytes: definition.disk.get(), written: false };
                here.made_for = Some(wanted.fingerprint());
                self.disks.insert(id.clone(), (wanted.fingerprint(), false));
            }
            Step::WriteSeed => self.files(id)?.seed = true,
            Step::Define => {
                let definition = wanted.and_then(|w| w.definition().ok()).expect("defined for an instance").clone();
                let files = *self.files(id)?;
                let DiskFile::Ready { virtual_bytes, .. } = files.disk else { panic!("{id} has no disk") };
                assert_eq!(virtual_bytes, definition.disk.get(), "{id} is defined as it is");
                assert!(files.seed && self.stage.images.contains(&definition.image), "{id} has all its files");
                for (other, record) in self.stage.records.iter().filter(|(other, _)| *other != id) {
                    let mut both =
                        record.definition.nics.iter().flat_map(|a| definition.nics.iter().map(move |b| (a, b)));
                    assert!(!both.any(|(a, b)| a.mac == b.mac && a.bridge == b.bridge), "{id} takes a MAC of {other}");
                }
                let in_memory = self.in_memory(id);
                if let Some(record) = self.stage.records.get_mut(id) {
                    assert_eq!(
                        (record.definition.image, &record.definition.allocation),
                        (definition.image, &definition.allocation)
                    );
                    assert!(!in_memory || record.definition.nics == definition.nics, "nics of {id} change in memory");
                    record.definition = definition;
                    record.unfinished = false;
                } else {
                    let (made_for, used) = self.disks[id];
                    assert!(!used, "{id} is new and would be given a disk that another guest ran on");
                    assert_eq!(
                        Some(made_for),
                        wanted.map(Wanted::fingerprint),
                        "{id} gets files made for another wish"
                    );
                    self.next_uid += 1;
                    let uid = GuestUid::new(0x7FFD_0000 + self.next_uid).expect("a uid");
                    let uuid = DomainUuid::from_bytes([u8::try_from(self.next_uid % 256).expect("small"); 16]);
                    let record = RecordView { instance: id.clone(), uuid, uid, definition, unfinished: false };
                    self.stage.records.insert(id.clone(), record);
                }
                if self.state(id) == InstanceState::Absent {
                    self.enter(id, InstanceState::Stopped);
                }
                self.files(id)?.made_for = None;
            }
            Step::Share => {
                let uid = self.stage.records.get(id).ok_or(Refused)?.uid;
                self.files(id)?.shared = Some(uid);
            }
            Step::GrowFile { disk_bytes } => {
                assert!(!self.in_memory(id), "the file of {id} is grown under its guest");
                self.grow(id, disk_bytes)?;
            }
            Step::GrowLive { disk_bytes } => {
                assert!(self.in_memory(id), "{id} is grown live and is not in memory");
                self.grow(id, disk_bytes)?;
                self.stage.records.get_mut(id).ok_or(Refused)?.definition.disk = disk_bytes;
            }
            Step::Start { paused } => {
                assert_eq!(self.state(id), InstanceState::Stopped, "{id} is started");
                let record = self.stage.records.get(id).ok_or(Refused)?;
                let want = wanted.expect("started for an instance");
                assert_eq!(Ok(&record.definition), want.definition(), "{id} starts as it is wanted");
                assert_eq!(
                    self.stage.files.get(id).and_then(|files| files.shared),
                    Some(record.uid),
                    "{id} may open its files"
                );
                self.disks.get_mut(id).expect("a disk").1 = true;
                if let DiskFile::Ready { written, .. } = &mut self.files(id)?.disk {
                    *written = true;
                }
                self.enter(id, if paused { InstanceState::Paused } else { InstanceState::Running });
            }
            Step::Suspend => {
                assert_eq!(
                    (self.state(id), wanted.map(Wanted::state)),
                    (InstanceState::Running, Some(DesiredState::Paused))
                );
                self.enter(id, InstanceState::Paused);
            }
            Step::Resume => {
                assert_eq!(self.state(id), InstanceState::Paused);
                assert_ne!(wanted.map(Wanted::state), Some(DesiredState::Paused));
                self.enter(id, InstanceState::Running);
            }
            Step::PowerOff => {
                assert_eq!(wanted.map(Wanted::state), Some(DesiredState::Stopped), "{id} is stopped unasked");
                assert_eq!(self.state(id), InstanceState::Running, "a power button that the guest can see");
                self.enter(id, InstanceState::Stopped);
            }
            Step::Destroy => {
                assert!(wanted.is_none() || self.state(id) == InstanceState::Crashed, "{id} is ended unasked");
                self.enter(id, InstanceState::Stopped);
            }
            Step::Undefine => {
                assert!(wanted.is_none(), "{id} is undefined unasked");
                assert!(!self.in_memory(id), "{id} is undefined under its guest");
                self.stage.records.remove(id).ok_or(Refused)?;
                self.stage.domains.remove(id);
            }
            Step::RemoveFiles => {
                assert!(!recorded, "files of {id} are removed and its record is there");
                let (_, used) = self.disks.remove(id).unwrap_or_else(|| panic!("{id} has no files to remove"));
                assert!(!used || wanted.is_none(), "{id}'s data is removed unasked");
                self.stage.files.remove(id);
            }
        }
        Ok(())
    }

    fn grow(&mut self, id: &InstanceId, bytes: DiskBytes) -> Result<(), Refused> {
        let files = self.files(id)?;
        let DiskFile::Ready { virtual_bytes, written } = files.disk else { return Err(Refused) };
        assert!(bytes.get() >= virtual_bytes, "the disk of {id} shrinks");
        files.disk = DiskFile::Ready { virtual_bytes: bytes.get(), written };
        Ok(())
    }

    /// One pass, failing at its `fails_at`-th step. Answers how many steps it took.
    fn pass(&mut self, desired: &Desired, fails_at: Option<usize>, half_done: bool) -> usize {
        let plan = self.stage.plan(desired);
        assert!(plan.changes.is_sorted_by_key(|change| change.phase), "{plan:?}");
        let mut taken = 0;
        for change in &plan.changes {
            for step in &change.steps {
                if fails_at == Some(taken) {
                    // The effect may have happened all the same: nobody was told.
                    if half_done {
                        drop(self.carry_out(&change.instance, *step, desired));
                    }
                    return taken;
                }
                taken += 1;
                if self.carry_out(&change.instance, *step, desired).is_err() {
                    break;
                }
            }
        }
        taken
    }

    fn happens(&mut self, event: &Event, desired: &mut Desired) {
        match event {
            Event::Document(wishes) => {
                let all: Vec<Value> = wishes.iter().map(Wish::json).chain([bystander()]).collect();
                *desired = super::desired(&all);
            }
            Event::Pass { fails_at, half_done } => drop(self.pass(desired, Some(*fails_at), *half_done)),
            Event::GoodPass => drop(self.pass(desired, None, false)),
            Event::Restart => self.stage.files.values_mut().for_each(|files| files.made_for = None),
            Event::GuestOff(name) => {
                if self.state(&id(NAMES[*name])) == InstanceState::Running {
                    self.enter(&id(NAMES[*name]), InstanceState::Stopped);
                }
            }
            Event::GuestCrash(name) => {
                if self.state(&id(NAMES[*name])) == InstanceState::Running {
                    self.enter(&id(NAMES[*name]), InstanceState::Crashed);
                }
            }
            Event::Undefined(name) => {
                if self.state(&id(NAMES[*name])) == InstanceState::Stopped {
                    self.stage.domains.remove(&id(NAMES[*name]));
                }
            }
            Event::Amnesia => {
                for name in NAMES.iter().take(3) {
                    self.stage.records.remove(&id(name));
                    self.stage.domains.remove(&id(name));
                }
            }
            Event::Squatter(name) => {
                let instance = id(NAMES[*name]);
                if !self.stage.records.contains_key(&instance) && !self.squatted(&instance) {
                    self.stage.foreign.push(ForeignDomain {
                        name: format!("bcd-{instance}"),
                        uuid: DomainUuid::from_bytes([255; 16]),
                        runtime: RuntimeId::parse(LIBVIRT_KVM).expect("an id"),
                        state: InstanceState::Running,
                        vcpus: None,
                        memory_bytes: None,
                    });
                }
            }
        }
    }
}

/// An instance that every document has, always the same, and that nothing happens to.
fn bystander() -> Value {
    instance("d", json!({"allocation": "z"}))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_host_converges_and_nothing_is_lost_unasked(events in proptest::collection::vec(event(), 1..25)) {
        let mut desired = desired(&[bystander()]);
        let mut world = World::default();
        world.pass(&desired, None, false);
        let at_start = (world.stage.records[&id("d")].clone(), world.stage.files[&id("d")]);
        for event in &events {
            world.happens(event, &mut desired);
            let plan = world.stage.plan(&desired);
            prop_assert!(plan.changes.iter().all(|change| change.instance != id("d")), "the bystander is left alone: {plan:?}");
        }
        let passes = (0..ENOUGH).take_while(|_| world.pass(&desired, None, false) > 0).count();
        prop_assert!(passes < ENOUGH, "{ENOUGH} passes do not suffice: {:?}", world.stage.plan(&desired));

        let plan = world.stage.plan(&desired);
        prop_assert!(plan.changes.iter().all(|change| change.steps.is_empty()), "{plan:?}");
        prop_assert_eq!(&plan, &world.stage.plan(&desired));
        for (name, wanted) in desired.iter() {
            if plan.changes.iter().any(|change| change.instance == *name) {
                continue;
            }
            let state = match wanted.state() {
                DesiredState::Running => InstanceState::Running,
                DesiredState::Stopped => InstanceState::Stopped,
                DesiredState::Paused => InstanceState::Paused,
            };
            prop_assert_eq!(world.state(name), state, "{}", name);
            prop_assert_eq!(Ok(&world.stage.records[name].definition), wanted.definition());
        }
        for name in world.stage.records.keys() {
            prop_assert!(desired.get(name).is_some(), "{name} left the document and has a record");
        }
        for name in world.stage.files.keys() {
            prop_assert!(desired.get(name).is_some() || world.squatted(name), "{name} left the document and has files");
        }
        let mut files = world.stage.files[&id("d")];
        files.made_for = at_start.1.made_for;
        prop_assert_eq!((world.stage.records[&id("d")].clone(), files), at_start);
        prop_assert_eq!(world.state(&id("d")), InstanceState::Running);
    }

    #[test]
    fn what_cannot_be_read_leads_to_no_step(events in proptest::collection::vec(event(), 1..12), section in select(vec![Section::Records, Section::Libvirt, Section::Files])) {
        let mut desired = desired(&[bystander()]);
        let mut world = World::default();
        for event in &events {
            world.happens(event, &mut desired);
        }
        world.stage.unreadable.push(section);
        let plan = world.stage.plan(&desired);
        prop_assert!(plan.changes.iter().all(|change| change.steps.is_empty()), "{plan:?}");
        prop_assert_eq!(plan.unreadable, vec![section]);
    }
}
