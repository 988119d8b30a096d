//! A client and a server talk: both ends of the crate against each other, in every version, in pieces of any
//! size.
#![allow(clippy::unwrap_used)]

mod support;

use support::Peer;
use tidegate_stomp::client::{Client, Login};
use tidegate_stomp::{AckMode, Command, DecodeLimits, Decoded, HeartBeat, Version};

/// A client and what it has got, acknowledged at once.
struct Talk {
    client: Client,
    out: Vec<u8>,
    server: Peer,
    piece: usize,
    bodies: Vec<Vec<u8>>,
    receipts: Vec<String>,
}

impl Talk {
    fn new(version: Version, piece: usize) -> Talk {
        let (client, out, server) = (Client::new(DecodeLimits::default()), vec![], Peer::raw(b""));
        let mut talk = Talk { client, out, server, piece, bodies: vec![], receipts: vec![] };
        let versions = &Version::ALL[..=version as usize];
        let heart_beat = HeartBeat { send_ms: 10, receive_ms: 10 };
        let login = Login { versions, host: "h", login: Some(("u", "a:b\\c")), heart_beat };
        talk.client.connect(&mut talk.out, &login).unwrap();
        talk.run();
        assert_eq!((talk.client.version(), talk.server.connection.version()), (version, Some(version)));
        talk
    }

    /// Moves bytes both ways until both are silent.
    fn run(&mut self) {
        let mut input = vec![];
        while !self.out.is_empty() || !self.server.out.is_empty() {
            for bytes in std::mem::take(&mut self.out).chunks(self.piece) {
                self.server.feed(bytes);
            }
            for bytes in self.server.bytes().chunks(self.piece) {
                input.extend_from_slice(bytes);
                while let Some(consumed) = self.take(&input) {
                    input.drain(..consumed);
                }
            }
        }
    }

    fn take(&mut self, input: &[u8]) -> Option<usize> {
        match self.client.receive(input).unwrap() {
            Decoded::Incomplete { .. } => None,
            Decoded::Gap { consumed } => Some(consumed),
            Decoded::Frame { frame, consumed } => {
                match frame.command {
                    Command::Message => {
                        self.bodies.push(frame.body.to_vec());
                        self.client.ack(&mut self.out, &frame, &[]).unwrap();
                    }
                    Command::Receipt => {
                        self.receipts.push(frame.headers.get("receipt-id").unwrap().into_owned());
                    }
                    Command::Connected => {}
                    other => panic!("{other}: {frame:?}"),
                }
                Some(consumed)
            }
        }
    }
}

#[test]
fn every_message_arrives_once_and_is_acknowledged() {
    for version in Version::ALL {
        for piece in [1, 2, 7, 1000] {
            let mut talk = Talk::new(version, piece);
            let Talk { client, out, .. } = &mut talk;
            client.subscribe(out, "s:1", "/queue/a", AckMode::ClientIndividual, &[("receipt", "s")]).unwrap();
            client.send(out, "/queue/a", b"one", &[("x:y", "a\nb")]).unwrap();
            client.heart_beat(out);
            client.begin(out, "t", &[]).unwrap();
            client.send(out, "/queue/a", b"t\0wo", &[("transaction", "t")]).unwrap();
            client.commit(out, "t", &[("receipt", "c")]).unwrap();
            client.begin(out, "t", &[]).unwrap();
            client.send(out, "/queue/a", b"never", &[("transaction", "t")]).unwrap();
            client.abort(out, "t", &[("receipt", "a")]).unwrap();
            talk.run();
            assert_eq!(talk.bodies, [&b"one"[..], b"t\0wo"]);
            assert_eq!(talk.receipts, ["s", "c", "a"]);
            assert_eq!((&talk.server.settled, talk.server.connection.deliveries()), (&vec![1, 2], 0));

            talk.client.unsubscribe(&mut talk.out, "s:1", &[]).unwrap();
            talk.client.disconnect(&mut talk.out, "bye").unwrap();
            talk.run();
            assert_eq!(talk.receipts.last().map(String::as_str), Some("bye"));
            assert!(talk.server.connection.is_closed());
        }
    }
}

#[test]
fn nack_is_written_where_the_version_has_it() {
    for version in Version::ALL {
        let mut talk = Talk::new(version, 50);
        talk.client.subscribe(&mut talk.out, "s", "/queue/a", AckMode::Client, &[]).unwrap();
        talk.client.send(&mut talk.out, "/queue/a", b"x", &[]).unwrap();
        talk.server.feed(&std::mem::take(&mut talk.out));
        let bytes = talk.server.bytes();
        let frame = tidegate_stomp::decode(version, &bytes, &DecodeLimits::default()).unwrap();
        let written = talk.client.nack(&mut talk.out, &frame, &[("requeue", "false")]);
        assert_eq!(written.is_ok(), version != Version::V10);
        talk.run();
        assert_eq!(talk.server.settled, if version == Version::V10 { vec![] } else { vec![-1] });
    }
}
