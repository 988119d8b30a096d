//! Every connection and the broker, without a socket: bytes in, bytes out.
//!
//! The driver reads sockets into [`Hub::received`], submits [`Hub::take_batch`] to the store *before* it writes (afterwards if it
//! commits a lone batch itself, see [`Hub::is_calm`]), and then writes what [`Hub::next_dirty`] and [`Hub::output`] name. One read is one turn: all packets of a read are handled before any answer
//! is encoded into an outbox, and an outbox is written once per round.
//!
//! Invariants: an outbox that waits is listed as dirty exactly once; the byte sums equal the sum over all connections; after a
//! connection's last command (goodbye, loss, or the broker's `Close`) none of its input is heard.

mod authentication;
mod calm;
mod deadlines;
mod large;
mod logins;
#[cfg(test)]
mod machine;
mod output;
mod peer;
#[cfg(any(test, feature = "simulation"))]
mod rig;
mod stomp;
#[cfg(any(test, feature = "simulation"))]
#[cfg_attr(not(test), allow(dead_code, reason = "tests make choices in another way than fuzzers"))]
mod stomp_machine;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_stomp;
mod turn;
mod waiting;

pub use logins::Access;
#[cfg(feature = "simulation")]
pub use stomp_machine::{fuzz as fuzz_stomp, fuzz_bytes as fuzz_stomp_bytes};

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::IoSlice;

use bytes::Bytes;
use slab::Slab;

use crate::broker::api::{ClientCommand, ClientEvent, CloseReason, ConnId};
use crate::broker::{Broker, Effect};
use crate::limits::Limits;
use crate::net::adapter::{Credentials, Encoded, Step};
use crate::net::hub::calm::Calm;
use crate::net::hub::large::Places;
use crate::net::hub::logins::Logins;
use crate::net::hub::peer::Peer;
use crate::net::hub::waiting::Waiting;
use crate::net::origin::{Origin, Protocol};
use crate::net::outbox::{BufferPool, Outbox};
use crate::net::stomp as net_stomp;
use crate::net::traffic::Traffic;
use crate::store::contract::PageRequest;
use crate::time::{Mono, Now};

/// How long the last bytes to a connection that ends may take, in milliseconds.
const ENDING_MILLIS_MAX: u64 = 5_000;
/// Operations that may gather for one batch before it is submitted ahead of the round's end, in bytes of memory. One turn adds at
/// most a few times the largest packet, and the sum stays far below what the store takes at once.
const BATCH_BYTES_HIGH: usize = 512 << 10;
/// How often a connection that waits for us is looked at again, in milliseconds.
const BLOCKED_RECHECK_MILLIS: u64 = 1_000;
/// Partly received packets above this size grow with what arrives: the length in a header reserves nothing, unless the packet has a
/// place among the large ones.
const RESERVE_BYTES_MAX: usize = 4 << 10;
/// Packets from this size on are handed on as they lie in the buffer that they were received into.
const SHARED_PACKET_BYTES_MIN: usize = 8 << 10;

#[derive(Debug)]
struct Slot {
    id: ConnId,
    peer: Peer,
    /// `None`: a link.
    origin: Option<Origin>,
    outbox: Outbox,
    /// The start of a packet whose end has not arrived.
    partial: Vec<u8>,
    /// Length of that packet, once known.
    need: usize,
    /// The packet at the front of `partial` waits for an answer to an earlier one.
    blocked: bool,
    /// Its last command waits for room, see [`waiting`].
    held: bool,
    /// It does not read what it is answered: it is not read either until it does.
    stuffed: bool,
    /// It has a place for the large packet that it sends, see [`large`].
    placed: bool,
    /// It waits for such a place: it is not read until it gets one.
    starved: bool,
    /// The deadline that counts in `Hub::deadlines`.
    listed: Mono,
    /// Listed in `Hub::dirty`.
    dirty: bool,
    /// The broker knows it and has not been told of its end.
    attached: bool,
    /// Nothing more is heard from it; it closes when its outbox is empty.
    ending: bool,
    /// Its outbox is above the high mark.
    high: bool,
    /// It stayed above the high mark although its publishers waited: they wait no longer.
    slow: bool,
    /// Its outbox is at its bound: the broker sends it nothing.
    congested: bool,
}

impl Slot {
    /// What the connection has sent, or would send, has to wait: it is not read.
    fn must_wait(&self) -> bool {
        self.blocked || self.held || self.stuffed || self.starved
    }
}

/// What the reader of a connection does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Read on.
    Continue,
    /// A peer that this turn wrote to has more waiting than it should: let it drain first.
    Congested,
    /// What it sent waits for an answer to something earlier or for a place, or it does not read its answers: read on when
    /// [`Hub::take_unblocked`] names it.
    Blocked,
    /// The connection ends; read no more.
    End,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obeyed {
    /// The next one may come.
    On,
    /// It waits for room, and so does all that follows it.
    Waits,
    /// Nothing more is heard from the connection.
    Over,
}

/// What is to be written to a connection.
#[derive(Debug)]
pub enum Output<'a> {
    /// Several runs of bytes, at most [`crate::net::outbox::WRITE_SEGMENTS_MAX`].
    Many(Vec<IoSlice<'a>>),
    /// One run of bytes.
    Single(&'a [u8]),
}

/// All connections, and the broker behind them.
#[derive(Debug)]
pub struct Hub {
    broker: Broker,
    stomp: net_stomp::Shared,
    limits: Limits,
    slots: Slab<Slot>,
    opened: u32,
    pool: BufferPool,
    answers: Vec<u8>,
    dirty: VecDeque<ConnId>,
    finished: Vec<ConnId>,
    effects: Vec<Effect>,
    followups: Vec<(ConnId, ClientCommand)>,
    answered: Vec<ConnId>,
    unblocked: Vec<ConnId>,
    loads: Vec<PageRequest>,
    deadlines: BinaryHeap<Reverse<(Mono, ConnId)>>,
    logins: Logins,
    places: Places,
    waiting: Waiting,
    /// Nothing was read until shortly before: silence does not count yet.
    excused: Mono,
    turn_congested: bool,
    /// Connections above the high mark that are not slow.
    holding_up: usize,
    outbox_bytes: u64,
    read_bytes: u64,
    traffic: Traffic,
    calm: Calm,
}

impl Hub {
    /// No connections yet.
    #[must_use]
    pub fn new(broker: Broker, limits: Limits) -> Self {
        Self {
            broker,
            stomp: net_stomp::Shared::new(&limits),
            logins: Logins::new(&limits),
            limits,
            slots: Slab::new(),
            opened: 0,
            pool: BufferPool::default(),
            answers: Vec::new(),
            dirty: VecDeque::new(),
            finished: Vec::new(),
            effects: Vec::new(),
            followups: Vec::new(),
            answered: Vec::new(),
            unblocked: Vec::new(),
            loads: Vec::new(),
            deadlines: BinaryHeap::new(),
            places: Places::default(),
            waiting: Waiting::default(),
            excused: Mono(0),
            turn_congested: false,
            holding_up: 0,
            outbox_bytes: 0,
            read_bytes: 0,
            traffic: Traffic::default(),
            calm: Calm::default(),
        }
    }

    /// The broker, for reading.
    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// For what operators do; [`finish_turn`](Self::finish_turn) ends it.
    pub fn broker_mut(&mut self) -> &mut Broker {
        &mut self.broker
    }

    /// Counters of what went through.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Connections now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.slots.len()
    }

    /// Bytes in all outboxes, and in partly received packets.
    #[must_use]
    pub fn buffered(&self) -> (u64, u64) {
        (self.outbox_bytes, self.read_bytes)
    }

    /// A client's socket was accepted, and what comes before the protocol (TLS, say) is done. `None`: the limit is reached, close
    /// it.
    pub fn open(&mut self, protocol: Protocol, origin: Origin, now: Now) -> Option<ConnId> {
        if self.slots.len() >= self.limits.connections_max as usize {
            self.traffic.refused_connections += 1;
            return None;
        }
        let peer = Peer::new(protocol, &origin, &self.limits, &self.stomp, now);
        self.traffic.accepted += 1;
        let deadline = peer.deadline().unwrap_or(now.mono);
        let id = self.add(peer, Some(origin));
        self.list_deadline(index(id), deadline);
        Some(id)
    }

    /// A link inside this process attaches.
    pub fn open_port(&mut self) -> ConnId {
        self.add(Peer::Port(VecDeque::new()), None)
    }

    /// Where a connection comes from; `None`: a link, or a connection that is over.
    #[must_use]
    pub fn origin(&self, id: ConnId) -> Option<&Origin> {
        self.slots[self.key(id)?].origin.as_ref()
    }

    fn add(&mut self, peer: Peer, origin: Option<Origin>) -> ConnId {
        self.opened = self.opened.wrapping_add(1);
        let entry = self.slots.vacant_entry();
        let id = ConnId(u64::from(self.opened) << 32 | entry.key() as u64);
        entry.insert(Slot {
            id,
            peer,
            origin,
            outbox: Outbox::default(),
            partial: Vec::new(),
            need: 0,
            blocked: false,
            held: false,
            stuffed: false,
            placed: false,
            starved: false,
            listed: Mono(0),
            dirty: false,
            attached: false,
            ending: false,
            high: false,
            slow: false,
            congested: false,
        });
        id
    }

    fn key(&self, id: ConnId) -> Option<usize> {
        let key = index(id);
        self.slots.get(key).is_some_and(|slot| slot.id == id).then_some(key)
    }

    /// One read's bytes arrived.
    pub fn received(&mut self, id: ConnId, input: &[u8], now: Now) -> Turn {
        let Some(key) = self.key(id) else { return Turn::End };
        self.traffic.bytes_in += input.len() as u64;
        self.turn_congested = false;
        let slot = &mut self.slots[key];
        if slot.ending {
            return Turn::End;
        }
        self.calm.note_read();
        self.note_arrival(key, now);
        self.take_in(key, input, now);
        self.note_deadline(key);
        self.update_place(key, now);
        self.bound_read_buffers(now);
        self.finish_turn(now);
        let Some(key) = self.key(id) else { return Turn::End };
        self.check_answers(key);
        match &self.slots[key] {
            slot if slot.ending => Turn::End,
            slot if slot.must_wait() => Turn::Blocked,
            _ if self.turn_congested => Turn::Congested,
            _ => Turn::Continue,
        }
    }

    /// Completes the packet that has begun, then handles what follows it.
    fn take_in(&mut self, key: usize, mut input: &[u8], now: Now) {
        while !input.is_empty() {
            let slot = &self.slots[key];
            if slot.ending {
                return;
            }
            if slot.blocked || slot.held {
                return self.append(key, input);
            }
            if slot.partial.is_empty() {
                let used = self.feed(key, input, None, now);
                return self.keep(key, &input[used..]);
            }
            let mut missing = slot.need.saturating_sub(slot.partial.len()).max(1);
            if missing == 1 && matches!(slot.peer, Peer::Stomp(_)) {
                // How much is missing is not known: the end of a line is looked for.
                missing = input.len();
            }
            let (part, rest) = input.split_at(missing.min(input.len()));
            input = rest;
            self.append(key, part);
            if self.slots[key].partial.len() >= self.slots[key].need {
                self.feed_partial(key, now);
            }
        }
    }

    /// Handles the packets that are kept. Large ones are handed on where they lie, unless their buffer, which had to grow while the
    /// length was not known, is much longer: a message counts as long as it is.
    fn feed_partial(&mut self, key: usize, now: Now) {
        let kept = std::mem::take(&mut self.slots[key].partial);
        self.read_bytes -= kept.capacity() as u64;
        let fits = kept.capacity() - kept.len() <= kept.len() / 8;
        let kept = if kept.len() < SHARED_PACKET_BYTES_MIN || !fits {
            match self.feed(key, &kept, None, now) {
                0 => kept,
                used => return self.keep(key, &kept[used..]),
            }
        } else {
            let shared = Bytes::from(kept);
            match self.feed(key, &shared, Some(&shared), now) {
                0 => shared.into(),
                used => return self.keep(key, &shared[used..]),
            }
        };
        self.read_bytes += kept.capacity() as u64;
        self.slots[key].partial = kept;
    }

    /// Handles every whole packet at the front of `bytes`; says how many bytes that were.
    /// `shared` is the buffer that holds them, if messages may share it.
    fn feed(&mut self, key: usize, bytes: &[u8], shared: Option<&Bytes>, now: Now) -> usize {
        let mut at = 0;
        loop {
            let slot = &mut self.slots[key];
            self.answers.clear();
            let step = slot.peer.next(&bytes[at..], shared, now, &mut self.answers, &mut self.traffic);
            let Some(step) = step else { return bytes.len() };
            self.flush_answers(key);
            let slot = &mut self.slots[key];
            match step {
                Step::Command { used, command: ClientCommand::Connect(request) } => {
                    at += used;
                    self.log_in(key, Credentials::default(), request, now);
                }
                Step::Login { used, credentials, request } => {
                    at += used;
                    self.log_in(key, credentials, request, now);
                }
                Step::Command { used, command } => {
                    at += used;
                    match self.obey(key, command, now) {
                        Obeyed::On => {}
                        Obeyed::Over => return bytes.len(),
                        Obeyed::Waits => {
                            self.slots[key].need = 0;
                            return at;
                        }
                    }
                }
                Step::Branch { used, branch, command } => {
                    at += used;
                    self.branch_command(key, branch, command, now);
                }
                Step::Authenticate { used, begins, message } => {
                    at += used;
                    self.authentication_message(key, begins, message, now);
                    if self.slots[key].ending {
                        return bytes.len();
                    }
                }
                Step::Answered { used } => at += used,
                Step::Incomplete { need } => {
                    slot.need = need;
                    return at;
                }
                Step::Blocked => {
                    slot.blocked = true;
                    slot.need = 0;
                    return at;
                }
                Step::End => {
                    self.end_unasked(key, now);
                    return bytes.len();
                }
            }
        }
    }

    /// Hands a client's command to the broker.
    fn obey(&mut self, key: usize, command: ClientCommand, now: Now) -> Obeyed {
        let slot = &mut self.slots[key];
        let last = matches!(command, ClientCommand::Disconnect { .. });
        slot.attached = !last;
        slot.ending = last;
        match self.carry_out(key, command, true, now) {
            Ok(_) if last => {
                self.list_deadline(key, now.mono.plus_millis(ENDING_MILLIS_MAX));
                self.mark_dirty(key);
                Obeyed::Over
            }
            Ok(obeyed) => obeyed,
            Err(command) => self.hold(key, command, now),
        }
    }

    /// The broker carries out a command. `Err`: it finds no room, which may be waited for.
    fn carry_out(
        &mut self,
        key: usize,
        command: ClientCommand,
        may_wait: bool,
        now: Now,
    ) -> Result<Obeyed, Box<ClientCommand>> {
        let slot = &self.slots[key];
        let (id, is_stomp) = (slot.id, matches!(slot.peer, Peer::Stomp(_)));
        let hangs_up = slot.peer.hangs_up_to_refuse(&command);
        let refused = self.broker.stats().refused_quota;
        if is_stomp {
            self.broker.take_refusal();
        }
        if !may_wait {
            self.broker.handle(id, command, now);
        } else if let Some(command) = self.broker.handle_or_wait(id, command, is_stomp, now) {
            return Err(command);
        }
        if is_stomp {
            self.check_refusal(key, now);
        } else if hangs_up && self.broker.stats().refused_quota > refused {
            // What follows must not overtake the message that its client keeps.
            self.end_unasked(key, now);
            return Ok(Obeyed::Over);
        }
        Ok(Obeyed::On)
    }

    fn flush_answers(&mut self, key: usize) {
        if !self.answers.is_empty() {
            self.outbox_bytes += self.answers.len() as u64;
            self.slots[key].outbox.writer(&mut self.pool).extend_from_slice(&self.answers);
            self.mark_dirty(key);
        }
    }

    fn append(&mut self, key: usize, input: &[u8]) {
        let slot = &mut self.slots[key];
        let (before, len) = (slot.partial.capacity(), slot.partial.len());
        let wanted = len + input.len();
        if wanted > before {
            let room = slot.need.min(before * 2).max(slot.need.min(RESERVE_BYTES_MAX));
            // What a place is kept for need not grow, which might copy it.
            let room = if slot.placed { slot.need } else { room }.max(wanted);
            slot.partial.reserve_exact(room - len);
        }
        slot.partial.extend_from_slice(input);
        self.read_bytes += (slot.partial.capacity() - before) as u64;
    }

    fn keep(&mut self, key: usize, rest: &[u8]) {
        if !rest.is_empty() && !self.slots[key].ending {
            self.append(key, rest);
        }
    }

    /// Nothing more is heard from it: what it has begun to say is forgotten.
    fn forget_input(&mut self, key: usize) {
        let partial = std::mem::take(&mut self.slots[key].partial);
        self.read_bytes -= partial.capacity() as u64;
    }

    /// The peer closed its side, or the socket failed.
    pub fn lost(&mut self, id: ConnId, now: Now) {
        if let Some(key) = self.key(id)
            && !self.half_closed(key, now)
        {
            self.end_unasked(key, now);
            self.finish_turn(now);
        }
    }

    /// Nothing more is read from the connection, and the broker is told that it is lost.
    fn end_unasked(&mut self, key: usize, now: Now) {
        self.forget_input(key);
        self.leave_place(key, now);
        self.end_branches(key, now);
        self.forget_waiting(key);
        self.forget_login(self.slots[key].id);
        let slot = &mut self.slots[key];
        slot.ending = true;
        let (id, attached) = (slot.id, std::mem::take(&mut slot.attached));
        self.list_deadline(key, now.mono.plus_millis(ENDING_MILLIS_MAX));
        self.mark_dirty(key);
        if attached {
            self.broker.handle(id, ClientCommand::Lost, now);
        }
    }

    fn end_by_us(&mut self, key: usize, reason: CloseReason, now: Now) {
        let id = self.slots[key].id;
        self.deliver(id, ClientEvent::Close(reason), now);
        if let Some(key) = self.key(id) {
            self.slots[key].attached = true;
            self.end_unasked(key, now);
        }
    }

    /// The socket is closed: the connection is forgotten.
    pub fn closed(&mut self, id: ConnId, now: Now) {
        let Some(key) = self.key(id) else { return };
        self.end_branches(key, now);
        self.forget_waiting(key);
        self.forget_login(id);
        self.leave_place(key, now);
        let mut slot = self.slots.remove(key);
        self.traffic.closed += 1;
        self.outbox_bytes -= slot.outbox.len() as u64;
        self.read_bytes -= slot.partial.capacity() as u64;
        self.holding_up -= usize::from(slot.high && !slot.slow);
        slot.outbox.clear(&mut self.pool);
        if slot.attached {
            self.broker.handle(id, ClientCommand::Lost, now);
            self.finish_turn(now);
        }
    }
}

fn index(id: ConnId) -> usize {
    (id.0 & u64::from(u32::MAX)) as usize
}
