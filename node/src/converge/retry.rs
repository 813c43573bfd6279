//! When a failed instance is tried again.
//!
//! Room: `node`. Pure but for the jitter.
use crate::fault::FaultKind;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// How long after a restart by itself the next one is held back at most.
const RESTART_MOST: Duration = Duration::from_secs(60);

/// How long to wait after the `times`-th failure in a row, or `None`: not before the document changes. With jitter of a
/// quarter either way, so that a thousand instances do not come back in one instant.
pub(super) fn after(kind: FaultKind, times: u32) -> Option<Duration> {
    let (first, most) = match kind {
        FaultKind::InvalidSpec => return None,
        // The host may be given what is missing; the image may be published anew under its URL.
        FaultKind::Unsupported => (60, 600),
        FaultKind::ImageRejected => (600, 600),
        FaultKind::ResourcesExhausted => (10, 10),
        FaultKind::Denied => (10, 300),
        FaultKind::Timeout | FaultKind::Unavailable | FaultKind::Internal => (1, 60),
    };
    Some(jittered(doubled(Duration::from_secs(first), times, Duration::from_secs(most))))
}

/// How long to wait before the `quick`-th start in a row of a guest that stopped soon after the one before.
pub(super) fn restart(quick: u32) -> Duration {
    jittered(doubled(Duration::from_secs(1), quick, RESTART_MOST))
}

/// `first` · 2^(times − 1), at most `most`.
fn doubled(first: Duration, times: u32, most: Duration) -> Duration {
    let factor = 1u32.checked_shl(times.saturating_sub(1)).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(most)
}

fn jittered(wait: Duration) -> Duration {
    // Each `RandomState` hashes differently: enough of chance to spread retries.
    let chance = RandomState::new().build_hasher().finish() % 512;
    let share = u32::try_from(chance).unwrap_or_default().saturating_add(768);
    wait.saturating_mul(share) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_document_must_change_is_never_retried_by_itself() {
        assert_eq!(after(FaultKind::InvalidSpec, 1), None);
        assert_eq!(after(FaultKind::InvalidSpec, 40), None);
    }

    #[test]
    fn waits_double_up_to_their_bound_and_stay_within_a_quarter_of_it() {
        for (times, seconds) in [(1, 1.0), (2, 2.0), (4, 8.0), (7, 60.0), (33, 60.0), (u32::MAX, 60.0)] {
            let wait = after(FaultKind::Unavailable, times).expect("retried").as_secs_f64();
            assert!((0.74 * seconds..=1.26 * seconds).contains(&wait), "{times}: {wait}");
        }
    }

    #[test]
    fn waits_are_spread() {
        let waits: std::collections::HashSet<_> = (0..64).map(|_| after(FaultKind::Internal, 6)).collect();
        assert!(waits.len() > 16, "{waits:?}");
    }

    #[test]
    fn a_rejected_image_is_not_fetched_again_for_minutes() {
        assert!(after(FaultKind::ImageRejected, 1).expect("retried") > Duration::from_secs(400));
    }
}
