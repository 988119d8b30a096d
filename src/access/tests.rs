//! Decisions: a table of rule sets and questions, which the broker's own tests ask the broker too, and properties.

use std::sync::Arc;

use proptest::prelude::*;

use super::explain::{Question, explain};
use super::rights::{Action, Rights};
use super::rules::RuleSet;
use crate::limits::Limits;

/// Rule sets, each followed by questions. A line that begins with `|` is a rule (the first is line 1 of its set), `default` names
/// what holds without one. A question is: user (`-`: anonymous), client, action, topic, answer. Answers: `+3` allowed by line 3,
/// `-3` denied by line 3, `+d` and `-d` by default, `-s3` and `-sd` granted by that, but shared and not readable as a whole,
/// `-$` a topic of the broker.
pub(crate) const TABLE: &str = include_str!("table.txt");

/// One question of the table.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) user: Option<String>,
    pub(crate) client: String,
    pub(crate) action: Action,
    pub(crate) topic: String,
    pub(crate) answer: String,
}

/// All questions of the table.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let (mut lines, mut default, mut asked) = (String::new(), false, true);
    let mut rules = Arc::new(RuleSet::empty("acl", false));
    for line in TABLE.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if (line.starts_with('|') || line.starts_with("default ")) && std::mem::take(&mut asked) {
            (lines, default) = (String::new(), false);
        }
        if let Some(rule) = line.strip_prefix('|') {
            lines += &format!("{}\n", rule.trim());
        } else if let Some(word) = line.strip_prefix("default ") {
            default = word == "allow";
        } else {
            if !std::mem::replace(&mut asked, true) {
                rules = Arc::new(RuleSet::parse("acl", &lines, default).unwrap());
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [user, client, action, topic, answer] = words[..] else { panic!("{line}") };
            let action = match action {
                "read" => Action::Read,
                "write" => Action::Write,
                "subscribe" => Action::Subscribe,
                other => panic!("{other}"),
            };
            cases.push(Case {
                rules: Arc::clone(&rules),
                user: (user != "-").then(|| user.to_owned()),
                client: client.to_owned(),
                action,
                topic: topic.to_owned(),
                answer: answer.to_owned(),
            });
        }
    }
    cases
}

impl Case {
    pub(crate) fn allowed(&self) -> bool {
        self.answer.starts_with('+')
    }

    pub(crate) fn rights(&self) -> Rights {
        Rights::new(&self.rules, self.user.as_deref(), &self.client, None)
    }

    pub(crate) fn explained(&self) -> super::explain::Explanation {
        let question = Question {
            user: self.user.as_deref(),
            client: &self.client,
            action: self.action,
            topic: &self.topic,
        };
        explain(&self.rights(), &question, &Limits::default()).unwrap()
    }
}

#[test]
fn every_question_of_the_table_is_answered_by_the_rule_that_it_names() {
    let cases = cases();
    assert!(cases.len() >= 200, "{} questions", cases.len());
    for case in cases {
        let explained = case.explained();
        assert_eq!(explained.allowed, case.allowed(), "{case:?}\n{}", explained.text);
        let line: String = case.answer.chars().filter(char::is_ascii_digit).collect();
        let place = (!line.is_empty()).then(|| format!("acl:{line}"));
        assert_eq!(explained.place, place, "{case:?}\n{}", explained.text);
        let says = |words: &str| explained.text.contains(words);
        assert_eq!(
            says("the default holds"),
            case.answer.len() == 2 && case.answer.ends_with('d'),
            "{case:?}"
        );
        assert_eq!(says("the filter is shared"), case.answer.starts_with("-s"), "{case:?}");
        assert_eq!(says("below $SYS/"), case.answer == "-$", "{case:?}");
        assert!(explained.text.starts_with(if case.allowed() { "allowed: " } else { "denied: " }));
    }
}

#[test]
fn a_filter_that_is_granted_in_part_is_said_to_be_checked_message_by_message() {
    let set = Arc::new(RuleSet::parse("acl", "allow read a/# user ann", false).unwrap());
    let text = |topic| {
        let rights = Rights::new(&set, Some("ann"), "c", None);
        let question = Question { user: Some("ann"), client: "c", action: Action::Subscribe, topic };
        explain(&rights, &question, &Limits::default()).unwrap().text
    };
    assert!(text("#").contains("each message is checked"), "{}", text("#"));
    assert!(!text("a/b").contains("each message is checked"), "{}", text("a/b"));
    assert!(text("a/b").contains("acl:1: allow read a/# user ann"), "{}", text("a/b"));
}

#[test]
fn what_is_no_topic_is_not_explained() {
    let rights = Rights::new(&Arc::new(RuleSet::empty("acl", true)), None, "c", None);
    for (action, topic) in [(Action::Write, "a/+"), (Action::Read, ""), (Action::Subscribe, "a/#/b")] {
        let question = Question { user: None, client: "c", action, topic };
        assert!(explain(&rights, &question, &Limits::default()).is_err(), "{topic}");
    }
}

#[test]
fn the_rules_of_a_token_come_behind_those_of_the_file_and_end_with_a_refusal() {
    let file = Arc::new(RuleSet::parse("acl", "deny write a/locked", true).unwrap());
    let token = Arc::new(RuleSet::parse("token of ann", "allow write a/# \nallow read %c/#", false).unwrap());
    let rights = Rights::new(&file, Some("ann"), "c1", Some(&token));
    for (topic, allowed) in [("a/b", true), ("a/locked", false), ("b", false)] {
        assert_eq!(rights.write(topic).allowed, allowed, "{topic}");
    }
    assert!(rights.read("c1/x").allowed && !rights.read("c2/x").allowed);
    assert!(Rights::new(&file, Some("ann"), "c1", None).write("b").allowed, "the default of the file");
}

/// Patterns that an operator may write, and names that a client may choose.
fn pattern() -> impl Strategy<Value = String> {
    let level = prop_oneof![Just("%u"), Just("%c"), Just("a"), Just("x-%u"), Just("+"), Just("%c%u")];
    (prop::collection::vec(level, 1..4), any::<bool>()).prop_map(|(mut levels, open)| {
        if open {
            levels.push("#");
        }
        levels.join("/")
    })
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[ab+#/$%*uc]{0,4}", "[a-z]{1,3}"]
}

fn topic() -> impl Strategy<Value = String> {
    prop::collection::vec(prop_oneof!["[ab$*%uc]{0,4}", Just("a".to_owned()), "[a-z]{1,3}"], 1..5)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("topics are not empty", |topic| !topic.is_empty())
}

/// The pattern with the names as they stand, whatever they hold.
fn with_names(pattern: &str, user: &str, client: &str) -> String {
    let marked = pattern.replace("%u", "\u{1}").replace("%c", "\u{2}");
    marked
        .split_inclusive(['\u{1}', '\u{2}'])
        .map(|part| {
            if let Some(text) = part.strip_suffix('\u{1}') {
                format!("{text}{user}")
            } else if let Some(text) = part.strip_suffix('\u{2}') {
                format!("{text}{client}")
            } else {
                part.to_owned()
            }
        })
        .collect()
}

/// What a pattern allows when names are text of one level and nothing else: level by level, without the code under test.
fn allows(pattern: &str, user: &str, client: &str, topic: &str) -> bool {
    let plain = |name: &str| !name.is_empty() && !name.contains(['+', '#', '/']);
    let mut levels = topic.split('/');
    for (at, level) in pattern.split('/').enumerate() {
        if level == "#" {
            return at > 0 || !topic.starts_with('$');
        }
        let Some(found) = levels.next() else { return false };
        if level == "+" {
            if at == 0 && topic.starts_with('$') {
                return false;
            }
            continue;
        }
        let uses = |letter: &str| level.contains(letter);
        if (uses("%u") && !plain(user)) || (uses("%c") && !plain(client)) {
            return false;
        }
        let wanted = match level {
            "%u" => user.to_owned(),
            "%c" => client.to_owned(),
            "x-%u" => format!("x-{user}"),
            "%c%u" => format!("{client}{user}"),
            other => other.to_owned(),
        };
        if found != wanted || (at == 0 && level != "a" && wanted.starts_with('$')) {
            return false;
        }
    }
    levels.next().is_none()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_name_that_a_client_chooses_widens_a_pattern(
        pattern in pattern(), user in name(), client in name(), mut topic in topic(), own in any::<bool>(),
    ) {
        if own {
            // Topics near the pattern, with the names as they are.
            topic = with_names(&pattern, &user, &client).replace(['+', '#'], "a");
            prop_assume!(!topic.is_empty());
        }
        let set = RuleSet::parse("acl", &format!("allow all {pattern}"), false).unwrap();
        let rights = Rights::new(&Arc::new(set), Some(&user), &client, None);
        let allowed = rights.read(&topic).allowed;
        prop_assert!(!allowed || allows(&pattern, &user, &client, &topic), "{pattern} {user:?} {client:?} {topic:?}");
        // A client that has to have its rights, has them.
        let plain = |name: &str| !name.is_empty() && !name.contains(['+', '#', '/', '$']);
        if plain(&user) && plain(&client) {
            prop_assert_eq!(allowed, allows(&pattern, &user, &client, &topic));
        }
    }

    #[test]
    fn a_deny_rule_never_holds_for_less_because_of_a_name(
        pattern in pattern(), user in name(), client in name(), mut topic in topic(), own in any::<bool>(),
    ) {
        if own {
            topic = with_names(&pattern, &user, &client).replace(['+', '#'], "a");
            prop_assume!(!topic.is_empty());
        }
        let set = RuleSet::parse("acl", &format!("deny all {pattern}"), true).unwrap();
        let rights = Rights::new(&Arc::new(set), Some(&user), &client, None);
        let literal = with_names(&pattern, &user, &client);
        let names_are_text = ![&user, &client].iter().any(|name| name.contains(['+', '#']));
        if names_are_text && crate::topic::matches(&literal, &topic) {
            prop_assert!(!rights.read(&topic).allowed, "{pattern} {user:?} {client:?} {topic:?}");
        }
    }

    #[test]
    fn what_is_granted_as_a_whole_is_readable_topic_by_topic(
        lines in prop::collection::vec((any::<bool>(), pattern()), 0..5), filter in pattern(), topic in topic(),
        default in any::<bool>(),
    ) {
        let text: String = lines
            .iter()
            .map(|(allow, pattern)| format!("{} read {pattern}\n", if *allow { "allow" } else { "deny" }))
            .collect();
        let rights = Rights::new(&Arc::new(RuleSet::parse("acl", &text, default).unwrap()), Some("a"), "b", None);
        let filter = filter.replace("%u", "a").replace("%c", "b");
        if crate::topic::matches(&filter, &topic) {
            let readable = rights.read(&topic).allowed;
            prop_assert!(readable || !rights.reads_all(&filter), "{text} {filter} {topic}");
            prop_assert!(!readable || rights.subscribe(&filter, false).allowed, "{text} {filter} {topic}");
        }
    }
}
