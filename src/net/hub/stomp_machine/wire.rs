//! Frames as bytes: what clients write, and what they read, by a parser that knows nothing of ours.

use std::fmt::Write as _;

/// A frame from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) command: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Seen {
    pub(super) fn find(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.find(name).unwrap_or_else(|| panic!("no header {name} in {self:?}"))
    }
}

/// Everything that was read, which is a sequence of whole frames.
pub(super) fn parse(mut bytes: &[u8]) -> Vec<Seen> {
    let mut seen = vec![];
    loop {
        while let [b'\n', rest @ ..] = bytes {
            bytes = rest;
        }
        if bytes.is_empty() {
            return seen;
        }
        let (frame, rest) = take(bytes);
        seen.push(frame);
        bytes = rest;
    }
}

fn take(bytes: &[u8]) -> (Seen, &[u8]) {
    let head = bytes.windows(2).position(|pair| pair == b"\n\n").expect("headers end with a blank line");
    let text = std::str::from_utf8(&bytes[..head]).expect("headers are UTF-8");
    let mut lines = text.split('\n');
    let command = lines.next().expect("there is one line").to_owned();
    assert!(
        ["CONNECTED", "MESSAGE", "RECEIPT", "ERROR"].contains(&&*command),
        "{command:?} is no frame of a server"
    );
    let headers: Vec<_> = lines
        .map(|line| line.split_once(':').unwrap_or_else(|| panic!("no colon in {line:?}")))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let rest = &bytes[head + 2..];
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let end = match length {
        Some((_, length)) => length.parse().expect("content-length is a number"),
        None => rest.iter().position(|byte| *byte == 0).expect("a frame has an end"),
    };
    assert_eq!(rest.get(end), Some(&0), "a frame ends with NUL");
    let body = String::from_utf8_lossy(&rest[..end]).into_owned();
    (Seen { command, headers, body }, &rest[end + 1..])
}

/// A frame of a client.
pub(super) fn frame(command: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut out = format!("{command}\n");
    for (name, value) in headers {
        writeln!(out, "{name}:{value}").expect("a string can be written to");
    }
    out.push('\n');
    out.push_str(body);
    out.push('\0');
    out.into_bytes()
}

/// Frames that a client must not send once it is connected; every one ends its connection with ERROR.
pub(super) const FORBIDDEN: [&str; 21] = [
    "BOGUS\n\n\0",
    "send\ndestination:/queue/q0\n\nx\0",
    "CONNECT\n\n\0",
    "STOMP\naccept-version:1.2\nhost:h\n\n\0",
    "CONNECTED\n\n\0",
    "MESSAGE\n\n\0",
    "SEND\n\nx\0",
    "SEND\ndestination:/nope/x\n\nx\0",
    "SEND\ndestination:/topic/a/+\n\nx\0",
    "SEND\ndestination:/dsub/x\n\nx\0",
    "SEND\ndestination:/queue/q0\nqos:3\n\nx\0",
    "SEND\ndestination:/queue/q0\ncontent-length:-1\n\nx\0",
    "SEND\ndestination:/queue/q0\ncontent-length:1\n\nxx\0",
    "SEND\ndestination:/queue/q0\ntransaction:none\n\nx\0",
    "SUBSCRIBE\nid:wrong\n\n\0",
    "SUBSCRIBE\nid:wrong\ndestination:/queue/q0\nack:never\n\n\0",
    "SUBSCRIBE\nid:wrong\ndestination:/queue/q0\nselector:a >\n\n\0",
    "UNSUBSCRIBE\nid:none\n\n\0",
    "ACK\nid:1\nmessage-id:1\nsubscription:1\n\n\0",
    "BEGIN\n\n\0",
    "COMMIT\ntransaction:none\n\n\0",
];

/// Frames that lead somewhere.
#[cfg(test)]
pub(super) const RIGHT: [&str; 8] = [
    "SEND\ndestination:/queue/q0\nreceipt:r\n\nx\0",
    "SEND\ndestination:/topic/t\nretain:true\n\nx\0",
    "SUBSCRIBE\nid:1\ndestination:/queue/q0\nack:client\n\n\0",
    "SUBSCRIBE\nid:2\ndestination:/topic/+\ndurable:true\ndurable-subscription-name:d\n\n\0",
    "SUBSCRIBE\nid:3\ndestination:/queue/q0\nbrowser:true\nselector:a IS NULL\n\n\0",
    "UNSUBSCRIBE\nid:1\nreceipt:u\n\n\0",
    "BEGIN\ntransaction:t\nxid:x\n\n\0SEND\ntransaction:t\ndestination:/temp-queue/a\n\nx\0",
    "COMMIT\ntransaction:t\nphase:prepare\n\n\0ABORT\nxid:x\n\n\0DISCONNECT\nreceipt:d\n\n\0",
];
