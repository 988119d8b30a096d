//! Certificates that are replaced while devices come and go.

use std::io;

use super::{VALID_UNTIL, World};
use crate::harness::{Far, Gateway, GatewayOptions, Login, Message, PATIENCE, Tunnel, Version, eventually};

/// Reconnects of a run that does not say otherwise.
const RECONNECTS_DEFAULT: u32 = 60;

fn reconnects() -> u32 {
    let text = std::env::var("TIDEGATE_TLS_RECONNECTS").ok();
    text.map_or(RECONNECTS_DEFAULT, |text| text.parse().expect("TIDEGATE_TLS_RECONNECTS is a number"))
}

/// One life of a device: it connects, publishes, and is gone once it has its acknowledgement.
fn report(tunnel: &Tunnel, number: u32) -> io::Result<()> {
    let mut device = Login::fresh(Version::V5, "device").open(tunnel.address())?;
    device.publish(&Message::new("reports", number.to_string(), 1)).map(drop)
}

fn said(gateway: &Gateway, what: &str) {
    eventually(what, PATIENCE, || if gateway.log().contains(what) { Ok(()) } else { Err(String::new()) });
}

#[test]
fn devices_reconnect_over_tls_while_the_certificate_changes_and_lose_nothing() {
    let world = World::new();
    let gateway = &world.gateway;
    let keeper = Login::persistent(Version::V5, "keeper");
    keeper.open(gateway.address()).unwrap().subscribe("reports", 1).unwrap();
    let tunnel = Tunnel::to(Far::Tls(world.mqtts, world.client()));
    let count = reconnects();
    let mut acknowledged = Vec::new();
    let mut warm = None;
    for number in 0..count {
        if number == count / 4 {
            warm = Some((gateway.rss(), gateway.descriptors()));
        }
        if number == count / 2 {
            world.authority.sign("server", world.folder());
            gateway.signal_reload();
        }
        report(&tunnel, number).unwrap();
        acknowledged.push(number.to_string());
    }
    said(gateway, "certificates read again");
    let (rss, descriptors) = warm.unwrap();
    let mut reader = keeper.open(gateway.address()).unwrap();
    let mut got = Vec::new();
    while got.len() < acknowledged.len() {
        got.push(String::from_utf8(reader.message().unwrap().payload).unwrap());
    }
    assert_eq!(got, acknowledged);
    eventually("all descriptors are given back", PATIENCE, || {
        let now = gateway.descriptors();
        if now <= descriptors + 2 { Ok(()) } else { Err(format!("{now} after {descriptors}")) }
    });
    let now = gateway.rss();
    eprintln!("{count} reconnects: {} KiB resident after a quarter, {} KiB at the end", rss >> 10, now >> 10);
    assert!(now < rss + (6 << 20), "{} KiB after {} KiB", now >> 10, rss >> 10);
}

#[test]
fn new_connections_get_the_new_certificate_and_old_ones_go_on() {
    let world = World::new();
    let old = Tunnel::to(Far::Tls(world.mqtts, world.client()));
    let mut before = Login::fresh(Version::V5, "before").open(old.address()).unwrap();
    let successor = crate::harness::Authority::new("the next authority");
    successor.sign("server", world.folder());
    world.gateway.signal_reload();
    said(&world.gateway, "certificates read again");
    let new = Tunnel::to(Far::Tls(world.mqtts, successor.client(None)));
    Login::fresh(Version::V5, "after").open(new.address()).unwrap().ping().unwrap();
    assert!(Login::fresh(Version::V5, "late").open(old.address()).is_err(), "signed by nobody it trusts");
    before.ping().unwrap();
}

#[test]
fn a_revoked_certificate_opens_no_connection_any_more_also_when_the_list_is_out_of_date() {
    let world = World::with(GatewayOptions::new().expect_error("the configuration was not read again"));
    let list = world.folder().join("clients.crl");
    let own = ["device-7", "device-8"].map(|name| world.authority.sign(name, world.folder()));
    let [good, bad] =
        own.each_ref().map(|own| Tunnel::to(Far::Tls(world.mutual, world.authority.client(Some(own)))));
    let open = |client: &str, tunnel: &Tunnel| Login::fresh(Version::V5, client).open(tunnel.address());
    let mut before = open("before", &bad).unwrap();
    let revoked = [own[1].0.as_path()];
    for (turn, until) in [VALID_UNTIL, 2021].into_iter().enumerate() {
        world.authority.revoke(&revoked, until, &list);
        world.gateway.signal_reload();
        eventually("the certificates are read again", PATIENCE, || {
            // Once for each of the three listeners that have some.
            let count = world.gateway.log().matches("certificates read again").count();
            if count >= 3 * (turn + 1) { Ok(()) } else { Err(format!("{count} times")) }
        });
        open("good", &good).unwrap().ping().unwrap();
        assert!(open("bad", &bad).is_err(), "it is revoked");
        before.ping().unwrap();
        let told = world.gateway.log().contains("a list of revoked certificates is out of date");
        assert_eq!(told, until < VALID_UNTIL);
    }
    std::fs::write(&list, "no list").unwrap();
    world.gateway.signal_reload();
    said(&world.gateway, "clients.crl: holds no list of revoked certificates in PEM form");
    assert!(open("bad", &bad).is_err(), "the old list is in force");
}

#[test]
fn a_bad_new_certificate_keeps_the_old_one_and_the_log_names_the_file() {
    let world = World::with(GatewayOptions::new().expect_error("the configuration was not read again"));
    std::fs::write(world.folder().join("server.pem"), "not a certificate").unwrap();
    world.gateway.signal_reload();
    said(&world.gateway, "server.pem: holds no certificate");
    let tunnel = Tunnel::to(Far::Tls(world.mqtts, world.client()));
    Login::fresh(Version::V5, "a").open(tunnel.address()).unwrap().ping().unwrap();
}
