//! The program itself against a node that is a fake: exit codes, what a person sees, and that a terminal is left as it
//! was found.
//!
//! Room: tests. The fake serves the real API over a real socket; the terminal is a real pty.
use bcd_node::api::caller::Admission;
use bcd_node::api::events::{EventKind, EventLog, Subscription};
use bcd_node::api::service::{ApplyOptions, ApplyReport, Document, NodeService, PlanReport};
use bcd_node::api::{Api, Listener};
use bcd_node::console::{Attach, Boot, ConsoleOpener, Consoles, Session};
use bcd_node::fault::{Fault, FaultKind};
use bcd_node::layout::Layout;
use bcd_node::plan::Plan;
use bcd_node::spec::{self, NodeSpec};
use bcd_node::status::{NodeStatus, UnixMillis};
use bcd_protocol::id::InstanceId;
use futures_util::future::BoxFuture;
use nix::pty::{OpenptyResult, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, Termios, tcgetattr};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(20);

fn status(instance: Value) -> NodeStatus {
    let mut row = json!({ "id": "web-1", "state": "running", "desired": "running", "runtime": "libvirt-kvm",
        "addresses": [], "nics": [], "gpus": [], "volumes": [] });
    row.as_object_mut().unwrap().extend(instance.as_object().unwrap().clone());
    let value = json!({ "version": "0.1.0", "helper": { "state": "connected" }, "spec": { "generation": 1, "accepted_at": 1 },
        "runtimes": [], "labels": {}, "unreadable": [], "instances": [row], "foreign": [] });
    serde_json::from_value(value).unwrap()
}

struct Fake {
    status: watch::Sender<Arc<NodeStatus>>,
    events: EventLog,
    consoles: Consoles,
}

impl NodeService for Fake {
    fn status(&self) -> Arc<NodeStatus> {
        Arc::clone(&self.status.borrow())
    }
    fn watch(&self) -> watch::Receiver<Arc<NodeStatus>> {
        self.status.subscribe()
    }
    fn spec(&self) -> Arc<NodeSpec> {
        Arc::default()
    }
    fn apply(&self, document: Document, _: ApplyOptions) -> BoxFuture<'_, Result<ApplyReport, Fault>> {
        Box::pin(async move {
            let plan = self.plan(document).await?;
            Ok(ApplyReport { generation: 1, changed: true, accepted_at: UnixMillis(1), plan })
        })
    }
    fn plan(&self, document: Document) -> BoxFuture<'_, Result<PlanReport, Fault>> {
        Box::pin(async move {
            spec::parse_as(document.format, &document.name, &document.text)
                .map_err(|e| Fault::new(FaultKind::InvalidSpec, e.to_string()))?;
            Ok(PlanReport { plan: Plan::default(), deletes_running: 0, needs_allow_delete: false, unchecked: None })
        })
    }
    fn events(&self, after: Option<u64>) -> Subscription {
        self.events.subscribe(after)
    }
    fn console<'a>(&'a self, instance: &'a InstanceId, attach: Attach) -> BoxFuture<'a, Result<Session, Fault>> {
        Box::pin(self.consoles.attach(instance, attach))
    }
}

struct Once(Mutex<Option<OwnedFd>>);

impl ConsoleOpener for Once {
    fn open<'a>(&'a self, _: &'a InstanceId) -> BoxFuture<'a, Result<OwnedFd, Fault>> {
        let fd = self.0.lock().unwrap().take();
        Box::pin(async move { fd.ok_or_else(|| Fault::new(FaultKind::Unavailable, "given out already")) })
    }
}

/// A served fake with the guest's end of its console.
struct Bench {
    node: Arc<Fake>,
    guest: UnixStream,
    id: InstanceId,
    socket: PathBuf,
    dir: TempDir,
    _runtime: Runtime,
}

impl Bench {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let id = InstanceId::parse("web-1").unwrap();
        let layout = Layout::new(dir.path());
        std::fs::create_dir_all(layout.instance(&id)).unwrap();
        let (guest, ours) = UnixStream::pair().unwrap();
        guest.set_read_timeout(Some(PATIENCE)).unwrap();
        let consoles = Consoles::new(&layout, Arc::new(Once(Mutex::new(Some(ours.into())))));
        let node = Arc::new(Fake {
            status: watch::Sender::new(Arc::new(status(json!({})))),
            events: EventLog::default(),
            consoles,
        });
        let socket = dir.path().join("node.sock");
        runtime.block_on(async {
            node.consoles.started(&id, Boot(1));
            assert!(node.consoles.connected(&id, PATIENCE).await);
            let listener = Listener::bind(&socket).unwrap();
            let api = Api::new(Arc::clone(&node) as Arc<dyn NodeService>);
            tokio::spawn(listener.serve(api, Admission::of_this_process()));
        });
        Self { node, guest, id, socket, dir, _runtime: runtime }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bcd"));
        command.arg("--api").arg(&self.socket).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap_or(-1), text(stdout), text(stderr))
    }

    fn document(&self, text: &str) -> String {
        let path = self.dir.path().join("web.toml");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn print(&self, text: &str) {
        (&self.guest).write_all(text.as_bytes()).unwrap();
    }
}

#[test]
fn what_is_asked_of_no_node_ends_with_3_and_says_what_to_do() {
    let output = Command::new(env!("CARGO_BIN_EXE_bcd")).args(["--api", "/nonexistent/node.sock", "status"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.starts_with("bcd: no node answers on /nonexistent/node.sock: No such file"), "{told}");
    assert!(told.contains("is `bcd node` running"), "{told}");
    assert_eq!(told.matches("/nonexistent/node.sock").count(), 1, "each thing is said once: {told}");
}

#[test]
fn json_is_the_apis_and_a_refusal_ends_with_1() {
    let bench = Bench::new();
    let (code, out, err) = bench.run(&["status", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value, serde_json::to_value(status(json!({}))).unwrap());
    let (code, out, err) = bench.run(&["status", "web-2"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("bcd: this node has no instance web-2"), "{err}");
    let (code, _, err) = bench.run(&["plan", &bench.document("instances = 3\n")]);
    assert_eq!(code, 1);
    assert!(err.starts_with("bcd: web.toml:1:"), "the document is called as its file is: {err}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let bench = Bench::new();
    for n in 0..2000 {
        bench.node.events.push(EventKind::StepDone, None, format!("event {n} {}", "x".repeat(100)));
    }
    let mut child = bench.command(&["events"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0_u8; 64];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
fn apply_that_waits_names_the_instance_that_failed() {
    let bench = Bench::new();
    let document = bench.document(DOCUMENT);
    let (code, out, _) = bench.run(&["apply", &document, "--wait"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.ends_with("document 1 accepted\n1 instance as wanted\n"), "{out}");
    let error = json!({ "kind": "ImageRejected", "message": "the image is no qcow2", "at": u64::MAX >> 1, "times": 1 });
    bench.node.status.send_replace(Arc::new(status(json!({ "state": "absent", "last_error": error }))));
    let (code, _, err) = bench.run(&["apply", &document, "--wait"]);
    assert_eq!(code, 1);
    assert!(err.contains("bcd: 1 instance failed\n     web-1: ImageRejected: the image is no qcow2"), "{err}");
    assert!(err.contains("web-1: absent\n"), "what happens is told on the way: {err}");
    bench.node.status.send_replace(Arc::new(status(json!({ "state": "stopped" }))));
    let (code, _, err) = bench.run(&["apply", &document, "--wait", "--timeout", "1"]);
    assert_eq!(code, 4);
    assert!(err.contains("not as wanted within 1 s: web-1 (stopped)"), "{err}");
}

const DOCUMENT: &str = "[[instances]]\nid = \"web-1\"\nallocation = \"a\"\nruntime = \"libvirt-kvm\"\nhostname = \"web-1\"\n\
    vcpus = 1\nmemory_bytes = 134217728\ndisk_bytes = 536870912\n\
    image = { url = \"https://images.example/x.qcow2\", sha256 = \"abababababababababababababababababababababababababababababababab\", format = \"qcow2\" }\n";

#[test]
fn console_until_ends_with_0_when_the_text_came_and_with_4_when_it_did_not() {
    let bench = Bench::new();
    bench.print("booting\r\n");
    let mut child = bench
        .command(&["console", "web-1", "--until", "is up", "--timeout", "20"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "the end of stdin does not end a wait for a text");
    bench.print("guest is");
    bench.print(" up\r\n");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.starts_with("booting\r\nguest is up"), "{shown:?}");

    let (code, out, err) = bench.run(&["console", "web-1", "--until", "is down", "--timeout", "1"]);
    assert_eq!(code, 4);
    assert!(out.contains("guest is up"), "what came is shown all the same: {out:?}");
    assert!(err.contains("web-1 did not print \"is down\" within 1 s"), "{err}");
}

#[test]
fn what_is_piped_in_reaches_the_guest_before_the_end_of_input_leaves() {
    let mut bench = Bench::new();
    let mut child = bench.command(&["console", "web-1"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"poweroff\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut typed = [0_u8; 9];
    bench.guest.read_exact(&mut typed).unwrap();
    assert_eq!(&typed, b"poweroff\n");
}

/// `bcd console` at a terminal of its own.
struct AtTerminal {
    child: Child,
    /// The person's end.
    person: File,
    /// The program's end, to look at its modes.
    terminal: OwnedFd,
    before: Termios,
}

impl AtTerminal {
    fn start(bench: &Bench, arguments: &[&str]) -> Self {
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let before = tcgetattr(&slave).unwrap();
        assert!(before.local_flags.contains(LocalFlags::ICANON | LocalFlags::ECHO));
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut command = bench.command(&[&["console", "web-1"], arguments].concat());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let mut this = Self { child, person: master.into(), terminal: slave, before };
        this.expect("Ctrl-] leaves]");
        this
    }

    /// Reads what is shown until `text` is.
    fn expect(&mut self, text: &str) -> String {
        let (mut shown, begun) = (Vec::new(), Instant::now());
        let mut byte = [0_u8; 1];
        while !String::from_utf8_lossy(&shown).contains(text) {
            assert!(begun.elapsed() < PATIENCE, "{text:?} is not in {:?}", String::from_utf8_lossy(&shown));
            self.person.read_exact(&mut byte).unwrap();
            shown.push(byte[0]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    }

    fn end(mut self) -> Option<i32> {
        let begun = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE, "bcd console goes on");
            thread::sleep(Duration::from_millis(20));
        }
        let after = tcgetattr(&self.terminal).unwrap();
        assert_eq!(after, self.before, "the terminal is left as it was found");
        self.child.wait().unwrap().code()
    }
}

#[test]
fn at_a_terminal_every_key_goes_to_the_guest_and_the_escape_leaves_it_as_it_was() {
    let mut bench = Bench::new();
    let mut terminal = AtTerminal::start(&bench, &[]);
    assert!(
        !tcgetattr(&terminal.terminal)
            .unwrap()
            .local_flags
            .intersects(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    );
    bench.print("login: ");
    terminal.expect("login: ");
    terminal.person.write_all(b"root\r\x03\x04").unwrap();
    let mut typed = [0_u8; 7];
    bench.guest.read_exact(&mut typed).unwrap();
    assert_eq!(&typed, b"root\r\x03\x04");
    terminal.person.write_all(b"x\x1dy").unwrap();
    terminal.expect("[bcd: left]");
    assert_eq!(terminal.end(), Some(0));
    let mut typed = [0_u8; 1];
    bench.guest.read_exact(&mut typed).unwrap();
    assert_eq!(&typed, b"x", "what was typed before the escape arrives");
    bench.guest.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(bench.guest.read_exact(&mut typed).is_err(), "the escape and what follows it do not");
}

#[test]
fn a_signal_the_end_of_the_instance_and_a_timeout_leave_the_terminal_as_it_was() {
    let bench = Bench::new();
    let terminal = AtTerminal::start(&bench, &[]);
    kill(Pid::from_raw(terminal.child.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(terminal.end(), Some(128 + 15));
    assert_eq!(AtTerminal::start(&bench, &["--until", "never", "--timeout", "1"]).end(), Some(4));
    let mut terminal = AtTerminal::start(&bench, &["--read-only"]);
    bench.node.consoles.removed(&bench.id);
    terminal.expect("the instance is deleted]");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn a_reader_types_nothing_and_the_writer_is_told_of_a_takeover() {
    let mut bench = Bench::new();
    let mut writer = AtTerminal::start(&bench, &[]);
    let mut reader = AtTerminal::start(&bench, &["--read-only"]);
    reader.person.write_all(b"ignored").unwrap();
    writer.person.write_all(b"typed").unwrap();
    let mut typed = [0_u8; 5];
    bench.guest.read_exact(&mut typed).unwrap();
    assert_eq!(&typed, b"typed");
    let mut second = AtTerminal::start(&bench, &[]);
    writer.expect("another client has taken over the input");
    for terminal in [&mut writer, &mut reader, &mut second] {
        terminal.person.write_all(b"\x1d").unwrap();
    }
    assert_eq!((writer.end(), reader.end(), second.end()), (Some(0), Some(0), Some(0)));
}

#[test]
fn completions_and_schemas_need_no_node() {
    let run = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_bcd")).args(arguments).output().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success() && output.stdout.windows(9).any(|w| w == b"read-only"), "{shell}");
    }
    for command in ["schema", "openapi"] {
        let value: Value = serde_json::from_slice(&run(&[command]).stdout).unwrap();
        assert!(value.is_object());
    }
}
