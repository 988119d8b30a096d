//! Translates the link's packets to and from bytes with `rumqttc`'s public codec; its event loop is not used.
//!
//! Packets of a fixed shape (acknowledgements, PINGREQ, DISCONNECT) are read and written here: the codec fails on reason codes
//! that it does not list and on a DISCONNECT without a body, and one unknown code must not end a connection.
//!
//! Bounds: a packet over `packet_bytes_max` is refused from its header; a text over 65,535 bytes is refused before the codec
//! would cut its length field.

use bytes::{Buf, BufMut, BytesMut};
use rumqttc::mqttbytes as v4;
use rumqttc::v5::mqttbytes as v5;

use super::rules::{Direction, RuleSet};
use super::wire::{ConnAck, InPublish, Incoming, OutPublish, Outgoing, SUCCESS};
use super::{LinkConfig, Protocol, VIA_PROPERTY};
use crate::message::{Properties, Qos};

/// Longest text or byte string in an MQTT packet, in bytes.
const TEXT_BYTES_MAX: usize = 65_535;

/// The codec of one connection.
#[derive(Clone, Debug)]
pub struct Codec {
    protocol: Protocol,
    packet_bytes_max: u32,
    via: Option<String>,
}

/// What CONNECT says beside the configuration.
pub struct Credentials {
    /// User name; empty: none.
    pub username: String,
    /// Password; empty: none.
    pub password: String,
}

impl Codec {
    /// For a link with this configuration.
    pub fn new(config: &LinkConfig) -> Self {
        Self {
            protocol: config.protocol,
            packet_bytes_max: config.packet_bytes_max,
            via: config.mark_path.then(|| config.via_id().to_owned()),
        }
    }

    /// Appends a packet to `out`; appends nothing on an error. `bytes_max` is the upstream's bound on a PUBLISH.
    pub fn encode(&self, packet: &Outgoing, bytes_max: u32, out: &mut BytesMut) -> Result<(), String> {
        match packet {
            Outgoing::Publish(publish) => return self.encode_publish(publish, bytes_max, out),
            Outgoing::PubAck { id, reason } => self.encode_ack(0x40, *id, *reason, out),
            Outgoing::PubRec { id, reason } => self.encode_ack(0x50, *id, *reason, out),
            Outgoing::PubComp { id } => self.encode_ack(0x70, *id, SUCCESS, out),
            Outgoing::Ping => out.put_slice(&[0xc0, 0]),
            Outgoing::Disconnect => out.put_slice(&[0xe0, 0]),
            Outgoing::Connect { .. } | Outgoing::Subscribe { .. } => {
                return Err("CONNECT and SUBSCRIBE need the configuration".to_owned());
            }
        }
        Ok(())
    }

    fn encode_ack(&self, first: u8, id: u16, reason: u8, out: &mut BytesMut) {
        let with_reason = reason != SUCCESS && self.protocol == Protocol::V5;
        out.put_slice(&[first, if with_reason { 3 } else { 2 }]);
        out.put_u16(id);
        if with_reason {
            out.put_u8(reason);
        }
    }

    fn encode_publish(&self, publish: &OutPublish, bytes_max: u32, out: &mut BytesMut) -> Result<(), String> {
        let payload = publish.message.payload_shared();
        let pkid = publish.id.map_or(0, u16::from);
        let (dup, retain) = (publish.dup, publish.retain);
        check_text("topic", &publish.topic)?;
        match self.protocol {
            Protocol::V4 => {
                let qos = if pkid == 0 { v4::QoS::AtMostOnce } else { v4::QoS::AtLeastOnce };
                let topic = publish.topic.clone();
                let packet = v4::v4::Publish { dup, qos, retain, topic, pkid, payload };
                check_size(packet.size(), bytes_max)?;
                packet.write(out).map(drop).map_err(|e| e.to_string())
            }
            Protocol::V5 => {
                let qos = if pkid == 0 { v5::QoS::AtMostOnce } else { v5::QoS::AtLeastOnce };
                let properties = self.properties_out(publish)?;
                let topic = publish.topic.clone().into();
                let packet = v5::v5::Publish { dup, qos, retain, topic, pkid, payload, properties };
                check_size(packet.size(), bytes_max)?;
                packet.write(out).map(drop).map_err(|e| e.to_string())
            }
        }
    }

    fn properties_out(&self, publish: &OutPublish) -> Result<Option<v5::v5::PublishProperties>, String> {
        let own = publish.message.properties();
        if own.is_none() && self.via.is_none() && publish.expiry_secs.is_none() {
            return Ok(None);
        }
        let mut properties = own.map_or_else(|| Ok(v5::v5::PublishProperties::default()), translate_out)?;
        properties.message_expiry_interval = publish.expiry_secs;
        if let Some(id) = &self.via {
            properties.user_properties.push((VIA_PROPERTY.to_owned(), id.clone()));
        }
        Ok(Some(properties))
    }

    /// Takes the next whole packet off the front of `input`; `None`: more bytes are needed.
    pub fn decode(&self, input: &mut BytesMut) -> Result<Option<Incoming>, String> {
        let Some(length) = frame_length(input, self.packet_bytes_max)? else { return Ok(None) };
        let frame = input.split_to(length);
        let body_at = 1 + frame[1..].iter().take_while(|byte| **byte >= 0x80).count() + 1;
        let (kind, body) = (frame[0] >> 4, &frame[body_at..]);
        let id = body.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
        match (kind, id) {
            (2, _) => self.decode_connack(frame),
            (3, _) => self.decode_publish(frame),
            (4, Some(id)) => Ok(Incoming::PubAck { id, reason: body.get(2).copied().unwrap_or(SUCCESS) }),
            (6, Some(id)) => Ok(Incoming::PubRel { id }),
            (5 | 7 | 11, Some(_)) => Ok(Incoming::Stray),
            (9, Some(id)) => self.decode_suback(id, body),
            (13, _) => Ok(Incoming::Pong),
            (14, _) => Ok(self.decode_disconnect(body)),
            _ => Err(format!("the upstream sent a packet that no client gets: type {kind}, {length} bytes")),
        }
        .map(Some)
    }

    fn decode_connack(&self, mut frame: BytesMut) -> Result<Incoming, String> {
        let ack = match self.protocol {
            Protocol::V4 => match v4::v4::Packet::read(&mut frame, self.packet_bytes_max as usize) {
                Ok(v4::v4::Packet::ConnAck(ack)) => connack_v4(&ack),
                other => {
                    return Err(format!("the upstream's answer to CONNECT is not MQTT 3.1.1: {other:?}"));
                }
            },
            Protocol::V5 => match v5::v5::Packet::read(&mut frame, Some(self.packet_bytes_max)) {
                Ok(v5::v5::Packet::ConnAck(ack)) => connack_v5(ack),
                other => {
                    return Err(format!(
                        "the upstream's answer to CONNECT is not MQTT 5.0 ({other:?}): \
                         if it only speaks 3.1.1, set `protocol = 4`"
                    ));
                }
            },
        };
        Ok(Incoming::ConnAck(ack))
    }

    fn decode_publish(&self, mut frame: BytesMut) -> Result<Incoming, String> {
        let bad = |what: String| format!("the upstream sent a PUBLISH that cannot be read: {what}");
        let publish = match self.protocol {
            Protocol::V4 => match v4::v4::Packet::read(&mut frame, self.packet_bytes_max as usize) {
                Ok(v4::v4::Packet::Publish(p)) => InPublish {
                    id: p.pkid,
                    qos: Qos::from_bits(p.qos as u8).unwrap_or_default(),
                    retain: p.retain,
                    topic: p.topic,
                    payload: p.payload,
                    expiry_secs: None,
                    properties: Properties::default(),
                },
                other => return Err(bad(format!("{other:?}"))),
            },
            Protocol::V5 => match v5::v5::Packet::read(&mut frame, Some(self.packet_bytes_max)) {
                Ok(v5::v5::Packet::Publish(p)) => translate_in(p).map_err(bad)?,
                other => return Err(bad(format!("{other:?}"))),
            },
        };
        Ok(Incoming::Publish(publish))
    }

    /// The codes of a SUBACK; in MQTT 5.0 they follow the properties.
    fn decode_suback(&self, id: u16, body: &[u8]) -> Result<Incoming, String> {
        let rest = &body[2..];
        let codes = match self.protocol {
            Protocol::V4 => Some(rest),
            Protocol::V5 => variable_int(rest).and_then(|(length, width)| rest.get(width + length..)),
        };
        let codes = codes.ok_or("the upstream sent a SUBACK that cannot be read")?;
        Ok(Incoming::SubAck { id, codes: codes.to_vec() })
    }

    fn decode_disconnect(&self, body: &[u8]) -> Incoming {
        let reason = body.first().copied().unwrap_or(SUCCESS);
        Incoming::Disconnect { reason, text: disconnect_text(reason).to_owned() }
    }
}

/// Appends CONNECT.
pub fn encode_connect(
    config: &LinkConfig,
    clean_start: bool,
    login: Credentials,
    out: &mut BytesMut,
) -> Result<(), String> {
    check_text("username", &login.username)?;
    check_text("password", &login.password)?;
    let with_login = !login.username.is_empty() || !login.password.is_empty();
    let (client_id, keep_alive) = (config.client_id.clone(), config.keep_alive_secs);
    match config.protocol {
        Protocol::V4 => {
            let mut connect = v4::v4::Connect::new(client_id);
            connect.keep_alive = keep_alive;
            connect.clean_session = clean_start;
            if with_login {
                connect.set_login(login.username, login.password);
            }
            connect.write(out).map(drop).map_err(|e| e.to_string())
        }
        Protocol::V5 => {
            let properties = v5::v5::ConnectProperties {
                session_expiry_interval: (!clean_start).then_some(config.session_expiry_secs),
                receive_maximum: Some(config.inbound_window),
                max_packet_size: Some(config.packet_bytes_max),
                ..v5::v5::ConnectProperties::default()
            };
            let connect =
                v5::v5::Connect { keep_alive, client_id, clean_start, properties: Some(properties) };
            let login = v5::v5::Login { username: login.username, password: login.password };
            connect.write(&None, &with_login.then_some(login), out).map(drop).map_err(|e| e.to_string())
        }
    }
}

/// Appends SUBSCRIBE for all inbound rules.
pub fn encode_subscribe(config: &LinkConfig, pkid: u16, out: &mut BytesMut) -> Result<(), String> {
    let rules = RuleSet::new(Direction::In, &config.inbound);
    let at_most_once = |qos: Qos| qos == Qos::AtMostOnce;
    match config.protocol {
        Protocol::V4 => {
            let qos = |q| if at_most_once(q) { v4::QoS::AtMostOnce } else { v4::QoS::AtLeastOnce };
            let filters = rules.subscriptions();
            let filters = filters.map(|(path, r)| v4::v4::SubscribeFilter::new(path.to_owned(), qos(r.qos)));
            let packet = v4::v4::Subscribe { pkid, filters: filters.collect() };
            packet.write(out).map(drop).map_err(|e| e.to_string())
        }
        Protocol::V5 => {
            let qos = |q| if at_most_once(q) { v5::QoS::AtMostOnce } else { v5::QoS::AtLeastOnce };
            let filters = rules.subscriptions().map(|(path, rule)| v5::v5::Filter {
                path: path.to_owned(),
                qos: qos(rule.qos),
                nolocal: true,
                preserve_retain: true,
                retain_forward_rule: v5::v5::RetainForwardRule::OnNewSubscribe,
            });
            let packet = v5::v5::Subscribe { pkid, filters: filters.collect(), properties: None };
            packet.write(out).map(drop).map_err(|e| e.to_string())
        }
    }
}

/// Length of the packet at the front of `input`, header included; `None`: it is not whole yet.
fn frame_length(input: &[u8], bytes_max: u32) -> Result<Option<usize>, String> {
    // A TLS alert in the place of a packet: the upstream waits for a TLS handshake.
    if input.starts_with(&[0x15, 0x03]) {
        return Err("the upstream speaks TLS on this port: write mqtts:// in `url`".to_owned());
    }
    if input.len() < 2 {
        return Ok(None);
    }
    let Some((length, width)) = variable_int(&input[1..]) else {
        return if input.len() > 4 { Err("the upstream sent no MQTT packet".to_owned()) } else { Ok(None) };
    };
    if length > bytes_max as usize {
        return Err(format!("the upstream sent a packet of {length} bytes; packet_bytes_max is {bytes_max}"));
    }
    let whole = 1 + width + length;
    Ok((input.len() >= whole).then_some(whole))
}

/// A variable byte integer and its width; `None` when it is cut short or too long.
fn variable_int(input: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0usize;
    for (i, byte) in input.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, i + 1));
        }
    }
    None
}

fn check_size(size: usize, bytes_max: u32) -> Result<(), String> {
    if size > bytes_max as usize {
        return Err(format!("the packet has {size} bytes, the upstream takes {bytes_max}"));
    }
    Ok(())
}

fn check_text(what: &str, text: &str) -> Result<(), String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("its {what} has {} bytes, MQTT carries at most {TEXT_BYTES_MAX}", text.len()));
    }
    Ok(())
}

fn translate_out(own: &Properties) -> Result<v5::v5::PublishProperties, String> {
    let text = |what: &str, value: &Option<Box<str>>| match value {
        Some(value) => check_text(what, value).map(|()| Some(value.to_string())),
        None => Ok(None),
    };
    let correlation = own.correlation_data.as_deref();
    if correlation.is_some_and(|data| data.len() > TEXT_BYTES_MAX) {
        return Err("its correlation data is longer than MQTT carries".to_owned());
    }
    for (name, value) in &own.user {
        check_text("user property", name)?;
        check_text("user property", value)?;
    }
    Ok(v5::v5::PublishProperties {
        payload_format_indicator: own.payload_is_text.then_some(1),
        content_type: text("content type", &own.content_type)?,
        response_topic: text("response topic", &own.response_topic)?,
        correlation_data: correlation.map(bytes::Bytes::copy_from_slice),
        user_properties: own.user.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
        ..v5::v5::PublishProperties::default()
    })
}

fn translate_in(publish: v5::v5::Publish) -> Result<InPublish, String> {
    let topic = String::from_utf8(publish.topic.to_vec()).map_err(|_| "its topic is not UTF-8".to_owned())?;
    let theirs = publish.properties.unwrap_or_default();
    if theirs.topic_alias.is_some() {
        return Err("it uses a topic alias, and none was granted".to_owned());
    }
    Ok(InPublish {
        id: publish.pkid,
        qos: Qos::from_bits(publish.qos as u8).unwrap_or_default(),
        retain: publish.retain,
        topic,
        payload: publish.payload,
        expiry_secs: theirs.message_expiry_interval,
        properties: Properties {
            payload_is_text: theirs.payload_format_indicator == Some(1),
            content_type: theirs.content_type.map(Into::into),
            response_topic: theirs.response_topic.map(Into::into),
            correlation_data: theirs.correlation_data.map(|data| data.chunk().into()),
            user: theirs.user_properties.into_iter().map(|(n, v)| (n.into(), v.into())).collect(),
        },
    })
}

fn connack_v4(ack: &v4::v4::ConnAck) -> ConnAck {
    use v4::v4::ConnectReturnCode as Code;
    let refused = match ack.code {
        Code::Success => None,
        Code::BadUserNamePassword => Some("user name or password is wrong".to_owned()),
        Code::NotAuthorized => Some("not authorized".to_owned()),
        Code::BadClientId => Some("the client identifier is not accepted".to_owned()),
        Code::RefusedProtocolVersion => Some("it does not speak MQTT 3.1.1".to_owned()),
        Code::ServiceUnavailable => Some("it is not available".to_owned()),
    };
    ConnAck { session_present: ack.session_present, refused, ..ConnAck::default() }
}

fn connack_v5(ack: v5::v5::ConnAck) -> ConnAck {
    use v5::v5::ConnectReturnCode as Code;
    let theirs = ack.properties;
    let reason = theirs.as_ref().and_then(|p| p.reason_string.as_deref()).unwrap_or_default();
    let refused = match ack.code {
        Code::Success => None,
        Code::BadUserNamePassword => Some("user name or password is wrong".to_owned()),
        Code::UnsupportedProtocolVersion => Some("it does not speak MQTT 5.0: set `protocol = 4`".to_owned()),
        code => Some(format!("{code:?} {reason}").trim_end().to_owned()),
    };
    let base = ConnAck { session_present: ack.session_present, refused, ..ConnAck::default() };
    let Some(theirs) = theirs else { return base };
    ConnAck {
        receive_max: theirs.receive_max,
        packet_bytes_max: theirs.max_packet_size,
        qos_max: theirs.max_qos,
        no_retain: theirs.retain_available == Some(0),
        keep_alive_secs: theirs.server_keep_alive,
        ..base
    }
}

fn disconnect_text(reason: u8) -> &'static str {
    match reason {
        0x87 => "(not authorized)",
        0x89 => "(it is busy)",
        0x8b => "(it stops)",
        0x8d => "(it heard nothing within the keep-alive time)",
        0x8e => "(another client uses the same client identifier)",
        0x93 => "(too many messages under way)",
        0x95 => "(a packet is too large)",
        0x97 => "(a quota is used up)",
        0x98 => "(an operator asked for it)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::message::{Message, MessageHead};

    fn codec(protocol: Protocol) -> Codec {
        Codec::new(&LinkConfig { protocol, client_id: "gw".into(), ..LinkConfig::default() })
    }

    fn publish(properties: Option<Box<Properties>>) -> OutPublish {
        let message = Message::new("t", b"payload", MessageHead { properties, ..MessageHead::default() });
        let id = NonZeroU16::new(7);
        OutPublish { id, dup: true, retain: true, topic: "up/t".into(), message, expiry_secs: Some(9) }
    }

    #[test]
    fn properties_come_back_as_they_went() {
        let own = Properties {
            payload_is_text: true,
            content_type: Some("text/plain".into()),
            response_topic: Some("answers".into()),
            correlation_data: Some(b"\x00\xff"[..].into()),
            user: vec![("a".into(), "1".into()), ("a".into(), "2".into())],
        };
        let mut bytes = BytesMut::new();
        let codec = codec(Protocol::V5);
        codec.encode(&Outgoing::Publish(publish(Some(Box::new(own.clone())))), 1024, &mut bytes).unwrap();
        let Some(Incoming::Publish(back)) = codec.decode(&mut bytes).unwrap() else { panic!("no PUBLISH") };
        let mut user = own.user.clone();
        user.push((VIA_PROPERTY.into(), "gw".into()));
        assert_eq!(back.properties, Properties { user, ..own });
        assert_eq!((back.id, back.retain, back.expiry_secs, back.topic.as_str()), (7, true, Some(9), "up/t"));
        assert!(bytes.is_empty());
    }

    #[test]
    fn a_packet_over_the_bound_or_with_an_overlong_text_leaves_the_buffer_untouched() {
        let long =
            Properties { user: vec![("n".into(), "v".repeat(70_000).into())], ..Properties::default() };
        for protocol in [Protocol::V4, Protocol::V5] {
            let mut bytes = BytesMut::new();
            assert!(codec(protocol).encode(&Outgoing::Publish(publish(None)), 10, &mut bytes).is_err());
            assert!(bytes.is_empty());
        }
        let mut bytes = BytesMut::new();
        let packet = Outgoing::Publish(publish(Some(Box::new(long))));
        assert!(codec(Protocol::V5).encode(&packet, 1 << 20, &mut bytes).is_err());
        assert!(bytes.is_empty());
    }

    #[test]
    fn acknowledgements_with_any_reason_code_are_read() {
        let codec = codec(Protocol::V5);
        for (bytes, expected) in [
            (&[0x40, 2, 0, 7][..], Incoming::PubAck { id: 7, reason: 0 }),
            (&[0x40, 3, 0, 7, 0xee], Incoming::PubAck { id: 7, reason: 0xee }),
            (&[0x40, 4, 0, 7, 0x97, 0], Incoming::PubAck { id: 7, reason: 0x97 }),
            (&[0xe0, 0], Incoming::Disconnect { reason: 0, text: String::new() }),
            (&[0x62, 2, 0, 9], Incoming::PubRel { id: 9 }),
            (&[0x50, 2, 0, 9], Incoming::Stray),
            (&[0xd0, 0], Incoming::Pong),
            (&[0x90, 5, 0, 1, 0, 1, 0x87], Incoming::SubAck { id: 1, codes: vec![1, 0x87] }),
        ] {
            let mut input = BytesMut::from(bytes);
            assert_eq!(codec.decode(&mut input), Ok(Some(expected)));
            assert!(input.is_empty());
        }
    }

    #[test]
    fn cut_packets_wait_and_damaged_ones_are_errors() {
        for protocol in [Protocol::V4, Protocol::V5] {
            let codec = codec(protocol);
            for waiting in
                [&[][..], &[0x40], &[0x40, 2], &[0x40, 2, 0], &[0x30, 0x80], &[0x30, 0xff, 0xff, 0x3f, 1]]
            {
                let limit = codec.decode(&mut BytesMut::from(waiting));
                assert!(limit == Ok(None) || waiting.len() == 5, "{waiting:?}");
            }
            for bad in [
                &[0x40, 0][..],
                &[0x10, 0],
                &[0x20, 1, 0],
                &[0x30, 1, 0],
                &[0x32, 5, 0, 1, b'a', 0, 0],
                &[0x30, 0xff, 0xff, 0xff, 0xff, 1],
                &[0x30, 0xff, 0xff, 0xff, 0x7f],
                &[0x15, 0x03, 0x03, 0, 2],
            ] {
                assert!(codec.decode(&mut BytesMut::from(bad)).is_err(), "{bad:?}");
            }
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut jitter = crate::bridge::backoff::Jitter::new(11);
        for protocol in [Protocol::V4, Protocol::V5] {
            for _ in 0..20_000 {
                let length = jitter.between(0, 40);
                let bytes: Vec<u8> = (0..length).map(|_| jitter.between(0, 255) as u8).collect();
                let mut input = BytesMut::from(&bytes[..]);
                if let Some(second) = input.get_mut(1) {
                    *second = (length as u8).saturating_sub(2);
                }
                while let Ok(Some(_)) = codec(protocol).decode(&mut input) {}
            }
        }
    }
}
