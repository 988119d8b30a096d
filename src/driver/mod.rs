//! Runs the broker.

use crate::settings::Settings;

/// Runs until the process is asked to stop.
///
/// # Errors
/// When it cannot start or cannot go on.
pub fn run(_settings: Settings) -> anyhow::Result<()> {
    anyhow::bail!("the driver is not part of this build")
}
