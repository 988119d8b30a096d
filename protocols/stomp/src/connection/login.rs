//! CONNECT and its answer.

use super::event::{Connect, Event, Violation};
use super::inbound::invalid;
use super::outbound::SendError;
use super::{Connection, Phase};
use crate::codec::FrameWriter;
use crate::frame::Frame;
use crate::types::{Command, HeartBeat, Version};
use alloc::vec::Vec;

/// The shortest interval between two looks at the clock for heart-beats.
const BEAT_MS_MIN: u32 = 1;

/// What CONNECTED tells an accepted client, beside what the connection knows: version and heart-beat.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acceptance<'a> {
    /// The session's number. It has to be unique among connections and hard to guess: it is part of the
    /// identifiers that messages are acknowledged by, so that no client can name those of another.
    pub session: u64,
    /// The `server` header, `name/version`, and perhaps a comment after a space.
    pub server: Option<&'a str>,
}

impl Connection {
    /// Handles the first frame.
    pub(super) fn connect_received<'a>(&mut self, frame: &Frame<'a>) -> Result<Event<'a>, Violation> {
        if !frame.command.is_connect() {
            return Err(Violation::NotConnected);
        }
        let headers = frame.headers;
        if headers.get("accept-version").is_some_and(|accepted| Version::negotiate(&accepted).is_none()) {
            return Err(Violation::UnsupportedVersion);
        }
        self.version = frame.version;
        self.version_known = true;
        let host = headers.get("host");
        if host.is_none() && self.settings.options.host_required && self.version != Version::V10 {
            return Err(Violation::HeaderMissing { command: frame.command, header: "host" });
        }
        let heart_beat = match headers.get("heart-beat") {
            Some(value) if self.version != Version::V10 => {
                HeartBeat::parse(&value).ok_or(invalid(frame, "heart-beat"))?
            }
            _ => HeartBeat::default(),
        };
        self.client_heart_beat = heart_beat;
        self.phase = Phase::Login;
        let (login, passcode) = (headers.get("login"), headers.get("passcode"));
        Ok(Event::Connect(Connect { version: self.version, host, login, passcode, heart_beat, headers }))
    }

    /// Writes CONNECTED and lets the client in.
    ///
    /// # Errors
    /// [`SendError`]; nothing is written and the client is not let in then.
    pub fn accept(
        &mut self,
        out: &mut Vec<u8>,
        acceptance: &Acceptance<'_>,
        now: u64,
    ) -> Result<(), SendError> {
        if self.phase != Phase::Login {
            return Err(SendError::NotOpen);
        }
        self.write_connected(out, acceptance)?;
        self.session = acceptance.session;
        self.agree_on_heart_beats(now);
        self.phase = Phase::Open;
        self.blocked = false;
        Ok(())
    }

    fn write_connected(&mut self, out: &mut Vec<u8>, acceptance: &Acceptance<'_>) -> Result<(), SendError> {
        let offer = self.settings.options.heart_beat;
        let mut frame = FrameWriter::new(out, self.version, Command::Connected)?;
        frame.header("version", self.version.as_str())?;
        frame.display("session", format_args!("{:016x}", acceptance.session))?;
        frame.optional("server", acceptance.server)?;
        if self.version != Version::V10 {
            frame.display("heart-beat", format_args!("{},{}", offer.send_ms, offer.receive_ms))?;
        }
        frame.end(b"")?;
        self.end_frame(out);
        Ok(())
    }

    /// Each direction has the slower of the two wishes (STOMP 1.1, "Heart-beating"). The client may be late, by
    /// the tolerance; the server is early, because its beats may wait for a timer and for the network: it looks
    /// four times per interval whether it has written, so that silence lasts half of one at most.
    fn agree_on_heart_beats(&mut self, now: u64) {
        let (server, client) = (self.settings.options.heart_beat, self.client_heart_beat);
        let out_ms = server.interval_to(client);
        self.beat_ms = if out_ms == 0 { 0 } else { out_ms.div_ceil(4).max(BEAT_MS_MIN) };
        let in_ms = u64::from(client.interval_to(server));
        let late = in_ms.saturating_mul(u64::from(self.settings.options.tolerance_percent)) / 100;
        let late = late.max(u64::from(self.settings.options.tolerance_ms_min));
        self.silence_ms_max = if in_ms == 0 { 0 } else { in_ms + late };
        self.heard_ms = now;
        self.beat_at_ms = now.saturating_add(u64::from(self.beat_ms));
    }
}
