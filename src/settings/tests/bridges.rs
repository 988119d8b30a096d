//! Bridges: derived values, checks, warnings, secrets.

use std::os::unix::fs::PermissionsExt;

use super::Case;
use crate::bridge::{Address, LinkConfig, Protocol, Rule, TlsConfig};
use crate::message::Qos;
use crate::settings::effective_toml;

const BRIDGE: &str = "[[bridge]]\nname = 'up'\nurl = 'mqtt://127.0.0.1:2'\nclient_id = 'gw'\n";
const OUT: &str = "[[bridge.out]]\nfilter = '#'\n";

#[test]
fn a_bridge_is_its_defaults_and_what_is_said() {
    let text = "protocol = 4\nkeep_alive = '10s'\nwindow = 7\nca_file = 'ca.pem'\nack_timeout = '5s'\n[[bridge.out]]\n\
                filter = 'a/#'\nremote_prefix = 'x/'\nqos = 0\n[[bridge.in]]\nfilter = 'c'\nlocal_prefix = 'y/'\nretain = false";
    let case = Case::new(&(BRIDGE.replace("mqtt:", "mqtts:") + text));
    let expected = LinkConfig {
        name: "up".into(),
        addresses: vec![Address { host: "127.0.0.1".into(), port: 2, tls: true }],
        protocol: Protocol::V4,
        client_id: "gw".into(),
        gateway_id: "gw".into(),
        keep_alive_secs: 10,
        window: 7,
        ack_timeout_millis: 5000,
        tls: Some(TlsConfig { ca_file: Some(case.path("ca.pem")), ..TlsConfig::default() }),
        out: vec![Rule {
            filter: "a/#".into(),
            remote_prefix: "x/".into(),
            qos: Qos::AtMostOnce,
            ..Rule::default()
        }],
        inbound: vec![Rule {
            filter: "c".into(),
            local_prefix: "y/".into(),
            retain: false,
            ..Rule::default()
        }],
        ..LinkConfig::default()
    };
    assert_eq!(case.settings().bridges, [expected]);
}

#[test]
fn all_bridges_of_a_gateway_mark_the_path_with_one_name() {
    let second = BRIDGE.replace("up", "b").replace("gw", "other") + OUT;
    let names = |text: &str| {
        let bridges = Case::new(text).settings().bridges;
        bridges.into_iter().map(|link| link.gateway_id).collect::<Vec<_>>()
    };
    assert_eq!(names(&format!("{BRIDGE}{OUT}{second}")), ["gw", "gw"]);
    assert_eq!(
        names(&format!(
            "{BRIDGE}{OUT}{}",
            second.replace("[[bridge.out]]", "gateway_id='g'\n[[bridge.out]]")
        )),
        ["g", "g"]
    );
}

#[test]
fn a_bridge_that_cannot_work_is_refused_at_its_line() {
    for (text, start) in [
        (BRIDGE.into(), "t.toml:1: bridge[0]: no rules"),
        (
            format!("{}{OUT}", BRIDGE.replace("name = 'up'", "")),
            "t.toml:1: bridge[0].name: is missing; give it a short name",
        ),
        (
            format!("{}{OUT}", BRIDGE.replace("client_id = 'gw'", "")),
            "t.toml:1: bridge[0].client_id: is missing",
        ),
        (format!("{}{OUT}", BRIDGE.replace("'up'", "'a b'")), "t.toml:2: bridge[0].name: `a b` must be"),
        (format!("{}{OUT}", BRIDGE.replace("url", "urls")), "t.toml:3: bridge[0].urls: invalid type: string"),
        (format!("{}{OUT}", BRIDGE.replace("mqtt:", "http:")), "t.toml:3: bridge[0].url: "),
        (
            format!("{BRIDGE}urls = ['mqtt://h']\n{OUT}"),
            "t.toml:5: bridge[0].urls: set `url` or `urls`, not both",
        ),
        (format!("{BRIDGE}protocol = 3\n{OUT}"), "t.toml:5: bridge[0].protocol: expected 5"),
        (
            format!("{BRIDGE}keep_alive = '0s'\n{OUT}"),
            "t.toml:5: bridge[0].keep_alive: expected 1s to 65535s, found 0ms",
        ),
        (
            format!("{BRIDGE}backoff_min = '2m'\n{OUT}"),
            "t.toml:1: bridge[0].backoff_max: must not be below backoff_min",
        ),
        (format!("{BRIDGE}[[bridge.out]]\n"), "t.toml:5: bridge[0].out[0].filter: is missing"),
        (
            format!("{BRIDGE}[[bridge.out]]\nfilter = ''\nlocal_prefix = 'a'"),
            "t.toml:6: bridge[0].out[0].filter: is missing",
        ),
        (format!("{BRIDGE}{OUT}qos = 3"), "t.toml:7: bridge[0].out[0].qos: expected 0 to 2, found 3"),
        (format!("{BRIDGE}{OUT}local_prefix = '+/'"), "t.toml:5: bridge[0].out[0]: local_prefix"),
        (format!("{BRIDGE}{OUT}{BRIDGE}{OUT}"), "t.toml:8: bridge[1].name: another bridge is named \"up\""),
        (
            format!("{BRIDGE}{OUT}{}{OUT}", BRIDGE.replace("up", "b")),
            "t.toml:10: bridge[1].client_id: bridge \"up\" uses the same",
        ),
        (
            format!("{}{OUT}", BRIDGE.replace(":2'", ":1883'")),
            "t.toml:3: bridge[0].url: mqtt://127.0.0.1:1883 is a listener of this broker itself",
        ),
    ] {
        let said = Case::new(&text).complaint();
        assert!(said.starts_with(start), "{text}\n{said}");
    }
}

#[test]
fn a_password_that_every_user_can_read_is_warned_about_and_never_shown() {
    let case = Case::new(&format!("{BRIDGE}username = 'u'\npassword = 'hunter2'\n{OUT}"));
    let mode =
        |mode| std::fs::set_permissions(case.path("t.toml"), std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    let loaded = case.load().unwrap();
    assert_eq!(loaded.warnings.len(), 1, "{:?}", loaded.warnings);
    assert!(loaded.warnings[0].contains("t.toml:6: the password of bridge \"up\""), "{:?}", loaded.warnings);
    let shown = effective_toml(&loaded).unwrap();
    assert!(shown.contains("password = \"***\"") && !shown.contains("hunter2"), "{shown}");
    mode(0o640);
    assert_eq!(case.load().unwrap().warnings, [""; 0]);
}

#[test]
fn files_that_are_not_there_and_passwords_in_the_clear_are_warned_about() {
    let text = format!("{BRIDGE}username = 'u'\npassword_file = 'pw'\n{OUT}")
        .replace("127.0.0.1", "broker.example.com");
    let warnings = Case::new(&text).load().unwrap().warnings;
    assert!(warnings[0].contains("pw cannot be found"), "{warnings:?}");
    assert!(warnings[1].contains("unencrypted"), "{warnings:?}");
}

#[test]
fn an_empty_filter_between_two_prefixes_is_one_topic() {
    let text = format!("{BRIDGE}[[bridge.out]]\nfilter = ''\nlocal_prefix = 'a'\nremote_prefix = 'b'");
    let rule = Case::new(&text).settings().bridges[0].out[0].clone();
    assert_eq!((&*rule.filter, &*rule.local_prefix, &*rule.remote_prefix), ("", "a", "b"));
}
