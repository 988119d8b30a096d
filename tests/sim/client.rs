//! A client: its part, what it remembers over connections, and its end of a connection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidegate::broker::api::{ClientCommand, ConnId};
use tidegate::time::Now;
use tidegate_mqtt::PacketType;

use crate::action::Draft;
use crate::cast::{CAST, LINK, LINK_FILTER, Part, TAKER, is_durable};
use crate::ledger::{Arrival, Ledger, Number, Verdict};
use crate::payload::{number, payload};
use crate::random::Random;
use crate::speech::{self, Hear, RECEIVE_MAX, Say, WillSaid};
use crate::wire::Wire;

/// Messages that a client has under way.
const WINDOW: usize = 8;
/// Messages that wait for a connection or the window; more are not even tried.
const BACKLOG_MAX: usize = 60;

/// Seconds of delay of a will, if it has one.
const WILL_DELAY_SECS: u32 = 10;

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    id: u16,
    n: Number,
    released: bool,
}

#[derive(Clone, Debug)]
enum Request {
    Subscribe(String),
    Unsubscribe(String),
}

/// One end of a connection.
#[derive(Debug)]
pub struct Conn {
    pub wire: Wire,
    /// What is on its way from the link.
    pub commands: VecDeque<ClientCommand>,
    /// CONNACK has come.
    pub open: bool,
    requests: BTreeMap<u16, Request>,
    withheld: Vec<(PacketType, u16)>,
    got: BTreeSet<Number>,
    unacked: BTreeSet<u16>,
}

impl Conn {
    pub fn new(id: ConnId) -> Self {
        Self {
            wire: Wire::new(id),
            commands: VecDeque::new(),
            open: false,
            requests: BTreeMap::new(),
            withheld: vec![],
            got: BTreeSet::new(),
            unacked: BTreeSet::new(),
        }
    }
}

pub struct Client {
    pub number: usize,
    pub part: Part,
    pub conn: Option<Conn>,
    pub stalled: bool,
    pub holding: bool,
    under_way: VecDeque<UnderWay>,
    backlog: VecDeque<Draft>,
    last_id: u16,
    /// QoS 2 messages received and not released.
    received: BTreeMap<u16, Number>,
    /// The will of this connection, or of the last one.
    pub will: Option<Number>,
    /// A will that a goodbye is to cancel, and those that one has cancelled.
    goodbye: Option<Number>,
    pub cancelled: Vec<Number>,
    /// Values that came with the retain flag, by topic.
    pub retained: BTreeMap<String, Number>,
}

impl Client {
    pub fn new(number: usize) -> Self {
        Self {
            number,
            part: CAST[number],
            conn: None,
            stalled: false,
            holding: false,
            under_way: VecDeque::new(),
            backlog: VecDeque::new(),
            last_id: 0,
            received: BTreeMap::new(),
            will: None,
            goodbye: None,
            cancelled: vec![],
            retained: BTreeMap::new(),
        }
    }

    pub fn is_open(&self) -> bool {
        self.conn.as_ref().is_some_and(|conn| conn.open && !conn.wire.ended)
    }

    /// Everything it wanted to publish is done with.
    pub fn is_done(&self) -> bool {
        self.under_way.is_empty() && self.backlog.is_empty()
    }

    pub fn describe(&self) -> String {
        format!("{}: {:?}, {} waiting", self.part.name, self.under_way, self.backlog.len())
    }

    fn say(&mut self, say: &Say, now: Now) {
        let Some(conn) = &mut self.conn else { return };
        if conn.wire.ended {
            return;
        }
        if self.number == LINK {
            conn.commands.push_back(say.command(&self.part, now));
        } else {
            let mut bytes = vec![];
            say.encode(&self.part, &mut bytes);
            conn.wire.up.extend(bytes);
        }
    }

    fn next_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id % 60_000 + 1;
            let id = self.last_id;
            let requested = self.conn.as_ref().is_some_and(|conn| conn.requests.contains_key(&id));
            if !requested && self.under_way.iter().all(|message| message.id != id) {
                return id;
            }
        }
    }

    /// Sends CONNECT on a new connection.
    pub fn connect(&mut self, id: ConnId, clean: bool, random: &mut Random, ledger: &mut Ledger, now: Now) {
        // Before MQTT 5.0 a clean session would also end with the connection: that is another part's.
        let clean = clean && self.part.version.is_v5() && self.number != TAKER;
        // A client keeps its side of a session no longer than the gateway.
        let clean = clean
            || (is_durable(self.number) && self.part.expiry != u32::MAX && ledger.may_be_over(self.number));
        self.lose(ledger);
        if let Some(n) = self.will.take() {
            ledger.abandon(n);
        }
        if clean {
            self.forget_session(ledger);
        }
        self.conn = Some(Conn::new(id));
        self.stalled = false;
        ledger.connecting(self.number, clean);
        let will = self.part.will.then(|| {
            let qos = 1 + random.below(2) as u8;
            let topic = format!("w/{}", self.number);
            let draft = Draft { topic: topic.clone(), qos, retain: false, len: 20, expiry: None };
            let n = ledger.publish(self.number, &draft);
            self.will = Some(n);
            let delay = if self.part.version.is_v5() && random.chance(2) { WILL_DELAY_SECS } else { 0 };
            WillSaid { topic, payload: payload(n, draft.len), qos, delay }
        });
        self.say(&Say::Connect { clean, will }, now);
    }

    /// The connection is gone. A will may follow, unless a new connection comes first.
    pub fn lose(&mut self, ledger: &mut Ledger) {
        let Some(conn) = self.conn.take() else { return };
        self.goodbye = None;
        if conn.open {
            ledger.is_there(self.number);
            if let Some(n) = self.will {
                ledger.will_may_come(n);
            }
        } else {
            self.will = None;
        }
        if !is_durable(self.number) {
            self.forget_session(ledger);
        }
    }

    fn forget_session(&mut self, ledger: &mut Ledger) {
        self.under_way.drain(..).for_each(|message| ledger.abandon(message.n));
        self.received.clear();
    }

    pub fn goodbye(&mut self, now: Now) {
        let open = self.is_open();
        self.say(&Say::Goodbye, now);
        let will = self.will.take();
        self.goodbye = will.filter(|_| open);
    }

    /// The gateway has closed the connection; if it had read everything, it has heard the goodbye.
    pub fn closed(&mut self, ledger: &mut Ledger) {
        let heard = self.conn.as_ref().is_some_and(|conn| conn.wire.up.is_empty() && !conn.wire.blocked);
        self.cancelled.extend(self.goodbye.take().filter(|_| heard));
        self.lose(ledger);
    }

    pub fn publish(&mut self, draft: &Draft, ledger: &mut Ledger, now: Now) {
        if draft.qos == 0 {
            if self.is_open() && self.backlog.is_empty() {
                let n = ledger.publish(self.number, draft);
                self.send(n, 0, false, ledger, now);
            }
        } else if self.backlog.len() < BACKLOG_MAX {
            self.backlog.push_back(draft.clone());
            self.drain_backlog(ledger, now);
        }
    }

    fn drain_backlog(&mut self, ledger: &mut Ledger, now: Now) {
        while self.is_open()
            && self.under_way.len() < WINDOW
            && let Some(draft) = self.backlog.pop_front()
        {
            let n = ledger.publish(self.number, &draft);
            let id = self.next_id();
            self.under_way.push_back(UnderWay { id, n, released: false });
            self.send(n, id, false, ledger, now);
        }
    }

    fn send(&mut self, n: Number, id: u16, dup: bool, ledger: &Ledger, now: Now) {
        let Some(sent) = ledger.sent(n) else { return };
        let draft = sent.draft.clone();
        let payload = if draft.len == 0 { vec![] } else { payload(n, draft.len) };
        let Draft { topic, qos, retain, expiry, .. } = draft;
        self.say(&Say::Publish { id, topic, payload, qos, retain, dup, expiry }, now);
    }

    pub fn subscribe(&mut self, filter: &str, qos: u8, ledger: &mut Ledger, now: Now) {
        if self.is_open() {
            let id = self.next_id();
            ledger.subscribing(self.number, filter, qos);
            self.request(id, Request::Subscribe(filter.to_owned()));
            self.say(&Say::Subscribe { id, filter: filter.to_owned(), qos }, now);
        }
    }

    pub fn unsubscribe(&mut self, filter: &str, ledger: &mut Ledger, now: Now) {
        if self.is_open() {
            let id = self.next_id();
            ledger.unsubscribing(self.number, filter);
            self.request(id, Request::Unsubscribe(filter.to_owned()));
            self.say(&Say::Unsubscribe { id, filter: filter.to_owned() }, now);
        }
    }

    fn request(&mut self, id: u16, request: Request) {
        if let Some(conn) = &mut self.conn {
            // Only the last request about a filter tells how things stand.
            let (Request::Subscribe(new) | Request::Unsubscribe(new)) = &request;
            conn.requests.retain(|_, (Request::Subscribe(old) | Request::Unsubscribe(old))| old != new);
            conn.requests.insert(id, request);
        }
    }

    /// Acknowledges what was withheld.
    pub fn settle(&mut self, now: Now) {
        self.holding = false;
        let withheld = self.conn.as_mut().map(|conn| std::mem::take(&mut conn.withheld)).unwrap_or_default();
        withheld.into_iter().for_each(|(kind, id)| self.acknowledge(kind, id, now));
    }

    fn acknowledge(&mut self, kind: PacketType, id: u16, now: Now) {
        if let Some(conn) = &mut self.conn {
            if self.holding {
                return conn.withheld.push((kind, id));
            }
            if kind != PacketType::Pubrec {
                conn.unacked.remove(&id);
            }
        }
        self.say(&Say::Ack(kind, id), now);
    }

    /// Reads everything that has arrived.
    pub fn read(&mut self, ledger: &mut Ledger, now: Now) -> Verdict {
        let Some(conn) = &mut self.conn else { return Ok(()) };
        let mut input = conn.wire.take_input();
        let mut at = 0;
        while let Some((heard, used)) = speech::decode(self.part.version, &input[at..])? {
            at += used;
            self.hear(heard, ledger, now)?;
        }
        input.drain(..at);
        if let Some(conn) = &mut self.conn {
            conn.wire.half = input;
        }
        Ok(())
    }

    pub fn hear(&mut self, heard: Hear, ledger: &mut Ledger, now: Now) -> Verdict {
        match heard {
            Hear::Connack { reason: 0, present } => self.connected(present, ledger, now)?,
            Hear::Connack { .. } | Hear::Other => {}
            Hear::Publish { id, topic, payload, qos, retain, dup } => {
                self.arrived(id, &topic, &payload, (qos, retain, dup), ledger, now)?;
            }
            Hear::Ack(PacketType::Pubrel, id, _) => {
                self.received.remove(&id);
                self.acknowledge(PacketType::Pubcomp, id, now);
            }
            Hear::Ack(kind, id, reason) => self.answered(kind, id, reason, ledger, now)?,
            Hear::Suback(id, code) => {
                let request = self.conn.as_mut().and_then(|conn| conn.requests.remove(&id));
                if let Some(Request::Subscribe(filter)) = request {
                    ledger.subscribed(self.number, &filter, code)?;
                }
            }
            Hear::Unsuback(id) => {
                let request = self.conn.as_mut().and_then(|conn| conn.requests.remove(&id));
                if let Some(Request::Unsubscribe(filter)) = request {
                    ledger.unsubscribed(self.number, &filter);
                }
            }
        }
        self.drain_backlog(ledger, now);
        Ok(())
    }

    fn connected(&mut self, present: bool, ledger: &mut Ledger, now: Now) -> Verdict {
        let Some(conn) = &mut self.conn else { return Ok(()) };
        conn.open = true;
        // MQTT 3.1 has no Session Present flag; its part here keeps no session.
        ledger.connected(self.number, present)?;
        if !present {
            self.forget_session(ledger);
        }
        let again: Vec<UnderWay> = self.under_way.iter().copied().collect();
        for message in again {
            if message.released {
                self.say(&Say::Ack(PacketType::Pubrel, message.id), now);
            } else {
                ledger.publish_again(message.n);
                self.send(message.n, message.id, true, ledger, now);
            }
        }
        if self.number == LINK {
            self.subscribe(LINK_FILTER, 2, ledger, now);
        }
        Ok(())
    }

    fn answered(&mut self, kind: PacketType, id: u16, reason: u8, ledger: &mut Ledger, now: Now) -> Verdict {
        let name = self.part.name;
        let Some(at) = self.under_way.iter().position(|message| message.id == id) else {
            return Err(format!("{name} got {kind:?} {id} for nothing"));
        };
        let message = self.under_way[at];
        match kind {
            PacketType::Pubrec if !message.released => {
                ledger.answered(message.n, reason)?;
                if reason >= 0x80 {
                    self.under_way.remove(at);
                } else {
                    self.under_way[at].released = true;
                    self.say(&Say::Ack(PacketType::Pubrel, id), now);
                }
            }
            PacketType::Pubrec => self.say(&Say::Ack(PacketType::Pubrel, id), now),
            PacketType::Pubcomp if message.released => {
                self.under_way.remove(at);
            }
            PacketType::Puback => {
                self.under_way.remove(at);
                ledger.answered(message.n, reason)?;
            }
            _ => return Err(format!("{name} got {kind:?} {id} before its time")),
        }
        Ok(())
    }

    fn arrived(
        &mut self,
        id: u16,
        topic: &str,
        payload: &[u8],
        (qos, retain, dup): (u8, bool, bool),
        ledger: &mut Ledger,
        now: Now,
    ) -> Verdict {
        let name = self.part.name;
        let n = number(payload).unwrap_or(0);
        if retain {
            self.retained.insert(topic.to_owned(), n);
        }
        let Some(conn) = &mut self.conn else { return Ok(()) };
        if qos > 0 {
            conn.unacked.insert(id);
            if self.part.version.is_v5() && conn.unacked.len() > usize::from(RECEIVE_MAX) {
                return Err(format!("{name} has {} unacknowledged deliveries", conn.unacked.len()));
            }
        }
        let again = qos == 2 && self.received.contains_key(&id);
        if again && (self.received[&id] != n || !dup) {
            return Err(format!("{name}: identifier {id} of {} names {n}, DUP {dup}", self.received[&id]));
        }
        let same_connection = !retain && n > 0 && !conn.got.insert(n);
        if again && same_connection {
            return Err(format!("{name} got message {n} again without being asked to repeat anything"));
        }
        ledger.arrived(self.number, &Arrival { topic, payload, qos, retain, again, same_connection })?;
        match qos {
            0 => {}
            1 => self.acknowledge(PacketType::Puback, id, now),
            _ => {
                self.received.insert(id, n);
                self.acknowledge(PacketType::Pubrec, id, now);
            }
        }
        Ok(())
    }
}
