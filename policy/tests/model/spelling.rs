//! What bytes spell: requests of a hostile node, and what befalls the host beside them.
//!
//! Room: `policy`, model tests. Most choices are ones that may be granted; each has a bad one among them.
use super::libvirt::{Domain, Shape};
use super::{IDS, Model};
use bcd_policy::TapName;
use bcd_protocol::definition::{Addresses, Definition, ImageFormat, ImageRef, Nic, Nics};
use bcd_protocol::id::{AllocationId, BridgeName, DomainUuid, InstanceId, Sha256Digest};
use bcd_protocol::net::MacAddress;
use bcd_protocol::request::Request;
use bcd_protocol::size::{DiskBytes, MemoryBytes, Vcpus};

impl Model<'_> {
    pub(super) fn byte(&mut self) -> u8 {
        let (first, rest) = self.bytes.split_first().unwrap_or((&0, &[]));
        self.bytes = rest;
        *first
    }

    pub(super) fn instance(&mut self) -> InstanceId {
        InstanceId::parse(IDS[usize::from(self.byte()) % IDS.len()]).unwrap()
    }

    pub(super) fn request(&mut self) -> Request {
        let verb = self.byte();
        let instance = self.instance();
        match verb % 16 {
            0 => Request::LibvirtPlan { instance, definition: self.definition() },
            1..=4 => Request::LibvirtDefine { instance, definition: self.definition() },
            5 | 6 => Request::LibvirtUndefine { instance },
            7 => Request::LibvirtStart { instance, paused: true },
            8 | 9 => Request::LibvirtStart { instance, paused: false },
            10 => Request::LibvirtShutdown { instance },
            11 => Request::LibvirtDestroy { instance },
            12 => Request::LibvirtSuspend { instance },
            13 => Request::LibvirtResume { instance },
            14 => Request::LibvirtBlockResize { instance, disk: disk(1 + u64::from(self.byte() % 4)) },
            _ => match self.byte() % 3 {
                0 => Request::Console { instance },
                1 => Request::Records { after: Some(instance), limit: 2 },
                _ => Request::Hello { version: bcd_protocol::PROTOCOL_VERSION },
            },
        }
    }

    /// Mostly one that may be: each value has one bad choice.
    pub(super) fn definition(&mut self) -> Definition {
        let (sizes, nics) = (self.byte(), self.byte());
        let count = usize::from(nics % 4).saturating_sub(1);
        let nics = [nics >> 2, nics >> 5].into_iter().take(count).map(|bits| Nic {
            bridge: bridge(["br0", "br1", "br0", "br9"][usize::from(bits & 3) % 4]),
            mac: MacAddress::from_bytes([0x52, 0x54, 0, 0, 0, 1 + (bits >> 2) % 3]).unwrap(),
            addresses: Addresses::default(),
        });
        Definition {
            allocation: AllocationId::parse("x").unwrap(),
            vcpus: Vcpus::new(1 + u64::from(sizes & 3) % 3).unwrap(),
            memory: MemoryBytes::new(64 << 20).unwrap(),
            disk: disk(1 + u64::from((sizes >> 2) & 3)),
            image: ImageRef { sha256: Sha256Digest::from_bytes([sizes >> 7; 32]), format: ImageFormat::Raw },
            nics: Nics::try_from(nics.collect::<Vec<_>>()).unwrap(),
        }
    }

    pub(super) fn reconfigure(&mut self) {
        let byte = self.byte();
        let helper = &mut self.config.helper;
        match byte % 8 {
            0 => self.libvirt.silent ^= true,
            1 => self.files ^= true,
            2 => helper.max_vcpus = 1 + u32::from(byte >> 3) % 2,
            3 => helper.max_instances = 1 + u32::from(byte >> 3) % 4,
            4 => helper.max_disk_bytes = disk(2 + u64::from(byte >> 3) % 2),
            5 => helper.instance_bridges = vec![bridge("br0")],
            6 => helper.instance_bridges = vec![bridge("br0"), bridge("br1")],
            _ => {
                let tap = TapName::of(&InstanceId::parse(IDS[usize::from(byte >> 3) % 4]).unwrap(), 0).to_string();
                if !self.libvirt.strange_taps.remove(&tap) && !self.libvirt.has_interface(&tap) {
                    self.libvirt.strange_taps.insert(tap);
                }
            }
        }
    }

    /// Somebody else defines a domain under one of our names, or takes it away again.
    pub(super) fn stranger(&mut self) {
        let name = format!("bcd-{}", self.instance());
        let count = self.libvirt.domains.len();
        self.libvirt.domains.retain(|domain| domain.name != name || domain.ours.is_some());
        if count == self.libvirt.domains.len() && self.libvirt.named(&name).is_none() {
            self.strangers = self.strangers.wrapping_add(1);
            let mut uuid = [0xee; 16];
            uuid[0] = self.strangers;
            let uuid = DomainUuid::from_bytes(uuid);
            let config = Some(Shape::default());
            self.libvirt.domains.push(Domain { name, uuid, ours: None, config, live: None, paused: false });
        }
    }

    /// The guest, or an administrator, does something to a domain of ours.
    pub(super) fn outside(&mut self) {
        let (which, what) = (usize::from(self.byte()), self.byte());
        let mut ours: Vec<&mut Domain> =
            self.libvirt.domains.iter_mut().filter(|domain| domain.ours.is_some()).collect();
        let count = ours.len();
        let Some(domain) = ours.get_mut(which % count.max(1)) else { return };
        match (what % 4, domain.live.is_some()) {
            (0, _) => domain.live = None,
            (1, true) => domain.paused ^= true,
            (2, _) => domain.config = None,
            (3, false) => {
                let named = domain.ours.clone().unwrap();
                let other = format!("renamed-{named}");
                domain.name = if domain.name == named { other } else { named };
            }
            _ => {}
        }
        // A name is one domain's: who was renamed meanwhile stays so.
        let named: Vec<String> = self.libvirt.domains.iter().map(|domain| domain.name.clone()).collect();
        for (index, domain) in self.libvirt.domains.iter_mut().enumerate() {
            if named.iter().enumerate().any(|(other, name)| other != index && *name == domain.name)
                && domain.ours.is_some()
            {
                domain.name = format!("renamed-{}", domain.name);
            }
        }
        self.libvirt.sweep();
    }
}

pub(super) fn bridge(name: &str) -> BridgeName {
    BridgeName::parse(name).unwrap()
}

pub(super) fn disk(gib: u64) -> DiskBytes {
    DiskBytes::new(gib << 30).unwrap()
}
