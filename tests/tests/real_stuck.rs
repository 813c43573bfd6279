//! VMMs that no longer answer, as one can be whose guest has taken it over: what was asked of them hangs, each can be
//! destroyed all the same, and nobody else's guest waits for them.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test names the one answer it wants")]

use bcd_protocol::definition::ImageRef;
use bcd_protocol::reply::{FailureKind, Reply};
use bcd_protocol::request::Request;
use bcd_tests::daemons;
use bcd_tests::domains::{self, Cleaner};
use bcd_tests::files::{self, id};
use bcd_tests::place::Place;
use bcd_tests::wire::Wire;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;

/// As many as the helper has calls to libvirt.
const STUCK: usize = 12;

fn started(wire: &mut Wire, place: &Place, name: &str, base: &ImageRef) {
    files::instance(place, name, base);
    let definition = files::definition(base, Vec::new());
    match wire.call(&Request::LibvirtDefine { instance: id(name), definition }) {
        Reply::Defined(defined) => files::share(place, name, defined.uid.get(), base),
        other => panic!("{name} is not defined: {other:?}"),
    }
    let reply = wire.call(&Request::LibvirtStart { instance: id(name), paused: true });
    assert_eq!(reply, Reply::Done { changed: true }, "{name}");
}

#[test]
fn vmms_that_do_not_answer_are_destroyed_and_hold_up_nobody() {
    if !bcd_tests::real("vmms_that_do_not_answer_are_destroyed_and_hold_up_nobody") {
        return;
    }
    let place = Place::new("stuck");
    place.configure("");
    let stuck: Vec<String> = (0..STUCK).map(|n| format!("stuck-{n}")).collect();
    let _cleaner = Cleaner { instances: stuck.iter().cloned().chain(["free".to_owned()]).collect() };
    let base = files::base(&place);
    let helper = daemons::helper(&place);
    let connect = || {
        let (uid, gid) = (place.node_uid().as_raw(), place.node_gid().as_raw());
        Wire::connect_as(&place.helper_socket(), uid, gid).expect("connect").greeted()
    };
    let mut wire = connect();
    for name in &stuck {
        started(&mut wire, &place, name, &base);
    }
    let pids: Vec<Pid> =
        stuck.iter().map(|name| Pid::from_raw(domains::qemu_pid(name).expect("its QEMU runs"))).collect();
    for pid in &pids {
        kill(*pid, Signal::SIGSTOP).expect("stop a VMM");
    }
    let mut asking = connect();
    for name in &stuck {
        asking.send(&Request::LibvirtResume { instance: id(name) }).expect("ask");
    }
    std::thread::sleep(Duration::from_secs(2));

    started(&mut wire, &place, "free", &base);
    let reply = wire.call(&Request::LibvirtDestroy { instance: id("free") });
    assert_eq!(reply, Reply::Done { changed: true }, "another guest is destroyed");

    for name in &stuck {
        wire.send(&Request::LibvirtDestroy { instance: id(name) }).expect("ask");
    }
    for _ in &stuck {
        // What was asked before has failed, or was never begun.
        let (message, _) = asking.recv();
        match message.reply {
            Reply::Failed(failed) => {
                assert!(matches!(failed.kind, FailureKind::Timeout | FailureKind::Unavailable), "{failed:?}");
            }
            other => panic!("a VMM that is stopped resumed: {other:?}"),
        }
    }
    for _ in &stuck {
        let (message, _) = wire.recv();
        assert_eq!(message.reply, Reply::Done { changed: true }, "a VMM that does not answer is destroyed");
    }
    assert!(stuck.iter().all(|name| domains::qemu_pid(name).is_none()), "VMMs are left");
    for name in stuck.iter().map(String::as_str).chain(["free"]) {
        let reply = wire.call(&Request::LibvirtUndefine { instance: id(name) });
        assert_eq!(reply, Reply::Done { changed: true }, "undefine {name}");
    }
    helper.stop();
}
