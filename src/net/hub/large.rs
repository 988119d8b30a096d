//! Who may receive a large packet now.
//!
//! A packet that is received in many reads takes as much memory as it has arrived, until it is whole. So a large one needs a *place*: all
//! places together fit into the bound on read buffers, and a connection that finds no room waits unread, in the order of arrival,
//! until others are done. Whoever has a place can therefore always complete its packet. A peer that does not send, or hardly, while
//! others wait for its place is ended. Bounds: places by the bytes that are kept for them, those who wait by the connections.

use std::collections::{BTreeMap, VecDeque};

use super::Hub;
use crate::broker::api::{CloseReason, ConnId};
use crate::limits::SMALL_PACKETS_PART;
use crate::time::{Mono, Now};

/// Packets from this size on need a place.
const LARGE_BYTES_MIN: usize = 64 << 10;
/// How long a peer may send nothing of its packet while others wait, in milliseconds.
const SILENCE_MILLIS_MAX: u64 = 10_000;
/// How long a packet may take while others wait, in milliseconds: so long, and a millisecond for each of these bytes.
const PACKET_MILLIS: u64 = 30_000;
const PACKET_BYTES_PER_MILLI: u64 = 32;

#[derive(Debug)]
struct Place {
    /// Length of the packet.
    bytes: u64,
    /// What has arrived of it.
    arrived: usize,
    granted: Mono,
    heard: Mono,
}

impl Place {
    /// When it has to make room for those who wait.
    fn end(&self) -> Mono {
        let whole = self.granted.plus_millis(PACKET_MILLIS + self.bytes / PACKET_BYTES_PER_MILLI);
        whole.min(self.heard.plus_millis(SILENCE_MILLIS_MAX))
    }
}

/// Large packets that are being received, and those that wait for it.
#[derive(Debug, Default)]
pub struct Places {
    held: BTreeMap<ConnId, Place>,
    waiting: VecDeque<(ConnId, u64)>,
    /// Sum of the packets' lengths.
    bytes: u64,
}

impl Places {
    /// When somebody has to make room; `None`: nobody waits.
    pub fn next_end(&self) -> Option<Mono> {
        if self.waiting.is_empty() { None } else { self.held.values().map(Place::end).min() }
    }

    fn fits(&self, bytes: u64, max: u64) -> bool {
        self.held.is_empty() || self.bytes + bytes <= max - max / SMALL_PACKETS_PART
    }

    fn hold(&mut self, id: ConnId, bytes: u64, arrived: usize, now: Mono) {
        self.bytes += bytes;
        self.held.insert(id, Place { bytes, arrived, granted: now, heard: now });
    }

    /// The connection's place, or its wish for one, is gone.
    fn leave(&mut self, id: ConnId) {
        match self.held.remove(&id) {
            Some(place) => self.bytes -= place.bytes,
            None => self.waiting.retain(|(waiting, _)| *waiting != id),
        }
    }
}

impl Hub {
    /// After a read: the connection needs a place, has one, or is done with it.
    pub(super) fn update_place(&mut self, key: usize, now: Now) {
        let slot = &self.slots[key];
        let arrived = slot.partial.len();
        let large = arrived > 0
            && !slot.ending
            && slot.need >= LARGE_BYTES_MIN
            // It will reach the bound by itself.
            && slot.need as u64 <= self.limits.read_buffers_bytes_max;
        if !large && !slot.placed && !slot.starved {
            return;
        }
        let (id, bytes) = (slot.id, slot.need as u64);
        if slot.placed {
            let place = self.places.held.get_mut(&id).expect("who is placed has a place");
            if large && arrived >= place.arrived && bytes == place.bytes {
                (place.arrived, place.heard) = (arrived, now.mono);
                return;
            }
            self.leave_place(key, now);
        }
        if !large {
            return self.leave_place(key, now);
        }
        let slot = &mut self.slots[key];
        if slot.starved {
            return;
        }
        if self.places.waiting.is_empty() && self.places.fits(bytes, self.limits.read_buffers_bytes_max) {
            slot.placed = true;
            self.places.hold(id, bytes, arrived, now.mono);
        } else {
            slot.starved = true;
            self.places.waiting.push_back((id, bytes));
            self.traffic.large_packets_held_back += 1;
        }
    }

    /// The connection needs no place any more: those who wait get theirs.
    pub(super) fn leave_place(&mut self, key: usize, now: Now) {
        let slot = &mut self.slots[key];
        if !slot.placed && !slot.starved {
            return;
        }
        (slot.placed, slot.starved) = (false, false);
        self.places.leave(slot.id);
        while let Some(&(id, bytes)) = self.places.waiting.front()
            && self.places.fits(bytes, self.limits.read_buffers_bytes_max)
        {
            self.places.waiting.pop_front();
            let key = self.key(id).expect("who is gone does not wait");
            let slot = &mut self.slots[key];
            (slot.placed, slot.starved) = (true, false);
            self.places.hold(id, bytes, slot.partial.len(), now.mono);
            self.unblocked.push(id);
        }
    }

    /// Time has passed: peers that keep others waiting pay.
    pub(super) fn end_overdue_places(&mut self, now: Now) {
        if self.places.next_end().is_none_or(|end| end > now.mono) {
            return;
        }
        if now.mono < self.excused {
            // Nobody was read: that is not their fault.
            return self.places.held.values_mut().for_each(|place| {
                (place.granted, place.heard) = (now.mono, now.mono);
            });
        }
        let overdue = self.places.held.iter().filter(|(_, place)| place.end() <= now.mono);
        let overdue: Vec<ConnId> = overdue.map(|(id, _)| *id).collect();
        for id in overdue {
            if let Some(key) = self.key(id) {
                self.traffic.read_buffer_limit += 1;
                self.end_by_us(key, CloseReason::QuotaExceeded, now);
            }
        }
    }

    /// Partly received packets take too much memory: the connections with the largest ones that have no place pay.
    pub(super) fn bound_read_buffers(&mut self, now: Now) {
        let max = self.limits.read_buffers_bytes_max;
        while self.read_bytes > max {
            let placed = self.places.held.keys().filter_map(|id| self.key(*id));
            let kept: u64 = placed.map(|key| self.slots[key].partial.capacity() as u64).sum();
            if kept > 0 && self.read_bytes - kept <= max / SMALL_PACKETS_PART {
                return;
            }
            let unplaced = self.slots.iter().filter(|(_, slot)| !slot.placed);
            let Some((key, _)) = unplaced.max_by_key(|(_, slot)| slot.partial.capacity()) else { return };
            self.traffic.read_buffer_limit += 1;
            self.end_by_us(key, CloseReason::QuotaExceeded, now);
        }
    }
}
