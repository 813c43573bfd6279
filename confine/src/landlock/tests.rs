//! What Landlock leaves, in a thread of its own: a domain covers the thread that enters it and those it makes.
use super::*;
use std::fs;
use std::io;

/// Runs `inside` in a thread under `rules`; says why it did not when the kernel has no Landlock.
fn under(rules: Rules, inside: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let run = || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            if rules.restrict().unwrap() == Got::None {
                println!("skipped: this kernel has no Landlock");
            } else {
                inside();
            }
        };
        scope.spawn(run).join().unwrap();
    });
}

fn denied<T>(result: io::Result<T>) {
    assert_eq!(result.err().map(|e| e.kind()), Some(io::ErrorKind::PermissionDenied));
}

#[test]
fn a_file_and_a_directory_are_allowed_as_asked_and_nothing_beside_them() {
    let host = tempfile::tempdir().unwrap();
    let path = |name: &str| host.path().join(name);
    for name in ["dir", "other"] {
        fs::create_dir(path(name)).unwrap();
        fs::write(path(name).join("in"), "1").unwrap();
    }
    fs::write(path("file"), "2").unwrap();
    let mut rules = Rules::without(Rules::all_ports());
    rules.allow(&path("dir"), AccessFs::ReadFile | AccessFs::ReadDir);
    // Accesses of directories on a file: left out, not refused.
    rules.allow(&path("file"), AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::MakeReg);
    rules.allow(&path("not there"), AccessFs::ReadFile);
    under(rules, || {
        assert_eq!(fs::read(path("dir").join("in")).unwrap(), b"1");
        assert_eq!(fs::read_dir(path("dir")).unwrap().count(), 1);
        assert_eq!(fs::read(path("file")).unwrap(), b"2");
        denied(fs::write(path("file"), "3"));
        denied(fs::write(path("dir").join("in"), "3"));
        denied(fs::write(path("dir").join("new"), "3"));
        denied(fs::read(path("other").join("in")));
        denied(fs::read_dir(host.path()));
    });
}

#[test]
fn only_the_named_uses_of_ports_are_taken() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    under(Rules::without(AccessNet::BindTcp), || {
        std::net::TcpStream::connect(address).unwrap();
        denied(std::net::TcpListener::bind("127.0.0.1:0"));
    });
    under(Rules::without(Rules::all_ports()), || denied(std::net::TcpStream::connect(address)));
}

#[test]
fn without_no_new_privs_a_thread_without_rights_is_told_that_it_cannot_be_restricted() {
    // Root may restrict itself all the same, so this asks nothing where the tests run as root.
    if nix::unistd::geteuid().is_root() {
        println!("skipped: root needs no no_new_privs for Landlock");
        return;
    }
    std::thread::spawn(|| assert!(Rules::without(Rules::all_ports()).restrict().is_err())).join().unwrap();
}
