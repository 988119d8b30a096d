//! Consumers that want some messages only, and browsers.
//!
//! Both walk through a queue on their own: first through what is in memory, then through pages read for them alone, which are
//! looked at and thrown away. A consumer with a selector takes what it wants out of turn and remembers how far it has looked; a
//! browser gets copies, and hears when it has come to what was the end when it started. So neither holds up the others, and no
//! message is read twice for the same consumer but the ones it found no room for. Bounds: one page per queue at a time, for
//! whatever purpose; nothing is kept of it.

use crate::broker::Broker;
use crate::broker::api::{ClientEvent, ConsumerId, Delivery};
use crate::message::{Message, Qos};
use crate::queue::group::{Consumer, GroupKey, Taker};
use crate::queue::window::Entry;
use crate::queue::{Load, Owner, QueueKey};
use crate::session::SessionKey;
use crate::store::contract::{Page, Seq};
use crate::time::Now;

/// What a walking consumer makes of a message.
enum Look {
    /// It does not want it.
    Pass,
    /// It has no room, or cannot be sent anything now: it stays here.
    Stop,
    /// It takes it.
    Take,
    /// It gets a copy.
    Copy,
}

impl Broker {
    /// Lets the walking consumers of a named queue look at what is in memory, then asks for a page for one that has seen it all.
    pub(super) fn walk(&mut self, key: GroupKey, now: Now) {
        let Some(group) = self.groups.get(key as usize).filter(|group| group.has_walkers()) else { return };
        let walkers: Vec<Taker> = group.walkers().collect();
        for walker in &walkers {
            while self.walk_one(key, walker, now) {}
        }
        for walker in &walkers {
            self.end_walk(key, walker);
        }
        self.probe_for(key, &walkers);
    }

    /// One step through the window; `false`: it is at its end, or stops.
    fn walk_one(&mut self, key: GroupKey, walker: &Taker, now: Now) -> bool {
        let Some(id) = walker.consumer else { return false };
        let queue_key = self.groups[key as usize].queue();
        let Some(from) = self.walker(key, walker.session, id).map(|consumer| consumer.scan) else {
            return false;
        };
        let Some(entry) = self.queues[queue_key as usize].next_waiting(from).cloned() else { return false };
        let look = self.look(key, walker, &entry, now);
        if matches!(look, Look::Stop) {
            return false;
        }
        if let Some(consumer) = self.groups[key as usize].consumer_mut(walker.session, id) {
            consumer.scan = entry.seq + 1;
        }
        match look {
            Look::Take => {
                let queue = &mut self.queues[queue_key as usize];
                if let Some(entry) = queue.hand_out_of_turn(entry.seq, &mut self.budget) {
                    self.hand_out_entry(key, queue_key, walker, entry);
                }
            }
            Look::Copy => self.send_copy(walker.session, id, &entry.message),
            Look::Pass | Look::Stop => {}
        }
        true
    }

    fn look(&self, key: GroupKey, walker: &Taker, entry: &Entry, now: Now) -> Look {
        let Some(id) = walker.consumer else { return Look::Stop };
        let Some(consumer) = self.walker(key, walker.session, id) else { return Look::Stop };
        if consumer.browse.is_some_and(|end| entry.seq >= end) {
            return Look::Stop;
        }
        if entry.message.is_expired(now.wall) {
            return Look::Pass;
        }
        let returns = self.returns_of(key, entry.seq);
        if consumer.selector.as_ref().is_some_and(|selector| !selector.wants(&entry.message, returns)) {
            return Look::Pass;
        }
        let session = &self.sessions[walker.session as usize];
        let size = entry.message.size();
        match consumer.browse {
            Some(_) if consumer.active && session.ready().is_some() => Look::Copy,
            None if consumer.has_room(size) && session.takes(size, self.limits.inflight_bytes_max) => {
                Look::Take
            }
            _ => Look::Stop,
        }
    }

    fn walker(&self, key: GroupKey, session: SessionKey, id: ConsumerId) -> Option<&Consumer> {
        self.groups.get(key as usize)?.consumer(session, id)
    }

    fn send_copy(&mut self, key: SessionKey, consumer: ConsumerId, message: &Message) {
        self.stats.browsed += 1;
        let delivery = Delivery {
            id: None,
            message: message.clone(),
            qos: Qos::AtMostOnce,
            retain: false,
            duplicate: false,
            subscription_ids: None,
            consumer: Some(consumer),
            redeliveries: 0,
        };
        self.send_ordered(key, None, ClientEvent::Deliver(delivery));
    }

    /// A browser that has seen everything hears so, once.
    fn end_walk(&mut self, key: GroupKey, walker: &Taker) {
        let Some(id) = walker.consumer else { return };
        let queue = &self.queues[self.groups[key as usize].queue() as usize];
        let (loaded, tail) = (queue.spilled_from(), queue.tail());
        let next = queue.next_waiting(0).map(|_| ());
        let Some(consumer) = self.walker(key, walker.session, id) else { return };
        let Some(end) = consumer.browse.filter(|_| consumer.active && !consumer.browsed) else { return };
        let waits = next.is_some() && queue.next_waiting(consumer.scan).is_some_and(|entry| entry.seq < end);
        let more = loaded.max(consumer.scan) < end.min(tail);
        if waits || more {
            return;
        }
        if let Some(consumer) = self.groups[key as usize].consumer_mut(walker.session, id) {
            consumer.browsed = true;
        }
        self.send_ordered(walker.session, None, ClientEvent::BrowseEnd { consumer: id });
    }

    /// Asks for a page beyond the window, for the first walker that could take something of it.
    fn probe_for(&mut self, key: GroupKey, walkers: &[Taker]) {
        let queue_key = self.groups[key as usize].queue();
        let queue = &self.queues[queue_key as usize];
        if !queue.is_spilled() || queue.load() != Load::Idle {
            return;
        }
        let (loaded, tail) = (queue.spilled_from(), queue.tail());
        let wanted = walkers.iter().filter_map(|walker| {
            let consumer = self.walker(key, walker.session, walker.consumer?)?;
            let session = &self.sessions[walker.session as usize];
            let has_seen = queue.next_waiting(consumer.scan).is_none();
            let may = match consumer.browse {
                Some(_) => consumer.active && !consumer.browsed && session.ready().is_some(),
                None => consumer.has_room(0) && session.takes(0, self.limits.inflight_bytes_max),
            };
            let from = consumer.beyond().max(loaded);
            (has_seen && may && from < consumer.browse.unwrap_or(tail).min(tail)).then_some(from)
        });
        if let Some(from) = wanted.min() {
            self.ask_probe(queue_key, from);
        }
    }

    /// A page that walkers want may be asked for again.
    pub(super) fn probe_again(&mut self, queue: QueueKey) {
        if let Owner::Group(key) = self.queues[queue as usize].owner()
            && self.groups[key as usize].has_walkers()
        {
            let walkers: Vec<Taker> = self.groups[key as usize].walkers().collect();
            self.probe_for(key, &walkers);
        }
    }

    /// A page that was read for looking only.
    pub(super) fn look_at_page(&mut self, key: GroupKey, page: Page, now: Now) {
        let queue_key = self.groups[key as usize].queue();
        let (from, next) = (page.from, page.next);
        let Some(entries) = self.queues[queue_key as usize].end_probe(page, &mut self.budget) else { return };
        self.loads -= 1;
        let queue = &self.queues[queue_key as usize];
        let loaded = queue.spilled_from();
        let mut walkers: Vec<(Taker, bool)> = self.groups[key as usize]
            .walkers()
            .filter(|walker| {
                let consumer = walker.consumer.and_then(|id| self.walker(key, walker.session, id));
                consumer.is_some_and(|consumer| {
                    // A browser sees everything in order, so what is in memory comes first.
                    let is_ready = consumer.browse.is_none() || queue.next_waiting(consumer.scan).is_none();
                    is_ready && (from..=next).contains(&consumer.beyond().max(loaded))
                })
            })
            .map(|walker| (walker, true))
            .collect();
        for entry in entries {
            self.look_beyond(key, queue_key, &mut walkers, &entry, now);
        }
        for (walker, _) in walkers.iter().filter(|(_, walks)| *walks) {
            self.has_looked(key, walker, next);
        }
    }

    fn look_beyond(
        &mut self,
        key: GroupKey,
        queue_key: QueueKey,
        walkers: &mut [(Taker, bool)],
        entry: &Entry,
        now: Now,
    ) {
        for (walker, walks) in walkers.iter_mut().filter(|(_, walks)| *walks) {
            let Some(id) = walker.consumer else { continue };
            let beyond = self.walker(key, walker.session, id).map_or(Seq::MAX, Consumer::beyond);
            if entry.seq < beyond {
                continue;
            }
            match self.look(key, walker, entry, now) {
                Look::Pass => {}
                Look::Stop => {
                    *walks = false;
                    self.has_looked(key, walker, entry.seq);
                }
                Look::Copy => self.send_copy(walker.session, id, &entry.message),
                Look::Take => {
                    self.queues[queue_key as usize].hold_out_of_turn(entry.seq);
                    self.hand_out_entry(key, queue_key, walker, entry.clone());
                    return;
                }
            }
        }
    }

    /// The walker has seen everything below `to` that is beyond the window.
    fn has_looked(&mut self, key: GroupKey, walker: &Taker, to: Seq) {
        let Some(id) = walker.consumer else { return };
        if let Some(consumer) = self.groups[key as usize].consumer_mut(walker.session, id) {
            consumer.probe = consumer.probe.max(to);
            if consumer.browse.is_some() {
                consumer.scan = consumer.scan.max(to);
            }
        }
    }
}
