//! Messages between all versions of both protocols: from STOMP to MQTT and on to STOMP, with what all three can carry.

use crate::client::{C0, C1, C2, Frame, Stomp};
use crate::harness::{Client, Filter, Gateway, Login, Message, Random, Version};
use crate::{amount, gateway, stomp};

/// Messages under way at a time.
const ROUND: usize = 40;
const MQTT: [Version; 3] = [Version::V31, Version::V311, Version::V5];
const STOMP: [&str; 3] = [C0, C1, C2];
/// What every version of STOMP can say in a header, and what 1.1 and 1.2 need escapes for.
const PLAIN: [char; 12] = ['"', '=', '/', '.', ' ', 'a', 'Z', '7', 'é', '日', '😀', '\\'];
const ESCAPED: [char; 2] = [':', '\n'];

/// Three clients in a row: the first two and the last two share a topic.
struct Row {
    versions: (usize, usize, usize),
    sender: Stomp,
    device: Client,
    receiver: Stomp,
}

impl Row {
    fn new(gateway: &Gateway, versions: (usize, usize, usize)) -> Self {
        let (from, through, to) = versions;
        let sender = Stomp::with(stomp(gateway), STOMP[from]);
        let name = format!("row-{from}{through}{to}");
        let mut device = Login::fresh(MQTT[through], &name).open(gateway.address()).unwrap();
        device.subscribe_all(None, &[Filter::new(&format!("from/{name}/#"), 2)]).unwrap();
        let mut receiver = Stomp::with(stomp(gateway), STOMP[to]);
        receiver.subscribe_to("s", &format!("/topic/to/{name}/#"), "");
        Self { versions, sender, device, receiver }
    }

    fn name(&self) -> String {
        let (from, through, to) = self.versions;
        format!("row-{from}{through}{to}")
    }

    /// Text that every client of the row can say in a header.
    fn text(&self, random: &mut Random, most: u64) -> String {
        let escapes = self.versions.0 > 0 && self.versions.2 > 0;
        let all = if escapes { [&PLAIN[..], &ESCAPED].concat() } else { PLAIN.to_vec() };
        let len = random.below(most + 1);
        let text: String = (0..len).map(|_| all[random.below(all.len() as u64) as usize]).collect();
        // STOMP 1.0 does not tell blanks at the ends of a value from none.
        text.trim_matches(' ').to_owned()
    }

    fn message(&self, random: &mut Random) -> Message {
        let size = random.below(300) as usize;
        let topic = format!("x{}", self.text(random, 6).replace(['\n', ':'], "-"));
        let v5 = MQTT[self.versions.1] == Version::V5;
        let user =
            |_| (format!("u{}", self.text(random, 6).replace('=', "").trim_end()), self.text(random, 12));
        let user = if v5 { (0..3).map(user).collect() } else { vec![] };
        let content_type = (v5 && random.chance(50)).then(|| format!("t{}", self.text(random, 9)));
        Message {
            topic: topic.trim_end().to_owned(),
            payload: random.bytes(size),
            qos: random.below(3) as u8,
            content_type,
            user,
            ..Message::default()
        }
    }

    fn send(&mut self, message: &Message) {
        let version = self.versions.0;
        let mut lines =
            format!("SEND\ndestination:/topic/from/{}/{}\n", self.name(), escaped(version, &message.topic));
        let mut add = |name: &str, value: &str| {
            lines += &format!("{}:{}\n", escaped(version, name), escaped(version, value));
        };
        add("qos", &message.qos.to_string());
        message.content_type.iter().for_each(|value| add("content-type", value));
        message.user.iter().for_each(|(name, value)| add(name, value));
        add("content-length", &message.payload.len().to_string());
        let bytes = [lines.as_bytes(), b"\n", &message.payload, b"\0"].concat();
        self.sender.send(bytes);
    }

    fn pass_on(&mut self, message: &Message) {
        let got = self.device.message().unwrap();
        assert_eq!(got.topic, format!("from/{}/{}", self.name(), message.topic));
        assert_eq!((got.qos, &got.payload), (message.qos, &message.payload));
        assert_eq!((&got.content_type, &got.user), (&message.content_type, &message.user));
        let topic = format!("to/{}/{}", self.name(), message.topic);
        self.device.publish(&Message { topic, id: 0, dup: false, retain: false, ..got }).unwrap();
    }

    fn receive(&mut self, message: &Message) {
        let frame = self.receiver.message();
        let version = self.versions.2;
        let value = |name: &str| frame.find(name).map(|value| plain(version, value));
        assert_eq!(value("destination"), Some(format!("/topic/to/{}/{}", self.name(), message.topic)));
        assert_eq!((&frame.body, value("content-type")), (&message.payload, message.content_type.clone()));
        assert_eq!(frame.header("qos"), message.qos.min(1).to_string());
        assert_eq!(users(&frame, version), message.user);
    }
}

fn users(frame: &Frame, version: usize) -> Vec<(String, String)> {
    let own = |name: &String| name.starts_with('u');
    let all = frame.headers.iter().map(|(name, value)| (plain(version, name), plain(version, value)));
    all.filter(|(name, _)| own(name)).collect()
}

fn escaped(version: usize, text: &str) -> String {
    match version {
        0 => text.to_owned(),
        _ => text.replace('\\', r"\\").replace('\n', r"\n").replace(':', r"\c"),
    }
}

fn plain(version: usize, text: &str) -> String {
    match version {
        0 => text.to_owned(),
        _ => {
            let parts = text.split(r"\\").map(|part| part.replace(r"\n", "\n").replace(r"\c", ":"));
            parts.collect::<Vec<_>>().join("\\")
        }
    }
}

#[test]
fn what_all_versions_can_carry_crosses_between_all_of_them() {
    let gateway = gateway();
    let all =
        (0..3).flat_map(|from| (0..3).flat_map(move |through| (0..3).map(move |to| (from, through, to))));
    let mut rows: Vec<Row> = all.map(|versions| Row::new(&gateway, versions)).collect();
    let mut random = Random::for_test("crossing versions");
    for _ in 0..amount("TIDEGATE_CROSSING_MESSAGES", 2_000).div_ceil(ROUND) {
        let at = random.below(rows.len() as u64) as usize;
        let row = &mut rows[at];
        let sent: Vec<Message> = (0..ROUND).map(|_| row.message(&mut random)).collect();
        sent.iter().for_each(|message| row.send(message));
        sent.iter().for_each(|message| row.pass_on(message));
        sent.iter().for_each(|message| row.receive(message));
    }
}
