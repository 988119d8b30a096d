//! Time as the pure modules see it: an argument, never a clock.
//!
//! Two readings travel together. [`Mono`] never goes backwards and serves keep-alive, back-off and every other interval inside
//! one run. [`Wall`] is what survives a restart: milliseconds since the Unix epoch on a *stable timeline*, which is anchored
//! once at start-up (never before the newest time found in the store) and from then on follows the monotonic clock. A gateway
//! without a real-time clock whose date jumps by years after boot therefore expires nothing by accident.

/// Monotonic time in microseconds since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

impl Mono {
    /// The instant `millis` milliseconds later; saturates at the end of time.
    #[must_use]
    pub fn plus_millis(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis.saturating_mul(1000)))
    }

    /// Milliseconds from `earlier` to `self`; 0 when `earlier` is later.
    #[must_use]
    pub fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1000
    }

    /// Whole milliseconds since the process started.
    #[must_use]
    pub fn as_millis(self) -> u64 {
        self.0 / 1000
    }
}

/// Milliseconds since the Unix epoch on the stable timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub u64);

impl Wall {
    /// The instant `seconds` later; saturates at the end of time.
    #[must_use]
    pub fn plus_secs(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// Milliseconds from `earlier` to `self`; 0 when `earlier` is later.
    #[must_use]
    pub fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For intervals within this run.
    pub mono: Mono,
    /// For instants that are stored.
    pub wall: Wall,
}

/// Turns raw clock readings into [`Now`]: the only place that knows the anchor of the stable timeline.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    anchor: Wall,
}

impl Timeline {
    /// Anchors the timeline at process start: `system` is the system clock then, `newest_stored` the latest time that the
    /// store has seen. Time never runs backwards across a restart, even when the system clock does.
    #[must_use]
    pub fn anchored(system: Wall, newest_stored: Wall) -> Self {
        Self { anchor: system.max(newest_stored) }
    }

    /// The reading at `mono`.
    #[must_use]
    pub fn at(&self, mono: Mono) -> Now {
        Now { mono, wall: Wall(self.anchor.0.saturating_add(mono.as_millis())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_does_not_move_the_timeline_back() {
        let timeline = Timeline::anchored(Wall(1_000), Wall(5_000));
        assert_eq!(timeline.at(Mono(2_000_000)).wall, Wall(7_000));
    }

    #[test]
    fn intervals_saturate_instead_of_wrapping() {
        assert_eq!(Mono(5).millis_since(Mono(9_000)), 0);
        assert_eq!(Mono(u64::MAX).plus_millis(1), Mono(u64::MAX));
        assert_eq!(Wall(u64::MAX).plus_secs(1), Wall(u64::MAX));
    }
}
