//! The API over a real socket with a node that is a fake, and consoles that are real ptys.
use super::caller::Admission;
use super::events::{EventKind, EventLog, Subscription};
use super::service::{ApplyOptions, ApplyReport, Document, NodeService, PlanReport};
use super::{Api, Listener, ProblemKind, openapi};
use crate::client::{Client, ClientError};
use crate::console::{Attach, Boot, ConsoleOpener, Consoles, Session};
use crate::fault::{Fault, FaultKind};
use crate::layout::Layout;
use crate::plan::Plan;
use crate::spec::{self, Format, NodeSpec};
use crate::status::{NodeStatus, UnixMillis};
use bcd_protocol::id::InstanceId;
use futures_util::future::BoxFuture;
use serde_json::json;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

mod socket;

const PATIENCE: Duration = Duration::from_secs(10);

/// A status as a node would send it; parsed, so that it stays as strict as the type is.
pub(crate) fn status() -> NodeStatus {
    let value = json!({
        "version": "0.1.0",
        "helper": { "state": "connected", "version": "0.1.0" },
        "spec": { "generation": 3, "source": "api", "accepted_at": 1_769_860_800_000_u64 },
        "runtimes": [{ "driver": "libvirt-kvm", "kind": "runtime", "state": "connected", "version": "9.0.0",
            "capabilities": [] }],
        "labels": { "bc.dev/driver.libvirt-kvm": "true" },
        "unreadable": [],
        "instances": [{
            "id": "web-1", "allocation": "a-1", "state": "running", "desired": "running", "runtime": "libvirt-kvm",
            "vcpus": 2, "memory_bytes": 536_870_912_u64, "disk_bytes": 10_737_418_240_u64,
            "addresses": ["10.0.0.5/24"], "nics": [], "gpus": [], "volumes": [],
        }],
        "foreign": [],
    });
    serde_json::from_value(value).unwrap()
}

/// A node that only remembers.
struct Fake {
    status: watch::Sender<Arc<NodeStatus>>,
    spec: Mutex<Arc<NodeSpec>>,
    events: EventLog,
    consoles: Consoles,
    applied: Mutex<Vec<(Document, ApplyOptions)>>,
}

struct NoConsole;

impl ConsoleOpener for NoConsole {
    fn open<'a>(&'a self, _: &'a InstanceId) -> BoxFuture<'a, Result<OwnedFd, Fault>> {
        Box::pin(async { Err(Fault::new(FaultKind::Unavailable, "no console")) })
    }
}

/// The guest's end of a console, kept by the test; the other is given out once.
struct OneConsole(Mutex<Option<OwnedFd>>);

impl ConsoleOpener for OneConsole {
    fn open<'a>(&'a self, _: &'a InstanceId) -> BoxFuture<'a, Result<OwnedFd, Fault>> {
        let fd = self.0.lock().unwrap().take();
        Box::pin(async move { fd.ok_or_else(|| Fault::new(FaultKind::Unavailable, "given out already")) })
    }
}

impl NodeService for Fake {
    fn status(&self) -> Arc<NodeStatus> {
        Arc::clone(&self.status.borrow())
    }
    fn watch(&self) -> watch::Receiver<Arc<NodeStatus>> {
        self.status.subscribe()
    }
    fn spec(&self) -> Arc<NodeSpec> {
        Arc::clone(&self.spec.lock().unwrap())
    }
    fn apply(&self, document: Document, options: ApplyOptions) -> BoxFuture<'_, Result<ApplyReport, Fault>> {
        Box::pin(async move {
            let parsed = spec::parse_as(document.format, &document.name, &document.text);
            let parsed = parsed.map_err(|e| Fault::new(FaultKind::InvalidSpec, e.to_string()))?;
            if parsed.instances.is_empty() && !options.allow_delete {
                return Err(Fault::new(FaultKind::Denied, "it would delete 1 of 1 running instances"));
            }
            *self.spec.lock().unwrap() = Arc::new(parsed);
            self.applied.lock().unwrap().push((document, options));
            let plan =
                PlanReport { plan: Plan::default(), deletes_running: 0, needs_allow_delete: false, unchecked: None };
            Ok(ApplyReport { generation: 4, changed: true, accepted_at: UnixMillis(1), plan })
        })
    }
    fn plan(&self, document: Document) -> BoxFuture<'_, Result<PlanReport, Fault>> {
        Box::pin(async move {
            let parsed = spec::parse_as(document.format, &document.name, &document.text);
            parsed.map_err(|e| Fault::new(FaultKind::InvalidSpec, e.to_string()))?;
            Ok(PlanReport { plan: Plan::default(), deletes_running: 1, needs_allow_delete: true, unchecked: None })
        })
    }
    fn events(&self, after: Option<u64>) -> Subscription {
        self.events.subscribe(after)
    }
    fn console<'a>(&'a self, instance: &'a InstanceId, attach: Attach) -> BoxFuture<'a, Result<Session, Fault>> {
        Box::pin(self.consoles.attach(instance, attach))
    }
}

/// A served API; it ends with the test.
pub(crate) struct Served {
    node: Arc<Fake>,
    pub(crate) socket: PathBuf,
    pub(crate) client: Client,
    task: AbortHandle,
    _dir: TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn serve() -> Served {
    serve_with(Arc::new(NoConsole))
}

fn serve_with(opener: Arc<dyn ConsoleOpener>) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(&dir.path().join("data"));
    fs::create_dir_all(layout.instance(&web())).unwrap();
    let node = Arc::new(Fake {
        status: watch::Sender::new(Arc::new(status())),
        spec: Mutex::default(),
        events: EventLog::default(),
        consoles: Consoles::new(&layout, opener),
        applied: Mutex::default(),
    });
    let socket = dir.path().join("node.sock");
    let listener = Listener::bind(&socket).unwrap();
    let api = Api::new(Arc::clone(&node) as Arc<dyn NodeService>);
    let task = tokio::spawn(listener.serve(api, Admission::of_this_process())).abort_handle();
    Served { node, client: Client::new(&socket), socket, task, _dir: dir }
}

fn web() -> InstanceId {
    InstanceId::parse("web-1").unwrap()
}

fn document(format: Format, text: &str) -> Document {
    Document { name: "hosts & guests.toml".to_owned(), format, text: text.to_owned() }
}

fn problem(error: ClientError) -> (u16, ProblemKind, String) {
    let ClientError::Refused { status, problem } = error else {
        panic!("{error:?} is no problem the node told");
    };
    (status.as_u16(), problem.kind, problem.message)
}

/// Sends bytes as they are and reads until the node closes.
fn raw(socket: &std::path::Path, request: &[u8]) -> String {
    let mut stream = StdStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

async fn raw_async(served: &Served, request: impl Into<Vec<u8>>) -> String {
    let (socket, request) = (served.socket.clone(), request.into());
    tokio::task::spawn_blocking(move || raw(&socket, &request)).await.unwrap()
}

#[tokio::test]
async fn status_and_one_instance_arrive_as_they_are() {
    let served = serve();
    assert_eq!(served.client.status().await.unwrap(), status());
    assert_eq!(served.client.instance(&web()).await.unwrap(), status().instances[0]);
}

#[tokio::test]
async fn an_unknown_instance_is_not_found_and_the_message_names_it() {
    let served = serve();
    let id = InstanceId::parse("nobody").unwrap();
    let (status, kind, message) = problem(served.client.instance(&id).await.unwrap_err());
    assert_eq!((status, kind), (404, ProblemKind::NotFound));
    assert!(message.contains("nobody"), "{message}");
    let (status, kind, _) = problem(served.client.console(&id, Attach::Control).await.unwrap_err());
    assert_eq!((status, kind), (404, ProblemKind::NotFound));
}

#[tokio::test]
async fn a_document_reaches_the_service_with_its_name_format_and_options() {
    let served = serve();
    let sent = document(Format::Toml, "[[holds]]\nid = \"x\"\nmemory_bytes = 1048576\n");
    let refused = served.client.apply(&sent, ApplyOptions::default()).await;
    // The fake refuses a document without instances unless deleting is allowed.
    let (status, kind, message) = problem(refused.unwrap_err());
    if kind == ProblemKind::Denied {
        assert_eq!(status, 403, "{message}");
    }
    let sent = document(Format::Json, "{}");
    let report = served.client.apply(&sent, ApplyOptions { allow_delete: true }).await.unwrap();
    assert_eq!(report.generation, 4);
    let applied = served.node.applied.lock().unwrap().clone();
    assert_eq!(applied, [(sent, ApplyOptions { allow_delete: true })]);
}

#[tokio::test]
async fn a_wrong_document_is_refused_with_file_line_and_field_and_nothing_is_applied() {
    let served = serve();
    let sent = document(Format::Toml, "\n\ninstance = 3\n");
    for answer in [
        served.client.apply(&sent, ApplyOptions { allow_delete: true }).await.map(drop),
        served.client.plan(&sent).await.map(drop),
    ] {
        let (status, kind, message) = problem(answer.unwrap_err());
        assert_eq!((status, kind), (422, ProblemKind::InvalidSpec));
        assert!(message.starts_with("hosts & guests.toml:") && message.contains("instance"), "{message}");
    }
    assert!(served.node.applied.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_status_is_sent_at_once_and_again_when_it_changes() {
    let served = serve();
    let mut watch = served.client.watch().await.unwrap();
    assert_eq!(timeout(PATIENCE, watch.next()).await.unwrap().unwrap().unwrap().spec.generation, 3);
    let mut next = status();
    next.spec.generation = 4;
    next.spec.accepted_at = Some(UnixMillis(1));
    served.node.status.send_replace(Arc::new(next.clone()));
    assert_eq!(timeout(PATIENCE, watch.next()).await.unwrap().unwrap(), Some(next));
}

#[tokio::test]
async fn events_are_replayed_from_a_number_and_then_followed() {
    let served = serve();
    for n in 1..=3 {
        served.node.events.push(EventKind::StepDone, Some(&web()), format!("event {n}"));
    }
    let mut kept = served.client.events(None, false).await.unwrap();
    let mut seen = Vec::new();
    while let Some(event) = kept.next().await.unwrap() {
        seen.push(event.seq);
    }
    assert_eq!(seen, [1, 2, 3], "without a number and without following, all that is kept");

    let mut followed = served.client.events(Some(2), true).await.unwrap();
    assert_eq!(followed.next().await.unwrap().unwrap().message, "event 3");
    served.node.events.push(EventKind::InstanceDeleted, Some(&web()), "gone");
    let event = timeout(PATIENCE, followed.next()).await.unwrap().unwrap().unwrap();
    assert_eq!((event.seq, event.kind, event.instance.as_deref()), (4, EventKind::InstanceDeleted, Some("web-1")));
}

#[tokio::test]
async fn a_browser_gets_server_sent_events_and_resumes_with_their_ids() {
    let served = serve();
    for n in 1..=2 {
        served.node.events.push(EventKind::SpecAccepted, None, format!("event {n}"));
    }
    let request = "GET /v1/events?follow=false HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                   Accept: text/html, text/event-stream;q=0.9\r\nLast-Event-ID: 1\r\n\r\n";
    let answer = raw_async(&served, request).await;
    assert!(answer.contains("content-type: text/event-stream"), "{answer}");
    assert!(answer.contains("id: 2\nevent: spec-accepted\ndata: {\"seq\":2,"), "{answer}");
    assert!(!answer.contains("id: 1\n"), "{answer}");
}

#[tokio::test]
async fn wrong_requests_are_told_what_is_wrong_as_json() {
    let served = serve();
    let cases = [
        ("GET /v1/nothing", "", 404, "NotFound", "/v1/nothing"),
        ("DELETE /v1/spec", "", 405, "BadRequest", "DELETE"),
        ("GET /v1/status?verbose=1", "", 400, "BadRequest", "verbose"),
        ("GET /v1/events?after=-1", "", 400, "BadRequest", "/v1/events"),
        ("GET /v1/instances/UPPER", "", 400, "BadRequest", "UPPER"),
        ("GET /v1/instances/%2e%2e%2fetc", "", 400, "BadRequest", "../etc"),
        ("GET /v1/instances/web-1/console", "", 426, "BadRequest", "Upgrade: bcd-console"),
        ("GET /v1/instances/web-1/console", "Upgrade: websocket\r\n", 426, "BadRequest", "Upgrade: bcd-console"),
        ("PUT /v1/spec", "Content-Length: 2\r\n\r\n{}", 415, "BadRequest", "Content-Type"),
        ("POST /v1/plan", "Content-Type: text/yaml\r\nContent-Length: 2\r\n\r\n{}", 415, "BadRequest", "text/yaml"),
        (
            "PUT /v1/spec?allow_delete=maybe",
            "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
            400,
            "BadRequest",
            "allow_delete",
        ),
        (
            "PUT /v1/spec?name=..%2Fx",
            "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
            400,
            "BadRequest",
            "name",
        ),
        ("PUT /v1/spec", "Content-Type: application/json\r\nContent-Length: 5000000\r\n", 413, "BadRequest", "4194304"),
    ];
    for (line, headers, status, kind, part) in cases {
        let end = if headers.contains("\r\n\r\n") { "" } else { "\r\n" };
        let connection = "Host: x\r\nConnection: close\r\n";
        let answer = raw_async(&served, format!("{line} HTTP/1.1\r\n{connection}{headers}{end}")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {answer}");
        let body: super::Problem = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).expect(&answer);
        assert_eq!(body.kind.as_str(), kind, "{line}");
        assert!(body.message.contains(part), "{line}: {}", body.message);
    }
    assert!(served.node.applied.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_document_that_grows_past_the_limit_or_is_no_text_is_refused() {
    let served = serve();
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "#".repeat(1 << 20));
    let mut request = b"PUT /v1/spec HTTP/1.1\r\nHost: x\r\nContent-Type: application/toml\r\n\
                        Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        .to_vec();
    (0..4).for_each(|_| request.extend_from_slice(chunk.as_bytes()));
    request.extend_from_slice(b"1\r\n#\r\n0\r\n\r\n");
    let answer = raw_async(&served, request).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{}", answer.get(..200).unwrap_or(&answer));

    let mut request = b"PUT /v1/spec HTTP/1.1\r\nHost: x\r\nContent-Type: application/toml\r\nContent-Length: 3\r\n\
                        Connection: close\r\n\r\n"
        .to_vec();
    request.extend_from_slice(b"a\xffb");
    let answer = raw_async(&served, request).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("byte 1 is none"), "{answer}");
    assert!(served.node.applied.lock().unwrap().is_empty());
}

#[tokio::test]
async fn health_and_schemas_are_served() {
    let served = serve();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let answer = raw_async(&served, get("/v1/healthz")).await;
    assert!(answer.ends_with(r#"{"version":"0.1.0","ready":true}"#), "{answer}");
    let mut lost = status();
    lost.helper.state = crate::status::Link::Unreachable;
    served.node.status.send_replace(Arc::new(lost));
    let answer = raw_async(&served, get("/v1/healthz")).await;
    assert!(answer.ends_with(r#"{"version":"0.1.0","ready":false}"#), "{answer}");
    let answer = raw_async(&served, get("/v1/openapi.json")).await;
    let body: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body, openapi::document());
    let answer = raw_async(&served, get("/v1/schema")).await;
    let body: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body, serde_json::to_value(spec::schema()).unwrap());
}

#[tokio::test]
async fn a_console_is_a_byte_stream_both_ways_after_the_upgrade() {
    let (guest, ours) = StdStream::pair().unwrap();
    let served = serve_with(Arc::new(OneConsole(Mutex::new(Some(ours.into())))));
    served.node.consoles.started(&web(), Boot(1));
    assert!(served.node.consoles.connected(&web(), PATIENCE).await);
    guest.set_nonblocking(true).unwrap();
    let mut guest = tokio::net::UnixStream::from_std(guest).unwrap();
    guest.write_all(b"before\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;

    let mut viewer = served.client.console(&web(), Attach::Control).await.unwrap();
    let mut seen = [0_u8; 8];
    timeout(PATIENCE, viewer.read_exact(&mut seen)).await.unwrap().unwrap();
    assert_eq!(&seen, b"before\r\n");
    viewer.write_all(b"\x00\xff\r\n").await.unwrap();
    let mut typed = [0_u8; 4];
    timeout(PATIENCE, guest.read_exact(&mut typed)).await.unwrap().unwrap();
    assert_eq!(&typed, b"\x00\xff\r\n");

    // A second client takes over; the first is told, and its connection ends when the instance goes.
    let _second = served.client.console(&web(), Attach::Control).await.unwrap();
    served.node.consoles.removed(&web());
    let mut rest = String::new();
    timeout(PATIENCE, viewer.read_to_string(&mut rest)).await.expect("it ends").unwrap();
    let (taken, deleted) = (rest.find("taken over the input"), rest.find("the instance is deleted"));
    assert!(taken.is_some() && taken < deleted, "{rest:?}");
}

#[tokio::test]
async fn a_console_client_that_stops_reading_is_let_go_and_its_place_is_free() {
    let (guest, ours) = StdStream::pair().unwrap();
    let served = serve_with(Arc::new(OneConsole(Mutex::new(Some(ours.into())))));
    served.node.consoles.started(&web(), Boot(1));
    assert!(served.node.consoles.connected(&web(), PATIENCE).await);
    let mut viewer = served.client.console(&web(), Attach::Control).await.unwrap();
    guest.set_nonblocking(true).unwrap();
    let mut guest = tokio::net::UnixStream::from_std(guest).unwrap();
    timeout(PATIENCE, guest.write_all(&vec![b'z'; 8 << 20])).await.expect("the guest stalls").unwrap();
    // Its session is over; what it can still read ends, though it never kept up.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let mut read = 0_usize;
    let mut buffer = vec![0_u8; 1 << 16];
    loop {
        match timeout(PATIENCE, viewer.read(&mut buffer)).await.expect("it ends") {
            Ok(0) | Err(_) => break,
            Ok(count) => read += count,
        }
    }
    assert!(read < 4 << 20, "what waits for one client is bounded: {read}");
}

#[test]
fn the_published_openapi_document_is_the_current_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
    if std::env::var_os("BCD_BLESS").is_some() {
        fs::write(path, openapi::text()).unwrap();
    }
    let published = fs::read_to_string(path).unwrap_or_default();
    assert!(published == openapi::text(), "docs/openapi.json is old: run this test with BCD_BLESS=1");
}

#[test]
fn every_reference_of_the_openapi_document_leads_somewhere() {
    fn references<'a>(value: &'a serde_json::Value, found: &mut Vec<&'a str>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (key, value) in fields {
                    if let ("$ref", Some(target)) = (key.as_str(), value.as_str()) {
                        found.push(target);
                    }
                    references(value, found);
                }
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Number(_)
            | serde_json::Value::String(_) => {}
        }
    }
    let document = openapi::document();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 20, "{} references", found.len());
    for reference in found {
        let pointer = reference.strip_prefix('#').expect(reference);
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

#[test]
fn what_the_api_sends_is_what_the_openapi_document_says() {
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler.set_default_draft(boon::Draft::V2020_12);
    compiler.add_resource("openapi.json", openapi::document()).unwrap();
    let root = "openapi.json#/components/schemas/NodeStatus";
    let schema = compiler.compile(root, &mut schemas).unwrap();
    let mut value = serde_json::to_value(status()).unwrap();
    if let Err(wrong) = schemas.validate(&value, schema) {
        panic!("{wrong}");
    }
    value["instances"][0]["state"] = json!("flying");
    assert!(schemas.validate(&value, schema).is_err(), "the schema tells states from others");
}
