//! Transactions that outgrow the memory for them: their messages wait in the store.
//!
//! Once its own share or that of all transactions is used up, what a transaction publishes goes to a queue of the store that belongs to
//! nobody else: a *spill*. Recovery throws away what no row names, so a crash before the commit is an abort; to prepare the
//! transaction is to write a row that names it. The commit is one batch: what was in memory is carried out, and a row says that the
//! spill belongs to its targets from now on. After that the
//! messages *move*, a page in each batch, through the same code as any message; a crash in the middle goes on where it was. The
//! answer leaves when everything has moved, and until then the publisher's next messages are given back, so that they overtake nothing.
//!
//! Bounds: `transaction_disk_bytes_max` for one spill, `transactions_disk_bytes_max` for all, one page of [`PAGE_BYTES_MAX`] in memory,
//! since one transaction moves at a time. Whether there is room at its commit is asked for [`PLANNED_TOPICS_MAX`] of its topics; its
//! queues may exceed their bounds by it.

use std::collections::VecDeque;

use crate::broker::Broker;
use crate::broker::api::{ConnId, ReplyTag, TransactOutcome};
use crate::broker::effects::Effect;
use crate::message::{DeliveryOptions, Message, MessageHead};
use crate::session::SessionKey;
use crate::session::prepared_rows::spill_row;
use crate::session::rows::BadRow;
use crate::store::contract::{
    BatchId, Page, PageRequest, QueueId, RecoveredQueue, Seq, Space, Target, Targets,
};
use crate::time::{Mono, Now};

/// Bytes of a page, but for its last message.
const PAGE_BYTES_MAX: u32 = 128 << 10;
/// Messages of a page.
const PAGE_MESSAGES_MAX: u32 = 512;
/// Topics of a spill that are asked for room at the commit.
const PLANNED_TOPICS_MAX: usize = 8;
/// The value of a row of [`Space::Moving`].
const VERSION: u8 = 1;

/// The part of an open transaction that is in the store.
#[derive(Debug)]
pub(super) struct Spill {
    queue: QueueId,
    /// Messages.
    pub(super) messages: usize,
    /// Their sizes' sum.
    bytes: u64,
    /// The first message of each topic, without its payload.
    pub(super) topics: Vec<Message>,
}

impl Spill {
    /// The row that makes it a part of a prepared transaction.
    pub(super) fn row(&self) -> Box<[u8]> {
        spill_row(self.queue, &self.topics)
    }

    /// Memory that it counts for, in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.topics.iter().map(|sample| sample.memory() as u64).sum()
    }
}

/// A committed spill on its way to its targets.
#[derive(Debug)]
pub(super) struct Move {
    queue: QueueId,
    next: Seq,
    end: Seq,
    bytes: u64,
    /// Whom to answer; `None`: the process that committed it is gone, or nobody who waits has decided it.
    publisher: Option<(SessionKey, ConnId, ReplyTag)>,
    /// What moved last is durable with this batch.
    batch: BatchId,
    /// A page is on its way.
    asked: bool,
}

/// What is spilled, and what moves.
#[derive(Debug, Default)]
pub(super) struct Spills {
    /// Sizes' sum of everything that open and committed transactions have in the store.
    bytes: u64,
    moves: VecDeque<Move>,
}

impl Spills {
    /// What they take of the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Nothing is committed and on its way.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.moves.is_empty()
    }

    /// Nobody waits for the end of some of it.
    fn are_taken_up(&self) -> bool {
        self.moves.iter().any(|m| m.publisher.is_none())
    }

    fn of_session(&self, key: SessionKey, conn: Option<ConnId>) -> bool {
        self.moves
            .iter()
            .any(|m| m.publisher.is_some_and(|(session, of, _)| session == key && Some(of) == conn))
    }
}

impl Broker {
    /// The message goes to a transaction's spill; returns the memory that this takes.
    pub(super) fn spill(
        &mut self,
        spill: &mut Option<Box<Spill>>,
        message: Message,
    ) -> Result<u64, TransactOutcome> {
        let size = u64::from(message.size());
        let own = spill.as_ref().map_or(0, |spill| spill.bytes);
        if self.full
            || own + size > self.limits.transaction_disk_bytes_max
            || self.spills.bytes + size > self.limits.transactions_disk_bytes_max
        {
            return Err(TransactOutcome::LimitExceeded);
        }
        if spill.is_none() {
            *spill = Some(Box::new(self.new_spill()));
        }
        let Some(spill) = spill else { return Err(TransactOutcome::LimitExceeded) };
        let mut memory = 0;
        let is_known = spill.topics.iter().any(|known| known.topic() == message.topic());
        if !is_known && spill.topics.len() < PLANNED_TOPICS_MAX {
            let head = MessageHead { qos: message.qos(), ..MessageHead::default() };
            let sample = Message::new(message.topic(), b"", head);
            memory = sample.memory() as u64;
            spill.topics.push(sample);
        }
        spill.messages += 1;
        spill.bytes += size;
        self.spills.bytes += size;
        let target =
            Target { queue: spill.queue, seq: spill.messages as Seq, options: DeliveryOptions::default() };
        self.batch.enqueue(message, Targets::from_elem(target, 1));
        Ok(memory)
    }

    fn new_spill(&mut self) -> Spill {
        let queue = self.next_queue;
        self.next_queue = QueueId(queue.0.checked_add(1).expect("a queue each second lasts 136 years"));
        self.batch.create_queue(queue);
        self.stats.transactions_spilled += 1;
        Spill { queue, messages: 0, bytes: 0, topics: Vec::new() }
    }

    /// The transaction ends without effect.
    pub(super) fn drop_spill(&mut self, spill: Option<Box<Spill>>) {
        if let Some(spill) = spill {
            self.spills.bytes -= spill.bytes;
            self.batch.delete_queue(spill.queue);
        }
    }

    /// The transaction is committed with the batch being built; its spill moves, and then its client is answered.
    pub(super) fn commit_spill(&mut self, key: SessionKey, tag: ReplyTag, spill: &Spill) {
        let conn = self.sessions[key as usize].conn;
        self.start_move(spill, conn.map(|conn| (key, conn, tag)));
    }

    /// The spill belongs to its targets with the batch being built. `publisher` is answered when it has got there; `None`: nobody,
    /// and everybody who can waits for it.
    pub(super) fn start_move(&mut self, spill: &Spill, publisher: Option<(SessionKey, ConnId, ReplyTag)>) {
        self.batch.put(Space::Moving, moving_key(spill.queue), [VERSION].into());
        self.batch.make_urgent();
        self.spills.moves.push_back(Move {
            queue: spill.queue,
            next: 1,
            end: spill.messages as Seq + 1,
            bytes: spill.bytes,
            publisher,
            batch: self.batch.id(),
            asked: false,
        });
    }

    /// A message of this client would overtake what it, or anybody before a restart, has committed before: it is to wait, if its
    /// client can. On a full disk, where nothing moves, only the client itself waits.
    #[inline]
    pub(super) fn follows_a_move(&self, key: SessionKey) -> bool {
        !self.spills.is_idle()
            && self.may_wait != super::waiting::MayWait::No
            && (self.spills.of_session(key, self.sessions[key as usize].conn)
                || (!self.full && self.spills.are_taken_up()))
    }

    /// The first move can go on.
    pub(super) fn next_move_is_due(&self) -> Option<Mono> {
        let first = self.spills.moves.front()?;
        (!first.asked && !self.full && !self.stopping && first.batch <= self.committed).then_some(Mono(0))
    }

    /// Asks for the next page when what moved before is durable.
    pub(super) fn go_on_moving(&mut self) {
        if self.next_move_is_due().is_none() {
            return;
        }
        let Some(first) = self.spills.moves.front_mut() else { return };
        first.asked = true;
        let (queue, from) = (first.queue, first.next);
        self.stats.loads += 1;
        // The page is to hold what the batch holds.
        self.batch.end_hold();
        let (bytes_max, messages_max) = (PAGE_BYTES_MAX, PAGE_MESSAGES_MAX);
        self.effects.push(Effect::Load(PageRequest { queue, from, bytes_max, messages_max }));
    }

    /// A page of the first move. `Some`: it is none.
    pub(super) fn move_page(&mut self, page: Page, now: Now) -> Option<Page> {
        let first = self.spills.moves.front_mut();
        let Some(first) = first.filter(|first| first.queue == page.queue && first.next == page.from) else {
            return Some(page);
        };
        first.asked = false;
        if self.full {
            // It is asked for again when there is room.
            return None;
        }
        first.next = page.next.max(page.from + 1);
        first.batch = self.batch.id();
        let (queue, is_last) = (first.queue, first.next >= first.end);
        let publisher = first.publisher.map(|(key, conn, _)| (key, conn));
        let key = publisher.filter(|(_, conn)| self.conns.contains_key(conn)).map(|(key, _)| key);
        self.batch.make_urgent();
        self.committing = Some(self.batch.id());
        for entry in &page.entries {
            self.publish_committed(&entry.message, key, now);
        }
        self.committing = None;
        self.follow_commit(key);
        for run in page.entries.chunk_by(|a, b| a.seq + 1 == b.seq) {
            let bytes = run.iter().map(|entry| u64::from(entry.message.size())).sum();
            self.batch.settle_run(queue, run[0].seq, run.len() as u64, bytes);
        }
        if is_last {
            self.end_move();
        }
        None
    }

    /// Everything has moved.
    fn end_move(&mut self) {
        let Some(done) = self.spills.moves.pop_front() else { return };
        self.spills.bytes -= done.bytes;
        self.batch.delete(Space::Moving, moving_key(done.queue));
        self.batch.delete_queue(done.queue);
        // Who waits for the end may go on.
        self.freed += 1;
        if let Some((key, conn, tag)) = done.publisher
            && self.conns.get(&conn) == Some(&key)
        {
            self.answer_transacted(key, Some(self.batch.id()), tag, TransactOutcome::Done);
        }
    }

    /// Takes up the spill of a prepared transaction.
    pub(super) fn restore_spill(&mut self, found: &RecoveredQueue, topics: Vec<Message>) -> Box<Spill> {
        self.spills.bytes += found.bytes;
        let messages = usize::try_from(found.messages).expect("actions are bounded");
        Box::new(Spill { queue: found.queue, messages, bytes: found.bytes, topics })
    }

    /// Takes up a move that an earlier process did not finish.
    pub(super) fn restore_move(
        &mut self,
        key: &[u8],
        value: &[u8],
        find: impl FnOnce(QueueId) -> Option<RecoveredQueue>,
    ) -> Result<(), BadRow> {
        let queue = <[u8; 4]>::try_from(key).map_err(|_| BadRow("transaction's queue"))?;
        let queue = QueueId(u32::from_be_bytes(queue));
        if value != [VERSION] {
            return Err(BadRow("unknown version"));
        }
        let Some(found) = find(queue) else {
            self.batch.delete(Space::Moving, key.into());
            return Ok(());
        };
        self.spills.bytes += found.bytes;
        self.spills.moves.push_back(Move {
            queue,
            next: found.head.max(1),
            end: found.tail,
            bytes: found.bytes,
            publisher: None,
            batch: BatchId(0),
            asked: false,
        });
        Ok(())
    }

    /// Transactions that have a part in the store, open, prepared or on their way, for checks.
    #[cfg(test)]
    pub(super) fn spilled(&self) -> usize {
        let open = self.sessions.iter().filter_map(|(_, session)| session.transactions.as_deref());
        let open = open.flat_map(|own| own.values()).filter(|transaction| transaction.spill.is_some());
        let prepared = self.prepared.open.values().filter(|prepared| prepared.spill.is_some());
        open.count() + prepared.count() + self.spills.moves.len()
    }
}

fn moving_key(queue: QueueId) -> Box<[u8]> {
    queue.0.to_be_bytes().into()
}
