//! What the demo shows: one line that is redrawn on a terminal (plain lines elsewhere) while it runs, a table at its end.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::checker::Tally;
use crate::admin::table::bytes;

/// Time between two plain lines of the same phase.
const PLAIN_LINE_EVERY: Duration = Duration::from_secs(2);

/// What the line shows.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// What happens now.
    pub phase: String,
    /// Messages so far.
    pub tally: Tally,
    /// Messages that wait in the gateway; `None` when it does not answer.
    pub queued: Option<u64>,
    /// Resident set of the gateway in bytes.
    pub rss_bytes: u64,
}

/// Where the demo writes.
#[derive(Debug)]
pub struct Screen {
    terminal: bool,
    start: Instant,
    phase: String,
    last_line: Option<Instant>,
}

impl Screen {
    /// Standard output.
    #[must_use]
    pub fn stdout() -> Self {
        let terminal = std::io::stdout().is_terminal();
        Self { terminal, start: Instant::now(), phase: String::new(), last_line: None }
    }

    /// Time since the demo began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Shows how far the demo is.
    pub fn progress(&mut self, progress: &Progress) {
        let new_phase = progress.phase != self.phase;
        if new_phase && self.terminal && self.last_line.is_some() {
            write("\n");
        }
        let due = self.last_line.is_none_or(|last| last.elapsed() >= PLAIN_LINE_EVERY);
        if new_phase || due || self.terminal {
            self.phase.clone_from(&progress.phase);
            self.last_line = Some(Instant::now());
            let line = progress_line(self.elapsed(), progress);
            write(&if self.terminal { format!("\r\x1b[K{line}") } else { format!("{line}\n") });
        }
    }

    /// Shows a line of its own.
    pub fn say(&mut self, text: &str) {
        let end_of_progress = if self.terminal && self.last_line.is_some() { "\n" } else { "" };
        self.last_line = None;
        write(&format!("{end_of_progress}{text}\n"));
    }
}

/// A reader that went away must not end the demo: its children would stay.
fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let _reader_is_gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn progress_line(elapsed: Duration, progress: &Progress) -> String {
    let tally = &progress.tally;
    let queued = progress.queued.map_or_else(|| "?".to_owned(), |queued| queued.to_string());
    format!(
        "{:5.1} s  {:<34} published {:>6}  acknowledged {:>6}  at the datacenter {:>6}  queued {queued:>6}  RSS {}",
        elapsed.as_secs_f64(),
        progress.phase,
        tally.published,
        tally.acknowledged,
        tally.arrived,
        bytes(progress.rss_bytes),
    )
}

/// What the store of the gateway did, summed over its lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes written.
    pub bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Messages enqueued.
    pub messages: u64,
}

/// How the demo ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Devices.
    pub devices: usize,
    /// The counts at the end.
    pub tally: Tally,
    /// Some of the missing messages, as device and number.
    pub examples_of_missing: Vec<(usize, u32)>,
    /// Largest resident set of the gateway, in bytes.
    pub peak_rss_bytes: u64,
    /// What its store did.
    pub written: Written,
    /// Most messages that waited in the gateway.
    pub queued_max: u64,
    /// From the start of the gateway after its kill until it was ready.
    pub restart: Duration,
    /// From the repair of the uplink until everything had arrived; `None`: not within the time allowed.
    pub drain: Option<Duration>,
    /// Of the whole demo.
    pub duration: Duration,
}

impl Outcome {
    /// Nothing was lost and everything arrived.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.tally.missing == 0 && self.tally.is_drained()
    }
}

/// The table and the verdict.
#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let tally = &outcome.tally;
    let per_message = outcome.written.bytes.checked_div(outcome.written.messages);
    let drain = outcome.drain.map_or_else(|| "did not end in time".to_owned(), seconds);
    let rows = [
        ("published", format!("{} by {} devices", tally.published, outcome.devices)),
        ("acknowledged by the gateway", tally.acknowledged.to_string()),
        ("arrived at the datacenter", tally.arrived.to_string()),
        ("lost (acknowledged, not arrived)", tally.missing.to_string()),
        ("duplicates at the datacenter", tally.duplicates.to_string()),
        ("out of order", tally.out_of_order.to_string()),
        ("foreign or damaged", tally.foreign.to_string()),
        ("sent again by devices", format!("{} after {} reconnects", tally.resent, tally.reconnects)),
        ("most messages queued", outcome.queued_max.to_string()),
        ("gateway's peak RSS", bytes(outcome.peak_rss_bytes)),
        ("written per message", per_message.map_or_else(|| "unknown".to_owned(), bytes)),
        ("written and synced in both lives", written(&outcome.written)),
        ("gateway ready after its kill in", seconds(outcome.restart)),
        ("backlog drained in", drain),
        ("duration", seconds(outcome.duration)),
    ];
    let mut text = String::new();
    for (label, value) in rows {
        writeln!(text, "  {label:<34} {value}").expect("a String takes every write");
    }
    text.push_str(&verdict(outcome));
    text
}

fn written(written: &Written) -> String {
    format!("{} in {} syncs for {} messages", bytes(written.bytes), written.syncs, written.messages)
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

fn verdict(outcome: &Outcome) -> String {
    if outcome.tally.missing == 0 && outcome.is_success() {
        return "PASSED: every message that the gateway acknowledged arrived at the datacenter\n".to_owned();
    }
    if outcome.tally.missing == 0 {
        let waiting = outcome.tally.published - outcome.tally.acknowledged.min(outcome.tally.published);
        return format!("FAILED: {waiting} messages were not acknowledged in time\n");
    }
    let examples: Vec<String> =
        outcome.examples_of_missing.iter().map(|(device, number)| format!("{device}/{number}")).collect();
    let missing = outcome.tally.missing;
    format!(
        "FAILED: {missing} acknowledged messages did not arrive, such as (device/number) {}\n",
        examples.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained() -> Tally {
        Tally { published: 10, acknowledged: 10, arrived: 10, ..Tally::default() }
    }

    #[test]
    fn duplicates_are_shown_and_do_not_fail_the_demo() {
        let tally = Tally { duplicates: 3, ..drained() };
        let outcome = Outcome { tally, ..Outcome::default() };
        assert!(outcome.is_success());
        let text = table(&outcome);
        assert!(text.contains("PASSED"), "{text}");
        assert!(text.lines().any(|line| line.contains("duplicates") && line.ends_with(" 3")), "{text}");
    }

    #[test]
    fn a_lost_message_fails_the_demo_and_is_named() {
        let tally = Tally { missing: 1, arrived: 9, ..drained() };
        let outcome = Outcome { tally, examples_of_missing: vec![(4, 17)], ..Outcome::default() };
        assert!(!outcome.is_success());
        let text = table(&outcome);
        assert!(text.contains("FAILED: 1 acknowledged messages") && text.contains("4/17"), "{text}");
    }

    #[test]
    fn a_message_that_was_never_acknowledged_fails_the_demo() {
        let tally = Tally { acknowledged: 9, arrived: 9, ..drained() };
        let outcome = Outcome { tally, ..Outcome::default() };
        assert!(!outcome.is_success());
        assert!(table(&outcome).contains("FAILED: 1 messages were not acknowledged"));
    }

    #[test]
    fn written_bytes_are_divided_by_the_messages_of_both_lives() {
        let written = Written { bytes: 4096, syncs: 7, messages: 4 };
        let text = table(&Outcome { written, ..Outcome::default() });
        assert!(text.lines().any(|line| line.contains("per message") && line.ends_with("1.0 KiB")), "{text}");
    }
}
