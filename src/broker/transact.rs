//! Transactions: publishes and settlements of one client that become durable together or not at all.
//!
//! An open transaction is a list in memory, and, once that is full, a part in the store (see [`spill`](super::spill)). To commit it
//! the broker first plans every message, so that a refusal changes nothing, and then carries everything out within one turn: all
//! its operations are in one batch, whatever the number of queues, and nothing that it causes leaves before that batch is durable.
//! A transaction that is not committed when its connection ends, for whatever reason, never happened. Bounds:
//! `transactions_per_session_max`, `transaction_actions_max`, and for what is in memory `transaction_bytes_max` for one,
//! `transactions_bytes_max` for all, of which messages take [`MESSAGES_SHARE`] quarters at most, so that acknowledgements always
//! find room.

use std::collections::BTreeMap;

use crate::broker::Broker;
use crate::broker::api::{
    ClientCommand, ClientEvent, ConnId, DeliveryId, PublishOutcome, ReplyTag, TransactOutcome,
    TransactionAction, TransactionId,
};
use crate::broker::spill::Spill;
use crate::message::Message;
use crate::queue::QueueRef;
use crate::session::SessionKey;
use crate::session::inflight::Stage;
use crate::store::contract::{BatchId, Seq};
use crate::time::Now;
use crate::topic;

/// What a transaction will do.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// A message is published.
    Publish(Message),
    /// A delivery is settled, one of the connection `of` or else of the transaction's own; its queue and place tell it from a later
    /// one under the same identifier.
    Settle { of: Option<ConnId>, delivery: DeliveryId, queue: QueueRef, seq: Seq, how: Settlement },
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
    /// Memory of what is in memory.
    pub(super) bytes: u64,
    /// What came after it.
    pub(super) spill: Option<Box<Spill>>,
    /// Something that it was to do was refused: it will never be carried out, since that would be a part of it.
    pub(super) refused: Option<TransactOutcome>,
}

/// Quarters of `transactions_bytes_max` that messages may take.
const MESSAGES_SHARE: u64 = 3;

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
        self.answer_transacted(key, None, tag, outcome);
    }

    /// Answers a command about a transaction; see [`answer`](Self::answer).
    pub(super) fn answer_transacted(
        &mut self,
        key: SessionKey,
        after: Option<BatchId>,
        tag: ReplyTag,
        outcome: TransactOutcome,
    ) {
        let event = ClientEvent::Transacted { tag, outcome };
        if outcome != TransactOutcome::Done {
            self.note_refusal(&event);
        }
        self.answer(key, after, event);
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
        self.answer_transacted(key, None, tag, outcome);
    }

    fn add_action(
        &mut self,
        key: SessionKey,
        id: TransactionId,
        action: TransactionAction,
    ) -> Result<(), TransactOutcome> {
        let action = self.checked_action(key, action)?;
        let size = match &action {
            Action::Publish(message) => message.memory() as u64 + ACTION_OVERHEAD_BYTES,
            Action::Settle { .. } => ACTION_OVERHEAD_BYTES,
        };
        let transaction = self.open_transaction(key, id).ok_or(TransactOutcome::Unknown)?;
        let (own, spilled) = (transaction.bytes, transaction.spill.as_ref().map(|spill| spill.messages));
        let actions = transaction.actions.len() + spilled.unwrap_or(0);
        if actions >= self.limits.transaction_actions_max as usize {
            return Err(TransactOutcome::LimitExceeded);
        }
        let (own_max, all_max) = (self.limits.transaction_bytes_max, self.limits.transactions_bytes_max);
        let all = self.transaction_bytes + size;
        let action = match action {
            Action::Publish(message)
                if spilled.is_some() || own + size > own_max || all > all_max / 4 * MESSAGES_SHARE =>
            {
                return self.spill_of(key, id, message);
            }
            // Their number bounds their part of one transaction, whatever its messages take.
            Action::Settle { .. } if all > all_max => return Err(TransactOutcome::LimitExceeded),
            action => action,
        };
        let transaction = self.open_transaction(key, id).ok_or(TransactOutcome::Unknown)?;
        transaction.actions.push(action);
        transaction.bytes += size;
        self.transaction_bytes += size;
        Ok(())
    }

    /// What is to be done, if it may be done.
    fn checked_action(&self, key: SessionKey, action: TransactionAction) -> Result<Action, TransactOutcome> {
        Ok(match action {
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
            TransactionAction::Settle(delivery) => {
                self.settlement(key, None, delivery, Settlement::Accept)?
            }
            TransactionAction::Reject { delivery, requeue } => {
                self.settlement(key, None, delivery, Settlement::Reject { requeue })?
            }
            TransactionAction::Elsewhere { conn, delivery, rejected } => {
                let how = rejected.map_or(Settlement::Accept, |requeue| Settlement::Reject { requeue });
                self.settlement(key, Some(conn), delivery, how)?
            }
        })
    }

    fn open_transaction(&mut self, key: SessionKey, id: TransactionId) -> Option<&mut Transaction> {
        self.sessions[key as usize].transactions.as_mut()?.get_mut(&id)
    }

    fn spill_of(
        &mut self,
        key: SessionKey,
        id: TransactionId,
        message: Message,
    ) -> Result<(), TransactOutcome> {
        let mut spill = self.open_transaction(key, id).and_then(|transaction| transaction.spill.take());
        let spilled = self.spill(&mut spill, message);
        let memory = *spilled.as_ref().unwrap_or(&0);
        let transaction = self.open_transaction(key, id).ok_or(TransactOutcome::Unknown)?;
        transaction.spill = spill;
        transaction.bytes += memory;
        self.transaction_bytes += memory;
        spilled.map(|_| ())
    }

    fn settlement(
        &self,
        key: SessionKey,
        of: Option<ConnId>,
        delivery: DeliveryId,
        how: Settlement,
    ) -> Result<Action, TransactOutcome> {
        let holder = self.holder(key, of).ok_or(TransactOutcome::DeliveryUnknown)?;
        let session = &self.sessions[holder as usize];
        let slot = session.inflight.get(delivery).filter(|slot| slot.stage == Stage::AwaitAck);
        let slot = slot.ok_or(TransactOutcome::DeliveryUnknown)?;
        Ok(Action::Settle { of, delivery, queue: slot.queue, seq: slot.seq, how })
    }

    /// The session whose delivery is to be settled; `None`: its connection is gone, and the delivery waits again.
    fn holder(&self, own: SessionKey, of: Option<ConnId>) -> Option<SessionKey> {
        of.map_or(Some(own), |conn| self.conns.get(&conn).copied())
    }

    /// Takes an open transaction out of its session.
    pub(super) fn take_transaction(&mut self, key: SessionKey, id: TransactionId) -> Option<Transaction> {
        let transaction = self.sessions[key as usize].transactions.as_mut()?.remove(&id)?;
        self.transaction_bytes -= transaction.bytes;
        Some(transaction)
    }

    fn put_transaction_back(&mut self, key: SessionKey, id: TransactionId, transaction: Transaction) {
        self.transaction_bytes += transaction.bytes;
        self.sessions[key as usize].transactions.get_or_insert_default().insert(id, transaction);
    }

    fn transaction_waits(&mut self, transaction: &Transaction) -> bool {
        let spilled = transaction.spill.iter().flat_map(|spill| &spill.topics);
        let messages = transaction.actions.iter().filter_map(|action| match action {
            Action::Publish(message) => Some(message),
            Action::Settle { .. } => None,
        });
        messages.chain(spilled).any(|message| self.waits_for_room(message))
    }

    /// The connection is gone: what was not committed never happened.
    pub(super) fn abort_all(&mut self, key: SessionKey) {
        if let Some(own) = self.sessions[key as usize].transactions.take() {
            self.stats.transactions_aborted += own.len() as u64;
            for transaction in own.into_values() {
                self.transaction_bytes -= transaction.bytes;
                self.drop_spill(transaction.spill);
            }
        }
    }

    pub(super) fn abort(&mut self, key: SessionKey, tag: ReplyTag, id: TransactionId) {
        let transaction = self.take_transaction(key, id);
        let known = transaction.is_some();
        self.drop_spill(transaction.and_then(|transaction| transaction.spill));
        self.stats.transactions_aborted += u64::from(known);
        let outcome = if known { TransactOutcome::Done } else { TransactOutcome::Unknown };
        self.answer_transacted(key, None, tag, outcome);
    }

    pub(super) fn commit(&mut self, key: SessionKey, tag: ReplyTag, id: TransactionId, now: Now) {
        if self.follows_a_move(key) {
            self.given_back = Some(Box::new(ClientCommand::Commit { tag, transaction: id }));
            return;
        }
        let Some(transaction) = self.take_transaction(key, id) else {
            return self.answer_transacted(key, None, tag, TransactOutcome::Unknown);
        };
        let planned =
            transaction.refused.map_or(Ok(()), Err).and_then(|()| self.plan_transaction(key, &transaction));
        if let Err(refused) = planned {
            let no_room = TransactOutcome::Refused(PublishOutcome::QuotaExceeded);
            let may_wait = transaction.refused.is_none() && refused == no_room;
            if may_wait && self.transaction_waits(&transaction) {
                self.put_transaction_back(key, id, transaction);
                self.given_back = Some(Box::new(ClientCommand::Commit { tag, transaction: id }));
                return;
            }
            self.stats.transactions_aborted += 1;
            self.drop_spill(transaction.spill);
            return self.answer_transacted(key, None, tag, refused);
        }
        let before = self.batch.memory();
        self.apply_all(Some(key), transaction.actions, now);
        self.stats.transactions_committed += 1;
        if let Some(spill) = transaction.spill {
            return self.commit_spill(key, tag, &spill);
        }
        let after = (self.batch.memory() > before).then(|| self.batch.id());
        self.answer_transacted(key, after, tag, TransactOutcome::Done);
    }

    /// Whether everything may happen, changing nothing but that queues are made.
    pub(super) fn plan_transaction(
        &mut self,
        key: SessionKey,
        transaction: &Transaction,
    ) -> Result<(), TransactOutcome> {
        let is_gone = |action: &Action| match action {
            Action::Settle { of, .. } => self.holder(key, *of).is_none(),
            Action::Publish(_) => false,
        };
        if transaction.actions.iter().any(is_gone) {
            return Err(TransactOutcome::DeliveryUnknown);
        }
        self.plan_all(&transaction.actions, Some(key)).map_err(TransactOutcome::Refused)?;
        if let Some(spill) = &transaction.spill {
            let samples: Vec<Action> = spill.topics.iter().cloned().map(Action::Publish).collect();
            self.plan_all(&samples, Some(key)).map_err(TransactOutcome::Refused)?;
        }
        Ok(())
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
                Action::Settle { of, delivery, queue, seq, how } => {
                    if let Some(key) = key.and_then(|key| self.holder(key, of)) {
                        self.settle_committed(key, delivery, queue, seq, how, now);
                    }
                }
            }
        }
        self.committing = None;
        self.follow_commit(key);
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
