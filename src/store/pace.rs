//! How quick the disk has been lately.

/// Mean time of a commit up to which a disk is quick, in microseconds.
const QUICK_MICROS_MAX: u32 = 250;
/// A commit that takes longer is a stall, in microseconds.
const STALL_MICROS_MIN: u32 = 2_000;
/// Commits without a stall that a disk must have made to be quick.
const COMMITS_MIN: u32 = 128;
/// The mean forgets as if it were taken over so many commits.
const MEAN_OVER: u32 = 16;

/// The times that the last commits took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// [`MEAN_OVER`] times the mean.
    sum_micros: u32,
    since_stall: u32,
}

impl Pace {
    /// A commit took so long.
    pub fn note(&mut self, micros: u128) {
        let micros = u32::try_from(micros).unwrap_or(u32::MAX).min(u32::MAX / MEAN_OVER);
        if micros >= STALL_MICROS_MIN {
            *self = Self::default();
            return;
        }
        self.sum_micros = self.sum_micros - self.sum_micros / MEAN_OVER + micros;
        self.since_stall = self.since_stall.saturating_add(1);
    }

    /// A commit may be expected to take no longer than handing it to a thread and back.
    #[must_use]
    pub fn is_quick(&self) -> bool {
        self.since_stall >= COMMITS_MIN && self.sum_micros <= QUICK_MICROS_MAX * MEAN_OVER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: impl IntoIterator<Item = u128>) -> Pace {
        let mut pace = Pace::default();
        times.into_iter().for_each(|micros| pace.note(micros));
        pace
    }

    #[test]
    fn a_disk_is_quick_once_it_has_been_quick_for_a_while() {
        assert!(!after([]).is_quick());
        assert!(!after([90; 127]).is_quick());
        assert!(after([90; 128]).is_quick());
        assert!(after([250; 1000]).is_quick());
        assert!(!after([270; 1000]).is_quick());
    }

    #[test]
    fn a_card_is_never_quick_and_a_stall_is_remembered() {
        assert!(!after([5_000; 10_000]).is_quick());
        let stalled = |then: usize| [90; 500].into_iter().chain([u128::MAX]).chain(vec![90; then]);
        assert!(!after(stalled(127)).is_quick());
        assert!(after(stalled(128)).is_quick());
    }

    #[test]
    fn single_slow_commits_do_not_count_and_many_do() {
        let one_in = |n: usize| (0..1000).map(move |i| if i % n == 0 { 1_500 } else { 90 });
        assert!(after(one_in(100).chain([90; 16])).is_quick());
        assert!(!after(one_in(4)).is_quick());
    }
}
