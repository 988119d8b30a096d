//! The filters of all subscriptions as a tree, one level of a filter per edge.
//!
//! Nodes lie in one array and know each other by index. The edges to named children are in one hash table over all nodes,
//! keyed by parent and name; the `+` and `#` children, which every look-up has to visit, are fields of their parent. The levels of
//! a filter that no other one shares are the *tail* of its last shared level's child: one node, however long the filter is, so that
//! a walk among many subscriptions waits for memory a few times only.
//!
//! Invariants: every node but the root has a subscription or a child (empty ones are pruned at once); a `#` node and a node with a
//! tail have no children. Walks are loops; their stack holds at most one entry more than the topic has levels.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use smallvec::SmallVec;

use super::{Sink, Terms, heap_bytes, reserve_one};

type NodeId = u32;

const ROOT: NodeId = 0;
const NONE: u32 = u32::MAX;

/// Levels of a topic up to which a walk needs no heap.
const INLINE_LEVELS: usize = 16;
/// Bytes of a node's text that lie in the node.
const INLINE_TEXT: usize = 24;

/// A node to be looked at, and the levels of the topic that are left.
type Visit<'a> = (NodeId, Option<&'a [u8]>);

/// Who subscribes with the filter that ends at a node. Nearly always one.
#[derive(Debug, Default)]
enum Subscribers {
    #[default]
    None,
    One(Sink, Terms),
    #[expect(clippy::box_collection, reason = "the box keeps a node, of which there are many, small")]
    Many(Box<BTreeMap<Sink, Terms>>),
}

/// One level of one or more filters, with what follows it when nothing else does.
#[derive(Debug)]
struct Node {
    parent: NodeId,
    plus: NodeId,
    hash: NodeId,
    /// Children with a name.
    named: u32,
    subscribers: Subscribers,
    /// The level and, behind a slash, the tail.
    text: SmallVec<[u8; INLINE_TEXT]>,
    /// Length of the level.
    level: u16,
}

/// What [`Trie::insert`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    /// The subscription is new.
    New,
    /// It was there with other terms.
    Replaced,
    /// It was there with the same terms.
    Same,
}

/// The tree.
#[derive(Debug)]
pub(super) struct Trie {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    edges: HashTable<NodeId>,
    hasher: DefaultHashBuilder,
    subscriptions: usize,
    /// Heap memory of the `Many` variants and of long texts.
    heap: usize,
}

impl Trie {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node::new(NONE, b"", 0)],
            free: Vec::new(),
            edges: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            subscriptions: 0,
            heap: 0,
        }
    }

    pub(super) fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// Estimated heap memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.free.capacity() * size_of::<NodeId>()
            + self.edges.allocation_size()
            + self.heap
    }

    pub(super) fn insert(&mut self, filter: &str, sink: Sink, terms: Terms) -> Inserted {
        let at = self.find_or_add(filter.as_bytes());
        let subscribers = &mut self.nodes[at as usize].subscribers;
        let before = subscribers.memory();
        let old = subscribers.insert(sink, terms);
        self.heap = self.heap + subscribers.memory() - before;
        match old {
            None => {
                self.subscriptions += 1;
                Inserted::New
            }
            Some(old) if old == terms => Inserted::Same,
            Some(_) => Inserted::Replaced,
        }
    }

    /// Says whether the subscription was there.
    pub(super) fn remove(&mut self, filter: &str, sink: Sink) -> bool {
        let Some(at) = self.find(filter.as_bytes()) else { return false };
        let subscribers = &mut self.nodes[at as usize].subscribers;
        let before = subscribers.memory();
        if !subscribers.remove(sink) {
            return false;
        }
        self.heap = self.heap + subscribers.memory() - before;
        self.subscriptions -= 1;
        self.prune(at);
        true
    }

    /// Appends every subscription that matches `topic`, in no particular order; a sink once for each of its filters.
    pub(super) fn collect(&self, topic: &str, found: &mut Vec<(Sink, Terms)>) {
        // Wildcards at the first level do not match names like $SYS [MQTT-4.7.2-1].
        let reserved = topic.starts_with('$');
        let mut stack: SmallVec<[Visit<'_>; INLINE_LEVELS]> = SmallVec::new();
        stack.push((ROOT, Some(topic.as_bytes())));
        while let Some((id, rest)) = stack.pop() {
            let node = &self.nodes[id as usize];
            if let Some(tail) = node.tail() {
                if tail_matches(tail, rest) {
                    node.subscribers.append_to(found);
                }
                continue;
            }
            let wildcards = id != ROOT || !reserved;
            if wildcards && node.hash != NONE {
                self.nodes[node.hash as usize].subscribers.append_to(found);
            }
            let Some(rest) = rest else {
                node.subscribers.append_to(found);
                continue;
            };
            let (level, after) = split(rest);
            if wildcards && node.plus != NONE {
                stack.push((node.plus, after));
            }
            if node.named > 0
                && let Some(child) = self.named_child(id, level)
            {
                stack.push((child, after));
            }
        }
    }

    /// Checks every invariant by a full scan.
    #[cfg(test)]
    pub(super) fn assert_sound(&self) {
        let live = self.nodes.len() - self.free.len();
        let mut reached = vec![];
        let mut stack = vec![ROOT];
        while let Some(id) = stack.pop() {
            reached.push(id);
            let node = &self.nodes[id as usize];
            assert!(id == ROOT || !node.is_empty(), "an empty node is pruned");
            let named: Vec<NodeId> =
                self.edges.iter().copied().filter(|child| self.nodes[*child as usize].parent == id).collect();
            assert_eq!(named.len(), node.named as usize);
            assert!(
                named
                    .iter()
                    .all(|child| self.named_child(id, self.nodes[*child as usize].name()) == Some(*child))
            );
            let before = stack.len();
            stack.extend(named.into_iter().chain(some(node.plus)).chain(some(node.hash)));
            assert!(node.tail().is_none() || stack.len() == before, "a tail is all that follows");
        }
        assert_eq!(reached.len(), live);
        let count = |id: &NodeId| {
            let mut found = vec![];
            self.nodes[*id as usize].subscribers.append_to(&mut found);
            found.len()
        };
        assert_eq!(reached.iter().map(count).sum::<usize>(), self.subscriptions);
        let heap: usize = reached.iter().map(|id| self.nodes[*id as usize].heap()).sum();
        assert_eq!(heap, self.heap);
        if self.subscriptions == 0 {
            assert_eq!((live, self.edges.len(), self.heap), (1, 0, 0));
        }
    }

    fn edge_hash(hasher: &DefaultHashBuilder, parent: NodeId, name: &[u8]) -> u64 {
        hasher.hash_one((parent, name))
    }

    fn named_child(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let hash = Self::edge_hash(&self.hasher, parent, name);
        let is_it = |id: &NodeId| {
            let node = &self.nodes[*id as usize];
            node.parent == parent && node.name() == name
        };
        self.edges.find(hash, is_it).copied()
    }

    fn child(&self, parent: NodeId, level: &[u8]) -> Option<NodeId> {
        match level {
            b"+" => some(self.nodes[parent as usize].plus),
            b"#" => some(self.nodes[parent as usize].hash),
            _ => self.named_child(parent, level),
        }
    }

    /// The node that `filter` ends at.
    fn find(&self, filter: &[u8]) -> Option<NodeId> {
        let (mut at, mut rest) = (ROOT, filter);
        loop {
            let (level, after) = split(rest);
            at = self.child(at, level)?;
            match (self.nodes[at as usize].tail(), after) {
                (tail, after) if tail == after => return Some(at),
                (None, Some(after)) => rest = after,
                _ => return None,
            }
        }
    }

    fn find_or_add(&mut self, filter: &[u8]) -> NodeId {
        let (mut at, mut rest) = (ROOT, filter);
        loop {
            let (level, after) = split(rest);
            let Some(child) = self.child(at, level) else { return self.add(at, rest) };
            if self.nodes[child as usize].tail() == after {
                return child;
            }
            self.push_tail_down(child);
            let Some(after) = after else { return child };
            (at, rest) = (child, after);
        }
    }

    /// A node's tail becomes a child of its own, which takes the subscribers with it.
    fn push_tail_down(&mut self, at: NodeId) {
        let node = &mut self.nodes[at as usize];
        let Some(tail) = node.tail().map(SmallVec::<[u8; INLINE_TEXT]>::from_slice) else { return };
        self.heap -= node.heap();
        node.text = SmallVec::from_slice(node.name());
        let subscribers = std::mem::take(&mut node.subscribers);
        self.heap += node.heap();
        let child = self.add(at, &tail);
        self.heap += subscribers.memory();
        self.nodes[child as usize].subscribers = subscribers;
    }

    /// A new child for the first level of `text`, with the others as its tail.
    fn add(&mut self, parent: NodeId, text: &[u8]) -> NodeId {
        let (level, _) = split(text);
        let node = Node::new(parent, text, level.len());
        self.heap += node.heap();
        let child = self.allocate(node);
        let above = &mut self.nodes[parent as usize];
        match level {
            b"+" => above.plus = child,
            b"#" => above.hash = child,
            _ => {
                above.named += 1;
                let Self { edges, nodes, hasher, .. } = self;
                let rehash = |id: &NodeId| {
                    let node = &nodes[*id as usize];
                    Self::edge_hash(hasher, node.parent, node.name())
                };
                edges.insert_unique(rehash(&child), child, rehash);
            }
        }
        child
    }

    fn allocate(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.free.pop() {
            self.nodes[id as usize] = node;
            return id;
        }
        let id = NodeId::try_from(self.nodes.len()).expect("memory ends before 32-bit numbers do");
        assert!(id < NONE, "memory ends before 32-bit numbers do");
        reserve_one(&mut self.nodes);
        self.nodes.push(node);
        id
    }

    /// Removes `at` and its ancestors as far as they are empty.
    fn prune(&mut self, mut at: NodeId) {
        while at != ROOT && self.nodes[at as usize].is_empty() {
            let node = std::mem::replace(&mut self.nodes[at as usize], Node::new(NONE, b"", 0));
            self.heap -= node.heap();
            let above = &mut self.nodes[node.parent as usize];
            match node.name() {
                b"+" => above.plus = NONE,
                b"#" => above.hash = NONE,
                name => {
                    above.named -= 1;
                    let hash = Self::edge_hash(&self.hasher, node.parent, name);
                    let edge = self.edges.find_entry(hash, |id| *id == at);
                    edge.expect("a named node has an edge").remove();
                }
            }
            self.free.push(at);
            at = node.parent;
        }
        if self.subscriptions == 0 {
            *self = Self::new();
        }
    }
}

const _: () = assert!(size_of::<Node>() <= 88, "a node is small");

impl Node {
    fn new(parent: NodeId, text: &[u8], level: usize) -> Self {
        let level = u16::try_from(level).expect("a filter has at most 65,535 bytes");
        let text = SmallVec::from_slice(text);
        Self { parent, plus: NONE, hash: NONE, named: 0, subscribers: Subscribers::None, text, level }
    }

    fn name(&self) -> &[u8] {
        &self.text[..usize::from(self.level)]
    }

    fn tail(&self) -> Option<&[u8]> {
        self.text.get(usize::from(self.level) + 1..)
    }

    fn is_empty(&self) -> bool {
        let childless = self.named == 0 && self.plus == NONE && self.hash == NONE;
        childless && matches!(self.subscribers, Subscribers::None)
    }

    /// Estimated heap memory in bytes.
    fn heap(&self) -> usize {
        let text = if self.text.spilled() { heap_bytes(self.text.capacity()) } else { 0 };
        text + self.subscribers.memory()
    }
}

/// The first level, and what follows its slash.
fn split(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'/', text) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Whether the rest of a topic matches the rest of a filter.
fn tail_matches(mut tail: &[u8], mut rest: Option<&[u8]>) -> bool {
    loop {
        let (level, more) = split(tail);
        if level == b"#" {
            return true;
        }
        let Some(text) = rest else { return false };
        let (name, after) = split(text);
        if level != b"+" && level != name {
            return false;
        }
        match more {
            Some(more) => (tail, rest) = (more, after),
            None => return after.is_none(),
        }
    }
}

impl Subscribers {
    fn insert(&mut self, sink: Sink, terms: Terms) -> Option<Terms> {
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

    fn remove(&mut self, sink: Sink) -> bool {
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

    fn append_to(&self, found: &mut Vec<(Sink, Terms)>) {
        match self {
            Self::None => {}
            Self::One(sink, terms) => found.push((*sink, *terms)),
            Self::Many(map) => found.extend(map.iter().map(|(sink, terms)| (*sink, *terms))),
        }
    }

    /// Estimated: a leaf of std's B-tree has eleven places and is two thirds full on average.
    fn memory(&self) -> usize {
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

fn some(id: NodeId) -> Option<NodeId> {
    (id != NONE).then_some(id)
}
