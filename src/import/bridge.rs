//! `connection` sections: links to upstream brokers.

use core::net::SocketAddr;

use super::options::PSK_OPTIONS;
use super::report::{Report, Verdict};
use super::source::{Line, Section, Source};
use super::toml::Table;
use super::topic::{Rules, rules};
use super::value;
use super::{Draft, Files, Paths};
use crate::bridge::{ADDRESSES_MAX, WINDOW_MAX};

const NO_BRIDGE_PSK: &str =
    "TLS with pre-shared keys is not supported; give the bridge a certificate or a password over TLS; ";
/// Links of one broker.
const BRIDGES_MAX: usize = 16;
/// Longest name of a link.
const NAME_BYTES_MAX: usize = 64;
const PACKET_BYTES_LEAST: u64 = 1 << 10;
const PACKET_BYTES_MOST: u64 = 256 << 20;
/// Longest pauses between attempts, in seconds.
const BACKOFF_MIN_SECS_MOST: i64 = 3600;
const BACKOFF_MAX_SECS_MOST: i64 = 86_400;
/// Longest life of a session at the upstream, in seconds.
const EXPIRY_SECS_MOST: i64 = 100 * 365 * 86_400;

/// Writes one section for each bridge.
pub fn bridges(
    source: &Source,
    files: &dyn Files,
    paths: &Paths<'_>,
    draft: &mut Draft,
    report: &mut Report,
) {
    let ours: Vec<SocketAddr> =
        draft.listeners.iter().filter_map(|table| socket_of(table.value("url")?)).collect();
    let mut others = Others { ours, ..Others::default() };
    for section in &source.bridges {
        let Some(head) = &section.head else { continue };
        let mut link = Link { section, head, report, paths, table: Table::element("bridge"), protocol: 4 };
        let written = link.write(source, files, &mut others, draft);
        if let Err(why) = written {
            let place = report.place(head.id).to_string();
            report.withdrawn(head.id, format!("the bridge is left out: {why}"));
            for line in section.lines() {
                let remedy = if PSK_OPTIONS.contains(&line.name) { NO_BRIDGE_PSK } else { "" };
                report.withdrawn(line.id, format!("{remedy}the bridge of {place} is left out"));
            }
        }
    }
}

/// What the bridges before, and the listeners, have taken.
#[derive(Default)]
struct Others {
    ours: Vec<SocketAddr>,
    names: Vec<String>,
    /// URL and client identifier.
    logins: Vec<(String, String)>,
}

struct Link<'a, 'r> {
    section: &'a Section,
    head: &'a Line,
    report: &'r mut Report,
    paths: &'r Paths<'r>,
    table: Table,
    /// 4: MQTT 3.1.1, 5: MQTT 5.0.
    protocol: u8,
}

impl<'a> Link<'a, '_> {
    /// Writes everything, or says why the bridge cannot be written.
    fn write(
        &mut self,
        source: &Source,
        files: &dyn Files,
        others: &mut Others,
        draft: &mut Draft,
    ) -> Result<(), String> {
        if others.names.len() >= BRIDGES_MAX {
            return Err(format!("there are more than {BRIDGES_MAX}"));
        }
        for psk in ["bridge_psk", "bridge_identity"] {
            if self.section.get(psk).is_some() {
                return Err("it uses TLS with a pre-shared key, and nothing else may take its place".into());
            }
        }
        let name = self.name(&others.names)?;
        self.addresses()?;
        self.protocol();
        let rules = rules(self.section, self.report)?;
        self.loops(&rules);
        self.client_id(&name, files)?;
        self.login(&name, draft)?;
        self.certificates();
        self.session(&rules);
        self.timing();
        self.sizes(source);
        self.manners();
        self.beside(others)?;
        others.names.push(name);
        draft.bridges.push(std::mem::take(&mut self.table));
        draft.bridges.extend(rules.tables());
        Ok(())
    }

    fn get(&self, name: &str) -> Option<&'a Line> {
        self.section.get(name)
    }

    fn origin(&self, line: &Line) -> String {
        format!("{} {}", self.report.place(line.id), line.name)
    }

    fn set(&mut self, line: &Line, key: &'static str, value: impl Into<toml_edit::Value>) {
        let value = value.into();
        let origin = self.origin(line);
        self.report.carried(line.id, format!("{key} = {}", value.to_string().trim()));
        self.table.set(key, value, origin);
    }

    /// A value, if the option is given and good; a bad one is reported.
    fn parsed<T>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<(&'a Line, T)> {
        let line = self.get(name)?;
        match parse(&line.value) {
            Ok(value) => Some((line, value)),
            Err(what) => {
                self.report.dropped(line.id, what);
                None
            }
        }
    }

    fn name(&mut self, names: &[String]) -> Result<String, String> {
        let given = value::string(&self.head.value).map_err(|_| "it has no name")?;
        let given = given.split_whitespace().next().unwrap_or(given);
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let mut name: String = given.chars().map(plain).take(NAME_BYTES_MAX).collect();
        for number in 2..=BRIDGES_MAX + 1 {
            if !names.contains(&name) {
                break;
            }
            let kept: String = given.chars().map(plain).take(NAME_BYTES_MAX - 4).collect();
            name = format!("{kept}-{number}");
        }
        let head = self.head;
        if name != given {
            self.report.differs(head.id, "a name consists of letters, digits, - _ and .");
        }
        self.set(head, "name", name.as_str());
        Ok(name)
    }

    fn uses_tls(&self) -> bool {
        let os =
            self.get("bridge_tls_use_os_certs").is_some_and(|line| value::boolean(&line.value) == Ok(true));
        os || ["bridge_cafile", "bridge_capath", "bridge_certfile"]
            .iter()
            .any(|name| self.get(name).is_some())
    }

    fn addresses(&mut self) -> Result<(), String> {
        let line = self.get("address").ok_or("it has no address")?;
        let scheme = if self.uses_tls() { "mqtts" } else { "mqtt" };
        let mut urls = Vec::new();
        for word in line.value.split_whitespace().take_while(|word| !word.starts_with('#')) {
            match address(word) {
                Ok((host, port)) => urls.push(format!("{scheme}://{host}:{port}")),
                Err(what) => self.report.dropped(line.id, what),
            }
        }
        if urls.len() > ADDRESSES_MAX {
            self.report.dropped(line.id, format!("only the first {ADDRESSES_MAX} addresses are used"));
            urls.truncate(ADDRESSES_MAX);
        }
        match urls.as_slice() {
            [] => Err("it has no good address".into()),
            [url] => {
                self.set(line, "url", url.as_str());
                Ok(())
            }
            _ => {
                let list: toml_edit::Array = urls.iter().map(String::as_str).collect();
                self.set(line, "urls", list);
                self.round_robin();
                Ok(())
            }
        }
    }

    /// Each address with the client identifier is this bridge's alone, and no listener of this broker.
    fn beside(&self, others: &mut Others) -> Result<(), String> {
        let id = self.table.value("client_id").unwrap_or_default().to_owned();
        let urls = self.table.value("url").or(self.table.value("urls")).unwrap_or_default();
        let urls: Vec<_> =
            urls.trim_matches(['[', ']']).split(',').map(|url| url.trim().to_owned()).collect();
        for url in &urls {
            if socket_of(url).is_some_and(|socket| others.ours.iter().any(|ours| is_same(*ours, socket))) {
                return Err(format!("{url} is a listener of this broker itself"));
            }
            if others.logins.iter().any(|(known, client)| known == url && *client == id) {
                return Err(format!("another bridge uses the same client identifier at {url}"));
            }
        }
        others.logins.extend(urls.into_iter().map(|url| (url, id.clone())));
        Ok(())
    }

    fn round_robin(&mut self) {
        let otherwise = "the next address is tried when one fails, and the first one again after a connection that lasted";
        match self.parsed("round_robin", value::boolean) {
            Some((line, true)) => self.report.differs(line.id, otherwise),
            Some((line, false)) => {
                let what = format!("{otherwise}; while a later one works, the first is not tried");
                self.report.differs(line.id, what);
            }
            None => {}
        }
    }

    fn protocol(&mut self) {
        self.protocol = 4;
        let Some(line) = self.get("bridge_protocol_version") else { return };
        match line.value.split_whitespace().next().unwrap_or_default() {
            "mqttv311" => {}
            "mqttv50" => self.protocol = 5,
            "mqttv31" => self.report.differs(line.id, "MQTT 3.1.1 takes the place of 3.1"),
            other => {
                let what =
                    format!("expected mqttv50, mqttv311 or mqttv31, found \"{}\"", value::shown(other));
                self.report.dropped(line.id, what);
            }
        }
    }

    /// Messages that come back are told by No Local, which MQTT 3.1.1 does not have.
    fn loops(&mut self, rules: &Rules) {
        if self.protocol == 4 && rules.come_back() {
            self.protocol = 5;
            let what = "protocol = 5: topics that go both ways need it, so that messages do not come back; the upstream must speak \
                        MQTT 5.0";
            self.report.differs(self.head.id, what);
            for line in self.section.all("topic").filter(|line| rules.is_both_ways(line.id)) {
                self.report.differs(line.id, "needs MQTT 5.0 at the upstream");
            }
        }
        let origin = self
            .get("bridge_protocol_version")
            .map_or_else(|| "MQTT 3.1.1 unless topics go both ways".to_owned(), |line| self.origin(line));
        self.table.set("protocol", i64::from(self.protocol), origin);
        if let Some(line) = self.get("bridge_protocol_version") {
            self.report.carried(line.id, format!("protocol = {}", self.protocol));
        }
    }

    fn client_id(&mut self, name: &str, files: &dyn Files) -> Result<(), String> {
        if let Some((line, id)) =
            self.parsed("remote_clientid", |text| value::string(text).map(str::to_owned))
        {
            self.set(line, "client_id", id);
            return Ok(());
        }
        let host = files.hostname().ok_or(
            "its client identifier is made of this machine's name, which is not known: set remote_clientid",
        )?;
        let id = format!("{host}.{name}");
        self.report.differs(
            self.head.id,
            format!("client_id = \"{id}\", as Mosquitto makes it on this machine: change it if the bridge moves to another one"),
        );
        self.table.set("client_id", id, "this machine's name and the bridge's");
        Ok(())
    }

    fn login(&mut self, name: &str, draft: &mut Draft) -> Result<(), String> {
        let user = self.parsed("remote_username", |text| value::string(text).map(str::to_owned));
        let password = self.parsed("remote_password", |text| value::string(text).map(str::to_owned));
        if let Some((line, user)) = &user {
            self.set(line, "username", user.as_str());
        }
        let Some((line, password)) = password else { return Ok(()) };
        if user.is_none() {
            self.report.dropped(line.id, "without remote_username Mosquitto sends no password");
            return Ok(());
        }
        let origin = self.origin(line);
        match draft.secret(&format!("{name}.password"), &password) {
            Some(file) => {
                self.report.carried(line.id, format!("password_file = \"{file}\""));
                self.table.set("password_file", file, origin);
            }
            None => {
                self.report.carried(
                    line.id,
                    "password, in the configuration itself: keep it from other users' eyes",
                );
                self.table.set("password", password, origin);
            }
        }
        Ok(())
    }

    fn certificates(&mut self) {
        for (option, key) in
            [("bridge_cafile", "ca_file"), ("bridge_certfile", "cert_file"), ("bridge_keyfile", "key_file")]
        {
            let other = match option {
                "bridge_certfile" => Some("bridge_keyfile"),
                "bridge_keyfile" => Some("bridge_certfile"),
                _ => None,
            };
            let Some(line) = self.get(option) else { continue };
            match value::string(&line.value) {
                Ok(_) if other.is_some_and(|other| self.get(other).is_none()) => {
                    self.report.dropped(line.id, format!("needs {} too", other.unwrap_or_default()));
                }
                Ok(text) => {
                    let path = self.paths.resolve(text, line, self.report).display().to_string();
                    self.set(line, key, path);
                }
                Err(what) => self.report.dropped(line.id, what),
            }
        }
        if let Some(line) = self.get("bridge_capath") {
            self.report.dropped(
                line.id,
                "folders of authorities are not read, so the system's are trusted: put the certificates into one file and set ca_file",
            );
        }
        self.trust();
    }

    fn trust(&mut self) {
        if let Some((line, given)) = self.parsed("bridge_tls_use_os_certs", value::boolean) {
            match given {
                true if self.get("bridge_cafile").is_some() => {
                    self.report.differs(line.id, "only the authorities of bridge_cafile are trusted");
                }
                true => self
                    .report
                    .carried(line.id, "mqtts:// without ca_file: the system's authorities are trusted"),
                false => self.report.same(line.id, ""),
            }
        }
        if let Some((line, given)) = self.parsed("bridge_insecure", value::boolean) {
            match given {
                false => self.report.same(line.id, "the upstream's name is verified"),
                true => self.report.dropped(
                    line.id,
                    "the upstream's name is always verified: set server_name to the one in its certificate if they differ",
                ),
            }
        }
        if let Some(line) = self.get("bridge_tls_version") {
            match line.value.split_whitespace().next().unwrap_or_default() {
                "tlsv1.2" | "tlsv1.3" => {
                    self.report.same(line.id, "TLS 1.3 is used where the upstream has it, else 1.2")
                }
                other => {
                    let what = format!("TLS 1.2 and 1.3 alone are spoken, not \"{}\"", value::shown(other));
                    self.report.dropped(line.id, what);
                }
            }
        }
    }

    fn session(&mut self, rules: &Rules) {
        let clean = self.parsed("cleansession", value::boolean);
        match clean {
            Some((line, false)) => self.report.same(line.id, "queue and session are always kept"),
            Some((line, true)) => {
                let kept = "the queue of outgoing messages is always kept";
                match (self.protocol, rules.has_inbound()) {
                    (_, false) => self.report.differs(line.id, kept),
                    (5, true) => {
                        self.set(line, "session_expiry", "0s");
                        self.report.differs(line.id, kept);
                    }
                    (_, true) => {
                        self.report.differs(line.id, format!("{kept}, and so is the session at the upstream"))
                    }
                }
            }
            None => {}
        }
        match self.parsed("local_cleansession", value::boolean) {
            Some((line, false)) => self.report.same(line.id, "the queue is always kept"),
            Some((line, true)) => self.report.differs(line.id, "the queue is always kept"),
            None => {}
        }
        let range = |text: &str| value::integer_in(text, 0..=i64::from(u32::MAX));
        if let Some((line, secs)) = self.parsed("bridge_session_expiry_interval", range) {
            match self.protocol {
                5 => self.set(line, "session_expiry", format!("{}s", secs.min(EXPIRY_SECS_MOST))),
                _ => self.report.same(line.id, "it has no meaning in MQTT 3.1.1"),
            }
        }
    }

    fn timing(&mut self) {
        if let Some((line, secs)) =
            self.parsed("keepalive_interval", |text| value::integer_in(text, 0..=65_535))
        {
            self.set(line, "keep_alive", format!("{}s", secs.max(5)));
            if secs < 5 {
                self.report.differs(line.id, "5 seconds are the least, as in Mosquitto");
            }
        }
        let Some(line) = self.get("restart_timeout") else { return };
        match pauses(&line.value) {
            Ok(Pauses { least, most, stable }) => {
                self.set(line, "backoff_min", format!("{}s", least.clamp(1, BACKOFF_MIN_SECS_MOST)));
                self.set(line, "backoff_max", format!("{}s", most.clamp(1, BACKOFF_MAX_SECS_MOST)));
                if let Some(secs) = stable.filter(|secs| *secs > 0) {
                    self.set(line, "stable_after", format!("{}s", secs.min(BACKOFF_MAX_SECS_MOST)));
                }
            }
            Err(what) => self.report.dropped(line.id, what),
        }
    }

    fn sizes(&mut self, source: &Source) {
        let range = |text: &str| value::integer_in(text, 0..=i64::from(u32::MAX));
        match self.parsed("bridge_max_packet_size", range) {
            Some((line, 0)) => {
                self.report.same(line.id, "the bound of all packets holds (limits.packet_max)")
            }
            Some((line, bytes)) => {
                let kept = bytes.unsigned_abs().clamp(PACKET_BYTES_LEAST, PACKET_BYTES_MOST);
                self.set(line, "packet_max", super::general::signed(kept));
                if kept != bytes.unsigned_abs() {
                    let what = format!("expected {PACKET_BYTES_LEAST} to {PACKET_BYTES_MOST} bytes here");
                    self.report.differs(line.id, what);
                }
            }
            None => {}
        }
        if let Some((line, count)) =
            self.parsed("bridge_receive_maximum", |text| value::integer_in(text, 1..=65_535))
        {
            self.set(line, "inbound_window", count);
        }
        // A bridge is a client like others: what bounds their messages in flight bounds its own.
        let inflight = source.general.get("max_inflight_messages");
        if let Some((line, count)) = inflight.and_then(|line| Some((line, value::integer(&line.value).ok()?)))
            && (0..=65_535).contains(&count)
        {
            let most = i64::from(WINDOW_MAX);
            let kept = if count == 0 { most } else { count.min(most) };
            let origin = self.origin(line);
            self.table.set("window", kept, origin);
        }
    }

    fn manners(&mut self) {
        self.notifications();
        match self.parsed("try_private", value::boolean) {
            Some((line, false)) => {
                self.report.same(line.id, "the upstream is not told that this is a bridge")
            }
            Some((line, true)) => {
                let what = "the upstream is not told that this is a bridge; in MQTT 5.0 No Local and a property against loops do the same";
                self.report.differs(line.id, what);
            }
            None => {}
        }
        if let Some((line, keeps)) = self.parsed("bridge_outgoing_retain", value::boolean) {
            match keeps {
                true => self.report.same(line.id, "RETAIN is passed on"),
                false => self.report.carried(line.id, "retain = false in each [[bridge.out]]"),
            }
        }
        if self.get("round_robin").is_some_and(|line| !self.report.is_settled(line.id)) {
            let line = self.get("round_robin").expect("it was there a moment ago");
            self.report.same(line.id, "there is one address");
        }
        let Some(line) = self.get("start_type") else { return };
        match line.value.split_whitespace().next().unwrap_or_default() {
            "automatic" => {
                self.report.same(line.id, "a link starts with the broker and comes back by itself")
            }
            other => {
                let what =
                    format!("\"{}\": links are always up and come back by themselves", value::shown(other));
                self.report.dropped(line.id, what);
            }
        }
    }

    fn notifications(&mut self) {
        let here = "the state (0 or 1) is published here alone, to $SYS/broker/connection/NAME/state";
        match self.parsed("notifications", value::boolean) {
            Some((line, true)) => {
                self.report.differs(line.id, format!("{here}; the upstream does not get it"))
            }
            Some((line, false)) => self.report.differs(line.id, here),
            None => self.report.say(
                self.head.id,
                Verdict::Differs,
                format!("{here}; the upstream does not get it"),
            ),
        }
        match self.parsed("notifications_local_only", value::boolean) {
            Some((line, true)) => self.report.same(line.id, here),
            Some((line, false)) => self.report.differs(line.id, here),
            None => {}
        }
        if let Some(line) = self.get("notification_topic") {
            self.report.dropped(line.id, here);
        }
    }
}

/// The address in a URL, which may be quoted, if it is one of IP.
fn socket_of(url: &str) -> Option<SocketAddr> {
    let (_, rest) = url.trim_matches('"').split_once("://")?;
    rest.replace("localhost", "127.0.0.1").parse().ok()
}

fn is_same(listener: SocketAddr, other: SocketAddr) -> bool {
    let here = listener.ip().is_unspecified() && (other.ip().is_loopback() || other.ip().is_unspecified());
    listener.port() == other.port() && (listener.ip() == other.ip() || here)
}

/// `host` or `host:port`; an IPv6 address needs its port.
fn address(text: &str) -> Result<(String, u16), String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => {
            let port = port.parse().ok().filter(|port| *port != 0);
            (host, port.ok_or_else(|| format!("\"{}\" has no good port", value::shown(text)))?)
        }
        None => (text, 1883),
    };
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:%".contains(c);
    if host.is_empty() || !host.chars().all(plain) {
        return Err(format!("\"{}\" is no address", value::shown(text)));
    }
    Ok((if host.contains(':') { format!("[{host}]") } else { host.to_owned() }, port))
}

/// Pauses between attempts, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pauses {
    least: i64,
    most: i64,
    /// A connection that lives so long counts as stable.
    stable: Option<i64>,
}

/// `constant`, `base cap`, or since Mosquitto 2.1 `base cap stable`.
fn pauses(text: &str) -> Result<Pauses, String> {
    let words: Vec<_> = text.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
    let secs = |word: &str| value::integer_in(word, 0..=i64::from(i32::MAX));
    let pauses = match words.as_slice() {
        [constant] => Pauses { least: secs(constant)?, most: secs(constant)?, stable: None },
        [base, cap] => Pauses { least: secs(base)?, most: secs(cap)?, stable: None },
        [base, cap, stable] => Pauses { least: secs(base)?, most: secs(cap)?, stable: Some(secs(stable)?) },
        _ => return Err("expected one to three numbers of seconds".into()),
    };
    if pauses.most < pauses.least {
        return Err(format!("the second number ({}) is less than the first ({})", pauses.most, pauses.least));
    }
    Ok(pauses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_plain_port_by_default_and_brackets_where_urls_need_them() {
        assert_eq!(address("cloud.example"), Ok(("cloud.example".into(), 1883)));
        assert_eq!(address("cloud.example:8883"), Ok(("cloud.example".into(), 8883)));
        assert_eq!(address("fd00::1:1883"), Ok(("[fd00::1]".into(), 1883)));
        assert_eq!(address("[::1]:7"), Ok(("[::1]".into(), 7)));
        for bad in ["", ":1", "a:0", "a:x", "a:70000", "a b", "u@h", "a/b"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pauses_are_one_number_or_two_that_grow() {
        let numbers = |text| pauses(text).map(|p| (p.least, p.most, p.stable));
        assert_eq!((numbers("20"), numbers("10 30")), (Ok((20, 20, None)), Ok((10, 30, None))));
        assert_eq!(numbers("10 30 60 # as recommended"), Ok((10, 30, Some(60))));
        for bad in ["", "x", "30 10", "-1", "1 2 3 4"] {
            assert!(pauses(bad).is_err(), "{bad}");
        }
    }
}
