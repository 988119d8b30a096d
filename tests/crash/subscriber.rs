//! A session at QoS 2 that checks completeness, order and repetitions of all streams.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::harness::{Client, Ledger, Login, Packet, Random, SHORT, Taken, Version};
use crate::world::World;

/// A client that comes and goes leaves after so many messages at most.
const STAY: u64 = 400;

/// ... or when nothing has come for so long.
const IDLE: Duration = Duration::from_millis(100);

/// When a subscriber is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Always.
    Live,
    /// For some messages at a time.
    ComesAndGoes,
    /// Only at the end.
    Away,
}

/// The subscriber with its session's state, which outlives connections as the gateway's does.
#[derive(Debug)]
pub struct Subscriber {
    login: Login,
    known: bool,
    manner: Manner,
    random: Random,
    ledger: Ledger,
}

impl Subscriber {
    pub fn new(number: usize, version: Version, manner: Manner, random: Random) -> Self {
        let login = Login::persistent(version, &format!("subscriber-{number}"));
        let login = if version.is_v5() && manner == Manner::Live { login.receive_max(15) } else { login };
        let ledger = Ledger::new(&login.id);
        Self { login, known: false, manner, random, ledger }
    }

    /// Subscribes; from then on nothing may be missing.
    pub fn begin(&mut self, world: &World) {
        let mut client = world.reconnect(&self.login, &mut self.known);
        client.subscribe("load/#", 2).unwrap();
        client.disconnect().unwrap();
        world.begin_work();
    }

    pub fn run(&mut self, world: &World) {
        if self.manner == Manner::Away {
            world.wait_until("the end of the load", || world.is_over());
        }
        while !self.is_complete(world) {
            let round = world.round();
            let mut client = world.reconnect(&self.login, &mut self.known);
            let left = self.read(world, &mut client);
            if left.is_ok() && self.random.chance(50) {
                drop(client.disconnect());
            }
            if self.manner == Manner::ComesAndGoes {
                world.wait_until("the next round", || world.is_over() || world.round() != round);
            }
        }
        world.end_work();
    }

    fn is_complete(&self, world: &World) -> bool {
        let all = |totals: BTreeMap<String, u64>| {
            totals.iter().all(|(stream, total)| self.ledger.count(stream) >= *total)
        };
        world.totals().is_some_and(all) && self.ledger.is_settled()
    }

    /// Reads until it is time to leave.
    fn read(&mut self, world: &World, client: &mut Client) -> io::Result<()> {
        let stay = self.random.between(1, STAY);
        let (mut taken, mut idle) = (0, Duration::ZERO);
        while !self.is_complete(world) {
            world.check();
            let leaves = self.manner == Manner::ComesAndGoes && !world.is_over();
            if leaves && (taken >= stay || idle >= IDLE) {
                return Ok(());
            }
            match client.poll(SHORT)? {
                Some(packet) => {
                    (taken, idle) = (taken + 1, Duration::ZERO);
                    self.take(world, client, packet)?;
                }
                None => idle += SHORT,
            }
        }
        Ok(())
    }

    fn take(&mut self, world: &World, client: &mut Client, packet: Packet) -> io::Result<()> {
        match self.ledger.take(client, packet)? {
            Taken::New => world.count_delivered(),
            Taken::Again => world.count_repeated(),
            Taken::Nothing => {}
        }
        Ok(())
    }

    /// After everything was delivered: only repetitions of QoS 1 may precede the last message.
    pub fn read_to_the_end(&mut self, world: &World) {
        let mut client = world.reconnect(&self.login, &mut self.known);
        loop {
            match client.packet().unwrap() {
                Packet::Publish(message) if message.topic == "load/end" => {
                    return client.settle(&message).unwrap();
                }
                packet => self.take(world, &mut client, packet).unwrap(),
            }
        }
    }
}
