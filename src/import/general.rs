//! Options about the broker: bounds, the store, logs.

use std::path::Path;

use super::report::{Report, Verdict};
use super::source::{Line, Section, Source};
use super::toml::Table;
use super::value;
use super::{Draft, Paths};
use crate::limits::Limits;
use crate::settings::Size;

/// Messages in flight to one client, where Mosquitto is not told otherwise.
const INFLIGHT_DEFAULT: u64 = 20;
const INFLIGHT_MAX: u64 = 65_535;
/// Largest packet of a Mosquitto 2.1 that is not told otherwise, in bytes. Before 2.1 there was no such bound.
const PACKET_BYTES_DEFAULT: u64 = 2_000_000;
/// Bounds of `limits.packet_max` here: the ring holds eight of the largest packets.
const PACKET_BYTES_LEAST: u64 = 1 << 10;
const PACKET_BYTES_MOST: u64 = 128 << 20;
const PACKETS_IN_RING: u64 = 8;
/// What a PUBLISH has beside its payload: the topic, properties, lengths.
const PACKET_BYTES_BESIDE_PAYLOAD: u64 = 8 << 10;
const MIB: u64 = 1 << 20;
/// Least bound of a queue in bytes.
const QUEUE_BYTES_LEAST: u64 = 1 << 10;
const INFLIGHT_BYTES_MOST: u64 = 1 << 30;
const CONNECTIONS_MOST: i64 = 1_000_000;
const SESSIONS_MOST: i64 = 10_000_000;
/// Longest life of a session that can be set, in seconds.
const EXPIRY_SECS_MOST: u64 = 36_500 * 86_400;
/// Longest time between two publications of statistics that can be set, in seconds.
const SYS_INTERVAL_SECS_MOST: u64 = 86_400;
/// Where Debian's package keeps Mosquitto's data.
const DEBIAN_DATA: &str = "/var/lib/mosquitto";

/// Writes all sections about the broker.
pub fn general(source: &Source, paths: &Paths<'_>, draft: &mut Draft, report: &mut Report) {
    let mut general = General { options: &source.general, report, draft, main: paths.main_name() };
    general.packets();
    general.inflight();
    general.queues();
    general.counts();
    general.store(paths);
    general.log();
    general.rest();
}

struct General<'a> {
    options: &'a Section,
    report: &'a mut Report,
    draft: &'a mut Draft,
    main: String,
}

impl<'a> General<'a> {
    fn get(&self, name: &str) -> Option<&'a Line> {
        self.options.get(name)
    }

    /// The value of an option, if it is given and good; a bad one is reported.
    fn integer(&mut self, name: &str, range: std::ops::RangeInclusive<i64>) -> Option<(&'a Line, u64)> {
        let line = self.get(name)?;
        match value::integer_in(&line.value, range) {
            Ok(number) => Some((line, number.max(0).unsigned_abs())),
            Err(what) => {
                self.report.dropped(line.id, what);
                None
            }
        }
    }

    fn origin(&self, line: &Line) -> String {
        format!("{} {}", self.report.place(line.id), line.name)
    }

    /// Sets a key of a section and says so.
    fn limit(&mut self, line: &Line, name: &'static str, value: impl Into<toml_edit::Value>) {
        let value = value.into();
        let origin = self.origin(line);
        self.report.carried(line.id, format!("limits.{name} = {}", value.to_string().trim()));
        self.draft.limits.set(name, value, origin);
    }

    fn packets(&mut self) {
        let bounds = "Mosquitto 2.0 takes packets of up to 256 MiB, 2.1 of up to 2,000,000 bytes";
        let packet = self.integer("max_packet_size", 0..=i64::from(u32::MAX));
        let payload = self.integer("message_size_limit", 0..=i64::from(u32::MAX));
        let mut bound = None;
        if let Some((line, bytes)) = packet {
            match bytes {
                0 => self.report.differs(
                    line.id,
                    format!("limits.packet_max = {PACKET_BYTES_DEFAULT}, as in Mosquitto 2.1"),
                ),
                _ => bound = Some((line, bytes)),
            }
        }
        if let Some((line, bytes)) = payload {
            match bytes {
                0 => self.report.same(line.id, "no bound besides that of the packet"),
                _ => {
                    let as_packet = bytes.saturating_add(PACKET_BYTES_BESIDE_PAYLOAD);
                    self.report.differs(
                        line.id,
                        "as limits.packet_max, which counts the whole packet; a client that exceeds it is disconnected",
                    );
                    if bound.is_none_or(|(_, bytes)| as_packet < bytes) {
                        bound = Some((line, as_packet));
                    }
                }
            }
        }
        if let Some((line, bytes)) = packet
            && bytes > 0
            && bound.is_some_and(|(other, _)| other.id != line.id)
        {
            self.report.same(line.id, "message_size_limit is the smaller bound");
        }
        if packet.is_none() && bound.is_none() && self.get("max_packet_size").is_none() {
            self.report.whole(
                &self.main,
                "max_packet_size (not given)",
                Verdict::Differs,
                format!(
                    "{bounds}; limits.packet_max = {PACKET_BYTES_DEFAULT}: raise it if larger ones are sent"
                ),
            );
        }
        self.packet_bound(bound);
    }

    /// Sets the bound, and those that must not be below it.
    fn packet_bound(&mut self, bound: Option<(&Line, u64)>) {
        let (bytes, origin) = match bound {
            Some((line, bytes)) => {
                let kept = bytes.clamp(PACKET_BYTES_LEAST, PACKET_BYTES_MOST);
                self.report.carried(line.id, format!("limits.packet_max = {kept}"));
                if kept != bytes {
                    let what = format!("expected {PACKET_BYTES_LEAST} to {PACKET_BYTES_MOST} bytes here");
                    self.report.differs(line.id, what);
                }
                (kept, self.origin(line))
            }
            None => (PACKET_BYTES_DEFAULT, "what Mosquitto 2.1 takes".into()),
        };
        let limits = Limits::default();
        let draft = &mut *self.draft;
        draft.limits.set("packet_max", signed(bytes), origin);
        let room = "room for the largest packet";
        let ring = (bytes * PACKETS_IN_RING).next_multiple_of(MIB);
        if ring > limits.ring_bytes {
            draft.store.set("ring", Size(ring).to_string(), "eight of the largest packets");
        }
        for (name, value) in [
            ("outbox_max", u64::from(limits.outbox_bytes_max)),
            ("outboxes_max", limits.outboxes_bytes_max),
            ("read_buffers_max", limits.read_buffers_bytes_max),
            ("store_queue_max", limits.store_queue_bytes_max),
        ] {
            if bytes > value {
                draft.limits.set(name, Size(bytes.next_multiple_of(MIB)).to_string(), room);
            }
        }
    }

    fn inflight(&mut self) {
        if let Some((line, count)) = self.integer("max_inflight_messages", 0..=65_535) {
            let count = if count == 0 { INFLIGHT_MAX } else { count };
            self.limit(line, "inflight_messages_max", signed(count));
            self.limit(line, "receive_max", signed(count));
        }
        if let Some((line, bytes)) = self.integer("max_inflight_bytes", 0..=i64::MAX) {
            match bytes {
                0 => self.report.differs(
                    line.id,
                    "bytes in flight are always bounded: limits.inflight_bytes_max = \"1MiB\"",
                ),
                _ => {
                    let kept = bytes.clamp(QUEUE_BYTES_LEAST, INFLIGHT_BYTES_MOST);
                    self.limit(line, "inflight_bytes_max", signed(kept));
                    if kept != bytes {
                        self.report.differs(
                            line.id,
                            format!("expected {QUEUE_BYTES_LEAST} to {INFLIGHT_BYTES_MOST} here"),
                        );
                    }
                }
            }
        }
    }

    fn queues(&mut self) {
        let inflight = match self.get("max_inflight_messages").map(|line| value::integer(&line.value)) {
            Some(Ok(0)) => INFLIGHT_MAX,
            Some(Ok(count)) => count.max(0).unsigned_abs(),
            _ => INFLIGHT_DEFAULT,
        };
        let messages = self.integer("max_queued_messages", 0..=i64::from(i32::MAX));
        let bytes = self.integer("max_queued_bytes", 0..=1 << 50);
        let mut is_bounded = false;
        if let Some((line, count)) = messages {
            if count > 0 {
                is_bounded = true;
                let all = signed(count + inflight);
                let origin = self.origin(line);
                self.report.carried(
                    line.id,
                    format!("queue.messages_max = {all}: {count} that wait and {inflight} in flight"),
                );
                self.draft.queue.set("messages_max", all, origin);
            } else {
                self.report.same(line.id, "queues are bounded by the disk alone");
            }
        }
        if let Some((line, bytes)) = bytes {
            if bytes > 0 {
                is_bounded = true;
                let kept = bytes.max(QUEUE_BYTES_LEAST);
                let origin = self.origin(line);
                self.report.carried(line.id, format!("queue.bytes_max = {kept}"));
                self.draft.queue.set("bytes_max", signed(kept), origin);
                if kept != bytes {
                    self.report.differs(line.id, format!("expected at least {QUEUE_BYTES_LEAST} here"));
                }
            } else {
                self.report.same(line.id, "queues are bounded by the disk alone");
            }
        }
        if is_bounded {
            self.draft.queue.set(
                "overflow",
                "drop-tail",
                "Mosquitto drops the message that finds a queue full",
            );
        } else if self.get("max_queued_messages").is_none() {
            self.report.whole(
                &self.main,
                "max_queued_messages (not given)",
                Verdict::Differs,
                "Mosquitto keeps 1000 messages for each client and drops the others; here the disk is the bound: set \
                 queue.messages_max and queue.overflow if you want another one",
            );
        }
    }

    fn counts(&mut self) {
        for (name, key, most) in [
            ("global_max_clients", "sessions_max", SESSIONS_MOST),
            ("global_max_connections", "connections_max", CONNECTIONS_MOST),
        ] {
            if let Some((line, count)) = self.integer(name, -1..=i64::from(i32::MAX)) {
                let kept = count.min(most.unsigned_abs());
                match count {
                    0 => self.report.differs(
                        line.id,
                        format!("connections and sessions are always bounded: see limits.{key}"),
                    ),
                    _ => self.limit(line, key, signed(kept)),
                }
            }
        }
        if let Some(line) = self.get("persistent_client_expiration") {
            match value::duration_secs(&line.value) {
                Ok(secs) => {
                    self.limit(line, "session_expiry_max", format!("{}s", secs.min(EXPIRY_SECS_MOST)))
                }
                Err(what) => self.report.dropped(line.id, what),
            }
        }
        if let Some(line) = self.get("retain_available") {
            match value::boolean(&line.value) {
                Ok(true) => self.report.same(line.id, "messages are retained"),
                Ok(false) => {
                    self.limit(line, "retained_messages_max", 0);
                    let what = "nothing is retained, but clients that set RETAIN stay connected and their messages are passed on";
                    self.report.differs(line.id, what);
                }
                Err(what) => self.report.dropped(line.id, what),
            }
        }
    }

    fn store(&mut self, paths: &Paths<'_>) {
        if let Some(line) = self.get("persistence") {
            match value::boolean(&line.value) {
                Ok(true) => self.report.differs(
                    line.id,
                    "everything is always kept on disk; what lies in mosquitto.db (retained and waiting messages, sessions) is \
                     not read",
                ),
                Ok(false) => self.report.differs(line.id, "everything is always kept on disk"),
                Err(what) => self.report.dropped(line.id, what),
            }
        }
        if let Some(line) = self.get("persistence_location") {
            match value::string(&line.value) {
                Ok(text) if Path::new(text.trim_end_matches('/')) == Path::new(DEBIAN_DATA) => self.report.differs(
                    line.id,
                    "the data lies in a folder of its own: store.data_dir is not set, so /var/lib/tidegate for root or under systemd",
                ),
                Ok(text) => {
                    let folder = paths.resolve(text, line, self.report).join("tidegate");
                    let folder = folder.display().to_string();
                    let origin = self.origin(line);
                    self.report.carried(line.id, format!("store.data_dir = \"{folder}\", which tidegate's user must be able to write"));
                    self.draft.store.set("data_dir", folder, origin);
                }
                Err(what) => self.report.dropped(line.id, what),
            }
        }
        if let Some(line) = self.get("persistence_file") {
            match value::string(&line.value) {
                Ok("mosquitto.db") => self.report.same(line.id, "the file is called tidegate.db"),
                Ok(name) if Path::new(name).file_name().is_some_and(|file| file == name) => {
                    let origin = self.origin(line);
                    self.report.carried(line.id, format!("store.file = \"{}\"", value::shown(name)));
                    self.draft.store.set("file", name, origin);
                }
                Ok(_) => self.report.dropped(line.id, "expected the plain name of a file"),
                Err(what) => self.report.dropped(line.id, what),
            }
        }
    }

    fn log(&mut self) {
        let mut level: Option<(u8, &Line)> = None;
        for line in self.options.all("log_type") {
            let kind = line.value.split_whitespace().next().unwrap_or_default();
            let rank = match kind {
                "none" => 0,
                "error" => 1,
                "warning" => 2,
                "notice" | "information" | "subscribe" | "unsubscribe" | "websockets" => 3,
                "debug" | "internal" | "all" => 4,
                _ => {
                    self.report
                        .dropped(line.id, format!("\"{}\" is no type of log message", value::shown(kind)));
                    continue;
                }
            };
            if level.is_none_or(|(known, _)| rank == 0 || known < rank) {
                level = Some((rank, line));
            }
        }
        const LEVELS: [&str; 5] = ["off", "error", "warn", "info", "debug"];
        if let Some((rank, decisive)) = level {
            let level = LEVELS[usize::from(rank)];
            let origin = self.origin(decisive);
            for line in self.options.all("log_type") {
                self.report.carried(line.id, format!("log.level = \"{level}\""));
            }
            self.draft.log.set("level", level, origin);
        }
        for line in self.options.all("log_dest") {
            self.log_destination(line);
        }
    }

    fn log_destination(&mut self, line: &Line) {
        let stderr = "logs go to standard error";
        match line.value.split_whitespace().next().unwrap_or_default() {
            "stderr" => self.report.same(line.id, stderr),
            "none" => {
                let origin = self.origin(line);
                self.report.carried(line.id, "log.level = \"off\"");
                self.draft.log.set("level", "off", origin);
            }
            "syslog" => self.report.differs(
                line.id,
                format!("{stderr}; systemd takes them to the journal and from there to syslog"),
            ),
            "stdout" => self.report.differs(line.id, stderr),
            "file" => self.report.dropped(
                line.id,
                format!("{stderr}: the journal has them under systemd; otherwise run tidegate with 2>>FILE"),
            ),
            "topic" => self.report.dropped(line.id, format!("{stderr}, not to $SYS/broker/log")),
            "dlt" | "android" => self.report.dropped(line.id, stderr),
            other => {
                self.report.dropped(line.id, format!("\"{}\" is no destination of logs", value::shown(other)))
            }
        }
    }

    fn rest(&mut self) {
        if let Some((line, secs)) = self.integer("max_keepalive", 0..=65_535) {
            match secs {
                0 | 65_535 => self.report.same(line.id, "clients choose their keep-alive interval"),
                _ => {
                    self.limit(line, "keep_alive_max", format!("{secs}s"));
                    let older = "clients before MQTT 5.0, which cannot be told, keep their own interval, where Mosquitto refuses them";
                    self.report.differs(line.id, older);
                }
            }
        }
        if let Some((line, bytes)) = self.integer("memory_limit", 0..=i64::MAX) {
            match bytes {
                0 => self.report.same(line.id, "no limit"),
                _ => self.report.dropped(
                    line.id,
                    "each use of memory has a bound of its own, and `tidegate check` shows their sum: lower them in [limits], then \
                     set limits.memory_budget so that it stays there",
                ),
            }
        }
        if let Some((line, secs)) = self.integer("sys_interval", 0..=65_535) {
            self.sys_interval(line, secs);
        }
        self.flags();
    }

    fn sys_interval(&mut self, line: &Line, secs: u64) {
        let secs = secs.min(SYS_INTERVAL_SECS_MOST);
        self.report.carried(line.id, format!("admin.sys_interval = \"{secs}s\""));
        let origin = self.origin(line);
        self.draft.admin.set("sys_interval", format!("{secs}s"), origin);
    }

    fn flags(&mut self) {
        let flags: [(&str, bool, &str); 2] = [
            ("log_timestamp", true, "lines carry the time, except in the journal, which has it"),
            ("connection_messages", false, "clients that come and go are logged at level debug"),
        ];
        for (name, equal, otherwise) in flags {
            let Some(line) = self.get(name) else { continue };
            match value::boolean(&line.value) {
                Ok(given) if given == equal => self.report.same(line.id, "this is what holds"),
                Ok(_) => self.report.differs(line.id, otherwise),
                Err(what) => self.report.dropped(line.id, what),
            }
        }
        if let Some(line) = self.get("log_timestamp_format") {
            self.report.differs(line.id, "times are written in UTC, in the form of RFC 3339");
        }
        if let Some(line) = self.get("per_listener_settings") {
            match value::boolean(&line.value) {
                Ok(false) => self.report.same(line.id, "settings about access hold for all listeners"),
                Ok(true) => self.report.carried(line.id, "see the listeners' own lines"),
                Err(what) => self.report.dropped(line.id, what),
            }
        }
    }
}

/// For TOML, whose numbers have a sign.
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Makes room for the connections that the listeners allow together.
pub fn connections_of_listeners(sum: u64, limits: &mut Table) {
    let default = u64::from(Limits::default().connections_max);
    if sum > default && limits.value("connections_max").is_none() {
        let kept = sum.min(CONNECTIONS_MOST.unsigned_abs());
        limits.set("connections_max", signed(kept), "what the listeners allow together");
    }
}
