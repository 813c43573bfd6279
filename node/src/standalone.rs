//! `bcd node --standalone`: started as root, starts the helper, gives up root, and becomes the node.
//!
//! Room: `node`. The one part of the crate that runs as root, with one thread, for a few milliseconds: it reads the
//! configuration and nothing else, and ends by executing its own program anew as a plain `bcd node`, which knows nothing of
//! root (docs/adr/0011-standalone.md). Invariant: that program runs only where becoming root again was tried and refused.
//!
//! ```text
//! root ── pair, made as the node's user ── bcd-helper on one end ── root given up ── exec: bcd node on the other end
//! ```
use crate::daemon;
use crate::fault::{Fault, FaultKind, chain};
use crate::node_user::{self, Found};
use bcd_protocol::node_user::make;
use caps::CapSet;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::prctl;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Gid, Uid, User, dup2_stdin, geteuid, initgroups, setegid, seteuid, setresgid, setresuid};
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tracing::{info, warn};

#[cfg(test)]
mod tests;

/// How long the node waits for its helper's end, which waits for what is under way: a little more than the helper's own
/// bound, and less than systemd's 90 s.
const HELPER_END: Duration = Duration::from_secs(80);

/// Does all of it; returns only when a step fails. What is wrong with the configuration beyond its syntax, such as who may
/// write to it, is the helper's to say, and the node ends with it.
pub fn launch(configuration: &Path, helper: Option<PathBuf>) -> Fault {
    match prepare(configuration, helper) {
        Ok(mut node) => {
            let error = node.exec();
            Fault::because(FaultKind::Internal, "bcd cannot be executed again as the node", error)
        }
        Err(fault) => fault,
    }
}

/// Everything up to the execution of the node, which is the answer. No root is left when it is made.
fn prepare(configuration: &Path, helper: Option<PathBuf>) -> Result<Command, Fault> {
    if !geteuid().is_root() {
        return Err(Fault::new(
            FaultKind::Denied,
            "--standalone starts a root helper: run it as root, or run bcd node as its user beside a bcd-helper",
        ));
    }
    // The directory changes below, and both read the file again.
    let configuration = std::path::absolute(configuration)
        .map_err(|e| Fault::because(FaultKind::InvalidSpec, "the configuration's path cannot be told", e))?;
    let user = fit_user(daemon::read_config(&configuration)?.helper.node_user.as_str())?;
    let program = helper.ok_or_else(|| {
        Fault::new(FaultKind::Unavailable, "bcd-helper does not lie beside bcd: is the package whole?")
    })?;
    std::env::set_current_dir("/").map_err(|e| Fault::because(FaultKind::Internal, "/ cannot be entered", e))?;
    let (ours, theirs) = pair_of(&user)?;
    start_helper(&program, &configuration, theirs)?;
    give_up_root(&user)?;
    info!(user = %user.name, uid = user.uid.as_raw(), "root is given up");
    let mut node = Command::new("/proc/self/exe");
    node.arg0("bcd").arg("--config").arg(configuration).args(["node", "--helper-on-stdin"]).stdin(ours);
    node.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_kept(name)));
    node.envs(surroundings(&user));
    Ok(node)
}

/// The node's user, by the rule that the helper starts by: nothing is begun for one that it refuses.
fn fit_user(name: &str) -> Result<User, Fault> {
    let found = node_user::look(name).map_err(|e| {
        Fault::because(FaultKind::Internal, format!("the host's user database cannot be asked for {name}"), e)
    })?;
    let Found { user, candidate } = found.ok_or_else(|| {
        let sentence =
            format!("helper.node_user {name} is no user of this host: create it ({}) or name another", make(name));
        Fault::new(FaultKind::InvalidSpec, sentence)
    })?;
    candidate.judge().map_err(|why| {
        Fault::new(FaultKind::InvalidSpec, format!("helper.node_user {name} has {why}: {}", why.remedy(name)))
    })?;
    Ok(user)
}

fn failed(what: &'static str) -> impl Fn(Errno) -> Fault {
    move |error| Fault::because(FaultKind::Internal, what, std::io::Error::from(error))
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

/// Starts the helper with one end of the pair as its standard input. It has no environment but the level of its log and
/// whether that goes to the journal: the service manager's variables are for the node.
fn start_helper(program: &Path, configuration: &Path, end: OwnedFd) -> Result<(), Fault> {
    let mut helper = Command::new(program);
    helper.arg("--config").arg(configuration).arg("--connection-on-stdin").stdin(end).env_clear();
    helper.envs(std::env::vars_os().filter(|(name, _)| is_for_helper(name)));
    let child = helper
        .spawn()
        .map_err(|e| Fault::because(FaultKind::Unavailable, format!("{} cannot be started", program.display()), e))?;
    info!(pid = child.id(), program = %program.display(), "helper started");
    Ok(())
}

/// Gives up root for good, and makes sure of it.
pub(crate) fn give_up_root(user: &User) -> Result<(), Fault> {
    let caps = |what: &'static str| {
        move |e: caps::errors::CapsError| {
            Fault::because(FaultKind::Internal, what, std::io::Error::other(e.to_string()))
        }
    };
    let name = CString::new(user.name.as_str())
        .map_err(|e| Fault::because(FaultKind::Internal, "the node user's name is unusable", e))?;
    // While the capability to do so is still there.
    for capability in caps::all() {
        // Not known to this kernel: not there to drop.
        if caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false) {
            caps::drop(None, CapSet::Bounding, capability).map_err(caps("the bounding set cannot be emptied"))?;
        }
    }
    caps::clear(None, CapSet::Ambient).map_err(caps("ambient capabilities cannot be cleared"))?;
    initgroups(&name, user.gid).map_err(failed("the node user's groups cannot be set"))?;
    setresgid(user.gid, user.gid, user.gid).map_err(failed("the node's group cannot be set"))?;
    setresuid(user.uid, user.uid, user.uid).map_err(failed("the node's user cannot be set"))?;
    caps::clear(None, CapSet::Inheritable).map_err(caps("inheritable capabilities cannot be cleared"))?;
    prctl::set_no_new_privs().map_err(failed("no_new_privs cannot be set"))?;
    refuses_root()
}

/// Tries to become root again in each way, and fails if one works.
fn refuses_root() -> Result<(), Fault> {
    let (uid, gid) = (Uid::from_raw(0), Gid::from_raw(0));
    let tried = [
        ("user", setresuid(uid, uid, uid)),
        ("effective user", seteuid(uid)),
        ("group", setresgid(gid, gid, gid)),
        ("effective group", setegid(gid)),
    ];
    for (what, outcome) in tried {
        if outcome != Err(Errno::EPERM) {
            let sentence = format!("root was not given up: becoming {what} 0 again answered {outcome:?}");
            return Err(Fault::new(FaultKind::Internal, sentence));
        }
    }
    Ok(())
}

/// Variables that the node keeps: how to log and to whom to tell its state, and how the host reaches image servers.
/// Whatever else root's shell or service has is not the node's business.
fn is_kept(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let names = [
        "PATH",
        "LANG",
        "TERM",
        "TZ",
        "NO_COLOR",
        "RUST_BACKTRACE",
        "JOURNAL_STREAM",
        "INVOCATION_ID",
        "NOTIFY_SOCKET",
    ];
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

/// Takes the connection to the helper from standard input, which is `/dev/null` from then on.
///
/// # Errors
/// `Internal` when it cannot be taken.
pub(crate) fn take_pair() -> Result<OwnedFd, Fault> {
    let pair = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|e| Fault::because(FaultKind::Internal, "standard input cannot be taken", e))?;
    let nothing = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty());
    nothing.and_then(dup2_stdin).map_err(failed("standard input cannot be replaced"))?;
    // Executed by way of /proc it is called "exe" in every list of processes.
    prctl::set_name(c"bcd").map_err(failed("the process cannot be named"))?;
    Ok(pair)
}

/// Waits for the helper's end after the connection to it is closed, so that what starts next finds the records free.
pub(crate) fn wait_for_helper() {
    let start = Instant::now();
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) if start.elapsed() < HELPER_END => std::thread::sleep(Duration::from_millis(10)),
            Ok(WaitStatus::StillAlive) => {
                warn!("the helper has not ended: what it does goes on, and its next start waits for it");
                return;
            }
            // The tool that makes seeds is a child too.
            Ok(ended) => info!(?ended, "a child has ended"),
            Err(Errno::ECHILD) => return,
            Err(error) => {
                warn!(error = %chain(&error), "the helper's end cannot be waited for");
                return;
            }
        }
    }
}
