//! Any bytes at all against the hub: no model, but what must hold whatever clients send.

use super::wire;
use super::{Choices, World};
use crate::broker::api::ConnId;
use crate::net::origin::{Origin, PeerAddress, Protocol};
use crate::time::Mono;

/// Clients: one of each version, and one that has not logged in.
const LOGINS: [&str; 4] = [
    "",
    "CONNECT\n\n\0",
    "STOMP\naccept-version:1.1\nhost:h\n\n\0",
    "STOMP\naccept-version:1.2\nhost:h\nheart-beat:1000,1000\n\n\0",
];
/// Bytes that clients may have sent and not finished, each: the largest frame and its headers.
const PARTIAL_BYTES_MAX: u64 = 2 << 20;

/// Plays an input to four connections: each piece of it is a byte that says who speaks and what happens besides, a length and
/// that many bytes.
pub fn fuzz_bytes(input: &[u8]) {
    let mut world = World::new(Choices::Input(vec![]));
    let mut ids = LOGINS.map(|_| None);
    let mut rest = input;
    while let [what, len, tail @ ..] = rest {
        let who = usize::from(what % 4);
        let (piece, tail) = tail.split_at(tail.len().min(usize::from(*len)));
        rest = tail;
        let id = *ids[who].get_or_insert_with(|| open(&mut world, LOGINS[who]));
        let now = world.now();
        world.hub.received(id, piece, now);
        if what & 0x10 != 0 {
            world.mono = Mono(world.mono.0 + u64::from(*len) * 10_000);
            let now = world.now();
            world.hub.tick(now);
        }
        if what & 0x20 != 0 {
            world.hub.lost(id, now);
        }
        if what & 0x40 == 0 {
            world.settle();
        }
        check(&mut world);
        for slot in &mut ids {
            if slot.is_some_and(|id| world.hub.is_finished(id)) {
                end(&mut world, slot.take());
            }
        }
    }
    for slot in ids {
        end(&mut world, slot);
    }
    world.settle();
    assert_eq!((world.hub.connections(), world.hub.buffered()), (0, (0, 0)), "nothing is left");
}

fn open(world: &mut World, login: &str) -> ConnId {
    let now = world.now();
    let id = world.hub.open(Protocol::Stomp, Origin::plain(PeerAddress::Local), now).expect("there is room");
    world.hub.received(id, login.as_bytes(), now);
    id
}

fn check(world: &mut World) {
    world.hub.broker().check();
    let (_, reads) = world.hub.buffered();
    assert!(reads <= LOGINS.len() as u64 * PARTIAL_BYTES_MAX, "{reads} bytes of frames that have begun");
}

/// Whatever a client was sent is a sequence of whole frames, and nothing follows ERROR.
fn end(world: &mut World, id: Option<ConnId>) {
    let Some(id) = id else { return };
    let now = world.now();
    world.hub.lost(id, now);
    world.settle();
    world.hub.abandon(id, now);
    world.hub.closed(id, now);
    world.settle();
    let seen = wire::parse(&world.read.remove(&id).unwrap_or_default());
    let errors = seen.iter().filter(|frame| frame.command == "ERROR").count();
    assert!(errors == 0 || seen.last().is_some_and(|last| last.command == "ERROR"), "{seen:?}");
    assert!(errors <= 1, "{seen:?}");
}
