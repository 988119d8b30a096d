//! What happens in a run: a list of steps that depends on the seed alone. Each step carries random numbers of its own, so that
//! leaving others out, to shrink a failing list, does not change it.

use crate::cast::{self, CLIENTS, GROUP_FILTER, LINK, TAKEN, TAKER};
use crate::deeds::{self, Deed, Desk};
use crate::random::Random;
use crate::worker::WORKERS;

/// Days in a year, in milliseconds.
const YEAR_MILLIS: i64 = 365 * 24 * 3_600_000;

/// Messages longer than this become large ones in some runs, by this factor, and then none is shorter than that.
const LONG_BYTES: usize = 1_200;
const LARGER: usize = 40;
const LARGE_BYTES_MIN: usize = LONG_BYTES * LARGER;

/// A message to publish.
#[derive(Clone, Debug)]
pub struct Draft {
    pub topic: String,
    pub qos: u8,
    pub retain: bool,
    pub len: usize,
    /// Seconds.
    pub expiry: Option<u32>,
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Action {
    /// The client connects; if it is connected, this is a takeover by a second connection.
    Connect {
        client: usize,
        clean: bool,
    },
    /// Its connection breaks.
    Drop {
        client: usize,
    },
    /// It says DISCONNECT.
    Goodbye {
        client: usize,
    },
    /// It publishes the same draft so many times.
    Publish {
        client: usize,
        count: u32,
        draft: Draft,
    },
    Subscribe {
        client: usize,
        filter: String,
        qos: u8,
    },
    Unsubscribe {
        client: usize,
        filter: String,
    },
    /// It withholds its acknowledgements.
    Hold {
        client: usize,
    },
    /// It acknowledges what it withheld, and does so at once from now on.
    Settle {
        client: usize,
    },
    /// It stops reading its socket, or reads on.
    Stall {
        client: usize,
        on: bool,
    },
    /// Time passes.
    Tick {
        millis: u64,
    },
    /// The system clock is set.
    ClockJump {
        millis: i64,
    },
    /// The link's upstream goes away, comes back, or takes messages without ever acknowledging one.
    UplinkDown,
    UplinkUp,
    BlackHole,
    /// The n-th sync or write from now on fails.
    SyncFails {
        n: u64,
    },
    WriteFails {
        n: u64,
    },
    /// So many pages are left on the disk.
    DiskFull {
        pages: u64,
    },
    /// None is, and what was reserved is gone too.
    FillUp,
    SpaceBack,
    /// The power fails at the n-th operation of the disk from now on; so many openings after it fail as well.
    PowerCut {
        after: u64,
        again: u32,
        page_grain: bool,
        garbage: bool,
    },
    /// SIGKILL.
    Kill,
    /// An orderly end, and a new start.
    Restart,
    /// The same, with another `durability.hold`.
    Configure {
        hold_millis: u32,
    },
    /// A worker does something with named queues.
    Work {
        worker: usize,
        deed: Deed,
    },
    /// So does an operator.
    Desk(Desk),
    /// Nothing happens for a while, for the store to look after itself.
    Idle,
}

/// How far the store gets during a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It does nothing.
    Stuck,
    /// It commits; a checkpoint waits where it is.
    Commit,
    /// It commits; a checkpoint gets on by so many writes each round.
    Crawl(u32),
    /// It does all it can.
    Swift,
}

/// An action and what it depends on.
#[derive(Clone, Debug)]
pub struct Step {
    pub action: Action,
    pub pace: Pace,
    /// Rounds of the network and the gateway after it.
    pub rounds: u32,
    /// For everything inside.
    pub seed: u64,
}

fn publish(random: &mut Random) -> Action {
    let client = cast::any_publisher(random);
    let retain = random.chance(8);
    let topic = match random.below(12) {
        _ if retain => format!("r/{client}"),
        0 => "b/0".to_owned(),
        n => format!("t/{}", n % 4),
    };
    let len = match random.below(20) {
        _ if retain && random.chance(4) => 0,
        0 => 1500 + random.below(1500),
        1..=4 => 300 + random.below(700),
        _ => 8 + random.below(100),
    };
    let qos = match [0, 1, 1, 1, 2, 2][random.below(6) as usize] {
        // There is no order between different qualities of service, and a retained topic has one value.
        qos if retain && qos > 0 => 1 + client as u8 % 2,
        qos => qos,
    };
    let expiry = random.chance(10).then(|| 1 + random.below(120) as u32);
    let count = if random.chance(5) { 1 + random.below(30) as u32 } else { 1 + random.below(3) as u32 };
    Action::Publish { client, count, draft: Draft { topic, qos, retain, len: len as usize, expiry } }
}

fn subscribe(random: &mut Random) -> Action {
    let client = cast::any_subscriber(random);
    let qos = [0, 1, 1, 2, 2, 2][random.below(6) as usize];
    let qos = if cast::is_member(client) || client == TAKER { qos.max(1) } else { qos };
    let filter = if cast::CAST[client].name == "bounded-5" {
        "b/#"
    } else if client == TAKER {
        *random.pick(&TAKEN)
    } else if cast::is_member(client) {
        GROUP_FILTER
    } else {
        *random.pick(&["t/#", "t/+", "t/0", "t/1", "+/2", "r/#", "w/#", "b/#", "#"])
    };
    if random.chance(5) {
        return Action::Unsubscribe { client, filter: filter.to_owned() };
    }
    Action::Subscribe { client, filter: filter.to_owned(), qos }
}

fn disaster(random: &mut Random) -> Action {
    match random.below(16) {
        0 => Action::SyncFails { n: 1 + random.below(4) },
        1 => Action::WriteFails { n: 1 + random.below(12) },
        2 => Action::DiskFull { pages: random.below(100) },
        3 | 4 => Action::FillUp,
        5 => Action::SpaceBack,
        6 | 7 => Action::Kill,
        8 => Action::Restart,
        9 => Action::ClockJump { millis: (random.below(21) as i64 - 10) * YEAR_MILLIS / 3 },
        _ => Action::PowerCut {
            after: 1 + if random.chance(3) { random.below(200) } else { random.below(12) },
            again: if random.chance(3) { 1 + random.below(2) as u32 } else { 0 },
            page_grain: random.chance(2),
            garbage: random.chance(2),
        },
    }
}

fn action(random: &mut Random) -> Action {
    let any = random.below(CLIENTS as u64) as usize;
    match random.below(100) {
        0..=15 => Action::Connect { client: any, clean: random.chance(12) },
        16..=19 => Action::Drop { client: any },
        20..=21 => Action::Goodbye { client: any },
        22..=59 => publish(random),
        60..=68 => subscribe(random),
        69..=70 => Action::Hold { client: any },
        71..=74 => Action::Settle { client: any },
        75..=76 => Action::Stall { client: any, on: random.chance(2) },
        77..=81 => Action::Tick { millis: [10, 100, 1_000, 6_000, 40_000][random.below(5) as usize] },
        82 => Action::UplinkDown,
        83..=85 => Action::UplinkUp,
        86 => Action::BlackHole,
        87..=88 => Action::Idle,
        89..=90 => Action::SpaceBack,
        _ => disaster(random),
    }
}

/// What a run is mostly about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    Devices,
    Queues,
    Both,
}

fn taker(random: &mut Random) -> Action {
    let client = TAKER;
    match random.below(6) {
        0 | 1 => Action::Connect { client, clean: false },
        2 => Action::Drop { client },
        3 => Action::Hold { client },
        4 => Action::Settle { client },
        _ => {
            let filter = (*random.pick(&TAKEN)).to_owned();
            if random.chance(4) {
                return Action::Unsubscribe { client, filter };
            }
            Action::Subscribe { client, filter, qos: 1 + random.below(2) as u8 }
        }
    }
}

fn work(random: &mut Random) -> Action {
    match random.below(100) {
        0..=79 => {
            let (worker, deed) = deeds::any_deed(random);
            Action::Work { worker, deed }
        }
        80..=82 => Action::Desk(deeds::any_desk(random)),
        83 => taker(random),
        84..=85 => {
            Action::Tick { millis: [10, 100, 1_000, 6_000, 40_000, 200_000][random.below(6) as usize] }
        }
        86..=88 => Action::Idle,
        89..=90 => Action::SpaceBack,
        _ => disaster(random),
    }
}

fn step(random: &mut Random, action: Action) -> Step {
    let pace = match random.below(10) {
        0 => Pace::Stuck,
        1..=2 => Pace::Commit,
        3..=4 => Pace::Crawl(1),
        5..=6 => Pace::Crawl(2 + random.below(12) as u32),
        _ => Pace::Swift,
    };
    Step { action, pace, rounds: 1 + random.below(3) as u32, seed: random.next() }
}

/// The steps of a seed.
pub fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut random = Random(seed ^ 0xac71_0115);
    let theme = *random.pick(&[Theme::Devices, Theme::Queues, Theme::Queues, Theme::Both]);
    let mut list = vec![];
    if theme != Theme::Devices && random.chance(3) {
        let hold_millis = 10 + random.below(60) as u32;
        list.push(step(&mut random, Action::Configure { hold_millis }));
    }
    let large = random.chance(8);
    go_on(theme, random, &mut list, count);
    if large {
        list.iter_mut().for_each(|step| enlarge(&mut step.action));
    }
    list
}

/// Steps that are about this alone.
pub fn steps_about(theme: Theme, seed: u64, count: usize) -> Vec<Step> {
    let mut list = vec![];
    go_on(theme, Random(seed ^ 0xac71_0115), &mut list, count);
    list
}

/// Most of the cast comes on stage, then anything happens.
fn go_on(theme: Theme, mut random: Random, list: &mut Vec<Step>, count: usize) {
    if theme != Theme::Queues {
        devices_come(&mut random, list);
    }
    if theme != Theme::Devices {
        if theme == Theme::Queues && random.chance(2) {
            list.push(step(&mut random, Action::Connect { client: TAKER, clean: false }));
            let filter = (*random.pick(&TAKEN)).to_owned();
            let qos = 1 + random.below(2) as u8;
            list.push(step(&mut random, Action::Subscribe { client: TAKER, filter, qos }));
        }
        for worker in 0..WORKERS {
            list.push(step(&mut random, Action::Work { worker, deed: Deed::Connect }));
        }
    }
    while list.len() < count {
        let works = theme == Theme::Queues || (theme == Theme::Both && random.chance(2));
        let next = if works { work(&mut random) } else { action(&mut random) };
        list.push(step(&mut random, next));
    }
}

/// What is long becomes so long that it is stored in pieces, and there is less of it.
fn enlarge(action: &mut Action) {
    let longer = |len: &mut usize, count: &mut u32| {
        if *len > LONG_BYTES {
            *len *= LARGER;
            *count = (*count).min(3);
        }
    };
    match action {
        Action::Publish { count, draft, .. } => longer(&mut draft.len, count),
        Action::Work { deed: Deed::Send { parcel, count }, .. } => longer(&mut parcel.len, count),
        _ => {}
    }
}

/// Some messages are larger than a small gateway takes.
pub fn are_large(steps: &[Step]) -> bool {
    steps.iter().any(|step| match &step.action {
        Action::Publish { draft, .. } => draft.len > LARGE_BYTES_MIN,
        Action::Work { deed: Deed::Send { parcel, .. }, .. } => parcel.len > LARGE_BYTES_MIN,
        _ => false,
    })
}

fn devices_come(random: &mut Random, list: &mut Vec<Step>) {
    for client in (0..CLIENTS).filter(|client| *client != LINK) {
        if !random.chance(6) {
            list.push(step(random, Action::Connect { client, clean: false }));
            if let Some((filter, qos)) = cast::first_subscription(client, random) {
                list.push(step(random, Action::Subscribe { client, filter: filter.to_owned(), qos }));
            }
        }
    }
    list.push(step(random, Action::UplinkUp));
}
