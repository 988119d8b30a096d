//! Transactions: publishes and settlements of one client that become durable together or not at all.
//!
//! An open transaction is a list in memory. To commit it the broker first plans every message, so that a refusal changes
//! nothing, and then carries everything out within one turn: all its operations are in one batch, whatever the number of queues,
//! and nothing that it causes leaves before that batch is durable. A transaction that is not committed when its connection ends,
//! for whatever reason, never happened. Bounds: `transactions_per_session_max`, `transaction_actions_max`,
//! `transaction_bytes_max` for one, `transactions_bytes_max` for all.

use std::collections::BTreeMap;

use crate::broker::Broker;
use crate::broker::api::{
    ClientEvent, DeliveryId, PublishOutcome, ReplyTag, TransactOutcome, TransactionAction, TransactionId,
};
use crate::message::Message;
use crate::queue::QueueRef;
use crate::session::SessionKey;
use crate::session::inflight::Stage;
use crate::store::contract::Seq;
use crate::time::Now;
use crate::topic;

/// What a transaction will do.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// A message is published.
    Publish(Message),
    /// A delivery is settled; its queue and place tell it from a later one under the same identifier.
    Settle { delivery: DeliveryId, queue: QueueRef, seq: Seq, how: Settlement },
}

/// How a delivery ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settlement {
    Accept,
    Reject { requeue: bool },
}

impl Settlement {
    /// Its stored form.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Accept => 0,
            Self::Reject { requeue: false } => 1,
            Self::Reject { requeue: true } => 2,
        }
    }

    /// Reads the stored form.
    pub(super) fn from_code(code: u8) -> Option<Self> {
        [Self::Accept, Self::Reject { requeue: false }, Self::Reject { requeue: true }]
            .into_iter()
            .find(|how| how.code() == code)
    }
}

/// Memory of an action beside its message, in bytes.
pub(super) const ACTION_OVERHEAD_BYTES: u64 = 96;

/// An open transaction.
#[derive(Debug, Default)]
pub struct Transaction {
    pub(super) actions: Vec<Action>,
    pub(super) bytes: u64,
    /// Something that it was to do was refused: it will never be carried out, since that would be a part of it.
    pub(super) refused: Option<TransactOutcome>,
}

/// A session's open transactions.
pub(crate) type Transactions = BTreeMap<TransactionId, Transaction>;

impl Broker {
    pub(super) fn begin(&mut self, key: SessionKey, tag: ReplyTag, id: TransactionId) {
        let max = usize::from(self.limits.transactions_per_session_max);
        let own = self.sessions[key as usize].transactions.get_or_insert_default();
        let outcome = if own.contains_key(&id) {
            TransactOutcome::AlreadyOpen
        } else if own.len() >= max {
            TransactOutcome::LimitExceeded
        } else {
            own.insert(id, Transaction::default());
            TransactOutcome::Done
        };
        self.answer(key, None, ClientEvent::Transacted { tag, outcome });
    }

    pub(super) fn act(
        &mut self,
        key: SessionKey,
        tag: ReplyTag,
        id: TransactionId,
        action: TransactionAction,
    ) {
        let outcome = match self.add_action(key, id, action) {
            Ok(()) => TransactOutcome::Done,
            Err(refused) => {
                let own = self.sessions[key as usize].transactions.as_mut();
                if let Some(transaction) = own.and_then(|own| own.get_mut(&id)) {
                    transaction.refused.get_or_insert(refused);
                }
                refused
            }
        };
        self.answer(key, None, ClientEvent::Transacted { tag, outcome });
    }

    fn add_action(
        &mut self,
        key: SessionKey,
        id: TransactionId,
        action: TransactionAction,
    ) -> Result<(), TransactOutcome> {
        let action = match action {
            TransactionAction::Publish(message) => {
                let internal = self.sessions[key as usize].internal;
                if !self.topic_is_valid(message.topic(), internal) {
                    return Err(TransactOutcome::Refused(PublishOutcome::TopicInvalid));
                }
                if !self.may_publish_to(key, message.topic()) {
                    return Err(TransactOutcome::Refused(PublishOutcome::NotAuthorized));
                }
                Action::Publish(message)
            }
            TransactionAction::Settle(delivery) => self.settlement(key, delivery, Settlement::Accept)?,
            TransactionAction::Reject { delivery, requeue } => {
                self.settlement(key, delivery, Settlement::Reject { requeue })?
            }
        };
        let size = match &action {
            Action::Publish(message) => message.memory() as u64 + ACTION_OVERHEAD_BYTES,
            Action::Settle { .. } => ACTION_OVERHEAD_BYTES,
        };
        let own = self.sessions[key as usize].transactions.as_mut();
        let transaction = own.and_then(|own| own.get_mut(&id)).ok_or(TransactOutcome::Unknown)?;
        if transaction.actions.len() >= self.limits.transaction_actions_max as usize
            || transaction.bytes + size > self.limits.transaction_bytes_max
            || self.transaction_bytes + size > self.limits.transactions_bytes_max
        {
            return Err(TransactOutcome::LimitExceeded);
        }
        transaction.actions.push(action);
        transaction.bytes += size;
        self.transaction_bytes += size;
        Ok(())
    }

    fn settlement(
        &self,
        key: SessionKey,
        delivery: DeliveryId,
        how: Settlement,
    ) -> Result<Action, TransactOutcome> {
        let session = &self.sessions[key as usize];
        let slot = session.inflight.get(delivery).filter(|slot| slot.stage == Stage::AwaitAck);
        let slot = slot.ok_or(TransactOutcome::DeliveryUnknown)?;
        Ok(Action::Settle { delivery, queue: slot.queue, seq: slot.seq, how })
    }

    /// Takes an open transaction out of its session.
    pub(super) fn take_transaction(&mut self, key: SessionKey, id: TransactionId) -> Option<Transaction> {
        let transaction = self.sessions[key as usize].transactions.as_mut()?.remove(&id)?;
        self.transaction_bytes -= transaction.bytes;
        Some(transaction)
    }

    /// The connection is gone: what was not committed never happened.
    pub(super) fn abort_all(&mut self, key: SessionKey) {
        if let Some(own) = self.sessions[key as usize].transactions.take() {
            self.stats.transactions_aborted += own.len() as u64;
            self.transaction_bytes -= own.values().map(|transaction| transaction.bytes).sum::<u64>();
        }
    }

    pub(super) fn abort(&mut self, key: SessionKey, tag: ReplyTag, id: TransactionId) {
        let known = self.take_transaction(key, id).is_some();
        self.stats.transactions_aborted += u64::from(known);
        let outcome = if known { TransactOutcome::Done } else { TransactOutcome::Unknown };
        self.answer(key, None, ClientEvent::Transacted { tag, outcome });
    }

    pub(super) fn commit(&mut self, key: SessionKey, tag: ReplyTag, id: TransactionId, now: Now) {
        let Some(transaction) = self.take_transaction(key, id) else {
            let outcome = TransactOutcome::Unknown;
            self.answer(key, None, ClientEvent::Transacted { tag, outcome });
            return;
        };
        let planned = transaction
            .refused
            .map_or(Ok(()), Err)
            .and_then(|()| self.plan_all(&transaction.actions, Some(key)).map_err(TransactOutcome::Refused));
        if let Err(outcome) = planned {
            self.stats.transactions_aborted += 1;
            self.answer(key, None, ClientEvent::Transacted { tag, outcome });
            return;
        }
        let before = self.batch.memory();
        self.apply_all(Some(key), transaction.actions, now);
        self.stats.transactions_committed += 1;
        let after = (self.batch.memory() > before).then(|| self.batch.id());
        self.answer(key, after, ClientEvent::Transacted { tag, outcome: TransactOutcome::Done });
    }

    /// Whether every message may be published, changing nothing but that queues are made.
    pub(super) fn plan_all(
        &mut self,
        actions: &[Action],
        publisher: Option<SessionKey>,
    ) -> Result<(), PublishOutcome> {
        for action in actions {
            let Action::Publish(message) = action else { continue };
            if topic::is_queue(message.topic()) {
                self.named_queue(message.topic())?;
            }
            let routes = self.router.route(message.topic());
            let mut plan = std::mem::take(&mut self.plan);
            let result = self.plan_routes(&routes, message, publisher, &mut plan);
            plan.clear();
            self.plan = plan;
            result?;
        }
        Ok(())
    }

    /// Carries out what was planned. Nothing is refused any more: a queue may exceed its bounds by one transaction.
    pub(super) fn apply_all(&mut self, key: Option<SessionKey>, actions: Vec<Action>, now: Now) {
        self.committing = Some(self.batch.id());
        for action in actions {
            match action {
                Action::Publish(message) => self.publish_committed(&message, key, now),
                Action::Settle { delivery, queue, seq, how } => {
                    if let Some(key) = key {
                        self.settle_committed(key, delivery, queue, seq, how, now);
                    }
                }
            }
        }
        self.committing = None;
    }

    pub(super) fn publish_committed(&mut self, message: &Message, key: Option<SessionKey>, now: Now) {
        self.stats.published[message.qos() as usize] += 1;
        self.stats.published_bytes += u64::from(message.size());
        let result = self.distribute(message, message.topic(), key, now);
        self.stats.refused_quota += u64::from(result.is_err());
    }

    fn settle_committed(
        &mut self,
        key: SessionKey,
        id: DeliveryId,
        queue: QueueRef,
        seq: Seq,
        how: Settlement,
        now: Now,
    ) {
        let slot = self.sessions[key as usize].inflight.get(id);
        if !slot.is_some_and(|slot| slot.queue == queue && slot.seq == seq && slot.stage == Stage::AwaitAck) {
            self.stats.acknowledgements_ignored += 1;
            return;
        }
        match how {
            Settlement::Accept => self.settle(key, id, true, now),
            Settlement::Reject { requeue } => self.reject(key, id, requeue, now),
        }
    }
}
