//! Taking up what the store has recovered.
//!
//! Costs O(queues + rows): no message is loaded but the retained ones. What nobody owns any more (rows or queues that a bug left
//! behind) is deleted. Sessions whose time is over end in the first turns, a bounded number in each.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;

use crate::broker::Broker;
use crate::broker::api::SessionExpiry;
use crate::broker::tick::Timer;
use crate::broker::wills::PendingWill;
use crate::message::{BadRecord, Message};
use crate::queue::group::Group;
use crate::queue::{Owner, Queue, QueueKey, QueueRef};
use crate::router::SetOutcome;
use crate::session::inflight::{Slot, Stage};
use crate::session::rows::{
    BadRow, SessionRow, decode_group, decode_named, decode_outbound, decode_subscription, decode_will,
    split_key, tag_of,
};
use crate::session::{Session, SessionKey};
use crate::store::contract::{BatchId, QueueId, Recovered, RecoveredQueue, Row, Space};
use crate::time::Now;
use crate::topic::{self, Filter};

/// Why a recovered state cannot be taken up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A row does not decode.
    #[error("{0}")]
    Row(#[from] BadRow),
    /// A retained message does not decode.
    #[error("retained message: {0}")]
    Retained(#[from] BadRecord),
    /// A key is no text.
    #[error("a key of {0:?} is not UTF-8")]
    Key(Space),
    /// A session or a shared subscription without its queue.
    #[error("queue {0} is missing")]
    MissingQueue(u32),
}

/// What is needed while rows refer to each other.
struct Restoring {
    queues: HashMap<QueueId, RecoveredQueue>,
    sessions: HashMap<QueueId, SessionKey>,
    now: Now,
}

impl Broker {
    /// Takes up what the store has recovered. The first call of a run, before any command.
    ///
    /// # Errors
    /// [`RestoreError`] when a row cannot be read: then the store is not one that this build wrote.
    ///
    /// # Panics
    /// When the broker is not empty.
    pub fn restore(&mut self, recovered: Recovered, now: Now) -> Result<(), RestoreError> {
        assert!(self.sessions.is_empty() && self.conns.is_empty(), "the first call of a run");
        self.next_queue = recovered.next_queue.max(QueueId(1));
        let mut state = Restoring {
            queues: recovered.queues.into_iter().map(|queue| (queue.queue, queue)).collect(),
            sessions: HashMap::new(),
            now,
        };
        // Subscriptions refer to sessions and to groups, so groups come before their place in the order of rows.
        let (groups, rows): (Vec<Row>, Vec<Row>) =
            recovered.rows.into_iter().partition(|row| matches!(row.0, Space::Group | Space::NamedQueue));
        for (space, key, value) in rows.iter().take_while(|row| row.0 == Space::Session) {
            self.restore_session(&mut state, text(*space, key)?, value)?;
        }
        for (space, key, value) in &groups {
            let name = text(*space, key)?;
            match space {
                Space::NamedQueue => self.restore_named_queue(&mut state, name, value)?,
                _ => self.restore_group(&mut state, name, value)?,
            }
        }
        for (space, key, value) in rows {
            let find = |queue| state.queues.remove(&queue);
            match space {
                Space::Moving => self.restore_move(&key, &value, find)?,
                Space::Prepared => self.restore_prepared(&key, &value, find, now)?,
                _ => self.restore_row(&state, space, &key, &value)?,
            }
        }
        self.delete_leftovers(state);
        self.define_queues();
        self.plan_retained_expiry(now);
        let keys: Vec<QueueKey> = self.queue_keys.values().copied().collect();
        keys.into_iter().for_each(|key| self.note_absence(key, now));
        Ok(())
    }

    fn restore_queue(
        &mut self,
        state: &mut Restoring,
        id: QueueId,
        owner: Owner,
        name: &str,
    ) -> Result<QueueKey, RestoreError> {
        let found = state.queues.remove(&id).ok_or(RestoreError::MissingQueue(id.0))?;
        self.next_serial += 1;
        self.stats.restored += found.messages;
        let queue = Queue::recovered(owner, self.next_serial, &found, self.limits_of_queue(name));
        Ok(self.add_queue(queue))
    }

    fn restore_session(
        &mut self,
        state: &mut Restoring,
        client_id: &str,
        value: &[u8],
    ) -> Result<(), RestoreError> {
        let row = SessionRow::decode(value)?;
        let key = u32::try_from(self.sessions.vacant_key()).expect("sessions are bounded");
        let queue = self.restore_queue(state, row.queue, Owner::Session(key), client_id)?;
        let tail = self.queues[queue as usize].tail();
        let client_id: Arc<str> = client_id.into();
        let owner = row.owner.clone();
        let mut session = Session::new(client_id.clone(), queue, Some(row.queue));
        session.expiry = row.expiry;
        // What was sent to a client that was there at the end is not known: anything may have been.
        session.sent_below = if row.connected { tail } else { row.sent_below };
        session.repeated_below = session.sent_below;
        // Nothing tells until when the client was there: an idle gateway stores no time. Its interval must not end early.
        session.disconnected = if row.connected { state.now.wall } else { row.disconnected };
        let deadline = match row.expiry {
            SessionExpiry::WithConnection => Some(session.disconnected),
            SessionExpiry::After(seconds) => Some(session.disconnected.plus_secs(u64::from(seconds))),
            SessionExpiry::Never => None,
        };
        if let Some(deadline) = deadline {
            let at = state.now.mono.plus_millis(deadline.millis_since(state.now.wall));
            session.end_at = Some(at);
            self.timers.insert((at, Timer::SessionEnd(key)));
        }
        self.sessions.insert(session);
        self.clients.insert(client_id, key);
        state.sessions.insert(row.queue, key);
        if let Some(owner) = owner {
            self.restore_owner(key, owner);
        }
        if row.connected {
            self.put_session_row(key);
        }
        Ok(())
    }

    fn restore_group(&mut self, state: &mut Restoring, name: &str, value: &[u8]) -> Result<(), RestoreError> {
        let id = decode_group(value)?;
        let filter = Filter::parse(name, &self.limits).map_err(|_| BadRow("group's filter"))?;
        let key = u32::try_from(self.groups.vacant_key()).expect("subscriptions are bounded");
        let queue = self.restore_queue(state, id, Owner::Group(key), name)?;
        self.add_group(Group::new(name, &filter.filter, queue));
        Ok(())
    }

    fn restore_named_queue(
        &mut self,
        state: &mut Restoring,
        topic: &str,
        value: &[u8],
    ) -> Result<(), RestoreError> {
        let (id, mark) = decode_named(value)?;
        if !topic::is_queue(topic) {
            return Err(BadRow("named queue's topic").into());
        }
        let key = u32::try_from(self.groups.vacant_key()).expect("queues are bounded");
        let queue = self.restore_queue(state, id, Owner::Group(key), topic)?;
        self.restore_named(topic, queue, mark);
        Ok(())
    }

    fn restore_row(
        &mut self,
        state: &Restoring,
        space: Space,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), RestoreError> {
        match space {
            Space::Subscription | Space::InboundQos2 | Space::OutboundQos2 => {
                let (number, rest) = split_key(key)?;
                match state.sessions.get(&number) {
                    Some(&session) => self.restore_part(session, space, key, rest, value)?,
                    None => self.batch.delete(space, key.into()),
                }
            }
            Space::Retained => {
                let message = Message::decode(&Bytes::copy_from_slice(value))?;
                if matches!(self.retained.set(message), SetOutcome::Refused(_)) {
                    self.stats.retained_refused += 1;
                }
            }
            Space::Will => self.restore_will(text(space, key)?, value, state.now)?,
            Space::Decided => self.restore_decision(key, value)?,
            Space::Session
            | Space::Group
            | Space::NamedQueue
            | Space::Broker
            | Space::Moving
            | Space::Prepared => {}
        }
        Ok(())
    }

    fn restore_part(
        &mut self,
        session: SessionKey,
        space: Space,
        key: &[u8],
        rest: &[u8],
        value: &[u8],
    ) -> Result<(), RestoreError> {
        match space {
            Space::Subscription => {
                let filter = text(space, rest)?;
                let (options, id) = decode_subscription(value)?;
                match Filter::parse(filter, &self.limits) {
                    Ok(parsed) => {
                        self.add_subscription(session, filter, &parsed, options, id);
                    }
                    // The limits are narrower than they were.
                    Err(_) => self.batch.delete(space, key.into()),
                }
            }
            Space::InboundQos2 => {
                let tag = tag_of(rest)?;
                self.sessions[session as usize].inbound.insert(tag, BatchId(0));
            }
            _ => self.restore_outbound(session, key, rest, value)?,
        }
        Ok(())
    }

    fn restore_outbound(
        &mut self,
        key: SessionKey,
        row: &[u8],
        rest: &[u8],
        value: &[u8],
    ) -> Result<(), RestoreError> {
        let (id, stage, seq) = decode_outbound(rest, value)?;
        let session = &mut self.sessions[key as usize];
        let queue = &self.queues[session.queue as usize];
        let waits = queue.spilled_from() <= seq && seq < queue.tail();
        let queue = QueueRef { key: session.queue, serial: queue.serial() };
        let slot = Slot { id, stage, has_row: true, size: 0, seq, queue, batch: BatchId(0), held: None };
        if stage == Stage::Parked && !waits || !session.inflight.restore(slot) {
            self.batch.delete(Space::OutboundQos2, row.into());
        } else if stage == Stage::Parked {
            session.resend.insert(seq, id);
        }
        Ok(())
    }

    fn restore_will(&mut self, client_id: &str, value: &[u8], now: Now) -> Result<(), RestoreError> {
        let will = decode_will(value)?;
        let client_id: Arc<str> = client_id.into();
        let grace = now.mono.plus_millis(u64::from(self.limits.will_grace_secs) * 1000);
        let delay = now.mono.plus_millis(u64::from(will.delay_secs) * 1000);
        let pending = PendingWill { will, owner: None, due: None, grace_until: Some(grace) };
        self.wills.insert(client_id.clone(), pending);
        self.schedule_will(&client_id, grace.max(delay));
        Ok(())
    }

    fn delete_leftovers(&mut self, state: Restoring) {
        let is_lonely = |group: &Group| group.members().is_empty() && !group.is_named();
        let lonely: Vec<_> =
            self.groups.iter().filter(|(_, group)| is_lonely(group)).map(|(key, _)| key).collect();
        for key in lonely {
            self.delete_group(key as u32);
        }
        let mut orphans: Vec<QueueId> = state.queues.into_keys().collect();
        orphans.sort_unstable();
        for id in orphans {
            self.batch.delete_queue(id);
        }
    }
}

fn text(space: Space, key: &[u8]) -> Result<&str, RestoreError> {
    std::str::from_utf8(key).map_err(|_| RestoreError::Key(space))
}
