//! What a subscriber has got of numbered streams: complete, in order, and at QoS 2 exactly once.
//!
//! A stream is a topic; the payload of its messages starts with their number, counted from 0, and a space or the end. The
//! ledger outlives connections, as the session does.

use std::collections::BTreeMap;
use std::io;

use tidegate_mqtt::PacketType;

use super::client::Client;
use super::packet::{Message, Packet};

/// What a packet has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The next message of a stream.
    New,
    /// A message that came again, as it may.
    Again,
    /// No message.
    Nothing,
}

/// The subscriber's books.
#[derive(Debug)]
pub struct Ledger {
    name: String,
    next: BTreeMap<String, u64>,
    /// QoS 2 messages that were taken and are not released yet.
    held: BTreeMap<u16, Message>,
}

impl Ledger {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), next: BTreeMap::new(), held: BTreeMap::new() }
    }

    /// Messages of a stream so far.
    pub fn count(&self, stream: &str) -> u64 {
        self.next.get(stream).copied().unwrap_or(0)
    }

    /// Every exchange of QoS 2 has come to its end.
    pub fn is_settled(&self) -> bool {
        self.held.is_empty()
    }

    /// Takes a packet and acknowledges it.
    ///
    /// # Errors
    /// Those of the socket.
    ///
    /// # Panics
    /// A message is missing, out of order, or came twice where it must not.
    pub fn take(&mut self, client: &mut Client, packet: Packet) -> io::Result<Taken> {
        match packet {
            Packet::Publish(message) if message.qos == 2 => {
                let id = message.id;
                let taken = self.take_exactly_once(message);
                client.ack(PacketType::Pubrec, id)?;
                Ok(taken)
            }
            Packet::Publish(message) => {
                let taken = self.take_at_least_once(&message);
                client.ack(PacketType::Puback, message.id)?;
                Ok(taken)
            }
            Packet::Pubrel { id, .. } => {
                self.held.remove(&id);
                client.ack(PacketType::Pubcomp, id)?;
                Ok(Taken::Nothing)
            }
            Packet::Disconnect { .. } => Ok(Taken::Nothing),
            other => panic!("{}: {other:?}", self.name),
        }
    }

    fn take_exactly_once(&mut self, message: Message) -> Taken {
        let (name, id) = (&self.name, message.id);
        if let Some(held) = self.held.get(&id) {
            let same = held.topic == message.topic && held.payload == message.payload;
            assert!(same, "{name}: identifier {id} was given to another message before its release");
            return Taken::Again;
        }
        let number = number(&message);
        let next = self.next.entry(message.topic.clone()).or_default();
        assert!(number >= *next, "{name}: {} {number} came twice, next is {next}", message.topic);
        assert!(number == *next, "{name}: {} {number} came, {next} is missing", message.topic);
        *next += 1;
        self.held.insert(id, message);
        Taken::New
    }

    fn take_at_least_once(&mut self, message: &Message) -> Taken {
        let number = number(message);
        let next = self.next.entry(message.topic.clone()).or_default();
        assert!(number <= *next, "{}: {} {number} came, {next} is missing", self.name, message.topic);
        if number < *next {
            return Taken::Again;
        }
        *next += 1;
        Taken::New
    }
}

fn number(message: &Message) -> u64 {
    let text = message.text();
    let number = text.split(' ').next().and_then(|first| first.parse().ok());
    number.unwrap_or_else(|| panic!("payload of {}: {:.40}", message.topic, text))
}
