//! Landlock: which files a process may still open, whatever its uid and capabilities.
//!
//! Room: `confine`. Invariant: a kernel that knows less than was asked for gives as much as it knows, and the answer says
//! so. Connecting to a unix socket by its path, and opening a path only to look (`O_PATH`), are no accesses to Landlock.
use ::landlock::{
    ABI, Access, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    Scope,
};
use std::fmt;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

pub use ::landlock::{AccessFs, AccessNet, BitFlags, RulesetError};

#[cfg(test)]
mod tests;

/// The newest ABI whose accesses are asked for.
const NEWEST: ABI = ABI::V6;

/// [`NEWEST`] as the kernel counts: with less than this, a sandbox is not whole.
pub const WHOLE_ABI: i32 = NEWEST as i32;

/// The first kernel that has it.
pub const WHOLE_KERNEL: &str = "6.12";

/// What the kernel enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Got {
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

/// What is left. Every access to a file that is not allowed here is gone, and so are abstract sockets of, and signals to,
/// processes outside.
#[derive(Debug)]
pub struct Rules {
    ports: BitFlags<AccessNet>,
    paths: Vec<(PathBuf, BitFlags<AccessFs>)>,
}

impl Rules {
    /// No file at all, and no TCP port for the uses in `ports`.
    #[must_use]
    pub fn without(ports: impl Into<BitFlags<AccessNet>>) -> Self {
        Self { ports: ports.into(), paths: Vec::new() }
    }

    /// Every use of a TCP port.
    #[must_use]
    pub fn all_ports() -> BitFlags<AccessNet> {
        AccessNet::from_all(NEWEST)
    }

    /// Leaves `access` to `path` and to what lies beneath it when the rules are set. A path that is not there then has
    /// nothing to allow; of a file's accesses those of directories are left out.
    pub fn allow(&mut self, path: &Path, access: impl Into<BitFlags<AccessFs>>) {
        self.paths.push((path.to_owned(), access.into()));
    }

    /// Restricts this thread, and every thread and process that it makes. `no_new_privs` must be set.
    ///
    /// # Errors
    /// The ruleset's, such as a thread without `no_new_privs`. What a kernel does not know is no error.
    pub fn restrict(self) -> Result<Got, RulesetError> {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(self.ports)?
            .scope(Scope::from_all(NEWEST))?
            .create()?;
        for (path, access) in self.paths {
            let Ok(opened) = PathFd::new(&path) else { continue };
            let access = if is_directory(&opened) { access } else { access & AccessFs::from_file(NEWEST) };
            ruleset = ruleset.add_rule(PathBeneath::new(opened, access))?;
        }
        // no_new_privs is the caller's: kernels without Landlock need it too.
        let status = ruleset.set_no_new_privs(false).restrict_self()?;
        Ok(match status.ruleset {
            RulesetStatus::FullyEnforced => Got::Full,
            RulesetStatus::PartiallyEnforced => Got::Partial,
            RulesetStatus::NotEnforced => Got::None,
        })
    }
}

/// Asked of what was opened, which is what the rule is for. What cannot be told is taken for a file: that allows less.
fn is_directory(opened: &PathFd) -> bool {
    opened.as_fd().try_clone_to_owned().map(File::from).and_then(|file| file.metadata()).is_ok_and(|meta| meta.is_dir())
}
