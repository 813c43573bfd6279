//! `bcd node --standalone`: started as root, starts the helper, gives up root, and becomes the node.
//!
//! Room: `node`. The one part of the crate that runs as root, with one thread, for a few milliseconds: it reads the
//! configuration, which must be root's alone, and nothing else, and ends by executing its own program anew as a plain `bcd node`, which knows nothing of
//! root (docs/adr/0011-standalone.md). Invariants: that program runs only where becoming root again was tried and refused; it
//! has nothing of root's shell, neither its terminal nor what that shell left open; nothing is started before giving up root
//! has been tried, in a process of its own, and worked.
//!
//! ```text
//! root ── tried ── pair, made as the node's user ──┬─ bcd-helper on one end
//!                  pipe ───────────────────────────┼─ bcd-helper --copy-node-log reads it
//!                                                  └─ root given up ── exec: bcd node on the other ends
//! ```
use crate::daemon;
use crate::fault::{Fault, FaultKind};
use crate::node_user::{self, Found};
use bcd_confine::inherited;
use bcd_confine::trust::{self, Untrusted};
use bcd_protocol::config::Config;
use bcd_protocol::node_user::fit;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{Gid, Uid, User, geteuid, setegid, seteuid};
use std::ffi::{OsStr, OsString};
use std::io::{PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tracing::info;

mod give_up;
mod node_side;
#[cfg(test)]
mod tests;

pub(crate) use give_up::give_up_root;
pub(crate) use node_side::{end_log, take_pair, wait_for_helper};

/// Does all of it; returns only when a step fails. What else is wrong with the host, the records among it, is the helper's to
/// say, and the node ends with it.
pub fn launch(configuration: &Path, helper: Option<PathBuf>) -> Fault {
    match prepare(configuration, helper) {
        Ok(mut node) => {
            let error = node.exec();
            Fault::because(FaultKind::Internal, "bcd cannot be executed again as the node", error)
        }
        Err(fault) => fault,
    }
}

/// Gives up root as the launcher is about to, and ends: in a process of its own, so that it is known to work before anything
/// is started that would have to be ended again.
///
/// # Errors
/// What the launcher would have failed with.
pub fn rehearse(configuration: &Path) -> Result<(), Fault> {
    must_be_root()?;
    give_up_root(&fit_user_of(&trusted(configuration)?)?)
}

/// Everything up to the execution of the node, which is the answer. No root is left when it is made.
fn prepare(configuration: &Path, helper: Option<PathBuf>) -> Result<Command, Fault> {
    must_be_root()?;
    inherited::close_on_exec()
        .map_err(|e| Fault::because(FaultKind::Unsupported, "--standalone needs Linux 5.11: close_range", e))?;
    // The directory changes below, and both read the file again.
    let configuration = trust::spelt_out(configuration)
        .map_err(|e| Fault::because(FaultKind::InvalidSpec, "the configuration's path cannot be told", e))?;
    let user = fit_user_of(&trusted(&configuration)?)?;
    let program = helper.ok_or_else(|| {
        Fault::new(FaultKind::Unavailable, "bcd-helper does not lie beside bcd: is the package whole?")
    })?;
    std::env::set_current_dir("/").map_err(|e| Fault::because(FaultKind::Internal, "/ cannot be entered", e))?;
    have_rehearsed(&configuration)?;
    let (ours, theirs) = pair_of(&user)?;
    let (log, written) = log_pipe().map_err(|e| Fault::because(FaultKind::Internal, "a pipe cannot be made", e))?;
    let relay = start(&mut log_relay(&program, log), &program)?;
    let helper = start(&mut helper_on(&program, &configuration, theirs), &program)?;
    info!(pid = helper, log_pid = relay, program = %program.display(), "helper started");
    give_up_root(&user)?;
    info!(user = %user.name, uid = user.uid.as_raw(), "root is given up");
    let mut node = Command::new("/proc/self/exe");
    node.arg0("bcd").arg("--config").arg(configuration).arg("node");
    node.args(["--helper-on-stdin", &helper.to_string(), "--log-relay", &relay.to_string()]);
    let errors = written.try_clone().map_err(|e| Fault::because(FaultKind::Internal, "a pipe cannot be shared", e))?;
    node.stdin(ours).stdout(written).stderr(errors);
    node.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_kept(name)));
    node.envs(surroundings(&user));
    Ok(node)
}

/// The configuration, by the rule that the helper reads it by: it says whom root becomes.
fn trusted(configuration: &Path) -> Result<Config, Fault> {
    let text = trust::read_file(configuration, trust::CONFIG_BYTES).map_err(|untrusted| match untrusted {
        Untrusted::Open { cause: Errno::ENOENT, .. } => daemon::no_config(configuration),
        Untrusted::Open { .. }
        | Untrusted::Owner { .. }
        | Untrusted::Writable { .. }
        | Untrusted::Kind { .. }
        | Untrusted::Read { .. } => {
            Fault::because(FaultKind::InvalidSpec, "the configuration cannot be trusted", untrusted)
        }
    })?;
    daemon::parse_config(configuration, &text)
}

fn fit_user_of(config: &Config) -> Result<User, Fault> {
    fit_user(config.helper.node_user.as_str())
}

fn must_be_root() -> Result<(), Fault> {
    if geteuid().is_root() {
        return Ok(());
    }
    Err(Fault::new(
        FaultKind::Denied,
        "--standalone starts a root helper: run it as root, or run bcd node as its user beside a bcd-helper",
    ))
}

/// The node's user, by the rule that the helper starts by: nothing is begun for one that it refuses.
fn fit_user(name: &str) -> Result<User, Fault> {
    let found = node_user::look(name)
        .map_err(|e| Fault::because(FaultKind::Internal, "the node's user cannot be looked up", e))?;
    let found = found.map(|Found { user, candidate }| (user, candidate));
    fit(name, found).map_err(|e| Fault::new(FaultKind::InvalidSpec, e.to_string()))
}

fn failed(what: &'static str) -> impl Fn(Errno) -> Fault {
    move |error| Fault::because(FaultKind::Internal, what, std::io::Error::from(error))
}

/// Has [`rehearse`] run by a process of its own.
fn have_rehearsed(configuration: &Path) -> Result<(), Fault> {
    let mut rehearsal = Command::new("/proc/self/exe");
    rehearsal.arg0("bcd").arg("--config").arg(configuration).args(["node", "--give-up-root-and-end"]);
    let output = rehearsal.env_clear().stdin(Stdio::null()).output();
    let output = output.map_err(|e| Fault::because(FaultKind::Internal, "bcd cannot be executed again", e))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let words: Vec<&str> = said.split_whitespace().skip_while(|word| *word == "bcd:").collect();
    Err(Fault::new(FaultKind::Denied, format!("root cannot be given up here: {}", words.join(" "))))
}

/// A pair of which the kernel says, at either end, that `user` made it.
fn pair_of(user: &User) -> Result<(OwnedFd, OwnedFd), Fault> {
    setegid(user.gid).map_err(failed("the node's group cannot be taken on"))?;
    seteuid(user.uid).map_err(failed("the node's user cannot be taken on"))?;
    let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
    seteuid(Uid::from_raw(0)).map_err(failed("the node's user cannot be put off"))?;
    setegid(Gid::from_raw(0)).map_err(failed("the node's group cannot be put off"))?;
    pair.map_err(failed("a socket pair cannot be made"))
}

/// What the node writes its log into. Its end does not wait: a log that nobody reads holds up no node.
fn log_pipe() -> std::io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = std::io::pipe()?;
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((reader, writer))
}

/// The helper with one end of the pair as its standard input. It has no environment but the level of its log and whether that
/// goes to the journal: the service manager's variables are for the node.
fn helper_on(program: &Path, configuration: &Path, end: OwnedFd) -> Command {
    let mut helper = Command::new(program);
    helper.arg("--config").arg(configuration).arg("--connection-on-stdin").stdin(end).env_clear();
    helper.envs(std::env::vars_os().filter(|(name, _)| is_for_helper(name)));
    helper
}

/// Root's side of the node's log: what the node says reaches root's terminal or journal in lines that say so.
fn log_relay(program: &Path, log: PipeReader) -> Command {
    let mut relay = Command::new(program);
    relay.arg("--copy-node-log").stdin(log).stdout(Stdio::null()).env_clear();
    relay
}

/// Starts a program of root's side; answers its pid. It has a process group of its own: what a terminal sends to its foreground
/// is for the node, and root's side ends after it.
fn start(command: &mut Command, program: &Path) -> Result<u32, Fault> {
    let child = command.process_group(0).spawn();
    let child = child
        .map_err(|e| Fault::because(FaultKind::Unavailable, format!("{} cannot be started", program.display()), e))?;
    Ok(child.id())
}

/// Variables that the node keeps: how to log and to whom to tell its state, and how the host reaches image servers.
/// Whatever else root's shell or service has is not the node's business.
fn is_kept(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let names = ["PATH", "LANG", "TZ", "RUST_BACKTRACE", "NOTIFY_SOCKET"];
    let beginnings = ["BCD_", "LC_", "WATCHDOG_", "SSL_CERT_"];
    let proxies = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"];
    names.contains(&name)
        || beginnings.iter().any(|beginning| name.starts_with(beginning))
        || proxies.iter().any(|proxy| name.eq_ignore_ascii_case(proxy))
}

fn is_for_helper(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("BCD_") || ["JOURNAL_STREAM", "RUST_BACKTRACE"].contains(&name))
}

/// What a login or a unit of the user would set.
fn surroundings(user: &User) -> [(&'static str, OsString); 3] {
    [("HOME", user.dir.clone().into()), ("USER", user.name.clone().into()), ("LOGNAME", user.name.clone().into())]
}
