//! Time per packet of what a broker does most: receiving, acknowledging and writing small messages.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Instant;
use tidegate_mqtt::connection::Acceptance;
use tidegate_mqtt::packet::Publish;
use tidegate_mqtt::{
    Connection, ConnectionLimits, DecodeLimits, Encode, Event, PacketId, Property, PublishHeader, Qos,
    ReasonCode, Received, Version, decode, encode_publish_header,
};

const ROUNDS: u32 = 2_000_000;
const TOPIC: &str = "plant/line-4/press/temperature";

/// Prints the mean of the best of five runs.
fn measure(name: &str, mut step: impl FnMut()) {
    let run = |step: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| step());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
    };
    let best = (0..5).map(|_| run(&mut step)).fold(f64::INFINITY, f64::min);
    println!("{name:<52} {best:7.1} ns");
}

fn packet(version: Version, qos: Qos, packet_id: Option<PacketId>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let properties = ();
    let publish =
        Publish { dup: false, qos, retain: false, topic: TOPIC, packet_id, properties, payload: &[7; 32] };
    publish.encode(version, &mut bytes).unwrap();
    bytes
}

fn open(version: Version) -> Connection {
    let client = tidegate_mqtt::packet::Connect {
        version,
        bridge: false,
        clean_start: true,
        keep_alive: 60,
        client_id: "bench",
        will: None,
        user_name: None,
        password: None,
        properties: (),
    };
    let mut bytes = Vec::new();
    client.encode(version, &mut bytes).unwrap();
    let mut connection = Connection::new(ConnectionLimits::default(), 0);
    connection.receive(&bytes, 0).unwrap();
    connection.accept(&mut bytes, &Acceptance::default(), 0).unwrap();
    connection
}

fn main() {
    let limits = DecodeLimits::default();
    let mut out = Vec::with_capacity(4096);
    for version in [Version::V311, Version::V5] {
        let bytes = packet(version, Qos::AtLeastOnce, Some(PacketId::MIN));
        measure(&format!("MQTT {version}: decode PUBLISH"), || {
            black_box(decode(version, black_box(&bytes), &limits).unwrap());
        });
        let header = PublishHeader {
            dup: false,
            qos: Qos::AtLeastOnce,
            retain: false,
            topic: TOPIC,
            packet_id: Some(PacketId::MIN),
            properties: (),
        };
        measure(&format!("MQTT {version}: encode PUBLISH with its payload"), || {
            out.clear();
            encode_publish_header(&mut out, version, black_box(&header), 32).unwrap();
            out.extend_from_slice(black_box(&[7; 32]));
            black_box(&out);
        });
        let mut connection = open(version);
        measure(&format!("MQTT {version}: receive QoS 1 and write PUBACK"), || {
            out.clear();
            let received = connection.receive(black_box(&bytes), 1).unwrap();
            let Received::Event { event: Event::Publish(publish), .. } = received else { panic!() };
            connection.puback(&mut out, publish.packet_id.unwrap(), ReasonCode::Success, ());
            black_box(&out);
        });
        let bytes = packet(version, Qos::AtMostOnce, None);
        measure(&format!("MQTT {version}: receive QoS 0"), || {
            black_box(connection.receive(black_box(&bytes), 1).unwrap());
        });
        measure(&format!("MQTT {version}: write PUBLISH through a connection"), || {
            out.clear();
            connection.publish(&mut out, black_box(&header), black_box(&[7; 32])).unwrap();
            black_box(&out);
        });
    }
    let expiring = PublishHeader {
        dup: false,
        qos: Qos::AtMostOnce,
        retain: false,
        topic: TOPIC,
        packet_id: None,
        properties: [Property::MessageExpiryInterval(60), Property::UserProperty(("unit", "degree"))],
    };
    measure("MQTT 5.0: encode PUBLISH with two properties", || {
        out.clear();
        encode_publish_header(&mut out, Version::V5, black_box(&expiring), 0).unwrap();
        black_box(&out);
    });
    measure("MQTT 5.0: decode PUBLISH with two properties", || {
        black_box(decode(Version::V5, black_box(&out), &limits).unwrap());
    });
}
