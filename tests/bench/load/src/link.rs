//! One connection to the broker: a socket, what arrived and what is to leave. A single task drives it by readiness, so that a
//! publisher goes on writing while it reads acknowledgements.

use std::io::{self, Error, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_mqtt::client::{Client, PacketIds};
use tidegate_mqtt::packet::{Connect, Subscribe, SubscribeFilter, SubscribeOptions};
use tidegate_mqtt::{
    DecodeLimits, Decoded, Encode, Packet, PacketId, PublishHeader, Qos, ReasonCode, Version, decode_next,
    encode_publish_header,
};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::check::{Payloads, Stamp};

/// Longest wait for the broker's answer to a request.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const READ_BYTES: usize = 64 << 10;
/// Long enough that no run needs a ping.
const KEEP_ALIVE_SECS: u16 = 3600;
/// How long a session outlives its connection with MQTT 5.0.
const SESSION_EXPIRY_SECS: u32 = 3600;

/// The writing end: everything appends here and leaves in one write.
#[derive(Debug)]
pub struct Outgoing {
    client: Client,
    /// Identifiers of this end's messages.
    pub ids: PacketIds,
    bytes: Vec<u8>,
    written: usize,
}

impl Outgoing {
    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Appends a message.
    pub fn publish(
        &mut self,
        (topic, qos, retain): (&str, Qos, bool),
        packet_id: Option<PacketId>,
        payloads: &Payloads,
        stamp: Stamp,
    ) -> io::Result<()> {
        let header = PublishHeader { dup: false, qos, retain, topic, packet_id, properties: () };
        encode_publish_header(&mut self.bytes, self.client.version(), &header, payloads.size())
            .map_err(wrong)?;
        payloads.write(&mut self.bytes, stamp);
        Ok(())
    }

    /// Appends what the protocol answers to a packet.
    pub fn answer(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        self.client.answer(&mut self.bytes, packet).map_err(wrong)
    }

    /// Appends PINGREQ.
    pub fn ping(&mut self) {
        self.client.ping(&mut self.bytes);
    }
}

/// A connection.
#[derive(Debug)]
pub struct Link {
    socket: TcpStream,
    input: Vec<u8>,
    /// Bytes at the front of `input` that are read already.
    taken: usize,
    /// What is to leave.
    pub out: Outgoing,
}

/// How to log in.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// Client identifier.
    pub client_id: &'a str,
    /// The session outlives the connection.
    pub persistent: bool,
    /// Forget an earlier session.
    pub clean: bool,
    /// Version to speak.
    pub version: Version,
    /// Own messages that may be unacknowledged.
    pub window: u16,
}

/// Something that must not happen.
pub fn wrong(what: impl ToString) -> Error {
    Error::new(ErrorKind::InvalidData, what.to_string())
}

impl Link {
    /// Connects and logs in. Returns whether the broker had a session too.
    pub async fn open(address: SocketAddr, login: Login<'_>) -> io::Result<(Link, bool)> {
        let socket = timeout(ANSWER_MAX, TcpStream::connect(address)).await??;
        socket.set_nodelay(true)?;
        let limits = DecodeLimits { packet_bytes_max: 64 << 20, ..DecodeLimits::PROTOCOL };
        let client = Client::new(login.version, limits, 0);
        let ids = PacketIds::new(login.window);
        let out = Outgoing { client, ids, bytes: vec![], written: 0 };
        let mut link = Link { socket, input: vec![], taken: 0, out };
        link.log_in(login)?;
        let mut answer = None;
        link.until(|packet, _| {
            if let Packet::Connack(connack) = packet {
                answer = Some((connack.reason, connack.session_present));
            }
            Ok(answer.is_some())
        })
        .await?;
        match answer {
            Some((ReasonCode::Success, present)) => Ok((link, present)),
            other => Err(wrong(format!("the broker refused the login: {other:?}"))),
        }
    }

    fn log_in(&mut self, login: Login<'_>) -> io::Result<()> {
        let expiry = (login.persistent && login.version.is_v5())
            .then_some(tidegate_mqtt::Property::SessionExpiryInterval(SESSION_EXPIRY_SECS));
        // A session that outlives its connection is, before MQTT 5.0, one that is not clean.
        let clean_start = if login.version.is_v5() { login.clean } else { login.clean || !login.persistent };
        let connect = Connect {
            version: login.version,
            bridge: false,
            clean_start,
            keep_alive: KEEP_ALIVE_SECS,
            client_id: login.client_id,
            will: None,
            user_name: None,
            password: None,
            properties: expiry.as_slice(),
        };
        self.out.client.connect(&mut self.out.bytes, &connect).map_err(wrong)
    }

    /// Subscribes and waits for the answer; messages that come before it are given to `early`.
    pub async fn subscribe(
        &mut self,
        filters: &[String],
        qos: Qos,
        mut early: impl FnMut(&Packet<'_>, &mut Outgoing) -> io::Result<()>,
    ) -> io::Result<()> {
        let options = SubscribeOptions::with_qos(qos);
        let filters = filters.iter().map(|filter| SubscribeFilter { filter, options });
        let subscribe = Subscribe { packet_id: PacketId::MIN, properties: (), filters };
        subscribe.encode(self.out.client.version(), &mut self.out.bytes).map_err(wrong)?;
        self.until(|packet, out| match packet {
            Packet::Suback(suback) if suback.reasons.clone().any(|reason| reason.is_error()) => {
                Err(wrong("the broker refused a subscription"))
            }
            Packet::Suback(_) => Ok(true),
            other => early(other, out).map(|()| false),
        })
        .await
    }

    /// Hands over packets until `done` says that the awaited one has come; later ones stay.
    pub async fn until(
        &mut self,
        mut done: impl FnMut(&Packet<'_>, &mut Outgoing) -> io::Result<bool>,
    ) -> io::Result<()> {
        let wait = async {
            loop {
                if self.take(&mut done)? {
                    return Ok(());
                }
                self.turn().await?;
            }
        };
        timeout(ANSWER_MAX, wait).await?
    }

    /// Hands over the packets that are here, until `done` returns true. Returns whether it did.
    pub fn take(
        &mut self,
        mut done: impl FnMut(&Packet<'_>, &mut Outgoing) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let limits = DecodeLimits { packet_bytes_max: 64 << 20, ..DecodeLimits::PROTOCOL };
        let version = self.out.client.version();
        let mut stop = false;
        while !stop
            && let Decoded::Packet { packet, consumed } =
                decode_next(version, &self.input[self.taken..], &limits).map_err(wrong)?
        {
            if let Packet::Disconnect(disconnect) = &packet {
                return Err(wrong(format!("the broker disconnects: {:?}", disconnect.reason)));
            }
            stop = done(&packet, &mut self.out)?;
            self.taken += consumed;
        }
        self.input.drain(..self.taken);
        self.taken = 0;
        Ok(stop)
    }

    /// Waits until the socket can be read, or written when there is something to write, and does what it can.
    pub async fn turn(&mut self) -> io::Result<()> {
        let waiting = self.out.len() > 0;
        let interest = if waiting { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let ready = self.socket.ready(interest).await?;
        if waiting && ready.is_writable() {
            self.write()?;
        }
        if ready.is_readable() {
            self.read()?;
        }
        // A socket that is always ready must not hold up the other tasks of this thread.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Says goodbye and waits until the broker has closed, so that it has surely taken notice.
    pub async fn close(mut self) {
        if self.out.client.disconnect(&mut self.out.bytes, ReasonCode::Success, ()).is_ok() {
            let _ = timeout(Duration::from_secs(2), async { while self.turn().await.is_ok() {} }).await;
        }
    }

    fn write(&mut self) -> io::Result<()> {
        match self.socket.try_write(&self.out.bytes[self.out.written..]) {
            Ok(n) => self.out.written += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if self.out.written == self.out.bytes.len() {
            self.out.bytes.clear();
            self.out.written = 0;
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        self.input.reserve(READ_BYTES);
        match self.socket.try_read_buf(&mut self.input) {
            Ok(0) => Err(Error::new(ErrorKind::ConnectionReset, "the broker closed the connection")),
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}
