//! The table of all nodes of the tree of subscriptions, found by their parent and their level.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::node::{Node, NodeId};

/// What a node is found by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    pub(super) parent: NodeId,
    pub(super) level: &'a [u8],
}

/// The table. The nodes themselves lie in it, not references to them, so that a look-up waits for one line from memory.
#[derive(Debug)]
pub(super) struct Nodes {
    table: HashTable<Node>,
    hasher: DefaultHashBuilder,
}

impl Nodes {
    pub(super) fn new() -> Self {
        Self { table: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Estimated heap memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.table.allocation_size()
    }

    /// The hash of a key.
    pub(super) fn hash(&self, key: Key<'_>) -> u64 {
        self.hasher.hash_one((key.parent, key.level))
    }

    /// The node with this key, whose hash is known already.
    pub(super) fn get(&self, hash: u64, key: Key<'_>) -> Option<&Node> {
        self.table.find(hash, |node| node.has(key))
    }

    pub(super) fn get_mut(&mut self, key: Key<'_>) -> Option<&mut Node> {
        let hash = self.hash(key);
        self.table.find_mut(hash, |node| node.has(key))
    }

    /// Adds a node whose parent has no child with its level.
    pub(super) fn insert(&mut self, node: Node) {
        let hash = self.hash(node.key());
        let hasher = &self.hasher;
        let rehash = |node: &Node| hasher.hash_one((node.parent, node.name()));
        self.table.insert_unique(hash, node, rehash);
    }

    pub(super) fn remove(&mut self, key: Key<'_>) -> Option<Node> {
        let hash = self.hash(key);
        let (node, _) = self.table.find_entry(hash, |node| node.has(key)).ok()?.remove();
        Some(node)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.table.iter()
    }
}

impl Node {
    fn key(&self) -> Key<'_> {
        Key { parent: self.parent, level: self.name() }
    }

    fn has(&self, key: Key<'_>) -> bool {
        self.parent == key.parent && self.name() == key.level
    }
}
