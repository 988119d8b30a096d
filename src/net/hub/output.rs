//! What waits to be written, and to whom.

use super::peer::Peer;
use super::{Hub, Output};
use crate::broker::api::{ClientEvent, ConnId};
use crate::time::Now;

impl Hub {
    #[inline]
    pub(super) fn mark_dirty(&mut self, key: usize) {
        let slot = &mut self.slots[key];
        if !slot.dirty {
            slot.dirty = true;
            self.dirty.push_back(slot.id);
        }
    }

    /// The next connection with something to write.
    pub fn next_dirty(&mut self) -> Option<ConnId> {
        while let Some(id) = self.dirty.pop_front() {
            if let Some(key) = self.key(id) {
                self.slots[key].dirty = false;
                return Some(id);
            }
        }
        None
    }

    /// Connections with something to write.
    #[must_use]
    pub fn dirty_len(&self) -> usize {
        self.dirty.len()
    }

    /// Lists the connection as dirty again, after a write that was blocked.
    pub fn touch(&mut self, id: ConnId) {
        if let Some(key) = self.key(id) {
            self.mark_dirty(key);
        }
    }

    /// Its socket takes nothing any more.
    pub fn abandon(&mut self, id: ConnId, now: Now) {
        let Some(key) = self.key(id) else { return };
        let slot = &mut self.slots[key];
        self.outbox_bytes -= slot.outbox.len() as u64;
        slot.outbox.clear(&mut self.pool);
        if !slot.ending {
            self.end_unasked(key, now);
        }
        self.check_marks(key, now);
    }

    /// Something is to be written, or to be handed to the store.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.dirty.is_empty()
            || !self.loads.is_empty()
            || self.broker.has_batch()
            || self.waiting.has_untried()
    }

    /// What to write to a connection; `None` when nothing waits.
    #[must_use]
    pub fn output(&self, id: ConnId) -> Option<Output<'_>> {
        let slot = &self.slots[self.key(id)?];
        if slot.outbox.is_empty() {
            return None;
        }
        if let Some(bytes) = slot.outbox.single() {
            return Some(Output::Single(bytes));
        }
        Some(Output::Many(slot.outbox.slices()))
    }

    /// The next event for a port.
    pub fn next_port_event(&mut self, id: ConnId) -> Option<ClientEvent> {
        let key = self.key(id)?;
        match &mut self.slots[key].peer {
            Peer::Port(events) => events.pop_front(),
            _ => None,
        }
    }

    /// A port had no place for a QoS 0 message.
    pub fn count_port_drop(&mut self) {
        self.traffic.dropped_at_port += 1;
    }

    /// `n` bytes went out.
    pub fn wrote(&mut self, id: ConnId, n: usize, now: Now) {
        let Some(key) = self.key(id) else { return };
        self.slots[key].outbox.advance(n, &mut self.pool);
        self.outbox_bytes -= n as u64;
        self.traffic.bytes_out += n as u64;
        if let Peer::Stomp(adapter) = &mut self.slots[key].peer {
            adapter.wrote(n);
            self.gather_commands(key);
        }
        self.check_marks(key, now);
    }

    /// The connection ends and all its bytes went out: close the socket.
    #[must_use]
    pub fn is_finished(&self, id: ConnId) -> bool {
        self.key(id).is_none_or(|key| self.slots[key].ending && self.slots[key].outbox.is_empty())
    }

    /// The connection ends, whether its bytes went out or not.
    #[must_use]
    pub fn is_ending(&self, id: ConnId) -> bool {
        self.key(id).is_none_or(|key| self.slots[key].ending)
    }
}
