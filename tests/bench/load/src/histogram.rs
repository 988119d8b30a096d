//! Durations, counted in buckets that grow with them.

/// Buckets for each doubling: about 3 % of resolution.
const STEPS: u64 = 32;
const BUCKETS: usize = 64 * STEPS as usize;

/// Durations in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Vec<u32>,
    count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { buckets: vec![0; BUCKETS], count: 0 }
    }
}

impl Histogram {
    /// Durations counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Counts one.
    pub fn add(&mut self, ns: u64) {
        self.buckets[bucket(ns)] += 1;
        self.count += 1;
    }

    /// Takes over the durations of another one.
    pub fn merge(&mut self, other: &Histogram) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
    }

    /// The duration, in microseconds, that a share of `part` does not exceed; 0 without any.
    pub fn quantile_us(&self, part: f64) -> f64 {
        let wanted = ((self.count as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return upper_ns(at as u64) as f64 / 1000.0;
            }
        }
        0.0
    }
}

fn bucket(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let doubling = u64::from(ns.ilog2() - STEPS.ilog2());
    ((doubling + 1) * STEPS + (ns >> doubling) - STEPS) as usize
}

/// The first duration beyond a bucket.
fn upper_ns(bucket: u64) -> u64 {
    if bucket < STEPS {
        return bucket + 1;
    }
    let doubling = bucket / STEPS - 1;
    (STEPS + bucket % STEPS + 1).saturating_mul(1 << doubling)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_at_most_four_per_cent_above_the_truth() {
        let mut histogram = Histogram::default();
        (1..=100_000).for_each(|us| histogram.add(us * 1000));
        for (part, truth) in [(0.01, 1_000.0), (0.5, 50_000.0), (0.99, 99_000.0), (1.0, 100_000.0)] {
            let found = histogram.quantile_us(part);
            assert!((truth..truth * 1.04).contains(&found), "{part}: {found}");
        }
        assert_eq!(Histogram::default().quantile_us(0.5), 0.0);
    }

    #[test]
    fn every_duration_has_a_bucket() {
        assert!(bucket(u64::MAX) < BUCKETS);
        for ns in [0, 1, 31, 32, 33, 63, 64, 1 << 40] {
            assert!(upper_ns(bucket(ns) as u64) > ns);
        }
    }
}
