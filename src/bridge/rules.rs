//! Which topics cross a link and under which name; which configurations would loop. Pure.
//!
//! A rule's filter is shared by both sides: `local_prefix + filter` is what the local broker matches, `remote_prefix + filter`
//! what the upstream matches. A topic that crosses loses the one prefix and gains the other. The first rule that matches
//! decides; the others do not see the message. A topic that matches only as the parent of `#` lacks the prefix and stays.
//!
//! Loops are stopped in three places: No Local at both brokers keeps a link from hearing itself; [`VIA_PROPERTY`] lists the
//! gateways that a message has crossed, so that one that comes home over other brokers is dropped; and where the protocol has
//! neither (MQTT 3.1.1), [`check`] refuses rules whose remote filters overlap.

use super::{ADDRESSES_MAX, HOPS_MAX, LinkConfig, Protocol, RULES_MAX, Rule, VIA_PROPERTY, WINDOW_MAX};
use crate::message::Properties;

/// Longest topic name that MQTT can carry, in bytes.
const TOPIC_BYTES_MAX: usize = 65_535;
/// The smallest packet limit that makes sense, in bytes: everything but PUBLISH fits.
const PACKET_BYTES_MIN: u32 = 1024;

/// The way a rule looks at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the local broker to the upstream.
    Out,
    /// From the upstream to the local broker.
    In,
}

/// The rules of one direction, in order.
#[derive(Clone, Debug)]
pub struct RuleSet {
    direction: Direction,
    rules: Vec<(Rule, String)>,
}

impl RuleSet {
    /// Keeps a copy of `rules`, which [`check`] has accepted.
    #[must_use]
    pub fn new(direction: Direction, rules: &[Rule]) -> Self {
        let with_filter = |rule: &Rule| (rule.clone(), source_filter(direction, rule));
        Self { direction, rules: rules.iter().map(with_filter).collect() }
    }

    /// There are no rules: nothing crosses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Each rule with the filter to subscribe to at the side where messages come from.
    pub fn subscriptions(&self) -> impl ExactSizeIterator<Item = (&str, &Rule)> {
        self.rules.iter().map(|(rule, filter)| (filter.as_str(), rule))
    }

    /// The topic under which a message crosses, and the rule that says so; `None`: it does not cross.
    #[must_use]
    pub fn map(&self, topic: &str) -> Option<(String, &Rule)> {
        self.rules.iter().find_map(|(rule, filter)| {
            let (from, to) = match self.direction {
                Direction::Out => (&rule.local_prefix, &rule.remote_prefix),
                Direction::In => (&rule.remote_prefix, &rule.local_prefix),
            };
            let rest = filter_matches(filter, topic).then(|| topic.strip_prefix(from.as_str()))??;
            let mapped = format!("{to}{rest}");
            (!mapped.is_empty() && mapped.len() <= TOPIC_BYTES_MAX).then_some((mapped, rule))
        })
    }
}

fn source_filter(direction: Direction, rule: &Rule) -> String {
    match direction {
        Direction::Out => format!("{}{}", rule.local_prefix, rule.filter),
        Direction::In => remote_filter(rule),
    }
}

fn remote_filter(rule: &Rule) -> String {
    format!("{}{}", rule.remote_prefix, rule.filter)
}

/// `topic` matches `filter` (MQTT 5.0, 4.7). Both are taken as valid.
#[must_use]
pub fn filter_matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (mut levels, mut wanted) = (topic.split('/'), filter.split('/'));
    loop {
        match (wanted.next(), levels.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(filter), Some(level)) if filter == level => {}
            _ => return false,
        }
    }
}

/// Some topic matches both filters.
#[must_use]
pub fn filters_overlap(a: &str, b: &str) -> bool {
    let hidden = |wild: &str, plain: &str| wild.starts_with(['+', '#']) && plain.starts_with('$');
    if hidden(a, b) || hidden(b, a) {
        return false;
    }
    let (mut a, mut b) = (a.split('/'), b.split('/'));
    loop {
        match (a.next(), b.next()) {
            (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
            (Some("+"), Some(_)) | (Some(_), Some("+")) => {}
            (Some(a), Some(b)) if a == b => {}
            _ => return false,
        }
    }
}

/// What [`VIA_PROPERTY`] says about a message from upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// It may enter.
    Fresh,
    /// It has crossed this gateway before, or too many others.
    Loop,
}

/// Judges the path of a message from upstream for the gateway `own_id`.
#[must_use]
pub fn path(properties: &Properties, own_id: &str) -> Path {
    let hops = || properties.user.iter().filter(|(name, _)| &**name == VIA_PROPERTY);
    if hops().count() >= HOPS_MAX || hops().any(|(_, gateway)| &**gateway == own_id) {
        Path::Loop
    } else {
        Path::Fresh
    }
}

/// Refuses a configuration that cannot work, that would lose messages, or that would loop.
///
/// # Errors
/// A sentence that names the key and says what to do.
pub fn check(config: &LinkConfig) -> Result<(), String> {
    check_identity(config)?;
    check_addresses(config)?;
    check_bounds(config)?;
    if config.out.is_empty() && config.inbound.is_empty() {
        return Err("no rules: add at least one [[bridge.out]] or [[bridge.in]]".to_owned());
    }
    for (kind, rules) in [("out", &config.out), ("in", &config.inbound)] {
        if rules.len() > RULES_MAX {
            return Err(format!("bridge.{kind}: {} rules, at most {RULES_MAX} are allowed", rules.len()));
        }
        for (i, rule) in rules.iter().enumerate() {
            check_rule(kind, i, rule)?;
        }
    }
    match config.protocol {
        Protocol::V4 => check_no_echo(config),
        Protocol::V5 => Ok(()),
    }
}

fn check_identity(config: &LinkConfig) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if config.name.is_empty() || config.name.len() > 64 || !config.name.chars().all(plain) {
        let name = &config.name;
        return Err(format!("name: `{name}` must be 1 to 64 letters, digits, `-`, `_` or `.`"));
    }
    if config.client_id.is_empty() || config.client_id.len() > TOPIC_BYTES_MAX {
        return Err("client_id: must not be empty: the upstream keeps messages under it".to_owned());
    }
    let has_password = config.password.is_some() || config.password_file.is_some();
    if has_password
        && config.username.as_ref().is_none_or(String::is_empty)
        && config.protocol == Protocol::V4
    {
        return Err("password: MQTT 3.1.1 has no password without a user name: set `username`".to_owned());
    }
    Ok(())
}

fn check_addresses(config: &LinkConfig) -> Result<(), String> {
    if config.addresses.is_empty() || config.addresses.len() > ADDRESSES_MAX {
        return Err(format!("url: 1 to {ADDRESSES_MAX} addresses are needed"));
    }
    let Some(tls) = &config.tls else { return Ok(()) };
    if !config.addresses.iter().any(|address| address.tls) {
        return Err("ca_file, cert_file, key_file: no address uses TLS: write mqtts:// in `url`".to_owned());
    }
    if tls.cert_file.is_some() != tls.key_file.is_some() {
        return Err("cert_file, key_file: a client certificate needs both".to_owned());
    }
    Ok(())
}

fn check_bounds(config: &LinkConfig) -> Result<(), String> {
    let wrong = [
        (
            config.keep_alive_secs == 0,
            "keep_alive_secs: must be at least 1, or a dead upstream is never noticed",
        ),
        (config.window == 0 || config.window > WINDOW_MAX, "window: must be 1 to 16384"),
        (config.inbound_window == 0, "inbound_window: must be at least 1"),
        (config.inflight_bytes_max == 0, "inflight_bytes_max: must be at least 1"),
        (config.packet_bytes_max < PACKET_BYTES_MIN, "packet_bytes_max: must be at least 1024"),
        (config.connect_timeout_millis == 0, "connect_timeout: must not be 0"),
        (config.ack_timeout_millis == 0, "ack_timeout: must not be 0"),
        (config.backoff_min_millis == 0, "backoff_min: must not be 0"),
        (config.backoff_max_millis < config.backoff_min_millis, "backoff_max: must not be below backoff_min"),
    ];
    wrong.iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, text)| Err((*text).to_owned()))
}

fn check_rule(kind: &str, index: usize, rule: &Rule) -> Result<(), String> {
    let at = format!("bridge.{kind} number {}", index + 1);
    for (key, prefix) in [("local_prefix", &rule.local_prefix), ("remote_prefix", &rule.remote_prefix)] {
        if prefix.contains(['+', '#', '\0']) {
            return Err(format!("{at}: {key} `{prefix}` must not hold wildcards: they belong into `filter`"));
        }
    }
    for (side, prefix) in [("local", &rule.local_prefix), ("remote", &rule.remote_prefix)] {
        let filter = format!("{prefix}{}", rule.filter);
        if let Err(why) = valid_filter(&filter) {
            let hint =
                if prefix.is_empty() || prefix.ends_with('/') { "" } else { "; does the prefix lack a `/`?" };
            return Err(format!("{at}: the {side} filter `{filter}` {why}{hint}"));
        }
    }
    let local = format!("{}{}", rule.local_prefix, rule.filter);
    if kind == "in" && local.starts_with("$SYS") {
        return Err(format!("{at}: `{local}` would write below $SYS: set another local_prefix"));
    }
    Ok(())
}

fn valid_filter(filter: &str) -> Result<(), &'static str> {
    if filter.is_empty() || filter.len() > TOPIC_BYTES_MAX || filter.contains('\0') {
        return Err("is empty, too long or holds a NUL character");
    }
    if filter.starts_with("$share/") {
        return Err("is a shared subscription, which cannot keep No Local and order");
    }
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        if level.contains('#') && (level != "#" || levels.peek().is_some()) {
            return Err("has `#` elsewhere than alone in the last level");
        }
        if level.contains('+') && level != "+" {
            return Err("has `+` beside other characters of its level");
        }
    }
    Ok(())
}

fn check_no_echo(config: &LinkConfig) -> Result<(), String> {
    for (i, out) in config.out.iter().enumerate() {
        for (k, inbound) in config.inbound.iter().enumerate() {
            let (up, down) = (remote_filter(out), remote_filter(inbound));
            if filters_overlap(&up, &down) {
                return Err(format!(
                    "bridge.out number {} publishes to `{up}` at the upstream and bridge.in number {} subscribes to `{down}` \
                     there: messages would come back. MQTT 3.1.1 cannot prevent that: set `protocol = 5`, or choose \
                     prefixes that do not overlap",
                    i + 1,
                    k + 1
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bridge::{Address, TlsConfig};

    fn rule(filter: &str, local: &str, remote: &str) -> Rule {
        Rule {
            filter: filter.into(),
            local_prefix: local.into(),
            remote_prefix: remote.into(),
            ..Rule::default()
        }
    }

    fn config(out: Vec<Rule>, inbound: Vec<Rule>) -> LinkConfig {
        LinkConfig {
            name: "cloud".into(),
            client_id: "gw".into(),
            addresses: vec![Address { host: "h".into(), port: 1, tls: false }],
            out,
            inbound,
            ..LinkConfig::default()
        }
    }

    #[test]
    fn filters_match_as_the_specification_says() {
        for (filter, topic, expected) in [
            ("#", "a/b", true),
            ("a/#", "a", true),
            ("a/+", "a", false),
            ("a/+", "a/", true),
            ("+/+", "/x", true),
            ("a/b", "a/b/c", false),
            ("#", "$SYS/x", false),
            ("+/x", "$SYS/x", false),
            ("$SYS/#", "$SYS/x", true),
        ] {
            assert_eq!(filter_matches(filter, topic), expected, "{filter} {topic}");
        }
    }

    #[test]
    fn overlap_is_found_through_wildcards_on_either_side() {
        for (a, b, expected) in [
            ("a/#", "a", true),
            ("a/+/c", "a/b/+", true),
            ("a/+/c", "a/b/d", false),
            ("+/x", "y/#", true),
            ("a/b", "a/b/c", false),
            ("#", "$SYS/#", false),
            ("cmd/#", "data/#", false),
        ] {
            assert_eq!(filters_overlap(a, b), expected, "{a} {b}");
            assert_eq!(filters_overlap(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn the_first_matching_rule_decides_the_name() {
        let rules = [rule("#", "plant/", "site7/"), rule("plant/#", "", "raw/")];
        let out = RuleSet::new(Direction::Out, &rules);
        assert_eq!(out.map("plant/a").unwrap().0, "site7/a");
        assert_eq!(
            out.map("plant").unwrap().0,
            "raw/plant",
            "the parent level lacks the first rule's prefix"
        );
        assert!(out.map("other").is_none());
        assert_eq!(out.subscriptions().map(|s| s.0).collect::<Vec<_>>(), ["plant/#", "plant/#"]);
    }

    #[test]
    fn an_empty_filter_gives_one_topic_another_name() {
        let rules = vec![rule("", "pump/temp", "site 17/t")];
        assert_eq!(check(&config(rules.clone(), rules.clone())), Ok(()));
        let out = RuleSet::new(Direction::Out, &rules);
        assert_eq!(out.map("pump/temp").map(|(topic, _)| topic).as_deref(), Some("site 17/t"));
        assert_eq!(out.map("pump/temp/x"), None);
        let inbound = RuleSet::new(Direction::In, &rules);
        assert_eq!(inbound.map("site 17/t").map(|(topic, _)| topic).as_deref(), Some("pump/temp"));
    }

    #[test]
    fn a_topic_that_would_become_empty_or_too_long_does_not_cross() {
        let out = RuleSet::new(Direction::Out, &[rule("#", "a/", "")]);
        assert!(out.map("a/").is_none());
        let out = RuleSet::new(Direction::Out, &[rule("#", "", &"r".repeat(65_000))]);
        assert!(out.map(&"t".repeat(600)).is_none());
    }

    #[test]
    fn a_message_that_came_through_here_or_through_too_many_gateways_is_a_loop() {
        let hop = |id: &str| (VIA_PROPERTY.into(), id.into());
        let via = |user| Properties { user, ..Properties::default() };
        assert_eq!(path(&via(vec![hop("other"), ("x".into(), "gw".into())]), "gw"), Path::Fresh);
        assert_eq!(path(&via(vec![hop("other"), hop("gw")]), "gw"), Path::Loop);
        assert_eq!(path(&via(vec![hop("other"); HOPS_MAX]), "gw"), Path::Loop);
    }

    #[test]
    fn overlapping_remote_filters_are_refused_for_311_with_both_rules_and_the_remedy() {
        let mut overlapping = config(vec![rule("#", "", "site/")], vec![rule("cmd/#", "", "site/")]);
        overlapping.protocol = Protocol::V4;
        let text = check(&overlapping).unwrap_err();
        for part in ["bridge.out number 1", "`site/#`", "bridge.in number 1", "`site/cmd/#`", "protocol = 5"]
        {
            assert!(text.contains(part), "{text}");
        }
        overlapping.protocol = Protocol::V5;
        assert_eq!(check(&overlapping), Ok(()));
        let mut apart = config(vec![rule("data/#", "", "up/")], vec![rule("cmd/#", "", "down/")]);
        apart.protocol = Protocol::V4;
        assert_eq!(check(&apart), Ok(()));
    }

    #[test]
    fn mistakes_are_named_with_their_key() {
        let good = config(vec![rule("#", "", "")], vec![]);
        assert_eq!(check(&good), Ok(()));
        let with = |change: fn(&mut LinkConfig)| {
            let mut config = good.clone();
            change(&mut config);
            check(&config).unwrap_err()
        };
        assert!(with(|c| c.out.clear()).contains("no rules"));
        assert!(with(|c| c.name = "a/b".into()).starts_with("name"));
        assert!(with(|c| c.client_id.clear()).starts_with("client_id"));
        assert!(with(|c| c.addresses.clear()).starts_with("url"));
        assert!(with(|c| c.keep_alive_secs = 0).starts_with("keep_alive_secs"));
        assert!(with(|c| c.window = 0).starts_with("window"));
        assert!(with(|c| c.tls = Some(TlsConfig::default())).contains("mqtts://"));
        assert!(with(|c| c.out[0].local_prefix = "a/+/".into()).contains("local_prefix"));
        assert!(with(|c| c.out[0].local_prefix = "a".into()).contains("lack a `/`"));
        assert!(with(|c| c.out[0].filter = "a/#/b".into()).contains("bridge.out number 1"));
        assert!(with(|c| c.out[0].filter = "$share/g/a".into()).contains("shared"));
        assert!(with(|c| c.inbound = vec![rule("$SYS/#", "", "")]).contains("$SYS"));
        assert!(
            with(|c| {
                c.protocol = Protocol::V4;
                c.password = Some(crate::bridge::Secret("x".into()));
            })
            .contains("username")
        );
    }

    proptest! {
        #[test]
        fn coming_in_undoes_going_out(
            topic in "[a-c/]{1,12}", local in "([a-c]{1,3}/){0,2}", remote in "([x-z]{1,3}/){0,2}"
        ) {
            let rules = [rule("#", &local, &remote)];
            let (out, inbound) = (RuleSet::new(Direction::Out, &rules), RuleSet::new(Direction::In, &rules));
            let here = format!("{local}{topic}");
            let (there, _) = out.map(&here).expect("it matches `#` behind its prefix");
            prop_assert_eq!(&there, &format!("{remote}{topic}"));
            prop_assert_eq!(inbound.map(&there).map(|m| m.0), Some(here));
        }

        #[test]
        fn a_common_match_means_overlap(topic in "[ab]{1,2}(/[ab]{1,2}){0,3}", cut in 0usize..4, plus in 0usize..4) {
            let levels: Vec<&str> = topic.split('/').collect();
            let mut hash = levels[..cut.min(levels.len())].to_vec();
            hash.push("#");
            let plus: Vec<&str> = levels.iter().enumerate().map(|(i, l)| if i == plus { "+" } else { l }).collect();
            let (a, b) = (hash.join("/"), plus.join("/"));
            prop_assert!(filter_matches(&a, &topic) && filter_matches(&b, &topic));
            prop_assert!(filters_overlap(&a, &b));
        }
    }
}
