//! What workers and operators do with named queues, and how a seed chooses it.

use tidegate_stomp::AckMode;

use crate::jobs::Answer;
use crate::queues::{QUEUES, SENT_TO};
use crate::random::Random;
use crate::worker::WORKERS;

/// How a worker consumes a queue.
#[derive(Clone, Copy, Debug)]
pub struct Consume {
    pub queue: usize,
    pub mode: AckMode,
    pub prefetch: u16,
    /// Only jobs of one kind.
    pub selects: bool,
    pub browses: bool,
    pub exclusive: bool,
    pub priority: i32,
}

/// What a worker sends.
#[derive(Clone, Copy, Debug)]
pub struct Parcel {
    /// A queue, or the topic `t/<n>`.
    pub to: Result<usize, u8>,
    pub len: usize,
    pub ttl_millis: Option<u64>,
    /// Of a message to a queue.
    pub qos: u8,
    /// As part of the open transaction, if there is one.
    pub within: bool,
}

/// What a worker does.
#[derive(Clone, Debug)]
pub enum Deed {
    Connect,
    /// Its connection breaks.
    Drop,
    Goodbye,
    Send {
        parcel: Parcel,
        count: u32,
    },
    Consume(Consume),
    /// It takes the durable subscription.
    Follow,
    StopConsuming,
    /// It answers some of what it has.
    Answer {
        answer: Answer,
        count: usize,
        within: bool,
    },
    /// From now on it answers at once, or does not.
    Diligent {
        on: bool,
    },
    Stall {
        on: bool,
    },
    Begin {
        with_xid: bool,
    },
    Commit {
        prepare: bool,
    },
    Abort,
    /// It decides one of the transactions that are prepared, or were.
    Decide {
        commit: bool,
        again: bool,
    },
}

/// What an operator does.
#[derive(Clone, Copy, Debug)]
pub enum Desk {
    Purge {
        queue: usize,
    },
    /// To another queue, or dead letters to where they come from.
    Move {
        from: usize,
        to: Option<usize>,
    },
    Delete {
        queue: usize,
    },
}

fn parcel(random: &mut Random) -> Parcel {
    let to =
        if random.chance(5) { Err(random.below(4) as u8) } else { Ok(random.below(SENT_TO as u64) as usize) };
    let len = match random.below(12) {
        0 => 1500 + random.below(2000),
        1 | 2 => 300 + random.below(600),
        _ => 8 + random.below(80),
    };
    let ttl_millis = random.chance(9).then(|| 1_000 + random.below(60_000));
    let qos = if random.chance(3) { 2 } else { 1 };
    Parcel { to, len: len as usize, ttl_millis, qos, within: !random.chance(4) }
}

fn consume(random: &mut Random) -> Consume {
    Consume {
        queue: random.below(QUEUES.len() as u64) as usize,
        mode: *random.pick(&[
            AckMode::Auto,
            AckMode::Client,
            AckMode::ClientIndividual,
            AckMode::ClientIndividual,
        ]),
        prefetch: 1 + random.below(8) as u16,
        selects: random.chance(5),
        browses: random.chance(7),
        exclusive: random.chance(12),
        priority: random.below(3) as i32 - 1,
    }
}

fn answer(random: &mut Random) -> Deed {
    let answer =
        *random.pick(&[Answer::Accept, Answer::Accept, Answer::Accept, Answer::Return, Answer::Bury]);
    Deed::Answer { answer, count: 1 + random.below(6) as usize, within: !random.chance(3) }
}

fn deed(random: &mut Random) -> Deed {
    match random.below(100) {
        0..=11 => Deed::Connect,
        12..=13 => Deed::Drop,
        14 => Deed::Goodbye,
        15..=36 => {
            let count =
                if random.chance(5) { 1 + random.below(20) as u32 } else { 1 + random.below(3) as u32 };
            Deed::Send { parcel: parcel(random), count }
        }
        37..=46 => Deed::Consume(consume(random)),
        47 => Deed::Follow,
        48 => Deed::StopConsuming,
        49..=66 => answer(random),
        67..=68 => Deed::Diligent { on: random.chance(2) },
        69..=70 => Deed::Stall { on: random.chance(3) },
        71..=80 => Deed::Begin { with_xid: random.chance(2) },
        81..=91 => Deed::Commit { prepare: random.chance(2) },
        92..=93 => Deed::Abort,
        _ => Deed::Decide { commit: random.chance(2), again: random.chance(3) },
    }
}

/// Something that one of the workers does.
pub fn any_deed(random: &mut Random) -> (usize, Deed) {
    (random.below(WORKERS as u64) as usize, deed(random))
}

pub fn any_desk(random: &mut Random) -> Desk {
    let queue = random.below(QUEUES.len() as u64) as usize;
    match random.below(6) {
        0 => Desk::Purge { queue },
        1 => Desk::Delete { queue },
        2 => Desk::Move { from: QUEUES[queue].dead_letters.unwrap_or(queue), to: None },
        _ => Desk::Move { from: queue, to: Some(random.below(QUEUES.len() as u64) as usize) },
    }
}
