//! Landlock: which files the node may still open, bind or run, whatever its user may.
//!
//! Room: `node`. Connecting to a unix socket by its path is no file access to Landlock (facts up to ABI 7), so the
//! helper's and libvirt's sockets need no rule. Rules hold for what lies under a path when the rule is made; files that
//! are replaced by rename, such as resolv.conf, are covered by their directory.
use bcd_protocol::config::Config;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use std::path::{Path, PathBuf};

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

impl Got {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::None => "none",
        }
    }
}

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

/// Restricts this thread and every one it makes.
pub(super) fn restrict(config: &Config) -> Result<Got, RulesetError> {
    let all = AccessFs::from_all(ABI::V6);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let own = read
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer;
    let mut rules: Vec<(PathBuf, BitFlags<AccessFs>)> = Vec::new();
    let mut allow = |path: &Path, access: BitFlags<AccessFs>| rules.push((path.to_owned(), access));
    allow(config.data_dir.as_path(), own);
    allow(config.node.secrets.as_path(), read);
    if let Some(file) = &config.node.images.ca_file {
        allow(file.as_path(), AccessFs::ReadFile.into());
    }
    // The document is replaced by rename, so its directory is what is read and watched.
    if let Some(directory) = config.node.spec.as_ref().and_then(|file| file.as_path().parent()) {
        allow(directory, read);
    }
    if let Some(directory) = config.node.api.as_path().parent() {
        allow(directory, AccessFs::MakeSock | AccessFs::RemoveFile);
    }
    READ.iter().for_each(|path| allow(Path::new(path), read));
    RUN.iter().for_each(|path| allow(Path::new(path), read | AccessFs::Execute));
    allow(Path::new("/dev/null"), AccessFs::ReadFile | AccessFs::WriteFile);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        // No port is served and any may be fetched from: which hosts is decided by the image store.
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::from_all(ABI::V6))?
        .create()?;
    for (path, access) in rules {
        // Not there: nothing to allow.
        let Ok(opened) = PathFd::new(&path) else { continue };
        let file = std::fs::metadata(&path).is_ok_and(|meta| !meta.is_dir());
        let access = if file { access & AccessFs::from_file(ABI::V6) } else { access };
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
