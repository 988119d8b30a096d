//! Moves the bytes of a simulated client: connects, connects again after a jittered pause, keeps the connection alive.
//!
//! Bounds: [`BUFFER_BYTES_MAX`] for each direction's buffer (nothing is read while more waits to be written),
//! [`CONNECT_MILLIS_MAX`] for a connection attempt, [`SILENCE_MILLIS_MAX`] without a sign of the peer.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::device::{Client, write_ping};

/// Bytes that wait in one direction.
pub const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Milliseconds for a connection attempt.
pub const CONNECT_MILLIS_MAX: u64 = 2000;

/// Milliseconds without a sign of the peer; half of it, and the peer is asked for one.
pub const SILENCE_MILLIS_MAX: u64 = 10_000;

/// Shortest and longest pause between two attempts, in milliseconds.
const PAUSE_MILLIS: std::ops::Range<u64> = 50..500;

/// Milliseconds between two looks at the clock for a client that does not publish.
const IDLE_TICK_MILLIS: u64 = 100;

/// Shortest time between two looks at the clock.
const TICK_MILLIS_MIN: u64 = 5;

/// When a client makes messages.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Messages per second.
    pub per_second: u32,
    /// Makes messages while this holds `true`.
    pub publishing: watch::Receiver<bool>,
}

/// Counts how many messages are due.
struct Metronome {
    pace: Option<Pace>,
    start: Instant,
    made: u64,
}

impl Metronome {
    fn due(&mut self, now: Instant) -> u64 {
        let Some(pace) = &self.pace else {
            return 0;
        };
        if !*pace.publishing.borrow() {
            return 0;
        }
        let micros = u64::try_from(now.duration_since(self.start).as_micros()).unwrap_or(u64::MAX);
        let target = micros.saturating_mul(u64::from(pace.per_second)) / 1_000_000;
        let due = target.saturating_sub(self.made);
        self.made += due;
        due
    }

    fn tick(&self) -> Duration {
        let millis =
            self.pace.as_ref().map_or(IDLE_TICK_MILLIS, |pace| 1000 / u64::from(pace.per_second.max(1)));
        Duration::from_millis(millis.clamp(TICK_MILLIS_MIN, IDLE_TICK_MILLIS))
    }
}

/// Runs `client` against `address` until the task is aborted. `seed` spreads clients over time.
pub async fn run(address: SocketAddr, mut client: impl Client, pace: Option<Pace>, seed: u64) {
    let mut jitter = Jitter(seed);
    let first = Duration::from_millis(jitter.between(0..50));
    let mut metronome = Metronome { pace, start: Instant::now() + first, made: 0 };
    let mut out = Vec::new();
    sleep(first).await;
    loop {
        out.clear();
        if let Err(error) = connection(address, &mut client, &mut metronome, &mut out).await {
            tracing::debug!(%address, error, "a simulated client lost its connection");
        }
        // Not connected: what is due waits inside the client and writes nothing.
        sleep(Duration::from_millis(jitter.between(PAUSE_MILLIS))).await;
    }
}

async fn connection(
    address: SocketAddr,
    client: &mut impl Client,
    metronome: &mut Metronome,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let mut stream = timeout(Duration::from_millis(CONNECT_MILLIS_MAX), TcpStream::connect(address))
        .await
        .map_err(|_| "the connection attempt took too long".to_owned())?
        .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
        .map_err(|error| error.to_string())?;
    let (mut reader, mut writer) = stream.split();
    client.open(out);
    let mut ticker = interval(metronome.tick());
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut input = Vec::with_capacity(BUFFER_BYTES_MAX);
    let mut silence = Silence::new();
    loop {
        tokio::select! {
            read = reader.read_buf(&mut input), if out.len() < BUFFER_BYTES_MAX => {
                if read.map_err(|error| error.to_string())? == 0 {
                    return Err("the peer closed the connection".to_owned());
                }
                silence = Silence::new();
                let taken = client.receive(&input, out)?;
                input.drain(..taken);
                if input.len() >= BUFFER_BYTES_MAX {
                    return Err("the peer sent a packet that is too large".to_owned());
                }
            }
            written = writer.write(out), if !out.is_empty() => {
                let written = written.map_err(|error| error.to_string())?;
                out.drain(..written);
            }
            _ = ticker.tick() => {
                client.publish(metronome.due(Instant::now()), out);
                silence.check(out)?;
            }
        }
    }
}

/// How long the peer has said nothing.
struct Silence {
    since: Instant,
    asked: bool,
}

impl Silence {
    fn new() -> Self {
        Self { since: Instant::now(), asked: false }
    }

    fn check(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let silent = self.since.elapsed();
        if silent > Duration::from_millis(SILENCE_MILLIS_MAX) {
            return Err("the peer does not answer".to_owned());
        }
        if silent > Duration::from_millis(SILENCE_MILLIS_MAX / 2) && !self.asked {
            self.asked = true;
            write_ping(out);
        }
        Ok(())
    }
}

/// Small pseudo-random numbers (SplitMix64): good enough to spread reconnects.
struct Jitter(u64);

impl Jitter {
    fn between(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        range.start + (bits ^ (bits >> 31)) % (range.end - range.start)
    }
}
