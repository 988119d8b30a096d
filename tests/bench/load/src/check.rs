//! What a payload says, and whether what arrived is what was sent.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::Instant;

use crate::histogram::Histogram;

/// Publisher (4 bytes), number (8) and time (8).
pub const STAMP_BYTES: usize = 20;
/// Publishers that a ledger keeps apart.
const PUBLISHERS_MAX: usize = 4096;
/// Payloads take their filling from this many places of the noise.
const FILL_OFFSETS: u64 = 1 << 16;

/// Nanoseconds since the first call.
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// What stands at the start of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Who sent it.
    pub publisher: u32,
    /// Counts from 0 for each publisher.
    pub number: u64,
    /// When, by [`now_ns`]; means something in the process that sent it.
    pub sent_ns: u64,
}

/// Payloads of one size.
#[derive(Clone, Debug)]
pub struct Payloads {
    size: usize,
    noise: Vec<u8>,
}

impl Payloads {
    /// Payloads of `size` bytes, at least [`STAMP_BYTES`].
    pub fn new(size: usize) -> Payloads {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let noise = (0..size + FILL_OFFSETS as usize).map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        });
        Payloads { size, noise: noise.collect() }
    }

    /// Bytes of a payload.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Appends a payload.
    pub fn write(&self, out: &mut Vec<u8>, stamp: Stamp) {
        out.extend_from_slice(&stamp.publisher.to_be_bytes());
        out.extend_from_slice(&stamp.number.to_be_bytes());
        out.extend_from_slice(&stamp.sent_ns.to_be_bytes());
        out.extend_from_slice(self.filling(stamp));
    }

    /// The stamp of an undamaged payload.
    pub fn read(&self, payload: &[u8]) -> Option<Stamp> {
        let (publisher, rest) = payload.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (sent_ns, filling) = rest.split_first_chunk()?;
        let stamp = Stamp {
            publisher: u32::from_be_bytes(*publisher),
            number: u64::from_be_bytes(*number),
            sent_ns: u64::from_be_bytes(*sent_ns),
        };
        (filling == self.filling(stamp)).then_some(stamp)
    }

    fn filling(&self, stamp: Stamp) -> &[u8] {
        let at = stamp.number.wrapping_mul(61).wrapping_add(u64::from(stamp.publisher) * 4099) % FILL_OFFSETS;
        &self.noise[at as usize..][..self.size - STAMP_BYTES]
    }
}

/// One publisher's messages at one subscriber.
#[derive(Clone, Debug, Default)]
struct Stream {
    next: u64,
    /// Numbers below `next` that have not arrived.
    missing: HashSet<u64>,
}

/// What one subscriber received.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    streams: Vec<Stream>,
    /// Different messages.
    pub distinct: u64,
    /// Messages that had arrived before.
    pub repeated: u64,
    /// Messages that came after a later one of the same publisher.
    pub disordered: u64,
    /// Payloads that are not what was sent.
    pub damaged: u64,
    /// Messages with the RETAIN flag.
    pub retained: u64,
    /// When the last one arrived.
    pub last_ns: u64,
    /// From stamp to arrival.
    pub latency: Histogram,
}

impl Ledger {
    /// Everything that arrived, good or bad.
    pub fn received(&self) -> u64 {
        self.distinct + self.repeated + self.damaged
    }

    /// A message arrived. Returns its stamp if it is undamaged.
    pub fn note(&mut self, payloads: &Payloads, payload: &[u8]) -> Option<Stamp> {
        self.last_ns = now_ns();
        let stamp = payloads.read(payload).filter(|stamp| (stamp.publisher as usize) < PUBLISHERS_MAX);
        let Some(stamp) = stamp else {
            self.damaged += 1;
            return None;
        };
        self.latency.add(self.last_ns.saturating_sub(stamp.sent_ns));
        let at = stamp.publisher as usize;
        if at >= self.streams.len() {
            self.streams.resize(at + 1, Stream::default());
        }
        let stream = &mut self.streams[at];
        if stamp.number >= stream.next {
            stream.missing.extend(stream.next..stamp.number);
            stream.next = stamp.number + 1;
            self.distinct += 1;
        } else if stream.missing.remove(&stamp.number) {
            self.distinct += 1;
            self.disordered += 1;
        } else {
            self.repeated += 1;
        }
        Some(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_tells_repetition_disorder_and_damage_apart() {
        let payloads = Payloads::new(64);
        let message = |number| {
            let mut payload = vec![];
            payloads.write(&mut payload, Stamp { publisher: 2, number, sent_ns: 0 });
            payload
        };
        let mut ledger = Ledger::default();
        for number in [0, 2, 1, 2, 3] {
            assert!(ledger.note(&payloads, &message(number)).is_some());
        }
        let mut damaged = message(4);
        damaged[40] ^= 1;
        assert!(ledger.note(&payloads, &damaged).is_none());
        assert!(ledger.note(&payloads, &damaged[..10]).is_none());
        assert_eq!((ledger.distinct, ledger.repeated, ledger.disordered, ledger.damaged), (4, 1, 1, 2));
    }
}
