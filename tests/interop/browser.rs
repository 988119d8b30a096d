//! A page in a headless Chromium that speaks MQTT over WSS with MQTT.js.
//!
//! The browser takes the gateway's certificate unseen: its authorities are no concern of this test. The page is a file, so nothing
//! but the gateway is reached over a network.

use std::process::{Command, Stdio};

use crate::harness::{Login, Message, PATIENCE, Version};
use crate::tools::{Tools, chromium, mqtt_js_bundle};
use crate::transports::Webbed;

/// Messages in each direction.
const MESSAGES: usize = 50;

const PAGE: &str = r#"<!DOCTYPE html><html><body><script src="mqtt.js"></script><script>
const client = mqtt.connect('URL', { clientId: 'page', protocolVersion: 5, reconnectPeriod: 0 })
client.on('connect', () => client.subscribe('to/page', { qos: 1 }, () => client.publish('from/page', 'ready', { qos: 1 })))
client.on('message', (topic, payload) => {
  client.publish('from/page', 'echo ' + payload.toString(), { qos: 2 })
})
</script></body></html>"#;

#[test]
fn a_page_publishes_and_receives_over_wss() {
    let (Some(tools), Some(browser)) = (Tools::find(), chromium()) else { return };
    let webbed = Webbed::start();
    let folder = webbed.files.path();
    let page = PAGE.replace("URL", &webbed.wss);
    std::fs::write(folder.join("page.html"), page).unwrap();
    std::fs::write(folder.join("mqtt.js"), mqtt_js_bundle(&tools.node)).unwrap();
    let mut other = Login::fresh(Version::V5, "other").open(webbed.gateway.address()).unwrap();
    other.subscribe("from/page", 2).unwrap();

    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
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
        .spawn()
        .unwrap();
    let ready = other.message_within(PATIENCE.saturating_mul(2));
    let talk = ready.and_then(|ready| {
        assert_eq!(
            ready.map(|message| message.payload),
            Some(b"ready".to_vec()),
            "the page does not connect"
        );
        for number in 0..MESSAGES {
            other.publish(&Message::new("to/page", number.to_string(), 1))?;
        }
        (0..MESSAGES).map(|_| Ok(String::from_utf8_lossy(&other.message()?.payload).into_owned())).collect()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let echoes: Vec<String> = talk.unwrap();
    assert_eq!(echoes, (0..MESSAGES).map(|number| format!("echo {number}")).collect::<Vec<_>>());
}
