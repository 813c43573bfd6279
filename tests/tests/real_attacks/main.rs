//! A compromised node on the helper's raw socket: everything that code running as the node's user can say to root, and
//! what another local user can. Each attack is refused with the rule it breaks, or its connection is closed; after each
//! one a normal request is answered, and at the end everything that bcd did not create is as it was.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test names the one answer it wants")]

mod bytes;
mod disks;
mod peers;
mod phases;
mod plenty;
mod strangers;
mod values;

use bcd_protocol::codec;
use bcd_protocol::definition::{Definition, ImageRef, Nics};
use bcd_protocol::id::Sha256Digest;
use bcd_protocol::limits;
use bcd_protocol::reply::Reply;
use bcd_protocol::request::{Request, RequestId, RequestMessage};
use bcd_protocol::size::{DiskBytes, MemoryBytes, Vcpus};
use bcd_tests::daemons::{self, wait_for};
use bcd_tests::domains::{self, Cleaner, Foreign};
use bcd_tests::files::{self, id, nic};
use bcd_tests::place::Place;
use bcd_tests::wire::Wire;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use virt::connect::Connect;

const MAC: &str = "52:54:00:aa:00:01";
const OTHER_MAC: &str = "52:54:00:aa:00:02";
const BRIDGE: &str = "bcdattack0";

/// What an attack must run into.
#[derive(Debug, PartialEq, Eq)]
enum Met {
    /// Denied by this rule.
    Rule(String),
    /// The connection was closed.
    Closed,
    /// Nothing changed: the answer said so.
    NoChange,
    /// Answered, and without harm.
    Answered,
}

fn rule(id: &str) -> Met {
    Met::Rule(id.to_owned())
}

struct World {
    place: Place,
    base: ImageRef,
    connection: Connect,
}

impl World {
    fn wire(&self) -> Wire {
        Wire::welcomed(&self.place)
    }

    fn bare(&self) -> Wire {
        Wire::of_node(&self.place).expect("the node's user connects")
    }

    fn ask(&self, request: &Request) -> Met {
        match self.wire().call(request) {
            Reply::Denied(denied) => Met::Rule(denied.rule.to_string()),
            Reply::Done { changed: false } => Met::NoChange,
            Reply::Hello(_) | Reply::Records(_) | Reply::Plan(_) => Met::Answered,
            other => panic!("{request:?} had an effect: {other:?}"),
        }
    }

    /// Sends bytes after a proper handshake.
    fn throw(&self, bytes: &[u8]) -> Met {
        let wire = self.wire();
        match wire.send_raw(bytes, &[]) {
            Ok(()) => self.met(&wire),
            Err(_) => Met::Closed,
        }
    }

    fn met(&self, wire: &Wire) -> Met {
        if wire.is_closed() { Met::Closed } else { Met::Answered }
    }

    fn definition(&self) -> Definition {
        files::definition(&self.base, Vec::new())
    }

    fn define(&self, instance: &str, definition: Definition) -> Request {
        Request::LibvirtDefine { instance: id(instance), definition }
    }

    /// Tries to define a new instance after `plant` changed one of its files.
    fn planted(&self, instance: &str, plant: impl FnOnce(&PathBuf)) -> Met {
        let dir = files::instance(&self.place, instance, &self.base);
        plant(&dir);
        let met = self.ask(&self.define(instance, self.definition()));
        let _ = fs::remove_dir_all(&dir);
        met
    }

    /// Defines an instance as an honest node does and returns its guest's uid.
    fn honest(&self, instance: &str, definition: Definition) -> u32 {
        files::instance(&self.place, instance, &self.base);
        match self.wire().call(&self.define(instance, definition)) {
            Reply::Defined(defined) => {
                files::share(&self.place, instance, defined.uid.get(), &self.base);
                defined.uid.get()
            }
            other => panic!("an honest definition was refused: {other:?}"),
        }
    }
}

fn start(instance: &str, paused: bool) -> Request {
    Request::LibvirtStart { instance: id(instance), paused }
}

fn encoded(request: Request) -> Vec<u8> {
    codec::encode(&RequestMessage { id: RequestId(7), request }).expect("encode")
}

/// The bytes of an honest request with one text replaced by another of the same length.
fn forged(request: Request, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = encoded(request);
    let at = bytes.windows(from.len()).position(|window| window == from).expect("the text is in the message");
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

type Attack = (&'static str, Met, Box<dyn Fn(&World) -> Met>);

fn attack(name: &'static str, met: Met, run: impl Fn(&World) -> Met + 'static) -> Attack {
    (name, met, Box::new(run))
}

impl World {
    fn generation(&self) -> Reply {
        self.wire().call(&Request::Records { after: None, limit: 0 })
    }
}

#[test]
fn a_compromised_node_meets_a_rule_whatever_it_says() {
    if !bcd_tests::real("a_compromised_node_meets_a_rule_whatever_it_says") {
        return;
    }
    let place = Place::new("attacks");
    place.configure(&format!(
        "instance_bridges = [\"{BRIDGE}\"]\nmax_instances = 9\nmax_vcpus = 4\nmax_memory_bytes = {}\nmax_disk_bytes = {}",
        256 << 20,
        1 << 30
    ));
    let names = ["idle", "live", "frozen", "grown", "usurped", "doubled", "vanished", "value"];
    let _cleaner = Cleaner { instances: names.iter().map(ToString::to_string).collect() };
    let connection = domains::connect();
    let base = files::base(&place);
    let mut helper = daemons::helper(&place);
    let world = World { place, base, connection };

    let stranger = Foreign::define(&world.connection, "bcd-stranger", None);
    world.honest("idle", files::definition(&world.base, vec![nic(BRIDGE, MAC)]));
    let mut grown = world.definition();
    grown.disk = DiskBytes::new(files::BASE_BYTES * 2).expect("disk");
    world.honest("grown", grown);
    world.honest("live", world.definition());
    assert_eq!(world.wire().call(&start("live", false)), Reply::Done { changed: true });
    world.honest("frozen", world.definition());
    assert_eq!(world.wire().call(&start("frozen", true)), Reply::Done { changed: true });
    world.honest("usurped", world.definition());
    let ours = world.connection.lookup_domain_by_name("bcd-usurped").expect("ours");
    ours.undefine().expect("the administrator undefines it");
    let usurper = Foreign::define(&world.connection, "bcd-usurped", None);
    world.honest("doubled", world.definition());
    let ours = world.connection.lookup_domain_by_name("bcd-doubled").expect("ours");
    let uuid = ours.uuid_string().expect("a uuid");
    ours.undefine().expect("the administrator undefines it");
    let double = Foreign::define(&world.connection, "somebody-elses", Some(&uuid));

    let untouched = [&stranger, &usurper, &double].map(|foreign| (foreign, foreign.xml()));
    let owners = || fs::read_dir("/etc").expect("read").count();
    let (pid, entries, records) = (domains::qemu_pid("live"), owners(), world.generation());
    assert!(pid.is_some(), "the live guest runs");

    let attacks: Vec<Attack> = [
        strangers::about_strangers(),
        disks::about_files(),
        values::about_values(),
        phases::about_phases(),
        peers::about_peers(),
        bytes::about_bytes(),
        plenty::about_plenty(),
    ]
    .into_iter()
    .flatten()
    .collect();
    assert!(attacks.len() >= 40, "{} attacks", attacks.len());
    let mut wrong = Vec::new();
    for (name, expected, run) in &attacks {
        let met = run(&world);
        eprintln!("{name}: {met:?}");
        if met != *expected {
            wrong.push(format!("{name}: met {met:?}, expected {expected:?}"));
        }
        assert!(helper.is_alive(), "the helper died of: {name}\n{}", helper.log());
        assert!(
            matches!(world.wire().call(&Request::Records { after: None, limit: 1 }), Reply::Records(_)),
            "no honest answer after: {name}"
        );
    }
    assert!(wrong.is_empty(), "{} of {} attacks:\n{}", wrong.len(), attacks.len(), wrong.join("\n"));

    for (foreign, xml) in untouched {
        assert_eq!(foreign.xml(), xml, "a foreign domain was changed");
    }
    assert_eq!(domains::qemu_pid("live"), pid, "the live guest's process");
    assert_eq!(owners(), entries);
    let (Reply::Records(before), Reply::Records(after)) = (records, world.generation()) else { panic!("records") };
    assert_eq!(before.total, after.total, "records before and after");
    let log = helper.log();
    assert!(!log.contains("panicked"), "{log}");
    for name in ["live", "frozen"] {
        assert!(matches!(world.wire().call(&Request::LibvirtDestroy { instance: id(name) }), Reply::Done { .. }));
    }
    for name in ["idle", "live", "frozen", "grown"] {
        let reply = world.wire().call(&Request::LibvirtUndefine { instance: id(name) });
        assert_eq!(reply, Reply::Done { changed: true }, "undefine {name}");
    }
    helper.stop();
}
