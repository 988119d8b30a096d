//! The list of what a STOMP server must do, and the tests that show it.

use std::collections::BTreeMap;

use crate::tree::{File, repository};

const LIST: &str = "tests/stomp/checklist.txt";
/// Rows of the list.
const ROWS: u16 = 168;

/// The number in `A017` or `a017`, and what follows.
fn row(text: &str, letter: char) -> Option<(u16, &str)> {
    let (digits, rest) = text.strip_prefix(letter)?.split_at_checked(3)?;
    Some((digits.parse().ok()?, rest))
}

/// Lines of the list that are no comments: number and description.
fn listed(list: &File) -> BTreeMap<u16, &str> {
    let lines = list.text.lines().filter_map(|line| row(line, 'A'));
    lines.map(|(number, rest)| (number, rest.trim())).collect()
}

/// Tests named by a row, with the number of times that each is there.
fn tested(files: &[File]) -> BTreeMap<u16, usize> {
    let sources = files.iter().filter(|file| file.path.starts_with("tests/stomp/") && file.is("rs"));
    let mut found = BTreeMap::new();
    for file in sources {
        let lines: Vec<&str> = file.text.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair[0] == "#[test]") {
            let name = pair[1].strip_prefix("fn ").and_then(|name| row(name, 'a'));
            if let Some((number, rest)) = name
                && rest.starts_with('_')
            {
                *found.entry(number).or_insert(0) += 1;
            }
        }
    }
    found
}

#[test]
fn each_row_of_the_stomp_checklist_has_one_test() {
    let list = repository().iter().find(|file| file.path == LIST).expect("the list is there");
    let (listed, tested) = (listed(list), tested(repository()));
    let mut findings = vec![];
    for number in 1..=ROWS {
        match (listed.get(&number), tested.get(&number)) {
            (None | Some(&""), _) => findings.push(format!("A{number:03} is not described in {LIST}")),
            (_, Some(1)) => {}
            (_, count) => findings.push(format!("A{number:03} has {} tests", count.unwrap_or(&0))),
        }
    }
    findings.extend(
        listed
            .keys()
            .chain(tested.keys())
            .filter(|n| !(1..=ROWS).contains(*n))
            .map(|n| format!("A{n:03} is no row")),
    );
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn rows_are_told_from_other_names() {
    assert_eq!(row("a017_connect_asks_for_no_receipt()", 'a'), Some((17, "_connect_asks_for_no_receipt()")));
    assert_eq!(row("a_selector()", 'a'), None);
    assert_eq!(row("A008 text", 'A'), Some((8, " text")));
}
