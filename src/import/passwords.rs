//! Mosquitto's password file, whose lines are understood here as they are.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::report::{Place, Report, Verdict};
use crate::access::password::Stored;
use crate::access::users::check_name;

/// What came of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passwords {
    /// The file as it is written here.
    pub text: String,
    /// How many users it has.
    pub users: usize,
    /// No line was left out, so that the file may be used as it is.
    pub is_whole: bool,
}

/// Takes the good lines; each other one is a finding.
pub fn convert(file: &str, text: &str, report: &mut Report) -> Passwords {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut users: BTreeMap<String, (u32, String)> = BTreeMap::new();
    let mut is_whole = true;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let place = |line| Place { file: file.to_owned(), line };
        match entry(line) {
            Ok((user, hash)) => {
                is_whole &= line == format!("{user}:{hash}");
                if let Some((earlier, _)) = users.insert(user, (number, hash)) {
                    is_whole = false;
                    let id = report.line(place(earlier), "user");
                    report.same(id, format!("line {number} takes its place"));
                }
            }
            Err(what) => {
                is_whole = false;
                let id = report.line(place(number), "user");
                report.dropped(id, what);
            }
        }
    }
    report.whole(file, "password_file", Verdict::Carried, format!("{} users", users.len()));
    let mut lines: Vec<_> = users.iter().map(|(user, (number, hash))| (number, user, hash)).collect();
    lines.sort();
    let mut out = String::new();
    for (_, user, hash) in lines {
        let _ = writeln!(out, "{user}:{hash}");
    }
    Passwords { text: out, users: users.len(), is_whole }
}

/// User and hash of a line.
fn entry(line: &str) -> Result<(String, String), String> {
    let (user, hash) = line.split_once(':').ok_or("expected USER:HASH, as mosquitto_passwd writes it")?;
    let (user, hash) = (user.trim(), hash.trim());
    check_name(user)?;
    Stored::parse(hash)?;
    Ok((user.to_owned(), hash.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Users;

    const HASH: &str = "$6$JRBA7eItBZVURG4C$nBcGA9YR23i8ZKx9rfWk1js/CGdUgoY2t8Gv2tyLtY2Dmm/eZCG9FSBojNGci1xjtrxIXeluyryDEVdSpo7E5A==";

    #[test]
    fn good_lines_are_taken_and_the_others_told_with_their_place() {
        let text = format!("# people\nann:{HASH}\r\nbob:secret\n\nno colon\n carl :{HASH}\nann:{HASH}\n:x\n");
        let mut report = Report::default();
        let found = convert("passwd", &text, &mut report);
        assert_eq!(found.text, format!("carl:{HASH}\nann:{HASH}\n"));
        assert_eq!((found.users, found.is_whole), (2, false));
        let places: Vec<_> = report.findings().iter().map(|finding| finding.place.line).collect();
        assert_eq!(places, [3, 5, 2, 8, 0]);
        assert_eq!(Users::parse(&found.text).unwrap().len(), 2);
        assert!(!report.to_string().contains("secret"));
    }

    #[test]
    fn a_file_without_mistakes_may_be_used_as_it_is() {
        let found = convert("passwd", &format!("ann:{HASH}\nbob:{HASH}\n"), &mut Report::default());
        assert!(found.is_whole);
    }
}
