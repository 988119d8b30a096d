//! What a connection keeps of a conversation that goes on. An idle one has none of it, and takes no memory for it.

use super::receipts::Receipts;
use super::subscriptions::Subscriptions;
use super::transactions::Transactions;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// Receipts that are due, subscriptions, transactions, and what the last frames have led to.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) receipts: Receipts,
    pub(super) subscriptions: Subscriptions,
    pub(super) transactions: Transactions,
    /// What the last ACK or NACK covers.
    pub(super) settled: Vec<u64>,
    /// The receipt that a frame at fault has asked for.
    pub(super) faulty_receipt: Option<Box<str>>,
    /// ERROR, which waits for receipts.
    pub(super) last_words: Option<Box<[u8]>>,
}

impl Books {
    const fn new() -> Books {
        Books {
            receipts: Receipts::new(),
            subscriptions: Subscriptions::new(),
            transactions: Transactions::new(),
            settled: Vec::new(),
            faulty_receipt: None,
            last_words: None,
        }
    }
}

/// Something that reads as empty, and takes memory when it is first changed.
#[derive(Debug)]
pub(super) struct OnDemand<T>(Option<Box<T>>);

impl<T> Default for OnDemand<T> {
    fn default() -> Self {
        OnDemand(None)
    }
}

impl Deref for OnDemand<Books> {
    type Target = Books;

    fn deref(&self) -> &Books {
        const EMPTY: &Books = &Books::new();
        self.0.as_deref().unwrap_or(EMPTY)
    }
}

impl DerefMut for OnDemand<Books> {
    fn deref_mut(&mut self) -> &mut Books {
        self.0.get_or_insert_with(|| Box::new(Books::new()))
    }
}
