//! `tidegate store`: figures, a check, compaction and backups, through the running broker or, when none runs, on the file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde_json::Value;

use super::{EXIT_FAILURE, SettingsArgs, say};
use crate::admin::client::{self, ClientError};
use crate::admin::store::{Job, backup_in, compact_in, stats_of, verify_in};
use crate::settings::Settings;
use crate::store::{Store, StoreOptions};

/// How often a running broker is asked whether its job has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What to do with the store of which broker.
#[derive(Clone, Debug, Args)]
pub struct StoreArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Prints all counters of the store; without a running broker those of a fresh opening.
    Stats(SettingsArgs),
    /// Reads everything and compares it with what is counted; fails when something does not fit.
    Verify(SettingsArgs),
    /// Gives free space inside the file back to the disk; deliveries from backlogs wait meanwhile.
    Compact(SettingsArgs),
    /// Writes a consistent copy of the store to a new file.
    Backup {
        /// The new file.
        to: PathBuf,
        #[command(flatten)]
        settings: SettingsArgs,
    },
}

/// Does it and prints the result as JSON.
pub fn store(args: &StoreArgs) -> anyhow::Result<ExitCode> {
    let what = &args.what;
    let settings = what.settings().load()?.settings;
    let result = match online(&settings.admin.socket, what) {
        Err(error) if matches!(error.downcast_ref(), Some(ClientError::NotRunning(_))) => {
            offline(&settings, what)?
        }
        other => other?,
    };
    say(&format!("{}\n", serde_json::to_string_pretty(&result)?))?;
    let bad = result.get("problem_count").and_then(Value::as_u64).unwrap_or(0) > 0;
    Ok(if bad { ExitCode::from(EXIT_FAILURE) } else { ExitCode::SUCCESS })
}

impl What {
    fn settings(&self) -> &SettingsArgs {
        match self {
            Self::Stats(settings) | Self::Verify(settings) | Self::Compact(settings) => settings,
            Self::Backup { settings, .. } => settings,
        }
    }
}

fn online(socket: &Path, what: &What) -> anyhow::Result<Value> {
    let path = match what {
        What::Stats(_) => return Ok(serde_json::from_str(&client::get(socket, "/store/stats")?)?),
        What::Verify(_) => "/store/verify".to_owned(),
        What::Compact(_) => "/store/compact".to_owned(),
        // A broker has another current folder.
        What::Backup { to, .. } => format!("/store/backup?to={}", percent(&std::path::absolute(to)?)),
    };
    client::post(socket, &path)?;
    loop {
        let job: Job = serde_json::from_str(&client::get(socket, "/store/job")?)?;
        match (job.running, job.result, job.error) {
            (true, ..) => std::thread::sleep(LOOK_EVERY),
            (false, Some(result), _) => return Ok(result),
            (false, None, error) => bail!("{}: {}", job.name, error.unwrap_or_default()),
        }
    }
}

/// Everything but letters and digits as %XX.
fn percent(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut out = String::new();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(byte) {
            out.push(char::from(*byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn offline(settings: &Settings, what: &What) -> anyhow::Result<Value> {
    let path = &settings.store_path;
    let options = StoreOptions::new(path.clone(), &settings.limits);
    let (store, _) = Store::open_existing(options, Arc::new(|| {}))
        .with_context(|| format!("the store {} cannot be opened", path.display()))?;
    let tools = store.tools();
    let result = match what {
        What::Stats(_) => Ok(stats_of(&tools)),
        What::Verify(_) => verify_in(&tools),
        What::Compact(_) => compact_in(&tools),
        What::Backup { to, .. } => backup_in(&tools, &std::path::absolute(to)?),
    };
    store.close()?;
    Ok(result?)
}
