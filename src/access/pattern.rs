//! Topic filters as sets of topics: substitution of names, inclusion and intersection.
//!
//! A filter here is a checked one without `$share/<group>/`, or [`EVERYTHING`]. Work is linear in the length of the filters.

use std::borrow::Cow;

/// Matches every topic, those that begin with `$` too. No filter that a client may send.
pub(super) const EVERYTHING: &str = "";

/// What is put in place of `%u` and `%c`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    pub(super) user: Option<&'a str>,
    pub(super) client: &'a str,
}

/// Why a pattern cannot be filled in with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    /// `u` or `c`.
    pub(super) name: char,
}

/// Whether the pattern has something to be filled in.
pub(super) fn has_names(pattern: &str) -> bool {
    pattern.contains("%u") || pattern.contains("%c")
}

/// The pattern with the client's names in it. A name that could mean more than one level of that name is unfit.
pub(super) fn fill_in<'a>(pattern: &'a str, names: &Names<'_>) -> Result<Cow<'a, str>, Unfit> {
    if !has_names(pattern) {
        return Ok(Cow::Borrowed(pattern));
    }
    let mut out = String::with_capacity(pattern.len() + names.client.len());
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        let (before, tail) = rest.split_at(at);
        out.push_str(before);
        let (name, used) = match tail.as_bytes().get(1) {
            Some(b'u') => (Some(('u', names.user.unwrap_or(""))), 2),
            Some(b'c') => (Some(('c', names.client)), 2),
            _ => (None, 1),
        };
        match name {
            Some((letter, name)) if !is_fit(name, out.is_empty()) => return Err(Unfit { name: letter }),
            Some((_, name)) => out.push_str(name),
            None => out.push('%'),
        }
        rest = &tail[used..];
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

/// A name stands for itself in one level. At the front of a topic a `$` would lead out of the topics of clients.
fn is_fit(name: &str, at_front: bool) -> bool {
    let leads_out = at_front && name.starts_with('$');
    !name.is_empty() && !leads_out && !name.contains(['+', '#', '/', '\0'])
}

/// What an unfit name makes of a pattern that denies: everything from its level on.
pub(super) fn cut_off(pattern: &str) -> String {
    let mut kept: Vec<&str> = pattern.split('/').take_while(|level| !has_names(level)).collect();
    if kept.is_empty() {
        return EVERYTHING.to_owned();
    }
    kept.push("#");
    kept.join("/")
}

/// Whether the filter matches the topic.
pub(super) fn matches(filter: &str, topic: &str) -> bool {
    filter == EVERYTHING || crate::topic::matches(filter, topic)
}

fn is_wild(filter: &str) -> bool {
    filter.starts_with(['+', '#'])
}

/// Whether every topic that `filter` matches is matched by `pattern`.
pub(super) fn covers(pattern: &str, filter: &str) -> bool {
    if pattern == EVERYTHING {
        return true;
    }
    if filter == EVERYTHING || (is_wild(pattern) && filter.starts_with('$')) {
        return false;
    }
    let mut levels = filter.split('/');
    for mine in pattern.split('/') {
        if mine == "#" {
            return true;
        }
        match levels.next() {
            None | Some("#") => return false,
            Some(level) if mine == "+" || mine == level => {}
            Some(_) => return false,
        }
    }
    levels.next().is_none()
}

/// The filter that matches what both match, if there is such a topic.
pub(super) fn intersection<'a>(one: &'a str, other: &'a str) -> Option<Cow<'a, str>> {
    if one == EVERYTHING || one == other {
        return Some(Cow::Borrowed(other));
    }
    if other == EVERYTHING {
        return Some(Cow::Borrowed(one));
    }
    if (is_wild(one) && other.starts_with('$')) || (is_wild(other) && one.starts_with('$')) {
        return None;
    }
    let (mut ones, mut others) = (one.split('/'), other.split('/'));
    let mut both: Vec<&str> = Vec::new();
    loop {
        match (ones.next(), others.next()) {
            (None, None) | (None, Some("#")) | (Some("#"), None) => break,
            (Some("#"), Some(level)) => {
                both.push(level);
                both.extend(others);
                break;
            }
            (Some(level), Some("#")) => {
                both.push(level);
                both.extend(ones);
                break;
            }
            (Some("+"), Some(level)) | (Some(level), Some("+")) => both.push(level),
            (Some(level), Some(same)) if level == same => both.push(level),
            _ => return None,
        }
    }
    // A first level without a name, alone, is no topic.
    let both = both.join("/");
    (!both.is_empty()).then_some(Cow::Owned(both))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::topic;

    #[test]
    fn inclusion_follows_the_levels() {
        for (pattern, filter, expected) in [
            ("#", "a/b", true),
            ("#", "#", true),
            ("#", "$SYS/#", false),
            ("a/#", "a", true),
            ("a/#", "a/+/c", true),
            ("a/+", "a/#", false),
            ("a", "a/#", false),
            ("+", "+", true),
            ("+", "$SYS", false),
            ("a/b", "a/+", false),
            ("$SYS/#", "$SYS/broker/+", true),
            (EVERYTHING, "$SYS/#", true),
            ("#", EVERYTHING, false),
        ] {
            assert_eq!(covers(pattern, filter), expected, "{pattern} {filter}");
        }
    }

    #[test]
    fn intersections_are_filters_again() {
        for (one, other, both) in [
            ("a/#", "+/b", Some("a/b")),
            ("a/#", "+/b/#", Some("a/b/#")),
            ("a/#", "+", Some("a")),
            ("+/+", "a/#", Some("a/+")),
            ("#", "$SYS/x", None),
            ("a/b", "a/c", None),
            ("a/b/#", "a", None),
            ("+", "/#", None),
            ("#", "#", Some("#")),
            (EVERYTHING, "$SYS/x", Some("$SYS/x")),
        ] {
            assert_eq!(intersection(one, other).as_deref(), both, "{one} {other}");
            assert_eq!(intersection(other, one).as_deref(), both, "{other} {one}");
        }
    }

    #[test]
    fn names_are_filled_in_as_they_are_or_not_at_all() {
        let names = |user, client| Names { user: Some(user), client };
        assert_eq!(fill_in("d/%c/%u-x/#", &names("ann", "c1")).unwrap(), "d/c1/ann-x/#");
        assert_eq!(fill_in("100%/%", &names("ann", "c1")).unwrap(), "100%/%");
        assert_eq!(fill_in("%u", &names("%c", "c1")).unwrap(), "%c", "a name is not filled in again");
        for bad in ["", "+", "#", "a/b", "a+", "x#", "/", "\0"] {
            assert_eq!(fill_in("d/%u", &names(bad, "c1")), Err(Unfit { name: 'u' }), "{bad:?}");
            assert_eq!(fill_in("d/%c", &names("ann", bad)), Err(Unfit { name: 'c' }), "{bad:?}");
        }
        assert_eq!(fill_in("%u/#", &names("$SYS", "c")), Err(Unfit { name: 'u' }));
        assert_eq!(fill_in("d/%u", &names("$SYS", "c")).unwrap(), "d/$SYS");
        assert_eq!(cut_off("d/x/%u/y"), "d/x/#");
        assert_eq!(cut_off("%u/y"), EVERYTHING);
    }

    fn level() -> impl Strategy<Value = String> {
        prop_oneof![Just("a"), Just("b"), Just(""), Just("+"), Just("$S")].prop_map(str::to_owned)
    }

    fn filter() -> impl Strategy<Value = String> {
        (prop::collection::vec(level(), 0..4), any::<bool>()).prop_filter_map(
            "empty",
            |(mut levels, open)| {
                if open {
                    levels.push("#".into());
                }
                let text = levels.join("/");
                (!text.is_empty()).then_some(text)
            },
        )
    }

    /// Every topic of up to four levels over the alphabet of [`level`], and one level that no filter names.
    fn topics() -> Vec<String> {
        let names = ["a", "b", "", "$S", "z"];
        let mut all: Vec<Vec<&str>> = vec![vec![]];
        let mut found = Vec::new();
        for _ in 0..4 {
            all = all.iter().flat_map(|t| names.iter().map(|n| [&t[..], &[*n]].concat())).collect();
            found.extend(all.iter().map(|levels| levels.join("/")).filter(|topic| !topic.is_empty()));
        }
        found
    }

    proptest! {
        #[test]
        fn sets_of_filters_agree_with_the_topics_that_they_match(one in filter(), other in filter()) {
            let both = intersection(&one, &other);
            let mut covered = true;
            for topic in topics() {
                let (a, b) = (topic::matches(&one, &topic), topic::matches(&other, &topic));
                let c = both.as_deref().is_some_and(|both| topic::matches(both, &topic));
                prop_assert_eq!(a && b, c, "{} and {} at {}", &one, &other, topic);
                covered &= a || !b;
            }
            // Inclusion may be missed for want of longer topics, never claimed wrongly.
            if covers(&one, &other) {
                prop_assert!(covered, "{} covers {}", one, other);
            }
        }
    }
}
