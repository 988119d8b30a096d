//! Whether so little is going on that the hub's thread may as well wait for the disk itself.

use crate::broker::api::ConnId;
use crate::time::Mono;

/// Reads since the last batch that somebody waited for: one of a publisher, and some of those who acknowledge what it had published.
const READS_MAX: u32 = 3;
/// Batches of different publishers that come faster than this, in microseconds, are better off together.
const COMPANY_MICROS: u64 = 2_000;
/// Memory of a batch that is written in one go, in bytes.
const BATCH_BYTES_MAX: usize = 16 << 10;

/// What has gone on since the last batch that somebody waited for.
#[derive(Debug, Default)]
pub(super) struct Calm {
    reads: u32,
    /// When that batch was, and the connection that alone waited for it.
    last: Option<(Mono, Option<ConnId>)>,
}

impl Calm {
    /// A connection was read.
    pub(super) fn note_read(&mut self) {
        self.reads = self.reads.saturating_add(1);
    }

    /// Judges a batch of `bytes` that somebody waits for: `waiter` alone, or several.
    pub(super) fn judge(&mut self, waiter: Option<ConnId>, bytes: usize, now: Mono) -> bool {
        let reads = std::mem::take(&mut self.reads);
        let last = self.last.replace((now, waiter));
        let is_company =
            last.is_some_and(|(at, other)| other != waiter && now.0.saturating_sub(at.0) < COMPANY_MICROS);
        waiter.is_some() && reads <= READS_MAX && bytes <= BATCH_BYTES_MAX && !is_company
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Option<ConnId> = Some(ConnId(1));
    const OTHER: Option<ConnId> = Some(ConnId(2));

    #[test]
    fn one_publisher_alone_is_calm_however_fast_it_is() {
        let mut calm = Calm::default();
        for at in 0..100 {
            (0..3).for_each(|_| calm.note_read());
            assert!(calm.judge(ONE, 1000, Mono(at)));
        }
    }

    #[test]
    fn several_waiters_much_to_read_and_large_batches_are_not_calm() {
        let mut calm = Calm::default();
        assert!(!calm.judge(None, 1000, Mono(10_000)));
        (0..4).for_each(|_| calm.note_read());
        assert!(!calm.judge(ONE, 1000, Mono(20_000)));
        assert!(calm.judge(ONE, 16 << 10, Mono(30_000)));
        assert!(!calm.judge(ONE, (16 << 10) + 1, Mono(40_000)));
    }

    #[test]
    fn publishers_that_take_turns_quickly_are_company_and_slow_ones_are_not() {
        let mut calm = Calm::default();
        assert!(calm.judge(ONE, 1, Mono(0)));
        assert!(!calm.judge(OTHER, 1, Mono(1_999)));
        assert!(!calm.judge(ONE, 1, Mono(2_100)));
        assert!(calm.judge(ONE, 1, Mono(2_200)));
        assert!(calm.judge(OTHER, 1, Mono(4_200)));
        assert!(!calm.judge(None, 1, Mono(9_000)));
        assert!(!calm.judge(ONE, 1, Mono(9_100)));
    }
}
