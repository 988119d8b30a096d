//! Certificates that say who a client is, who may open a Unix socket, and how many connections the system allows.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::access::Place;
use crate::harness::{
    Authority, Client, Far, Filter, Gateway, GatewayOptions, Login, Message, Tunnel, Version, free_port,
    program,
};

const NOT_AUTHORIZED: u8 = 0x87;

/// A gateway with a TLS listener for each kind of name, whose clients own what lies below their names.
struct Named {
    gateway: Gateway,
    authority: Authority,
    files: tempfile::TempDir,
    ports: [u16; 3],
}

/// The names that the certificate of "device-7" gives.
const NAMES: [(&str, &str); 3] = [("cn", "device-7"), ("subject", "CN=device-7"), ("san", "localhost")];

impl Named {
    fn new() -> Self {
        let files = tempfile::tempdir().unwrap();
        let authority = Authority::new("tidegate test authority");
        authority.sign("server", files.path());
        authority.write(&files.path().join("ca.pem"));
        let at = |name: &str| files.path().join(name).display().to_string();
        let mut place = Place::new().rules("allow all own/%u/#\nallow read all/# user *\n");
        let ports = std::array::from_fn(|_| free_port());
        let mut listen = Vec::new();
        for ((kind, _), port) in NAMES.iter().zip(ports) {
            let url = format!("mqtts://127.0.0.1:{port}");
            place = place.config(&format!(
                "[[listener]]\nurl = \"{url}\"\ncert_file = \"{}\"\nkey_file = \"{}\"\nclient_ca_file = \"{}\"\n\
                 user_from_cert = \"{kind}\"\n",
                at("server.pem"),
                at("server.key"),
                at("ca.pem")
            ));
            listen.push(url);
        }
        let (options, folder) = place.options();
        let options = listen.iter().fold(options, |options, url| options.listen(url));
        Self { gateway: options.start_in(folder), authority, files, ports }
    }

    fn tunnel(&self, kind: usize) -> Tunnel {
        let own = self.authority.sign("device-7", self.files.path());
        Tunnel::to(Far::Tls(self.ports[kind], self.authority.client(Some(&own))))
    }
}

#[test]
fn a_certificate_gives_its_client_the_name_by_which_the_rules_know_it() {
    let named = Named::new();
    for (at, (kind, name)) in NAMES.into_iter().enumerate() {
        let tunnel = named.tunnel(at);
        // What it claims to be counts for nothing beside that.
        for login in [Login::fresh(Version::V5, "c"), Login::fresh(Version::V5, "c").user("admin", "wrong")] {
            let mut client = login.open(tunnel.address()).unwrap();
            let own = format!("own/{name}/x");
            let filters = [Filter::new(&own, 1), Filter::new("own/admin/#", 1), Filter::new("all/#", 0)];
            let codes = client.subscribe_all(None, &filters).unwrap();
            assert_eq!(codes, [1, NOT_AUTHORIZED, 0], "{kind}");
            assert_eq!(client.publish(&Message::new(&own, "mine", 1)).unwrap(), 0, "{kind}");
            assert_eq!(client.message().unwrap().topic, own);
            assert_eq!(
                client.publish(&Message::new("own/other/x", "no", 1)).unwrap(),
                NOT_AUTHORIZED,
                "{kind}"
            );
            let told = named.gateway.run(&["acl", "explain", name, "c", "write", &own]);
            assert!(told.output.starts_with("allowed: "), "{kind}: {}", told.output);
        }
    }
}

#[test]
fn a_session_of_a_certificate_belongs_to_its_name() {
    let named = Named::new();
    let [cn, _, san] = std::array::from_fn(|at| named.tunnel(at));
    let session = Login::persistent(Version::V311, "shared");
    let mut first = session.open(cn.address()).unwrap();
    assert_eq!(session.ask(san.address()).unwrap().connack.reason, NOT_AUTHORIZED);
    first.ping().unwrap();
    assert!(session.open(cn.address()).unwrap().connack.session_present);
}

#[test]
fn a_unix_socket_has_the_permissions_that_are_configured() {
    let files = tempfile::tempdir().unwrap();
    let [open, closed] = ["open.sock", "closed.sock"].map(|name| files.path().join(name));
    let mut options = GatewayOptions::new();
    let mut config = String::new();
    for (path, mode) in [(&open, "0666"), (&closed, "600")] {
        let url = format!("mqtt+unix://{}", path.display());
        config += &format!("[[listener]]\nurl = \"{url}\"\nmode = \"{mode}\"\n");
        options = options.listen(&url);
    }
    let mut gateway = options.config(&config).start();
    for _ in 0..2 {
        for (path, mode) in [(&open, 0o666), (&closed, 0o600)] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
            let tunnel = Tunnel::to(Far::Unix(path.clone()));
            Login::fresh(Version::V5, "c").open(tunnel.address()).unwrap().ping().unwrap();
        }
        gateway.kill();
        gateway.restart();
    }
}

#[test]
fn no_more_connections_are_promised_than_the_system_has_descriptors_for() {
    let folder = tempfile::Builder::new().prefix("tidegate-test-").tempdir().unwrap();
    let script = folder.path().join("limited");
    let text = format!("#!/bin/sh\nulimit -n 148 && exec '{}' \"$@\"\n", program().display());
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let gateway = GatewayOptions::new().program(Some(script)).start_in(folder);
    let log = gateway.log();
    assert!(log.contains("limits.connections_max is lowered to 20"), "{log}");
    let client = |number: usize| Login::fresh(Version::V5, &format!("c{number}")).open(gateway.address());
    let mut clients: Vec<Client> = (0..20).map(|number| client(number).unwrap()).collect();
    assert!(client(20).is_err(), "one more than there is room for");
    clients.iter_mut().for_each(|client| client.ping().unwrap());
    clients.pop().unwrap().disconnect().unwrap();
    client(21).unwrap().ping().unwrap();
    assert!(gateway.log().lines().all(|line| !line.contains("cannot be accepted")), "no want of descriptors");
}
