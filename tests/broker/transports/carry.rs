//! Messages over every transport.

use super::World;
use crate::harness::{Filter, Login, Message, Version};

/// Larger than a read, a TLS record and what is encoded at a time.
const LARGE_BYTES: usize = 900_000;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn every_transport_carries_small_and_large_messages_in_order_both_ways() {
    let world = World::new();
    for (name, tunnel) in world.tunnels() {
        eprintln!("--- {name}");
        let mut near = Login::fresh(Version::V5, "near").open(tunnel.address()).unwrap();
        let mut plain = Login::fresh(Version::V311, "plain").open(world.gateway.address()).unwrap();
        near.subscribe("to/near", 1).unwrap();
        plain.subscribe("to/plain", 1).unwrap();
        // Over frames of a few bytes a large message is a matter of patience.
        let large = if name == "ws split" { 50_000 } else { LARGE_BYTES };
        for bytes in [0, 1, 20, 130, 5000, 70_000, large] {
            let payload = pattern(bytes);
            near.publish(&Message::new("to/plain", &payload, 1)).unwrap();
            plain.publish(&Message::new("to/near", &payload, 1)).unwrap();
            assert!(plain.message().unwrap().payload == payload, "{name} in, {bytes}");
            assert!(near.message().unwrap().payload == payload, "{name} out, {bytes}");
        }
        near.disconnect().unwrap();
        plain.disconnect().unwrap();
    }
}

#[test]
fn packets_of_one_read_are_all_heard_even_when_the_peer_closes_behind_them() {
    let world = World::new();
    for (name, tunnel) in world.tunnels() {
        eprintln!("--- {name}");
        let mut plain = Login::fresh(Version::V5, "plain").open(world.gateway.address()).unwrap();
        plain.subscribe("last/words", 0).unwrap();
        let mut near = Login::fresh(Version::V311, "near").open(tunnel.address()).unwrap();
        let packets: Vec<u8> = (0..20)
            .flat_map(|i| [&[0x30, 14, 0, 10][..], b"last/words", &[b'0', b'a' + i]].concat())
            .collect();
        near.raw(&packets).unwrap();
        drop(near);
        let got: Vec<_> = (0..20).map(|_| plain.message().unwrap().payload[1]).collect();
        assert_eq!(got, (b'a'..b'a' + 20).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn acknowledged_messages_of_every_transport_survive_a_kill() {
    let mut world = World::new();
    let subscriber = Login::persistent(Version::V5, "keeper");
    let mut keeper = subscriber.open(world.gateway.address()).unwrap();
    keeper.subscribe_all(None, &[Filter::new("kept/#", 1)]).unwrap();
    drop(keeper);
    let tunnels = world.tunnels();
    for (name, tunnel) in &tunnels {
        let mut near = Login::fresh(Version::V5, name).open(tunnel.address()).unwrap();
        for number in 0..10 {
            near.publish(&Message::new("kept/a", format!("{name} {number}"), 1)).unwrap();
        }
    }
    world.gateway.kill();
    world.gateway.restart();
    let mut keeper = subscriber.open(world.gateway.address()).unwrap();
    for (name, tunnel) in &tunnels {
        for number in 0..10 {
            let got = String::from_utf8(keeper.message().unwrap().payload).unwrap();
            assert_eq!(got, format!("{name} {number}"));
        }
        Login::fresh(Version::V5, name).open(tunnel.address()).unwrap().ping().unwrap();
    }
}

#[test]
fn a_stop_says_goodbye_over_every_transport() {
    let mut world = World::new();
    let tunnels = world.tunnels();
    let open = |(_, tunnel): &(&str, crate::harness::Tunnel)| {
        Login::fresh(Version::V5, "").open(tunnel.address()).unwrap()
    };
    let clients: Vec<_> = tunnels.iter().map(open).collect();
    assert!(world.gateway.stop().success());
    for (mut client, (name, _)) in clients.into_iter().zip(&tunnels) {
        assert_eq!(client.closed_because().unwrap(), Some(0x8b), "{name}");
    }
}

#[test]
fn a_client_certificate_must_be_there_and_of_the_right_authority() {
    let world = World::new();
    let stranger = crate::harness::Authority::new("somebody else");
    let foreign = stranger.sign("intruder", world.folder());
    for (name, config) in [
        ("none", world.client()),
        ("foreign", world.authority.client(Some(&foreign))),
        ("server unknown to the client", stranger.client(None)),
    ] {
        let tunnel = crate::harness::Tunnel::to(crate::harness::Far::Tls(world.mutual, config));
        assert!(Login::fresh(Version::V5, "x").open(tunnel.address()).is_err(), "{name}");
    }
    world.await_refused("handshake_failed", 3);
    world.gateway.assert_serves();
}
