//! Topics of the broker's own below `$SYS/`: who wants them, and how they are sent.
//!
//! Nothing of them is kept: whoever subscribes is sent the values of that moment with the RETAIN flag, and from then on those of each
//! interval. A driver computes them when [`Broker::sys_is_asked`] or, at an interval, [`Broker::sys_is_wanted`] says so, and hands
//! them to [`Broker::publish_sys`]. Bound: [`ASKS_MAX`] subscriptions that wait for their first values.

use std::sync::Arc;

use super::publish::is_sys;
use crate::broker::Broker;
use crate::broker::api::ConnId;
use crate::message::{DeliveryOptions, Message, MessageHead, Qos};
use crate::router::Sink;
use crate::session::SessionKey;
use crate::time::Now;
use crate::topic;

/// Subscriptions that wait for their first values; more get them with the next interval.
const ASKS_MAX: usize = 256;

/// A new subscription that is to get the values of now.
#[derive(Debug)]
struct Ask {
    session: SessionKey,
    conn: ConnId,
    filter: Box<str>,
    ids: Option<Arc<[u32]>>,
}

/// Who wants the broker's own topics.
#[derive(Debug, Default)]
pub(super) struct SysTopics {
    on: bool,
    /// Subscriptions whose filters begin with `$SYS`.
    pub(super) subscriptions: usize,
    asks: Vec<Ask>,
}

impl Broker {
    /// From now on a driver answers subscriptions to `$SYS/`.
    pub fn enable_sys(&mut self) {
        self.sys.on = true;
    }

    /// Somebody has subscribed to topics below `$SYS/`.
    #[must_use]
    pub fn sys_is_wanted(&self) -> bool {
        self.sys.subscriptions > 0
    }

    /// A new subscription waits for its first values, and knows that it is granted.
    #[must_use]
    #[inline]
    pub fn sys_is_asked(&self) -> bool {
        !self.sys.asks.is_empty() && self.sys.asks.iter().any(|ask| self.sys_ask_is_due(ask))
    }

    fn sys_ask_is_due(&self, ask: &Ask) -> bool {
        self.sessions.get(ask.session as usize).is_none_or(|s| s.conn != Some(ask.conn) || s.waiting == 0)
    }

    pub(super) fn ask_for_sys(&mut self, key: SessionKey, filter: &str, ids: Option<Arc<[u32]>>) {
        let Some(conn) = self.sessions[key as usize].conn else { return };
        if !self.sys.on || !is_sys_filter(filter) {
            return;
        }
        self.sys.asks.retain(|ask| ask.session != key || *ask.filter != *filter);
        if self.sys.asks.len() < ASKS_MAX {
            self.sys.asks.push(Ask { session: key, conn, filter: filter.into(), ids });
        }
    }

    /// Sends `values`, topics and their payloads: to the new subscriptions that wait, or, at an interval, to everybody.
    pub fn publish_sys<'a>(
        &mut self,
        values: impl Iterator<Item = (&'a str, &'a str)>,
        to_everybody: bool,
        now: Now,
    ) {
        let mut asks = std::mem::take(&mut self.sys.asks);
        let (due, later): (Vec<Ask>, Vec<Ask>) = asks.drain(..).partition(|ask| self.sys_ask_is_due(ask));
        for (topic, payload) in values {
            let head = MessageHead {
                qos: Qos::AtMostOnce,
                retain: true,
                published: now.wall,
                expires: None,
                properties: None,
            };
            let message = Message::new(topic, payload.as_bytes(), head);
            due.iter().for_each(|ask| self.answer_sys(ask, &message));
            if to_everybody {
                self.send_sys(&message, now);
            }
        }
        self.sys.asks = later;
    }

    fn answer_sys(&mut self, ask: &Ask, message: &Message) {
        let there =
            self.sessions.get(ask.session as usize).is_some_and(|session| session.conn == Some(ask.conn));
        if there && topic::matches(&ask.filter, message.topic()) {
            let options =
                DeliveryOptions { qos: Qos::AtMostOnce, retain: true, subscription_ids: ask.ids.clone() };
            self.deliver_unqueued(ask.session, message, options);
        }
    }

    fn send_sys(&mut self, message: &Message, now: Now) {
        let routes = self.router.route(message.topic());
        let mut plan = std::mem::take(&mut self.plan);
        // It joins no queue, so none can refuse it.
        if self.plan_routes(&routes, message, None, &mut plan).is_ok() {
            plan.retain(|planned| match planned.sink {
                Sink::Session(key) => self.sessions[key as usize].conn.is_some(),
                Sink::Group(_) => true,
            });
            self.offer_planned(message, &mut plan, now);
        }
        plan.clear();
        self.plan = plan;
    }
}

/// Topics that it matches are the broker's own.
pub(super) fn is_sys_filter(text: &str) -> bool {
    let filter = match text.strip_prefix("$share/") {
        Some(rest) => rest.split_once('/').map_or("", |(_, filter)| filter),
        None => text,
    };
    filter == "$SYS" || is_sys(filter)
}

#[cfg(test)]
mod tests {
    use super::is_sys_filter;

    #[test]
    fn filters_of_the_brokers_own_topics_are_told_from_others() {
        for yes in ["$SYS", "$SYS/#", "$SYS/broker/+", "$share/g/$SYS/#"] {
            assert!(is_sys_filter(yes), "{yes}");
        }
        for no in ["#", "+/broker", "$SYSTEM/x", "a/$SYS/b", "$share/g/a", "$share/$SYS/a"] {
            assert!(!is_sys_filter(no), "{no}");
        }
    }
}
