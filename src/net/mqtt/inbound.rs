//! MQTT packets become commands.

use std::num::NonZeroU16;

use bytes::Bytes;
use tidegate_mqtt::connection::{DuplicateAnswer, Event, InboundPublish};
use tidegate_mqtt::packet::{
    Ack, Connect, Disconnect, RetainHandling as Handling, Subscribe, SubscribeFilters, Will as WireWill,
};
use tidegate_mqtt::{PacketId, Properties as Wire, ReasonCode};

use super::{Adapter, qos_in, tag};
use crate::broker::api::{
    ClientCommand, ConnectRequest, DeliveryId, PublishRequest, ReplyTag, RetainHandling, SessionExpiry,
    SubscribeFilter, SubscribeOptions, Will,
};
use crate::message::{Message, MessageHead, Properties, SHARE_BYTES_MIN};
use crate::net::adapter::{Credentials, Step};
use crate::net::traffic::Traffic;
use crate::time::{Now, Wall};

impl Adapter {
    pub(super) fn event(
        &mut self,
        event: Event<'_>,
        used: usize,
        shared: Option<&Bytes>,
        now: Now,
        answers: &mut Vec<u8>,
        traffic: &mut Traffic,
    ) -> Step {
        let command = match event {
            Event::Publish(publish) => {
                let command = self.publish(&publish, shared, now);
                traffic.messages_in[publish.qos as usize] += 1;
                traffic.message_bytes_in[publish.qos as usize] +=
                    (self.connection.topic(publish.topic).len() + publish.payload.len()) as u64;
                command
            }
            Event::Puback(ack) => settle(&ack),
            Event::Pubrec(ack) if ack.reason.is_error() => settle(&ack),
            Event::Pubrec(ack) => ClientCommand::Received { delivery: delivery(ack.packet_id) },
            Event::Pubcomp(ack) => ClientCommand::Completed { delivery: delivery(ack.packet_id) },
            Event::Pubrel { ack, known: true } => ClientCommand::Release { tag: tag(ack.packet_id) },
            Event::Pubrel { ack, known: false } => {
                traffic.packets_out += 1;
                self.connection.pubcomp(answers, ack.packet_id, ReasonCode::PacketIdentifierNotFound, ());
                return Step::Answered { used };
            }
            Event::Duplicate { packet_id, answer } => {
                if answer == DuplicateAnswer::Pubrec {
                    traffic.packets_out += 1;
                    self.connection.pubrec(answers, packet_id, ReasonCode::Success, ());
                }
                return Step::Answered { used };
            }
            Event::Ping => {
                traffic.packets_out += 1;
                // An open connection always may send it, and it always fits.
                let _ = self.connection.pingresp(answers);
                return Step::Answered { used };
            }
            Event::Subscribe(subscribe) => subscription(&subscribe),
            Event::Unsubscribe(unsubscribe) => ClientCommand::Unsubscribe {
                tag: tag(unsubscribe.packet_id),
                filters: unsubscribe.filters.iter().map(Box::from).collect(),
            },
            Event::Connect(connect) => {
                let request = Box::new(self.connect(&connect));
                return Step::Login { used, credentials: credentials(&connect), request };
            }
            Event::Disconnect(disconnect) => goodbye(&disconnect),
            Event::Auth(auth) => {
                let message = auth.properties.authentication_data().unwrap_or_default().into();
                return Step::Authenticate {
                    used,
                    begins: auth.reason == ReasonCode::ReAuthenticate,
                    message,
                };
            }
        };
        Step::Command { used, command }
    }

    fn publish(&self, publish: &InboundPublish<'_>, shared: Option<&Bytes>, now: Now) -> ClientCommand {
        let head = MessageHead {
            qos: qos_in(publish.qos),
            retain: publish.retain,
            published: now.wall,
            expires: expires(&publish.properties, now.wall),
            properties: properties(&publish.properties),
        };
        let message = message(self.connection.topic(publish.topic), publish.payload, shared, head);
        ClientCommand::Publish(PublishRequest { tag: publish.packet_id.map_or(ReplyTag(0), tag), message })
    }

    fn connect(&mut self, connect: &Connect<'_>) -> ConnectRequest {
        let expiry = match (connect.version.is_v5(), connect.clean_start) {
            (true, _) => session_expiry(connect.properties.session_expiry_interval().unwrap_or(0)),
            (false, true) => SessionExpiry::WithConnection,
            (false, false) => SessionExpiry::Never,
        };
        self.requested_expiry = expiry;
        let longer = connect.keep_alive == 0 || connect.keep_alive > self.keep_alive_max;
        self.server_keep_alive = (self.keep_alive_max > 0 && longer).then_some(self.keep_alive_max);
        ConnectRequest {
            client_id: connect.client_id.into(),
            clean_start: connect.clean_start,
            expiry,
            receive_max: self.connection.client_receive_maximum(),
            will: connect.will.as_ref().map(will),
            internal: false,
        }
    }
}

fn credentials(connect: &Connect<'_>) -> Credentials {
    let properties = &connect.properties;
    let message = || properties.authentication_data().unwrap_or_default().into();
    Credentials {
        user: connect.user_name.map(Box::from),
        password: connect.password.map(Box::from),
        extended: properties.authentication_method().map(|method| (method.into(), message())),
    }
}

/// A payload that makes up most of the buffer it lies in is not copied.
fn message(topic: &str, payload: &[u8], shared: Option<&Bytes>, head: MessageHead) -> Message {
    let place = |part: &[u8], whole: &Bytes| {
        let at = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
        (at + part.len() <= whole.len()).then_some(at)
    };
    if let Some(whole) = shared.filter(|whole| payload.len() >= whole.len() / 2)
        && payload.len() >= SHARE_BYTES_MIN
        && let (Some(topic_at), Some(payload_at)) = (place(topic.as_bytes(), whole), place(payload, whole))
    {
        return Message::from_parts(whole.clone(), topic_at, topic.len(), payload_at, payload.len(), head);
    }
    Message::new(topic, payload, head)
}

fn will(will: &WireWill<'_>) -> Will {
    Will {
        topic: will.topic.into(),
        payload: will.payload.into(),
        qos: qos_in(will.qos),
        retain: will.retain,
        properties: properties(&will.properties),
        expiry_secs: will.properties.message_expiry_interval(),
        delay_secs: will.properties.will_delay_interval().unwrap_or(0),
    }
}

fn session_expiry(seconds: u32) -> SessionExpiry {
    match seconds {
        0 => SessionExpiry::WithConnection,
        u32::MAX => SessionExpiry::Never,
        seconds => SessionExpiry::After(seconds),
    }
}

fn expires(wire: &Wire<'_>, now: Wall) -> Option<Wall> {
    wire.message_expiry_interval().map(|seconds| now.plus_secs(u64::from(seconds)))
}

fn properties(wire: &Wire<'_>) -> Option<Box<Properties>> {
    if wire.is_empty() {
        return None;
    }
    let properties = Properties {
        payload_is_text: wire.payload_format_indicator().unwrap_or(false),
        content_type: wire.content_type().map(Box::from),
        response_topic: wire.response_topic().map(Box::from),
        correlation_data: wire.correlation_data().map(Box::from),
        user: wire.user_properties().map(|(name, value)| (name.into(), value.into())).collect(),
    };
    (!properties.is_empty()).then(|| Box::new(properties))
}

fn delivery(id: PacketId) -> DeliveryId {
    NonZeroU16::new(id.get()).expect("a packet identifier is never 0")
}

fn settle(ack: &Ack<Wire<'_>>) -> ClientCommand {
    ClientCommand::Settle { delivery: delivery(ack.packet_id), accepted: !ack.reason.is_error() }
}

fn subscription(subscribe: &Subscribe<Wire<'_>, SubscribeFilters<'_>>) -> ClientCommand {
    let filters = subscribe.filters.iter().map(|f| SubscribeFilter {
        filter: f.filter.into(),
        options: SubscribeOptions {
            qos: qos_in(f.options.qos),
            no_local: f.options.no_local,
            retain_as_published: f.options.retain_as_published,
            retain_handling: match f.options.retain_handling {
                Handling::Send => RetainHandling::Send,
                Handling::SendIfNew => RetainHandling::SendIfNew,
                Handling::DoNotSend => RetainHandling::Skip,
            },
        },
    });
    ClientCommand::Subscribe {
        tag: tag(subscribe.packet_id),
        subscription_id: subscribe.properties.subscription_identifier().map(|id| id.get()),
        filters: filters.collect(),
    }
}

/// Any reason but a normal one publishes the will [MQTT-3.14.4-3].
fn goodbye(disconnect: &Disconnect<Wire<'_>>) -> ClientCommand {
    ClientCommand::Disconnect {
        with_will: disconnect.reason != ReasonCode::NORMAL_DISCONNECTION,
        expiry: disconnect.properties.session_expiry_interval().map(session_expiry),
    }
}
