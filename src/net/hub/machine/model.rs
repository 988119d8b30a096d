//! What must happen: a plain model of sessions, windows and quotas that knows nothing of how the broker does it.

use std::collections::{BTreeMap, BTreeSet};

use super::wire::{PUBACK, PUBCOMP, PUBREC, PUBREL, Seen};

/// Messages of levels 1 and 2 that a client of MQTT 5.0 may have unfinished.
pub(super) const RECEIVE_MAX: usize = 4;
/// What the broker sends at most at a time to a client that names no bound.
pub(super) const INFLIGHT_MAX: usize = 6;

/// A client, by number.
pub(super) type Who = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waits,
    Sent,
    /// Sent before the connection was lost, and to be sent again.
    Parked,
}

#[derive(Clone, Debug)]
struct Entry {
    topic: String,
    text: String,
    qos: u8,
    place: u64,
    id: u16,
    stage: Stage,
    was_sent: bool,
    /// An earlier process may have sent it.
    repeated: bool,
}

#[derive(Debug, Default)]
struct Session {
    kept: bool,
    subscriptions: BTreeMap<String, u8>,
    queue: Vec<Entry>,
    /// Received by the client, and not completed: place and identifier.
    completing: Vec<(u64, u16)>,
    /// Level 2 messages of the client that it has not released.
    inbound: BTreeSet<u16>,
    places: u64,
}

#[derive(Debug)]
struct Connection {
    version: u8,
    resumed: bool,
    window: usize,
    /// Its unfinished messages that count against its quota.
    counted: BTreeSet<u16>,
    will: Option<(String, String)>,
}

/// What one connection is to be sent in a step.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// Acknowledgements of level 1 among them in this order.
    pub(super) answers: Vec<Seen>,
    /// In this order. An identifier of 0 stands for any that is free.
    pub(super) deliveries: Vec<Seen>,
    /// Level 0, in this order.
    pub(super) light: Vec<Seen>,
    /// It must have been closed, with DISCONNECT in MQTT 5.0.
    pub(super) closed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    sessions: BTreeMap<Who, Session>,
    connections: BTreeMap<Who, Connection>,
    expected: BTreeMap<Who, Expected>,
    /// A connection that another one has taken over in this step.
    pub(super) taken_over: Option<Expected>,
    /// Of a connection that has just ended.
    will: Option<(String, String)>,
    published: u64,
}

fn matches(filter: &str, topic: &str) -> bool {
    filter == "#" || filter == topic || (filter == "t/+" && topic.starts_with("t/"))
}

impl Model {
    pub(super) fn is_connected(&self, who: Who) -> bool {
        self.connections.contains_key(&who)
    }

    pub(super) fn version(&self, who: Who) -> u8 {
        self.connections[&who].version
    }

    /// Messages that wait for `who`.
    pub(super) fn waiting(&self, who: Who) -> usize {
        self.sessions.get(&who).map_or(0, |session| session.queue.len())
    }

    /// Identifiers of deliveries that `who` has not finished.
    pub(super) fn unfinished(&self, who: Who) -> Vec<u16> {
        let Some(session) = self.sessions.get(&who) else { return vec![] };
        let sent = session.queue.iter().filter(|entry| entry.stage == Stage::Sent).map(|entry| entry.id);
        // Of what was sent within the same step the identifier is not known yet.
        sent.chain(session.completing.iter().map(|(_, id)| *id)).filter(|id| *id > 0).collect()
    }

    /// The acknowledgement that the delivery `id` waits for.
    pub(super) fn kind_for(&self, who: Who, id: u16) -> Option<u8> {
        let session = self.sessions.get(&who)?;
        let sent = session.queue.iter().find(|entry| entry.id == id && entry.stage == Stage::Sent);
        match sent {
            Some(entry) if entry.qos == 1 => Some(PUBACK),
            Some(_) => Some(PUBREC),
            None => session.completing.iter().any(|(_, other)| *other == id).then_some(PUBCOMP),
        }
    }

    /// With so many messages of one write under way the quota may be full before they are answered.
    pub(super) fn is_near_quota(&self, who: Who, under_way: usize) -> bool {
        self.connections[&who].counted.len() + under_way > RECEIVE_MAX
    }

    pub(super) fn take_expected(&mut self, who: Who) -> Expected {
        self.expected.remove(&who).unwrap_or_default()
    }

    pub(super) fn next_text(&mut self) -> String {
        self.published += 1;
        self.published.to_string()
    }

    fn answer(&mut self, who: Who, seen: Seen) {
        self.expected.entry(who).or_default().answers.push(seen);
    }

    pub(super) fn connect(&mut self, who: Who, login: &super::wire::Login) {
        if self.is_connected(who) {
            self.end(who, true);
            let mut old = self.take_expected(who);
            old.closed = true;
            self.taken_over = Some(old);
            self.publish_will();
        }
        if login.clean {
            self.sessions.remove(&who);
        }
        let present = self.sessions.contains_key(&who);
        let session = self.sessions.entry(who).or_default();
        session.kept = if login.version == 5 { login.kept } else { !login.clean };
        let named = if login.version == 5 { usize::from(login.window) } else { INFLIGHT_MAX };
        let window = named.min(INFLIGHT_MAX);
        let mut completing = session.completing.clone();
        completing.sort_unstable();
        let connection = Connection {
            version: login.version,
            resumed: present,
            window,
            counted: BTreeSet::new(),
            will: login.will.clone(),
        };
        self.connections.insert(who, connection);
        // Before MQTT 3.1.1 nothing tells whether a session is there.
        self.answer(who, Seen::Connack { present: present && login.version > 3, code: 0 });
        let releases = completing.iter().map(|(_, id)| Seen::Ack { kind: PUBREL, id: *id, code: 0 });
        self.expected.entry(who).or_default().deliveries.extend(releases);
        self.pump(who);
    }

    pub(super) fn publish(&mut self, who: Who, topic: &str, text: &str, qos: u8, id: u16) {
        let v5 = self.version(who) == 5;
        let connection = self.connections.get_mut(&who).expect("it is connected");
        // One of level 1 counts for itself, even beside one of level 2 with its identifier.
        let counts = qos == 1 || (qos == 2 && !connection.counted.contains(&id));
        if v5 && counts && connection.counted.len() >= RECEIVE_MAX {
            return self.violation(who);
        }
        if qos == 2 {
            connection.counted.insert(id);
        }
        let new = qos < 2 || self.sessions.get_mut(&who).expect("it has a session").inbound.insert(id);
        let wanted = new && self.distribute(topic, text, qos);
        let code = if new && !wanted && v5 { 0x10 } else { 0 };
        match qos {
            0 => {}
            1 => self.answer(who, Seen::Ack { kind: PUBACK, id, code }),
            _ => self.answer(who, Seen::Ack { kind: PUBREC, id, code }),
        }
    }

    /// Gives a message to everybody who wants it; whether there is anybody.
    fn distribute(&mut self, topic: &str, text: &str, qos: u8) -> bool {
        let mut wanted = false;
        for who in self.sessions.keys().copied().collect::<Vec<_>>() {
            let session = self.sessions.get_mut(&who).expect("it was just listed");
            let granted = session
                .subscriptions
                .iter()
                .filter(|(filter, _)| matches(filter, topic))
                .map(|(_, q)| *q)
                .max();
            let Some(qos) = granted.map(|granted| granted.min(qos)) else { continue };
            wanted = true;
            let (topic, text) = (topic.to_owned(), text.to_owned());
            if qos == 0 {
                if self.is_connected(who) {
                    let seen = Seen::Publish { topic, text, qos, id: 0, dup: false };
                    self.expected.entry(who).or_default().light.push(seen);
                }
                continue;
            }
            session.places += 1;
            let place = session.places;
            let (stage, was_sent, repeated) = (Stage::Waits, false, false);
            session.queue.push(Entry { topic, text, qos, place, id: 0, stage, was_sent, repeated });
            self.pump(who);
        }
        wanted
    }

    fn pump(&mut self, who: Who) {
        let Some(connection) = self.connections.get(&who) else { return };
        let session = self.sessions.get_mut(&who).expect("a connection has a session");
        let sent = session.queue.iter().filter(|entry| entry.stage == Stage::Sent).count();
        let room = connection.window.saturating_sub(sent + session.completing.len());
        let next = session.queue.iter_mut().filter(|entry| entry.stage != Stage::Sent).take(room);
        let deliveries = &mut self.expected.entry(who).or_default().deliveries;
        for entry in next {
            let parked = entry.stage == Stage::Parked;
            // After a restart the identifier of a level 1 message follows from its place again.
            let known = parked || (entry.was_sent && u64::from(entry.id) == (entry.place - 1) % 65_535 + 1);
            deliveries.push(Seen::Publish {
                topic: entry.topic.clone(),
                text: entry.text.clone(),
                qos: entry.qos,
                id: if known { entry.id } else { 0 },
                dup: parked || (entry.repeated && entry.qos == 1),
            });
            if !known {
                entry.id = 0;
            }
            entry.stage = Stage::Sent;
            entry.was_sent = true;
        }
    }

    /// The broker has chosen an identifier for the delivery `text`.
    pub(super) fn chosen(&mut self, who: Who, text: &str, id: u16) {
        let session = self.sessions.get_mut(&who).expect("it was delivered to");
        let used = session.completing.iter().any(|(_, other)| *other == id)
            || session
                .queue
                .iter()
                .any(|entry| entry.id == id && entry.stage != Stage::Waits && entry.text != text);
        assert!(!used && id > 0, "identifier {id} is in use");
        let entry = session.queue.iter_mut().find(|entry| entry.text == text);
        entry.expect("what was delivered and not settled is queued").id = id;
    }

    pub(super) fn acknowledge(&mut self, who: Who, kind: u8, id: u16, code: u8) {
        if kind == PUBREL {
            return self.release(who, id);
        }
        let session = self.sessions.get_mut(&who).expect("it is connected");
        let sent = session.queue.iter().position(|e| e.id == id && e.stage == Stage::Sent);
        let parked = session.queue.iter().any(|e| e.id == id && e.stage == Stage::Parked);
        let completing = session.completing.iter().position(|(_, other)| *other == id);
        let qos = sent.map(|at| session.queue[at].qos);
        match (kind, qos, completing) {
            (PUBACK, Some(1), _) => {
                session.queue.remove(sent.expect("it was found"));
            }
            (PUBREC, Some(_), _) if code >= 0x80 => {
                session.queue.remove(sent.expect("it was found"));
            }
            (PUBREC, Some(2), _) => {
                let entry = session.queue.remove(sent.expect("it was found"));
                session.completing.push((entry.place, id));
                self.release_delivery(who, id, true);
            }
            (PUBCOMP, _, Some(at)) => {
                session.completing.remove(at);
            }
            (PUBREC, None, _) if code >= 0x80 => {}
            (PUBREC, None, _) if !parked => self.release_delivery(who, id, completing.is_some()),
            (PUBACK, None, None) | (PUBCOMP | PUBREC, None, _) => {}
            _ => return self.violation(who),
        }
        self.pump(who);
    }

    fn release_delivery(&mut self, who: Who, id: u16, known: bool) {
        let code = if known || self.version(who) != 5 { 0 } else { 0x92 };
        self.expected.entry(who).or_default().deliveries.push(Seen::Ack { kind: PUBREL, id, code });
    }

    fn release(&mut self, who: Who, id: u16) {
        let known = self.sessions.get_mut(&who).expect("it is connected").inbound.remove(&id);
        let connection = self.connections.get_mut(&who).expect("it is connected");
        connection.counted.remove(&id);
        let code = if known || connection.resumed || connection.version != 5 { 0 } else { 0x92 };
        self.answer(who, Seen::Ack { kind: PUBCOMP, id, code });
    }

    pub(super) fn subscribe(&mut self, who: Who, id: u16, filter: &str, qos: u8) {
        let session = self.sessions.get_mut(&who).expect("it is connected");
        session.subscriptions.insert(filter.into(), qos);
        self.answer(who, Seen::Suback { id, codes: vec![qos] });
    }

    pub(super) fn unsubscribe(&mut self, who: Who, id: u16, filter: &str) {
        let existed =
            self.sessions.get_mut(&who).expect("it is connected").subscriptions.remove(filter).is_some();
        let codes = if self.version(who) < 5 { vec![] } else { vec![if existed { 0 } else { 0x11 }] };
        self.answer(who, Seen::Unsuback { id, codes });
    }

    pub(super) fn ping(&mut self, who: Who) {
        self.answer(who, Seen::Pingresp);
    }

    pub(super) fn violation(&mut self, who: Who) {
        self.lost(who);
        self.expected.entry(who).or_default().closed = true;
    }

    pub(super) fn lost(&mut self, who: Who) {
        self.end(who, true);
        self.publish_will();
    }

    fn publish_will(&mut self) {
        if let Some((topic, text)) = self.will.take() {
            self.distribute(&topic, &text, 1);
        }
    }

    pub(super) fn goodbye(&mut self, who: Who) {
        self.end(who, false);
        self.will = None;
        self.expected.entry(who).or_default().closed = true;
    }

    fn end(&mut self, who: Who, with_will: bool) {
        let Some(connection) = self.connections.remove(&who) else { return };
        self.will = connection.will.filter(|_| with_will);
        let session = self.sessions.get_mut(&who).expect("a connection has a session");
        if !session.kept {
            self.sessions.remove(&who);
            return;
        }
        for entry in session.queue.iter_mut().filter(|entry| entry.stage == Stage::Sent) {
            entry.stage = Stage::Parked;
        }
    }

    /// The process was killed and has started again; everything was durable.
    pub(super) fn killed(&mut self) {
        let connected: Vec<Who> = self.connections.keys().copied().collect();
        self.connections.clear();
        self.sessions.retain(|_, session| session.kept);
        for (who, session) in &mut self.sessions {
            let was_there = connected.contains(who);
            for entry in &mut session.queue {
                entry.repeated |= was_there || entry.was_sent;
                let parked = entry.qos == 2 && entry.stage != Stage::Waits;
                entry.stage = if parked { Stage::Parked } else { Stage::Waits };
            }
        }
    }
}
