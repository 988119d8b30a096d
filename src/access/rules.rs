//! The rules of one file, in order.
//!
//! ```text
//! allow read,write  sensors/#          user ann
//! deny  write       sensors/alarm/+    group readers
//! allow all         devices/%c/#       client dev-*
//! allow read        public/#
//! group readers ann "bob b." carl
//! ```
//!
//! A rule holds for a client when all conditions behind its topic do. What one rule says is final: rules behind it are not asked.
//! Bounds: [`RULES_MAX`] rules and [`MEMBERS_MAX`] members of groups.

use hashbrown::{HashMap, HashSet};

use super::lines::{LineError, Word, lines, words};
use crate::limits::Limits;
use crate::queue::overflow::pattern_matches;
use crate::topic::Filter;

/// Rules of one file.
pub const RULES_MAX: usize = 100_000;
/// Members of all groups of one file.
pub const MEMBERS_MAX: usize = 100_000;

/// What a rule is about, as a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Actions(u8);

impl Actions {
    pub(super) const READ: Self = Self(1);
    pub(super) const WRITE: Self = Self(2);
    pub(super) const SUBSCRIBE: Self = Self(4);
    const ALL: Self = Self(7);

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A condition on a name: `*` stands for any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamePattern(Box<str>);

impl NamePattern {
    pub(super) fn matches(&self, name: &str) -> bool {
        pattern_matches(&self.0, name)
    }

    fn exact(&self) -> Option<&str> {
        (!self.0.contains('*')).then_some(&*self.0)
    }
}

/// Whom a rule is about. All that is there must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Who {
    user: Option<NamePattern>,
    group: Option<Box<str>>,
    client: Option<NamePattern>,
    anonymous: bool,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(super) allow: bool,
    pub(super) actions: Actions,
    /// As it was written, with `%u` and `%c`.
    pub(super) topic: Box<str>,
    /// It is about the SUBSCRIBE of this very filter.
    pub(super) exactly: bool,
    pub(super) who: Who,
    /// Where it was written, from 1.
    pub line: u32,
}

/// All rules of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// Named in explanations.
    source: Box<str>,
    rules: Vec<Rule>,
    texts: Vec<Box<str>>,
    groups: HashMap<Box<str>, HashSet<Box<str>>>,
    /// Rules that name one user, or a group that the user is in, by user.
    by_user: HashMap<Box<str>, Vec<u32>>,
    /// Rules that name one client and no user.
    by_client: HashMap<Box<str>, Vec<u32>>,
    /// All others.
    others: Vec<u32>,
    default_allow: bool,
}

impl RuleSet {
    /// No rules: `default_allow` decides everything.
    #[must_use]
    pub fn empty(source: &str, default_allow: bool) -> Self {
        Self { source: source.into(), default_allow, ..Self::default() }
    }

    /// Reads the rules of a file that is called `source`.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(source: &str, text: &str, default_allow: bool) -> Result<Self, LineError> {
        let mut set = Self::empty(source, default_allow);
        let mut members = 0;
        for (line, text) in lines(text) {
            let error = |what: String| LineError::new(line, what);
            let found = words(text).map_err(error)?;
            match found.first() {
                Some(word) if word.is("group") => members += set.group(&found[1..]).map_err(error)?,
                Some(word) if word.is("allow") || word.is("deny") => {
                    let rule = rule(line, word.is("allow"), &found[1..]).map_err(error)?;
                    set.rules.push(rule);
                    set.texts.push(text.trim().into());
                }
                _ => return Err(error("expected a line that begins with allow, deny or group".into())),
            }
            if set.rules.len() > RULES_MAX || members > MEMBERS_MAX {
                let what =
                    format!("there are more than {RULES_MAX} rules or {MEMBERS_MAX} members of groups");
                return Err(error(what));
            }
        }
        set.index()?;
        Ok(set)
    }

    /// `NAME MEMBER…`; says how many members.
    fn group(&mut self, words: &[Word]) -> Result<usize, String> {
        let Some((name, members)) = words.split_first().filter(|(_, members)| !members.is_empty()) else {
            return Err("expected group NAME and its members, all on one line".into());
        };
        let group = self.groups.entry(name.text.as_str().into()).or_default();
        group.extend(members.iter().map(|member| Box::from(member.text.as_str())));
        Ok(members.len())
    }

    /// Sorts the rules by whom they may apply to.
    fn index(&mut self) -> Result<(), LineError> {
        for (at, rule) in (0u32..).zip(&self.rules) {
            if let Some(group) = &rule.who.group {
                let Some(members) = self.groups.get(group) else {
                    let what = format!("there is no group \"{group}\"; add a line: group {group} MEMBER…");
                    return Err(LineError::new(rule.line, what));
                };
                for member in members {
                    self.by_user.entry(member.clone()).or_default().push(at);
                }
            } else if let Some(user) = rule.who.user.as_ref().and_then(NamePattern::exact) {
                self.by_user.entry(user.into()).or_default().push(at);
            } else if let Some(client) = rule.who.client.as_ref().and_then(NamePattern::exact) {
                self.by_client.entry(client.into()).or_default().push(at);
            } else {
                self.others.push(at);
            }
        }
        Ok(())
    }

    /// The places of the rules that apply to a client, in order.
    pub(super) fn applicable(&self, user: Option<&str>, client: &str) -> Vec<u32> {
        let of_user = user.and_then(|user| self.by_user.get(user)).map_or(&[][..], Vec::as_slice);
        let of_client = self.by_client.get(client).map_or(&[][..], Vec::as_slice);
        let mut found: Vec<u32> = [of_user, of_client, &self.others]
            .into_iter()
            .flatten()
            .copied()
            .filter(|at| self.applies(&self.rules[*at as usize], user, client))
            .collect();
        found.sort_unstable();
        found
    }

    fn applies(&self, rule: &Rule, user: Option<&str>, client: &str) -> bool {
        let who = &rule.who;
        let in_group = |group: &str| {
            user.is_some_and(|user| self.groups.get(group).is_some_and(|members| members.contains(user)))
        };
        who.user.as_ref().is_none_or(|pattern| user.is_some_and(|user| pattern.matches(user)))
            && who.group.as_deref().is_none_or(in_group)
            && who.client.as_ref().is_none_or(|pattern| pattern.matches(client))
            && !(who.anonymous && user.is_some())
    }

    pub(super) fn rule(&self, at: u32) -> &Rule {
        &self.rules[at as usize]
    }

    /// The rule as it was written.
    pub(super) fn text(&self, at: u32) -> &str {
        &self.texts[at as usize]
    }

    /// The file that holds it.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What holds where no rule does.
    #[must_use]
    pub fn default_allow(&self) -> bool {
        self.default_allow
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// `ACTIONS [exactly] TOPIC [CONDITION…]`
fn rule(line: u32, allow: bool, found: &[Word]) -> Result<Rule, String> {
    const SHAPE: &str = "expected allow or deny, then actions, then a topic, then conditions";
    let (actions, rest) = found.split_first().ok_or(SHAPE)?;
    let actions = actions_of(&actions.text)?;
    let (topic, rest) = rest.split_first().ok_or(SHAPE)?;
    let (exactly, topic, rest) = match rest.split_first() {
        Some((next, after)) if topic.is("exactly") => (true, next, after),
        _ => (false, topic, rest),
    };
    if exactly && actions != Actions::SUBSCRIBE {
        return Err(
            "exactly is about the filters of SUBSCRIBE: use it with the action subscribe alone".into()
        );
    }
    check_topic(&topic.text)?;
    let who = who(rest)?;
    if topic.text.contains("%u") && who.anonymous {
        return Err("has %u in its topic, but anonymous clients have no user name".into());
    }
    Ok(Rule { allow, actions, topic: topic.text.as_str().into(), exactly, who, line })
}

fn actions_of(text: &str) -> Result<Actions, String> {
    let mut all = 0;
    for name in text.split(',') {
        all |= match name {
            "read" => Actions::READ.0,
            "write" => Actions::WRITE.0,
            "readwrite" => Actions::READ.0 | Actions::WRITE.0,
            "subscribe" => Actions::SUBSCRIBE.0,
            "all" => Actions::ALL.0,
            other => {
                return Err(format!(
                    "\"{other}\" is no action; expected read, write, subscribe or all, several with commas and no spaces"
                ));
            }
        };
    }
    Ok(Actions(all))
}

fn check_topic(topic: &str) -> Result<(), String> {
    let limits = Limits { topic_bytes_max: u16::MAX, ..Limits::default() };
    let filter = Filter::parse(topic, &limits).map_err(|error| format!("the topic \"{topic}\" {error}"))?;
    if filter.is_shared() {
        return Err(format!("rules are about topics: write \"{}\" without $share/<group>/", filter.filter));
    }
    Ok(())
}

fn who(found: &[Word]) -> Result<Who, String> {
    let mut who = Who::default();
    let mut rest = found.iter();
    while let Some(word) = rest.next() {
        if word.is("anonymous") {
            who.anonymous = true;
            continue;
        }
        let name = rest.next().map(|word| Box::<str>::from(word.text.as_str()));
        let twice = match (word.text.as_str(), name) {
            _ if word.quoted => return Err(unknown_condition(&word.text)),
            ("user", Some(name)) => who.user.replace(NamePattern(name)).is_some(),
            ("client", Some(name)) => who.client.replace(NamePattern(name)).is_some(),
            ("group", Some(name)) => who.group.replace(name).is_some(),
            ("user" | "client" | "group", None) => {
                return Err(format!("has no name behind {}", word.text));
            }
            (other, _) => return Err(unknown_condition(other)),
        };
        if twice {
            return Err(format!("has two conditions on {}; write two rules", word.text));
        }
    }
    if who.anonymous && (who.user.is_some() || who.group.is_some()) {
        return Err("an anonymous client has no user name and is in no group".into());
    }
    Ok(who)
}

fn unknown_condition(word: &str) -> String {
    format!(
        "found \"{word}\" behind the topic; expected user NAME, group NAME, client NAME or anonymous (a topic with spaces \
         must stand between quotes)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_told_with_its_line_and_what_is_expected() {
        for (text, line, said) in [
            ("alow read a", 1, "begins with allow, deny or group"),
            ("\nallow", 2, "then actions"),
            ("allow read", 1, "then a topic"),
            ("allow reed a", 1, "\"reed\" is no action"),
            ("allow read, write a", 1, "\"\" is no action"),
            ("allow read a/#/b", 1, "has a wildcard that is not a level"),
            ("allow read a b", 1, "between quotes"),
            ("allow read a user", 1, "no name behind user"),
            ("allow read a user x user y", 1, "two conditions on user"),
            ("allow read a group g", 1, "there is no group \"g\""),
            ("allow read a anonymous user x", 1, "no user name"),
            ("allow read a/%u anonymous", 1, "anonymous clients have no user name"),
            ("allow read $share/g/a", 1, "without $share/<group>/"),
            ("allow read a/%u+", 1, "wildcard"),
            ("allow read,subscribe exactly #", 1, "with the action subscribe alone"),
            ("group g", 1, "its members"),
            ("allow read \"a", 1, "closing"),
        ] {
            let error = RuleSet::parse("acl", text, false).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.what.contains(said), "{text}: {error}");
            assert!(error.in_file("acl").starts_with(&format!("acl:{line}: ")), "{error:?}");
        }
    }

    #[test]
    fn the_rules_that_apply_are_found_by_user_group_client_and_pattern_in_order() {
        let text = "allow read 1 user ann\nallow read 2 client c*\nallow read 3 group g\nallow read 4\n\
                    allow read 5 user a*\nallow read 6 client c1\nallow read 7 anonymous\n\
                    allow read 8 user ann client zz\ngroup g bob \"c d\"\nallow read 9 group g client c1";
        let set = RuleSet::parse("acl", text, false).unwrap();
        let topics = |user, client| {
            let places = set.applicable(user, client);
            places.iter().map(|at| set.rule(*at).topic.to_string()).collect::<Vec<_>>().join("")
        };
        assert_eq!(topics(Some("ann"), "c1"), "12456");
        assert_eq!(topics(Some("bob"), "c1"), "23469");
        assert_eq!(topics(Some("c d"), "x"), "34");
        assert_eq!(topics(None, "c1"), "2467");
        assert_eq!(topics(Some("ann"), "zz"), "1458");
        assert_eq!(topics(Some(""), "x"), "4");
    }
}
