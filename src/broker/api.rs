//! What a connection and the broker say to each other, in words that belong to no protocol.
//!
//! A *connection* is one attached client: a socket behind a protocol adapter, or a bridge link's port. It sends
//! [`ClientCommand`]s and gets [`ClientEvent`]s. Answers carry the [`ReplyTag`] of their command; deliveries carry a
//! [`DeliveryId`], which the session hands out and keeps until the delivery is settled (MQTT uses it as packet identifier).
//!
//! A *named queue* is reached under the topic `$queue/<name>`. [`ClientCommand::Publish`] to that topic makes it if need be and puts
//! the message into it, whatever its quality of service: QoS 0 is stored as well, but nobody is told so. Two kinds of consumers
//! compete for it: subscriptions to `$queue/<name>` or `$share/<group>/$queue/<name>`, which behave like those of a shared
//! subscription, and consumers that [`ClientCommand::Consume`] starts: these settle whatever they get, QoS 0 messages too, have
//! windows of their own within the session's, and end with their connection.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;

use crate::message::{Message, Properties, Qos};

/// One attached client. Never reused within a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Chosen by the adapter, handed back with the answer; opaque to the broker, except that it is part of a session's QoS 2
/// state (an MQTT packet identifier).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyTag(pub u16);

/// An unsettled delivery of a session. Sixteen bits are enough for every protocol, since a connection's window is smaller.
pub type DeliveryId = NonZeroU16;

/// A consumer within a session, chosen by the adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId(pub u32);

/// An open transaction of a session, chosen by the adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub u32);

/// One thing that a transaction does.
#[derive(Clone, Debug)]
pub enum TransactionAction {
    /// As [`ClientCommand::Publish`].
    Publish(Message),
    /// As an accepting [`ClientCommand::Settle`]; until the commit the delivery stays as it is.
    Settle(DeliveryId),
    /// As [`ClientCommand::Reject`].
    Reject {
        /// The delivery.
        delivery: DeliveryId,
        /// Back to its place.
        requeue: bool,
    },
    /// The same for a delivery of another connection, which is the same client's. It must be there until the commit, and such a
    /// transaction cannot be prepared.
    Elsewhere {
        /// The other connection.
        conn: ConnId,
        /// The delivery.
        delivery: DeliveryId,
        /// It was not taken: back to its place, or not. `None`: it was.
        rejected: Option<bool>,
    },
}

/// Which messages a consumer wants.
pub trait Selector: fmt::Debug + Send + Sync {
    /// The consumer wants the message, which has come back to its queue so many times. Asked again it must say the same.
    fn wants(&self, message: &Message, redeliveries: u32) -> bool;

    /// Memory that it takes, in bytes.
    fn memory(&self) -> usize;
}

/// Starts a consumer of a named queue.
#[derive(Clone, Debug)]
pub struct ConsumeRequest {
    /// For the answer.
    pub tag: ReplyTag,
    /// Its name within the session; no other consumer there may have it.
    pub consumer: ConsumerId,
    /// `$queue/<name>`; the queue is made if it does not exist.
    pub queue: Box<str>,
    /// Unsettled messages that it takes at a time, at least 1.
    pub messages_max: u16,
    /// Bytes of unsettled messages that it takes at a time; one message is always allowed.
    pub bytes_max: u32,
    /// While one of higher priority has room, it gets everything. Subscriptions have priority 0.
    pub priority: i32,
    /// While it is there, no other consumer gets anything; of several the first. The others wait for its end.
    pub exclusive: bool,
    /// Which messages it wants, of all that wait, in order; `None`: all.
    pub selector: Option<Arc<dyn Selector>>,
    /// It gets copies of what waits now, as QoS 0 and without a [`DeliveryId`], and takes nothing; then `BrowseEnd`.
    pub browse: bool,
}

/// How long a session outlives its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionExpiry {
    /// It ends with the connection; nothing of it is stored.
    #[default]
    WithConnection,
    /// Seconds after the connection ended, at least 1.
    After(u32),
    /// Never by itself.
    Never,
}

/// A message to publish when the client goes away without saying goodbye.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    /// Where to.
    pub topic: Box<str>,
    /// What.
    pub payload: Box<[u8]>,
    /// Quality of service.
    pub qos: Qos,
    /// RETAIN flag.
    pub retain: bool,
    /// Application properties.
    pub properties: Option<Box<Properties>>,
    /// Message expiry in seconds after its publication.
    pub expiry_secs: Option<u32>,
    /// Seconds to wait after the connection was lost.
    pub delay_secs: u32,
}

/// Opens or resumes a session.
#[derive(Clone, Debug)]
pub struct ConnectRequest {
    /// Empty: the broker makes one up.
    pub client_id: Box<str>,
    /// An old session is thrown away.
    pub clean_start: bool,
    /// Life after the connection.
    pub expiry: SessionExpiry,
    /// Unsettled QoS 1 and 2 deliveries that the client takes at a time, at least 1.
    pub receive_max: u16,
    /// Last will.
    pub will: Option<Will>,
    /// Part of this process (a bridge link): may publish below `$SYS/`, and its session is not subject to client limits.
    pub internal: bool,
}

/// A message from a client.
#[derive(Clone, Debug)]
pub struct PublishRequest {
    /// Answered with [`ClientEvent::Published`]; ignored for QoS 0. For QoS 2 it is the packet identifier that names the
    /// message until [`ClientCommand::Release`].
    pub tag: ReplyTag,
    /// The message; `published` and `expires` are set by the adapter from its `Now`.
    pub message: Message,
}

/// What a subscription asks for (MQTT 5.0, 3.8.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// Highest quality of service to be granted.
    pub qos: Qos,
    /// Do not send back what this session published.
    pub no_local: bool,
    /// Keep the publisher's RETAIN flag on forwarded messages.
    pub retain_as_published: bool,
    /// When to send retained messages.
    pub retain_handling: RetainHandling,
}

/// When a new subscription gets the retained messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetainHandling {
    /// At each SUBSCRIBE.
    #[default]
    Send,
    /// Only if the subscription is new.
    SendIfNew,
    /// Never.
    Skip,
}

/// One filter of a [`ClientCommand::Subscribe`].
#[derive(Clone, Debug)]
pub struct SubscribeFilter {
    /// The filter as sent; `$share/<group>/<filter>` names a shared subscription.
    pub filter: Box<str>,
    /// Options.
    pub options: SubscribeOptions,
}

/// What a client asks of the broker.
#[derive(Clone, Debug)]
pub enum ClientCommand {
    /// First of all. Answered with `Connected` or `Refused`.
    Connect(Box<ConnectRequest>),
    /// Answered with `Published` when the QoS is 1 or 2.
    Publish(PublishRequest),
    /// PUBREL: the QoS 2 message `tag` is released. Answered with `Released`.
    Release {
        /// Packet identifier.
        tag: ReplyTag,
    },
    /// Answered with `Subscribed`.
    Subscribe {
        /// For the answer.
        tag: ReplyTag,
        /// Subscription Identifier (MQTT 5.0).
        subscription_id: Option<u32>,
        /// At least one.
        filters: Vec<SubscribeFilter>,
    },
    /// Answered with `Unsubscribed`.
    Unsubscribe {
        /// For the answer.
        tag: ReplyTag,
        /// At least one.
        filters: Vec<Box<str>>,
    },
    /// PUBACK, or a PUBREC that refuses: the delivery is done with, for good or bad.
    Settle {
        /// The delivery.
        delivery: DeliveryId,
        /// The client took it; `false`: it refused it (MQTT 5.0 reason code 0x80 or above), which also ends it.
        accepted: bool,
    },
    /// The client did not take a delivery. One from a named queue goes back to its place there, and then to whoever is next, or
    /// leaves the queue; any other one is done with.
    Reject {
        /// The delivery.
        delivery: DeliveryId,
        /// Back to its place. If it comes back too often, and otherwise anyway, it goes to the dead-letter queue.
        requeue: bool,
    },
    /// The client will never be able to take a delivery: it is done with, and `message`, which is the one that was delivered, goes
    /// to the dead-letter queue in the same commit, if that takes it.
    DeadLetter {
        /// The delivery.
        delivery: DeliveryId,
        /// As it was delivered.
        message: Message,
    },
    /// Starts a consumer. Answered with `Consuming`, before its first delivery.
    Consume(Box<ConsumeRequest>),
    /// Ends a consumer. Answered with `Cancelled`, after its last delivery.
    Cancel {
        /// For the answer.
        tag: ReplyTag,
        /// Which.
        consumer: ConsumerId,
        /// What it has not settled goes back to its place at once; otherwise that can still be settled, and goes back when the
        /// connection ends.
        requeue: bool,
    },
    /// Opens a transaction. This and the next three are answered with `Transacted`.
    Begin {
        /// For the answer.
        tag: ReplyTag,
        /// Not open yet.
        transaction: TransactionId,
    },
    /// Adds to an open transaction. The answer says nothing of durability. When it is a refusal, the transaction can only be
    /// aborted: its commit is refused for the same reason, so that no part of it is carried out.
    Act {
        /// For the answer.
        tag: ReplyTag,
        /// Open.
        transaction: TransactionId,
        /// What is to be done at the commit.
        action: TransactionAction,
    },
    /// Carries out everything, in one durable step before the answer, or nothing. Either way the transaction ends.
    Commit {
        /// For the answer.
        tag: ReplyTag,
        /// Open.
        transaction: TransactionId,
    },
    /// Makes a transaction durable without carrying it out: it leaves its session, with the deliveries that it is to settle, and
    /// waits for a decision, across restarts. Only deliveries of named queues can be prepared. Answered with `Transacted`.
    Prepare {
        /// For the answer.
        tag: ReplyTag,
        /// Open.
        transaction: TransactionId,
        /// Its name from now on: 1 to 255 bytes, and not in use.
        xid: Box<str>,
    },
    /// Commits a prepared transaction or rolls it back, from any connection. Repeating a decision is harmless. Answered with
    /// `Transacted`, when it is durable.
    Decide {
        /// For the answer.
        tag: ReplyTag,
        /// The transaction's name.
        xid: Box<str>,
        /// Everything happens; otherwise nothing does, and what was to be settled goes back to its place.
        commit: bool,
    },
    /// Ends a transaction; deliveries that it was to settle are as they were. So does the end of the connection.
    Abort {
        /// For the answer.
        tag: ReplyTag,
        /// Open.
        transaction: TransactionId,
    },
    /// PUBREC of a QoS 2 delivery. Answered with `DeliverRelease` once that is durable.
    Received {
        /// The delivery.
        delivery: DeliveryId,
    },
    /// PUBCOMP of a QoS 2 delivery.
    Completed {
        /// The delivery.
        delivery: DeliveryId,
    },
    /// Answered with `Synced` when everything that the connection has asked for before is durable.
    Sync {
        /// For the answer.
        tag: ReplyTag,
    },
    /// A deliberate end. The last command of a connection, as is `Lost`.
    Disconnect {
        /// Publish the will all the same (MQTT 5.0 reason 0x04).
        with_will: bool,
        /// New session expiry (MQTT 5.0, 3.14.2.2.2).
        expiry: Option<SessionExpiry>,
    },
    /// The connection broke, timed out or misbehaved.
    Lost,
}

/// What became of a published message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    /// Safe in every queue that wants it.
    Accepted,
    /// Accepted; nobody has subscribed to it.
    NoSubscribers,
    /// Refused: a queue or the disk is full and the policy is to reject.
    QuotaExceeded,
    /// Refused: the topic may not be published to.
    TopicInvalid,
    /// Refused by access rules.
    NotAuthorized,
}

/// What became of one filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscribeOutcome {
    /// Granted with this quality of service.
    Granted(Qos),
    /// The filter is malformed.
    FilterInvalid,
    /// A limit is reached.
    QuotaExceeded,
    /// Refused by access rules.
    NotAuthorized,
    /// A shared subscription with No Local (MQTT-3.8.3-4).
    SharedNoLocal,
}

/// What became of a [`ClientCommand::Consume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsumeOutcome {
    /// Messages may follow.
    Started,
    /// The topic names no queue.
    NameInvalid,
    /// The session has a consumer of this name.
    AlreadyThere,
    /// A limit is reached, or the store is full and the queue does not exist.
    QuotaExceeded,
    /// Refused by access rules.
    NotAuthorized,
}

/// What became of a command about a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactOutcome {
    /// As asked; after a commit it is durable.
    Done,
    /// There is one of this name, or was.
    AlreadyOpen,
    /// The opposite was decided before.
    DecidedOtherwise,
    /// No transaction of this name is open.
    Unknown,
    /// No such delivery is under way.
    DeliveryUnknown,
    /// There are too many transactions, or this one is too large.
    LimitExceeded,
    /// A message may not be published: the transaction has ended without any effect, or, if it was just added, never has one.
    Refused(PublishOutcome),
}

/// Why a connection request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client identifier is too long.
    ClientIdInvalid,
    /// A limit is reached, or the store is full.
    QuotaExceeded,
    /// The will's topic is no topic name.
    WillInvalid,
    /// Refused by access rules.
    NotAuthorized,
    /// The user is unknown, or its password or token is wrong.
    BadCredentials,
    /// The way in which it wants to prove who it is is not offered.
    BadMethod,
    /// Too many logins wait, or too many failed from its address: try later.
    Busy,
}

/// Why the broker ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The same client identifier connected again.
    TakenOver,
    /// The process stops.
    ShuttingDown,
    /// An operator asked for it.
    Administrative,
    /// The command does not fit the connection's state: a bug in the peer.
    ProtocolViolation,
    /// A limit is reached.
    QuotaExceeded,
    /// Its login no longer counts: the token has expired, or the user is gone.
    NotAuthorized,
}

/// A message on its way to a client.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// `None` for QoS 0.
    pub id: Option<DeliveryId>,
    /// The message.
    pub message: Message,
    /// Granted quality of service.
    pub qos: Qos,
    /// RETAIN flag to send.
    pub retain: bool,
    /// It may have been delivered before (DUP).
    pub duplicate: bool,
    /// Subscription identifiers to send.
    pub subscription_ids: Option<Arc<[u32]>>,
    /// The consumer that it is for; `None`: a subscription.
    pub consumer: Option<ConsumerId>,
    /// How often it has come back to its named queue. A message that may have been under way when the process died counts once.
    pub redeliveries: u32,
}

/// The answer to a connection request.
#[derive(Clone, Debug, Default)]
pub struct Connected {
    /// An old session is resumed.
    pub session_present: bool,
    /// The identifier that the broker made up.
    pub assigned_client_id: Option<Box<str>>,
    /// Where the client may have its answers sent, for one that asks.
    pub response_information: Option<Box<str>>,
    /// The last message of an extended authentication.
    pub authentication_data: Option<Vec<u8>>,
    /// Life after the connection, as granted.
    pub expiry: SessionExpiry,
    /// Packet identifiers of QoS 2 messages that were received on an earlier connection, are durable and not yet released.
    pub unreleased: Vec<ReplyTag>,
}

/// What the broker tells a client.
#[derive(Clone, Debug)]
pub enum ClientEvent {
    /// The session is open; deliveries may follow.
    Connected(Box<Connected>),
    /// No session; the connection must be closed.
    Refused(Refusal),
    /// PUBACK or PUBREC. For an accepted message it comes after the message is durable (invariant I1).
    Published {
        /// Of the request.
        tag: ReplyTag,
        /// The request's quality of service.
        qos: Qos,
        /// The result.
        outcome: PublishOutcome,
    },
    /// PUBCOMP.
    Released {
        /// Of the request.
        tag: ReplyTag,
        /// The identifier was known. Otherwise MQTT 5.0 answers with Packet Identifier not found.
        known: bool,
    },
    /// SUBACK.
    Subscribed {
        /// Of the request.
        tag: ReplyTag,
        /// One for each filter.
        outcomes: Box<[SubscribeOutcome]>,
    },
    /// UNSUBACK.
    Unsubscribed {
        /// Of the request.
        tag: ReplyTag,
        /// One for each filter: the subscription existed. `None` for a filter that is malformed.
        existed: Box<[Option<bool>]>,
    },
    /// The answer to a `Sync`.
    Synced {
        /// Of the request.
        tag: ReplyTag,
    },
    /// The answer to a `Consume`.
    Consuming {
        /// Of the request.
        tag: ReplyTag,
        /// Of the request.
        consumer: ConsumerId,
        /// The result.
        outcome: ConsumeOutcome,
    },
    /// The answer to a `Cancel`.
    Cancelled {
        /// Of the request.
        tag: ReplyTag,
        /// There was such a consumer.
        existed: bool,
    },
    /// A browser has seen everything that waited when it started. It gets nothing more until it is cancelled.
    BrowseEnd {
        /// Which.
        consumer: ConsumerId,
    },
    /// The answer to a command about a transaction.
    Transacted {
        /// Of the request.
        tag: ReplyTag,
        /// The result.
        outcome: TransactOutcome,
    },
    /// PUBLISH.
    Deliver(Delivery),
    /// PUBREL.
    DeliverRelease {
        /// The delivery.
        delivery: DeliveryId,
        /// Whether it was under way; if not, its receipt belongs to nothing that is known here.
        known: bool,
    },
    /// The broker ends the connection; nothing follows, and no command of it is heard any more.
    Close(CloseReason),
}
