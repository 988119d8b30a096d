//! Transactions: what a client does in one is gathered by the broker and carried out, or forgotten, at its end.
//!
//! Acknowledgements of a durable subscription belong to another session of the broker than the rest of the transaction, and are part of
//! it all the same. Only what is prepared cannot hold them: their session would have to outlive its own connection.

use std::collections::BTreeMap;

use tidegate_stomp::connection::{Ack, Event, ReceiptTag, TransactionEnd, TransactionTag};

use super::inbound::Refused;
use super::subscriptions::Handle;
use super::work::Tables;
use super::{Adapter, Asked};
use crate::broker::api::{ClientCommand, DeliveryId, TransactionAction, TransactionId};
use crate::message::Message;

/// Open transactions of one connection. Their number is bounded by the connection's limits.
#[derive(Debug)]
pub(super) struct Transactions {
    open: BTreeMap<TransactionTag, Open>,
    last: u32,
}

#[derive(Debug)]
struct Open {
    id: TransactionId,
    /// The name under which it may be prepared.
    xid: Option<Box<str>>,
    /// Messages of durable subscriptions are acknowledged in it.
    is_wide: bool,
    /// What it acknowledges for one of several subscriptions that have got it, and how if not well: that counts at the commit, since
    /// the message is done with when the last of them has acknowledged it for good. They are among the connection's deliveries, and
    /// each is in one transaction.
    shared: Vec<(Handle, Option<bool>)>,
}

impl Transactions {
    pub(super) const fn new() -> Self {
        Self { open: BTreeMap::new(), last: 0 }
    }

    fn begin(&mut self, tag: TransactionTag, xid: Option<Box<str>>) -> TransactionId {
        self.last = self.last.wrapping_add(1);
        let id = TransactionId(self.last);
        self.open.insert(tag, Open { id, xid, is_wide: false, shared: Vec::new() });
        id
    }
}

const UNKNOWN: Refused = Refused { message: "there is no such transaction", detail: String::new() };

const ENDED: Refused = Refused {
    message: "the durable subscription has ended, and its unacknowledged messages come again",
    detail: String::new(),
};

impl Adapter {
    /// BEGIN, COMMIT and ABORT.
    pub(super) fn transaction_event(&mut self, event: &Event<'_>) -> Result<(), Refused> {
        match event {
            Event::Begin { transaction, xid, receipt, .. } => {
                let transaction = self.work.transactions.begin(*transaction, xid.as_deref().map(Box::from));
                let tag = self.ask(0, *receipt, Asked::Other);
                self.command(ClientCommand::Begin { tag, transaction });
                Ok(())
            }
            Event::End { transaction, end, receipt, .. } => {
                self.end_transaction(*transaction, *end, *receipt)
            }
            Event::Decide { xid, commit, receipt, .. } => {
                let tag = self.ask(0, *receipt, Asked::Other);
                self.command(ClientCommand::Decide { tag, xid: (**xid).into(), commit: *commit });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end_transaction(
        &mut self,
        transaction: TransactionTag,
        end: TransactionEnd,
        receipt: Option<ReceiptTag>,
    ) -> Result<(), Refused> {
        let Open { id: transaction, xid, is_wide, shared } =
            self.work.transactions.open.remove(&transaction).ok_or(UNKNOWN)?;
        if end == TransactionEnd::Commit {
            self.acknowledge_shared(transaction, &shared);
        }
        let tag = self.ask(0, receipt, Asked::Other);
        match end {
            TransactionEnd::Commit => self.command(ClientCommand::Commit { tag, transaction }),
            TransactionEnd::Abort => self.command(ClientCommand::Abort { tag, transaction }),
            TransactionEnd::Prepare if is_wide => {
                return Err(Refused::because(
                    "messages of a durable subscription cannot be part of a prepared transaction",
                ));
            }
            TransactionEnd::Prepare if !shared.is_empty() => {
                return Err(Refused::because("messages of topics cannot be part of a prepared transaction"));
            }
            TransactionEnd::Prepare => {
                let xid =
                    xid.ok_or(Refused::because("a transaction is prepared under the xid of its BEGIN"))?;
                self.command(ClientCommand::Prepare { tag, transaction, xid });
            }
        }
        Ok(())
    }

    /// What was the last acknowledgement of its message becomes part of the transaction after all.
    fn acknowledge_shared(&mut self, transaction: TransactionId, shared: &[(Handle, Option<bool>)]) {
        for (handle, rejected) in shared {
            if let Some(delivery) = handle.id.filter(|_| self.work.settling.acknowledged(*handle)) {
                self.act(transaction, own_action(delivery, *rejected), None);
            }
        }
    }

    /// A message is part of a transaction.
    pub(super) fn send_within(
        &mut self,
        transaction: TransactionTag,
        message: Message,
        receipt: Option<ReceiptTag>,
    ) -> Result<(), Refused> {
        let transaction = self.work.transactions.open.get(&transaction).ok_or(UNKNOWN)?.id;
        self.act(transaction, TransactionAction::Publish(message), receipt);
        Ok(())
    }

    fn act(&mut self, transaction: TransactionId, action: TransactionAction, receipt: Option<ReceiptTag>) {
        let tag = self.ask(0, receipt, Asked::Publish);
        self.command(ClientCommand::Act { tag, transaction, action });
    }

    /// An acknowledgement is part of a transaction.
    pub(super) fn acknowledge_within(
        &mut self,
        transaction: TransactionTag,
        ack: &Ack<'_>,
        requeue: bool,
    ) -> Result<(), Refused> {
        let id = self.work.transactions.open.get(&transaction).ok_or(UNKNOWN)?.id;
        let handles: Vec<Handle> =
            self.connection.settled().iter().map(|tag| Handle::from_tag(*tag)).collect();
        let rejected = ack.nack.then_some(requeue);
        for handle in handles {
            let Some(delivery) = handle.id else { continue };
            let Tables { transactions, settling, branches, .. } = &mut *self.work;
            let open = transactions.open.get_mut(&transaction).ok_or(UNKNOWN)?;
            let action = match handle.branch {
                0 if settling.is_shared(handle) => {
                    open.shared.push((handle, rejected));
                    continue;
                }
                0 => own_action(delivery, rejected),
                branch => {
                    let conn = branches.get(&branch).copied().ok_or(ENDED)?;
                    open.is_wide = true;
                    TransactionAction::Elsewhere { conn, delivery, rejected }
                }
            };
            self.act(id, action, None);
        }
        self.sync(ack.receipt);
        Ok(())
    }
}

/// A delivery of the connection's own session is settled, or rejected: back to its place, or not.
fn own_action(delivery: DeliveryId, rejected: Option<bool>) -> TransactionAction {
    match rejected {
        Some(requeue) => TransactionAction::Reject { delivery, requeue },
        None => TransactionAction::Settle(delivery),
    }
}
