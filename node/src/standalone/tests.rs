//! What needs no root of it. The whole is tried in tests/tests/real_standalone.
use super::*;

use super::give_up::{precedes, refuses_root};

fn kept(name: &str) -> bool {
    is_kept(OsStr::new(name))
}

#[test]
fn of_roots_environment_the_node_keeps_what_it_needs_and_nothing_else() {
    for name in [
        "PATH",
        "TZ",
        "BCD_LOG",
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "LC_ALL",
        "HTTPS_PROXY",
        "https_proxy",
        "SSL_CERT_FILE",
    ] {
        assert!(kept(name), "{name}");
    }
    for name in
        // Its log goes to a pipe: neither to the journal nor to a terminal.
        [
            "JOURNAL_STREAM",
            "TERM",
            "HOME",
            "SUDO_USER",
            "LD_PRELOAD",
            "XDG_RUNTIME_DIR",
            "LISTEN_FDS",
            "SSH_AUTH_SOCK",
        ]
    {
        assert!(!kept(name), "{name}");
    }
}

#[test]
fn the_helper_is_told_nothing_of_the_service_manager() {
    for name in
        ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_USEC", "PATH", "LD_LIBRARY_PATH", "LIBVIRT_DEFAULT_URI"]
    {
        assert!(!is_for_helper(OsStr::new(name)), "{name}");
    }
    assert!(is_for_helper(OsStr::new("BCD_LOG")) && is_for_helper(OsStr::new("JOURNAL_STREAM")));
}

#[test]
fn a_user_that_the_helper_would_refuse_is_refused_before_it_is_started_and_an_unknown_one_is_told() {
    assert!(fit_user("root").expect_err("root").chain().contains("has uid 0, which is root's"));
    assert!(fit_user("nobody").expect_err("nobody").chain().contains("has uid 65534"));
    assert!(fit_user("no-such-user-of-bcd").expect_err("unknown").chain().contains("useradd"));
    assert_eq!(fit_user("daemon").expect("fit").name, "daemon");
}

#[test]
fn one_who_is_not_root_is_told_to_be() {
    if geteuid().is_root() {
        // As root it would start a helper: then tests/tests/real_standalone asks it of a process of its own.
        eprintln!("skipped: these tests run as root");
        return;
    }
    let fault = prepare(Path::new("/etc/bcd/bcd.toml"), None).expect_err("not root");
    assert_eq!(fault.kind(), FaultKind::Denied);
}

#[test]
fn whoever_can_still_become_root_has_not_given_it_up() {
    if !geteuid().is_root() {
        refuses_root().expect("an ordinary user cannot");
        return;
    }
    assert!(refuses_root().expect_err("root can").chain().contains("user 0 again answered Ok"));
}

#[test]
fn only_a_precedence_before_others_is_given_up_when_memory_is_short() {
    assert!(precedes(-1) && precedes(-1000));
    assert!(!precedes(0) && !precedes(500), "what a supervisor chose to end first stays so");
}

#[test]
fn the_nodes_end_of_its_logs_pipe_does_not_wait() {
    use std::io::Write;
    let (reader, mut writer) = log_pipe().expect("a pipe");
    let filled = std::iter::repeat_with(|| writer.write(&[b'x'; 4096])).find_map(Result::err).expect("it fills");
    assert_eq!(filled.kind(), std::io::ErrorKind::WouldBlock);
    let flags = OFlag::from_bits_retain(fcntl(&reader, FcntlArg::F_GETFL).expect("flags"));
    assert!(!flags.contains(OFlag::O_NONBLOCK), "root's side would spin");
}

/// Tries what a process can try with a terminal, which it has as standard input, and says how each went.
const INTRUDER: &str = r#"
import ctypes, errno, os, signal
libc = ctypes.CDLL(None, use_errno=True)
def ask(request):
    argument = ctypes.create_string_buffer(bytes([120, 0, 0, 0, 0, 0, 0, 0]))
    done = libc.ioctl(0, ctypes.c_ulong(request), argument)
    return 'done' if done == 0 else errno.errorcode[ctypes.get_errno()]
def apart(work):
    pid = os.fork()
    if pid == 0: work(); os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else 'lives'
try: os.open('/dev/tty', os.O_RDWR); said = ['open done']
except OSError as e: said = ['open ' + errno.errorcode[e.errno]]
said.append('foreground ' + ask(0x5410))
def leader(): os.setsid(); print('control', ask(0x540E), flush=True)
apart(leader)
said.append('type ' + apart(lambda: ask(0x5412)))
said.append('paste ' + apart(lambda: ask(0x541C)))
print(', '.join(said), flush=True)
"#;

/// The leader of a session on a terminal, which starts its arguments and prints what the terminal showed.
const TERMINAL: &str = "import os, pty, sys\n\
    pid, master = pty.fork()\n\
    if pid == 0: os._exit(os.spawnv(os.P_WAIT, sys.argv[1], sys.argv[1:]))\n\
    text = b''\n\
    try:\n    while True: text += os.read(master, 4096)\n\
    except OSError: pass\n\
    sys.stdout.buffer.write(text)\n";

/// What the node is between its execution and its own sandbox, which closes all of this once more.
#[test]
fn who_has_given_up_root_has_no_way_to_the_terminal_that_it_was_started_from() {
    let name = "standalone::tests::who_has_given_up_root_has_no_way_to_the_terminal_that_it_was_started_from";
    if !geteuid().is_root() {
        eprintln!("skipped: it takes root to give it up");
        return;
    }
    if std::env::var("BCD_APART").is_ok_and(|asked| asked == name) {
        give_up_root(&fit_user("daemon").expect("a user")).expect("given up");
        let error = Command::new("python3").args(["-c", INTRUDER]).exec();
        panic!("no intruder: {error}");
    }
    let mut terminal = Command::new("python3");
    terminal.args(["-c", TERMINAL]).arg(std::env::current_exe().expect("this program"));
    terminal.args(["--exact", name, "--nocapture", "--test-threads=1"]).env("BCD_APART", name);
    let output = match terminal.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: no python3 to have a terminal ({error})");
            return;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("control EPERM"), "{text}");
    assert!(text.contains("open ENXIO, foreground ENOTTY, type SIGSYS, paste SIGSYS"), "{text}");
}
