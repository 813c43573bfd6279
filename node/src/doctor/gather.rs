//! Looks at the host. Nothing is changed, and what cannot be seen is a fact too.
//!
//! Room: `node`. Blocking; whatever may hang is asked on a thread or in a process of its own with a deadline.
use super::facts::{Configuration, Configured, Facts, Probe};
use crate::node_user;
use bcd_protocol::config::Config;
use nix::unistd::{Group, geteuid};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

mod ask;
pub(super) mod host;
pub(super) mod net;
mod places;

/// libvirt's directory for QEMU's files.
const QEMU_DIRECTORY: &str = "/var/lib/libvirt/qemu";
/// Where programs are looked for: a PATH from outside must not choose what root runs.
const PROGRAMS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Most that is read of what a program says, bytes.
const SAYS: u64 = 1 << 20;

pub(super) fn gather(path: &Path) -> Facts {
    let kvm = Group::from_name("kvm").ok().flatten().map(|g| g.gid.as_raw());
    let (configuration, read) = read_configuration(path);
    let configured = read.map(|(text, config)| configured(path, &text, config, kvm));
    Facts { configuration, host: host::host(kvm), configured }
}

/// What a process of this user finds of the configuration `text`, which lies at `path`; `None` when it cannot be used.
pub(super) fn probe(path: &Path, text: &str) -> Option<Probe> {
    Config::parse(text).ok().map(|config| ask::probe(path, &config))
}

fn read_configuration(path: &Path) -> (Configuration, Option<(String, Config)>) {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return (Configuration::Missing(path.to_owned()), None),
        Err(e) => return (Configuration::Unreadable(path.to_owned(), e.to_string()), None),
    };
    match Config::parse(&text) {
        Ok(config) => (Configuration::Fine(places::way(path)), Some((text, config))),
        Err(e) => (Configuration::Wrong(format!("{}: {e}", path.display())), None),
    }
}

fn configured(path: &Path, text: &str, config: Config, kvm: Option<u32>) -> Configured {
    let found = node_user::look(config.helper.node_user.as_str());
    let node_user = found.map(|found| found.map(|found| found.candidate)).map_err(|e| e.to_string());
    let ids = node_user.as_ref().ok().and_then(Option::as_ref).map(|user| (user.uid, user.gid));
    let own = geteuid();
    let as_node = match ids {
        Some((uid, _)) if uid == own.as_raw() => Some(ask::probe(path, &config)),
        Some(user) if own.is_root() => ask::probe_as(path, text, user),
        Some(_) | None => None,
    };
    // Another socket is a libvirt with a configuration of its own.
    let default_libvirt = !config.libvirt.uri.as_str().contains('?');
    let above = |socket: &Path| places::place(socket.parent().unwrap_or(Path::new("/")));
    let images = config.node.images.ca_file.as_ref().map(|file| file.as_path().to_owned());
    let document = config.node.spec.as_ref().map(|file| file.as_path().to_owned());
    Configured {
        node_user,
        probed_as_node: as_node.is_some(),
        probe: ask::with_helper_of_node(
            as_node.unwrap_or_else(|| ask::probe(path, &config)),
            config.node.api.as_path(),
        ),
        virtlogd: default_libvirt.then(|| Path::new("/run/libvirt/virtlogd-sock").exists()),
        qemu_directory: places::searchable(Path::new(QEMU_DIRECTORY), kvm),
        node: ask::node(config.node.api.as_path()),
        bridges: config.helper.instance_bridges.iter().map(|b| (b.to_string(), net::interface(b.as_str()))).collect(),
        firewall: net::firewall(),
        data_dir: places::place(config.data_dir.as_path()),
        data_dir_closed: places::closed(config.data_dir.as_path(), kvm),
        state_dir: places::place(config.helper.state_dir.as_path()),
        helper_sockets: above(config.helper.socket.as_path()),
        node_sockets: above(config.node.api.as_path()),
        secrets: places::place(config.node.secrets.as_path()),
        loose_secrets: places::loose_secrets(config.node.secrets.as_path(), ids.map(|(uid, _)| uid)),
        ca_file: images.map(|file| (file.clone(), places::certificates(&file))),
        document: document.map(|file| (file.clone(), places::document(&file))),
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
fn output(program: &Path, arguments: &[&str], patience: Duration) -> Result<String, String> {
    output_of(Command::new(program).args(arguments), "", patience)
}

/// As [`output`], for a command that reads `input`, which is small.
fn output_of(command: &mut Command, input: &str, patience: Duration) -> Result<String, String> {
    command.env_clear().env("PATH", PROGRAMS.join(":")).env("LC_ALL", "C.UTF-8");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let until = Instant::now() + patience;
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let input = input.to_owned();
    // A program that does not read it says by its end what it makes of that.
    thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
    let said = within(patience, move || {
        let mut said = String::new();
        stdout.map(|out| out.take(SAYS).read_to_string(&mut said));
        let mut complaint = String::new();
        stderr.map(|err| err.take(SAYS).read_to_string(&mut complaint));
        (said, complaint)
    });
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if said.is_some() && Instant::now() < until => thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => break None,
        }
    };
    match (ended, said) {
        (Some(status), Some((said, _))) if status.success() => Ok(said),
        (Some(_), Some((_, complaint))) => Err(complaint.lines().next().unwrap_or("it fails").trim().to_owned()),
        (Some(_) | None, _) => {
            // Gone already, or not to be ended: either way nothing waits for it.
            let _ = child.kill();
            let _ = child.wait();
            Err(format!("it does not end within {} s", patience.as_secs()))
        }
    }
}
