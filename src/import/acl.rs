//! Access rules: from Mosquitto's acl_file to ours.
//!
//! Mosquitto asks the rules of the user first (those that deny before those that grant), then the patterns (in the same order),
//! and denies what no rule grants. Here the first rule that matches decides, so the rules are written in that order.
//! A rule that cannot be written exactly never widens what its file allows: one that grants is left out, one that denies is
//! written for more topics.

use std::fmt::Write;

use super::report::{LineId, Place, Report, Verdict};
use super::value;
use crate::limits::Limits;
use crate::topic::Filter;

/// A rule of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// `None`: it denies.
    grants: Option<&'static str>,
    topic: String,
    who: Who,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    Anonymous,
    User(String),
    /// A pattern.
    Everybody,
}

/// The rules as our file has them. Each line that grants or denies something is one finding, unless it is carried over as it is;
/// these are counted in one. `open`: anonymous clients come from a listener without rules alone, and may do everything.
pub fn convert(file: &str, text: &str, open: bool, report: &mut Report) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { file, user: None, rules: Vec::new(), carried: 0, report };
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            reader.line(number, line);
        }
    }
    let (rules, carried) = (reader.rules, reader.carried);
    report.whole(file, "acl_file", Verdict::Carried, format!("{carried} rules"));
    write(file, rules, open)
}

/// A file that allows nothing.
#[must_use]
pub fn nothing_allowed() -> String {
    "# The rules of Mosquitto's acl_file could not be read: nothing is allowed.\n".to_owned()
}

struct Reader<'a> {
    file: &'a str,
    user: Option<String>,
    rules: Vec<Rule>,
    carried: usize,
    report: &'a mut Report,
}

impl Reader<'_> {
    fn finding(&mut self, line: u32, option: &str) -> LineId {
        self.report.line(Place { file: self.file.to_owned(), line }, &value::shown(option))
    }

    fn dropped(&mut self, line: u32, option: &str, what: impl Into<String>) {
        let id = self.finding(line, option);
        self.report.dropped(id, what);
    }

    fn line(&mut self, number: u32, text: &str) {
        let (keyword, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let rest = rest.trim();
        match keyword {
            "user" if rest.is_empty() => self.dropped(number, "user", "has no name"),
            "user" => self.user = Some(rest.to_owned()),
            "topic" | "pattern" => self.rule(number, keyword, rest),
            other => self.dropped(number, other, "expected user, topic or pattern"),
        }
    }

    fn rule(&mut self, number: u32, keyword: &str, rest: &str) {
        let (access, topic) = match rest.split_once([' ', '\t']) {
            Some((access, topic)) => (access, topic.trim()),
            None => ("readwrite", rest),
        };
        let grants = match access {
            "read" => Some("read"),
            "write" => Some("write"),
            "readwrite" => Some("read,write"),
            "deny" => None,
            other => {
                let what =
                    format!("expected read, write, readwrite or deny, found \"{}\"", value::shown(other));
                return self.dropped(number, keyword, what);
            }
        };
        if let Err(what) = check_topic(topic) {
            return self.dropped(number, keyword, what);
        }
        let who = match (keyword, &self.user) {
            ("pattern", _) => Who::Everybody,
            (_, Some(user)) => Who::User(user.clone()),
            (_, None) => Who::Anonymous,
        };
        let rule = Rule { grants, topic: topic.to_owned(), who };
        if let Some(rule) = self.made_exact(number, keyword, rule) {
            self.carried += 1;
            self.rules.push(rule);
        }
    }

    /// The rule, if it can be written; else what may stand for it.
    fn made_exact(&mut self, number: u32, keyword: &str, mut rule: Rule) -> Option<Rule> {
        let is_literal =
            rule.who != Who::Everybody && (rule.topic.contains("%u") || rule.topic.contains("%c"));
        let wild_name = matches!(&rule.who, Who::User(user) if user.contains('*'));
        if !is_literal && !wild_name {
            return Some(rule);
        }
        let why = if is_literal {
            "%u and %c mean themselves in a topic line of Mosquitto and the client's names here: make it a pattern line if that \
             was meant"
        } else {
            "a * in a user name stands for any characters here"
        };
        if rule.grants.is_some() {
            self.dropped(number, keyword, format!("{why}; the rule is left out"));
            return None;
        }
        if is_literal {
            let levels = rule.topic.split('/');
            let wide =
                levels.map(|level| if level.contains("%u") || level.contains("%c") { "+" } else { level });
            rule.topic = wide.collect::<Vec<_>>().join("/");
        }
        let id = self.finding(number, keyword);
        self.report.differs(id, format!("{why}; the rule denies more than it did"));
        Some(rule)
    }
}

fn check_topic(topic: &str) -> Result<(), String> {
    let limits = Limits { topic_bytes_max: u16::MAX, topic_levels_max: u16::MAX, ..Limits::default() };
    let filter = Filter::parse(topic, &limits)
        .map_err(|error| format!("the topic \"{}\" {error}", value::shown(topic)))?;
    if filter.is_shared() {
        return Err("a rule about $share/… has no effect: rules are about topics".into());
    }
    Ok(())
}

fn write(file: &str, mut rules: Vec<Rule>, open: bool) -> String {
    let shown: String = file.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let mut out = format!(
        "# Written by `tidegate import-mosquitto` from {shown}.\n# The first rule that matches decides; what no rule allows is denied.\n"
    );
    // Mosquitto's own order; a stable sort keeps that of the lines among equals.
    if open {
        rules.retain(|rule| rule.who != Who::Anonymous);
        out.push_str("allow all \"#\" anonymous\nallow read \"$SYS/#\" anonymous\n");
    }
    rules.sort_by_key(|rule| (rule.who == Who::Everybody, rule.grants.is_some()));
    for rule in rules {
        let start = match rule.grants {
            Some(actions) => format!("allow {actions}"),
            None => "deny read,write".to_owned(),
        };
        let who = match &rule.who {
            Who::Anonymous => " anonymous".to_owned(),
            Who::User(user) => format!(" user {}", quoted(user)),
            Who::Everybody => String::new(),
        };
        let _ = writeln!(out, "{start} {}{who}", quoted(&rule.topic));
    }
    out
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(text: &str) -> (String, Report) {
        let mut report = Report::default();
        let out = convert("acl", text, false, &mut report);
        let rules = out.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        (rules, report)
    }

    #[test]
    fn rules_come_in_the_order_in_which_mosquitto_asks_them() {
        let text = "# all\npattern read p/%c/#\ntopic read a/#\ntopic a b\r\nuser ann\ntopic readwrite x/#\n\
                    topic deny x/secret\npattern deny p/%c/no\nuser bob smith\ntopic write y\n";
        let (rules, report) = converted(text);
        let expected = "deny read,write \"x/secret\" user \"ann\"\n\
                        allow read \"a/#\" anonymous\n\
                        allow read,write \"x/#\" user \"ann\"\n\
                        allow write \"y\" user \"bob smith\"\n\
                        deny read,write \"p/%c/no\"\n\
                        allow read \"p/%c/#\"";
        assert_eq!(rules, expected);
        // `topic a b` has "a" where the access type belongs.
        assert_eq!(report.count(Verdict::Dropped), 1);
    }

    #[test]
    fn what_cannot_be_written_exactly_never_widens() {
        let (rules, report) = converted(
            "topic read %u/x\nuser a*\ntopic read t\ntopic deny d\nuser ann\ntopic deny a/%c/b\ntopic read a b/#\n",
        );
        let expected = "deny read,write \"d\" user \"a*\"\n\
                        deny read,write \"a/+/b\" user \"ann\"";
        assert!(rules.starts_with(expected), "{rules}");
        assert_eq!((report.count(Verdict::Dropped), report.count(Verdict::Differs)), (2, 2));
    }

    #[test]
    fn wrong_lines_are_told_with_their_place() {
        let (rules, report) =
            converted("user\ntopic\nrule x\ntopic read a/#/b\ntopic read $share/g/a\ntopic read a b\n");
        assert_eq!(rules, "allow read \"a b\" anonymous");
        let places: Vec<_> = report.findings().iter().map(|finding| finding.place.line).collect();
        assert_eq!(places, [1, 2, 3, 4, 5, 0]);
    }

    #[test]
    fn names_are_quoted() {
        let (rules, _) = converted("user a \"b\" \\c\ntopic read t\n");
        assert_eq!(rules, "allow read \"t\" user \"a \\\"b\\\" \\\\c\"");
    }
}
