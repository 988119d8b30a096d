//! Every bound of the broker, each with its unit last. Values are the defaults; the configuration may change those that are
//! fields of [`Limits`]. Worst-case memory is computed from them (see [`Limits::memory_worst_case`]).

/// What happens to a message that finds its queue full. Each drop and each refusal is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The publisher is told so (MQTT 5.0: 0x97). MQTT 3.x has no refusal: the publisher's connection is closed, so that it
    /// keeps the message.
    #[default]
    Reject,
    /// The oldest message makes room.
    DropHead,
    /// The new message is dropped for this queue.
    DropTail,
    /// The publisher is not read until there is room; once it has waited for `publisher_wait_millis_max` it is told as with
    /// `Reject`.
    Block,
}

/// Bounds of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// Unsettled messages; `None`: as many as the disk budget holds.
    pub messages_max: Option<u64>,
    /// Sum of their sizes in bytes; `None`: as many as the disk budget holds.
    pub bytes_max: Option<u64>,
    /// What to do at the bound.
    pub overflow: Overflow,
}

/// Queue bounds for the sessions whose client identifier matches a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRule {
    /// `*` stands for any run of characters.
    pub client_pattern: Box<str>,
    /// The bounds.
    pub limits: QueueLimits,
}

/// Memory of a connection in bytes, its buffers apart: what the sum of all bounds reckons with.
pub const CONNECTION_BYTES: u64 = 2048;

/// Memory of a session in bytes, its queue's messages and its subscriptions apart.
pub const SESSION_BYTES: u64 = 1280;

/// The part of the read buffers that is left to packets that need no place, see `net::hub::large`.
pub const SMALL_PACKETS_PART: u64 = 4;

/// What is to be known of a named queue, or of all whose name matches a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDef {
    /// The queue's name. With a `*`, which stands for any run of characters, it is a pattern: then it makes no queue and binds
    /// nothing.
    pub name: Box<str>,
    /// Topic filters whose messages join the queue.
    pub bind: Vec<Box<str>>,
    /// Bounds.
    pub limits: QueueLimits,
    /// Times that a message may come back before it is a dead letter; `None`: for ever.
    pub redeliveries_max: Option<u32>,
    /// The queue where its dead letters go; `None`: they are dropped.
    pub dead_letter: Option<Box<str>>,
    /// Messages that expire are dead letters too.
    pub dead_letter_expired: bool,
}

impl Default for QueueDef {
    fn default() -> Self {
        Self {
            name: "*".into(),
            bind: Vec::new(),
            limits: QueueLimits::default(),
            redeliveries_max: Some(REDELIVERIES_MAX),
            dead_letter: Some(DEAD_LETTERS.into()),
            dead_letter_expired: false,
        }
    }
}

/// [`QueueDef::redeliveries_max`] of queues that nobody defined.
pub const REDELIVERIES_MAX: u32 = 16;

/// [`QueueDef::dead_letter`] of queues that nobody defined.
pub const DEAD_LETTERS: &str = "dead-letters";

/// The configurable bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections over all listeners.
    pub connections_max: u32,
    /// Connections from one IP address; `None`: no bound of its own.
    pub connections_per_address_max: Option<u32>,
    /// Connections that each listener accepts in a second; more wait. `None`: as fast as they come.
    pub accept_rate_max: Option<u32>,
    /// Handshakes (TLS, WebSocket, PROXY protocol) under way; beyond it the oldest one makes room.
    pub handshakes_max: u32,
    /// Sessions, connected or not.
    pub sessions_max: u32,
    /// Longest life of a session after its connection ended, in seconds; `None`: no bound.
    pub session_expiry_max_secs: Option<u32>,
    /// Longest keep alive of an MQTT 5.0 client in seconds, which is told so; `None`: as long as it likes. Older versions cannot
    /// be told.
    pub keep_alive_max_secs: Option<u16>,
    /// Subscriptions of one session.
    pub subscriptions_per_session_max: u32,
    /// Subscriptions of all sessions.
    pub subscriptions_max: u32,
    /// Memory of all subscriptions in bytes.
    pub subscriptions_bytes_max: u64,
    /// Levels of a topic name or filter.
    pub topic_levels_max: u16,
    /// Length of a topic name or filter in bytes.
    pub topic_bytes_max: u16,
    /// Length of a client identifier in bytes.
    pub client_id_bytes_max: u16,
    /// Retained messages.
    pub retained_messages_max: u32,
    /// Memory of all retained messages in bytes.
    pub retained_bytes_max: u64,
    /// Largest packet from a client in bytes.
    pub packet_bytes_max: u32,
    /// Largest packet before the client has logged in, in bytes.
    pub packet_bytes_before_login_max: u32,
    /// Milliseconds from accept to a complete CONNECT.
    pub login_millis_max: u32,
    /// Milliseconds that a publisher waits, unread, for room in a queue that is full and defined so, or, if it speaks STOMP, on
    /// the disk or in any queue; 0: it never waits.
    pub publisher_wait_millis_max: u32,
    /// Unacknowledged QoS 1 and 2 messages from one client (Receive Maximum that we announce).
    pub receive_max: u16,
    /// Unsettled deliveries to one client, whatever it offers.
    pub inflight_messages_max: u16,
    /// Bytes of unsettled deliveries to one client (one message is always allowed).
    pub inflight_bytes_max: u32,
    /// Messages of all queues that are held in memory, in bytes; beyond it queues live on disk only (spill mode).
    pub queue_memory_bytes_max: u64,
    /// The same for one queue.
    pub queue_window_bytes_max: u32,
    /// Bounds of each session's queue, unless a rule says otherwise.
    pub queue: QueueLimits,
    /// The first rule that matches wins.
    pub queue_rules: Vec<QueueRule>,
    /// Named queues, defined or made on first use.
    pub named_queues_max: u32,
    /// What is known of named queues: the first that fits wins, and the default holds for the others.
    pub queue_defs: Vec<QueueDef>,
    /// Open transactions of one client.
    pub transactions_per_session_max: u16,
    /// Messages and acknowledgements of one transaction.
    pub transaction_actions_max: u32,
    /// Memory of one transaction in bytes; so much becomes durable as one write, and what comes on top waits in the store.
    pub transaction_bytes_max: u64,
    /// Bytes of one transaction that may wait in the store.
    pub transaction_disk_bytes_max: u64,
    /// Bytes of all transactions that may wait in the store.
    pub transactions_disk_bytes_max: u64,
    /// Transactions that are prepared and not decided.
    pub prepared_transactions_max: u32,
    /// Seconds after which a prepared transaction that nobody decided is rolled back; `None`: never.
    pub prepared_timeout_secs: Option<u32>,
    /// Memory of all transactions in bytes.
    pub transactions_bytes_max: u64,
    /// Bytes waiting to be sent to one client, from which on publishers to it are slowed and QoS 0 may be dropped.
    pub outbox_high_bytes: u32,
    /// Bytes waiting to be sent to one client that no QoS 0 message may exceed.
    pub outbox_bytes_max: u32,
    /// Bytes of all outboxes.
    pub outboxes_bytes_max: u64,
    /// Bytes of partly received packets over all connections.
    pub read_buffers_bytes_max: u64,
    /// Bytes waiting for the store's writer; beyond it publishers' sockets are not read.
    pub store_queue_bytes_max: u64,
    /// The write-ahead ring in bytes; what it holds is in memory too.
    pub ring_bytes: u64,
    /// redb's page cache in bytes.
    pub store_cache_bytes: u64,
    /// Largest size of the store's file; `None`: as much as the disk has, less `disk_reserve_bytes`.
    pub disk_bytes_max: Option<u64>,
    /// Free space that is left to others on the disk, in bytes.
    pub disk_reserve_bytes: u64,
    /// Seconds after a restart in which a client may come back before its will is published.
    pub will_grace_secs: u32,
    /// Topic alias maximum that we announce to MQTT 5.0 clients.
    pub topic_aliases_max: u16,
    /// Memory that checking one password may take, in bytes; 0: there are none to check.
    pub hash_memory_bytes_max: u64,
    /// Milliseconds that a batch nobody waits for may linger in memory.
    pub store_linger_millis: u32,
    /// Milliseconds that a publisher's acknowledgement may be held, so that a message which all its consumers settle meanwhile
    /// is never written; 0: not at all.
    pub hold_millis: u32,
}

const MIB: u64 = 1 << 20;

/// Logins that wait, and passwords that are remembered as right; see [`Gate`](crate::access::Gate).
const LOGINS_BYTES: u64 = 6 * MIB;

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connections_per_address_max: None,
            accept_rate_max: None,
            handshakes_max: 100,
            sessions_max: 100_000,
            session_expiry_max_secs: None,
            keep_alive_max_secs: None,
            subscriptions_per_session_max: 10_000,
            subscriptions_max: 1_000_000,
            subscriptions_bytes_max: 64 * MIB,
            topic_levels_max: 128,
            topic_bytes_max: 4096,
            client_id_bytes_max: 1024,
            retained_messages_max: 1_000_000,
            retained_bytes_max: 64 * MIB,
            packet_bytes_max: 1 << 20,
            packet_bytes_before_login_max: 64 << 10,
            login_millis_max: 10_000,
            publisher_wait_millis_max: 300_000,
            receive_max: 1000,
            inflight_messages_max: 1000,
            inflight_bytes_max: 1 << 20,
            queue_memory_bytes_max: 8 * MIB,
            queue_window_bytes_max: 256 << 10,
            queue: QueueLimits::default(),
            queue_rules: Vec::new(),
            named_queues_max: 10_000,
            queue_defs: Vec::new(),
            transactions_per_session_max: 16,
            transaction_actions_max: 1024,
            transaction_bytes_max: MIB,
            transaction_disk_bytes_max: 128 * MIB,
            transactions_disk_bytes_max: 256 * MIB,
            prepared_transactions_max: 1000,
            prepared_timeout_secs: None,
            transactions_bytes_max: 2 * MIB,
            outbox_high_bytes: 256 << 10,
            outbox_bytes_max: 1 << 20,
            outboxes_bytes_max: 32 * MIB,
            read_buffers_bytes_max: 16 * MIB,
            store_queue_bytes_max: 4 * MIB,
            ring_bytes: 8 * MIB,
            store_cache_bytes: 2 * MIB,
            disk_bytes_max: None,
            disk_reserve_bytes: 64 * MIB,
            will_grace_secs: 30,
            topic_aliases_max: 32,
            hash_memory_bytes_max: 0,
            store_linger_millis: 500,
            hold_millis: 0,
        }
    }
}

impl Limits {
    /// The sum, in bytes, of everything that these limits allow to be in memory at once, beside a fixed base.
    #[must_use]
    pub fn memory_worst_case(&self) -> u64 {
        self.memory_parts().iter().map(|(_, bytes)| bytes).sum()
    }

    /// One large packet may leave less than a quarter of the read buffers to smaller ones; those get a quarter all the same.
    fn read_buffers_memory_max(&self) -> u64 {
        let beside = u64::from(self.packet_bytes_max) + self.read_buffers_bytes_max / SMALL_PACKETS_PART;
        self.read_buffers_bytes_max.max(beside)
    }

    /// The parts of [`memory_worst_case`](Self::memory_worst_case) with the names of their keys.
    #[must_use]
    pub fn memory_parts(&self) -> [(&'static str, u64); 12] {
        let logins = if self.hash_memory_bytes_max == 0 { 0 } else { LOGINS_BYTES };
        [
            ("connections (2 KiB each)", u64::from(self.connections_max) * CONNECTION_BYTES),
            ("sessions (1.25 KiB each)", u64::from(self.sessions_max) * SESSION_BYTES),
            ("subscriptions", self.subscriptions_bytes_max),
            ("retained messages", self.retained_bytes_max),
            ("queue windows", self.queue_memory_bytes_max),
            ("transactions", self.transactions_bytes_max),
            ("outboxes", self.outboxes_bytes_max),
            ("read buffers", self.read_buffers_memory_max()),
            ("waiting for the store", self.store_queue_bytes_max),
            ("write-ahead ring (its messages)", self.ring_bytes * 2),
            ("store page cache", self.store_cache_bytes),
            ("passwords being checked", self.hash_memory_bytes_max + logins),
        ]
    }
}
