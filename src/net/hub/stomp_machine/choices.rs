//! Decisions, by chance or by a fuzzer.

/// Where decisions come from.
#[derive(Debug)]
pub(super) enum Choices {
    /// SplitMix64.
    Random(u64),
    /// A fuzzer's input, from the end; nothing but zeros behind it.
    Input(Vec<u8>),
}

impl Choices {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        let state = match self {
            Self::Input(bytes) => {
                let low = u64::from(bytes.pop().unwrap_or(0));
                let high = if end > 256 { u64::from(bytes.pop().unwrap_or(0)) } else { 0 };
                return (high << 8 | low) % end;
            }
            Self::Random(state) => state,
        };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    pub(super) fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }

    pub(super) fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 1
    }

    #[cfg(feature = "simulation")]
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Input(bytes) if bytes.is_empty())
    }
}
