//! The tables of the protocol's normative statements are complete, and the tests that they name exist.

use std::collections::BTreeSet;

use crate::tree::{File, repository};

/// Sections and the numbers of their statements.
type Ranges = &'static [(&'static str, u32, u32)];

/// MQTT 3.1.1, appendix B.
const V311: Ranges = &[
    ("1.5.3", 1, 3),
    ("2.2.2", 1, 2),
    ("2.3.1", 1, 7),
    ("3.1.0", 1, 2),
    ("3.1.2", 1, 24),
    ("3.1.3", 1, 11),
    ("3.1.4", 1, 5),
    ("3.2.0", 1, 1),
    ("3.2.2", 1, 6),
    ("3.3.1", 1, 12),
    ("3.3.2", 1, 3),
    ("3.3.4", 1, 1),
    ("3.3.5", 1, 2),
    ("3.6.1", 1, 1),
    ("3.8.1", 1, 1),
    ("3.8.3", 1, 4),
    ("3.8.4", 1, 6),
    ("3.9.3", 1, 2),
    ("3.10.1", 1, 1),
    ("3.10.3", 1, 2),
    ("3.10.4", 1, 6),
    ("3.12.4", 1, 1),
    ("3.14.1", 1, 1),
    ("3.14.4", 1, 3),
    ("4.1.0", 1, 2),
    ("4.3.1", 1, 1),
    ("4.3.2", 1, 2),
    ("4.3.3", 1, 2),
    ("4.4.0", 1, 1),
    ("4.5.0", 1, 2),
    ("4.6.0", 1, 6),
    ("4.7.1", 1, 3),
    ("4.7.2", 1, 1),
    ("4.7.3", 1, 4),
    ("4.8.0", 1, 2),
    ("6.0.0", 1, 4),
    ("7.0.0", 1, 2),
    ("7.1.1", 1, 1),
    ("7.1.2", 1, 1),
];

/// MQTT 5.0, appendix B; there is no 2.2.1-1.
const V5: Ranges = &[
    ("1.5.4", 1, 3),
    ("1.5.5", 1, 1),
    ("1.5.7", 1, 1),
    ("2.1.3", 1, 1),
    ("2.2.1", 2, 6),
    ("2.2.2", 1, 1),
    ("3.1.0", 1, 2),
    ("3.1.2", 1, 30),
    ("3.1.3", 1, 12),
    ("3.1.4", 1, 6),
    ("3.2.0", 1, 2),
    ("3.2.2", 1, 22),
    ("3.3.1", 1, 13),
    ("3.3.2", 1, 20),
    ("3.3.4", 1, 10),
    ("3.4.2", 1, 3),
    ("3.5.2", 1, 3),
    ("3.6.1", 1, 1),
    ("3.6.2", 1, 3),
    ("3.7.2", 1, 3),
    ("3.8.1", 1, 1),
    ("3.8.3", 1, 5),
    ("3.8.4", 1, 8),
    ("3.9.2", 1, 2),
    ("3.9.3", 1, 2),
    ("3.10.1", 1, 1),
    ("3.10.3", 1, 2),
    ("3.10.4", 1, 6),
    ("3.11.2", 1, 2),
    ("3.11.3", 1, 2),
    ("3.12.4", 1, 1),
    ("3.14.0", 1, 1),
    ("3.14.1", 1, 1),
    ("3.14.2", 1, 4),
    ("3.14.4", 1, 3),
    ("3.15.1", 1, 1),
    ("3.15.2", 1, 3),
    ("4.1.0", 1, 2),
    ("4.2", 1, 1),
    ("4.3.1", 1, 1),
    ("4.3.2", 1, 5),
    ("4.3.3", 1, 13),
    ("4.4.0", 1, 2),
    ("4.5.0", 1, 2),
    ("4.6.0", 1, 6),
    ("4.7.0", 1, 1),
    ("4.7.1", 1, 2),
    ("4.7.2", 1, 1),
    ("4.7.3", 1, 4),
    ("4.8.2", 1, 6),
    ("4.9.0", 1, 3),
    ("4.12.0", 1, 7),
    ("4.12.1", 1, 2),
    ("4.13.1", 1, 1),
    ("4.13.2", 1, 1),
    ("6.0.0", 1, 4),
];

/// Beginnings of a third field that names no test; a reason follows.
const WITHOUT_TEST: [&str; 2] = ["the client: ", "not tested: "];
/// Fewest characters of a reason and of a statement.
const TEXT_MIN: usize = 12;

fn expected(ranges: Ranges) -> BTreeSet<String> {
    ranges
        .iter()
        .flat_map(|(section, from, to)| (*from..=*to).map(move |n| format!("{section}-{n}")))
        .collect()
}

/// The file that a reference like `broker/wills` names.
fn file_of(reference: &str) -> String {
    match reference.split_once('/') {
        Some(("mqtt", rest)) => format!("protocols/mqtt/tests/{rest}.rs"),
        Some(("broker" | "interop", _)) => format!("tests/{reference}.rs"),
        _ => reference.to_owned(),
    }
}

fn has_test(files: &[File], reference: &str) -> bool {
    let Some((place, name)) = reference.split_once("::") else { return false };
    let path = file_of(place);
    let head = format!("fn {name}(");
    let Some(file) = files.iter().find(|file| file.path == path) else { return false };
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let Some(at) = lines.iter().position(|line| line.starts_with(&head)) else { return false };
    let above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    above.into_iter().any(|line| line.starts_with("#[test]"))
}

/// What is wrong with a table.
fn faults(table: &File, ranges: Ranges, files: &[File]) -> Vec<String> {
    let mut missing = expected(ranges);
    let mut found = Vec::new();
    for (number, line) in table.lines().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let mut complain = |what: String| found.push(format!("{}:{number}: {what}", table.path));
        let fields: Vec<&str> = line.split(" | ").collect();
        let [id, text, held] = fields[..] else {
            complain("not three fields with ` | ` between them".into());
            continue;
        };
        if !missing.remove(id) {
            complain(format!("{id} is no statement, or stands here twice"));
        }
        if text.len() < TEXT_MIN {
            complain(format!("{id} does not say what it asks for"));
        }
        match WITHOUT_TEST.iter().find_map(|start| held.strip_prefix(start)) {
            Some(reason) if reason.len() >= TEXT_MIN => {}
            Some(_) => complain(format!("{id} has no reason")),
            None => held.split(", ").filter(|test| !has_test(files, test)).for_each(|test| {
                complain(format!("{id}: there is no test {test}"));
            }),
        }
    }
    found.extend(missing.into_iter().map(|id| format!("{}: {id} is missing", table.path)));
    found
}

fn table(name: &str) -> &'static File {
    let path = format!("tests/statements/{name}.txt");
    repository().iter().find(|file| file.path == path).unwrap_or_else(|| panic!("{path} is missing"))
}

#[test]
fn every_normative_statement_is_held_by_a_test_or_says_why_not() {
    let mut all = faults(table("mqtt-3.1.1"), V311, repository());
    all.extend(faults(table("mqtt-5.0"), V5, repository()));
    assert!(all.is_empty(), "\n{}\n", all.join("\n"));
    assert_eq!((expected(V311).len(), expected(V5).len()), (141, 251));
}

#[test]
fn a_table_with_a_fault_is_noticed() {
    let ranges: Ranges = &[("1.0", 1, 3)];
    let tests = [File {
        path: "tests/broker/a.rs".into(),
        text: "#[test]\nfn holds() {\n}\nfn helper() {}\n".into(),
    }];
    let faults = |text: &str| faults(&File { path: "t".into(), text: text.into() }, ranges, &tests).len();
    let good = "# comment\n\n1.0-1 | A statement of some kind. | broker/a::holds\n1.0-2 | Another statement. | the client: it decides alone\n";
    let rest = "1.0-3 | A third statement. | not tested: nobody can see it\n";
    assert_eq!(faults(&format!("{good}{rest}")), 0);
    assert_eq!(faults(good), 1, "one is missing");
    assert_eq!(faults(&format!("{good}{rest}{rest}")), 1, "one stands there twice");
    for bad in ["broker/a::helper", "broker/a::gone", "broker/b::holds", "the client: no", "holds", ""] {
        assert_eq!(faults(&format!("{good}1.0-3 | A third statement. | {bad}")), 1, "{bad}");
    }
    assert_eq!(faults(&format!("{good}1.0-3 | Short | broker/a::holds")), 1);
}
