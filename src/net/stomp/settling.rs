//! Which deliveries wait for what before they are settled: the client's word, or the socket.

use std::collections::{BTreeMap, VecDeque};

use super::subscriptions::Handle;

/// Deliveries under way.
#[derive(Debug)]
pub(super) struct Settling {
    /// Bytes that the socket has taken.
    written: u64,
    /// Settled when the socket has taken so many bytes.
    unwritten: VecDeque<(u64, Handle)>,
    /// Deliveries that went to several subscriptions: how many still wait.
    shared: BTreeMap<Handle, u16>,
}

impl Settling {
    pub(super) const fn new() -> Self {
        Self { written: 0, unwritten: VecDeque::new(), shared: BTreeMap::new() }
    }

    /// A delivery went to `waiting` subscriptions that acknowledge it, and `outbox` bytes wait for the socket now. `true`: it is
    /// not to be settled now.
    pub(super) fn sent(&mut self, handle: Handle, waiting: u16, outbox: usize) {
        match waiting {
            0 => self.unwritten.push_back((self.written + outbox as u64, handle)),
            1 => {}
            more => {
                self.shared.insert(handle, more);
            }
        }
    }

    /// Several subscriptions have still to acknowledge the delivery.
    pub(super) fn is_shared(&self, handle: Handle) -> bool {
        self.shared.contains_key(&handle)
    }

    /// One of the subscriptions has acknowledged the delivery: `true` when it was the last one.
    pub(super) fn acknowledged(&mut self, handle: Handle) -> bool {
        let Some(waiting) = self.shared.get_mut(&handle) else { return true };
        *waiting -= 1;
        let last = *waiting == 0;
        if last {
            self.shared.remove(&handle);
        }
        last
    }

    /// The socket took `bytes`. Calls `settle` for what is complete.
    pub(super) fn wrote(&mut self, bytes: usize, mut settle: impl FnMut(Handle)) {
        self.written += bytes as u64;
        while let Some(&(end, handle)) = self.unwritten.front()
            && end <= self.written
        {
            self.unwritten.pop_front();
            settle(handle);
        }
        if self.unwritten.is_empty() {
            self.unwritten = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::api::DeliveryId;

    fn handle(id: u16) -> Handle {
        Handle { branch: 0, id: DeliveryId::new(id) }
    }

    #[test]
    fn a_message_is_settled_when_its_last_byte_is_written() {
        let mut settling = Settling::new();
        settling.sent(handle(1), 0, 10);
        settling.sent(handle(2), 0, 25);
        let mut settled = vec![];
        settling.wrote(9, |handle| settled.push(handle));
        assert!(settled.is_empty());
        settling.wrote(1, |handle| settled.push(handle));
        assert_eq!(settled, [handle(1)]);
        settling.sent(handle(3), 0, 15);
        settling.wrote(15, |handle| settled.push(handle));
        assert_eq!(settled, [1, 2, 3].map(handle));
    }

    #[test]
    fn a_message_for_several_subscriptions_waits_for_all_of_them() {
        let mut settling = Settling::new();
        settling.sent(handle(1), 2, 0);
        assert!(!settling.acknowledged(handle(1)));
        assert!(settling.acknowledged(handle(1)));
        settling.sent(handle(2), 1, 0);
        assert!(settling.acknowledged(handle(2)));
    }
}
