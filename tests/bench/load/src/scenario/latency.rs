//! How long one message takes.

use std::io;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_mqtt::packet::Connect;
use tidegate_mqtt::{DecodeLimits, Decoded, Encode, Packet, PacketId, PublishHeader, Qos, Version};
use tidegate_mqtt::{decode_next, encode_publish_header};

use super::settle;
use crate::check::{Ledger, Payloads, Stamp, now_ns};
use crate::histogram::Histogram;
use crate::link::{Link, wrong};
use crate::load::{Setup, subscribe, wait};
use crate::options::Options;
use crate::process::{reset_peak, usage};
use crate::report::Report;

const TOPIC: &str = "latency/a";
const PACED_CLIENT: &str = "paced-subscriber";

/// One connection publishes to itself; the next message leaves when the last one is back and, with QoS 1 and 2, both ends of
/// it are acknowledged.
pub async fn ping_pong(setup: &Rc<Setup>) -> io::Result<Report> {
    let options = &setup.options;
    let (mut link, _) = Link::open(options.address, setup.login("ping-pong", false)).await?;
    link.subscribe(&[TOPIC.to_owned()], options.qos(), |_, _| Ok(())).await?;
    settle().await;
    reset_peak(options.pid);
    let (before, start) = (usage(options.pid), now_ns());
    let (mut ledger, mut acknowledgements) = (Ledger::default(), Histogram::default());
    let end = Duration::from_secs_f64(options.seconds).as_nanos() as u64 + start;
    let mut number = 0;
    while number < options.count && now_ns() < end {
        round(&mut link, setup, number, (&mut ledger, &mut acknowledgements)).await?;
        number += 1;
    }
    let after = usage(options.pid);
    let mut report = Report::default();
    report.cost(before, after, number, "message");
    report.set("messages", number as f64);
    report.rate("messages", number, Duration::from_nanos(now_ns() - start));
    report.latency("delivery", &ledger.latency);
    report.latency("acknowledgement", &acknowledgements);
    report.received(options, &[&ledger], number);
    Ok(report)
}

async fn round(
    link: &mut Link,
    setup: &Setup,
    number: u64,
    (ledger, acknowledgements): (&mut Ledger, &mut Histogram),
) -> io::Result<()> {
    let qos = setup.options.qos();
    let sent_ns = now_ns();
    let id = (qos != Qos::AtMostOnce).then_some(PacketId::MIN);
    link.out.publish((TOPIC, qos, false), id, &setup.payloads, Stamp { publisher: 0, number, sent_ns })?;
    let (mut arrived, mut acknowledged) = (false, id.is_none());
    link.until(|packet, out| {
        out.answer(packet)?;
        match packet {
            Packet::Publish(publish) => {
                ledger.note(&setup.payloads, publish.payload);
                arrived = true;
            }
            Packet::Puback(_) | Packet::Pubcomp(_) => {
                acknowledgements.add(now_ns() - sent_ns);
                acknowledged = true;
            }
            _ => {}
        }
        Ok(arrived && acknowledged)
    })
    .await
}

/// A publisher on a thread of its own, because sleeps of a thread are finer than timers of the event loop. Times count from when a
/// message was due, so that a stall is charged to every message that it delays.
pub async fn paced(setup: &Rc<Setup>) -> io::Result<Report> {
    let options = &setup.options;
    let (link, _) = Link::open(options.address, setup.login(PACED_CLIENT, options.persistent)).await?;
    let subscriber = subscribe(link, setup, &[TOPIC.to_owned()]).await?;
    let publisher = Pacer::open(options)?;
    settle().await;
    reset_peak(options.pid);
    let before = usage(options.pid);
    let count = options.count.min((options.rate as f64 * options.seconds) as u64);
    let (reader, writer) = publisher.start(setup, count)?;
    let distinct = || subscriber.ledger.borrow().distinct;
    wait(options, || distinct() >= count && reader.is_finished(), distinct).await;
    let after = usage(options.pid);
    let died = |_| wrong("a thread of the publisher ended early");
    writer.join().map_err(died)??;
    let acknowledgements = reader.join().map_err(died)?;
    let ledger = subscriber.ledger.borrow().clone();
    subscriber.task.abort();
    if options.persistent {
        Link::open(options.address, setup.login(PACED_CLIENT, false)).await?.0.close().await;
    }

    let mut report = Report::default();
    report.cost(before, after, count, "message");
    report.set("messages", count as f64);
    report.set("acknowledged", acknowledgements.count() as f64);
    report.latency("delivery", &ledger.latency);
    report.latency("acknowledgement", &acknowledgements);
    report.received(options, &[&ledger], count);
    Ok(report)
}

/// A publisher with a blocking socket.
struct Pacer {
    socket: TcpStream,
    version: Version,
    rate: u64,
    qos: Qos,
}

type Threads = (std::thread::JoinHandle<Histogram>, std::thread::JoinHandle<io::Result<()>>);

impl Pacer {
    fn open(options: &Options) -> io::Result<Pacer> {
        let mut socket = TcpStream::connect(options.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(options.silence()))?;
        let version = options.version();
        let connect = Connect {
            version,
            bridge: false,
            clean_start: true,
            keep_alive: 0,
            client_id: "paced-publisher",
            will: None,
            user_name: None,
            password: None,
            properties: (),
        };
        let mut out = vec![];
        connect.encode(version, &mut out).map_err(wrong)?;
        socket.write_all(&out)?;
        let mut logged_in = false;
        read_packets(&mut socket, version, |packet| {
            logged_in = matches!(packet, Packet::Connack(connack) if !connack.reason.is_error());
            true
        })?;
        let (rate, qos) = (options.rate, options.qos());
        if logged_in {
            Ok(Pacer { socket, version, rate, qos })
        } else {
            Err(wrong("the broker refused the login"))
        }
    }

    /// One thread writes `count` messages, the other one reads their acknowledgements.
    fn start(self, setup: &Rc<Setup>, count: u64) -> io::Result<Threads> {
        let due: Arc<Vec<AtomicU64>> = Arc::new((0..=u16::MAX).map(|_| AtomicU64::new(0)).collect());
        let (mut socket, version, qos) = (self.socket.try_clone()?, self.version, self.qos);
        let times = due.clone();
        let reader = std::thread::spawn(move || {
            let mut histogram = Histogram::default();
            let expected = if qos == Qos::AtMostOnce { 0 } else { count };
            // A connection that ends early shows in the number of acknowledgements.
            let _ = read_packets(&mut socket, version, |packet| {
                if let Packet::Puback(ack) = packet {
                    let due = times[usize::from(ack.packet_id.get())].load(Ordering::Relaxed);
                    histogram.add(now_ns().saturating_sub(due));
                }
                histogram.count() >= expected
            });
            histogram
        });
        let payloads = setup.payloads.clone();
        Ok((reader, std::thread::spawn(move || self.write(&payloads, count, &due))))
    }

    fn write(mut self, payloads: &Payloads, count: u64, times: &[AtomicU64]) -> io::Result<()> {
        let start = now_ns() + 1_000_000;
        let (mut id, mut out) = (PacketId::MIN, vec![]);
        for number in 0..count {
            let due = start + number * 1_000_000_000 / self.rate;
            std::thread::sleep(Duration::from_nanos(due.saturating_sub(now_ns())));
            times[usize::from(id.get())].store(due, Ordering::Relaxed);
            let packet_id = (self.qos != Qos::AtMostOnce).then_some(id);
            let header = PublishHeader {
                dup: false,
                qos: self.qos,
                retain: false,
                topic: TOPIC,
                packet_id,
                properties: (),
            };
            out.clear();
            encode_publish_header(&mut out, self.version, &header, payloads.size()).map_err(wrong)?;
            payloads.write(&mut out, Stamp { publisher: 0, number, sent_ns: due });
            self.socket.write_all(&out)?;
            id = id.next();
        }
        Ok(())
    }
}

/// Reads packets until `done`.
fn read_packets(
    socket: &mut TcpStream,
    version: Version,
    mut done: impl FnMut(&Packet<'_>) -> bool,
) -> io::Result<()> {
    let (mut input, mut buffer) = (vec![], [0; 4096]);
    loop {
        let mut taken = 0;
        while let Decoded::Packet { packet, consumed } =
            decode_next(version, &input[taken..], &DecodeLimits::PROTOCOL).map_err(wrong)?
        {
            taken += consumed;
            if done(&packet) {
                return Ok(());
            }
        }
        input.drain(..taken);
        match socket.read(&mut buffer)? {
            0 => return Err(wrong("the broker closed the connection")),
            n => input.extend_from_slice(&buffer[..n]),
        }
    }
}
