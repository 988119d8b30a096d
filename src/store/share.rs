//! Messages that a checkpoint moves for several queues at once: their bodies are stored once, in packs.
//!
//! A pack holds messages that the same set of queues wants, so it goes when the slowest of them is done with it and never
//! keeps anything for a queue that is not. Segments refer to places in packs; a pack counts the segments that do. All of them
//! are written by the checkpoint that writes the pack, so that the count only falls; it falls in the transaction that removes
//! the segment. Bounds: the plan lives as long as one checkpoint and is as long as what the ring holds.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::hot::QueueFold;
use super::segment::{INLINE_BYTES_MAX, fill_target};
use crate::message::Message;

/// Copies saved are worth a pack from this many bytes on.
const SAVED_BYTES_MIN: u64 = 4096;

/// Where a shared message lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The pack.
    pub pack: u64,
    /// Its first byte there.
    pub at: u32,
    /// Its length.
    pub len: u32,
}

/// Messages that are stored together, once.
#[derive(Debug)]
pub struct Pack {
    /// Never reused.
    pub id: u64,
    /// In order. A large message has a pack of its own.
    pub messages: Vec<Message>,
}

impl Pack {
    /// Its stored size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| u64::from(message.size())).sum()
    }
}

/// What one checkpoint stores once.
#[derive(Debug, Default)]
pub struct Shares {
    places: HashMap<usize, Place>,
    packs: Vec<Pack>,
}

/// Places of queues in the snapshot, ascending.
type Wanting = SmallVec<[u32; 8]>;

impl Shares {
    /// Finds the messages that several of the queues want. Packs are numbered from `next` on.
    #[must_use]
    pub fn plan(queues: &[QueueFold], next: u64) -> Self {
        let mut shares = Self::default();
        if queues.iter().filter(|fold| !fold.entries.is_empty()).nth(1).is_none() {
            return shares;
        }
        let mut next = next;
        for (wanting, messages) in groups(queues) {
            let bytes: u64 = messages.iter().map(|message| u64::from(message.size())).sum();
            if (wanting.len() as u64 - 1) * bytes >= SAVED_BYTES_MIN {
                shares.add(&messages, &mut next);
            }
        }
        shares
    }

    /// Where the message lies, if it is stored once.
    #[must_use]
    pub fn place(&self, message: &Message) -> Option<Place> {
        if self.places.is_empty() { None } else { self.places.get(&message.address()).copied() }
    }

    /// What is to be written.
    #[must_use]
    pub fn packs(&self) -> &[Pack] {
        &self.packs
    }

    fn add(&mut self, messages: &[&Message], next: &mut u64) {
        let (large, small): (Vec<&Message>, Vec<&Message>) =
            messages.iter().partition(|message| message.size() as usize > INLINE_BYTES_MAX);
        for message in large {
            self.close(&[message], next);
        }
        let mut rest = small.as_slice();
        while !rest.is_empty() {
            let target = fill_target(rest.iter().map(|message| message.size() as usize));
            let mut bytes = 0;
            let fits = |message: &&&Message| {
                bytes += message.size() as usize;
                bytes <= target
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (now, after) = rest.split_at(count);
            self.close(now, next);
            rest = after;
        }
    }

    fn close(&mut self, messages: &[&Message], next: &mut u64) {
        let mut at = 0;
        for message in messages {
            let len = message.size();
            self.places.insert(message.address(), Place { pack: *next, at, len });
            at += len;
        }
        self.packs.push(Pack { id: *next, messages: messages.iter().map(|&m| m.clone()).collect() });
        *next += 1;
    }
}

/// Messages by the set of queues that want them, for sets of at least two, in a fixed order.
fn groups(queues: &[QueueFold]) -> BTreeMap<Wanting, Vec<&Message>> {
    let mut wanted: HashMap<usize, Wanting> = HashMap::new();
    for (number, fold) in (0u32..).zip(queues) {
        for entry in &fold.entries {
            let wanting = wanted.entry(entry.message.address()).or_default();
            if wanting.last() != Some(&number) {
                wanting.push(number);
            }
        }
    }
    let mut groups: BTreeMap<Wanting, Vec<&Message>> = BTreeMap::new();
    for fold in queues {
        for entry in &fold.entries {
            // Taken out where it is seen first: each message is listed once.
            if let Some(wanting) = wanted.remove(&entry.message.address())
                && wanting.len() > 1
            {
                match groups.get_mut(&wanting) {
                    Some(list) => list.push(&entry.message),
                    None => drop(groups.insert(wanting, vec![&entry.message])),
                }
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::DeliveryOptions;
    use crate::store::contract::QueueId;
    use crate::store::hot::FoldEntry;
    use crate::store::tests_support::numbered;

    fn fold(queue: u32, messages: &[&Message]) -> QueueFold {
        let entries = (1..).zip(messages).map(|(seq, message)| FoldEntry {
            seq,
            options: DeliveryOptions::default(),
            message: (*message).clone(),
        });
        QueueFold {
            queue: QueueId(queue),
            entries: entries.collect(),
            row: None,
            segments: 0,
            sweeps: vec![],
            floor: 1,
        }
    }

    #[test]
    fn messages_share_a_pack_only_with_messages_of_the_same_queues() {
        let all: Vec<Message> = (0..40).map(|n| numbered(n, 1000)).collect();
        let pick = |one_in: usize| all.iter().step_by(one_in).collect::<Vec<_>>();
        let queues = [fold(1, &pick(1)), fold(2, &pick(2)), fold(3, &pick(4))];
        let shares = Shares::plan(&queues, 7);
        let packs: Vec<_> = shares.packs().iter().map(|pack| (pack.id, pack.messages.len())).collect();
        assert_eq!(packs.iter().map(|(_, n)| n).sum::<usize>(), 20);
        assert_eq!(
            packs.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            (7..7 + packs.len() as u64).collect::<Vec<_>>()
        );
        for (n, message) in all.iter().enumerate() {
            assert_eq!(shares.place(message).is_some(), n % 2 == 0, "{n}");
        }
        let place = |n: usize| shares.place(&all[n]).unwrap().pack;
        assert!(place(0) != place(2) && place(2) == place(6) && place(0) == place(4));
    }

    #[test]
    fn what_saves_little_is_copied_and_what_is_large_lies_alone() {
        let (small, large) = (numbered(1, 100), numbered(2, 100_000));
        let queues = [fold(1, &[&small, &large]), fold(2, &[&large]), fold(3, &[&small])];
        let shares = Shares::plan(&queues, 1);
        assert_eq!(shares.place(&small), None);
        assert_eq!(shares.place(&large), Some(Place { pack: 1, at: 0, len: large.size() }));
        assert!(Shares::plan(&queues[..1], 1).packs().is_empty());
    }
}
