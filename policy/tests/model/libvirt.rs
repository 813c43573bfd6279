//! A libvirt that behaves as far as policy depends on it, and knows who made each domain.
//!
//! Room: `policy`, model tests. It takes nothing from the records: what a domain is made of is read from the XML that it was
//! given, and every effect on a domain that bcd did not make ends the test.
use bcd_policy::effect::OwnDomain;
use bcd_policy::{DomainFact, DomainQuestion, DomainState, Effect, Sighting};
use bcd_protocol::id::{BridgeName, DomainUuid};
use bcd_protocol::net::MacAddress;
use std::collections::BTreeSet;

/// What of a domain must be nobody else's while it is in memory, as its XML says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) uid: u32,
    pub(crate) taps: BTreeSet<String>,
    pub(crate) macs: BTreeSet<(BridgeName, MacAddress)>,
}

impl Shape {
    fn read(xml: &str) -> Self {
        let mut shape = Self { uid: between(xml, "<label>+", ":kvm<").parse().unwrap(), ..Self::default() };
        let interfaces = xml.split("<interface ").skip(1);
        for interface in interfaces.map(|rest| rest.split("</interface>").next().unwrap()) {
            let bridge = BridgeName::parse(between(interface, "bridge=\"", "\"")).unwrap();
            shape.macs.insert((bridge, MacAddress::parse(between(interface, "address=\"", "\"")).unwrap()));
            shape.taps.insert(between(interface, "dev=\"", "\"").to_owned());
        }
        shape
    }
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    text.split_once(start).and_then(|(_, rest)| rest.split_once(end)).map_or("", |(found, _)| found)
}

/// One domain.
#[derive(Debug, Clone)]
pub(crate) struct Domain {
    pub(crate) name: String,
    pub(crate) uuid: DomainUuid,
    /// The name that bcd gave it; `None`: somebody else's.
    pub(crate) ours: Option<String>,
    /// Its definition; `None`: it vanishes when it stops.
    pub(crate) config: Option<Shape>,
    /// What it was started with.
    pub(crate) live: Option<Shape>,
    pub(crate) paused: bool,
}

impl Domain {
    fn sighting(&self) -> Sighting {
        let state = match (&self.live, self.paused) {
            (None, _) => DomainState::Shutoff,
            (Some(_), true) => DomainState::Paused,
            (Some(_), false) => DomainState::Running,
        };
        Sighting { name: self.name.clone(), uuid: self.uuid, state }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Libvirt {
    pub(crate) silent: bool,
    pub(crate) domains: Vec<Domain>,
    /// Network interfaces of other programs.
    pub(crate) strange_taps: BTreeSet<String>,
}

impl Libvirt {
    pub(crate) fn named(&self, name: &str) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.name == name)
    }

    pub(crate) fn identified(&self, uuid: DomainUuid) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.uuid == uuid)
    }

    pub(crate) fn look(&self, question: &DomainQuestion) -> DomainFact {
        if self.silent {
            return DomainFact::Unknown;
        }
        DomainFact::Seen {
            by_name: self.named(question.name.as_str()).map(Domain::sighting),
            by_uuid: question.uuid.and_then(|uuid| self.identified(uuid)).map(Domain::sighting),
        }
    }

    pub(crate) fn has_interface(&self, tap: &str) -> bool {
        let held = |domain: &Domain| domain.live.as_ref().is_some_and(|live| live.taps.contains(tap));
        self.strange_taps.contains(tap) || self.domains.iter().any(held)
    }

    /// Does what an executor does. `false`: libvirt refused, and nothing happened.
    pub(crate) fn carry_out(&mut self, effect: &Effect) -> bool {
        match effect {
            Effect::Nothing => true,
            Effect::LibvirtDefine(it) => self.define(it.domain(), it.xml().as_str()),
            Effect::LibvirtStart(it) => {
                if self.own(it.domain()).is_some_and(|domain| domain.live.is_some()) {
                    return false;
                }
                let paused = *it.paused();
                self.define(it.domain(), it.xml().as_str())
                    && self.own(it.domain()).is_some_and(|domain| {
                        domain.live = domain.config.clone();
                        domain.paused = paused;
                        true
                    })
            }
            Effect::LibvirtUndefine(it) => {
                let done = self.own(it.domain()).map(|domain| domain.config = None).is_some();
                self.sweep();
                done
            }
            Effect::LibvirtDestroy(it) => {
                let done = self.in_memory(it.domain()).map(|domain| domain.live = None).is_some();
                self.sweep();
                done
            }
            Effect::LibvirtShutdown(it) => self.in_memory(it.domain()).is_some(),
            Effect::LibvirtBlockResize(it) => self.in_memory(it.domain()).is_some(),
            Effect::ConsoleOpen(it) => {
                let uid = it.uid().get();
                self.in_memory(it.domain())
                    .is_some_and(|domain| domain.live.as_ref().is_some_and(|live| live.uid == uid))
            }
            Effect::LibvirtSuspend(it) => self.in_memory(it.domain()).map(|domain| domain.paused = true).is_some(),
            Effect::LibvirtResume(it) => self.in_memory(it.domain()).map(|domain| domain.paused = false).is_some(),
        }
    }

    fn define(&mut self, domain: &OwnDomain, xml: &str) -> bool {
        let (name, uuid) = (domain.name().as_str(), domain.uuid());
        assert_eq!(between(xml, "<name>", "<"), name, "the XML is of another domain");
        assert_eq!(between(xml, "<uuid>", "<"), uuid.to_string(), "the XML is of another domain");
        let config = Some(Shape::read(xml));
        if self.named(name).is_some_and(|there| there.uuid != uuid) {
            return false;
        }
        if self.identified(uuid).is_some() {
            return self.own(domain).map(|there| there.config = config).is_some();
        }
        let ours = Some(name.to_owned());
        self.domains.push(Domain { name: name.to_owned(), uuid, ours, config, live: None, paused: false });
        true
    }

    /// Looks a domain up by UUID and checks the name, as an executor does. Anybody else's ends the test.
    fn own(&mut self, domain: &OwnDomain) -> Option<&mut Domain> {
        let there = self.domains.iter_mut().find(|there| there.uuid == domain.uuid())?;
        assert_eq!(there.ours.as_deref(), Some(domain.name().as_str()), "an effect on a domain that bcd did not make");
        Some(there).filter(|there| there.name == domain.name().as_str())
    }

    fn in_memory(&mut self, domain: &OwnDomain) -> Option<&mut Domain> {
        self.own(domain).filter(|domain| domain.live.is_some())
    }

    /// What has no definition and is not in memory is gone.
    pub(crate) fn sweep(&mut self) {
        self.domains.retain(|domain| domain.config.is_some() || domain.live.is_some());
    }

    /// Nothing that a running domain of ours has is another's.
    pub(crate) fn check(&self) {
        let (mut uids, mut taps, mut macs) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for live in self.domains.iter().filter(|domain| domain.ours.is_some()).filter_map(|domain| domain.live.as_ref())
        {
            assert!(uids.insert(live.uid), "two guests run as uid {}", live.uid);
            for tap in &live.taps {
                assert!(taps.insert(tap), "two guests have the tap {tap}");
            }
            for mac in &live.macs {
                assert!(macs.insert(mac), "two guests have the mac {mac:?}");
            }
        }
    }
}
