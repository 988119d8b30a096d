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
use crate::topic::Filter;

use super::publish::one_id;
use super::sys::is_sys_filter;

impl Broker {
    pub(super) fn subscribe(
        &mut self,
        key: SessionKey,
        tag: ReplyTag,
        subscription_id: Option<u32>,
        filters: &[SubscribeFilter],
        now: Now,
    ) {
        let mut stored = false;
        let mut joined: SmallVec<[GroupKey; 1]> = SmallVec::new();
        let outcomes = filters
            .iter()
            .map(|asked| match self.subscribe_one(key, subscription_id, asked) {
                Ok(done) => {
                    stored |= done.stored;
                    joined.extend(done.group);
                    SubscribeOutcome::Granted(asked.options.qos)
                }
                Err(refused) => refused,
            })
            .collect();
        let after = stored.then(|| self.batch.id());
        self.answer(key, after, ClientEvent::Subscribed { tag, outcomes });
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
        let session = &self.sessions[key as usize];
        let old = session.subscriptions.get(&*asked.filter).copied();
        // A shared subscription that becomes durable stores what waits in it.
        let full = self.full && filter.is_shared() && session.is_durable();
        if old.is_none() && (full || !self.may_subscribe(key)) {
            return Err(SubscribeOutcome::QuotaExceeded);
        }
        let group = self.add_subscription(key, &asked.filter, &filter, asked.options, id);
        if old.is_none() {
            self.subscriptions += 1;
        }
        if !filter.is_shared() {
            self.plan_retained(key, &filter.filter, &asked.options, id, old.is_none());
        }
        let now = self.sessions[key as usize].subscriptions.get(&*asked.filter).copied();
        let mut stored = false;
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
        let group = if filter.is_shared() {
            let member = Member {
                session: key,
                qos: options.qos,
                retain_as_published: options.retain_as_published,
                subscription_id: id,
            };
            Some(self.join_group(text, &filter.filter, member))
        } else {
            self.router.subscribe(&filter.filter, Sink::Session(key), options, id);
            None
        };
        let session = &mut self.sessions[key as usize];
        let old = session.subscriptions.insert(text.into(), Subscription { options, id, group });
        self.sys.subscriptions += usize::from(old.is_none() && is_sys_filter(text));
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
        self.subscriptions -= 1;
        self.sys.subscriptions -= usize::from(is_sys_filter(text));
        session.retained_jobs.retain(|job| &*job.filter != text);
        if let Some(number) = session.number {
            self.batch.delete(Space::Subscription, numbered_key(number, text.as_bytes()));
        }
        match subscription.group {
            Some(group) => self.leave_group(key, group, now),
            None => {
                self.router.unsubscribe(text, Sink::Session(key));
            }
        }
        true
    }
}

/// What a granted subscription did.
#[derive(Debug)]
struct Subscribed {
    stored: bool,
    group: Option<GroupKey>,
}
