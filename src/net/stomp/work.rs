//! What an adapter keeps of a client that does something. An idle connection has none of it, and takes no memory for it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};

use super::settling::Settling;
use super::subscriptions::Subscriptions;
use super::transactions::Transactions;
use super::{Routed, Waiting};
use crate::broker::api::ConnId;

/// Tables of one connection.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) subscriptions: Subscriptions,
    pub(super) settling: Settling,
    pub(super) transactions: Transactions,
    /// What the broker has not answered yet.
    pub(super) waiting: VecDeque<Waiting>,
    /// Commands that are to be taken before the next frame is looked at.
    pub(super) commands: VecDeque<Routed>,
    /// The hub's names of the branches.
    pub(super) branches: BTreeMap<u32, ConnId>,
}

impl Tables {
    const fn new() -> Self {
        Self {
            subscriptions: Subscriptions::new(),
            settling: Settling::new(),
            transactions: Transactions::new(),
            waiting: VecDeque::new(),
            commands: VecDeque::new(),
            branches: BTreeMap::new(),
        }
    }
}

/// The tables: they read as empty, and take memory when they are first changed.
#[derive(Debug, Default)]
pub(super) struct Work(Option<Box<Tables>>);

impl Work {
    /// The tables, if they were ever changed.
    pub(super) fn begun(&mut self) -> Option<&mut Tables> {
        self.0.as_deref_mut()
    }
}

impl Deref for Work {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        const EMPTY: &Tables = &Tables::new();
        self.0.as_deref().unwrap_or(EMPTY)
    }
}

impl DerefMut for Work {
    fn deref_mut(&mut self) -> &mut Tables {
        self.0.get_or_insert_with(|| Box::new(Tables::new()))
    }
}
