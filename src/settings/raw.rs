//! The configuration file as serde sees it: one struct for each section, every field with its default, unknown keys refused.
//!
//! Nothing is checked here beyond types; [`resolve`](super::resolve) turns it into [`Settings`](super::Settings). What each
//! key means is written once, in `config/tidegate.toml`; a test holds that file complete and equal to these defaults.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::units::{Bound, Count, Size, Span};
use crate::bridge::{LinkConfig, Rule};
use crate::limits::Limits;

/// A whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Raw {
    pub listener: Vec<RawListener>,
    pub store: RawStore,
    pub durability: RawDurability,
    pub limits: RawLimits,
    pub queue: RawQueue,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue_rule: Vec<RawQueueRule>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue_def: Vec<RawQueueDef>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bridge: Vec<RawBridge>,
    pub access: RawAccess,
    pub jwt: RawJwt,
    pub admin: RawAdmin,
    pub log: RawLog,
}

/// Whether a client shows a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawClientCertificate {
    None,
    Optional,
    Required,
}

/// What of a client's certificate becomes its user name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawCertificateUser {
    Cn,
    Subject,
    San,
}

/// `[[listener]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawListener {
    pub url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_anonymous: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_anonymous_remote: Option<String>,
    pub connections_max: Bound<Count>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    pub proxy_protocol: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_crl_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cert: Option<RawClientCertificate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_from_cert: Option<RawCertificateUser>,
    pub trailing_lf: bool,
}

/// `[store]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawStore {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,
    pub file: String,
    pub ring: Size,
    pub cache: Size,
    pub disk_max: Bound<Size>,
    pub disk_reserve: Size,
    pub linger: Span,
}

/// `[durability]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawDurability {
    pub hold: Span,
}

/// `[limits]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawLimits {
    pub memory_budget: Bound<Size>,
    pub connections_max: Count,
    pub connections_per_address_max: Bound<Count>,
    pub accept_rate_max: Bound<Count>,
    pub handshakes_max: Count,
    pub sessions_max: Count,
    pub session_expiry_max: Bound<Span>,
    pub keep_alive_max: Bound<Span>,
    pub subscriptions_per_session_max: Count,
    pub subscriptions_max: Count,
    pub subscriptions_memory_max: Size,
    pub topic_levels_max: Count,
    pub topic_max: Size,
    pub client_id_max: Size,
    pub retained_messages_max: Count,
    pub retained_memory_max: Size,
    pub packet_max: Size,
    pub packet_before_login_max: Size,
    pub login_timeout: Span,
    pub publisher_wait: Span,
    pub receive_max: Count,
    pub inflight_messages_max: Count,
    pub inflight_bytes_max: Size,
    pub queue_memory_max: Size,
    pub queue_window_max: Size,
    pub named_queues_max: Count,
    pub transactions_per_client_max: Count,
    pub transaction_actions_max: Count,
    pub transaction_bytes_max: Size,
    pub transaction_disk_max: Size,
    pub transactions_disk_max: Size,
    pub transactions_memory_max: Size,
    pub prepared_transactions_max: Count,
    pub prepared_timeout: Bound<Span>,
    pub outbox_high: Size,
    pub outbox_max: Size,
    pub outboxes_max: Size,
    pub read_buffers_max: Size,
    pub store_queue_max: Size,
    pub will_grace: Span,
    pub topic_aliases_max: Count,
}

/// What to do with a message that finds its queue full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawOverflow {
    #[default]
    Reject,
    DropHead,
    DropTail,
    Block,
}

/// `[queue]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawQueue {
    pub messages_max: Bound<Count>,
    pub bytes_max: Bound<Size>,
    pub overflow: RawOverflow,
}

/// `[[queue_rule]]`; what is absent is taken from `[queue]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawQueueRule {
    pub client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_max: Option<Bound<Count>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<Bound<Size>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overflow: Option<RawOverflow>,
}

/// `[[queue_def]]`; bounds that are absent are taken from `[queue]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawQueueDef {
    pub name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bind: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_max: Option<Bound<Count>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<Bound<Size>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overflow: Option<RawOverflow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redeliveries_max: Option<Bound<Count>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<String>,
    pub dead_letter_expired: bool,
}

/// `[[bridge]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawBridge {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    pub protocol: Count,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    pub keep_alive: Span,
    pub window: Count,
    pub inflight_bytes_max: Size,
    pub inbound_window: Count,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet_max: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    pub connect_timeout: Span,
    pub ack_timeout: Span,
    pub backoff_min: Span,
    pub backoff_max: Span,
    pub stable_after: Span,
    pub session_expiry: Span,
    pub mark_path: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub out: Vec<RawRule>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub r#in: Vec<RawRule>,
}

/// `[[bridge.out]]` and `[[bridge.in]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawRule {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    pub local_prefix: String,
    pub remote_prefix: String,
    pub qos: Count,
    pub retain: bool,
}

/// What holds where no rule does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawDefault {
    #[default]
    Deny,
    Allow,
}

/// Whose a session is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawSessions {
    #[default]
    OfUser,
    OfAnyone,
}

/// `[access]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawAccess {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acl_file: Option<PathBuf>,
    pub default: RawDefault,
    pub sessions: RawSessions,
    pub failures_per_minute: Count,
    pub hash_memory_max: Size,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_information: Option<String>,
}

/// How tokens are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RawAlgorithm {
    #[serde(rename = "HS256")]
    Hs256,
    #[serde(rename = "RS256")]
    Rs256,
    #[serde(rename = "ES256")]
    Es256,
}

impl RawAlgorithm {
    /// As tokens write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }
}

/// `[jwt]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawJwt {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<RawAlgorithm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    pub user_claim: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acl_claim: Option<String>,
}

/// `[admin]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawAdmin {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    pub http: String,
    pub sys_interval: Span,
}

/// Shape of the log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawLogFormat {
    #[default]
    Auto,
    Human,
    Json,
    Journald,
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawLog {
    pub level: String,
    pub format: RawLogFormat,
}

impl Default for RawListener {
    fn default() -> Self {
        Self {
            url: String::new(),
            allow_anonymous: None,
            allow_anonymous_remote: None,
            connections_max: Bound(None),
            mode: None,
            proxy_protocol: false,
            cert_file: None,
            key_file: None,
            client_ca_file: None,
            client_crl_file: None,
            client_cert: None,
            user_from_cert: None,
            trailing_lf: false,
        }
    }
}

impl Default for RawStore {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            data_dir: None,
            file: "tidegate.db".into(),
            ring: Size(limits.ring_bytes),
            cache: Size(limits.store_cache_bytes),
            disk_max: Bound(limits.disk_bytes_max.map(Size)),
            disk_reserve: Size(limits.disk_reserve_bytes),
            linger: Span(limits.store_linger_millis.into()),
        }
    }
}

impl Default for RawDurability {
    fn default() -> Self {
        Self { hold: Span(Limits::default().hold_millis.into()) }
    }
}

impl Default for RawLimits {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            memory_budget: Bound(None),
            connections_max: Count(limits.connections_max.into()),
            connections_per_address_max: Bound(limits.connections_per_address_max.map(|n| Count(n.into()))),
            accept_rate_max: Bound(limits.accept_rate_max.map(|n| Count(n.into()))),
            handshakes_max: Count(limits.handshakes_max.into()),
            sessions_max: Count(limits.sessions_max.into()),
            keep_alive_max: Bound(limits.keep_alive_max_secs.map(|secs| Span(u64::from(secs) * 1000))),
            session_expiry_max: Bound(
                limits.session_expiry_max_secs.map(|secs| Span(u64::from(secs) * 1000)),
            ),
            subscriptions_per_session_max: Count(limits.subscriptions_per_session_max.into()),
            subscriptions_max: Count(limits.subscriptions_max.into()),
            subscriptions_memory_max: Size(limits.subscriptions_bytes_max),
            topic_levels_max: Count(limits.topic_levels_max.into()),
            topic_max: Size(limits.topic_bytes_max.into()),
            client_id_max: Size(limits.client_id_bytes_max.into()),
            retained_messages_max: Count(limits.retained_messages_max.into()),
            retained_memory_max: Size(limits.retained_bytes_max),
            packet_max: Size(limits.packet_bytes_max.into()),
            packet_before_login_max: Size(limits.packet_bytes_before_login_max.into()),
            login_timeout: Span(limits.login_millis_max.into()),
            publisher_wait: Span(limits.publisher_wait_millis_max.into()),
            receive_max: Count(limits.receive_max.into()),
            inflight_messages_max: Count(limits.inflight_messages_max.into()),
            inflight_bytes_max: Size(limits.inflight_bytes_max.into()),
            queue_memory_max: Size(limits.queue_memory_bytes_max),
            queue_window_max: Size(limits.queue_window_bytes_max.into()),
            named_queues_max: Count(limits.named_queues_max.into()),
            transactions_per_client_max: Count(limits.transactions_per_session_max.into()),
            transaction_actions_max: Count(limits.transaction_actions_max.into()),
            transaction_bytes_max: Size(limits.transaction_bytes_max),
            transaction_disk_max: Size(limits.transaction_disk_bytes_max),
            transactions_disk_max: Size(limits.transactions_disk_bytes_max),
            transactions_memory_max: Size(limits.transactions_bytes_max),
            prepared_transactions_max: Count(limits.prepared_transactions_max.into()),
            prepared_timeout: Bound(limits.prepared_timeout_secs.map(|secs| Span(u64::from(secs) * 1000))),
            outbox_high: Size(limits.outbox_high_bytes.into()),
            outbox_max: Size(limits.outbox_bytes_max.into()),
            outboxes_max: Size(limits.outboxes_bytes_max),
            read_buffers_max: Size(limits.read_buffers_bytes_max),
            store_queue_max: Size(limits.store_queue_bytes_max),
            will_grace: Span(u64::from(limits.will_grace_secs) * 1000),
            topic_aliases_max: Count(limits.topic_aliases_max.into()),
        }
    }
}

impl Default for RawQueue {
    fn default() -> Self {
        Self { messages_max: Bound(None), bytes_max: Bound(None), overflow: RawOverflow::Reject }
    }
}

impl Default for RawBridge {
    fn default() -> Self {
        let link = LinkConfig::default();
        Self {
            name: String::new(),
            url: None,
            urls: Vec::new(),
            protocol: Count(5),
            client_id: None,
            gateway_id: None,
            username: None,
            password: None,
            password_file: None,
            keep_alive: Span(u64::from(link.keep_alive_secs) * 1000),
            window: Count(link.window.into()),
            inflight_bytes_max: Size(link.inflight_bytes_max.into()),
            inbound_window: Count(link.inbound_window.into()),
            packet_max: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            server_name: None,
            connect_timeout: Span(link.connect_timeout_millis),
            ack_timeout: Span(link.ack_timeout_millis),
            backoff_min: Span(link.backoff_min_millis),
            backoff_max: Span(link.backoff_max_millis),
            stable_after: Span(link.stable_after_millis),
            session_expiry: Span(u64::from(link.session_expiry_secs) * 1000),
            mark_path: link.mark_path,
            out: Vec::new(),
            r#in: Vec::new(),
        }
    }
}

impl Default for RawRule {
    fn default() -> Self {
        let rule = Rule::default();
        Self {
            filter: None,
            local_prefix: rule.local_prefix,
            remote_prefix: rule.remote_prefix,
            qos: Count(rule.qos as u64),
            retain: rule.retain,
        }
    }
}

impl Default for RawAccess {
    fn default() -> Self {
        Self {
            password_file: None,
            acl_file: None,
            default: RawDefault::Deny,
            sessions: RawSessions::OfUser,
            failures_per_minute: Count(20),
            hash_memory_max: Size(32 << 20),
            response_information: None,
        }
    }
}

impl Default for RawJwt {
    fn default() -> Self {
        Self {
            algorithm: None,
            key_file: None,
            issuer: None,
            audience: None,
            user_claim: "sub".into(),
            acl_claim: None,
        }
    }
}

impl Default for RawAdmin {
    fn default() -> Self {
        Self { socket: None, http: "off".into(), sys_interval: Span(10_000) }
    }
}

impl Default for RawLog {
    fn default() -> Self {
        Self { level: "info".into(), format: RawLogFormat::Auto }
    }
}
