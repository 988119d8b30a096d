//! Answers the admin interface's requests for a snapshot.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::admin::StatusRequests;
use crate::admin::status::{
    ByCause, Health, HealthState, LargestQueues, LinkSnapshot, Memory, QueueStatus, QueueTotals, Retained,
    Sessions, Status, StoreCapacity, StoreStatus, Traffic, Work,
};
use crate::bridge::{LinkConfig, LinkState, LinkStatus};
use crate::broker::{self, Broker};
use crate::driver::gate::Gate;
use crate::driver::shell::Shell;
use crate::limits::{CONNECTION_BYTES, SESSION_BYTES};
use crate::net::hub::Hub;
use crate::settings::{Settings, memory_parts, memory_sum};
use crate::store::Counters;
use crate::time::{Now, Wall};

/// What the snapshot says beside what the hub and the store know.
#[derive(Debug)]
pub struct Reporter {
    worst_case_bytes: u64,
    links: Vec<Arc<LinkStatus>>,
    /// The links' session names, in the same order.
    sessions: Vec<String>,
    set_aside: Option<PathBuf>,
    gate: Arc<Gate>,
}

impl Reporter {
    /// For a process that has just started.
    #[must_use]
    pub fn new(
        settings: &Settings,
        links: Vec<Arc<LinkStatus>>,
        set_aside: Option<PathBuf>,
        gate: Arc<Gate>,
    ) -> Self {
        let parts = memory_parts(&settings.limits, &settings.bridges, &settings.listeners);
        let worst_case_bytes = memory_sum(&parts);
        let sessions = settings.bridges.iter().map(LinkConfig::session_id).collect();
        Self { worst_case_bytes, links, sessions, set_aside, gate }
    }

    pub(super) fn status(&self, hub: &Hub, counters: Option<&Counters>, now: Now) -> Status {
        let broker = hub.broker();
        let gauges = broker.gauges();
        let (queues, queues_total) = queues(broker, now.wall);
        let store = counters.map_or_else(StoreStatus::default, |c| self.store(c));
        let links: Vec<_> = self
            .links
            .iter()
            .zip(&self.sessions)
            .map(|(link, session)| link_snapshot(link, session, &queues))
            .collect();
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_ms: now.mono.as_millis(),
            started_wall: now.wall.0.saturating_sub(now.mono.as_millis()),
            health: self.health(&store, &links, &gauges),
            traffic: traffic(hub, &self.gate),
            queues,
            queues_total,
            sessions: Sessions {
                connected: (gauges.sessions - gauges.sessions_away) as u64,
                disconnected: gauges.sessions_away as u64,
                connected_max: broker.stats().connected_max,
                expired: broker.stats().sessions_expired,
            },
            subscriptions: gauges.subscriptions as u64,
            shared_subscriptions: gauges.groups as u64,
            work: work(broker, &gauges),
            retained: Retained { messages: gauges.retained as u64, bytes: gauges.retained_bytes },
            store,
            links,
            memory: self.memory(hub, &gauges, counters),
        }
    }

    fn store(&self, c: &Counters) -> StoreStatus {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bytes = causes([
            ("ring", get(&c.ring_bytes)),
            ("checkpoint", get(&c.cold_bytes)),
            ("header", get(&c.header_bytes)),
        ]);
        let enqueued = get(&c.messages_enqueued);
        let written: u64 = bytes.values().sum();
        StoreStatus {
            commits: get(&c.commits),
            commits_here: get(&c.commits_here),
            syncs: causes([
                ("ring", get(&c.ring_syncs)),
                ("checkpoint", get(&c.cold_syncs)),
                ("header", get(&c.header_syncs)),
            ]),
            bytes_written: bytes,
            messages_enqueued: enqueued,
            messages_settled: get(&c.messages_settled),
            message_bytes: get(&c.message_bytes_enqueued),
            bytes_written_per_message: if enqueued == 0 { 0.0 } else { written as f64 / enqueued as f64 },
            ring_used_bytes: get(&c.ring_used_bytes),
            ring_size_bytes: get(&c.ring_size_bytes),
            checkpoints: get(&c.checkpoints),
            file_bytes: get(&c.file_bytes),
            capacity: if get(&c.capacity_full) == 0 { StoreCapacity::Free } else { StoreCapacity::Full },
            set_aside: self.set_aside.as_ref().map(|path| path.display().to_string()),
        }
    }

    fn health(&self, store: &StoreStatus, links: &[LinkSnapshot], gauges: &broker::Gauges) -> Health {
        let mut reasons = Vec::new();
        if let Some(path) = &store.set_aside {
            reasons.push(format!("the store could not be opened at start-up; it was set aside as {path} and an empty one serves"));
        }
        if gauges.store_full {
            reasons
                .push("the disk or the disk budget is full: publishers are refused, deliveries go on".into());
        }
        let down = self.links.iter().zip(links).filter(|(link, _)| link.state() != LinkState::Up);
        reasons.extend(down.map(|(_, link)| match &link.last_error {
            Some(error) => format!("link {} is not up: {error}", link.name),
            None => format!("link {} is not up yet", link.name),
        }));
        let twins = self.links.iter().filter(|link| link.snapshot().alarm);
        reasons.extend(twins.map(|link| {
            format!(
                "connections of link {} do not last: does another client use its client identifier?",
                link.snapshot().name
            )
        }));
        let state = if reasons.is_empty() { HealthState::Ready } else { HealthState::Degraded };
        Health { state, reasons }
    }

    fn memory(&self, hub: &Hub, gauges: &broker::Gauges, counters: Option<&Counters>) -> Memory {
        let (outboxes, reading) = hub.buffered();
        let (ring, pending) = counters.map_or((0, 0), |c| {
            (c.ring_used_bytes.load(Ordering::Relaxed), c.pending_bytes.load(Ordering::Relaxed))
        });
        let tracked = [
            ("outboxes", outboxes),
            ("read_buffers", reading),
            ("connections", hub.connections() as u64 * CONNECTION_BYTES),
            ("sessions", gauges.sessions as u64 * SESSION_BYTES),
            ("subscriptions", gauges.subscription_memory as u64),
            ("transactions", gauges.transaction_memory),
            ("queue_windows", gauges.queue_memory as u64),
            ("retained", gauges.retained_bytes),
            ("ring", ring),
            ("waiting_for_store", pending),
        ];
        Memory { tracked: causes(tracked), rss_bytes: rss_bytes(), worst_case_bytes: self.worst_case_bytes }
    }
}

fn link_snapshot(link: &LinkStatus, session: &str, queues: &[QueueStatus]) -> LinkSnapshot {
    let snapshot = link.snapshot();
    let queue = queues.iter().find(|queue| queue.name == session);
    let counters = snapshot.counters;
    LinkSnapshot {
        state: format!("{:?}", snapshot.state).to_lowercase(),
        connected_since: snapshot.connected_since_millis,
        reconnects: counters.connects.saturating_sub(1),
        sent: counters.sent,
        acked: counters.acked,
        resent: counters.resent,
        parked: counters.parked,
        received: counters.received,
        last_error: snapshot.last_error,
        queue_messages: queue.map_or(0, |queue| queue.messages),
        queue_bytes: queue.map_or(0, |queue| queue.bytes),
        name: snapshot.name,
    }
}

fn causes<const N: usize>(pairs: [(&str, u64); N]) -> ByCause {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn traffic(hub: &Hub, gate: &Gate) -> Traffic {
    let (seen, stats) = (hub.traffic(), hub.broker().stats());
    let dropped: BTreeMap<_, _> = causes([
        ("offline", stats.dropped_offline),
        ("congested", stats.dropped_congested),
        ("expired", stats.dropped_expired),
        ("queue_full_oldest", stats.dropped_oldest),
        ("queue_full_newest", stats.dropped_new),
        ("session_ended", stats.dropped_with_session),
        ("refused_quota", stats.refused_quota),
        ("refused_topic", stats.refused_topic),
        ("oversized_for_client", seen.oversized_for_client),
        ("link_busy", seen.dropped_at_port),
        ("retained_full", stats.retained_refused),
    ]);
    let mut refused = causes(gate.refusals.by_cause());
    refused.insert("connections_max".to_owned(), seen.refused_connections);
    refused.insert("login_late".to_owned(), seen.login_timeouts);
    Traffic {
        messages_in: seen.messages_in,
        messages_out: seen.messages_out,
        bytes_in: seen.message_bytes_in,
        bytes_out: seen.message_bytes_out,
        packets_in: seen.packets_in,
        packets_out: seen.packets_out,
        waiting_for_room: hub.waiting_for_room() as u64,
        waited_for_room: seen.waited_for_room,
        socket_bytes_in: seen.bytes_in,
        socket_bytes_out: seen.bytes_out,
        sockets: seen.accepted,
        connects: stats.connects,
        disconnects: seen.closed,
        connections: hub.connections() as u64,
        auth_failures: stats.connects_refused + seen.denied_logins,
        denied: causes([
            ("login", seen.denied_logins),
            ("publish", stats.denied_publishes),
            ("subscribe", stats.denied_subscribes),
            ("deliver", stats.dropped_denied),
            ("login_ended", stats.logins_ended),
        ]),
        malformed: seen.malformed + seen.packet_too_large,
        refused_connections: refused,
        dropped,
    }
}

fn work(broker: &Broker, gauges: &broker::Gauges) -> Work {
    let stats = broker.stats();
    Work {
        named_queues: gauges.named_queues as u64,
        transactions_open: gauges.transactions_open as u64,
        transactions_prepared: gauges.transactions_prepared as u64,
        transactions_disk_bytes: gauges.transaction_disk_bytes,
        transactions: causes([
            ("committed", stats.transactions_committed),
            ("aborted", stats.transactions_aborted),
            ("timed_out", stats.prepared_timed_out),
            ("spilled", stats.transactions_spilled),
        ]),
        dead_letters: stats.dead_letters,
        returned: stats.returned,
    }
}

fn queues(broker: &Broker, wall: Wall) -> (Vec<QueueStatus>, QueueTotals) {
    let mut largest = LargestQueues::new();
    let mut total = QueueTotals::default();
    for queue in broker.queues() {
        total.count += 1;
        total.messages += queue.messages;
        total.bytes += queue.bytes;
        total.in_memory_bytes += queue.in_memory_bytes as u64;
        total.inflight += u64::from(queue.inflight);
        total.spilled += u64::from(queue.spilled);
        largest.offer(queue.bytes, || QueueStatus {
            name: queue.name.to_owned(),
            messages: queue.messages,
            bytes: queue.bytes,
            in_memory_bytes: queue.in_memory_bytes as u64,
            inflight: u64::from(queue.inflight),
            oldest_age_ms: queue.waiting_since.map(|since| wall.millis_since(since)),
            spilled: queue.spilled,
            dropped: causes([
                ("denied", queue.counters.denied),
                ("expired", queue.counters.expired),
                ("queue_full_oldest", queue.counters.dropped_oldest),
                ("queue_full_newest", queue.counters.dropped_new),
                ("refused_by_client", queue.counters.refused),
            ]),
        });
    }
    (largest.into_vec(), total)
}

/// The process's resident set; 0 where the system does not tell.
fn rss_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// Answers for ever.
pub async fn serve(shell: Rc<Shell>, reporter: Rc<Reporter>, mut requests: StatusRequests) {
    while let Some(answer) = requests.recv().await {
        let now = shell.now();
        let hub = shell.hub.borrow();
        let status = shell
            .with_store(|store| reporter.status(&hub, Some(store.counters()), now))
            .unwrap_or_else(|| reporter.status(&hub, None, now));
        // The asker may have given up.
        let _ = answer.send(status);
    }
}
