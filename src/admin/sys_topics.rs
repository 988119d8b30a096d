//! The status as topics below `$SYS/broker/`, by the names that dashboards for Mosquitto read, and one group of topics per queue.
//!
//! Averages (`load/...`) are exponential, per minute, over 1, 5 and 15 minutes. They are brought up to date whenever the topics are
//! made: what happened since the time before counts as spread evenly over it, so nothing has to be sampled while nobody looks.
//! Bound: the queues with the most bytes, [`QUEUES_MAX`] of them.

use std::fmt::{Display, Write};

use super::status::{QueueStatus, Status};

/// Queues with topics of their own: those with the most bytes.
pub const QUEUES_MAX: usize = 100;
/// Averages are left as they are within so short a time.
const LOAD_STEP_MILLIS_MIN: u64 = 1_000;
/// The averages' times in minutes.
const LOAD_MINUTES: [(&str, f64); 3] = [("1min", 1.0), ("5min", 5.0), ("15min", 15.0)];
/// What averages are made of.
const LOADS: usize = 9;
const LOAD_NAMES: [&str; LOADS] = [
    "messages/received",
    "messages/sent",
    "publish/received",
    "publish/sent",
    "publish/dropped",
    "bytes/received",
    "bytes/sent",
    "sockets",
    "connections",
];
const PREFIX: &str = "$SYS/broker/";

/// Makes the topics. Remembers the averages.
#[derive(Debug, Default)]
pub struct SysTopics {
    averages: [[f64; LOAD_MINUTES.len()]; LOADS],
    before: [u64; LOADS],
    before_ms: u64,
    heap_max: u64,
}

impl SysTopics {
    /// Topics and payloads for `status`.
    pub fn make(&mut self, status: &Status) -> Vec<(String, String)> {
        self.average(status);
        let tracked = status.memory.tracked.values().sum::<u64>();
        let heap = if status.memory.rss_bytes > 0 { status.memory.rss_bytes } else { tracked };
        self.heap_max = self.heap_max.max(heap);
        let mut out = Topics(Vec::with_capacity(96));
        general(&mut out, status);
        out.add("heap/current", heap);
        out.add("heap/maximum", self.heap_max);
        self.loads(&mut out);
        status.queues.iter().take(QUEUES_MAX).for_each(|queue| one_queue(&mut out, queue));
        out.0
    }

    fn average(&mut self, status: &Status) {
        let counts = counts(status);
        let millis = status.uptime_ms.saturating_sub(self.before_ms);
        if millis < LOAD_STEP_MILLIS_MIN {
            return;
        }
        let minutes = millis as f64 / 60_000.0;
        for ((average, count), before) in self.averages.iter_mut().zip(counts).zip(self.before) {
            let rate = count.saturating_sub(before) as f64 / minutes;
            for (value, (_, span)) in average.iter_mut().zip(LOAD_MINUTES) {
                *value = rate + (*value - rate) * (-minutes / span).exp();
            }
        }
        self.before = counts;
        self.before_ms = status.uptime_ms;
    }

    fn loads(&self, out: &mut Topics) {
        for (name, averages) in LOAD_NAMES.iter().zip(self.averages) {
            for ((span, _), value) in LOAD_MINUTES.iter().zip(averages) {
                out.add(&format!("load/{name}/{span}"), format_args!("{value:.2}"));
            }
        }
    }
}

#[derive(Debug)]
struct Topics(Vec<(String, String)>);

impl Topics {
    fn add(&mut self, name: &str, value: impl Display) {
        self.0.push((format!("{PREFIX}{name}"), value.to_string()));
    }
}

fn dropped(status: &Status) -> u64 {
    status.traffic.dropped.values().sum()
}

/// In the order of [`LOAD_NAMES`].
fn counts(status: &Status) -> [u64; LOADS] {
    let t = &status.traffic;
    [
        t.packets_in,
        t.packets_out,
        t.messages_in.iter().sum(),
        t.messages_out.iter().sum(),
        dropped(status),
        t.socket_bytes_in,
        t.socket_bytes_out,
        t.sockets,
        t.connects,
    ]
}

fn general(out: &mut Topics, status: &Status) {
    let (t, sessions) = (&status.traffic, &status.sessions);
    let stored = status.queues_total.messages + status.retained.messages;
    out.add("version", format_args!("tidegate version {}", status.version));
    out.add("uptime", format_args!("{} seconds", status.uptime_ms / 1000));
    let (here, away) = (sessions.connected, sessions.disconnected);
    for (name, value) in [
        ("clients/total", here + away),
        ("clients/connected", here),
        ("clients/active", here),
        ("clients/disconnected", away),
        ("clients/inactive", away),
        ("clients/maximum", sessions.connected_max),
        ("clients/expired", sessions.expired),
        ("messages/received", t.packets_in),
        ("messages/sent", t.packets_out),
        ("messages/stored", stored),
        ("messages/inflight", status.queues_total.inflight),
        ("store/messages/count", stored),
        ("store/messages/bytes", status.queues_total.bytes + status.retained.bytes),
        ("subscriptions/count", status.subscriptions),
        ("shared_subscriptions/count", status.shared_subscriptions),
        ("retained messages/count", status.retained.messages),
        ("publish/messages/received", t.messages_in.iter().sum()),
        ("publish/messages/sent", t.messages_out.iter().sum()),
        ("publish/messages/dropped", dropped(status)),
        ("publish/bytes/received", t.bytes_in.iter().sum()),
        ("publish/bytes/sent", t.bytes_out.iter().sum()),
        ("bytes/received", t.socket_bytes_in),
        ("bytes/sent", t.socket_bytes_out),
    ] {
        out.add(name, value);
    }
}

fn one_queue(out: &mut Topics, queue: &QueueStatus) {
    let name = level(&queue.name);
    let mut add = |what: &str, value: u64| out.add(&format!("queues/{name}/{what}"), value);
    add("messages", queue.messages);
    add("bytes", queue.bytes);
    add("inflight", queue.inflight);
    add("dropped", queue.dropped.values().sum());
    if let Some(millis) = queue.oldest_age_ms {
        add("oldest_age_seconds", millis / 1000);
    }
}

/// A name as one level of a topic: what has a meaning there is written as `%` and two digits.
fn level(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if matches!(c, '/' | '+' | '#' | '%') {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{:02X}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(topics: &'a [(String, String)], name: &str) -> &'a str {
        let found = topics.iter().find(|(topic, _)| *topic == format!("{PREFIX}{name}"));
        &found.unwrap_or_else(|| panic!("{name} is missing")).1
    }

    fn after(uptime_ms: u64, messages: u64) -> Status {
        let mut status = Status { version: "1.2.3".into(), uptime_ms, ..Status::default() };
        status.traffic.messages_in[1] = messages;
        status
    }

    #[test]
    fn averages_approach_a_steady_rate_however_often_they_are_asked_for() {
        for step in [1, 10, 60] {
            let mut topics = SysTopics::default();
            for second in (step..=3600).step_by(step) {
                topics.make(&after(second as u64 * 1000, second as u64 * 10));
            }
            let made = topics.make(&after(3_600_000, 36_000));
            for span in ["1min", "5min", "15min"] {
                let load: f64 = value(&made, &format!("load/publish/received/{span}")).parse().unwrap();
                assert!((load - 600.0).abs() < 12.0, "{span} in steps of {step} s: {load}");
            }
        }
    }

    #[test]
    fn a_burst_fades_from_the_short_average_first() {
        let mut topics = SysTopics::default();
        topics.make(&after(10_000, 1000));
        let made = topics.make(&after(310_000, 1000));
        let load =
            |span: &str| value(&made, &format!("load/publish/received/{span}")).parse::<f64>().unwrap();
        assert!(load("1min") < 10.0 && load("1min") < load("5min"), "{} {}", load("1min"), load("5min"));
        assert_eq!(value(&made, "uptime"), "310 seconds");
        assert_eq!(value(&made, "version"), "tidegate version 1.2.3");
    }

    #[test]
    fn every_topic_is_a_topic_name_and_a_queue_is_one_level() {
        let mut status = after(1, 1);
        for name in ["plain", "a/b", "#", "50%+"] {
            status.queues.push(QueueStatus { name: name.into(), messages: 7, ..QueueStatus::default() });
        }
        let made = SysTopics::default().make(&status);
        assert!(made.iter().all(|(topic, _)| !topic.contains(['+', '#'])));
        for name in ["plain", "a%2Fb", "%23", "50%25%2B"] {
            assert_eq!(value(&made, &format!("queues/{name}/messages")), "7");
        }
        let mut names: Vec<_> = made.iter().map(|(topic, _)| topic).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), made.len(), "each topic occurs once");
    }
}
