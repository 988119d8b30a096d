//! Level names, each kept once however many filters contain it, with a count of its uses.
//!
//! Invariant: a name is in the table exactly while its use count is above zero. Bound: one entry for each trie node at most.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::heap_bytes;

/// A name's number; reused once nothing uses the name any more.
pub(super) type NameId = u32;

#[derive(Debug)]
struct Entry {
    text: Box<str>,
    uses: u32,
}

/// The table of names.
#[derive(Debug, Default)]
pub(super) struct Names {
    hasher: DefaultHashBuilder,
    table: HashTable<NameId>,
    entries: Vec<Entry>,
    free: Vec<NameId>,
    text_bytes: usize,
}

impl Names {
    /// The number of a name that some filter contains.
    pub(super) fn find(&self, text: &str) -> Option<NameId> {
        let hash = self.hasher.hash_one(text);
        self.table.find(hash, |id| &*self.entries[*id as usize].text == text).copied()
    }

    /// The number of `text`, which gets one more use.
    pub(super) fn take(&mut self, text: &str) -> NameId {
        if let Some(id) = self.find(text) {
            let uses = &mut self.entries[id as usize].uses;
            *uses = uses.checked_add(1).expect("one use per node, and nodes have 32-bit numbers");
            return id;
        }
        let id = self.allocate(text.into());
        let Self { hasher, table, entries, .. } = self;
        let hash = |id: &NameId| hasher.hash_one(&*entries[*id as usize].text);
        table.insert_unique(hash(&id), id, hash);
        self.text_bytes += heap_bytes(text.len());
        id
    }

    /// Takes one use back.
    pub(super) fn release(&mut self, id: NameId) {
        let entry = &mut self.entries[id as usize];
        assert!(entry.uses > 0, "a name is released once for each time it was taken");
        entry.uses -= 1;
        if entry.uses > 0 {
            return;
        }
        let text = std::mem::take(&mut entry.text);
        let hash = self.hasher.hash_one(&*text);
        let found = self.table.find_entry(hash, |other| *other == id);
        found.expect("a name in use is in the table").remove();
        self.text_bytes -= heap_bytes(text.len());
        self.free.push(id);
    }

    /// Names in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Estimated heap memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.table.allocation_size()
            + self.entries.capacity() * size_of::<Entry>()
            + self.free.capacity() * size_of::<NameId>()
            + self.text_bytes
    }

    fn allocate(&mut self, text: Box<str>) -> NameId {
        let entry = Entry { text, uses: 1 };
        if let Some(id) = self.free.pop() {
            self.entries[id as usize] = entry;
            return id;
        }
        let id = NameId::try_from(self.entries.len()).expect("memory ends before 32-bit numbers do");
        super::reserve_one(&mut self.entries);
        self.entries.push(entry);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_lives_as_long_as_it_is_used_and_its_number_is_reused() {
        let mut names = Names::default();
        let a = names.take("a");
        assert_eq!(names.take("a"), a);
        names.release(a);
        assert_eq!(names.find("a"), Some(a));
        names.release(a);
        assert_eq!(names.find("a"), None);
        assert_eq!(names.take("b"), a);
        assert_eq!(names.len(), 1);
    }
}
