//! The status of the node and its instances, put together from what the actor knows.
//!
//! Room: `node`. Reading only.
use super::work::Work;
use crate::helper::Reach as HelperReach;
use crate::observe::Observer;
use crate::plan::{Desired, DomainView, LIBVIRT_KVM};
use crate::runtime::{Reach as RuntimeReach, id_in_name};
use crate::spec::{Instance, RuntimeId};
use crate::status::{
    DriverKind, HelperStatus, InstanceStatus, Link, NicStatus, NodeStatus, RunsWith, RuntimeStatus, SpecStatus,
};
use bcd_protocol::definition::Definition;
use bcd_protocol::id::{BridgeName, InstanceId};
use bcd_protocol::net::MacAddress;
use ipnet::IpNet;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// What the status is made of.
pub(super) struct Sources<'a> {
    pub(super) observer: &'a Observer,
    pub(super) desired: Option<&'a Desired>,
    pub(super) works: &'a BTreeMap<InstanceId, Work>,
    /// The look at the host that `observer` has taken in last.
    pub(super) look: u64,
    pub(super) spec: &'a SpecStatus,
    pub(super) helper: &'a HelperReach,
    pub(super) runtime: &'a RuntimeReach,
    pub(super) runtime_version: Option<String>,
}

/// The whole status.
pub(super) fn node(sources: &Sources<'_>) -> NodeStatus {
    let runtimes: Vec<_> = sources.observer.runtimes().iter().map(|id| runtime(id, sources)).collect();
    let labels = runtimes.iter().map(|r| (format!("bc.dev/driver.{}", r.driver.as_str()), "true".to_owned())).collect();
    // States and records are read one after the other: while an instance is worked on, or was since the last look, its
    // domain may lack its record there without being foreign.
    let in_work = |name: &str| {
        let id = id_in_name(name).and_then(|id| InstanceId::parse(id).ok());
        let work = id.and_then(|id| sources.works.get(&id));
        work.is_some_and(|w| w.running.is_some() || w.not_before > sources.look)
    };
    NodeStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        helper: helper(sources.helper),
        spec: sources.spec.clone(),
        runtimes,
        labels,
        unreadable: sources.observer.unreadable(),
        instances: instances(sources),
        foreign: sources.observer.foreign().iter().filter(|d| !in_work(&d.name)).cloned().collect(),
    }
}

fn helper(reach: &HelperReach) -> HelperStatus {
    match reach {
        HelperReach::Up { package, .. } => {
            HelperStatus { state: Link::Connected, version: Some(package.to_string()), message: None }
        }
        HelperReach::Down { reason } => {
            HelperStatus { state: Link::Unreachable, version: None, message: Some(reason.to_string()) }
        }
    }
}

fn runtime(id: &RuntimeId, sources: &Sources<'_>) -> RuntimeStatus {
    let (state, message) = match sources.runtime {
        RuntimeReach::Up => (Link::Connected, None),
        RuntimeReach::Down { reason } => (Link::Unreachable, Some(reason.to_string())),
    };
    RuntimeStatus {
        driver: id.clone(),
        kind: DriverKind::Runtime,
        state,
        version: sources.runtime_version.clone(),
        capabilities: Vec::new(),
        message,
    }
}

fn instances(sources: &Sources<'_>) -> Vec<InstanceStatus> {
    let observer = sources.observer;
    let mut ids: BTreeSet<&InstanceId> = observer.records().keys().collect();
    ids.extend(sources.desired.into_iter().flat_map(|d| d.iter().map(|(id, _)| id)));
    // Leftover directories, and instances whose record is gone while their files are being removed.
    ids.extend(observer.file_owners());
    let Ok(fallback) = RuntimeId::parse(LIBVIRT_KVM) else { return Vec::new() };
    ids.into_iter().map(|id| instance(id, sources, &fallback)).collect()
}

fn instance(id: &InstanceId, sources: &Sources<'_>, fallback: &RuntimeId) -> InstanceStatus {
    let wanted = sources.desired.and_then(|d| d.instance(id));
    let record = sources.observer.records().get(id);
    let definition = record.map(|r| &r.definition);
    let work = sources.works.get(id);
    let DomainView { state, stop_reason } = sources.observer.state(id);
    let nics = nics(id, wanted, definition);
    InstanceStatus {
        id: id.clone(),
        allocation: definition.map(|d| &d.allocation).or_else(|| wanted.map(|w| &w.allocation)).cloned(),
        state,
        stop_reason,
        desired: wanted.map(|w| w.desired_state),
        runtime: wanted.map_or_else(|| fallback.clone(), |w| w.runtime.clone()),
        vcpus: definition.map(|d| d.vcpus).or_else(|| wanted.map(|w| w.vcpus)).map(|v| v.get()),
        memory_bytes: definition.map(|d| d.memory).or_else(|| wanted.map(|w| w.memory_bytes)).map(|m| m.get()),
        disk_bytes: definition.map(|d| d.disk).or_else(|| wanted.map(|w| w.disk_bytes)).map(|d| d.get()),
        image_sha256: definition.map(|d| d.image.sha256).or_else(|| wanted.map(|w| w.image.sha256)),
        addresses: nics.iter().flat_map(|n| n.addresses.iter().copied()).collect(),
        nics,
        gpus: Vec::new(),
        volumes: Vec::new(),
        uuid: record.map(|r| r.uuid),
        uid: record.map(|r| r.uid),
        runs_with: sources
            .observer
            .runs_with(id)
            .map(|details| RunsWith { vcpus: details.vcpus, memory_bytes: details.memory_bytes }),
        doing: work.and_then(|w| w.running.as_ref()).and_then(|r| r.doing.shown()),
        last_error: work.and_then(|w| w.error.clone()),
    }
}

/// The NICs as defined; as wanted while nothing is defined yet.
fn nics(id: &InstanceId, wanted: Option<&Instance>, definition: Option<&Definition>) -> Vec<NicStatus> {
    let nics: Vec<(&BridgeName, MacAddress, &[IpNet])> = match (definition, wanted) {
        (Some(definition), _) => definition.nics.iter().map(|n| (&n.bridge, n.mac, &n.addresses[..])).collect(),
        (None, Some(wanted)) => wanted.nics.iter().map(|n| (&n.bridge, n.mac, &n.addresses[..])).collect(),
        (None, None) => Vec::new(),
    };
    if nics.is_empty() {
        return Vec::new();
    }
    let stem = tap_stem(id);
    let shown = nics.into_iter().enumerate().map(|(index, (bridge, mac, addresses))| NicStatus {
        tap: format!("{stem}n{index}"),
        bridge: bridge.clone(),
        mac,
        addresses: addresses.to_vec(),
    });
    shown.collect()
}

/// What an instance's host interfaces are called, less the index; the helper derives the same.
fn tap_stem(id: &InstanceId) -> String {
    let digest = Sha256::digest(id.as_str());
    let hex: String = digest.iter().take(5).map(|b| format!("{b:02x}")).collect();
    format!("bc{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_taps_shown_are_called_as_the_helper_calls_them() {
        // The helper's golden file of this instance's domain (policy/tests/golden/kvm.xml) has the same name.
        let web = InstanceId::parse("web").expect("an id");
        assert_eq!(format!("{}n0", tap_stem(&web)), "bc4b5e57f6ebn0");
    }
}
