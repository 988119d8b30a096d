//! A session: a client's subscriptions, its unsettled deliveries and its QoS 2 state, with or without a connection.
//!
//! A session is *durable* when it was opened with an expiry: then it has rows and a durable queue, and survives restarts. A
//! *transient* one lives and dies with its connection and nothing of it is stored.
//!
//! Invariants: `resend` names exactly the parked deliveries; no delivery is under way without a connection, except those that
//! wait for PUBCOMP.

pub mod inbound;
pub mod inflight;
pub mod prepared_rows;
pub mod rows;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::broker::api::{ConnId, ConsumerId, DeliveryId, SessionExpiry, SubscribeOptions};
use crate::broker::{SessionAccess, Transactions};
use crate::message::Qos;
use crate::queue::QueueKey;
use crate::queue::group::GroupKey;
use crate::store::contract::{BatchId, QueueId, Seq};
use crate::time::{Mono, Wall};
use inbound::Inbound;
use inflight::InFlight;

/// Place of a session in the broker's table.
pub type SessionKey = u32;

/// One subscription of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// As granted.
    pub options: SubscribeOptions,
    /// Subscription Identifier.
    pub id: Option<u32>,
    /// The group, if it is shared.
    pub group: Option<GroupKey>,
}

/// Retained messages that a new subscription is still to get.
#[derive(Clone, Debug)]
pub struct RetainedJob {
    /// Which topics.
    pub filter: Box<str>,
    /// Where the last slice ended.
    pub after: Option<Box<str>>,
    /// Granted quality of service.
    pub qos: Qos,
    /// Subscription identifier.
    pub ids: Option<Arc<[u32]>>,
}

/// One session. See the module's text.
#[derive(Debug)]
pub struct Session {
    /// Who.
    pub client_id: Arc<str>,
    /// Part of this process.
    pub internal: bool,
    /// Its queue's place.
    pub queue: QueueKey,
    /// Its number, if it is durable.
    pub number: Option<QueueId>,
    /// Life after the connection.
    pub expiry: SessionExpiry,
    /// The connection.
    pub conn: Option<ConnId>,
    /// The connection was told so: deliveries may go out.
    pub open: bool,
    /// The connection cannot take more at the moment.
    pub congested: bool,
    /// Deliveries that may be under way.
    pub window_max: u16,
    /// Answers of this connection that wait for the store.
    pub waiting: u32,
    /// Deliveries to this connection that wait for the store.
    pub held: u32,
    /// Unsettled deliveries.
    pub inflight: InFlight,
    /// Deliveries to be repeated under their old identifiers.
    pub resend: BTreeMap<Seq, DeliveryId>,
    /// Messages of the own queue below this place were sent to the client at some time.
    pub sent_below: Seq,
    /// Of these, an earlier process sent those below this place, if not more: nothing tells whether they arrived.
    pub repeated_below: Seq,
    /// QoS 2 messages received and not released.
    pub inbound: Inbound,
    /// The last batch that changed a row of an outbound QoS 2 delivery.
    pub qos2_batch: BatchId,
    /// By filter, as subscribed to.
    pub subscriptions: BTreeMap<Box<str>, Subscription>,
    /// Shared subscriptions and named queues that it is a member of.
    pub groups: SmallVec<[GroupKey; 1]>,
    /// Its consumers and their queues; `None`: it never had any.
    pub consumers: Option<Box<BTreeMap<ConsumerId, GroupKey>>>,
    /// Shared subscriptions get the next free place in the window before the own queue: they take turns.
    pub groups_first: bool,
    /// Its open transactions; `None`: it never had any.
    pub(crate) transactions: Option<Box<Transactions>>,
    /// When it ends, if nobody connects.
    pub end_at: Option<Mono>,
    /// When its connection ended.
    pub disconnected: Wall,
    /// Retained messages still to be sent.
    pub retained_jobs: VecDeque<RetainedJob>,
    /// It is in the broker's list of sessions with such work.
    pub retained_queued: bool,
    /// Who its client is and what it may do; `None`: anonymous, and everything.
    pub access: Option<Box<SessionAccess>>,
    /// Messages to it are checked one by one, since it may not read all that it subscribes to.
    pub filtered: bool,
    /// QoS 0 messages that were not sent: nobody connected, or too slow.
    pub dropped_qos0: u64,
}

impl Session {
    /// A session without a connection.
    #[must_use]
    pub fn new(client_id: Arc<str>, queue: QueueKey, number: Option<QueueId>) -> Self {
        Self {
            client_id,
            internal: false,
            queue,
            number,
            expiry: SessionExpiry::WithConnection,
            conn: None,
            open: false,
            congested: false,
            window_max: 1,
            waiting: 0,
            held: 0,
            inflight: InFlight::default(),
            resend: BTreeMap::new(),
            sent_below: 0,
            repeated_below: 0,
            inbound: Inbound::default(),
            qos2_batch: BatchId(0),
            subscriptions: BTreeMap::new(),
            groups: SmallVec::new(),
            consumers: None,
            transactions: None,
            groups_first: false,
            end_at: None,
            disconnected: Wall(0),
            retained_jobs: VecDeque::new(),
            retained_queued: false,
            access: None,
            filtered: false,
            dropped_qos0: 0,
        }
    }

    /// It survives its connection, and restarts.
    #[must_use]
    #[inline]
    pub fn is_durable(&self) -> bool {
        self.number.is_some()
    }

    /// Its part in the group rests: it may not read all of it.
    #[must_use]
    #[inline]
    pub fn is_suspended(&self, group: GroupKey) -> bool {
        self.access.as_ref().is_some_and(|access| access.is_suspended(group))
    }

    /// The connection that takes deliveries now.
    #[must_use]
    #[inline]
    pub fn ready(&self) -> Option<ConnId> {
        if self.open && !self.congested { self.conn } else { None }
    }

    /// A delivery of `size` bytes may go out now.
    #[must_use]
    #[inline]
    pub fn takes(&self, size: u32, bytes_max: u32) -> bool {
        self.ready().is_some() && self.inflight.has_room(size, self.window_max, bytes_max)
    }
}
