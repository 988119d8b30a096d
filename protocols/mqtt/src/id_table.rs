//! Packet identifiers in use, each with a state.

use crate::types::PacketId;
use alloc::vec::Vec;

/// A map from packet identifiers to one byte of state. Four bytes per slot, at most half of the slots are
/// taken. Empty, it holds no memory; it grows by doubling and shrinks by [`IdTable::release_memory`].
///
/// Fibonacci hashing spreads identifiers that a peer counts up so that runs of taken slots stay short;
/// neighbouring slots would make one long run, and removal walks to the end of a run. Identifiers chosen to
/// collide cost a walk over those in use, which the owner bounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdTable {
    /// Length is 0 or a power of two above twice `len`; id 0 marks a free slot.
    slots: Vec<Slot>,
    len: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    id: u16,
    state: u8,
}

const SLOTS_MIN: usize = 8;

impl IdTable {
    pub(crate) const fn new() -> IdTable {
        IdTable { slots: Vec::new(), len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(crate) fn get(&self, id: PacketId) -> Option<u8> {
        self.find(id).map(|at| self.slots[at].state)
    }

    /// Adds an identifier or changes its state.
    #[inline]
    pub(crate) fn set(&mut self, id: PacketId, state: u8) {
        if let Some(at) = self.find(id) {
            self.slots[at].state = state;
            return;
        }
        if (self.len as usize + 1) * 2 > self.slots.len() {
            self.grow();
        }
        self.place(Slot { id: id.get(), state });
        self.len += 1;
    }

    /// Removes an identifier and returns its state.
    #[inline]
    pub(crate) fn remove(&mut self, id: PacketId) -> Option<u8> {
        let at = self.find(id)?;
        let state = self.slots[at].state;
        self.close_gap(at);
        self.len -= 1;
        Some(state)
    }

    /// Gives the memory back if no identifier is in use.
    pub(crate) fn release_memory(&mut self) {
        if self.len == 0 {
            self.slots = Vec::new();
        }
    }

    #[inline]
    fn find(&self, id: PacketId) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = self.home(id.get());
        loop {
            match self.slots[at].id {
                0 => return None,
                found if found == id.get() => return Some(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// The slot where the search for an identifier starts; there are at least [`SLOTS_MIN`] slots.
    #[inline]
    fn home(&self, id: u16) -> usize {
        let bits = self.slots.len().trailing_zeros();
        (u32::from(id).wrapping_mul(0x9e37_79b9) >> (32 - bits)) as usize
    }

    /// Puts a new identifier into the first free slot from its home on; there is one.
    #[inline]
    fn place(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at = self.home(slot.id);
        while self.slots[at].id != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(SLOTS_MIN);
        let old = core::mem::replace(&mut self.slots, alloc::vec![Slot::default(); slots]);
        old.into_iter().filter(|slot| slot.id != 0).for_each(|slot| self.place(slot));
    }

    /// Moves later slots of the same run back, so that every identifier stays reachable from its home.
    #[inline]
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.slots.len() - 1;
        let mut probe = gap;
        loop {
            probe = (probe + 1) & mask;
            let slot = self.slots[probe];
            if slot.id == 0 {
                break;
            }
            let from_home = probe.wrapping_sub(self.home(slot.id)) & mask;
            let from_gap = probe.wrapping_sub(gap) & mask;
            if from_home >= from_gap {
                self.slots[gap] = slot;
                gap = probe;
            }
        }
        self.slots[gap] = Slot::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_map(steps in proptest::collection::vec((1u16..40, 0u8..3, 0u8..4), 0..400)) {
            let mut table = IdTable::new();
            let mut model = BTreeMap::new();
            for (id, action, state) in steps {
                let id = PacketId::new(id * 8).unwrap();
                match action {
                    0 => prop_assert_eq!(table.remove(id), model.remove(&id)),
                    _ => {
                        table.set(id, state);
                        model.insert(id, state);
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                for id in (1..40).filter_map(|n| PacketId::new(n * 8)) {
                    prop_assert_eq!(table.get(id), model.get(&id).copied());
                }
            }
        }
    }

    #[test]
    fn holds_every_identifier_there_is() {
        let mut table = IdTable::new();
        (1..=u16::MAX).filter_map(PacketId::new).for_each(|id| table.set(id, 1));
        assert_eq!(table.len(), 65_535);
        assert!((1..=u16::MAX).filter_map(PacketId::new).all(|id| table.remove(id) == Some(1)));
        table.release_memory();
        assert_eq!(table.slots.capacity(), 0);
    }
}
