//! STOMP frames become commands.

use std::borrow::Cow;

use bytes::Bytes;
use tidegate_stomp::connection::{
    Ack, Connect, Event, Failure, ReceiptTag, Send, Subscribe, SubscriptionTag,
};
use tidegate_stomp::{AckMode, Headers};

use super::destination::{Destination, DestinationError};
use super::subscriptions::{Ended, Handle, Source, Subscriber};
use super::{Adapter, Asked, crossing};
use crate::broker::api::{
    ClientCommand, ConnectRequest, ConsumeRequest, ConsumerId, PublishRequest, ReplyTag, SessionExpiry,
    SubscribeFilter, SubscribeOptions,
};
use crate::message::{Message, Qos};
use crate::net::adapter::Credentials;
use crate::net::traffic::Traffic;
use crate::selector::Selector;
use crate::time::Now;

/// Unsettled messages that a consumer takes at a time, unless it says otherwise.
const PREFETCH_MESSAGES: u16 = 256;
/// Their bytes.
const PREFETCH_BYTES: u32 = 1 << 20;
/// Longest name of a durable subscription in bytes.
const DURABLE_NAME_BYTES_MAX: usize = 256;
/// Client identifiers of durable subscriptions begin so.
const DURABLE_CLIENT: &str = "dsub/";

/// Why a frame cannot be done, for the client.
pub(super) struct Refused {
    pub(super) message: &'static str,
    pub(super) detail: String,
}

impl Refused {
    pub(super) fn because(message: &'static str) -> Self {
        Self { message, detail: String::new() }
    }
}

impl From<DestinationError> for Refused {
    fn from(error: DestinationError) -> Self {
        let message = match error {
            DestinationError::UnknownPrefix => "unknown destination",
            _ => "invalid destination",
        };
        Self { message, detail: error.to_string() }
    }
}

impl Adapter {
    /// Handles a frame: commands join `commands`, and what needs no broker goes to `answers`.
    pub(super) fn event(
        &mut self,
        event: Event<'_>,
        shared: Option<&Bytes>,
        now: Now,
        answers: &mut Vec<u8>,
        traffic: &mut Traffic,
    ) {
        let (receipt, done) = match event {
            Event::HeartBeat => return,
            Event::Connect(connect) => {
                self.connect(&connect);
                return;
            }
            Event::Send(send) => (send.receipt, self.send(&send, shared, now, answers, traffic)),
            Event::Subscribe(subscribe) => (subscribe.receipt, self.subscribe(&subscribe)),
            Event::Unsubscribe { subscription, receipt, headers } => {
                self.unsubscribe(subscription, receipt, &headers);
                return;
            }
            Event::Ack(ack) => (ack.receipt, self.acknowledge(&ack)),
            Event::Begin { ref receipt, .. }
            | Event::End { ref receipt, .. }
            | Event::Decide { ref receipt, .. } => (*receipt, self.transaction_event(&event)),
            Event::Disconnect { receipt } => {
                self.sync(receipt);
                return;
            }
        };
        if let Err(refused) = done {
            self.fail(receipt, &refused, now, answers);
        }
    }

    /// ERROR, then the end.
    pub(super) fn fail(
        &mut self,
        receipt: Option<ReceiptTag>,
        refused: &Refused,
        now: Now,
        out: &mut Vec<u8>,
    ) {
        let failure = Failure { message: refused.message, detail: &refused.detail };
        self.connection.fail(out, receipt, &failure, now.mono.as_millis());
        self.deadline_moved = true;
    }

    pub(super) fn command(&mut self, command: ClientCommand) {
        self.work.commands.push_back((0, command));
    }

    /// The receipt leaves when everything before it is durable.
    pub(super) fn sync(&mut self, receipt: Option<ReceiptTag>) {
        if receipt.is_some() {
            let tag = self.ask(0, receipt, Asked::Other);
            self.command(ClientCommand::Sync { tag });
        }
    }

    /// A session that ends with its connection, under a name that the broker makes up.
    fn connect(&mut self, connect: &Connect<'_>) {
        let credentials = Credentials {
            extended: None,
            user: connect.login.as_deref().map(Box::from),
            password: connect.passcode.as_deref().map(|passcode| passcode.as_bytes().into()),
        };
        let request = Box::new(ConnectRequest {
            client_id: Box::default(),
            clean_start: true,
            expiry: SessionExpiry::WithConnection,
            receive_max: u16::MAX,
            will: None,
            internal: false,
        });
        self.login = Some(Box::new((credentials, request)));
    }

    fn send(
        &mut self,
        send: &Send<'_>,
        shared: Option<&Bytes>,
        now: Now,
        answers: &mut Vec<u8>,
        traffic: &mut Traffic,
    ) -> Result<(), Refused> {
        let topic = Destination::parse(&send.destination)?.topic(&self.client)?;
        let head = crossing::head(&send.headers, &self.client, now)
            .map_err(|error| Refused { message: "a header is not valid", detail: error.to_string() })?;
        let qos = head.qos;
        traffic.messages_in[qos as usize] += 1;
        traffic.message_bytes_in[qos as usize] += (topic.len() + send.body.len()) as u64;
        let message = Message::within(shared, &topic, send.body, head);
        if let Some(transaction) = send.transaction {
            return self.send_within(transaction, message, send.receipt);
        }
        let tag = if qos == Qos::AtMostOnce {
            // Nobody answers, and nothing is waited for but what came before.
            if let Some(receipt) = send.receipt {
                self.connection.receipt(answers, receipt);
            }
            ReplyTag(0)
        } else {
            self.ask(0, send.receipt, Asked::Publish)
        };
        self.command(ClientCommand::Publish(PublishRequest { tag, message }));
        Ok(())
    }

    fn subscribe(&mut self, subscribe: &Subscribe<'_>) -> Result<(), Refused> {
        let destination = Destination::parse(&subscribe.destination)?;
        let durable = durable_name(subscribe)?;
        let selector = selector(&subscribe.headers)?;
        let mut subscriber =
            Subscriber { tag: subscribe.subscription, selector: None, auto: subscribe.ack == AckMode::Auto };
        match (destination, durable) {
            (Destination::Queue(_) | Destination::TempQueue(_), Some(_)) => {
                Err(Refused::because("only a subscription to a topic can be durable"))
            }
            (Destination::Queue(_), None) => {
                let queue = destination.filter(&self.client)?;
                self.consume(subscribe, &queue, subscriber, selector)
            }
            (Destination::Durable(name), _) => {
                subscriber.selector = selector.map(Box::new);
                self.subscribe_durable(subscribe, name, None, subscriber)
            }
            (_, Some(name)) => {
                subscriber.selector = selector.map(Box::new);
                let filter = destination.filter(&self.client)?;
                self.subscribe_durable(subscribe, &name, Some(&filter), subscriber)
            }
            (_, None) => {
                subscriber.selector = selector.map(Box::new);
                let filter = destination.filter(&self.client)?;
                self.subscribe_topic(subscribe, &filter, subscriber)
            }
        }
    }

    fn subscribe_topic(
        &mut self,
        subscribe: &Subscribe<'_>,
        filter: &str,
        subscriber: Subscriber,
    ) -> Result<(), Refused> {
        let filters = vec![SubscribeFilter { filter: filter.into(), options: options(&subscribe.headers)? }];
        let number = self.enter(Source::Topic(filter.into()), subscriber)?;
        let tag = self.ask(0, subscribe.receipt, Asked::Subscribe(subscribe.subscription));
        self.command(ClientCommand::Subscribe { tag, subscription_id: Some(number), filters });
        Ok(())
    }

    fn enter(&mut self, source: Source, subscriber: Subscriber) -> Result<u32, Refused> {
        let number = self.work.subscriptions.add(source, subscriber);
        number.ok_or(Refused::because(
            "too many subscriptions in the life of one connection, or too long selectors",
        ))
    }

    fn consume(
        &mut self,
        subscribe: &Subscribe<'_>,
        queue: &str,
        subscriber: Subscriber,
        selector: Option<Selector>,
    ) -> Result<(), Refused> {
        let headers = &subscribe.headers;
        let messages_max = number(headers, &["prefetch-count", "activemq.prefetchSize"])?;
        let bytes_max = number(headers, &["prefetch-bytes"])?;
        let priority = number(headers, &["consumer-priority", "activemq.priority"])?;
        let exclusive = flag(headers, &["exclusive", "activemq.exclusive"])?;
        let browse = flag(headers, &["browser"])?;
        let consumer = ConsumerId(self.enter(Source::Queue, subscriber)?);
        let tag = self.ask(0, subscribe.receipt, Asked::Subscribe(subscribe.subscription));
        self.command(ClientCommand::Consume(Box::new(ConsumeRequest {
            tag,
            consumer,
            queue: queue.into(),
            messages_max: messages_max.unwrap_or(PREFETCH_MESSAGES).max(1),
            bytes_max: bytes_max.unwrap_or(PREFETCH_BYTES),
            priority: priority.unwrap_or(0),
            exclusive,
            browse,
            selector: selector.map(|selector| std::sync::Arc::new(selector) as _),
        })));
        Ok(())
    }

    /// Opens the branch; what it subscribes to follows when it is there.
    fn subscribe_durable(
        &mut self,
        subscribe: &Subscribe<'_>,
        name: &str,
        filter: Option<&str>,
        subscriber: Subscriber,
    ) -> Result<(), Refused> {
        let options = options(&subscribe.headers)?;
        let branch = self.enter(Source::Durable, subscriber)?;
        let client_id = [DURABLE_CLIENT, name].concat().into();
        let request = ConnectRequest {
            client_id,
            clean_start: false,
            expiry: SessionExpiry::Never,
            receive_max: u16::MAX,
            will: None,
            internal: false,
        };
        self.work.commands.push_back((branch, ClientCommand::Connect(Box::new(request))));
        match filter {
            Some(filter) => {
                let tag = self.ask(branch, subscribe.receipt, Asked::Subscribe(subscribe.subscription));
                let filter = SubscribeFilter { filter: filter.into(), options };
                self.work.commands.push_back((
                    branch,
                    ClientCommand::Subscribe { tag, subscription_id: None, filters: vec![filter] },
                ));
            }
            None => {
                let tag = self.ask(branch, subscribe.receipt, Asked::Open(subscribe.subscription));
                self.work.commands.push_back((branch, ClientCommand::Sync { tag }));
            }
        }
        Ok(())
    }

    fn unsubscribe(
        &mut self,
        subscription: SubscriptionTag,
        receipt: Option<ReceiptTag>,
        headers: &Headers<'_>,
    ) {
        let delete =
            ["durable", "persistent"].iter().any(|name| headers.get(name).as_deref() == Some("true"));
        match self.work.subscriptions.remove(subscription) {
            Ended::Shared | Ended::Unknown => self.sync(receipt),
            Ended::Last(_, Source::Topic(filter)) => {
                let tag = self.ask(0, receipt, Asked::Other);
                self.command(ClientCommand::Unsubscribe { tag, filters: vec![filter] });
            }
            Ended::Last(number, Source::Queue) => {
                let tag = self.ask(0, receipt, Asked::Other);
                let consumer = ConsumerId(number);
                self.command(ClientCommand::Cancel { tag, consumer, requeue: false });
            }
            Ended::Last(branch, Source::Durable) => {
                let expiry = delete.then_some(SessionExpiry::WithConnection);
                self.work
                    .commands
                    .push_back((branch, ClientCommand::Disconnect { with_will: false, expiry }));
                self.sync(receipt);
            }
        }
    }

    fn acknowledge(&mut self, ack: &Ack<'_>) -> Result<(), Refused> {
        let requeue = ack.headers.get("requeue").as_deref() != Some("false");
        if let Some(transaction) = ack.transaction {
            return self.acknowledge_within(transaction, ack, requeue);
        }
        for tag in self.connection.settled() {
            let handle = Handle::from_tag(*tag);
            let Some(delivery) = handle.id.filter(|_| self.work.settling.acknowledged(handle)) else {
                continue;
            };
            let command = match ack.nack {
                true => ClientCommand::Reject { delivery, requeue },
                false => ClientCommand::Settle { delivery, accepted: true },
            };
            self.work.commands.push_back((handle.branch, command));
        }
        self.sync(ack.receipt);
        Ok(())
    }
}

/// The name of the durable subscription that is asked for.
fn durable_name<'a>(subscribe: &Subscribe<'a>) -> Result<Option<Cow<'a, str>>, Refused> {
    let headers = &subscribe.headers;
    let named = headers.get("durable-subscription-name").or_else(|| headers.get("activemq.subscriptionName"));
    let wanted = flag(headers, &["durable", "persistent"])? || named.is_some();
    if !wanted {
        return Ok(None);
    }
    match named.or_else(|| subscribe.id.clone()) {
        Some(name) if !name.is_empty() && name.len() <= DURABLE_NAME_BYTES_MAX => Ok(Some(name)),
        _ => Err(Refused::because("a durable subscription needs a name of at most 256 bytes, or an id")),
    }
}

fn selector(headers: &Headers<'_>) -> Result<Option<Selector>, Refused> {
    let Some(text) = headers.get("selector") else { return Ok(None) };
    let parsed = Selector::parse(&text);
    parsed.map(Some).map_err(|error| Refused { message: "invalid selector", detail: error.to_string() })
}

fn options(headers: &Headers<'_>) -> Result<SubscribeOptions, Refused> {
    Ok(SubscribeOptions {
        qos: Qos::AtLeastOnce,
        no_local: flag(headers, &["no-local", "activemq.noLocal"])?,
        ..SubscribeOptions::default()
    })
}

/// A header that is true or false, under any of its names.
fn flag(headers: &Headers<'_>, names: &[&str]) -> Result<bool, Refused> {
    let Some(value) = names.iter().find_map(|name| headers.get(name)) else { return Ok(false) };
    match value {
        value if value.eq_ignore_ascii_case("true") => Ok(true),
        value if value.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(Refused {
            message: "a header is not valid",
            detail: [names[0], " is neither true nor false"].concat(),
        }),
    }
}

fn number<T: std::str::FromStr>(headers: &Headers<'_>, names: &[&str]) -> Result<Option<T>, Refused> {
    let Some(value) = names.iter().find_map(|name| headers.get(name)) else { return Ok(None) };
    let parsed = value.trim().parse().map(Some);
    parsed.map_err(|_| Refused {
        message: "a header is not valid",
        detail: [names[0], " is not a number, or too large"].concat(),
    })
}
