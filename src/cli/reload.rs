//! `tidegate reload`.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::Value;

use super::{SettingsArgs, say};
use crate::admin::client::{self, ClientError};
use crate::admin::reload::ReloadReport;
use crate::settings::{Place, SettingsError};

/// HTTP status of a configuration that is wrong.
const UNPROCESSABLE: u16 = 422;

/// Has the running broker read its configuration, passwords, rules and certificates again.
pub fn reload(args: &SettingsArgs) -> anyhow::Result<ExitCode> {
    let socket = args.load()?.settings.admin.socket;
    match client::post(&socket, "/reload") {
        Ok(body) => {
            say(&told(&serde_json::from_str(&body)?))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(ClientError::Refused { code: UNPROCESSABLE, body }) => {
            let body: Value = serde_json::from_str(&body)?;
            let what = body["error"].as_str().unwrap_or("the configuration is wrong").to_owned();
            let what = format!("{what}\nnothing has changed: what was in force still is");
            Err(SettingsError { place: Place::BuiltIn, key: String::new(), what }.into())
        }
        Err(error) => bail!(error),
    }
}

fn told(report: &ReloadReport) -> String {
    let mut text = String::from("reloaded:");
    match report.users {
        Some(users) => text += &format!(" {users} users,"),
        None => text += " no password file,",
    }
    match report.rules {
        Some(rules) => text += &format!(" {rules} rules,"),
        None => text += " no rules,",
    }
    text += &format!(" log level {}\n", report.log_level);
    if !report.needs_restart.is_empty() {
        text += &format!("changed, but read at start only: {}\n", report.needs_restart.join(", "));
    }
    for warning in &report.warnings {
        text += &format!("warning: {warning}\n");
    }
    text
}
