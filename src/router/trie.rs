//! The filters of all subscriptions as a tree, one level of a filter per edge.
//!
//! All nodes but the root lie in one hash table, so that a step down the tree waits for memory once, for the line that holds the child
//! itself; a few bits of a node say that most children it has not got are not worth a look. The levels of a filter that no other one
//! shares are the *tail* of its last shared level's child: one node, however long the filter is, so that a walk among many
//! subscriptions has few steps.
//!
//! Invariants: every node but the root has a subscription or a child (empty ones are pruned at once); a `#` node and a node with a
//! tail have no children. Walks are loops; their stack holds at most one entry more than the topic has levels.

use smallvec::SmallVec;

use super::node::{Kinds, Node, NodeId, Subscribers};
use super::nodes::{Key, Nodes};
use super::{Sink, Terms};

const ROOT: NodeId = 0;

/// Levels of a topic up to which a walk needs no heap.
const INLINE_LEVELS: usize = 16;

/// A node to be looked at, and the levels of the topic that are left.
type Visit<'a> = (&'a Node, Option<&'a [u8]>);

/// The nodes from the root, which is left out, to one of them.
type Path<'a> = SmallVec<[Key<'a>; INLINE_LEVELS]>;

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
    root: Node,
    nodes: Nodes,
    /// The highest number given so far, and those below it that are free.
    last: NodeId,
    free: Vec<NodeId>,
    subscriptions: usize,
    /// Heap memory of the nodes' subscribers and texts.
    heap: usize,
}

impl Trie {
    pub(super) fn new() -> Self {
        Self {
            root: Node::new(ROOT, ROOT, b"", 0),
            nodes: Nodes::new(),
            last: ROOT,
            free: Vec::new(),
            subscriptions: 0,
            heap: 0,
        }
    }

    pub(super) fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// Estimated heap memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.nodes.memory() + self.free.capacity() * size_of::<NodeId>() + self.heap
    }

    pub(super) fn insert(&mut self, filter: &str, sink: Sink, terms: Terms) -> Inserted {
        let key = self.find_or_add(filter.as_bytes());
        let node = self.node_mut(Some(key));
        let before = node.subscribers.memory();
        let old = node.subscribers.insert(sink, terms);
        let after = node.subscribers.memory();
        self.heap = self.heap + after - before;
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
        let Some(path) = self.path(filter.as_bytes()) else { return false };
        let node = self.node_mut(path.last().copied());
        let before = node.subscribers.memory();
        if !node.subscribers.remove(sink) {
            return false;
        }
        let after = node.subscribers.memory();
        self.heap = self.heap + after - before;
        self.subscriptions -= 1;
        self.prune(path);
        true
    }

    /// Appends every subscription that matches `topic`, in no particular order; a sink once for each of its filters.
    pub(super) fn collect(&self, topic: &str, found: &mut Vec<(Sink, Terms)>) {
        // Wildcards at the first level do not match names like $SYS [MQTT-4.7.2-1].
        let reserved = topic.starts_with('$');
        let mut stack: SmallVec<[Visit<'_>; INLINE_LEVELS]> = SmallVec::new();
        stack.push((&self.root, Some(topic.as_bytes())));
        while let Some((node, rest)) = stack.pop() {
            if let Some(tail) = node.tail() {
                if tail_matches(tail, rest) {
                    node.subscribers.append_to(found);
                }
                continue;
            }
            let wildcards = node.id != ROOT || !reserved;
            if wildcards
                && node.kinds.has(Kinds::HASH)
                && let Some(all) = self.child(node, b"#")
            {
                all.subscribers.append_to(found);
            }
            let Some(rest) = rest else {
                node.subscribers.append_to(found);
                continue;
            };
            let (level, after) = split(rest);
            if wildcards
                && node.kinds.has(Kinds::PLUS)
                && let Some(any) = self.child(node, b"+")
            {
                stack.push((any, after));
            }
            if let Some(named) = self.child(node, level) {
                stack.push((named, after));
            }
        }
    }

    /// Checks every invariant by a full scan.
    #[cfg(test)]
    pub(super) fn assert_sound(&self) {
        let all: Vec<&Node> = std::iter::once(&self.root).chain(self.nodes.iter()).collect();
        assert_eq!(all.len(), self.nodes.len() + 1);
        assert_eq!(self.last as usize, self.nodes.len() + self.free.len());
        let mut reached = 0;
        let mut stack = vec![&self.root];
        while let Some(node) = stack.pop() {
            reached += 1;
            assert!(node.id == ROOT || !node.is_empty(), "an empty node is pruned");
            let children = all[1..].iter().filter(|child| child.parent == node.id);
            let before = stack.len();
            for child in children {
                let found = self.child(node, child.name()).expect("a child is found");
                assert!(std::ptr::eq(found, *child));
                stack.push(found);
            }
            assert_eq!(stack.len() - before, node.children());
            assert!(node.tail().is_none() || stack.len() == before, "a tail is all that follows");
            for (kind, level) in [(Kinds::PLUS, b"+"), (Kinds::HASH, b"#")] {
                assert_eq!(node.kinds.has(kind), self.child(node, level).is_some());
            }
        }
        assert_eq!(reached, all.len());
        let mut found = vec![];
        all.iter().for_each(|node| node.subscribers.append_to(&mut found));
        assert_eq!(found.len(), self.subscriptions);
        assert_eq!(all.iter().map(|node| node.heap()).sum::<usize>(), self.heap);
        if self.subscriptions == 0 {
            assert_eq!((self.nodes.len(), self.last, self.heap), (0, ROOT, 0));
        }
    }

    /// The node with this key, or the root.
    fn node_mut(&mut self, key: Option<Key<'_>>) -> &mut Node {
        match key.and_then(|key| self.nodes.get_mut(key)) {
            Some(node) => node,
            None => &mut self.root,
        }
    }

    fn child(&self, above: &Node, level: &[u8]) -> Option<&Node> {
        let key = Key { parent: above.id, level };
        let hash = self.nodes.hash(key);
        if above.kinds.has(Kinds::of(level, hash)) { self.nodes.get(hash, key) } else { None }
    }

    /// The way to the node that `filter` ends at.
    fn path<'a>(&self, filter: &'a [u8]) -> Option<Path<'a>> {
        let (mut node, mut rest) = (&self.root, filter);
        let mut path = Path::new();
        loop {
            let (level, after) = split(rest);
            path.push(Key { parent: node.id, level });
            node = self.child(node, level)?;
            match (node.tail(), after) {
                (tail, after) if tail == after => return Some(path),
                (None, Some(after)) => rest = after,
                _ => return None,
            }
        }
    }

    fn find_or_add<'a>(&mut self, filter: &'a [u8]) -> Key<'a> {
        let (mut above, mut parent, mut rest) = (None, ROOT, filter);
        loop {
            let (level, after) = split(rest);
            let key = Key { parent, level };
            let Some(child) = self.nodes.get(self.nodes.hash(key), key) else {
                self.add(above, rest, Subscribers::None);
                return key;
            };
            if child.tail() == after {
                return key;
            }
            let id = child.id;
            self.push_tail_down(key);
            let Some(after) = after else { return key };
            (above, parent, rest) = (Some(key), id, after);
        }
    }

    /// A node's tail becomes a child of its own, which takes the subscribers with it.
    fn push_tail_down(&mut self, key: Key<'_>) {
        let node = self.node_mut(Some(key));
        let before = node.heap();
        if let Some((tail, subscribers)) = node.take_tail() {
            let after = node.heap();
            self.heap = self.heap + after - before;
            self.add(Some(key), &tail, subscribers);
        }
    }

    /// A new child for the first level of `text`, with the others as its tail.
    fn add(&mut self, above: Option<Key<'_>>, text: &[u8], subscribers: Subscribers) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.last = self.last.checked_add(1).expect("memory ends before 32-bit numbers do");
            self.last
        });
        let (level, _) = split(text);
        let parent = self.node_mut(above).id;
        let kind = Kinds::of(level, self.nodes.hash(Key { parent, level }));
        self.node_mut(above).gain_child(kind);
        let mut node = Node::new(id, parent, text, level.len());
        node.subscribers = subscribers;
        self.heap += node.heap();
        self.nodes.insert(node);
    }

    /// Removes the last node of `path` and those before it as far as they are empty.
    fn prune(&mut self, mut path: Path<'_>) {
        while let Some(key) = path.pop()
            && self.node_mut(Some(key)).is_empty()
            && let Some(node) = self.nodes.remove(key)
        {
            self.heap -= node.heap();
            self.free.push(node.id);
            let kind = Kinds::of(key.level, self.nodes.hash(key));
            self.node_mut(path.last().copied()).lose_child(kind);
        }
        if self.subscriptions == 0 {
            *self = Self::new();
        }
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
