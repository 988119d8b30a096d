//! Sending retained messages to new subscriptions, a slice at a time.
//!
//! A subscription to a hundred thousand retained topics must neither stop the broker nor fill a client's outbox: slices come
//! one per turn, and a session whose queue already holds a backlog, or whose connection is slow, waits.

use crate::broker::Broker;
use crate::message::{DeliveryOptions, Message, Qos};
use crate::session::{RetainedJob, SessionKey};
use crate::store::contract::Targets;
use crate::time::Now;

/// Messages of one slice.
const SLICE_MESSAGES_MAX: usize = 128;
/// Bytes of one slice; one message is always sent.
const SLICE_BYTES_MAX: u64 = 64 << 10;
/// Slices of one turn.
const SLICES_PER_TURN_MAX: usize = 8;
/// Unsettled messages of a session from which on its retained messages wait.
const BACKLOG_MESSAGES_MAX: u64 = 1024;

impl Broker {
    /// The session may have retained messages to send, and may be able to take them.
    pub(super) fn wake_retained(&mut self, key: SessionKey) {
        let session = &self.sessions[key as usize];
        if session.retained_jobs.is_empty() || session.retained_queued || !self.takes_retained(key) {
            return;
        }
        self.sessions[key as usize].retained_queued = true;
        self.retained_ready.push_back(key);
    }

    fn takes_retained(&self, key: SessionKey) -> bool {
        let session = &self.sessions[key as usize];
        let queue = &self.queues[session.queue as usize];
        let stored = session.retained_jobs.front().is_some_and(|job| job.qos != Qos::AtMostOnce);
        session.ready().is_some()
            && session.waiting == 0
            && queue.messages() < BACKLOG_MESSAGES_MAX
            && !(self.full && stored && !queue.is_volatile())
    }

    /// Sends some slices; sessions take turns.
    pub(super) fn run_retained(&mut self, now: Now) {
        for _ in 0..SLICES_PER_TURN_MAX {
            let Some(key) = self.retained_ready.pop_front() else { return };
            let Some(session) = self.sessions.get_mut(key as usize) else { continue };
            if !std::mem::take(&mut session.retained_queued) {
                continue;
            }
            if self.takes_retained(key) {
                self.send_slice(key, now);
                self.wake_retained(key);
            }
        }
    }

    fn send_slice(&mut self, key: SessionKey, now: Now) {
        let Some(mut job) = self.sessions[key as usize].retained_jobs.pop_front() else { return };
        let slice = self.retained.matching_after(&job.filter, job.after.as_deref(), SLICE_MESSAGES_MAX);
        let (mut bytes, last) = (0, slice.messages.len());
        let mut resume = slice.resume;
        for (at, message) in slice.messages.into_iter().enumerate() {
            if message.is_expired(now.wall) {
                continue;
            }
            self.send_retained(key, &message, &job);
            bytes += u64::from(message.size());
            if bytes >= SLICE_BYTES_MAX && at + 1 < last {
                resume = Some(message.topic().into());
                break;
            }
        }
        if resume.is_some() {
            job.after = resume;
            self.sessions[key as usize].retained_jobs.push_front(job);
        }
    }

    fn send_retained(&mut self, key: SessionKey, message: &Message, job: &RetainedJob) {
        if !self.may_deliver(key, message.topic()) {
            return;
        }
        let sys = super::publish::is_sys(message.topic());
        let qos = if sys { Qos::AtMostOnce } else { job.qos.min(message.qos()) };
        let options = DeliveryOptions { qos, retain: true, subscription_ids: job.ids.clone() };
        if qos == Qos::AtMostOnce {
            self.deliver_unqueued(key, message, options);
            return;
        }
        let queue = self.sessions[key as usize].queue;
        let verdict = self.queues[queue as usize].verdict(message.size());
        if !self.admit(queue, verdict, message.size()) {
            return;
        }
        let mut targets = Targets::new();
        let seq = self.append(queue, message, &options, &mut targets);
        if !targets.is_empty() {
            self.batch.enqueue(message.clone(), targets);
        }
        self.offer(key, seq, message, options);
    }
}
