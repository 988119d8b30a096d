//! Open transactions of one connection.

use super::event::{ConnectionLimit, TransactionTag, Violation};
use super::subscriptions::DeliveryKey;
use crate::limits::ConnectionLimits;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// An open transaction.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) tag: TransactionTag,
    name: Box<str>,
    /// Whether it may be prepared.
    pub(super) has_xid: bool,
    /// SEND, ACK and NACK frames so far.
    actions: u32,
    /// Deliveries whose acknowledgement is part of it.
    pub(super) held: Vec<DeliveryKey>,
}

/// All open transactions; few, so that they are searched one by one.
#[derive(Debug)]
pub(super) struct Transactions {
    open: Vec<Transaction>,
    last_tag: u32,
    /// Bytes of names.
    bytes: usize,
}

impl Transactions {
    pub(super) const fn new() -> Transactions {
        Transactions { open: Vec::new(), last_tag: 0, bytes: 0 }
    }

    /// Bytes of names held.
    pub(super) fn identifier_bytes(&self) -> usize {
        self.bytes
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn begin(
        &mut self,
        name: &str,
        has_xid: bool,
        limits: &ConnectionLimits,
    ) -> Result<TransactionTag, Violation> {
        if self.open.iter().any(|open| *open.name == *name) {
            return Err(Violation::TransactionInUse);
        }
        let max = limits.transactions_max;
        if self.open.len() >= usize::from(max) {
            return Err(ConnectionLimit::Transactions { max }.into());
        }
        self.last_tag += 1;
        let tag = TransactionTag(self.last_tag);
        self.bytes += name.len();
        self.open.push(Transaction { tag, name: name.into(), has_xid, actions: 0, held: Vec::new() });
        Ok(tag)
    }

    /// The open transaction of this name, with one more action in it.
    pub(super) fn act(
        &mut self,
        name: &str,
        limits: &ConnectionLimits,
    ) -> Result<&mut Transaction, Violation> {
        let max = limits.transaction_actions_max;
        let found = self.open.iter_mut().find(|open| *open.name == *name);
        let transaction = found.ok_or(Violation::TransactionUnknown)?;
        if transaction.actions >= max {
            return Err(ConnectionLimit::Actions { max }.into());
        }
        transaction.actions += 1;
        Ok(transaction)
    }

    /// Whether a transaction of this name is open.
    pub(super) fn is_open(&self, name: &str) -> bool {
        self.open.iter().any(|open| *open.name == *name)
    }

    /// Ends the transaction of this name.
    pub(super) fn end(&mut self, name: &str) -> Result<Transaction, Violation> {
        let at = self.open.iter().position(|open| *open.name == *name);
        let transaction = self.open.swap_remove(at.ok_or(Violation::TransactionUnknown)?);
        self.bytes -= transaction.name.len();
        Ok(transaction)
    }
}
