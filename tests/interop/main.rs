//! The gateway between real client libraries and a real central broker.
//!
//! Needs `mosquitto` and `mosquitto_pub`, a Python with `paho-mqtt` and `stomp.py` (`TIDEGATE_PYTHON`, else `python3`), and `node`
//! with the packages `mqtt`, `stompit` and `@stomp/stompjs` (`NODE_PATH`). Where one is missing the test says so and does not run; in CI (`CI` is set) it fails
//! unless `TIDEGATE_ALLOW_SKIP=1`. `TIDEGATE_INTEROP_MESSAGES` sets the number of messages of a run.
#![allow(clippy::unwrap_used)]

#[path = "../harness/mod.rs"]
mod harness;

mod browser;
mod clients;
mod device;
mod import;
mod import_access;
mod import_links;
mod reader;
mod stomp;
mod tools;
mod transports;
mod upstream;

use device::Device;
use harness::{Gateway, GatewayOptions, PATIENCE, Proxy, Random, eventually};
use reader::Reader;
use tools::Tools;
use upstream::Upstream;

/// Messages of a run that does not say otherwise, over all devices.
const MESSAGES_DEFAULT: u64 = 2000;

/// Steps that the messages of a run are spread over.
const STEPS: u64 = 7;

fn messages() -> u64 {
    let text = std::env::var("TIDEGATE_INTEROP_MESSAGES").ok();
    text.map_or(MESSAGES_DEFAULT, |text| text.parse().expect("TIDEGATE_INTEROP_MESSAGES is a number"))
}

/// Devices and how far they may go.
struct Fleet {
    devices: Vec<Device>,
    allowed: u64,
    each: u64,
    random: Random,
}

impl Fleet {
    fn new(devices: Vec<Device>, random: Random) -> Self {
        let each = messages().div_ceil(devices.len() as u64);
        Self { devices, allowed: 0, each, random }
    }

    /// Lets every device publish its share of a step, and waits until a random part of it is acknowledged.
    fn begin_step(&mut self) {
        let step = self.each / STEPS;
        let last = self.allowed + 2 * step > self.each;
        self.allowed = if last { self.each } else { self.allowed + step };
        let part = self.random.below(step);
        for device in &mut self.devices {
            device.allow(self.allowed);
        }
        self.await_acknowledged(self.allowed - part);
    }

    /// Waits until everything that was allowed is acknowledged.
    fn end_step(&mut self) {
        self.await_acknowledged(self.allowed);
    }

    fn step(&mut self) {
        self.begin_step();
        self.end_step();
    }

    fn await_acknowledged(&mut self, count: u64) {
        let devices = &self.devices;
        eventually("acknowledgements of all devices", PATIENCE.saturating_mul(2), || {
            let missing = devices.iter().find(|device| device.acknowledged() < count);
            missing.map_or(Ok(()), |device| Err(format!("{device:?} of {count}")))
        });
    }

    fn finish(self) -> u64 {
        assert_eq!(self.allowed, self.each);
        for device in self.devices {
            device.finish();
        }
        self.each
    }
}

fn bridged(upstream: &Proxy, protocol: u8) -> Gateway {
    let config = format!(
        "[[bridge]]\nname = \"central\"\nurl = \"mqtt://{}\"\nprotocol = {protocol}\nclient_id = \"gateway\"\n\
         backoff_min = \"50ms\"\nbackoff_max = \"500ms\"\n\n[[bridge.out]]\nfilter = \"plant/#\"\nqos = 1\n",
        upstream.address()
    );
    GatewayOptions::new().config(&config).start()
}

/// Three outages of the upstream, three kills of the gateway, three kinds of devices.
fn nothing_is_lost_on_the_way_to_the_central_broker(tools: &Tools, protocol: u8) {
    let mut central = Upstream::start(tools);
    let network = Proxy::to(central.address()).unwrap();
    let mut gateway = bridged(&network, protocol);
    let reader = Reader::start(central.address(), "plant/#", 1);
    let random = Random::for_test("interop");
    let devices = vec![
        Device::mosquitto_pub(tools, gateway.address(), "plant/hall/mosquitto"),
        Device::paho(tools, gateway.address(), "plant/hall/paho", 1),
        Device::mqtt_js(tools, gateway.address(), "plant/hall/node", 1),
    ];
    let mut fleet = Fleet::new(devices, random);

    fleet.step();
    // The central broker is restarted; meanwhile the gateway keeps everything.
    central.stop();
    fleet.step();
    central.restart();
    fleet.begin_step();
    gateway.kill();
    gateway.spawn();
    fleet.end_step();
    // The network is cut, and the gateway dies while it is.
    network.cut();
    fleet.begin_step();
    gateway.kill();
    gateway.spawn();
    fleet.end_step();
    network.mend();
    // It dies again while it catches up.
    fleet.begin_step();
    gateway.kill();
    gateway.spawn();
    fleet.end_step();
    central.stop();
    fleet.step();
    central.restart();
    fleet.step();

    let each = fleet.finish();
    let topics = ["plant/hall/mosquitto", "plant/hall/paho", "plant/hall/node"];
    let repeated = reader.await_all(&topics.map(|topic| (topic, each)));
    gateway.await_status("an empty queue towards the central broker", |status| {
        (status["queues_total"]["messages"] == 0).then_some(())
    });
    eprintln!(
        "MQTT level {protocol} upstream: {} messages arrived, {repeated} repetitions, 0 lost",
        3 * each
    );
}

#[test]
fn nothing_is_lost_on_the_way_to_the_central_broker_over_mqtt_3_1_1() {
    if let Some(tools) = Tools::find() {
        nothing_is_lost_on_the_way_to_the_central_broker(&tools, 4);
    }
}

#[test]
fn nothing_is_lost_on_the_way_to_the_central_broker_over_mqtt_5() {
    if let Some(tools) = Tools::find() {
        nothing_is_lost_on_the_way_to_the_central_broker(&tools, 5);
    }
}

#[test]
fn level_2_between_real_clients_and_the_gateway_is_exactly_once_through_kills() {
    let Some(tools) = Tools::find() else { return };
    let mut gateway = Gateway::start();
    let reader = Reader::start(gateway.address(), "exact/#", 2);
    let devices = vec![
        Device::paho(&tools, gateway.address(), "exact/paho", 2),
        Device::mqtt_js(&tools, gateway.address(), "exact/node", 2),
    ];
    let mut fleet = Fleet::new(devices, Random::for_test("interop at level 2"));
    fleet.step();
    for _ in 0..3 {
        fleet.begin_step();
        gateway.kill();
        gateway.spawn();
        fleet.end_step();
        fleet.step();
    }
    let each = fleet.finish();
    reader.await_all(&[("exact/paho", each), ("exact/node", each)]);
    eprintln!("QoS 2: {} messages arrived, 0 lost, 0 twice", 2 * each);
}
