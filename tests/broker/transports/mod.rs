//! Transports: TLS, WebSocket, Unix sockets, proxies, and what happens before a client has logged in.

mod before_login;
mod carry;
mod memory;
mod names;
mod rotation;
mod websocket;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;

use crate::harness::{Authority, Far, Gateway, GatewayOptions, Tunnel, free_port};

/// The year until whose end lists of revoked certificates hold.
const VALID_UNTIL: i32 = 2099;

/// A gateway with one listener of each kind.
struct World {
    gateway: Gateway,
    files: tempfile::TempDir,
    authority: Authority,
    mqtts: u16,
    mutual: u16,
    ws: u16,
    wss: u16,
    proxied: u16,
    socket: PathBuf,
}

impl World {
    fn new() -> Self {
        Self::with(GatewayOptions::new())
    }

    fn with(mut options: GatewayOptions) -> Self {
        let files = tempfile::tempdir().unwrap();
        let authority = Authority::new("tidegate test authority");
        authority.sign("server", files.path());
        authority.write(&files.path().join("ca.pem"));
        authority.revoke(&[], VALID_UNTIL, &files.path().join("clients.crl"));
        let [mqtts, mutual, ws, wss, proxied] = std::array::from_fn(|_| free_port());
        let socket = files.path().join("mqtt.sock");
        let at = |name: &str| files.path().join(name).display().to_string();
        let tls = format!("cert_file = \"{}\"\nkey_file = \"{}\"\n", at("server.pem"), at("server.key"));
        let ca = format!(
            "client_ca_file = \"{}\"\nclient_crl_file = \"{}\"\nuser_from_cert = \"cn\"\n",
            at("ca.pem"),
            at("clients.crl")
        );
        let mut config = String::new();
        for (url, more) in [
            (format!("mqtts://127.0.0.1:{mqtts}"), tls.clone()),
            (format!("mqtts://127.0.0.1:{mutual}"), format!("{tls}{ca}")),
            (format!("ws://127.0.0.1:{ws}"), String::new()),
            (format!("wss://127.0.0.1:{wss}"), tls.clone()),
            (format!("mqtt://127.0.0.1:{proxied}"), "proxy_protocol = true\n".to_owned()),
            (format!("mqtt+unix://{}", socket.display()), String::new()),
        ] {
            config.push_str(&format!("[[listener]]\nurl = \"{url}\"\n{more}"));
            options = options.listen(&url);
        }
        let gateway = options.config(&config).start();
        Self { gateway, files, authority, mqtts, mutual, ws, wss, proxied, socket }
    }

    fn folder(&self) -> &Path {
        self.files.path()
    }

    fn client(&self) -> Arc<ClientConfig> {
        self.authority.client(None)
    }

    /// A tunnel over each transport, with its name.
    fn tunnels(&self) -> Vec<(&'static str, Tunnel)> {
        let own = self.authority.sign("device-7", self.folder());
        let header = b"PROXY TCP4 10.0.0.7 127.0.0.1 4242 1883\r\n".to_vec();
        let far = [
            ("mqtts", Far::Tls(self.mqtts, self.client())),
            ("mutual", Far::Tls(self.mutual, self.authority.client(Some(&own)))),
            ("ws", Far::Ws(self.ws, usize::MAX)),
            ("ws split", Far::Ws(self.ws, 3)),
            ("wss", Far::Wss(self.wss, self.client(), 4096)),
            ("proxied", Far::Tcp(self.proxied, header)),
            ("unix", Far::Unix(self.socket.clone())),
        ];
        far.into_iter().map(|(name, far)| (name, Tunnel::to(far))).collect()
    }

    fn refused(&self, cause: &str) -> u64 {
        self.gateway.status()["traffic"]["refused_connections"][cause].as_u64().unwrap()
    }

    fn await_refused(&self, cause: &str, least: u64) {
        self.gateway.await_status(cause, |status| {
            (status["traffic"]["refused_connections"][cause].as_u64()? >= least).then_some(())
        });
    }
}
