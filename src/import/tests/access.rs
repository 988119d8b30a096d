//! Who may come in afterwards: never more than before.

use super::*;

fn files(text: &str) -> Memory {
    Memory::new(text)
        .file("passwd", include_str!("samples/passwd"))
        .file("other-passwd", include_str!("samples/other-passwd"))
        .file("acl", include_str!("samples/acl"))
}

/// URL of each listener, and whether it takes anonymous clients.
fn doors(text: &str) -> (Import, Vec<(String, bool)>) {
    let import = files(text).import(Target::Folder).unwrap();
    let loaded = checked(&import).unwrap_or_else(|error| panic!("{error}\n{}", import.config));
    let doors = loaded.settings.listeners.iter().map(|listener| (listener.url.clone(), listener.anonymous));
    (import, doors.collect())
}

#[test]
fn a_listener_takes_anonymous_clients_exactly_where_it_did() {
    let tls = "certfile /c\nkeyfile /k\ncafile /a\nrequire_certificate true\n";
    let each = "per_listener_settings true\nlistener 1 127.0.0.1\nallow_anonymous true\nlistener 2\n";
    let default = "mqtt://127.0.0.1:1883";
    for (text, expected) in [
        ("", &[(default, true)][..]),
        ("password_file passwd", &[(default, true)]),
        ("allow_anonymous false\npassword_file passwd", &[(default, false)]),
        ("allow_anonymous true\nlistener 1", &[("mqtt://[::]:1", true)]),
        ("allow_anonymous true\nlistener 1\npassword_file passwd", &[("mqtt://[::]:1", true)]),
        ("listener 1\npassword_file passwd", &[("mqtt://[::]:1", false)]),
        (&format!("{each}password_file passwd"), &[("mqtt://127.0.0.1:1", true), ("mqtt://[::]:2", false)]),
        (
            &format!("{each}{tls}allow_anonymous true"),
            &[("mqtt://127.0.0.1:1", true), ("mqtts://[::]:2", true)],
        ),
        (
            &format!("{each}{tls}use_identity_as_username true"),
            &[("mqtt://127.0.0.1:1", true), ("mqtts://[::]:2", false)],
        ),
    ] {
        let (import, found) = doors(text);
        let expected: Vec<_> =
            expected.iter().map(|(url, anonymous)| ((*url).to_owned(), *anonymous)).collect();
        assert_eq!(found, expected, "{text}\n{}", import.config);
    }
}

#[test]
fn a_listener_that_would_let_nobody_in_or_whose_files_are_not_the_common_ones_is_left_out() {
    let open = "per_listener_settings true\nlistener 1 127.0.0.1\nallow_anonymous true\n";
    let users = "per_listener_settings true\nlistener 1 127.0.0.1\npassword_file passwd\n";
    for (text, why) in [
        (format!("{open}listener 2\nallow_anonymous false"), "would let nobody in"),
        (format!("{open}listener 2\npassword_file missing"), "is not carried over"),
        (format!("{users}listener 2\npassword_file other-passwd"), "another password_file"),
        (format!("{users}listener 2"), "would let nobody in"),
        (format!("{open}acl_file acl\nlistener 2\nallow_anonymous true"), "has no acl_file"),
        (
            "allow_anonymous true\nlistener 1 127.0.0.1\nlistener 1 127.0.0.1".into(),
            "has its address already",
        ),
    ] {
        let (import, found) = doors(&text);
        assert_eq!(found.len(), 1, "{text}");
        let said = import.report.findings().iter().find(|finding| finding.text.contains("is left out: "));
        assert!(said.is_some_and(|finding| finding.text.contains(why)), "{text}\n{}", import.report);
    }
}

#[test]
fn where_no_listener_is_left_nobody_comes_in() {
    for text in [
        "listener 1883",
        "listener 1883\npassword_file missing",
        "allow_anonymous true\nlistener 70000",
        "allow_anonymous true\nplugin /usr/lib/mosquitto_dynamic_security.so\nlistener 1883",
        "allow_anonymous false",
    ] {
        let (import, found) = doors(text);
        assert_eq!(found, [("mqtt://127.0.0.1:1883".to_owned(), false)], "{text}");
        let passwords = import.files.iter().find(|file| file.name == "passwords").unwrap();
        assert!(passwords.content.lines().all(|line| line.starts_with('#')), "{text}");
        assert!(import.report.to_string().contains("tidegate passwd passwords USER"), "{}", import.report);
        // Without a folder there is no such file, and the broker does not start.
        let import = files(text).import(Target::Text).unwrap();
        assert!(checked(&import).unwrap_err().to_string().contains("passwords"), "{text}");
    }
}

#[test]
fn a_rule_for_a_user_is_not_for_whoever_claims_the_name_and_a_session_is_its_users() {
    let (import, _) = doors("listener 1883\nallow_anonymous true\nacl_file acl");
    assert!(said(&import, "acl_file").1.contains("a name that a client does not prove does not count"));
    let (import, _) = doors("listener 1883\npassword_file passwd\nacl_file acl");
    assert!(!said(&import, "acl_file").1.contains("prove"));
    assert_eq!(said(&import, "sessions (not given)").0, Verdict::Differs);
    let report = import.report.to_string();
    let told =
        "defaults that differ from Mosquitto's, see above: max_packet_size, max_queued_messages, sessions\n";
    assert!(report.contains(told), "{report}");
}

#[test]
fn differences_between_listeners_that_share_files_are_told() {
    let (import, _) = doors(
        "per_listener_settings true\nlistener 1 127.0.0.1\nallow_anonymous true\n\
         listener 2 127.0.0.1\npassword_file passwd\nacl_file acl",
    );
    let (verdict, text) = said(&import, "listener");
    assert_eq!(verdict, Verdict::Differs);
    assert!(text.contains("need its password") && text.contains("hold for users on it too"), "{text}");
    assert!(import.files[1].content.contains("allow all \"#\" anonymous"), "{:?}", import.files);
}
