//! A server's end under test with a minimal broker behind it, and the frames that it writes.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use tidegate_stomp::connection::{
    Acceptance, Delivery, Failure, ReceiptTag, Send, SubscriptionTag, TransactionEnd, TransactionTag,
};
use tidegate_stomp::{
    Command, Connection, ConnectionLimits, ConnectionOptions, DecodeLimits, Decoded, Event, Received,
    Version, Violation,
};

/// CONNECT of each version.
pub const C0: &[u8] = b"CONNECT\n\n\0";
pub const C1: &[u8] = b"CONNECT\naccept-version:1.1\nhost:h\n\n\0";
pub const C2: &[u8] = b"STOMP\naccept-version:1.2\nhost:h\n\n\0";

/// The session number of every connection under test, as it is written.
pub const SESSION: &str = "00000000000000a7";

pub fn connect(version: Version) -> &'static [u8] {
    match version {
        Version::V10 => C0,
        Version::V11 => C1,
        Version::V12 => C2,
    }
}

/// A frame of the server, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub command: Command,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Written {
    /// The first header of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// A message as the broker has taken it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub destination: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// A connection, and a broker that takes every message, delivers it to this connection's subscriptions of the same
/// destination, and writes receipts at once.
pub struct Peer {
    pub connection: Connection,
    pub now: u64,
    /// What has arrived and is not consumed.
    pub input: Vec<u8>,
    /// What the connection has written.
    pub out: Vec<u8>,
    pub taken: Vec<Taken>,
    /// Tags of settled deliveries; negative if they were not consumed.
    pub settled: Vec<i64>,
    pub violation: Option<Violation>,
    /// Whether receipts are left to the test.
    pub slow: bool,
    pub due: Vec<ReceiptTag>,
    pub decided: Vec<(String, bool)>,
    pub prepared: Vec<String>,
    subscriptions: BTreeMap<SubscriptionTag, String>,
    open: BTreeMap<TransactionTag, Vec<Taken>>,
    next: u64,
}

impl Peer {
    /// A connection that has received nothing.
    pub fn new(limits: ConnectionLimits, options: ConnectionOptions) -> Peer {
        Peer {
            connection: Connection::new(limits, options, 0),
            now: 0,
            input: vec![],
            out: vec![],
            taken: vec![],
            settled: vec![],
            violation: None,
            slow: false,
            due: vec![],
            decided: vec![],
            prepared: vec![],
            subscriptions: BTreeMap::new(),
            open: BTreeMap::new(),
            next: 1,
        }
    }

    /// A connection with the default limits that has received `input`.
    pub fn raw(input: &[u8]) -> Peer {
        let mut peer = Peer::new(ConnectionLimits::default(), ConnectionOptions::default());
        peer.feed(input);
        peer
    }

    /// A connection whose client is accepted.
    pub fn open(version: Version) -> Peer {
        Peer::open_with(version, ConnectionLimits::default())
    }

    /// A connection with these limits whose client is accepted.
    pub fn open_with(version: Version, limits: ConnectionLimits) -> Peer {
        let mut peer = Peer::new(limits, ConnectionOptions::default());
        peer.feed(connect(version));
        assert_eq!(peer.frames().len(), 1);
        assert_eq!(peer.connection.version(), Some(version));
        peer
    }

    /// Lets bytes arrive and handles them.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        loop {
            match self.connection.receive(rest, self.now) {
                Ok(Received::Event { consumed, event }) => {
                    self.handle(event);
                    rest = &rest[consumed..];
                }
                Ok(Received::Incomplete { needed }) => {
                    assert!(needed > rest.len());
                    break;
                }
                Ok(Received::Blocked) => break,
                Ok(Received::Over) => {
                    rest = &[];
                    break;
                }
                Err(violation) => {
                    self.connection.reject(&mut self.out, &violation, self.now);
                    self.violation = Some(violation);
                }
            }
        }
        self.input = rest.to_vec();
    }

    fn handle(&mut self, event: Event<'_>) {
        match event {
            Event::Connect(connect) => {
                if connect.passcode.as_deref().is_some_and(|passcode| passcode == "wrong") {
                    let failure = Failure { message: "not authorized", detail: "" };
                    self.connection.fail(&mut self.out, None, &failure, self.now);
                    return;
                }
                let acceptance = Acceptance { session: 0xa7, server: Some("test/1.0") };
                self.connection.accept(&mut self.out, &acceptance, self.now).unwrap();
            }
            Event::Send(send) => self.send(&send),
            Event::Subscribe(subscribe) => {
                self.subscriptions.insert(subscribe.subscription, subscribe.destination.into_owned());
                self.receipt(subscribe.receipt);
            }
            Event::Unsubscribe { subscription, receipt, .. } => {
                assert!(self.subscriptions.remove(&subscription).is_some());
                self.receipt(receipt);
            }
            Event::Ack(ack) => {
                let sign = if ack.nack { -1 } else { 1 };
                self.settled.extend(self.connection.settled().iter().map(|tag| *tag as i64 * sign));
                self.receipt(ack.receipt);
            }
            Event::Begin { transaction, receipt, .. } => {
                assert!(self.open.insert(transaction, vec![]).is_none());
                self.receipt(receipt);
            }
            Event::End { transaction, end, receipt, .. } => {
                let messages = self.open.remove(&transaction).unwrap();
                match end {
                    TransactionEnd::Commit => messages.into_iter().for_each(|taken| self.take(taken)),
                    TransactionEnd::Prepare => self.prepared.push(format!("{} messages", messages.len())),
                    TransactionEnd::Abort => {}
                }
                self.receipt(receipt);
            }
            Event::Decide { xid, commit, receipt, .. } => {
                self.decided.push((xid.into_owned(), commit));
                self.receipt(receipt);
            }
            Event::Disconnect { receipt } => self.receipt(receipt),
            Event::HeartBeat => {}
        }
    }

    fn send(&mut self, send: &Send<'_>) {
        let headers = send.headers.user();
        let headers = headers.map(|header| (header.name.into_owned(), header.value.into_owned())).collect();
        let destination = send.destination.clone().into_owned();
        let taken = Taken { destination, headers, body: send.body.to_vec() };
        match send.transaction {
            Some(transaction) => self.open.get_mut(&transaction).unwrap().push(taken),
            None => self.take(taken),
        }
        self.receipt(send.receipt);
    }

    fn take(&mut self, taken: Taken) {
        for (subscription, destination) in &self.subscriptions {
            if *destination == taken.destination {
                let delivery = Delivery { subscription: *subscription, destination, tag: self.next };
                let headers = taken.headers.iter().map(|(name, value)| (name, value));
                self.connection.message(&mut self.out, &delivery, headers, &taken.body).unwrap();
                self.next += 1;
            }
        }
        self.taken.push(taken);
    }

    fn receipt(&mut self, receipt: Option<ReceiptTag>) {
        match self.slow {
            true => self.due.extend(receipt),
            false => assert!(receipt.is_none_or(|tag| self.connection.receipt(&mut self.out, tag))),
        }
    }

    /// Processes a frame whose receipt was left to the test.
    pub fn pay(&mut self, tag: ReceiptTag) -> bool {
        self.connection.receipt(&mut self.out, tag)
    }

    /// What the connection has written since the last call, without the sign of what it means.
    pub fn bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// The frames that the connection has written since the last call.
    pub fn frames(&mut self) -> Vec<Written> {
        let version = self.connection.version().unwrap_or(Version::V12);
        written(version, &self.bytes())
    }

    /// The destinations and bodies that the broker has.
    pub fn stored(&self) -> Vec<(&str, &[u8])> {
        self.taken.iter().map(|taken| (taken.destination.as_str(), &taken.body[..])).collect()
    }

    /// The `receipt-id`s that were written since the last call, and nothing else was.
    pub fn receipts(&mut self) -> Vec<String> {
        let frames = self.frames();
        assert!(frames.iter().all(|frame| frame.command == Command::Receipt), "{frames:?}");
        frames.iter().map(|frame| frame.get("receipt-id").unwrap().to_owned()).collect()
    }

    /// The MESSAGE frames that were written since the last call.
    pub fn messages(&mut self) -> Vec<Written> {
        self.frames().into_iter().filter(|frame| frame.command == Command::Message).collect()
    }

    /// The last frame is the only ERROR, it is as it should be, and the connection is closed behind it.
    #[track_caller]
    pub fn error(&mut self) -> Written {
        let frames = self.frames();
        let error = frames.last().expect("an ERROR").clone();
        let errors = frames.iter().filter(|frame| frame.command == Command::Error).count();
        assert_eq!((errors, error.command), (1, Command::Error), "{frames:?}");
        assert!(!error.get("message").unwrap().is_empty());
        assert_eq!(error.get("content-type"), Some("text/plain"));
        assert_eq!(error.get("content-length").unwrap().parse(), Ok(error.body.len()));
        assert!(self.connection.is_closed());
        self.feed(b"SEND\ndestination:/queue/after\n\nx\0");
        assert!(self.out.is_empty(), "nothing follows an ERROR");
        assert!(self.taken.iter().all(|taken| taken.destination != "/queue/after"));
        error
    }
}

/// The frames that bytes of a server hold.
pub fn written(version: Version, mut bytes: &[u8]) -> Vec<Written> {
    let mut frames = vec![];
    while !bytes.is_empty() {
        match tidegate_stomp::decode_next(version, bytes, &DecodeLimits::UNBOUNDED).unwrap() {
            Decoded::Frame { frame, consumed } => {
                let headers = frame.headers.iter();
                let headers = headers.map(|it| (it.name.into_owned(), it.value.into_owned())).collect();
                frames.push(Written { command: frame.command, headers, body: frame.body.to_vec() });
                bytes = &bytes[consumed..];
            }
            Decoded::Gap { consumed } => bytes = &bytes[consumed..],
            other => panic!("{other:?}"),
        }
    }
    frames
}

/// What a client of `version` causes with these frames behind its CONNECT.
pub fn after(version: Version, input: &[u8]) -> Peer {
    let mut peer = Peer::open(version);
    peer.feed(input);
    peer
}

/// A client of `version` is sent an ERROR for these frames and nothing of them is stored.
#[track_caller]
pub fn refused(version: Version, input: &[u8]) -> Written {
    let mut peer = after(version, input);
    let error = peer.error();
    assert_eq!(peer.stored(), [], "{:?}", String::from_utf8_lossy(input));
    error
}
