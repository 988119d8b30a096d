//! What one client may do: the rules that apply to it, with its names filled in, and the decisions on them.
//!
//! The first rule that matches decides. A rule for `write` or `read` matches the topics that its filter matches. SUBSCRIBE with a
//! filter is decided by the first of these, in the order of the rules:
//! - a rule for `subscribe` whose topic includes the whole filter (or, with `exactly`, is the filter);
//! - a rule that denies `read` for the whole filter;
//! - a rule that allows `read` for a part of the filter that no earlier rule denies.
//!
//! So a filter that is wider than what may be read is granted as long as there is something to read, and each message is then
//! checked on its way out. A shared subscription, whose messages go to one member of many, must be readable as a whole.
//!
//! A name that is empty or holds `+`, `#` or `/` is never filled in: a rule that allows does not apply to its client, and a rule
//! that denies holds for everything from that level on.

use std::sync::Arc;

use super::pattern::{Names, covers, cut_off, fill_in, has_names, intersection, matches};
use super::rules::{Actions, RuleSet};

/// Topics of the broker's own, to which no client publishes.
const SYS_PREFIX: &str = "$SYS/";

/// What a client wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Get a message of a topic.
    Read,
    /// Publish to a topic, by itself or by its will.
    Write,
    /// Subscribe to a filter.
    Subscribe,
}

/// Where a rule stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulePlace {
    /// In the client's token instead of the file.
    pub in_token: bool,
    at: u32,
}

/// What decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// This rule.
    Rule(RulePlace),
    /// No rule matches.
    Default,
    /// The filter is granted by this rule, but not all of it may be read, and it is shared.
    SharedInPart(RulePlace),
    /// The same, granted by default.
    SharedInPartByDefault,
    /// Only the broker publishes there.
    BrokerTopic,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// It may.
    pub allowed: bool,
    /// Why.
    pub reason: Reason,
}

/// A rule that applies to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Applied {
    place: RulePlace,
    /// The rule's topic with names filled in; `None`: as it is written.
    filter: Option<Box<str>>,
}

/// What one client may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    file: Arc<RuleSet>,
    token: Option<Arc<RuleSet>>,
    applied: Box<[Applied]>,
}

impl Rights {
    /// Of the client `client` that has logged in as `user`, with the rules of its token behind those of the file.
    #[must_use]
    pub fn new(file: &Arc<RuleSet>, user: Option<&str>, client: &str, token: Option<&Arc<RuleSet>>) -> Self {
        let names = Names { user, client };
        let mut applied = Vec::new();
        let sets = [(false, Some(file)), (true, token)];
        for (in_token, set) in sets.into_iter().filter_map(|(in_token, set)| Some((in_token, set?))) {
            let places = set.applicable(user, client).into_iter();
            applied.extend(places.filter_map(|at| applied_rule(set, RulePlace { in_token, at }, &names)));
        }
        Self { file: Arc::clone(file), token: token.cloned(), applied: applied.into() }
    }

    /// Whether it may publish to a topic.
    #[must_use]
    pub fn write(&self, topic: &str) -> Decision {
        if topic.starts_with(SYS_PREFIX) {
            return Decision { allowed: false, reason: Reason::BrokerTopic };
        }
        self.about_topic(Actions::WRITE, topic)
    }

    /// Whether it may get messages of a topic.
    #[must_use]
    pub fn read(&self, topic: &str) -> Decision {
        self.about_topic(Actions::READ, topic)
    }

    fn about_topic(&self, action: Actions, topic: &str) -> Decision {
        let found = self.about(action).find(|(filter, _)| matches(filter, topic));
        match found {
            Some((_, place)) => self.by_rule(place),
            None => self.by_default(),
        }
    }

    /// Whether it may subscribe to a filter (without `$share/<group>/`).
    #[must_use]
    pub fn subscribe(&self, filter: &str, shared: bool) -> Decision {
        let decision = self.about_filter(filter);
        if !decision.allowed || !shared || self.reads_all(filter) {
            return decision;
        }
        let reason = match decision.reason {
            Reason::Rule(place) => Reason::SharedInPart(place),
            _ => Reason::SharedInPartByDefault,
        };
        Decision { allowed: false, reason }
    }

    fn about_filter(&self, filter: &str) -> Decision {
        let mut denied: Vec<&str> = Vec::new();
        for applied in &self.applied {
            let (topic, place) = (self.filter_of(applied), applied.place);
            let rule = self.set(place).rule(place.at);
            if rule.exactly {
                if topic == filter {
                    return self.by_rule(place);
                }
                continue;
            }
            let whole = covers(topic, filter);
            if whole && rule.actions.has(Actions::SUBSCRIBE) {
                return self.by_rule(place);
            }
            if !rule.actions.has(Actions::READ) {
                continue;
            }
            match rule.allow {
                false if whole => return self.by_rule(place),
                false => denied.push(topic),
                true => {
                    let part = intersection(topic, filter);
                    if part.is_some_and(|part| !denied.iter().any(|topic| covers(topic, &part))) {
                        return self.by_rule(place);
                    }
                }
            }
        }
        self.by_default()
    }

    /// Whether everything that a filter matches may be read. `false` may also mean that it was not found out.
    #[must_use]
    pub fn reads_all(&self, filter: &str) -> bool {
        for (topic, place) in self.about(Actions::READ) {
            match self.set(place).rule(place.at).allow {
                true if covers(topic, filter) => return true,
                false if intersection(topic, filter).is_some() => return false,
                _ => {}
            }
        }
        self.default_allow()
    }

    /// The filters of the rules about an action.
    fn about(&self, action: Actions) -> impl Iterator<Item = (&str, RulePlace)> {
        self.applied.iter().filter_map(move |applied| {
            let rule = self.set(applied.place).rule(applied.place.at);
            (rule.actions.has(action) && !rule.exactly).then(|| (self.filter_of(applied), applied.place))
        })
    }

    fn filter_of<'a>(&'a self, applied: &'a Applied) -> &'a str {
        match &applied.filter {
            Some(filter) => filter,
            None => &self.set(applied.place).rule(applied.place.at).topic,
        }
    }

    pub(super) fn set(&self, place: RulePlace) -> &Arc<RuleSet> {
        match &self.token {
            Some(token) if place.in_token => token,
            _ => &self.file,
        }
    }

    fn by_rule(&self, place: RulePlace) -> Decision {
        Decision { allowed: self.set(place).rule(place.at).allow, reason: Reason::Rule(place) }
    }

    fn by_default(&self) -> Decision {
        Decision { allowed: self.default_allow(), reason: Reason::Default }
    }

    /// What holds where no rule does. A token that brings rules says everything that its client may.
    pub(super) fn default_allow(&self) -> bool {
        self.token.is_none() && self.file.default_allow()
    }

    /// The rule's topic as it holds for this client.
    pub(super) fn topic_of(&self, place: RulePlace) -> Option<&str> {
        self.applied.iter().find(|applied| applied.place == place).map(|applied| self.filter_of(applied))
    }
}

impl RulePlace {
    /// The rule's number in its set.
    pub(super) fn at(self) -> u32 {
        self.at
    }
}

fn applied_rule(set: &RuleSet, place: RulePlace, names: &Names<'_>) -> Option<Applied> {
    let rule = set.rule(place.at);
    if !has_names(&rule.topic) {
        return Some(Applied { place, filter: None });
    }
    let filter = match fill_in(&rule.topic, names) {
        Ok(filter) => filter.into_owned(),
        Err(_) if rule.allow => return None,
        Err(_) => cut_off(&rule.topic),
    };
    Some(Applied { place, filter: Some(filter.into()) })
}
