//! What Landlock leaves, in a thread of its own: a domain covers the thread that enters it and those it makes.
use super::*;
use bcd_confine::landlock::Got;
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;

#[test]
fn only_its_own_directories_are_left() {
    let host = tempfile::tempdir().unwrap();
    let path = |name: &str| host.path().join(name);
    for name in ["state", "socket", "other"] {
        fs::create_dir(path(name)).unwrap();
        fs::write(path(name).join("file"), b"1").unwrap();
    }
    let reachable = Reachable { state_dir: path("state"), socket_dir: Some(path("socket")) };
    let pty = nix::pty::openpty(None, None).unwrap();
    let terminal = fs::read_link(format!("/proc/self/fd/{}", pty.slave.as_raw_fd())).unwrap();
    std::thread::scope(|scope| {
        let left = scope.spawn(|| {
            nix::sys::prctl::set_no_new_privs().unwrap();
            if rules(&reachable).restrict().unwrap() == Got::None {
                println!("skipped: this kernel has no Landlock");
                return;
            }
            let state = path("state");
            fs::File::create(state.join("new")).unwrap().write_all(b"2").unwrap();
            fs::rename(state.join("new"), state.join("file")).unwrap();
            assert_eq!(fs::read(state.join("file")).unwrap(), b"2");
            fs::remove_file(state.join("file")).unwrap();
            let denied = |result: std::io::Result<()>| {
                assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
            };
            denied(fs::create_dir(state.join("dir")));
            denied(std::os::unix::fs::symlink("/", state.join("link")));
            denied(fs::read(path("other").join("file")).map(drop));
            denied(fs::write(path("other").join("file"), b"3"));
            denied(fs::read(path("socket").join("file")).map(drop));
            denied(fs::write(path("socket").join("new"), b"3"));
            denied(fs::remove_file(path("other").join("file")));
            denied(fs::read("/etc/passwd").map(drop));
            denied(fs::read_dir("/").map(drop));
            fs::remove_file(path("socket").join("file")).unwrap();
            // Looking without opening needs no right.
            let flags = nix::fcntl::OFlag::O_PATH;
            let seen = nix::fcntl::open(&path("other").join("file"), flags, nix::sys::stat::Mode::empty()).unwrap();
            assert_eq!(nix::sys::stat::fstat(&seen).unwrap().st_size, 1);
            // What is opened here may be set to raw mode by whoever gets it.
            let opened = fs::OpenOptions::new().read(true).write(true).open(&terminal).unwrap();
            let modes = nix::sys::termios::tcgetattr(&opened).unwrap();
            nix::sys::termios::tcsetattr(&opened, nix::sys::termios::SetArg::TCSANOW, &modes).unwrap();
        });
        left.join().unwrap();
    });
}
