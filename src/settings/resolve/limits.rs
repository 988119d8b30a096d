//! The numeric bounds, and the checks that involve more than one of them.

use super::Check;
use super::memory::fit_defaults;
use super::queues::queue_defs;
use crate::limits::{Limits, Overflow, QueueLimits, QueueRule};
use crate::settings::place::SettingsError;
use crate::settings::raw::{Raw, RawLimits, RawOverflow, RawQueue, RawQueueRule, RawStore};
use crate::settings::units::{Bound, Count, Size};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const DAY_SECS: u64 = 86_400;
/// Rules for queues.
const QUEUE_RULES_MAX: usize = 1000;
/// The ring must hold several of the largest packets at once: this many.
const PACKETS_IN_RING_MIN: u64 = 4;
/// The same for the largest transactions.
const TRANSACTIONS_IN_RING_MIN: u64 = 4;

/// All limits, each in its range and all together consistent, on a machine with `memory` bytes.
pub fn limits(raw: &mut Raw, memory: Option<u64>, check: &Check<'_>) -> Result<Limits, SettingsError> {
    fit_defaults(&mut raw.limits, memory, check);
    follow(&mut raw.limits, raw.store.ring, check);
    let mut limits = each_alone(&raw.limits, &raw.store, raw, check)?;
    limits.queue_defs = queue_defs(&raw.queue_def, &limits, check)?;
    together(&limits, raw, check)?;
    Ok(limits)
}

/// Defaults that must not exceed another bound follow it down when only that one was set.
fn follow(limits: &mut RawLimits, ring: Size, check: &Check<'_>) {
    let at_most = |key: &str, low: &mut Size, high: Size| {
        if !check.origins.is_set(key) {
            low.0 = low.0.min(high.0);
        }
    };
    at_most("limits.packet_before_login_max", &mut limits.packet_before_login_max, limits.packet_max);
    at_most("limits.outbox_max", &mut limits.outbox_max, limits.outboxes_max);
    at_most("limits.outbox_high", &mut limits.outbox_high, limits.outbox_max);
    at_most("limits.queue_window_max", &mut limits.queue_window_max, limits.queue_memory_max);
    at_most(
        "limits.transaction_bytes_max",
        &mut limits.transaction_bytes_max,
        Size(ring.0 / TRANSACTIONS_IN_RING_MIN),
    );
}

fn each_alone(l: &RawLimits, s: &RawStore, raw: &Raw, check: &Check<'_>) -> Result<Limits, SettingsError> {
    let c = check;
    let queue = queue(&raw.queue, c)?;
    Ok(Limits {
        hash_memory_bytes_max: 0,
        connections_max: c.count("limits.connections_max", l.connections_max, 1..=1_000_000)?,
        connections_per_address_max: count_or_none(
            "limits.connections_per_address_max",
            l.connections_per_address_max,
            c,
        )?,
        accept_rate_max: count_or_none("limits.accept_rate_max", l.accept_rate_max, c)?,
        handshakes_max: c.count("limits.handshakes_max", l.handshakes_max, 1..=100_000)?,
        sessions_max: c.count("limits.sessions_max", l.sessions_max, 1..=10_000_000)?,
        session_expiry_max_secs: match l.session_expiry_max.0 {
            Some(span) => Some(c.seconds("limits.session_expiry_max", span, 1..=36_500 * DAY_SECS)?),
            None => None,
        },
        keep_alive_max_secs: match l.keep_alive_max.0 {
            Some(span) => Some(c.seconds("limits.keep_alive_max", span, 1..=65_535)?),
            None => None,
        },
        subscriptions_per_session_max: c.count(
            "limits.subscriptions_per_session_max",
            l.subscriptions_per_session_max,
            1..=1_000_000,
        )?,
        subscriptions_max: c.count("limits.subscriptions_max", l.subscriptions_max, 1..=100_000_000)?,
        subscriptions_bytes_max: c.size(
            "limits.subscriptions_memory_max",
            l.subscriptions_memory_max,
            64 * KIB..=TIB,
        )?,
        topic_levels_max: c.count("limits.topic_levels_max", l.topic_levels_max, 1..=65_535)?,
        topic_bytes_max: c.size("limits.topic_max", l.topic_max, 16..=65_535)?,
        client_id_bytes_max: c.size("limits.client_id_max", l.client_id_max, 23..=65_535)?,
        retained_messages_max: c.count(
            "limits.retained_messages_max",
            l.retained_messages_max,
            0..=100_000_000,
        )?,
        retained_bytes_max: c.size("limits.retained_memory_max", l.retained_memory_max, 0..=TIB)?,
        packet_bytes_max: c.size("limits.packet_max", l.packet_max, KIB..=256 * MIB)?,
        packet_bytes_before_login_max: c.size(
            "limits.packet_before_login_max",
            l.packet_before_login_max,
            256..=256 * MIB,
        )?,
        login_millis_max: c.millis("limits.login_timeout", l.login_timeout, 100..=600_000)?,
        publisher_wait_millis_max: c.millis(
            "limits.publisher_wait",
            l.publisher_wait,
            0..=DAY_SECS * 1000,
        )?,
        receive_max: c.count("limits.receive_max", l.receive_max, 1..=65_535)?,
        inflight_messages_max: c.count(
            "limits.inflight_messages_max",
            l.inflight_messages_max,
            1..=65_535,
        )?,
        inflight_bytes_max: c.size("limits.inflight_bytes_max", l.inflight_bytes_max, KIB..=GIB)?,
        queue_memory_bytes_max: c.size("limits.queue_memory_max", l.queue_memory_max, 64 * KIB..=TIB)?,
        queue_window_bytes_max: c.size("limits.queue_window_max", l.queue_window_max, 4 * KIB..=GIB)?,
        queue_rules: queue_rules(&raw.queue_rule, queue, c)?,
        queue,
        named_queues_max: c.count("limits.named_queues_max", l.named_queues_max, 0..=1_000_000)?,
        queue_defs: Vec::new(),
        transactions_per_session_max: c.count(
            "limits.transactions_per_client_max",
            l.transactions_per_client_max,
            0..=1000,
        )?,
        transaction_actions_max: c.count(
            "limits.transaction_actions_max",
            l.transaction_actions_max,
            1..=100_000,
        )?,
        transaction_bytes_max: c.size("limits.transaction_bytes_max", l.transaction_bytes_max, KIB..=GIB)?,
        transaction_disk_bytes_max: c.size("limits.transaction_disk_max", l.transaction_disk_max, 0..=TIB)?,
        transactions_disk_bytes_max: c.size(
            "limits.transactions_disk_max",
            l.transactions_disk_max,
            0..=TIB,
        )?,
        prepared_transactions_max: c.count(
            "limits.prepared_transactions_max",
            l.prepared_transactions_max,
            0..=100_000,
        )?,
        prepared_timeout_secs: match l.prepared_timeout.0 {
            Some(span) => Some(c.seconds("limits.prepared_timeout", span, 1..=36_500 * DAY_SECS)?),
            None => None,
        },
        transactions_bytes_max: c.size(
            "limits.transactions_memory_max",
            l.transactions_memory_max,
            KIB..=GIB,
        )?,
        outbox_high_bytes: c.size("limits.outbox_high", l.outbox_high, 4 * KIB..=GIB)?,
        outbox_bytes_max: c.size("limits.outbox_max", l.outbox_max, 4 * KIB..=GIB)?,
        outboxes_bytes_max: c.size("limits.outboxes_max", l.outboxes_max, 64 * KIB..=TIB)?,
        read_buffers_bytes_max: c.size("limits.read_buffers_max", l.read_buffers_max, 64 * KIB..=TIB)?,
        store_queue_bytes_max: c.size("limits.store_queue_max", l.store_queue_max, 64 * KIB..=GIB)?,
        ring_bytes: c.size("store.ring", s.ring, MIB..=GIB)?,
        store_cache_bytes: c.size("store.cache", s.cache, 256 * KIB..=16 * GIB)?,
        disk_bytes_max: size_or_none("store.disk_max", s.disk_max, 16 * MIB, c)?,
        disk_reserve_bytes: c.size("store.disk_reserve", s.disk_reserve, 0..=TIB)?,
        will_grace_secs: c.seconds("limits.will_grace", l.will_grace, 0..=DAY_SECS)?,
        topic_aliases_max: c.count("limits.topic_aliases_max", l.topic_aliases_max, 0..=65_535)?,
        store_linger_millis: c.millis("store.linger", s.linger, 0..=60_000)?,
        hold_millis: c.millis("durability.hold", raw.durability.hold, 0..=10_000)?,
    })
}

/// Largest byte bound of what lies on disk.
const DISK_BYTES_MAX: u64 = 1 << 50;

fn count_or_none(key: &str, value: Bound<Count>, check: &Check<'_>) -> Result<Option<u32>, SettingsError> {
    value.0.map(|count| check.count(key, count, 1..=1_000_000)).transpose()
}

pub(super) fn size_or_none(
    key: &str,
    value: Bound<Size>,
    least: u64,
    check: &Check<'_>,
) -> Result<Option<u64>, SettingsError> {
    value.0.map(|size| check.size(key, size, least..=DISK_BYTES_MAX)).transpose()
}

fn queue(raw: &RawQueue, check: &Check<'_>) -> Result<QueueLimits, SettingsError> {
    Ok(QueueLimits {
        messages_max: raw
            .messages_max
            .0
            .map(|count| check.count("queue.messages_max", count, 1..=u64::MAX))
            .transpose()?,
        bytes_max: size_or_none("queue.bytes_max", raw.bytes_max, KIB, check)?,
        overflow: overflow(raw.overflow),
    })
}

pub(super) fn overflow(raw: RawOverflow) -> Overflow {
    match raw {
        RawOverflow::Reject => Overflow::Reject,
        RawOverflow::DropHead => Overflow::DropHead,
        RawOverflow::DropTail => Overflow::DropTail,
        RawOverflow::Block => Overflow::Block,
    }
}

fn queue_rules(
    raw: &[RawQueueRule],
    base: QueueLimits,
    check: &Check<'_>,
) -> Result<Vec<QueueRule>, SettingsError> {
    if raw.len() > QUEUE_RULES_MAX {
        return check
            .fail("queue_rule", format!("expected at most {QUEUE_RULES_MAX} rules, found {}", raw.len()));
    }
    raw.iter().enumerate().map(|(index, rule)| queue_rule(index, rule, base, check)).collect()
}

fn queue_rule(
    index: usize,
    raw: &RawQueueRule,
    base: QueueLimits,
    check: &Check<'_>,
) -> Result<QueueRule, SettingsError> {
    let key = |name: &str| format!("queue_rule[{index}].{name}");
    if raw.client.is_empty() {
        return check
            .fail(&key("client"), "expected a client identifier, in which * stands for any characters");
    }
    let mut limits = base;
    if let Some(bound) = raw.messages_max {
        let count = |count| check.count(&key("messages_max"), count, 1..=u64::MAX);
        limits.messages_max = bound.0.map(count).transpose()?;
    }
    if let Some(bound) = raw.bytes_max {
        limits.bytes_max = size_or_none(&key("bytes_max"), bound, KIB, check)?;
    }
    if let Some(policy) = raw.overflow {
        limits.overflow = overflow(policy);
    }
    Ok(QueueRule { client_pattern: raw.client.as_str().into(), limits })
}

/// The checks that need more than one value.
fn together(limits: &Limits, raw: &Raw, check: &Check<'_>) -> Result<(), SettingsError> {
    let packet = u64::from(limits.packet_bytes_max);
    if packet > limits.ring_bytes / PACKETS_IN_RING_MIN {
        let what = format!(
            "{} is more than a quarter of store.ring ({}); lower it or set store.ring = \"{}\"",
            Size(packet),
            Size(limits.ring_bytes),
            Size(packet.saturating_mul(PACKETS_IN_RING_MIN).next_multiple_of(MIB)),
        );
        return check.fail("limits.packet_max", what);
    }
    if limits.transaction_bytes_max > limits.ring_bytes / TRANSACTIONS_IN_RING_MIN {
        let what = format!(
            "{} is more than a quarter of store.ring ({}), and a commit is one write",
            Size(limits.transaction_bytes_max),
            Size(limits.ring_bytes),
        );
        return check.fail("limits.transaction_bytes_max", what);
    }
    let ordered = [
        (
            "limits.packet_before_login_max",
            raw.limits.packet_before_login_max,
            "limits.packet_max",
            raw.limits.packet_max,
        ),
        ("limits.outbox_high", raw.limits.outbox_high, "limits.outbox_max", raw.limits.outbox_max),
        ("limits.outbox_max", raw.limits.outbox_max, "limits.outboxes_max", raw.limits.outboxes_max),
        (
            "limits.queue_window_max",
            raw.limits.queue_window_max,
            "limits.queue_memory_max",
            raw.limits.queue_memory_max,
        ),
        ("limits.packet_max", raw.limits.packet_max, "limits.read_buffers_max", raw.limits.read_buffers_max),
        ("limits.packet_max", raw.limits.packet_max, "limits.store_queue_max", raw.limits.store_queue_max),
    ];
    for (low_key, low, high_key, high) in ordered {
        if low.0 > high.0 {
            return check.fail(low_key, format!("{low} is more than {high_key} ({high})"));
        }
    }
    if let Some(most) = limits.disk_bytes_max
        && most < limits.ring_bytes.saturating_mul(2)
    {
        return check.fail(
            "store.disk_max",
            format!("{} leaves no room beside store.ring ({})", Size(most), raw.store.ring),
        );
    }
    Ok(())
}
