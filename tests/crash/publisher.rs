//! A device that publishes two numbered streams, one at QoS 1 and one at QoS 2, with a window.

use std::io;

use crate::harness::{Client, Login, Message, Random, SHORT, Version};
use crate::outbox::Outbox;
use crate::world::World;

/// Unacknowledged messages at a time.
const WINDOW: usize = 20;

/// Longest padding of a payload in bytes.
const PADDING: u64 = 1500;

/// The device.
#[derive(Debug)]
pub struct Publisher {
    number: usize,
    login: Login,
    known: bool,
    random: Random,
    outbox: Outbox<()>,
    sent: u64,
    /// Next number of the streams of QoS 1 and 2.
    next: [u64; 2],
}

impl Publisher {
    pub fn new(number: usize, random: Random) -> Self {
        let version = if number.is_multiple_of(2) { Version::V5 } else { Version::V311 };
        let login = Login::persistent(version, &format!("publisher-{number}"));
        Self { number, login, known: false, random, outbox: Outbox::new(), sent: 0, next: [0; 2] }
    }

    pub fn run(mut self, world: &World) {
        while !self.is_done(world) {
            let mut client = world.reconnect(&self.login, &mut self.known);
            // The error is the gateway's end; there will be another one.
            drop(self.publish(world, &mut client));
        }
        for qos in [1, 2] {
            world.add_total(self.topic(qos), self.next[usize::from(qos) - 1]);
        }
    }

    fn is_done(&self, world: &World) -> bool {
        world.is_over() && self.sent == world.granted() && self.outbox.is_empty()
    }

    fn publish(&mut self, world: &World, client: &mut Client) -> io::Result<()> {
        self.outbox.resume(client)?;
        while !self.is_done(world) {
            world.check();
            while self.outbox.len() < WINDOW && self.sent < world.granted() {
                let message = self.next_message();
                self.outbox.send(client, message, ())?;
            }
            if let Some(packet) = client.poll(SHORT)?
                && self.outbox.take(client, &packet)?.is_some()
            {
                world.count_acknowledged();
            }
        }
        Ok(())
    }

    fn next_message(&mut self) -> Message {
        let qos = self.random.between(1, 2) as u8;
        let next = &mut self.next[usize::from(qos) - 1];
        let padding = self.random.below(PADDING) as usize;
        let payload = format!("{next} {}", "x".repeat(padding));
        *next += 1;
        self.sent += 1;
        Message::new(&self.topic(qos), payload, qos)
    }

    /// The stream of this level.
    fn topic(&self, qos: u8) -> String {
        format!("load/{}/{qos}", self.number)
    }
}
