//! Who takes part: a fixed cast, each with a part of its own.

use tidegate_mqtt::Version;

use crate::random::Random;

/// All of them.
pub const CLIENTS: usize = 15;
/// The last one is a link inside the process.
pub const LINK: usize = 14;
/// Sessions that are no client's: the shared subscription, which is owed messages as a whole, and a durable subscription of the
/// workers.
pub const GROUP: usize = CLIENTS;
pub const FOLLOWER: usize = CLIENTS + 1;
/// What the durable subscription selects.
pub const FOLLOWED: &str = "t/#";
/// Takes from named queues, beside the workers.
pub const TAKER: usize = 13;
/// The shared subscription of the two members.
pub const GROUP_FILTER: &str = "$share/g/t/#";
/// Looks at retained topics at the end.
pub const READER: usize = 6;
/// What the taker may subscribe to.
pub const TAKEN: [&str; 2] = ["$queue/work", "$queue/brief"];
/// What the link forwards.
pub const LINK_FILTER: &str = "t/#";
/// Messages that the bounded queue takes.
pub const BOUNDED_MESSAGES_MAX: u64 = 30;
/// Messages that the lossy queue keeps.
pub const LOSSY_MESSAGES_MAX: u64 = 20;

const NEVER: u32 = u32::MAX;

/// A part.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub name: &'static str,
    pub version: Version,
    /// Seconds that the session outlives its connection; 0: it does not.
    pub expiry: u32,
    pub publishes: bool,
    pub subscribes: bool,
    /// Connects with a will.
    pub will: bool,
    /// Its queue may lose messages.
    pub lossy: bool,
}

const fn part(name: &'static str, version: Version, expiry: u32) -> Part {
    Part { name, version, expiry, publishes: false, subscribes: false, will: false, lossy: false }
}

const fn publisher(part: Part) -> Part {
    Part { publishes: true, ..part }
}

const fn subscriber(part: Part) -> Part {
    Part { subscribes: true, ..part }
}

use Version::{V5, V31, V311};

/// The cast, by number.
pub const CAST: [Part; CLIENTS] = [
    publisher(part("pub-5", V5, NEVER)),
    publisher(part("pub-311", V311, NEVER)),
    publisher(part("pub-transient", V5, 0)),
    subscriber(part("sub-5", V5, NEVER)),
    subscriber(part("sub-311", V311, NEVER)),
    publisher(subscriber(part("both-5", V5, 120))),
    subscriber(part("sub-transient", V31, 0)),
    Part { lossy: true, ..subscriber(part("lossy-5", V5, NEVER)) },
    subscriber(part("member-5", V5, NEVER)),
    subscriber(part("member-311", V311, NEVER)),
    Part { will: true, ..part("will-5", V5, NEVER) },
    Part { will: true, ..part("will-31", V31, 0) },
    subscriber(part("bounded-5", V5, NEVER)),
    subscriber(part("taker-5", V5, NEVER)),
    subscriber(part("link", V5, NEVER)),
];

/// The name of a session.
pub fn name(session: usize) -> &'static str {
    match session {
        GROUP => GROUP_FILTER,
        FOLLOWER => "dsub/log",
        client => CAST[client].name,
    }
}

/// Its queue may lose messages.
pub fn is_lossy(session: usize) -> bool {
    CAST.get(session).is_some_and(|part| part.lossy)
}

/// A member of the shared subscription.
pub fn is_member(session: usize) -> bool {
    name(session).starts_with("member")
}

/// The session has subscribed to what it may lose nothing of.
pub fn is_durable(client: usize) -> bool {
    CAST[client].expiry > 0
}

fn any(random: &mut Random, has: impl Fn(&Part) -> bool) -> usize {
    let all: Vec<usize> = (0..LINK).filter(|client| has(&CAST[*client])).collect();
    *random.pick(&all)
}

pub fn any_publisher(random: &mut Random) -> usize {
    any(random, |part| part.publishes)
}

pub fn any_subscriber(random: &mut Random) -> usize {
    any(random, |part| part.subscribes)
}

/// What most runs begin with.
pub fn first_subscription(client: usize, random: &mut Random) -> Option<(&'static str, u8)> {
    let qos = [1, 2, 2][random.below(3) as usize];
    match CAST[client].name {
        _ if is_member(client) => Some((GROUP_FILTER, qos)),
        "bounded-5" => Some(("b/#", 1)),
        "both-5" => Some(("w/#", 2)),
        "taker-5" => Some((TAKEN[0], qos)),
        _ if CAST[client].subscribes => Some(("t/#", qos)),
        _ => None,
    }
}
