//! The named queues of the simulation, each with bounds of its own.

use tidegate::limits::{Overflow, QueueDef, QueueLimits};

/// A named queue.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    pub name: &'static str,
    /// Where its dead letters go, by place in [`QUEUES`].
    pub dead_letters: Option<usize>,
    /// Times that a message may come back.
    redeliveries_max: Option<u32>,
    /// Messages that expire are dead letters.
    keeps_expired: bool,
    /// Beyond it messages are refused.
    messages_max: Option<u64>,
    /// The configuration speaks of it.
    defined: bool,
}

const PLAIN: Queue = Queue {
    name: "plain",
    dead_letters: Some(5),
    redeliveries_max: None,
    keeps_expired: false,
    messages_max: None,
    defined: false,
};

/// All of them; the last two are for dead letters.
pub const QUEUES: [Queue; 6] = [
    Queue { name: "work", dead_letters: Some(4), redeliveries_max: Some(3), defined: true, ..PLAIN },
    Queue { name: "tight", dead_letters: None, messages_max: Some(25), defined: true, ..PLAIN },
    Queue { name: "brief", dead_letters: Some(4), keeps_expired: true, defined: true, ..PLAIN },
    PLAIN,
    Queue { name: "dead", dead_letters: None, defined: true, ..PLAIN },
    // What the broker does with the dead letters of queues that nobody defined.
    Queue { name: "dead-letters", dead_letters: None, ..PLAIN },
];

/// Queues that messages are sent to.
pub const SENT_TO: usize = 4;

/// What the configuration says of them.
pub fn definitions() -> Vec<QueueDef> {
    let defined = QUEUES.iter().filter(|queue| queue.defined);
    let definition = |queue: &Queue| QueueDef {
        name: queue.name.into(),
        limits: QueueLimits { messages_max: queue.messages_max, bytes_max: None, overflow: Overflow::Reject },
        redeliveries_max: queue.redeliveries_max,
        dead_letter: queue.dead_letters.map(|at| QUEUES[at].name.into()),
        dead_letter_expired: queue.keeps_expired,
        ..QueueDef::default()
    };
    defined.map(definition).collect()
}

/// The queue behind a topic.
pub fn of_topic(topic: &str) -> Option<usize> {
    let name = topic.strip_prefix("$queue/")?;
    QUEUES.iter().position(|queue| queue.name == name)
}
