//! Packets as bytes, written and read without the protocol crate: what it takes for granted is not taken for granted here.

/// How a client connects.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) version: u8,
    pub(super) name: String,
    pub(super) clean: bool,
    pub(super) kept: bool,
    pub(super) window: u16,
    pub(super) will: Option<(String, String)>,
}

/// A packet from the broker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Seen {
    Connack { present: bool, code: u8 },
    Publish { topic: String, text: String, qos: u8, id: u16, dup: bool },
    Ack { kind: u8, id: u16, code: u8 },
    Suback { id: u16, codes: Vec<u8> },
    Unsuback { id: u16, codes: Vec<u8> },
    Pingresp,
    Disconnect { code: u8 },
}

pub(super) const PUBACK: u8 = 4;
pub(super) const PUBREC: u8 = 5;
pub(super) const PUBREL: u8 = 6;
pub(super) const PUBCOMP: u8 = 7;

pub(super) fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    let mut left = body.len();
    loop {
        let byte = (left % 128) as u8;
        left /= 128;
        out.push(if left > 0 { byte | 0x80 } else { byte });
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(body);
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

impl Login {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        text(&mut body, if self.version == 3 { "MQIsdp" } else { "MQTT" });
        let will_flag = if self.will.is_some() { 0x0c } else { 0 };
        body.extend([self.version, u8::from(self.clean) << 1 | will_flag, 0, 0]);
        if self.version == 5 {
            let mut properties = vec![0x21];
            properties.extend(self.window.to_be_bytes());
            if self.kept {
                properties.extend([0x11, 0xff, 0xff, 0xff, 0xff]);
            }
            body.push(properties.len() as u8);
            body.extend(properties);
        }
        text(&mut body, &self.name);
        if let Some((topic, payload)) = &self.will {
            if self.version == 5 {
                body.push(0);
            }
            text(&mut body, topic);
            text(&mut body, payload);
        }
        packet(0x10, &body)
    }
}

pub(super) fn publish(version: u8, topic: &str, payload: &str, qos: u8, id: u16, dup: bool) -> Vec<u8> {
    let mut body = Vec::new();
    text(&mut body, topic);
    if qos > 0 {
        body.extend(id.to_be_bytes());
    }
    if version == 5 {
        body.push(0);
    }
    body.extend_from_slice(payload.as_bytes());
    packet(0x30 | u8::from(dup) << 3 | qos << 1, &body)
}

pub(super) fn ack(kind: u8, id: u16, code: u8) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if code != 0 {
        body.push(code);
    }
    packet(kind << 4 | if kind == PUBREL { 2 } else { 0 }, &body)
}

pub(super) fn subscribe(version: u8, id: u16, filter: &str, qos: u8) -> Vec<u8> {
    packet(0x82, &request(version, id, filter, Some(qos)))
}

pub(super) fn unsubscribe(version: u8, id: u16, filter: &str) -> Vec<u8> {
    packet(0xa2, &request(version, id, filter, None))
}

fn request(version: u8, id: u16, filter: &str, qos: Option<u8>) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if version == 5 {
        body.push(0);
    }
    text(&mut body, filter);
    body.extend(qos);
    body
}

/// All packets of `bytes`, of which none may be cut off.
pub(super) fn parse(version: u8, mut bytes: &[u8]) -> Vec<Seen> {
    let mut seen = Vec::new();
    while let Some((&first, rest)) = bytes.split_first() {
        let (len, rest) = varint(rest);
        let (body, rest) = rest.split_at(len);
        seen.push(one(version, first, body));
        bytes = rest;
    }
    seen
}

fn varint(bytes: &[u8]) -> (usize, &[u8]) {
    let (mut value, mut shift) = (0, 0);
    for (at, byte) in bytes.iter().enumerate() {
        value |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return (value, &bytes[at + 1..]);
        }
    }
    panic!("a length that is cut off");
}

fn properties(version: u8, bytes: &[u8]) -> &[u8] {
    if version != 5 || bytes.is_empty() {
        return bytes;
    }
    let (len, rest) = varint(bytes);
    &rest[len..]
}

fn number(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

fn one(version: u8, first: u8, body: &[u8]) -> Seen {
    match first >> 4 {
        2 => Seen::Connack { present: body[0] == 1, code: body[1] },
        3 => {
            let (topic, mut rest) = body[2..].split_at(usize::from(number(body)));
            let qos = first >> 1 & 3;
            let mut id = 0;
            if qos > 0 {
                (id, rest) = (number(rest), &rest[2..]);
            }
            let word = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("tests publish text");
            let (topic, text) = (word(topic), word(properties(version, rest)));
            Seen::Publish { topic, text, qos, id, dup: first & 8 != 0 }
        }
        kind @ PUBACK..=PUBCOMP => {
            assert_eq!(first & 15, if kind == PUBREL { 2 } else { 0 }, "reserved flags");
            Seen::Ack { kind, id: number(body), code: body.get(2).copied().unwrap_or(0) }
        }
        9 => Seen::Suback { id: number(body), codes: properties(version, &body[2..]).to_vec() },
        11 => Seen::Unsuback { id: number(body), codes: properties(version, &body[2..]).to_vec() },
        13 => Seen::Pingresp,
        14 => Seen::Disconnect { code: body.first().copied().unwrap_or(0) },
        other => panic!("the broker sent a packet of type {other}"),
    }
}
