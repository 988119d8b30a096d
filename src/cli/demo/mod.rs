//! `tidegate demo`: the main job on one screen, without any service but this program.
//!
//! Simulated devices publish numbered messages at QoS 1 to a gateway process, which forwards them over an uplink to a second
//! process, the datacenter. The uplink is cut, the gateway is killed with SIGKILL in the middle of the outage and started
//! again, the uplink is repaired; at the end every message that the gateway has acknowledged must have arrived. Everything
//! listens on loopback addresses only and lives in one temporary folder. Bounds: the ranges of [`DemoArgs`],
//! `MESSAGES_TOTAL_MAX`, [`checker::MESSAGES_MAX`], [`script::DRAIN_MILLIS_MAX`].

pub mod checker;
pub mod client;
pub mod device;
pub mod display;
mod folder;
pub mod process;
pub mod proxy;
pub mod script;

use std::process::ExitCode;

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

use folder::Folder;

/// Exit code after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// Messages of all devices: a byte of memory each.
const MESSAGES_TOTAL_MAX: u64 = 20_000_000;

/// Shows that nothing is lost: devices publish, the uplink is cut, the gateway is killed and restarted, everything arrives
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// Simulated devices
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub devices: u16,
    /// Seconds that the devices publish for; the demo takes a few more to start and to drain
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(4..=600))]
    pub seconds: u64,
    /// Messages per second of each device
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rate: u32,
    /// Keep the folder with both stores, configurations and logs
    #[arg(long)]
    pub keep_dir: bool,
}

/// Runs the demo. The exit code is 0 only if nothing that was acknowledged was lost and everything arrived in time.
///
/// # Errors
/// When a process does not start or ends by itself, or a file cannot be written. The folder is kept then, too.
pub fn run(args: DemoArgs) -> anyhow::Result<ExitCode> {
    let messages = u64::from(args.devices) * u64::from(args.rate) * args.seconds;
    if messages > MESSAGES_TOTAL_MAX {
        bail!(
            "{messages} messages are more than the demo's {MESSAGES_TOTAL_MAX}: lower --devices, --rate or --seconds"
        );
    }
    let program = std::env::current_exe().context("finding this program's own file")?;
    let mut folder = Folder::create().context("making the demo's folder")?;
    if args.keep_dir {
        folder.keep();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(until_interrupted(script::play(&args, folder.path(), &program)));
    runtime.shutdown_background();
    match ended {
        Ok(None) => {
            println!("\ninterrupted; both brokers are stopped");
            Ok(ExitCode::from(INTERRUPTED))
        }
        Ok(Some(outcome)) if outcome.is_success() => {
            say_if_kept(&folder, args.keep_dir);
            Ok(ExitCode::SUCCESS)
        }
        Ok(Some(_)) => {
            folder.keep();
            say_if_kept(&folder, true);
            Ok(ExitCode::FAILURE)
        }
        Err(error) => {
            folder.keep();
            Err(error.context(format!(
                "the demo could not be played; its logs are in {}",
                folder.path().display()
            )))
        }
    }
}

fn say_if_kept(folder: &Folder, kept: bool) {
    if kept {
        println!("the stores, configurations and logs are in {}", folder.path().display());
    }
}

/// `None` when a signal asked to stop; dropping the script stops its processes.
async fn until_interrupted<T>(script: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<Option<T>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        biased;
        _ = interrupt.recv() => Ok(None),
        _ = terminate.recv() => Ok(None),
        ended = script => ended.map(Some),
    }
}

#[cfg(test)]
mod tests;
