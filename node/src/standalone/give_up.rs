//! Root given up for good, and with it what a process has of root's shell beside its ids.
//!
//! Room: `node`. Order is the point: first what only root may do, then the ids, then what belongs to the new ones. Invariant:
//! it is done when becoming root again was tried in each way and refused; a step that fails fails all of it.
use super::failed;
use crate::fault::{Fault, FaultKind};
use bcd_confine::inherited::{self, Terminal};
use bcd_confine::seccomp;
use caps::CapSet;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, User, initgroups, setegid, seteuid, setresgid, setresuid};
use std::ffi::CString;
use std::fs;
use std::io;
use tracing::{info, warn};

/// How much likelier or less likely than others this process is to be ended when memory is short.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// Gives up root for good, and makes sure of it.
pub(crate) fn give_up_root(user: &User) -> Result<(), Fault> {
    let caps = |what: &'static str| {
        move |e: caps::errors::CapsError| Fault::because(FaultKind::Internal, what, io::Error::other(e.to_string()))
    };
    let system = |what: &'static str| move |e: io::Error| Fault::because(FaultKind::Internal, what, e);
    let name = CString::new(user.name.as_str())
        .map_err(|e| Fault::because(FaultKind::Internal, "the node user's name is unusable", e))?;
    let terminal = inherited::leave_terminal().map_err(system("the terminal cannot be left"))?;
    if terminal == Terminal::LeftBySession {
        info!(
            pid = std::process::id(),
            "the session's terminal is given up: its interrupt key ends nothing, SIGTERM does"
        );
    }
    give_up_precedence();
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
    refuses_root()?;
    inherited::new_session_keyring().map_err(system("a session keyring of its own cannot be had"))?;
    // Without seccomp the node's own sandbox is not whole either, and says so or does not start.
    if let Err(error) = seccomp::forbid_typing() {
        warn!(cause = %crate::fault::chain(&error), "typing into terminals cannot be forbidden");
    }
    Ok(())
}

/// Root's shell or supervisor may be the last to be ended when memory is short; the node is not to be. Raised while root, the
/// value cannot be lowered again.
fn give_up_precedence() {
    let raised = fs::read_to_string(OOM_SCORE).and_then(|text| match text.trim().parse() {
        Ok(score) if precedes(score) => fs::write(OOM_SCORE, "0"),
        Ok(_) | Err(_) => Ok(()),
    });
    if let Err(error) = raised {
        warn!(%error, "the node keeps what its starter has in {OOM_SCORE}");
    }
}

/// Whether a process with this value is ended later than an ordinary one.
pub(super) fn precedes(score: i32) -> bool {
    score < 0
}

/// Tries to become root again in each way, and fails if one works.
pub(super) fn refuses_root() -> Result<(), Fault> {
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
