//! A blocking MQTT client that does only what it is told, so that a test decides about every acknowledgement.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_mqtt::packet::{
    Ack, Disconnect, RetainHandling, Subscribe, SubscribeFilter, SubscribeOptions, Unsubscribe,
};
use tidegate_mqtt::{
    DecodeLimits, Decoded, Encode, Packet as AnyPacket, PacketId, PacketType, Property, Qos, ReasonCode,
    SubscriptionId, Version, decode_next,
};

use super::packet::{Connack, Message, Packet};
use super::wait::{Deadline, PATIENCE};

/// How long [`Client::poll`] usually waits: short, because there is other work.
pub const SHORT: Duration = Duration::from_millis(2);

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// One filter of a SUBSCRIBE.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    pub filter: &'a str,
    pub options: SubscribeOptions,
}

impl<'a> Filter<'a> {
    pub fn new(filter: &'a str, qos: u8) -> Self {
        let qos = Qos::from_bits(qos).expect("tests use QoS 0 to 2");
        Self { filter, options: SubscribeOptions { qos, ..SubscribeOptions::default() } }
    }

    pub fn no_local(mut self) -> Self {
        self.options.no_local = true;
        self
    }

    pub fn retain_as_published(mut self) -> Self {
        self.options.retain_as_published = true;
        self
    }

    /// 0: at each SUBSCRIBE, 1: only if new, 2: never.
    pub fn retain_handling(mut self, handling: u8) -> Self {
        self.options.retain_handling = match handling {
            0 => RetainHandling::Send,
            1 => RetainHandling::SendIfNew,
            _ => RetainHandling::DoNotSend,
        };
        self
    }
}

/// One connection. Dropping it closes the socket without DISCONNECT.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    pub version: Version,
    /// What the broker said when the connection was opened.
    pub connack: Connack,
    unread: Vec<u8>,
    inbox: VecDeque<Packet>,
    last_id: u16,
    /// The reason strings of all packets so far that had one.
    pub reasons: Vec<String>,
}

/// What a packet says about itself.
fn reason_string<'a>(packet: &AnyPacket<'a>) -> Option<&'a str> {
    match packet {
        AnyPacket::Connack(packet) => packet.properties.reason_string(),
        AnyPacket::Puback(packet) | AnyPacket::Pubrec(packet) => packet.properties.reason_string(),
        AnyPacket::Suback(packet) => packet.properties.reason_string(),
        AnyPacket::Disconnect(packet) => packet.properties.reason_string(),
        _ => None,
    }
}

impl Client {
    /// Opens a socket and sends nothing.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn dial(address: SocketAddr, version: Version, receive_buffer: Option<usize>) -> io::Result<Self> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.connect_timeout(&address.into(), PATIENCE)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let (unread, inbox, reasons) = (Vec::new(), VecDeque::new(), Vec::new());
        Ok(Self { stream, version, connack: Connack::default(), unread, inbox, last_id: 0, reasons })
    }

    pub fn await_connack(&mut self) -> io::Result<()> {
        match self.packet()? {
            Packet::Connack(connack) => self.connack = connack,
            other => return Err(io::Error::other(format!("{other:?} instead of CONNACK"))),
        }
        Ok(())
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Ends the sending direction; the broker sees the end of the stream.
    pub fn half_close(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// A second handle on the socket, for a test that writes from another thread.
    pub fn writer(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    /// The next packet in the order of arrival.
    ///
    /// # Errors
    /// `TimedOut`, `UnexpectedEof` when the broker closed the connection, `InvalidData` for what is no MQTT.
    pub fn packet(&mut self) -> io::Result<Packet> {
        self.poll(PATIENCE)?.ok_or_else(|| timed_out("any packet"))
    }

    /// The next packet if one comes within `wait`.
    ///
    /// # Errors
    /// As [`Self::packet`], other than `TimedOut`.
    pub fn poll(&mut self, wait: Duration) -> io::Result<Option<Packet>> {
        self.fill(Deadline::after(wait), |inbox| !inbox.is_empty())?;
        Ok(self.inbox.pop_front())
    }

    /// Takes the first packet that `wanted` accepts; packets before it stay in line.
    ///
    /// # Errors
    /// As [`Self::packet`]; the text names `what`.
    pub fn wait_for<T>(&mut self, what: &str, wanted: impl Fn(&Packet) -> Option<T>) -> io::Result<T> {
        let found = |inbox: &VecDeque<Packet>| inbox.iter().any(|packet| wanted(packet).is_some());
        self.fill(Deadline::after(PATIENCE), found).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("{error}, while waiting for {what}; in line: {:?}", self.summary()),
            )
        })?;
        let at = self
            .inbox
            .iter()
            .position(|packet| wanted(packet).is_some())
            .ok_or_else(|| timed_out(&format!("{what}; in line: {:?}", self.summary())))?;
        let packet = self.inbox.remove(at).expect("the position was just found");
        Ok(wanted(&packet).expect("the packet was just accepted"))
    }

    fn summary(&self) -> Vec<String> {
        self.inbox.iter().take(8).map(|packet| format!("{packet:?}").chars().take(200).collect()).collect()
    }

    fn fill(&mut self, deadline: Deadline, enough: impl Fn(&VecDeque<Packet>) -> bool) -> io::Result<()> {
        self.decode()?;
        while !enough(&self.inbox) {
            let Some(left) = deadline.left() else { return Ok(()) };
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let start = self.unread.len();
            self.unread.resize(start + READ_BYTES, 0);
            let read = self.stream.read(&mut self.unread[start..]);
            self.unread.truncate(start + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "closed by the broker")),
                Ok(_) => self.decode()?,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn decode(&mut self) -> io::Result<()> {
        let mut at = 0;
        loop {
            let decoded = decode_next(self.version, &self.unread[at..], &DecodeLimits::PROTOCOL);
            match decoded.map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("{error:?}")))? {
                Decoded::Incomplete { .. } => break,
                Decoded::Packet { packet, consumed } => {
                    self.reasons.extend(reason_string(&packet).map(str::to_owned));
                    self.inbox.push_back(packet.into());
                    at += consumed;
                }
            }
        }
        self.unread.drain(..at);
        Ok(())
    }

    /// Waits until the broker has closed the connection, and hands out what came before.
    ///
    /// # Errors
    /// `TimedOut` when it stays open.
    pub fn closed(&mut self) -> io::Result<Vec<Packet>> {
        let deadline = Deadline::after(PATIENCE);
        match self.fill(deadline, |_| false) {
            Ok(()) => Err(timed_out("the end of the connection")),
            Err(error) if is_end(&error) => Ok(self.inbox.drain(..).collect()),
            Err(error) => Err(error),
        }
    }

    /// As [`Self::closed`]; the reason of the DISCONNECT at the end, if one came.
    pub fn closed_because(&mut self) -> io::Result<Option<u8>> {
        Ok(match self.closed()?.pop() {
            Some(Packet::Disconnect { reason }) => Some(reason),
            _ => None,
        })
    }

    /// A packet identifier that was not used lately.
    pub fn next_id(&mut self) -> u16 {
        self.last_id = self.last_id.checked_add(1).unwrap_or(1);
        self.last_id
    }

    /// Sends a PUBLISH as it is.
    pub fn send(&mut self, message: &Message) -> io::Result<()> {
        self.raw(&message.encode(self.version))
    }

    /// Publishes and waits until the broker has taken the message over; the last reason code.
    ///
    /// # Errors
    /// Those of the socket, or no acknowledgement in time.
    pub fn publish(&mut self, message: &Message) -> io::Result<u8> {
        let mut message = message.clone();
        if message.qos > 0 && message.id == 0 {
            message.id = self.next_id();
        }
        self.send(&message)?;
        self.finish(message.qos, message.id)
    }

    /// The publisher's side of the exchange after PUBLISH.
    pub fn finish(&mut self, qos: u8, id: u16) -> io::Result<u8> {
        match qos {
            0 => Ok(0),
            1 => self.wait_for("PUBACK", |packet| match packet {
                Packet::Puback { id: of, reason } if *of == id => Some(*reason),
                _ => None,
            }),
            _ => {
                let reason = self.await_pubrec(id)?;
                if reason >= 0x80 {
                    return Ok(reason);
                }
                self.release(id)
            }
        }
    }

    pub fn await_pubrec(&mut self, id: u16) -> io::Result<u8> {
        self.wait_for("PUBREC", |packet| match packet {
            Packet::Pubrec { id: of, reason } if *of == id => Some(*reason),
            _ => None,
        })
    }

    /// Sends PUBREL and waits for PUBCOMP.
    pub fn release(&mut self, id: u16) -> io::Result<u8> {
        self.ack(PacketType::Pubrel, id)?;
        self.wait_for("PUBCOMP", |packet| match packet {
            Packet::Pubcomp { id: of, reason } if *of == id => Some(*reason),
            _ => None,
        })
    }

    /// Publishes all messages with at most `window` of them unacknowledged; all must be QoS 1 and be accepted.
    pub fn publish_all(
        &mut self,
        messages: impl IntoIterator<Item = Message>,
        window: usize,
    ) -> io::Result<u64> {
        let (mut open, mut sent) = (VecDeque::new(), 0);
        for mut message in messages {
            message.id = self.next_id();
            open.push_back(message.id);
            self.send(&message)?;
            sent += 1;
            if open.len() >= window {
                self.accepted(open.pop_front().expect("the window is not empty"))?;
            }
        }
        open.into_iter().try_for_each(|id| self.accepted(id))?;
        Ok(sent)
    }

    fn accepted(&mut self, id: u16) -> io::Result<()> {
        match self.finish(1, id)? {
            reason if reason < 0x80 => Ok(()),
            reason => Err(io::Error::other(format!("PUBACK 0x{reason:02x}"))),
        }
    }

    /// The next PUBLISH, not acknowledged.
    pub fn take(&mut self) -> io::Result<Message> {
        self.wait_for("PUBLISH", |packet| match packet {
            Packet::Publish(message) => Some(message.clone()),
            _ => None,
        })
    }

    /// The next PUBLISH, acknowledged to the end.
    pub fn message(&mut self) -> io::Result<Message> {
        let message = self.take()?;
        self.settle(&message)?;
        Ok(message)
    }

    /// The next PUBLISH if one comes within `wait`, acknowledged to the end.
    pub fn message_within(&mut self, wait: Duration) -> io::Result<Option<Message>> {
        let is_publish = |packet: &Packet| matches!(packet, Packet::Publish(_));
        self.fill(Deadline::after(wait), |inbox| inbox.iter().any(is_publish))?;
        if self.inbox.iter().any(is_publish) { self.message().map(Some) } else { Ok(None) }
    }

    /// The next messages up to one with the payload `last`, which is left out.
    pub fn messages_until(&mut self, last: &str) -> io::Result<Vec<Message>> {
        let mut messages = Vec::new();
        loop {
            let message = self.message()?;
            if message.payload == last.as_bytes() {
                return Ok(messages);
            }
            messages.push(message);
        }
    }

    /// The receiver's side of the exchange after PUBLISH.
    pub fn settle(&mut self, message: &Message) -> io::Result<()> {
        match message.qos {
            0 => Ok(()),
            1 => self.ack(PacketType::Puback, message.id),
            _ => {
                self.ack(PacketType::Pubrec, message.id)?;
                self.await_pubrel(message.id)?;
                self.ack(PacketType::Pubcomp, message.id)
            }
        }
    }

    pub fn await_pubrel(&mut self, id: u16) -> io::Result<()> {
        self.wait_for("PUBREL", |packet| match packet {
            Packet::Pubrel { id: of, .. } if *of == id => Some(()),
            _ => None,
        })
    }

    /// Sends PUBACK, PUBREC, PUBREL or PUBCOMP with success.
    pub fn ack(&mut self, kind: PacketType, id: u16) -> io::Result<()> {
        self.ack_with(kind, id, ReasonCode::Success)
    }

    pub fn ack_with(&mut self, kind: PacketType, id: u16, reason: ReasonCode) -> io::Result<()> {
        let packet_id = PacketId::new(id).ok_or_else(|| io::Error::other("packet identifier 0"))?;
        let mut out = Vec::new();
        let ack = Ack { packet_id, reason, properties: () };
        ack.encode_as(kind, self.version, &mut out)
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
        self.raw(&out)
    }

    /// Subscribes to one filter and wants it granted as asked for.
    pub fn subscribe(&mut self, filter: &str, qos: u8) -> io::Result<()> {
        let granted = self.subscribe_all(None, &[Filter::new(filter, qos)])?;
        if granted == [qos] {
            Ok(())
        } else {
            Err(io::Error::other(format!("{filter}: SUBACK {granted:02x?}")))
        }
    }

    /// Subscribes; the codes of SUBACK.
    pub fn subscribe_all(&mut self, identifier: Option<u32>, filters: &[Filter<'_>]) -> io::Result<Vec<u8>> {
        let id = self.send_subscribe(identifier, filters)?;
        self.wait_for("SUBACK", |packet| match packet {
            Packet::Suback { id: of, reasons } if *of == id => Some(reasons.clone()),
            _ => None,
        })
    }

    /// Sends SUBSCRIBE and does not wait; its packet identifier.
    pub fn send_subscribe(&mut self, identifier: Option<u32>, filters: &[Filter<'_>]) -> io::Result<u16> {
        let id = self.next_id();
        let subscribe = Subscribe {
            packet_id: PacketId::new(id).expect("identifiers start at 1"),
            properties: identifier.and_then(SubscriptionId::new).map(Property::SubscriptionIdentifier),
            filters: filters.iter().map(|f| SubscribeFilter { filter: f.filter, options: f.options }),
        };
        let mut out = Vec::new();
        subscribe.encode(self.version, &mut out).expect("tests send what can be encoded");
        self.raw(&out)?;
        Ok(id)
    }

    /// Unsubscribes; the codes of UNSUBACK, which MQTT 3.x does not have.
    pub fn unsubscribe(&mut self, filters: &[&str]) -> io::Result<Vec<u8>> {
        let id = self.send_unsubscribe(filters)?;
        self.wait_for("UNSUBACK", |packet| match packet {
            Packet::Unsuback { id: of, reasons } if *of == id => Some(reasons.clone()),
            _ => None,
        })
    }

    /// Sends UNSUBSCRIBE and does not wait; its packet identifier.
    pub fn send_unsubscribe(&mut self, filters: &[&str]) -> io::Result<u16> {
        let id = self.next_id();
        let unsubscribe = Unsubscribe {
            packet_id: PacketId::new(id).expect("identifiers start at 1"),
            properties: (),
            filters: filters.iter().copied(),
        };
        let mut out = Vec::new();
        unsubscribe.encode(self.version, &mut out).expect("tests send what can be encoded");
        self.raw(&out)?;
        Ok(id)
    }

    /// PINGREQ and PINGRESP: the connection lives.
    pub fn ping(&mut self) -> io::Result<()> {
        self.raw(&[0xc0, 0])?;
        self.wait_for("PINGRESP", |packet| matches!(packet, Packet::Pingresp).then_some(()))
    }

    /// Says goodbye and waits until the broker has closed the connection.
    pub fn disconnect(mut self) -> io::Result<()> {
        self.raw(&[0xe0, 0])?;
        self.closed().map(drop)
    }

    /// Says goodbye with a reason code and a new session expiry (MQTT 5.0).
    pub fn disconnect_with(mut self, reason: ReasonCode, expiry: Option<u32>) -> io::Result<()> {
        let disconnect = Disconnect { reason, properties: expiry.map(Property::SessionExpiryInterval) };
        let mut out = Vec::new();
        disconnect.encode(self.version, &mut out).expect("tests send what can be encoded");
        self.raw(&out)?;
        self.closed().map(drop)
    }
}

fn timed_out(what: &str) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("waited {PATIENCE:?} for {what}"))
}

/// The other end is gone, in whichever way the system says it.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
