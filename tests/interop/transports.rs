//! Real client libraries over WebSocket, with and without TLS.

use crate::Fleet;
use crate::device::Device;
use crate::harness::{Authority, Gateway, GatewayOptions, Random, free_port};
use crate::reader::Reader;
use crate::tools::Tools;

/// A gateway with a WebSocket listener and one in TLS.
pub struct Webbed {
    pub gateway: Gateway,
    pub ws: String,
    pub wss: String,
    pub files: tempfile::TempDir,
}

impl Webbed {
    pub fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let authority = Authority::new("tidegate interop authority");
        authority.sign("server", files.path());
        authority.write(&files.path().join("ca.pem"));
        let (ws, wss) =
            (format!("ws://localhost:{}/mqtt", free_port()), format!("wss://localhost:{}", free_port()));
        let file = |name: &str| files.path().join(name).display().to_string();
        let config = format!(
            "[[listener]]\nurl = \"{ws}\"\n[[listener]]\nurl = \"{wss}\"\ncert_file = \"{}\"\nkey_file = \"{}\"\n",
            file("server.pem"),
            file("server.key")
        );
        let gateway = GatewayOptions::new().listen(&ws).listen(&wss).config(&config).start();
        Self { gateway, ws, wss, files }
    }
}

#[test]
fn mqtt_js_over_websockets_is_exactly_once_through_kills() {
    let Some(tools) = Tools::find() else { return };
    let mut webbed = Webbed::start();
    let authority = webbed.files.path().join("ca.pem");
    let gateway = &mut webbed.gateway;
    let reader = Reader::start(gateway.address(), "web/#", 2);
    let devices = vec![
        Device::mqtt_js_at(&tools, &webbed.ws, None, "web/ws", 2),
        Device::mqtt_js_at(&tools, &webbed.wss, Some(&authority), "web/wss", 2),
    ];
    let mut fleet = Fleet::new(devices, Random::for_test("interop over WebSockets"));
    fleet.step();
    for _ in 0..3 {
        fleet.begin_step();
        gateway.kill();
        gateway.spawn();
        fleet.end_step();
        fleet.step();
    }
    let each = fleet.finish();
    reader.await_all(&[("web/ws", each), ("web/wss", each)]);
    eprintln!("WebSockets: {} messages arrived, 0 lost, 0 twice", 2 * each);
}
