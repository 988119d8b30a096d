//! What may happen: a plain model of queues, subscriptions and transactions that knows nothing of how the broker does it. Which of
//! several consumers gets a message is the broker's choice; that somebody with room gets it, in order, once, and flagged when it
//! comes again, is not.

use std::collections::{BTreeMap, BTreeSet};

use super::wire::Seen;

/// A client, by number.
pub(super) type Who = usize;
/// A subscription, by a number that is never used again.
pub(super) type Number = u32;

/// How messages are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Auto,
    Client,
    Individual,
}

/// What is sent to or subscribed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Queue(usize),
    Topic(String),
}

impl Place {
    pub(super) fn destination(&self) -> String {
        match self {
            Self::Queue(queue) => format!("/queue/q{queue}"),
            Self::Topic(topic) => format!("/topic/{topic}"),
        }
    }
}

/// How a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Return,
    Bury,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    Send(Place, String, bool),
    /// The message, and the number of the queue that it came from.
    Settle(Option<usize>, String, Verdict),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Held(Number),
    Prepared,
    /// Settled or not: its connection ended while it was written.
    Unsure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    No,
    Maybe,
    Yes,
}

#[derive(Clone, Debug)]
struct Entry {
    place: u64,
    text: String,
    state: State,
    again: Again,
}

/// A message that a client has and has not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Unacked {
    /// What ACK names.
    pub(super) name: String,
    text: String,
    queue: Option<usize>,
    /// Of level 0: the broker does not wait for it.
    light: bool,
    pub(super) transaction: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Subscription {
    pub(super) number: Number,
    pub(super) place: Place,
    pub(super) mode: Mode,
    prefetch: usize,
    pub(super) live: bool,
    /// Texts of topics that are due in this step: of level 1, and of level 0.
    due: [Vec<String>; 2],
    pub(super) unacked: Vec<Unacked>,
    /// Place of the last message of this step.
    last: u64,
}

#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub(super) xid: Option<String>,
    actions: Vec<Action>,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) version: u8,
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) transactions: BTreeMap<String, Transaction>,
}

/// What one connection is to be sent in a step, beside messages.
#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) connected: bool,
    pub(super) receipts: Vec<String>,
    /// ERROR, with the receipt of the frame at fault.
    pub(super) error: Option<Option<String>>,
    /// The frame at fault may have been refused before that receipt had arrived.
    pub(super) early: bool,
    /// It has ended, and these were its subscriptions.
    pub(super) ended: Option<Vec<Subscription>>,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) connections: BTreeMap<Who, Connection>,
    expected: BTreeMap<Who, Expected>,
    queues: BTreeMap<usize, Vec<Entry>>,
    pub(super) prepared: BTreeMap<String, Vec<Action>>,
    pub(super) decided: BTreeMap<String, bool>,
    pub(super) dead: u64,
    numbers: Number,
    texts: u64,
    places: u64,
    killed: bool,
    /// Queues to which something came back in this step.
    disturbed: BTreeSet<usize>,
}

pub(super) fn matches(filter: &str, topic: &str) -> bool {
    filter == "#" || filter == topic || (filter == "t/+" && topic.starts_with("t/"))
}

impl Model {
    pub(super) fn next_text(&mut self) -> String {
        self.texts += 1;
        self.texts.to_string()
    }

    pub(super) fn take_expected(&mut self, who: Who) -> Expected {
        self.expected.remove(&who).unwrap_or_default()
    }

    pub(super) fn expect(&mut self, who: Who) -> &mut Expected {
        self.expected.entry(who).or_default()
    }

    fn connection(&mut self, who: Who) -> &mut Connection {
        self.connections.get_mut(&who).expect("it is connected")
    }

    pub(super) fn connect(&mut self, who: Who, version: u8) {
        self.expect(who).connected = true;
        let connection = Connection { version, subscriptions: vec![], transactions: BTreeMap::new() };
        self.connections.insert(who, connection);
    }

    pub(super) fn subscribe(&mut self, who: Who, place: Place, mode: Mode, prefetch: usize) -> Number {
        self.numbers += 1;
        let number = self.numbers;
        let (live, due, unacked, last) = (true, [vec![], vec![]], vec![], 0);
        let subscription = Subscription { number, place, mode, prefetch, live, due, unacked, last };
        self.connection(who).subscriptions.push(subscription);
        number
    }

    pub(super) fn unsubscribe(&mut self, who: Who, number: Number) {
        let all = &mut self.connection(who).subscriptions;
        let subscription = all.iter_mut().find(|one| one.number == number).expect("it was chosen");
        subscription.live = false;
        let place = subscription.place.clone();
        self.leave(&place);
    }

    /// A consumer ends: what was on its way to it goes back, and is flagged although nobody has seen it.
    fn leave(&mut self, place: &Place) {
        let Place::Queue(queue) = place else { return };
        self.disturbed.insert(*queue);
        for entry in self.queue(*queue).iter_mut().filter(|entry| entry.again == Again::No) {
            entry.again = Again::Maybe;
        }
    }

    pub(super) fn next_number(&self) -> Number {
        self.numbers + 1
    }

    pub(super) fn send(&mut self, who: Who, transaction: Option<&str>, action: Action) {
        match transaction {
            Some(name) => self.act(who, name, action),
            None => self.carry_out(action),
        }
    }

    fn act(&mut self, who: Who, transaction: &str, action: Action) {
        let open = self.connection(who).transactions.get_mut(transaction);
        open.expect("it is open").actions.push(action);
    }

    /// The client acknowledges, or refuses, its `at`th message of a subscription, and those before it in mode `client`.
    pub(super) fn acknowledge(
        &mut self,
        who: Who,
        number: Number,
        at: usize,
        how: Verdict,
        within: Option<&str>,
    ) {
        let all = &mut self.connection(who).subscriptions;
        let subscription = all.iter_mut().find(|one| one.number == number).expect("it was chosen");
        let first = if subscription.mode == Mode::Client { 0 } else { at };
        let mut covered = vec![];
        for unacked in &mut subscription.unacked[first..=at] {
            if unacked.transaction.is_none() {
                unacked.transaction = Some(within.unwrap_or("").to_owned());
                if !unacked.light {
                    covered.push(Action::Settle(unacked.queue, unacked.text.clone(), how));
                }
            }
        }
        match within {
            Some(name) => covered.into_iter().for_each(|action| self.act(who, name, action)),
            None => {
                subscription.unacked.retain(|unacked| unacked.transaction.as_deref() != Some(""));
                covered.into_iter().for_each(|action| self.carry_out(action));
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Send(place, text, light) => self.publish(&place, text, usize::from(light)),
            Action::Settle(None, ..) => {}
            Action::Settle(Some(queue), text, Verdict::Return) => self.give_back(queue, &text),
            Action::Settle(Some(queue), text, how) => {
                self.dead += u64::from(how == Verdict::Bury);
                self.queue(queue).retain(|entry| entry.text != text);
            }
        }
    }

    fn queue(&mut self, queue: usize) -> &mut Vec<Entry> {
        self.queues.entry(queue).or_default()
    }

    fn give_back(&mut self, queue: usize, text: &str) {
        self.disturbed.insert(queue);
        let entry =
            self.queue(queue).iter_mut().find(|entry| entry.text == text).expect("it was not settled");
        (entry.state, entry.again) = (State::Ready, Again::Yes);
    }

    fn publish(&mut self, place: &Place, text: String, kind: usize) {
        match place {
            Place::Queue(queue) => {
                self.places += 1;
                let again = if self.killed { Again::Maybe } else { Again::No };
                let entry = Entry { place: self.places, text, state: State::Ready, again };
                self.queue(*queue).push(entry);
            }
            Place::Topic(topic) => {
                for subscription in self.connections.values_mut().flat_map(|one| &mut one.subscriptions) {
                    let Place::Topic(filter) = &subscription.place else { continue };
                    if subscription.live && matches(filter, topic) {
                        subscription.due[kind].push(text.clone());
                    }
                }
            }
        }
    }

    pub(super) fn begin(&mut self, who: Who, name: &str, xid: Option<String>) {
        let transaction = Transaction { xid, actions: vec![] };
        self.connection(who).transactions.insert(name.to_owned(), transaction);
    }

    fn end_transaction(&mut self, who: Who, name: &str, keeps: bool) -> Transaction {
        let connection = self.connection(who);
        for subscription in &mut connection.subscriptions {
            if keeps {
                let held =
                    subscription.unacked.iter_mut().filter(|one| one.transaction.as_deref() == Some(name));
                held.for_each(|one| one.transaction = None);
            } else {
                subscription.unacked.retain(|one| one.transaction.as_deref() != Some(name));
            }
        }
        connection.transactions.remove(name).expect("it is open")
    }

    pub(super) fn abort(&mut self, who: Who, name: &str) {
        self.end_transaction(who, name, true);
    }

    pub(super) fn commit(&mut self, who: Who, name: &str) {
        let transaction = self.end_transaction(who, name, false);
        transaction.actions.into_iter().for_each(|action| self.carry_out(action));
    }

    /// Whether the transaction can be prepared.
    pub(super) fn can_prepare(&self, who: Who, name: &str) -> bool {
        let transaction = &self.connections[&who].transactions[name];
        let of_queues = transaction.actions.iter().all(|action| !matches!(action, Action::Settle(None, ..)));
        let is_new = |xid: &String| !self.prepared.contains_key(xid) && !self.decided.contains_key(xid);
        of_queues && transaction.xid.as_ref().is_some_and(is_new)
    }

    pub(super) fn prepare(&mut self, who: Who, name: &str) {
        let Transaction { xid, actions } = self.end_transaction(who, name, false);
        for action in &actions {
            if let Action::Settle(Some(queue), text, _) = action {
                let entry = self.queue(*queue).iter_mut().find(|entry| entry.text == *text);
                entry.expect("it was not settled").state = State::Prepared;
            }
        }
        self.prepared.insert(xid.expect("it can be prepared"), actions);
    }

    /// Whether a decision is answered with a receipt.
    pub(super) fn decide(&mut self, xid: &str, commit: bool) -> bool {
        let Some(actions) = self.prepared.remove(xid) else { return self.decided.get(xid) == Some(&commit) };
        self.decided.insert(xid.to_owned(), commit);
        for action in actions {
            match action {
                action if commit => self.carry_out(action),
                Action::Settle(Some(queue), text, _) => self.give_back(queue, &text),
                _ => {}
            }
        }
        true
    }

    /// The connection is over, whoever has ended it: what it had not settled goes back.
    pub(super) fn end(&mut self, who: Who) {
        let Some(connection) = self.connections.remove(&who) else { return };
        let numbers: BTreeSet<Number> = connection.subscriptions.iter().map(|one| one.number).collect();
        for (queue, entries) in &mut self.queues {
            for entry in entries {
                if matches!(entry.state, State::Held(number) if numbers.contains(&number)) {
                    (entry.state, entry.again) = (State::Ready, Again::Yes);
                    self.disturbed.insert(*queue);
                }
            }
        }
        let live = connection.subscriptions.iter().filter(|one| one.live);
        live.for_each(|one| self.leave(&one.place));
        self.expect(who).ended = Some(connection.subscriptions);
    }

    /// The process was killed and has started again; everything was durable.
    pub(super) fn kill(&mut self) {
        let all: Vec<Who> = self.connections.keys().copied().collect();
        all.into_iter().for_each(|who| self.end(who));
        self.expected.clear();
        self.killed = true;
        for entry in self.queues.values_mut().flatten().filter(|entry| entry.again == Again::No) {
            entry.again = Again::Maybe;
        }
    }

    /// A message for a connection that has ended in this step: it may have been settled or not.
    pub(super) fn heard_at_the_end(&mut self, subscription: &Subscription, message: &Seen) {
        match subscription.place.clone() {
            Place::Topic(_) => {
                assert!(subscription.due.concat().contains(&message.body), "{message:?} is not due");
            }
            Place::Queue(queue) => {
                let auto = subscription.mode == Mode::Auto;
                self.disturbed.insert(queue);
                let entry = self.queue(queue).iter_mut().find(|entry| entry.text == message.body);
                let entry = entry.unwrap_or_else(|| panic!("{message:?} is not in its queue"));
                check_flag(entry, message);
                entry.again = Again::Yes;
                if auto {
                    assert_eq!(entry.state, State::Ready, "{message:?}");
                    entry.state = State::Unsure;
                }
            }
        }
    }

    /// A message for a connection that is there.
    pub(super) fn heard(&mut self, who: Who, number: Number, message: &Seen) {
        let connection = self.connections.get_mut(&who).expect("it is connected");
        let version = connection.version;
        let found = connection.subscriptions.iter_mut().find(|one| one.number == number);
        let subscription = found.unwrap_or_else(|| panic!("{message:?} is for no subscription"));
        let queue = match subscription.place {
            Place::Queue(queue) => Some(queue),
            Place::Topic(_) => {
                let due = &mut subscription.due[usize::from(message.header("qos") == "0")];
                assert_eq!(due.first(), Some(&message.body), "{message:?} to {who}: {due:?}");
                due.remove(0);
                None
            }
        };
        if subscription.mode != Mode::Auto {
            let name = message.header(if version == 12 { "ack" } else { "message-id" }).to_owned();
            let light = queue.is_none() && message.header("qos") == "0";
            let (text, transaction) = (message.body.clone(), None);
            subscription.unacked.push(Unacked { name, text, queue, light, transaction });
        } else {
            assert_eq!(message.find("ack"), None, "{message:?}");
        }
        if let Some(queue) = queue {
            self.heard_from_queue(who, number, queue, message);
        }
    }

    fn heard_from_queue(&mut self, who: Who, number: Number, queue: usize, message: &Seen) {
        let disturbed = self.disturbed.contains(&queue);
        let entries = self.queues.entry(queue).or_default();
        let at = entries.iter().position(|entry| entry.text == message.body);
        let at = at.unwrap_or_else(|| panic!("{message:?} is not in its queue"));
        let entry = &mut entries[at];
        assert!(matches!(entry.state, State::Ready | State::Unsure), "{message:?} is {:?}", entry.state);
        check_flag(entry, message);
        let place = entry.place;
        let all = &mut self.connections.get_mut(&who).expect("it is connected").subscriptions;
        let subscription = all.iter_mut().find(|one| one.number == number).expect("it was found before");
        assert!(disturbed || place > subscription.last, "{message:?} is out of order");
        subscription.last = place;
        if subscription.mode == Mode::Auto {
            entries.remove(at);
        } else {
            entry.state = State::Held(number);
            entry.again = Again::Yes;
        }
    }

    /// At rest nothing is due to anybody who has room.
    pub(super) fn check_rest(&mut self) {
        for (who, connection) in &mut self.connections {
            for subscription in &mut connection.subscriptions {
                let due = std::mem::take(&mut subscription.due);
                let all = !subscription.live || due.iter().all(Vec::is_empty);
                assert!(all, "client {who} misses {due:?} of {}", subscription.number);
                subscription.last = 0;
            }
            connection.subscriptions.retain(|one| one.live || !one.unacked.is_empty());
        }
        for (queue, entries) in &self.queues {
            let Some(ready) = entries.iter().find(|entry| entry.state == State::Ready) else { continue };
            let consumers = self.connections.values().flat_map(|connection| &connection.subscriptions);
            for consumer in consumers.filter(|one| one.live && one.place == Place::Queue(*queue)) {
                let held = entries.iter().filter(|entry| entry.state == State::Held(consumer.number)).count();
                let full = consumer.mode != Mode::Auto && held >= consumer.prefetch;
                assert!(full, "{ready:?} waits, and {consumer:?} has room for it");
            }
        }
        self.disturbed.clear();
    }

    /// How many messages a queue holds at least and at most.
    pub(super) fn bounds(&self, queue: usize) -> (u64, u64) {
        let entries = self.queues.get(&queue).map_or(&[][..], Vec::as_slice);
        let unsure = entries.iter().filter(|entry| entry.state == State::Unsure).count();
        ((entries.len() - unsure) as u64, entries.len() as u64)
    }
}

fn check_flag(entry: &Entry, message: &Seen) {
    let flagged = message.find("redelivered") == Some("true");
    let right = match entry.again {
        Again::No => !flagged,
        Again::Maybe => true,
        Again::Yes => flagged,
    };
    assert!(right, "{message:?} comes again: {:?}", entry.again);
}
