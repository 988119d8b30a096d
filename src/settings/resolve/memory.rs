//! Memory of the machine: defaults that shrink on a small one, the budget, and a warning where there is none.
//!
//! The sum of the built-in defaults is made for machines with 1 GiB and more. On a smaller one those of them that need not be
//! that large are halved, all alike, until the sum is at most half of the memory; what somebody has set stays as it is.

use super::Check;
use crate::bridge::LinkConfig;
use crate::limits::Limits;
use crate::settings::Listener;
use crate::settings::place::SettingsError;
use crate::settings::raw::{Raw, RawLimits};
use crate::settings::show::{memory_parts, memory_sum, memory_table};
use crate::settings::units::Size;

/// The defaults may take the memory divided by this.
const DEFAULTS_SHARE: u64 = 2;
/// A sum above this many quarters of the memory is worth a warning.
const DOUBTFUL_QUARTERS: u64 = 3;
/// Halvings; an eighth of each default still works.
const HALVINGS_MAX: u32 = 3;

/// Halves the defaults that were not set until their sum is half of `memory` bytes.
pub fn fit_defaults(limits: &mut RawLimits, memory: Option<u64>, check: &Check<'_>) {
    let Some(memory) = memory else { return };
    let fits = |halvings: &u32| halved(*halvings).memory_worst_case() <= memory / DEFAULTS_SHARE;
    let halvings = (0..HALVINGS_MAX).find(fits).unwrap_or(HALVINGS_MAX);
    let small = halved(halvings);
    let shrink = |key: &str, value: &mut u64, small: u64, least: u64| {
        if !check.origins.is_set(key) {
            // It stays above the bound that must fit into it.
            *value = small.max(least).min(*value);
        }
    };
    let RawLimits { queue_window_max, outbox_max, packet_max, .. } = *limits;
    shrink("limits.connections_max", &mut limits.connections_max.0, small.connections_max.into(), 0);
    shrink("limits.sessions_max", &mut limits.sessions_max.0, small.sessions_max.into(), 0);
    let subscriptions = &mut limits.subscriptions_memory_max.0;
    shrink("limits.subscriptions_memory_max", subscriptions, small.subscriptions_bytes_max, 0);
    shrink("limits.retained_memory_max", &mut limits.retained_memory_max.0, small.retained_bytes_max, 0);
    let windows = &mut limits.queue_memory_max.0;
    shrink("limits.queue_memory_max", windows, small.queue_memory_bytes_max, queue_window_max.0);
    shrink("limits.outboxes_max", &mut limits.outboxes_max.0, small.outboxes_bytes_max, outbox_max.0);
    let buffers = &mut limits.read_buffers_max.0;
    shrink("limits.read_buffers_max", buffers, small.read_buffers_bytes_max, packet_max.0);
}

/// The defaults with those halved so often that need not be so large.
fn halved(times: u32) -> Limits {
    let large = Limits::default();
    Limits {
        connections_max: large.connections_max >> times,
        sessions_max: large.sessions_max >> times,
        subscriptions_bytes_max: large.subscriptions_bytes_max >> times,
        retained_bytes_max: large.retained_bytes_max >> times,
        queue_memory_bytes_max: large.queue_memory_bytes_max >> times,
        outboxes_bytes_max: large.outboxes_bytes_max >> times,
        read_buffers_bytes_max: large.read_buffers_bytes_max >> times,
        ..large
    }
}

/// The sum of everything that may be in memory stays within the budget, if there is one.
pub fn within_budget(
    limits: &Limits,
    bridges: &[LinkConfig],
    listeners: &[Listener],
    raw: &Raw,
    check: &Check<'_>,
) -> Result<(), SettingsError> {
    let Some(budget) = raw.limits.memory_budget.0 else { return Ok(()) };
    let parts = memory_parts(limits, bridges, listeners);
    let sum = memory_sum(&parts);
    if sum <= budget.0 {
        return Ok(());
    }
    let what = format!(
        "the other limits allow {} of memory, more than this budget of {budget}; raise it or lower one of\n{}",
        Size(sum),
        memory_table(&parts)
    );
    check.fail("limits.memory_budget", what)
}

/// A warning for a configuration that this machine can hardly hold and that no budget bounds.
pub fn doubt(
    limits: &Limits,
    bridges: &[LinkConfig],
    listeners: &[Listener],
    raw: &Raw,
    memory: Option<u64>,
) -> Option<String> {
    let memory = memory.filter(|_| raw.limits.memory_budget.0.is_none())?;
    let sum = memory_sum(&memory_parts(limits, bridges, listeners));
    (sum > memory / 4 * DOUBTFUL_QUARTERS).then(|| {
        format!(
            "the limits allow {} MiB of memory, more than three quarters of the {} MiB that this process may use; lower some (`tidegate \
             check` lists the parts), or set limits.memory_budget to say that this is wanted",
            sum >> 20,
            memory >> 20
        )
    })
}
