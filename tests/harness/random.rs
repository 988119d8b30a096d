//! A small generator of pseudo-random numbers whose seed is printed and can be set to repeat a run.

/// SplitMix64: a counter that is scrambled. Good enough to choose moments and sizes.
#[derive(Clone, Debug)]
pub struct Random(u64);

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// Takes the seed from `TIDEGATE_SEED`, or from the clock, and prints it.
    pub fn for_test(name: &str) -> Self {
        let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |age| age.as_nanos() as u64);
        let seed =
            std::env::var("TIDEGATE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(clock);
        eprintln!("{name}: TIDEGATE_SEED={seed}");
        Self(seed)
    }

    /// A generator of its own for one part of a test, so that threads do not disturb each other's sequence.
    pub fn branch(&mut self) -> Self {
        Self(self.next())
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is at least 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}
