//! Receipts that are due, in the order of their frames.

use super::event::ReceiptTag;
use crate::limits::ConnectionLimits;
use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// A receipt leaves when its frame and all frames before it that asked for one are processed: it speaks for
/// them too (STOMP 1.2, "RECEIPT").
#[derive(Debug)]
pub(super) struct Receipts {
    queue: VecDeque<Entry>,
    /// The tag of the queue's front.
    first: u64,
    /// Bytes of the identifiers in the queue.
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    id: Box<str>,
    done: bool,
}

impl Receipts {
    pub(super) const fn new() -> Receipts {
        Receipts { queue: VecDeque::new(), first: 0, bytes: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether one more has to wait.
    pub(super) fn is_full(&self, limits: &ConnectionLimits) -> bool {
        let full = self.queue.len() >= usize::from(limits.receipts_max)
            || self.bytes >= limits.receipt_bytes_max as usize;
        full && !self.queue.is_empty()
    }

    pub(super) fn push(&mut self, id: &str) -> ReceiptTag {
        let tag = ReceiptTag(self.first + self.queue.len() as u64);
        self.bytes += id.len();
        self.queue.push_back(Entry { id: id.into(), done: false });
        tag
    }

    /// Marks a frame as processed. Returns whether it was due.
    pub(super) fn complete(&mut self, tag: ReceiptTag) -> bool {
        let Some(at) = self.position(tag) else {
            return false;
        };
        !core::mem::replace(&mut self.queue[at].done, true)
    }

    /// The next receipt to write.
    pub(super) fn pop_done(&mut self) -> Option<Box<str>> {
        self.queue.front().filter(|entry| entry.done)?;
        let entry = self.queue.pop_front()?;
        self.bytes -= entry.id.len();
        self.first += 1;
        Some(entry.id)
    }

    /// Forgets a receipt and all later ones. Returns its identifier.
    pub(super) fn cut(&mut self, tag: ReceiptTag) -> Option<Box<str>> {
        let at = self.position(tag)?;
        let mut cut = self.queue.split_off(at);
        self.bytes -= cut.iter().map(|entry| entry.id.len()).sum::<usize>();
        cut.pop_front().map(|entry| entry.id)
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = Receipts { first: self.first + self.queue.len() as u64, ..Receipts::new() };
    }

    fn position(&self, tag: ReceiptTag) -> Option<usize> {
        let at = usize::try_from(tag.0.checked_sub(self.first)?).ok()?;
        (at < self.queue.len()).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_leave_in_the_order_of_their_frames() {
        let mut receipts = Receipts::new();
        let tags = ["a", "b", "c"].map(|id| receipts.push(id));
        assert!(receipts.complete(tags[1]));
        assert!(!receipts.complete(tags[1]), "it is processed once");
        assert_eq!(receipts.pop_done(), None);
        assert!(receipts.complete(tags[0]));
        assert_eq!(receipts.pop_done().as_deref(), Some("a"));
        assert_eq!(receipts.pop_done().as_deref(), Some("b"));
        assert_eq!((receipts.pop_done(), receipts.len(), receipts.bytes), (None, 1, 1));
        assert!(!receipts.complete(tags[0]), "it has left");
    }

    #[test]
    fn a_cut_forgets_what_follows_and_its_tags() {
        let mut receipts = Receipts::new();
        let tags = ["a", "b", "c"].map(|id| receipts.push(id));
        assert_eq!(receipts.cut(tags[1]).as_deref(), Some("b"));
        assert_eq!((receipts.len(), receipts.bytes), (1, 1));
        assert!(!receipts.complete(tags[2]));
    }

    #[test]
    fn one_long_identifier_is_taken_when_nothing_waits() {
        let limits =
            ConnectionLimits { receipts_max: 2, receipt_bytes_max: 4, ..ConnectionLimits::default() };
        let mut receipts = Receipts::new();
        assert!(!receipts.is_full(&limits));
        receipts.push("longer than four");
        assert!(receipts.is_full(&limits));
    }
}
