//! What a guest that broke out of its QEMU reaches: its own disk, seed and base, and nothing of another guest's, the node's,
//! the helper's or libvirtd's. Tried as its very uid and group, on every file there is.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test names the one answer it wants")]

use bcd_protocol::reply::Reply;
use bcd_protocol::request::Request;
use bcd_tests::daemons;
use bcd_tests::domains::{self, Cleaner, qemu_pid};
use bcd_tests::files::{self, id};
use bcd_tests::place::Place;
use bcd_tests::wire::{Wire, as_user};
use nix::sys::signal::kill;
use nix::unistd::{Gid, Group, Pid};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Everything below a directory, itself first, without following links.
fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let mut at = 0;
    while let Some(path) = found.get(at).cloned() {
        at += 1;
        if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
            found.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    found
}

/// What the calling thread may do with each path: `r` it, `w` it, `l` list it, `m` make a file in it, `c` connect to it.
fn reached(paths: &[PathBuf]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in paths {
        let mut note = |what: char| found.insert(format!("{what} {}", path.display()));
        let open = |write: bool| {
            let mut how = OpenOptions::new();
            // A FIFO or a terminal must not hold the test, nor become its own.
            how.read(!write).append(write).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).is_ok()
        };
        let is = |test: fn(&fs::FileType) -> bool| fs::symlink_metadata(path).is_ok_and(|meta| test(&meta.file_type()));
        if is(fs::FileType::is_dir) {
            let scratch = path.join("bcd-test-intruder");
            let (listed, made) = (fs::read_dir(path).is_ok(), fs::write(&scratch, b"").is_ok());
            listed.then(|| note('l'));
            made.then(|| note('m'));
        } else if is(FileTypeExt::is_socket) {
            let refused = Wire::connect(path).err().and_then(|error| error.raw_os_error());
            // Another type of socket is reached all the same.
            matches!(refused, None | Some(libc::EPROTOTYPE)).then(|| note('c'));
        } else {
            open(false).then(|| note('r'));
            open(true).then(|| note('w'));
        }
    }
    found
}

#[test]
fn a_guest_that_broke_out_reaches_its_own_files_and_nothing_of_anybody_elses() {
    let test = "a_guest_that_broke_out_reaches_its_own_files_and_nothing_of_anybody_elses";
    if !bcd_tests::real(test) {
        return;
    }
    let place = Place::new("neighbours");
    let names = ["inside", "beside"];
    let _cleaner = Cleaner { instances: names.map(str::to_owned).to_vec() };
    let base = files::base(&place);
    let helper = daemons::helper(&place);
    let mut wire = Wire::welcomed(&place);
    let uids = names.map(|name| {
        files::instance(&place, name, &base);
        let definition = files::definition(&base, Vec::new());
        let defined = match wire.call(&Request::LibvirtDefine { instance: id(name), definition }) {
            Reply::Defined(defined) => defined,
            other => panic!("{other:?}"),
        };
        files::share(&place, name, defined.uid.get(), &base);
        let started = wire.call(&Request::LibvirtStart { instance: id(name), paused: false });
        assert_eq!(started, Reply::Done { changed: true });
        defined.uid.get()
    });
    let secret = place.root().join("secrets/beside");
    fs::write(&secret, "#cloud-config\n").expect("write");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("chmod");
    place.give(&secret);

    let kvm = Group::from_name("kvm").expect("groups").expect("group kvm").gid;
    let (inside, beside) = (qemu_pid("inside").expect("runs"), qemu_pid("beside").expect("runs"));
    let group = Gid::from_raw(
        fs::read_to_string(format!("/proc/{inside}/status"))
            .expect("runs")
            .lines()
            .find_map(|line| line.strip_prefix("Gid:")?.split_whitespace().nth(1)?.parse().ok())
            .expect("a gid"),
    );
    assert_eq!(group, kvm, "the group that is tried is the one that a VMM has");

    let mut paths: Vec<PathBuf> =
        ["data", "state", "secrets", "run"].iter().flat_map(|dir| walk(&place.root().join(dir))).collect();
    let libvirts = walk(Path::new("/var/lib/libvirt/qemu"));
    let of_beside = libvirts.iter().filter(|path| path.display().to_string().contains("bcd-beside")).count();
    assert!(of_beside >= 2, "libvirt's directory of the other guest is there: {libvirts:?}");
    paths.extend(libvirts);
    // Debian's package leaves an empty file there that anybody may read; what a domain's log says is what counts.
    let logs = walk(Path::new("/var/log/libvirt/qemu"));
    paths.extend(logs.into_iter().filter(|path| path.file_name().is_some_and(|name| name != ".placeholder")));
    paths.extend(
        walk(Path::new("/run/libvirt/qemu")).into_iter().filter(|path| path.extension().is_some_and(|e| e == "xml")),
    );
    paths.extend(["/run/libvirt/libvirt-sock", "/etc/shadow"].map(PathBuf::from));
    let ptys = walk(Path::new("/dev/pts"));
    let own_pty = domains::connect().lookup_domain_by_name("bcd-inside").expect("ours").xml_desc(0).expect("xml");
    paths.extend(ptys.into_iter().filter(|path| {
        path.file_name().is_some_and(|name| name != "ptmx") && !own_pty.contains(&format!("'{}'", path.display()))
    }));
    for what in ["mem", "environ", "maps", "fd", "root", "auxv", "stack"] {
        paths.push(format!("/proc/{beside}/{what}").into());
        paths.push(format!("/proc/{}/{what}", helper.pid()).into());
    }

    let (reached, signals) = as_user(uids[0], kvm.as_raw(), || {
        let signals = [beside, helper.pid().as_raw()].map(|pid| kill(Pid::from_raw(pid), None));
        (reached(&paths), signals)
    });
    let own = place.data().join("instances/inside");
    let base = place.data().join(format!("images/{}.{}", base.sha256, base.format));
    let expected: BTreeSet<String> = [
        format!("r {}", own.join("disk.qcow2").display()),
        format!("w {}", own.join("disk.qcow2").display()),
        format!("r {}", own.join("seed.iso").display()),
        format!("r {}", base.display()),
    ]
    .into();
    // Names are no secret of libvirt's or devpts's: group kvm may list the former, everybody the latter.
    let listed = |what: &str| {
        let closed =
            ["data", "state", "secrets"].iter().any(|dir| what.contains(&*place.root().join(dir).to_string_lossy()));
        what.starts_with("l ") && !closed
    };
    let theirs: Vec<_> =
        reached.iter().filter(|what| !is_its_own(what) && !listed(what) && !expected.contains(*what)).collect();
    assert!(theirs.is_empty(), "reached: {theirs:#?}");
    assert!(expected.is_subset(&reached), "its own: {reached:#?}");
    for answer in signals {
        assert_eq!(answer, Err(nix::errno::Errno::EPERM), "a signal to another guest or the helper");
    }
    for name in names {
        assert_eq!(wire.call(&Request::LibvirtDestroy { instance: id(name) }), Reply::Done { changed: true });
        assert_eq!(wire.call(&Request::LibvirtUndefine { instance: id(name) }), Reply::Done { changed: true });
    }
    helper.stop();
}

/// libvirt's own directory of the guest that is tried.
fn is_its_own(what: &str) -> bool {
    what.contains("/var/lib/libvirt/qemu/") && what.contains("bcd-inside")
}

#[test]
fn words_out_of_a_disks_header_are_no_line_of_the_helpers_log() {
    if !bcd_tests::real("words_out_of_a_disks_header_are_no_line_of_the_helpers_log") {
        return;
    }
    let place = Place::new("forger");
    let _cleaner = Cleaner { instances: vec!["forger".to_owned()] };
    let base = files::base(&place);
    let helper = daemons::helper(&place);
    let mut wire = Wire::welcomed(&place);
    let dir = files::instance(&place, "forger", &base);
    let definition = files::definition(&base, Vec::new());
    let Reply::Defined(defined) = wire.call(&Request::LibvirtDefine { instance: id("forger"), definition }) else {
        panic!("not defined")
    };
    // A compromised node owns the disk, and so the name of a data file in its header, which QEMU prints when it is not there.
    let forged = "INFO audit: verb=\"libvirt.destroy\" instance=\"beside\" decision=\"granted\" outcome=\"done\"";
    let (disk, named) = (dir.join("disk.qcow2"), dir.join(format!("x\n{forged}")));
    fs::remove_file(&disk).expect("remove");
    let option = format!("data_file={}", named.display());
    files::run("qemu-img", &["create", "-q", "-f", "qcow2", "-o", &option, disk.to_str().expect("utf-8"), "1M"]);
    fs::remove_file(&named).expect("remove");
    place.give(&disk);
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o600)).expect("chmod");
    files::share(&place, "forger", defined.uid.get(), &base);
    match wire.call(&Request::LibvirtStart { instance: id("forger"), paused: false }) {
        Reply::Failed(failed) => assert!(!failed.detail.as_str().contains(char::is_control), "{:?}", failed.detail),
        other => panic!("{other:?}"),
    }
    let log = helper.log();
    assert!(log.contains(&format!(r"x\n{forged}")), "QEMU's words are there: {log}");
    let lines: Vec<_> = log.lines().filter(|line| line.trim_start().starts_with("INFO audit")).collect();
    assert_eq!(lines, Vec::<&str>::new(), "a line that the disk's header wrote");
    assert!(log.lines().all(|line| line.starts_with("20")), "each line begins with its time: {log}");
    assert!(matches!(wire.call(&Request::LibvirtUndefine { instance: id("forger") }), Reply::Done { .. }));
    helper.stop();
}
