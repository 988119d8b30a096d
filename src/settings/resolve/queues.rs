//! `[[queue_def]]`: what is known of named queues.

use super::Check;
use super::limits::{overflow, size_or_none};
use crate::limits::{Limits, QueueDef};
use crate::settings::place::SettingsError;
use crate::settings::raw::RawQueueDef;
use crate::topic::{self, QUEUE_PREFIX};

/// Definitions of queues.
const QUEUE_DEFS_MAX: usize = 1000;
/// The word for a queue whose dead letters are dropped.
const NO_DEAD_LETTERS: &str = "none";
/// Filters that one queue binds.
const BINDS_MAX: usize = 64;

/// All definitions, each checked against the other limits.
pub fn queue_defs(
    raw: &[RawQueueDef],
    limits: &Limits,
    check: &Check<'_>,
) -> Result<Vec<QueueDef>, SettingsError> {
    if raw.len() > QUEUE_DEFS_MAX.min(limits.named_queues_max as usize) {
        let most = QUEUE_DEFS_MAX.min(limits.named_queues_max as usize);
        return check.fail("queue_def", format!("expected at most {most} queues, found {}", raw.len()));
    }
    let mut defs: Vec<QueueDef> = Vec::with_capacity(raw.len());
    for (index, raw) in raw.iter().enumerate() {
        let def = queue_def(index, raw, limits, check)?;
        if defs.iter().any(|other| other.name == def.name) {
            let key = format!("queue_def[{index}].name");
            return check.fail(&key, format!("the queue \"{}\" is defined already", def.name));
        }
        defs.push(def);
    }
    Ok(defs)
}

fn queue_def(
    index: usize,
    raw: &RawQueueDef,
    limits: &Limits,
    check: &Check<'_>,
) -> Result<QueueDef, SettingsError> {
    let key = |name: &str| format!("queue_def[{index}].{name}");
    queue_name(&key("name"), &raw.name, limits, check)?;
    let mut def = QueueDef { name: raw.name.as_str().into(), limits: limits.queue, ..QueueDef::default() };
    def.bind = binds(&key("bind"), raw, limits, check)?;
    if let Some(bound) = raw.messages_max {
        let count = |count| check.count(&key("messages_max"), count, 1..=u64::MAX);
        def.limits.messages_max = bound.0.map(count).transpose()?;
    }
    if let Some(bound) = raw.bytes_max {
        def.limits.bytes_max = size_or_none(&key("bytes_max"), bound, 1 << 10, check)?;
    }
    if let Some(policy) = raw.overflow {
        def.limits.overflow = overflow(policy);
    }
    if let Some(bound) = raw.redeliveries_max {
        let count = |count| check.count(&key("redeliveries_max"), count, 0..=1_000_000);
        def.redeliveries_max = bound.0.map(count).transpose()?;
    }
    if let Some(name) = &raw.dead_letter {
        if name.contains('*') {
            return check.fail(&key("dead_letter"), "expected the name of one queue, without *");
        }
        if name != NO_DEAD_LETTERS {
            queue_name(&key("dead_letter"), name, limits, check)?;
        }
        def.dead_letter = (name != NO_DEAD_LETTERS).then(|| name.as_str().into());
    }
    def.dead_letter_expired = raw.dead_letter_expired;
    Ok(def)
}

fn queue_name(key: &str, name: &str, limits: &Limits, check: &Check<'_>) -> Result<(), SettingsError> {
    if name.is_empty() {
        return check.fail(key, "expected the name of a queue, without $queue/");
    }
    topic::check_name(&format!("{QUEUE_PREFIX}{name}"), limits)
        .or_else(|error| check.fail(key, format!("the queue's name \"{name}\" {error}")))
}

fn binds(
    key: &str,
    raw: &RawQueueDef,
    limits: &Limits,
    check: &Check<'_>,
) -> Result<Vec<Box<str>>, SettingsError> {
    if raw.bind.len() > BINDS_MAX {
        return check.fail(key, format!("expected at most {BINDS_MAX} filters, found {}", raw.bind.len()));
    }
    if !raw.bind.is_empty() && raw.name.contains('*') {
        return check.fail(key, "a pattern binds nothing; define the queue under its whole name");
    }
    for filter in &raw.bind {
        if let Err(error) = topic::Filter::parse(filter, limits) {
            return check.fail(key, format!("the filter \"{filter}\" {error}"));
        }
        if filter.starts_with('$') {
            return check.fail(key, format!("\"{filter}\" starts with $, and such topics are not bound"));
        }
    }
    Ok(raw.bind.iter().map(|filter| filter.as_str().into()).collect())
}
