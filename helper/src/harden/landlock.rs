//! Landlock: which files the helper may still open, whatever its uid and capabilities.
//!
//! Room: `helper`. Looking at files below `data_dir` needs no rule: a descriptor that is a path only (`O_PATH`) opens
//! nothing. Connecting to libvirt's socket is not a file access to Landlock.
use super::Reachable;
use bcd_confine::landlock::{AccessFs, Rules};
use std::path::Path;

#[cfg(test)]
mod tests;

/// What libvirt's client reads at each connection. (Found by tracing; nothing else is opened after start.)
const LIBVIRT_SETTINGS: &str = "/etc/libvirt";

/// What is left: see the table in docs/sandbox.md.
pub(super) fn rules(reachable: &Reachable) -> Rules {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut rules = Rules::without(Rules::all_ports());
    // The ledger: written to a temporary name, renamed over the record, removed with it.
    rules.allow(
        &reachable.state_dir,
        read | AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Truncate,
    );
    // IoctlDev: what an open descriptor may do is fixed when it is opened, and the node sets the terminal's mode.
    rules.allow(Path::new("/dev/pts"), AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev);
    rules.allow(Path::new(LIBVIRT_SETTINGS), read);
    if let Some(directory) = &reachable.socket_dir {
        rules.allow(directory, AccessFs::RemoveFile);
    }
    rules
}
