//! The filters of all subscriptions as a tree, one level of a filter per edge.
//!
//! Nodes lie in one array and know each other by index. The edges to named children are in one hash table over all nodes,
//! keyed by parent and name; the `+` and `#` children, which every look-up has to visit, are fields of their parent.
//!
//! Invariants: every node but the root has a subscription or a child (empty ones are pruned at once); a `#` node has no
//! children. Walks are loops; their stack holds at most one entry more than the topic has levels.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use smallvec::SmallVec;

use super::names::{NameId, Names};
use super::{Sink, Terms, heap_bytes, reserve_one};

type NodeId = u32;

const ROOT: NodeId = 0;
const NONE: u32 = u32::MAX;
/// Stand in for a name in [`Node::name`] of wildcard children.
const PLUS: NameId = u32::MAX - 1;
const HASH: NameId = u32::MAX - 2;

/// Levels of a topic up to which a walk needs no heap.
const INLINE_LEVELS: usize = 16;

/// Who subscribes with the filter that ends at a node. Nearly always one.
#[derive(Debug, Default)]
enum Subscribers {
    #[default]
    None,
    One(Sink, Terms),
    #[expect(clippy::box_collection, reason = "the box keeps a node, of which there are many, at 40 bytes")]
    Many(Box<BTreeMap<Sink, Terms>>),
}

#[derive(Debug)]
struct Node {
    parent: NodeId,
    name: NameId,
    plus: NodeId,
    hash: NodeId,
    /// Children with a name.
    named: u32,
    subscribers: Subscribers,
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
    names: Names,
    subscriptions: usize,
    /// Heap memory of the `Many` variants.
    many_bytes: usize,
}

impl Trie {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node::new(NONE, NONE)],
            free: Vec::new(),
            edges: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            names: Names::default(),
            subscriptions: 0,
            many_bytes: 0,
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
            + self.names.memory()
            + self.many_bytes
    }

    pub(super) fn insert(&mut self, filter: &str, sink: Sink, terms: Terms) -> Inserted {
        let mut at = ROOT;
        for level in filter.split('/') {
            at = self.child_or_new(at, level);
        }
        let subscribers = &mut self.nodes[at as usize].subscribers;
        let before = subscribers.memory();
        let old = subscribers.insert(sink, terms);
        self.many_bytes = self.many_bytes + subscribers.memory() - before;
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
        let mut at = ROOT;
        for level in filter.split('/') {
            match self.child(at, level) {
                Some(child) => at = child,
                None => return false,
            }
        }
        let subscribers = &mut self.nodes[at as usize].subscribers;
        let before = subscribers.memory();
        if !subscribers.remove(sink) {
            return false;
        }
        self.many_bytes = self.many_bytes + subscribers.memory() - before;
        self.subscriptions -= 1;
        self.prune(at);
        true
    }

    /// Appends every subscription that matches `topic`, in no particular order; a sink once for each of its filters.
    pub(super) fn collect(&self, topic: &str, found: &mut Vec<(Sink, Terms)>) {
        let names: SmallVec<[NameId; INLINE_LEVELS]> =
            topic.split('/').map(|level| self.names.find(level).unwrap_or(NONE)).collect();
        // Wildcards at the first level do not match names like $SYS [MQTT-4.7.2-1].
        let reserved = topic.starts_with('$');
        let mut stack: SmallVec<[(NodeId, usize); INLINE_LEVELS]> = SmallVec::new();
        stack.push((ROOT, 0));
        while let Some((id, depth)) = stack.pop() {
            let node = &self.nodes[id as usize];
            let wildcards = depth > 0 || !reserved;
            if wildcards && node.hash != NONE {
                self.nodes[node.hash as usize].subscribers.append_to(found);
            }
            let Some(&name) = names.get(depth) else {
                node.subscribers.append_to(found);
                continue;
            };
            if wildcards && node.plus != NONE {
                stack.push((node.plus, depth + 1));
            }
            if name != NONE
                && node.named > 0
                && let Some(child) = self.named_child(id, name)
            {
                stack.push((child, depth + 1));
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
                    .all(|child| self.named_child(id, self.nodes[*child as usize].name) == Some(*child))
            );
            stack.extend(named.into_iter().chain(some(node.plus)).chain(some(node.hash)));
        }
        assert_eq!(reached.len(), live);
        let count = |id: &NodeId| {
            let mut found = vec![];
            self.nodes[*id as usize].subscribers.append_to(&mut found);
            found.len()
        };
        assert_eq!(reached.iter().map(count).sum::<usize>(), self.subscriptions);
        assert!(self.names.len() <= self.edges.len());
        if self.subscriptions == 0 {
            assert_eq!((live, self.names.len(), self.edges.len(), self.many_bytes), (1, 0, 0, 0));
        }
    }

    fn edge_hash(hasher: &DefaultHashBuilder, parent: NodeId, name: NameId) -> u64 {
        hasher.hash_one(u64::from(parent) << 32 | u64::from(name))
    }

    fn named_child(&self, parent: NodeId, name: NameId) -> Option<NodeId> {
        let hash = Self::edge_hash(&self.hasher, parent, name);
        let is_it = |id: &NodeId| {
            let node = &self.nodes[*id as usize];
            node.parent == parent && node.name == name
        };
        self.edges.find(hash, is_it).copied()
    }

    fn child(&self, parent: NodeId, level: &str) -> Option<NodeId> {
        match level {
            "+" => some(self.nodes[parent as usize].plus),
            "#" => some(self.nodes[parent as usize].hash),
            _ => self.named_child(parent, self.names.find(level)?),
        }
    }

    fn child_or_new(&mut self, parent: NodeId, level: &str) -> NodeId {
        if let Some(child) = self.child(parent, level) {
            return child;
        }
        match level {
            "+" => {
                let child = self.allocate(Node::new(parent, PLUS));
                self.nodes[parent as usize].plus = child;
                child
            }
            "#" => {
                let child = self.allocate(Node::new(parent, HASH));
                self.nodes[parent as usize].hash = child;
                child
            }
            _ => {
                let name = self.names.take(level);
                let child = self.allocate(Node::new(parent, name));
                self.nodes[parent as usize].named += 1;
                let Self { edges, nodes, hasher, .. } = self;
                let rehash = |id: &NodeId| {
                    let node = &nodes[*id as usize];
                    Self::edge_hash(hasher, node.parent, node.name)
                };
                edges.insert_unique(rehash(&child), child, rehash);
                child
            }
        }
    }

    fn allocate(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.free.pop() {
            self.nodes[id as usize] = node;
            return id;
        }
        let id = NodeId::try_from(self.nodes.len()).expect("memory ends before 32-bit numbers do");
        assert!(id < HASH, "memory ends before 32-bit numbers do");
        reserve_one(&mut self.nodes);
        self.nodes.push(node);
        id
    }

    /// Removes `at` and its ancestors as far as they are empty.
    fn prune(&mut self, mut at: NodeId) {
        while at != ROOT && self.nodes[at as usize].is_empty() {
            let Node { parent, name, .. } = self.nodes[at as usize];
            match name {
                PLUS => self.nodes[parent as usize].plus = NONE,
                HASH => self.nodes[parent as usize].hash = NONE,
                _ => {
                    let hash = Self::edge_hash(&self.hasher, parent, name);
                    let edge = self.edges.find_entry(hash, |id| *id == at);
                    edge.expect("a named node has an edge").remove();
                    self.nodes[parent as usize].named -= 1;
                    self.names.release(name);
                }
            }
            self.free.push(at);
            at = parent;
        }
        if self.subscriptions == 0 {
            *self = Self::new();
        }
    }
}

const _: () = assert!(size_of::<Node>() <= 40, "a node is small");

impl Node {
    fn new(parent: NodeId, name: NameId) -> Self {
        Self { parent, name, plus: NONE, hash: NONE, named: 0, subscribers: Subscribers::None }
    }

    fn is_empty(&self) -> bool {
        let childless = self.named == 0 && self.plus == NONE && self.hash == NONE;
        childless && matches!(self.subscribers, Subscribers::None)
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
