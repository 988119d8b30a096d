//! Defaults on small machines, and doubts about large sums.

use super::Case;
use crate::limits::Limits;

const MIB: u64 = 1 << 20;

#[test]
fn the_defaults_of_a_large_machine_are_the_built_in_ones() {
    for memory in [700 * MIB, 4096 * MIB, u64::MAX] {
        assert_eq!(Case::new("").memory(memory).settings().limits, Limits::default());
    }
}

#[test]
fn the_sum_of_the_defaults_takes_at_most_half_of_a_small_machine() {
    let defaults = Limits::default().memory_worst_case();
    for memory in [180, 256, 427, 512, 680].map(|mib| mib * MIB) {
        let limits = Case::new("").memory(memory).settings().limits;
        assert!(limits.memory_worst_case() <= memory / 2, "{memory}: {}", limits.memory_worst_case());
        assert!(limits.memory_worst_case() < defaults);
        assert_eq!(limits.ring_bytes, Limits::default().ring_bytes);
    }
}

#[test]
fn defaults_shrink_to_an_eighth_and_no_further() {
    let limits = Case::new("").memory(1).settings().limits;
    assert_eq!(limits.connections_max, Limits::default().connections_max / 8);
    assert_eq!(limits.outboxes_bytes_max, Limits::default().outboxes_bytes_max / 8);
}

#[test]
fn what_was_set_does_not_shrink_and_what_must_hold_it_stays_large_enough() {
    let text = "limits.packet_max = '8MiB'\nlimits.connections_max = 9000\nlimits.store_queue_max = '8MiB'\n\
                store.ring = '64MiB'";
    let limits = Case::new(text).memory(256 * MIB).settings().limits;
    assert_eq!(limits.connections_max, 9000);
    assert_eq!(limits.read_buffers_bytes_max, 8 * MIB);
    assert!(limits.retained_bytes_max < Limits::default().retained_bytes_max);
}

#[test]
fn a_sum_above_three_quarters_of_the_memory_is_warned_about_unless_a_budget_says_that_it_is_wanted() {
    let warned = |text: &str, memory: u64| {
        let loaded = Case::new(text).memory(memory).load().unwrap();
        loaded.warnings.iter().any(|warning| warning.contains("more than three quarters of the"))
    };
    let large = "limits.retained_memory_max = '1GiB'";
    assert!(warned(large, 1024 * MIB));
    assert!(!warned(large, 4096 * MIB));
    assert!(!warned("", 512 * MIB));
    assert!(!warned(&format!("{large}\nlimits.memory_budget = '2GiB'"), 1024 * MIB));
}
