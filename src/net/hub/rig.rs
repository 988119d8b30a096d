//! What tests do with a hub that they hold in their hands: read everything it writes, make everything durable, choose how long to run.

use std::collections::BTreeMap;

use super::{Hub, Output};
use crate::broker::api::ConnId;
use crate::store::contract::StoreEvent;
use crate::store::fake::FakeStore;
use crate::time::Now;

impl Hub {
    /// Moves what is to be written to a connection to `read`: its socket takes all of it.
    pub(super) fn read_all(&mut self, id: ConnId, now: Now, read: &mut Vec<u8>) {
        loop {
            let before = read.len();
            match self.output(id) {
                None => return,
                Some(Output::Single(bytes)) => read.extend_from_slice(bytes),
                Some(Output::Many(slices)) => slices.iter().for_each(|s| read.extend_from_slice(s)),
            }
            self.wrote(id, read.len() - before, now);
        }
    }

    /// Everything becomes durable, every page is served, every byte is read, until nothing is left to do.
    pub(super) fn settle(&mut self, store: &mut FakeStore, now: Now, read: &mut BTreeMap<ConnId, Vec<u8>>) {
        loop {
            let mut moved = false;
            if let Some(batch) = self.take_batch(now) {
                store.submit(batch);
            }
            let loads: Vec<_> = self.take_loads().collect();
            for request in loads {
                let page = store.page(request);
                self.store_event(StoreEvent::Page(page), now);
                moved = true;
            }
            if let Some(receipt) = store.commit(usize::MAX) {
                self.store_event(StoreEvent::Committed(receipt), now);
                moved = true;
            }
            self.finish_turn(now);
            while let Some(id) = self.next_dirty() {
                self.read_all(id, now, read.entry(id).or_default());
                moved = true;
            }
            self.finish_turn(now);
            if !moved && !self.has_work() {
                return;
            }
        }
    }
}

/// The seed and the number of steps of a random test, from `TIDEGATE_SEED` and `TIDEGATE_MACHINE_STEPS` or else from the clock and
/// `usual`; printed, so that it can be repeated.
#[cfg(test)]
pub(super) fn seed_and_steps(usual: u64) -> (u64, u64) {
    let env = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |age| age.as_nanos() as u64);
    let seed = env("TIDEGATE_SEED").unwrap_or_else(clock);
    let steps = env("TIDEGATE_MACHINE_STEPS").unwrap_or(usual);
    eprintln!("TIDEGATE_SEED={seed} TIDEGATE_MACHINE_STEPS={steps}");
    (seed, steps)
}
