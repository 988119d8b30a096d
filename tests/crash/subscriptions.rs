//! Subscriptions that change all the time: after each kill those in force are exactly the acknowledged ones.

use std::io;

use crate::harness::{Client, Filter, Login, Message, Random, Version};
use crate::world::World;

const TOPICS: usize = 24;

/// Changes after which the client connects anew, which brings a comparison without a kill.
const CHANGES: u64 = 50;

/// What is known about one subscription; `None` while an unanswered change is under way.
type Known = Option<bool>;

pub fn run(world: &World, mut random: Random) {
    world.begin_work();
    let login = Login::persistent(Version::V5, "changer");
    let mut session = false;
    let mut known: Vec<Known> = vec![Some(false); TOPICS];
    let mut attempt = 0;
    begin(world, &login, &mut session);
    loop {
        let mut client = world.reconnect(&login, &mut session);
        attempt += 1;
        match compare(world, &mut client, &mut known, attempt) {
            Ok(()) if world.is_over() => break,
            Ok(()) => drop(change(world, &mut client, &mut known, &mut random)),
            Err(_) => {}
        }
    }
    world.end_work();
}

/// The subscription that marks the end of a comparison.
fn begin(world: &World, login: &Login, session: &mut bool) {
    while world.reconnect(login, session).subscribe("changing/end", 1).is_err() {}
}

fn change(world: &World, client: &mut Client, known: &mut [Known], random: &mut Random) -> io::Result<()> {
    for _ in 0..CHANGES {
        world.check();
        if world.is_over() {
            break;
        }
        let topic = random.below(TOPICS as u64) as usize;
        let filter = format!("changing/{topic}");
        let before = known[topic].take();
        if random.chance(50) {
            let granted = client.subscribe_all(None, &[Filter::new(&filter, 1)])?;
            assert_eq!(granted, [1]);
            known[topic] = Some(true);
        } else {
            let existed = client.unsubscribe(&[&filter])? == [0];
            assert_eq!(Some(existed), before, "UNSUBACK of {filter}");
            known[topic] = Some(false);
        }
    }
    Ok(())
}

/// Publishes to every topic and looks what arrives before the mark.
fn compare(world: &World, client: &mut Client, known: &mut [Known], attempt: u64) -> io::Result<()> {
    let mut publisher = Login::fresh(Version::V311, "changing-publisher").open(world.address())?;
    let token = format!("attempt {attempt}");
    for topic in 0..known.len() {
        publisher.publish(&Message::new(&format!("changing/{topic}"), &token, 1))?;
    }
    publisher.publish(&Message::new("changing/end", &token, 1))?;
    let mut found = vec![false; known.len()];
    loop {
        let message = client.message()?;
        let topic = message.topic.trim_start_matches("changing/");
        // What an earlier attempt has left in the queue does not count.
        if message.text() != token {
            continue;
        }
        if topic == "end" {
            break;
        }
        found[topic.parse::<usize>().unwrap()] = true;
    }
    for (topic, (known, found)) in known.iter_mut().zip(found).enumerate() {
        assert!(
            known.is_none_or(|known| known == found),
            "changing/{topic}: {known:?} acknowledged, {found} found"
        );
        *known = Some(found);
    }
    world.count_check();
    Ok(())
}
