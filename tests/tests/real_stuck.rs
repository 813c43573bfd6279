//! VMMs that no longer answer, as one can be whose guest has taken it over: what was asked of them hangs, each can be
//! destroyed all the same, and nobody else's guest waits for them. And a domain that libvirtd itself is stuck on.
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
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;
use virt::connect::Connect;

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
    let connect = || Wire::welcomed(&place);
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

/// Opens the other end of a FIFO when dropped, so that a test that fails leaves nobody waiting at it.
struct Mended<'a>(&'a Path);

impl Mended<'_> {
    fn open(&self) -> std::io::Result<()> {
        OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(self.0).map(drop)
    }
}

impl Drop for Mended<'_> {
    fn drop(&mut self) {
        let _nobody_waits = self.open();
    }
}

/// What a compromised node can do to libvirtd, and what mends it (docs/threat-model.md): the disk of a running guest becomes a
/// FIFO, and libvirtd, asked over its read-only socket, opens it and waits with the domain held.
#[test]
fn a_disk_that_became_a_fifo_holds_libvirtd_until_its_other_end_is_opened() {
    if !bcd_tests::real("a_disk_that_became_a_fifo_holds_libvirtd_until_its_other_end_is_opened") {
        return;
    }
    let place = Place::new("fifo");
    place.configure("");
    let _cleaner = Cleaner { instances: ["held", "free", "later"].map(str::to_owned).to_vec() };
    let base = files::base(&place);
    let helper = daemons::helper(&place);
    let connect = || Wire::welcomed(&place);
    let mut wire = connect();
    started(&mut wire, &place, "held", &base);
    started(&mut wire, &place, "free", &base);
    let disk = place.data().join("instances/held/disk.qcow2");
    std::fs::rename(&disk, disk.with_extension("aside")).expect("move aside");
    nix::unistd::mkfifo(&disk, nix::sys::stat::Mode::from_bits_truncate(0o600)).expect("make a FIFO");
    place.give(&disk);
    let mended = Mended(&disk);
    let asker = std::thread::spawn(|| {
        let connection = Connect::open_read_only(Some(domains::URI)).expect("anybody may read");
        connection.lookup_domain_by_name("bcd-held").and_then(|domain| domain.block_info("vda", 0)).is_ok()
    });
    std::thread::sleep(Duration::from_secs(2));
    let waits = !asker.is_finished();
    let mut held = connect();
    held.send(&Request::LibvirtDestroy { instance: id("held") }).expect("ask");

    // One that is defined is looked at and ended meanwhile.
    assert_eq!(wire.call(&Request::LibvirtResume { instance: id("free") }), Reply::Done { changed: true });
    assert_eq!(wire.call(&Request::LibvirtDestroy { instance: id("free") }), Reply::Done { changed: true });

    // The remedy that the threat model names.
    mended.open().expect("libvirtd waits there as a reader");
    let (message, _) = held.recv();
    assert_eq!(message.reply, Reply::Done { changed: true }, "what waited ends");
    let _answered = asker.join().expect("the one who asked");
    started(&mut wire, &place, "later", &base);
    assert!(waits, "this libvirtd does not wait for a FIFO: say so in the threat model");
    std::fs::remove_file(&disk).expect("remove");
    std::fs::rename(disk.with_extension("aside"), &disk).expect("move back");
    assert_eq!(wire.call(&Request::LibvirtDestroy { instance: id("later") }), Reply::Done { changed: true });
    for name in ["held", "free", "later"] {
        assert_eq!(wire.call(&Request::LibvirtUndefine { instance: id(name) }), Reply::Done { changed: true });
    }
    helper.stop();
}
