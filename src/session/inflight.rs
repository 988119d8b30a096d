//! Unsettled deliveries of one session, by delivery identifier.
//!
//! Identifiers are handed out in sequence, wrap around and skip those still in use. The table is a power of two in size and an
//! identifier's place is its low bits, so looking one up costs no hashing; two identifiers in use never share a place, since
//! one that would is skipped. Bound: 65,535 slots, and in practice the session's window plus what is parked.

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

    fn place(&self, id: DeliveryId) -> usize {
        usize::from(id.get()) & (self.slots.len() - 1)
    }

    /// The next identifier: in nobody's use until [`insert`](Self::insert) takes it. `None` when all are in use.
    pub fn next_id(&mut self) -> Option<DeliveryId> {
        if self.used * 2 >= self.slots.len() {
            self.grow();
        }
        for _ in 0..self.slots.len() * 2 {
            self.last = self.last.checked_add(1).unwrap_or(1);
            let id = NonZeroU16::new(self.last).expect("it wraps around to 1");
            let place = self.place(id);
            if self.slots[place].is_none() {
                return Some(id);
            }
        }
        None
    }

    fn grow(&mut self) {
        let len = (self.slots.len() * 2).clamp(SLOTS_MIN, SLOTS_MAX);
        if len == self.slots.len() {
            return;
        }
        let old = std::mem::take(&mut self.slots);
        self.slots.resize_with(len, || None);
        for slot in old.into_iter().flatten() {
            let place = self.place(slot.id);
            self.slots[place] = Some(slot);
        }
    }

    /// Takes an identifier from [`next_id`](Self::next_id) into use.
    pub fn insert(&mut self, slot: Slot) {
        let place = self.place(slot.id);
        assert!(self.slots[place].is_none(), "an identifier is used once at a time");
        self.count_in(&slot);
        self.used += 1;
        self.slots[place] = Some(slot);
    }

    /// Takes an identifier into use that the store remembers. `false` when it is in use already.
    pub fn restore(&mut self, slot: Slot) -> bool {
        while self.slots.is_empty()
            || self.slots[self.place(slot.id)].as_ref().is_some_and(|other| other.id != slot.id)
        {
            if self.slots.len() == SLOTS_MAX {
                return false;
            }
            self.grow();
        }
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
        if self.slots.is_empty() {
            return None;
        }
        self.slots[self.place(id)].as_ref().filter(|slot| slot.id == id)
    }

    /// Ends the delivery under `id`.
    pub fn remove(&mut self, id: DeliveryId) -> Option<Slot> {
        self.get(id)?;
        let place = self.place(id);
        let slot = self.slots[place].take()?;
        self.count_out(slot.stage, slot.size);
        self.used -= 1;
        Some(slot)
    }

    /// Moves the delivery under `id` to another stage; `batch` changed its row.
    pub fn set_stage(&mut self, id: DeliveryId, stage: Stage, batch: BatchId) {
        if self.get(id).is_none() {
            return;
        }
        let place = self.place(id);
        let Some(mut slot) = self.slots[place].take() else { return };
        self.count_out(slot.stage, slot.size);
        slot.stage = stage;
        slot.batch = batch;
        self.count_in(&slot);
        self.slots[place] = Some(slot);
    }

    /// The message of the delivery `id` has a new place in its queue.
    pub fn set_seq(&mut self, id: DeliveryId, seq: Seq) {
        if self.get(id).is_some() {
            let place = self.place(id);
            if let Some(slot) = &mut self.slots[place] {
                slot.seq = seq;
            }
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
