//! Tells systemd that the node is up, that it still answers, and that it ends. Does nothing without systemd.
//!
//! Room: `node`.
use crate::converge::Converger;
use sd_notify::NotifyState;
use std::time::Duration;
use tokio::task::JoinHandle;
use tracing::warn;

/// Says that the node is up. Where a watchdog is asked for, goes on telling that the converger answers.
pub(super) fn ready(converger: Converger) -> Option<JoinHandle<()>> {
    tell(&[NotifyState::Ready]);
    let mut micros = 0;
    if !sd_notify::watchdog_enabled(false, &mut micros) {
        return None;
    }
    // Three times within the deadline, so that one late answer is not the end.
    let every = Duration::from_micros(micros / 3);
    Some(tokio::spawn(async move {
        loop {
            tokio::time::sleep(every).await;
            if converger.answers().await {
                tell(&[NotifyState::Watchdog]);
            }
        }
    }))
}

/// Says that the node ends.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, state) {
        warn!(%error, "systemd cannot be told");
    }
}
