//! Events become MQTT packets.

use tidegate_mqtt::connection::{Acceptance, SendError};
use tidegate_mqtt::property::PropertyIter;
use tidegate_mqtt::types::SubscriptionId;
use tidegate_mqtt::{PacketId, Property, PropertyList, PublishHeader, ReasonCode};

use super::{Adapter, qos_out};
use crate::broker::api::{
    ClientCommand, ClientEvent, CloseReason, Connected, Delivery, PublishOutcome, Refusal, ReplyTag,
    SessionExpiry, SubscribeOutcome,
};
use crate::message::{Properties, Qos};
use crate::net::adapter::Encoded;
use crate::net::outbox::{BufferPool, Outbox, SHARED_BYTES_MIN};
use crate::net::traffic::Traffic;
use crate::time::{Now, Wall};

impl Adapter {
    /// Puts the event's packet into the outbox.
    pub(in crate::net) fn encode(
        &mut self,
        event: ClientEvent,
        now: Now,
        outbox: &mut Outbox,
        pool: &mut BufferPool,
        traffic: &mut Traffic,
    ) -> Encoded {
        traffic.packets_out += 1;
        let out = outbox.writer(pool);
        let sent = match event {
            ClientEvent::Deliver(delivery) => return self.deliver(&delivery, now, outbox, pool, traffic),
            ClientEvent::Published { tag, qos, outcome } => return self.published(tag, qos, outcome, out),
            ClientEvent::Released { tag, known } => {
                if let Some(id) = PacketId::new(tag.0) {
                    self.connection.pubcomp(out, id, found(known), ());
                }
                Ok(())
            }
            ClientEvent::DeliverRelease { delivery, known } => match PacketId::new(delivery.get()) {
                Some(id) => self.connection.pubrel(out, id, found(known)),
                None => Ok(()),
            },
            ClientEvent::Connected(connected) => self.connected(&connected, now, out),
            ClientEvent::Subscribed { tag, outcomes } => match PacketId::new(tag.0) {
                Some(id) => self.connection.suback(out, id, outcomes.iter().map(suback_code), ()),
                None => Ok(()),
            },
            ClientEvent::Unsubscribed { tag, existed } => match PacketId::new(tag.0) {
                Some(id) => self.connection.unsuback(out, id, existed.iter().map(unsuback_code), ()),
                None => Ok(()),
            },
            // Answers to commands that MQTT has no packets for.
            ClientEvent::Consuming { .. }
            | ClientEvent::Cancelled { .. }
            | ClientEvent::BrowseEnd { .. }
            | ClientEvent::Transacted { .. }
            | ClientEvent::Synced { .. } => Ok(()),
            ClientEvent::Refused(refusal) => {
                self.connection.refuse(out, refusal_code(refusal), ());
                Ok(())
            }
            ClientEvent::Close(reason) => {
                self.connection.disconnect(out, close_code(reason), ());
                Ok(())
            }
        };
        match sent {
            // An answer that the client is too small for cannot be left out: the conversation is over.
            Err(SendError::TooLarge { .. } | SendError::Encode(_)) => {
                let violation = self.connection.too_small_a_client();
                self.connection.reject(out, &violation);
                Encoded::Unspeakable
            }
            Ok(()) | Err(SendError::NotOpen) => Encoded::Done,
        }
    }

    fn connected(&mut self, connected: &Connected, now: Now, out: &mut Vec<u8>) -> Result<(), SendError> {
        let unreleased = connected.unreleased.iter().filter_map(|tag| PacketId::new(tag.0));
        self.connection.seed_inbound(unreleased);
        let acceptance = Acceptance {
            session_present: connected.session_present,
            session_expiry: (connected.expiry != self.requested_expiry)
                .then(|| expiry_secs(connected.expiry)),
            assigned_client_id: connected.assigned_client_id.as_deref(),
            server_keep_alive: self.server_keep_alive,
            response_information: connected.response_information.as_deref(),
            authentication_data: connected.authentication_data.as_deref(),
            ..Acceptance::default()
        };
        self.connection.accept(out, &acceptance, now.mono.as_millis())
    }

    fn published(&mut self, tag: ReplyTag, qos: Qos, outcome: PublishOutcome, out: &mut Vec<u8>) -> Encoded {
        let v5 = self.connection.version().is_some_and(tidegate_mqtt::Version::is_v5);
        let reason = match outcome {
            PublishOutcome::Accepted => ReasonCode::Success,
            PublishOutcome::NoSubscribers if v5 => ReasonCode::NoMatchingSubscribers,
            PublishOutcome::QuotaExceeded if v5 => ReasonCode::QuotaExceeded,
            PublishOutcome::TopicInvalid if v5 => ReasonCode::TopicNameInvalid,
            PublishOutcome::NotAuthorized if v5 => ReasonCode::NotAuthorized,
            // Without a reason code the only refusal that keeps the message with the client is to hang up.
            PublishOutcome::QuotaExceeded => return Encoded::Unspeakable,
            // [MQTT-3.3.5-2] of MQTT 3.1.1: a message that may not be published is acknowledged all the same.
            PublishOutcome::NoSubscribers | PublishOutcome::TopicInvalid | PublishOutcome::NotAuthorized => {
                ReasonCode::Success
            }
        };
        if let Some(id) = PacketId::new(tag.0) {
            match qos {
                Qos::AtMostOnce => false,
                Qos::AtLeastOnce => self.connection.puback(out, id, reason, ()),
                Qos::ExactlyOnce => self.connection.pubrec(out, id, reason, ()),
            };
        }
        Encoded::Done
    }

    fn deliver(
        &mut self,
        delivery: &Delivery,
        now: Now,
        outbox: &mut Outbox,
        pool: &mut BufferPool,
        traffic: &mut Traffic,
    ) -> Encoded {
        let message = &delivery.message;
        let ids = delivery.subscription_ids.as_deref().unwrap_or(&[]);
        let plain = message.properties().is_none() && message.expires().is_none() && ids.is_empty();
        let v5 = self.connection.version().is_some_and(tidegate_mqtt::Version::is_v5);
        let out = outbox.writer(pool);
        let payload = message.payload();
        let sent = if plain || !v5 {
            self.connection.publish_header(out, &header(delivery, ()), payload.len())
        } else {
            let properties = delivery_properties(message.properties(), message.expires(), ids, now.wall);
            self.connection.publish_header(out, &header(delivery, properties), payload.len())
        };
        match sent {
            Ok(()) => {
                traffic.messages_out[delivery.qos as usize] += 1;
                traffic.message_bytes_out[delivery.qos as usize] +=
                    (message.topic_bytes().len() + payload.len()) as u64;
                if payload.len() < SHARED_BYTES_MIN {
                    out.extend_from_slice(payload);
                } else {
                    outbox.push_shared(message.payload_shared());
                }
                Encoded::Done
            }
            Err(SendError::NotOpen) => Encoded::Done,
            Err(SendError::TooLarge { .. } | SendError::Encode(_)) => {
                traffic.oversized_for_client += 1;
                Encoded::TooLarge(
                    delivery.id.map(|delivery| ClientCommand::Settle { delivery, accepted: false }),
                )
            }
        }
    }
}

fn header<P>(delivery: &Delivery, properties: P) -> PublishHeader<'_, P> {
    PublishHeader {
        dup: delivery.duplicate,
        qos: qos_out(delivery.qos),
        retain: delivery.retain,
        topic: delivery.message.topic(),
        packet_id: delivery.id.and_then(|id| PacketId::new(id.get())),
        properties,
    }
}

/// Application properties, what is left of the lifetime [MQTT-3.3.2-6], and subscription identifiers [MQTT-3.3.4-3].
fn delivery_properties<'a>(
    properties: Option<&'a Properties>,
    expires: Option<Wall>,
    ids: &'a [u32],
    now: Wall,
) -> impl PropertyList + 'a {
    let left = expires.map(|at| {
        Property::MessageExpiryInterval(
            u32::try_from(at.millis_since(now).div_ceil(1000)).unwrap_or(u32::MAX),
        )
    });
    let text = properties.filter(|p| p.payload_is_text).map(|_| Property::PayloadFormatIndicator(true));
    let content_type = properties.and_then(|p| p.content_type.as_deref()).map(Property::ContentType);
    let response_topic = properties.and_then(|p| p.response_topic.as_deref()).map(Property::ResponseTopic);
    let correlation = properties.and_then(|p| p.correlation_data.as_deref()).map(Property::CorrelationData);
    let user = properties.map_or(&[][..], |p| &p.user[..]);
    let user = PropertyIter(user.iter().map(|(name, value)| Property::UserProperty((name, value))));
    let ids = PropertyIter(
        ids.iter().filter_map(|id| SubscriptionId::new(*id)).map(Property::SubscriptionIdentifier),
    );
    ([text, left, content_type, response_topic, correlation], (ids, user))
}

fn expiry_secs(expiry: SessionExpiry) -> u32 {
    match expiry {
        SessionExpiry::WithConnection => 0,
        SessionExpiry::After(seconds) => seconds,
        SessionExpiry::Never => u32::MAX,
    }
}

/// What an answer says about the identifier of the packet that it answers. Before MQTT 5.0 there is no room to say it.
fn found(known: bool) -> ReasonCode {
    if known { ReasonCode::Success } else { ReasonCode::PacketIdentifierNotFound }
}

fn suback_code(outcome: &SubscribeOutcome) -> ReasonCode {
    match outcome {
        SubscribeOutcome::Granted(qos) => ReasonCode::granted(qos_out(*qos)),
        SubscribeOutcome::FilterInvalid => ReasonCode::TopicFilterInvalid,
        SubscribeOutcome::QuotaExceeded => ReasonCode::QuotaExceeded,
        SubscribeOutcome::NotAuthorized => ReasonCode::NotAuthorized,
        SubscribeOutcome::SharedNoLocal => ReasonCode::TopicFilterInvalid,
    }
}

fn unsuback_code(existed: &Option<bool>) -> ReasonCode {
    match existed {
        Some(true) => ReasonCode::Success,
        Some(false) => ReasonCode::NoSubscriptionExisted,
        None => ReasonCode::TopicFilterInvalid,
    }
}

fn refusal_code(refusal: Refusal) -> ReasonCode {
    match refusal {
        Refusal::ClientIdInvalid => ReasonCode::ClientIdentifierNotValid,
        Refusal::QuotaExceeded => ReasonCode::QuotaExceeded,
        Refusal::WillInvalid => ReasonCode::TopicNameInvalid,
        Refusal::NotAuthorized => ReasonCode::NotAuthorized,
        Refusal::BadCredentials => ReasonCode::BadUserNameOrPassword,
        Refusal::BadMethod => ReasonCode::BadAuthenticationMethod,
        Refusal::Busy => ReasonCode::ServerBusy,
    }
}

fn close_code(reason: CloseReason) -> ReasonCode {
    match reason {
        CloseReason::TakenOver => ReasonCode::SessionTakenOver,
        CloseReason::ShuttingDown => ReasonCode::ServerShuttingDown,
        CloseReason::Administrative => ReasonCode::AdministrativeAction,
        CloseReason::ProtocolViolation => ReasonCode::ProtocolError,
        CloseReason::QuotaExceeded => ReasonCode::QuotaExceeded,
        CloseReason::NotAuthorized => ReasonCode::NotAuthorized,
    }
}
