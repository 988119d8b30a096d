//! Events become STOMP frames.

use tidegate_stomp::connection::{Acceptance, Delivery as WireDelivery, SendError, SubscriptionTag};
use tracing::debug;

use super::inbound::Refused;
use super::subscriptions::Handle;
use super::work::Tables;
use super::{Adapter, Asked, SERVER, Waiting, crossing};
use crate::broker::api::{
    ClientCommand, ClientEvent, CloseReason, Connected, ConsumeOutcome, Delivery, PublishOutcome, Refusal,
    ReplyTag, SessionExpiry, SubscribeOutcome, TransactOutcome,
};
use crate::message::Qos;
use crate::net::adapter::Encoded;
use crate::net::outbox::{BufferPool, Outbox, SHARED_BYTES_MIN};
use crate::net::traffic::Traffic;
use crate::time::Now;

/// What an event is written with.
pub(in crate::net) struct Writer<'a> {
    pub(in crate::net) now: Now,
    pub(in crate::net) outbox: &'a mut Outbox,
    pub(in crate::net) pool: &'a mut BufferPool,
    pub(in crate::net) traffic: &'a mut Traffic,
}

impl Adapter {
    /// Puts the frames that an event of the branch leads to into the outbox. Commands may wait in
    /// [`take_commands`](Self::take_commands) afterwards.
    pub(in crate::net) fn encode(&mut self, branch: u32, event: ClientEvent, to: &mut Writer<'_>) -> Encoded {
        match event {
            ClientEvent::Deliver(delivery) => self.deliver(branch, &delivery, to),
            ClientEvent::Connected(connected) if branch == 0 => self.connected(&connected, to),
            ClientEvent::Refused(refusal) => self.end(refusal_text(refusal), to),
            ClientEvent::Published { tag, qos, .. } => {
                if qos == Qos::ExactlyOnce {
                    self.work.commands.push_back((branch, ClientCommand::Release { tag }));
                }
                self.answer(branch, tag, fault(&event), to);
            }
            ClientEvent::Subscribed { tag, .. }
            | ClientEvent::Consuming { tag, .. }
            | ClientEvent::Transacted { tag, .. } => self.answer(branch, tag, fault(&event), to),
            ClientEvent::BrowseEnd { consumer } => self.browsed(consumer.0, to),
            ClientEvent::Unsubscribed { tag, .. }
            | ClientEvent::Cancelled { tag, .. }
            | ClientEvent::Synced { tag } => self.answer(branch, tag, None, to),
            ClientEvent::DeliverRelease { delivery, .. } => {
                self.work.commands.push_back((branch, ClientCommand::Completed { delivery }));
            }
            ClientEvent::Close(CloseReason::TakenOver) if branch != 0 => {
                self.end("another connection uses this durable subscription now", to);
            }
            ClientEvent::Close(reason) => self.end(close_text(reason), to),
            ClientEvent::Connected(connected) => self.branch_connected(branch, &connected, to),
            ClientEvent::Released { .. } => {}
        }
        if self.connection.is_closed() { Encoded::Unspeakable } else { Encoded::Done }
    }

    /// Commands that the last events have led to.
    pub(in crate::net) fn take_command(&mut self) -> Option<super::Routed> {
        self.work.begun()?.commands.pop_front()
    }

    /// The socket took `bytes`: what has left is settled.
    pub(in crate::net) fn wrote(&mut self, bytes: usize) {
        let Some(Tables { settling, commands, .. }) = self.work.begun() else { return };
        settling.wrote(bytes, |Handle { branch, id }| {
            if let Some(delivery) = id {
                commands.push_back((branch, ClientCommand::Settle { delivery, accepted: true }));
            }
        });
    }

    fn end(&mut self, message: &'static str, to: &mut Writer<'_>) {
        let out = to.outbox.writer(to.pool);
        self.fail(None, &Refused::because(message), to.now, out);
    }

    fn connected(&mut self, connected: &Connected, to: &mut Writer<'_>) {
        let assigned = connected.assigned_client_id.as_deref().unwrap_or_default();
        let digits = assigned.rsplit('-').next().unwrap_or_default();
        let session = u64::from_str_radix(digits, 16).unwrap_or_default();
        self.client = assigned.into();
        let acceptance = Acceptance { session, server: Some(SERVER) };
        let out = to.outbox.writer(to.pool);
        if self.connection.accept(out, &acceptance, to.now.mono.as_millis()).is_err() {
            self.end("the client cannot be let in", to);
        }
        self.deadline_moved = true;
    }

    /// Without a topic nothing is subscribed to: the durable subscription has to exist.
    fn branch_connected(&mut self, branch: u32, connected: &Connected, to: &mut Writer<'_>) {
        let opens = |asked: &&Waiting| asked.branch == branch && matches!(asked.what, Asked::Open(_));
        let Some(asked) = self.work.waiting.iter().find(opens).copied() else { return };
        if !connected.session_present {
            let end =
                ClientCommand::Disconnect { with_will: false, expiry: Some(SessionExpiry::WithConnection) };
            self.work.commands.push_back((branch, end));
            let unknown =
                "there is no such durable subscription: subscribe to a topic with durable:true first";
            self.answer(branch, asked.tag, Some(unknown), to);
        }
    }

    /// Something that was asked is answered: its receipt leaves, or the conversation ends.
    fn answer(&mut self, branch: u32, tag: ReplyTag, fault: Option<&'static str>, to: &mut Writer<'_>) {
        let Some(asked) = self.answered(branch, tag) else { return };
        let out = to.outbox.writer(to.pool);
        match (fault, asked.receipt) {
            (Some(message), receipt) => {
                if let Asked::Subscribe(tag) | Asked::Open(tag) = asked.what {
                    self.work.subscriptions.remove(tag);
                }
                self.fail(receipt, &Refused::because(message), to.now, out);
            }
            (None, Some(receipt)) => {
                self.connection.receipt(out, receipt);
            }
            (None, None) => {}
        }
    }

    fn deliver(&mut self, branch: u32, delivery: &Delivery, to: &mut Writer<'_>) {
        if !self.connection.is_open() {
            return;
        }
        let handle = Handle { branch, id: delivery.id };
        let (mut waiting, mut sent, mut failed) = (0, 0, false);
        for number in numbers(branch, delivery) {
            for at in 0.. {
                let Some(subscriber) = self.work.subscriptions.subscriber(number, at) else { break };
                if !subscriber.wants(&delivery.message) {
                    continue;
                }
                let (tag, auto) = (subscriber.tag, subscriber.auto);
                self.confirm(tag, to);
                match self.write_message(tag, handle, delivery, to) {
                    Ok(()) => {
                        sent += 1;
                        waiting += u16::from(!auto);
                    }
                    Err(SendError::WindowFull) => return self.end("too many unacknowledged messages", to),
                    Err(error) => {
                        debug!(%error, "a message cannot be said in STOMP");
                        failed = true;
                    }
                }
            }
        }
        let Some(id) = delivery.id else { return };
        let command = if sent > 0 {
            return self.work.settling.sent(handle, waiting, to.outbox.len());
        } else if delivery.consumer.is_some() {
            // Its subscription has ended meanwhile: others may have it. What nobody can be told is a dead letter.
            ClientCommand::Reject { delivery: id, requeue: !failed }
        } else {
            ClientCommand::Settle { delivery: id, accepted: !failed }
        };
        self.work.commands.push_back((branch, command));
    }

    /// A browser has seen everything: a message with `browser:end` and nothing in it says so.
    fn browsed(&mut self, number: u32, to: &mut Writer<'_>) {
        let subscriber = self.work.subscriptions.subscriber(number, 0);
        let Some(tag) = subscriber.map(|subscriber| subscriber.tag) else { return };
        let handle = Handle { branch: 0, id: None };
        let wire = WireDelivery { subscription: tag, destination: BROWSED, tag: handle.to_tag() };
        let out = to.outbox.writer(to.pool);
        if let Err(error) = self.connection.message(out, &wire, [("browser", "end")], b"") {
            debug!(%error, "the end of browsing is not told");
        }
    }

    /// The receipt of a SUBSCRIBE leaves before its first message.
    fn confirm(&mut self, subscription: SubscriptionTag, to: &mut Writer<'_>) {
        if self.subscribing == 0 {
            return;
        }
        let asked = self.work.waiting.iter_mut().find(
            |asked| matches!(asked.what, Asked::Subscribe(tag) | Asked::Open(tag) if tag == subscription),
        );
        if let Some(receipt) = asked.and_then(|asked| asked.receipt.take()) {
            self.connection.receipt(to.outbox.writer(to.pool), receipt);
        }
    }

    fn write_message(
        &mut self,
        subscription: SubscriptionTag,
        handle: Handle,
        delivery: &Delivery,
        to: &mut Writer<'_>,
    ) -> Result<(), SendError> {
        let message = &delivery.message;
        let payload = message.payload();
        let destination = super::destination::shown(message.topic(), &self.client);
        let mut headers = Vec::with_capacity(HEADERS_USUAL);
        crossing::delivered(delivery, &self.client, to.now, &mut headers);
        let wire = WireDelivery { subscription, destination: &destination, tag: handle.to_tag() };
        let out = to.outbox.writer(to.pool);
        self.connection.message_head(out, &wire, headers, payload.len())?;
        to.traffic.messages_out[delivery.qos as usize] += 1;
        to.traffic.message_bytes_out[delivery.qos as usize] +=
            (message.topic_bytes().len() + payload.len()) as u64;
        if payload.len() < SHARED_BYTES_MIN {
            out.extend_from_slice(payload);
        } else {
            to.outbox.push_shared(message.payload_shared());
        }
        self.connection.end_message(to.outbox.writer(to.pool));
        Ok(())
    }
}

/// Where the message that ends browsing comes from.
const BROWSED: &str = "/queue/";

/// Headers of a message that has no user properties.
const HEADERS_USUAL: usize = 8;

/// The numbers of the subscriptions that a delivery is for.
fn numbers(branch: u32, delivery: &Delivery) -> impl Iterator<Item = u32> {
    let one = match (branch, delivery.consumer) {
        (0, consumer) => consumer.map(|consumer| consumer.0),
        (branch, _) => Some(branch),
    };
    let several = if one.is_none() { delivery.subscription_ids.as_deref().unwrap_or_default() } else { &[] };
    one.into_iter().chain(several.iter().copied())
}

/// What is said of an answer that refuses; `None` of any other event.
pub(super) fn fault(event: &ClientEvent) -> Option<&'static str> {
    match event {
        ClientEvent::Published { outcome, .. } => publish_fault(*outcome),
        ClientEvent::Subscribed { outcomes, .. } => outcomes.iter().find_map(subscribe_fault),
        ClientEvent::Consuming { outcome, .. } => consume_fault(*outcome),
        ClientEvent::Transacted { outcome, .. } => transact_fault(*outcome),
        ClientEvent::Refused(refusal) => Some(refusal_text(*refusal)),
        _ => None,
    }
}

fn publish_fault(outcome: PublishOutcome) -> Option<&'static str> {
    match outcome {
        PublishOutcome::Accepted | PublishOutcome::NoSubscribers => None,
        PublishOutcome::QuotaExceeded => Some("the message is refused: a queue or the disk is full"),
        PublishOutcome::TopicInvalid => Some("the message is refused: its destination cannot be sent to"),
        PublishOutcome::NotAuthorized => Some("the message is refused: not authorized"),
    }
}

fn subscribe_fault(outcome: &SubscribeOutcome) -> Option<&'static str> {
    match outcome {
        SubscribeOutcome::Granted(_) => None,
        SubscribeOutcome::FilterInvalid | SubscribeOutcome::SharedNoLocal => {
            Some("the subscription is refused: its destination is not valid")
        }
        SubscribeOutcome::QuotaExceeded => Some("the subscription is refused: too many"),
        SubscribeOutcome::NotAuthorized => Some("the subscription is refused: not authorized"),
    }
}

fn consume_fault(outcome: ConsumeOutcome) -> Option<&'static str> {
    match outcome {
        ConsumeOutcome::Started => None,
        ConsumeOutcome::NameInvalid | ConsumeOutcome::AlreadyThere => {
            Some("the subscription is refused: its queue's name is not valid")
        }
        ConsumeOutcome::QuotaExceeded => Some("the subscription is refused: too many queues or consumers"),
        ConsumeOutcome::NotAuthorized => Some("the subscription is refused: not authorized"),
    }
}

fn transact_fault(outcome: TransactOutcome) -> Option<&'static str> {
    match outcome {
        TransactOutcome::Done => None,
        TransactOutcome::AlreadyOpen => Some("the transaction is open already"),
        TransactOutcome::DecidedOtherwise => Some("the transaction was decided the other way before"),
        TransactOutcome::Unknown => Some("there is no such transaction"),
        TransactOutcome::DeliveryUnknown => Some("there is no such unacknowledged message"),
        TransactOutcome::LimitExceeded => Some("there are too many transactions, or this one is too large"),
        TransactOutcome::Refused(outcome) => publish_fault(outcome).or(Some("the transaction is refused")),
    }
}

fn refusal_text(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::ClientIdInvalid => "the client identifier is not valid",
        Refusal::QuotaExceeded => "no room for another client",
        Refusal::WillInvalid => "the will is not valid",
        Refusal::NotAuthorized | Refusal::BadCredentials => "the login is refused",
        Refusal::BadMethod => "the way to log in is not offered",
        Refusal::Busy => "too many logins: try again later",
    }
}

fn close_text(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::TakenOver => "another connection took over",
        CloseReason::ShuttingDown => "the server is shutting down",
        CloseReason::Administrative => "an operator has ended the connection",
        CloseReason::ProtocolViolation => "the peer broke the protocol",
        CloseReason::QuotaExceeded => "a limit is exceeded",
        CloseReason::NotAuthorized => "the login no longer counts",
    }
}
