//! The sandbox in a process of its own: a test that entered it could not leave it.
use super::*;
use std::fs;
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

const PLACE: &str = "BCD_SANDBOX_TEST_PLACE";

fn config(place: &Path) -> Config {
    let place = place.display();
    Config::parse(&format!(
        "data_dir = \"{place}/data\"\n[node]\napi = \"{place}/run/node.sock\"\nsecrets = \"{place}/secrets\"\n\
         spec = \"{place}/etc/node.toml\"\n[helper]\nstate_dir = \"{place}/state\"\n"
    ))
    .expect("a configuration")
}

fn place() -> (tempfile::TempDir, PathBuf) {
    // Not below /tmp/.tmpXXXX alone: the path must be one that the configuration takes.
    let dir = tempfile::Builder::new().prefix("bcd-sandbox-").tempdir().expect("a directory");
    let path = dir.path().to_owned();
    for name in ["data", "run", "secrets", "etc", "state", "outside"] {
        fs::create_dir(path.join(name)).expect("a directory");
    }
    fs::write(path.join("outside/file"), "secret").expect("a file");
    fs::write(path.join("secrets/a1"), "user data").expect("a file");
    fs::write(path.join("etc/node.toml"), "").expect("a file");
    fs::copy("/bin/true", path.join("data/true")).expect("a program");
    (dir, path)
}

/// Runs the ignored test `name` of this file in a process of its own. Answers its output and whether it passed.
fn child(name: &str, place: &Path) -> (String, std::process::ExitStatus) {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", &format!("sandbox::tests::{name}"), "--ignored", "--nocapture", "--test-threads=1"])
        .env(PLACE, place)
        .output()
        .expect("run");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("running 1 test"), "no such test: {text}");
    (text, output.status)
}

/// The place of a test in a process of its own; `None` when it was not started by [`child`].
fn entered() -> Option<PathBuf> {
    let place = PathBuf::from(std::env::var_os(PLACE)?);
    enter(&config(&place)).expect("the sandbox");
    Some(place)
}

#[test]
fn the_node_reaches_its_own_files_and_no_others() {
    let (_dir, place) = place();
    let (text, status) = child("child_files", &place);
    assert!(status.success(), "{text}");
}

#[test]
#[ignore = "run by the_node_reaches_its_own_files_and_no_others"]
fn child_files() {
    let Some(place) = entered() else { return };
    let denied = |outcome: std::io::Result<()>, what: &str| {
        let error = outcome.expect_err(what);
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{what}: {error}");
    };
    fs::create_dir(place.join("data/d")).expect("own directory");
    fs::write(place.join("data/d/f"), "x").expect("own file");
    fs::rename(place.join("data/d/f"), place.join("data/f")).expect("moved within data_dir");
    fs::remove_file(place.join("data/f")).expect("own file removed");
    fs::read(place.join("secrets/a1")).expect("user data");
    fs::read(place.join("etc/node.toml")).expect("the document");
    fs::read("/etc/passwd").expect("system settings");
    fs::write("/dev/null", "x").expect("/dev/null");
    let listener = UnixListener::bind(place.join("run/node.sock")).expect("the API's socket");
    drop(listener);
    fs::remove_file(place.join("run/node.sock")).expect("the API's socket removed");

    denied(fs::read(place.join("outside/file")).map(drop), "reading elsewhere");
    denied(fs::write(place.join("outside/new"), "x"), "writing elsewhere");
    denied(fs::write(place.join("secrets/a1"), "x"), "changing user data");
    denied(fs::write(place.join("etc/node.toml"), "x"), "changing the document");
    denied(fs::write(place.join("state/x"), "x"), "writing the helper's state");
    denied(fs::read_dir("/root").map(drop), "listing a home");
    denied(TcpListener::bind("127.0.0.1:0").map(drop), "serving TCP");
    // Landlock refuses it too; seccomp does not know the call.
    let link =
        std::os::unix::fs::symlink("/etc/shadow", place.join("data/link")).expect_err("a link among its own files");
    assert_eq!(link.raw_os_error(), Some(libc::ENOSYS));
    denied(UnixListener::bind(place.join("data/sock")).map(drop), "a socket among its own files");
}

#[test]
fn the_node_still_runs_tools_threads_and_name_resolution_and_connects() {
    let (_dir, place) = place();
    let listener = UnixListener::bind(place.join("outside/sock")).expect("a socket");
    let (text, status) = child("child_works", &place);
    assert!(status.success(), "{text}");
    drop(listener);
}

#[test]
#[ignore = "run by the_node_still_runs_tools_threads_and_name_resolution_and_connects"]
fn child_works() {
    let Some(place) = entered() else { return };
    let output = Command::new("/bin/sh").args(["-c", "echo made > \"$0\"/made"]).arg(place.join("data")).output();
    assert!(output.expect("a tool").status.success());
    assert_eq!(fs::read_to_string(place.join("data/made")).expect("made by the tool"), "made\n");
    let iso = place.join("data/seed.iso");
    for tool in [&["genisoimage"][..], &["xorriso", "-as", "mkisofs"]] {
        let made = Command::new(tool[0])
            .args(&tool[1..])
            .args(["-quiet", "-output"])
            .arg(&iso)
            .args(["-volid", "cidata", "-joliet", "-rock"])
            .arg(place.join("secrets"))
            .output();
        match made {
            Ok(made) => assert!(made.status.success(), "{tool:?}: {}", String::from_utf8_lossy(&made.stderr)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => eprintln!("skipped: no {}", tool[0]),
            Err(error) => panic!("{tool:?}: {error}"),
        }
    }
    std::thread::spawn(|| ()).join().expect("a thread");
    use std::net::ToSocketAddrs;
    assert!(("localhost", 1).to_socket_addrs().expect("resolved").next().is_some());
    UnixStream::connect(place.join("outside/sock")).expect("the helper's socket lies outside");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio");
    runtime.block_on(async {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        let output = tokio::process::Command::new("/bin/true").output().await.expect("a tool of tokio's");
        assert!(output.status.success());
    });
}

#[test]
fn a_program_that_the_node_could_have_written_does_not_run() {
    let (_dir, place) = place();
    let (text, status) = child("child_exec", &place);
    assert!(status.success(), "{text}");
}

#[test]
#[ignore = "run by a_program_that_the_node_could_have_written_does_not_run"]
fn child_exec() {
    let Some(place) = entered() else { return };
    let error = Command::new(place.join("data/true")).status().expect_err("a program in data_dir ran");
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn a_call_that_only_an_intruder_makes_ends_the_process() {
    let (_dir, place) = place();
    let (text, status) = child("child_intruder", &place);
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(status.signal(), Some(libc::SIGSYS), "{text}");
}

#[test]
#[ignore = "run by a_call_that_only_an_intruder_makes_ends_the_process"]
fn child_intruder() {
    if entered().is_some() {
        let outcome = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER);
        panic!("unshare answered {outcome:?}");
    }
}

/// libvirtd, which is root, would wait at one in a disk's place: docs/threat-model.md.
#[test]
fn making_a_fifo_or_a_device_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    let (_dir, place) = place();
    let (text, status) = child("child_maker", &place);
    assert_eq!(status.signal(), Some(libc::SIGSYS), "{text}");
}

#[test]
#[ignore = "run by making_a_fifo_or_a_device_ends_the_process"]
fn child_maker() {
    if let Some(place) = entered() {
        let outcome = nix::unistd::mkfifo(&place.join("data/fifo"), nix::sys::stat::Mode::S_IRUSR);
        panic!("mkfifo answered {outcome:?}");
    }
}

#[test]
fn typing_into_a_terminal_for_somebody_else_ends_the_process() {
    let (_dir, place) = place();
    let (text, status) = child("child_typist", &place);
    assert!(status.success(), "{text}");
}

#[test]
#[ignore = "run by typing_into_a_terminal_for_somebody_else_ends_the_process"]
fn child_typist() {
    use std::os::unix::process::ExitStatusExt;
    if entered().is_none() {
        return;
    }
    // TIOCSTI, TIOCLINUX, and TCGETS, which is anybody's.
    for (request, ends) in [("0x5412", true), ("0x541C", true), ("0x5401", false)] {
        let program = format!("my $byte = \"x\" x 64; ioctl(STDIN, {request}, $byte); exit 3");
        match Command::new("/usr/bin/perl").args(["-e", &program]).status() {
            Ok(status) if ends => assert_eq!(status.signal(), Some(libc::SIGSYS), "{request}: {status}"),
            Ok(status) => assert_eq!(status.code(), Some(3), "{request}: {status}"),
            Err(error) => {
                eprintln!("skipped: no perl to try it with ({error})");
                return;
            }
        }
    }
}

#[test]
fn unlisted_socket_families_look_like_an_older_kernel() {
    let (_dir, place) = place();
    let (text, status) = child("child_families", &place);
    assert!(status.success(), "{text}");
}

#[test]
#[ignore = "run by unlisted_socket_families_look_like_an_older_kernel"]
fn child_families() {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let Some(_place) = entered() else { return };
    socket(AddressFamily::Inet6, SockType::Stream, SockFlag::empty(), None).expect("TCP is left");
    for family in [AddressFamily::Netlink, AddressFamily::Packet, AddressFamily::Vsock] {
        let error = socket(family, SockType::Stream, SockFlag::empty(), None).expect_err("a socket");
        assert_eq!(error, nix::errno::Errno::ENOSYS);
    }
}

#[test]
fn the_nodes_tasks_core_files_and_locked_memory_are_bounded_for_good() {
    let (_dir, place) = place();
    let (text, status) = child("child_limits", &place);
    assert!(status.success(), "{text}");
}

#[test]
#[ignore = "run by the_nodes_tasks_core_files_and_locked_memory_are_bounded_for_good"]
fn child_limits() {
    let Some(_place) = entered() else { return };
    let limit = |resource| getrlimit(resource).expect("a limit");
    assert_eq!(limit(Resource::RLIMIT_CORE), (0, 0));
    assert_eq!(limit(Resource::RLIMIT_MEMLOCK), (0, 0));
    assert_eq!((limit(Resource::RLIMIT_RTPRIO), limit(Resource::RLIMIT_NICE)), ((0, 0), (0, 0)));
    let (soft, hard) = limit(Resource::RLIMIT_NPROC);
    assert!(soft == hard && hard <= TASKS, "{soft} {hard}");
}
