//! What a document's values may not say together.
//!
//! Room: `node`. Pure. Everything here can be told from the text alone: names that are given twice, references that lead
//! nowhere, two owners of one thing, numbers that do not go together.
use super::locate::FieldPath;
use super::{DesiredState, HugepageSize, Instance, NicSpec, NodeSpec, Placement, VolumeId};
use bcd_protocol::id::BridgeName;
use bcd_protocol::net::MacAddress;
use ipnet::IpNet;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::IpAddr;

/// A fault of the document: where, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) path: FieldPath,
    pub(super) message: String,
}

fn flaw(path: FieldPath, message: impl Into<String>) -> Result<(), Flaw> {
    Err(Flaw { path, message: message.into() })
}

/// Checks a parsed document.
pub(super) fn check(spec: &NodeSpec) -> Result<(), Flaw> {
    unique("volumes", spec.volumes.iter().map(|volume| &volume.id))?;
    unique("holds", spec.holds.iter().map(|hold| &hold.id))?;
    unique("instances", spec.instances.iter().map(|instance| &instance.id))?;
    let declared: HashSet<&VolumeId> = spec.volumes.iter().map(|volume| &volume.id).collect();
    let mut taken = Taken::default();
    for (i, instance) in spec.instances.iter().enumerate() {
        let at = FieldPath::of("instances").index(i);
        placement(&at, instance)?;
        volumes(&at, instance, &declared)?;
        for (n, nic) in instance.nics.iter().enumerate() {
            addresses(&at.clone().key("nics").index(n), nic)?;
        }
        taken.add(&at, instance)?;
    }
    Ok(())
}

/// No id twice.
fn unique<'a, T: Hash + Eq + std::fmt::Display + 'a>(
    section: &'static str,
    ids: impl Iterator<Item = &'a T>,
) -> Result<(), Flaw> {
    let mut seen = HashMap::new();
    for (i, id) in ids.enumerate() {
        if let Some(first) = seen.insert(id, i) {
            return flaw(
                FieldPath::of(section).index(i).key("id"),
                format!("{id} is the id of {section}[{first}] already: give each its own"),
            );
        }
    }
    Ok(())
}

fn placement(at: &FieldPath, instance: &Instance) -> Result<(), Flaw> {
    let Some(placement) = &instance.placement else { return Ok(()) };
    let at = at.clone().key("placement");
    let Placement { cpus, mems: _, hugepage_size_bytes, balloon: _ } = placement;
    if let Some(cpus) = cpus {
        let (given, needed) = (cpus.members().len(), instance.vcpus.get());
        if given < needed as usize {
            return flaw(
                at.key("cpus"),
                format!("{given} CPUs are too few for vcpus = {needed}: name at least {needed}"),
            );
        }
    }
    let page = hugepage_size_bytes.bytes();
    let memory = instance.memory_bytes.get();
    if *hugepage_size_bytes != HugepageSize::None && !memory.is_multiple_of(page) {
        return flaw(
            at.key("hugepage_size_bytes"),
            format!("memory_bytes = {memory} is no whole number of pages of {page} bytes"),
        );
    }
    Ok(())
}

fn volumes(at: &FieldPath, instance: &Instance, declared: &HashSet<&VolumeId>) -> Result<(), Flaw> {
    let (mut serials, mut ids) = (HashSet::new(), HashSet::new());
    for (v, attached) in instance.volumes.iter().enumerate() {
        let at = at.clone().key("volumes").index(v);
        if !declared.contains(&attached.id) {
            return flaw(at.key("id"), format!("volume {} is not declared under volumes", attached.id));
        }
        if !ids.insert(&attached.id) {
            return flaw(at.key("id"), format!("volume {} is attached to this instance already", attached.id));
        }
        if !serials.insert(&attached.serial) {
            return flaw(
                at.key("serial"),
                format!("serial {} is another volume's of this instance: the guest finds one of them", attached.serial),
            );
        }
    }
    Ok(())
}

/// One NIC's addresses, gateway and name servers.
fn addresses(at: &FieldPath, nic: &NicSpec) -> Result<(), Flaw> {
    for (a, net) in nic.addresses.iter().enumerate() {
        let at = at.clone().key("addresses").index(a);
        if let Some(what) = not_a_host(net.addr()) {
            return flaw(at, format!("{net} is {what}: give the guest's own address"));
        }
        if let IpNet::V4(v4) = net
            && v4.prefix_len() <= 30
            && (v4.addr() == v4.network() || v4.addr() == v4.broadcast())
        {
            return flaw(at, format!("{net} is the network's own address: give the guest's, within {}", v4.trunc()));
        }
    }
    if let Some(gateway) = nic.gateway {
        let at = at.clone().key("gateway");
        if let Some(what) = not_a_host(gateway) {
            return flaw(at, format!("{gateway} is {what}: give the router's address"));
        }
        if nic.addresses.iter().any(|net| net.addr() == gateway) {
            return flaw(at, format!("{gateway} is the NIC's own address: give the router's"));
        }
        // With IPv6 there is always a link-local address to go out from.
        if gateway.is_ipv4() && !nic.addresses.is_empty() && !nic.addresses.iter().any(|net| net.addr().is_ipv4()) {
            return flaw(at, format!("{gateway} cannot be reached: the NIC has static addresses and none is IPv4"));
        }
    }
    for (n, server) in nic.nameservers.iter().enumerate() {
        if server.is_unspecified() || server.is_multicast() {
            return flaw(at.clone().key("nameservers").index(n), format!("{server} is no server's address"));
        }
    }
    Ok(())
}

fn not_a_host(address: IpAddr) -> Option<&'static str> {
    if address.is_unspecified() {
        Some("the unspecified address")
    } else if address.is_multicast() {
        Some("a multicast address")
    } else if address.is_loopback() {
        Some("a loopback address")
    } else if address == IpAddr::V4(std::net::Ipv4Addr::BROADCAST) {
        Some("the broadcast address")
    } else {
        None
    }
}

/// What only one instance may have, and who has it.
#[derive(Default)]
struct Taken<'a> {
    macs: HashMap<(&'a BridgeName, MacAddress), &'a Instance>,
    addresses: HashMap<(&'a BridgeName, IpAddr), &'a Instance>,
    writers: HashMap<&'a VolumeId, &'a Instance>,
    gpus: HashMap<&'a str, &'a Instance>,
}

impl<'a> Taken<'a> {
    fn add(&mut self, at: &FieldPath, instance: &'a Instance) -> Result<(), Flaw> {
        for (n, nic) in instance.nics.iter().enumerate() {
            let at = at.clone().key("nics").index(n);
            if let Some(other) = self.macs.insert((&nic.bridge, nic.mac), instance) {
                return flaw(
                    at.key("mac"),
                    format!("{} is instance {}'s already on bridge {}", nic.mac, other.id, nic.bridge),
                );
            }
            for (a, net) in nic.addresses.iter().enumerate() {
                if let Some(other) = self.addresses.insert((&nic.bridge, net.addr()), instance) {
                    return flaw(
                        at.key("addresses").index(a),
                        format!("{} is instance {}'s already on bridge {}", net.addr(), other.id, nic.bridge),
                    );
                }
            }
        }
        let mut own = HashSet::new();
        for (g, gpu) in instance.gpu_device_ids.iter().enumerate() {
            if !own.insert(gpu) {
                return flaw(at.clone().key("gpu_device_ids").index(g), format!("{gpu} is there twice"));
            }
        }
        // One that is to be stopped gives back what it held, so that a document can hand it on.
        if instance.desired_state == DesiredState::Stopped {
            return Ok(());
        }
        for (g, gpu) in instance.gpu_device_ids.iter().enumerate() {
            if let Some(other) = self.gpus.insert(gpu.as_str(), instance) {
                return flaw(
                    at.clone().key("gpu_device_ids").index(g),
                    format!("{gpu} is instance {}'s already: one of the two can run", other.id),
                );
            }
        }
        for (v, attached) in instance.volumes.iter().enumerate().filter(|(_, attached)| !attached.read_only) {
            if let Some(other) = self.writers.insert(&attached.id, instance) {
                return flaw(
                    at.clone().key("volumes").index(v).key("id"),
                    format!(
                        "volume {} has a writer already, instance {}: attach it read_only, or stop one of the two",
                        attached.id, other.id
                    ),
                );
            }
        }
        Ok(())
    }
}
