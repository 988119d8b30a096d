//! Stands in for the local broker: one durable session with a queue, and a record of what the link published.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, watch};

use super::PATIENCE;
use crate::broker::api::{
    ClientCommand, ClientEvent, CloseReason, ConnectRequest, Connected, Delivery, DeliveryId, PublishOutcome,
    PublishRequest, ReplyTag, SubscribeFilter, SubscribeOutcome,
};
use crate::message::{Message, MessageHead, Qos};
use crate::port::{PORT_COMMANDS_MAX, PortPeer, PortRequests};

#[derive(Default)]
pub struct State {
    queue: VecDeque<Message>,
    unsettled: BTreeMap<u16, Message>,
    /// Topic and whether it was accepted, in order.
    pub settled: Vec<(String, bool)>,
    /// What the link published below anything but `$SYS`.
    pub published: Vec<PublishRequest>,
    /// Payloads of the link's state topic.
    pub states: Vec<String>,
    pub connects: Vec<ConnectRequest>,
    pub filters: Vec<SubscribeFilter>,
    pub disconnected: bool,
    /// Answers to publishes wait for [`FakeBroker::commit`].
    pub hold_commits: bool,
    held: Vec<(ReplyTag, Qos)>,
    /// The answer to publishes.
    pub outcome: Option<PublishOutcome>,
    events: Option<mpsc::Sender<ClientEvent>>,
    window: usize,
    next_id: u16,
    pub overflows: u32,
}

#[derive(Clone)]
pub struct FakeBroker {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
}

impl FakeBroker {
    pub fn start() -> (Self, PortRequests) {
        let (ports, mut requests) = mpsc::channel::<PortPeer>(4);
        let broker = Self { state: Arc::default(), changed: watch::channel(0).0 };
        let own = broker.clone();
        tokio::spawn(async move {
            while let Some(peer) = requests.recv().await {
                own.serve(peer).await;
            }
        });
        (broker, ports)
    }

    async fn serve(&self, mut peer: PortPeer) {
        self.with(|state| state.events = Some(peer.events.clone()));
        drop(peer.events);
        let mut batch = Vec::new();
        while peer.commands.recv_many(&mut batch, PORT_COMMANDS_MAX).await > 0 {
            for command in batch.drain(..) {
                self.with(|state| state.handle(command));
            }
            if self.with(|state| state.events.is_none()) {
                break;
            }
        }
        self.with(State::detach);
    }

    pub fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let result = f(&mut self.state.lock().unwrap());
        self.changed.send_modify(|n| *n += 1);
        result
    }

    /// Queues a QoS 1 message.
    pub fn enqueue(&self, topic: &str, payload: &[u8]) {
        self.enqueue_message(Message::new(
            topic,
            payload,
            MessageHead { qos: Qos::AtLeastOnce, ..MessageHead::default() },
        ));
    }

    pub fn enqueue_message(&self, message: Message) {
        self.with(|state| {
            state.queue.push_back(message);
            state.deliver();
        });
    }

    /// Queues `out/<n>` for each number of the range.
    pub fn enqueue_numbers(&self, numbers: std::ops::Range<u32>) {
        numbers.for_each(|n| self.enqueue(&format!("out/{n}"), &n.to_be_bytes()));
    }

    pub fn send_qos0(&self, topic: &str) -> bool {
        let message = Message::new(topic, b"0", MessageHead::default());
        let delivery = Delivery {
            id: None,
            message,
            qos: Qos::AtMostOnce,
            retain: false,
            duplicate: false,
            subscription_ids: None,
            consumer: None,
            redeliveries: 0,
        };
        self.with(|state| state.send(ClientEvent::Deliver(delivery)))
    }

    /// Answers the publishes that were held.
    pub fn commit(&self) {
        self.with(|state| {
            for (tag, qos) in std::mem::take(&mut state.held) {
                state.answer(tag, qos);
            }
        });
    }

    /// Ends the attachment, as a broker that takes a session over.
    pub fn close(&self) {
        self.with(|state| {
            state.send(ClientEvent::Close(CloseReason::TakenOver));
            state.detach();
        });
    }

    pub async fn until(&self, what: &str, fits: impl Fn(&State) -> bool) {
        let mut changes = self.changed.subscribe();
        let wait = async {
            while !fits(&self.state.lock().unwrap()) {
                changes.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            let state = self.state.lock().unwrap();
            panic!(
                "waited in vain for: {what}; settled {}, unsettled {}",
                state.settled.len(),
                state.unsettled.len()
            );
        }
    }

    pub async fn until_settled(&self, count: usize) {
        self.until(&format!("{count} settled"), |state| state.settled.len() >= count).await;
    }
}

impl State {
    fn handle(&mut self, command: ClientCommand) {
        match command {
            ClientCommand::Connect(request) => {
                self.window = usize::from(request.receive_max);
                self.connects.push(*request);
                self.send(ClientEvent::Connected(Box::new(Connected {
                    session_present: true,
                    ..Connected::default()
                })));
                self.deliver();
            }
            ClientCommand::Subscribe { tag, filters, .. } => {
                let outcomes = filters.iter().map(|f| SubscribeOutcome::Granted(f.options.qos)).collect();
                self.filters = filters;
                self.send(ClientEvent::Subscribed { tag, outcomes });
            }
            ClientCommand::Publish(request) => self.on_publish(request),
            ClientCommand::Settle { delivery, accepted } => self.on_settled(delivery.get(), accepted),
            ClientCommand::DeadLetter { delivery, .. } => self.on_settled(delivery.get(), false),
            ClientCommand::Disconnect { .. } => {
                self.disconnected = true;
                self.events = None;
            }
            other => panic!("a link does not send {other:?}"),
        }
    }

    fn on_settled(&mut self, delivery: u16, accepted: bool) {
        let message = self.unsettled.remove(&delivery).expect("settled once, while unsettled");
        self.settled.push((message.topic().to_owned(), accepted));
        self.deliver();
    }

    fn on_publish(&mut self, request: PublishRequest) {
        let (tag, qos) = (request.tag, request.message.qos());
        if request.message.topic().starts_with("$SYS/") {
            assert!(request.message.retain());
            self.states.push(String::from_utf8(request.message.payload().to_vec()).unwrap());
            return;
        }
        self.published.push(request);
        if self.hold_commits {
            self.held.push((tag, qos));
        } else {
            self.answer(tag, qos);
        }
    }

    fn answer(&mut self, tag: ReplyTag, qos: Qos) {
        if qos > Qos::AtMostOnce {
            let outcome = self.outcome.unwrap_or(PublishOutcome::Accepted);
            self.send(ClientEvent::Published { tag, qos, outcome });
        }
    }

    fn deliver(&mut self) {
        while self.events.is_some() && self.unsettled.len() < self.window {
            let Some(message) = self.queue.pop_front() else { return };
            self.next_id = if self.next_id == u16::MAX { 1 } else { self.next_id + 1 };
            let id = DeliveryId::new(self.next_id);
            self.unsettled.insert(self.next_id, message.clone());
            let (qos, retain) = (Qos::AtLeastOnce, message.retain());
            self.send(ClientEvent::Deliver(Delivery {
                id,
                message,
                qos,
                retain,
                duplicate: false,
                subscription_ids: None,
                consumer: None,
                redeliveries: 0,
            }));
        }
    }

    /// An event that finds no place ends a real attachment; here it is counted.
    fn send(&mut self, event: ClientEvent) -> bool {
        let sent = self.events.as_ref().is_some_and(|events| events.try_send(event).is_ok());
        self.overflows += u32::from(!sent && self.events.is_some());
        sent
    }

    /// Unsettled messages go back to the queue's front.
    fn detach(&mut self) {
        self.events = None;
        for (_, message) in std::mem::take(&mut self.unsettled).into_iter().rev() {
            self.queue.push_front(message);
        }
    }
}
