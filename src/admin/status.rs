//! The snapshot that the admin interface shows: plain data, made by the driver, written as JSON, read back by the command line.
//!
//! Every field has a default, so that a client of another version still reads what it knows. Lists are bounded: queues by
//! [`QUEUES_LISTED_MAX`]; links, causes and parts by the configuration and the code that names them. Units come last in names.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use serde::{Deserialize, Serialize};

/// Queues that a [`Status`] lists: those with the most bytes.
pub const QUEUES_LISTED_MAX: usize = 1000;

/// Counters by the name of their cause. Causes are named by code, never by peers.
pub type ByCause = BTreeMap<String, u64>;

/// Everything there is to see of a running gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Milliseconds since the process started.
    pub uptime_ms: u64,
    /// When the process started, in milliseconds since the Unix epoch on the stable timeline.
    pub started_wall: u64,
    /// How it is.
    pub health: Health,
    /// What went through since the start.
    pub traffic: Traffic,
    /// The queues with the most bytes, largest first, at most [`QUEUES_LISTED_MAX`].
    pub queues: Vec<QueueStatus>,
    /// Sums over all queues, listed or not.
    pub queues_total: QueueTotals,
    /// Sessions.
    pub sessions: Sessions,
    /// Subscriptions of all sessions.
    pub subscriptions: u64,
    /// Of these, shared ones: each group counts once.
    pub shared_subscriptions: u64,
    /// Named queues and transactions.
    pub work: Work,
    /// Retained messages.
    pub retained: Retained,
    /// The store.
    pub store: StoreStatus,
    /// Links to upstream brokers.
    pub links: Vec<LinkSnapshot>,
    /// Memory.
    pub memory: Memory,
}

/// How the gateway is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// In one word.
    pub state: HealthState,
    /// Why it is not simply ready; sentences for a person.
    pub reasons: Vec<String>,
}

/// Health in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    /// The broker does not answer. Only the admin interface says so, never the broker itself.
    NotLive,
    /// It answers, and does not serve clients yet or any more.
    #[default]
    Live,
    /// It serves clients.
    Ready,
    /// It serves clients, and something needs attention.
    Degraded,
}

impl HealthState {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotLive => "not_live",
            Self::Live => "live",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
        }
    }

    /// The broker answers.
    #[must_use]
    pub fn is_live(self) -> bool {
        self != Self::NotLive
    }

    /// It serves clients.
    #[must_use]
    pub fn is_ready(self) -> bool {
        matches!(self, Self::Ready | Self::Degraded)
    }
}

/// Counters since the start. Arrays are indexed by QoS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Messages from clients.
    pub messages_in: [u64; 3],
    /// Messages to clients.
    pub messages_out: [u64; 3],
    /// Their topics and payloads in bytes.
    pub bytes_in: [u64; 3],
    /// Their topics and payloads in bytes.
    pub bytes_out: [u64; 3],
    /// Packets from clients, of any type.
    pub packets_in: u64,
    /// Packets to clients, of any type.
    pub packets_out: u64,
    /// Connections that are not read just now because their last message or commit waits for room.
    pub waiting_for_room: u64,
    /// Messages and commits that had to wait for room.
    pub waited_for_room: u64,
    /// Bytes read from clients.
    pub socket_bytes_in: u64,
    /// Bytes written to clients.
    pub socket_bytes_out: u64,
    /// Sockets accepted.
    pub sockets: u64,
    /// Sessions opened or resumed.
    pub connects: u64,
    /// Connections that ended after they had a session.
    pub disconnects: u64,
    /// Connections open now.
    pub connections: u64,
    /// Logins refused for a wrong name, password or certificate.
    pub auth_failures: u64,
    /// What access rules and logins refused, by what was asked for.
    #[serde(default)]
    pub denied: ByCause,
    /// Packets that were no valid packets.
    pub malformed: u64,
    /// Connections that were turned away before they had a session, by cause.
    pub refused_connections: ByCause,
    /// Messages dropped, by cause.
    pub dropped: ByCause,
}

/// One queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStatus {
    /// Its owner: a client identifier, a link's or a shared subscription's name.
    pub name: String,
    /// Unsettled messages.
    pub messages: u64,
    /// Their sizes' sum in bytes.
    pub bytes: u64,
    /// The part that is held in memory, in bytes.
    pub in_memory_bytes: u64,
    /// Delivered and not yet settled.
    pub inflight: u64,
    /// Age of the oldest unsettled message in milliseconds; `None` when the queue is empty or the age is not known without
    /// reading the disk.
    pub oldest_age_ms: Option<u64>,
    /// New messages queue behind others that live on disk only.
    pub spilled: bool,
    /// Messages dropped, by cause.
    pub dropped: ByCause,
}

/// Sums over all queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueTotals {
    /// Queues.
    pub count: u64,
    /// Unsettled messages.
    pub messages: u64,
    /// Their sizes' sum in bytes.
    pub bytes: u64,
    /// The part that is held in memory, in bytes.
    pub in_memory_bytes: u64,
    /// Delivered and not yet settled.
    pub inflight: u64,
    /// Queues in spill mode.
    pub spilled: u64,
}

/// Sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sessions {
    /// With a connection.
    pub connected: u64,
    /// Without one, kept for its return.
    pub disconnected: u64,
    /// Most of them with a connection at a time.
    pub connected_max: u64,
    /// Ended because nobody came back in time.
    pub expired: u64,
}

/// Named queues and transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Work {
    /// Named queues.
    pub named_queues: u64,
    /// Transactions that are open now.
    pub transactions_open: u64,
    /// Transactions that are prepared and not decided.
    pub transactions_prepared: u64,
    /// Bytes that transactions have on the disk.
    pub transactions_disk_bytes: u64,
    /// Transactions by what became of them: `committed`, `aborted`, and of these `timed_out`; `spilled` outgrew the memory for them.
    pub transactions: ByCause,
    /// Messages that became dead letters.
    pub dead_letters: u64,
    /// Messages that consumers gave back to their queue.
    pub returned: u64,
}

/// Retained messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Retained {
    /// How many.
    pub messages: u64,
    /// Their sizes' sum in bytes.
    pub bytes: u64,
}

/// The store since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreStatus {
    /// Group commits.
    pub commits: u64,
    /// Those of a lone message that the broker's own thread has made, because the disk is quick.
    pub commits_here: u64,
    /// Syncs to the device, by cause.
    pub syncs: ByCause,
    /// Bytes handed to the file, by cause.
    pub bytes_written: ByCause,
    /// Messages enqueued; one message for several queues counts once for each.
    pub messages_enqueued: u64,
    /// Messages settled.
    pub messages_settled: u64,
    /// Sizes of the enqueued messages' bodies, in bytes.
    pub message_bytes: u64,
    /// All bytes written divided by the messages enqueued; 0 before the first one.
    pub bytes_written_per_message: f64,
    /// Bytes of the ring that no checkpoint has passed yet.
    pub ring_used_bytes: u64,
    /// Size of the ring in bytes.
    pub ring_size_bytes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Space that the file takes on the disk, in bytes.
    pub file_bytes: u64,
    /// Whether it takes more.
    pub capacity: StoreCapacity,
    /// A damaged file was moved here at start-up and the store started empty: an alarm.
    pub set_aside: Option<String>,
}

impl StoreStatus {
    /// Sum of the bytes written.
    #[must_use]
    pub fn bytes_written_total(&self) -> u64 {
        self.bytes_written.values().sum()
    }

    /// Sum of the syncs.
    #[must_use]
    pub fn syncs_total(&self) -> u64 {
        self.syncs.values().sum()
    }
}

/// Whether the store takes more messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreCapacity {
    /// It does.
    #[default]
    Free,
    /// The disk or the disk budget is full.
    Full,
}

/// One link to an upstream broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkSnapshot {
    /// From the configuration.
    pub name: String,
    /// In one word, such as `connected` or `waiting`.
    pub state: String,
    /// Since when it is connected, in milliseconds since the Unix epoch; `None` when it is not.
    pub connected_since: Option<u64>,
    /// Connections after the first one.
    pub reconnects: u64,
    /// Messages sent upstream, repetitions included.
    pub sent: u64,
    /// Messages that the upstream took over.
    pub acked: u64,
    /// Messages sent again after a lost connection.
    pub resent: u64,
    /// Messages that the upstream refused for good.
    pub parked: u64,
    /// Messages that came from the upstream.
    pub received: u64,
    /// The latest failure, for a person.
    pub last_error: Option<String>,
    /// Messages that wait for the upstream.
    pub queue_messages: u64,
    /// Their sizes' sum in bytes.
    pub queue_bytes: u64,
}

/// Memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// What the broker counts itself, in bytes, by part.
    pub tracked: BTreeMap<String, u64>,
    /// Resident set of the process in bytes; 0 when the system does not tell.
    pub rss_bytes: u64,
    /// The most that the limits allow, in bytes.
    pub worst_case_bytes: u64,
}

/// Collects the largest queues of any number without building a [`QueueStatus`] for each.
#[derive(Debug, Default)]
pub struct LargestQueues {
    /// Bytes and place in `kept`, smallest first.
    smallest: BinaryHeap<Reverse<(u64, usize)>>,
    kept: Vec<QueueStatus>,
}

impl LargestQueues {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a queue of `bytes` bytes if it is among the largest so far; only then `status` is called.
    pub fn offer(&mut self, bytes: u64, status: impl FnOnce() -> QueueStatus) {
        if self.kept.len() < QUEUES_LISTED_MAX {
            self.smallest.push(Reverse((bytes, self.kept.len())));
            self.kept.push(status());
            return;
        }
        if let Some(mut least) = self.smallest.peek_mut()
            && least.0.0 < bytes
        {
            let place = least.0.1;
            *least = Reverse((bytes, place));
            self.kept[place] = status();
        }
    }

    /// The largest ones, largest first; equal ones by name.
    #[must_use]
    pub fn into_vec(self) -> Vec<QueueStatus> {
        let mut queues = self.kept;
        queues.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        queues
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_json_and_unknown_or_missing_fields_do_no_harm() {
        let mut status = Status { version: "1.2.3".into(), uptime_ms: 5, ..Status::default() };
        status.queues.push(QueueStatus {
            name: "a".into(),
            oldest_age_ms: Some(7),
            ..QueueStatus::default()
        });
        status.traffic.dropped.insert("expired".into(), 3);
        status.health.state = HealthState::Degraded;
        let json = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
        let sparse: Status = serde_json::from_str(r#"{"version":"9","from_the_future":1}"#).unwrap();
        assert_eq!(sparse, Status { version: "9".into(), ..Status::default() });
    }

    #[test]
    fn only_the_largest_queues_are_listed_and_the_largest_comes_first() {
        let mut largest = LargestQueues::new();
        let mut built = 0;
        for bytes in (0..3000u64).rev() {
            largest.offer(bytes, || {
                built += 1;
                QueueStatus { name: format!("q{bytes}"), bytes, ..QueueStatus::default() }
            });
        }
        largest.offer(u64::MAX, || QueueStatus {
            name: "top".into(),
            bytes: u64::MAX,
            ..QueueStatus::default()
        });
        let listed = largest.into_vec();
        assert_eq!(built, QUEUES_LISTED_MAX, "small queues cost no status");
        assert_eq!(listed.len(), QUEUES_LISTED_MAX);
        assert_eq!((listed[0].name.as_str(), listed[1].name.as_str()), ("top", "q2999"));
        assert_eq!(listed.last().unwrap().name, "q2001");
    }

    #[test]
    fn ready_and_degraded_serve_clients_and_live_does_not() {
        assert!(HealthState::Ready.is_ready() && HealthState::Degraded.is_ready());
        assert!(HealthState::Live.is_live() && !HealthState::Live.is_ready());
        assert!(!HealthState::NotLive.is_live());
    }
}
