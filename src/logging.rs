//! Log output: structured lines on standard error, for a terminal, the journal or a collector.
//!
//! Lines are handed to a thread of their own through a queue of [`LINES_WAITING_MAX`]; when whoever reads standard error
//! stalls, the broker does not: lines are dropped, counted, and the next line that finds room is preceded by their number.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{Compact, Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, layer::SubscriberExt, reload};

use crate::settings::{LogFormat, LogSettings};

/// Log lines that may wait for the reader of standard error.
pub const LINES_WAITING_MAX: usize = 4096;
/// Overrides the configured level, with the same syntax.
pub const LEVEL_VARIABLE: &str = "TIDEGATE_LOG";

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The directives do not parse.
    #[error("{place}: \"{directives}\" is no log level: {reason}")]
    BadLevel {
        /// What holds them.
        place: &'static str,
        /// As they were written.
        directives: String,
        /// What is wrong.
        reason: String,
    },
    /// A process has one log.
    #[error("logging was started before")]
    StartedBefore,
}

/// Keeps the log's thread alive; dropping it writes out what waits, for a second at most.
pub struct LogGuard {
    dropped: ErrorCounter,
    level: Option<LevelSwitch>,
    _worker: WorkerGuard,
}

/// Changes what is logged while the process runs.
#[derive(Clone)]
pub struct LevelSwitch {
    handle: Option<reload::Handle<Targets, Registry>>,
    /// [`LEVEL_VARIABLE`], which wins over the configuration.
    variable: Option<String>,
}

/// Directives that were checked.
#[derive(Debug)]
pub struct Directives {
    filter: Targets,
    directives: String,
}

impl Directives {
    /// As they were written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.directives
    }
}

impl LevelSwitch {
    /// Checks directives; those of the environment win.
    ///
    /// # Errors
    /// When they do not parse.
    pub fn prepare(&self, directives: &str) -> Result<Directives, LogError> {
        let directives = self.variable.as_deref().unwrap_or(directives);
        Ok(Directives { filter: filter("log.level", directives)?, directives: directives.to_owned() })
    }

    /// Puts directives into force.
    pub fn set(&self, level: Directives) {
        if let Some(handle) = &self.handle {
            // It fails only once the process has no log any more.
            let _ = handle.reload(level.filter);
        }
    }
}

impl LogGuard {
    /// What changes the level.
    #[must_use]
    pub fn level_switch(&self) -> LevelSwitch {
        self.level.clone().unwrap_or(LevelSwitch { handle: None, variable: None })
    }

    /// Lines that were dropped since the start.
    #[must_use]
    pub fn lines_dropped(&self) -> usize {
        self.dropped.dropped_lines()
    }
}

impl fmt::Debug for LogGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogGuard").field("lines_dropped", &self.lines_dropped()).finish_non_exhaustive()
    }
}

/// Starts the process's log. `level` is the value of [`LEVEL_VARIABLE`], `journal_stream` of `JOURNAL_STREAM`.
///
/// # Errors
/// When the level does not parse, or when a log was started before.
pub fn start(
    settings: &LogSettings,
    level: Option<&str>,
    journal_stream: Option<&str>,
) -> Result<LogGuard, LogError> {
    let format = match settings.format {
        LogFormat::Auto if is_the_journal(journal_stream) => LogFormat::Journald,
        LogFormat::Auto => LogFormat::Human,
        format => format,
    };
    let filter = match level {
        Some(directives) => filter(LEVEL_VARIABLE, directives)?,
        None => filter("log.level", &settings.level)?,
    };
    let (lines, mut guard) = lines(io::stderr(), format);
    let layer = layer(format, io::stderr().is_terminal(), lines);
    let (filter, handle) = reload::Layer::new(filter);
    guard.level = Some(LevelSwitch { handle: Some(handle), variable: level.map(str::to_owned) });
    let subscriber = tracing_subscriber::registry().with(filter).with(layer);
    subscriber.try_init().map_err(|_| LogError::StartedBefore)?;
    Ok(guard)
}

fn filter(place: &'static str, directives: &str) -> Result<Targets, LogError> {
    LogSettings::directives(directives).map_err(|error| LogError::BadLevel {
        place,
        directives: directives.to_owned(),
        reason: error.to_string(),
    })
}

/// systemd names the journal's socket by device and inode; standard error may have been redirected since.
fn is_the_journal(journal_stream: Option<&str>) -> bool {
    let Some((device, inode)) = journal_stream.and_then(|stream| stream.split_once(':')) else {
        return false;
    };
    let Ok(stat) = rustix::fs::fstat(io::stderr()) else { return false };
    device.parse() == Ok(stat.st_dev) && inode.parse() == Ok(stat.st_ino)
}

fn layer<S>(format: LogFormat, colours: bool, lines: Lines) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(lines);
    match format {
        LogFormat::Json => layer.json().flatten_event(true).with_ansi(false).boxed(),
        LogFormat::Journald => {
            let compact = Format::default().compact().without_time().with_ansi(false);
            layer.with_ansi(false).event_format(Prioritised(compact)).boxed()
        }
        LogFormat::Human | LogFormat::Auto => layer.with_ansi(colours).boxed(),
    }
}

/// Precedes each line by its syslog priority, as the journal reads it.
struct Prioritised(Format<Compact, ()>);

impl<S, N> FormatEvent<S, N> for Prioritised
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// The bounded way out: never waits.
struct Lines {
    queue: NonBlocking,
    dropped: ErrorCounter,
    reported: Arc<AtomicUsize>,
    format: LogFormat,
}

fn lines(target: impl Write + Send + 'static, format: LogFormat) -> (Lines, LogGuard) {
    let builder = NonBlockingBuilder::default().lossy(true).thread_name("log");
    let (queue, worker) = builder.buffered_lines_limit(LINES_WAITING_MAX).finish(target);
    let dropped = queue.error_counter();
    let guard = LogGuard { dropped: dropped.clone(), level: None, _worker: worker };
    (Lines { queue, dropped, reported: Arc::default(), format }, guard)
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = NonBlocking;

    fn make_writer(&'a self) -> NonBlocking {
        let mut queue = self.queue.clone();
        let dropped = self.dropped.dropped_lines();
        let reported = self.reported.swap(dropped, Ordering::Relaxed);
        if dropped > reported {
            // A report that finds no room either counts as one more dropped line and is made up for by the next.
            let _never_fails = queue.write_all(report(self.format, dropped - reported).as_bytes());
        }
        queue
    }
}

fn report(format: LogFormat, lines: usize) -> String {
    let text = "log lines were dropped, since standard error is not read fast enough";
    match format {
        LogFormat::Json => format!("{{\"level\":\"WARN\",\"message\":\"{text}\",\"lines\":{lines}}}\n"),
        LogFormat::Journald => format!("<4>{lines} {text}\n"),
        LogFormat::Human | LogFormat::Auto => format!("WARN {lines} {text}\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, sync_channel};

    use super::*;

    /// Collects what is written; each write first waits for a permit if there is a gate.
    struct Sink {
        text: Arc<Mutex<Vec<u8>>>,
        gate: Option<Receiver<()>>,
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(gate) = &self.gate {
                let _closed_means_open = gate.recv();
            }
            self.text.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn directives_name_levels_for_all_and_for_parts() {
        let filter = LogSettings::directives("info, tidegate::bridge=debug,, tidegate::store=warn").unwrap();
        let shown = |target: &str, level| filter.would_enable(target, &level);
        assert!(shown("tidegate::driver", Level::INFO) && !shown("tidegate::driver", Level::DEBUG));
        assert!(shown("tidegate::bridge::link", Level::DEBUG));
        assert!(LogSettings::directives("tidegate=loud").is_err());
        assert!(!LogSettings::directives("off").unwrap().would_enable("tidegate", &Level::ERROR));
    }

    fn logged(format: LogFormat, gate: Option<Receiver<()>>, log: impl FnOnce()) -> String {
        let text = Arc::default();
        let (lines, guard) = lines(Sink { text: Arc::clone(&text), gate }, format);
        let subscriber = tracing_subscriber::registry().with(layer(format, false, lines));
        tracing::subscriber::with_default(subscriber, log);
        drop(guard);
        String::from_utf8(text.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn lines_for_the_journal_start_with_their_priority_and_have_no_time() {
        let text = logged(LogFormat::Journald, None, || {
            tracing::warn!(queue = "a", "nearly full");
            tracing::info!("up");
        });
        assert_eq!(
            text,
            "<4> WARN tidegate::logging::tests: nearly full queue=\"a\"\n<6> INFO tidegate::logging::tests: up\n"
        );
    }

    #[test]
    fn lines_for_a_collector_are_json_objects() {
        let text = logged(LogFormat::Json, None, || tracing::error!(code = 7, "gone"));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "ERROR");
        assert_eq!(line["message"], "gone");
        assert_eq!(line["code"], 7);
        let report: serde_json::Value = serde_json::from_str(&report(LogFormat::Json, 3)).unwrap();
        assert_eq!(report["lines"], 3);
    }

    #[test]
    fn a_reader_that_stalls_costs_lines_and_never_time_and_their_number_is_told() {
        let (open, gate) = sync_channel(1);
        let text: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (lines, guard) = lines(Sink { text: Arc::clone(&text), gate: Some(gate) }, LogFormat::Human);
        let subscriber = tracing_subscriber::registry().with(layer(LogFormat::Human, false, lines));
        let told = || String::from_utf8_lossy(&text.lock().unwrap()).contains("log lines were dropped");
        tracing::subscriber::with_default(subscriber, || {
            // Nothing is read meanwhile: this loop ends only because writing does not wait.
            (0..LINES_WAITING_MAX + 100).for_each(|number| tracing::info!(number, "early"));
            assert!(guard.lines_dropped() >= 90, "{}", guard.lines_dropped());
            drop(open);
            let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while !told() && std::time::Instant::now() < end {
                tracing::info!("late");
                std::thread::yield_now();
            }
        });
        assert!(told(), "no report");
    }

    #[test]
    fn a_level_that_does_not_parse_is_refused_with_the_name_of_its_place() {
        let error = filter(LEVEL_VARIABLE, "tidegate=loud").unwrap_err();
        assert!(error.to_string().starts_with("TIDEGATE_LOG: \"tidegate=loud\""), "{error}");
    }

    #[test]
    fn a_journal_stream_that_is_not_standard_error_is_not_the_journal() {
        assert!(!is_the_journal(None));
        assert!(!is_the_journal(Some("0:0")));
        assert!(!is_the_journal(Some("nonsense")));
    }
}
