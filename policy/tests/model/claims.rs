//! Who owns what, and therefore what must be granted: a second opinion that shares no code with policy.
//!
//! Room: `policy`, model tests. Claims follow from requests and from how they ended, never from records.
use super::libvirt::{Domain, Libvirt};
use bcd_policy::{DomainName, Record};
use bcd_protocol::config::HelperConfig;
use bcd_protocol::definition::Definition;
use bcd_protocol::id::{BridgeName, DomainUuid, InstanceId};
use bcd_protocol::net::MacAddress;
use bcd_protocol::request::{Request, Verb};
use std::collections::{BTreeMap, BTreeSet};

/// What was begun on a claim.
#[derive(Debug, Clone)]
pub(crate) struct Begun {
    pub(crate) verb: Verb,
    /// For a definition or a disk that changes: what it is to be.
    pub(crate) next: Option<Definition>,
    pub(crate) creates: bool,
}

/// One instance that bcd answers for.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) uid: u32,
    pub(crate) uuid: DomainUuid,
    pub(crate) now: Definition,
    pub(crate) begun: Option<Begun>,
    /// How large its disk may be: no granted size below it.
    pub(crate) capacity: u64,
}

/// How what was begun ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Refused,
    /// Nobody knows, and libvirt was asked whether the domain is there.
    Doubted {
        there: bool,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Claims(pub(crate) BTreeMap<InstanceId, Claim>);

type Mac = (BridgeName, MacAddress);

fn macs(definition: &Definition) -> Vec<Mac> {
    definition.nics.iter().map(|nic| (nic.bridge.clone(), nic.mac)).collect()
}

impl Claim {
    fn macs(&self) -> BTreeSet<Mac> {
        let next = self.begun.as_ref().and_then(|begun| begun.next.as_ref());
        macs(&self.now).into_iter().chain(next.into_iter().flat_map(macs)).collect()
    }
}

/// The two ids among the model's whose taps would have the same names.
fn same_taps(a: &InstanceId, b: &InstanceId) -> bool {
    a != b && [a, b].iter().all(|id| id.as_str().starts_with("vm-"))
}

impl Claims {
    /// A new claim: it must not touch any other.
    pub(crate) fn create(&mut self, instance: &InstanceId, uid: u32, uuid: DomainUuid, definition: &Definition) {
        for (other, claim) in &self.0 {
            assert_ne!(claim.uid, uid, "{instance} is given the uid of {other}");
            assert_ne!(claim.uuid, uuid, "{instance} is given the uuid of {other}");
            assert!(!same_taps(other, instance), "{instance} is given the taps of {other}");
        }
        let (now, capacity) = (definition.clone(), definition.disk.get());
        let begun = Some(Begun { verb: Verb::LibvirtDefine, next: None, creates: true });
        self.0.insert(instance.clone(), Claim { uid, uuid, now, begun, capacity });
    }

    pub(crate) fn end(&mut self, instance: &InstanceId, end: End) {
        let Some(claim) = self.0.get_mut(instance) else { return };
        let Some(begun) = claim.begun.take() else { return };
        let gone = match end {
            End::Done => begun.verb == Verb::LibvirtUndefine,
            End::Refused => begun.creates,
            End::Doubted { there } => begun.verb == Verb::LibvirtUndefine && !there,
        };
        if gone {
            self.0.remove(instance);
            return;
        }
        match (end, begun.next) {
            (End::Done, Some(next)) => claim.now = next,
            (End::Doubted { .. }, Some(next)) => claim.now.disk = claim.now.disk.max(next.disk),
            (End::Done | End::Refused | End::Doubted { .. }, _) => {}
        }
    }

    /// No MAC is claimed twice on one bridge, nothing in the records is otherwise, and every domain of ours is claimed.
    pub(crate) fn check<'a>(&self, libvirt: &Libvirt, records: impl Iterator<Item = &'a Record>) {
        let mut holders = BTreeMap::new();
        for (instance, claim) in &self.0 {
            for mac in claim.macs() {
                if let Some(other) = holders.insert(mac.clone(), instance) {
                    panic!("{instance} and {other} are both given {mac:?}");
                }
            }
        }
        let mut ids = Vec::new();
        for record in records {
            let claim = self.0.get(&record.instance).expect("a record that nobody was given");
            assert_eq!((record.uid.get(), record.uuid), (claim.uid, claim.uuid));
            assert_eq!(record.intent.is_some(), claim.begun.is_some(), "{}", record.instance);
            if record.intent.is_none() {
                assert_eq!(record.definition, claim.now, "{}", record.instance);
            }
            ids.push(record.instance.clone());
        }
        assert!(ids.iter().eq(self.0.keys()), "a claim without a record");
        for domain in libvirt.domains.iter().filter(|domain| domain.ours.is_some()) {
            let claim = self.0.values().find(|claim| claim.uuid == domain.uuid);
            let claim = claim.unwrap_or_else(|| panic!("domain {} is ours and nobody's", domain.name));
            for shape in domain.live.iter().chain(&domain.config) {
                assert_eq!(shape.uid, claim.uid, "domain {}", domain.name);
            }
            if let Some(live) = &domain.live {
                assert!(live.macs.is_subset(&claim.macs()), "domain {} runs with a mac it gave up", domain.name);
            }
        }
    }

    /// Whether a request of the node that was greeted must be granted.
    pub(crate) fn grants(&self, host: &Host<'_>, request: &Request) -> bool {
        let Some(instance) = request.instance() else { return request.verb() == Verb::Records };
        let name = DomainName::of(instance);
        let claim = self.0.get(instance);
        let named = host.libvirt.named(name.as_str());
        let identified = claim.and_then(|claim| host.libvirt.identified(claim.uuid));
        let domain = match (named, identified) {
            _ if host.libvirt.silent => return false,
            (None, None) => None,
            (Some(named), Some(identified)) if named.uuid == identified.uuid => Some(identified),
            _ => return false,
        };
        let live = domain.filter(|domain| domain.live.is_some());
        let stopped = domain.is_some() && live.is_none();
        let running = live.is_some_and(|domain| !domain.paused);
        match request {
            Request::Hello { .. } | Request::Records { .. } => false,
            Request::LibvirtPlan { definition, .. } => self.may_be(host, instance, definition, live),
            Request::LibvirtDefine { definition, .. } => host.files && self.may_be(host, instance, definition, live),
            Request::LibvirtUndefine { .. } => live.is_none(),
            Request::LibvirtStart { paused, .. } => match (claim, live) {
                (_, Some(domain)) => domain.paused == *paused,
                (Some(claim), None) if stopped => {
                    let free = |tap: &String| !host.libvirt.has_interface(tap);
                    host.files && self.may_be(host, instance, &claim.now, None) && host.taps.iter().all(free)
                }
                (_, None) => false,
            },
            Request::LibvirtShutdown { .. } => stopped || running,
            Request::LibvirtDestroy { .. } => claim.is_some(),
            Request::LibvirtSuspend { .. } | Request::LibvirtResume { .. } | Request::Console { .. } => live.is_some(),
            Request::LibvirtBlockResize { disk, .. } => {
                let least = claim.map(|claim| claim.now.disk);
                live.is_some() && least.is_some_and(|least| *disk >= least) && *disk <= host.config.max_disk_bytes
            }
        }
    }

    fn may_be(&self, host: &Host<'_>, instance: &InstanceId, wanted: &Definition, live: Option<&Domain>) -> bool {
        let config = host.config;
        let list = macs(wanted);
        let distinct: BTreeSet<_> = list.iter().cloned().collect();
        let fits = wanted.vcpus.get() <= config.max_vcpus
            && wanted.memory <= config.max_memory_bytes
            && wanted.disk <= config.max_disk_bytes
            && wanted.nics.iter().all(|nic| config.instance_bridges.contains(&nic.bridge))
            && distinct.len() == list.len();
        let others = || self.0.iter().filter(|(other, _)| *other != instance);
        let free = others().all(|(_, claim)| claim.macs().is_disjoint(&distinct));
        let may_change = match self.0.get(instance) {
            None => {
                self.0.len() < config.max_instances as usize
                    && others().all(|(other, claim)| !same_taps(other, instance) && claim.uuid != host.next_uuid)
            }
            Some(claim) => {
                let same_in_memory = wanted.nics == claim.now.nics && wanted.disk == claim.now.disk;
                wanted.image == claim.now.image && wanted.disk >= claim.now.disk && (live.is_none() || same_in_memory)
            }
        };
        fits && free && may_change
    }
}

/// What else an answer depends on.
pub(crate) struct Host<'a> {
    pub(crate) libvirt: &'a Libvirt,
    pub(crate) config: &'a HelperConfig,
    /// Whether the instance's files are as they should be.
    pub(crate) files: bool,
    /// The taps that the instance would have.
    pub(crate) taps: Vec<String>,
    /// The UUID that the next new domain would get.
    pub(crate) next_uuid: DomainUuid,
}
