//! A document made ready for planning, once per document: each instance's definition, or why it cannot be run here.
//!
//! Room: `node`. Pure. A feature that is not built fails the instance that asks for it, alone and by name: an instance
//! never runs without what its document promises.
use crate::fault::FaultKind;
use crate::plan::Refusal;
use crate::spec::{DesiredState, Instance, NetworkPolicy, NodeSpec, Placement, RuntimeId};
use bcd_protocol::definition::{Definition, ImageRef, Nic, Nics};
use bcd_protocol::id::InstanceId;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// libvirt's driver id.
pub const LIBVIRT_KVM: &str = "libvirt-kvm";

/// Every runtime that bcd knows, on this host or not.
pub const RUNTIMES: [&str; 2] = [LIBVIRT_KVM, "cloud-hypervisor"];

/// Tells one instance's wishes from others that were put under the same id. Good within one process only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(u64);

/// A document made ready for planning.
#[derive(Debug, Clone, Default)]
pub struct Desired {
    spec: Arc<NodeSpec>,
    wanted: BTreeMap<InstanceId, Wanted>,
    notes: Vec<String>,
}

/// One instance that the document wants.
#[derive(Debug, Clone)]
pub struct Wanted {
    index: usize,
    state: DesiredState,
    runtime: RuntimeId,
    fingerprint: Fingerprint,
    definition: Result<Definition, Refusal>,
}

impl Desired {
    /// Makes `spec` ready. It has been parsed, so that its ids are unique.
    #[must_use]
    pub fn of(spec: Arc<NodeSpec>) -> Self {
        let wanted = spec
            .instances
            .iter()
            .enumerate()
            .map(|(index, instance)| {
                let wanted = Wanted {
                    index,
                    state: instance.desired_state,
                    runtime: instance.runtime.clone(),
                    fingerprint: fingerprint(instance),
                    definition: definition(instance),
                };
                (instance.id.clone(), wanted)
            })
            .collect();
        let mut notes = Vec::new();
        if !spec.volumes.is_empty() {
            notes.push("volumes: accepted, but this bcd makes no volumes yet".to_owned());
        }
        if !spec.holds.is_empty() {
            notes.push("holds: accepted, but this bcd does not reserve memory for others yet".to_owned());
        }
        Self { spec, wanted, notes }
    }

    /// The document.
    #[must_use]
    pub fn spec(&self) -> &Arc<NodeSpec> {
        &self.spec
    }

    /// What the document asks for that concerns no instance and is not done: for the log and the one who applies it.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// One instance as the document has it.
    #[must_use]
    pub fn instance(&self, id: &InstanceId) -> Option<&Instance> {
        self.wanted.get(id).and_then(|wanted| self.spec.instances.get(wanted.index))
    }

    /// One instance made ready.
    #[must_use]
    pub fn get(&self, id: &InstanceId) -> Option<&Wanted> {
        self.wanted.get(id)
    }

    /// All instances in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&InstanceId, &Wanted)> {
        self.wanted.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Whether the document wants none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The base images that the document's instances lie on; the records name those still in use beside them.
    pub fn images(&self) -> impl Iterator<Item = ImageRef> {
        self.spec.instances.iter().filter_map(|instance| instance.image.reference())
    }
}

impl Wanted {
    /// The state to keep it in.
    #[must_use]
    pub fn state(&self) -> DesiredState {
        self.state
    }

    /// Its runtime.
    #[must_use]
    pub fn runtime(&self) -> &RuntimeId {
        &self.runtime
    }

    /// What its files would be made for: the executor notes it with what it made.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// What the helper is asked to define.
    ///
    /// # Errors
    /// The refusal that [`crate::plan::plan`] gives, when the document asks for what this bcd cannot do.
    pub fn definition(&self) -> Result<&Definition, &Refusal> {
        self.definition.as_ref()
    }
}

/// Hashes what an instance's files are made from. The desired state, vCPUs and memory are not in it.
fn fingerprint(instance: &Instance) -> Fingerprint {
    let mut hasher = DefaultHasher::new();
    let Instance { allocation, hostname, disk_bytes, image, nics, restore_from, .. } = instance;
    (allocation, hostname, disk_bytes, image, nics, restore_from).hash(&mut hasher);
    Fingerprint(hasher.finish())
}

fn definition(instance: &Instance) -> Result<Definition, Refusal> {
    if let Some(feature) = unbuilt(instance) {
        return Err(Refusal::new(FaultKind::Unsupported, feature));
    }
    let image = instance.image.reference().ok_or_else(|| Refusal::new(FaultKind::Unsupported, ISO))?;
    let nics: Vec<Nic> = instance
        .nics
        .iter()
        .map(|nic| Nic { bridge: nic.bridge.clone(), mac: nic.mac, addresses: nic.addresses.clone() })
        .collect();
    let nics = Nics::try_from(nics).map_err(|e| Refusal::new(FaultKind::InvalidSpec, format!("nics: {e}")))?;
    Ok(Definition {
        allocation: instance.allocation.clone(),
        vcpus: instance.vcpus,
        memory: instance.memory_bytes,
        disk: instance.disk_bytes,
        image,
        nics,
    })
}

const ISO: &str = "image.format is iso: this bcd boots no iso yet, use a qcow2 or raw image";

/// The first field that asks for what is not built, as a sentence.
fn unbuilt(instance: &Instance) -> Option<String> {
    let Instance {
        id: _,
        allocation: _,
        runtime: _,
        hostname: _,
        vcpus: _,
        memory_bytes: _,
        disk_bytes: _,
        image,
        nics: _,
        network_policy,
        ssh_from_host_only,
        gpu_device_ids,
        volumes,
        placement,
        restore_from,
        identity_rebind_ref,
        desired_state: _,
    } = instance;
    let not_yet = |field: &str, what: &str| {
        Some(format!("{field}: this bcd {what} yet, and the instance does not run without it; leave the field out"))
    };
    if image.reference().is_none() {
        return Some(ISO.to_owned());
    }
    match network_policy {
        NetworkPolicy::Public => {}
        NetworkPolicy::Private => return not_yet("network_policy is private", "enforces no network policy"),
        NetworkPolicy::None => return not_yet("network_policy is none", "enforces no network policy"),
    }
    if *ssh_from_host_only {
        return not_yet("ssh_from_host_only is true", "enforces no network rule");
    }
    if !gpu_device_ids.is_empty() {
        return not_yet("gpu_device_ids", "passes no GPU through");
    }
    if !volumes.is_empty() {
        return not_yet("volumes", "attaches no volume");
    }
    if placement.as_ref().is_some_and(|placement| *placement != Placement::default()) {
        return not_yet("placement", "places no instance on CPUs, nodes or huge pages and gives no balloon");
    }
    if restore_from.is_some() {
        return not_yet("restore_from", "restores no snapshot");
    }
    if identity_rebind_ref.is_some() {
        return not_yet("identity_rebind_ref", "gives no guest a new identity");
    }
    None
}
