//! Unsettled deliveries of a link, in the order of the local queue: which are under way, under which packet identifier, and
//! what goes next. Pure.
//!
//! ```text
//! base <= cursor <= end      base..cursor: sent on this connection     cursor..end: waiting
//! ```
//! A slot is emptied when its delivery is settled; empty slots at the front go away. A new connection puts the cursor back to
//! `base`, so that everything unsettled goes again in its first order, under its first identifier, with DUP set.
//!
//! Bounds: the run from `base` to `cursor` is at most `messages_max` long, settled slots included, which also bounds what one
//! broken connection sends twice; the bytes of unsettled messages in it stay within `bytes_max`, except for a single message.
//! The number of slots is bounded by the receive maximum that the link offers to the local broker.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU16;

use crate::broker::api::DeliveryId;
use crate::message::Message;
use crate::time::Mono;

/// One delivery that is not settled.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What to settle.
    pub delivery: DeliveryId,
    /// The message.
    pub message: Message,
    /// RETAIN flag of the delivery.
    pub retain: bool,
    /// An earlier attachment may have sent it.
    pub duplicate: bool,
    /// Packet identifier, once it was sent.
    pub id: Option<NonZeroU16>,
    /// When it was sent last.
    pub sent_at: Mono,
    /// How often the upstream refused it with a reason that may pass.
    pub refusals: u8,
}

impl Entry {
    /// A delivery that this window has not sent yet.
    #[must_use]
    pub fn new(delivery: DeliveryId, message: Message, retain: bool, duplicate: bool) -> Self {
        Self { delivery, message, retain, duplicate, id: None, sent_at: Mono::default(), refusals: 0 }
    }
}

/// The deliveries of one link.
#[derive(Debug)]
pub struct Window {
    slots: VecDeque<Option<Entry>>,
    base: u64,
    cursor: u64,
    ids: HashMap<NonZeroU16, u64>,
    last_id: u16,
    unsettled: usize,
    in_flight: usize,
    in_flight_bytes: u64,
    messages_max: u64,
    bytes_max: u64,
}

impl Window {
    /// An empty window with the bounds of the configuration.
    #[must_use]
    pub fn new(messages_max: u16, bytes_max: u32) -> Self {
        Self {
            slots: VecDeque::new(),
            base: 0,
            cursor: 0,
            ids: HashMap::new(),
            last_id: 0,
            unsettled: 0,
            in_flight: 0,
            in_flight_bytes: 0,
            messages_max: u64::from(messages_max.max(1)),
            bytes_max: u64::from(bytes_max),
        }
    }

    /// A new connection with its own bound: everything unsettled waits again.
    pub fn rewind(&mut self, messages_max: u16) {
        self.cursor = self.base;
        self.in_flight = 0;
        self.in_flight_bytes = 0;
        self.messages_max = u64::from(messages_max.max(1));
    }

    /// The deliveries belong to an attachment that is over; the broker will hand them out again.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.ids.clear();
        self.base = self.cursor;
        self.unsettled = 0;
        self.in_flight = 0;
        self.in_flight_bytes = 0;
    }

    /// A delivery joins the end.
    pub fn push(&mut self, entry: Entry) {
        self.unsettled += 1;
        self.slots.push_back(Some(entry));
    }

    /// The next delivery to be sent, if the bounds allow one.
    pub fn peek(&mut self) -> Option<&Entry> {
        while self.cursor < self.end() && self.slot(self.cursor).is_none() {
            self.cursor += 1;
            self.trim();
        }
        let entry = self.slot(self.cursor)?;
        let bytes = self.in_flight_bytes + u64::from(entry.message.size());
        let fits =
            self.cursor - self.base < self.messages_max && (self.in_flight == 0 || bytes <= self.bytes_max);
        fits.then_some(entry)
    }

    /// The delivery that [`peek`](Self::peek) showed is sent now. Returns its identifier and whether it may have been
    /// sent before.
    ///
    /// # Panics
    /// When nothing was shown: a bug of the caller.
    pub fn send(&mut self, now: Mono) -> (NonZeroU16, bool) {
        let position = self.cursor;
        let before = self.slot(position).expect("peek showed this delivery").id;
        let id = before.unwrap_or_else(|| self.free_id());
        self.last_id = if before.is_none() { id.get() } else { self.last_id };
        self.ids.insert(id, position);
        let index = self.index(position);
        let entry = self.slots[index].as_mut().expect("peek showed this delivery");
        entry.id = Some(id);
        entry.sent_at = now;
        self.in_flight += 1;
        self.in_flight_bytes += u64::from(entry.message.size());
        self.cursor += 1;
        (id, entry.duplicate || before.is_some())
    }

    /// The delivery that [`peek`](Self::peek) showed leaves the window unsent.
    ///
    /// # Panics
    /// When nothing was shown: a bug of the caller.
    pub fn skip(&mut self) -> Entry {
        let index = self.index(self.cursor);
        let entry = self.slots[index].take().expect("peek showed this delivery");
        if let Some(id) = entry.id {
            self.ids.remove(&id);
        }
        self.unsettled -= 1;
        self.cursor += 1;
        self.trim();
        entry
    }

    /// The delivery sent under `id` on this connection, if there is one.
    pub fn sent(&mut self, id: u16) -> Option<&mut Entry> {
        let position = *self.ids.get(&NonZeroU16::new(id)?)?;
        let index = self.index(position);
        if position < self.cursor { self.slots[index].as_mut() } else { None }
    }

    /// Takes the delivery sent under `id` on this connection out of the window.
    pub fn settle(&mut self, id: u16) -> Option<Entry> {
        self.sent(id)?;
        let position = self.ids.remove(&NonZeroU16::new(id)?)?;
        let index = self.index(position);
        let entry = self.slots[index].take()?;
        self.unsettled -= 1;
        self.in_flight -= 1;
        self.in_flight_bytes -= u64::from(entry.message.size());
        self.trim();
        Some(entry)
    }

    /// An identifier that no unsettled delivery uses.
    #[must_use]
    pub fn free_id(&self) -> NonZeroU16 {
        let mut id = self.last_id;
        loop {
            id = if id == u16::MAX { 1 } else { id + 1 };
            let candidate = NonZeroU16::new(id).expect("identifiers start at 1");
            // The window is far smaller than the range of identifiers, so one is free.
            if !self.ids.contains_key(&candidate) {
                return candidate;
            }
        }
    }

    /// Deliveries sent on this connection and not yet settled.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Deliveries not settled.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.unsettled
    }

    fn end(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    fn index(&self, position: u64) -> usize {
        usize::try_from(position - self.base).expect("a window fits into memory")
    }

    fn slot(&self, position: u64) -> Option<&Entry> {
        self.slots.get(self.index(position))?.as_ref()
    }

    fn trim(&mut self) {
        while self.base < self.cursor && self.slots.front().is_some_and(Option::is_none) {
            self.slots.pop_front();
            self.base += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::MessageHead;

    fn entry(n: u16) -> Entry {
        let delivery = DeliveryId::new(n).unwrap();
        Entry::new(delivery, Message::new("t", &n.to_be_bytes(), MessageHead::default()), false, false)
    }

    fn send_all(window: &mut Window) -> Vec<(u16, u16, bool)> {
        let mut sent = vec![];
        while let Some(entry) = window.peek() {
            let delivery = entry.delivery.get();
            let (id, dup) = window.send(Mono(0));
            sent.push((delivery, id.get(), dup));
        }
        sent
    }

    #[test]
    fn what_is_sent_again_keeps_order_and_identifier_and_is_marked() {
        let mut window = Window::new(10, 1 << 20);
        (1..=3).for_each(|n| window.push(entry(n)));
        assert_eq!(send_all(&mut window), [(1, 1, false), (2, 2, false), (3, 3, false)]);
        assert_eq!(window.settle(2).unwrap().delivery.get(), 2);
        window.rewind(10);
        window.push(entry(4));
        assert_eq!(send_all(&mut window), [(1, 1, true), (3, 3, true), (4, 4, false)]);
    }

    #[test]
    fn the_run_is_contiguous_so_that_a_late_first_acknowledgement_holds_the_rest() {
        let mut window = Window::new(3, 1 << 20);
        (1..=5).for_each(|n| window.push(entry(n)));
        assert_eq!(send_all(&mut window).len(), 3);
        window.settle(2).unwrap();
        window.settle(3).unwrap();
        assert!(window.peek().is_none());
        window.settle(1).unwrap();
        assert_eq!(send_all(&mut window).len(), 2);
    }

    #[test]
    fn bytes_bound_the_run_but_one_message_always_goes() {
        let size = u32::from(entry(1).message.size() as u16);
        let mut window = Window::new(100, 2 * size);
        (1..=3).for_each(|n| window.push(entry(n)));
        assert_eq!(send_all(&mut window).len(), 2);
        let mut tiny = Window::new(100, 1);
        (1..=2).for_each(|n| tiny.push(entry(n)));
        assert_eq!(send_all(&mut tiny).len(), 1);
    }

    #[test]
    fn identifiers_in_use_are_skipped_after_the_counter_wraps() {
        let mut window = Window::new(10, 1 << 20);
        window.push(entry(1));
        send_all(&mut window);
        window.last_id = u16::MAX;
        window.push(entry(2));
        assert_eq!(send_all(&mut window), [(2, 2, false)]);
    }

    #[test]
    fn an_acknowledgement_for_what_this_connection_has_not_sent_settles_nothing() {
        let mut window = Window::new(1, 1 << 20);
        (1..=2).for_each(|n| window.push(entry(n)));
        send_all(&mut window);
        assert!(window.settle(2).is_none() && window.settle(0).is_none());
        window.rewind(1);
        assert!(window.settle(1).is_none(), "it waits to be sent again");
        assert_eq!(window.unsettled(), 2);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_first_sends_keep_the_order(ops in prop::collection::vec(0u8..6, 1..200)) {
            let mut window = Window::new(4, 1 << 20);
            let (mut next, mut first_sends, mut settled) = (1u16, vec![], vec![]);
            let mut under_way: Vec<u16> = vec![];
            for op in ops {
                match op {
                    0 | 1 => { window.push(entry(next)); next += 1; }
                    2 => for (delivery, id, dup) in send_all(&mut window) {
                        if !dup { first_sends.push(delivery); }
                        under_way.push(id);
                    },
                    3 => if let Some(id) = under_way.pop() { settled.push(window.settle(id).unwrap().delivery.get()); },
                    4 => if !under_way.is_empty() { settled.push(window.settle(under_way.remove(0)).unwrap().delivery.get()); },
                    _ => { window.rewind(4); under_way.clear(); }
                }
                prop_assert_eq!(window.unsettled() + settled.len(), usize::from(next - 1));
                prop_assert!(under_way.len() <= 4 && window.in_flight() == under_way.len());
            }
            prop_assert!(first_sends.is_sorted());
            while window.unsettled() > 0 {
                send_all(&mut window).iter().for_each(|s| under_way.push(s.1));
                under_way.drain(..).for_each(|id| settled.push(window.settle(id).unwrap().delivery.get()));
            }
            settled.sort_unstable();
            prop_assert_eq!(settled, (1..next).collect::<Vec<_>>());
        }
    }
}
