use super::*;

/// Headers as STOMP has them: texts.
struct Headers(&'static [(&'static str, &'static str)]);

impl Fields for Headers {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        self.0.iter().find(|(found, _)| *found == name).map(|(_, value)| Field::Text(value))
    }
}

const HEADERS: Headers = Headers(&[
    ("colour", "red"),
    ("size", "12"),
    ("weight", "2.5"),
    ("name", "O'Brien"),
    ("empty", ""),
    ("neg", "-3"),
    ("big", "9223372036854775807"),
    ("pct", "50%"),
    ("under", "a_b"),
    ("path", "a/b"),
    ("uni", "日本語"),
    ("zero", "0"),
    ("other", "12"),
    ("half", "0.5"),
    ("flag", "true"),
    ("off", "FALSE"),
    ("text", "12"),
    ("exp", "1e3"),
    ("spaced", " 12 "),
    ("hex", "0x1F"),
    ("nan", "NaN"),
    ("inf", "inf"),
    ("content-type", "text/plain"),
    ("a.b", "7"),
    ("say \"hi\"", "yes"),
    ("$odd", "1"),
    ("_odd", "2"),
    ("größe", "3"),
]);

/// Each line: the value, a space, the expression. Where SQL-92 and JMS say the same, the values are those of a SQL engine.
const REFERENCE: &str = include_str!("reference.txt");

fn fault(text: &str) -> (usize, &'static str) {
    let error = Selector::parse(text).expect_err(text);
    (error.position, error.what)
}

#[test]
fn every_expression_of_the_reference_has_its_value() {
    let lines: Vec<&str> = REFERENCE.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.len() >= 300, "{} expressions", lines.len());
    let mut wrong = vec![];
    for line in lines {
        let (expected, expression) = line.split_once(' ').unwrap();
        let expected = match expected {
            "T" => Some(true),
            "F" => Some(false),
            "U" => None,
            other => panic!("{other} is no truth value"),
        };
        match Selector::parse(expression).map(|selector| selector.truth(&HEADERS)) {
            Ok(found) if found == expected => {}
            found => wrong.push(format!("{expression}: {found:?} instead of {expected:?}")),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_faulty_selector_is_refused_with_the_place_of_its_fault() {
    let cases = [
        ("", 1),
        ("   ", 4),
        ("foo.bar = 1", 4),
        (") foo = 'bar' (", 1),
        ("1", 1),
        ("'text'", 1),
        ("a + 1", 5),
        ("a =", 4),
        ("= 1", 1),
        ("a = 1 AND", 10),
        ("(a = 1", 1),
        ("a = 1)", 6),
        ("a = b = c", 5),
        ("a = 'x", 5),
        ("\"a = 1", 1),
        ("\"\" = 1", 1),
        ("a IN ()", 7),
        ("a IN 1", 6),
        ("a IN (1 2)", 9),
        ("a IN (b)", 7),
        ("a IN (-'x')", 8),
        ("a LIKE b", 3),
        ("a LIKE 'x' ESCAPE 'ab'", 12),
        ("a LIKE 'x!y' ESCAPE '!'", 8),
        ("1 LIKE 'x'", 1),
        ("a BETWEEN 1", 3),
        ("a BETWEEN 1 OR 2", 3),
        ("a BETWEEN 1 = 2 AND 3", 3),
        ("a IS 1", 6),
        ("a IS NOT 1", 10),
        ("a NOT = 1", 7),
        ("a = NULL", 5),
        ("a ; b", 3),
        ("a = 1 b = 2", 7),
        ("12abc = 1", 1),
        ("0x = 1", 1),
        ("TRUE > FALSE", 1),
        ("(a = 1) + 1 = 2", 6),
        ("a = 1 AND 5", 11),
        ("NOT 5", 5),
        ("'x' + 1 = 2", 1),
        ("日本 = 'x' 1", 10),
        ("a = 'é' ?", 9),
    ];
    for (text, position) in cases {
        assert_eq!(fault(text).0, position, "{text}: {}", fault(text).1);
    }
}

#[test]
fn selectors_have_a_greatest_length_and_deep_ones_need_no_stack() {
    let deep = |n: usize| format!("{}a = 1{}", "(".repeat(n), ")".repeat(n));
    assert!(Selector::parse(&deep(2_000)).is_ok());
    assert_eq!(fault(&deep(3_000)), (4097, "the selector is longer than 4096 bytes"));
    let nots = format!("{}flag", "NOT ".repeat(1_000));
    assert_eq!(Selector::parse(&nots).unwrap().truth(&HEADERS), Some(true));
    let sum = format!("0 {} = 1000", "+ 1 ".repeat(1_000));
    assert_eq!(Selector::parse(&sum).unwrap().truth(&HEADERS), Some(true));
    let minus = format!("{}1 = 1", "-".repeat(1_000));
    assert_eq!(Selector::parse(&minus).unwrap().truth(&HEADERS), Some(true));
}

#[test]
fn no_text_makes_the_parser_panic() {
    let parts = [
        "a", "1", "'x'", "(", ")", "AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "=",
        "<>", "-", "*", ",", "TRUE", "\"", "'", ".", "é",
    ];
    let seed = 0x5eed_u64;
    let mut state = seed;
    let mut next = move |max: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % max
    };
    let mut accepted = 0;
    for _ in 0..100_000 {
        let text: Vec<&str> = (0..=next(9)).map(|_| parts[next(parts.len())]).collect();
        if let Ok(selector) = Selector::parse(&text.join(" ")) {
            let _ = selector.truth(&HEADERS);
            accepted += 1;
        }
    }
    assert!(accepted > 1_000, "{accepted} were accepted; seed {seed:#x}");
}

#[test]
fn a_message_answers_for_its_properties() {
    use crate::message::{Message, MessageHead, Properties, Qos};
    use crate::time::Wall;
    let properties = Properties {
        content_type: Some("text/plain".into()),
        correlation_data: Some((*b"c-1").into()),
        response_topic: Some("answers".into()),
        user: vec![("level".into(), "7".into()), ("level".into(), "1".into())],
        ..Properties::default()
    };
    let head = MessageHead {
        qos: Qos::AtLeastOnce,
        published: Wall(1_000),
        expires: Some(Wall(5_000)),
        properties: Some(Box::new(properties)),
        ..MessageHead::default()
    };
    let message = Message::new("plant/7", b"", head);
    for selector in [
        "level = 7",
        "\"content-type\" = 'text/plain'",
        "JMSCorrelationID = 'c-1' AND \"correlation-id\" = 'c-1'",
        "JMSReplyTo = 'answers'",
        "JMSExpiration = 5000 AND JMSTimestamp = 1000",
        "JMSDeliveryMode = 'PERSISTENT' AND persistent = TRUE AND qos = 1",
        "JMSPriority = 4 AND priority IS NULL",
        "topic LIKE 'plant/%'",
    ] {
        assert!(Selector::parse(selector).unwrap().selects(&message), "{selector}");
    }
}
