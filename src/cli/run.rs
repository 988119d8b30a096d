//! `tidegate run`.

use std::process::ExitCode;
use std::sync::Arc;

use super::{EXIT_FAILURE, SettingsArgs};
use crate::driver::Reload;
use crate::settings::{Loaded, memory_parts, memory_sum};
use crate::{driver, logging};

/// Loads the settings, starts the log, serves. Failures after the log's start are told there, in its format.
pub fn run(args: &SettingsArgs) -> anyhow::Result<ExitCode> {
    let loaded = args.load()?;
    let access = loaded.settings.read_access()?;
    let variable = |name: &str| std::env::var(name).ok();
    let level = variable(logging::LEVEL_VARIABLE);
    let journal = variable("JOURNAL_STREAM");
    let log = logging::start(&loaded.settings.log, level.as_deref(), journal.as_deref())?;
    announce(&loaded);
    loaded.settings.access.exposed_files().iter().for_each(|warning| tracing::warn!("{warning}"));
    let again = args.clone();
    let reload = Reload { load: Arc::new(move || again.load()), log: log.level_switch() };
    if let Err(error) = driver::run(loaded.settings, access, reload) {
        tracing::error!("stopped: {error:#}");
        return Ok(ExitCode::from(EXIT_FAILURE));
    }
    Ok(ExitCode::SUCCESS)
}

fn announce(loaded: &Loaded) {
    let files: Vec<_> = loaded.files.iter().map(|file| file.display().to_string()).collect();
    let parts = memory_parts(&loaded.settings.limits, &loaded.settings.bridges, &loaded.settings.listeners);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = if files.is_empty() { "built-in defaults".to_owned() } else { files.join(", ") },
        data_dir = %loaded.settings.data_dir.display(),
        "starting"
    );
    for (part, bytes) in &parts {
        tracing::debug!(part, bytes, "memory bound");
    }
    tracing::info!(
        mib = memory_sum(&parts) >> 20,
        machine_mib = loaded.memory_bytes.map(|bytes| bytes >> 20),
        "most memory that the limits allow; `tidegate check` lists the parts"
    );
    loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
}
