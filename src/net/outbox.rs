//! Bytes on their way to one peer.
//!
//! Small output is copied into one open buffer, so that a turn's answers leave in one write; large payloads are shared and
//! leave with it in one vectored write. An idle outbox owns no memory: buffers come from a [`BufferPool`] at the first byte and
//! go back after the flush.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

/// Payloads from this size on are sent from where they lie; below it a copy is cheaper than one more segment.
pub const SHARED_BYTES_MIN: usize = 4096;
/// Segments of one vectored write.
pub const WRITE_SEGMENTS_MAX: usize = 64;
/// Buffers that the pool keeps.
const POOL_BUFFERS_MAX: usize = 64;
/// Larger buffers are freed instead of being kept.
const POOL_BUFFER_BYTES_MAX: usize = 64 << 10;
const BUFFER_BYTES_MIN: usize = 4 << 10;
/// Written bytes that may stay at the front of the open buffer of a peer that always lags a little.
const WRITTEN_BYTES_KEPT_MAX: usize = 32 << 10;

/// Empty buffers for outboxes.
#[derive(Debug, Default)]
pub struct BufferPool {
    free: Vec<Vec<u8>>,
}

impl BufferPool {
    fn take(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES_MIN))
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        if self.free.len() < POOL_BUFFERS_MAX && buffer.capacity() <= POOL_BUFFER_BYTES_MAX {
            buffer.clear();
            self.free.push(buffer);
        }
    }
}

/// What waits for one peer.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Closed segments, in front of `open`.
    closed: VecDeque<Bytes>,
    /// The segment that still grows.
    open: Vec<u8>,
    /// Bytes at the front of the first segment that are written already.
    written: usize,
    /// Bytes in `closed`.
    closed_bytes: usize,
}

impl Outbox {
    /// Bytes that wait.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.closed_bytes + self.open.len() - self.written
    }

    /// Nothing waits.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The buffer to append to.
    #[inline]
    pub fn writer(&mut self, pool: &mut BufferPool) -> &mut Vec<u8> {
        if self.open.capacity() == 0 {
            self.open = pool.take();
        }
        &mut self.open
    }

    /// Appends `bytes` without a copy.
    pub fn push_shared(&mut self, bytes: Bytes) {
        if !self.open.is_empty() {
            let open = std::mem::take(&mut self.open);
            self.closed_bytes += open.len();
            self.closed.push_back(open.into());
        }
        self.closed_bytes += bytes.len();
        self.closed.push_back(bytes);
    }

    /// What is to be written next, at most [`WRITE_SEGMENTS_MAX`] runs of bytes.
    #[must_use]
    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity((self.closed.len() + 1).min(WRITE_SEGMENTS_MAX));
        let mut skip = self.written;
        let segments = self.closed.iter().map(|b| &b[..]).chain(std::iter::once(&self.open[..]));
        for segment in segments.take(WRITE_SEGMENTS_MAX) {
            if segment.len() > skip {
                slices.push(IoSlice::new(&segment[skip..]));
            }
            skip = 0;
        }
        slices
    }

    /// The only segment, when there is just one: the common case, for a plain write.
    #[must_use]
    #[inline]
    pub fn single(&self) -> Option<&[u8]> {
        self.closed.is_empty().then(|| &self.open[self.written..])
    }

    /// `n` bytes went out.
    ///
    /// # Panics
    /// When fewer than `n` bytes were waiting.
    pub fn advance(&mut self, n: usize, pool: &mut BufferPool) {
        assert!(n <= self.len(), "more was written than was waiting");
        self.written += n;
        while let Some(first) = self.closed.front() {
            if self.written < first.len() {
                return;
            }
            self.written -= first.len();
            self.closed_bytes -= first.len();
            self.closed.pop_front();
        }
        if self.written == self.open.len() {
            self.release(pool);
        } else if self.written > WRITTEN_BYTES_KEPT_MAX && self.written >= self.open.len() / 2 {
            self.open.drain(..self.written);
            self.written = 0;
        }
    }

    /// Gives back a buffer that was asked for and not used.
    pub fn release_unused(&mut self, pool: &mut BufferPool) {
        if self.is_empty() {
            self.release(pool);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self, pool: &mut BufferPool) {
        self.closed = VecDeque::new();
        self.closed_bytes = 0;
        self.release(pool);
    }

    fn release(&mut self, pool: &mut BufferPool) {
        self.written = 0;
        pool.give(std::mem::take(&mut self.open));
        if self.closed.is_empty() {
            self.closed = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(outbox: &mut Outbox, pool: &mut BufferPool, step: usize) -> Vec<u8> {
        let mut got = vec![];
        while !outbox.is_empty() {
            let all: Vec<u8> = outbox.slices().iter().flat_map(|s| s.to_vec()).collect();
            let take = step.min(all.len());
            got.extend_from_slice(&all[..take]);
            outbox.advance(take, pool);
        }
        got
    }

    #[test]
    fn bytes_leave_in_order_whatever_the_writes_take() {
        for step in [1, 3, 7, 1000] {
            let (mut outbox, mut pool) = (Outbox::default(), BufferPool::default());
            let mut want = vec![];
            for i in 0..20u8 {
                outbox.writer(&mut pool).extend_from_slice(&[i; 5]);
                want.extend_from_slice(&[i; 5]);
                if i % 3 == 0 {
                    outbox.push_shared(Bytes::from(vec![100 + i; 9]));
                    want.extend_from_slice(&[100 + i; 9]);
                }
            }
            assert_eq!(outbox.len(), want.len());
            assert_eq!(drain(&mut outbox, &mut pool, step), want);
        }
    }

    #[test]
    fn a_drained_outbox_owns_no_buffer() {
        let (mut outbox, mut pool) = (Outbox::default(), BufferPool::default());
        outbox.writer(&mut pool).push(1);
        outbox.advance(1, &mut pool);
        assert_eq!((outbox.open.capacity(), pool.free.len()), (0, 1));
    }

    #[test]
    fn a_peer_that_always_lags_a_little_costs_no_more_than_its_lag() {
        let (mut outbox, mut pool) = (Outbox::default(), BufferPool::default());
        outbox.writer(&mut pool).extend_from_slice(&[7; 10_000]);
        for _ in 0..1000 {
            outbox.writer(&mut pool).extend_from_slice(&[7; 10_000]);
            outbox.advance(10_000, &mut pool);
            assert_eq!(outbox.len(), 10_000);
        }
        assert!(outbox.open.capacity() <= 128 << 10, "{} bytes", outbox.open.capacity());
    }
}
