//! A [`Status`] for a person at a terminal.

use std::fmt::Write;

use super::status::{ByCause, HealthState, LinkSnapshot, QueueStatus, Status, StoreCapacity};

/// Queues that are shown.
const QUEUES_SHOWN_MAX: usize = 20;

/// Characters of a name that are shown.
const NAME_CHARS_MAX: usize = 32;

/// Several lines of text, the last one ended too.
#[must_use]
pub fn render(status: &Status) -> String {
    let mut out = String::new();
    head(&mut out, status);
    traffic(&mut out, status);
    store(&mut out, status);
    links(&mut out, &status.links);
    queues(&mut out, status);
    out
}

/// `1.5 MiB` and the like.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `3 d 4 h`, `2 min 5 s`, `1.5 s` and the like.
#[must_use]
pub fn duration(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("{seconds}.{} s", millis % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

fn line(out: &mut String, label: &str, text: &str) {
    writeln!(out, "{label:<14}{text}").expect("a String takes every write");
}

fn head(out: &mut String, status: &Status) {
    let state = match status.health.state {
        HealthState::NotLive => "NOT LIVE",
        HealthState::Live => "live, not ready",
        HealthState::Ready => "ready",
        HealthState::Degraded => "DEGRADED",
    };
    line(out, "tidegate", &format!("{}, up {}", status.version, duration(status.uptime_ms)));
    line(out, "health", state);
    for reason in &status.health.reasons {
        line(out, "", &format!("- {}", printable(reason, 500)));
    }
    let memory = &status.memory;
    let tracked: u64 = memory.tracked.values().sum();
    let text = format!(
        "{} resident, {} tracked, {} at worst",
        bytes(memory.rss_bytes),
        bytes(tracked),
        bytes(memory.worst_case_bytes)
    );
    line(out, "memory", &text);
}

fn traffic(out: &mut String, status: &Status) {
    let traffic = &status.traffic;
    let text = format!(
        "{} connected, {} away, {} connections, {} subscriptions, {} retained ({})",
        status.sessions.connected,
        status.sessions.disconnected,
        traffic.connections,
        status.subscriptions,
        status.retained.messages,
        bytes(status.retained.bytes)
    );
    line(out, "sessions", &text);
    let flow = |messages: &[u64; 3], size: &[u64; 3]| {
        let [q0, q1, q2] = messages;
        format!("{} messages (QoS 0 {q0}, 1 {q1}, 2 {q2}), {}", q0 + q1 + q2, bytes(size.iter().sum()))
    };
    line(out, "received", &flow(&traffic.messages_in, &traffic.bytes_in));
    line(out, "sent", &flow(&traffic.messages_out, &traffic.bytes_out));
    line(out, "dropped", &causes(&traffic.dropped, u64::to_string));
    let text = format!("{} logins, {} malformed packets", traffic.auth_failures, traffic.malformed);
    line(out, "refused", &text);
}

fn causes(counts: &ByCause, show: impl Fn(&u64) -> String) -> String {
    if counts.values().all(|count| *count == 0) {
        return "none".to_owned();
    }
    let parts: Vec<String> = counts
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(cause, count)| format!("{cause} {}", show(count)))
        .collect();
    parts.join(", ")
}

fn store(out: &mut String, status: &Status) {
    let store = &status.store;
    let full = if store.capacity == StoreCapacity::Full { ", FULL" } else { "" };
    let text = format!(
        "{} on disk{full}, ring {} of {}, {} checkpoints",
        bytes(store.file_bytes),
        bytes(store.ring_used_bytes),
        bytes(store.ring_size_bytes),
        store.checkpoints
    );
    line(out, "store", &text);
    let text = format!(
        "{} in {} commits and {} syncs, {:.0} B per message",
        bytes(store.bytes_written_total()),
        store.commits,
        store.syncs_total(),
        store.bytes_written_per_message
    );
    line(out, "written", &text);
    line(out, "  by cause", &causes(&store.bytes_written, |count| bytes(*count)));
    line(out, "  syncs", &causes(&store.syncs, u64::to_string));
    if let Some(path) = &store.set_aside {
        line(out, "ALARM", &format!("a damaged store was set aside at {path}"));
    }
}

fn links(out: &mut String, links: &[LinkSnapshot]) {
    for link in links {
        let text = format!(
            "{}: {} messages wait ({}), sent {}, taken over {}, again {}, parked {}, received {}, reconnects {}",
            link.state,
            link.queue_messages,
            bytes(link.queue_bytes),
            link.sent,
            link.acked,
            link.resent,
            link.parked,
            link.received,
            link.reconnects
        );
        line(out, &format!("link {}", printable(&link.name, NAME_CHARS_MAX)), &format!(" {text}"));
        if let Some(error) = link.last_error.as_ref().filter(|_| link.connected_since.is_none()) {
            line(out, "", &format!("- {}", printable(error, 500)));
        }
    }
}

fn queues(out: &mut String, status: &Status) {
    let total = &status.queues_total;
    let text = format!(
        "{} with {} messages, {} ({} in memory), {} in flight, {} on disk only",
        total.count,
        total.messages,
        bytes(total.bytes),
        bytes(total.in_memory_bytes),
        total.inflight,
        total.spilled
    );
    line(out, "queues", &text);
    let shown = status.queues.len().min(QUEUES_SHOWN_MAX);
    if shown == 0 {
        return;
    }
    let head = ["messages", "size", "in flight", "oldest", "dropped"];
    let [messages, size, inflight, oldest, dropped] = head;
    queue_row(out, "  name", [messages, size, inflight, oldest, dropped].map(str::to_owned));
    for queue in &status.queues[..shown] {
        queue_row(out, &format!("  {}", printable(&queue.name, NAME_CHARS_MAX)), queue_cells(queue));
    }
    let rest = total.count.saturating_sub(shown as u64);
    if rest > 0 {
        line(out, "", &format!("and {rest} smaller ones"));
    }
}

fn queue_cells(queue: &QueueStatus) -> [String; 5] {
    let dropped: u64 = queue.dropped.values().sum();
    [
        queue.messages.to_string(),
        bytes(queue.bytes),
        queue.inflight.to_string(),
        queue.oldest_age_ms.map_or_else(|| "-".to_owned(), duration),
        dropped.to_string(),
    ]
}

fn queue_row(out: &mut String, name: &str, [messages, size, inflight, oldest, dropped]: [String; 5]) {
    writeln!(out, "{name:<36}{messages:>10}{size:>12}{inflight:>11}{oldest:>14}{dropped:>9}")
        .expect("a String takes every write");
}

/// Names come from peers: control characters would reach the terminal.
fn printable(text: &str, chars_max: usize) -> String {
    let mut shown: String =
        text.chars().take(chars_max).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().nth(chars_max).is_some() {
        shown.pop();
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_shows_alarms_links_and_the_largest_queues() {
        let mut status = Status { version: "1.0".into(), uptime_ms: 61_000, ..Status::default() };
        status.health.state = HealthState::Degraded;
        status.health.reasons.push("the disk is full".into());
        status.store.set_aside = Some("/var/lib/x.damaged".into());
        status.links.push(LinkSnapshot {
            name: "dc".into(),
            state: "waiting".into(),
            last_error: Some("connection refused".into()),
            ..LinkSnapshot::default()
        });
        status.queues_total.count = 40;
        status.queues = (0..30)
            .map(|i| QueueStatus { name: format!("device-{i}"), bytes: 2048, ..QueueStatus::default() })
            .collect();
        let text = render(&status);
        for part in [
            "up 1 min 1 s",
            "DEGRADED",
            "- the disk is full",
            "set aside at /var/lib/x.damaged",
            "link dc",
            "connection refused",
            "device-19",
            "and 20 smaller ones",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
        assert!(!text.contains("device-20"));
    }

    #[test]
    fn control_characters_of_names_do_not_reach_the_terminal() {
        let mut status = Status::default();
        status.queues.push(QueueStatus { name: "\u{1b}[31mred\n".into(), ..QueueStatus::default() });
        let text = render(&status);
        assert!(!text.contains('\u{1b}') && text.contains("?[31mred?"));
    }

    #[test]
    fn sizes_and_durations_are_short() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
        assert_eq!(duration(1540), "1.5 s");
        assert_eq!(duration(3_725_000), "1 h 2 min");
        assert_eq!(duration(90_000_000), "1 d 1 h");
    }
}
