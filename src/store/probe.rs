//! Tries to open redb without writing: an overlay keeps what redb would write in memory.
//!
//! At start-up this tells whether page 0 was torn by a power cut, and which copy of it opens.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use redb::StorageBackend;

use super::layout::BLOCK_BYTES;
use super::media::Media;

const BLOCK: usize = BLOCK_BYTES as usize;

/// The region of a file, with changes that stay in memory.
#[derive(Debug)]
pub struct Overlay {
    media: Arc<dyn Media>,
    base: u64,
    changes: Mutex<Changes>,
}

#[derive(Debug)]
struct Changes {
    len: u64,
    /// What the file still backs: less after a cut.
    backed: u64,
    blocks: HashMap<u64, Box<[u8; BLOCK]>>,
}

impl Overlay {
    /// The region from `base` on; `page` stands in for its first page.
    ///
    /// # Errors
    /// As the medium says.
    pub fn new(media: Arc<dyn Media>, base: u64, page: Option<&[u8; BLOCK]>) -> io::Result<Self> {
        let len = media.size()?.saturating_sub(base);
        let blocks = page.map(|page| (0, Box::new(*page))).into_iter().collect();
        Ok(Self { media, base, changes: Mutex::new(Changes { len, backed: len, blocks }) })
    }

    fn block(&self, changes: &Changes, number: u64) -> io::Result<Box<[u8; BLOCK]>> {
        if let Some(block) = changes.blocks.get(&number) {
            return Ok(block.clone());
        }
        let mut block = Box::new([0; BLOCK]);
        let at = number * BLOCK_BYTES;
        let n = usize::try_from(changes.backed.saturating_sub(at)).map_or(BLOCK, |n| n.min(BLOCK));
        self.media.read_at(self.base + at, &mut block[..n])?;
        Ok(block)
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changes.lock().unwrap_or_else(PoisonError::into_inner).len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let end = offset + out.len() as u64;
        if end > changes.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let numbers = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        if end <= changes.backed && !numbers.clone().any(|n| changes.blocks.contains_key(&n)) {
            return self.media.read_at(self.base + offset, out);
        }
        for number in numbers {
            let block = self.block(&changes, number)?;
            let (from, to) = overlap(number, offset, end);
            let at = usize::try_from(number * BLOCK_BYTES + from as u64 - offset).expect("inside the buffer");
            out[at..at + to - from].copy_from_slice(&block[from..to]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.blocks.retain(|number, _| number * BLOCK_BYTES < len);
        changes.backed = changes.backed.min(len);
        changes.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let end = offset + data.len() as u64;
        for number in offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            let mut block = self.block(&changes, number)?;
            let (from, to) = overlap(number, offset, end);
            let at = usize::try_from(number * BLOCK_BYTES + from as u64 - offset).expect("inside the buffer");
            block[from..to].copy_from_slice(&data[at..at + to - from]);
            changes.blocks.insert(number, block);
        }
        Ok(())
    }
}

/// Which bytes of a block lie in `offset..end`.
fn overlap(number: u64, offset: u64, end: u64) -> (usize, usize) {
    let start = number * BLOCK_BYTES;
    let from = offset.saturating_sub(start);
    let to = (end - start).min(BLOCK_BYTES);
    (from as usize, to as usize)
}
