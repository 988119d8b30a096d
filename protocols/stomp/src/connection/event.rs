//! What a connection tells its driver.

use crate::error::DecodeError;
use crate::frame::Headers;
use crate::types::{AckMode, Command, HeartBeat, Version};
use alloc::borrow::Cow;
use core::fmt;
use thiserror::Error;

/// Outcome of [`super::Connection::receive`].
#[derive(Clone, Debug, PartialEq)]
pub enum Received<'a> {
    /// Bytes were consumed.
    Event {
        /// Bytes to remove from the front of the input once the event was handled.
        consumed: usize,
        /// What they mean.
        event: Event<'a>,
    },
    /// The frame is not complete; nothing was consumed.
    Incomplete {
        /// Bytes that the input must have: the size of the whole frame once its `content-length` is there. It
        /// is within the limits, so that a driver may make its buffer exactly this large.
        needed: usize,
    },
    /// The turn of what follows has not come; nothing was consumed. Either CONNECT is not answered yet, or
    /// receipts are due first. The driver stops reading and calls again after it has written CONNECTED or a
    /// receipt.
    Blocked,
    /// The conversation is over: the input is to be dropped unread.
    Over,
}

/// A frame that the connection's state allows.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// Ends of lines between frames. Nothing is to be done.
    HeartBeat,
    /// The client logs in. Answer with `accept` or `fail`.
    Connect(Connect<'a>),
    /// A message.
    Send(Send<'a>),
    /// The client wants messages. Its receipt, if it asks for one, is written before the first of them.
    Subscribe(Subscribe<'a>),
    /// The client wants no more messages. Unacknowledged ones can still be acknowledged.
    Unsubscribe {
        /// The subscription that ends.
        subscription: SubscriptionTag,
        /// The receipt that is asked for.
        receipt: Option<ReceiptTag>,
        /// All headers.
        headers: Headers<'a>,
    },
    /// Messages are acknowledged: those of [`super::Connection::settled`].
    Ack(Ack<'a>),
    /// A transaction was opened.
    Begin {
        /// Its name from now on.
        transaction: TransactionTag,
        /// The identifier under which it may be prepared.
        xid: Option<Cow<'a, str>>,
        /// The receipt that is asked for.
        receipt: Option<ReceiptTag>,
        /// All headers.
        headers: Headers<'a>,
    },
    /// A transaction of this connection ends.
    End {
        /// The transaction; the tag has no meaning after this event.
        transaction: TransactionTag,
        /// How it ends.
        end: TransactionEnd,
        /// The receipt that is asked for.
        receipt: Option<ReceiptTag>,
        /// All headers.
        headers: Headers<'a>,
    },
    /// A prepared transaction is decided, whichever connection has prepared it.
    Decide {
        /// Its identifier.
        xid: Cow<'a, str>,
        /// Whether it is committed (true) or rolled back.
        commit: bool,
        /// The receipt that is asked for.
        receipt: Option<ReceiptTag>,
        /// All headers.
        headers: Headers<'a>,
    },
    /// The client leaves; nothing that follows is read. The connection is closed once
    /// [`super::Connection::is_closed`].
    Disconnect {
        /// The receipt that is asked for.
        receipt: Option<ReceiptTag>,
    },
}

/// CONNECT or STOMP. `Debug` hides the passcode.
#[derive(Clone, PartialEq)]
pub struct Connect<'a> {
    /// The version that both sides speak from now on.
    pub version: Version,
    /// The virtual host; a client of STOMP 1.1 and later should name one.
    pub host: Option<Cow<'a, str>>,
    /// The user.
    pub login: Option<Cow<'a, str>>,
    /// The password.
    pub passcode: Option<Cow<'a, str>>,
    /// What the client offers and wants; always 0 in STOMP 1.0.
    pub heart_beat: HeartBeat,
    /// All headers.
    pub headers: Headers<'a>,
}

impl fmt::Debug for Connect<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connect({} {:?})", self.version, self.headers)
    }
}

/// SEND.
#[derive(Clone, Debug, PartialEq)]
pub struct Send<'a> {
    /// The destination; not empty.
    pub destination: Cow<'a, str>,
    /// The transaction that the message belongs to.
    pub transaction: Option<TransactionTag>,
    /// The receipt that is asked for.
    pub receipt: Option<ReceiptTag>,
    /// All headers; [`Headers::user`] are those to pass on.
    pub headers: Headers<'a>,
    /// The body.
    pub body: &'a [u8],
}

/// SUBSCRIBE.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribe<'a> {
    /// The subscription's name from now on.
    pub subscription: SubscriptionTag,
    /// The client's identifier; clients of STOMP 1.0 may have none.
    pub id: Option<Cow<'a, str>>,
    /// The destination; not empty.
    pub destination: Cow<'a, str>,
    /// How its messages are acknowledged.
    pub ack: AckMode,
    /// The receipt that is asked for.
    pub receipt: Option<ReceiptTag>,
    /// All headers.
    pub headers: Headers<'a>,
}

/// ACK or NACK. The deliveries that it concerns are those of [`super::Connection::settled`].
#[derive(Clone, Debug, PartialEq)]
pub struct Ack<'a> {
    /// The subscription that the messages were sent to; it may have ended.
    pub subscription: SubscriptionTag,
    /// Whether they were not consumed.
    pub nack: bool,
    /// The transaction that decides about the acknowledgement.
    pub transaction: Option<TransactionTag>,
    /// The receipt that is asked for.
    pub receipt: Option<ReceiptTag>,
    /// All headers.
    pub headers: Headers<'a>,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionEnd {
    /// COMMIT.
    Commit,
    /// COMMIT with `phase:prepare`: it is decided later, under its `xid`.
    Prepare,
    /// ABORT. The acknowledgements in it never happened, and the deliveries can be acknowledged again.
    Abort,
}

/// A subscription of one connection. Tags are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionTag(pub(super) u32);

/// An open transaction of one connection. Tags are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionTag(pub(super) u32);

/// A receipt that is due. Tags of one connection are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiptTag(pub(super) u64);

/// Why the connection has to end. What it says to the client names no data of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// A frame could not be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The first frame is neither CONNECT nor STOMP.
    #[error("the first frame is not CONNECT")]
    NotConnected,
    /// A second CONNECT.
    #[error("the client is connected already")]
    SecondConnect,
    /// A frame that only a server sends.
    #[error("{0} is not a frame of a client")]
    Unexpected(Command),
    /// No version in common (STOMP 1.2, "Protocol Negotiation").
    #[error("no supported version")]
    UnsupportedVersion,
    /// A header that the frame needs is not there.
    #[error("{command} needs the header {header}")]
    HeaderMissing {
        /// The frame.
        command: Command,
        /// The header.
        header: &'static str,
    },
    /// A header has a value that it cannot have.
    #[error("the value of {header} is not valid in {command}")]
    HeaderInvalid {
        /// The frame.
        command: Command,
        /// The header.
        header: &'static str,
    },
    /// The subscription exists (STOMP 1.2, "SUBSCRIBE id Header").
    #[error("the subscription exists already")]
    SubscriptionInUse,
    /// There is no such subscription.
    #[error("there is no such subscription")]
    SubscriptionUnknown,
    /// The transaction is open (STOMP 1.2, "BEGIN").
    #[error("the transaction is open already")]
    TransactionInUse,
    /// There is no such open transaction.
    #[error("there is no such transaction")]
    TransactionUnknown,
    /// No message waits for this acknowledgement: it was given already, or the message was sent to another
    /// connection or needs none.
    #[error("there is no such unacknowledged message")]
    DeliveryUnknown,
    /// A limit of [`crate::ConnectionLimits`].
    #[error("limit exceeded, {0}")]
    LimitExceeded(#[from] ConnectionLimit),
    /// Neither bytes within the agreed heart-beat, nor a login in time.
    #[error("nothing arrived in time")]
    Timeout,
}

/// Which limit of a connection is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConnectionLimit {
    /// [`crate::ConnectionLimits::subscriptions_max`].
    #[error("more than {max} subscriptions")]
    Subscriptions {
        /// The limit.
        max: u16,
    },
    /// [`crate::ConnectionLimits::transactions_max`].
    #[error("more than {max} open transactions")]
    Transactions {
        /// The limit.
        max: u16,
    },
    /// [`crate::ConnectionLimits::transaction_actions_max`].
    #[error("more than {max} actions in a transaction")]
    Actions {
        /// The limit.
        max: u32,
    },
    /// [`crate::ConnectionLimits::identifier_bytes_max`].
    #[error("identifiers have more than {max} bytes together")]
    IdentifierBytes {
        /// The limit.
        max: u32,
    },
}
