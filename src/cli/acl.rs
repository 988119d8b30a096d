//! `tidegate acl explain`.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::{EXIT_FAILURE, SettingsArgs, say};
use crate::access::explain::{Explanation, Question, explain, passed_over};
use crate::access::{Action, Rights, RuleSet};
use crate::settings::Settings;

/// What about the rules.
#[derive(Clone, Debug, Args)]
pub struct AclArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Says whether a client may do something, which rule decides, and why. Fails when it may not.
    Explain(ExplainArgs),
}

#[derive(Clone, Debug, Args)]
struct ExplainArgs {
    /// User name; "-" for an anonymous client.
    user: String,
    /// Client identifier.
    client: String,
    /// What the client wants.
    #[arg(value_enum)]
    action: ActionArg,
    /// Topic, or the filter of a subscription.
    topic: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingsArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ActionArg {
    /// Get messages of a topic.
    #[value(alias = "receive")]
    Read,
    /// Publish to a topic.
    #[value(alias = "publish")]
    Write,
    /// Subscribe to a filter.
    Subscribe,
}

/// Answers a question about the rules of a configuration, as a broker that runs with them would.
pub fn acl(args: &AclArgs) -> anyhow::Result<ExitCode> {
    let What::Explain(args) = &args.what;
    let settings = args.settings.load()?.settings;
    let (explanation, notes) = answer(args, &settings)?;
    let code = if explanation.allowed { 0 } else { EXIT_FAILURE };
    if args.json {
        let answer = json!({
            "allowed": explanation.allowed,
            "rule": explanation.place,
            "text": explanation.text,
            "notes": notes,
        });
        say(&format!("{}\n", serde_json::to_string_pretty(&answer)?))?;
    } else {
        let notes: String = notes.iter().map(|note| format!("  note: {note}\n")).collect();
        say(&(explanation.text + &notes))?;
    }
    Ok(ExitCode::from(code))
}

fn answer(args: &ExplainArgs, settings: &Settings) -> anyhow::Result<(Explanation, Vec<String>)> {
    let user = (args.user != "-").then_some(args.user.as_str());
    let question = Question {
        user,
        client: &args.client,
        action: match args.action {
            ActionArg::Read => Action::Read,
            ActionArg::Write => Action::Write,
            ActionArg::Subscribe => Action::Subscribe,
        },
        topic: &args.topic,
    };
    let file = settings.access.rules()?;
    let mut notes = Vec::new();
    if file.is_none() {
        notes.push(
            "there is no access.acl_file, so everybody may do everything that the broker can".to_owned(),
        );
    }
    let rules = file.unwrap_or_else(|| Arc::new(RuleSet::empty("", true)));
    notes.extend(passed_over(&rules, user, &args.client));
    let rights = Rights::new(&rules, user, &args.client, None);
    let explanation = explain(&rights, &question, &settings.limits)
        .with_context(|| format!("denied whatever the rules say: \"{}\"", args.topic))?;
    Ok((explanation, notes))
}
