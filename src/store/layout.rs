//! Where things are in the file, and the superblock.
//!
//! ```text
//! 0       superblock, slot 0            one 4 KiB block each; the valid one with the larger sequence counts
//! 4096    superblock, slot 1
//! 8192    copy of redb's page 0, slot 0 the page and a trailer block each, see offset_backend
//! 16384   copy of redb's page 0, slot 1
//! 32768   write-ahead ring, a whole number of blocks, filled with zeroes when the file is made
//! ...     ballast: a hole whose blocks are reserved, see space
//! ...     redb, to the end of the file
//! ```

use super::error::StoreError;
use super::media::Media;

/// The unit of everything in the file: what a disk or a file system writes at once.
pub const BLOCK_BYTES: u64 = 4096;

/// The format that this program writes; it brings older ones up to this one, see [`super::upgrade`].
///
/// 1: the first. 2: packs of messages that several queues want. 3: squeezed segments.
pub const FORMAT_VERSION: u32 = 3;

/// Where the two copies of redb's first page are.
pub const HEADER_COPY_AT: [u64; 2] = [8192, 16384];

/// Where the ring begins.
pub const RING_AT: u64 = 32768;

/// Smallest ring: a record, its reserve and a checkpoint must fit beside each other.
pub const RING_BYTES_MIN: u64 = 64 << 10;

/// Largest ring.
pub const RING_BYTES_MAX: u64 = 1 << 30;

/// Largest ballast.
pub const BALLAST_BYTES_MAX: u64 = 2 << 30;

const MAGIC: &[u8; 8] = b"tidegate";
const SUPERBLOCK_BYTES: usize = 64;

/// What must be known before anything else in the file can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Format of the file.
    pub version: u32,
    /// Counts the superblock's writes.
    pub sequence: u64,
    /// Part of every record's checksum: a client's bytes cannot pass for a record.
    pub salt: u64,
    /// Counts openings: tells records of this run from leftovers of an earlier one.
    pub epoch: u64,
    /// Size of the ring.
    pub ring_bytes: u64,
    /// Size of the ballast.
    pub ballast_bytes: u64,
}

impl Superblock {
    /// Where the ballast begins.
    #[must_use]
    pub fn ballast_at(&self) -> u64 {
        RING_AT + self.ring_bytes
    }

    /// Where redb begins.
    #[must_use]
    pub fn cold_at(&self) -> u64 {
        self.ballast_at() + self.ballast_bytes
    }

    /// Writes the superblock to its slot: the one that does not hold its predecessor. The caller syncs.
    ///
    /// # Errors
    /// As the medium says.
    pub fn write(&self, media: &dyn Media) -> std::io::Result<()> {
        let slot = self.sequence % 2;
        media.write_at(slot * BLOCK_BYTES, &self.encode())
    }

    /// Reads both slots and takes the newer valid one.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when neither slot is valid, [`StoreError::NewerFormat`] when a newer program wrote them.
    pub fn read(media: &dyn Media) -> Result<Self, StoreError> {
        let mut best: Option<Self> = None;
        let mut damage = String::from("it is too short");
        let size = media.size().map_err(StoreError::io("read its file's length"))?;
        for slot in 0..2u64 {
            let mut block = [0; BLOCK_BYTES as usize];
            if size < (slot + 1) * BLOCK_BYTES {
                continue;
            }
            media.read_at(slot * BLOCK_BYTES, &mut block).map_err(StoreError::io("read its superblock"))?;
            match Self::decode(&block) {
                Ok(found) if best.is_none_or(|b| b.sequence < found.sequence) => best = Some(found),
                Ok(_) => {}
                Err(StoreError::Damaged(text)) => damage = text,
                Err(other) => return Err(other),
            }
        }
        best.ok_or(StoreError::Damaged(damage))
    }

    fn encode(&self) -> [u8; BLOCK_BYTES as usize] {
        let mut block = [0; BLOCK_BYTES as usize];
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&self.version.to_le_bytes());
        block[12..16].copy_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
        let numbers = [self.sequence, self.salt, self.epoch, self.ring_bytes, self.ballast_bytes];
        for (place, number) in block[16..56].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c::crc32c(&block[..SUPERBLOCK_BYTES - 4]);
        block[SUPERBLOCK_BYTES - 4..SUPERBLOCK_BYTES].copy_from_slice(&crc.to_le_bytes());
        block
    }

    fn decode(block: &[u8]) -> Result<Self, StoreError> {
        let damaged = |text: &str| StoreError::Damaged(text.to_owned());
        if &block[..8] != MAGIC {
            return Err(damaged("it does not begin like a tidegate store"));
        }
        if le32(&block[SUPERBLOCK_BYTES - 4..]) != crc32c::crc32c(&block[..SUPERBLOCK_BYTES - 4]) {
            return Err(damaged("its superblock's checksum is wrong"));
        }
        let version = le32(&block[8..]);
        if version > FORMAT_VERSION {
            return Err(StoreError::NewerFormat { found: version, known: FORMAT_VERSION });
        }
        let found = Self {
            version,
            sequence: le64(&block[16..]),
            salt: le64(&block[24..]),
            epoch: le64(&block[32..]),
            ring_bytes: le64(&block[40..]),
            ballast_bytes: le64(&block[48..]),
        };
        let sane = version > 0
            && (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&found.ring_bytes)
            && found.ring_bytes.is_multiple_of(BLOCK_BYTES)
            && found.ballast_bytes <= BALLAST_BYTES_MAX
            && found.ballast_bytes.is_multiple_of(BLOCK_BYTES);
        if sane { Ok(found) } else { Err(damaged("its parts have impossible sizes")) }
    }
}

/// The little-endian number at the front of `bytes`, which must hold at least four.
pub(super) fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

/// The little-endian number at the front of `bytes`, which must hold at least eight.
pub(super) fn le64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Superblock = Superblock {
        version: FORMAT_VERSION,
        sequence: 3,
        salt: 4,
        epoch: 5,
        ring_bytes: 8 << 20,
        ballast_bytes: 1 << 20,
    };

    #[test]
    fn a_superblock_round_trips_and_one_flipped_bit_is_noticed() {
        let block = SAMPLE.encode();
        assert_eq!(Superblock::decode(&block).unwrap(), SAMPLE);
        for at in 0..SUPERBLOCK_BYTES {
            let mut bad = block;
            bad[at] ^= 1;
            assert!(Superblock::decode(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_newer_format_is_named_as_such() {
        let mut block = SAMPLE.encode();
        block[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
        let crc = crc32c::crc32c(&block[..SUPERBLOCK_BYTES - 4]);
        block[SUPERBLOCK_BYTES - 4..SUPERBLOCK_BYTES].copy_from_slice(&crc.to_le_bytes());
        let found = FORMAT_VERSION + 1;
        let result = Superblock::decode(&block);
        assert!(
            matches!(result, Err(StoreError::NewerFormat { found: f, known: FORMAT_VERSION }) if f == found)
        );
    }
}
