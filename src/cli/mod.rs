//! The command line: what a person types, and what is said in return.
//!
//! Exit codes: [`EXIT_FAILURE`] when something failed, [`EXIT_USAGE`] when the command line or the configuration is wrong and
//! nothing was attempted, [`EXIT_INCOMPLETE`] when a configuration was taken over in part. Answers go to standard output, complaints and logs to standard error.

mod acl;
mod check;
pub mod demo;
mod import;
mod passwd;
mod queue;
mod reload;
mod run;
mod status;
mod store;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::settings::{Environment, Loaded, Overrides, SettingsError, load};

/// Something failed.
pub const EXIT_FAILURE: u8 = 1;
/// The command line or the configuration is wrong.
pub const EXIT_USAGE: u8 = 2;
/// A configuration was taken over, but not all of it.
pub const EXIT_INCOMPLETE: u8 = 3;

const EXAMPLES: &str = "\
Examples:
  tidegate demo                       see that nothing is lost, in a minute
  tidegate run                        serve mqtt://127.0.0.1:1883 and stomp://127.0.0.1:61613
  tidegate run --config FILE
  tidegate check --config FILE        find mistakes before they matter
  tidegate import-mosquitto FILE      the equal configuration for a mosquitto.conf
  tidegate status                     queues, links and store of a running broker
  tidegate passwd FILE USER           set a password
  tidegate reload                     take up changed passwords, rules and certificates
  tidegate acl explain ann c1 write sensors/a

Every key of the configuration file can also be set by an environment variable (TIDEGATE__LIMITS__PACKET_MAX=2MiB) or \
by a flag (--set limits.packet_max=2MiB). Flags win over variables, variables over files. Lists, such as bridges, stand \
in files only. TIDEGATE_LOG sets the log level: info, debug, or directives such as info,tidegate::bridge=debug.

Exit codes: 0 success, 1 failure, 2 wrong command line or configuration.";

/// A durable MQTT and STOMP broker for edge gateways: stores, spills and forwards to a datacenter broker.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the broker until SIGTERM or SIGINT.
    Run(SettingsArgs),
    /// Checks a configuration and prints what it amounts to, without starting anything.
    Check(SettingsArgs),
    /// Takes a Mosquitto configuration over and says line by line what became of it.
    ImportMosquitto(import::ImportArgs),
    /// Shows in a minute, on this machine alone, what the broker promises.
    Demo(demo::DemoArgs),
    /// Has a running broker read its configuration, passwords, rules and certificates again.
    Reload(SettingsArgs),
    /// Sets or deletes a password in a password file.
    Passwd(passwd::PasswdArgs),
    /// Says what a client may do, and why.
    Acl(acl::AclArgs),
    /// Shows queues, links and store of a running broker.
    Status(status::StatusArgs),
    /// Lists, inspects, empties and ends named queues of a running broker.
    Queue(queue::QueueArgs),
    /// Lists and decides prepared transactions of a running broker.
    Txn(queue::TxnArgs),
    /// Figures, check, compaction and backup of the store, with a running broker or without.
    Store(store::StoreArgs),
}

/// Where the settings come from.
#[derive(Clone, Debug, Default, Args)]
struct SettingsArgs {
    /// Configuration file; files in conf.d beside it are read too. Without it the built-in defaults hold.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of the store and the admin socket.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Listener, such as mqtt://127.0.0.1:1883; replaces the configured ones; may be repeated.
    #[arg(long, value_name = "URL")]
    listen: Vec<String>,
    /// Sets one key, such as limits.packet_max=2MiB; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl SettingsArgs {
    fn load(&self) -> Result<Loaded, SettingsError> {
        let overrides =
            Overrides { data_dir: self.data_dir.clone(), listen: self.listen.clone(), set: self.set.clone() };
        load(self.config.as_deref(), &Environment::of_this_process(), &overrides)
    }
}

/// What may be typed, for those who write manuals and completions from it.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command line of this process. Wrong usage ends the process here, with [`EXIT_USAGE`].
#[must_use]
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::check(&args),
        Command::ImportMosquitto(args) => import::import(&args),
        Command::Demo(args) => demo::run(args),
        Command::Reload(args) => reload::reload(&args),
        Command::Passwd(args) => passwd::passwd(&args),
        Command::Acl(args) => acl::acl(&args),
        Command::Status(args) => status::status(&args),
        Command::Queue(args) => queue::queue(&args),
        Command::Txn(args) => queue::txn(&args),
        Command::Store(args) => store::store(&args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("tidegate: {error:#}");
        exit_code(&error)
    })
}

/// A wrong configuration is told apart from a failure.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    let is_usage = error.is::<SettingsError>()
        || error.is::<crate::logging::LogError>()
        || error.is::<crate::import::ImportError>();
    ExitCode::from(if is_usage { EXIT_USAGE } else { EXIT_FAILURE })
}

/// Writes an answer. A reader that has gone away (`tidegate check | head`) is no failure.
fn say(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn flags_reach_the_settings() {
        let line = [
            "tidegate",
            "run",
            "--data-dir",
            "/tmp/x",
            "--listen",
            "mqtt://127.0.0.1:0",
            "--set",
            "log.level=debug",
        ];
        let Command::Run(args) = Cli::try_parse_from(line).unwrap().command else { panic!("not run") };
        let settings = args.load().unwrap().settings;
        assert_eq!(settings.store_path, PathBuf::from("/tmp/x/tidegate.db"));
        assert_eq!(settings.listeners[0].addr().unwrap().port(), 0);
        assert_eq!(settings.log.level, "debug");
    }

    #[test]
    fn a_wrong_configuration_has_the_exit_code_of_wrong_usage() {
        let args = SettingsArgs { set: vec!["limits.nonsense=1".into()], ..SettingsArgs::default() };
        let error = check::check(&args).unwrap_err();
        assert_eq!(exit_code(&error), ExitCode::from(EXIT_USAGE));
        assert_eq!(exit_code(&anyhow::anyhow!("disk on fire")), ExitCode::from(EXIT_FAILURE));
    }
}
