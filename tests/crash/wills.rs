//! Devices with a will that are connected when the gateway dies and never return: their wills are published in the end.

use std::collections::BTreeSet;
use std::io;

use crate::harness::{Client, Login, Random, SHORT, Version, Will};
use crate::world::World;

/// Devices that are connected at a time.
const DEVICES: usize = 3;

/// A device says goodbye, in percent of all steps.
const POLITE: u64 = 5;

#[derive(Debug, Default)]
struct Wills {
    next: u64,
    devices: Vec<(u64, Client)>,
    /// Accepted by the gateway and lost: must come.
    owed: BTreeSet<u64>,
    /// Said goodbye, and the gateway has taken note of it: must not come.
    polite: BTreeSet<u64>,
    seen: BTreeSet<u64>,
}

pub fn run(world: &World, mut random: Random) {
    world.begin_work();
    let login = Login::persistent(Version::V5, "will-watcher");
    let mut known = false;
    while world.reconnect(&login, &mut known).subscribe("wills/#", 1).is_err() {}
    let mut wills = Wills::default();
    while !wills.is_complete(world) {
        let mut watcher = world.reconnect(&login, &mut known);
        drop(wills.go_on(world, &mut watcher, &mut random));
    }
    assert!(wills.seen.is_disjoint(&wills.polite), "wills of devices that said goodbye were published");
    world.end_work();
}

impl Wills {
    fn is_complete(&self, world: &World) -> bool {
        world.is_over() && self.devices.is_empty() && self.owed.is_subset(&self.seen)
    }

    fn go_on(&mut self, world: &World, watcher: &mut Client, random: &mut Random) -> io::Result<()> {
        while !self.is_complete(world) {
            world.check();
            self.bury_the_dead();
            if world.is_over() {
                self.devices.clear();
            } else if self.devices.len() < DEVICES {
                self.connect(world);
            } else if random.chance(POLITE) {
                self.say_goodbye(watcher)?;
            }
            if let Some(message) = watcher.message_within(SHORT)? {
                let number = message.topic.trim_start_matches("wills/").parse().unwrap();
                self.seen.insert(number);
                world.count_check();
            }
        }
        Ok(())
    }

    fn connect(&mut self, world: &World) {
        self.next += 1;
        let version = Version::ALL[self.next as usize % 3];
        let will = Will::new(&format!("wills/{}", self.next), "gone", 1);
        let login = Login::fresh(version, &format!("device-{}", self.next)).will(will);
        // Without CONNACK nothing is promised.
        if let Ok(client) = login.open(world.address()) {
            self.devices.push((self.next, client));
        }
    }

    /// Devices whose connection is gone never return.
    fn bury_the_dead(&mut self) {
        for (number, mut client) in std::mem::take(&mut self.devices) {
            match client.poll(std::time::Duration::from_millis(1)) {
                Ok(_) => self.devices.push((number, client)),
                Err(_) => drop(self.owed.insert(number)),
            }
        }
    }

    /// A goodbye is not answered, so it is promised only once a later change of the same process is: the answer to a
    /// SUBSCRIBE.
    fn say_goodbye(&mut self, watcher: &mut Client) -> io::Result<()> {
        if let Some((number, client)) = self.devices.pop() {
            drop(client.disconnect());
            watcher.subscribe("wills-fence", 0)?;
            self.polite.insert(number);
        }
        Ok(())
    }
}
