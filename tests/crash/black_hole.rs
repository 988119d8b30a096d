//! An uplink that takes every byte and answers nothing, and a gateway that is killed meanwhile.

use std::collections::BTreeSet;

use crate::harness::{Gateway, GatewayOptions, Login, Message, Proxy, Version};

/// Times that the network turns into a black hole.
const ROUNDS: u64 = 3;
/// Messages before it does, into it, and into it after the gateway was killed.
const PARTS: [u64; 3] = [50, 200, 50];

fn publish(gateway: &Gateway, numbers: std::ops::Range<u64>) {
    let mut device = Login::fresh(Version::V5, "device").open(gateway.address()).unwrap();
    for n in numbers {
        device.publish(&Message::new("plant/readings", n.to_string(), 1)).unwrap();
    }
    device.disconnect().unwrap();
}

#[test]
fn nothing_is_lost_in_an_uplink_that_swallows_everything_while_the_gateway_is_killed() {
    let upstream = Gateway::start();
    let proxy = Proxy::to(upstream.address()).unwrap();
    let config = format!(
        "[[bridge]]\nname = \"central\"\nurl = \"mqtt://{}\"\nclient_id = \"gateway\"\n\
         ack_timeout = \"1s\"\nconnect_timeout = \"1s\"\nbackoff_min = \"50ms\"\nbackoff_max = \"200ms\"\n\n\
         [[bridge.out]]\nfilter = \"plant/#\"\n",
        proxy.address()
    );
    let mut gateway = GatewayOptions::new().config(&config).start();
    let mut central = Login::persistent(Version::V5, "central").open(upstream.address()).unwrap();
    central.subscribe("plant/#", 1).unwrap();
    let (mut sent, mut seen, mut first) = (0, BTreeSet::new(), vec![]);
    for _ in 0..ROUNDS {
        gateway.await_status("the link", |status| (status["links"][0]["state"] == "up").then_some(()));
        for (part, count) in PARTS.into_iter().enumerate() {
            if part == 1 {
                proxy.swallow();
            }
            if part == 2 {
                gateway.kill();
                gateway.restart();
            }
            publish(&gateway, sent..sent + count);
            sent += count;
        }
        gateway.await_status("a failure", |status| {
            status["links"][0]["state"].as_str().filter(|s| *s != "up").map(drop)
        });
        proxy.mend();
        while (seen.len() as u64) < sent {
            let n: u64 = central.message().unwrap().text().parse().unwrap();
            if seen.insert(n) {
                first.push(n);
            }
        }
    }
    assert!(first.iter().copied().eq(0..sent), "order of first deliveries: {first:?}");
}
