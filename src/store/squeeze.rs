//! LZ4 for the cold tier's segments: what a backlog of sensor readings takes of the disk, and wears of it, is mostly repetition.
//!
//! ```text
//! squeezed segment   1 u8 | plain length varint | LZ4 block
//! plain segment      begins with 0: no message is settled before the first one of a segment
//! ```
//! A segment is squeezed if that saves at least a sixteenth of it: what every message has beside its payload (time, topic) is worth
//! it even where payloads are noise. Its plain form is never longer than [`VALUE_BYTES_MAX`], so a
//! reader's memory is bounded as without. The ring is not squeezed: its records are written while a publisher waits.

use std::borrow::Cow;

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};

use super::segment::{FILL_BYTES, VALUE_BYTES_MAX};
use crate::message::BadRecord;
use crate::varint::{put_varint, take_varint};

/// Begins a squeezed segment.
const SQUEEZED: u8 = 1;
/// Shorter ones are not worth it.
const PLAIN_BYTES_MIN: usize = 256;
/// This part of a segment must be saved.
const SAVED_PART_MIN: usize = 16;
/// Attempts to fill a page of the disk.
const ATTEMPTS_MAX: usize = 3;

/// Working memory, kept between segments.
pub struct Squeezer {
    table: CompressTable,
    value: Vec<u8>,
}

impl Default for Squeezer {
    fn default() -> Self {
        Self { table: CompressTable::small(), value: Vec::new() }
    }
}

impl Squeezer {
    /// Squeezes as many of the entries in `plain`, which end at `ends`, as fill a page of the disk well; returns how many and the
    /// value. `None`: it does not save enough.
    pub fn fill(&mut self, plain: &[u8], ends: &[usize]) -> Option<(usize, &[u8])> {
        let whole = plain.len();
        if !(PLAIN_BYTES_MIN..=VALUE_BYTES_MAX).contains(&whole) {
            return None;
        }
        let mut size = self.squeeze(plain)?;
        if size > whole - whole / SAVED_PART_MIN {
            return None;
        }
        let mut count = ends.len();
        if let Some(target) = better_page(size) {
            let mut wanted = whole * target / size;
            for _ in 0..ATTEMPTS_MAX {
                count = ends.partition_point(|end| *end <= wanted).max(1);
                size = self.squeeze(&plain[..ends[count - 1]])?;
                if size <= target || count == 1 {
                    break;
                }
                wanted = wanted * target / size - wanted / 64;
            }
        }
        Some((count, &self.value))
    }

    fn squeeze(&mut self, plain: &[u8]) -> Option<usize> {
        self.value.clear();
        self.value.push(SQUEEZED);
        put_varint(&mut self.value, plain.len() as u64);
        let head = self.value.len();
        self.value.resize(head + get_maximum_output_size(plain.len()), 0);
        let size = compress_into_with_table(plain, &mut self.value[head..], &mut self.table).ok()?;
        self.value.truncate(head + size);
        Some(self.value.len())
    }
}

/// The page that a part of a value of `size` bytes would fill, if the page for all of it would be left empty by more than a twentieth.
fn better_page(size: usize) -> Option<usize> {
    let [.., smallest] = FILL_BYTES;
    let page = FILL_BYTES.into_iter().rev().find(|page| size <= *page)?;
    if page == smallest || size * 20 >= page * 19 {
        return None;
    }
    FILL_BYTES.into_iter().find(|fill| *fill < size)
}

/// The plain form of a segment.
///
/// # Errors
/// [`BadRecord`] when the value is damaged.
pub fn plain(value: &[u8]) -> Result<Cow<'_, [u8]>, BadRecord> {
    let Some((&SQUEEZED, mut input)) = value.split_first() else { return Ok(Cow::Borrowed(value)) };
    let bad = BadRecord("squeezed segment");
    let length = take_varint(&mut input).and_then(|length| usize::try_from(length).ok());
    let length = length.filter(|length| *length <= VALUE_BYTES_MAX).ok_or(bad)?;
    let mut plain = vec![0; length];
    match decompress_into(input, &mut plain) {
        Ok(found) if found == length => Ok(Cow::Owned(plain)),
        _ => Err(bad),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(count: usize) -> (Vec<u8>, Vec<usize>) {
        let mut plain = Vec::new();
        let ends = (0..count).map(|n| {
            let value = (n * 7919) % 1000;
            plain.extend_from_slice(
                format!("\0plant/7/line/3 {{\"temperature\":{value},\"n\":{n}}}").as_bytes(),
            );
            plain.len()
        });
        let ends = ends.collect();
        (plain, ends)
    }

    #[test]
    fn what_was_squeezed_comes_back_and_fills_its_page() {
        let mut squeezer = Squeezer::default();
        for count in [8, 20, 100, 300, 700, 1000, 1200] {
            let (text, ends) = readings(count);
            let (taken, value) = squeezer.fill(&text, &ends).unwrap();
            assert_eq!(*plain(value).unwrap(), text[..ends[taken - 1]]);
            assert!(value.len() < ends[taken - 1] / 2, "{count}: {} of {}", value.len(), text.len());
            let page = FILL_BYTES.into_iter().rev().find(|page| value.len() <= *page).unwrap();
            assert!(page == 4_050 || value.len() * 8 > page * 7, "{count}: {} of a page", value.len());
        }
    }

    #[test]
    fn noise_stays_as_it_is() {
        let mut random = crate::store::tests_support::Random(7);
        let noise: Vec<u8> = (0..8000).flat_map(|_| random.next().to_le_bytes()).collect();
        assert!(Squeezer::default().fill(&noise, &[noise.len()]).is_none());
    }

    #[test]
    fn a_damaged_value_is_an_error_and_takes_no_memory_for_a_length_that_it_claims() {
        let (text, ends) = readings(100);
        let mut squeezer = Squeezer::default();
        let value = squeezer.fill(&text, &ends).unwrap().1.to_vec();
        for cut in 1..value.len() {
            assert!(plain(&value[..cut]).is_err());
        }
        let mut claim = vec![SQUEEZED];
        put_varint(&mut claim, u64::MAX >> 1);
        claim.extend_from_slice(&value[3..]);
        assert!(plain(&claim).is_err());
    }
}
