//! Looks at the host. Nothing is changed, and what cannot be seen is a fact too.
//!
//! Room: `node`. Blocking; whatever may hang is asked on a thread or in a process of its own with a deadline. Often this is
//! root, on a host whose node's user may have been taken over: what is that user's, root looks at by `O_PATH` alone
//! (`places`), and neither reads nor follows nor connects to (`child` reads and connects).
use super::facts::{Configuration, Configured, Facts, Kind, Part, Seen, Unasked, Words};
use crate::fault::Fault;
use crate::node_user::{self, Found};
use bcd_confine::users;
use bcd_protocol::config::Config;
use bcd_protocol::node_user::GUESTS_GROUP;
use nix::unistd::geteuid;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub(super) mod ask;
mod child;
pub(super) mod host;
pub(super) mod iptables;
pub(super) mod net;
pub(super) mod nft;
pub(super) mod places;

/// libvirt's directory for QEMU's files.
const QEMU_DIRECTORY: &str = "/var/lib/libvirt/qemu";
/// Where programs are looked for: a PATH from outside must not choose what root runs.
const PROGRAMS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Most that is read of what a program says, bytes.
const SAYS: u64 = 16 << 20;
/// Largest configuration that is read, bytes: as much as the helper reads.
const CONFIGURATION_BYTES: u64 = 1 << 20;

/// `program` is bcd itself, to ask as the node's user with; without one root asks nothing of that user's.
pub(super) fn gather(path: &Path, program: Option<&Path>) -> Facts {
    let kvm = users::gid_of(GUESTS_GROUP).map_err(|e| e.cause.to_string());
    let (configuration, read) = read_configuration(path);
    let configured = read.map(|(text, config)| configured(path, &text, config, &kvm, program));
    Facts { configuration, host: host::host(kvm), configured }
}

/// What the process finds that a doctor which is root started to ask as the node's user, as one line of JSON.
pub(super) fn answer() -> Result<String, Fault> {
    child::answer()
}

fn read_configuration(path: &Path) -> (Configuration, Option<(String, Config)>) {
    let (way, text) = places::text(path, CONFIGURATION_BYTES, is_roots);
    if !is_roots(&way) {
        return (Configuration::Open(way), None);
    }
    let text = match text {
        Ok(text) => text,
        Err(unread) if unread.is_missing() => return (Configuration::Missing(path.to_owned()), None),
        Err(unread) => return (Configuration::Unreadable(way, unread), None),
    };
    match Config::parse(&text) {
        Ok(config) => (Configuration::Fine(way), Some((text, config))),
        Err(e) => (Configuration::Wrong(format!("{}: {e}", path.display())), None),
    }
}

/// Whether nobody but root may change what lies on this way, as far as it can be seen: what somebody else wrote is not read,
/// and names no places that root looks at or changes.
fn is_roots(way: &[Part]) -> bool {
    way.iter().all(|part| match &part.seen {
        Seen::There(entry) => entry.kind != Kind::Link && entry.is_roots_alone(),
        Seen::Missing | Seen::Unseen(_) => true,
        Seen::Behind => false,
    })
}

pub(super) fn configured(
    path: &Path,
    text: &str,
    config: Config,
    kvm: &Result<Option<u32>, String>,
    program: Option<&Path>,
) -> Configured {
    let found = node_user::look(config.helper.node_user.as_str());
    let own = geteuid();
    let (probe, probed_as_node) = match &found {
        Ok(Some(Found { user, .. })) if user.uid == own && !own.is_root() => (ask::probe(path, &config, true), true),
        // Nothing is asked as a user that the daemons do not start for.
        Ok(Some(Found { user, candidate })) if own.is_root() && candidate.judge().is_ok() => {
            let untold = || Unasked::Silent(Words::from("this process has no program to ask with"));
            (program.ok_or_else(untold).and_then(|program| child::probe_as(program, path, text, user)), true)
        }
        Ok(_) | Err(_) => (ask::probe(path, &config, false), false),
    };
    // Another socket is a libvirt with a configuration of its own.
    let default_libvirt = !config.libvirt.uri.as_str().contains('?');
    let kvm = kvm.clone().and_then(|gid| gid.ok_or_else(|| "there is no group kvm".to_owned()));
    let listed = config.helper.instance_bridges.iter();
    let bridges: Vec<_> = listed.map(|bridge| (bridge.to_string(), net::interface(bridge.as_str()))).collect();
    let above = |socket: &Path| places::place(socket.parent().unwrap_or(Path::new("/")));
    Configured {
        file: path.to_owned(),
        node_user: found
            .map(|found| found.map(|found| found.candidate))
            .map_err(|e| format!("{}: {}", e.what, e.cause)),
        probe,
        probed_as_node,
        virtlogd: default_libvirt.then(|| Path::new("/run/libvirt/virtlogd-sock").exists()),
        qemu_directory: places::searchable(Path::new(QEMU_DIRECTORY), kvm.clone()),
        firewall: net::firewall(&bridges),
        bridges,
        data_dir: places::place(config.data_dir.as_path()),
        data_dir_closed: places::closed(config.data_dir.as_path(), kvm),
        state_dir: places::place(config.helper.state_dir.as_path()),
        helper_sockets: above(config.helper.socket.as_path()),
        helper_socket: places::place(config.helper.socket.as_path()),
        node_sockets: above(config.node.api.as_path()),
        secrets: places::place(config.node.secrets.as_path()),
        config,
    }
}

/// Runs `work` on a thread of its own and waits for it at most `patience`. A thread that hangs is left behind.
fn within<T: Send + 'static>(patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let _ = send.send(work());
    });
    receive.recv_timeout(patience).ok()
}

/// Where a program lies, if it does.
fn program(name: &str) -> Option<PathBuf> {
    PROGRAMS.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())
}

/// What a program says to stdout when it ends well within `patience`; it is ended otherwise.
fn output(program: &Path, arguments: &[&str], patience: Duration) -> Result<String, Words> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", PROGRAMS.join(":")).env("LC_ALL", "C.UTF-8");
    output_of(&mut command, "", patience, SAYS)
}

/// As [`output`], for a command that reads `input` and says `most` bytes at the most. Of ours it has its three pipes and
/// no descriptor more; what was left open across an execution before comes with it.
pub(super) fn output_of(command: &mut Command, input: &str, patience: Duration, most: u64) -> Result<String, Words> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let until = Instant::now() + patience;
    let mut child = command.spawn().map_err(|e| Words::from(e.to_string()))?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let input = input.to_owned();
    // A program that does not read it says by its end what it makes of that.
    thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
    let (complain, complaint) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.map(|err| err.take(most).read_to_end(&mut bytes));
        let _ = complain.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    let said = within(patience, move || {
        let mut said = Vec::new();
        let read = stdout.map(|out| out.take(most.saturating_add(1)).read_to_end(&mut said));
        read.is_some_and(|read| read.is_ok()).then_some(said)
    });
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if said.is_some() && Instant::now() < until => thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => break None,
        }
    };
    match (ended, said) {
        // The closed pipe ends it: by its end it has failed.
        (Some(_), Some(Some(said))) if said.len() as u64 > most => Err(Words::from("it says too much")),
        (Some(status), Some(Some(said))) if status.success() => {
            String::from_utf8(said).map_err(|_| Words::from("what it says is not text"))
        }
        (Some(_), Some(_)) => {
            let complaint = complaint.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
            Err(Words::from(complaint.lines().find(|line| !line.trim().is_empty()).unwrap_or("it fails")))
        }
        (Some(_) | None, _) => {
            // Whatever it waits for may keep it from ending: it is not waited for then.
            let _ = child.kill();
            let _ = within(Duration::from_secs(1), move || child.wait());
            Err(Words::from(format!("it does not end within {} s", patience.as_secs())))
        }
    }
}
