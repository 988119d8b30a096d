//! Reads the configuration again while the broker runs: on SIGHUP, and when the admin interface asks.
//!
//! Everything new is read and checked on another thread first; then it is put into force in one turn of the hub. Anything that is
//! wrong leaves everything as it was.

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;
use tracing::{error, info, warn};

use crate::access::Users;
use crate::admin::reload::{ReloadReport, ReloadRequests};
use crate::driver::shell::Shell;
use crate::driver::tls::{Certificates, Renewal};
use crate::limits::Limits;
use crate::logging::LevelSwitch;
use crate::net::hub::Access;
use crate::settings::{Loaded, Settings, SettingsError};

/// Users that are named in a warning; of the others there is the number.
const NAMES_MAX: usize = 5;

/// Loads the configuration as the process did when it started.
pub type Load = Arc<dyn Fn() -> Result<Loaded, SettingsError> + Send + Sync>;

/// What reading again takes.
pub struct Reload {
    /// Loads the configuration.
    pub load: Load,
    /// Changes what is logged.
    pub log: LevelSwitch,
}

/// The task that reads again.
pub struct Reloader {
    /// What it takes.
    pub reload: Reload,
    /// Who asks for it.
    pub requests: ReloadRequests,
    /// SIGHUP arrived.
    pub hangups: Rc<Notify>,
    /// Those of the listeners.
    pub certificates: Certificates,
    /// What the process was started with.
    pub started_with: Settings,
}

impl Reloader {
    /// Reads again whenever it is asked to, for ever.
    pub async fn serve(mut self, shell: Rc<Shell>) {
        loop {
            tokio::select! {
                request = self.requests.recv() => {
                    let Some(answer) = request else { return };
                    // The asker may have given up; what was done is in the log.
                    let _ = answer.send(self.run(&shell).await);
                }
                () = self.hangups.notified() => {
                    let _logged = self.run(&shell).await;
                }
            }
        }
    }

    async fn run(&self, shell: &Shell) -> Result<ReloadReport, String> {
        let done = self.try_run(shell).await;
        match &done {
            Ok(report) => {
                let restart = report.needs_restart.join(", ");
                info!(
                    users = report.users,
                    rules = report.rules,
                    needs_restart = restart,
                    "configuration read again"
                );
                report.warnings.iter().for_each(|warning| warn!("{warning}"));
            }
            Err(error) => error!(%error, "the configuration was not read again: the old one stays in force"),
        }
        done
    }

    async fn try_run(&self, shell: &Shell) -> Result<ReloadReport, String> {
        let load = Arc::clone(&self.reload.load);
        let certificates = self.certificates.clone();
        let read = move || -> Result<(Loaded, Access, Renewal), String> {
            let loaded = load().map_err(|error| error.to_string())?;
            let access = loaded.settings.read_access().map_err(|error| error.to_string())?;
            Ok((loaded, access, certificates.read()?))
        };
        let read = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
        let (loaded, mut access, renewal) = read?;
        let settings = &loaded.settings;
        let level = self.reload.log.prepare(&settings.log.level).map_err(|error| error.to_string())?;
        access.anonymous = self.anonymous(settings);
        let report = ReloadReport {
            users: access.policy.users.as_ref().map(|users| users.len() as u64),
            rules: access.rules.rules.as_ref().map(|rules| rules.len() as u64),
            log_level: level.as_str().to_owned(),
            needs_restart: self.needs_restart(settings),
            warnings: [
                loaded.warnings.clone(),
                settings.access.exposed_files(),
                losses(shell.hub.borrow().users().as_deref(), access.policy.users.as_deref()),
            ]
            .concat(),
        };
        // Nothing fails from here on.
        self.reload.log.set(level);
        renewal.put_into_force();
        let now = shell.now();
        shell.hub.borrow_mut().set_access(access, now);
        shell.logins.notify_one();
        shell.flush.notify_one();
        Ok(report)
    }

    /// For each listener that is open, whether it takes anonymous clients now.
    fn anonymous(&self, new: &Settings) -> Vec<bool> {
        let open = self.started_with.listeners.iter();
        open.map(|open| {
            let same = new.listeners.iter().find(|listener| listener.endpoint == open.endpoint);
            same.unwrap_or(open).anonymous
        })
        .collect()
    }

    /// Sections that have changed and are read at start alone.
    fn needs_restart(&self, new: &Settings) -> Vec<String> {
        let old = &self.started_with;
        let open = |settings: &Settings| -> Vec<_> {
            let listeners = settings.listeners.iter().cloned();
            listeners.map(|listener| crate::settings::Listener { anonymous: true, ..listener }).collect()
        };
        // How much a password takes is part of what is read again.
        let limits = |settings: &Settings| Limits { hash_memory_bytes_max: 0, ..settings.limits.clone() };
        let sections = [
            ("listener", open(old) != open(new)),
            ("store", (&old.data_dir, &old.store_path) != (&new.data_dir, &new.store_path)),
            ("limits", limits(old) != limits(new)),
            ("bridge", old.bridges != new.bridges),
            ("admin", old.admin != new.admin),
            ("log.format", old.log.format != new.log.format),
        ];
        sections.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name.to_owned()).collect()
    }
}

/// What users lose with the new password file: a slip of the pen must not shut anybody out unnoticed.
fn losses(old: Option<&Users>, new: Option<&Users>) -> Vec<String> {
    let Some(old) = old else { return Vec::new() };
    let (gone, scram) = old.lost_with(new);
    let told = |users: &[&str], what: &str| {
        let shown = users[..users.len().min(NAMES_MAX)].join(", ");
        let more = if users.len() > NAMES_MAX { ", ..." } else { "" };
        (!users.is_empty()).then(|| format!("{what} {} of the users there were: {shown}{more}", users.len()))
    };
    let gone = told(&gone, "the password file no longer has");
    gone.into_iter().chain(told(&scram, "SCRAM no longer works for")).collect()
}
