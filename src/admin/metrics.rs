//! The metrics: one table that names each, says what it means and where its values come from, and nothing else.
//!
//! Names start with [`PREFIX`] and end with their unit (counters then with `_total`, which the encoder adds). Label values
//! are bounded: QoS levels, causes and parts that code names, links of the configuration, and the
//! [`QUEUES_LABELLED_MAX`] largest queues with names cut to [`LABEL_BYTES_MAX`]; the sums cover every queue.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::status::{ByCause, HealthState, LinkSnapshot, QueueStatus, Status, StoreCapacity};

/// What every name starts with.
pub const PREFIX: &str = "tidegate";

/// `Content-Type` of the text.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// Queues that have metrics of their own.
pub const QUEUES_LABELLED_MAX: usize = 100;

/// Longest label value in bytes.
pub const LABEL_BYTES_MAX: usize = 128;

type Labels = Vec<(&'static str, String)>;

/// One metric of the table.
struct Family {
    name: &'static str,
    kind: MetricType,
    unit: Option<Unit>,
    help: &'static str,
    read: fn(&Status, &mut Samples),
}

/// What a family's `read` leaves behind.
#[derive(Default)]
struct Samples(Vec<(Labels, Value)>);

#[derive(Clone, Copy)]
enum Value {
    Whole(u64),
    Real(f64),
}

impl Samples {
    fn one(&mut self, value: u64) {
        self.0.push((Vec::new(), Value::Whole(value)));
    }

    fn flag(&mut self, set: bool) {
        self.one(u64::from(set));
    }

    fn seconds(&mut self, millis: u64) {
        self.0.push((Vec::new(), seconds(millis)));
    }

    fn with<const N: usize>(&mut self, labels: [(&'static str, &str); N], value: Value) {
        let labels = labels.into_iter().map(|(name, value)| (name, clean_label(value))).collect();
        self.0.push((labels, value));
    }

    fn by_qos(&mut self, values: [u64; 3]) {
        for (qos, value) in ["0", "1", "2"].into_iter().zip(values) {
            self.with([("qos", qos)], Value::Whole(value));
        }
    }

    fn by(&mut self, label: &'static str, values: &ByCause) {
        for (cause, &value) in values {
            self.with([(label, cause)], Value::Whole(value));
        }
    }

    fn queues(&mut self, status: &Status, read: fn(&QueueStatus) -> u64) {
        for queue in labelled_queues(status) {
            self.with([("queue", &queue.name)], Value::Whole(read(queue)));
        }
    }

    fn links(&mut self, status: &Status, read: fn(&LinkSnapshot) -> u64) {
        for link in &status.links {
            self.with([("link", &link.name)], Value::Whole(read(link)));
        }
    }
}

fn labelled_queues(status: &Status) -> impl Iterator<Item = &QueueStatus> {
    status.queues.iter().take(QUEUES_LABELLED_MAX)
}

#[expect(clippy::cast_precision_loss, reason = "a metric in seconds needs no more than 53 bits")]
fn seconds(millis: u64) -> Value {
    Value::Real(millis as f64 / 1000.0)
}

/// Client identifiers come from peers: the encoder escapes quotes and line ends, the length is cut here.
fn clean_label(value: &str) -> String {
    let mut end = value.len().min(LABEL_BYTES_MAX);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    value[..end].replace(|c: char| c.is_control(), "?")
}

const COUNTER: MetricType = MetricType::Counter;
const GAUGE: MetricType = MetricType::Gauge;

macro_rules! families {
    ($($name:literal $kind:ident $unit:expr, $help:literal, $read:expr;)+) => {
        const FAMILIES: &[Family] =
            &[$(Family { name: $name, kind: $kind, unit: $unit, help: $help, read: $read }),+];
    };
}

const BYTES: Option<Unit> = Some(Unit::Bytes);
const SECONDS: Option<Unit> = Some(Unit::Seconds);

#[rustfmt::skip]
families! {
    "build_info" GAUGE None, "Always 1; the label holds the version", |s, out| out.with([("version", &s.version)], Value::Whole(1));
    "uptime" GAUGE SECONDS, "Time since the process started", |s, out| out.seconds(s.uptime_ms);
    "start_time" GAUGE SECONDS, "Start of the process since the Unix epoch", |s, out| out.seconds(s.started_wall);
    "ready" GAUGE None, "1 when clients are served", |s, out| out.flag(s.health.state.is_ready());
    "degraded" GAUGE None, "1 when something needs attention", |s, out| out.flag(s.health.state == HealthState::Degraded);

    "received_messages" COUNTER None, "Messages from clients", |s, out| out.by_qos(s.traffic.messages_in);
    "sent_messages" COUNTER None, "Messages to clients", |s, out| out.by_qos(s.traffic.messages_out);
    "received" COUNTER BYTES, "Topics and payloads from clients", |s, out| out.by_qos(s.traffic.bytes_in);
    "sent" COUNTER BYTES, "Topics and payloads to clients", |s, out| out.by_qos(s.traffic.bytes_out);
    "dropped_messages" COUNTER None, "Messages dropped by cause", |s, out| out.by("cause", &s.traffic.dropped);
    "waiting_publishers" GAUGE None, "Connections that are not read because their message finds no room", |s, out| out.one(s.traffic.waiting_for_room);
    "delayed_messages" COUNTER None, "Messages and commits that had to wait for room", |s, out| out.one(s.traffic.waited_for_room);
    "refused_connections" COUNTER None, "Connections turned away before they had a session, by cause", |s, out| out.by("cause", &s.traffic.refused_connections);
    "connects" COUNTER None, "Sessions opened or resumed", |s, out| out.one(s.traffic.connects);
    "disconnects" COUNTER None, "Connections that ended", |s, out| out.one(s.traffic.disconnects);
    "connections" GAUGE None, "Connections open now", |s, out| out.one(s.traffic.connections);
    "auth_failures" COUNTER None, "Logins refused", |s, out| out.one(s.traffic.auth_failures);
    "denied" COUNTER None, "Refused by logins and access rules, by what was asked for", |s, out| out.by("action", &s.traffic.denied);
    "malformed_packets" COUNTER None, "Packets that were no valid packets", |s, out| out.one(s.traffic.malformed);

    "sessions_connected" GAUGE None, "Sessions with a connection", |s, out| out.one(s.sessions.connected);
    "sessions_disconnected" GAUGE None, "Sessions kept for their client's return", |s, out| out.one(s.sessions.disconnected);
    "subscriptions" GAUGE None, "Subscriptions of all sessions", |s, out| out.one(s.subscriptions);
    "retained_messages" GAUGE None, "Retained messages", |s, out| out.one(s.retained.messages);
    "retained" GAUGE BYTES, "Size of the retained messages", |s, out| out.one(s.retained.bytes);

    "queues" GAUGE None, "Queues", |s, out| out.one(s.queues_total.count);
    "queues_spilled" GAUGE None, "Queues that live on disk only", |s, out| out.one(s.queues_total.spilled);
    "queued_messages" GAUGE None, "Unsettled messages of all queues", |s, out| out.one(s.queues_total.messages);
    "queued" GAUGE BYTES, "Size of the unsettled messages of all queues", |s, out| out.one(s.queues_total.bytes);
    "queued_memory" GAUGE BYTES, "The part of them that is held in memory", |s, out| out.one(s.queues_total.in_memory_bytes);
    "inflight_messages" GAUGE None, "Messages delivered and not yet settled", |s, out| out.one(s.queues_total.inflight);
    "queue_messages" GAUGE None, "Unsettled messages of one of the largest queues", |s, out| out.queues(s, |q| q.messages);
    "queue" GAUGE BYTES, "Size of the unsettled messages of one of the largest queues", |s, out| out.queues(s, |q| q.bytes);
    "queue_inflight_messages" GAUGE None, "Messages of one of the largest queues delivered and not yet settled", |s, out| out.queues(s, |q| q.inflight);
    "queue_oldest_age" GAUGE SECONDS, "Age of the oldest unsettled message of one of the largest queues", queue_ages;
    "queue_dropped_messages" COUNTER None, "Messages dropped from one of the largest queues by cause", queue_drops;

    "named_queues" GAUGE None, "Named queues", |s, out| out.one(s.work.named_queues);
    "dead_letters" COUNTER None, "Messages that became dead letters", |s, out| out.one(s.work.dead_letters);
    "returned_messages" COUNTER None, "Messages that consumers gave back to their queue", |s, out| out.one(s.work.returned);
    "transactions" COUNTER None, "Transactions by what became of them", |s, out| out.by("outcome", &s.work.transactions);
    "transactions_open" GAUGE None, "Transactions open now", |s, out| out.one(s.work.transactions_open);
    "transactions_prepared" GAUGE None, "Transactions that wait for a decision", |s, out| out.one(s.work.transactions_prepared);
    "transactions_disk" GAUGE BYTES, "What transactions have on the disk", |s, out| out.one(s.work.transactions_disk_bytes);

    "store_commits" COUNTER None, "Group commits", |s, out| out.one(s.store.commits);
    "store_lone_commits" COUNTER None, "Commits that the broker's own thread has made, because the disk is quick", |s, out| out.one(s.store.commits_here);
    "store_syncs" COUNTER None, "Syncs to the device by cause", |s, out| out.by("cause", &s.store.syncs);
    "store_written" COUNTER BYTES, "Bytes handed to the file by cause", |s, out| out.by("cause", &s.store.bytes_written);
    "store_enqueued_messages" COUNTER None, "Messages enqueued", |s, out| out.one(s.store.messages_enqueued);
    "store_settled_messages" COUNTER None, "Messages settled", |s, out| out.one(s.store.messages_settled);
    "store_enqueued" COUNTER BYTES, "Size of the enqueued messages", |s, out| out.one(s.store.message_bytes);
    "store_ring_used" GAUGE BYTES, "Ring that no checkpoint has passed yet", |s, out| out.one(s.store.ring_used_bytes);
    "store_ring_size" GAUGE BYTES, "Size of the ring", |s, out| out.one(s.store.ring_size_bytes);
    "store_checkpoints" COUNTER None, "Checkpoints", |s, out| out.one(s.store.checkpoints);
    "store_file" GAUGE BYTES, "Space that the store takes on the disk", |s, out| out.one(s.store.file_bytes);
    "store_full" GAUGE None, "1 when the store takes no more messages", |s, out| out.flag(s.store.capacity == StoreCapacity::Full);
    "store_set_aside" GAUGE None, "1 when a damaged store was set aside at start-up", |s, out| out.flag(s.store.set_aside.is_some());

    "link_up" GAUGE None, "1 when the upstream is connected", |s, out| out.links(s, |l| u64::from(l.connected_since.is_some()));
    "link_reconnects" COUNTER None, "Connections after the first one", |s, out| out.links(s, |l| l.reconnects);
    "link_sent_messages" COUNTER None, "Messages sent upstream", |s, out| out.links(s, |l| l.sent);
    "link_acked_messages" COUNTER None, "Messages that the upstream took over", |s, out| out.links(s, |l| l.acked);
    "link_resent_messages" COUNTER None, "Messages sent again after a lost connection", |s, out| out.links(s, |l| l.resent);
    "link_parked_messages" COUNTER None, "Messages that the upstream refused for good", |s, out| out.links(s, |l| l.parked);
    "link_received_messages" COUNTER None, "Messages that came from the upstream", |s, out| out.links(s, |l| l.received);
    "link_queue_messages" GAUGE None, "Messages that wait for the upstream", |s, out| out.links(s, |l| l.queue_messages);
    "link_queue" GAUGE BYTES, "Size of the messages that wait for the upstream", |s, out| out.links(s, |l| l.queue_bytes);

    "memory_tracked" GAUGE BYTES, "Memory that the broker counts itself by part", |s, out| out.by("part", &s.memory.tracked);
    "memory_resident" GAUGE BYTES, "Resident set of the process", |s, out| out.one(s.memory.rss_bytes);
    "memory_worst_case" GAUGE BYTES, "The most that the limits allow", |s, out| out.one(s.memory.worst_case_bytes);
}

fn queue_ages(status: &Status, out: &mut Samples) {
    for queue in labelled_queues(status) {
        if let Some(age) = queue.oldest_age_ms {
            out.with([("queue", &queue.name)], seconds(age));
        }
    }
}

fn queue_drops(status: &Status, out: &mut Samples) {
    for queue in labelled_queues(status) {
        for (cause, &count) in &queue.dropped {
            out.with([("queue", &queue.name), ("cause", cause)], Value::Whole(count));
        }
    }
}

/// The metrics of `status` in the Prometheus text format.
#[must_use]
pub fn render(status: Status) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Snapshot(status)));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry).expect("a String takes every write");
    text
}

#[derive(Debug)]
struct Snapshot(Status);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for family in FAMILIES {
            let mut samples = Samples::default();
            (family.read)(&self.0, &mut samples);
            if !samples.0.is_empty() {
                encode_family(family, &samples, &mut encoder)?;
            }
        }
        Ok(())
    }
}

fn encode_family(
    family: &Family,
    samples: &Samples,
    encoder: &mut DescriptorEncoder,
) -> Result<(), fmt::Error> {
    let mut metric =
        encoder.encode_descriptor(family.name, family.help, family.unit.as_ref(), family.kind)?;
    for (labels, value) in &samples.0 {
        let place = metric.encode_family(labels)?;
        match (family.kind, *value) {
            (MetricType::Counter, Value::Whole(count)) => ConstCounter::new(count).encode(place)?,
            (MetricType::Counter, Value::Real(count)) => ConstCounter::new(count).encode(place)?,
            (_, Value::Whole(level)) => ConstGauge::new(level).encode(place)?,
            (_, Value::Real(level)) => ConstGauge::new(level).encode(place)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn busy() -> Status {
        let mut status = Status { version: "1".into(), uptime_ms: 1500, ..Status::default() };
        status.traffic.messages_in = [1, 2, 3];
        status.traffic.dropped.insert("expired".into(), 4);
        status.traffic.denied.insert("login".into(), 5);
        for i in 0..QUEUES_LABELLED_MAX + 5 {
            let dropped = [("full".to_owned(), 1)].into();
            let name = format!("q{i}");
            status.queues.push(QueueStatus { name, oldest_age_ms: Some(250), dropped, ..Default::default() });
        }
        status.links.push(LinkSnapshot { name: "dc".into(), connected_since: Some(1), ..Default::default() });
        status.store.syncs.insert("commit".into(), 9);
        status.store.bytes_written.insert("ring".into(), 4096);
        status.traffic.refused_connections.insert("address_full".into(), 3);
        status.memory.tracked.insert("windows".into(), 77);
        status
    }

    #[test]
    fn every_metric_of_the_table_appears_with_prefix_unit_and_value() {
        let text = render(busy());
        for family in FAMILIES {
            assert!(text.contains(&format!("# HELP {PREFIX}_{}", family.name)), "{} is missing", family.name);
        }
        for line in [
            "tidegate_uptime_seconds 1.5",
            r#"tidegate_received_messages_total{qos="1"} 2"#,
            r#"tidegate_dropped_messages_total{cause="expired"} 4"#,
            r#"tidegate_denied_total{action="login"} 5"#,
            r#"tidegate_store_written_bytes_total{cause="ring"} 4096"#,
            r#"tidegate_queue_dropped_messages_total{queue="q0",cause="full"} 1"#,
            r#"tidegate_queue_oldest_age_seconds{queue="q0"} 0.25"#,
            r#"tidegate_link_up{link="dc"} 1"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in:\n{text}");
        }
    }

    #[test]
    fn names_are_unique_and_do_not_repeat_their_unit() {
        let mut seen = HashSet::new();
        for family in FAMILIES {
            assert!(seen.insert(family.name), "{} twice", family.name);
            let ends_in_unit = ["_bytes", "_seconds", "_total"].iter().any(|end| family.name.ends_with(end));
            assert!(!ends_in_unit, "{}: the encoder adds units and _total", family.name);
        }
    }

    #[test]
    fn the_number_and_length_of_label_values_is_bounded() {
        let mut status = busy();
        status.queues[0].name = "é\n".repeat(1000);
        let text = render(status);
        let series = text.lines().filter(|line| line.starts_with("tidegate_queue_messages{")).count();
        assert_eq!(series, QUEUES_LABELLED_MAX);
        assert!(text.lines().all(|line| line.len() < 3 * LABEL_BYTES_MAX));
    }

    #[test]
    fn a_name_with_quotes_cannot_forge_a_metric() {
        let mut status = Status::default();
        status.queues.push(QueueStatus { name: "a\"} 1\nforged 2".into(), ..QueueStatus::default() });
        assert!(!render(status).lines().any(|line| line.starts_with("forged")));
    }
}
