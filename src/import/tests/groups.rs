//! Options one by one.

use super::*;
use crate::limits::{Limits, Overflow};
use crate::message::Qos;

/// One for each option of the table, in a place and with a value where it means something.
#[test]
fn something_is_said_about_every_option_of_the_table() {
    for known in options::OPTIONS {
        let name = known.name.replace('*', "x");
        let value = match &*name {
            "include_dir" => "conf.d",
            "bind_address" | "port" => "1883",
            _ => "1",
        };
        let before = match known.scope {
            options::Scope::Bridge if name == "connection" => "",
            options::Scope::Bridge => "connection c\naddress h\ntopic a out 1\n",
            _ => "",
        };
        let files = Memory::new(&format!("{before}{name} {value}\n")).file("conf.d/x.conf", "");
        let import = files.import(Target::Folder).unwrap();
        assert!(said(&import, &name).0 >= Verdict::Same, "{name}");
        checked(&import).unwrap_or_else(|error| panic!("{name}: {error}\n{}", import.config));
    }
}

#[test]
fn bounds_of_messages_in_flight_and_in_queues_become_limits() {
    let (_, loaded) = imported("max_inflight_messages 7\nmax_queued_messages 100\nmax_queued_bytes 5000\n");
    let limits = loaded.settings.limits;
    assert_eq!((limits.inflight_messages_max, limits.receive_max), (7, 7));
    assert_eq!((limits.queue.messages_max, limits.queue.bytes_max), (Some(107), Some(5000)));
    assert_eq!(limits.queue.overflow, Overflow::DropTail);

    let (_, loaded) = imported("max_inflight_messages 0\nmax_queued_messages 0\nmax_queued_bytes 0\n");
    let limits = loaded.settings.limits;
    assert_eq!(limits.inflight_messages_max, 65_535);
    assert_eq!(limits.queue, Limits::default().queue);
}

#[test]
fn bounds_of_packets_make_room_everywhere() {
    for (text, bytes) in [
        ("", 2_000_000),
        ("max_packet_size 0", 2_000_000),
        ("max_packet_size 20", 1024),
        ("max_packet_size 50000000", 50_000_000),
        ("max_packet_size 268435456", 128 << 20),
        ("message_size_limit 100000", 108_192),
        ("message_size_limit 100000\nmax_packet_size 50000", 50_000),
        ("message_size_limit 1000\nmax_packet_size 50000", 9192),
    ] {
        let (_, loaded) = imported(text);
        assert_eq!(loaded.settings.limits.packet_bytes_max, bytes, "{text}");
    }
}

#[test]
fn sessions_expire_and_connections_are_bounded_as_before() {
    let (_, loaded) = imported(
        "persistent_client_expiration 2w\nglobal_max_clients 50\nglobal_max_connections 40\nretain_available false",
    );
    let limits = loaded.settings.limits;
    assert_eq!(limits.session_expiry_max_secs, Some(14 * 86_400));
    assert_eq!((limits.sessions_max, limits.connections_max, limits.retained_messages_max), (50, 40, 0));
    let (_, loaded) = imported("listener 1 127.0.0.1\nallow_anonymous true\nmax_connections 20000");
    assert_eq!(loaded.settings.limits.connections_max, 20_000);
    assert_eq!(loaded.settings.listeners[0].connections_max, Some(20_000));
}

#[test]
fn statistics_and_the_longest_keep_alive_are_as_before() {
    for (text, interval, keep_alive) in [
        ("", Some(10), None),
        ("sys_interval 30\nmax_keepalive 600", Some(30), Some(600)),
        ("sys_interval 0\nmax_keepalive 0", None, None),
    ] {
        let (_, loaded) = imported(text);
        assert_eq!(loaded.settings.admin.sys_interval.map(|interval| interval.as_secs()), interval, "{text}");
        assert_eq!(loaded.settings.limits.keep_alive_max_secs, keep_alive, "{text}");
    }
}

#[test]
fn the_default_listener_is_there_exactly_where_mosquitto_opens_it() {
    let opened = |before: &str| {
        let (import, loaded) = imported(&format!(
            "{before}\nallow_anonymous true\nlistener 19777 127.0.0.1\nsocket_domain ipv4"
        ));
        let urls: Vec<_> = loaded.settings.listeners.iter().map(|listener| listener.url.clone()).collect();
        assert!(urls.contains(&"mqtt://127.0.0.1:19777".to_owned()), "{urls:?}\n{}", import.report);
        urls.len() > 1
    };
    // As Mosquitto 2.0 was seen to do.
    for (before, expected) in [
        ("protocol mqtt", false),
        ("protocol websockets", true),
        ("max_connections -1", false),
        ("max_connections 10", true),
        ("max_qos 2", false),
        ("max_qos 1", true),
        ("max_topic_alias 5", false),
        ("tls_version tlsv1.2", false),
        ("require_certificate false\nuse_identity_as_username false", false),
        ("use_username_as_clientid false", false),
        ("use_username_as_clientid true", true),
        ("socket_domain ipv4", true),
        ("ciphers HIGH", true),
    ] {
        assert_eq!(opened(before), expected, "{before}");
    }
    let (import, _) = imported("protocol mqtt\nlistener 19777 127.0.0.1\nallow_anonymous true");
    assert_eq!(said(&import, "protocol").0, Verdict::Same);
}

#[test]
fn a_default_listener_that_was_given_something_to_serve_is_not_for_this_machine_alone() {
    for (text, url) in [
        ("max_connections 10", "mqtt://[::]:1883"),
        ("socket_domain ipv4", "mqtt://0.0.0.0:1883"),
        ("max_connections -1", "mqtt://127.0.0.1:1883"),
        ("max_topic_alias 5", "mqtt://127.0.0.1:1883"),
    ] {
        let (import, loaded) = imported(&format!("{text}\nallow_anonymous true"));
        assert_eq!(loaded.settings.listeners[0].url, url, "{text}\n{}", import.report);
    }
}

#[test]
fn the_version_that_a_bridge_is_said_to_speak_is_the_one_that_it_speaks() {
    for (topics, given, protocol) in [
        ("topic a out", "mqttv31", 4),
        ("topic a out", "mqttv50", 5),
        ("topic a both", "mqttv31", 5),
        ("topic a both", "mqttv311", 5),
    ] {
        let text = format!("connection c\naddress h\nbridge_protocol_version {given}\n{topics}");
        let (import, _) = imported(&text);
        let (_, what) = said(&import, "bridge_protocol_version");
        assert!(what.ends_with(&format!("protocol = {protocol}")), "{what}");
        assert!(import.config.contains(&format!("protocol = {protocol} ")), "{}", import.config);
    }
}

#[test]
fn data_lies_where_the_administrator_wanted_it_but_not_among_the_files_of_mosquitto() {
    let (_, loaded) =
        imported("persistence true\npersistence_location /mnt/ssd/mosquitto/\npersistence_file plant.db");
    assert_eq!(loaded.settings.store_path, Path::new("/mnt/ssd/mosquitto/tidegate/plant.db"));
    let (_, loaded) =
        imported("persistence true\npersistence_location /var/lib/mosquitto/\npersistence_file mosquitto.db");
    assert_eq!(loaded.settings.store_path, Path::new("/var/lib/tidegate/tidegate.db"));
}

#[test]
fn the_most_talkative_type_of_log_message_decides_the_level() {
    for (text, level) in [
        ("log_type error\nlog_type warning", "warn"),
        ("log_type all\nlog_type error", "debug"),
        ("log_type all\nlog_type none", "off"),
        ("log_dest none", "off"),
        ("log_dest stderr", "info"),
        ("log_type nonsense", "info"),
    ] {
        assert_eq!(imported(text).1.settings.log.level, level, "{text}");
    }
}

#[test]
fn a_listener_binds_what_it_bound() {
    for (text, urls) in [
        ("", &["mqtt://127.0.0.1:1883"][..]),
        ("max_connections 5", &["mqtt://[::]:1883"]),
        ("port 1884", &["mqtt://[::]:1884"]),
        ("bind_address 192.0.2.1", &["mqtt://192.0.2.1:1883"]),
        ("port 1884\nbind_address localhost\nlistener 1885", &["mqtt://127.0.0.1:1884", "mqtt://[::]:1885"]),
        ("listener 1883 # the usual one", &["mqtt://[::]:1883"]),
        ("listener 1883\nsocket_domain ipv4", &["mqtt://0.0.0.0:1883"]),
        ("listener 1883 ::1\nsocket_domain ipv6", &["mqtt://[::1]:1883"]),
        ("listener 1883 localhost\nsocket_domain ipv6", &["mqtt://[::1]:1883"]),
        ("listener 9001 0.0.0.0\nprotocol websockets", &["ws://0.0.0.0:9001"]),
        ("listener 0 /run/a b.sock", &["mqtt+unix:///run/a b.sock"]),
        ("listener 1 127.0.0.1\nlistener 2 127.0.0.1\nmount_point x/", &["mqtt://127.0.0.1:1"]),
        (
            "listener 8883 127.0.0.1\ncertfile /c\nkeyfile /k\nlistener 9443 127.0.0.1\nprotocol websockets\ncertfile c\nkeyfile k",
            &["mqtts://127.0.0.1:8883", "wss://127.0.0.1:9443"],
        ),
    ] {
        let (_, loaded) = imported(&format!("allow_anonymous true\n{text}"));
        let found: Vec<_> = loaded.settings.listeners.iter().map(|listener| listener.url.as_str()).collect();
        assert_eq!(found, urls, "{text}");
    }
}

#[test]
fn a_listener_whose_protection_has_no_counterpart_is_left_out() {
    let tls = "listener 8883 127.0.0.1\ncertfile /c\nkeyfile /k\n";
    for (text, why) in [
        ("listener 1884 127.0.0.1\nmount_point a/".to_owned(), "mount point"),
        ("listener 1884 127.0.0.1\npsk_hint a".into(), "pre-shared"),
        ("listener 1884\nbind_interface eth0".into(), "interface"),
        (format!("{tls}require_certificate true\ncapath /etc/ssl"), "cafile"),
        (format!("{tls}require_certificate maybe\ncafile /a"), "true or false"),
        (format!("{tls}use_identity_as_username true"), "require_certificate"),
        (format!("{tls}tls_keyform engine"), "not in a file"),
        ("listener 1884 127.0.0.1\nrequire_certificate true".into(), "certfile and keyfile"),
        ("listener 1884 127.0.0.1\ncertfile /c".into(), "belong together"),
        ("listener 1884 gateway.local".into(), "no IP address"),
        ("listener 1884 127.0.0.1\nsocket_domain ipv6".into(), "does not fit"),
        ("listener 1884 127.0.0.1\nprotocol http_api".into(), "no protocol"),
        ("listener 0".into(), "its path is missing"),
    ] {
        let (import, loaded) = imported(&format!("allow_anonymous true\nport 1883\n{text}\n"));
        assert_eq!(loaded.settings.listeners.len(), 1, "{text}");
        let (verdict, said) = said(&import, "listener");
        assert!(verdict == Verdict::Dropped && said.contains(why), "{text}: {said}");
    }
}

#[test]
fn certificates_of_clients_and_what_they_say_are_carried_over() {
    use crate::settings::{CertificateUser, ClientCertificate};
    let tls = "listener 8883 127.0.0.1\ncertfile /c\nkeyfile k.pem\ncafile /a\ncrlfile r.pem\n\
               require_certificate true\n";
    for (text, user) in [
        ("use_identity_as_username true", CertificateUser::CommonName),
        ("use_subject_as_username true", CertificateUser::Subject),
        ("use_subject_as_username true\nuse_identity_as_username true", CertificateUser::CommonName),
    ] {
        let (_, loaded) = imported(&format!("{tls}{text}"));
        let found = loaded.settings.listeners[0].tls.clone().unwrap();
        assert_eq!(
            (found.user, found.client_certificate),
            (Some(user), ClientCertificate::Required),
            "{text}"
        );
        assert_eq!(found.client_ca_file.as_deref(), Some(Path::new("/a")));
        assert_eq!(found.client_crl_file.as_deref(), Some(Path::new("/etc/mosquitto/r.pem")));
        assert_eq!(found.key_file, Path::new("/etc/mosquitto/k.pem"));
    }
    let (import, loaded) =
        imported("allow_anonymous true\nlistener 8883 127.0.0.1\ncertfile /c\nkeyfile /k\ncafile /a");
    assert_eq!(loaded.settings.listeners[0].tls.clone().unwrap().client_certificate, ClientCertificate::None);
    assert_eq!(said(&import, "cafile").0, Verdict::Same);
}

#[test]
fn a_bridge_becomes_a_link_with_its_rules() {
    let (_, loaded) = imported(
        "connection up\naddress a.example:8883 b.example:8884\nbridge_cafile /ca\nbridge_certfile /c\nbridge_keyfile /k\n\
         bridge_protocol_version mqttv50\nremote_clientid gw\nremote_username u\nremote_password p p\nkeepalive_interval 3\n\
         restart_timeout 10 30 60\nbridge_max_packet_size 5000\nbridge_receive_maximum 9\nbridge_session_expiry_interval 100\n\
         bridge_outgoing_retain false\ntopic a/# both 1 l/ r/\ntopic \"\" out 0 x y\n",
    );
    let link = &loaded.settings.bridges[0];
    let addresses: Vec<_> = link.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["mqtts://a.example:8883", "mqtts://b.example:8884"]);
    assert_eq!((&*link.name, &*link.client_id, link.username.as_deref()), ("up", "gw", Some("u")));
    assert!(link.password_file.as_ref().is_some_and(|path| path.ends_with("up.password")));
    assert_eq!((link.keep_alive_secs, link.packet_bytes_max, link.inbound_window), (5, 5000, 9));
    assert_eq!(
        (link.backoff_min_millis, link.backoff_max_millis, link.stable_after_millis),
        (10_000, 30_000, 60_000)
    );
    assert_eq!((link.session_expiry_secs, link.protocol), (100, crate::bridge::Protocol::V5));
    let rules: Vec<_> =
        link.out.iter().map(|r| (&*r.filter, &*r.local_prefix, &*r.remote_prefix, r.qos, r.retain)).collect();
    assert_eq!(rules, [("a/#", "l/", "r/", Qos::AtLeastOnce, false), ("", "x", "y", Qos::AtMostOnce, false)]);
    assert!(link.inbound[0].retain);
}

#[test]
fn a_bridge_that_cannot_be_what_it_was_is_left_out() {
    for (text, why) in [
        ("address h\ntopic a out\nbridge_psk 00\nbridge_identity i", "pre-shared"),
        ("topic a out", "no address"),
        ("address h", "no topic"),
        ("address h\ntopic a/#/b out 1", "no topic"),
        ("address localhost:1883\ntopic a out 1", "listener of this broker itself"),
    ] {
        let (import, loaded) = imported(&format!("connection c\n{text}\n"));
        assert!(loaded.settings.bridges.is_empty(), "{text}");
        let (verdict, said) = said(&import, "connection");
        assert!(verdict == Verdict::Dropped && said.contains(why), "{text}: {said}");
    }
}

#[test]
fn bridges_get_names_that_are_allowed_and_differ() {
    let bridge =
        |name: &str, id: &str| format!("connection {name}\naddress h\nremote_clientid {id}\ntopic a out 1\n");
    let text =
        bridge("a/b", "1") + &bridge("a?b", "2") + &bridge(&"x".repeat(100), "3") + &bridge("a-b-2", "4");
    let (_, loaded) = imported(&text);
    let names: Vec<_> = loaded.settings.bridges.iter().map(|link| link.name.clone()).collect();
    assert_eq!(names, ["a-b".to_owned(), "a-b-2".into(), "x".repeat(64), "a-b-2-2".into()]);
}

#[test]
fn both_ways_needs_mqtt_5_only_where_messages_could_come_back() {
    for (topics, protocol) in [
        ("topic a/# out 1\ntopic b/# in 1", crate::bridge::Protocol::V4),
        ("topic a/# both 1", crate::bridge::Protocol::V5),
        ("topic a/# out 1\ntopic a/b in 1", crate::bridge::Protocol::V5),
    ] {
        let (_, loaded) = imported(&format!("connection c\naddress h\n{topics}\n"));
        assert_eq!(loaded.settings.bridges[0].protocol, protocol, "{topics}");
    }
}

#[test]
fn the_last_of_several_lines_holds_and_the_others_say_so() {
    let (import, loaded) = imported("max_inflight_messages 5\nmax_inflight_messages 6\n");
    assert_eq!(loaded.settings.limits.inflight_messages_max, 6);
    assert_eq!(said(&import, "max_inflight_messages").1, "/etc/mosquitto/mosquitto.conf:2 takes its place");
}

#[test]
fn unknown_options_are_told_with_the_one_that_was_probably_meant() {
    let (import, _) = imported("max_inflight_mesages 5\nfoo bar\n");
    assert!(said(&import, "max_inflight_mesages").1.contains("is \"max_inflight_messages\" meant?"));
    assert_eq!(said(&import, "foo"), (Verdict::Dropped, "Mosquitto has no such option"));
}
