//! Volatile queues that get a copy in the store: because somebody who outlives the process takes part, or for want of memory.

use crate::broker::Broker;
use crate::broker::api::DeliveryId;
use crate::queue::window::Entry;
use crate::queue::{Owner, QueueKey};
use crate::session::SessionKey;
use crate::store::contract::{QueueId, Seq, Target, Targets};

/// A message that is under way: its number, its session and its delivery.
type Held = (Seq, SessionKey, DeliveryId);

impl Broker {
    /// The messages of a volatile queue are stored from now on, under new numbers. A session's own deliveries under way are
    /// not: if its connection breaks, they end with it. With `scratch` the copy is for want of memory only.
    pub(super) fn promote_queue(&mut self, key: QueueKey, scratch: bool) {
        let id = self.next_queue;
        self.next_queue = QueueId(id.0.checked_add(1).expect("a queue each second lasts 136 years"));
        self.batch.create_queue(id);
        self.queue_keys.insert(id, key);
        let (held, entries) = self.held_of(key);
        let queue = &mut self.queues[key as usize];
        let unstored = u64::from(queue.unsettled()) - entries.len() as u64;
        let all = queue.promote(id, scratch, entries, unstored, &mut self.budget);
        for (at, mut entry) in all.into_iter().enumerate() {
            let old = std::mem::replace(&mut entry.seq, at as Seq + 1);
            let target = Target { queue: id, seq: entry.seq, options: entry.options.clone() };
            self.batch.enqueue(entry.message.clone(), Targets::from_elem(target, 1));
            let holder = held.binary_search_by_key(&old, |(seq, ..)| *seq).ok().map(|at| held[at]);
            if let Some((_, session, delivery)) = holder {
                self.sessions[session as usize].inflight.set_seq(delivery, entry.seq);
            }
            queue.readmit(entry, holder.is_some(), self.batch.id(), &mut self.budget);
        }
    }

    /// What is under way of a queue and may come back to it. What may not come back gets the number 0.
    fn held_of(&mut self, key: QueueKey) -> (Vec<Held>, Vec<Entry>) {
        let queue_ref = self.queue_ref(key);
        let own = match self.queues[key as usize].owner() {
            Owner::Session(session) => Some(session as usize),
            Owner::Group(_) => None,
        };
        let (mut held, mut entries, mut gone) = (Vec::<Held>::new(), Vec::new(), Vec::new());
        let sessions = self.sessions.iter().filter(|(session, _)| own.is_none_or(|own| own == *session));
        for (session_key, session) in sessions {
            for slot in session.inflight.iter().filter(|slot| slot.queue == queue_ref) {
                let Some(kept) = &slot.held else {
                    gone.push((session_key, slot.id));
                    continue;
                };
                held.push((slot.seq, session_key as SessionKey, slot.id));
                let (message, options) = (kept.message.clone(), kept.options.clone());
                entries.push(Entry { seq: slot.seq, message, options });
            }
        }
        for (session, delivery) in gone {
            self.sessions[session].inflight.set_seq(delivery, 0);
        }
        held.sort_unstable();
        (held, entries)
    }

    /// A scratch queue that has become empty needs the store no longer.
    pub(super) fn demote_queue(&mut self, key: QueueKey) {
        if let Some(id) = self.queues[key as usize].demote() {
            self.queue_keys.remove(&id);
            self.batch.delete_queue(id);
        }
    }
}
