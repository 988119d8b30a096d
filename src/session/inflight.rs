//! Unsettled deliveries of one session, by delivery identifier.
//!
//! The identifier of a message from the session's own queue follows from its place there, so that it is the same again after a
//! restart, of which nothing was stored. Where that one is in use, and for messages of shared subscriptions, identifiers are
//! handed out in sequence, wrap around and skip those still in use. The table is a power of two in size and at most half full,
//! as long as it can be; an identifier lies at its low bits or in the first free slot behind, so looking one up costs no hashing.
//! Bound: 65,536 slots, and in practice twice the session's window and what is parked.

use std::num::NonZeroU16;

use crate::broker::api::{ConsumerId, DeliveryId};
use crate::message::{DeliveryOptions, Message};
use crate::queue::QueueRef;
use crate::store::contract::{BatchId, Seq};

/// What a delivery waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// PUBACK.
    AwaitAck,
    /// PUBREC.
    AwaitReceived,
    /// PUBCOMP; the message itself is settled.
    AwaitCompleted,
    /// The connection is gone; the message waits in its queue, and its next delivery will use this identifier again.
    Parked,
}

/// A message of a shared queue, kept by the member that has it in case it has to go back.
#[derive(Clone, Debug)]
pub struct Held {
    /// The message.
    pub message: Message,
    /// As they are in the group's queue.
    pub options: DeliveryOptions,
    /// The consumer that has it; `None`: a subscription.
    pub consumer: Option<ConsumerId>,
    /// How often it had come back before.
    pub redeliveries: u32,
}

/// One unsettled delivery.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The identifier.
    pub id: DeliveryId,
    /// What it waits for.
    pub stage: Stage,
    /// A row of the store remembers it (QoS 2 of a durable session).
    pub has_row: bool,
    /// The message's size in bytes.
    pub size: u32,
    /// The message's place in its queue.
    pub seq: Seq,
    /// The queue.
    pub queue: QueueRef,
    /// The last batch that changed its row.
    pub batch: BatchId,
    /// Only for messages of a group's queue.
    pub held: Option<Box<Held>>,
}

/// The table. See the module's text.
#[derive(Debug, Default)]
pub struct InFlight {
    slots: Vec<Option<Slot>>,
    used: usize,
    count: u16,
    bytes: u64,
    last: u16,
}

const SLOTS_MIN: usize = 4;
const SLOTS_MAX: usize = 1 << 16;

impl InFlight {
    /// Deliveries that count against the window: all but the parked ones.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Bytes of the messages under way.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Nothing is unsettled, parked ones included.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// A message of `size` bytes fits; one message is always allowed.
    #[must_use]
    #[inline]
    pub fn has_room(&self, size: u32, messages_max: u16, bytes_max: u32) -> bool {
        self.count == 0 || (self.count < messages_max && self.bytes + u64::from(size) <= u64::from(bytes_max))
    }

    /// The identifier of the message at the place `seq` of the session's own queue: always the same one, unless it is in use.
    /// In nobody's use until [`insert`](Self::insert) takes it. `None` when all are in use.
    pub fn id_for(&mut self, seq: Seq) -> Option<DeliveryId> {
        let id =
            u16::try_from(seq.saturating_sub(1) % u64::from(u16::MAX)).expect("a remainder of 65,535 fits");
        let id = NonZeroU16::MIN.saturating_add(id);
        if self.get(id).is_none() { Some(id) } else { self.next_id() }
    }

    /// The next identifier: in nobody's use until [`insert`](Self::insert) takes it. `None` when all are in use.
    pub fn next_id(&mut self) -> Option<DeliveryId> {
        for _ in 0..u16::MAX {
            self.last = self.last.checked_add(1).unwrap_or(1);
            let id = NonZeroU16::new(self.last).expect("it wraps around to 1");
            if self.get(id).is_none() {
                return Some(id);
            }
        }
        None
    }

    fn home(&self, id: DeliveryId) -> usize {
        usize::from(id.get()) & (self.slots.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    #[inline]
    fn find(&self, id: DeliveryId) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        // One slot is always free: there is one more than there are identifiers.
        let mut at = self.home(id);
        loop {
            match &self.slots[at] {
                None => return None,
                Some(slot) if slot.id == id => return Some(at),
                Some(_) => at = self.after(at),
            }
        }
    }

    fn put(&mut self, slot: Slot) {
        let mut at = self.home(slot.id);
        while self.slots[at].is_some() {
            at = self.after(at);
        }
        self.slots[at] = Some(slot);
    }

    fn grow(&mut self) {
        let len = (self.slots.len() * 2).clamp(SLOTS_MIN, SLOTS_MAX);
        if len == self.slots.len() {
            return;
        }
        let old = std::mem::take(&mut self.slots);
        self.slots.resize_with(len, || None);
        old.into_iter().flatten().for_each(|slot| self.put(slot));
    }

    /// Takes an identifier from [`next_id`](Self::next_id) or [`id_for`](Self::id_for) into use.
    pub fn insert(&mut self, slot: Slot) {
        assert!(self.get(slot.id).is_none(), "an identifier is used once at a time");
        if self.used * 2 >= self.slots.len() {
            self.grow();
        }
        self.count_in(&slot);
        self.used += 1;
        self.put(slot);
    }

    /// Takes an identifier into use that the store remembers. `false` when it is in use already.
    pub fn restore(&mut self, slot: Slot) -> bool {
        if self.get(slot.id).is_some() {
            return false;
        }
        self.last = self.last.max(slot.id.get());
        self.insert(slot);
        true
    }

    fn count_in(&mut self, slot: &Slot) {
        if slot.stage != Stage::Parked {
            self.count += 1;
        }
        if matches!(slot.stage, Stage::AwaitAck | Stage::AwaitReceived) {
            self.bytes += u64::from(slot.size);
        }
    }

    fn count_out(&mut self, stage: Stage, size: u32) {
        if stage != Stage::Parked {
            self.count -= 1;
        }
        if matches!(stage, Stage::AwaitAck | Stage::AwaitReceived) {
            self.bytes -= u64::from(size);
        }
    }

    /// The delivery under `id`.
    #[must_use]
    pub fn get(&self, id: DeliveryId) -> Option<&Slot> {
        self.slots[self.find(id)?].as_ref()
    }

    /// Ends the delivery under `id`.
    pub fn remove(&mut self, id: DeliveryId) -> Option<Slot> {
        let at = self.find(id)?;
        let slot = self.slots[at].take()?;
        self.close_gap(at);
        self.count_out(slot.stage, slot.size);
        self.used -= 1;
        Some(slot)
    }

    /// Slots behind a free one move up, unless they would then lie before their home.
    fn close_gap(&mut self, mut gap: usize) {
        let distance = |from: usize, to: usize, len: usize| to.wrapping_sub(from) & (len - 1);
        let len = self.slots.len();
        let mut at = self.after(gap);
        while let Some(slot) = &self.slots[at] {
            if distance(self.home(slot.id), at, len) >= distance(gap, at, len) {
                self.slots.swap(gap, at);
                gap = at;
            }
            at = self.after(at);
        }
    }

    /// Moves the delivery under `id` to another stage; `batch` changed its row.
    pub fn set_stage(&mut self, id: DeliveryId, stage: Stage, batch: BatchId) {
        let Some(at) = self.find(id) else { return };
        let Some(mut slot) = self.slots[at].take() else { return };
        self.count_out(slot.stage, slot.size);
        slot.stage = stage;
        slot.batch = batch;
        self.count_in(&slot);
        self.slots[at] = Some(slot);
    }

    /// The message of the delivery `id` has a new place in its queue.
    pub fn set_seq(&mut self, id: DeliveryId, seq: Seq) {
        if let Some(at) = self.find(id)
            && let Some(slot) = &mut self.slots[at]
        {
            slot.seq = seq;
        }
    }

    /// All deliveries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten()
    }

    /// Gives the table's memory back when nothing is in it.
    pub fn shrink(&mut self) {
        if self.used == 0 {
            self.slots = Vec::new();
        }
    }

    /// Counts everything again and compares.
    ///
    /// # Panics
    /// When a counter is wrong.
    pub fn check(&self) {
        let live = self.iter().filter(|slot| slot.stage != Stage::Parked).count();
        assert_eq!((live, self.iter().count()), (usize::from(self.count), self.used), "I4: deliveries");
        let under_way = |slot: &&Slot| matches!(slot.stage, Stage::AwaitAck | Stage::AwaitReceived);
        let bytes: u64 = self.iter().filter(under_way).map(|slot| u64::from(slot.size)).sum();
        assert_eq!(bytes, self.bytes, "I4: bytes under way");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(id: DeliveryId, stage: Stage) -> Slot {
        let queue = QueueRef { key: 0, serial: 0 };
        Slot { id, stage, has_row: false, size: 10, seq: 1, queue, batch: BatchId(0), held: None }
    }

    fn take(table: &mut InFlight) -> u16 {
        let id = table.next_id().unwrap();
        table.insert(slot(id, Stage::AwaitAck));
        table.check();
        id.get()
    }

    #[test]
    fn identifiers_run_in_sequence_wrap_around_and_skip_those_in_use() {
        let mut table = InFlight::default();
        let kept = take(&mut table);
        assert_eq!(kept, 1);
        let mut last = 1;
        for _ in 0..200_000 {
            let id = take(&mut table);
            assert!(id != kept && (id > last || last > 65_000));
            last = id;
            assert!(table.remove(NonZeroU16::new(id).unwrap()).is_some());
        }
        assert_eq!(table.count(), 1);
    }

    #[test]
    fn a_place_in_the_queue_has_the_same_identifier_again_unless_it_is_in_use() {
        let id = |table: &mut InFlight, seq| table.id_for(seq).unwrap().get();
        let mut table = InFlight::default();
        for (seq, expected) in
            [(1, 1), (2, 2), (65_535, 65_535), (65_536, 1), (65_537, 2), (u64::MAX, 65_535)]
        {
            assert_eq!(id(&mut table, seq), expected);
        }
        let held = table.id_for(7).unwrap();
        table.insert(slot(held, Stage::AwaitReceived));
        let other = id(&mut table, 7 + 65_535);
        assert_ne!(other, 7);
        for seq in 8..70_000 {
            let id = table.id_for(seq).unwrap();
            assert_ne!(id, held);
            table.insert(slot(id, Stage::AwaitAck));
            table.check();
            table.remove(id);
        }
    }

    #[test]
    fn the_table_behaves_like_a_map_whatever_lies_side_by_side() {
        let mut table = InFlight::default();
        let mut map = std::collections::BTreeMap::new();
        let mut random = 1u64;
        for step in 0..200_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Few low bits, so that many identifiers have the same home.
            let raw = (random >> 33) as u16 & 0x0f0f | 0x10;
            let id = NonZeroU16::new(raw).unwrap();
            if map.remove(&id).is_some() {
                assert_eq!(table.remove(id).map(|slot| slot.id), Some(id));
            } else if map.len() < 40 {
                map.insert(id, ());
                table.insert(slot(id, Stage::AwaitAck));
            }
            assert_eq!(table.get(id).is_some(), map.contains_key(&id));
            if step % 97 == 0 {
                table.check();
                assert!(map.keys().all(|id| table.get(*id).is_some_and(|slot| slot.id == *id)));
            }
        }
    }

    #[test]
    fn every_identifier_can_be_in_use_at_once_and_then_none_is_left() {
        let mut table = InFlight::default();
        let mut seen = vec![false; 65_536];
        for _ in 0..65_535 {
            let id = table.next_id().unwrap();
            table.insert(slot(id, Stage::AwaitAck));
            assert!(!std::mem::replace(&mut seen[usize::from(id.get())], true));
        }
        assert_eq!(table.next_id(), None);
    }

    #[test]
    fn parked_deliveries_keep_their_identifier_and_leave_the_window() {
        let mut table = InFlight::default();
        let id = NonZeroU16::new(take(&mut table)).unwrap();
        table.set_stage(id, Stage::Parked, BatchId(0));
        table.check();
        assert_eq!((table.count(), table.bytes(), table.is_empty()), (0, 0, false));
        assert_ne!(take(&mut table), id.get());
    }

    #[test]
    fn one_message_is_always_allowed_whatever_its_size() {
        let mut table = InFlight::default();
        assert!(table.has_room(u32::MAX, 1, 1));
        take(&mut table);
        assert!(!table.has_room(1, 10, 10));
        assert!(table.has_room(1, 10, 11));
    }

    #[test]
    fn identifiers_that_the_store_remembers_are_taken_into_use() {
        let mut table = InFlight::default();
        for id in [5, 1, 65_535, 9] {
            assert!(table.restore(slot(NonZeroU16::new(id).unwrap(), Stage::AwaitCompleted)));
            assert!(!table.restore(slot(NonZeroU16::new(id).unwrap(), Stage::AwaitCompleted)));
        }
        table.check();
        assert_eq!(take(&mut table), 2);
    }
}
