//! `tidegate status`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::{SettingsArgs, say};
use crate::admin::{Status, client, table};

/// Which broker to ask, and how to show the answer.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Admin socket of the broker.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["config", "data_dir"])]
    socket: Option<PathBuf>,
    /// Configuration file of the broker.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder of the broker.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Prints the answer as it comes, for programs.
    #[arg(long)]
    json: bool,
}

/// Asks the running broker and prints its answer.
pub fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let socket = match &args.socket {
        Some(socket) => socket.clone(),
        None => {
            let settings = SettingsArgs {
                config: args.config.clone(),
                data_dir: args.data_dir.clone(),
                ..SettingsArgs::default()
            };
            settings.load()?.settings.admin.socket
        }
    };
    let answer = client::get(&socket, "/status")?;
    if args.json {
        say(&answer)?;
    } else {
        let status: Status = serde_json::from_str(&answer).context("the answer does not fit this version")?;
        say(&table::render(&status))?;
    }
    Ok(ExitCode::SUCCESS)
}
