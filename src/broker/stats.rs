//! What the broker has counted, and views of its queues and sessions for operators.

use crate::broker::Broker;
use crate::broker::api::{ConnId, SessionExpiry};
use crate::queue::{Owner, Queue, QueueCounters};
use crate::session::Session;
use crate::store::contract::QueueId;
use crate::time::Wall;

/// Counters since the start; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections that opened a session.
    pub connects: u64,
    /// Most connections with a session at a time.
    pub connected_max: u64,
    /// Connection requests refused.
    pub connects_refused: u64,
    /// Connections ended by another one with the same client identifier.
    pub takeovers: u64,
    /// Connections ended because they broke the rules.
    pub violations: u64,
    /// Commands of unknown or closed connections, ignored.
    pub commands_ignored: u64,
    /// Acknowledgements for deliveries that are not under way, ignored.
    pub acknowledgements_ignored: u64,
    /// Sessions that ended because nobody came back in time.
    pub sessions_expired: u64,
    /// Messages published by clients, by quality of service.
    pub published: [u64; 3],
    /// Their payloads' and topics' stored sizes.
    pub published_bytes: u64,
    /// QoS 2 messages that were sent again and not taken a second time.
    pub published_again: u64,
    /// Messages that nobody had subscribed to.
    pub published_to_nobody: u64,
    /// Messages refused because a queue, the disk or the retained messages' space is full.
    pub refused_quota: u64,
    /// Messages refused because of their topic.
    pub refused_topic: u64,
    /// Copies found in the store at the start.
    pub restored: u64,
    /// Messages and wills that access rules refused.
    pub denied_publishes: u64,
    /// Filters that access rules refused.
    pub denied_subscribes: u64,
    /// Queued copies dropped because their client may not read them any more.
    pub dropped_denied: u64,
    /// Connections ended because their login no longer counts.
    pub logins_ended: u64,
    /// Copies that joined a queue (one message may join many). With `restored`, it is the sum of what was settled, refused by
    /// its consumer, dropped after it had joined, and what is queued now.
    pub enqueued: u64,
    /// Deliveries sent, by quality of service, repeated ones included.
    pub delivered: [u64; 3],
    /// Their stored sizes.
    pub delivered_bytes: u64,
    /// Deliveries sent again.
    pub redelivered: u64,
    /// Queued copies that their consumer took.
    pub settled: u64,
    /// Queued copies of durable queues that were settled before they were written, and never were.
    pub never_written: u64,
    /// Queued copies that their consumer refused.
    pub settled_refused: u64,
    /// QoS 0 copies not sent: their client was away.
    pub dropped_offline: u64,
    /// QoS 0 copies not sent: their client was too slow.
    pub dropped_congested: u64,
    /// Copies dropped because their time was over.
    pub dropped_expired: u64,
    /// Queued copies dropped to make room.
    pub dropped_oldest: u64,
    /// New copies dropped because their queue was full.
    pub dropped_new: u64,
    /// Queued copies that ended with their session.
    pub dropped_with_session: u64,
    /// Queued copies that an operator removed.
    pub purged: u64,
    /// Copies sent to browsers.
    pub browsed: u64,
    /// Messages that became dead letters.
    pub dead_letters: u64,
    /// Transactions committed.
    pub transactions_committed: u64,
    /// Prepared transactions rolled back because nobody decided in time.
    pub prepared_timed_out: u64,
    /// Transactions that outgrew the memory for them: a part of them went to the store.
    pub transactions_spilled: u64,
    /// Transactions that ended without effect.
    pub transactions_aborted: u64,
    /// Copies that went from a shared subscription's queue to a member's own.
    pub moved: u64,
    /// Shared deliveries that came back from a member.
    pub returned: u64,
    /// Wills published.
    pub wills: u64,
    /// Retained messages not kept, for lack of room.
    pub retained_refused: u64,
    /// Retained messages whose time was over.
    pub retained_expired: u64,
    /// Page requests.
    pub loads: u64,
    /// Windows cut down because memory ran short.
    pub windows_trimmed: u64,
}

/// Gauges: how things stand now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Connections.
    pub connections: usize,
    /// Sessions, connected or not.
    pub sessions: usize,
    /// Durable sessions without a connection.
    pub sessions_away: usize,
    /// Subscriptions of all sessions.
    pub subscriptions: usize,
    /// Estimated memory of the subscriptions and of the cache of routes, in bytes.
    pub subscription_memory: usize,
    /// Shared subscriptions.
    pub groups: usize,
    /// Named queues.
    pub named_queues: usize,
    /// Open transactions.
    pub transactions_open: usize,
    /// Prepared transactions.
    pub transactions_prepared: usize,
    /// Memory of both in bytes.
    pub transaction_memory: u64,
    /// Bytes that transactions have in the store.
    pub transaction_disk_bytes: u64,
    /// Retained messages.
    pub retained: usize,
    /// Memory of the retained messages in bytes.
    pub retained_bytes: u64,
    /// Messages of all queues.
    pub queued: u64,
    /// Their sizes' sum.
    pub queued_bytes: u64,
    /// Memory of queued messages in bytes.
    pub queue_memory: usize,
    /// Answers and deliveries that wait for the store.
    pub waiting_for_store: usize,
    /// Wills that may still be published.
    pub wills: usize,
    /// The store takes no more.
    pub store_full: bool,
}

/// One queue as an operator sees it.
#[derive(Clone, Copy, Debug)]
pub struct QueueStatus<'a> {
    /// Client identifier, or `$share/<group>/<filter>`.
    pub name: &'a str,
    /// Its number in the store; `None`: in memory only.
    pub id: Option<QueueId>,
    /// It outlives this process.
    pub lasting: bool,
    /// A client is connected that takes from it.
    pub connected: bool,
    /// Unsettled messages.
    pub messages: u64,
    /// Their sizes' sum.
    pub bytes: u64,
    /// Messages sent and not acknowledged.
    pub inflight: u32,
    /// Memory of its window in bytes.
    pub in_memory_bytes: usize,
    /// A part of it is on the disk alone.
    pub spilled: bool,
    /// What happened to its messages.
    pub counters: QueueCounters,
    /// When the oldest waiting message was published, as far as it is known.
    pub waiting_since: Option<Wall>,
}

/// One session as an operator sees it.
#[derive(Clone, Copy, Debug)]
pub struct SessionStatus<'a> {
    /// Client identifier.
    pub client_id: &'a str,
    /// Its connection.
    pub conn: Option<ConnId>,
    /// It is stored.
    pub durable: bool,
    /// Part of this process.
    pub internal: bool,
    /// Life after the connection.
    pub expiry: SessionExpiry,
    /// When its connection ended; 0 while it is there.
    pub disconnected: Wall,
    /// Subscriptions.
    pub subscriptions: usize,
    /// Deliveries under way.
    pub inflight: u16,
    /// QoS 2 messages received and not released.
    pub inbound: usize,
    /// QoS 0 messages not sent to it.
    pub dropped_qos0: u64,
    /// Messages of its own queue.
    pub queued: u64,
    /// Its connection cannot take more at the moment.
    pub congested: bool,
}

impl Broker {
    /// Counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Gauges. Looks at every queue and session: not for each turn.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        Gauges {
            connections: self.conns.len(),
            sessions: self.sessions.len(),
            sessions_away: self.sessions.iter().filter(|(_, session)| session.conn.is_none()).count(),
            subscriptions: self.subscriptions,
            subscription_memory: self.subscription_memory(),
            groups: self.groups.len(),
            named_queues: self.named_queues as usize,
            transactions_open: self.open_transactions(),
            transactions_prepared: self.prepared.open.len(),
            transaction_memory: self.transaction_bytes,
            transaction_disk_bytes: self.spills.bytes(),
            retained: self.retained.len(),
            retained_bytes: self.retained.bytes(),
            queued: self.queues.iter().map(|(_, queue)| queue.messages()).sum(),
            queued_bytes: self.queues.iter().map(|(_, queue)| queue.bytes()).sum(),
            queue_memory: self.budget.used(),
            waiting_for_store: self.waiters.len(),
            wills: self.wills.len(),
            store_full: self.full,
        }
    }

    fn open_transactions(&self) -> usize {
        let open = self.sessions.iter().filter_map(|(_, session)| session.transactions.as_ref());
        open.map(|own| own.len()).sum()
    }

    /// All queues.
    pub fn queues(&self) -> impl Iterator<Item = QueueStatus<'_>> {
        self.queues.iter().map(|(_, queue)| self.queue_status(queue))
    }

    fn queue_status<'a>(&'a self, queue: &'a Queue) -> QueueStatus<'a> {
        let (name, connected) = match queue.owner() {
            Owner::Session(key) => {
                let session = &self.sessions[key as usize];
                (&*session.client_id, session.conn.is_some())
            }
            Owner::Group(key) => {
                let group = &self.groups[key as usize];
                (group.name(), self.group_is_connected(key))
            }
        };
        QueueStatus {
            name,
            id: queue.id(),
            lasting: queue.is_lasting(),
            connected,
            messages: queue.messages(),
            bytes: queue.bytes(),
            inflight: queue.unsettled(),
            in_memory_bytes: queue.window_memory(),
            spilled: queue.is_spilled(),
            counters: queue.counters(),
            waiting_since: queue.waiting_since(),
        }
    }

    /// All sessions.
    pub fn sessions(&self) -> impl Iterator<Item = SessionStatus<'_>> {
        self.sessions.iter().map(|(_, session)| self.session_status(session))
    }

    fn session_status<'a>(&self, session: &'a Session) -> SessionStatus<'a> {
        SessionStatus {
            client_id: &session.client_id,
            conn: session.conn,
            durable: session.is_durable(),
            internal: session.internal,
            expiry: session.expiry,
            disconnected: session.disconnected,
            subscriptions: session.subscriptions.len(),
            inflight: session.inflight.count(),
            inbound: session.inbound.len(),
            dropped_qos0: session.dropped_qos0,
            queued: self.queues[session.queue as usize].messages(),
            congested: session.congested,
        }
    }
}
