//! What a standalone node does other than one beside a listening helper: it takes its connection from standard input, and waits
//! at its end for the two processes of root's side.
//!
//! Room: `node`. Runs as the node's user, without root.
use super::failed;
use crate::fault::{Fault, FaultKind, chain};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::prctl;
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long the node waits for its helper's end, which waits for what is under way: a little more than the helper's own
/// bound, and less than systemd's 90 s.
const HELPER_END: Duration = Duration::from_secs(80);

/// How long it waits until its last lines are written.
const LOG_END: Duration = Duration::from_secs(2);

fn nothing() -> Result<OwnedFd, Errno> {
    open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
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
    nothing().and_then(dup2_stdin).map_err(failed("standard input cannot be replaced"))?;
    // Executed by way of /proc it is called "exe" in every list of processes.
    prctl::set_name(c"bcd").map_err(failed("the process cannot be named"))?;
    Ok(pair)
}

/// Waits for the helper's end after the connection to it is closed, so that what starts next finds the records free.
pub(crate) fn wait_for_helper(helper: Pid) {
    match ended(helper, HELPER_END) {
        Ok(Some(status)) => info!(?status, "the helper has ended"),
        Ok(None) => warn!("the helper has not ended: what it does goes on, and its next start waits for it"),
        Err(error) => warn!(error = %chain(&error), "the helper's end cannot be waited for"),
    }
}

/// Says no more, and waits until root's side has written what was said: the last call of the process.
pub(crate) fn end_log(relay: Pid) {
    // What cannot be closed ends with the process, a moment later.
    let closed = nothing().and_then(|nothing| dup2_stdout(&nothing).and_then(|()| dup2_stderr(&nothing)));
    if closed.is_ok() {
        let _nobody_to_tell = ended(relay, LOG_END);
    }
}

/// Waits for a child's end at most `patience`; `None` when it has not come.
fn ended(child: Pid, patience: Duration) -> Result<Option<WaitStatus>, Errno> {
    let start = Instant::now();
    loop {
        let status = waitpid(child, Some(WaitPidFlag::WNOHANG))?;
        if status != WaitStatus::StillAlive {
            return Ok(Some(status));
        }
        if start.elapsed() >= patience {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
