//! Subscribing and unsubscribing.

use smallvec::SmallVec;

use crate::broker::Broker;
use crate::broker::api::{
    ClientEvent, ReplyTag, RetainHandling, SubscribeFilter, SubscribeOptions, SubscribeOutcome,
};
use crate::queue::group::{GroupKey, Member};
use crate::router::Sink;
use crate::session::rows::{encode_subscription, numbered_key};
use crate::session::{RetainedJob, SessionKey, Subscription};
use crate::store::contract::Space;
use crate::time::Now;
use crate::topic::{self, Filter};

use super::publish::one_id;
use super::sys::is_sys_filter;

/// A subscription in its session, its filter's text apart: a place in a tree whose nodes are two thirds full, and the text's
/// allocation.
const SUBSCRIPTION_BYTES: usize = 96;

/// Estimated memory of a subscription in its session.
pub(super) fn subscription_bytes(filter: &str) -> usize {
    filter.len() + SUBSCRIPTION_BYTES
}

impl Broker {
    pub(super) fn subscribe(
        &mut self,
        key: SessionKey,
        tag: ReplyTag,
        subscription_id: Option<u32>,
        filters: &[SubscribeFilter],
        now: Now,
    ) {
        let (mut stored, mut is_refused) = (false, false);
        let mut joined: SmallVec<[GroupKey; 1]> = SmallVec::new();
        let outcomes = filters
            .iter()
            .map(|asked| match self.subscribe_one(key, subscription_id, asked) {
                Ok(done) => {
                    stored |= done.stored;
                    joined.extend(done.group);
                    SubscribeOutcome::Granted(asked.options.qos)
                }
                Err(refused) => {
                    is_refused = true;
                    refused
                }
            })
            .collect();
        let after = stored.then(|| self.batch.id());
        let event = ClientEvent::Subscribed { tag, outcomes };
        if is_refused {
            self.note_refusal(&event);
        }
        self.answer(key, after, event);
        for group in joined {
            self.pump_group(group, now);
        }
        self.wake_retained(key);
        self.run_retained(now);
    }

    fn subscribe_one(
        &mut self,
        key: SessionKey,
        id: Option<u32>,
        asked: &SubscribeFilter,
    ) -> Result<Subscribed, SubscribeOutcome> {
        let filter =
            Filter::parse(&asked.filter, &self.limits).map_err(|_| SubscribeOutcome::FilterInvalid)?;
        if filter.is_shared() && asked.options.no_local {
            return Err(SubscribeOutcome::SharedNoLocal);
        }
        let to_queue = topic::is_queue(&filter.filter);
        if !self.may_subscribe_to(key, &filter, filter.is_shared() || to_queue) {
            return Err(SubscribeOutcome::NotAuthorized);
        }
        let session = &self.sessions[key as usize];
        if !topic::may_hear(&filter.filter, &session.client_id) {
            return Err(SubscribeOutcome::NotAuthorized);
        }
        let old = session.subscriptions.get(&*asked.filter).copied();
        // A shared subscription that becomes durable stores what waits in it.
        let full = self.full && filter.is_shared() && session.is_durable();
        if old.is_none() && (full || !self.may_subscribe(key)) {
            return Err(SubscribeOutcome::QuotaExceeded);
        }
        if to_queue {
            self.named_queue(&filter.filter)?;
        }
        let group = self.add_subscription(key, &asked.filter, &filter, asked.options, id);
        if group.is_none() {
            self.plan_retained(key, &filter.filter, &asked.options, id, old.is_none());
        }
        let now = self.sessions[key as usize].subscriptions.get(&*asked.filter).copied();
        let mut stored = to_queue && self.named_batch > self.committed;
        if let Some(number) = self.sessions[key as usize].number
            && old != now
        {
            let row = encode_subscription(&asked.options, id);
            self.batch.put(Space::Subscription, numbered_key(number, asked.filter.as_bytes()), row);
            stored = true;
        }
        Ok(Subscribed { stored, group })
    }

    fn may_subscribe(&self, key: SessionKey) -> bool {
        let session = &self.sessions[key as usize];
        let own_max = self.limits.subscriptions_per_session_max as usize;
        (session.internal || session.subscriptions.len() < own_max)
            && self.subscriptions < self.limits.subscriptions_max as usize
            && (self.subscription_memory() as u64) < self.limits.subscriptions_bytes_max
    }

    /// Estimated memory of all subscriptions in bytes, and of the routes that the router has looked up lately.
    pub(super) fn subscription_memory(&self) -> usize {
        self.subscription_bytes + self.router.memory()
    }

    /// A subscription has left its session.
    pub(super) fn forget_subscription(&mut self, filter: &str) {
        self.subscriptions -= 1;
        self.subscription_bytes -= subscription_bytes(filter);
        self.sys.subscriptions -= usize::from(is_sys_filter(filter));
    }

    /// Enters a subscription into the session and the router.
    pub(super) fn add_subscription(
        &mut self,
        key: SessionKey,
        text: &str,
        filter: &Filter,
        options: SubscribeOptions,
        id: Option<u32>,
    ) -> Option<GroupKey> {
        let member = Member {
            session: key,
            qos: options.qos,
            retain_as_published: options.retain_as_published,
            subscription_id: id,
            consumer: None,
        };
        let named =
            if topic::is_queue(&filter.filter) { self.named_queue(&filter.filter).ok() } else { None };
        let group = if let Some(group) = named {
            self.enter_group(group, member);
            Some(group)
        } else if filter.is_shared() {
            Some(self.join_group(text, &filter.filter, member))
        } else {
            self.router.subscribe(&filter.filter, Sink::Session(key), options, id);
            None
        };
        let session = &mut self.sessions[key as usize];
        if session.subscriptions.insert(text.into(), Subscription { options, id, group }).is_none() {
            self.subscriptions += 1;
            self.subscription_bytes += subscription_bytes(text);
            self.sys.subscriptions += usize::from(is_sys_filter(text));
        }
        group
    }

    fn plan_retained(
        &mut self,
        key: SessionKey,
        filter: &str,
        options: &SubscribeOptions,
        id: Option<u32>,
        is_new: bool,
    ) {
        let wanted = match options.retain_handling {
            RetainHandling::Send => true,
            RetainHandling::SendIfNew => is_new,
            RetainHandling::Skip => false,
        };
        if wanted {
            self.ask_for_sys(key, filter, one_id(id));
        }
        if wanted && !self.retained.is_empty() {
            let jobs = &mut self.sessions[key as usize].retained_jobs;
            // A repeated subscription starts over; two rounds at a time would send everything twice.
            jobs.retain(|job| &*job.filter != filter);
            jobs.push_back(RetainedJob {
                filter: filter.into(),
                after: None,
                qos: options.qos,
                ids: one_id(id),
            });
        }
    }

    pub(super) fn unsubscribe(&mut self, key: SessionKey, tag: ReplyTag, filters: &[Box<str>], now: Now) {
        let mut stored = false;
        let existed = filters
            .iter()
            .map(|text| {
                Filter::parse(text, &self.limits).ok()?;
                let existed = self.unsubscribe_one(key, text, now);
                stored |= existed && self.sessions[key as usize].is_durable();
                Some(existed)
            })
            .collect();
        let after = stored.then(|| self.batch.id());
        self.answer(key, after, ClientEvent::Unsubscribed { tag, existed });
    }

    fn unsubscribe_one(&mut self, key: SessionKey, text: &str, now: Now) -> bool {
        let session = &mut self.sessions[key as usize];
        let Some(subscription) = session.subscriptions.remove(text) else { return false };
        session.retained_jobs.retain(|job| &*job.filter != text);
        if let Some(number) = session.number {
            self.batch.delete(Space::Subscription, numbered_key(number, text.as_bytes()));
        }
        match subscription.group {
            Some(group) => self.leave_by_filter(key, group, now),
            None => {
                self.router.unsubscribe(text, Sink::Session(key));
            }
        }
        self.forget_subscription(text);
        true
    }
}

impl Broker {
    /// A subscription to a group has ended. A named queue may have several of one session, under different filters.
    fn leave_by_filter(&mut self, key: SessionKey, group: GroupKey, now: Now) {
        let mut others = self.sessions[key as usize].subscriptions.values();
        let is_named = self.groups[group as usize].is_named();
        if !is_named || !others.any(|other| other.group == Some(group)) {
            self.leave_group(key, group, None, now);
        }
    }
}

/// What a granted subscription did.
#[derive(Debug)]
struct Subscribed {
    stored: bool,
    group: Option<GroupKey>,
}
