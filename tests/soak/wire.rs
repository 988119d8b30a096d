//! A fast MQTT 3.1.1 client: numbered QoS 1 messages, written in bursts and read without copies.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than anything that is waited for here.
const SOCKET_WAIT: Duration = Duration::from_secs(60);

/// Packets of one write.
const BURST: u64 = 64;

/// Identifiers that a publisher uses in turn.
const IDENTIFIERS: u64 = 60_000;

/// Bytes asked for by one read.
const READ_BYTES: usize = 256 << 10;

/// What payloads hold behind the number at their front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes that nothing can make shorter.
    Noise,
    /// What a sensor says, in JSON: little changes from one to the next.
    Readings,
    /// By turns.
    Mixed,
}

/// One message as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The number at the front of its payload.
    pub number: u64,
    /// Marked as sent before.
    pub duplicate: bool,
}

/// A connection.
pub struct Wire {
    stream: TcpStream,
    unread: Vec<u8>,
    read_to: usize,
    acks: Vec<u8>,
}

impl Wire {
    /// Connects; `clean`: without an earlier session, and without one that stays.
    pub fn open(address: SocketAddr, client_id: &str, clean: bool) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SOCKET_WAIT))?;
        stream.set_write_timeout(Some(SOCKET_WAIT))?;
        let mut packet = vec![0x10, 12 + client_id.len() as u8, 0, 4];
        packet.extend_from_slice(b"MQTT");
        packet.extend_from_slice(&[4, u8::from(clean) << 1, 0, 0, 0, client_id.len() as u8]);
        packet.extend_from_slice(client_id.as_bytes());
        stream.write_all(&packet)?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer)?;
        if answer[0] != 0x20 || answer[3] != 0 {
            return Err(io::Error::other(format!("CONNACK {answer:02x?}")));
        }
        Ok(Self { stream, unread: Vec::new(), read_to: 0, acks: Vec::new() })
    }

    /// Subscribes with QoS 1.
    pub fn subscribe(&mut self, filter: &str) -> io::Result<()> {
        let mut packet = vec![0x82, 5 + filter.len() as u8, 0, 1, 0, filter.len() as u8];
        packet.extend_from_slice(filter.as_bytes());
        packet.push(1);
        self.stream.write_all(&packet)?;
        let mut answer = [0; 5];
        self.stream.read_exact(&mut answer)?;
        if answer == [0x90, 3, 0, 1, 1] {
            Ok(())
        } else {
            Err(io::Error::other(format!("SUBACK {answer:02x?}")))
        }
    }

    /// Publishes the messages `numbers`, each with `size` bytes of payload, with at most `window` of them unacknowledged.
    pub fn publish(
        &mut self,
        topic: &str,
        numbers: std::ops::Range<u64>,
        size: usize,
        window: u64,
    ) -> io::Result<()> {
        let mut burst = Vec::new();
        let (mut sent, mut acknowledged) = (0, 0);
        let mut partial = 0;
        let mut answers = vec![0; 64 << 10];
        let total = numbers.end - numbers.start;
        while acknowledged < total {
            while sent < total && sent - acknowledged < window {
                burst.clear();
                let count = BURST.min(total - sent).min(window - (sent - acknowledged));
                for number in numbers.start + sent..numbers.start + sent + count {
                    put_publish(&mut burst, topic, number, size);
                }
                self.stream.write_all(&burst)?;
                sent += count;
            }
            let got = self.stream.read(&mut answers)?;
            if got == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            partial += got as u64;
            acknowledged += partial / 4;
            partial %= 4;
        }
        Ok(())
    }

    /// Writes `count` messages at once and waits for all acknowledgements: one group.
    pub fn publish_group(
        &mut self,
        topic: &str,
        numbers: std::ops::Range<u64>,
        size: usize,
        content: Content,
    ) -> io::Result<()> {
        let mut burst = Vec::new();
        let count = numbers.end - numbers.start;
        for number in numbers {
            put_publish(&mut burst, topic, number, size);
            if content == Content::Readings || (content == Content::Mixed && number % 2 == 1) {
                let place = burst.len() - (size - 8);
                put_reading(&mut burst[place..], number);
            }
        }
        self.stream.write_all(&burst)?;
        let mut answers = vec![0; 4 * count as usize];
        self.stream.read_exact(&mut answers)
    }

    /// Reads once and hands all complete messages to `each`, then acknowledges them. `Ok(0)` when nothing came within the
    /// socket's patience, see [`Self::set_patience`].
    pub fn take(&mut self, mut each: impl FnMut(Arrived)) -> io::Result<usize> {
        let taken = self.receive(&mut each)?;
        self.acknowledge()?;
        Ok(taken)
    }

    /// As [`Self::take`], but [`Self::acknowledge`] is left to the caller.
    pub fn receive(&mut self, each: &mut impl FnMut(Arrived)) -> io::Result<usize> {
        self.unread.resize(self.read_to + READ_BYTES, 0);
        match self.stream.read(&mut self.unread[self.read_to..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(got) => self.read_to += got,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(0);
            }
            Err(error) => return Err(error),
        }
        let (mut at, mut taken) = (0, 0);
        while let Some((body, end)) = packet_at(&self.unread[at..self.read_to]) {
            let first = self.unread[at];
            let packet = &self.unread[at + body..at + end];
            if first >> 4 == 3 {
                let topic = usize::from(u16::from_be_bytes([packet[0], packet[1]]));
                self.acks.extend_from_slice(&[0x40, 2, packet[2 + topic], packet[3 + topic]]);
                let number = packet[4 + topic..12 + topic].try_into().expect("eight bytes");
                each(Arrived { number: u64::from_be_bytes(number), duplicate: first & 8 != 0 });
                taken += 1;
            }
            at += end;
        }
        self.unread.copy_within(at..self.read_to, 0);
        self.read_to -= at;
        Ok(taken)
    }

    /// Acknowledges everything received so far.
    pub fn acknowledge(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.acks)?;
        self.acks.clear();
        Ok(())
    }

    /// The socket, for what this client does not do.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// How long a read waits.
    pub fn set_patience(&mut self, wait: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(wait))
    }

    /// Takes messages until `count` have come, and returns their numbers' order: see [`Order`].
    pub fn take_in_order(&mut self, count: u64, order: &mut Order) -> io::Result<()> {
        let wanted = order.taken + count;
        while order.taken < wanted {
            if self.take(|arrived| order.see(arrived))? == 0 {
                return Err(io::Error::other(format!("{} of {wanted} messages came", order.taken)));
            }
        }
        Ok(())
    }

    /// Settles `count` messages and leaves what else was sent unacknowledged.
    pub fn take_at_most(&mut self, count: u64, order: &mut Order) -> io::Result<()> {
        let bytes = 4 * count as usize;
        while self.acks.len() < bytes {
            if self.receive(&mut |arrived| order.see(arrived))? == 0 {
                return Err(io::Error::other("too few messages came"));
            }
        }
        self.stream.write_all(&self.acks[..bytes])?;
        self.acks.drain(..bytes);
        Ok(())
    }

    /// Says goodbye and waits until the broker has closed the connection. What still comes is not read by anybody; without
    /// reading it the system would reset the connection, and the broker might not get the last acknowledgements.
    pub fn close(mut self) -> io::Result<()> {
        self.set_patience(SOCKET_WAIT)?;
        self.stream.write_all(&[0xe0, 0])?;
        io::copy(&mut self.stream, &mut io::sink()).map(drop)
    }
}

/// What a consumer has seen of one publisher's numbers, which count up by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Messages that came for the first time.
    pub taken: u64,
    /// Messages that came again.
    pub again: u64,
    /// The next number.
    pub next: u64,
    /// Times that a number came before its turn.
    pub inversions: u64,
}

impl Order {
    /// Notes one message.
    pub fn see(&mut self, arrived: Arrived) {
        if arrived.number < self.next {
            self.again += 1;
            return;
        }
        self.inversions += u64::from(arrived.number != self.next);
        self.next = arrived.number + 1;
        self.taken += 1;
    }
}

/// Appends a PUBLISH with QoS 1.
fn put_publish(out: &mut Vec<u8>, topic: &str, number: u64, size: usize) {
    let size = size.max(8);
    let mut rest = 2 + topic.len() + 2 + size;
    out.push(0x32);
    loop {
        let digit = (rest % 128) as u8;
        rest /= 128;
        out.push(if rest > 0 { digit | 0x80 } else { digit });
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&(topic.len() as u16).to_be_bytes());
    out.extend_from_slice(topic.as_bytes());
    out.extend_from_slice(&((number % IDENTIFIERS) as u16 + 1).to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    put_noise(out, number, size - 8);
}

/// Appends bytes that cannot be made shorter, so that what is measured does not depend on what compression makes of them.
/// Fills `place` with a sensor's reading.
fn put_reading(place: &mut [u8], number: u64) {
    let mut value = Vec::new();
    put_noise(&mut value, number, 2);
    let (whole, part) = (15 + value[0] % 16, value[1] % 100);
    let seconds = 1_700_000_000 + number;
    let line = number % 7;
    let text = format!(
        "{{\"line\":{line},\"time\":{seconds},\"celsius\":{whole}.{part:02},\"ok\":true,\"unit\":\"C\",\"site\":\"north\"}}"
    );
    place.fill(b' ');
    let length = text.len().min(place.len());
    place[..length].copy_from_slice(&text.as_bytes()[..length]);
}

pub fn put_noise(out: &mut Vec<u8>, seed: u64, count: usize) {
    let end = out.len() + count;
    let mut state = seed;
    while out.len() < end {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        out.extend_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
    }
    out.truncate(end);
}

/// Where the body of the packet at the front begins, and where the packet ends; `None` while it is not complete.
fn packet_at(bytes: &[u8]) -> Option<(usize, usize)> {
    let (mut length, mut shift) = (0usize, 0);
    for (at, byte) in bytes.iter().enumerate().skip(1).take(4) {
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            let end = at + 1 + length;
            return (end <= bytes.len()).then_some((at + 1, end));
        }
    }
    None
}
