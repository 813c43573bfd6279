//! Every verb of the helper against the real libvirt: what it does, what libvirt then shows, what a repetition does, and
//! that one audit event tells of it. What each verb refuses is in `real_attacks`.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test names the one answer it wants")]

use bcd_protocol::PROTOCOL_VERSION;
use bcd_protocol::definition::{Definition, ImageFormat, ImageRef};
use bcd_protocol::id::Sha256Digest;
use bcd_protocol::limits;
use bcd_protocol::reply::{Defined, FailureKind, RecordsPage, Reply};
use bcd_protocol::request::Request;
use bcd_protocol::size::{DiskBytes, Vcpus};
use bcd_tests::daemons::{self, Daemon, wait_for};
use bcd_tests::domains::{self, Cleaner, qemu_pid};
use bcd_tests::files::{self, BASE_BYTES, id};
use bcd_tests::place::Place;
use bcd_tests::wire::Wire;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use virt::connect::Connect;
use virt::domain::Domain;
use virt::sys;

struct World {
    wire: Wire,
    helper: Daemon,
    connection: Connect,
    base: ImageRef,
    _cleaner: Cleaner,
    place: Place,
}

impl World {
    fn new(name: &str, instances: &[&str]) -> Self {
        let place = Place::new(name);
        let base = files::base(&place);
        for instance in instances {
            files::instance(&place, instance, &base);
        }
        let cleaner = Cleaner { instances: instances.iter().map(ToString::to_string).collect() };
        let helper = daemons::helper(&place);
        let wire = Wire::welcomed(&place);
        Self { wire, helper, connection: domains::connect(), base, _cleaner: cleaner, place }
    }

    fn definition(&self) -> Definition {
        files::definition(&self.base, Vec::new())
    }

    fn define(&mut self, instance: &str, definition: Definition) -> Defined {
        match self.wire.call(&Request::LibvirtDefine { instance: id(instance), definition }) {
            Reply::Defined(defined) => {
                files::share(&self.place, instance, defined.uid.get(), &self.base);
                defined
            }
            other => panic!("not defined: {other:?}"),
        }
    }

    /// Asks and expects that it was done; answers whether anything changed.
    fn done(&mut self, request: Request) -> bool {
        match self.wire.call(&request) {
            Reply::Done { changed } => changed,
            other => panic!("{request:?} was not done: {other:?}"),
        }
    }

    fn records(&mut self) -> RecordsPage {
        self.wire.records()
    }

    fn domain(&self, instance: &str) -> Option<Domain> {
        self.connection.lookup_domain_by_name(&format!("bcd-{instance}")).ok()
    }

    fn state(&self, instance: &str) -> u32 {
        self.domain(instance).expect("the domain").info().expect("its state").state.to_raw()
    }

    fn xml(&self, instance: &str) -> String {
        self.domain(instance).expect("the domain").xml_desc(sys::VIR_DOMAIN_XML_INACTIVE).expect("its XML")
    }

    /// The audit events of one verb so far.
    fn audited(&self, verb: &str) -> Vec<String> {
        let wanted = format!("verb=\"{verb}\"");
        self.helper.log().lines().filter(|l| l.contains("audit") && l.contains(&wanted)).map(str::to_owned).collect()
    }
}

fn connect(place: &Place) -> Wire {
    Wire::of_node(place).expect("the node's user connects")
}

/// A base image whose boot sector says `UP` on the serial port and then echoes what it hears.
fn talking_base(place: &Place) -> ImageRef {
    let program = [
        0xBA, 0xF8, 0x03, 0xB0, b'U', 0xEE, 0xB0, b'P', 0xEE, // mov dx,3f8; out 'U'; out 'P'
        0xBA, 0xFD, 0x03, 0xEC, 0xA8, 0x01, 0x74, 0xF8, // hear: mov dx,3fd; in al,dx; test al,1; jz hear
        0xBA, 0xF8, 0x03, 0xEC, 0xEE, 0xEB, 0xF1, // mov dx,3f8; in al,dx; out dx,al; jmp hear
    ];
    let mut bytes = vec![0u8; usize::try_from(BASE_BYTES).unwrap()];
    bytes[..program.len()].copy_from_slice(&program);
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    let sha256 = Sha256Digest::from_bytes(Sha256::digest(&bytes).into());
    let path = place.data().join(format!("images/{sha256}.raw"));
    std::fs::write(&path, bytes).unwrap();
    place.give(&path);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    ImageRef { sha256, format: ImageFormat::Raw }
}

fn start(instance: &str, paused: bool) -> Request {
    Request::LibvirtStart { instance: id(instance), paused }
}

#[test]
fn hello_opens_a_connection_once() {
    if !bcd_tests::real("hello_opens_a_connection_once") {
        return;
    }
    let mut world = World::new("hello", &[]);
    let mut wire = connect(&world.place);
    assert_eq!(wire.denied(&Request::Hello { version: PROTOCOL_VERSION + 1 }), "protocol-version");
    assert_eq!(wire.denied(&Request::Records { after: None, limit: 1 }), "hello-first");
    match wire.call(&Request::Hello { version: PROTOCOL_VERSION }) {
        Reply::Hello(welcome) => {
            assert_eq!(welcome.version, PROTOCOL_VERSION);
            assert!(!welcome.package.as_str().is_empty());
        }
        other => panic!("not welcomed: {other:?}"),
    }
    assert_eq!(wire.denied(&Request::Hello { version: PROTOCOL_VERSION }), "hello-twice");
    assert_eq!(world.records().total, 0, "another connection is as it was");
    let events = world.audited("hello");
    assert_eq!(events.len(), 4, "one event a request: {events:#?}");
    let denied: Vec<_> = events.iter().filter(|line| line.contains("rule=\"protocol-version\"")).collect();
    assert_eq!(denied.len(), 1, "{events:#?}");
    let node = format!("peer_uid={}", world.place.node_uid());
    for field in [node.as_str(), "peer_pid=", "decision=\"denied\"", "outcome=\"nothing\"", "elapsed_us="] {
        assert!(denied[0].contains(field), "{field} is missing: {}", denied[0]);
    }
}

#[test]
fn records_come_in_pages_and_their_generation_tells_of_every_change() {
    if !bcd_tests::real("records_come_in_pages_and_their_generation_tells_of_every_change") {
        return;
    }
    let names: Vec<String> = (0..=usize::from(limits::RECORDS_PER_PAGE)).map(|n| format!("page{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::new("records", &names);
    let empty = world.records();
    assert_eq!((empty.total, empty.more, empty.records.len()), (0, false, 0));
    let mut generations = vec![empty.generation];
    for name in &names {
        let definition = world.definition();
        world.define(name, definition);
        generations.push(world.records().generation);
    }
    let mut unique = generations.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), generations.len(), "each change has a generation of its own");
    let first = world.records();
    assert_eq!(first.generation, *generations.last().unwrap(), "looking changes nothing");
    assert_eq!((first.records.len(), first.more), (names.len() - 1, true));
    let after = first.records.last().map(|record| record.instance.clone());
    let Reply::Records(second) = world.wire.call(&Request::Records { after, limit: u16::MAX }) else {
        panic!("a page")
    };
    assert_eq!((second.records.len(), second.more), (1, false));
    let seen: Vec<_> = first.records.iter().chain(second.records.iter()).map(|r| r.instance.to_string()).collect();
    assert_eq!(seen, names, "all of them, in order");
    let mut uids: Vec<_> = first.records.iter().chain(second.records.iter()).map(|record| record.uid).collect();
    uids.sort();
    uids.dedup();
    assert_eq!(uids.len(), names.len(), "each has a uid of its own");
    let Reply::Records(none) = world.wire.call(&Request::Records { after: None, limit: 0 }) else { panic!("a page") };
    assert_eq!((none.records.len(), none.total), (0, first.total), "the generation alone");
    for name in &names {
        assert!(world.done(Request::LibvirtUndefine { instance: id(name) }));
    }
}

#[test]
fn define_and_undefine_leave_what_they_say_in_libvirt_and_on_disk() {
    if !bcd_tests::real("define_and_undefine_leave_what_they_say_in_libvirt_and_on_disk") {
        return;
    }
    let mut world = World::new("define", &["def"]);
    let definition = world.definition();
    let plan = Request::LibvirtPlan { instance: id("def"), definition: definition.clone() };
    let Reply::Plan(planned) = world.wire.call(&plan) else { panic!("no plan") };
    assert!(world.domain("def").is_none() && world.records().total == 0, "a plan changes nothing");

    let first = world.define("def", definition.clone());
    assert!(first.changed);
    assert!((limits::GUEST_UID_FIRST..=limits::GUEST_UID_LAST).contains(&first.uid.get()));
    let xml = world.xml("def");
    for part in [first.uuid.to_string(), format!("+{}:kvm", first.uid), "bcd-def".to_owned()] {
        assert!(xml.contains(&part), "{part} is missing from {xml}");
    }
    let Reply::Plan(now) = world.wire.call(&plan) else { panic!("no plan") };
    let uuid_of = |xml: &str| xml.split("<uuid>").nth(1).and_then(|rest| rest.split('<').next()).map(str::to_owned);
    assert_eq!(uuid_of(now.as_str()), Some(first.uuid.to_string()), "the plan of an existing one is of that one");
    assert_ne!(uuid_of(planned.as_str()), uuid_of(now.as_str()), "each new one gets a fresh UUID");
    let record = world.place.state().join("records/def.json");
    let kept = std::fs::read_to_string(&record).expect("the record");
    assert!(kept.contains(&first.uuid.to_string()) && kept.contains("\"intent\": null"), "{kept}");
    let meta = std::fs::metadata(&record).unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o777), (0, 0o600));

    let again = world.define("def", definition.clone());
    assert_eq!((again.changed, again.uuid, again.uid), (false, first.uuid, first.uid), "a repetition changes nothing");
    let larger = Definition { vcpus: Vcpus::new(2).unwrap(), ..definition };
    let changed = world.define("def", larger.clone());
    assert_eq!(
        (changed.changed, changed.uuid, changed.uid),
        (true, first.uuid, first.uid),
        "uid and UUID are for life"
    );
    assert!(world.xml("def").contains(">2</vcpu>"));

    // Somebody undefines it behind bcd's back: it can be defined again, as the same.
    world.domain("def").unwrap().undefine().expect("undefine");
    let back = world.define("def", larger);
    assert_eq!((back.changed, back.uuid, back.uid), (true, first.uuid, first.uid));
    assert!(world.domain("def").is_some());

    assert!(world.done(Request::LibvirtUndefine { instance: id("def") }));
    assert!(world.domain("def").is_none() && !record.exists());
    assert!(!world.done(Request::LibvirtUndefine { instance: id("def") }), "a repetition changes nothing");
    assert!(world.place.data().join("instances/def/disk.qcow2").exists(), "the files are the node's to remove");
    assert_eq!(world.audited("libvirt.undefine").len(), 2);
}

#[test]
fn a_guest_is_started_paused_resumed_and_destroyed_under_its_own_uid() {
    if !bcd_tests::real("a_guest_is_started_paused_resumed_and_destroyed_under_its_own_uid") {
        return;
    }
    let mut world = World::new("life", &["life"]);
    let definition = world.definition();
    let defined = world.define("life", definition);
    let disk = world.place.data().join("instances/life/disk.qcow2");
    let owner = std::fs::metadata(&disk).unwrap().uid();

    assert!(world.done(start("life", true)));
    assert_eq!(world.state("life"), sys::VIR_DOMAIN_PAUSED);
    assert!(!world.done(start("life", true)), "paused already");
    let pid = qemu_pid("life").expect("a QEMU");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let uids = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
    let expected: Vec<String> = vec![defined.uid.to_string(); 4];
    assert_eq!(uids.split_whitespace().skip(1).collect::<Vec<_>>(), expected, "real, effective, saved, filesystem");
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");

    assert!(world.done(Request::LibvirtResume { instance: id("life") }));
    assert_eq!(world.state("life"), sys::VIR_DOMAIN_RUNNING);
    assert!(!world.done(Request::LibvirtResume { instance: id("life") }));
    assert!(world.done(Request::LibvirtSuspend { instance: id("life") }));
    assert_eq!(world.state("life"), sys::VIR_DOMAIN_PAUSED);
    assert!(!world.done(Request::LibvirtSuspend { instance: id("life") }));
    assert!(world.done(Request::LibvirtResume { instance: id("life") }));
    assert!(world.done(Request::LibvirtShutdown { instance: id("life") }), "the button is pressed");
    assert!(world.done(Request::LibvirtShutdown { instance: id("life") }), "and pressed again");
    assert_eq!(qemu_pid("life"), Some(pid), "one VMM all along");

    assert!(world.done(Request::LibvirtDestroy { instance: id("life") }));
    assert_eq!(world.state("life"), sys::VIR_DOMAIN_SHUTOFF);
    assert!(!world.done(Request::LibvirtDestroy { instance: id("life") }));
    assert!(!world.done(Request::LibvirtShutdown { instance: id("life") }), "nothing to press any more");
    assert_eq!(std::fs::metadata(&disk).unwrap().uid(), owner, "libvirt changed no owner");
    assert!(world.done(Request::LibvirtUndefine { instance: id("life") }));
}

#[test]
fn what_starts_is_what_root_remembers_and_not_what_libvirt_was_made_to_hold() {
    if !bcd_tests::real("what_starts_is_what_root_remembers_and_not_what_libvirt_was_made_to_hold") {
        return;
    }
    let mut world = World::new("remember", &["mem"]);
    let definition = world.definition();
    world.define("mem", definition);
    let changed = world.xml("mem").replace("65536</memory>", "131072</memory>");
    world.connection.define_domain_xml(&changed).expect("an administrator changes the domain");
    assert!(world.done(start("mem", false)));
    assert!(world.xml("mem").contains("65536</memory>"), "{}", world.xml("mem"));
    let info = world.domain("mem").unwrap().info().unwrap();
    assert_eq!(info.max_mem, 65536);
    world.domain("mem").unwrap().managed_save(0).expect("an administrator saves it");
    assert!(world.done(start("mem", false)), "a managed save does not come back");
    assert!(!world.domain("mem").unwrap().has_managed_save(0).unwrap());
    assert!(world.done(Request::LibvirtDestroy { instance: id("mem") }));
    // A save that is left when the domain goes, goes with it.
    assert!(world.done(start("mem", false)));
    world.domain("mem").unwrap().managed_save(0).expect("an administrator saves it");
    assert!(world.done(Request::LibvirtUndefine { instance: id("mem") }));
    assert!(world.domain("mem").is_none());
}

#[test]
fn a_running_guests_disk_grows_and_is_never_cut() {
    if !bcd_tests::real("a_running_guests_disk_grows_and_is_never_cut") {
        return;
    }
    let mut world = World::new("grow", &["grow"]);
    let definition = world.definition();
    world.define("grow", definition);
    assert!(world.done(start("grow", false)));
    let capacity = |world: &World| world.domain("grow").unwrap().block_info("vda", 0).unwrap().capacity;
    let resize = |bytes| Request::LibvirtBlockResize { instance: id("grow"), disk: DiskBytes::new(bytes).unwrap() };
    assert_eq!(capacity(&world), BASE_BYTES);
    assert!(world.done(resize(8 * BASE_BYTES)));
    assert_eq!(capacity(&world), 8 * BASE_BYTES);
    assert_eq!(world.records().records[0].definition.disk.get(), 8 * BASE_BYTES, "the record follows");
    world.done(resize(8 * BASE_BYTES));
    assert_eq!(world.wire.denied(&resize(4 * BASE_BYTES)), "disk-shrinks");
    assert_eq!(capacity(&world), 8 * BASE_BYTES);
    // Somebody grew it behind bcd's back: the record still says 8, and 12 would cut it.
    world.domain("grow").unwrap().block_resize("vda", 16 * BASE_BYTES, sys::VIR_DOMAIN_BLOCK_RESIZE_BYTES).unwrap();
    match world.wire.call(&resize(12 * BASE_BYTES)) {
        Reply::Failed(failed) => assert_eq!(failed.kind, FailureKind::Refused),
        other => panic!("the disk was cut: {other:?}"),
    }
    assert_eq!(capacity(&world), 16 * BASE_BYTES);
    assert_eq!(world.records().records[0].definition.disk.get(), 8 * BASE_BYTES, "what did not happen is undone");
    assert!(!world.records().records[0].unfinished);
    assert!(world.done(Request::LibvirtDestroy { instance: id("grow") }));
    assert!(world.done(Request::LibvirtUndefine { instance: id("grow") }));
}

#[test]
fn the_console_is_the_guests_terminal_and_nothing_else() {
    if !bcd_tests::real("the_console_is_the_guests_terminal_and_nothing_else") {
        return;
    }
    let mut world = World::new("console", &[]);
    let _cleaner = Cleaner { instances: vec!["con".to_owned()] };
    world.base = talking_base(&world.place);
    files::instance(&world.place, "con", &world.base);
    let definition = world.definition();
    let defined = world.define("con", definition);
    let console = Request::Console { instance: id("con") };
    assert_eq!(world.wire.denied(&console), "phase", "not while it is stopped");
    assert!(world.done(start("con", true)));
    let open = |world: &mut World| -> OwnedFd {
        let (reply, mut fds) = world.wire.call_with_fds(&console);
        assert_eq!(reply, Reply::Console);
        assert_eq!(fds.len(), 1, "one descriptor");
        fds.pop().unwrap()
    };
    let terminal = open(&mut world);
    let stat = nix::sys::stat::fstat(&terminal).unwrap();
    assert_eq!(stat.st_uid, defined.uid.get(), "the guest's own");
    let flags = OFlag::from_bits_retain(fcntl(&terminal, FcntlArg::F_GETFL).unwrap());
    assert!(flags.contains(OFlag::O_RDWR | OFlag::O_NONBLOCK), "{flags:?}");
    // The node may set its modes: the sandbox of the helper that opened it does not stick to it.
    let mut modes = nix::sys::termios::tcgetattr(&terminal).expect("the terminal's modes");
    nix::sys::termios::cfmakeraw(&mut modes);
    nix::sys::termios::tcsetattr(&terminal, nix::sys::termios::SetArg::TCSANOW, &modes).expect("set raw mode");
    assert!(world.done(Request::LibvirtResume { instance: id("con") }));
    let mut file = std::fs::File::from(terminal);
    let mut seen = String::new();
    let mut hear = |file: &mut std::fs::File, word: &str| {
        wait_for(&format!("{word:?} on the console"), 60, || {
            let mut buffer = [0u8; 1024];
            if let Ok(count) = file.read(&mut buffer) {
                seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
            seen.contains(word)
        });
    };
    hear(&mut file, "UP");
    file.write_all(b"echo this").expect("it can be written to");
    hear(&mut file, "echo this");
    let _second = open(&mut world);
    assert!(world.done(Request::LibvirtDestroy { instance: id("con") }));
    assert_eq!(world.wire.denied(&console), "phase");
    assert!(world.done(Request::LibvirtUndefine { instance: id("con") }));
    assert_eq!(world.audited("console").len(), 4, "one event a request");
}

#[test]
fn a_start_that_fails_says_why_without_naming_the_hosts_paths() {
    if !bcd_tests::real("a_start_that_fails_says_why_without_naming_the_hosts_paths") {
        return;
    }
    let mut world = World::new("fail", &["fail"]);
    let definition = world.definition();
    world.define("fail", definition);
    // Not shared with the guest's uid: QEMU cannot open it.
    let disk = world.place.data().join("instances/fail/disk.qcow2");
    files::run("setfacl", &["-b", disk.to_str().unwrap()]);
    match world.wire.call(&start("fail", false)) {
        Reply::Failed(failed) => {
            assert_eq!(failed.kind, FailureKind::Refused, "{failed:?}");
            assert!(failed.detail.as_str().contains("Permission denied"), "{failed:?}");
            assert!(!failed.detail.as_str().contains("/var/log"), "{failed:?}");
        }
        other => panic!("it started: {other:?}"),
    }
    let page = world.records();
    assert!(!page.records[0].unfinished, "nothing is left half done");
    assert_eq!(world.state("fail"), sys::VIR_DOMAIN_SHUTOFF);
    // More memory than any host has.
    let huge = bcd_protocol::size::MemoryBytes::new(256 << 30).unwrap();
    let definition = Definition { memory: huge, ..world.definition() };
    let uid = world.define("fail", definition).uid;
    files::share(&world.place, "fail", uid.get(), &world.base);
    if let Reply::Failed(failed) = world.wire.call(&start("fail", false)) {
        assert_eq!(failed.kind, FailureKind::ResourcesExhausted, "{failed:?}");
    } else {
        // A host that overcommits without bound lets it start.
        assert!(world.done(Request::LibvirtDestroy { instance: id("fail") }));
    }
    assert!(world.done(Request::LibvirtUndefine { instance: id("fail") }));
}
