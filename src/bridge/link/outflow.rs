//! The way up: deliveries of the local broker become PUBLISH packets, acknowledgements settle them.

use std::num::NonZeroU16;

use super::{Link, LinkState, Notice, QOS0_WAITING_MAX};
use crate::bridge::REFUSALS_MAX;
use crate::bridge::window::Entry;
use crate::bridge::wire::{NOT_AUTHORIZED, OutPublish, Outgoing, PAYLOAD_FORMAT_INVALID, TOPIC_NAME_INVALID};
use crate::broker::api::{ClientCommand, Delivery, DeliveryId};
use crate::message::{Message, Qos};
use crate::time::{Mono, Now};

/// Reason code: a quota of the upstream is used up. It says nothing about the message.
const QUOTA_EXCEEDED: u8 = 0x97;

impl Link {
    pub(super) fn on_delivery(&mut self, delivery: Delivery) {
        match delivery.id {
            Some(id) => {
                self.window.push(Entry::new(id, delivery.message, delivery.retain, delivery.duplicate))
            }
            None if self.state == LinkState::Up && self.qos0.len() < QOS0_WAITING_MAX => {
                self.qos0.push_back(delivery);
            }
            None => self.counters.qos0_dropped += 1,
        }
    }

    /// The next packet for the upstream. Ask only while the write buffer has room: what is not asked for stays bounded here.
    pub fn poll_send(&mut self, now: Now) -> Option<Outgoing> {
        self.excuse_upstream(now);
        let packet = match self.packets.pop_front() {
            Some(packet) => Some(packet),
            None if self.state == LinkState::Up && !self.closing => {
                self.next_qos0(now).or_else(|| self.next_in_window(now)).map(Outgoing::Publish)
            }
            None => None,
        };
        if packet.is_some() {
            self.connection.last_sent = now.mono;
        }
        packet
    }

    fn next_qos0(&mut self, now: Now) -> Option<OutPublish> {
        while let Some(delivery) = self.qos0.pop_front() {
            match self.prepare(&delivery.message, delivery.retain, now) {
                Ok((publish, _)) => {
                    self.count_sent(&publish);
                    return Some(publish);
                }
                Err(why) => self.count_unsent(why),
            }
        }
        None
    }

    fn next_in_window(&mut self, now: Now) -> Option<OutPublish> {
        loop {
            let entry = self.window.peek()?;
            let (message, retain) = (entry.message.clone(), entry.retain);
            match self.prepare(&message, retain, now) {
                Ok((mut publish, Qos::AtMostOnce)) => {
                    // The rule asks for QoS 0: handing it over is all that can be known about it.
                    let entry = self.window.skip();
                    self.settle(entry.delivery, true);
                    publish.id = None;
                    self.count_sent(&publish);
                    return Some(publish);
                }
                Ok((mut publish, _)) => {
                    self.stamp(&mut publish, now.mono);
                    self.count_sent(&publish);
                    return Some(publish);
                }
                Err(why) => {
                    let entry = self.window.skip();
                    self.settle(entry.delivery, true);
                    self.count_unsent(why);
                }
            }
        }
    }

    fn stamp(&mut self, publish: &mut OutPublish, now: Mono) {
        if self.window.in_flight() == 0 {
            self.connection.progress_at = now;
        }
        let (id, dup) = self.window.send(now);
        publish.id = Some(id);
        publish.dup = dup;
    }

    /// The packet for a message, without identifier, and the rule's quality of service.
    fn prepare(&self, message: &Message, retain: bool, now: Now) -> Result<(OutPublish, Qos), Unsent> {
        if message.is_expired(now.wall) {
            return Err(Unsent::Expired);
        }
        let (topic, rule) = self.out_rules.map(message.topic()).ok_or(Unsent::Unmatched)?;
        let left = message.expires().map(|at| at.millis_since(now.wall).div_ceil(1000));
        let publish = OutPublish {
            id: None,
            dup: false,
            retain: retain && rule.retain && !self.connection.no_retain,
            topic,
            message: message.clone(),
            expiry_secs: left.map(|secs| u32::try_from(secs).unwrap_or(u32::MAX)),
        };
        Ok((publish, rule.qos))
    }

    fn count_sent(&mut self, publish: &OutPublish) {
        self.counters.sent += 1;
        self.counters.sent_bytes += wire_bytes(publish);
        self.counters.resent += u64::from(publish.dup);
    }

    fn count_unsent(&mut self, why: Unsent) {
        match why {
            Unsent::Expired => self.counters.expired += 1,
            Unsent::Unmatched => self.counters.unmatched += 1,
        }
    }

    /// The packet that was just taken could not be encoded: it is larger than the upstream takes, or a text of it is too long
    /// for MQTT. The rest flows on.
    pub fn handle_unsendable(&mut self, publish: &OutPublish, why: String) {
        self.counters.sent -= 1;
        self.counters.sent_bytes -= wire_bytes(publish);
        self.counters.resent -= u64::from(publish.dup);
        match publish.id {
            None => self.counters.qos0_dropped += 1,
            Some(id) => {
                self.counters.parked_oversized += 1;
                self.park(id, why);
            }
        }
    }

    pub(super) fn on_puback(&mut self, id: u16, reason: u8, now: Now) {
        if self.window.sent(id).is_none() {
            self.counters.stray_acks += 1;
            return;
        }
        if reason < 0x80 {
            self.on_accepted(id, now);
        } else {
            self.on_refused(id, reason, now);
        }
    }

    fn on_accepted(&mut self, id: u16, now: Now) {
        if let Some(entry) = self.window.settle(id) {
            self.counters.acked += 1;
            self.progress(entry.sent_at, now.mono);
            self.settle(entry.delivery, true);
        }
    }

    fn on_refused(&mut self, id: u16, reason: u8, now: Now) {
        let Some(entry) = self.window.sent(id) else { return };
        entry.refusals = entry.refusals.saturating_add(1);
        let hopeless = matches!(reason, NOT_AUTHORIZED | TOPIC_NAME_INVALID | PAYLOAD_FORMAT_INVALID)
            || (reason != QUOTA_EXCEEDED && entry.refusals >= REFUSALS_MAX);
        let sent_at = entry.sent_at;
        if let (true, Some(id)) = (hopeless, NonZeroU16::new(id)) {
            self.progress(sent_at, now.mono);
            self.park(id, format!("the upstream refused it: reason 0x{reason:02x}"));
        } else {
            self.fail(format!("the upstream refused a message for now: reason 0x{reason:02x}"), false, now);
        }
    }

    fn park(&mut self, id: NonZeroU16, why: String) {
        if let Some(entry) = self.window.settle(id.get()) {
            self.counters.parked += 1;
            let topic = entry.message.topic().to_owned();
            self.notice(Notice::Parked { topic, why });
            let (delivery, message) = (entry.delivery, entry.message);
            self.locals.push_back(ClientCommand::DeadLetter { delivery, message });
        }
    }

    fn settle(&mut self, delivery: DeliveryId, accepted: bool) {
        self.locals.push_back(ClientCommand::Settle { delivery, accepted });
    }

    /// An acknowledgement came. Patience that had to grow shrinks again only while answers are quick.
    fn progress(&mut self, sent_at: Mono, now: Mono) {
        self.connection.progressed = true;
        self.connection.progress_at = now;
        if now.millis_since(sent_at).saturating_mul(4) < self.patience_millis {
            let less = self.patience_millis - self.patience_millis / 8;
            self.patience_millis = less.max(self.config.ack_timeout_millis);
        }
    }
}

enum Unsent {
    Expired,
    Unmatched,
}

fn wire_bytes(publish: &OutPublish) -> u64 {
    (publish.topic.len() + publish.message.payload().len()) as u64
}
