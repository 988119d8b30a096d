//! `tidegate check`.

use std::process::ExitCode;

use anyhow::Context;

use super::{SettingsArgs, say};
use crate::driver::check_certificates;
use crate::settings::{effective_toml, memory_parts, memory_table};

/// Prints the effective configuration as TOML, the memory sum in comments below it, warnings on standard error.
pub fn check(args: &SettingsArgs) -> anyhow::Result<ExitCode> {
    let loaded = args.load()?;
    loaded.settings.read_access()?;
    check_certificates(&loaded.settings)?;
    let mut text =
        String::from("# The effective configuration: every default and derived value written out.\n");
    text += &effective_toml(&loaded).context("cannot be shown")?;
    let parts = memory_parts(&loaded.settings.limits, &loaded.settings.bridges, &loaded.settings.listeners);
    let machine = loaded.memory_bytes.map(|bytes| format!(" (this machine: {} MiB)", bytes >> 20));
    text += &format!("\n# The most memory that these limits allow{}:\n", machine.unwrap_or_default());
    for line in memory_table(&parts).lines() {
        text += &format!("#{line}\n");
    }
    say(&text)?;
    for warning in loaded.warnings.iter().chain(&loaded.settings.access.exposed_files()) {
        eprintln!("tidegate: warning: {warning}");
    }
    Ok(ExitCode::SUCCESS)
}
