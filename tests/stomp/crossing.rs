//! Messages between MQTT and STOMP, there and back again.

use crate::client::{Frame, Stomp};
use crate::harness::{Client, Filter, Login, Message, Random, Version};
use crate::{amount, gateway, stomp};

/// Messages under way at a time.
const ROUND: usize = 100;
/// What headers may be made of, special characters of either protocol first.
const CHARACTERS: [char; 16] =
    [':', '\\', '\n', '\r', ' ', '\t', '"', '=', '/', 'a', 'Z', '7', 'é', '日', '😀', '\u{7f}'];
/// Names that mean something in STOMP, or look as if they did.
const NAMES: [&str; 9] = [
    "destination",
    "message-id",
    "content-type",
    "redelivered",
    "qos",
    "user-property-ack",
    "user-property-",
    "user-property-plain",
    "priority",
];

fn text(random: &mut Random, most: u64) -> String {
    let len = random.below(most + 1);
    (0..len).map(|_| CHARACTERS[random.below(CHARACTERS.len() as u64) as usize]).collect()
}

fn topic(random: &mut Random) -> String {
    let levels = random.between(1, 4);
    let level = |random: &mut Random| text(random, 5).replace(['/', '\n', '\r', '\u{7f}'], ".");
    (0..levels).map(|_| level(random)).collect::<Vec<_>>().join("/")
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('\n', r"\n").replace('\r', r"\r").replace(':', r"\c")
}

fn plain(text: &str) -> String {
    let (mut out, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('c') => ':',
                Some('\\') => '\\',
                other => panic!("{other:?} behind a backslash"),
            },
            c => c,
        });
    }
    out
}

fn header(frame: &Frame, name: &str) -> Option<String> {
    frame.find(name).map(plain)
}

/// A message as its sender means it.
fn tuple(random: &mut Random) -> Message {
    let optional =
        |random: &mut Random, make: fn(&mut Random) -> String| random.chance(40).then(|| make(random));
    let size = random.below(300) as usize;
    Message {
        topic: topic(random),
        payload: random.bytes(size),
        qos: random.below(3) as u8,
        retain: random.chance(3),
        expiry: random.chance(30).then(|| random.between(100, 100_000) as u32),
        text: random.chance(10),
        content_type: optional(random, |random| text(random, 20)),
        response_topic: optional(random, |random| format!("r{}", topic(random))),
        correlation: optional(random, |random| text(random, 20)).map(String::into_bytes),
        user: (0..random.below(5)).map(|_| (text(random, 8), text(random, 20))).collect(),
        ..Message::default()
    }
}

struct Bench {
    device: Client,
    sender: Stomp,
    receiver: Stomp,
}

impl Bench {
    fn new(gateway: &crate::harness::Gateway) -> Self {
        let mut device =
            Login::fresh(Version::V5, "crossing").receive_max(1_000).open(gateway.address()).unwrap();
        let all = ["from/stomp/#", "back/mqtt/#"].map(|filter| Filter::new(filter, 2).retain_as_published());
        device.subscribe_all(None, &all).unwrap();
        let mut receiver = Stomp::open(stomp(gateway));
        receiver.subscribe_to("back", "/topic/back/stomp/#", "");
        receiver.subscribe_to("from", "/topic/from/mqtt/#", "");
        Self { device, sender: Stomp::open(stomp(gateway)), receiver }
    }

    fn taken(&mut self) -> Message {
        self.device.message().unwrap()
    }
}

/// The SEND of a message, as a program would write it.
fn send(message: &Message) -> Vec<u8> {
    let mut lines = format!("SEND\ndestination:/topic/from/stomp/{}\n", escaped(&message.topic));
    let mut add = |name: &str, value: &str| lines += &format!("{}:{}\n", escaped(name), escaped(value));
    match message.qos {
        0 => add("persistent", "false"),
        1 => {}
        _ => add("qos", "2"),
    }
    if message.retain {
        add("retain", "true");
    }
    if let Some(seconds) = message.expiry {
        add("ttl", &(u64::from(seconds) * 1000).to_string());
    }
    if let Some(value) = &message.content_type {
        add("content-type", value);
    }
    if let Some(value) = &message.response_topic {
        add("reply-to", &format!("/topic/{value}"));
    }
    if let Some(value) = &message.correlation {
        add("correlation-id", std::str::from_utf8(value).unwrap());
    }
    message.user.iter().for_each(|(name, value)| add(name, value));
    lines += &format!("content-length:{}\n\n", message.payload.len());
    let mut bytes = lines.into_bytes();
    bytes.extend_from_slice(&message.payload);
    bytes.push(0);
    bytes
}

/// Headers in the order of the wire, without those that are not the user's.
fn users(frame: &Frame) -> Vec<(String, String)> {
    const OTHERS: [&str; 14] = [
        "content-length",
        "subscription",
        "message-id",
        "destination",
        "ack",
        "content-type",
        "correlation-id",
        "correlation-id-encoding",
        "reply-to",
        "expires",
        "ttl",
        "timestamp",
        "persistent",
        "qos",
    ];
    let others = |name: &str| OTHERS.contains(&name) || name == "payload-format";
    frame
        .headers
        .iter()
        .filter(|(name, _)| !others(name))
        .map(|(name, value)| (plain(name), plain(value)))
        .collect()
}

#[test]
fn messages_from_stomp_over_mqtt_to_stomp_are_what_they_were() {
    let gateway = gateway();
    let mut bench = Bench::new(&gateway);
    let mut random = Random::for_test("crossing from stomp");
    for _ in 0..amount("TIDEGATE_CROSSING_MESSAGES", 2_000).div_ceil(ROUND) {
        let sent: Vec<Message> = (0..ROUND)
            .map(|_| {
                let mut message = tuple(&mut random);
                message.text = false;
                message.user.retain(|(name, _)| !name.is_empty());
                if random.chance(20) {
                    message.user.push(("user-property-plain".into(), text(&mut random, 5)));
                }
                message
            })
            .collect();
        sent.iter().for_each(|message| bench.sender.send(send(message)));
        for message in &sent {
            let got = bench.taken();
            assert_eq!(got.topic, format!("from/stomp/{}", message.topic));
            assert_eq!(got.qos, message.qos, "published and subscribed at no more, delivered at no less");
            assert_eq!((got.retain, &got.payload), (message.retain, &message.payload));
            assert!(got.expiry.is_some() == message.expiry.is_some() && got.expiry <= message.expiry);
            assert!(got.expiry.unwrap_or(0) + 20 >= message.expiry.unwrap_or(0));
            assert_eq!((&got.content_type, &got.user), (&message.content_type, &message.user));
            let back = Message {
                topic: format!("back/stomp/{}", message.topic),
                id: 0,
                dup: false,
                retain: false,
                ..got
            };
            bench.device.publish(&back).unwrap();
        }
        for message in &sent {
            let frame = bench.receiver.message();
            let destination = format!("/topic/back/stomp/{}", message.topic);
            assert_eq!(header(&frame, "destination"), Some(destination));
            assert_eq!(frame.body, message.payload);
            assert_eq!(header(&frame, "content-type"), message.content_type);
            let correlation =
                message.correlation.as_deref().map(|data| String::from_utf8_lossy(data).into_owned());
            assert_eq!(header(&frame, "correlation-id"), correlation);
            let reply_to = message.response_topic.as_ref().map(|topic| format!("/topic/{topic}"));
            assert_eq!(header(&frame, "reply-to"), reply_to);
            assert_eq!(users(&frame), message.user);
            assert_eq!(frame.header("qos"), message.qos.min(1).to_string());
            assert_eq!(frame.find("ttl").is_some(), message.expiry.is_some());
        }
    }
}

#[test]
fn messages_from_mqtt_over_stomp_to_mqtt_are_what_they_were() {
    let gateway = gateway();
    let mut bench = Bench::new(&gateway);
    let mut random = Random::for_test("crossing from mqtt");
    for _ in 0..amount("TIDEGATE_CROSSING_MESSAGES", 2_000).div_ceil(ROUND) {
        let sent: Vec<Message> = (0..ROUND)
            .map(|_| {
                let mut message = tuple(&mut random);
                if random.chance(20) {
                    message.correlation = Some(random.bytes(16));
                }
                if random.chance(40) {
                    let name = NAMES[random.below(NAMES.len() as u64) as usize];
                    message.user.push((name.into(), text(&mut random, 5)));
                }
                message
            })
            .collect();
        for message in &sent {
            let topic = format!("from/mqtt/{}", message.topic);
            bench.device.publish(&Message { topic, retain: false, ..message.clone() }).unwrap();
        }
        for message in &sent {
            let frame = bench.receiver.message();
            assert_eq!(header(&frame, "destination"), Some(format!("/topic/from/mqtt/{}", message.topic)));
            let mut bytes =
                format!("SEND\ndestination:/topic/back/mqtt/{}\n", escaped(&message.topic)).into_bytes();
            for (name, value) in frame.headers.iter().filter(|(name, _)| name != "destination") {
                bytes.extend_from_slice(format!("{name}:{value}\n").as_bytes());
            }
            bytes.push(b'\n');
            bytes.extend_from_slice(&frame.body);
            bytes.push(0);
            bench.sender.send(bytes);
        }
        for message in &sent {
            let got = bench.taken();
            assert_eq!(got.topic, format!("back/mqtt/{}", message.topic));
            assert_eq!(got.qos, message.qos.min(1));
            assert!(got.expiry.is_some() == message.expiry.is_some() && got.expiry <= message.expiry);
            assert!(got.expiry.unwrap_or(0) + 20 >= message.expiry.unwrap_or(0));
            let told = |m: &Message| {
                let Message { payload, text, content_type, response_topic, correlation, user, .. } =
                    m.clone();
                (payload, text, content_type, response_topic, correlation, user)
            };
            assert_eq!(told(&got), told(message));
        }
    }
}
