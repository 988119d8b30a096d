//! The files in `config/`: complete, true, and loadable.

use std::collections::BTreeSet;
use std::path::Path;

use super::Case;
use crate::settings::keys::section;
use crate::settings::{Environment, Overrides, Settings, load};

const REFERENCE: &str = include_str!("../../../config/tidegate.toml");
pub(super) const GATEWAY: &str = include_str!("../../../config/examples/gateway.toml");

/// What a line of the reference holds, without its comment marks.
#[derive(Clone, Copy, PartialEq)]
enum Line<'a> {
    Default(&'a str),
    Example(&'a str),
    Prose,
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().map(|line| match (line.strip_prefix("##"), line.strip_prefix('#')) {
        (Some(example), _) => Line::Example(example),
        (None, Some(default)) if !default.starts_with(' ') && !default.is_empty() => Line::Default(default),
        _ => Line::Prose,
    })
}

/// The reference with some of its lines in force.
fn in_force(keep: impl Fn(Line<'_>) -> bool) -> String {
    let kept = lines(REFERENCE).map(|line| match line {
        Line::Default(text) | Line::Example(text) if keep(line) => text,
        _ => "",
    });
    kept.collect::<Vec<_>>().join("\n")
}

/// The defaults outside the sections that are examples as a whole.
fn defaults_in_force() -> String {
    let mut in_example = false;
    let kept = lines(REFERENCE).map(|line| match line {
        Line::Default(text) | Line::Example(text) if text.starts_with('[') => {
            in_example = matches!(line, Line::Example(_));
            if in_example { "" } else { text }
        }
        Line::Default(text) if !in_example => text,
        _ => "",
    });
    kept.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_reference_changes_nothing_as_it_is_and_nothing_with_all_defaults_in_force() {
    assert_eq!(Case::new(REFERENCE).settings(), Settings::default());
    let text = defaults_in_force();
    assert!(text.contains("ring = "));
    assert_eq!(Case::new(&text).settings(), Settings::default());
}

#[test]
fn the_defaults_that_the_reference_shows_inside_its_examples_are_the_built_in_ones() {
    let all = Case::new(&in_force(|line| line != Line::Prose)).settings();
    let examples = Case::new(&in_force(|line| {
        matches!(line, Line::Example(_))
            || matches!(line, Line::Default(text) if text.starts_with('[') || text.starts_with("url"))
    }));
    assert_eq!(all, examples.settings());
    assert_eq!(all.bridges.len(), 1);
    assert_eq!((all.limits.queue_rules.len(), all.limits.queue_defs.len()), (1, 1));
}

#[test]
fn the_reference_holds_every_key_and_its_explanation() {
    let mut found = BTreeSet::new();
    let mut place = "";
    let mut explained = true;
    for line in lines(REFERENCE) {
        match line {
            Line::Default(text) | Line::Example(text) => {
                if text.starts_with('[') {
                    place = text.trim_matches(['[', ']']);
                    assert!(explained, "[{place}] has no explanation above it");
                } else {
                    found.insert(format!("{place}.{}", text.split([' ', '=']).next().unwrap()));
                }
                explained = false;
            }
            Line::Prose => explained = true,
        }
    }
    // Alternatives of keys that are there, and explained beside them.
    found.extend(["bridge.urls".to_owned(), "bridge.password".to_owned()]);
    let mut known = BTreeSet::new();
    for top in section("").unwrap().keys().iter().copied().chain(["bridge.out", "bridge.in"]) {
        let keys = section(top).unwrap().keys().iter().map(|key| format!("{top}.{key}"));
        known.extend(keys.filter(|key| section(key).is_none()));
    }
    assert_eq!(found, known);
}

#[test]
fn every_example_loads() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/examples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let loaded = load(Some(&path), &Environment::default(), &Overrides::default());
            assert!(!loaded.unwrap_or_else(|error| panic!("{error}")).settings.bridges.is_empty());
            count += 1;
        }
    }
    assert!(count >= 2);
}

#[test]
fn the_systemd_unit_starts_what_the_command_line_offers() {
    let unit = include_str!("../../../config/system/tidegate.service");
    assert!(unit.contains("\nType=notify\n") && unit.contains("\nRestart=always\n"));
    assert!(unit.contains("\nExecStart=/usr/bin/tidegate run --config /etc/tidegate/tidegate.toml\n"));
    assert!(unit.contains("\nWatchdogSec=60s\n") && unit.contains("\nUser=tidegate\n"));
}

proptest::proptest! {
    #[test]
    fn a_mangled_file_is_refused_or_loaded_and_never_a_panic(
        cut in 0..6000_usize, gone in 0..200_usize, put in "[ -~\n]{0,6}|\\PC{0,3}",
    ) {
        let whole: Vec<char> = in_force(|line| line != Line::Prose).chars().collect();
        let cut = cut.min(whole.len());
        let rest = (cut + gone).min(whole.len());
        let text: String = whole[..cut].iter().copied().chain(put.chars()).chain(whole[rest..].iter().copied()).collect();
        if let Err(error) = Case::new(&text).load() {
            proptest::prop_assert!(!error.what.is_empty());
        }
    }
}
