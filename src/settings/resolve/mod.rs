//! From the merged file to checked values. Every complaint names the key and the place that set it.

mod access;
mod bridge;
mod limits;
mod listener;
mod memory;
mod queues;

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::listener::SOCKET_PATH_BYTES_MAX;
use super::load::Environment;
use super::place::{Origins, Place, SettingsError};
use super::raw::{Raw, RawAdmin, RawLog, RawLogFormat, RawStore};
use super::units::{Count, Size, Span};
use super::{AdminSettings, LogFormat, LogSettings, Settings};

const STATE_FOLDER_OF_ROOT: &str = "/var/lib/tidegate";

#[cfg(test)]
pub(super) use listener::ANYONE_MAY_CONNECT;

/// The outcome.
pub struct Resolved {
    pub settings: Settings,
    pub warnings: Vec<String>,
    /// The input with every derived value filled in.
    pub effective: Raw,
}

/// Checks everything.
///
/// # Errors
/// The first thing that is wrong.
pub fn resolve(
    mut raw: Raw,
    origins: &Origins,
    environment: &Environment,
) -> Result<Resolved, SettingsError> {
    let check = Check { origins };
    let access = access::access(&mut raw.access, &mut raw.jwt, &check)?;
    let listeners = listener::listeners(&mut raw.listener, access.authenticates(), &check)?;
    let data_dir = data_dir(&mut raw.store, &check, environment)?;
    let store_path = data_dir.join(store_file(&raw.store, &check)?);
    let mut limits = limits::limits(&mut raw, environment.memory_bytes, &check)?;
    if access.password_file.is_some() {
        limits.hash_memory_bytes_max = access.hash_memory_bytes_max;
    }
    let mut warnings = Vec::new();
    let around = bridge::Surroundings { check: &check, limits: &limits, listeners: &listeners };
    let bridges = bridge::bridges(&mut raw.bridge, &around, &mut warnings)?;
    memory::within_budget(&limits, &bridges, &listeners, &raw, &check)?;
    warnings.extend(memory::doubt(&limits, &bridges, &listeners, &raw, environment.memory_bytes));
    let admin = admin(&mut raw.admin, &data_dir, &check)?;
    let log = log(&raw.log, &check)?;
    let settings = Settings { listeners, data_dir, store_path, limits, bridges, access, admin, log };
    Ok(Resolved { settings, warnings, effective: raw })
}

/// Range checks that end in an error at the key's place.
struct Check<'a> {
    origins: &'a Origins,
}

impl Check<'_> {
    fn fail<T>(&self, key: &str, what: impl Into<String>) -> Result<T, SettingsError> {
        Err(self.origins.error(key, what))
    }

    /// `value` as the integer type that the broker uses, if it lies in `range`.
    fn within<T: TryFrom<u64>, U: Display>(
        &self,
        key: &str,
        value: u64,
        range: RangeInclusive<u64>,
        show: fn(u64) -> U,
    ) -> Result<T, SettingsError> {
        match T::try_from(value) {
            Ok(narrow) if range.contains(&value) => Ok(narrow),
            _ => self.fail(
                key,
                format!("expected {} to {}, found {}", show(*range.start()), show(*range.end()), show(value)),
            ),
        }
    }

    fn count<T: TryFrom<u64>>(
        &self,
        key: &str,
        value: Count,
        range: RangeInclusive<u64>,
    ) -> Result<T, SettingsError> {
        self.within(key, value.0, range, Count)
    }

    fn size<T: TryFrom<u64>>(
        &self,
        key: &str,
        value: Size,
        range: RangeInclusive<u64>,
    ) -> Result<T, SettingsError> {
        self.within(key, value.0, range, Size)
    }

    fn millis<T: TryFrom<u64>>(
        &self,
        key: &str,
        value: Span,
        range: RangeInclusive<u64>,
    ) -> Result<T, SettingsError> {
        self.within(key, value.0, range, Span)
    }

    /// Whole seconds; `range` is in seconds.
    fn seconds<T: TryFrom<u64>>(
        &self,
        key: &str,
        value: Span,
        range: RangeInclusive<u64>,
    ) -> Result<T, SettingsError> {
        if !value.0.is_multiple_of(1000) {
            return self.fail(key, format!("expected whole seconds, found {value}"));
        }
        self.within(key, value.0 / 1000, range, |secs| Span(secs.saturating_mul(1000)))
    }

    /// A path of a file is relative to that file, a path of a flag or variable to the working directory.
    fn path(&self, key: &str, path: &Path) -> PathBuf {
        match self.origins.of(key) {
            Place::Line(file, _) => file.parent().unwrap_or(Path::new("")).join(path),
            _ => path.to_owned(),
        }
    }
}

/// The folder that was set, or the one that the system provides for state.
fn data_dir(
    store: &mut RawStore,
    check: &Check<'_>,
    environment: &Environment,
) -> Result<PathBuf, SettingsError> {
    let folder = match &store.data_dir {
        Some(folder) if folder.as_os_str().is_empty() => return check.fail("store.data_dir", "is empty"),
        Some(folder) => check.path("store.data_dir", folder),
        None => state_folder(environment),
    };
    store.data_dir = Some(folder.clone());
    Ok(folder)
}

fn state_folder(environment: &Environment) -> PathBuf {
    let absolute = |name: &str| {
        let value = environment.variables.get(name)?;
        // systemd joins several state directories with colons; the first one is ours.
        let first = Path::new(value.split(':').next().unwrap_or_default());
        first.is_absolute().then(|| first.to_owned())
    };
    if let Some(folder) = absolute("STATE_DIRECTORY") {
        return folder;
    }
    if environment.root {
        return STATE_FOLDER_OF_ROOT.into();
    }
    let user = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    user.map_or(STATE_FOLDER_OF_ROOT.into(), |state| state.join("tidegate"))
}

fn store_file<'a>(store: &'a RawStore, check: &Check<'_>) -> Result<&'a str, SettingsError> {
    let name = Path::new(&store.file).file_name();
    if name.is_none_or(|name| *name != *store.file) {
        return check.fail("store.file", "expected a plain file name; the folder is `store.data_dir`");
    }
    Ok(&store.file)
}

/// Longest time between publications below `$SYS/`: a day.
const SYS_INTERVAL_MILLIS_MAX: u64 = 86_400_000;

fn admin(raw: &mut RawAdmin, data_dir: &Path, check: &Check<'_>) -> Result<AdminSettings, SettingsError> {
    let socket = match &raw.socket {
        Some(path) => check.path("admin.socket", path),
        None => data_dir.join("admin.sock"),
    };
    if socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        let what = format!(
            "{} is longer than the {SOCKET_PATH_BYTES_MAX} bytes of a Unix socket's path; set a shorter `admin.socket`",
            socket.display()
        );
        return check.fail("admin.socket", what);
    }
    raw.socket = Some(socket.clone());
    let http = match raw.http.as_str() {
        "off" => None,
        text => Some(http_addr(text, check)?),
    };
    let interval: u64 = check.millis("admin.sys_interval", raw.sys_interval, 0..=SYS_INTERVAL_MILLIS_MAX)?;
    let sys_interval = (interval > 0).then(|| Duration::from_millis(interval));
    Ok(AdminSettings { socket, http, sys_interval })
}

fn http_addr(text: &str, check: &Check<'_>) -> Result<SocketAddr, SettingsError> {
    let Ok(addr) = text.parse::<SocketAddr>() else {
        let what = format!(
            "expected \"off\" or an address with a port such as \"127.0.0.1:9883\", found \"{text}\""
        );
        return check.fail("admin.http", what);
    };
    if addr.ip().is_loopback() {
        return Ok(addr);
    }
    check.fail(
        "admin.http",
        format!(
            "{addr} can be reached from other machines and the admin interface does not authenticate; use 127.0.0.1 \
             and a reverse proxy or an SSH tunnel"
        ),
    )
}

fn log(raw: &RawLog, check: &Check<'_>) -> Result<LogSettings, SettingsError> {
    if let Err(error) = LogSettings::directives(&raw.level) {
        return check.fail("log.level", format!("expected a level such as \"info\" or directives: {error}"));
    }
    let format = match raw.format {
        RawLogFormat::Auto => LogFormat::Auto,
        RawLogFormat::Human => LogFormat::Human,
        RawLogFormat::Json => LogFormat::Json,
        RawLogFormat::Journald => LogFormat::Journald,
    };
    Ok(LogSettings { level: raw.level.clone(), format })
}
