//! A raw STOMP client with a strict parser of its own: it sends the bytes that a test writes, and judges what comes back.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::harness::PATIENCE;

/// CONNECT of STOMP 1.0.
pub const C0: &str = "CONNECT\n\n\0";
/// CONNECT of STOMP 1.1.
pub const C1: &str = "CONNECT\naccept-version:1.1\nhost:h\n\n\0";
/// CONNECT of STOMP 1.2.
pub const C2: &str = "STOMP\naccept-version:1.2\nhost:h\n\n\0";

/// After an ERROR the connection must be closed by then.
const CLOSING_MAX: Duration = Duration::from_secs(2);

/// A frame from the server, its headers as they stood on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub command: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Frame {
    /// The value of the first header of this name.
    pub fn find(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The value of a header that must be there.
    #[track_caller]
    pub fn header(&self, name: &str) -> &str {
        self.find(name).unwrap_or_else(|| panic!("no header {name} in {self:?}"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection.
pub struct Stomp {
    socket: TcpStream,
    buffer: Vec<u8>,
    address: SocketAddr,
    receipts: u32,
    /// Messages that came while a receipt was waited for.
    early: VecDeque<Frame>,
}

impl Stomp {
    /// A connection on which nothing was said.
    pub fn raw(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).expect("the gateway listens");
        socket.set_nodelay(true).unwrap();
        Self { socket, buffer: vec![], address, receipts: 0, early: VecDeque::new() }
    }

    /// The same; `None` while nobody listens.
    pub fn try_raw(address: SocketAddr) -> Option<Self> {
        let socket = TcpStream::connect(address).ok()?;
        Some(Self { socket, buffer: vec![], address, receipts: 0, early: VecDeque::new() })
    }

    /// A connection on which `login` was answered with CONNECTED.
    #[track_caller]
    pub fn with(address: SocketAddr, login: &str) -> Self {
        let mut client = Self::raw(address);
        client.send(login);
        client.connected();
        client
    }

    /// A connection of STOMP 1.2.
    #[track_caller]
    pub fn open(address: SocketAddr) -> Self {
        Self::with(address, C2)
    }

    /// Another connection to the same place.
    #[track_caller]
    pub fn another(&self) -> Self {
        Self::open(self.address)
    }

    /// Writes bytes as they are.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).expect("the gateway reads");
    }

    /// Writes bytes as they are; the connection may be closed already.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.socket.write_all(bytes.as_ref()).is_ok()
    }

    pub fn shut_down(&self, how: Shutdown) {
        self.socket.shutdown(how).unwrap();
    }

    /// Closes the connection with a reset.
    pub fn reset(self) {
        socket2::SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Reads what has arrived by then: `Ok(0)` for the end, `None` when nothing has.
    fn read(&mut self, deadline: Instant) -> Option<usize> {
        let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        self.socket.set_read_timeout(Some(left)).unwrap();
        let mut chunk = [0; 64 << 10];
        match self.socket.read(&mut chunk) {
            Ok(n) => {
                self.buffer.extend_from_slice(&chunk[..n]);
                Some(n)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(0),
            Err(error) => panic!("{error}"),
        }
    }

    /// The next frame, if one comes in time; `Err` at the end of the connection.
    pub fn frame_within(&mut self, wait: Duration) -> Result<Option<Frame>, String> {
        let deadline = Instant::now() + wait;
        if let Some(frame) = self.early.pop_front() {
            return Ok(Some(frame));
        }
        loop {
            if let Some(frame) = take_frame(&mut self.buffer) {
                return Ok(Some(frame));
            }
            match self.read(deadline) {
                None => return Ok(None),
                Some(0) => {
                    return Err(format!(
                        "the connection was closed; left: {:?}",
                        String::from_utf8_lossy(&self.buffer)
                    ));
                }
                Some(_) => {}
            }
        }
    }

    /// The next frame.
    #[track_caller]
    pub fn frame(&mut self) -> Frame {
        match self.frame_within(PATIENCE) {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                panic!("no frame within {PATIENCE:?}; so far {:?}", String::from_utf8_lossy(&self.buffer))
            }
            Err(end) => panic!("{end}"),
        }
    }

    #[track_caller]
    fn expect(&mut self, command: &str) -> Frame {
        let frame = self.frame();
        assert_eq!(frame.command, command, "{frame:?}");
        frame
    }

    #[track_caller]
    pub fn connected(&mut self) -> Frame {
        self.expect("CONNECTED")
    }

    #[track_caller]
    pub fn message(&mut self) -> Frame {
        self.expect("MESSAGE")
    }

    #[track_caller]
    pub fn messages(&mut self, count: usize) -> Vec<Frame> {
        (0..count).map(|_| self.message()).collect()
    }

    /// The next frame is the receipt `id`.
    #[track_caller]
    pub fn receipt(&mut self, id: &str) {
        let frame = self.expect("RECEIPT");
        assert_eq!(frame.header("receipt-id"), id);
        assert!(frame.body.is_empty());
    }

    /// Reads up to the receipt `id`; messages before it are kept for [`message`](Self::message).
    #[track_caller]
    pub fn await_receipt(&mut self, id: &str) {
        let mut early = vec![];
        loop {
            let frame = self.frame();
            if frame.command == "RECEIPT" && frame.header("receipt-id") == id {
                self.early.extend(early);
                return;
            }
            assert_eq!(frame.command, "MESSAGE", "{frame:?}");
            early.push(frame);
        }
    }

    /// Nothing comes for so long.
    #[track_caller]
    pub fn silence(&mut self, wait: Duration) {
        match self.frame_within(wait) {
            Ok(None) => {}
            other => panic!("nothing was expected: {other:?}"),
        }
    }

    /// One ERROR, in order, and the end of the connection behind it.
    #[track_caller]
    pub fn error(&mut self) -> Frame {
        let frame = self.expect("ERROR");
        assert!(!frame.header("message").is_empty());
        let length: usize = frame.header("content-length").parse().unwrap();
        assert_eq!(length, frame.body.len());
        self.end();
        frame
    }

    /// The connection is closed by the server in time, and nothing but ends of lines comes before.
    #[track_caller]
    pub fn end(&mut self) {
        let deadline = Instant::now() + CLOSING_MAX;
        loop {
            assert!(
                self.buffer.iter().all(|byte| *byte == b'\n'),
                "{:?}",
                String::from_utf8_lossy(&self.buffer)
            );
            match self.read(deadline) {
                Some(0) => return,
                Some(_) => {}
                None => panic!("the connection was not closed within {CLOSING_MAX:?}"),
            }
        }
    }

    /// What arrives until the end of the connection, which must come by then.
    #[track_caller]
    pub fn rest_within(&mut self, wait: Duration) -> Vec<u8> {
        let deadline = Instant::now() + wait;
        loop {
            match self.read(deadline) {
                Some(0) => return std::mem::take(&mut self.buffer),
                Some(_) => {}
                None => panic!("the connection was not closed within {wait:?}"),
            }
        }
    }

    /// Bytes that arrive within the time, whatever they are.
    pub fn bytes_within(&mut self, wait: Duration) -> Vec<u8> {
        let deadline = Instant::now() + wait;
        while self.buffer.is_empty() && self.read(deadline).is_some_and(|n| n > 0) {}
        std::mem::take(&mut self.buffer)
    }

    /// Does not read for a while.
    pub fn bytes_pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// A receipt that no other frame of the connection has.
    fn next_receipt(&mut self) -> String {
        self.receipts += 1;
        format!("harness-{}", self.receipts)
    }

    /// Sends a message to a queue and waits for its receipt.
    #[track_caller]
    pub fn put(&mut self, queue: &str, body: &str) {
        let receipt = self.next_receipt();
        self.send(format!("SEND\ndestination:/queue/{queue}\nreceipt:{receipt}\n\n{body}\0"));
        self.receipt(&receipt);
    }

    /// Subscribes to a queue and waits for the receipt.
    #[track_caller]
    pub fn subscribe(&mut self, id: &str, queue: &str, mode: &str) {
        self.subscribe_to(id, &format!("/queue/{queue}"), &format!("ack:{mode}\n"));
    }

    /// Subscribes to a destination with further header lines and waits for the receipt.
    #[track_caller]
    pub fn subscribe_to(&mut self, id: &str, destination: &str, lines: &str) {
        let receipt = self.next_receipt();
        self.send(format!("SUBSCRIBE\nid:{id}\ndestination:{destination}\n{lines}receipt:{receipt}\n\n\0"));
        self.receipt(&receipt);
    }

    /// Acknowledges a message and waits for the receipt.
    #[track_caller]
    pub fn ack(&mut self, message: &Frame) {
        self.answer("ACK", message, "");
    }

    /// Refuses a message; what comes of it may arrive before any receipt.
    #[track_caller]
    pub fn nack(&mut self, message: &Frame) {
        self.send(format!("NACK\nid:{}\n\n\0", message.header("ack")));
    }

    /// ACK or NACK with further header lines; waits for the receipt, past messages.
    #[track_caller]
    pub fn answer(&mut self, command: &str, message: &Frame, lines: &str) {
        let receipt = self.next_receipt();
        let ack = message.header("ack");
        self.send(format!("{command}\nid:{ack}\n{lines}receipt:{receipt}\n\n\0"));
        self.receipt(&receipt);
    }

    /// Says goodbye and waits for the end.
    #[track_caller]
    pub fn disconnect(mut self) {
        self.send("DISCONNECT\nreceipt:bye\n\n\0");
        loop {
            let frame = self.frame();
            if frame.command == "RECEIPT" && frame.header("receipt-id") == "bye" {
                return self.end();
            }
            assert_eq!(frame.command, "MESSAGE", "{frame:?}");
        }
    }
}

/// What a queue holds: a fresh connection takes everything up to a message that it sends itself.
#[track_caller]
pub fn drain(address: SocketAddr, queue: &str) -> Vec<String> {
    let mut client = Stomp::open(address);
    client.subscribe("drain", queue, "auto");
    client.send(format!("SEND\ndestination:/queue/{queue}\n\nlast of all\0"));
    let mut bodies = vec![];
    loop {
        let body = client.message().text();
        if body == "last of all" {
            break;
        }
        bodies.push(body);
    }
    client.disconnect();
    bodies
}

#[track_caller]
pub fn assert_empty(address: SocketAddr, queue: &str) {
    assert_eq!(drain(address, queue), [""; 0], "the queue {queue} is empty");
}

#[track_caller]
pub fn assert_has<const N: usize>(address: SocketAddr, queue: &str, bodies: [&str; N]) {
    assert_eq!(drain(address, queue), bodies, "what the queue {queue} holds");
}

/// Takes the frame at the front of the buffer. Anything that is no frame fails the test.
fn take_frame(buffer: &mut Vec<u8>) -> Option<Frame> {
    let gap = buffer.iter().take_while(|byte| **byte == b'\n').count();
    buffer.drain(..gap);
    let mut at = 0;
    let mut lines = vec![];
    loop {
        let end = at + buffer[at..].iter().position(|byte| *byte == b'\n')?;
        let line = std::str::from_utf8(&buffer[at..end]).expect("headers are UTF-8").to_owned();
        at = end + 1;
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let mut lines = lines.into_iter();
    let command = lines.next().expect("a frame has a command");
    assert!(
        ["CONNECTED", "MESSAGE", "RECEIPT", "ERROR"].contains(&&*command),
        "{command} is no frame of a server"
    );
    let headers: Vec<(String, String)> = lines
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no colon in {line:?}"));
            assert!(!name.is_empty(), "a header without a name: {line:?}");
            (name.to_owned(), value.to_owned())
        })
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let end = match length {
        Some((_, length)) => at + length.parse::<usize>().expect("content-length is a number"),
        None => at + buffer[at..].iter().position(|byte| *byte == 0)?,
    };
    if buffer.len() <= end {
        return None;
    }
    assert_eq!(buffer[end], 0, "a frame ends with NUL");
    let body = buffer[at..end].to_vec();
    buffer.drain(..=end);
    Some(Frame { command, headers, body })
}
