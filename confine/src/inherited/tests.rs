//! Each in a process of its own, which is started with what it should not keep and tries to use it.
use super::*;
use io::{Read, Write};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

/// Runs the test `name` again as a process of its own, with `surroundings`, a Python program that starts its arguments.
/// Answers what it printed, or `None` in the process itself.
fn apart(name: &str, surroundings: &str) -> Option<String> {
    let name = format!("inherited::tests::{name}");
    if std::env::var("BCD_APART").is_ok_and(|asked| asked == name) {
        return None;
    }
    let mut command = Command::new("python3");
    command.args(["-c", surroundings]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", &name, "--nocapture", "--test-threads=1"]).env("BCD_APART", &name);
    match command.stdin(Stdio::null()).output() {
        Ok(output) => {
            Some(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
        }
        Err(error) => {
            println!("skipped: no python3 to start it with ({error})");
            Some("skipped".to_owned())
        }
    }
}

/// Whether a process apart came to its end, or could not be had.
fn said(text: &str, words: &str) -> bool {
    text.contains(words) || text.contains("skipped")
}

fn flags(fd: impl AsFd) -> FdFlag {
    FdFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFD).unwrap())
}

#[test]
fn a_descriptor_that_was_left_open_does_not_reach_a_child_and_stays_usable_here() {
    let (mut reader, mut writer) = io::pipe().unwrap();
    for fd in [reader.as_fd(), writer.as_fd()] {
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    }
    close_on_exec().unwrap();
    assert!(flags(&reader).contains(FdFlag::FD_CLOEXEC) && flags(&writer).contains(FdFlag::FD_CLOEXEC));
    let listed = Command::new("ls").arg("/proc/self/fd").stdin(Stdio::null()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    // The fourth is the directory that is listed.
    assert_eq!(listed.split_whitespace().count(), 4, "{listed}");
    writer.write_all(b"x").unwrap();
    reader.read_exact(&mut [0]).unwrap();
}

#[test]
fn standard_input_output_and_error_stay() {
    close_on_exec().unwrap();
    for fd in [io::stdin().as_fd(), io::stdout().as_fd(), io::stderr().as_fd()] {
        assert!(!flags(fd).contains(FdFlag::FD_CLOEXEC));
    }
}

/// Starts its arguments with a new pseudo-terminal as their controlling one. `child` runs in the session's leader.
fn in_terminal(child: &str) -> String {
    format!(
        "import os, pty, sys\n\
         pid, master = pty.fork()\n\
         if pid == 0:\n    {child}\n\
         text = b''\n\
         try:\n    \
             while True:\n        \
                 got = os.read(master, 4096)\n        \
                 if b'interrupt me' in got: os.write(master, b'\\x03')\n        \
                 text += got\n        \
                 if not got: break\n\
         except OSError: pass\n\
         os.waitpid(pid, 0)\n\
         sys.stdout.buffer.write(text)\n"
    )
}

/// As a shell without job control starts a program: in its own session and group. Interrupts wait in both.
const AS_A_CHILD: &str = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]); \
                          sys.exit(os.spawnv(os.P_WAIT, sys.argv[1], sys.argv[1:]))";

#[test]
fn a_terminal_that_is_left_cannot_be_opened_again_and_still_sends_its_interrupts() {
    let name = "a_terminal_that_is_left_cannot_be_opened_again_and_still_sends_its_interrupts";
    if let Some(text) = apart(name, &in_terminal(AS_A_CHILD)) {
        assert!(said(&text, "left, and interrupted"), "{text}");
        return;
    }
    File::open("/dev/tty").expect("the terminal of the session");
    assert_eq!(leave_terminal().unwrap(), Terminal::Left);
    let refused = File::open("/dev/tty").expect_err("the terminal is there still");
    assert_eq!(refused.raw_os_error(), Some(libc::ENXIO));
    println!("interrupt me");
    // Blocked by the starter, in whatever threads the harness has.
    let pending = || {
        std::fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| {
            let bits = line.strip_prefix("ShdPnd:\t").map(|bits| u64::from_str_radix(bits, 16).unwrap());
            bits.is_some_and(|bits| bits & 2 != 0)
        })
    };
    let begun = std::time::Instant::now();
    while !pending() && begun.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(pending(), "no interrupt came");
    println!("left, and interrupted");
}

#[test]
fn the_leader_of_a_session_takes_the_terminal_from_it_and_lives_on() {
    let name = "the_leader_of_a_session_takes_the_terminal_from_it_and_lives_on";
    if let Some(text) = apart(name, &in_terminal("os.execv(sys.argv[1], sys.argv[1:])")) {
        assert!(said(&text, "left by all, and alive"), "{text}");
        return;
    }
    let opened = File::open("/dev/tty").expect("the terminal of the session");
    let mut other = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let terminal_of = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().split_whitespace().nth(4).unwrap().to_owned()
    };
    assert_ne!(terminal_of(other.id()), "0");
    assert_eq!(leave_terminal().unwrap(), Terminal::LeftBySession);
    let refused = File::open("/dev/tty").expect_err("the terminal is there still");
    assert_eq!(refused.raw_os_error(), Some(libc::ENXIO));
    assert_eq!(terminal_of(std::process::id()), "0");
    assert_eq!(terminal_of(other.id()), "0", "a process of its session could still be traced for it");
    other.kill().unwrap();
    other.wait().unwrap();
    // A hangup means again what it did.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 1, 0, "{ignored}");
    // Who has the terminal by a descriptor writes to it as before: root's side of a standalone node.
    drop(opened);
    println!("left by all, and alive");
}

#[test]
fn without_a_terminal_there_is_nothing_to_leave() {
    let name = "without_a_terminal_there_is_nothing_to_leave";
    let alone = "import os, sys\nos.setsid()\nsys.exit(os.spawnv(os.P_WAIT, sys.argv[1], sys.argv[1:]))";
    if let Some(text) = apart(name, alone) {
        assert!(said(&text, "nothing was left"), "{text}");
        return;
    }
    assert_eq!(leave_terminal().unwrap(), Terminal::None);
    println!("nothing was left");
}

#[test]
fn a_new_session_keyring_has_nothing_of_the_one_before() {
    let name = "a_new_session_keyring_has_nothing_of_the_one_before";
    if let Some(text) = apart(name, "import os, sys\nos.execv(sys.argv[1], sys.argv[1:])") {
        assert!(said(&text, "a keyring of its own"), "{text}");
        return;
    }
    let before = session_keyring();
    new_session_keyring().unwrap();
    let after = session_keyring();
    if before < 0 {
        println!("skipped: this kernel has no keyrings, or keeps them from us");
        return;
    }
    assert!(after > 0 && after != before, "{before} {after}");
    new_session_keyring().unwrap();
    assert_ne!(session_keyring(), after, "each is new");
    println!("a keyring of its own");
}
