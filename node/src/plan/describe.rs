//! A plan in words, for `bcd plan` and for what is answered to `bcd apply`.
//!
//! Room: `node`. Pure.
use super::{Change, Phase, Plan, Step};
use std::fmt;

/// A plan's lines: one for each change, one for what is as wanted, and one for each thing that keeps it from being whole.
#[must_use]
pub fn describe(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(plan.refusal.iter().map(|refusal| refusal.message.clone()));
    lines.extend(
        plan.unreadable.iter().map(|section| format!("{section} cannot be read: what depends on it is not planned")),
    );
    lines.extend(plan.changes.iter().map(ToString::to_string));
    match plan.unchanged {
        0 => {}
        1 => lines.push("1 instance is as wanted".to_owned()),
        n => lines.push(format!("{n} instances are as wanted")),
    }
    if lines.is_empty() {
        lines.push("nothing to do: there are no instances and none are wanted".to_owned());
    }
    lines
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.phase {
            Phase::Delete => "delete ",
            Phase::Stop => "stop ",
            Phase::Change if self.steps.contains(&Step::CreateDisk) => "create ",
            Phase::Change => "change ",
            Phase::Held => "leave ",
        };
        write!(f, "{verb}{}", self.instance)?;
        for (i, step) in self.steps.iter().enumerate() {
            write!(f, "{}{step}", if i == 0 { ": " } else { ", " })?;
        }
        match (&self.refusal, self.steps.is_empty()) {
            (Some(refusal), true) => write!(f, ": {}", refusal.message),
            (Some(refusal), false) => write!(f, "; {}", refusal.message),
            (None, _) => Ok(()),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FetchImage => f.write_str("fetch its image"),
            Self::CreateDisk => f.write_str("create its disk"),
            Self::WriteSeed => f.write_str("write its seed"),
            Self::Define => f.write_str("define its domain"),
            Self::Share => f.write_str("share its files with its own uid"),
            Self::GrowFile { disk_bytes } => write!(f, "grow its disk to {disk_bytes} bytes"),
            Self::GrowLive { disk_bytes } => write!(f, "grow its disk to {disk_bytes} bytes while it runs"),
            Self::Start { paused: false } => f.write_str("start it"),
            Self::Start { paused: true } => f.write_str("start it paused"),
            Self::Suspend => f.write_str("pause it"),
            Self::Resume => f.write_str("resume it"),
            Self::PowerOff => f.write_str("press its power button, and end it after 60 seconds"),
            Self::Destroy => f.write_str("end it at once"),
            Self::Undefine => f.write_str("remove its domain"),
            Self::RemoveFiles => f.write_str("remove its files"),
        }
    }
}

impl Step {
    /// What is going on while the step runs, for status: `fetching the image`.
    #[must_use]
    pub fn doing(self) -> &'static str {
        match self {
            Self::FetchImage => "fetching the image",
            Self::CreateDisk => "creating the disk",
            Self::WriteSeed => "writing the seed",
            Self::Define => "defining the domain",
            Self::Share => "sharing the files with the guest's uid",
            Self::GrowFile { .. } | Self::GrowLive { .. } => "growing the disk",
            Self::Start { .. } => "starting",
            Self::Suspend => "pausing",
            Self::Resume => "resuming",
            Self::PowerOff => "shutting down",
            Self::Destroy => "ending",
            Self::Undefine => "removing the domain",
            Self::RemoveFiles => "removing the files",
        }
    }
}
