//! A publisher's unacknowledged messages, kept and sent again as real clients do.

use std::collections::VecDeque;
use std::io;

use tidegate_mqtt::PacketType;

use crate::harness::{Client, Message, Packet};

/// One message under way; `T` is what the sender wants to know when it is acknowledged.
#[derive(Debug)]
struct Open<T> {
    message: Message,
    /// PUBREC has come: only PUBREL may be sent from now on.
    released: bool,
    tag: T,
}

/// Messages in the order of their sending.
#[derive(Debug)]
pub struct Outbox<T> {
    open: VecDeque<Open<T>>,
    last_id: u16,
}

impl<T> Outbox<T> {
    pub fn new() -> Self {
        Self { open: VecDeque::new(), last_id: 0 }
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// What is not acknowledged yet.
    pub fn tags(&self) -> impl Iterator<Item = &T> {
        self.open.iter().map(|open| &open.tag)
    }

    /// Sends a new message; it is kept even if the connection breaks meanwhile.
    pub fn send(&mut self, client: &mut Client, mut message: Message, tag: T) -> io::Result<()> {
        message.id = self.free_id();
        let bytes = message.encode(client.version);
        self.open.push_back(Open { message, released: false, tag });
        client.raw(&bytes)
    }

    fn free_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id % 1000 + 1;
            if self.open.iter().all(|open| open.message.id != self.last_id) {
                return self.last_id;
            }
        }
    }

    /// Sends everything again on a new connection of the same session.
    pub fn resume(&mut self, client: &mut Client) -> io::Result<()> {
        for open in &mut self.open {
            if open.released {
                client.ack(PacketType::Pubrel, open.message.id)?;
            } else {
                open.message.dup = true;
                client.send(&open.message)?;
            }
        }
        Ok(())
    }

    /// Takes an acknowledgement; the tag of a message that is done with. Other packets are none of its business.
    pub fn take(&mut self, client: &mut Client, packet: &Packet) -> io::Result<Option<T>> {
        match *packet {
            Packet::Puback { id, reason } => {
                assert!(reason < 0x80, "PUBACK 0x{reason:02x}");
                Ok(Some(self.settle(id, 1)))
            }
            Packet::Pubrec { id, reason } => {
                assert!(reason < 0x80, "PUBREC 0x{reason:02x}");
                self.find(id, 2).released = true;
                client.ack(PacketType::Pubrel, id)?;
                Ok(None)
            }
            Packet::Pubcomp { id, .. } => {
                assert!(self.find(id, 2).released, "PUBCOMP {id} before PUBREC");
                Ok(Some(self.settle(id, 2)))
            }
            _ => Ok(None),
        }
    }

    fn position(&self, id: u16, qos: u8) -> usize {
        let same = |open: &Open<T>| open.message.id == id && open.message.qos == qos;
        self.open
            .iter()
            .position(same)
            .unwrap_or_else(|| panic!("an acknowledgement of {id}, which is not under way"))
    }

    fn find(&mut self, id: u16, qos: u8) -> &mut Open<T> {
        let at = self.position(id, qos);
        &mut self.open[at]
    }

    fn settle(&mut self, id: u16, qos: u8) -> T {
        let at = self.position(id, qos);
        self.open.remove(at).expect("the position was just found").tag
    }
}
