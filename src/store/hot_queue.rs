//! What memory knows of one queue: which messages are settled, and the messages whose records the ring still needs.
//!
//! `entries` holds `hot_first..tail` without gaps; a settled one leaves an empty place until it reaches the front. Everything
//! unsettled below `hot_first` is in the cold tier. Bounds: entries by the ring (a checkpoint takes what it passes), runs by
//! how many messages consumers settle out of order.

use std::collections::{BTreeMap, VecDeque};

use super::contract::Seq;
use super::record::Lsn;
use crate::message::{DeliveryOptions, Message};

/// Starts of settled runs that changed since the last checkpoint, beyond which their segments wait for the floor.
const TOUCHED_RUNS_MAX: usize = 256;

/// Numbers that may be left out at once behind unsettled messages; the broker keeps to much less.
const SKIPPED_MAX: u64 = 1 << 20;

/// A message whose record is in the ring.
#[derive(Debug)]
pub struct HotEntry {
    /// Its record.
    pub lsn: Lsn,
    /// How it is to be delivered.
    pub options: DeliveryOptions,
    /// The message; `None` once it is settled.
    pub message: Option<Message>,
}

/// The numbers of a queue that its stored row holds; equal numbers need no new row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Everything below is settled.
    pub floor: Seq,
    /// One more than the last message before the checkpoint.
    pub tail: Seq,
    /// Unsettled messages in the cold tier.
    pub messages: u64,
    /// Sum of their sizes.
    pub bytes: u64,
    /// Counts changes of the sparse runs.
    pub runs_changed: u64,
}

/// One queue.
#[derive(Debug)]
pub struct HotQueue {
    /// Messages from `hot_first` on.
    pub entries: VecDeque<HotEntry>,
    /// Sequence number of the first entry.
    pub hot_first: Seq,
    /// The next message's number.
    pub tail: Seq,
    /// Everything below is settled.
    pub floor: Seq,
    /// Settled runs above the floor, start to end (exclusive); never adjacent.
    pub runs: BTreeMap<Seq, Seq>,
    /// Unsettled messages in the cold tier.
    pub cold_messages: u64,
    /// Sum of their sizes.
    pub cold_bytes: u64,
    /// Unsettled entries.
    pub hot_messages: u64,
    /// Sum of their sizes.
    pub hot_bytes: u64,
    /// Segments in the cold tier, settled ones included until a checkpoint removes them.
    pub segments: u64,
    /// The floor up to which settled segments were removed.
    pub swept: Seq,
    /// Starts of runs that grew since the last checkpoint, below `hot_first`.
    pub touched: Vec<Seq>,
    /// Counts changes of `runs`.
    pub runs_changed: u64,
    /// What the stored row says.
    pub written: Option<Stamp>,
    /// The next checkpoint looks at this queue.
    pub dirty: bool,
}

/// A settle operation that contradicts the queue's state.
#[derive(Debug)]
pub struct Contradiction(pub &'static str);

impl Default for HotQueue {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            hot_first: 1,
            tail: 1,
            floor: 1,
            runs: BTreeMap::new(),
            cold_messages: 0,
            cold_bytes: 0,
            hot_messages: 0,
            hot_bytes: 0,
            segments: 0,
            swept: 0,
            touched: Vec::new(),
            runs_changed: 0,
            written: None,
            dirty: false,
        }
    }
}

impl HotQueue {
    /// Appends a message. A number below the tail was seen before a restart and is skipped; numbers left out before it count
    /// as settled.
    pub fn enqueue(
        &mut self,
        seq: Seq,
        lsn: Lsn,
        options: DeliveryOptions,
        message: Message,
    ) -> Result<(), Contradiction> {
        if seq < self.tail {
            return Ok(());
        }
        if seq > self.tail {
            self.skip_to(seq, lsn)?;
        }
        let settled = self.is_settled(seq);
        self.tail = seq + 1;
        if !settled {
            self.hot_messages += 1;
            self.hot_bytes += u64::from(message.size());
        }
        let options = if settled { DeliveryOptions::default() } else { options };
        self.entries.push_back(HotEntry { lsn, options, message: (!settled).then_some(message) });
        self.drop_below_floor();
        Ok(())
    }

    /// The numbers up to `seq` were settled before they got here. Behind unsettled messages they take places like others.
    fn skip_to(&mut self, seq: Seq, lsn: Lsn) -> Result<(), Contradiction> {
        let first = self.tail;
        if self.floor >= first {
            (self.tail, self.hot_first) = (seq, seq);
            self.entries.clear();
            self.add_settled(first, seq);
            return Ok(());
        }
        if seq - first > SKIPPED_MAX {
            return Err(Contradiction("a queue's numbers have a gap"));
        }
        for _ in first..seq {
            self.entries.push_back(HotEntry { lsn, options: DeliveryOptions::default(), message: None });
        }
        self.tail = seq;
        self.add_settled(first, seq);
        self.drop_below_floor();
        Ok(())
    }

    /// `first..end` counts as settled. After a restart runs of the cold tier may lie there already, and beyond.
    fn add_settled(&mut self, first: Seq, end: Seq) {
        let (mut start, mut end) = (first, end);
        while let Some((s, e)) = self.runs.range(..=end).next_back().map(|(s, e)| (*s, *e))
            && e >= start
        {
            self.runs.remove(&s);
            (start, end) = (start.min(s), end.max(e));
        }
        self.runs_changed += 1;
        if start <= self.floor {
            self.floor = self.floor.max(end);
        } else {
            self.runs.insert(start, end);
        }
    }

    /// One message is settled.
    #[must_use]
    pub fn is_settled(&self, seq: Seq) -> bool {
        seq < self.floor || self.runs.range(..=seq).next_back().is_some_and(|(_, end)| seq < *end)
    }

    /// All of `first..end` is settled, by one run.
    fn is_settled_whole(&self, first: Seq, end: Seq) -> bool {
        end <= self.floor || self.runs.range(..=first).next_back().is_some_and(|(_, e)| end <= *e)
    }

    /// Some of `first..end` is settled.
    fn is_settled_partly(&self, first: Seq, end: Seq) -> bool {
        first < self.floor || self.runs.range(..end).next_back().is_some_and(|(_, e)| first < *e)
    }

    /// Settles `count` messages. Returns the bytes that became dead in the cold tier.
    pub fn settle(&mut self, first: Seq, count: u64, bytes: u64) -> Result<u64, Contradiction> {
        let end = first.checked_add(count).ok_or(Contradiction("a settled run is too long"))?;
        if count == 0 || self.is_settled_whole(first, end) {
            return Ok(0);
        }
        if self.is_settled_partly(first, end) {
            return Err(Contradiction("a settled run overlaps an earlier one"));
        }
        // Only what was enqueued can be settled, and replay sees enqueues first.
        if end > self.tail {
            return Err(Contradiction("a settled run ends behind the queue's tail"));
        }
        let hot = self.settle_hot(first, end)?;
        let cold_count = end.min(self.hot_first).saturating_sub(first);
        let cold = bytes.checked_sub(hot).ok_or(Contradiction("a settled run's bytes are too few"))?;
        if (cold_count == 0) != (cold == 0) {
            return Err(Contradiction("a settled run's bytes are not its messages' sizes"));
        }
        let too_many = Contradiction("a settled run is larger than the queue");
        self.cold_messages = self.cold_messages.checked_sub(cold_count).ok_or(too_many)?;
        let too_many = Contradiction("a settled run is larger than the queue");
        self.cold_bytes = self.cold_bytes.checked_sub(cold).ok_or(too_many)?;
        self.extend_settled(first, end);
        self.drop_below_floor();
        Ok(cold)
    }

    /// Empties the places of the entries in `first..end`; returns their bytes.
    fn settle_hot(&mut self, first: Seq, end: Seq) -> Result<u64, Contradiction> {
        let mut bytes = 0;
        for seq in first.max(self.hot_first)..end.max(self.hot_first) {
            let entry =
                &mut self.entries[usize::try_from(seq - self.hot_first).expect("entries are in memory")];
            let message = entry.message.take().ok_or(Contradiction("a message is settled twice"))?;
            entry.options = DeliveryOptions::default();
            bytes += u64::from(message.size());
            self.hot_messages -= 1;
        }
        self.hot_bytes -= bytes;
        Ok(bytes)
    }

    fn extend_settled(&mut self, first: Seq, end: Seq) {
        if first == self.floor {
            self.floor = end;
            if let Some(next) = self.runs.remove(&end) {
                self.floor = next;
                self.runs_changed += 1;
            }
            return;
        }
        self.runs_changed += 1;
        let end = self.runs.remove(&end).unwrap_or(end);
        let before =
            self.runs.range(..first).next_back().filter(|(_, e)| **e == first).map(|(start, _)| *start);
        let start = before.unwrap_or(first);
        self.runs.insert(start, end);
        if start < self.hot_first && self.touched.len() < TOUCHED_RUNS_MAX && !self.touched.contains(&start) {
            self.touched.push(start);
        }
    }

    fn drop_below_floor(&mut self) {
        while self.hot_first < self.floor && self.entries.pop_front().is_some() {
            self.hot_first += 1;
        }
        if self.entries.is_empty() {
            self.hot_first = self.tail;
            // A queue that once had a long backlog in the ring does not keep the memory for ever.
            if self.entries.capacity() > 1024 {
                self.entries.shrink_to(64);
            }
        }
    }

    /// How many entries have records before `lsn`.
    #[must_use]
    pub fn entries_before(&self, lsn: Lsn) -> usize {
        self.entries.partition_point(|entry| entry.lsn < lsn)
    }

    /// A checkpoint at `lsn` is durable: the entries before it are in the cold tier now.
    pub fn forget_before(&mut self, lsn: Lsn) {
        for _ in 0..self.entries_before(lsn) {
            let Some(entry) = self.entries.pop_front() else { break };
            self.hot_first += 1;
            if let Some(message) = entry.message {
                let size = u64::from(message.size());
                self.hot_messages -= 1;
                self.hot_bytes -= size;
                self.cold_messages += 1;
                self.cold_bytes += size;
            }
        }
        self.drop_below_floor();
    }

    /// Unsettled messages and their bytes.
    #[must_use]
    pub fn total(&self) -> (u64, u64) {
        (self.cold_messages + self.hot_messages, self.cold_bytes + self.hot_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MessageHead;

    fn filled(n: u64) -> (HotQueue, u64) {
        let mut queue = HotQueue::default();
        let message = Message::new("t", b"payload", MessageHead::default());
        let size = u64::from(message.size());
        for seq in 1..=n {
            queue.enqueue(seq, seq * 4096, DeliveryOptions::default(), message.clone()).unwrap();
        }
        (queue, size)
    }

    #[test]
    fn settling_in_any_order_ends_with_an_empty_queue_and_no_runs() {
        let (mut queue, size) = filled(10);
        for seq in [5, 7, 6, 1, 10, 2, 3, 9, 8, 4] {
            queue.settle(seq, 1, size).unwrap();
            assert!(queue.is_settled(seq));
        }
        assert_eq!((queue.floor, queue.tail, queue.total()), (11, 11, (0, 0)));
        assert!(queue.runs.is_empty() && queue.entries.is_empty());
    }

    #[test]
    fn a_run_that_is_settled_again_changes_nothing_and_an_overlap_is_refused() {
        let (mut queue, size) = filled(10);
        queue.settle(4, 3, 3 * size).unwrap();
        queue.settle(5, 1, size).unwrap();
        assert_eq!(queue.total(), (7, 7 * size));
        assert!(queue.settle(6, 2, 2 * size).is_err());
    }

    #[test]
    fn numbers_that_are_left_out_count_as_settled() {
        let (mut queue, size) = filled(3);
        let message = Message::new("t", b"payload", MessageHead::default());
        queue.enqueue(7, 9 * 4096, DeliveryOptions::default(), message.clone()).unwrap();
        assert!((4..7).all(|seq| queue.is_settled(seq)) && !queue.is_settled(7));
        assert_eq!((queue.tail, queue.total()), (8, (4, 4 * size)));
        queue.settle(1, 3, 3 * size).unwrap();
        assert_eq!((queue.floor, queue.entries.len()), (7, 1));
        queue.settle(7, 1, size).unwrap();
        queue.enqueue(5_000_000, 10 * 4096, DeliveryOptions::default(), message).unwrap();
        assert_eq!((queue.floor, queue.tail, queue.total()), (5_000_000, 5_000_001, (1, size)));
        assert!(queue.runs.is_empty());
    }

    #[test]
    fn a_run_across_the_border_is_counted_on_both_sides() {
        let (mut queue, size) = filled(10);
        queue.forget_before(6 * 4096);
        assert_eq!((queue.cold_messages, queue.hot_messages, queue.hot_first), (5, 5, 6));
        assert_eq!(queue.settle(4, 4, 4 * size).unwrap(), 2 * size);
        assert_eq!((queue.cold_messages, queue.hot_messages), (3, 3));
        assert_eq!((queue.cold_bytes, queue.hot_bytes), (3 * size, 3 * size));
    }
}
