//! A host in memory: a helper that speaks the real protocol over a real socket, and a runtime, both on one state.
use crate::api::events::EventLog;
use crate::api::service::ApplyReport;
use crate::console::{ConsoleOpener, Consoles};
use crate::converge::{Converger, Parts, Timing, load};
use crate::fault::{Fault, FaultKind};
use crate::helper::Helper;
use crate::image::Store;
use crate::layout::Layout;
use crate::runtime::{Details, Domain, DomainState, Listing, PauseReason, Reach, Runtime, StopReason};
use crate::spec::{self, NodeSpec};
use crate::status::{InstanceStatus, NodeStatus};
use bcd_protocol::codec;
use bcd_protocol::config::ImagesConfig;
use bcd_protocol::id::{DomainUuid, GuestUid, InstanceId};
use bcd_protocol::limits;
use bcd_protocol::reply::{
    Defined, Denied, DomainXml, Failed, FailureKind, RecordView, RecordViews, RecordsPage, Reply, ReplyMessage,
    RuleName, Sentence, Welcome,
};
use bcd_protocol::request::{Request, RequestMessage, Verb};
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_seqpacket::{UnixSeqpacket, UnixSeqpacketListener};

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of the base image.
pub(crate) const IMAGE_BYTES: u64 = 4 << 20;

/// What the host holds and how it behaves.
#[derive(Default)]
pub(crate) struct Host {
    pub(crate) records: BTreeMap<InstanceId, RecordView>,
    pub(crate) domains: BTreeMap<String, (DomainUuid, DomainState, Option<u32>)>,
    pub(crate) asked: Vec<(Verb, Option<InstanceId>)>,
    /// How often it was asked for something of no one instance: a look at the records.
    pub(crate) looks: usize,
    /// Presses of the power button that a guest ignores before it obeys; absent: all.
    pub(crate) obeys_after: HashMap<InstanceId, u32>,
    /// Verbs that get no answer, by instance.
    pub(crate) stuck: Vec<(Verb, InstanceId)>,
    /// Verbs whose answer takes so long, by instance; nothing else is answered meanwhile.
    pub(crate) slow: Vec<(Verb, InstanceId, Duration)>,
    /// Verbs that fail so many times, by instance.
    pub(crate) fails: Vec<(Verb, InstanceId, FailureKind, u32)>,
    /// Instances whose definition is denied, and by which rule.
    pub(crate) denies: Vec<(InstanceId, &'static str)>,
    /// The runtime does not answer.
    pub(crate) libvirt_down: bool,
    /// What the VMMs were started with, by domain.
    pub(crate) live: HashMap<DomainUuid, Details>,
    generation: u64,
    boots: u32,
    uids: u32,
}

impl Host {
    fn state(&mut self, id: &InstanceId, state: DomainState) -> bool {
        let Some(domain) = self.domains.get_mut(&format!("bcd-{id}")) else { return false };
        let changed = domain.1 != state;
        domain.1 = state;
        if matches!(state, DomainState::Stopped(_)) {
            domain.2 = None;
        } else if domain.2.is_none() {
            self.boots += 1;
            domain.2 = Some(self.boots);
        }
        changed
    }

    fn is_running(&self, id: &InstanceId) -> bool {
        self.domains.get(&format!("bcd-{id}")).is_some_and(|d| d.1 == DomainState::Running)
    }

    fn answer(&mut self, request: &Request) -> Option<Reply> {
        if let Some(id) = request.instance() {
            self.asked.push((request.verb(), Some(id.clone())));
            if self.stuck.contains(&(request.verb(), id.clone())) {
                return None;
            }
            for (verb, instance, kind, times) in &mut self.fails {
                if *verb == request.verb() && instance == id && *times > 0 {
                    *times -= 1;
                    return Some(Reply::Failed(Failed { kind: *kind, detail: Sentence::new("as the test wants it") }));
                }
            }
        } else {
            self.looks += 1;
        }
        if let Request::LibvirtPlan { instance, .. } | Request::LibvirtDefine { instance, .. } = request
            && let Some((_, rule)) = self.denies.iter().find(|(denied, _)| denied == instance)
        {
            let (rule, detail) = (RuleName::new(rule), Sentence::new("the test denies it"));
            return Some(Reply::Denied(Denied { rule, detail }));
        }
        let done = |changed| Some(Reply::Done { changed });
        match request {
            Request::Hello { version } => {
                Some(Reply::Hello(Welcome { version: *version, package: Sentence::new("test") }))
            }
            Request::Records { after, limit } => {
                let all: Vec<_> =
                    self.records.values().filter(|r| after.as_ref().is_none_or(|a| r.instance > *a)).collect();
                let page: Vec<_> = all.iter().take(usize::from(*limit)).map(|r| (*r).clone()).collect();
                Some(Reply::Records(RecordsPage {
                    generation: self.generation,
                    total: u32::try_from(self.records.len()).expect("few"),
                    more: page.len() < all.len(),
                    records: RecordViews::try_from(page).expect("a page"),
                }))
            }
            Request::LibvirtDefine { instance, definition } => {
                self.generation += 1;
                let (uuid, uid) = match self.records.get(instance) {
                    Some(known) => (known.uuid, known.uid),
                    None => {
                        self.uids += 1;
                        let mut bytes = [7; 16];
                        bytes[..4].copy_from_slice(&self.uids.to_be_bytes());
                        let uid = GuestUid::new(limits::GUEST_UID_FIRST + self.uids).expect("a guest uid");
                        (DomainUuid::from_bytes(bytes), uid)
                    }
                };
                let record = RecordView {
                    instance: instance.clone(),
                    uuid,
                    uid,
                    definition: definition.clone(),
                    unfinished: false,
                };
                self.records.insert(instance.clone(), record);
                let stopped = (uuid, DomainState::Stopped(StopReason::Unsaid), None);
                self.domains.entry(format!("bcd-{instance}")).or_insert(stopped);
                Some(Reply::Defined(Defined { uuid, uid, changed: true }))
            }
            Request::LibvirtUndefine { instance } => {
                self.generation += 1;
                self.domains.remove(&format!("bcd-{instance}"));
                done(self.records.remove(instance).is_some())
            }
            Request::LibvirtStart { instance, paused } => {
                if let Some(record) = self.records.get(instance) {
                    let (vcpus, memory) = (record.definition.vcpus.get(), record.definition.memory.get());
                    let started = Details { vcpus: Some(vcpus), memory_bytes: Some(memory) };
                    self.live.insert(record.uuid, started);
                }
                let state = if *paused { DomainState::Paused(PauseReason::Asked) } else { DomainState::Running };
                done(self.state(instance, state))
            }
            Request::LibvirtResume { instance } => done(self.state(instance, DomainState::Running)),
            Request::LibvirtSuspend { instance } => done(self.state(instance, DomainState::Paused(PauseReason::Asked))),
            Request::LibvirtShutdown { instance } => {
                if let Some(left) = self.obeys_after.get_mut(instance) {
                    *left = left.saturating_sub(1);
                    if *left == 0 {
                        self.state(instance, DomainState::Stopped(StopReason::GuestShutdown));
                    }
                }
                done(true)
            }
            Request::LibvirtDestroy { instance } => {
                done(self.state(instance, DomainState::Stopped(StopReason::Destroyed)))
            }
            Request::LibvirtBlockResize { instance, disk } => {
                self.generation += 1;
                if let Some(record) = self.records.get_mut(instance) {
                    record.definition.disk = *disk;
                }
                done(true)
            }
            Request::LibvirtPlan { .. } => {
                Some(Reply::Plan(DomainXml::try_from("<domain/>".to_owned()).expect("a short one")))
            }
            Request::Console { .. } => Some(Reply::Denied(Denied {
                rule: RuleName::try_from("test".to_owned()).expect("a rule"),
                detail: Sentence::new("not in this test"),
            })),
        }
    }
}

/// The runtime over the host.
struct FakeRuntime {
    host: Arc<Mutex<Host>>,
    wakes: watch::Receiver<u64>,
    reach: watch::Receiver<Reach>,
}

impl Runtime for FakeRuntime {
    fn list(&self) -> BoxFuture<'_, Result<Arc<Listing>, Fault>> {
        let host = self.host.lock().expect("the host");
        let listing = if host.libvirt_down {
            Err(Fault::new(FaultKind::Unavailable, "libvirt is down in this test"))
        } else {
            let domain = |(name, (uuid, state, boot)): (&String, &(DomainUuid, DomainState, Option<u32>))| Domain {
                uuid: *uuid,
                name: Arc::from(name.as_str()),
                state: *state,
                boot: *boot,
            };
            Ok(Arc::new(Listing { domains: host.domains.iter().map(domain).collect(), definitions: 0 }))
        };
        Box::pin(async { listing })
    }

    fn live(&self, domains: Vec<DomainUuid>) -> BoxFuture<'_, Result<HashMap<DomainUuid, Arc<Details>>, Fault>> {
        let host = self.host.lock().expect("the host");
        let found = domains.iter().filter_map(|uuid| Some((*uuid, Arc::new(host.live.get(uuid)?.clone())))).collect();
        Box::pin(async move { Ok(found) })
    }

    fn details(&self, _domains: Vec<DomainUuid>) -> BoxFuture<'_, Result<HashMap<DomainUuid, Arc<Details>>, Fault>> {
        Box::pin(async { Ok(HashMap::new()) })
    }

    fn boot<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Option<u32>> {
        let boot = self.host.lock().expect("the host").domains.get(name).and_then(|d| d.2);
        Box::pin(async move { boot })
    }

    fn wakes(&self) -> watch::Receiver<u64> {
        self.wakes.clone()
    }

    fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.clone()
    }

    fn version(&self) -> Option<String> {
        Some("9.1.2".to_owned())
    }
}

/// A console that never says anything.
struct Silent;

impl ConsoleOpener for Silent {
    fn open<'a>(&'a self, _instance: &'a InstanceId) -> BoxFuture<'a, Result<OwnedFd, Fault>> {
        Box::pin(async {
            let (near, far) = std::os::unix::net::UnixStream::pair().expect("a pair");
            std::mem::forget(far);
            Ok(near.into())
        })
    }
}

/// The host, the helper's process, and a converger on them.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) layout: Layout,
    pub(crate) host: Arc<Mutex<Host>>,
    pub(crate) converger: Converger,
    pub(crate) events: EventLog,
    pub(crate) sha256: String,
    timing: Timing,
    wakes: Arc<watch::Sender<u64>>,
    reach: Arc<watch::Sender<Reach>>,
    helper: Option<JoinHandle<()>>,
}

pub(crate) fn id(text: &str) -> InstanceId {
    InstanceId::parse(text).expect("an id")
}

/// Times that make a test quick.
pub(crate) fn quick() -> Timing {
    Timing {
        pass: Duration::from_millis(200),
        press: Duration::from_millis(60),
        power_off: Duration::from_millis(400),
        console: Duration::from_millis(50),
        publish: Duration::from_millis(5),
        image_grace: Duration::from_secs(600),
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(quick()).await
    }

    pub(crate) async fn with(timing: Timing) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let layout = Layout::new(&dir.path().join("data"));
        for path in [layout.root().to_owned(), layout.images(), layout.instances(), layout.node()] {
            std::fs::create_dir_all(path).expect("a directory");
        }
        let image = vec![0x5a; usize::try_from(IMAGE_BYTES).expect("small")];
        let sha256: String = Sha256::digest(&image).iter().map(|b| format!("{b:02x}")).collect();
        std::fs::write(layout.images().join(format!("{sha256}.raw")), image).expect("an image");
        let host = Arc::new(Mutex::new(Host::default()));
        let wakes = Arc::new(watch::Sender::new(0));
        let reach = Arc::new(watch::Sender::new(Reach::Up));
        let events = EventLog::default();
        let converger = start(parts(dir.path(), &layout, &host, (&wakes, &reach), &events, timing));
        let mut world = Self { dir, layout, host, converger, events, sha256, timing, wakes, reach, helper: None };
        world.helper_up();
        world
    }

    /// Starts the helper's process.
    pub(crate) fn helper_up(&mut self) {
        let path = self.dir.path().join("helper.sock");
        let _ = std::fs::remove_file(&path);
        let mut listener = UnixSeqpacketListener::bind(&path).expect("a socket");
        let (host, wakes) = (Arc::clone(&self.host), Arc::clone(&self.wakes));
        self.helper = Some(tokio::spawn(async move {
            let mut served = tokio::task::JoinSet::new();
            while let Ok(peer) = listener.accept().await {
                served.spawn(serve(peer, Arc::clone(&host), Arc::clone(&wakes)));
            }
        }));
    }

    /// Kills the helper's process.
    pub(crate) fn helper_down(&mut self) {
        if let Some(helper) = self.helper.take() {
            helper.abort();
        }
        let _ = std::fs::remove_file(self.dir.path().join("helper.sock"));
    }

    /// Kills the node's process and starts another.
    pub(crate) async fn restart_node(&mut self) {
        self.converger.stop().await;
        self.converger = start(self.parts());
    }

    /// Changes the host behind the node's back, and wakes it as a lifecycle event would.
    pub(crate) fn happens<T>(&self, what: impl FnOnce(&mut Host) -> T) -> T {
        let answer = what(&mut self.host.lock().expect("the host"));
        self.wakes.send_modify(|n| *n += 1);
        answer
    }

    /// A guest's state changes by itself.
    pub(crate) fn guest(&self, instance: &str, state: DomainState) {
        self.happens(|host| host.state(&id(instance), state));
    }

    pub(crate) fn libvirt(&self, up: bool) {
        self.happens(|host| host.libvirt_down = !up);
        let reach = if up { Reach::Up } else { Reach::Down { reason: Arc::from("down in this test") } };
        self.reach.send_replace(reach);
    }

    /// A document of instances: id, desired state, more lines.
    pub(crate) fn document(&self, instances: &[(&str, &str, &str)]) -> NodeSpec {
        let text: String = instances
            .iter()
            .map(|(id, state, more)| {
                let size =
                    if more.contains("disk_bytes") { String::new() } else { format!("disk_bytes = {}\n", 8 << 20) };
                let image = if more.contains("image") {
                    String::new()
                } else {
                    format!(
                        "image = {{ url = \"https://localhost:9/i\", sha256 = \"{}\", format = \"raw\" }}\n",
                        self.sha256
                    )
                };
                format!(
                    "[[instances]]\nid = \"{id}\"\nallocation = \"a1\"\nruntime = \"libvirt-kvm\"\nhostname = \"h\"\n\
                     vcpus = 1\nmemory_bytes = {}\ndesired_state = \"{state}\"\n{size}{image}{more}\n",
                    64 << 20
                )
            })
            .collect();
        spec::parse("test.toml", &text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    pub(crate) async fn apply(&self, instances: &[(&str, &str, &str)]) -> ApplyReport {
        let source = crate::status::SpecSource::Api;
        self.converger.apply(self.document(instances), source, true).await.expect("accepted")
    }

    /// What another node on the same host would be started with.
    pub(crate) fn parts(&self) -> Parts {
        parts(self.dir.path(), &self.layout, &self.host, (&self.wakes, &self.reach), &self.events, self.timing)
    }

    /// Waits until the status is as wanted.
    pub(crate) async fn until(&self, what: &str, want: impl Fn(&NodeStatus) -> bool) -> Arc<NodeStatus> {
        let mut status = self.converger.status();
        let found = tokio::time::timeout(PATIENCE, status.wait_for(|s| want(s))).await;
        match found {
            Ok(found) => Arc::clone(&found.expect("the converger lives")),
            Err(_) => panic!("{what} did not come; {:#?}\nasked {:?}", self.converger.status().borrow(), self.asked()),
        }
    }

    /// Waits until an instance is as wanted.
    pub(crate) async fn until_instance(
        &self,
        instance: &str,
        what: &str,
        want: impl Fn(&InstanceStatus) -> bool,
    ) -> InstanceStatus {
        let of = |s: &NodeStatus| s.instances.iter().find(|i| i.id == id(instance)).cloned();
        let status = self.until(&format!("{instance} {what}"), |s| of(s).is_some_and(|i| want(&i))).await;
        of(&status).expect("as just seen")
    }

    /// Waits until an instance runs and nothing is done for it any more.
    pub(crate) async fn until_running(&self, instance: &str) {
        let running = |i: &InstanceStatus| i.state == crate::status::InstanceState::Running && i.doing.is_none();
        self.until_instance(instance, "running", running).await;
    }

    /// What the helper was asked so far, as `verb id`.
    pub(crate) fn asked(&self) -> Vec<String> {
        let host = self.host.lock().expect("the host");
        host.asked.iter().map(|(verb, id)| format!("{verb} {}", id.as_ref().map_or("", |i| i.as_str()))).collect()
    }

    pub(crate) fn forget_asked(&self) {
        self.host.lock().expect("the host").asked.clear();
    }

    pub(crate) fn is_running(&self, instance: &str) -> bool {
        self.host.lock().expect("the host").is_running(&id(instance))
    }
}

fn start(parts: Parts) -> Converger {
    let kept = load(&parts.layout).expect("no damaged document");
    Converger::start(parts, kept).0
}

fn parts(
    dir: &std::path::Path,
    layout: &Layout,
    host: &Arc<Mutex<Host>>,
    (wakes, reach): (&Arc<watch::Sender<u64>>, &Arc<watch::Sender<Reach>>),
    events: &EventLog,
    timing: Timing,
) -> Parts {
    let runtime = FakeRuntime { host: Arc::clone(host), wakes: wakes.subscribe(), reach: reach.subscribe() };
    let uid = nix::unistd::getuid().as_raw();
    Parts {
        layout: layout.clone(),
        helper: Helper::connect(&dir.join("helper.sock"), uid),
        runtime: Arc::new(runtime),
        images: Store::open(layout, &ImagesConfig::default()).expect("a store"),
        secrets: dir.join("secrets"),
        consoles: Consoles::new(layout, Arc::new(Silent)),
        events: events.clone(),
        timing,
    }
}

async fn serve(peer: UnixSeqpacket, host: Arc<Mutex<Host>>, wakes: Arc<watch::Sender<u64>>) {
    let mut buffer = vec![0; limits::MESSAGE_BYTES];
    while let Ok(info) = peer.recv(&mut buffer).await {
        if info.bytes_read() == 0 {
            return;
        }
        let message: RequestMessage = codec::decode(&buffer[..info.bytes_read()]).expect("a request");
        let (reply, wait) = {
            let mut host = host.lock().expect("the host");
            let slow = |(verb, id, _): &&(Verb, InstanceId, Duration)| {
                *verb == message.request.verb() && Some(id) == message.request.instance()
            };
            let wait = host.slow.iter().find(slow).map(|(_, _, wait)| *wait);
            (host.answer(&message.request), wait)
        };
        if let Some(wait) = wait {
            tokio::time::sleep(wait).await;
        }
        if message.request.instance().is_some() {
            wakes.send_modify(|n| *n += 1);
        }
        if let Some(reply) = reply {
            let datagram = codec::encode(&ReplyMessage { id: message.id, reply }).expect("a datagram");
            if peer.send(&datagram).await.is_err() {
                return;
            }
        }
    }
}
