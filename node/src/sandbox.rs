//! What the node gives up before it reads a document, an image or a request.
//!
//! Room: `node`. It has no capability to begin with; this takes the rest of the host away: files that are not its
//! business (Landlock), system calls that it never makes (seccomp), and any way to gain rights (`no_new_privs`). Children,
//! such as the tool that makes a seed, inherit all of it. Invariant: everything is in place before the second thread.
use crate::fault::{Fault, FaultKind};
use bcd_protocol::config::Config;
use nix::sys::prctl;
use tracing::{info, warn};

mod landlock;
mod seccomp;
#[cfg(test)]
mod tests;

/// Enters the sandbox; logs once what the kernel gave.
///
/// # Errors
/// `Internal` when a part cannot be set at all, `Unsupported` when the kernel gives less than all of it and the
/// configuration requires that.
pub fn enter(config: &Config) -> Result<(), Fault> {
    let fault = |what: &str, cause: String| Fault::new(FaultKind::Internal, format!("{what}: {cause}"));
    prctl::set_no_new_privs().map_err(|e| fault("no_new_privs cannot be set", e.to_string()))?;
    // A core file would hold user data that was just read.
    prctl::set_dumpable(false).map_err(|e| fault("dumps cannot be turned off", e.to_string()))?;
    let landlock = landlock::restrict(config).map_err(|e| fault("the Landlock rules cannot be set", e.to_string()))?;
    let filter = seccomp::restrict();
    let seccomp = filter.is_ok();
    info!(capabilities = "none", no_new_privs = true, landlock = landlock.as_str(), seccomp, "sandbox");
    let mut missing = Vec::new();
    if let Err(cause) = filter {
        missing.push(format!("seccomp cannot be set: {cause}"));
    }
    match landlock {
        landlock::Got::Full => {}
        // Kernels before 6.12 know less than the whole: that alone is no reason to warn at every start.
        landlock::Got::Partial => {
            missing.extend(config.helper.require_sandbox.then(|| "landlock is partial".to_owned()))
        }
        landlock::Got::None => missing.push("this kernel has no Landlock, or boots without lsm=landlock,…".to_owned()),
    }
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join("; ");
    if config.helper.require_sandbox {
        let sentence = format!("the sandbox is incomplete ({missing}) and helper.require_sandbox is true");
        return Err(Fault::new(FaultKind::Unsupported, sentence));
    }
    warn!(missing, "the node runs with less of a sandbox: it can do more of what its user can");
    Ok(())
}
