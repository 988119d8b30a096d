//! Configuration: from files, environment and flags to checked values.
//!
//! Layers, the later one wins: built-in defaults, the file, `conf.d/*.toml` beside it in the order of their names (their
//! `[[lists]]` are added to the file's), environment variables `TIDEGATE__SECTION__KEY`, `--set section.key=value`, and the
//! flags `--data-dir` and `--listen`. A key that does not exist, or that this build cannot honour, is an error with its
//! place; nothing is ignored.

mod access;
mod keys;
mod listener;
mod load;
mod machine;
mod place;
mod positions;
mod raw;
mod resolve;
mod show;
mod units;
mod url;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tracing_subscriber::filter::{ParseError, Targets};

use crate::admin::AdminOptions;
use crate::bridge::LinkConfig;
use crate::limits::Limits;

pub use access::{ACCESS_FILE_BYTES_MAX, AccessSettings, JwtSettings};
pub(crate) use keys::nearest;
pub use listener::{CertificateUser, ClientCertificate, Endpoint, Listener, ListenerTls, Transport};
pub use load::{Environment, Loaded, Overrides, load};
pub use place::{Place, SettingsError};
pub use show::{effective_toml, memory_parts, memory_sum, memory_table};
pub(crate) use units::Size;

/// The admin interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// Unix socket for the command line tools.
    pub socket: PathBuf,
    /// HTTP on a loopback address; `None`: off.
    pub http: Option<SocketAddr>,
    /// Time between publications below `$SYS/`; `None`: there are none.
    pub sys_interval: Option<Duration>,
}

impl From<&AdminSettings> for AdminOptions {
    fn from(settings: &AdminSettings) -> Self {
        Self { socket: settings.socket.clone(), http: settings.http }
    }
}

/// Shape of the log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `Journald` when standard error is connected to the journal, else `Human`.
    #[default]
    Auto,
    /// For eyes; coloured on a terminal.
    Human,
    /// One JSON object a line.
    Json,
    /// Priority prefix, no time: the journal adds it.
    Journald,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Directives of tracing's `Targets`, such as `info` or `info,tidegate::bridge=debug`.
    pub level: String,
    /// Shape of the lines.
    pub format: LogFormat,
}

impl LogSettings {
    /// What directives let through; blanks around them and empty ones mean nothing.
    ///
    /// # Errors
    /// When one is no level, and no target with a level.
    pub fn directives(text: &str) -> Result<Targets, ParseError> {
        let directives: Vec<&str> = text.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
        directives.join(",").parse()
    }
}

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// At least one.
    pub listeners: Vec<Listener>,
    /// Folder of everything that is written. May not exist yet.
    pub data_dir: PathBuf,
    /// The store's file, inside `data_dir`.
    pub store_path: PathBuf,
    /// Every bound.
    pub limits: Limits,
    /// Links to upstream brokers.
    pub bridges: Vec<LinkConfig>,
    /// Who may do what.
    pub access: AccessSettings,
    /// The admin interface.
    pub admin: AdminSettings,
    /// Logs.
    pub log: LogSettings,
}

impl Default for Settings {
    /// The built-in defaults of a process whose environment says nothing about folders.
    fn default() -> Self {
        let nothing = Environment::default();
        load(None, &nothing, &Overrides::default()).expect("the built-in defaults are valid").settings
    }
}

#[cfg(test)]
mod tests;
