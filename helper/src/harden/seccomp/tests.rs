//! What the filters do to a process of their own: each test runs itself again as a child and closes the filter there.
use nix::errno::Errno;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Runs `child` in a process of its own under the filters; answers how that process ended.
fn under_filter(test: &str, child: fn()) -> Option<std::process::ExitStatus> {
    let name = format!("harden::seccomp::tests::{test}");
    if std::env::var("BCD_UNDER_FILTER").is_ok_and(|asked| asked == name) {
        nix::sys::prctl::set_no_new_privs().unwrap();
        super::FILTER.restrict().unwrap();
        child();
        std::process::exit(0);
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &name, "--nocapture", "--test-threads=1"]).env("BCD_UNDER_FILTER", &name);
    Some(command.output().unwrap().status)
}

#[test]
fn running_a_program_ends_the_process() {
    let status = under_filter("running_a_program_ends_the_process", || {
        let _ended = nix::unistd::execv(c"/bin/true", &[c"true"]);
    });
    assert_eq!(status.unwrap().signal(), Some(libc::SIGSYS));
}

#[test]
fn becoming_another_user_ends_the_process() {
    let status = under_filter("becoming_another_user_ends_the_process", || {
        let _ended = nix::unistd::setresuid(1.into(), 1.into(), 1.into());
    });
    assert_eq!(status.unwrap().signal(), Some(libc::SIGSYS));
}

#[test]
fn a_new_process_and_a_network_socket_are_refused_and_the_helper_lives_on() {
    let status = under_filter("a_new_process_and_a_network_socket_are_refused_and_the_helper_lives_on", || {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
        let refused = |family| socket(family, SockType::Stream, SockFlag::empty(), None).err();
        assert_eq!(refused(AddressFamily::Inet), Some(Errno::EPERM));
        assert_eq!(refused(AddressFamily::Netlink), Some(Errno::EPERM));
        assert_eq!(refused(AddressFamily::Unix), None);
        let spawned = Command::new("/bin/true").spawn();
        assert_eq!(spawned.err().and_then(|e| e.raw_os_error()), Some(libc::EPERM));
        let raised = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, 10, 10);
        assert_eq!(raised, Err(Errno::EPERM), "limits stay as they are");
        let named = nix::sys::prctl::set_dumpable(true);
        assert_eq!(named, Err(Errno::EPERM));
    });
    assert!(status.unwrap().success());
}

#[test]
fn threads_files_and_clocks_still_work() {
    let status = under_filter("threads_files_and_clocks_still_work", || {
        use std::io::Read;
        let read = std::thread::spawn(|| std::fs::File::open("/etc/passwd").unwrap().read(&mut [0; 8]).unwrap());
        assert!(read.join().unwrap() > 0);
        std::thread::sleep(std::time::Duration::from_millis(1));
        let file = tempfile::tempfile().unwrap();
        file.sync_all().unwrap();
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).unwrap();
        assert!(nix::net::if_::if_nametoindex("lo").is_ok());
    });
    assert!(status.unwrap().success());
}
