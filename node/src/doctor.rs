//! `bcd doctor`: whether this host is ready to run instances. Each finding comes with what to do about it, and none needs
//! the node.
//!
//! Room: `node`. `gather` looks, and decides nothing but what may be looked at, and as whom; `judge` decides and looks at nothing, so each verdict has a test.
//! Nothing here changes the host.
use crate::fault::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

pub mod facts;
mod gather;
pub mod judge;
#[cfg(test)]
mod tests;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Something does not work, or not as well as it could.
    Warn,
    /// Instances cannot run.
    Fail,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was looked at: a stable name.
    pub check: String,
    /// What was found, a sentence.
    pub found: String,
    /// What to do about it; absent when nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Everything that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The worst level of all findings.
    pub level: Level,
    /// The findings, in the order of what depends on what.
    pub findings: Vec<Finding>,
}

impl Report {
    /// A report of findings.
    #[must_use]
    pub fn of(findings: Vec<Finding>) -> Self {
        let level = findings.iter().map(|f| f.level).max().unwrap_or(Level::Ok);
        Self { level, findings }
    }

    /// The exit code: 0 fine, 1 failing, 2 warnings only.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.level {
            Level::Ok => 0,
            Level::Fail => 1,
            Level::Warn => 2,
        }
    }
}

/// Looks at this host as the configuration at `path` describes it. Blocking, some seconds at the most. Root asks as the
/// node's user through `program`, which is bcd itself.
#[must_use]
pub fn examine(path: &Path, program: &Path) -> Report {
    Report::of(judge::judge(&gather::gather(path, Some(program))))
}

/// What the process finds that a doctor which is root started to ask as the node's user, as one line of JSON.
///
/// # Errors
/// When somebody else started it, or it cannot give up root.
pub fn answer() -> Result<String, Fault> {
    gather::answer()
}
