//! The service manager's watchdog, fed by the loop that serves.
//!
//! Room: `helper`. The one thread that accepts also runs every session and makes every decision, so its loop stands for
//! all of them: when any of it hangs, nothing feeds the watchdog. What hangs elsewhere (libvirt, a disk) holds threads of
//! its own, would hang for the next helper too, and is no reason to end this one.
use sd_notify::NotifyState;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Feeds within the time that the service manager waits: one late turn of the loop is not the end.
const FEEDS: u64 = 3;

/// When the watchdog is to be fed.
#[derive(Debug)]
pub(crate) struct Watchdog(Option<Interval>);

impl Watchdog {
    /// As the service manager asked for; never due where none did. Call within the runtime.
    pub(crate) fn of_this_process() -> Self {
        let mut micros = 0;
        let asked = sd_notify::watchdog_enabled(false, &mut micros);
        Self::within(if asked { Duration::from_micros(micros) } else { Duration::ZERO })
    }

    /// Due [`FEEDS`] times within `time`; never when that is nothing.
    fn within(time: Duration) -> Self {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).checked_div(FEEDS);
        let every = micros.filter(|micros| *micros > 0).map(Duration::from_micros);
        Self(every.map(|every| {
            let mut interval = interval(every);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        }))
    }

    /// Ends when the watchdog is to be fed. Safe to drop and call again.
    pub(crate) async fn due(&mut self) {
        match &mut self.0 {
            Some(interval) => drop(interval.tick().await),
            None => std::future::pending().await,
        }
    }
}

/// Feeds the watchdog.
pub(crate) fn feed() {
    crate::daemon::tell(&[NotifyState::Watchdog]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, timeout};

    #[tokio::test(start_paused = true)]
    async fn it_is_due_three_times_within_the_time_given() {
        let mut watchdog = Watchdog::within(Duration::from_secs(60));
        let start = Instant::now();
        let mut due = Vec::new();
        for _ in 0..4 {
            watchdog.due().await;
            due.push(start.elapsed().as_secs());
        }
        assert_eq!(due, [0, 20, 40, 60]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_came_late_is_fed_once_and_not_made_up_for() {
        let mut watchdog = Watchdog::within(Duration::from_secs(60));
        watchdog.due().await;
        tokio::time::advance(Duration::from_secs(50)).await;
        watchdog.due().await;
        assert!(timeout(Duration::from_secs(19), watchdog.due()).await.is_err(), "the next is due 20 s later");
        watchdog.due().await;
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_watchdog_it_is_never_due() {
        for time in [Duration::ZERO, Duration::from_micros(2)] {
            let mut watchdog = Watchdog::within(time);
            assert!(timeout(Duration::from_secs(3600), watchdog.due()).await.is_err());
        }
    }
}
