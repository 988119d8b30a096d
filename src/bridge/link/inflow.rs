//! The local side: the attachment to the broker, its events, and the way down from the upstream's PUBLISH to the local commit
//! and back to its acknowledgement.

use super::{Detached, Link, LinkState, Notice};
use crate::bridge::rules::{Path, path};
use crate::bridge::wire::{InPublish, Outgoing, SUCCESS, TOPIC_NAME_INVALID};
use crate::broker::api::{
    ClientCommand, ClientEvent, ConnectRequest, PublishOutcome, PublishRequest, ReplyTag, RetainHandling,
    SessionExpiry, SubscribeFilter, SubscribeOptions, SubscribeOutcome, Will,
};
use crate::message::{Message, MessageHead, Qos};
use crate::time::Now;

impl Link {
    /// A port to the local broker is open: asks for the link's session.
    pub fn handle_attached(&mut self) {
        let will = Will {
            topic: self.config.state_topic().into(),
            payload: b"0"[..].into(),
            qos: Qos::AtMostOnce,
            retain: true,
            properties: None,
            expiry_secs: None,
            delay_secs: 0,
        };
        self.locals.push_back(ClientCommand::Connect(Box::new(ConnectRequest {
            client_id: self.config.session_id().into(),
            clean_start: false,
            expiry: SessionExpiry::Never,
            receive_max: self.config.window,
            will: Some(will),
            internal: true,
        })));
    }

    /// The port is gone. What the link held is the broker's again, and comes anew with the next attachment.
    pub fn handle_detached(&mut self, now: Now) {
        self.close_connection(now);
        self.window.clear();
        self.inbound.clear();
        self.locals.clear();
        self.state = LinkState::Idle;
        self.phase_deadline = None;
    }

    /// An event of the local broker.
    ///
    /// # Errors
    /// The attachment is over.
    pub fn handle_event(&mut self, event: ClientEvent, now: Now) -> Result<(), Detached> {
        self.excuse_upstream(now);
        match event {
            ClientEvent::Connected(_) => self.on_attached(now),
            ClientEvent::Deliver(delivery) => self.on_delivery(delivery),
            ClientEvent::Published { tag, outcome, .. } => self.on_published(tag, outcome, now),
            ClientEvent::Subscribed { outcomes, .. } => self.on_subscribed(&outcomes),
            ClientEvent::Refused(refusal) => return Err(Detached::Refused(refusal)),
            ClientEvent::Close(reason) => return Err(Detached::Closed(reason)),
            // A link neither sends QoS 2 nor unsubscribes.
            ClientEvent::Released { .. }
            | ClientEvent::Unsubscribed { .. }
            | ClientEvent::Synced { .. }
            | ClientEvent::Consuming { .. }
            | ClientEvent::Cancelled { .. }
            | ClientEvent::BrowseEnd { .. }
            | ClientEvent::Transacted { .. }
            | ClientEvent::DeliverRelease { .. } => {}
        }
        Ok(())
    }

    fn on_attached(&mut self, now: Now) {
        let filters: Vec<SubscribeFilter> = self
            .out_rules
            .subscriptions()
            .map(|(filter, rule)| SubscribeFilter {
                filter: filter.into(),
                options: SubscribeOptions {
                    qos: rule.qos.min(Qos::AtLeastOnce),
                    no_local: true,
                    retain_as_published: true,
                    retain_handling: RetainHandling::SendIfNew,
                },
            })
            .collect();
        if !filters.is_empty() {
            self.locals.push_back(ClientCommand::Subscribe {
                tag: ReplyTag(0),
                subscription_id: None,
                filters,
            });
        }
        self.publish_state(false, now);
        self.start_attempt();
    }

    fn on_subscribed(&mut self, outcomes: &[SubscribeOutcome]) {
        let refused: Vec<String> = self
            .out_rules
            .subscriptions()
            .zip(outcomes)
            .filter(|(_, outcome)| !matches!(outcome, SubscribeOutcome::Granted(_)))
            .map(|((filter, _), _)| filter.to_owned())
            .collect();
        refused.into_iter().for_each(|filter| self.notice(Notice::LocalFilterRefused { filter }));
    }

    pub(super) fn on_publish(&mut self, publish: InPublish, now: Now) {
        self.counters.received += 1;
        self.counters.received_bytes += (publish.topic.len() + publish.payload.len()) as u64;
        if publish.topic.is_empty() {
            return self.fail("the upstream used a topic alias that was not granted".to_owned(), false, now);
        }
        let mapped = self.in_rules.map(&publish.topic).map(|(topic, rule)| (topic, rule.retain));
        let Some((topic, keep_retain)) = mapped.filter(|(topic, _)| may_enter(topic)) else {
            self.counters.inbound_refused += 1;
            return self.acknowledge(publish.id, publish.qos, TOPIC_NAME_INVALID);
        };
        if path(&publish.properties, self.config.via_id()) == Path::Loop {
            self.counters.loops_dropped += 1;
            self.acknowledge(publish.id, publish.qos, SUCCESS);
            return self.notice(Notice::Loop { topic: publish.topic });
        }
        let (id, qos) = (publish.id, publish.qos);
        let message = local_message(&topic, keep_retain, publish, now);
        if qos == Qos::AtMostOnce {
            self.publish_local(ReplyTag(0), message);
        } else if let Some(tag) = self.inbound.accept(id, qos == Qos::ExactlyOnce, &message) {
            self.publish_local(tag, message);
        }
    }

    fn on_published(&mut self, tag: ReplyTag, outcome: PublishOutcome, now: Now) {
        if let Some(answer) = self.inbound.answered(tag, outcome, now.mono) {
            match answer.reason {
                SUCCESS => self.counters.received_committed += 1,
                _ => self.counters.inbound_refused += 1,
            }
            let qos = if answer.qos2 { Qos::ExactlyOnce } else { Qos::AtLeastOnce };
            self.acknowledge(answer.id, qos, answer.reason);
        }
        if self.inbound.wants_repetition() {
            self.fail("messages that found no room are asked for again".to_owned(), false, now);
        }
    }

    fn acknowledge(&mut self, id: u16, qos: Qos, reason: u8) {
        match qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => self.packets.push_back(Outgoing::PubAck { id, reason }),
            Qos::ExactlyOnce => self.packets.push_back(Outgoing::PubRec { id, reason }),
        }
    }

    pub(super) fn publish_local(&mut self, tag: ReplyTag, message: Message) {
        self.locals.push_back(ClientCommand::Publish(PublishRequest { tag, message }));
    }

    /// Tells local clients, retained, whether the link is up.
    pub(super) fn publish_state(&mut self, up: bool, now: Now) {
        let head = MessageHead { retain: true, published: now.wall, ..MessageHead::default() };
        let payload: &[u8] = if up { b"1" } else { b"0" };
        let message = Message::new(&self.config.state_topic(), payload, head);
        self.publish_local(ReplyTag(0), message);
    }
}

/// A topic name that the upstream may write to here: the broker's own tree is not among them.
fn may_enter(topic: &str) -> bool {
    !(topic.contains(['+', '#', '\0']) || topic.starts_with("$SYS/") || topic == "$SYS")
}

fn local_message(topic: &str, keep_retain: bool, publish: InPublish, now: Now) -> Message {
    let head = MessageHead {
        qos: publish.qos.min(Qos::AtLeastOnce),
        retain: publish.retain && keep_retain,
        published: now.wall,
        expires: publish.expiry_secs.map(|secs| now.wall.plus_secs(u64::from(secs))),
        properties: Some(Box::new(publish.properties)),
    };
    Message::new(topic, &publish.payload, head)
}
