//! Who is at the other end of a connection: the one place where the hub tells the protocols apart.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::broker::api::{ClientCommand, ClientEvent, ConnId};
use crate::limits::Limits;
use crate::net::adapter::{Encoded, Step};
use crate::net::mqtt;
use crate::net::origin::{Origin, Protocol};
use crate::net::outbox::{BufferPool, Outbox};
use crate::net::stomp;
use crate::net::traffic::Traffic;
use crate::time::{Mono, Now};

/// The other end of a connection.
#[derive(Debug)]
pub(super) enum Peer {
    Mqtt(Box<mqtt::Adapter>),
    Stomp(Box<stomp::Adapter>),
    /// One more session behind a STOMP connection.
    Branch {
        parent: ConnId,
        number: u32,
    },
    /// A link inside this process, and what waits for it.
    Port(VecDeque<ClientEvent>),
}

impl Peer {
    /// For a socket that was just accepted.
    pub(super) fn new(
        protocol: Protocol,
        origin: &Origin,
        limits: &Limits,
        stomp: &stomp::Shared,
        now: Now,
    ) -> Self {
        match protocol {
            Protocol::Mqtt => Self::Mqtt(Box::new(mqtt::Adapter::new(limits, now))),
            Protocol::Stomp => Self::Stomp(Box::new(stomp::Adapter::new(stomp, limits, origin, now))),
        }
    }

    /// Takes the packet at the front of `input`; answers that need no broker go to `answers`. `shared` is the buffer that holds
    /// `input`, if a large message may share it. `None`: a link, which sends no bytes.
    #[inline]
    pub(super) fn next(
        &mut self,
        input: &[u8],
        shared: Option<&Bytes>,
        now: Now,
        answers: &mut Vec<u8>,
        traffic: &mut Traffic,
    ) -> Option<Step> {
        match self {
            Self::Mqtt(adapter) => Some(adapter.next(input, shared, now, answers, traffic)),
            Self::Stomp(adapter) => Some(adapter.next(input, shared, now, answers, traffic)),
            Self::Port(_) | Self::Branch { .. } => None,
        }
    }

    /// Puts the event, which may be one of a branch, into the outbox as the protocol says it. A link gets it as it is.
    #[inline]
    pub(super) fn encode(
        &mut self,
        branch: u32,
        event: ClientEvent,
        now: Now,
        outbox: &mut Outbox,
        pool: &mut BufferPool,
        traffic: &mut Traffic,
    ) -> Encoded {
        match self {
            Self::Mqtt(adapter) => adapter.encode(event, now, outbox, pool, traffic),
            Self::Stomp(adapter) => {
                adapter.encode(branch, event, &mut stomp::Writer { now, outbox, pool, traffic })
            }
            Self::Port(events) => {
                events.push_back(event);
                Encoded::Done
            }
            Self::Branch { .. } => Encoded::Done,
        }
    }

    /// When the client must have been heard of again; `None` if it need not.
    pub(super) fn deadline(&self) -> Option<Mono> {
        match self {
            Self::Mqtt(adapter) => adapter.deadline(),
            Self::Stomp(adapter) => adapter.deadline(),
            Self::Port(_) | Self::Branch { .. } => None,
        }
    }

    /// The client has logged in.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Mqtt(adapter) => adapter.is_open(),
            Self::Stomp(adapter) => adapter.is_open(),
            Self::Port(_) | Self::Branch { .. } => true,
        }
    }

    /// If this message is refused, the connection ends: the version has no other way to leave it with the client.
    pub(super) fn hangs_up_to_refuse(&self, command: &ClientCommand) -> bool {
        match self {
            Self::Mqtt(adapter) => adapter.hangs_up_to_refuse(command),
            Self::Stomp(_) | Self::Port(_) | Self::Branch { .. } => false,
        }
    }

    /// Sends the next message of an extended authentication; `false`: it cannot be said to this client.
    pub(super) fn authenticate(&mut self, message: &[u8], is_last: bool, answers: &mut Vec<u8>) -> bool {
        match self {
            Self::Mqtt(adapter) => adapter.authenticate(message, is_last, answers),
            Self::Stomp(_) | Self::Port(_) | Self::Branch { .. } => false,
        }
    }

    /// The deadline has passed.
    pub(super) fn expire(&mut self, answers: &mut Vec<u8>) {
        match self {
            Self::Mqtt(adapter) => adapter.expire(answers),
            // It does what is due by itself.
            Self::Stomp(_) | Self::Port(_) | Self::Branch { .. } => {}
        }
    }
}
