//! The `topic` lines of a bridge.

use super::report::{LineId, Report};
use super::source::{Line, Section};
use super::toml::Table;
use super::value;
use crate::bridge::rules::filters_overlap;
use crate::bridge::{self, Address, LinkConfig, RULES_MAX, Rule};
use crate::message::Qos;

/// The rules of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    out: Vec<Written>,
    inbound: Vec<Written>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    rule: Rule,
    line: LineId,
    origin: String,
}

impl Written {
    fn remote(&self) -> String {
        format!("{}{}", self.rule.remote_prefix, self.rule.filter)
    }

    fn table(&self, list: &str) -> Table {
        let mut table = Table::element(list);
        let rule = &self.rule;
        table.set("filter", rule.filter.as_str(), self.origin.as_str());
        for (key, prefix) in [("local_prefix", &rule.local_prefix), ("remote_prefix", &rule.remote_prefix)] {
            if !prefix.is_empty() {
                table.set(key, prefix.as_str(), "");
            }
        }
        table.set("qos", rule.qos as i64, "");
        if !rule.retain {
            table.set("retain", false, "");
        }
        table
    }
}

impl Rules {
    /// Something comes down.
    #[must_use]
    pub fn has_inbound(&self) -> bool {
        !self.inbound.is_empty()
    }

    /// What goes up could come down again.
    #[must_use]
    pub fn come_back(&self) -> bool {
        self.out.iter().any(|out| self.inbound.iter().any(|inbound| overlap(out, inbound)))
    }

    /// The line has a part in that.
    #[must_use]
    pub fn is_both_ways(&self, line: LineId) -> bool {
        let pairs = self.out.iter().flat_map(|out| self.inbound.iter().map(move |inbound| (out, inbound)));
        let mut pairs = pairs.filter(|(out, inbound)| out.line == line || inbound.line == line);
        pairs.any(|(out, inbound)| overlap(out, inbound))
    }

    /// As sections of the file.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let out = self.out.iter().map(|rule| rule.table("bridge.out"));
        out.chain(self.inbound.iter().map(|rule| rule.table("bridge.in"))).collect()
    }
}

fn overlap(out: &Written, inbound: &Written) -> bool {
    filters_overlap(&out.remote(), &inbound.remote())
}

/// Reads all topic lines of a bridge.
///
/// # Errors
/// When there is none that can be carried over.
pub fn rules(section: &Section, report: &mut Report) -> Result<Rules, String> {
    let keeps_retain =
        section.get("bridge_outgoing_retain").is_none_or(|line| value::boolean(&line.value) != Ok(false));
    let mut rules = Rules::default();
    for line in section.all("topic") {
        match read(line) {
            Ok((rule, direction)) => add(&mut rules, line, rule, direction, keeps_retain, report),
            Err(what) => report.dropped(line.id, what),
        }
    }
    if rules.out.is_empty() && rules.inbound.is_empty() {
        return Err("it has no topic line that can be carried over".into());
    }
    Ok(rules)
}

/// Which ways a topic goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Direction {
    out: bool,
    inbound: bool,
}

fn add(
    rules: &mut Rules,
    line: &Line,
    rule: Rule,
    direction: Direction,
    keeps_retain: bool,
    report: &mut Report,
) {
    let place = report.place(line.id).to_string();
    for (wanted, is_out, key) in
        [(direction.out, true, "bridge.out"), (direction.inbound, false, "bridge.in")]
    {
        if !wanted {
            continue;
        }
        let rule = Rule { retain: keeps_retain || !is_out, ..rule.clone() };
        if let Err(what) = check(&rule, is_out) {
            report.dropped(line.id, format!("{key}: {what}"));
            continue;
        }
        let list = if is_out { &mut rules.out } else { &mut rules.inbound };
        if list.len() >= RULES_MAX {
            report.dropped(line.id, format!("there are more than {RULES_MAX} [[{key}]]"));
            continue;
        }
        report.carried(line.id, format!("[[{key}]]"));
        if rule.qos == Qos::ExactlyOnce {
            report.differs(line.id, "a link sends QoS 2 as QoS 1");
        }
        list.push(Written { rule, line: line.id, origin: format!("{place} topic") });
    }
}

/// Whether a link takes the rule; it is asked as if it were its only one.
fn check(rule: &Rule, is_out: bool) -> Result<(), String> {
    let mut link = LinkConfig {
        name: "x".into(),
        client_id: "x".into(),
        addresses: vec![Address { host: "x".into(), port: 1, tls: false }],
        ..LinkConfig::default()
    };
    let list = if is_out { &mut link.out } else { &mut link.inbound };
    list.push(rule.clone());
    bridge::check(&link).map_err(|what| match what.split_once(" number 1: ") {
        Some((_, rest)) => rest.to_owned(),
        None => what,
    })
}

/// `PATTERN [DIRECTION [QOS [LOCAL [REMOTE]]]]`
fn read(line: &Line) -> Result<(Rule, Direction), String> {
    let (pattern, rest) = pattern(&line.value)?;
    let mut words = rest.split_whitespace();
    let direction = match words.next() {
        None | Some("out") => Direction { out: true, inbound: false },
        Some("in") => Direction { out: false, inbound: true },
        Some("both") => Direction { out: true, inbound: true },
        Some(word) if word.eq_ignore_ascii_case("out") => Direction { out: true, inbound: false },
        Some(word) if word.eq_ignore_ascii_case("in") => Direction { out: false, inbound: true },
        Some(word) if word.eq_ignore_ascii_case("both") => Direction { out: true, inbound: true },
        Some(other) => return Err(format!("expected out, in or both, found \"{}\"", value::shown(other))),
    };
    // From here on a comment may follow.
    let mut words = words.take_while(|word| !word.starts_with('#'));
    let qos = match words.next() {
        None | Some("0") => Qos::AtMostOnce,
        Some("1") => Qos::AtLeastOnce,
        Some("2") => Qos::ExactlyOnce,
        Some(other) => return Err(format!("expected a QoS of 0, 1 or 2, found \"{}\"", value::shown(other))),
    };
    let prefix = |word: Option<&str>| word.filter(|word| *word != "\"\"").unwrap_or_default().to_owned();
    let (local_prefix, remote_prefix) = (prefix(words.next()), prefix(words.next()));
    if let Some(word) = words.next() {
        return Err(format!("expected nothing behind the remote prefix, found \"{}\"", value::shown(word)));
    }
    if pattern.is_empty() && (local_prefix.is_empty() || remote_prefix.is_empty()) {
        return Err("an empty pattern needs a local and a remote topic behind it".into());
    }
    Ok((Rule { filter: pattern, local_prefix, remote_prefix, qos, retain: true }, direction))
}

/// The pattern, which stands between quotes if it has spaces, and what follows. `""` is an empty one.
fn pattern(text: &str) -> Result<(String, &str), String> {
    if let Some(inside) = text.strip_prefix('"') {
        let (pattern, rest) = inside.split_once('"').ok_or("has an opening quote without a closing one")?;
        if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
            return Err("has no space behind the closing quote".into());
        }
        return Ok((pattern.to_owned(), rest));
    }
    let (pattern, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    if pattern.is_empty() { Err("has no pattern".into()) } else { Ok((pattern.to_owned(), rest)) }
}

#[cfg(test)]
mod tests {
    use super::super::report::Place;
    use super::*;

    fn line(value: &str) -> Line {
        let id = Report::default().line(Place { file: "m".into(), line: 1 }, "topic");
        Line { id, name: "topic", value: value.into() }
    }

    /// Filter, local prefix, remote prefix, level, ways.
    fn parts(value: &str) -> Result<(String, String, String, u8, &'static str), String> {
        let (rule, direction) = read(&line(value))?;
        let ways = match (direction.out, direction.inbound) {
            (true, true) => "both",
            (true, false) => "out",
            _ => "in",
        };
        Ok((rule.filter, rule.local_prefix, rule.remote_prefix, rule.qos as u8, ways))
    }

    #[test]
    fn each_form_of_a_topic_line_is_understood() {
        let cases = [
            ("sensors/#", ("sensors/#", "", "", 0, "out")),
            ("sensors/# in", ("sensors/#", "", "", 0, "in")),
            ("# both 2", ("#", "", "", 2, "both")),
            ("# BOTH 1 local/ remote/", ("#", "local/", "remote/", 1, "both")),
            ("a out 1 L/ \"\"", ("a", "L/", "", 1, "out")),
            ("a out 1 \"\" R/", ("a", "", "R/", 1, "out")),
            ("a out 1 \"\" \"\"", ("a", "", "", 1, "out")),
            ("\"\" in 0 local remote", ("", "local", "remote", 0, "in")),
            ("\"with space/#\" out 1", ("with space/#", "", "", 1, "out")),
            ("a in 1 # the rest is a comment", ("a", "", "", 1, "in")),
            ("a in 1 L/ # comment", ("a", "L/", "", 1, "in")),
            (
                "clients/total in 0 test/mosquitto/org/ $SYS/broker/",
                ("clients/total", "test/mosquitto/org/", "$SYS/broker/", 0, "in"),
            ),
        ];
        for (text, (filter, local, remote, qos, ways)) in cases {
            assert_eq!(parts(text), Ok((filter.into(), local.into(), remote.into(), qos, ways)), "{text}");
        }
    }

    #[test]
    fn what_is_no_topic_line_is_refused_with_the_reason() {
        for (text, word) in [
            ("", "no pattern"),
            ("a up", "expected out, in or both"),
            ("a out 3", "expected a QoS"),
            ("a out 1 l r more", "nothing behind"),
            ("\"\" out 1 local", "empty pattern"),
            ("\"\" out", "empty pattern"),
            ("\"a out", "closing"),
            ("\"a\"b out", "closing quote"),
        ] {
            let said = parts(text).unwrap_err();
            assert!(said.contains(word), "{text}: {said}");
        }
    }

    #[test]
    fn rules_that_a_link_would_refuse_are_found_one_by_one() {
        let rule = |filter: &str, local: &str| Rule {
            filter: filter.into(),
            local_prefix: local.into(),
            ..Rule::default()
        };
        assert_eq!(check(&rule("a/#", "l/"), true), Ok(()));
        assert!(check(&rule("a/#/b", ""), true).unwrap_err().starts_with("the local filter"));
        assert!(check(&rule("#", "l"), true).unwrap_err().contains("lack"));
        assert!(check(&rule("$SYS/#", ""), false).unwrap_err().contains("below $SYS"));
        assert!(check(&rule("$SYS/#", ""), true).is_ok());
    }
}
