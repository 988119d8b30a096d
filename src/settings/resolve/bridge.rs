//! Links to upstream brokers.

use std::path::{Path, PathBuf};

use super::Check;
use crate::bridge::{self, Address, LinkConfig, Protocol, Rule, Secret, TlsConfig, WINDOW_MAX};
use crate::limits::Limits;
use crate::message::Qos;
use crate::settings::Listener;
use crate::settings::place::{Place, SettingsError};
use crate::settings::raw::{RawBridge, RawRule};
use crate::settings::units::{Count, Size};

/// Links of one broker; each one has a thread.
const BRIDGES_MAX: usize = 16;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const HOUR_MILLIS: u64 = 3_600_000;
const YEAR_SECS: u64 = 365 * 86_400;

/// What the links are checked against.
pub struct Surroundings<'a> {
    pub check: &'a Check<'a>,
    pub limits: &'a Limits,
    pub listeners: &'a [Listener],
}

/// All links; fills derived values into `raw` and adds what is doubtful to `warnings`.
pub fn bridges(
    raw: &mut [RawBridge],
    around: &Surroundings<'_>,
    warnings: &mut Vec<String>,
) -> Result<Vec<LinkConfig>, SettingsError> {
    if raw.len() > BRIDGES_MAX {
        return around
            .check
            .fail("bridge", format!("expected at most {BRIDGES_MAX} bridges, found {}", raw.len()));
    }
    let gateway = raw.iter().find_map(|b| b.gateway_id.clone()).or_else(|| raw.first()?.client_id.clone());
    let mut links: Vec<LinkConfig> = Vec::with_capacity(raw.len());
    for (index, bridge) in raw.iter_mut().enumerate() {
        let at = format!("bridge[{index}]");
        bridge.gateway_id = bridge.gateway_id.take().or_else(|| gateway.clone());
        bridge.packet_max = bridge.packet_max.or(Some(Size(around.limits.packet_bytes_max.into())));
        absolute_paths(bridge, &at, around.check);
        let link = link(bridge, &at, around.check)?;
        bridge::check(&link).or_else(|what| refuse(&at, &what, around.check))?;
        beside_others(&link, &links, &at, around)?;
        doubts(&link, &at, around.check, warnings);
        links.push(link);
    }
    Ok(links)
}

fn absolute_paths(raw: &mut RawBridge, at: &str, check: &Check<'_>) {
    let files = [
        ("password_file", &mut raw.password_file),
        ("ca_file", &mut raw.ca_file),
        ("cert_file", &mut raw.cert_file),
        ("key_file", &mut raw.key_file),
    ];
    for (key, file) in files {
        if let Some(path) = file {
            *path = check.path(&format!("{at}.{key}"), path);
        }
    }
}

fn link(raw: &RawBridge, at: &str, check: &Check<'_>) -> Result<LinkConfig, SettingsError> {
    let key = |name: &str| format!("{at}.{name}");
    Ok(LinkConfig {
        name: required(&raw.name, &key("name"), "a short name, such as \"datacenter\"", check)?,
        addresses: addresses(raw, at, check)?,
        protocol: protocol(raw.protocol, &key("protocol"), check)?,
        client_id: required(
            raw.client_id.as_deref().unwrap_or_default(),
            &key("client_id"),
            "a client identifier that no other gateway uses at the upstream, such as \"gateway-17\"",
            check,
        )?,
        gateway_id: raw.gateway_id.clone().unwrap_or_default(),
        username: raw.username.clone(),
        password: raw.password.clone().map(Secret),
        password_file: raw.password_file.clone(),
        keep_alive_secs: check.seconds(&key("keep_alive"), raw.keep_alive, 1..=65_535)?,
        window: check.count(&key("window"), raw.window, 1..=WINDOW_MAX.into())?,
        inflight_bytes_max: check.size(
            &key("inflight_bytes_max"),
            raw.inflight_bytes_max,
            KIB..=256 * MIB,
        )?,
        inbound_window: check.count(&key("inbound_window"), raw.inbound_window, 1..=65_535)?,
        packet_bytes_max: match raw.packet_max {
            Some(size) => check.size(&key("packet_max"), size, KIB..=256 * MIB)?,
            None => LinkConfig::default().packet_bytes_max,
        },
        connect_timeout_millis: check.millis(
            &key("connect_timeout"),
            raw.connect_timeout,
            100..=HOUR_MILLIS,
        )?,
        ack_timeout_millis: check.millis(&key("ack_timeout"), raw.ack_timeout, 1000..=HOUR_MILLIS)?,
        backoff_min_millis: check.millis(&key("backoff_min"), raw.backoff_min, 50..=HOUR_MILLIS)?,
        backoff_max_millis: check.millis(&key("backoff_max"), raw.backoff_max, 50..=24 * HOUR_MILLIS)?,
        stable_after_millis: check.millis(&key("stable_after"), raw.stable_after, 100..=24 * HOUR_MILLIS)?,
        session_expiry_secs: check.seconds(
            &key("session_expiry"),
            raw.session_expiry,
            0..=100 * YEAR_SECS,
        )?,
        mark_path: raw.mark_path,
        tls: tls(raw),
        out: rules(&raw.out, &key("out"), check)?,
        inbound: rules(&raw.r#in, &key("in"), check)?,
    })
}

fn required(text: &str, key: &str, what: &str, check: &Check<'_>) -> Result<String, SettingsError> {
    if text.is_empty() {
        return check.fail(key, format!("is missing; give it {what}"));
    }
    Ok(text.to_owned())
}

fn addresses(raw: &RawBridge, at: &str, check: &Check<'_>) -> Result<Vec<Address>, SettingsError> {
    let (key, urls) = match (&raw.url, &raw.urls[..]) {
        (Some(url), []) => ("url", std::slice::from_ref(url)),
        (None, [_, ..]) => ("urls", &raw.urls[..]),
        (None, []) => {
            return check
                .fail(&format!("{at}.url"), "is missing; write url = \"mqtts://broker.example.com\"");
        }
        (Some(_), _) => return check.fail(&format!("{at}.urls"), "set `url` or `urls`, not both"),
    };
    let key = format!("{at}.{key}");
    urls.iter().map(|url| Address::parse(url).or_else(|what| check.fail(&key, what))).collect()
}

fn protocol(value: Count, key: &str, check: &Check<'_>) -> Result<Protocol, SettingsError> {
    match value.0 {
        5 => Ok(Protocol::V5),
        4 => Ok(Protocol::V4),
        other => check.fail(key, format!("expected 5 (MQTT 5.0) or 4 (MQTT 3.1.1), found {other}")),
    }
}

fn tls(raw: &RawBridge) -> Option<TlsConfig> {
    let tls = TlsConfig {
        ca_file: raw.ca_file.clone(),
        cert_file: raw.cert_file.clone(),
        key_file: raw.key_file.clone(),
        server_name: raw.server_name.clone(),
    };
    (tls != TlsConfig::default()).then_some(tls)
}

fn rules(raw: &[RawRule], at: &str, check: &Check<'_>) -> Result<Vec<Rule>, SettingsError> {
    let rule = |(index, rule): (usize, &RawRule)| {
        let key = |name: &str| format!("{at}[{index}].{name}");
        let qos: u8 = check.count(&key("qos"), rule.qos, 0..=2)?;
        Ok(Rule {
            filter: filter(rule, &key("filter"), check)?,
            local_prefix: rule.local_prefix.clone(),
            remote_prefix: rule.remote_prefix.clone(),
            qos: Qos::from_bits(qos).unwrap_or_default(),
            retain: rule.retain,
        })
    };
    raw.iter().enumerate().map(rule).collect()
}

/// An empty filter between two prefixes stands for one topic, which has another name on the other side.
fn filter(rule: &RawRule, key: &str, check: &Check<'_>) -> Result<String, SettingsError> {
    match rule.filter.as_deref() {
        Some("") if !rule.local_prefix.is_empty() && !rule.remote_prefix.is_empty() => Ok(String::new()),
        filter => required(filter.unwrap_or_default(), key, "a topic filter, such as \"#\"", check),
    }
}

/// Finds the key that a sentence of [`bridge::check`] is about: it starts with it, or names a rule.
fn refuse<T>(at: &str, what: &str, check: &Check<'_>) -> Result<T, SettingsError> {
    let about = what.split_once(": ").and_then(|(subject, rest)| {
        if let Some((list, number)) = subject.strip_prefix("bridge.").and_then(|s| s.split_once(" number ")) {
            let index = number.parse::<usize>().ok()?.checked_sub(1)?;
            return Some((format!("{at}.{list}[{index}]"), rest));
        }
        let is_key = subject.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        is_key.then(|| (format!("{at}.{subject}"), rest))
    });
    match about {
        Some((key, rest)) => check.fail(&key, rest),
        None => check.fail(at, what),
    }
}

/// What no link can know by itself.
fn beside_others(
    link: &LinkConfig,
    others: &[LinkConfig],
    at: &str,
    around: &Surroundings<'_>,
) -> Result<(), SettingsError> {
    for other in others {
        if other.name == link.name {
            return around
                .check
                .fail(&format!("{at}.name"), format!("another bridge is named \"{}\"", link.name));
        }
        let shared = link.addresses.iter().find(|address| other.addresses.contains(address));
        if let (true, Some(address)) = (other.client_id == link.client_id, shared) {
            let what = format!(
                "bridge \"{}\" uses the same client_id at {address}; each would throw the other out",
                other.name
            );
            return around.check.fail(&format!("{at}.client_id"), what);
        }
    }
    match link.addresses.iter().find(|address| is_ours(address, around.listeners)) {
        Some(address) => {
            around.check.fail(&format!("{at}.url"), format!("{address} is a listener of this broker itself"))
        }
        None => Ok(()),
    }
}

fn is_ours(address: &Address, listeners: &[Listener]) -> bool {
    let ip = if address.host == "localhost" { "127.0.0.1" } else { &address.host };
    let Ok(ip) = ip.parse::<std::net::IpAddr>() else { return false };
    listeners.iter().filter_map(Listener::addr).any(|addr| {
        let all_of_this_machine = addr.ip().is_unspecified() && ip.is_loopback();
        addr.port() == address.port && (addr.ip() == ip || all_of_this_machine)
    })
}

/// What works and is probably not meant.
fn doubts(link: &LinkConfig, at: &str, check: &Check<'_>, warnings: &mut Vec<String>) {
    let name = &link.name;
    if link.password.is_some()
        && let Place::Line(file, line) = check.origins.of(&format!("{at}.password"))
        && readable_by_all(&file)
    {
        warnings.push(format!(
            "{}:{line}: the password of bridge \"{name}\" lies in a file that every user can read; chmod it to 640, or \
             use `password_file`",
            file.display()
        ));
    }
    let tls = link.tls.clone().unwrap_or_default();
    for file in [&link.password_file, &tls.key_file].into_iter().flatten() {
        if readable_by_all(file) {
            warnings
                .push(format!("bridge \"{name}\": every user can read {}; chmod it to 640", file.display()));
        }
    }
    let files = [&link.password_file, &tls.ca_file, &tls.cert_file, &tls.key_file];
    for file in files.into_iter().flatten().filter(|file| !file.exists()) {
        let file = file.display();
        warnings.push(format!(
            "bridge \"{name}\": {file} cannot be found; the link stays down until it is there"
        ));
    }
    let secret = link.password.is_some() || link.password_file.is_some();
    if let Some(address) = link.addresses.iter().find(|a| !a.tls && !is_loopback(a)).filter(|_| secret) {
        warnings.push(format!("bridge \"{name}\": the password goes to {address} unencrypted; use mqtts://"));
    }
}

fn is_loopback(address: &Address) -> bool {
    address.host == "localhost" || address.host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

fn readable_by_all(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    PathBuf::from(file).metadata().is_ok_and(|metadata| metadata.mode() & 0o004 != 0)
}
