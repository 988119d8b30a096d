//! `tidegate queue` and `tidegate txn`: named queues and prepared transactions of a running broker.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};

use super::{SettingsArgs, say};
use crate::admin::client;
use crate::admin::desk::{Answer, PEEK_COUNT, Peeked, QueueLine, TransactionLine};

/// How long a long job may make no progress.
const STUCK_AFTER: Duration = Duration::from_secs(30);
/// Pause when a page is on its way.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What to do with the queues of which broker.
#[derive(Clone, Debug, Args)]
pub struct QueueArgs {
    #[command(subcommand)]
    what: QueueJob,
    #[command(flatten)]
    common: Common,
}

/// What to do with the prepared transactions of which broker.
#[derive(Clone, Debug, Args)]
pub struct TxnArgs {
    #[command(subcommand)]
    what: TxnJob,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Debug, Args)]
struct Common {
    /// Prints the answer as JSON, for programs.
    #[arg(long, global = true)]
    json: bool,
    /// Configuration file of the broker.
    #[arg(long, short, value_name = "FILE", global = true)]
    config: Option<std::path::PathBuf>,
    /// Data folder of the broker.
    #[arg(long, value_name = "DIR", global = true)]
    data_dir: Option<std::path::PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
enum QueueJob {
    /// Lists all named queues.
    List,
    /// Shows one queue.
    Show {
        /// Its name, without $queue/.
        queue: String,
    },
    /// Shows the first messages that wait, and takes none.
    Peek {
        /// The queue's name.
        queue: String,
        /// How many, at most 1000.
        #[arg(long, default_value_t = PEEK_COUNT)]
        count: usize,
    },
    /// Moves everything that waits to another queue, or dead letters to where they come from.
    Move {
        /// The queue's name.
        queue: String,
        /// The queue to move to.
        #[arg(long, value_name = "QUEUE")]
        to: Option<String>,
    },
    /// Removes everything that waits. What is under way to consumers stays.
    Purge {
        /// The queue's name.
        queue: String,
    },
    /// Ends a queue that nobody uses, with everything in it.
    Delete {
        /// The queue's name.
        queue: String,
    },
}

#[derive(Clone, Debug, Subcommand)]
enum TxnJob {
    /// Lists the prepared transactions.
    List,
    /// Carries one out.
    Commit {
        /// Its name.
        xid: String,
    },
    /// Drops one: nothing of it happens.
    Rollback {
        /// Its name.
        xid: String,
    },
}

/// `tidegate queue`.
pub fn queue(args: &QueueArgs) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    match &args.what {
        QueueJob::List => common.tell(&common.get("/queues")?, queue_table),
        QueueJob::Show { queue } => {
            let Answer::Queues(lines) = common.get("/queues")? else { bail!("an unexpected answer") };
            let found: Vec<_> = lines.into_iter().filter(|line| line.name == *queue).collect();
            if found.is_empty() {
                bail!("there is no queue \"{queue}\"");
            }
            common.tell(&Answer::Queues(found), queue_table)
        }
        QueueJob::Peek { queue, count } => {
            let path = format!("/queues/peek?queue={}&count={count}", percent(queue));
            let has_come = |answer: &Answer| !matches!(answer, Answer::Messages(seen, left) if seen.is_empty() && *left > 0);
            let until = Instant::now() + STUCK_AFTER;
            loop {
                let answer = common.get(&path)?;
                if has_come(&answer) || Instant::now() > until {
                    return common.tell(&answer, queue_table);
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
        QueueJob::Move { queue, to } => {
            let to = to.as_ref().map_or(String::new(), |to| format!("&to={}", percent(to)));
            common.work(&format!("/queues/move?queue={}{to}", percent(queue)))
        }
        QueueJob::Purge { queue } => common.work(&format!("/queues/purge?queue={}", percent(queue))),
        QueueJob::Delete { queue } => common.work(&format!("/queues/delete?queue={}", percent(queue))),
    }
}

/// `tidegate txn`.
pub fn txn(args: &TxnArgs) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    let answer = match &args.what {
        TxnJob::List => common.get("/transactions")?,
        TxnJob::Commit { xid } => common.post(&format!("/transactions/commit?xid={}", percent(xid)))?,
        TxnJob::Rollback { xid } => common.post(&format!("/transactions/rollback?xid={}", percent(xid)))?,
    };
    common.tell(&answer, queue_table)
}

impl Common {
    fn socket(&self) -> anyhow::Result<std::path::PathBuf> {
        let settings = SettingsArgs {
            config: self.config.clone(),
            data_dir: self.data_dir.clone(),
            ..SettingsArgs::default()
        };
        Ok(settings.load()?.settings.admin.socket)
    }

    fn get(&self, path: &str) -> anyhow::Result<Answer> {
        serde_json::from_str(&client::get(&self.socket()?, path)?)
            .context("the answer does not fit this version")
    }

    fn post(&self, path: &str) -> anyhow::Result<Answer> {
        serde_json::from_str(&client::post(&self.socket()?, path)?)
            .context("the answer does not fit this version")
    }

    /// Asks again and again until nothing is left, or no progress is made.
    fn work(&self, path: &str) -> anyhow::Result<ExitCode> {
        let mut sum = 0;
        let mut since = Instant::now();
        loop {
            let Answer::Progress(done, left) = self.post(path)? else { bail!("an unexpected answer") };
            sum += done;
            if left == 0 {
                return self.tell(&Answer::Progress(sum, 0), queue_table);
            }
            if done > 0 {
                since = Instant::now();
            } else if since.elapsed() > STUCK_AFTER {
                bail!("{sum} messages are done with, and {left} cannot be reached");
            } else {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    fn tell(&self, answer: &Answer, table: fn(&Answer) -> String) -> anyhow::Result<ExitCode> {
        let text = if self.json { format!("{}\n", serde_json::to_string(answer)?) } else { table(answer) };
        say(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn queue_table(answer: &Answer) -> String {
    match answer {
        Answer::Queues(lines) => queues(lines),
        Answer::Messages(messages, left) => peeked(messages, *left),
        Answer::Progress(done, _) => format!("{done} messages\n"),
        Answer::Transactions(lines) => transactions(lines),
        Answer::Done => "done\n".to_owned(),
    }
}

fn queues(lines: &[QueueLine]) -> String {
    let mut out = format!("{:>10} {:>12} {:>9} {:>9}  name\n", "messages", "bytes", "under way", "consumers");
    for line in lines {
        let QueueLine { messages, bytes, under_way, consumers, .. } = line;
        let name = line.name.escape_debug();
        let _ = writeln!(out, "{messages:>10} {bytes:>12} {under_way:>9} {consumers:>9}  {name}");
    }
    out
}

fn peeked(messages: &[Peeked], left: u64) -> String {
    let mut out = format!("{left} messages wait\n");
    for message in messages {
        let text = message.text.as_deref().unwrap_or("(not text)").escape_debug().to_string();
        let _ = writeln!(out, "{}  {} bytes  {text}", message.topic.escape_debug(), message.payload_bytes);
        for (name, value) in &message.properties {
            let _ = writeln!(out, "    {}: {}", name.escape_debug(), value.escape_debug());
        }
    }
    out
}

fn transactions(lines: &[TransactionLine]) -> String {
    let mut out = format!("{:>9} {:>8} {:>14}  xid\n", "publishes", "settles", "since (ms)");
    for line in lines {
        let TransactionLine { publishes, settles, since, xid } = line;
        let _ = writeln!(out, "{publishes:>9} {settles:>8} {since:>14}  {}", xid.escape_debug());
    }
    out
}

/// Everything but letters, digits and a few signs as %XX.
fn percent(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
