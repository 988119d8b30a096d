//! A node of the tree of subscriptions.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::{Sink, Terms, heap_bytes};

/// The number of a node.
pub(super) type NodeId = u32;

/// Bytes of a node's text that lie in the node.
const INLINE_TEXT: usize = 24;

/// Who subscribes with the filter that ends at a node. Nearly always one.
#[derive(Debug, Default)]
pub(super) enum Subscribers {
    #[default]
    None,
    One(Sink, Terms),
    #[expect(clippy::box_collection, reason = "the box keeps a node, of which there are many, small")]
    Many(Box<BTreeMap<Sink, Terms>>),
}

/// One level of one or more filters, with what follows it when nothing else does. A line of the processor's cache.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) parent: NodeId,
    children: u32,
    /// Length of the level.
    level: u16,
    pub(super) kinds: Kinds,
    pub(super) subscribers: Subscribers,
    /// The level and, behind a slash, the tail.
    text: SmallVec<[u8; INLINE_TEXT]>,
}

const _: () = assert!(size_of::<Node>() == 64, "a node is a line");

/// What kinds of children a node may have: `+`, `#`, and fourteen kinds of names. What it does not say is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds(u16);

impl Kinds {
    pub(super) const PLUS: Self = Self(1);
    pub(super) const HASH: Self = Self(2);
    const NAMES: u64 = 14;

    /// The kind of `level`, whose hash is `hash`.
    pub(super) fn of(level: &[u8], hash: u64) -> Self {
        match level {
            b"+" => Self::PLUS,
            b"#" => Self::HASH,
            _ => Self(4 << (hash % Self::NAMES)),
        }
    }

    pub(super) fn has(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }
}

impl Node {
    /// Without children and subscribers. `level` is the length of the text's first level.
    pub(super) fn new(id: NodeId, parent: NodeId, text: &[u8], level: usize) -> Self {
        let level = u16::try_from(level).expect("a filter has at most 65,535 bytes");
        let text = SmallVec::from_slice(text);
        Self { id, parent, children: 0, level, kinds: Kinds::default(), subscribers: Subscribers::None, text }
    }

    /// The level.
    pub(super) fn name(&self) -> &[u8] {
        &self.text[..usize::from(self.level)]
    }

    /// The levels behind it.
    pub(super) fn tail(&self) -> Option<&[u8]> {
        self.text.get(usize::from(self.level) + 1..)
    }

    /// Takes the tail away, if there is one, with those who subscribe to it.
    pub(super) fn take_tail(&mut self) -> Option<(SmallVec<[u8; INLINE_TEXT]>, Subscribers)> {
        let tail = self.tail().map(SmallVec::from_slice)?;
        self.text = SmallVec::from_slice(self.name());
        Some((tail, std::mem::take(&mut self.subscribers)))
    }

    pub(super) fn gain_child(&mut self, kind: Kinds) {
        self.children += 1;
        self.kinds.0 |= kind.0;
    }

    /// Other names may be of the same kind as one that goes, so that names stay until there are no children at all.
    pub(super) fn lose_child(&mut self, kind: Kinds) {
        self.children -= 1;
        if self.children == 0 {
            self.kinds = Kinds::default();
        } else if kind == Kinds::PLUS || kind == Kinds::HASH {
            self.kinds.0 &= !kind.0;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.children == 0 && matches!(self.subscribers, Subscribers::None)
    }

    /// Estimated heap memory in bytes.
    pub(super) fn heap(&self) -> usize {
        let text = if self.text.spilled() { heap_bytes(self.text.capacity()) } else { 0 };
        text + self.subscribers.memory()
    }

    #[cfg(test)]
    pub(super) fn children(&self) -> usize {
        self.children as usize
    }
}

impl Subscribers {
    pub(super) fn insert(&mut self, sink: Sink, terms: Terms) -> Option<Terms> {
        match self {
            Self::None => {
                *self = Self::One(sink, terms);
                None
            }
            Self::One(present, old) if *present == sink => Some(std::mem::replace(old, terms)),
            Self::One(other, others) => {
                let both = BTreeMap::from([(*other, *others), (sink, terms)]);
                *self = Self::Many(Box::new(both));
                None
            }
            Self::Many(map) => map.insert(sink, terms),
        }
    }

    pub(super) fn remove(&mut self, sink: Sink) -> bool {
        match self {
            Self::One(present, _) if *present == sink => {
                *self = Self::None;
                true
            }
            Self::Many(map) => {
                let removed = map.remove(&sink).is_some();
                if map.len() == 1
                    && let Some((last, terms)) = map.pop_first()
                {
                    *self = Self::One(last, terms);
                }
                removed
            }
            _ => false,
        }
    }

    pub(super) fn append_to(&self, found: &mut Vec<(Sink, Terms)>) {
        match self {
            Self::None => {}
            Self::One(sink, terms) => found.push((*sink, *terms)),
            Self::Many(map) => found.extend(map.iter().map(|(sink, terms)| (*sink, *terms))),
        }
    }

    /// Estimated: a leaf of std's B-tree has eleven places and is two thirds full on average.
    pub(super) fn memory(&self) -> usize {
        const LEAF_PLACES: usize = 11;
        const LEAF_FILL: usize = 7;
        match self {
            Self::Many(map) => {
                let leaf = heap_bytes(LEAF_PLACES * size_of::<(Sink, Terms)>() + 16);
                heap_bytes(size_of::<BTreeMap<Sink, Terms>>()) + map.len().div_ceil(LEAF_FILL) * leaf
            }
            _ => 0,
        }
    }
}
