//! Subscriptions of one connection, and the messages that were sent to them and wait for ACK or NACK.

use super::event::{ConnectionLimit, SubscriptionTag, TransactionTag, Violation};
use crate::limits::ConnectionLimits;
use crate::types::AckMode;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A delivery on the wire: its subscription and its number.
pub(super) type DeliveryKey = (SubscriptionTag, u64);

/// A subscription. It stays until it has ended and nothing of it is unacknowledged, so that an ACK that crosses
/// an UNSUBSCRIBE still counts.
#[derive(Debug)]
pub(super) struct Subscription {
    /// The client's identifier; `None` in STOMP 1.0 only.
    pub(super) id: Option<Box<str>>,
    /// What STOMP 1.0 may unsubscribe by; empty in later versions.
    pub(super) destination: Box<str>,
    pub(super) mode: AckMode,
    ended: bool,
    unacknowledged: u32,
}

/// A message that waits for its acknowledgement, or for the end of the transaction that the acknowledgement is
/// part of.
#[derive(Clone, Copy, Debug)]
struct Delivery {
    /// What the caller knows it by.
    caller_tag: u64,
    transaction: Option<TransactionTag>,
}

/// All subscriptions.
#[derive(Debug)]
pub(super) struct Subscriptions {
    table: BTreeMap<SubscriptionTag, Subscription>,
    deliveries: BTreeMap<DeliveryKey, Delivery>,
    last_tag: u32,
    last_number: u64,
    /// Bytes of identifiers and destinations.
    bytes: usize,
}

impl Subscriptions {
    pub(super) const fn new() -> Subscriptions {
        Subscriptions {
            table: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            last_tag: 0,
            last_number: 0,
            bytes: 0,
        }
    }

    /// Bytes of identifiers held.
    pub(super) fn identifier_bytes(&self) -> usize {
        self.bytes
    }

    /// Messages that are sent and not settled.
    pub(super) fn deliveries(&self) -> usize {
        self.deliveries.len()
    }

    /// Subscriptions, ended ones with unacknowledged messages included.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// A subscription that has not ended.
    pub(super) fn live(&self, tag: SubscriptionTag) -> Option<&Subscription> {
        self.table.get(&tag).filter(|subscription| !subscription.ended)
    }

    /// A subscription, ended or not.
    pub(super) fn any(&self, tag: SubscriptionTag) -> Option<&Subscription> {
        self.table.get(&tag)
    }

    pub(super) fn add(
        &mut self,
        id: Option<&str>,
        destination: &str,
        mode: AckMode,
        limits: &ConnectionLimits,
    ) -> Result<SubscriptionTag, Violation> {
        let taken = match id {
            Some(_) => self.find(|live| live.id.as_deref() == id),
            None => self.find(|live| live.id.is_none() && *live.destination == *destination),
        };
        if taken.is_some() {
            return Err(Violation::SubscriptionInUse);
        }
        let max = limits.subscriptions_max;
        if self.table.len() >= usize::from(max) {
            return Err(ConnectionLimit::Subscriptions { max }.into());
        }
        self.last_tag += 1;
        let tag = SubscriptionTag(self.last_tag);
        self.bytes += id.map_or(0, str::len) + destination.len();
        let (id, destination) = (id.map(Into::into), destination.into());
        self.table.insert(tag, Subscription { id, destination, mode, ended: false, unacknowledged: 0 });
        Ok(tag)
    }

    /// Ends the subscription with this identifier.
    pub(super) fn end_id(&mut self, id: &str) -> Option<SubscriptionTag> {
        self.end(|live| live.id.as_deref() == Some(id))
    }

    /// Ends the oldest subscription of this destination, one without an identifier before others.
    pub(super) fn end_destination(&mut self, destination: &str) -> Option<SubscriptionTag> {
        self.end(|live| live.id.is_none() && *live.destination == *destination)
            .or_else(|| self.end(|live| *live.destination == *destination))
    }

    fn end(&mut self, wanted: impl Fn(&Subscription) -> bool) -> Option<SubscriptionTag> {
        let tag = self.find(wanted)?;
        if let Some(subscription) = self.table.get_mut(&tag) {
            subscription.ended = true;
        }
        self.forget_if_over(tag);
        Some(tag)
    }

    fn find(&self, wanted: impl Fn(&Subscription) -> bool) -> Option<SubscriptionTag> {
        self.table.iter().find(|(_, found)| !found.ended && wanted(found)).map(|(tag, _)| *tag)
    }

    /// The number of the next message; numbers rise over all subscriptions.
    pub(super) fn next_number(&self) -> u64 {
        self.last_number + 1
    }

    /// Notes that the message with the next number was sent.
    pub(super) fn sent(&mut self, tag: SubscriptionTag, caller_tag: u64) {
        self.last_number += 1;
        let Some(subscription) = self.table.get_mut(&tag) else {
            return;
        };
        if subscription.mode != AckMode::Auto {
            subscription.unacknowledged += 1;
            self.deliveries.insert((tag, self.last_number), Delivery { caller_tag, transaction: None });
        }
    }

    /// Takes an acknowledgement. The callers' tags of what it newly covers are appended to `settled`, the oldest
    /// first. Within a transaction, the deliveries stay until its end, and their keys are appended to `held`.
    pub(super) fn settle(
        &mut self,
        key: DeliveryKey,
        transaction: Option<(TransactionTag, &mut Vec<DeliveryKey>)>,
        settled: &mut Vec<u64>,
    ) -> Result<(), Violation> {
        let (tag, number) = key;
        let named = transaction.as_ref().map(|(transaction, _)| *transaction);
        let target = self.deliveries.get(&key).ok_or(Violation::DeliveryUnknown)?;
        if target.transaction.is_some() {
            // Covered by an earlier ACK of the same transaction: nothing more to cover.
            return if target.transaction == named { Ok(()) } else { Err(Violation::DeliveryUnknown) };
        }
        let cumulative = self.table.get(&tag).is_some_and(|found| found.mode == AckMode::Client);
        let first = (tag, if cumulative { 0 } else { number });
        let free = |(_, delivery): &(&DeliveryKey, &mut Delivery)| delivery.transaction.is_none();
        match transaction {
            Some((transaction, held)) => {
                for (key, delivery) in self.deliveries.range_mut(first..=key).filter(free) {
                    delivery.transaction = Some(transaction);
                    settled.push(delivery.caller_tag);
                    held.push(*key);
                }
            }
            None => {
                while let Some((found, delivery)) = self.deliveries.range_mut(first..=key).find(free) {
                    settled.push(delivery.caller_tag);
                    let found = *found;
                    self.remove(found);
                }
            }
        }
        Ok(())
    }

    /// The transaction that has covered these deliveries was committed.
    pub(super) fn commit(&mut self, held: &[DeliveryKey]) {
        held.iter().for_each(|key| self.remove(*key));
    }

    /// The transaction that has covered these deliveries was rolled back.
    pub(super) fn roll_back(&mut self, held: &[DeliveryKey]) {
        for key in held {
            if let Some(delivery) = self.deliveries.get_mut(key) {
                delivery.transaction = None;
            }
        }
    }

    fn remove(&mut self, key: DeliveryKey) {
        if self.deliveries.remove(&key).is_some() {
            if let Some(subscription) = self.table.get_mut(&key.0) {
                subscription.unacknowledged -= 1;
            }
            self.forget_if_over(key.0);
        }
    }

    fn forget_if_over(&mut self, tag: SubscriptionTag) {
        let over = |found: &Subscription| found.ended && found.unacknowledged == 0;
        if self.table.get(&tag).is_some_and(over)
            && let Some(gone) = self.table.remove(&tag)
        {
            self.bytes -= gone.id.map_or(0, |id| id.len()) + gone.destination.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn subscribed(mode: AckMode, messages: u64) -> (Subscriptions, SubscriptionTag) {
        let mut all = Subscriptions::new();
        let tag = all.add(Some("s"), "", mode, &ConnectionLimits::default()).unwrap();
        (1..=messages).for_each(|number| all.sent(tag, number * 10));
        (all, tag)
    }

    #[test]
    fn an_ended_subscription_is_forgotten_with_its_last_acknowledgement() {
        let (mut all, tag) = subscribed(AckMode::ClientIndividual, 2);
        assert_eq!(all.end_id("s"), Some(tag));
        assert_eq!(all.end_id("s"), None, "it has ended");
        let mut settled = vec![];
        all.settle((tag, 2), None, &mut settled).unwrap();
        assert_eq!((all.len(), all.identifier_bytes()), (1, 1));
        all.settle((tag, 1), None, &mut settled).unwrap();
        assert_eq!((settled, all.len(), all.identifier_bytes()), (vec![20, 10], 0, 0));
    }

    #[test]
    fn a_cumulative_acknowledgement_leaves_out_what_a_transaction_holds() {
        let (mut all, tag) = subscribed(AckMode::Client, 4);
        let (transaction, mut held, mut settled) = (TransactionTag(1), vec![], vec![]);
        all.settle((tag, 2), Some((transaction, &mut held)), &mut settled).unwrap();
        assert_eq!(core::mem::take(&mut settled), [10, 20]);
        all.settle((tag, 3), None, &mut settled).unwrap();
        assert_eq!(core::mem::take(&mut settled), [30]);
        all.roll_back(&held);
        all.settle((tag, 4), None, &mut settled).unwrap();
        assert_eq!((settled, all.deliveries()), (vec![10, 20, 40], 0));
    }
}
