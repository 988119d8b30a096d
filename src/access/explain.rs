//! Decisions in words: which rule decides, where it stands, and why.

use std::fmt::Write;

use super::pattern::{Names, fill_in};
use super::rights::{Action, Decision, Reason, Rights, RulePlace};
use super::rules::RuleSet;
use crate::limits::Limits;
use crate::topic::{self, Filter, TopicError};

/// A question about one client.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// `None`: anonymous.
    pub user: Option<&'a str>,
    /// Client identifier.
    pub client: &'a str,
    /// What it wants.
    pub action: Action,
    /// A topic name, or the filter of a SUBSCRIBE.
    pub topic: &'a str,
}

/// The answer, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// It may.
    pub allowed: bool,
    /// The file and line of the rule that decides.
    pub place: Option<String>,
    /// For people: several lines.
    pub text: String,
}

/// Answers a question as the broker would.
///
/// # Errors
/// When the topic or filter is none; the broker refuses such a packet whatever the rules say.
pub fn explain(rights: &Rights, question: &Question<'_>, limits: &Limits) -> Result<Explanation, TopicError> {
    let (decision, what) = match question.action {
        Action::Read | Action::Write => {
            topic::check_name(question.topic, limits)?;
            let reads = question.action == Action::Read;
            let decision = if reads { rights.read(question.topic) } else { rights.write(question.topic) };
            (decision, if reads { "read" } else { "write" })
        }
        Action::Subscribe => {
            let filter = Filter::parse(question.topic, limits)?;
            (rights.subscribe(&filter.filter, filter.is_shared()), "subscribe")
        }
    };
    let user = question.user.map_or("an anonymous client".to_owned(), |user| format!("user \"{user}\""));
    let verb = if decision.allowed { "may" } else { "may not" };
    let mut text = String::new();
    let answer = if decision.allowed { "allowed" } else { "denied" };
    let _ = writeln!(
        text,
        "{answer}: {user} with client identifier \"{}\" {verb} {what} {}",
        question.client, question.topic
    );
    let place = rule_of(&decision).map(|place| place_of(rights, place));
    why(rights, question, &decision, &mut text);
    Ok(Explanation { allowed: decision.allowed, place, text })
}

fn rule_of(decision: &Decision) -> Option<RulePlace> {
    match decision.reason {
        Reason::Rule(place) | Reason::SharedInPart(place) => Some(place),
        Reason::Default | Reason::SharedInPartByDefault | Reason::BrokerTopic => None,
    }
}

fn place_of(rights: &Rights, place: RulePlace) -> String {
    let set = rights.set(place);
    format!("{}:{}", set.source(), set.rule(place.at()).line)
}

fn why(rights: &Rights, question: &Question<'_>, decision: &Decision, text: &mut String) {
    if let Some(place) = rule_of(decision) {
        let set = rights.set(place);
        let _ = writeln!(text, "  {}: {}", place_of(rights, place), set.text(place.at()));
        let (written, meant) = (&*set.rule(place.at()).topic, rights.topic_of(place));
        if let Some(meant) = meant.filter(|meant| *meant != written) {
            let meant = if meant == super::pattern::EVERYTHING { "every topic" } else { meant };
            let _ = writeln!(text, "  for this client its topic is: {meant}");
        }
    }
    let default = if rights.default_allow() { "allow" } else { "deny" };
    let reason = match (decision.reason, question.action) {
        (Reason::Rule(_), Action::Subscribe) if decision.allowed => {
            "it is the first rule that decides about this filter"
        }
        (Reason::Rule(_), Action::Subscribe) => {
            "it is the first rule that decides about this filter, and includes all of it"
        }
        (Reason::Rule(_), _) => "it is the first rule about this action whose topic matches",
        (Reason::Default, _) => "no rule that applies to this client matches",
        (Reason::SharedInPart(_) | Reason::SharedInPartByDefault, _) => {
            "the filter is shared, and not everything that it matches may be read"
        }
        (Reason::BrokerTopic, _) => "only the broker publishes below $SYS/",
    };
    let _ = writeln!(text, "  because {reason}");
    if decision.reason == Reason::Default {
        let _ = writeln!(text, "  so the default holds: {default}");
    }
    if question.action == Action::Subscribe && decision.allowed {
        let filter = Filter::parse(question.topic, &Limits::default());
        if filter.is_ok_and(|filter| !rights.reads_all(&filter.filter)) {
            let _ = writeln!(
                text,
                "  but not everything that the filter matches may be read: each message is checked"
            );
        }
    }
}

/// Rules that would concern the client if its names could be filled in: a sentence for each.
#[must_use]
pub fn passed_over(set: &RuleSet, user: Option<&str>, client: &str) -> Vec<String> {
    let names = Names { user, client };
    let mut found = Vec::new();
    for at in set.applicable(user, client) {
        let rule = set.rule(at);
        if let Err(unfit) = fill_in(&rule.topic, &names) {
            let effect = match rule.allow {
                true => "does not apply",
                false => "holds for everything from that level on",
            };
            found.push(format!(
                "{}:{}: {effect}: %{} is empty or contains one of + # / or a leading $ for this client",
                set.source(),
                rule.line,
                unfit.name
            ));
        }
    }
    found
}
