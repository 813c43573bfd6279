//! What the node gives up before it reads a document, an image or a request.
//!
//! Room: `node`. It has no capability to begin with; this takes the rest of the host away: files that are not its
//! business (Landlock), system calls that it never makes (seccomp), and any way to gain rights (`no_new_privs`). Children,
//! such as the tool that makes a seed, inherit all of it. Invariant: everything is in place before the second thread.
use crate::fault::{Fault, FaultKind};
use bcd_confine::sandbox;
use bcd_protocol::config::Config;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::{info, warn};

mod landlock;
mod seccomp;
#[cfg(test)]
mod tests;

/// Tasks of the node's user at once, threads included: some thirty of its own, libvirt's, and eight tools that make seeds; many
/// times that.
const TASKS: u64 = 512;

/// Enters the sandbox; logs once what the kernel gave.
///
/// # Errors
/// `Internal` when a part cannot be set at all, `Unsupported` when the kernel gives less than all of it and the
/// configuration requires that.
pub fn enter(config: &Config) -> Result<(), Fault> {
    let fault = |what: &str, cause: String| Fault::new(FaultKind::Internal, format!("{what}: {cause}"));
    prctl::set_no_new_privs().map_err(|e| fault("no_new_privs cannot be set", e.to_string()))?;
    limits().map_err(|e| fault("a limit cannot be set", e.to_string()))?;
    // A core file would hold user data that was just read.
    prctl::set_dumpable(false).map_err(|e| fault("dumps cannot be turned off", e.to_string()))?;
    let sandbox = sandbox::enter(landlock::rules(config), &seccomp::FILTER);
    let (landlock, seccomp) = (sandbox.landlock(), sandbox.seccomp());
    info!(capabilities = "none", no_new_privs = true, %landlock, seccomp, "sandbox");
    if config.helper.require_sandbox {
        return sandbox.whole().map_err(|incomplete| Fault::new(FaultKind::Unsupported, incomplete.to_string()));
    }
    if let Some(missing) = sandbox.missing() {
        warn!(missing, "the node runs with less of a sandbox: it can do more of what its user can");
    }
    Ok(())
}

/// Bounds on what this process and its tools may take, each hard. Below what a unit allows, which counts more.
fn limits() -> Result<(), nix::errno::Errno> {
    let bounds = [
        // For the tools: this process writes none anyway.
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_MEMLOCK, 0),
        // No precedence before other processes, which root's shell may have a right to.
        (Resource::RLIMIT_RTPRIO, 0),
        (Resource::RLIMIT_NICE, 0),
        // A fork bomb ends here.
        (Resource::RLIMIT_NPROC, TASKS),
    ];
    for (resource, most) in bounds {
        let (_, hard) = getrlimit(resource)?;
        setrlimit(resource, most.min(hard), most.min(hard))?;
    }
    Ok(())
}
