//! The line of figures.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::check::Ledger;
use crate::histogram::Histogram;
use crate::options::Options;
use crate::process::Usage;

/// Figures by name. Units come last in names.
#[derive(Clone, Debug, Default)]
pub struct Report {
    figures: Map<String, Value>,
    wrong: Vec<String>,
}

impl Report {
    /// A figure.
    pub fn set(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), if value.is_finite() { value } else { 0.0 }.into());
    }

    /// How many per second, as `<name>_per_s`.
    pub fn rate(&mut self, name: &str, count: u64, time: Duration) {
        self.set(&format!("{name}_per_s"), count as f64 / time.as_secs_f64());
    }

    /// Median and tails of durations, as `<name>_p50_us` and so on.
    pub fn latency(&mut self, name: &str, histogram: &Histogram) {
        for (part, label) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p999")] {
            self.set(&format!("{name}_{label}_us"), histogram.quantile_us(part));
        }
    }

    /// What the broker used between two readings: absolute, and for each of `count` things of the name `per`.
    pub fn cost(&mut self, before: Usage, after: Usage, count: u64, per: &str) {
        let each = 1.0 / count.max(1) as f64;
        let cpu_us = (after.cpu_secs - before.cpu_secs) * 1e6;
        let disk = after.disk_bytes.saturating_sub(before.disk_bytes) as f64;
        self.set(&format!("cpu_us_per_{per}"), cpu_us * each);
        self.set(&format!("kernel_us_per_{per}"), (after.kernel_secs - before.kernel_secs) * 1e6 * each);
        self.set(&format!("disk_bytes_per_{per}"), disk * each);
        self.set(
            &format!("switches_per_{per}"),
            after.switches.saturating_sub(before.switches) as f64 * each,
        );
        self.set("cpu_secs", cpu_us / 1e6);
        self.set("rss_before_bytes", before.rss_bytes as f64);
        self.set("rss_after_bytes", after.rss_bytes as f64);
        self.set("rss_peak_bytes", after.peak_bytes as f64);
    }

    /// What subscribers received of `expected` messages in all. With QoS 0 a loss is a figure, otherwise a fault.
    pub fn received(&mut self, options: &Options, ledgers: &[&Ledger], expected: u64) {
        let sum = |of: fn(&Ledger) -> u64| ledgers.iter().map(|ledger| of(ledger)).sum::<u64>();
        let lost = expected.saturating_sub(sum(|ledger| ledger.distinct));
        let faults = [
            ("repeated", sum(|ledger| ledger.repeated), true),
            ("disordered", sum(|ledger| ledger.disordered), true),
            ("damaged", sum(|ledger| ledger.damaged), true),
            ("lost", lost, options.qos > 0),
        ];
        for (name, count, is_fault) in faults {
            self.set(name, count as f64);
            if count > 0 && is_fault {
                self.wrong.push(format!("{count} {name}"));
            }
        }
    }

    /// Something went wrong.
    pub fn fault(&mut self, what: impl ToString) {
        self.wrong.push(what.to_string());
    }

    /// Prints the line. Returns whether nothing was wrong.
    pub fn print(mut self, options: &Options) -> bool {
        self.figures.insert("scenario".into(), format!("{:?}", options.kind).to_lowercase().into());
        for (name, value) in
            [("qos", options.qos.into()), ("size", options.size as f64), ("window", options.window.into())]
        {
            self.set(name, value);
        }
        let sound = self.wrong.is_empty();
        self.figures.insert("wrong".into(), self.wrong.into());
        println!("{}", Value::Object(self.figures));
        sound
    }
}
