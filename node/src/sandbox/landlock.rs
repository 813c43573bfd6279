//! Landlock: which files the node may still open, bind or run, whatever its user may.
//!
//! Room: `node`. Connecting to a unix socket by its path is no file access to Landlock (facts up to ABI 7), so the
//! helper's and libvirt's sockets need no rule. Rules hold for what lies under a path when the rule is made; files that
//! are replaced by rename, such as resolv.conf, are covered by their directory.
use bcd_confine::landlock::{AccessFs, AccessNet, Rules};
use bcd_protocol::config::Config;
use std::path::Path;

/// Read only: settings of the C library, of name resolution and of libvirt's client; certificates; the user database.
/// `/run/…` is where resolv.conf leads to.
const READ: [&str; 12] = [
    "/etc",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/proc/self",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/mounts",
    "/sys/devices/system/cpu",
    "/dev/urandom",
    "/dev/random",
];

/// Read and run: the tools that make seeds, and libraries.
const RUN: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];

/// What is left: see the table in docs/sandbox.md.
pub(super) fn rules(config: &Config) -> Rules {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let own = read
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer;
    // No port is served and any may be fetched from: which hosts is decided by the image store.
    let mut rules = Rules::without(AccessNet::BindTcp);
    rules.allow(config.data_dir.as_path(), own);
    rules.allow(config.node.secrets.as_path(), read);
    if let Some(file) = &config.node.images.ca_file {
        rules.allow(file.as_path(), AccessFs::ReadFile);
    }
    // The document is replaced by rename, so its directory is what is read and watched.
    if let Some(directory) = config.node.spec.as_ref().and_then(|file| file.as_path().parent()) {
        rules.allow(directory, read);
    }
    if let Some(directory) = config.node.api.as_path().parent() {
        rules.allow(directory, AccessFs::MakeSock | AccessFs::RemoveFile);
    }
    READ.iter().for_each(|path| rules.allow(Path::new(path), read));
    RUN.iter().for_each(|path| rules.allow(Path::new(path), read | AccessFs::Execute));
    rules.allow(Path::new("/dev/null"), AccessFs::ReadFile | AccessFs::WriteFile);
    rules
}
