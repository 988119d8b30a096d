//! How fast connections are accepted.

use crate::time::Mono;

/// Connections that may come at once after a pause, in seconds of the rate.
const BURST_SECONDS: u64 = 1;

/// At most so many connections a second, with a burst of one second's worth.
#[derive(Debug)]
pub struct Pace {
    /// Microseconds that one connection takes up; 0: no bound.
    step_micros: u64,
    /// When the next one would be due had they come evenly.
    due: Mono,
}

impl Pace {
    /// `None`: as fast as they come.
    #[must_use]
    pub fn new(per_second_max: Option<u32>) -> Self {
        let step_micros = per_second_max.map_or(0, |rate| 1_000_000 / u64::from(rate.max(1)));
        Self { step_micros, due: Mono(0) }
    }

    /// One more connection: when it may be accepted, `None` for at once.
    pub fn next(&mut self, now: Mono) -> Option<Mono> {
        if self.step_micros == 0 {
            return None;
        }
        let burst = BURST_SECONDS * 1_000_000;
        let earliest = Mono(self.due.0.saturating_sub(burst));
        self.due = Mono(self.due.0.max(now.0) + self.step_micros);
        (earliest > now).then_some(earliest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_a_second_passes_and_then_the_rate_holds() {
        let mut pace = Pace::new(Some(10));
        let now = Mono(5_000_000);
        let at_once = (0..100).take_while(|_| pace.next(now).is_none()).count();
        assert_eq!(at_once, 11, "the one that is due and a second's worth");
        let times: Vec<_> = (0..3).map(|_| pace.next(now).unwrap().0 - now.0).collect();
        assert_eq!(times, [200_000, 300_000, 400_000]);
        assert_eq!(pace.next(Mono(60_000_000)), None);
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pace = Pace::new(None);
        assert!((0..10_000).all(|_| pace.next(Mono(1)).is_none()));
    }
}
