//! A record's bytes while it is put together and written: small parts in one buffer, large bodies where they already lie.
//!
//! A body that is not copied costs no memory while it is committed. Invariant: bodies are in the order of their places, and a
//! place is never behind the end of the buffer. Bounds: the pieces of a record are as many as its bodies, twice, and one.

use bytes::Bytes;

use super::layout::BLOCK_BYTES;

/// Bodies from this size on are written from where they lie.
pub const BODY_BYTES_MIN: usize = 16 << 10;

/// Bytes that are collected for one write where a record lies in pieces; a whole number of blocks.
pub const PIECE_BYTES: usize = 256 << 10;

const _: () = assert!(PIECE_BYTES.is_multiple_of(BLOCK_BYTES as usize));

#[derive(Debug)]
struct Body {
    /// Where in the buffer it belongs.
    at: usize,
    bytes: Bytes,
}

/// A record in pieces.
#[derive(Debug, Default)]
pub struct Frame {
    /// All that is not in a body.
    pub buffer: Vec<u8>,
    bodies: Vec<Body>,
    body_bytes: usize,
}

/// A state of a [`Frame`] to return to.
#[derive(Clone, Copy, Debug)]
pub struct FrameMark {
    buffer: usize,
    bodies: usize,
}

impl Frame {
    /// A frame that holds these bytes.
    #[must_use]
    pub fn starting_with(buffer: Vec<u8>) -> Self {
        Self { buffer, ..Self::default() }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len() + self.body_bytes
    }

    /// Appends a body without a copy.
    pub fn push_body(&mut self, bytes: Bytes) {
        self.body_bytes += bytes.len();
        self.bodies.push(Body { at: self.buffer.len(), bytes });
    }

    /// Here [`rewind`](Self::rewind) returns to.
    #[must_use]
    pub fn mark(&self) -> FrameMark {
        FrameMark { buffer: self.buffer.len(), bodies: self.bodies.len() }
    }

    /// Takes back what was appended since `mark`.
    pub fn rewind(&mut self, mark: FrameMark) {
        self.buffer.truncate(mark.buffer);
        self.body_bytes -= self.bodies.drain(mark.bodies..).map(|body| body.bytes.len()).sum::<usize>();
    }

    /// Leaves the first `len` bytes of the buffer and no body.
    pub fn clear(&mut self, len: usize) {
        self.rewind(FrameMark { buffer: len, bodies: 0 });
    }

    /// The bytes in order, in pieces; some may be empty.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.bodies.iter().map(|body| body.at));
        let ends = self.bodies.iter().map(|body| body.at).chain(std::iter::once(self.buffer.len()));
        let parts = starts.zip(ends).map(|(start, end)| &self.buffer[start..end]);
        let bodies = self.bodies.iter().map(|body| &body.bytes[..]).chain(std::iter::once(&[][..]));
        parts.zip(bodies).flat_map(|(part, body)| [part, body])
    }

    /// Calls `write` with all bytes in order: at once where they lie together, otherwise in runs of at most [`PIECE_BYTES`], each
    /// but the last one of just that length.
    ///
    /// # Errors
    /// The first of `write`.
    pub fn write_out<E>(&self, mut write: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if self.bodies.is_empty() {
            return write(&self.buffer);
        }
        let mut run = Vec::with_capacity(PIECE_BYTES.min(self.len()));
        for mut piece in self.pieces() {
            while !piece.is_empty() {
                let (now, rest) = piece.split_at(piece.len().min(PIECE_BYTES - run.len()));
                run.extend_from_slice(now);
                piece = rest;
                if run.len() == PIECE_BYTES {
                    write(&run)?;
                    run.clear();
                }
            }
        }
        if run.is_empty() { Ok(()) } else { write(&run) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Frame, Vec<u8>) {
        let mut frame = Frame::default();
        let mut whole = Vec::new();
        for n in 0..7u8 {
            let (part, body) = (vec![n; usize::from(n) * 100], vec![0x80 | n; 200_000 * usize::from(n % 3)]);
            frame.buffer.extend_from_slice(&part);
            whole.extend_from_slice(&part);
            whole.extend_from_slice(&body);
            frame.push_body(body.into());
        }
        (frame, whole)
    }

    #[test]
    fn what_lies_in_pieces_is_written_in_order_and_in_full_runs() {
        let (frame, whole) = sample();
        assert_eq!(frame.len(), whole.len());
        let mut runs = Vec::new();
        let mut note = |run: &[u8]| {
            runs.push(run.to_vec());
            Ok::<(), ()>(())
        };
        frame.write_out(&mut note).unwrap();
        assert!(runs[..runs.len() - 1].iter().all(|run| run.len() == PIECE_BYTES));
        assert!(runs.concat() == whole);
    }

    #[test]
    fn a_frame_returns_to_its_mark() {
        let (mut frame, whole) = sample();
        let mark = frame.mark();
        frame.buffer.push(1);
        frame.push_body(Bytes::from_static(b"body"));
        frame.buffer.push(2);
        frame.rewind(mark);
        assert!(frame.pieces().collect::<Vec<_>>().concat() == whole && frame.len() == whole.len());
        frame.clear(5);
        assert_eq!(frame.len(), 5);
    }
}
