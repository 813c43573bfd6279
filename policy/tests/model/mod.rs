//! bcd-helper's pipeline on a modelled host, driven by arbitrary bytes: requests of a hostile node, failures, crashes at
//! every point, restarts, and what administrators do behind bcd's back.
//!
//! Room: `policy`, model tests; `policy/fuzz` includes it by path. After every step these hold:
//! - no uid, UUID, tap or (bridge, MAC) is granted or runs twice, and no effect names a domain that bcd did not make;
//! - every domain that bcd made has a record, whatever was lost between intent, effect and outcome;
//! - exactly what an independent model grants is granted, and what is granted again changes nothing;
//! - no disk is ever told to shrink;
//! - the ledger loads, and every unfinished record is settled as soon as libvirt answers.
//!
//! A call whose outcome was lost may still be in libvirtd's hands: it lands at once, never, or late, up to when the helper
//! next looks at that domain to decide.
use bcd_policy::table::{self, Repeat};
use bcd_policy::{
    DomainQuestion, Effect, Facts, FileFact, Grant, Outcome, Peer, Record, RecordChange, Records, Setting, TapName,
    decide, questions, reconcile,
};
use bcd_protocol::config::Config;
use bcd_protocol::definition::Definition;
use bcd_protocol::id::{DomainUuid, InstanceId};
use bcd_protocol::reply::{FailureKind, Reply};
use bcd_protocol::request::{Request, Verb};
use claims::{Begun, Claims, End, Host};
use libvirt::Libvirt;
use spelling::{bridge, disk};
use std::collections::BTreeMap;

mod claims;
mod libvirt;
mod spelling;

const NODE: u32 = 990;
/// The last two have the same tap names.
const IDS: [&str; 4] = ["a", "b", "vm-117852", "vm-1532487"];
const MOST_STEPS: usize = 32;

/// Runs the steps that `bytes` spell. Panics where something that must hold does not.
pub(crate) fn run(bytes: &[u8]) {
    let mut model = Model::new(bytes);
    for _ in 0..MOST_STEPS {
        if model.bytes.is_empty() {
            break;
        }
        model.step();
        model.check();
    }
    model.settle_everything();
}

/// A request whose effect is under way.
struct Flight {
    request: Request,
    grant: Grant,
}

struct Model<'a> {
    bytes: &'a [u8],
    config: Config,
    /// What the helper remembers, and what is on its disk.
    records: Records,
    ledger: BTreeMap<InstanceId, Record>,
    /// Whether the ledger was written since it was last checked.
    written: bool,
    libvirt: Libvirt,
    claims: Claims,
    files: bool,
    flights: Vec<Flight>,
    late: Vec<(InstanceId, Effect)>,
    random: u8,
    strangers: u8,
}

impl<'a> Model<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let mut config = Config::default();
        config.helper.instance_bridges = vec![bridge("br0"), bridge("br1")];
        config.helper.max_instances = 3;
        config.helper.max_vcpus = 2;
        config.helper.max_disk_bytes = disk(3);
        Self {
            bytes,
            config,
            records: Records::default(),
            ledger: BTreeMap::new(),
            written: false,
            libvirt: Libvirt::default(),
            claims: Claims::default(),
            files: true,
            flights: Vec::new(),
            late: Vec::new(),
            random: 0,
            strangers: 0,
        }
    }

    fn step(&mut self) {
        match self.byte() % 16 {
            0..=8 => {
                let request = self.request();
                self.ask(request);
            }
            9 => self.finish_first(),
            10 => self.crash(),
            11 => self.land(),
            12 => self.settle(),
            13 => self.reconfigure(),
            14 => self.stranger(),
            _ => self.outside(),
        }
    }

    fn setting(&self, uid: u32, greeted: bool) -> Setting<'_> {
        Setting {
            config: &self.config,
            node_uid: NODE,
            records: &self.records,
            generation: 0,
            peer: Peer { uid, pid: 1 },
            greeted,
            software: true,
            package: "0",
        }
    }

    fn gather(&self, request: &Request) -> Option<Facts> {
        let questions = questions(&self.setting(NODE, true), request).ok()?;
        let file = if self.files { FileFact::Regular { uid: NODE, links: 1, bytes: 1 } } else { FileFact::Other };
        let exists = |tap: &TapName| self.libvirt.has_interface(tap.as_str());
        Some(Facts {
            domain: questions.domain.as_ref().map(|question| self.libvirt.look(question)),
            files: questions.files.iter().map(|question| (question.role, file)).collect(),
            taps: Some(questions.taps.into_iter().filter(exists).collect()),
            random: questions.entropy.then_some([self.random; 16]),
        })
    }

    fn ask(&mut self, request: Request) {
        let instance = request.instance().cloned();
        if self.flights.iter().any(|flight| flight.request.instance() == instance.as_ref()) {
            return;
        }
        let fate = self.byte();
        if let Some(instance) = &instance {
            self.settle_one(instance);
            if fate & 0x80 != 0 {
                self.land();
            }
            self.late.retain(|(late, _)| late != instance);
        }
        self.random = fate & 7;
        let expected = self.claims.grants(&self.host(&request), &request);
        let decided = self.gather(&request).map(|facts| {
            if fate & 0x20 != 0 {
                let strange = decide(&self.setting(NODE + 1, true), &facts, &request);
                assert!(strange.is_err(), "a stranger is granted {request:?}");
                let rude = decide(&self.setting(NODE, false), &facts, &request);
                assert_eq!(rude.is_ok(), request.verb() == Verb::Hello, "without a greeting: {request:?}");
            }
            decide(&self.setting(NODE, true), &facts, &request)
        });
        let granted = matches!(decided, Some(Ok(_)));
        assert_eq!(granted, expected, "{request:?}: {decided:?}");
        let Some(Ok(grant)) = decided else { return };
        self.begin(&request, &grant);
        self.flights.push(Flight { request, grant });
        if fate & 0x40 == 0
            && let Some((request, reply)) = self.finish(fate >> 3)
        {
            self.again(&request, &reply);
        }
    }

    fn host(&self, request: &Request) -> Host<'_> {
        let taps = request.instance().and_then(|instance| {
            let nics = self.claims.0.get(instance)?.now.nics.len();
            Some(TapName::all(instance, nics).iter().map(ToString::to_string).collect())
        });
        Host {
            libvirt: &self.libvirt,
            config: &self.config.helper,
            files: self.files,
            taps: taps.unwrap_or_default(),
            next_uuid: DomainUuid::from_random([self.random; 16]),
        }
    }

    /// The intent becomes durable, and the model notes what was begun.
    fn begin(&mut self, request: &Request, grant: &Grant) {
        let recorded = grant.intent().is_some();
        assert_eq!(recorded, table::row(request.verb()).recorded && *grant.effect() != Effect::Nothing);
        let Some(RecordChange::Put(record)) = grant.intent().cloned() else {
            assert!(!recorded, "an intent to forget");
            return;
        };
        let instance = record.instance.clone();
        let next = match request {
            Request::LibvirtDefine { definition, .. } => Some(definition.clone()),
            Request::LibvirtBlockResize { disk, .. } => {
                let claim = &self.claims.0[&instance];
                assert!(disk.get() >= claim.capacity, "{instance} is told to shrink its disk");
                Some(Definition { disk: *disk, ..claim.now.clone() })
            }
            Request::Hello { .. }
            | Request::Records { .. }
            | Request::LibvirtPlan { .. }
            | Request::LibvirtUndefine { .. }
            | Request::LibvirtStart { .. }
            | Request::LibvirtShutdown { .. }
            | Request::LibvirtDestroy { .. }
            | Request::LibvirtSuspend { .. }
            | Request::LibvirtResume { .. }
            | Request::Console { .. } => None,
        };
        match (self.claims.0.get_mut(&instance), grant.effect()) {
            (Some(claim), _) => claim.begun = Some(Begun { verb: request.verb(), next, creates: false }),
            (None, Effect::LibvirtDefine(it)) => {
                let uid = record.uid.get();
                assert!(it.xml().as_str().contains(&format!("+{uid}:kvm")));
                self.claims.create(&instance, uid, it.domain().uuid(), next.as_ref().unwrap());
            }
            (None, other) => panic!("{other:?} without a claim"),
        }
        self.keep(RecordChange::Put(record));
    }

    fn keep(&mut self, change: RecordChange) {
        self.written = true;
        match &change {
            RecordChange::Put(record) => {
                self.records.admits(record).unwrap();
                self.ledger.insert(record.instance.clone(), record.clone());
            }
            RecordChange::Remove(instance) => {
                self.ledger.remove(instance);
            }
        }
        self.records.apply(change);
    }

    fn finish_first(&mut self) {
        if !self.flights.is_empty() {
            self.flights.rotate_left(1);
            let fate = self.byte();
            self.finish(fate);
        }
    }

    /// The effect of the last flight ends one way or another. Answers what was done, and what the node was told.
    fn finish(&mut self, fate: u8) -> Option<(Request, Reply)> {
        let Flight { request, grant } = self.flights.pop()?;
        let acts = *grant.effect() != Effect::Nothing;
        let failed = |kind| Outcome::Failed(kind, String::new());
        let outcome = match fate % 8 {
            4 if acts => failed(FailureKind::Refused),
            5 if acts => {
                self.carry_out(&request, grant.effect());
                failed(FailureKind::Timeout)
            }
            6 if acts => failed(FailureKind::Unavailable),
            7 if acts => {
                self.late.extend(request.instance().map(|instance| (instance.clone(), grant.effect().clone())));
                failed(FailureKind::Timeout)
            }
            _ if self.carry_out(&request, grant.effect()) => Outcome::Done,
            _ => failed(FailureKind::Refused),
        };
        let end = match &outcome {
            Outcome::Done => Some(End::Done),
            Outcome::Failed(FailureKind::Refused, _) => Some(End::Refused),
            Outcome::Failed(..) => None,
        };
        let settled = grant.clone().settle(outcome);
        if let Some(change) = settled.change {
            self.keep(change);
        }
        if let (Some(instance), Some(end)) = (request.instance(), end) {
            if grant.intent().is_some() {
                self.claims.end(instance, end);
            } else if request.verb() == Verb::LibvirtUndefine {
                self.claims.0.remove(instance);
            }
        }
        (end == Some(End::Done)).then_some((request, settled.reply))
    }

    fn carry_out(&mut self, request: &Request, effect: &Effect) -> bool {
        let done = self.libvirt.carry_out(effect);
        if let (true, Some(claim)) = (done, request.instance().and_then(|id| self.claims.0.get_mut(id))) {
            // The node grows the file before it defines a larger disk.
            match (request, effect) {
                (Request::LibvirtDefine { definition, .. }, Effect::LibvirtDefine(_)) => {
                    claim.capacity = claim.capacity.max(definition.disk.get());
                }
                (_, Effect::LibvirtBlockResize(it)) => claim.capacity = claim.capacity.max(it.disk().get()),
                _ => {}
            }
        }
        done
    }

    /// The same request once more, at once.
    fn again(&self, request: &Request, reply: &Reply) {
        if table::row(request.verb()).repeat == Repeat::Answered {
            return;
        }
        let Some(facts) = self.gather(request) else { return };
        let again = decide(&self.setting(NODE, true), &facts, request);
        let grant = again.unwrap_or_else(|denial| panic!("{request:?} was granted and is then denied: {denial:?}"));
        if table::row(request.verb()).repeat != Repeat::Again {
            assert_eq!((grant.effect(), grant.intent()), (&Effect::Nothing, None), "{request:?} acts twice");
            let settled = grant.settle(Outcome::Done);
            assert_eq!(settled.change, None, "{request:?} changes something twice");
            match &settled.reply {
                Reply::Done { changed } => assert!(!*changed),
                Reply::Defined(it) => {
                    let Reply::Defined(first) = reply else { panic!("{reply:?}") };
                    assert_eq!((it.changed, it.uid, it.uuid), (false, first.uid, first.uuid));
                }
                Reply::Hello(_)
                | Reply::Records(_)
                | Reply::Plan(_)
                | Reply::Console
                | Reply::Denied(_)
                | Reply::Failed(_) => {
                    panic!("{request:?} is answered {:?}", settled.reply)
                }
            }
        }
    }

    /// The helper dies and comes back with what is on its disk. Effects under way have landed, will land, or never do.
    fn crash(&mut self) {
        for flight in std::mem::take(&mut self.flights) {
            if flight.grant.intent().is_none() {
                continue;
            }
            match self.byte() % 3 {
                0 => {
                    self.carry_out(&flight.request, flight.grant.effect());
                }
                1 => {
                    let instance = flight.request.instance().unwrap().clone();
                    self.late.push((instance, flight.grant.effect().clone()));
                }
                _ => {}
            }
        }
        self.records = Records::load(self.ledger.values().cloned().collect()).expect("the ledger contradicts itself");
    }

    /// What libvirtd still had in hand happens. An executor never lets it cut a disk.
    fn land(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let (instance, effect) = self.late.remove(0);
        if self.libvirt.carry_out(&effect)
            && let Some(claim) = self.claims.0.get_mut(&instance)
        {
            let next = claim.begun.as_ref().and_then(|begun| begun.next.as_ref()).map_or(0, |next| next.disk.get());
            claim.capacity = claim.capacity.max(next).max(claim.now.disk.get());
        }
    }

    fn settle(&mut self) {
        for instance in self.ledger.keys().cloned().collect::<Vec<_>>() {
            self.settle_one(&instance);
        }
    }

    fn settle_one(&mut self, instance: &InstanceId) {
        let Some(record) = self.records.get(instance).cloned() else { return };
        if record.intent.is_none() || self.flights.iter().any(|flight| flight.request.instance() == Some(instance)) {
            return;
        }
        let fact = self.libvirt.look(&DomainQuestion::of(&record));
        let change = reconcile(&record, &fact);
        assert_eq!(change.is_none(), self.libvirt.silent, "an intent that cannot be settled: {record:?}");
        if let Some(change) = change {
            self.keep(change);
            let there = self.libvirt.identified(record.uuid).is_some();
            self.claims.end(instance, End::Doubted { there });
        }
    }

    fn settle_everything(&mut self) {
        while !self.flights.is_empty() {
            self.finish(0);
        }
        self.libvirt.silent = false;
        self.settle();
        assert!(self.records.iter().all(|record| record.intent.is_none()));
        self.check();
    }

    fn check(&mut self) {
        self.libvirt.check();
        self.claims.check(&self.libvirt, self.records.iter());
        assert!(self.records.iter().eq(self.ledger.values()), "memory and ledger differ");
        if !std::mem::take(&mut self.written) {
            return;
        }
        let loaded = Records::load(self.ledger.values().cloned().collect());
        assert!(loaded.is_ok_and(|loaded| loaded.iter().eq(self.records.iter())), "the ledger contradicts itself");
    }
}
