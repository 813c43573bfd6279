//! The helper ends at every step of every verb that changes something: before and after the intent is written, after the
//! effect, after the outcome is written. Started again it settles what was begun, the same request then leads where it
//! should, and a guest that ran still runs.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test names the one answer it wants")]

use bcd_protocol::definition::{Definition, ImageRef};
use bcd_protocol::reply::{FailureKind, RecordView, Reply};
use bcd_protocol::request::Request;
use bcd_protocol::size::{DiskBytes, Vcpus};
use bcd_tests::daemons::{self, wait_for};
use bcd_tests::domains::{self, Cleaner, qemu_pid};
use bcd_tests::files::{self, BASE_BYTES, id};
use bcd_tests::place::Place;
use bcd_tests::wire::Wire;
use std::os::unix::process::ExitStatusExt;
use virt::connect::Connect;
use virt::sys;

const STEPS: [&str; 4] = ["before-intent", "after-intent", "after-effect", "after-outcome"];
const NAME: &str = "crash";

struct World {
    place: Place,
    base: ImageRef,
    connection: Connect,
}

/// One verb, what comes before it, and what must hold after it.
struct Case {
    verb: &'static str,
    before: &'static [fn(&World) -> Request],
    request: fn(&World) -> Request,
    holds: fn(&World, Option<&RecordView>),
}

impl World {
    fn wire(&self) -> Wire {
        Wire::welcomed(&self.place)
    }

    fn connect(&self) -> std::io::Result<Wire> {
        Wire::of_node(&self.place)
    }

    fn record(&self) -> Option<RecordView> {
        self.wire().records().records.iter().next().cloned()
    }

    fn done(&self, request: &Request) {
        match self.wire().call(request) {
            Reply::Done { .. } => {}
            Reply::Defined(defined) => files::share(&self.place, NAME, defined.uid.get(), &self.base),
            other => panic!("{request:?} was not done: {other:?}"),
        }
    }

    fn state(&self) -> Option<u32> {
        let domain = self.connection.lookup_domain_by_name(&format!("bcd-{NAME}")).ok()?;
        Some(domain.info().expect("its state").state.to_raw())
    }

    fn xml(&self) -> String {
        let domain = self.connection.lookup_domain_by_name(&format!("bcd-{NAME}")).expect("the domain");
        domain.xml_desc(sys::VIR_DOMAIN_XML_INACTIVE).expect("its XML")
    }
}

fn define(world: &World) -> Request {
    Request::LibvirtDefine { instance: id(NAME), definition: files::definition(&world.base, Vec::new()) }
}

fn define_larger(world: &World) -> Request {
    let definition = files::definition(&world.base, Vec::new());
    Request::LibvirtDefine {
        instance: id(NAME),
        definition: Definition { vcpus: Vcpus::new(3).expect("a count"), ..definition },
    }
}

fn start(_: &World) -> Request {
    Request::LibvirtStart { instance: id(NAME), paused: false }
}

fn shutdown(_: &World) -> Request {
    Request::LibvirtShutdown { instance: id(NAME) }
}

fn suspend(_: &World) -> Request {
    Request::LibvirtSuspend { instance: id(NAME) }
}

fn resume(_: &World) -> Request {
    Request::LibvirtResume { instance: id(NAME) }
}

fn destroy(_: &World) -> Request {
    Request::LibvirtDestroy { instance: id(NAME) }
}

fn undefine(_: &World) -> Request {
    Request::LibvirtUndefine { instance: id(NAME) }
}

fn resize(_: &World) -> Request {
    Request::LibvirtBlockResize { instance: id(NAME), disk: DiskBytes::new(4 * BASE_BYTES).expect("a size") }
}

const CASES: [Case; 9] = [
    Case {
        verb: "libvirt.define",
        before: &[],
        request: define,
        holds: |world, record| {
            let record = record.expect("a record");
            assert!(world.xml().contains(&record.uuid.to_string()), "the domain is the record's");
            assert_eq!(world.state(), Some(sys::VIR_DOMAIN_SHUTOFF));
        },
    },
    Case {
        verb: "libvirt.define",
        before: &[define],
        request: define_larger,
        holds: |world, record| {
            assert_eq!(record.expect("a record").definition.vcpus.get(), 3);
            assert!(world.xml().contains(">3</vcpu>"));
        },
    },
    Case {
        verb: "libvirt.start",
        before: &[define],
        request: start,
        holds: |world, _| assert_eq!(world.state(), Some(sys::VIR_DOMAIN_RUNNING)),
    },
    Case {
        verb: "libvirt.shutdown",
        before: &[define, start],
        request: shutdown,
        holds: |world, _| assert_eq!(world.state(), Some(sys::VIR_DOMAIN_RUNNING), "no system hears the button"),
    },
    Case {
        verb: "libvirt.suspend",
        before: &[define, start],
        request: suspend,
        holds: |world, _| assert_eq!(world.state(), Some(sys::VIR_DOMAIN_PAUSED)),
    },
    Case {
        verb: "libvirt.resume",
        before: &[define, start, suspend],
        request: resume,
        holds: |world, _| assert_eq!(world.state(), Some(sys::VIR_DOMAIN_RUNNING)),
    },
    Case {
        verb: "libvirt.blockresize",
        before: &[define, start],
        request: resize,
        holds: |world, record| {
            assert_eq!(record.expect("a record").definition.disk.get(), 4 * BASE_BYTES);
            let domain = world.connection.lookup_domain_by_name(&format!("bcd-{NAME}")).expect("the domain");
            assert_eq!(domain.block_info("vda", 0).expect("its disk").capacity, 4 * BASE_BYTES);
        },
    },
    Case {
        verb: "libvirt.destroy",
        before: &[define, start],
        request: destroy,
        holds: |world, _| assert_eq!(world.state(), Some(sys::VIR_DOMAIN_SHUTOFF)),
    },
    Case {
        verb: "libvirt.undefine",
        before: &[define],
        request: undefine,
        holds: |world, record| {
            assert_eq!(world.state(), None);
            assert_eq!(record, None);
        },
    },
];

#[test]
fn a_helper_that_ends_at_any_step_of_any_verb_comes_back_and_finishes() {
    if !bcd_tests::real("a_helper_that_ends_at_any_step_of_any_verb_comes_back_and_finishes") {
        return;
    }
    for case in &CASES {
        for step in STEPS {
            run(case, step);
        }
    }
}

fn run(case: &Case, step: &str) {
    let at = format!("{}:{step}", case.verb);
    eprintln!("{at} after {} requests", case.before.len());
    let place = Place::new("crash");
    let base = files::base(&place);
    files::instance(&place, NAME, &base);
    let _cleaner = Cleaner { instances: vec![NAME.to_owned()] };
    let world = World { place, base, connection: domains::connect() };
    let honest = daemons::helper(&world.place);
    for request in case.before {
        world.done(&request(&world));
    }
    let guest = qemu_pid(NAME);
    let before = world.record();
    honest.stop();

    let mut doomed = daemons::spawn_helper(&world.place, &[("BCD_HELPER_CRASH_AT", &at)]);
    wait_for("the doomed helper's socket", 20, || world.connect().is_ok());
    let mut wire = world.wire();
    wire.send(&(case.request)(&world)).expect("send");
    let status = doomed.ended(60);
    assert_eq!(status.signal(), Some(libc::SIGABRT), "{at}: {}", doomed.log());
    assert!(doomed.log().contains(&format!("failpoint reached at=\"{at}\"")), "it was that step: {}", doomed.log());
    assert!(wire.is_closed(), "no reply was sent");
    let state_before_repair = world.state();
    drop(doomed);
    let kept = std::fs::read_to_string(world.place.state().join(format!("records/{NAME}.json"))).ok();
    let begun = kept.as_ref().is_some_and(|text| !text.contains("\"intent\": null"));
    assert_eq!(begun, matches!(step, "after-intent" | "after-effect"), "{at}: root's memory is {kept:?}");

    let again = daemons::helper(&world.place);
    wait_for("the settling of what was begun", 20, || world.record().is_none_or(|record| !record.unfinished));
    let settled = world.record();
    match step {
        "before-intent" => assert_eq!(settled, before, "nothing was begun"),
        "after-outcome" => (case.holds)(&world, settled.as_ref()),
        _ => {}
    }
    if let (Some(before), Some(settled)) = (&before, &settled) {
        assert_eq!((before.uuid, before.uid), (settled.uuid, settled.uid), "uid and UUID are for life");
    }
    assert_eq!(world.state(), state_before_repair, "settling changes records, never a domain");
    world.done(&(case.request)(&world));
    (case.holds)(&world, world.record().as_ref());
    if case.verb != "libvirt.destroy" && case.verb != "libvirt.start" {
        assert_eq!(qemu_pid(NAME), guest, "the guest never noticed");
    }
    if world.record().is_some() {
        world.done(&destroy(&world));
        world.done(&undefine(&world));
    }
    again.stop();
    assert_eq!(std::fs::read_dir(world.place.state().join("records")).expect("the ledger").count(), 0);
}

/// A mistake in the helper's own code, at several steps of a start: on the way to the effect, in it, and after it.
#[test]
fn a_panic_is_told_as_an_unknown_outcome_settled_by_what_is_found_and_holds_up_nobody() {
    let test = "a_panic_is_told_as_an_unknown_outcome_settled_by_what_is_found_and_holds_up_nobody";
    if !bcd_tests::real(test) {
        return;
    }
    for (step, decision, runs) in
        [("after-intent", "unknown", false), ("in-effect", "granted", true), ("after-effect", "unknown", true)]
    {
        eprintln!("{step}");
        let place = Place::new("panic");
        let base = files::base(&place);
        let other = "panic-other";
        for name in [NAME, other] {
            files::instance(&place, name, &base);
        }
        let _cleaner = Cleaner { instances: vec![NAME.to_owned(), other.to_owned()] };
        let world = World { place, base, connection: domains::connect() };
        let at = format!("libvirt.start:{step}:panic");
        let helper = daemons::spawn_helper(&world.place, &[("BCD_HELPER_CRASH_AT", &at)]);
        wait_for("the helper's socket", 20, || world.connect().is_ok());
        world.done(&define(&world));
        let mut wire = world.wire();
        match wire.call(&Request::LibvirtStart { instance: id(NAME), paused: false }) {
            Reply::Failed(failed) => {
                assert_eq!(failed.kind, FailureKind::Unavailable);
                assert!(failed.detail.as_str().contains("what it had done by then is not known"), "{failed:?}");
            }
            reply => panic!("{at}: {reply:?}"),
        }
        let log = helper.log();
        let events: Vec<_> = log.lines().filter(|line| line.contains("audit: verb=\"libvirt.start\"")).collect();
        let [event] = events.as_slice() else { panic!("{at}: one event of the request: {log}") };
        for field in
            [format!("decision=\"{decision}\""), "outcome=\"unknown\"".to_owned(), format!("instance=\"{NAME}\"")]
        {
            assert!(event.contains(&field), "{at}: no {field} in {event}");
        }
        let panics: Vec<_> = log.lines().filter(|line| line.contains("a failpoint")).collect();
        assert!(
            matches!(panics.as_slice(), [line] if line.contains("a part of the helper failed")),
            "{at}: one line: {log}"
        );

        // The same connection goes on, with another instance and with this one.
        let definition = files::definition(&world.base, Vec::new());
        let defined = wire.call(&Request::LibvirtDefine { instance: id(other), definition });
        assert!(matches!(defined, Reply::Defined(_)), "{at}: {defined:?}");
        wait_for("the settling of what was begun", 20, || world.record().is_some_and(|record| !record.unfinished));
        assert!(helper.log().contains("an unfinished record is settled"), "{at}: the intent stood: {}", helper.log());
        assert_eq!(qemu_pid(NAME).is_some(), runs, "{at}");
        world.done(&destroy(&world));
        assert_eq!(qemu_pid(NAME), None);
        world.done(&undefine(&world));
        let undefined = wire.call(&Request::LibvirtUndefine { instance: id(other) });
        assert!(matches!(undefined, Reply::Done { changed: true }), "{at}: {undefined:?}");
        helper.stop();
    }
}
