//! A connection under test and packets for it.
#![allow(dead_code, clippy::unwrap_used)]

use tidegate_mqtt::connection::Acceptance;
use tidegate_mqtt::packet::{Connect, Packet, Publish, Subscribe, SubscribeFilter};
use tidegate_mqtt::{
    Connection, ConnectionLimits, DecodeLimits, Decoded, Encode, Event, PacketId, PropertyList, Qos,
    Received, Version, Violation,
};

/// A connection and the time that its driver passes.
pub struct Peer {
    pub connection: Connection,
    pub now: u64,
}

impl Peer {
    /// A connection that has received nothing.
    pub fn new(limits: ConnectionLimits) -> Peer {
        Peer { connection: Connection::new(limits, 0), now: 0 }
    }

    /// A connection whose client is accepted.
    pub fn open(version: Version, limits: ConnectionLimits) -> Peer {
        Peer::open_with(version, limits, ())
    }

    /// A connection whose client is accepted and has sent `properties` in CONNECT.
    pub fn open_with(version: Version, limits: ConnectionLimits, properties: impl PropertyList) -> Peer {
        let mut peer = Peer::new(limits);
        assert!(matches!(peer.event(&connect(version, properties)), Event::Connect(_)));
        peer.accept();
        peer
    }

    pub fn receive<'a>(&mut self, bytes: &'a [u8]) -> Result<Received<'a>, Violation> {
        self.connection.receive(bytes, self.now)
    }

    /// Receives one packet that becomes an event.
    pub fn event<'a>(&mut self, bytes: &'a [u8]) -> Event<'a> {
        match self.receive(bytes) {
            Ok(Received::Event { consumed, event }) => {
                assert_eq!(consumed, bytes.len());
                event
            }
            other => panic!("no event: {other:?}"),
        }
    }

    /// Receives bytes that end the connection.
    pub fn violation(&mut self, bytes: &[u8]) -> Violation {
        self.receive(bytes).unwrap_err()
    }

    /// What the connection writes about a violation.
    pub fn rejected(&mut self, violation: &Violation) -> Vec<u8> {
        let mut out = Vec::new();
        self.connection.reject(&mut out, violation);
        out
    }

    /// Accepts the client and returns CONNACK.
    pub fn accept(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.connection.accept(&mut out, &Acceptance::default(), self.now).unwrap();
        out
    }
}

/// CONNECT without a client identifier.
pub fn anonymous(version: Version) -> Connect<'static, ()> {
    Connect {
        version,
        bridge: false,
        clean_start: true,
        keep_alive: 60,
        client_id: "",
        will: None,
        user_name: None,
        password: None,
        properties: (),
    }
}

/// CONNECT with properties.
pub fn connect(version: Version, properties: impl PropertyList) -> Vec<u8> {
    let Connect { bridge, clean_start, keep_alive, user_name, password, .. } = anonymous(version);
    let connect = Connect {
        version,
        bridge,
        clean_start,
        keep_alive,
        client_id: "c",
        will: None,
        user_name,
        password,
        properties,
    };
    encoded(version, &connect)
}

/// PUBLISH with the payload `x`.
pub fn publish(
    version: Version,
    qos: Qos,
    topic: &str,
    packet_id: Option<u16>,
    properties: impl PropertyList,
) -> Vec<u8> {
    let packet_id = packet_id.map(id);
    encoded(version, &Publish { dup: false, qos, retain: false, topic, packet_id, properties, payload: b"x" })
}

/// SUBSCRIBE.
pub fn subscribe(version: Version, packet_id: u16, filters: &[SubscribeFilter<'_>]) -> Vec<u8> {
    encoded(
        version,
        &Subscribe { packet_id: id(packet_id), properties: (), filters: filters.iter().copied() },
    )
}

/// The bytes of a packet.
pub fn encoded(version: Version, packet: &impl Encode) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode(version, &mut out).unwrap();
    out
}

/// The one packet that `bytes` hold.
pub fn decode(version: Version, bytes: &[u8]) -> Packet<'_> {
    tidegate_mqtt::decode(version, bytes, &DecodeLimits::PROTOCOL).unwrap()
}

/// The packets that `bytes` hold.
pub fn decode_all(version: Version, mut bytes: &[u8]) -> Vec<Packet<'_>> {
    let mut packets = Vec::new();
    while !bytes.is_empty() {
        match tidegate_mqtt::decode_next(version, bytes, &DecodeLimits::PROTOCOL).unwrap() {
            Decoded::Packet { packet, consumed } => {
                packets.push(packet);
                bytes = &bytes[consumed..];
            }
            other => panic!("{other:?}"),
        }
    }
    packets
}

/// A packet identifier.
pub fn id(id: u16) -> PacketId {
    PacketId::new(id).unwrap()
}

/// A packet of MQTT 5.0 of this type: `head`, and a reason string as its only property (3.2.2.3.9, 3.14.2.2.3).
pub fn saying(packet_type: u8, head: &[u8], reason: &str) -> Vec<u8> {
    let length = u8::try_from(reason.len()).unwrap();
    let mut bytes = vec![packet_type, u8::try_from(head.len()).unwrap() + 4 + length];
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(&[length + 3, 0x1f, 0, length]);
    bytes.extend_from_slice(reason.as_bytes());
    bytes
}
