//! A link between two gateways, seen from its local side.

use std::io::Write;

use crate::harness::{Gateway, GatewayOptions, Login, Message, Version};

#[test]
fn a_flood_of_qos_0_takes_no_place_from_what_a_link_must_carry() {
    const ROUNDS: u32 = 40;
    let upstream = Gateway::start();
    let config = format!(
        "[[bridge]]\nname = \"central\"\nurl = \"mqtt://{}\"\nclient_id = \"gateway\"\n\n\
         [[bridge.out]]\nfilter = \"plant/#\"\n",
        upstream.address()
    );
    let gateway = GatewayOptions::new().config(&config).start();
    let mut central = Login::fresh(Version::V5, "central").open(upstream.address()).unwrap();
    central.subscribe("plant/last", 1).unwrap();
    gateway.await_status("the link", |status| (status["links"][0]["state"] == "up").then_some(()));
    let mut device = Login::fresh(Version::V5, "device").open(gateway.address()).unwrap();
    let chatter = Message::new("plant/a", "x", 0).encode(Version::V5).repeat(1200);
    for round in 0..ROUNDS {
        let id = device.next_id();
        let last = Message { id, ..Message::new("plant/last", round.to_string(), 1) };
        let bytes = [chatter.clone(), last.encode(Version::V5)].concat();
        device.writer().unwrap().write_all(&bytes).unwrap();
        device.finish(1, id).unwrap();
        assert_eq!(central.message().unwrap().text(), round.to_string());
    }
    assert_eq!(gateway.status()["links"][0]["reconnects"], 0);
}
