//! How much a log is told of one kind within a while. The rest is counted, so that a flood pushes nothing else out of it.
//!
//! Room: `helper`. Pure: the time comes in, what to write goes out. Invariant: a gap has both its ends in the log, the line at
//! which it begins and the count of what lies in it; within a window nothing is told behind the beginning of a gap.
use std::time::{Duration, Instant};

/// The time over which is counted. It begins with the first after the end of the last.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// What to write of one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tell {
    /// It.
    It,
    /// It, and before it how many were counted since the last one.
    AfterCounted(u64),
    /// That counting begins.
    Beginning,
    /// Nothing: it is counted.
    Nothing,
}

/// What may still be told within [`WINDOW`].
#[derive(Debug)]
pub(crate) struct Budget {
    most: u32,
    most_bytes: Option<usize>,
    since: Option<Instant>,
    told: u32,
    told_bytes: usize,
    untold: u64,
}

impl Budget {
    /// `most` within a window, of whatever length, and at least one.
    pub(crate) const fn of(most: u32) -> Self {
        Self { most, most_bytes: None, since: None, told: 0, told_bytes: 0, untold: 0 }
    }

    /// `most` within a window, of `bytes` together. The first of a window is told whatever its length.
    pub(crate) const fn of_bytes(most: u32, bytes: usize) -> Self {
        Self { most_bytes: Some(bytes), ..Self::of(most) }
    }

    /// Takes one more, of so many bytes.
    pub(crate) fn spend(&mut self, now: Instant, bytes: usize) -> Tell {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            let untold = std::mem::take(&mut self.untold);
            (self.since, self.told, self.told_bytes) = (Some(now), 1, bytes);
            return if untold == 0 { Tell::It } else { Tell::AfterCounted(untold) };
        }
        let together = self.told_bytes.saturating_add(bytes);
        let fits = self.told < self.most && self.most_bytes.is_none_or(|most| together <= most);
        // Once too much, too much to the end of the window: a reader is told where the gap is.
        if self.untold == 0 && fits {
            (self.told, self.told_bytes) = (self.told.saturating_add(1), together);
            return Tell::It;
        }
        self.untold = self.untold.saturating_add(1);
        if self.untold == 1 { Tell::Beginning } else { Tell::Nothing }
    }

    /// As many as are told within a window.
    pub(crate) const fn most(&self) -> u32 {
        self.most
    }

    /// How many were counted and not told of yet.
    pub(crate) const fn untold(&self) -> u64 {
        self.untold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_told_once_the_window_is_over() {
        let (mut budget, start) = (Budget::of(1000), Instant::now());
        let mut at = |milliseconds, bytes| budget.spend(start + Duration::from_millis(milliseconds), bytes);
        for _ in 0..1000 {
            assert_eq!(at(0, usize::MAX), Tell::It, "of whatever length");
        }
        assert_eq!(at(1, 0), Tell::Beginning);
        assert_eq!(at(9_999, 0), Tell::Nothing);
        assert_eq!(at(10_000, 0), Tell::AfterCounted(2));
        assert_eq!(at(10_001, 0), Tell::It);
        assert_eq!(at(25_000, 0), Tell::It, "nothing was counted meanwhile");
    }

    #[test]
    fn what_is_too_long_begins_a_gap_through_which_nothing_short_slips() {
        let (mut budget, start) = (Budget::of_bytes(1000, 100), Instant::now());
        let mut at = |milliseconds, bytes| budget.spend(start + Duration::from_millis(milliseconds), bytes);
        assert_eq!([at(0, 60), at(1, 40)], [Tell::It; 2]);
        assert_eq!([at(2, 1), at(3, 0)], [Tell::Beginning, Tell::Nothing]);
        assert_eq!(at(10_000, 101), Tell::AfterCounted(2), "the first of a window, whatever its length");
        assert_eq!([at(10_001, 1), at(10_002, 1)], [Tell::Beginning, Tell::Nothing]);
        assert_eq!([at(20_000, 0), at(20_001, 100)], [Tell::AfterCounted(2), Tell::It]);
    }

    #[test]
    fn both_bounds_hold() {
        let (mut budget, now) = (Budget::of_bytes(3, 100), Instant::now());
        let told = std::iter::repeat_with(|| budget.spend(now, 1)).take(50).filter(|tell| *tell == Tell::It).count();
        assert_eq!((told, budget.untold()), (3, 47));
    }
}
