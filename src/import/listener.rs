//! Sockets that clients connect to. A listener that cannot be written as it was meant is left out.

use core::net::IpAddr;
use std::path::Path;

use super::access::Policy;
use super::general::connections_of_listeners;
use super::options::{NO_PSK, PSK_OPTIONS};
use super::report::{Report, Verdict};
use super::source::{Line, Section, Source};
use super::toml::Table;
use super::value;
use super::{Draft, Paths};

/// Listeners of one broker.
const LISTENERS_MAX: usize = 16;
const PORT_DEFAULT: i64 = 1883;
const CONNECTIONS_MOST: i64 = 1_000_000;
/// Topic aliases that a client of Mosquitto may use where nothing is said.
const ALIASES_DEFAULT: i64 = 10;

/// Writes one section for each listener.
pub fn listeners(
    source: &Source,
    policy: &Policy,
    paths: &Paths<'_>,
    draft: &mut Draft,
    report: &mut Report,
) {
    if source.listeners.is_empty() {
        nothing_given(policy, paths, draft, report);
        return;
    }
    let is_local_only = is_local_only(source);
    let mut sum = 0u64;
    for (index, section) in source.listeners.iter().enumerate() {
        let mut listener = Listener {
            section,
            index,
            policy,
            is_local_only,
            report,
            paths,
            table: Table::element("listener"),
        };
        let written = match draft.listeners.len() {
            LISTENERS_MAX => Err(format!("there are more than {LISTENERS_MAX}")),
            _ => listener.write(),
        };
        let taken = draft.listeners.iter().any(|other| address(other) == address(&listener.table));
        let written = match taken {
            true => written.and(Err("another listener has its address already".into())),
            false => written,
        };
        match written {
            Ok(connections) => {
                sum = sum.saturating_add(connections);
                draft.listeners.push(std::mem::take(&mut listener.table));
            }
            Err(why) => left_out(section, &why, paths, report),
        }
    }
    connections_of_listeners(sum, &mut draft.limits);
    aliases(source, draft, report);
    if draft.listeners.is_empty() {
        let text = "no listener could be carried over, so there is the default one, without anonymous clients: \
                    mqtt://127.0.0.1:1883";
        report.whole(&paths.main_name(), "listener", Verdict::Dropped, text);
        policy.write_for_loopback(true, paths, draft, report);
    }
}

/// Without any listener Mosquitto is there for this machine alone.
pub fn is_local_only(source: &Source) -> bool {
    source.listeners.iter().all(|section| !section.opens())
}

fn nothing_given(policy: &Policy, paths: &Paths<'_>, draft: &mut Draft, report: &mut Report) {
    report.whole(
        &paths.main_name(),
        "listener (not given)",
        Verdict::Differs,
        "Mosquitto listens on 127.0.0.1 and ::1, port 1883; here mqtt://127.0.0.1:1883 alone",
    );
    policy.write_for_loopback(false, paths, draft, report);
}

fn left_out(section: &Section, why: &str, paths: &Paths<'_>, report: &mut Report) {
    let of = match &section.head {
        Some(head) => {
            report.withdrawn(head.id, format!("the listener is left out: {why}"));
            format!("the listener of {}", report.place(head.id))
        }
        None => {
            let text = format!("the listener is left out: {why}");
            report.whole(&paths.main_name(), "default listener", Verdict::Dropped, text);
            "the default listener".to_owned()
        }
    };
    for line in section.lines() {
        match PSK_OPTIONS.contains(&line.name) {
            true => report.withdrawn(line.id, format!("{NO_PSK}; {of} is left out")),
            false => report.withdrawn(line.id, format!("{of} is left out")),
        }
    }
}

/// Where a listener is bound: a path may be written in several ways.
fn address(table: &Table) -> Option<&Path> {
    let url = table.value("url")?.trim_matches(['"', '\'']);
    url.split_once("://").map(|(_, rest)| Path::new(rest))
}

/// The bound is one for all listeners here.
fn aliases(source: &Source, draft: &mut Draft, report: &mut Report) {
    let given = |section: &Section| {
        let line = section.get("max_topic_alias")?;
        value::integer_in(&line.value, 0..=65_535).ok()
    };
    let lines = source.listeners.iter().filter_map(|section| section.get("max_topic_alias"));
    let most = source.listeners.iter().map(|section| given(section).unwrap_or(ALIASES_DEFAULT)).max();
    let Some(most) = most.filter(|_| lines.clone().next().is_some()) else { return };
    for line in lines {
        match value::integer_in(&line.value, 0..=65_535) {
            Ok(count) if count == most => {
                report.carried(line.id, format!("limits.topic_aliases_max = {most}"))
            }
            Ok(_) => {
                let what =
                    format!("limits.topic_aliases_max = {most}, the most of any listener: it is one for all");
                report.differs(line.id, what);
            }
            Err(what) => report.dropped(line.id, what),
        }
    }
    draft.limits.set("topic_aliases_max", most, "the most of any listener");
}

struct Listener<'a> {
    section: &'a Section,
    index: usize,
    policy: &'a Policy,
    is_local_only: bool,
    report: &'a mut Report,
    paths: &'a Paths<'a>,
    table: Table,
}

impl<'a> Listener<'a> {
    /// Writes everything and says how many connections it allows, or why the listener cannot be written.
    fn write(&mut self) -> Result<u64, String> {
        self.protections()?;
        let tls = self.tls()?;
        let websocket = self.protocol()?;
        let is_remote = self.url(tls, websocket)?;
        let by_certificate = match tls {
            true => self.client_certificates()?,
            false => self.no_client_certificates()?,
        };
        self.proxy()?;
        let connections = self.connections();
        self.notes();
        self.policy.write(self.index, is_remote, by_certificate, &mut self.table)?;
        Ok(connections)
    }

    fn get(&self, name: &str) -> Option<&'a Line> {
        self.section.get(name)
    }

    fn flag(&self, name: &str) -> Result<Option<(&'a Line, bool)>, String> {
        let Some(line) = self.get(name) else { return Ok(None) };
        let flag = value::boolean(&line.value).map_err(|what| format!("{name}: {what}"))?;
        Ok(Some((line, flag)))
    }

    fn set(&mut self, line: &Line, key: &'static str, value: impl Into<toml_edit::Value>) {
        let value = value.into();
        let origin = format!("{} {}", self.report.place(line.id), line.name);
        self.report.carried(line.id, format!("{key} = {}", value.to_string().trim()));
        self.table.set(key, value, origin);
    }

    /// Sets a key to the path of a file.
    fn set_file(&mut self, line: &Line, key: &'static str) -> Result<(), String> {
        let text = value::string(&line.value).map_err(|what| format!("{}: {what}", line.name))?;
        let path = self.paths.resolve(text, line, self.report).display().to_string();
        self.set(line, key, path);
        Ok(())
    }

    /// What protects a listener and has no counterpart.
    fn protections(&mut self) -> Result<(), String> {
        let reasons = [
            (
                "mount_point",
                "a mount point keeps its clients apart from others, and there are no mount points; run a second broker",
            ),
            ("psk_hint", NO_PSK),
            (
                "bind_interface",
                "it cannot be bound to an interface; name the interface's address behind the port instead",
            ),
        ];
        match reasons.into_iter().find(|(name, _)| self.get(name).is_some()) {
            Some((_, why)) => Err(why.into()),
            None => Ok(()),
        }
    }

    fn tls(&mut self) -> Result<bool, String> {
        match (self.get("certfile"), self.get("keyfile")) {
            (Some(certificate), Some(key)) => {
                if let Some(form) = self.get("tls_keyform") {
                    match form.value.split_whitespace().next() {
                        Some("pem") => self.report.same(form.id, "keys are PEM files"),
                        _ => return Err("its key is not in a file".into()),
                    }
                }
                self.set_file(certificate, "cert_file")?;
                self.set_file(key, "key_file")?;
                Ok(true)
            }
            (None, None) => {
                for name in ["cafile", "capath", "crlfile", "tls_version", "tls_keyform"] {
                    if let Some(line) = self.get(name) {
                        self.report.same(line.id, "it has no effect without certfile and keyfile");
                    }
                }
                Ok(false)
            }
            _ => Err("certfile and keyfile belong together, and one is missing".into()),
        }
    }

    fn protocol(&mut self) -> Result<bool, String> {
        let Some(line) = self.get("protocol") else { return Ok(false) };
        match value::string(&line.value)? {
            "mqtt" => {
                self.report.same(line.id, "MQTT is what the URL says");
                Ok(false)
            }
            "websockets" => {
                self.report.carried(line.id, "a WebSocket, as the URL says");
                Ok(true)
            }
            other => Err(format!("there is no protocol \"{}\" here", value::shown(other))),
        }
    }

    /// Sets the URL and says whether other machines reach it.
    fn url(&mut self, tls: bool, websocket: bool) -> Result<bool, String> {
        let (port, host, line) = self.port_and_host()?;
        if port == 0 {
            return self.unix_socket(host, line, tls || websocket);
        }
        let scheme = match (tls, websocket) {
            (false, false) => "mqtt",
            (true, false) => "mqtts",
            (false, true) => "ws",
            (true, true) => "wss",
        };
        let address = self.address(host.as_deref(), line)?;
        let shown = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
        let url = format!("{scheme}://{shown}:{port}");
        match line {
            Some(line) => self.set(line, "url", url),
            None => self.table.set("url", url, "the default listener"),
        }
        Ok(!address.is_loopback())
    }

    /// From `listener PORT [HOST]`, or from `port` and `bind_address`.
    fn port_and_host(&mut self) -> Result<(i64, Option<String>, Option<&'a Line>), String> {
        if let Some(head) = &self.section.head {
            let mut words = head.value.split_whitespace();
            let port = value::integer_in(words.next().unwrap_or_default(), 0..=65_535)?;
            let rest: Vec<_> = words.take_while(|word| !word.starts_with('#')).collect();
            // Newer versions take a path with spaces for a Unix socket.
            let host = (!rest.is_empty()).then(|| rest.join(" "));
            return Ok((port, host, Some(head)));
        }
        let port = match self.get("port") {
            Some(line) => {
                let port = value::integer_in(&line.value, 1..=65_535)?;
                self.report.carried(line.id, "in the URL");
                port
            }
            None => PORT_DEFAULT,
        };
        let bind = self.get("bind_address");
        let host = match bind {
            Some(line) => {
                self.report.carried(line.id, "in the URL");
                Some(value::string(&line.value)?.to_owned())
            }
            None => None,
        };
        Ok((port, host, self.get("port").or(bind)))
    }

    fn address(&mut self, host: Option<&str>, line: Option<&Line>) -> Result<IpAddr, String> {
        let domain = self.get("socket_domain");
        let family = match domain.map(|line| line.value.split_whitespace().next().unwrap_or_default()) {
            None => None,
            Some(name @ ("ipv4" | "ipv6")) => Some(name),
            Some(other) => {
                return Err(format!("socket_domain is ipv4 or ipv6, not \"{}\"", value::shown(other)));
            }
        };
        let address: IpAddr = match host {
            Some("localhost") if family == Some("ipv6") => [0, 0, 0, 0, 0, 0, 0, 1u16].into(),
            Some("localhost") => [127, 0, 0, 1].into(),
            Some(text) => text.trim_matches(['[', ']']).parse().map_err(|_| {
                format!(
                    "it is bound to \"{}\", which is no IP address: write its address behind the port",
                    value::shown(text)
                )
            })?,
            None if self.is_local_only => [127, 0, 0, 1].into(),
            None if family == Some("ipv4") => [0, 0, 0, 0].into(),
            None => [0u16; 8].into(),
        };
        let wanted_is_ipv6 = family.map(|family| family == "ipv6");
        if wanted_is_ipv6.is_some_and(|wanted| wanted != address.is_ipv6()) {
            return Err("its address does not fit its socket_domain".into());
        }
        if let Some(domain) = domain {
            self.report.carried(domain.id, "in the URL");
        }
        let Some(line) = line else { return Ok(address) };
        match (host, family) {
            (Some("localhost"), None) => self.report.differs(line.id, "127.0.0.1 without ::1"),
            (None, Some("ipv6")) => {
                let what = "IPv4 clients are served too, unless net.ipv6.bindv6only is set";
                self.report.differs(domain.map_or(line.id, |domain| domain.id), what);
            }
            (None, None) if address.is_ipv6() => {
                self.report.carried(
                    line.id,
                    "[::] is every address, IPv4 too; write 0.0.0.0 where the kernel has no IPv6",
                );
            }
            _ => {}
        }
        Ok(address)
    }

    fn unix_socket(
        &mut self,
        path: Option<String>,
        line: Option<&Line>,
        is_more: bool,
    ) -> Result<bool, String> {
        let (Some(path), Some(line)) = (path, line) else {
            return Err("port 0 stands for a Unix socket, and its path is missing".into());
        };
        if is_more {
            return Err("a Unix socket speaks plain MQTT alone".into());
        }
        let path = self.paths.resolve(&path, line, self.report);
        self.set(line, "url", format!("mqtt+unix://{}", path.display()));
        Ok(false)
    }

    /// Sets whose certificates are valid; says whether each client shows one.
    fn client_certificates(&mut self) -> Result<bool, String> {
        self.tls_version();
        let required = self.flag("require_certificate")?;
        let Some((line, true)) = required else {
            if let Some((line, _)) = required {
                self.report.same(line.id, "clients are not asked for certificates");
            }
            for name in ["cafile", "capath", "crlfile"] {
                if let Some(line) = self.get(name) {
                    self.report.same(line.id, "it has no effect without require_certificate");
                }
            }
            return self.no_client_certificates();
        };
        let Some(authorities) = self.get("cafile") else {
            return Err("clients must show certificates, and there is no cafile that says whose (folders are not read)".into());
        };
        self.set_file(authorities, "client_ca_file")?;
        self.set(line, "client_cert", "required");
        if let Some(revoked) = self.get("crlfile") {
            self.set_file(revoked, "client_crl_file")?;
        }
        if let Some(folder) = self.get("capath") {
            self.report
                .dropped(folder.id, "folders of authorities are not read; add them to the file of cafile");
        }
        let common_name = self.flag("use_identity_as_username")?;
        let subject = self.flag("use_subject_as_username")?;
        let mut is_user = false;
        for (given, name) in [(common_name, "cn"), (subject, "subject")] {
            match given {
                Some((line, true)) if !is_user => {
                    is_user = true;
                    self.set(line, "user_from_cert", name);
                }
                Some((line, true)) => self.report.same(line.id, "use_identity_as_username comes first"),
                Some((line, false)) => self.report.same(line.id, "clients name themselves"),
                None => {}
            }
        }
        Ok(is_user)
    }

    fn no_client_certificates(&mut self) -> Result<bool, String> {
        if let Some((line, required)) = self.flag("require_certificate")?
            && !self.report.is_settled(line.id)
        {
            match required {
                true => {
                    return Err("clients must show certificates, but certfile and keyfile are missing".into());
                }
                false => self.report.same(line.id, "clients are not asked for certificates"),
            }
        }
        for name in ["use_identity_as_username", "use_subject_as_username"] {
            match self.flag(name)? {
                Some((_, true)) => {
                    return Err(format!("{name} needs require_certificate; Mosquitto lets nobody in"));
                }
                Some((line, false)) => self.report.same(line.id, "clients name themselves"),
                None => {}
            }
        }
        Ok(false)
    }

    fn tls_version(&mut self) {
        let Some(line) = self.get("tls_version") else { return };
        match line.value.split_whitespace().next().unwrap_or_default() {
            "tlsv1.2" => self.report.same(line.id, "TLS 1.2 and 1.3 are spoken"),
            "tlsv1.3" => self.report.dropped(line.id, "TLS 1.2 is spoken too"),
            "tlsv1.1" | "tlsv1" => self.report.differs(line.id, "TLS 1.2 is the least"),
            other => self.report.dropped(line.id, format!("there is no version \"{}\"", value::shown(other))),
        }
    }

    fn proxy(&mut self) -> Result<(), String> {
        let Some(line) = self.get("enable_proxy_protocol") else { return Ok(()) };
        let version = value::integer_in(&line.value, 1..=2)?;
        self.set(line, "proxy_protocol", true);
        if version == 2 && self.flag("use_identity_as_username")?.is_some_and(|(_, given)| given) {
            return Err("the proxy's word about certificates is not taken".into());
        }
        Ok(())
    }

    fn connections(&mut self) -> u64 {
        let Some(line) = self.get("max_connections") else { return 0 };
        match value::integer(&line.value) {
            Ok(count) if count > 0 => {
                let kept = count.min(CONNECTIONS_MOST);
                self.set(line, "connections_max", kept);
                kept.unsigned_abs()
            }
            Ok(_) => {
                self.report.same(line.id, "limits.connections_max bounds all listeners together");
                0
            }
            Err(what) => {
                self.report.dropped(line.id, what);
                0
            }
        }
    }

    /// What has no counterpart and protects nothing.
    fn notes(&mut self) {
        if let Some(line) = self.get("max_qos") {
            match value::integer_in(&line.value, 0..=2) {
                Ok(2) => self.report.same(line.id, "every QoS may be used"),
                Ok(_) => self.report.dropped(line.id, "every QoS may be used"),
                Err(what) => self.report.dropped(line.id, what),
            }
        }
        if let Some(line) = self.get("max_topic_alias_broker") {
            self.report.differs(line.id, "how topics are shortened towards a client is not configured");
        }
        if let Some(line) = self.get("accept_protocol_versions") {
            let given: Vec<_> = line.value.split([',', ' ']).filter(|part| !part.is_empty()).collect();
            match ["3", "4", "5"].iter().all(|version| given.contains(version)) {
                true => self.report.same(line.id, "all versions are accepted"),
                false => self.report.dropped(line.id, "MQTT 3.1, 3.1.1 and 5.0 are always accepted"),
            }
        }
    }
}
