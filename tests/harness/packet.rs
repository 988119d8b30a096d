//! Packets as the tests see them: owned, with the properties that matter to a broker.

use tidegate_mqtt::packet::{Ack, Publish};
use tidegate_mqtt::property::PropertyIter;
use tidegate_mqtt::{
    Encode, Packet as Decoded, PacketId, Properties, Property, Qos, ReasonCode, SubscriptionId, TopicAlias,
    Version,
};

/// The answer to CONNECT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connack {
    pub session_present: bool,
    pub reason: u8,
    pub assigned_id: Option<String>,
    pub expiry: Option<u32>,
    pub receive_max: Option<u16>,
    pub packet_max: Option<u32>,
    pub aliases: Option<u16>,
    pub keep_alive: Option<u16>,
    pub response_information: Option<String>,
    pub auth_method: Option<String>,
    pub auth_data: Option<Vec<u8>>,
}

/// A PUBLISH in either direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub retain: bool,
    pub dup: bool,
    /// 0: none, or to be chosen by the client.
    pub id: u16,
    pub expiry: Option<u32>,
    pub alias: Option<u16>,
    pub subscription_ids: Vec<u32>,
    pub text: bool,
    pub content_type: Option<String>,
    pub response_topic: Option<String>,
    pub correlation: Option<Vec<u8>>,
    pub user: Vec<(String, String)>,
}

impl Message {
    pub fn new(topic: &str, payload: impl AsRef<[u8]>, qos: u8) -> Self {
        Self { topic: topic.into(), payload: payload.as_ref().to_vec(), qos, ..Self::default() }
    }

    pub fn retained(topic: &str, payload: impl AsRef<[u8]>, qos: u8) -> Self {
        Self { retain: true, ..Self::new(topic, payload, qos) }
    }

    pub fn with_expiry(self, seconds: u32) -> Self {
        Self { expiry: Some(seconds), ..self }
    }

    /// The payload as text; bytes that are none are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }

    fn properties(&self) -> Vec<Property<'_>> {
        let mut list = Vec::new();
        if self.text {
            list.push(Property::PayloadFormatIndicator(true));
        }
        list.extend(self.expiry.map(Property::MessageExpiryInterval));
        list.extend(self.alias.and_then(TopicAlias::new).map(Property::TopicAlias));
        list.extend(self.response_topic.as_deref().map(Property::ResponseTopic));
        list.extend(self.correlation.as_deref().map(Property::CorrelationData));
        list.extend(self.content_type.as_deref().map(Property::ContentType));
        list.extend(self.user.iter().map(|(name, value)| Property::UserProperty((name, value))));
        list
    }

    /// The PUBLISH packet.
    pub fn encode(&self, version: Version) -> Vec<u8> {
        let properties = self.properties();
        let publish = Publish {
            dup: self.dup,
            qos: Qos::from_bits(self.qos).expect("tests use QoS 0 to 2"),
            retain: self.retain,
            topic: &self.topic,
            packet_id: PacketId::new(self.id),
            properties: properties.as_slice(),
            payload: &self.payload,
        };
        let mut out = Vec::new();
        publish.encode(version, &mut out).expect("tests send what can be encoded");
        out
    }

    fn received(publish: &Publish<'_>) -> Self {
        let properties = &publish.properties;
        Self {
            topic: publish.topic.into(),
            payload: publish.payload.to_vec(),
            qos: publish.qos.bits(),
            retain: publish.retain,
            dup: publish.dup,
            id: publish.packet_id.map_or(0, PacketId::get),
            expiry: properties.message_expiry_interval(),
            alias: properties.topic_alias().map(TopicAlias::get),
            subscription_ids: properties.subscription_identifiers().map(SubscriptionId::get).collect(),
            text: properties.payload_format_indicator() == Some(true),
            content_type: properties.content_type().map(Into::into),
            response_topic: properties.response_topic().map(Into::into),
            correlation: properties.correlation_data().map(Into::into),
            user: properties.user_properties().map(|(name, value)| (name.into(), value.into())).collect(),
        }
    }
}

/// A packet from the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    Connack(Connack),
    Publish(Message),
    Puback {
        id: u16,
        reason: u8,
    },
    Pubrec {
        id: u16,
        reason: u8,
    },
    Pubrel {
        id: u16,
        reason: u8,
    },
    Pubcomp {
        id: u16,
        reason: u8,
    },
    Suback {
        id: u16,
        reasons: Vec<u8>,
    },
    Unsuback {
        id: u16,
        reasons: Vec<u8>,
    },
    Pingresp,
    Disconnect {
        reason: u8,
    },
    Auth {
        reason: u8,
        method: Option<String>,
        data: Vec<u8>,
    },
    /// One that only clients send.
    Unexpected(String),
}

impl From<Decoded<'_>> for Packet {
    fn from(packet: Decoded<'_>) -> Self {
        let ack = |ack: &Ack<Properties<'_>>| (ack.packet_id.get(), ack.reason.byte());
        match &packet {
            Decoded::Connack(connack) => Self::Connack(Connack {
                session_present: connack.session_present,
                reason: connack.reason.byte(),
                assigned_id: connack.properties.assigned_client_identifier().map(Into::into),
                expiry: connack.properties.session_expiry_interval(),
                receive_max: connack.properties.receive_maximum().map(Into::into),
                packet_max: connack.properties.maximum_packet_size().map(Into::into),
                aliases: connack.properties.topic_alias_maximum(),
                keep_alive: connack.properties.server_keep_alive(),
                response_information: connack.properties.response_information().map(Into::into),
                auth_method: connack.properties.authentication_method().map(Into::into),
                auth_data: connack.properties.authentication_data().map(Into::into),
            }),
            Decoded::Publish(publish) => Self::Publish(Message::received(publish)),
            Decoded::Puback(packet) => Self::puback(ack(packet)),
            Decoded::Pubrec(packet) => Self::pubrec(ack(packet)),
            Decoded::Pubrel(packet) => Self::pubrel(ack(packet)),
            Decoded::Pubcomp(packet) => Self::pubcomp(ack(packet)),
            Decoded::Suback(suback) => Self::Suback {
                id: suback.packet_id.get(),
                reasons: suback.reasons.iter().map(ReasonCode::byte).collect(),
            },
            Decoded::Unsuback(unsuback) => Self::Unsuback {
                id: unsuback.packet_id.get(),
                reasons: unsuback.reasons.iter().map(ReasonCode::byte).collect(),
            },
            Decoded::Pingresp => Self::Pingresp,
            Decoded::Disconnect(disconnect) => Self::Disconnect { reason: disconnect.reason.byte() },
            Decoded::Auth(auth) => Self::Auth {
                reason: auth.reason.byte(),
                method: auth.properties.authentication_method().map(Into::into),
                data: auth.properties.authentication_data().unwrap_or_default().to_vec(),
            },
            other => Self::Unexpected(format!("{other:?}")),
        }
    }
}

impl Packet {
    fn puback((id, reason): (u16, u8)) -> Self {
        Self::Puback { id, reason }
    }

    fn pubrec((id, reason): (u16, u8)) -> Self {
        Self::Pubrec { id, reason }
    }

    fn pubrel((id, reason): (u16, u8)) -> Self {
        Self::Pubrel { id, reason }
    }

    fn pubcomp((id, reason): (u16, u8)) -> Self {
        Self::Pubcomp { id, reason }
    }
}
