//! What operators do to named queues: look into them, empty them, move their messages, end them.
//!
//! Each call does a bounded part of a long job, with what is in memory, and asks for the next page: so a queue of a million
//! messages is emptied in a thousand turns, none of which holds up the others. What is under way to consumers is never touched.

use crate::broker::Broker;
use crate::broker::dead::{ORIGIN, is_dead_letter_property};
use crate::limits::QueueDef;
use crate::message::{DeliveryOptions, Message, MessageHead};
use crate::queue::group::GroupKey;
use crate::queue::overflow::Verdict;
use crate::queue::window::Entry;
use crate::queue::{Discard, QueueKey};
use crate::store::contract::{BatchId, Seq, Targets};
use crate::time::Now;
use crate::topic::QUEUE_PREFIX;

/// Messages that one call moves or removes.
pub const DESK_MESSAGES_MAX: usize = 1000;
/// Bytes of messages that one call moves.
pub const DESK_BYTES_MAX: u64 = 256 << 10;

/// How far a job has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Messages that this call dealt with.
    pub done: u64,
    /// Messages that still wait; 0: the job is finished.
    pub left: u64,
}

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeskError {
    /// No queue of that name.
    #[error("there is no queue of that name")]
    NoSuchQueue,
    /// It has consumers, or messages under way.
    #[error("the queue has consumers or messages under way: end those first")]
    InUse,
    /// It is defined.
    #[error("the queue is defined in the configuration: take it out there first")]
    Defined,
    /// A message has no origin.
    #[error("the first message does not say where it comes from: name a queue to move it to")]
    NoOrigin,
    /// A message comes from a link, whose queue takes nothing by hand.
    #[error(
        "the first message is one that the upstream of a link refused, and a link's queue is filled from its topics alone: name a \
         queue to move it to with --to, or publish it again"
    )]
    FromLink,
    /// The target is the queue itself.
    #[error("a message cannot be moved to the queue that it is in")]
    SameQueue,
    /// The target takes nothing.
    #[error("the queue to move to cannot be made or takes no more")]
    TargetFull,
}

impl Broker {
    fn desk_queue(&self, name: &str) -> Result<(GroupKey, QueueKey), DeskError> {
        let topic = format!("{QUEUE_PREFIX}{name}");
        let key = *self.group_keys.get(&*topic).ok_or(DeskError::NoSuchQueue)?;
        Ok((key, self.groups[key as usize].queue()))
    }

    /// What waits and is in memory, or is on its way there.
    fn desk_progress(&mut self, key: GroupKey, queue_key: QueueKey, done: u64, now: Now) -> Progress {
        let queue = &self.queues[queue_key as usize];
        let left = queue.messages() - u64::from(queue.unsettled());
        if left > 0 && queue.window_len() == 0 {
            self.request_load(queue_key);
        } else if left == 0 {
            self.idle_group(key, now);
        }
        Progress { done, left }
    }

    /// Removes some of what waits in the queue.
    ///
    /// # Errors
    /// [`DeskError`] says why nothing was done.
    pub fn purge_some(&mut self, name: &str, now: Now) -> Result<Progress, DeskError> {
        let (key, queue_key) = self.desk_queue(name)?;
        let mut done = 0;
        while done < DESK_MESSAGES_MAX as u64 {
            let queue = &mut self.queues[queue_key as usize];
            let Some(entry) = queue.discard(&mut self.budget, Discard::Purged, |_| true) else { break };
            self.batch.settle_stored(queue, entry.seq, entry.message.size());
            self.forget_returns(queue_key, entry.seq);
            self.stats.purged += 1;
            done += 1;
        }
        Ok(self.desk_progress(key, queue_key, done, now))
    }

    /// Moves some of what waits to the queue `to`, or dead letters to where they come from.
    ///
    /// # Errors
    /// [`DeskError`] says why nothing, or nothing more, was done.
    pub fn move_some(&mut self, name: &str, to: Option<&str>, now: Now) -> Result<Progress, DeskError> {
        let (key, queue_key) = self.desk_queue(name)?;
        let (mut done, mut bytes) = (0, 0);
        while done < DESK_MESSAGES_MAX as u64 && bytes < DESK_BYTES_MAX {
            let Some(entry) = self.queues[queue_key as usize].front().cloned() else { break };
            match self.move_front(queue_key, name, to, &entry, now) {
                Ok(()) => {}
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            bytes += u64::from(entry.message.size());
            done += 1;
        }
        Ok(self.desk_progress(key, queue_key, done, now))
    }

    fn move_front(
        &mut self,
        from: QueueKey,
        name: &str,
        to: Option<&str>,
        entry: &Entry,
        now: Now,
    ) -> Result<(), DeskError> {
        let target = match to {
            Some(to) => to,
            None => origin(&entry.message)?,
        };
        if target == name {
            return Err(DeskError::SameQueue);
        }
        let topic = format!("{QUEUE_PREFIX}{target}");
        let target = self.named_queue(&topic).map_err(|_| DeskError::TargetFull)?;
        let message = revived(&entry.message);
        let target_queue = self.groups[target as usize].queue();
        let verdict = self.fate(target_queue, &message, true).map_err(|_| DeskError::TargetFull)?;
        if verdict == Verdict::DropNew || !self.admit(target_queue, verdict, message.size()) {
            return Err(DeskError::TargetFull);
        }
        let queue = &mut self.queues[from as usize];
        if queue.discard(&mut self.budget, Discard::Moved, |seq| seq == entry.seq).is_none() {
            return Err(DeskError::TargetFull);
        }
        self.batch.settle_stored(queue, entry.seq, entry.message.size());
        self.forget_returns(from, entry.seq);
        self.stats.moved += 1;
        let options = DeliveryOptions { retain: false, ..entry.options.clone() };
        let mut targets = Targets::new();
        let seq = self.append(target_queue, &message, &options, &mut targets);
        self.stats.enqueued -= 1;
        self.batch.enqueue(message.clone(), targets);
        self.offer_moved(target, seq, &message, options, now);
        Ok(())
    }

    /// The first messages that wait, of those in memory; if there are none, they are on their way there.
    ///
    /// # Errors
    /// [`DeskError`] says why there is nothing to see.
    pub fn peek(
        &mut self,
        name: &str,
        count: usize,
        now: Now,
    ) -> Result<(Progress, Vec<Message>), DeskError> {
        let (key, queue_key) = self.desk_queue(name)?;
        let mut seen = Vec::new();
        let mut next: Seq = 0;
        while seen.len() < count.min(DESK_MESSAGES_MAX) {
            let Some(entry) = self.queues[queue_key as usize].next_waiting(next) else { break };
            next = entry.seq + 1;
            seen.push(entry.message.clone());
        }
        let done = seen.len() as u64;
        Ok((self.desk_progress(key, queue_key, done, now), seen))
    }

    /// Ends a queue that nobody uses, with everything in it; returns how many messages that were.
    ///
    /// # Errors
    /// [`DeskError`] says why it stays.
    pub fn delete_queue(&mut self, name: &str) -> Result<u64, DeskError> {
        let (key, queue_key) = self.desk_queue(name)?;
        let queue = &self.queues[queue_key as usize];
        if self.limits.queue_defs.iter().any(|def: &QueueDef| &*def.name == name) {
            return Err(DeskError::Defined);
        }
        if !self.groups[key as usize].members().is_empty() || queue.unsettled() > 0 {
            return Err(DeskError::InUse);
        }
        let messages = queue.messages();
        self.delete_group(key);
        Ok(messages)
    }

    /// Everything done so far is written at once; durable with the batch that is returned.
    pub fn write_at_once(&mut self) -> BatchId {
        if self.batch.memory() > 0 {
            self.batch.make_urgent();
            return self.batch.id();
        }
        BatchId(self.batch.id().0.saturating_sub(1))
    }

    /// Everything up to this batch is durable.
    #[must_use]
    pub fn committed(&self) -> BatchId {
        self.committed
    }

    /// Consumers of a named queue, subscriptions included; `None`: there is no such queue.
    #[must_use]
    pub fn consumers_of(&self, topic: &str) -> Option<usize> {
        let key = *self.group_keys.get(topic)?;
        Some(self.groups[key as usize].members().len())
    }
}

/// The queue that a dead letter comes from.
fn origin(message: &Message) -> Result<&str, DeskError> {
    let user = message.properties().map_or(&[][..], |properties| &properties.user);
    let origin = user.iter().rev().find(|(name, _)| &**name == ORIGIN).map(|(_, value)| &**value);
    match origin {
        Some(link) if link.starts_with('$') => Err(DeskError::FromLink),
        origin => origin.ok_or(DeskError::NoOrigin),
    }
}

/// The message without the story of its death.
fn revived(message: &Message) -> Message {
    let properties = message.properties().map(|properties| {
        let mut properties = properties.clone();
        properties.user.retain(|(name, _)| !is_dead_letter_property(name));
        Box::new(properties)
    });
    message.with_head(MessageHead {
        qos: message.qos(),
        retain: false,
        published: message.published(),
        expires: message.expires(),
        properties,
    })
}
