//! `tidegate demo`.

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {}

/// Runs the demonstration.
///
/// # Errors
/// When it cannot be shown.
pub fn run(_args: DemoArgs) -> anyhow::Result<std::process::ExitCode> {
    anyhow::bail!("the demonstration is not part of this build")
}
