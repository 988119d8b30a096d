//! Retained messages: after each kill every topic has its last acknowledged value, or a later one that was under way.

use std::collections::BTreeMap;
use std::io;

use crate::harness::{Client, Login, Message, Random, SHORT, Version};
use crate::outbox::Outbox;
use crate::world::World;

const TOPICS: u64 = 16;
const WINDOW: usize = 6;

/// Acknowledged changes after which the device connects anew, which brings a comparison without a kill.
const CHANGES: u64 = 100;

/// A value that clears the topic, in percent of all.
const CLEARED: u64 = 15;

/// Topic and value; `None` clears it.
type Change = (u64, Option<u64>);

pub fn run(world: &World, mut random: Random) {
    world.begin_work();
    let login = Login::persistent(Version::V5, "retainer");
    let mut known = false;
    let mut outbox: Outbox<Change> = Outbox::new();
    let mut settled: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    let mut value = 0;
    loop {
        let mut client = world.reconnect(&login, &mut known);
        // Compared before anything is sent again.
        if compare(world, &mut client, &settled, &outbox).is_err() {
            continue;
        }
        if world.is_over() && outbox.is_empty() {
            break;
        }
        drop(change(world, &mut client, &mut outbox, &mut settled, (&mut value, &mut random)));
    }
    world.end_work();
}

fn change(
    world: &World,
    client: &mut Client,
    outbox: &mut Outbox<Change>,
    settled: &mut BTreeMap<u64, Option<u64>>,
    (value, random): (&mut u64, &mut Random),
) -> io::Result<()> {
    outbox.resume(client)?;
    let mut changes = 0;
    while changes < CHANGES && !(world.is_over() && outbox.is_empty()) {
        world.check();
        while outbox.len() < WINDOW && !world.is_over() {
            *value += 1;
            let topic = random.below(TOPICS);
            let new = (!random.chance(CLEARED)).then_some(*value);
            let payload = new.map(|value| value.to_string()).unwrap_or_default();
            // One level for each topic: between levels the order is not promised.
            let qos = (topic % 2) as u8 + 1;
            outbox.send(
                client,
                Message::retained(&format!("retained/{topic}"), payload, qos),
                (topic, new),
            )?;
        }
        if let Some(packet) = client.poll(SHORT)?
            && let Some((topic, new)) = outbox.take(client, &packet)?
        {
            settled.insert(topic, new);
            changes += 1;
        }
    }
    Ok(())
}

/// Reads all retained messages with a fresh subscription.
fn compare(
    world: &World,
    client: &mut Client,
    settled: &BTreeMap<u64, Option<u64>>,
    outbox: &Outbox<Change>,
) -> io::Result<()> {
    let mut reader = Login::fresh(Version::V5, "retained-reader").open(world.address())?;
    reader.subscribe("retained-end", 1)?;
    reader.subscribe("retained/#", 1)?;
    reader.publish(&Message::new("retained-end", "end", 1))?;
    let mut found = BTreeMap::new();
    for message in reader.messages_until("end")? {
        let topic: u64 = message.topic.trim_start_matches("retained/").parse().unwrap();
        found.insert(topic, message.text().parse::<u64>().unwrap());
    }
    for topic in 0..TOPICS {
        let last = settled.get(&topic).copied().flatten();
        let value = found.get(&topic).copied();
        let under_way = outbox.tags().any(|change| *change == (topic, value));
        assert!(value == last || under_way, "retained/{topic} is {value:?}, acknowledged is {last:?}");
    }
    world.count_check();
    // The session's own connection must have lived through it, or the outbox may not be resumed on it.
    client.ping()?;
    Ok(())
}
