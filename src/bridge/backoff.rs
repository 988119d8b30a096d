//! Pauses between attempts, for ever: decorrelated jitter, reset only by a connection that lasted. Pure: the random numbers
//! come from a seed.
//!
//! Connections that the upstream accepts but that end soon, several in a row, or one that ends because the session was taken
//! over, point to a second client with the same identifier. Then the pauses grow to the upper half of their range, so that the
//! two do not fight at full speed, and an alarm is raised until a connection lasts.

/// Accepted connections in a row that ended early before the alarm is raised.
pub const SHORT_LIVES_MAX: u32 = 5;

/// A small generator for jitter (SplitMix64). Not for secrets.
#[derive(Clone, Debug)]
pub struct Jitter(u64);

impl Jitter {
    /// Starts from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number in `low..=high`; `low` when the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let span = high.saturating_sub(low).saturating_add(1);
        low + z % span
    }
}

/// How an attempt or a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The upstream never accepted it.
    Refused,
    /// It was accepted and lived for so many milliseconds.
    Lived(u64),
    /// Another connection with the same client identifier took the session.
    TakenOver,
}

/// The pauses of one link.
#[derive(Clone, Debug)]
pub struct Backoff {
    min_millis: u64,
    max_millis: u64,
    stable_millis: u64,
    last_millis: u64,
    short_lives: u32,
    alarm: bool,
    jitter: Jitter,
}

impl Backoff {
    /// Pauses between `min_millis` and `max_millis`; a connection of `stable_millis` resets them.
    #[must_use]
    pub fn new(min_millis: u64, max_millis: u64, stable_millis: u64, seed: u64) -> Self {
        let min_millis = min_millis.max(1);
        let max_millis = max_millis.max(min_millis);
        let jitter = Jitter::new(seed);
        Self { min_millis, max_millis, stable_millis, last_millis: 0, short_lives: 0, alarm: false, jitter }
    }

    /// The pause to make after an attempt or connection ended, in milliseconds.
    pub fn pause(&mut self, ended: Ended) -> u64 {
        match ended {
            Ended::Refused => {}
            Ended::Lived(millis) if millis >= self.stable_millis => self.settle(),
            Ended::Lived(_) => self.short_lives += 1,
            Ended::TakenOver => self.short_lives = SHORT_LIVES_MAX,
        }
        self.alarm |= self.short_lives >= SHORT_LIVES_MAX;
        let high = self.last_millis.saturating_mul(3).clamp(self.min_millis, self.max_millis);
        let low = if self.alarm { self.max_millis / 2 } else { self.min_millis };
        let high = if self.alarm { self.max_millis } else { high };
        self.last_millis = self.jitter.between(low, high).max(self.min_millis);
        self.last_millis
    }

    /// A connection has lasted: pauses start small again and the alarm ends.
    pub fn settle(&mut self) {
        self.last_millis = 0;
        self.short_lives = 0;
        self.alarm = false;
    }

    /// Connections do not last.
    #[must_use]
    pub fn alarm(&self) -> bool {
        self.alarm
    }

    /// Something is to be reset once a connection has lasted.
    #[must_use]
    pub fn is_grown(&self) -> bool {
        self.alarm || self.short_lives > 0 || self.last_millis > 0
    }

    /// The life after which a connection counts as lasting, in milliseconds.
    #[must_use]
    pub fn stable_millis(&self) -> u64 {
        self.stable_millis
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_stay_in_their_range_and_grow_while_nothing_answers() {
        for seed in 0..200 {
            let mut backoff = Backoff::new(100, 10_000, 5_000, seed);
            assert_eq!(backoff.pause(Ended::Refused), 100, "the first pause is the shortest");
            let pauses: Vec<u64> = (0..100).map(|_| backoff.pause(Ended::Refused)).collect();
            assert!(pauses.iter().all(|p| (100..=10_000).contains(p)), "seed {seed}");
            assert!(pauses.iter().max().unwrap() > &3_000, "seed {seed}");
            assert!(!backoff.alarm(), "no answer at all is no twin");
        }
    }

    #[test]
    fn an_accepted_connection_resets_the_pauses_only_when_it_lasted() {
        let mut backoff = Backoff::new(100, 10_000, 5_000, 1);
        for _ in 0..20 {
            backoff.pause(Ended::Refused);
        }
        let grown: u64 = (0..3).map(|_| backoff.pause(Ended::Lived(10))).max().unwrap();
        assert!(grown > 100);
        assert_eq!(backoff.pause(Ended::Lived(5_000)), 100);
    }

    #[test]
    fn short_lives_in_a_row_raise_the_alarm_and_keep_pauses_long() {
        let mut backoff = Backoff::new(100, 10_000, 5_000, 7);
        for life in 0..SHORT_LIVES_MAX {
            assert!(!backoff.alarm(), "life {life}");
            backoff.pause(Ended::Lived(50));
        }
        assert!(backoff.alarm());
        assert!((0..50).all(|_| backoff.pause(Ended::Refused) >= 5_000));
        backoff.settle();
        assert!(!backoff.alarm());
        assert_eq!(backoff.pause(Ended::Refused), 100);
    }

    #[test]
    fn a_takeover_raises_the_alarm_at_once() {
        let mut backoff = Backoff::new(100, 10_000, 5_000, 7);
        assert!(backoff.pause(Ended::TakenOver) >= 5_000);
        assert!(backoff.alarm());
    }
}
