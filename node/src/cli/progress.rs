//! What happens while `apply --wait` waits: bars on a terminal, a line per change elsewhere. Always on stderr.
//!
//! Room: `node`.
use super::status::{activity, error};
use super::text::printable;
use crate::status::{InstanceState, InstanceStatus, NodeStatus, Progress, ProgressUnit, UnixMillis};
use bcd_protocol::id::InstanceId;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// What was last said of each instance.
pub(super) struct Shown {
    bars: Option<MultiProgress>,
    instances: BTreeMap<InstanceId, Said>,
}

struct Said {
    state: InstanceState,
    doing: Option<String>,
    error: Option<String>,
    bar: Option<ProgressBar>,
}

impl Shown {
    pub(super) fn new() -> Self {
        let bars = io::stderr().is_terminal().then(MultiProgress::new);
        Self { bars, instances: BTreeMap::new() }
    }

    /// Shows what differs from the status before.
    pub(super) fn update(&mut self, status: &NodeStatus) {
        let now = UnixMillis::now();
        for instance in &status.instances {
            let before = self.instances.remove(&instance.id);
            for line in news(before.as_ref(), instance, now) {
                self.say(&line);
            }
            let bar = self.bar(before.and_then(|said| said.bar), instance);
            self.instances.insert(instance.id.clone(), Said::of(instance, bar));
        }
        let here = |id: &InstanceId| status.instances.iter().any(|i| i.id == *id);
        let gone: Vec<InstanceId> = self.instances.keys().filter(|id| !here(id)).cloned().collect();
        for id in gone {
            if let Some(bar) = self.instances.remove(&id).and_then(|said| said.bar) {
                bar.finish_and_clear();
            }
            self.say(&format!("{id}: deleted"));
        }
    }

    fn say(&self, line: &str) {
        match &self.bars {
            Some(bars) => drop(bars.println(line)),
            None => drop(writeln!(io::stderr().lock(), "{line}")),
        }
    }

    fn bar(&self, bar: Option<ProgressBar>, instance: &InstanceStatus) -> Option<ProgressBar> {
        let bars = self.bars.as_ref()?;
        let Some(doing) = &instance.doing else {
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
            return None;
        };
        let bar = bar.unwrap_or_else(|| {
            let bar = bars.add(ProgressBar::no_length());
            bar.set_prefix(instance.id.to_string());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        bar.set_style(style(doing.progress));
        bar.set_message(printable(&doing.what));
        if let Some(progress) = doing.progress {
            if let Some(total) = progress.total {
                bar.set_length(total);
            }
            bar.set_position(progress.done);
        }
        Some(bar)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        for said in self.instances.values() {
            if let Some(bar) = &said.bar {
                bar.finish_and_clear();
            }
        }
    }
}

impl Said {
    fn of(instance: &InstanceStatus, bar: Option<ProgressBar>) -> Self {
        Self {
            state: instance.state,
            doing: instance.doing.as_ref().map(|d| d.what.clone()),
            error: instance.last_error.as_ref().map(|e| e.message.clone()),
            bar,
        }
    }
}

/// What there is to say of an instance that was not said before.
fn news(before: Option<&Said>, instance: &InstanceStatus, now: UnixMillis) -> Vec<String> {
    let mut lines = Vec::new();
    let id = &instance.id;
    if before.is_none_or(|b| b.state != instance.state) {
        lines.push(format!("{id}: {}", instance.state.as_str()));
    }
    if let Some(doing) = &instance.doing
        && before.is_none_or(|b| b.doing.as_deref() != Some(doing.what.as_str()))
    {
        lines.push(format!("{id}: {}", activity(doing, now)));
    }
    if let Some(last) = &instance.last_error
        && before.is_none_or(|b| b.error.as_deref() != Some(last.message.as_str()))
    {
        lines.push(format!("{id}: {}", error(last, now)));
    }
    lines
}

fn style(progress: Option<Progress>) -> ProgressStyle {
    let template = match progress {
        Some(Progress { unit: ProgressUnit::Bytes, total: Some(_), .. }) => {
            "{prefix}  {msg}  [{bar:30}] {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta}"
        }
        Some(Progress { unit: ProgressUnit::Bytes, total: None, .. }) => {
            "{prefix}  {msg}  {spinner} {binary_bytes}  {binary_bytes_per_sec}"
        }
        Some(Progress { unit: ProgressUnit::Seconds, .. }) => "{prefix}  {msg}  {spinner} {pos} s",
        None => "{prefix}  {msg}  {spinner} {elapsed}",
    };
    // A template is a constant, and the tests build each; a mistake in one costs the layout, not the command.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_understood() {
        let with = |unit, total| Some(Progress { done: 1, total, unit });
        for progress in [
            None,
            with(ProgressUnit::Bytes, Some(2)),
            with(ProgressUnit::Bytes, None),
            with(ProgressUnit::Seconds, Some(60)),
        ] {
            let bar = ProgressBar::with_draw_target(Some(2), indicatif::ProgressDrawTarget::hidden());
            bar.set_style(style(progress));
        }
        let wrong = ProgressStyle::with_template("{nothing:of:the:kind}");
        assert!(wrong.is_err(), "indicatif tells a wrong template");
    }
}
