//! A client and a server talk: both ends of the crate against each other, in every version, in pieces of any
//! size.
#![allow(clippy::unwrap_used)]

mod support;

use support::{anonymous, id};
use tidegate_mqtt::client::{Client, ClientError};
use tidegate_mqtt::packet::{Connect, Packet, SubscribeFilter, SubscribeOptions};
use tidegate_mqtt::{
    Connection, ConnectionLimits, DecodeLimits, Decoded, Event, PublishHeader, Qos, ReasonCode, Received,
    Version,
};

/// A server that echoes every message to its client with the same quality of service, ids counted from 1.
struct Server {
    connection: Connection,
    input: Vec<u8>,
    out: Vec<u8>,
    taken: Vec<String>,
    settled: u32,
    next: u16,
}

impl Server {
    fn new() -> Server {
        let limits = ConnectionLimits { inflight_publishes_max: 3, ..ConnectionLimits::default() };
        let connection = Connection::new(limits, 0);
        Server { connection, input: Vec::new(), out: Vec::new(), taken: Vec::new(), settled: 0, next: 1 }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while let Received::Event { consumed, event } = self.connection.receive(rest, 0).unwrap() {
            self.handle(&event);
            rest = &rest[consumed..];
        }
        self.input = rest.to_vec();
    }

    fn handle(&mut self, event: &Event<'_>) {
        let Server { connection, out, .. } = self;
        match event {
            Event::Connect(_) => connection.accept(out, &Default::default(), 0).unwrap(),
            Event::Publish(publish) => {
                let topic = connection.topic(publish.topic).to_owned();
                match publish.packet_id {
                    None => {}
                    Some(id) if publish.qos == Qos::AtLeastOnce => {
                        assert!(connection.puback(out, id, ReasonCode::Success, ()));
                    }
                    Some(id) => assert!(connection.pubrec(out, id, ReasonCode::Success, ())),
                }
                let packet_id = (publish.qos != Qos::AtMostOnce).then(|| id(self.next));
                let (dup, qos, retain) = (false, publish.qos, false);
                let header = PublishHeader { dup, qos, retain, topic: &topic, packet_id, properties: () };
                connection.publish(out, &header, publish.payload).unwrap();
                self.next += 1;
                self.taken.push(topic);
            }
            Event::Pubrel { ack, known: true } => {
                assert!(connection.pubcomp(out, ack.packet_id, ReasonCode::Success, ()));
            }
            Event::Pubrec(ack) => connection.pubrel(out, ack.packet_id, ReasonCode::Success).unwrap(),
            Event::Puback(_) | Event::Pubcomp(_) => self.settled += 1,
            Event::Subscribe(subscribe) => {
                let granted = subscribe.filters.map(|item| ReasonCode::granted(item.options.qos));
                connection.suback(out, subscribe.packet_id, granted, ()).unwrap();
            }
            Event::Unsubscribe(unsubscribe) => {
                let codes = unsubscribe.filters.map(|_| ReasonCode::Success);
                connection.unsuback(out, unsubscribe.packet_id, codes, ()).unwrap();
            }
            Event::Ping => connection.pingresp(out).unwrap(),
            Event::Disconnect(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Moves bytes both ways, at most `piece` at a time, until both are silent. Returns the payloads that the
/// client got.
fn talk(client: &mut Client, server: &mut Server, out: &mut Vec<u8>, piece: usize) -> Vec<Vec<u8>> {
    let mut received = Vec::new();
    let mut input = Vec::new();
    while !out.is_empty() || !server.out.is_empty() {
        for bytes in std::mem::take(out).chunks(piece) {
            server.receive(bytes);
        }
        for bytes in std::mem::take(&mut server.out).chunks(piece) {
            input.extend_from_slice(bytes);
            while let Decoded::Packet { packet, consumed } = client.receive(&input.clone()).unwrap() {
                if let Packet::Publish(publish) = packet {
                    received.push(publish.payload.to_vec());
                }
                client.answer(out, &packet).unwrap();
                input.drain(..consumed);
            }
        }
    }
    received
}

#[test]
fn every_message_arrives_once_and_every_identifier_is_given_back() {
    for version in Version::ALL {
        for piece in [1, 2, 7, 1000] {
            let mut client = Client::new(version, DecodeLimits::default(), 10);
            let mut server = Server::new();
            let mut out = Vec::new();
            client.connect(&mut out, &Connect { client_id: "c", ..anonymous(version) }).unwrap();
            talk(&mut client, &mut server, &mut out, piece);
            assert!(server.connection.is_open());

            let mut sent = Vec::new();
            for qos in [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce] {
                let payload = format!("{qos:?}").into_bytes();
                client.publish(&mut out, qos, "a/b", &payload, ()).unwrap();
                sent.push(payload);
            }
            assert_eq!(client.ids().messages(), 2);
            assert_eq!(talk(&mut client, &mut server, &mut out, piece), sent);
            assert_eq!(server.taken, ["a/b"; 3]);
            assert_eq!((client.ids().messages(), server.settled), (0, 2));
            assert_eq!(server.connection.inbound_in_flight(), 0);
        }
    }
}

#[test]
fn requests_are_answered() {
    for version in Version::ALL {
        let mut client = Client::new(version, DecodeLimits::default(), 10);
        let mut server = Server::new();
        let mut out = Vec::new();
        client.connect(&mut out, &Connect { client_id: "c", ..anonymous(version) }).unwrap();
        let options = SubscribeOptions::with_qos(Qos::AtLeastOnce);
        client.subscribe(&mut out, [SubscribeFilter { filter: "a/#", options }], ()).unwrap();
        client.unsubscribe(&mut out, ["a/#"], ()).unwrap();
        client.ping(&mut out);
        client.disconnect(&mut out, ReasonCode::NORMAL_DISCONNECTION, ()).unwrap();
        talk(&mut client, &mut server, &mut out, 5);
        assert!(!server.connection.is_open());
        assert_eq!(client.version(), version);
    }
}

#[test]
fn a_client_keeps_to_the_servers_receive_maximum() {
    let mut client = Client::new(Version::V5, DecodeLimits::default(), 10);
    let mut server = Server::new();
    let mut out = Vec::new();
    client.connect(&mut out, &anonymous(Version::V5)).unwrap();
    talk(&mut client, &mut server, &mut out, 100);
    for _ in 0..3 {
        client.publish(&mut out, Qos::ExactlyOnce, "t", b"", ()).unwrap();
    }
    let full = client.publish(&mut out, Qos::AtLeastOnce, "t", b"", ());
    assert_eq!(full, Err(ClientError::WindowFull));
    talk(&mut client, &mut server, &mut out, 100);
    assert!(client.publish(&mut out, Qos::AtLeastOnce, "t", b"", ()).is_ok());
}
