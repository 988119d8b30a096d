//! Memory of the machine: defaults that shrink on a small one, the budget, and a warning where there is none.
//!
//! The sum of the built-in defaults is made for machines with 1 GiB and more. On a smaller one those of them that need not be
//! that large are halved, all alike, until the sum is at most a quarter of the memory; what somebody has set stays as it is.

use super::Check;
use crate::bridge::LinkConfig;
use crate::limits::Limits;
use crate::settings::place::SettingsError;
use crate::settings::raw::{Raw, RawLimits};
use crate::settings::show::{memory_parts, memory_sum, memory_table};
use crate::settings::units::Size;

/// The defaults may take the memory divided by this.
const DEFAULTS_SHARE: u64 = 4;
/// A sum above the memory divided by this is worth a warning.
const DOUBTFUL_SHARE: u64 = 2;
/// Halvings; an eighth of each default still works.
const HALVINGS_MAX: u32 = 3;

/// Halves the defaults that were not set until their sum is a quarter of `memory` bytes.
pub fn fit_defaults(limits: &mut RawLimits, memory: Option<u64>, check: &Check<'_>) {
    let Some(memory) = memory else { return };
    let defaults = Limits::default();
    let sum = |halvings: u32| {
        let flexible = u64::from(defaults.connections_max) * crate::limits::CONNECTION_BYTES
            + defaults.retained_bytes_max
            + defaults.queue_memory_bytes_max
            + defaults.outboxes_bytes_max
            + defaults.read_buffers_bytes_max;
        defaults.memory_worst_case() - flexible + (flexible >> halvings)
    };
    let fits = |halvings: &u32| sum(*halvings) <= memory / DEFAULTS_SHARE;
    let halvings = (0..HALVINGS_MAX).find(fits).unwrap_or(HALVINGS_MAX);
    let halve = |key: &str, value: &mut u64, least: u64| {
        if !check.origins.is_set(key) {
            *value = (*value >> halvings).max(least.min(*value));
        }
    };
    halve("limits.connections_max", &mut limits.connections_max.0, 1);
    halve("limits.retained_memory_max", &mut limits.retained_memory_max.0, 0);
    // These stay above the bounds that must fit into them.
    halve("limits.queue_memory_max", &mut limits.queue_memory_max.0, limits.queue_window_max.0);
    halve("limits.outboxes_max", &mut limits.outboxes_max.0, limits.outbox_max.0);
    halve("limits.read_buffers_max", &mut limits.read_buffers_max.0, limits.packet_max.0);
}

/// The sum of everything that may be in memory stays within the budget, if there is one.
pub fn within_budget(
    limits: &Limits,
    bridges: &[LinkConfig],
    raw: &Raw,
    check: &Check<'_>,
) -> Result<(), SettingsError> {
    let Some(budget) = raw.limits.memory_budget.0 else { return Ok(()) };
    let parts = memory_parts(limits, bridges);
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
pub fn doubt(limits: &Limits, bridges: &[LinkConfig], raw: &Raw, memory: Option<u64>) -> Option<String> {
    let memory = memory.filter(|_| raw.limits.memory_budget.0.is_none())?;
    let sum = memory_sum(&memory_parts(limits, bridges));
    (sum > memory / DOUBTFUL_SHARE).then(|| {
        format!(
            "the limits allow {} MiB of memory, more than half of the {} MiB that this process may use; lower some (`tidegate \
             check` lists the parts), or set limits.memory_budget to say that this is wanted",
            sum >> 20,
            memory >> 20
        )
    })
}
