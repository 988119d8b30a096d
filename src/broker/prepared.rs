//! Prepared transactions: what they are to do is durable, and waits for somebody's decision.
//!
//! To prepare a transaction its messages are stored out of sight, and the deliveries that it is to settle leave their session:
//! they belong to the transaction, which outlives connections and restarts, until it is decided. A decision and all its effects
//! are one batch, but that the messages of a [`spill`](super::spill) move after it; it is remembered, so that repeating it is
//! harmless and contradicting it is noticed. Only deliveries of named queues can be prepared. Bounds: `prepared_transactions_max`, their memory within `transactions_bytes_max`, and
//! [`DECISIONS_MAX`] decisions remembered.

use std::collections::{BTreeMap, VecDeque};

use crate::broker::Broker;
use crate::broker::api::{
    ClientCommand, DeliveryId, PublishOutcome, ReplyTag, TransactOutcome, TransactionId,
};
use crate::broker::spill::Spill;
use crate::broker::tick::Timer;
use crate::broker::transact::{ACTION_OVERHEAD_BYTES, Action, Settlement};
use crate::message::Message;
use crate::queue::QueueRef;
use crate::queue::window::entry_memory;
use crate::session::SessionKey;
use crate::session::inflight::{Held, Slot, Stage};
use crate::session::prepared_rows::{
    StoredPart, decision_row, dequeue_row, head_row, part_key, publish_row, read_decision, read_head,
    read_part, split_part_key,
};
use crate::session::rows::BadRow;
use crate::store::contract::{BatchId, QueueId, RecoveredQueue, Seq, Space};
use crate::time::{Mono, Now, Wall};

/// Decisions that are remembered.
pub const DECISIONS_MAX: usize = 1024;
/// Length of a transaction's name in bytes.
pub const XID_BYTES_MAX: usize = 255;

/// What a prepared transaction will do.
#[derive(Debug)]
pub(super) enum Part {
    Publish(Message),
    /// The delivery as it was in its session.
    Settle(Slot, Settlement),
}

impl Part {
    /// Memory that it counts for, in bytes.
    fn memory(&self) -> u64 {
        let message = match self {
            Self::Publish(message) => message.memory(),
            Self::Settle(slot, _) => slot.held.as_ref().map_or(0, |held| entry_memory(&held.message)),
        };
        message as u64 + ACTION_OVERHEAD_BYTES
    }
}

/// A prepared transaction.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) number: u32,
    pub(super) since: Wall,
    pub(super) parts: Vec<Part>,
    /// What it publishes after them.
    pub(super) spill: Option<Box<Spill>>,
    /// The number of its last row.
    pub(super) last: u32,
    /// Memory that it counts for.
    pub(super) bytes: u64,
    pub(super) deadline: Option<Mono>,
}

/// All prepared transactions, and what was decided lately.
#[derive(Debug, Default)]
pub(super) struct PreparedTable {
    pub(super) open: BTreeMap<Box<str>, Prepared>,
    /// Number, name, committed: in the order of the decisions.
    pub(super) decided: VecDeque<(u32, Box<str>, bool)>,
    pub(super) next_number: u32,
    /// Rolled back since somebody last asked, since nobody decided in time.
    timed_out: Vec<Box<str>>,
}

impl PreparedTable {
    fn decision(&self, xid: &str) -> Option<bool> {
        self.decided.iter().find(|(_, name, _)| &**name == xid).map(|(.., committed)| *committed)
    }
}

/// A prepared transaction as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedStatus {
    /// Its name.
    pub xid: Box<str>,
    /// When it was prepared.
    pub since: Wall,
    /// Messages that it will publish.
    pub publishes: usize,
    /// Deliveries that it will settle.
    pub settles: usize,
}

impl Broker {
    pub(super) fn prepare(
        &mut self,
        key: SessionKey,
        tag: ReplyTag,
        id: TransactionId,
        xid: Box<str>,
        now: Now,
    ) {
        let (after, outcome) = match self.prepare_transaction(key, id, xid, now) {
            Ok(()) => (Some(self.batch.id()), TransactOutcome::Done),
            Err(refused) => (None, refused),
        };
        self.answer_transacted(key, after, tag, outcome);
        if outcome == TransactOutcome::Done {
            self.pump_session(key, now);
        }
    }

    fn prepare_transaction(
        &mut self,
        key: SessionKey,
        id: TransactionId,
        xid: Box<str>,
        now: Now,
    ) -> Result<(), TransactOutcome> {
        let bytes = self.check_prepare(key, id, &xid)?;
        let Some(transaction) = self.take_transaction(key, id) else { return Err(TransactOutcome::Unknown) };
        if let Err(refused) = self.plan_transaction(key, &transaction) {
            self.stats.transactions_aborted += 1;
            self.drop_spill(transaction.spill);
            return Err(refused);
        }
        let number = self.prepared.next_number;
        self.prepared.next_number += 1;
        let parts = self.store_parts(key, number, &xid, transaction.actions, now);
        self.transaction_bytes += bytes;
        let mut last = u32::try_from(parts.len()).expect("actions are bounded");
        let spill = transaction.spill;
        if let Some(spill) = &spill {
            last += 1;
            self.batch.put(Space::Prepared, part_key(number, last), spill.row());
        }
        let mut prepared = Prepared { number, since: now.wall, parts, spill, last, bytes, deadline: None };
        self.plan_time_out(&mut prepared, &xid, now);
        self.prepared.open.insert(xid, prepared);
        Ok(())
    }

    /// Whether the transaction may be prepared; the memory that it will count for.
    fn check_prepare(&self, key: SessionKey, id: TransactionId, xid: &str) -> Result<u64, TransactOutcome> {
        let session = &self.sessions[key as usize];
        let own = session.transactions.as_ref().and_then(|own| own.get(&id));
        let transaction = own.ok_or(TransactOutcome::Unknown)?;
        if let Some(refused) = transaction.refused {
            return Err(refused);
        }
        if self.prepared.open.contains_key(xid) || self.prepared.decision(xid).is_some() {
            return Err(TransactOutcome::AlreadyOpen);
        }
        let mut bytes = transaction.bytes;
        for action in &transaction.actions {
            let Action::Settle { of, delivery, queue, seq, .. } = action else { continue };
            if of.is_some() {
                return Err(TransactOutcome::DeliveryUnknown);
            }
            let slot =
                session.inflight.get(*delivery).filter(|slot| slot.queue == *queue && slot.seq == *seq);
            let held =
                slot.filter(|slot| self.group_of_slot(slot).is_some()).and_then(|slot| slot.held.as_ref());
            bytes += entry_memory(&held.ok_or(TransactOutcome::DeliveryUnknown)?.message) as u64;
        }
        let fits = self.transaction_bytes - transaction.bytes + bytes <= self.limits.transactions_bytes_max
            && self.prepared.open.len() < self.limits.prepared_transactions_max as usize;
        if xid.is_empty() || xid.len() > XID_BYTES_MAX || !fits || self.full {
            return Err(TransactOutcome::LimitExceeded);
        }
        Ok(bytes)
    }

    /// Writes everything that the transaction consists of, and takes its deliveries out of their session.
    fn store_parts(
        &mut self,
        key: SessionKey,
        number: u32,
        xid: &str,
        actions: Vec<Action>,
        now: Now,
    ) -> Vec<Part> {
        self.batch.put(Space::Prepared, part_key(number, 0), head_row(xid, now.wall));
        let mut parts = Vec::with_capacity(actions.len());
        for action in actions {
            let row_key = part_key(number, u32::try_from(parts.len() + 1).expect("actions are bounded"));
            match action {
                Action::Publish(message) => {
                    self.batch.put(Space::Prepared, row_key, publish_row(&message));
                    parts.push(Part::Publish(message));
                }
                Action::Settle { delivery, how, .. } => {
                    let Some(slot) = self.sessions[key as usize].inflight.remove(delivery) else { continue };
                    self.free_consumer(key, &slot);
                    let queue = &mut self.queues[slot.queue.key as usize];
                    queue.keep_out_of_turn(slot.seq);
                    if let (Some(id), Some(held)) = (queue.id(), &slot.held) {
                        let row = dequeue_row(id, slot.seq, how.code(), held);
                        self.batch.put(Space::Prepared, row_key, row);
                    }
                    parts.push(Part::Settle(slot, how));
                }
            }
        }
        parts
    }

    pub(super) fn plan_time_out(&mut self, prepared: &mut Prepared, xid: &str, now: Now) {
        let Some(seconds) = self.limits.prepared_timeout_secs else { return };
        let at = prepared.since.plus_secs(u64::from(seconds));
        let deadline = now.mono.plus_millis(at.millis_since(now.wall));
        self.timers.insert((deadline, Timer::Prepared(xid.into())));
        prepared.deadline = Some(deadline);
    }

    /// Nobody decided in time.
    pub(super) fn prepared_timed_out(&mut self, xid: &str, now: Now) {
        if let Some(prepared) = self.prepared.open.get_mut(xid) {
            prepared.deadline = None;
            self.stats.prepared_timed_out += 1;
            if self.prepared.timed_out.len() < DECISIONS_MAX {
                self.prepared.timed_out.push(xid.into());
            }
            let _rolled_back = self.decide(xid, false, now);
        }
    }

    pub(super) fn decide_for(&mut self, key: SessionKey, tag: ReplyTag, xid: &str, commit: bool, now: Now) {
        if commit && self.follows_a_move(key) {
            self.given_back = Some(Box::new(ClientCommand::Decide { tag, xid: xid.into(), commit }));
            return;
        }
        let (outcome, spill) = self.decide_by(Some(key), xid, commit, now);
        if let Some(spill) = spill {
            return self.commit_spill(key, tag, &spill);
        }
        // A repeated decision may be answered when the first one is durable: that was in an earlier batch or is in this one.
        let after = (outcome == TransactOutcome::Done).then_some(self.decided_batch);
        self.answer_transacted(key, after, tag, outcome);
    }

    /// Commits or rolls back a prepared transaction. Its effects are durable with the batch being built.
    pub fn decide(&mut self, xid: &str, commit: bool, now: Now) -> TransactOutcome {
        let (outcome, spill) = self.decide_by(None, xid, commit, now);
        if let Some(spill) = spill {
            self.start_move(&spill, None);
        }
        outcome
    }

    /// Also what is to move now.
    fn decide_by(
        &mut self,
        client: Option<SessionKey>,
        xid: &str,
        commit: bool,
        now: Now,
    ) -> (TransactOutcome, Option<Box<Spill>>) {
        if commit && let Err(refused) = self.plan_parts(xid) {
            return (TransactOutcome::Refused(refused), None);
        }
        let Some(prepared) = self.prepared.open.remove(xid) else {
            let outcome = match self.prepared.decision(xid) {
                Some(before) if before == commit => TransactOutcome::Done,
                Some(_) => TransactOutcome::DecidedOtherwise,
                None => TransactOutcome::Unknown,
            };
            return (outcome, None);
        };
        self.transaction_bytes -= prepared.bytes;
        if let Some(at) = prepared.deadline {
            self.timers.remove(&(at, Timer::Prepared(xid.into())));
        }
        for part in 0..=prepared.last {
            self.batch.delete(Space::Prepared, part_key(prepared.number, part));
        }
        self.remember_decision(prepared.number, xid, commit);
        self.committing = Some(self.batch.id());
        for part in prepared.parts {
            self.carry_out(part, commit, now);
        }
        self.committing = None;
        self.follow_commit(client);
        let count = if commit {
            &mut self.stats.transactions_committed
        } else {
            &mut self.stats.transactions_aborted
        };
        *count += 1;
        if !commit {
            self.drop_spill(prepared.spill);
            return (TransactOutcome::Done, None);
        }
        (TransactOutcome::Done, prepared.spill)
    }

    fn plan_parts(&mut self, xid: &str) -> Result<(), PublishOutcome> {
        let Some(prepared) = self.prepared.open.get(xid) else { return Ok(()) };
        let messages = prepared.parts.iter().filter_map(|part| match part {
            Part::Publish(message) => Some(message),
            Part::Settle(..) => None,
        });
        let spilled = prepared.spill.iter().flat_map(|spill| &spill.topics);
        let actions: Vec<Action> = messages.chain(spilled).cloned().map(Action::Publish).collect();
        self.plan_all(&actions, None)
    }

    fn carry_out(&mut self, part: Part, commit: bool, now: Now) {
        match part {
            Part::Publish(message) if commit => self.publish_committed(&message, None, now),
            Part::Publish(_) => {}
            Part::Settle(slot, Settlement::Accept) if commit => self.settle_in_queue(&slot, true),
            Part::Settle(slot, Settlement::Reject { requeue: false }) if commit => {
                self.bury_prepared(slot, now)
            }
            Part::Settle(slot, _) => {
                if let Some(group) = self.give_back(slot, now) {
                    self.pump_group(group, now);
                }
            }
        }
    }

    fn bury_prepared(&mut self, slot: Slot, now: Now) {
        let group = self.group_of_slot(&slot);
        if let (Some(group), Some(held)) = (group, &slot.held)
            && self.has_dead_letters(group)
            && !self.enqueue_dead(group, held, super::dead::Reason::Rejected, now)
        {
            self.give_back(slot, now);
            return self.pump_group(group, now);
        }
        self.settle_in_queue(&slot, false);
    }

    fn remember_decision(&mut self, number: u32, xid: &str, committed: bool) {
        self.decided_batch = self.batch.id();
        self.batch.put(Space::Decided, part_key(number, 0), decision_row(xid, committed));
        self.prepared.decided.push_back((number, xid.into(), committed));
        if self.prepared.decided.len() > DECISIONS_MAX
            && let Some((oldest, ..)) = self.prepared.decided.pop_front()
        {
            self.batch.delete(Space::Decided, part_key(oldest, 0));
        }
    }

    /// The names of those that were rolled back since the last call because nobody decided in time: at most as many as
    /// decisions are remembered.
    pub fn take_timed_out(&mut self) -> Vec<Box<str>> {
        std::mem::take(&mut self.prepared.timed_out)
    }

    /// All prepared transactions, by name.
    pub fn prepared_transactions(&self) -> impl Iterator<Item = PreparedStatus> + '_ {
        self.prepared.open.iter().map(|(xid, prepared)| {
            let publishes = prepared.parts.iter().filter(|part| matches!(part, Part::Publish(_))).count();
            let settles = prepared.parts.len() - publishes;
            let publishes = publishes + prepared.spill.as_ref().map_or(0, |spill| spill.messages);
            PreparedStatus { xid: xid.clone(), since: prepared.since, publishes, settles }
        })
    }

    /// The prepared transactions' deliveries, for checks.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn prepared_slots(&self) -> impl Iterator<Item = &Slot> {
        self.prepared.open.values().flat_map(|prepared| &prepared.parts).filter_map(|part| match part {
            Part::Settle(slot, _) => Some(slot),
            Part::Publish(_) => None,
        })
    }

    /// Takes up a row of a prepared transaction; its head comes first.
    pub(super) fn restore_prepared(
        &mut self,
        key: &[u8],
        value: &[u8],
        find: impl FnOnce(QueueId) -> Option<RecoveredQueue>,
        now: Now,
    ) -> Result<(), BadRow> {
        let (number, n) = split_part_key(key)?;
        self.prepared.next_number = self.prepared.next_number.max(number.saturating_add(1));
        if n == 0 {
            let (xid, since) = read_head(value)?;
            let mut prepared =
                Prepared { number, since, parts: Vec::new(), spill: None, last: 0, bytes: 0, deadline: None };
            self.plan_time_out(&mut prepared, &xid, now);
            self.prepared.open.insert(xid, prepared);
            return Ok(());
        }
        let mut spill = None;
        let part = match read_part(value)? {
            StoredPart::Spill(queue, topics) => {
                let found = find(queue).ok_or(BadRow("transaction's queue"))?;
                spill = Some(self.restore_spill(&found, topics));
                None
            }
            StoredPart::Publish(message) => Some(Part::Publish(message)),
            StoredPart::Settle(how, queue, seq, held) => {
                let how = Settlement::from_code(how).ok_or(BadRow("settlement"))?;
                self.hold_restored(queue, seq, held).map(|slot| Part::Settle(slot, how))
            }
        };
        let bytes = part.as_ref().map_or(0, Part::memory) + spill.as_ref().map_or(0, |spill| spill.memory());
        let Some(prepared) = self.prepared.open.values_mut().find(|open| open.number == number) else {
            return Err(BadRow("transaction without a head"));
        };
        prepared.last = prepared.last.max(n);
        prepared.parts.extend(part);
        prepared.spill = prepared.spill.take().or(spill);
        prepared.bytes += bytes;
        self.transaction_bytes += bytes;
        Ok(())
    }

    /// Takes up a decision.
    pub(super) fn restore_decision(&mut self, key: &[u8], value: &[u8]) -> Result<(), BadRow> {
        let (number, _) = split_part_key(key)?;
        let (xid, committed) = read_decision(value)?;
        self.prepared.next_number = self.prepared.next_number.max(number.saturating_add(1));
        self.prepared.decided.push_back((number, xid, committed));
        Ok(())
    }

    /// A delivery that a prepared transaction holds. `None`: its queue is gone.
    fn hold_restored(&mut self, id: QueueId, seq: Seq, held: Held) -> Option<Slot> {
        let key = *self.queue_keys.get(&id)?;
        let queue = &mut self.queues[key as usize];
        let slot = Slot {
            id: DeliveryId::MIN,
            stage: Stage::AwaitAck,
            has_row: false,
            size: held.message.size(),
            seq,
            queue: QueueRef { key, serial: queue.serial() },
            batch: BatchId(0),
            held: Some(Box::new(held)),
        };
        if slot.seq < queue.spilled_from() || slot.seq >= queue.tail() || queue.is_taken(slot.seq) {
            return None;
        }
        queue.hold_out_of_turn(slot.seq);
        if let Some(held) = &slot.held {
            self.budget.add(entry_memory(&held.message), false);
        }
        Some(slot)
    }
}
