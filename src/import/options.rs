//! Every option that mosquitto.conf(5) knows, from 1.4 to 2.1, and what becomes of it.

use super::report::Verdict;

/// What an option is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The broker.
    General,
    /// Who may do what: the broker, or with `per_listener_settings` the listener that was named last.
    Security,
    /// The listener that was named last, or the default one.
    Listener,
    /// The `connection` that was named last.
    Bridge,
}

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It depends on its value and on other options; the module of its scope decides.
    Decided,
    /// Whatever its value is, nothing has to be written.
    Same(&'static str),
    /// Whatever its value is, it has no counterpart.
    Dropped(&'static str),
    /// A boolean of which this broker does one value by itself; the other one ends so.
    Bool(bool, Verdict, &'static str),
}

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// As it is written; with a `*` at its end: any name that begins so.
    pub name: &'static str,
    /// What it is about.
    pub scope: Scope,
    /// What becomes of it.
    pub fate: Fate,
}

/// Older and other names, and the ones that stand for them here.
const ALIASES: [(&str, &str); 9] = [
    ("addresses", "address"),
    ("auth_plugin", "plugin"),
    ("clientid", "remote_clientid"),
    ("global_plugin", "plugin"),
    ("maximum_qos", "max_qos"),
    ("password", "remote_password"),
    ("plugin_load", "plugin"),
    ("retained_persistence", "persistence"),
    ("username", "remote_username"),
];

/// The name that an option has here.
#[must_use]
pub fn canonical(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, known)| known)
}

/// What is known about an option, by its canonical name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Known> {
    OPTIONS.iter().find(|known| match known.name.strip_suffix('*') {
        Some(start) => name.len() > start.len() && name.starts_with(start),
        None => name == known.name,
    })
}

/// All names, for suggestions.
pub fn names() -> impl Iterator<Item = &'static str> {
    let aliases = ALIASES.iter().map(|(alias, _)| *alias);
    OPTIONS.iter().map(|known| known.name).filter(|name| !name.ends_with('*')).chain(aliases)
}

const fn general(name: &'static str, fate: Fate) -> Known {
    Known { name, scope: Scope::General, fate }
}

const fn security(name: &'static str, fate: Fate) -> Known {
    Known { name, scope: Scope::Security, fate }
}

const fn listener(name: &'static str, fate: Fate) -> Known {
    Known { name, scope: Scope::Listener, fate }
}

const fn bridge(name: &'static str, fate: Fate) -> Known {
    Known { name, scope: Scope::Bridge, fate }
}

const SAVED: &str = "every message is on disk before its acknowledgement leaves";
const NO_EFFECT: &str = "it has no effect in Mosquitto either";
const SUITES: &str = "rustls chooses the cipher suites: those of TLS 1.2 and 1.3 that are known to be safe";
const ENGINE: &str = "keys come from PEM files; engines and TPMs are not supported";
const LAZY: &str = "links are always up; nothing starts or stops them by the length of their queue";
const LOCAL: &str = "a link has a session of its own, which needs no login and which no access rule concerns";
/// What becomes of pre-shared keys: rustls has none.
pub const NO_PSK: &str =
    "TLS with pre-shared keys is not supported; give the clients certificates, or passwords over TLS";
/// Options that are about them.
pub const PSK_OPTIONS: [&str; 4] = ["bridge_identity", "bridge_psk", "psk_file", "psk_hint"];
const PLUGIN: &str = "it belongs to a plugin; see the line of the plugin";

use Fate::{Bool, Decided, Dropped, Same};
use Verdict::Differs;

/// The table, in the order of the names within each scope.
pub static OPTIONS: &[Known] = &[
    general(
        "allow_duplicate_messages",
        Bool(false, Differs, "overlapping subscriptions bring a message once"),
    ),
    general("autosave_interval", Same(SAVED)),
    general("autosave_on_changes", Same(SAVED)),
    general(
        "check_retain_source",
        Bool(
            false,
            Verdict::Dropped,
            "the rights of a reader are checked, not again those of whoever published the retained message",
        ),
    ),
    general(
        "clientid_prefixes",
        Dropped(
            "client identifiers are not restricted; write access rules with conditions such as: client PREFIX*",
        ),
    ),
    general("connection_messages", Decided),
    general(
        "enable_control_api",
        Bool(false, Verdict::Dropped, "there is no $CONTROL topic; use the command `tidegate status`"),
    ),
    general("ffdc_output", Same(NO_EFFECT)),
    general("global_max_clients", Decided),
    general("global_max_connections", Decided),
    general("include_dir", Decided),
    general("log_dest", Decided),
    general(
        "log_facility",
        Dropped("logs go to standard error; systemd takes them to the journal under the unit's name"),
    ),
    general("log_timestamp", Decided),
    general("log_timestamp_format", Decided),
    general("log_type", Decided),
    general("max_inflight_bytes", Decided),
    general("max_inflight_messages", Decided),
    general("max_keepalive", Decided),
    general("max_log_entries", Same(NO_EFFECT)),
    general("max_packet_size", Decided),
    general("max_queued_bytes", Decided),
    general("max_queued_messages", Decided),
    general("memory_limit", Decided),
    general("message_size_limit", Decided),
    general("packet_buffer_size", Same("read buffers have a size of their own and grow with the packet")),
    general("per_listener_settings", Decided),
    general("persistence", Decided),
    general("persistence_file", Decided),
    general("persistence_location", Decided),
    general("persistent_client_expiration", Decided),
    general(
        "pid_file",
        Dropped(
            "no such file is written; systemd knows the process, and a second broker on the same data is refused",
        ),
    ),
    general(
        "queue_qos0_messages",
        Bool(
            false,
            Verdict::Dropped,
            "messages of QoS 0 are not kept for clients that are away; publish with QoS 1",
        ),
    ),
    general("retain_available", Decided),
    general("retain_expiry_interval", Same("expired retained messages are removed when they expire")),
    general("retry_interval", Same(NO_EFFECT)),
    general("set_tcp_nodelay", Bool(true, Differs, "TCP_NODELAY is always set")),
    general("store_clean_interval", Same(NO_EFFECT)),
    general("sys_interval", Decided),
    general("trace_level", Same(NO_EFFECT)),
    general("trace_output", Same(NO_EFFECT)),
    general(
        "upgrade_outgoing_qos",
        Bool(
            false,
            Verdict::Dropped,
            "a message is never delivered with a higher QoS than it was published with",
        ),
    ),
    general("user", Dropped("the process keeps the user that starts it; set User= in the systemd unit")),
    general(
        "websockets_headers_size",
        Same("the headers of a WebSocket request may be longer than Mosquitto allows"),
    ),
    general("websockets_log_level", Same("WebSockets are logged like everything else")),
    security("acl_file", Decided),
    security("allow_anonymous", Decided),
    security(
        "allow_zero_length_clientid",
        Bool(true, Verdict::Dropped, "clients without an identifier are always given one"),
    ),
    security("auth_opt_*", Dropped(PLUGIN)),
    security(
        "auth_plugin_deny_special_chars",
        Bool(true, Differs, "names with + # or / never widen a rule, whatever this says"),
    ),
    security("auto_id_prefix", Decided),
    security("password_file", Decided),
    security("plugin", Decided),
    security("plugin_opt_*", Dropped(PLUGIN)),
    security("plugin_use", Decided),
    security("psk_file", Dropped(NO_PSK)),
    listener("accept_protocol_versions", Decided),
    listener("bind_address", Decided),
    listener("bind_interface", Decided),
    listener("cafile", Decided),
    listener("capath", Decided),
    listener("certfile", Decided),
    listener("ciphers", Dropped(SUITES)),
    listener("ciphers_tls1.3", Dropped(SUITES)),
    listener("crlfile", Decided),
    listener("dhparamfile", Same("key exchange uses elliptic curves, which need no parameters")),
    listener(
        "disable_client_cert_date_checks",
        Bool(false, Verdict::Dropped, "certificates that have expired are refused"),
    ),
    listener("enable_proxy_protocol", Decided),
    listener("http_dir", Dropped("files are not served over HTTP; use a web server beside the broker")),
    listener("keyfile", Decided),
    listener("listener", Decided),
    listener("listener_allow_anonymous", Decided),
    listener("listener_auto_id_prefix", Decided),
    listener("max_connections", Decided),
    listener("max_qos", Decided),
    listener("max_topic_alias", Decided),
    listener("max_topic_alias_broker", Decided),
    listener("mount_point", Decided),
    listener("port", Decided),
    listener("protocol", Decided),
    listener(
        "proxy_protocol_v2_require_tls",
        Bool(
            false,
            Verdict::Dropped,
            "what the proxy says about TLS is not looked at; let the proxy insist on it",
        ),
    ),
    listener("psk_hint", Decided),
    listener("require_certificate", Decided),
    listener("socket_domain", Decided),
    listener("tls_engine", Dropped(ENGINE)),
    listener("tls_engine_kpass_sha1", Dropped(ENGINE)),
    listener("tls_keyform", Decided),
    listener("tls_version", Decided),
    listener("use_identity_as_username", Decided),
    listener("use_subject_as_username", Decided),
    listener(
        "use_username_as_clientid",
        Bool(
            false,
            Verdict::Dropped,
            "client identifiers are the clients' own: a client may throw out another one that has the same identifier",
        ),
    ),
    listener(
        "websockets_origin",
        Dropped("the Origin of a WebSocket is not checked; let a reverse proxy do it"),
    ),
    bridge("address", Decided),
    bridge("bridge_alpn", Dropped("ALPN is not offered; use the upstream's port for MQTT alone (8883)")),
    bridge(
        "bridge_attempt_unsubscribe",
        Bool(
            false,
            Differs,
            "nothing is unsubscribed: if a topic was `in` before, end the old session at the upstream once",
        ),
    ),
    bridge(
        "bridge_bind_address",
        Dropped("the system chooses the address; set a route to the upstream instead"),
    ),
    bridge("bridge_cafile", Decided),
    bridge("bridge_capath", Decided),
    bridge("bridge_certfile", Decided),
    bridge("bridge_ciphers", Dropped(SUITES)),
    bridge("bridge_ciphers_tls1.3", Dropped(SUITES)),
    bridge("bridge_identity", Decided),
    bridge("bridge_insecure", Decided),
    bridge("bridge_keyfile", Decided),
    bridge("bridge_max_packet_size", Decided),
    bridge("bridge_max_topic_alias", Same("the upstream is not offered topic aliases, and needs none")),
    bridge("bridge_outgoing_retain", Decided),
    bridge("bridge_protocol_version", Decided),
    bridge("bridge_psk", Decided),
    bridge("bridge_receive_maximum", Decided),
    bridge("bridge_reload_type", Same("a restart applies changes to bridges, and loses nothing")),
    bridge(
        "bridge_require_ocsp",
        Bool(
            false,
            Verdict::Dropped,
            "OCSP is not asked for; trust only the upstream's own authority (ca_file)",
        ),
    ),
    bridge("bridge_session_expiry_interval", Decided),
    bridge(
        "bridge_tcp_keepalive",
        Dropped("a dead upstream is noticed by keep_alive and ack_timeout of the bridge"),
    ),
    bridge("bridge_tcp_user_timeout", Dropped("a dead upstream is noticed by ack_timeout of the bridge")),
    bridge("bridge_tls_use_os_certs", Decided),
    bridge("bridge_tls_version", Decided),
    bridge("cleansession", Decided),
    bridge("connection", Decided),
    bridge("idle_timeout", Dropped(LAZY)),
    bridge("keepalive_interval", Decided),
    bridge("local_cleansession", Decided),
    bridge("local_clientid", Same(LOCAL)),
    bridge("local_password", Same(LOCAL)),
    bridge("local_username", Same(LOCAL)),
    bridge("notification_topic", Decided),
    bridge("notifications", Decided),
    bridge("notifications_local_only", Decided),
    bridge("remote_clientid", Decided),
    bridge("remote_password", Decided),
    bridge("remote_username", Decided),
    bridge("restart_timeout", Decided),
    bridge("round_robin", Decided),
    bridge("start_type", Decided),
    bridge("threshold", Dropped(LAZY)),
    bridge("topic", Decided),
    bridge("try_private", Decided),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_known_once_and_each_other_name_stands_for_one() {
        let mut names: Vec<_> = OPTIONS.iter().map(|known| known.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        for (alias, known) in ALIASES {
            assert!(find(alias).is_none(), "{alias}");
            assert!(find(known).is_some(), "{known}");
        }
        assert_eq!(find("plugin_opt_file").map(|known| known.name), Some("plugin_opt_*"));
        assert!(find("plugin_opt_").is_none());
    }
}
