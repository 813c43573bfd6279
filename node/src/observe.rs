//! What the host holds, put together from the helper's records, the runtime's states and the node's own files.
//!
//! Room: `node`. [`fetch`] asks, [`Observer::absorb`] remembers, and neither waits for the other, so that the converger
//! stays answerable while libvirt is slow. Invariants: what could not be read is `Unknown` to the planner; a pass that
//! finds nothing changed rebuilds nothing; files are looked at when the node starts and after it changed them, never
//! every pass.
//!
//! Order matters: states first, records second. A record is written before its domain is defined, so a domain of ours
//! that is listed has its record in records read later; the other way round it would look foreign for one pass.
use crate::fault::Fault;
use crate::helper::{Helper, Records};
use crate::plan::{DomainView, InstanceFiles, LIBVIRT_KVM, Observed, Reading};
use crate::runtime::{Details, DomainState, Listing, PauseReason, Runtime, StopReason, id_in_name};
use crate::spec::RuntimeId;
use crate::status::{self, ForeignDomain, InstanceState, Section, UnixMillis, Unreadable};
use bcd_protocol::definition::ImageRef;
use bcd_protocol::id::{DomainUuid, InstanceId};
use bcd_protocol::reply::RecordView;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

mod live;
mod scan;
#[cfg(test)]
mod tests;

pub use live::Unread;
pub use scan::{Found, look_at, scan};

/// What one look at the host answered.
#[derive(Debug)]
pub struct Fetched {
    listing: Result<Arc<Listing>, Fault>,
    records: Result<Option<Records>, Fault>,
}

/// Asks the runtime for its states and the helper for its records, these only when their generation is not `known`.
pub async fn fetch(helper: Helper, runtime: Arc<dyn Runtime>, known: Option<u64>) -> Fetched {
    let listing = runtime.list().await;
    let records = match helper.generation().await {
        Ok((generation, _)) if Some(generation) == known => Ok(None),
        Ok(_) => helper.records().await.map(Some),
        Err(fault) => Err(fault),
    };
    Fetched { listing, records }
}

/// What a look changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Whether anything that is planned from, or shown, is another than before.
    pub any: bool,
    /// Foreign domains whose definitions are to be read, if they are others than before.
    pub foreign: Option<Vec<DomainUuid>>,
}

/// What is known of the host.
#[derive(Debug)]
pub struct Observer {
    generation: Option<u64>,
    records_known: bool,
    records: BTreeMap<InstanceId, RecordView>,
    by_uuid: HashMap<DomainUuid, InstanceId>,
    listing: Option<Arc<Listing>>,
    domains: BTreeMap<InstanceId, DomainView>,
    boots: BTreeMap<InstanceId, u32>,
    foreign: Vec<ForeignDomain>,
    details: HashMap<DomainUuid, Arc<Details>>,
    live: live::Live,
    described: Option<(u64, BTreeSet<DomainUuid>)>,
    files: Option<BTreeMap<InstanceId, InstanceFiles>>,
    images: HashSet<ImageRef>,
    runtimes: BTreeSet<RuntimeId>,
    libvirt: Option<RuntimeId>,
    unreadable: BTreeMap<Section, Unreadable>,
}

impl Default for Observer {
    fn default() -> Self {
        Self {
            generation: None,
            records_known: false,
            records: BTreeMap::new(),
            by_uuid: HashMap::new(),
            listing: None,
            domains: BTreeMap::new(),
            boots: BTreeMap::new(),
            foreign: Vec::new(),
            details: HashMap::new(),
            live: live::Live::default(),
            described: None,
            files: None,
            images: HashSet::new(),
            runtimes: BTreeSet::new(),
            libvirt: RuntimeId::parse(LIBVIRT_KVM).ok(),
            unreadable: BTreeMap::new(),
        }
    }
}

impl Observer {
    /// Nothing known yet but what a look at the node's own files found.
    #[must_use]
    pub fn new(found: Result<Found, Fault>) -> Self {
        let mut observer = Self::default();
        observer.take_files(found);
        observer
    }

    /// The records' generation, for [`fetch`].
    #[must_use]
    pub fn generation(&self) -> Option<u64> {
        self.generation
    }

    /// Whether the node's own files could be read.
    #[must_use]
    pub fn files_known(&self) -> bool {
        self.files.is_some()
    }

    /// Takes in what a look at all of the node's files found.
    pub fn take_files(&mut self, found: Result<Found, Fault>) {
        match found {
            Ok(found) => {
                self.files = Some(found.files);
                self.images = found.images;
                self.readable(Section::Files);
            }
            Err(fault) => {
                self.files = None;
                self.note_unreadable(Section::Files, &fault);
            }
        }
    }

    /// Takes in what became of one instance's files; `None`: its directory is gone.
    pub fn set_files(&mut self, id: &InstanceId, files: Option<InstanceFiles>) {
        if let Some(known) = &mut self.files {
            match files {
                Some(files) => known.insert(id.clone(), files),
                None => known.remove(id),
            };
        }
    }

    /// What is known of one instance's files.
    #[must_use]
    pub fn files(&self, id: &InstanceId) -> Option<InstanceFiles> {
        self.files.as_ref().and_then(|files| files.get(id)).copied()
    }

    /// The instances that have a directory.
    pub fn file_owners(&self) -> impl Iterator<Item = &InstanceId> {
        self.files.iter().flat_map(BTreeMap::keys)
    }

    /// Notes that a base image is there now.
    pub fn add_image(&mut self, image: ImageRef) {
        self.images.insert(image);
    }

    /// Notes that a base image is gone.
    pub fn remove_image(&mut self, image: &ImageRef) {
        self.images.remove(image);
    }

    /// Base images that are there.
    #[must_use]
    pub fn images(&self) -> &HashSet<ImageRef> {
        &self.images
    }

    /// Takes in one look.
    pub fn absorb(&mut self, fetched: Fetched) -> Changes {
        let mut changes = Changes::default();
        match fetched.records {
            Ok(news) => {
                changes.any |= self.readable(Section::Records) || !self.records_known;
                self.records_known = true;
                if let Some(news) = news {
                    changes.any = true;
                    self.generation = Some(news.generation);
                    self.by_uuid = news.records.iter().map(|r| (r.uuid, r.instance.clone())).collect();
                    self.records = news.records.into_iter().map(|r| (r.instance.clone(), r)).collect();
                }
            }
            Err(fault) => {
                self.records_known = false;
                changes.any |= self.note_unreadable(Section::Records, &fault);
            }
        }
        match fetched.listing {
            Ok(listing) => {
                changes.any |= self.readable(Section::Libvirt);
                if self.runtimes.is_empty() {
                    self.runtimes.extend(self.libvirt.clone());
                    changes.any = true;
                }
                let same = self.listing.as_ref().is_some_and(|known| Arc::ptr_eq(known, &listing));
                changes.any |= !same;
                self.listing = Some(listing);
            }
            Err(fault) => {
                changes.any |= self.note_unreadable(Section::Libvirt, &fault) || self.listing.is_some();
                self.listing = None;
            }
        }
        // A record is of a libvirt domain: the runtime is installed even when it has not answered since the start.
        if self.runtimes.is_empty() && !self.records.is_empty() {
            self.runtimes.extend(self.libvirt.clone());
            changes.any = true;
        }
        if changes.any {
            changes.foreign = self.match_domains();
        }
        changes
    }

    /// Takes in what the definitions of foreign domains say.
    pub fn describe(&mut self, details: HashMap<DomainUuid, Arc<Details>>) {
        self.details = details;
        for domain in &mut self.foreign {
            describe(domain, &self.details);
        }
    }

    /// Has the definitions of foreign domains read again: they could not be.
    pub fn forget_descriptions(&mut self) {
        self.described = None;
    }

    /// The next running instances of which it is to be read what their VMMs were started with.
    pub fn unread_live(&mut self) -> Vec<Unread> {
        self.live.unread(&self.boots, &self.records)
    }

    /// Takes in what the VMMs of `asked` were started with.
    pub fn take_live(&mut self, asked: Vec<Unread>, found: &HashMap<DomainUuid, Arc<Details>>) {
        self.live.take(asked, found);
    }

    /// What an instance's VMM runs with, where that differs from its definition.
    #[must_use]
    pub fn runs_with(&self, id: &InstanceId) -> Option<&Details> {
        self.live.other_than(self.records.get(id)?, *self.boots.get(id)?)
    }

    /// What the planner is given.
    #[must_use]
    pub fn observed(&self) -> Observed<'_> {
        Observed {
            records: if self.records_known { Reading::Known(&self.records) } else { Reading::Unknown },
            domains: if self.listing.is_some() { Reading::Known(&self.domains) } else { Reading::Unknown },
            files: self.files.as_ref().map_or(Reading::Unknown, Reading::Known),
            images: &self.images,
            runtimes: &self.runtimes,
            foreign: &self.foreign,
        }
    }

    /// The records as last read, whether or not they can be read now.
    #[must_use]
    pub fn records(&self) -> &BTreeMap<InstanceId, RecordView> {
        &self.records
    }

    /// What one instance is now, and why it stopped. By the records as last read: only the helper changes them.
    #[must_use]
    pub fn state(&self, id: &InstanceId) -> DomainView {
        let nothing = |state| DomainView { state, stop_reason: None };
        if self.listing.is_none() || self.generation.is_none() {
            return nothing(InstanceState::Unknown);
        }
        self.domains.get(id).copied().unwrap_or_else(|| nothing(InstanceState::Absent))
    }

    /// Which start of the instance's domain runs now.
    #[must_use]
    pub fn boot(&self, id: &InstanceId) -> Option<u32> {
        self.boots.get(id).copied()
    }

    /// Our domains and their states.
    #[must_use]
    pub fn domains(&self) -> &BTreeMap<InstanceId, DomainView> {
        &self.domains
    }

    /// Domains that are not ours.
    #[must_use]
    pub fn foreign(&self) -> &[ForeignDomain] {
        &self.foreign
    }

    /// Runtimes found on this host.
    #[must_use]
    pub fn runtimes(&self) -> &BTreeSet<RuntimeId> {
        &self.runtimes
    }

    /// What could not be read.
    #[must_use]
    pub fn unreadable(&self) -> Vec<Unreadable> {
        self.unreadable.values().cloned().collect()
    }

    /// Sorts the listed domains into ours and foreign ones. Answers the foreign ones when their definitions are to be
    /// read anew.
    fn match_domains(&mut self) -> Option<Vec<DomainUuid>> {
        self.domains.clear();
        self.boots.clear();
        self.foreign.clear();
        let listing = self.listing.as_ref()?;
        for domain in &listing.domains {
            let ours = self.by_uuid.get(&domain.uuid).filter(|id| id_in_name(&domain.name) == Some(id.as_str()));
            if let Some(id) = ours {
                self.domains.insert(id.clone(), view(domain.state));
                if let Some(boot) = domain.boot {
                    self.boots.insert(id.clone(), boot);
                }
            } else if let Some(runtime) = &self.libvirt {
                let mut foreign = ForeignDomain {
                    name: domain.name.to_string(),
                    uuid: domain.uuid,
                    runtime: runtime.clone(),
                    state: view(domain.state).state,
                    vcpus: None,
                    memory_bytes: None,
                };
                describe(&mut foreign, &self.details);
                self.foreign.push(foreign);
            }
        }
        self.foreign.sort_by(|a, b| a.name.cmp(&b.name));
        let now = (listing.definitions, self.foreign.iter().map(|d| d.uuid).collect());
        let news = self.described.as_ref() != Some(&now);
        let uuids = news.then(|| self.foreign.iter().map(|d| d.uuid).collect());
        self.described = Some(now);
        uuids
    }

    fn readable(&mut self, section: Section) -> bool {
        self.unreadable.remove(&section).is_some()
    }

    fn note_unreadable(&mut self, section: Section, fault: &Fault) -> bool {
        let message = fault.chain();
        match self.unreadable.get_mut(&section) {
            Some(known) if known.message == message => false,
            Some(known) => {
                known.message = message;
                true
            }
            None => {
                self.unreadable.insert(section, Unreadable { section, since: UnixMillis::now(), message });
                true
            }
        }
    }
}

fn describe(domain: &mut ForeignDomain, details: &HashMap<DomainUuid, Arc<Details>>) {
    if let Some(details) = details.get(&domain.uuid) {
        domain.vcpus = details.vcpus;
        domain.memory_bytes = details.memory_bytes;
    }
}

/// The runtime's words in those of status and plan.
fn view(state: DomainState) -> DomainView {
    let (state, stop_reason) = match state {
        // A sleeping guest wakes by itself; its VMM runs and holds everything.
        DomainState::Running | DomainState::Asleep => (InstanceState::Running, None),
        DomainState::Paused(PauseReason::Crashed) => (InstanceState::Crashed, None),
        DomainState::Paused(
            PauseReason::Asked
            | PauseReason::Starting
            | PauseReason::DiskError
            | PauseReason::Busy
            | PauseReason::Watchdog
            | PauseReason::Unsaid,
        ) => (InstanceState::Paused, None),
        DomainState::ShuttingDown => (InstanceState::ShuttingDown, None),
        DomainState::Stopped(reason) => (InstanceState::Stopped, stop_reason(reason)),
        DomainState::Other => (InstanceState::Unknown, None),
    };
    DomainView { state, stop_reason }
}

fn stop_reason(reason: StopReason) -> Option<status::StopReason> {
    match reason {
        StopReason::GuestShutdown => Some(status::StopReason::PoweredOff),
        StopReason::Destroyed | StopReason::Daemon => Some(status::StopReason::Destroyed),
        StopReason::Crashed => Some(status::StopReason::Crashed),
        StopReason::StartFailed => Some(status::StopReason::FailedToStart),
        StopReason::Saved => Some(status::StopReason::Saved),
        StopReason::Unsaid => None,
    }
}
