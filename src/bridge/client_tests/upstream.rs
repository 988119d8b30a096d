//! A scripted upstream: reads and writes MQTT by hand, so that it does not share the link's codec.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::PATIENCE;
use crate::bridge::Protocol;

pub trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// A packet from the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub kind: u8,
    pub flags: u8,
    pub body: Vec<u8>,
}

/// A PUBLISH from the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub topic: String,
    pub id: u16,
    pub dup: bool,
    pub retain: bool,
    pub properties: Vec<u8>,
    pub payload: Vec<u8>,
}

pub struct Upstream {
    pub listener: TcpListener,
    pub protocol: Protocol,
}

impl Upstream {
    pub async fn start(protocol: Protocol) -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap(), protocol }
    }

    pub fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// The next TCP connection.
    pub async fn accept(&self) -> Peer {
        let (stream, _) =
            timeout(PATIENCE, self.listener.accept()).await.expect("the link connects").unwrap();
        stream.set_nodelay(true).unwrap();
        Peer::new(stream, self.protocol)
    }

    /// The next connection, with CONNECT read and accepted.
    pub async fn login(&self) -> Peer {
        self.login_with(&[], false).await
    }

    /// The same with properties (MQTT 5.0) and a resumed session.
    pub async fn login_with(&self, properties: &[u8], session_present: bool) -> Peer {
        let mut peer = self.accept().await;
        assert_eq!(peer.expect(1).await.kind, 1);
        peer.connack(0, properties, session_present).await;
        peer
    }

    /// The same, with SUBSCRIBE answered.
    pub async fn login_subscribed(&self, session_present: bool) -> Peer {
        let mut peer = self.login_with(&[], session_present).await;
        peer.answer_subscribe(&[1]).await;
        peer
    }
}

pub struct Peer {
    pub stream: Box<dyn Wire>,
    protocol: Protocol,
}

impl Peer {
    pub fn new(stream: impl Wire + 'static, protocol: Protocol) -> Self {
        Self { stream: Box::new(stream), protocol }
    }

    /// The next packet; `None` when the link has closed the connection.
    pub async fn read(&mut self) -> Option<Packet> {
        timeout(PATIENCE, self.read_packet()).await.expect("the link sends something or closes")
    }

    async fn read_packet(&mut self) -> Option<Packet> {
        let first = self.stream.read_u8().await.ok()?;
        let (mut length, mut shift) = (0usize, 0);
        loop {
            let byte = self.stream.read_u8().await.ok()?;
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.ok()?;
        Some(Packet { kind: first >> 4, flags: first & 15, body })
    }

    /// A packet within `patience`, if one comes.
    pub async fn read_within(&mut self, patience: Duration) -> Option<Packet> {
        timeout(patience, self.read_packet()).await.ok().flatten()
    }

    /// The next packet, which must be of this type.
    pub async fn expect(&mut self, kind: u8) -> Packet {
        let packet = self.read().await.expect("the connection lives");
        assert_eq!(packet.kind, kind, "{packet:?}");
        packet
    }

    /// The next PUBLISH.
    pub async fn publish(&mut self) -> Published {
        let packet = self.expect(3).await;
        self.parse(&packet)
    }

    pub async fn publishes(&mut self, count: usize) -> Vec<Published> {
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(self.publish().await);
        }
        all
    }

    pub fn parse(&self, packet: &Packet) -> Published {
        let mut body = &packet.body[..];
        let mut take = |n: usize| {
            let (head, rest) = body.split_at(n);
            body = rest;
            head.to_vec()
        };
        let length = usize::from(u16::from_be_bytes(take(2).try_into().unwrap()));
        let topic = String::from_utf8(take(length)).unwrap();
        let id = if packet.flags & 6 == 0 { 0 } else { u16::from_be_bytes(take(2).try_into().unwrap()) };
        let properties = match self.protocol {
            Protocol::V4 => Vec::new(),
            Protocol::V5 => {
                let length = take(1)[0];
                assert!(length < 0x80, "tests use short properties");
                take(usize::from(length))
            }
        };
        let (dup, retain) = (packet.flags & 8 != 0, packet.flags & 1 != 0);
        Published { topic, id, dup, retain, properties, payload: body.to_vec() }
    }

    /// Writes bytes; a link that is gone is no error.
    pub async fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok() && self.stream.flush().await.is_ok()
    }

    pub async fn connack(&mut self, code: u8, properties: &[u8], session_present: bool) {
        let mut body = vec![u8::from(session_present), code];
        if self.protocol == Protocol::V5 {
            body.push(properties.len() as u8);
            body.extend_from_slice(properties);
        }
        self.packet(0x20, &body).await;
    }

    pub async fn answer_subscribe(&mut self, codes: &[u8]) -> Packet {
        let subscribe = self.expect(8).await;
        let mut body = subscribe.body[..2].to_vec();
        if self.protocol == Protocol::V5 {
            body.push(0);
        }
        body.extend_from_slice(codes);
        self.packet(0x90, &body).await;
        subscribe
    }

    pub async fn packet(&mut self, first: u8, body: &[u8]) -> bool {
        assert!(body.len() < 0x4000);
        let mut bytes = vec![first];
        if body.len() < 0x80 {
            bytes.push(body.len() as u8);
        } else {
            bytes.extend([(body.len() & 0x7f) as u8 | 0x80, (body.len() >> 7) as u8]);
        }
        bytes.extend_from_slice(body);
        self.write(&bytes).await
    }

    pub async fn puback(&mut self, id: u16) -> bool {
        self.packet(0x40, &id.to_be_bytes()).await
    }

    pub async fn puback_reason(&mut self, id: u16, reason: u8) {
        let [high, low] = id.to_be_bytes();
        self.packet(0x40, &[high, low, reason]).await;
    }

    /// Sends a PUBLISH with properties (MQTT 5.0).
    pub async fn send(&mut self, flags: u8, topic: &str, id: u16, properties: &[u8], payload: &[u8]) {
        let mut body = (topic.len() as u16).to_be_bytes().to_vec();
        body.extend_from_slice(topic.as_bytes());
        if flags & 6 != 0 {
            body.extend(id.to_be_bytes());
        }
        if self.protocol == Protocol::V5 {
            body.push(properties.len() as u8);
            body.extend_from_slice(properties);
        }
        body.extend_from_slice(payload);
        self.packet(0x30 | flags, &body).await;
    }

    /// Acknowledges every PUBLISH and answers pings until `count` messages came; returns them.
    pub async fn serve(&mut self, count: usize) -> Vec<Published> {
        let mut all = Vec::new();
        while all.len() < count {
            let packet = self.read().await.expect("the connection lives");
            match packet.kind {
                3 => {
                    let published = self.parse(&packet);
                    self.puback(published.id).await;
                    all.push(published);
                }
                12 => drop(self.write(&[0xd0, 0]).await),
                other => panic!("unexpected packet {other}"),
            }
        }
        all
    }

    /// Ends the connection with a reset.
    pub fn reset(stream: &TcpStream) {
        socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}
