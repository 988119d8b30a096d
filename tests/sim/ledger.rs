//! The reference: what was promised to whom, from what the clients have seen alone.
//!
//! A message becomes *owed* to a session when its publisher hears that it was accepted, if the session surely existed and was
//! surely subscribed from before the message was sent until then. It is paid when the client receives it. Everything else is
//! allowed to be uncertain, and nothing is owed then. Numbers of messages stand in their payloads.

mod audit;

use std::collections::{BTreeMap, BTreeSet};

use crate::action::Draft;
use crate::cast::{CAST, CLIENTS, FOLLOWED, FOLLOWER, GROUP, LINK, is_durable, is_lossy, is_member, name};
use crate::jobs::JOBS_FROM;
use crate::payload::{matches, number};

/// Number of a message; the first one is 1.
pub type Number = u64;

/// A broken promise.
pub type Verdict = Result<(), String>;

/// Milliseconds that the ledger's idea of a session's end may differ from the gateway's.
const EXPIRY_SLACK_MILLIS: u64 = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Open,
    Accepted,
    Refused,
    /// Nobody will say any more what became of it.
    Abandoned,
}

/// A message.
#[derive(Clone, Debug)]
pub struct Sent {
    pub source: usize,
    pub draft: Draft,
    /// Place among the source's messages.
    order: u64,
    pub attempts: u32,
    pub fate: Fate,
    /// Refusals before it was sent; whether an attempt may have been refused without its publisher hearing of it.
    refusals: u64,
    maybe_refused: bool,
    step: usize,
    /// Wall time from which on it may be dropped.
    expires: Option<u64>,
    /// Sessions that it will be owed to.
    candidates: BTreeSet<usize>,
    /// The transaction that publishes it: its order is that of commits.
    deal: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Sure,
    Maybe,
    /// Surely not any more: since this step.
    Gone(usize),
}

#[derive(Clone, Copy, Debug)]
struct Sub {
    qos: u8,
    hold: Hold,
}

/// What is known of a session.
#[derive(Clone, Debug, Default)]
struct Session {
    /// It exists / it may exist at the gateway.
    must: bool,
    may: bool,
    last_there: u64,
    subs: BTreeMap<String, Sub>,
    /// The last message sent before the last SUBSCRIBE.
    subscribed_after: Number,
    owed: BTreeSet<Number>,
    seen: BTreeSet<Number>,
    seen_qos2: BTreeSet<Number>,
    last: BTreeMap<(usize, String, u8, u8), u64>,
}

/// A PUBLISH as a client got it.
#[derive(Clone, Debug)]
pub struct Arrival<'a> {
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub qos: u8,
    pub retain: bool,
    /// QoS 2: the same identifier is known and not released.
    pub again: bool,
    /// It came on this connection before.
    pub same_connection: bool,
}

/// The values that a retained topic may have.
#[derive(Clone, Debug, Default)]
struct Retained {
    /// In the order of sending; `None` removes it.
    values: Vec<Option<Number>>,
    /// The last one acknowledged.
    acknowledged: usize,
}

pub struct Ledger {
    sent: Vec<Sent>,
    sessions: Vec<Session>,
    retained: BTreeMap<String, Retained>,
    /// Retained removals under way: not numbered in the payload.
    clears: BTreeMap<Number, (String, usize)>,
    /// The gateway's time now, and the latest that it ever was.
    wall: u64,
    wall_max: u64,
    pub step: usize,
    /// Messages that the gateway has refused so far.
    pub refusals: u64,
    pub received: u64,
    /// Transactions of which something was received.
    pub deals_seen: Vec<usize>,
    /// Jobs that came to a client, with their quality of service, and whether that was asked for again.
    pub jobs_seen: Vec<(u64, u8, bool)>,
}

impl Ledger {
    pub fn new() -> Self {
        Self {
            sent: vec![],
            sessions: vec![Session::default(); FOLLOWER + 1],
            retained: BTreeMap::new(),
            clears: BTreeMap::new(),
            wall: 0,
            wall_max: 0,
            step: 0,
            refusals: 0,
            received: 0,
            deals_seen: vec![],
            jobs_seen: vec![],
        }
    }

    pub fn sent(&self, n: Number) -> Option<&Sent> {
        self.sent.get((n as usize).checked_sub(1)?)
    }

    fn sent_mut(&mut self, n: Number) -> &mut Sent {
        &mut self.sent[n as usize - 1]
    }

    pub fn messages(&self) -> usize {
        self.sent.len()
    }

    // Sessions.

    /// CONNECT leaves the client.
    pub fn connecting(&mut self, client: usize, clean: bool) {
        let session = &mut self.sessions[client];
        if clean || !is_durable(client) {
            session.must = false;
            // The client begins anew, whether the gateway has heard of it or not.
            let seen_qos2 = std::mem::take(&mut session.seen_qos2);
            session.seen.clear();
            session.last.clear();
            if is_member(client) {
                self.sessions[GROUP].seen_qos2.retain(|n| !seen_qos2.contains(n));
            }
            self.forget(client);
        }
        self.sessions[client].may = true;
    }

    /// The session's time may be over.
    pub fn may_be_over(&self, client: usize) -> bool {
        self.sessions[client].may && !self.sessions[client].must
    }

    /// Nothing is sure of the session any more.
    fn forget(&mut self, client: usize) {
        let session = &mut self.sessions[client];
        session.owed.clear();
        for sub in session.subs.values_mut().filter(|sub| sub.hold == Hold::Sure) {
            sub.hold = Hold::Maybe;
        }
        if is_member(client) {
            // What had moved to this member alone is gone with it.
            let qos2: Vec<Number> = self.sessions[GROUP]
                .owed
                .iter()
                .copied()
                .filter(|n| self.sent[*n as usize - 1].draft.qos == 2)
                .collect();
            qos2.iter().for_each(|n| {
                self.sessions[GROUP].owed.remove(n);
            });
            for sent in self.sent.iter_mut().filter(|sent| sent.draft.qos == 2) {
                sent.candidates.remove(&GROUP);
            }
        }
        self.recheck_candidates(client);
    }

    /// CONNACK came.
    pub fn connected(&mut self, client: usize, present: bool) -> Verdict {
        let who = name(client);
        let session = &mut self.sessions[client];
        if session.must && !present {
            return Err(format!("I1: the session of {who} is lost"));
        }
        if !present {
            let (may, last_there) = (true, session.last_there);
            *session = Session { may, last_there, ..Session::default() };
            self.forget(client);
        }
        let session = &mut self.sessions[client];
        session.must = is_durable(client);
        session.last_there = self.wall;
        Ok(())
    }

    /// The client's connection is there, or ends, now.
    pub fn is_there(&mut self, client: usize) {
        self.sessions[client].last_there = self.wall;
    }

    /// Sessions whose time may be over.
    pub fn pass_time(&mut self, wall: u64) {
        self.wall = wall;
        self.wall_max = self.wall_max.max(wall);
        for (client, expiry) in CAST.iter().map(|part| part.expiry).enumerate() {
            let session = &self.sessions[client];
            let over = session.last_there + u64::from(expiry) * 1000;
            if session.must && expiry != u32::MAX && self.wall_max + EXPIRY_SLACK_MILLIS >= over {
                self.sessions[client].must = false;
                self.forget(client);
            }
        }
    }

    /// A process has started; its clock may be behind that of the one before.
    pub fn started(&mut self, wall: u64) {
        for (client, session) in self.sessions.iter_mut().enumerate() {
            session.last_there = session.last_there.min(wall);
            // What was dropped to make room may come back.
            if is_lossy(client) {
                session.last.clear();
            }
        }
        self.pass_time(wall);
    }

    // Subscriptions.

    pub fn subscribing(&mut self, client: usize, filter: &str, qos: u8) {
        self.sessions[client].subscribed_after = self.sent.len() as Number;
        let subs = &mut self.sessions[client].subs;
        let sub = subs.entry(filter.to_owned()).or_insert(Sub { qos: 0, hold: Hold::Maybe });
        // From one that is owed messages to another is no gap.
        if sub.qos == 0 || qos == 0 || sub.hold != Hold::Sure {
            sub.hold = Hold::Maybe;
        }
        sub.qos = qos;
        self.recheck_candidates(client);
    }

    pub fn subscribed(&mut self, client: usize, filter: &str, code: u8) -> Verdict {
        let Some(sub) = self.sessions[client].subs.get_mut(filter) else { return Ok(()) };
        if code == sub.qos {
            sub.hold = Hold::Sure;
            return Ok(());
        }
        if code < 0x80 {
            return Err(format!("{} asked for QoS {} and was granted {code}", name(client), sub.qos));
        }
        sub.hold = Hold::Maybe;
        self.recheck_candidates(client);
        Ok(())
    }

    /// A worker asks for the durable subscription, which makes it if it is not there.
    pub fn following(&mut self) {
        self.sessions[FOLLOWER].may = true;
        self.subscribing(FOLLOWER, FOLLOWED, 1);
    }

    /// It has it.
    pub fn follows(&mut self) -> Verdict {
        self.sessions[FOLLOWER].must = true;
        self.subscribed(FOLLOWER, FOLLOWED, 1)
    }

    pub fn unsubscribing(&mut self, client: usize, filter: &str) {
        if let Some(sub) = self.sessions[client].subs.get_mut(filter)
            && sub.hold == Hold::Sure
        {
            sub.hold = Hold::Maybe;
        }
        self.recheck_candidates(client);
    }

    pub fn unsubscribed(&mut self, client: usize, filter: &str) {
        let step = self.step;
        if let Some(sub) = self.sessions[client].subs.get_mut(filter) {
            sub.hold = Hold::Gone(step);
        }
    }

    fn is_sure(&self, client: usize, topic: &str) -> bool {
        let session = &self.sessions[client];
        let sure =
            |(filter, sub): (&String, &Sub)| sub.hold == Hold::Sure && sub.qos > 0 && matches(filter, topic);
        session.must && session.subs.iter().any(sure)
    }

    fn group_is_sure(&self) -> bool {
        (0..CLIENTS).any(|client| is_member(client) && self.is_sure(client, "t/0"))
    }

    fn recheck_candidates(&mut self, client: usize) {
        let group_is_sure = self.group_is_sure();
        if !group_is_sure {
            self.sessions[GROUP].owed.clear();
        }
        let mut sent = std::mem::take(&mut self.sent);
        for message in sent.iter_mut().filter(|sent| sent.fate == Fate::Open) {
            if message.candidates.contains(&client) && !self.is_sure(client, &message.draft.topic) {
                message.candidates.remove(&client);
            }
            if !group_is_sure {
                message.candidates.remove(&GROUP);
            }
        }
        self.sent = sent;
    }

    fn candidates(&self, topic: &str, qos: u8) -> BTreeSet<usize> {
        if qos == 0 {
            return BTreeSet::new();
        }
        let mut all: BTreeSet<usize> = (0..CLIENTS)
            .chain([FOLLOWER])
            .filter(|client| !is_lossy(*client) && !is_member(*client) && self.is_sure(*client, topic))
            .collect();
        if topic.starts_with("t/") && self.group_is_sure() {
            all.insert(GROUP);
        }
        all
    }

    // Publishing.

    /// A new message leaves its publisher for the first time.
    pub fn publish(&mut self, source: usize, draft: &Draft) -> Number {
        let n = self.sent.len() as Number + 1;
        let expires = draft.expiry.map(|secs| self.wall + u64::from(secs) * 1000);
        let candidates =
            if draft.len == 0 { BTreeSet::new() } else { self.candidates(&draft.topic, draft.qos) };
        if draft.retain {
            let values = self
                .retained
                .entry(draft.topic.clone())
                .or_insert_with(|| Retained { values: vec![None], acknowledged: 0 });
            values.values.push((draft.len > 0).then_some(n));
            self.clears.insert(n, (draft.topic.clone(), values.values.len() - 1));
        }
        self.sent.push(Sent {
            source,
            draft: draft.clone(),
            order: n,
            attempts: 1,
            fate: Fate::Open,
            refusals: self.refusals,
            maybe_refused: false,
            step: self.step,
            expires,
            candidates,
            deal: None,
        });
        n
    }

    /// A worker sends a message to the topic `t/<topic>`, perhaps in a transaction.
    pub fn publish_as_worker(&mut self, source: usize, topic: u8, len: usize, deal: Option<usize>) -> Number {
        let n = self.publish(
            source,
            &Draft { topic: format!("t/{topic}"), qos: 1, retain: false, len, expiry: None },
        );
        self.sent_mut(n).deal = deal;
        n
    }

    /// It leaves once more.
    pub fn publish_again(&mut self, n: Number) {
        let refusals = self.refusals;
        let sent = self.sent_mut(n);
        sent.attempts += 1;
        // Before MQTT 5.0 a refusal is the end of the connection, and nothing overtakes.
        sent.maybe_refused |= refusals > sent.refusals && CAST[sent.source].version.is_v5();
    }

    /// PUBACK or PUBREC.
    pub fn answered(&mut self, n: Number, reason: u8) -> Verdict {
        let wall = self.wall_max;
        let sent = self.sent_mut(n);
        if reason >= 0x80 {
            let sure = sent.attempts == 1;
            sent.fate = if sure { Fate::Refused } else { Fate::Abandoned };
            return Ok(());
        }
        sent.fate = Fate::Accepted;
        let candidates = std::mem::take(&mut sent.candidates);
        let lives = sent.expires.is_none_or(|at| wall < at);
        if reason == 0x10 && !candidates.is_empty() {
            return Err(format!("message {n} was said to have no subscribers, but has {candidates:?}"));
        }
        for session in candidates {
            let session = &mut self.sessions[session];
            if lives && !session.seen.contains(&n) {
                session.owed.insert(n);
            }
        }
        if let Some((topic, at)) = self.clears.get(&n)
            && let Some(retained) = self.retained.get_mut(topic)
        {
            retained.acknowledged = retained.acknowledged.max(*at);
        }
        Ok(())
    }

    /// Its publisher will never know.
    pub fn abandon(&mut self, n: Number) {
        let sent = self.sent_mut(n);
        if sent.fate == Fate::Open {
            sent.fate = Fate::Abandoned;
            sent.candidates.clear();
        }
    }

    /// It will never come, for sure.
    pub fn will_is_cancelled(&mut self, n: Number) {
        self.sent_mut(n).fate = Fate::Refused;
    }

    /// A will that is due becomes owed.
    pub fn will_is_due(&mut self, n: Number) {
        let candidates = std::mem::take(&mut self.sent_mut(n).candidates);
        self.sent_mut(n).fate = Fate::Accepted;
        for session in candidates {
            let session = &mut self.sessions[session];
            if !session.seen.contains(&n) {
                session.owed.insert(n);
            }
        }
    }

    /// From now on subscribers are owed the will, should it come to that.
    pub fn will_may_come(&mut self, n: Number) {
        let draft = self.sent_mut(n).draft.clone();
        let candidates = self.candidates(&draft.topic, draft.qos);
        self.sent_mut(n).candidates = candidates;
    }

    // Delivery.

    fn may_be_subscribed(&self, client: usize, sent: &Sent) -> bool {
        let subs = &self.sessions[client].subs;
        let allows = |(filter, sub): (&String, &Sub)| {
            matches(filter, &sent.draft.topic)
                && match sub.hold {
                    Hold::Gone(step) => sent.step <= step,
                    Hold::Sure | Hold::Maybe => true,
                }
        };
        client == LINK || subs.iter().any(allows)
    }

    /// A client receives a message.
    pub fn arrived(&mut self, client: usize, arrival: &Arrival<'_>) -> Verdict {
        let who = name(client);
        if arrival.payload.is_empty() && arrival.topic.starts_with("r/") {
            return Ok(());
        }
        let n = number(arrival.payload).ok_or_else(|| format!("{who} got a payload that nobody sent"))?;
        if n >= JOBS_FROM {
            self.jobs_seen.push((n, arrival.qos, arrival.again));
            return Ok(());
        }
        let sent = self.sent(n).ok_or_else(|| format!("{who} got message {n}, which nobody sent"))?.clone();
        self.received += 1;
        self.deals_seen.extend(sent.deal);
        let draft = &sent.draft;
        if arrival.topic != draft.topic
            || arrival.payload.len() != draft.len.max(8)
            || arrival.qos > draft.qos
        {
            return Err(format!("{who} got message {n} changed: {arrival:?} of {draft:?}"));
        }
        if sent.fate == Fate::Refused {
            return Err(format!("{who} got message {n}, which was refused"));
        }
        if !self.may_be_subscribed(client, &sent) {
            return Err(format!("{who} got message {n} ({}) without a subscription", draft.topic));
        }
        // What a new subscription brings is a copy of its own.
        if arrival.retain || arrival.again {
            return Ok(());
        }
        let first = !self.sessions[client].seen.contains(&n);
        let once = draft.qos == 0 || (arrival.same_connection && sent.attempts == 1);
        if !first && once && !is_member(client) {
            return Err(format!("{who} got message {n} twice"));
        }
        if arrival.qos == 2 {
            self.exactly_once(client, n)?;
        }
        let session = &mut self.sessions[client];
        session.seen.insert(n);
        session.owed.remove(&n);
        if is_member(client) {
            self.sessions[GROUP].seen.insert(n);
            self.sessions[GROUP].owed.remove(&n);
        } else if sent.deal.is_some() {
            // Transactions overtake each other.
        } else if sent.attempts > 1
            && (is_lossy(client)
                || arrival.qos == 0
                || sent.maybe_refused
                || n <= self.sessions[client].subscribed_after)
        {
            // Of two copies the first one may have been dropped, refused or for nobody, behind others that were not.
        } else if first && sent.expires.is_none_or(|at| self.wall_max < at) {
            self.in_order(client, n, &sent, arrival.qos)?;
        }
        Ok(())
    }

    fn exactly_once(&mut self, client: usize, n: Number) -> Verdict {
        let whole = if is_member(client) { GROUP } else { client };
        let again = !self.sessions[whole].seen_qos2.insert(n);
        self.sessions[client].seen_qos2.insert(n);
        if again {
            return Err(format!("I8: {} got message {n} twice with QoS 2", name(client)));
        }
        Ok(())
    }

    fn in_order(&mut self, client: usize, n: Number, sent: &Sent, qos: u8) -> Verdict {
        let key = (sent.source, sent.draft.topic.clone(), sent.draft.qos, qos);
        let last = self.sessions[client].last.entry(key).or_insert(0);
        if *last > sent.order {
            let late = format!("{} got message {n} after {last}", name(client));
            return Err(format!("I3: {late} ({}, QoS {})", sent.draft.topic, sent.draft.qos));
        }
        *last = sent.order;
        Ok(())
    }
}
