//! What a client says and hears, as MQTT bytes on a simulated socket or, for the link, as commands and events.

use std::num::NonZeroU16;

use tidegate::broker::api::{
    ClientCommand, ClientEvent, ConnectRequest, Delivery, PublishOutcome, PublishRequest, ReplyTag,
    SessionExpiry, SubscribeFilter, SubscribeOptions, SubscribeOutcome,
};
use tidegate::message::{Message, MessageHead, Qos};
use tidegate::time::Now;
use tidegate_mqtt::packet::{self, Ack, Connect, Disconnect, Publish, Subscribe, Unsubscribe, Will};
use tidegate_mqtt::{
    DecodeLimits, Decoded, Encode, Packet, PacketId, PacketType, Property, ReasonCode, Version, decode_next,
};

use crate::cast::Part;

/// Deliveries that a client takes at a time.
pub const RECEIVE_MAX: u16 = 5;

#[derive(Clone, Debug)]
pub struct WillSaid {
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub delay: u32,
}

/// What a client says.
#[derive(Clone, Debug)]
pub enum Say {
    Connect {
        clean: bool,
        will: Option<WillSaid>,
    },
    Publish {
        id: u16,
        topic: String,
        payload: Vec<u8>,
        qos: u8,
        retain: bool,
        dup: bool,
        expiry: Option<u32>,
    },
    Ack(PacketType, u16),
    Subscribe {
        id: u16,
        filter: String,
        qos: u8,
    },
    Unsubscribe {
        id: u16,
        filter: String,
    },
    Goodbye,
}

/// What it hears.
#[derive(Clone, Debug)]
pub enum Hear {
    Connack { reason: u8, present: bool },
    Publish { id: u16, topic: String, payload: Vec<u8>, qos: u8, retain: bool, dup: bool },
    Ack(PacketType, u16, u8),
    Suback(u16, u8),
    Unsuback(u16),
    Other,
}

fn wire_qos(qos: u8) -> tidegate_mqtt::Qos {
    tidegate_mqtt::Qos::from_bits(qos).expect("0 to 2")
}

fn wire_id(id: u16) -> PacketId {
    PacketId::new(id).expect("never 0")
}

impl Say {
    /// As bytes.
    pub fn encode(&self, part: &Part, out: &mut Vec<u8>) {
        let version = part.version;
        let encoded = match self {
            Say::Connect { clean, will } => return connect(part, *clean, will.as_ref(), out),
            Say::Publish { id, topic, payload, qos, retain, dup, expiry } => {
                let properties = expiry.filter(|_| version.is_v5()).map(Property::MessageExpiryInterval);
                let publish = Publish {
                    dup: *dup,
                    qos: wire_qos(*qos),
                    retain: *retain,
                    topic,
                    packet_id: PacketId::new(*id),
                    properties,
                    payload,
                };
                publish.encode(version, out)
            }
            Say::Ack(kind, id) => {
                let ack = Ack { packet_id: wire_id(*id), reason: ReasonCode::Success, properties: () };
                ack.encode_as(*kind, version, out)
            }
            Say::Subscribe { id, filter, qos } => {
                let options = packet::SubscribeOptions::with_qos(wire_qos(*qos));
                let filters = [packet::SubscribeFilter { filter, options }];
                Subscribe { packet_id: wire_id(*id), properties: (), filters }.encode(version, out)
            }
            Say::Unsubscribe { id, filter } => {
                let filters = [filter.as_str()];
                Unsubscribe { packet_id: wire_id(*id), properties: (), filters }.encode(version, out)
            }
            Say::Goodbye => Disconnect { reason: ReasonCode::Success, properties: () }.encode(version, out),
        };
        encoded.expect("it can be encoded");
    }

    /// As a command of the link.
    pub fn command(&self, part: &Part, now: Now) -> ClientCommand {
        let qos_of = |qos: u8| Qos::from_bits(qos).expect("0 to 2");
        match self {
            Say::Connect { clean, .. } => ClientCommand::Connect(Box::new(ConnectRequest {
                client_id: part.name.into(),
                clean_start: *clean,
                expiry: SessionExpiry::Never,
                receive_max: RECEIVE_MAX,
                will: None,
                internal: true,
            })),
            Say::Publish { id, topic, payload, qos, retain, .. } => {
                let head = MessageHead {
                    qos: qos_of(*qos),
                    retain: *retain,
                    published: now.wall,
                    ..MessageHead::default()
                };
                let message = Message::new(topic, payload, head);
                ClientCommand::Publish(PublishRequest { tag: ReplyTag(*id), message })
            }
            Say::Ack(kind, id) => {
                let delivery = NonZeroU16::new(*id).expect("never 0");
                match kind {
                    PacketType::Puback => ClientCommand::Settle { delivery, accepted: true },
                    PacketType::Pubrec => ClientCommand::Received { delivery },
                    PacketType::Pubrel => ClientCommand::Release { tag: ReplyTag(*id) },
                    _ => ClientCommand::Completed { delivery },
                }
            }
            Say::Subscribe { id, filter, qos } => ClientCommand::Subscribe {
                tag: ReplyTag(*id),
                subscription_id: None,
                filters: vec![SubscribeFilter {
                    filter: filter.as_str().into(),
                    options: SubscribeOptions { qos: qos_of(*qos), ..SubscribeOptions::default() },
                }],
            },
            Say::Unsubscribe { id, filter } => {
                ClientCommand::Unsubscribe { tag: ReplyTag(*id), filters: vec![filter.as_str().into()] }
            }
            Say::Goodbye => ClientCommand::Disconnect { with_will: false, expiry: None },
        }
    }
}

fn connect(part: &Part, clean: bool, will: Option<&WillSaid>, out: &mut Vec<u8>) {
    let v5 = part.version.is_v5();
    let mut properties = vec![];
    if v5 {
        properties.extend(NonZeroU16::new(RECEIVE_MAX).map(Property::ReceiveMaximum));
        properties.extend((part.expiry > 0).then_some(Property::SessionExpiryInterval(part.expiry)));
    }
    let delay: Vec<Property<'_>> = will
        .filter(|will| v5 && will.delay > 0)
        .map(|will| Property::WillDelayInterval(will.delay))
        .into_iter()
        .collect();
    let will = will.map(|will| Will {
        qos: wire_qos(will.qos),
        retain: false,
        topic: &will.topic,
        payload: &will.payload,
        properties: delay.as_slice(),
    });
    let connect = Connect {
        version: part.version,
        bridge: false,
        // Before MQTT 5.0 this flag also says that the session is to end.
        clean_start: clean || (!v5 && part.expiry == 0),
        keep_alive: 0,
        client_id: part.name,
        will,
        user_name: None,
        password: None,
        properties: properties.as_slice(),
    };
    connect.encode(part.version, out).expect("it can be encoded");
}

/// The packet at the front of `input` and its length.
///
/// # Errors
/// The gateway sent what is no MQTT.
pub fn decode(version: Version, input: &[u8]) -> Result<Option<(Hear, usize)>, String> {
    match decode_next(version, input, &DecodeLimits::PROTOCOL) {
        Err(error) => Err(format!("the gateway sent what is no MQTT: {error:?}")),
        Ok(Decoded::Incomplete { .. }) => Ok(None),
        Ok(Decoded::Packet { packet, consumed }) => Ok(Some((heard(&packet), consumed))),
    }
}

fn heard(packet: &Packet<'_>) -> Hear {
    match packet {
        Packet::Connack(connack) => {
            Hear::Connack { reason: connack.reason.byte(), present: connack.session_present }
        }
        Packet::Publish(publish) => Hear::Publish {
            id: publish.packet_id.map_or(0, PacketId::get),
            topic: publish.topic.to_owned(),
            payload: publish.payload.to_vec(),
            qos: publish.qos.bits(),
            retain: publish.retain,
            dup: publish.dup,
        },
        Packet::Puback(ack) => Hear::Ack(PacketType::Puback, ack.packet_id.get(), ack.reason.byte()),
        Packet::Pubrec(ack) => Hear::Ack(PacketType::Pubrec, ack.packet_id.get(), ack.reason.byte()),
        Packet::Pubrel(ack) => Hear::Ack(PacketType::Pubrel, ack.packet_id.get(), ack.reason.byte()),
        Packet::Pubcomp(ack) => Hear::Ack(PacketType::Pubcomp, ack.packet_id.get(), ack.reason.byte()),
        Packet::Suback(suback) => {
            let code = suback.reasons.iter().next().map_or(0xff, ReasonCode::byte);
            Hear::Suback(suback.packet_id.get(), code)
        }
        Packet::Unsuback(unsuback) => Hear::Unsuback(unsuback.packet_id.get()),
        _ => Hear::Other,
    }
}

fn outcome(outcome: PublishOutcome) -> u8 {
    match outcome {
        PublishOutcome::Accepted => 0,
        PublishOutcome::NoSubscribers => 0x10,
        _ => 0x97,
    }
}

/// An event of the link.
pub fn event(event: ClientEvent) -> Hear {
    match event {
        ClientEvent::Connected(connected) => Hear::Connack { reason: 0, present: connected.session_present },
        ClientEvent::Refused(_) => Hear::Connack { reason: 0x97, present: false },
        ClientEvent::Published { tag, qos: Qos::ExactlyOnce, outcome: of } => {
            Hear::Ack(PacketType::Pubrec, tag.0, outcome(of))
        }
        ClientEvent::Published { tag, outcome: of, .. } => Hear::Ack(PacketType::Puback, tag.0, outcome(of)),
        ClientEvent::Released { tag, .. } => Hear::Ack(PacketType::Pubcomp, tag.0, 0),
        ClientEvent::Subscribed { tag, outcomes } => {
            let code = match outcomes.first() {
                Some(SubscribeOutcome::Granted(qos)) => *qos as u8,
                _ => 0x80,
            };
            Hear::Suback(tag.0, code)
        }
        ClientEvent::Unsubscribed { tag, .. } => Hear::Unsuback(tag.0),
        ClientEvent::Deliver(delivery) => delivered(&delivery),
        ClientEvent::DeliverRelease { delivery, .. } => Hear::Ack(PacketType::Pubrel, delivery.get(), 0),
        ClientEvent::Consuming { .. }
        | ClientEvent::Cancelled { .. }
        | ClientEvent::Synced { .. }
        | ClientEvent::BrowseEnd { .. }
        | ClientEvent::Transacted { .. }
        | ClientEvent::Close(_) => Hear::Other,
    }
}

fn delivered(delivery: &Delivery) -> Hear {
    Hear::Publish {
        id: delivery.id.map_or(0, NonZeroU16::get),
        topic: delivery.message.topic().to_owned(),
        payload: delivery.message.payload().to_vec(),
        qos: delivery.qos as u8,
        retain: delivery.retain,
        dup: delivery.duplicate,
    }
}
