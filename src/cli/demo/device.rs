//! The MQTT ends of the demo's simulated clients, without IO: a device that publishes numbered readings, and the datacenter's
//! consumer that hands them to the checker. The only file here that names the protocol crate.
//!
//! A device keeps what was not acknowledged and sends it again, marked as a repetition, with the same packet identifiers and
//! before anything new, on its next connection. Bounds: [`INFLIGHT_MAX`] messages under way; what waits behind them is a
//! number each.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tidegate_mqtt::client::PacketIds;
use tidegate_mqtt::packet::{Ack, Connect, Packet, Publish, Subscribe, SubscribeFilter, SubscribeOptions};
use tidegate_mqtt::{
    DecodeLimits, Decoded, Encode, PacketId, PacketType, PublishHeader, Qos, ReasonCode, Version,
    decode_next, encode_publish_header,
};

use super::checker::Checker;

/// Messages that a device has sent and that are not acknowledged.
pub const INFLIGHT_MAX: u16 = 64;

/// Keep-alive that the clients announce, in seconds.
pub const KEEP_ALIVE_SECS: u16 = 30;

/// What the devices publish to and the bridge carries, before the device's number.
pub const TOPIC_PREFIX: &str = "devices/";

/// What the consumer subscribes to.
pub const TOPIC_FILTER: &str = "devices/#";

const VERSION: Version = Version::V311;

/// The checker, shared by all clients of one demo.
#[derive(Clone, Debug)]
pub struct SharedChecker(Arc<Mutex<Checker>>);

impl SharedChecker {
    /// Shares `checker`.
    #[must_use]
    pub fn new(checker: Checker) -> Self {
        Self(Arc::new(Mutex::new(checker)))
    }

    /// Exclusive access; hold it briefly.
    pub fn lock(&self) -> MutexGuard<'_, Checker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end of a connection that somebody else moves the bytes of: [`open`](Self::open), then [`receive`](Self::receive) for
/// what arrives and [`publish`](Self::publish) whenever there is something to say.
pub trait Client: Send {
    /// A connection was opened. Writes the login.
    fn open(&mut self, out: &mut Vec<u8>);

    /// Takes the whole packets at the start of `input`, and returns how many bytes they had.
    ///
    /// # Errors
    /// What the peer did wrong; the connection must be closed.
    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, String>;

    /// Makes `count` messages and sends what may be sent.
    fn publish(&mut self, count: u64, out: &mut Vec<u8>);
}

/// Writes the packet that asks the peer for a sign of life.
pub fn write_ping(out: &mut Vec<u8>) {
    out.extend_from_slice(&[PacketType::Pingreq.first_byte(), 0]);
}

/// What a device measures.
#[derive(Debug, Serialize, Deserialize)]
struct Reading {
    device: usize,
    number: u32,
    celsius: f32,
    note: String,
}

/// A simulated device.
#[derive(Debug)]
pub struct Device {
    index: usize,
    topic: String,
    checker: SharedChecker,
    ids: PacketIds,
    waiting: VecDeque<u32>,
    inflight: VecDeque<(PacketId, u32)>,
    accepted: bool,
    connections: u64,
}

impl Device {
    /// A device that has not connected.
    #[must_use]
    pub fn new(index: usize, checker: SharedChecker) -> Self {
        Self {
            index,
            topic: format!("{TOPIC_PREFIX}{index}/reading"),
            checker,
            ids: PacketIds::new(INFLIGHT_MAX),
            waiting: VecDeque::new(),
            inflight: VecDeque::new(),
            accepted: false,
            connections: 0,
        }
    }

    fn connected(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        self.accepted = true;
        self.connections += 1;
        if self.connections > 1 {
            self.checker.lock().reconnect(self.inflight.len());
        }
        for &(id, number) in &self.inflight {
            self.write_reading(id, number, true, out)?;
        }
        self.send_waiting(out)
    }

    fn acknowledged(&mut self, id: PacketId) {
        // An acknowledgement that nothing waits for harms nobody.
        if let Some(place) = self.inflight.iter().position(|(inflight, _)| *inflight == id) {
            if let Some((_, number)) = self.inflight.remove(place) {
                self.checker.lock().acknowledge(self.index, number);
            }
            self.ids.release(id);
        }
    }

    fn send_waiting(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        while self.accepted && !self.waiting.is_empty() {
            let Some(id) = self.ids.allocate_message() else {
                break;
            };
            if let Some(number) = self.waiting.pop_front() {
                self.inflight.push_back((id, number));
                self.write_reading(id, number, false, out)?;
            }
        }
        Ok(())
    }

    fn write_reading(&self, id: PacketId, number: u32, dup: bool, out: &mut Vec<u8>) -> Result<(), String> {
        let celsius = 20.0 + f32::from(u8::try_from(number % 100).unwrap_or(0)) / 10.0;
        let note = "a reading of the demo, about 100 bytes".to_owned();
        let reading = Reading { device: self.index, number, celsius, note };
        let payload = serde_json::to_vec(&reading).map_err(|error| error.to_string())?;
        let topic = self.topic.as_str();
        let qos = Qos::AtLeastOnce;
        let header = PublishHeader { dup, qos, retain: false, topic, packet_id: Some(id), properties: () };
        encode_publish_header(out, VERSION, &header, payload.len()).map_err(|error| error.to_string())?;
        out.extend_from_slice(&payload);
        Ok(())
    }
}

impl Client for Device {
    fn open(&mut self, out: &mut Vec<u8>) {
        self.accepted = false;
        write_login(&format!("demo-device-{}", self.index), out);
    }

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, String> {
        let taken = each_packet(input, |packet| match packet {
            Packet::Connack(connack) if connack.reason == ReasonCode::Success => self.connected(out),
            Packet::Connack(connack) => Err(format!("the login was refused: {:?}", connack.reason)),
            Packet::Puback(ack) => {
                self.acknowledged(ack.packet_id);
                Ok(())
            }
            Packet::Pingresp => Ok(()),
            other => Err(format!("a device was sent {:?}", other.packet_type())),
        })?;
        self.send_waiting(out)?;
        Ok(taken)
    }

    fn publish(&mut self, count: u64, out: &mut Vec<u8>) {
        for _ in 0..count {
            let Some(number) = self.checker.lock().publish(self.index) else {
                break;
            };
            self.waiting.push_back(number);
        }
        self.send_waiting(out).expect("a reading is always small enough for a packet");
    }
}

/// The datacenter's consumer: a persistent session on all readings.
#[derive(Debug)]
pub struct Consumer {
    checker: SharedChecker,
    subscribed: tokio::sync::watch::Sender<bool>,
}

impl Consumer {
    /// A consumer that has not connected; `subscribed` is set once its subscription is granted.
    #[must_use]
    pub fn new(checker: SharedChecker, subscribed: tokio::sync::watch::Sender<bool>) -> Self {
        Self { checker, subscribed }
    }

    fn take(&self, publish: &Publish<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        match parse_reading(publish.topic, publish.payload) {
            Some((device, number)) => self.checker.lock().arrive(device, number),
            None => self.checker.lock().arrive_foreign(),
        }
        match publish.packet_id {
            Some(packet_id) => Ack { packet_id, reason: ReasonCode::Success, properties: () }
                .encode_as(PacketType::Puback, VERSION, out)
                .map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }
}

impl Client for Consumer {
    fn open(&mut self, out: &mut Vec<u8>) {
        write_login("demo-consumer", out);
    }

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, String> {
        each_packet(input, |packet| match packet {
            Packet::Connack(connack) if connack.reason == ReasonCode::Success => write_subscribe(out),
            Packet::Connack(connack) => Err(format!("the login was refused: {:?}", connack.reason)),
            Packet::Suback(suback) => match suback.reasons.iter().next() {
                Some(ReasonCode::GrantedQos1) => {
                    self.subscribed.send_replace(true);
                    Ok(())
                }
                other => Err(format!("the subscription was not granted: {other:?}")),
            },
            Packet::Publish(publish) => self.take(&publish, out),
            Packet::Pingresp => Ok(()),
            other => Err(format!("the consumer was sent {:?}", other.packet_type())),
        })
    }

    fn publish(&mut self, _: u64, _: &mut Vec<u8>) {}
}

fn write_login(client_id: &str, out: &mut Vec<u8>) {
    let connect = Connect {
        version: VERSION,
        bridge: false,
        clean_start: false,
        keep_alive: KEEP_ALIVE_SECS,
        client_id,
        will: None,
        user_name: None,
        password: None,
        properties: (),
    };
    connect.encode(VERSION, out).expect("the demo's client identifiers are short");
}

fn write_subscribe(out: &mut Vec<u8>) -> Result<(), String> {
    let options = SubscribeOptions::with_qos(Qos::AtLeastOnce);
    let filters = [SubscribeFilter { filter: TOPIC_FILTER, options }];
    Subscribe { packet_id: PacketId::MIN, properties: (), filters }
        .encode(VERSION, out)
        .map_err(|error| error.to_string())
}

fn each_packet(
    input: &[u8],
    mut take: impl FnMut(Packet<'_>) -> Result<(), String>,
) -> Result<usize, String> {
    let mut taken = 0;
    loop {
        match decode_next(VERSION, &input[taken..], &DecodeLimits::default()) {
            Ok(Decoded::Packet { packet, consumed }) => {
                take(packet)?;
                taken += consumed;
            }
            Ok(Decoded::Incomplete { .. }) => return Ok(taken),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The device and the number, if topic and payload are those of a reading and agree.
fn parse_reading(topic: &str, payload: &[u8]) -> Option<(usize, u32)> {
    let reading: Reading = serde_json::from_slice(payload).ok()?;
    let device = topic.strip_prefix(TOPIC_PREFIX)?.strip_suffix("/reading")?.parse().ok()?;
    (reading.device == device).then_some((device, reading.number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNACK: [u8; 4] = [0x20, 2, 0, 0];

    fn puback(id: u8) -> [u8; 4] {
        [0x40, 2, 0, id]
    }

    /// Repetition flag, packet identifier and number of every PUBLISH in `bytes`.
    fn publishes(bytes: &[u8]) -> Vec<(bool, u16, u32)> {
        let mut found = Vec::new();
        let taken = each_packet(bytes, |packet| {
            if let Packet::Publish(publish) = packet {
                let (_, number) = parse_reading(publish.topic, publish.payload).unwrap();
                found.push((publish.dup, publish.packet_id.unwrap().get(), number));
            }
            Ok(())
        });
        assert_eq!(taken, Ok(bytes.len()), "only whole packets are written");
        found
    }

    fn connected_device() -> (Device, SharedChecker) {
        let checker = SharedChecker::new(Checker::new(1));
        let mut device = Device::new(0, checker.clone());
        let mut out = Vec::new();
        device.open(&mut out);
        assert_eq!(device.receive(&CONNACK, &mut out), Ok(4));
        (device, checker)
    }

    #[test]
    fn nothing_is_published_before_the_login_is_granted() {
        let checker = SharedChecker::new(Checker::new(1));
        let mut device = Device::new(0, checker.clone());
        let mut out = Vec::new();
        device.open(&mut out);
        device.publish(2, &mut out);
        assert_eq!(publishes(&out), []);
        out.clear();
        device.receive(&CONNACK, &mut out).unwrap();
        assert_eq!(publishes(&out), [(false, 1, 1), (false, 2, 2)]);
        assert_eq!(checker.lock().tally().published, 2);
    }

    #[test]
    fn unacknowledged_messages_are_sent_again_first_in_order_and_marked() {
        let (mut device, checker) = connected_device();
        device.publish(3, &mut Vec::new());
        device.receive(&puback(2), &mut Vec::new()).unwrap();
        let mut out = Vec::new();
        device.open(&mut out);
        device.publish(1, &mut out);
        assert_eq!(publishes(&out), []);
        out.clear();
        device.receive(&CONNACK, &mut out).unwrap();
        assert_eq!(publishes(&out), [(true, 1, 1), (true, 3, 3), (false, 4, 4)]);
        let tally = checker.lock().tally();
        assert_eq!((tally.acknowledged, tally.resent, tally.reconnects), (1, 2, 1));
    }

    #[test]
    fn at_most_a_window_is_under_way_and_an_acknowledgement_lets_the_next_one_go() {
        let (mut device, _) = connected_device();
        let mut out = Vec::new();
        device.publish(u64::from(INFLIGHT_MAX) + 5, &mut out);
        assert_eq!(publishes(&out).len(), usize::from(INFLIGHT_MAX));
        out.clear();
        device.receive(&puback(1), &mut out).unwrap();
        let next = u32::from(INFLIGHT_MAX) + 1;
        assert_eq!(publishes(&out), [(false, INFLIGHT_MAX + 1, next)]);
    }

    #[test]
    fn a_stray_acknowledgement_changes_nothing() {
        let (mut device, checker) = connected_device();
        device.receive(&puback(9), &mut Vec::new()).unwrap();
        assert_eq!(checker.lock().tally(), Checker::new(1).tally());
    }

    #[test]
    fn a_partial_packet_is_left_and_a_refused_login_is_an_error() {
        let checker = SharedChecker::new(Checker::new(1));
        let mut device = Device::new(0, checker);
        assert_eq!(device.receive(&CONNACK[..3], &mut Vec::new()), Ok(0));
        assert!(device.receive(&[0x20, 2, 0, 5], &mut Vec::new()).is_err());
    }

    #[test]
    fn the_consumer_subscribes_acknowledges_and_reports_what_arrives() {
        let (mut device, checker) = connected_device();
        let mut readings = Vec::new();
        device.publish(1, &mut readings);
        let (subscribed, granted) = tokio::sync::watch::channel(false);
        let mut consumer = Consumer::new(checker.clone(), subscribed);
        let mut out = Vec::new();
        consumer.receive(&CONNACK, &mut out).unwrap();
        assert_eq!(out[0], 0x82, "it subscribes once it is connected");
        consumer.receive(&[0x90, 3, 0, 1, 1], &mut Vec::new()).unwrap();
        assert!(*granted.borrow());
        out.clear();
        consumer.receive(&readings, &mut out).unwrap();
        assert_eq!(out, puback(1));
        assert_eq!(checker.lock().tally().arrived, 1);
    }

    #[test]
    fn a_payload_that_is_no_reading_is_foreign_and_still_acknowledged() {
        let checker = SharedChecker::new(Checker::new(1));
        let mut consumer = Consumer::new(checker.clone(), tokio::sync::watch::channel(false).0);
        let mut out = Vec::new();
        consumer.receive(&[0x32, 6, 0, 1, b'x', 0, 7, b'!'], &mut out).unwrap();
        assert_eq!(out, puback(7));
        assert_eq!(checker.lock().tally().foreign, 1);
    }

    #[test]
    fn a_reading_under_another_devices_topic_is_foreign() {
        assert_eq!(
            parse_reading("devices/1/reading", br#"{"device":2,"number":1,"celsius":1,"note":""}"#),
            None
        );
    }
}
