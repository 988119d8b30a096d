//! A worker: a STOMP client that sends jobs to named queues, takes them, and does both in transactions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidegate::broker::api::ConnId;
use tidegate_stomp::client::{Client, Extra, Login};
use tidegate_stomp::{AckMode, Command, DecodeLimits, FrameWriter, HeartBeat, Version};

use crate::cast::{CLIENTS, FOLLOWED, FOLLOWER};
use crate::deals::{DONE, NOTHING};
use crate::deeds::{Consume, Parcel};
use crate::frames::{self, Told};
use crate::jobs::{Answer, Book, Handed};
use crate::ledger::{Arrival, Ledger, Number, Verdict};
use crate::payload::{number, payload};
use crate::queues::QUEUES;
use crate::wire::Wire;

/// All of them.
pub const WORKERS: usize = 4;
/// Their versions.
const VERSIONS: [Version; WORKERS] = [Version::V12, Version::V11, Version::V12, Version::V11];
/// Requests without an answer; more are not made.
const REQUESTS_MAX: usize = 24;
/// Subscriptions of a worker.
const SUBS_MAX: usize = 6;

/// What a receipt is for.
#[derive(Clone, Debug)]
enum Request {
    Send(u64),
    SendTopic(Number),
    Answers(Vec<(u64, usize)>, Answer),
    Commit(usize),
    Prepare(usize),
    Decide(usize, bool),
    Follow,
    Goodbye,
    Other,
}

/// A subscription.
#[derive(Clone, Copy, Debug)]
struct Sub {
    /// `None`: the durable subscription.
    queue: Option<usize>,
    mode: AckMode,
    browses: bool,
    selects: bool,
    /// UNSUBSCRIBE has left; what was on its way still arrives.
    ended: bool,
}

/// A delivery that is not answered.
#[derive(Clone, Debug)]
struct Taken {
    job: u64,
    sub: u32,
    queue: Option<usize>,
    names: frames::Names,
    /// Answered in the open transaction.
    within: bool,
}

pub struct Worker {
    pub number: usize,
    pub wire: Option<Wire>,
    open: bool,
    pub stalled: bool,
    /// It answers at once.
    pub diligent: bool,
    client: Client,
    requests: BTreeMap<u32, Request>,
    last: u32,
    subs: BTreeMap<u32, Sub>,
    taken: VecDeque<Taken>,
    deal: Option<usize>,
    /// What came to the durable subscription on this connection.
    followed: BTreeSet<Number>,
}

impl Worker {
    pub fn new(number: usize) -> Self {
        Self {
            number,
            wire: None,
            open: false,
            stalled: false,
            diligent: false,
            client: Client::new(DecodeLimits::default()),
            requests: BTreeMap::new(),
            last: 0,
            subs: BTreeMap::new(),
            taken: VecDeque::new(),
            deal: None,
            followed: BTreeSet::new(),
        }
    }

    pub fn is_open(&self) -> bool {
        self.open && self.wire.as_ref().is_some_and(|wire| !wire.ended)
    }

    fn is_busy(&self) -> bool {
        !self.is_open() || self.requests.len() >= REQUESTS_MAX
    }

    /// The gateway's queue of this number is consumed.
    pub fn consumes(&self, queue: usize) -> bool {
        let takes = |sub: &Sub| !sub.ended && !sub.browses && !sub.selects && sub.mode != AckMode::Auto;
        self.subs.values().any(|sub| sub.queue == Some(queue) && takes(sub))
    }

    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    pub fn connect(&mut self, id: ConnId) {
        self.client = Client::new(DecodeLimits::default());
        let mut wire = Wire::new(id);
        let mut bytes = vec![];
        let login = Login {
            versions: &[VERSIONS[self.number]],
            host: "h",
            login: None,
            heart_beat: HeartBeat { send_ms: 0, receive_ms: 0 },
        };
        self.client.connect(&mut bytes, &login).expect("it can be encoded");
        wire.up.extend(bytes);
        self.wire = Some(wire);
        self.stalled = false;
    }

    /// The connection is gone; what its socket had taken was never read.
    pub fn lose(&mut self, book: &mut Book, ledger: &mut Ledger) -> Verdict {
        let Some(mut wire) = self.wire.take() else { return Ok(()) };
        let (input, mut at) = (wire.take_input(), 0);
        while let Ok(Some((told, used))) = frames::decode(&mut self.client, &input[at..]) {
            at += used;
            if let Some(Told::Message(message)) = told
                && self.subs.get(&message.sub).is_some_and(|sub| sub.mode == AckMode::Auto && !sub.browses)
            {
                book.settled_unseen(number(&message.body).unwrap_or(0));
            }
        }
        self.open = false;
        self.taken.drain(..).filter(|taken| taken.queue.is_some()).for_each(|taken| book.release(taken.job));
        for request in std::mem::take(&mut self.requests).into_values() {
            match request {
                Request::SendTopic(n) => ledger.abandon(n),
                Request::Prepare(deal) => book.deals[deal].settled = true,
                _ => {}
            }
        }
        self.subs.clear();
        self.followed.clear();
        match self.deal.take() {
            Some(deal) => book.narrow(deal, NOTHING, "its connection ended before it"),
            None => Ok(()),
        }
    }

    fn next(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    fn say(&mut self, write: impl FnOnce(&Client, &mut Vec<u8>)) {
        let mut bytes = vec![];
        write(&self.client, &mut bytes);
        if let Some(wire) = self.wire.as_mut().filter(|wire| !wire.ended) {
            wire.up.extend(bytes);
        }
    }

    /// Says something that is answered with a receipt.
    fn ask(&mut self, request: Request, write: impl FnOnce(&Client, &mut Vec<u8>, Extra<'_>)) {
        let receipt = self.next();
        self.requests.insert(receipt, request);
        let text = receipt.to_string();
        self.say(|client, out| write(client, out, &[("receipt", &text)]));
    }

    pub fn goodbye(&mut self) {
        if !self.is_busy() {
            let receipt = self.next();
            self.requests.insert(receipt, Request::Goodbye);
            self.say(|client, out| client.disconnect(out, &receipt.to_string()).expect("it can be encoded"));
        }
    }

    fn transaction_name(deal: usize) -> String {
        format!("tx-{deal}")
    }

    pub fn send(&mut self, parcel: &Parcel, book: &mut Book, ledger: &mut Ledger) {
        let Some(conn) = self.wire.as_ref().map(|wire| wire.id).filter(|_| !self.is_busy()) else { return };
        let deal = self.deal.filter(|_| parcel.within);
        let (destination, n, request) = match parcel.to {
            Ok(queue) => {
                let job = book.send(conn, queue, parcel.len, parcel.ttl_millis, deal);
                (format!("/queue/{}", QUEUES[queue].name), job, Request::Send(job))
            }
            Err(topic) => {
                let n = ledger.publish_as_worker(CLIENTS + self.number, topic, parcel.len, deal);
                if let Some(deal) = deal {
                    book.deals[deal].topics.push(n);
                }
                (format!("/topic/t/{topic}"), n, Request::SendTopic(n))
            }
        };
        // Within a transaction nothing is promised before its end.
        let request = if deal.is_some() { Request::Other } else { request };
        let body = payload(n, parcel.len);
        let transaction = deal.map(Self::transaction_name);
        let ttl = parcel.ttl_millis.filter(|_| parcel.to.is_ok()).map(|millis| millis.to_string());
        self.ask(request, |client, out, receipt| {
            let mut extra = receipt.to_vec();
            extra.push(("kind", if n % 2 == 0 { "even" } else { "odd" }));
            extra.extend(transaction.as_deref().map(|name| ("transaction", name)));
            extra.extend(ttl.as_deref().map(|ttl| ("ttl", ttl)));
            extra.extend((parcel.to.is_ok() && parcel.qos == 2).then_some(("qos", "2")));
            client.send(out, &destination, &body, &extra).expect("it can be encoded");
        });
    }

    /// Consumes every queue and keeps nothing back.
    pub fn take_everything(&mut self, number: usize, book: &mut Book) {
        if !self.is_open() {
            return;
        }
        for queue in (0..QUEUES.len()).filter(|queue| queue % WORKERS == number) {
            if !self.consumes(queue) {
                let mode = AckMode::ClientIndividual;
                self.consume(&Consume {
                    queue,
                    mode,
                    prefetch: 20,
                    selects: false,
                    browses: false,
                    exclusive: false,
                    priority: 0,
                });
            }
        }
        self.answer(Answer::Accept, usize::MAX, false, book);
    }

    pub fn consume(&mut self, how: &Consume) {
        if self.is_busy() || self.subs.values().filter(|sub| !sub.ended).count() >= SUBS_MAX {
            return;
        }
        let id = self.next();
        self.subs.insert(
            id,
            Sub {
                queue: Some(how.queue),
                mode: how.mode,
                browses: how.browses,
                selects: how.selects,
                ended: false,
            },
        );
        let destination = format!("/queue/{}", QUEUES[how.queue].name);
        let (prefetch, priority) = (how.prefetch.to_string(), how.priority.to_string());
        self.ask(Request::Other, |client, out, receipt| {
            let mut extra = receipt.to_vec();
            extra.extend([("prefetch-count", prefetch.as_str()), ("consumer-priority", priority.as_str())]);
            extra.extend(how.selects.then_some(("selector", "kind = 'even'")));
            extra.extend(how.browses.then_some(("browser", "true")));
            extra.extend(how.exclusive.then_some(("exclusive", "true")));
            client
                .subscribe(out, &id.to_string(), &destination, how.mode, &extra)
                .expect("it can be encoded");
        });
    }

    /// Takes the durable subscription, which another worker may have.
    pub fn follow(&mut self, ledger: &mut Ledger) {
        let follows = self.subs.values().any(|sub| sub.queue.is_none() && !sub.ended);
        if self.is_busy() || follows {
            return;
        }
        let id = self.next();
        let mode = AckMode::ClientIndividual;
        self.subs.insert(id, Sub { queue: None, mode, browses: false, selects: false, ended: false });
        // What was not acknowledged before comes once more.
        self.followed.clear();
        ledger.following();
        self.ask(Request::Follow, |client, out, receipt| {
            let durable = [("durable", "true"), ("durable-subscription-name", "log")];
            let extra = [receipt, &durable].concat();
            let topic = format!("/topic/{FOLLOWED}");
            client.subscribe(out, &id.to_string(), &topic, mode, &extra).expect("it can be encoded");
        });
    }

    /// Ends all subscriptions. What was delivered may still be answered.
    pub fn stop_consuming(&mut self) {
        if self.is_busy() {
            return;
        }
        let live: Vec<u32> = self.subs.iter().filter(|(_, sub)| !sub.ended).map(|(id, _)| *id).collect();
        for id in live {
            self.say(|client, out| client.unsubscribe(out, &id.to_string(), &[]).expect("it can be encoded"));
            self.subs.entry(id).and_modify(|sub| sub.ended = true);
        }
    }

    /// Answers deliveries, at most `count`.
    pub fn answer(&mut self, answer: Answer, count: usize, within: bool, book: &mut Book) {
        for _ in 0..count {
            let Some(at) = self.taken.iter().position(|taken| !taken.within) else { return };
            if self.is_busy() {
                return;
            }
            let taken = self.taken[at].clone();
            let covers = self.covers(at);
            let job = |n: &usize| self.taken[*n].queue.map(|queue| (self.taken[*n].job, queue));
            let jobs: Vec<(u64, usize)> = covers.iter().filter_map(job).collect();
            let deal = self.deal.filter(|_| within && taken.queue.is_some());
            // What is no queue's has no place to go back to.
            let answer = if taken.queue.is_some() { answer } else { Answer::Accept };
            if let Some(deal) = deal {
                jobs.iter().for_each(|(job, queue)| book.answer_within(deal, *job, *queue, answer));
                covers.iter().for_each(|n| self.taken[*n].within = true);
                self.say_answer(Request::Other, &taken, answer, Some(&Self::transaction_name(deal)));
            } else {
                jobs.iter().for_each(|(job, queue)| book.answer(*job, *queue, answer));
                covers.iter().rev().for_each(|n| drop(self.taken.remove(*n)));
                self.say_answer(Request::Answers(jobs, answer), &taken, answer, None);
            }
        }
    }

    /// The deliveries that an answer to the one at `at` answers: all before it too, if its subscription wants it so.
    fn covers(&self, at: usize) -> Vec<usize> {
        let sub = self.taken[at].sub;
        let cumulative = self.subs.get(&sub).is_some_and(|sub| sub.mode == AckMode::Client && !sub.ended);
        let covered = |n: &usize| {
            let other = &self.taken[*n];
            !other.within && other.sub == sub && (*n == at || cumulative)
        };
        (0..=at).filter(covered).collect()
    }

    fn say_answer(&mut self, request: Request, taken: &Taken, answer: Answer, transaction: Option<&str>) {
        let command = if answer == Answer::Accept { Command::Ack } else { Command::Nack };
        self.ask(request, |client, out, receipt| {
            let mut frame = FrameWriter::new(out, client.version(), command).expect("a version with NACK");
            taken.names.write(&mut frame, client.version());
            frame.headers(receipt.iter().copied()).expect("it can be encoded");
            frame.optional("transaction", transaction).expect("it can be encoded");
            frame
                .optional("requeue", (answer == Answer::Bury).then_some("false"))
                .expect("it can be encoded");
            frame.end(b"").expect("it can be encoded");
        });
    }

    // Transactions.

    pub fn begin(&mut self, with_xid: bool, book: &mut Book) {
        if self.is_busy() || self.deal.is_some() {
            return;
        }
        let deal = book.begin(with_xid.then(|| format!("xid-{}", book.deals.len())));
        self.deal = Some(deal);
        let xid = book.deals[deal].xid.clone();
        self.ask(Request::Other, |client, out, receipt| {
            let mut extra = receipt.to_vec();
            extra.extend(xid.as_deref().map(|xid| ("xid", xid)));
            client.begin(out, &Self::transaction_name(deal), &extra).expect("it can be encoded");
        });
    }

    /// Carries the open transaction out, or prepares it if it may be.
    pub fn commit(&mut self, prepare: bool, book: &mut Book) {
        let Some(deal) = self.deal.filter(|_| !self.is_busy()) else { return };
        self.deal = None;
        let xid = book.deals[deal].xid.clone().filter(|_| prepare);
        book.ending(deal, xid.is_some());
        self.taken.retain(|taken| !taken.within);
        let request = if xid.is_some() { Request::Prepare(deal) } else { Request::Commit(deal) };
        self.ask(request, |client, out, receipt| {
            let mut extra = receipt.to_vec();
            extra.extend(xid.is_some().then_some(("phase", "prepare")));
            client.commit(out, &Self::transaction_name(deal), &extra).expect("it can be encoded");
        });
    }

    pub fn abort(&mut self, book: &mut Book) -> Verdict {
        let Some(deal) = self.deal.filter(|_| !self.is_busy()) else { return Ok(()) };
        self.deal = None;
        self.taken.iter_mut().for_each(|taken| taken.within = false);
        self.ask(Request::Other, |client, out, receipt| {
            client.abort(out, &Self::transaction_name(deal), receipt).expect("it can be encoded");
        });
        book.narrow(deal, NOTHING, "it was aborted")
    }

    /// Decides a prepared transaction, whoever prepared it.
    pub fn decide(&mut self, deal: usize, commit: bool, book: &mut Book) {
        let Some(xid) = book.deals[deal].xid.clone().filter(|_| !self.is_busy()) else { return };
        book.deciding(deal, commit);
        self.ask(Request::Decide(deal, commit), |client, out, receipt| {
            let extra = [receipt, &[("xid", xid.as_str())]].concat();
            let command = if commit { Command::Commit } else { Command::Abort };
            let mut frame = FrameWriter::new(out, client.version(), command).expect("every version has it");
            frame.headers(extra.iter().copied()).expect("it can be encoded");
            frame.end(b"").expect("it can be encoded");
        });
    }

    // What it hears.

    /// Reads everything that has arrived.
    pub fn read(&mut self, book: &mut Book, ledger: &mut Ledger, lives: &dyn Fn(ConnId) -> bool) -> Verdict {
        let Some(wire) = &mut self.wire else { return Ok(()) };
        let mut input = wire.take_input();
        let mut at = 0;
        while let Some((told, used)) = frames::decode(&mut self.client, &input[at..])? {
            at += used;
            match told {
                Some(Told::Message(message)) => self.message(&message, book, ledger, lives)?,
                Some(Told::Connected) => self.open = true,
                Some(Told::Receipt(receipt)) => self.receipt(receipt, book, ledger)?,
                Some(Told::Error { receipt, text }) => self.error(receipt, &text, book, ledger)?,
                None => {}
            }
        }
        input.drain(..at);
        if let Some(wire) = &mut self.wire {
            wire.half = input;
        }
        Ok(())
    }

    fn message(
        &mut self,
        message: &frames::Message,
        book: &mut Book,
        ledger: &mut Ledger,
        lives: &dyn Fn(ConnId) -> bool,
    ) -> Verdict {
        if message.is_end_of_browsing {
            return Ok(());
        }
        let Some(sub) = self.subs.get(&message.sub).copied() else {
            return Err(format!("a message for subscription {}, which never was", message.sub));
        };
        let Some(queue) = sub.queue else { return self.follows(message, ledger) };
        let job = number(&message.body).unwrap_or(0);
        let auto = sub.mode == AckMode::Auto;
        let conn = self.wire.as_ref().map(|wire| wire.id).unwrap_or_default();
        let handed = Handed {
            job,
            queue,
            conn,
            subscription: message.sub,
            len: message.body.len(),
            redelivered: message.redelivered,
            browsed: sub.browses,
            auto,
        };
        book.handed(&handed, lives)?;
        if sub.browses || auto {
            return Ok(());
        }
        let names = message.names.clone();
        self.taken.push_back(Taken { job, sub: message.sub, queue: Some(queue), names, within: false });
        if self.diligent {
            self.answer(Answer::Accept, 1, false, book);
        }
        Ok(())
    }

    /// A message of the durable subscription.
    fn follows(&mut self, message: &frames::Message, ledger: &mut Ledger) -> Verdict {
        let n = number(&message.body).unwrap_or(0);
        let arrival = Arrival {
            topic: message.destination.strip_prefix("/topic/").unwrap_or_default(),
            payload: &message.body,
            qos: message.qos,
            retain: false,
            again: false,
            same_connection: !self.followed.insert(n),
        };
        ledger.arrived(FOLLOWER, &arrival)?;
        let names = message.names.clone();
        self.taken.push_back(Taken { job: n, sub: message.sub, queue: None, names, within: false });
        Ok(())
    }

    fn receipt(&mut self, receipt: u32, book: &mut Book, ledger: &mut Ledger) -> Verdict {
        let Some(request) = self.requests.remove(&receipt) else {
            return Err(format!("receipt {receipt} is for nothing"));
        };
        match request {
            Request::Send(job) => book.answered(job, true),
            Request::SendTopic(n) => ledger.answered(n, 0),
            Request::Answers(jobs, answer) => {
                jobs.iter().for_each(|(job, queue)| book.answer_is_durable(*job, *queue, answer));
                Ok(())
            }
            Request::Commit(deal) => book.narrow(deal, DONE, "it was committed"),
            Request::Prepare(deal) => book.prepared(deal),
            Request::Decide(deal, true) => book.narrow(deal, DONE, "it was decided"),
            Request::Decide(deal, false) => book.narrow(deal, NOTHING, "it was rolled back"),
            Request::Follow => ledger.follows(),
            Request::Goodbye | Request::Other => Ok(()),
        }
    }

    fn error(&mut self, receipt: Option<u32>, text: &str, book: &mut Book, ledger: &mut Ledger) -> Verdict {
        let request = receipt.and_then(|receipt| self.requests.remove(&receipt));
        let is_quota = text.contains("refused") || text.contains("too many") || text.contains("too large");
        match request {
            Some(Request::Send(job)) if is_quota => book.answered(job, false),
            Some(Request::SendTopic(n)) if is_quota => ledger.answered(n, 0x97),
            Some(Request::Commit(deal) | Request::Prepare(deal)) if is_quota || text.contains("no such") => {
                book.narrow(deal, NOTHING, text)
            }
            Some(Request::Decide(deal, commit)) => book.not_decided(deal, commit, text),
            _ if text.contains("another connection uses this durable subscription") => Ok(()),
            _ if is_quota || text.contains("shutting down") || text.contains("no room") => Ok(()),
            // What was delivered may have come back to its queue meanwhile.
            _ if text.contains("no such transaction") => Ok(()),
            _ => Err(format!("worker {} is told: {text} ({request:?})", self.number)),
        }
    }

    pub fn describe(&self) -> String {
        format!("worker {}: {:?}", self.number, self.requests)
    }
}
