//! Pages in a headless Chromium: MQTT over WSS with MQTT.js, STOMP over WebSocket with @stomp/stompjs.
//!
//! The browser takes the gateway's certificate unseen: its authorities are no concern of these tests. A page is a file, so nothing
//! but the gateway is reached over a network.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::harness::{Client, Login, Message, PATIENCE, Version};
use crate::tools::{Tools, bundle, chromium};
use crate::transports::Webbed;

/// Messages in each direction.
const MESSAGES: usize = 50;

const MQTT_PAGE: &str = r#"<!DOCTYPE html><html><body><script src="library.js"></script><script>
const client = mqtt.connect('ADDRESS', { clientId: 'page', protocolVersion: 5, reconnectPeriod: 0 })
client.on('connect', () => client.subscribe('to/page', { qos: 1 }, () => client.publish('from/page', 'ready', { qos: 1 })))
client.on('message', (topic, payload) => {
  client.publish('from/page', 'echo ' + payload.toString(), { qos: 2 })
})
</script></body></html>"#;

/// Each answer is sent in a transaction, of which every other one is rolled back before.
const STOMP_PAGE: &str = r#"<!DOCTYPE html><html><body><script src="library.js"></script><script>
const client = new StompJs.Client({ brokerURL: 'ADDRESS', reconnectDelay: 0 })
const send = (body) => client.publish({ destination: '/topic/from/page', body })
const inTransaction = (body, commit) => {
  const transaction = client.begin()
  client.publish({ destination: '/topic/from/page', body, headers: { transaction: transaction.id } })
  commit ? transaction.commit() : transaction.abort()
}
client.onConnect = () => {
  client.subscribe('/topic/to/page', (message) => {
    inTransaction('rolled back', false)
    inTransaction('echo ' + message.body, true)
    message.ack()
  }, { ack: 'client-individual', receipt: 'subscribed' })
  client.watchForReceipt('subscribed', () => send('ready'))
}
client.activate()
</script></body></html>"#;

/// A browser, ended with the test.
struct Browser(Child);

impl Browser {
    fn open(program: PathBuf, folder: &Path, library: &str, page: &str) -> Self {
        std::fs::write(folder.join("library.js"), library).unwrap();
        std::fs::write(folder.join("page.html"), page).unwrap();
        let child = Command::new(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--ignore-certificate-errors",
            ])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg("--remote-debugging-port=0")
            .arg(format!("file://{}", folder.join("page.html").display()))
            .env("HOME", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("browser.txt")).unwrap())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Talks to a page that says when it is ready and echoes what it gets.
fn talk(other: &mut Client) {
    let ready = other.message_within(PATIENCE.saturating_mul(2)).unwrap();
    assert_eq!(ready.map(|message| message.payload), Some(b"ready".to_vec()), "the page does not connect");
    for number in 0..MESSAGES {
        other.publish(&Message::new("to/page", number.to_string(), 1)).unwrap();
    }
    for number in 0..MESSAGES {
        let echo = String::from_utf8(other.message().unwrap().payload).unwrap();
        assert_eq!(echo, format!("echo {number}"));
    }
}

fn page_echoes(page: &str, package: &str, file: &str, url: impl Fn(&Webbed) -> String) {
    let (Some(tools), Some(browser)) = (Tools::find(), chromium()) else { return };
    let webbed = Webbed::start();
    let library = bundle(&tools.node, package, file);
    let page = page.replace("ADDRESS", &url(&webbed));
    let mut other = Login::fresh(Version::V5, "other").open(webbed.gateway.address()).unwrap();
    other.subscribe("from/page", 2).unwrap();
    let _browser = Browser::open(browser, webbed.files.path(), &library, &page);
    talk(&mut other);
}

#[test]
fn a_page_publishes_and_receives_over_wss() {
    page_echoes(MQTT_PAGE, "mqtt", "dist/mqtt.min.js", |webbed| webbed.wss.clone());
}

#[test]
fn a_page_speaks_stomp_over_websocket_with_transactions() {
    page_echoes(STOMP_PAGE, "@stomp/stompjs", "bundles/stomp.umd.min.js", |webbed| webbed.ws.clone());
}
