//! What the helper does while libvirtd is not there, hangs, or is killed: it says so, does nothing blindly, and goes on by
//! itself once libvirtd answers again. The libvirtd is one of this test's own, in a mount namespace where it sees nobody
//! else's domains, so that it can be stopped and killed at will.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test names the one answer it wants")]

use bcd_protocol::definition::ImageRef;
use bcd_protocol::reply::{FailureKind, RecordsPage, Reply};
use bcd_protocol::request::Request;
use bcd_tests::daemons::{self, Daemon, wait_for};
use bcd_tests::files::{self, id};
use bcd_tests::place::Place;
use bcd_tests::wire::Wire;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use virt::connect::Connect;

/// A libvirtd of the test's own. Killed when dropped.
struct Libvirtd {
    child: Child,
    uri: String,
}

fn socket_dir(place: &Place) -> PathBuf {
    place.root().join("libvirt")
}

fn uri(place: &Place) -> String {
    format!("qemu:///system?socket={}/libvirt-sock", socket_dir(place).display())
}

impl Libvirtd {
    fn start(place: &Place) -> Self {
        let dir = socket_dir(place);
        fs::create_dir_all(&dir).expect("make a directory");
        let config = place.root().join("libvirtd.conf");
        let sockets = dir.display();
        let log = place.root().join("libvirtd.log");
        let text = format!(
            "unix_sock_dir = \"{sockets}\"\nunix_sock_rw_perms = \"0700\"\nauth_unix_ro = \"none\"\nauth_unix_rw = \"none\"\n\
             log_outputs = \"3:file:{}\"\n",
            log.display()
        );
        fs::write(&config, text).expect("write its configuration");
        // The domains outlive its restarts, so they lie in the place and not in the namespace.
        let kept = place.root().join("libvirt-etc");
        fs::create_dir_all(kept.join("qemu")).expect("make a directory");
        fs::create_dir_all("/run/libvirt").expect("make a directory");
        let script = "mount --bind \"$0\" /etc/libvirt && mount -t tmpfs none /run/libvirt && \
                      mount -t tmpfs none /var/lib/libvirt && exec libvirtd -f \"$1\" -p \"$2\"";
        let child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .arg(&kept)
            .arg(&config)
            .arg(dir.join("pid"))
            .stdin(Stdio::null())
            .spawn()
            .expect("start libvirtd");
        let started = Self { child, uri: uri(place) };
        wait_for("the test's own libvirtd", 120, || Connect::open(Some(&started.uri)).is_ok());
        started
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).expect("a pid")), signal).expect("signal");
    }

    fn domains(&self) -> usize {
        Connect::open(Some(&self.uri)).expect("connect").list_all_domains(0).expect("list").len()
    }
}

impl Drop for Libvirtd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct World {
    helper: Daemon,
    base: ImageRef,
    place: Place,
}

impl World {
    fn new(name: &str, instances: &[&str]) -> Self {
        let place = Place::new(name);
        let base = files::base(&place);
        for instance in instances {
            files::instance(&place, instance, &base);
        }
        let text = fs::read_to_string(place.config()).expect("the configuration");
        let text = text.replace("[libvirt]\n", &format!("[libvirt]\nuri = \"{}\"\n", uri(&place)));
        place.configure_whole(&text);
        let helper = daemons::helper(&place);
        Self { helper, base, place }
    }

    fn wire(&self) -> Wire {
        Wire::welcomed(&self.place)
    }

    fn define(&self, instance: &str) -> Request {
        Request::LibvirtDefine { instance: id(instance), definition: files::definition(&self.base, Vec::new()) }
    }

    fn records(&self) -> RecordsPage {
        let begun = Instant::now();
        let page = self.wire().records();
        assert!(begun.elapsed() < Duration::from_secs(1), "records need no libvirt: {:?}", begun.elapsed());
        page
    }
}

#[test]
fn it_comes_up_without_libvirtd_and_finds_it_later() {
    if !bcd_tests::real("it_comes_up_without_libvirtd_and_finds_it_later") {
        return;
    }
    let world = World::new("late", &["late"]);
    let mut wire = world.wire();
    assert_eq!(wire.denied(&world.define("late")), "domain-unknown");
    assert_eq!(world.records().total, 0);
    let libvirtd = Libvirtd::start(&world.place);
    assert!(matches!(wire.call(&world.define("late")), Reply::Defined(defined) if defined.changed));
    assert_eq!(libvirtd.domains(), 1);

    // kill -9, and another in its place: the same connection to the helper goes on.
    drop(libvirtd);
    assert_eq!(wire.denied(&Request::LibvirtUndefine { instance: id("late") }), "domain-unknown");
    assert_eq!(world.records().total, 1, "what is not known is not forgotten");
    let libvirtd = Libvirtd::start(&world.place);
    assert_eq!(libvirtd.domains(), 1, "the test's libvirtd keeps its domains");
    assert_eq!(wire.call(&Request::LibvirtUndefine { instance: id("late") }), Reply::Done { changed: true });
    assert_eq!((libvirtd.domains(), world.records().total), (0, 0));
    let log = world.helper.log();
    let heard: Vec<_> = log.lines().filter(|line| line.contains("libvirt answers")).collect();
    assert_eq!(heard.len(), 2, "each return is logged once: {log}");
    world.helper.stop();
}

#[test]
fn what_was_begun_when_libvirtd_went_away_is_settled_when_it_is_back() {
    if !bcd_tests::real("what_was_begun_when_libvirtd_went_away_is_settled_when_it_is_back") {
        return;
    }
    let world = World::new("settle", &["settle"]);
    let libvirtd = Libvirtd::start(&world.place);
    world.helper.stop();
    // The helper ends with an intent to define, and comes back to a host without libvirtd.
    let at = [("BCD_HELPER_CRASH_AT", "libvirt.define:after-effect")];
    let mut doomed = daemons::spawn_helper(&world.place, &at);
    let World { base, place, .. } = world;
    let connect = || Wire::of_node(&place);
    wait_for("the doomed helper's socket", 20, || connect().is_ok());
    let doomed_wire = {
        let mut wire = connect().expect("connect").greeted();
        let definition = files::definition(&base, Vec::new());
        wire.send(&Request::LibvirtDefine { instance: id("settle"), definition }).expect("send");
        wire
    };
    doomed.ended(60);
    assert!(doomed_wire.is_closed());
    drop(libvirtd);
    let world = World { helper: daemons::helper(&place), base, place };
    assert!(world.records().records[0].unfinished);
    assert_eq!(world.wire().denied(&Request::LibvirtUndefine { instance: id("settle") }), "unfinished");
    let libvirtd = Libvirtd::start(&world.place);
    assert_eq!(libvirtd.domains(), 1, "it had been defined");
    wait_for("the settling of what was begun", 30, || !world.records().records[0].unfinished);
    let mut wire = world.wire();
    assert!(matches!(wire.call(&world.define("settle")), Reply::Defined(defined) if !defined.changed));
    assert_eq!(wire.call(&Request::LibvirtUndefine { instance: id("settle") }), Reply::Done { changed: true });
    assert_eq!(libvirtd.domains(), 0);
    world.helper.stop();
}

#[test]
fn a_libvirtd_that_hangs_holds_nothing_but_its_own_requests() {
    if !bcd_tests::real("a_libvirtd_that_hangs_holds_nothing_but_its_own_requests") {
        return;
    }
    let names: Vec<String> = (0..40).map(|n| format!("hang{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::new("hang", &names);
    let libvirtd = Libvirtd::start(&world.place);
    let mut wire = world.wire();
    assert!(matches!(wire.call(&world.define("hang00")), Reply::Defined(_)));
    libvirtd.signal(Signal::SIGSTOP);
    let begun = Instant::now();
    for name in &names {
        wire.send(&world.define(name)).expect("send");
    }
    for _ in 0..20 {
        assert_eq!(world.records().total, 1);
        std::thread::sleep(Duration::from_millis(100));
    }
    for _ in &names {
        match wire.recv().0.reply {
            Reply::Denied(denied) => assert_eq!(denied.rule.as_str(), "domain-unknown"),
            Reply::Failed(failed) => assert_eq!(failed.kind, FailureKind::Unavailable, "{failed:?}"),
            other => panic!("it cannot know: {other:?}"),
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(55), "every request is answered in time: {:?}", begun.elapsed());
    libvirtd.signal(Signal::SIGCONT);
    let back = Instant::now();
    wait_for("an answer of the libvirtd that goes on", 40, || {
        matches!(wire.call(&world.define("hang01")), Reply::Defined(_))
    });
    eprintln!("back after {:?}", back.elapsed());
    for name in ["hang00", "hang01"] {
        assert_eq!(wire.call(&Request::LibvirtUndefine { instance: id(name) }), Reply::Done { changed: true });
    }
    world.helper.stop();
}
