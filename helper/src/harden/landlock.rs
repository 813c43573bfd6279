//! Landlock: which files the helper may still open, whatever its uid and capabilities.
//!
//! Room: `helper`. Looking at files below `data_dir` needs no rule: a descriptor that is a path only (`O_PATH`) opens
//! nothing. Connecting to libvirt's socket is not a file access to Landlock.
use super::Reachable;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use std::fmt;
use std::path::Path;

#[cfg(test)]
mod tests;

/// What the kernel enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Got {
    /// All that was asked for.
    Full,
    /// What this kernel knows of it.
    Partial,
    /// Nothing.
    None,
}

impl fmt::Display for Got {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::None => "none",
        })
    }
}

/// What libvirt's client reads at each connection. (Found by tracing; nothing else is opened after start.)
const LIBVIRT_SETTINGS: &str = "/etc/libvirt";

/// Restricts this thread and every one it makes.
///
/// # Errors
/// The ruleset's. What a kernel does not know is left out and shows in the answer.
pub(super) fn restrict(reachable: &Reachable) -> Result<Got, RulesetError> {
    let all = AccessFs::from_all(ABI::V6);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let state = read | AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Truncate;
    // IoctlDev: what an open descriptor may do is fixed when it is opened, and the node sets the terminal's mode.
    let terminals = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .handle_access(AccessNet::from_all(ABI::V6))?
        .scope(Scope::from_all(ABI::V6))?
        .create()?;
    let rules: [(&Path, BitFlags<AccessFs>); 3] =
        [(&reachable.state_dir, state), (Path::new("/dev/pts"), terminals), (Path::new(LIBVIRT_SETTINGS), read)];
    let socket = reachable.socket_dir.as_deref().map(|path| (path, AccessFs::RemoveFile.into()));
    for (path, access) in rules.into_iter().chain(socket) {
        // Not there: nothing to allow.
        let Ok(opened) = PathFd::new(path) else { continue };
        ruleset = ruleset.add_rule(PathBeneath::new(opened, access))?;
    }
    // no_new_privs is set already, for kernels without Landlock too.
    let status = ruleset.set_no_new_privs(false).restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Got::Full,
        RulesetStatus::PartiallyEnforced => Got::Partial,
        RulesetStatus::NotEnforced => Got::None,
    })
}
