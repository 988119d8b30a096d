//! The command line.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tidegate_mqtt::{Qos, Version};

use crate::check::STAMP_BYTES;

/// What to do to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Publishers and subscribers at full speed.
    Fan,
    /// Fills the queue of a subscriber that is away.
    Fill,
    /// Lets that subscriber come back and take everything.
    Drain,
    /// One message at a time: the next one leaves when the last one has arrived.
    PingPong,
    /// Messages at a fixed rate.
    Paced,
    /// Connections that do nothing.
    Idle,
    /// Connections that open, log in and close, one after the other.
    Connect,
    /// Many subscriptions with wildcards, then messages that match one each.
    Wildcard,
    /// Sets retained messages, then takes them all.
    Retained,
}

/// Loads an MQTT broker, checks what it delivers, and prints one line of JSON. Exit code 1: it delivered something wrong.
#[derive(Clone, Debug, Parser)]
pub struct Options {
    /// The scenario.
    pub kind: Kind,
    /// Where the broker listens.
    #[arg(long, default_value = "127.0.0.1:1883")]
    pub address: SocketAddr,
    /// Where the subscribers connect, if elsewhere: the other end of a bridge.
    #[arg(long)]
    pub subscribe_at: Option<SocketAddr>,
    /// The broker's process, for its processor time, memory and writes.
    #[arg(long)]
    pub pid: Option<u32>,
    /// Speak MQTT 5.0 instead of 3.1.1.
    #[arg(long)]
    pub v5: bool,
    /// Quality of service of publishers and subscriptions.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub qos: u8,
    /// Bytes of a payload.
    #[arg(long, default_value_t = 128, value_parser = payload_bytes)]
    pub size: usize,
    /// Messages, over all publishers.
    #[arg(long, default_value_t = 100_000)]
    pub count: u64,
    /// Messages that a publisher has under way without their acknowledgement.
    #[arg(long, default_value_t = 50)]
    pub window: u16,
    /// Publishers.
    #[arg(long, default_value_t = 1)]
    pub publishers: u32,
    /// Subscribers; each of them gets every message.
    #[arg(long, default_value_t = 1)]
    pub subscribers: u32,
    /// The subscribers' sessions outlive their connections.
    #[arg(long)]
    pub persistent: bool,
    /// Publishers stop after so many seconds, even when `count` is not reached.
    #[arg(long, default_value_t = 3600.0)]
    pub seconds: f64,
    /// Messages per second of `paced`.
    #[arg(long, default_value_t = 1000)]
    pub rate: u64,
    /// Connections of `idle` and `connect`.
    #[arg(long, default_value_t = 10_000)]
    pub connections: u32,
    /// Filters of `wildcard`.
    #[arg(long, default_value_t = 100_000)]
    pub filters: u64,
    /// Give up when nothing has moved for so many seconds.
    #[arg(long, default_value_t = 5.0)]
    pub silence: f64,
    /// Give up after so many seconds.
    #[arg(long, default_value_t = 120.0)]
    pub limit: f64,
}

impl Options {
    /// The protocol version to speak.
    pub fn version(&self) -> Version {
        if self.v5 { Version::V5 } else { Version::V311 }
    }

    /// The quality of service.
    pub fn qos(&self) -> Qos {
        Qos::from_bits(self.qos).expect("the range is checked by the command line")
    }

    /// Where subscribers connect.
    pub fn subscribe_address(&self) -> SocketAddr {
        self.subscribe_at.unwrap_or(self.address)
    }

    /// Longest pause without progress.
    pub fn silence(&self) -> Duration {
        Duration::from_secs_f64(self.silence)
    }

    /// Longest run.
    pub fn limit(&self) -> Duration {
        Duration::from_secs_f64(self.limit)
    }
}

fn payload_bytes(text: &str) -> Result<usize, String> {
    let bytes: usize = text.parse().map_err(|_| "not a number of bytes".to_owned())?;
    if bytes < STAMP_BYTES { Err(format!("a payload has at least {STAMP_BYTES} bytes")) } else { Ok(bytes) }
}
