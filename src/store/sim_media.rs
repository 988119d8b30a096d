//! A medium in memory that can lose power, run out of space, fail and lie.
//!
//! Writes and length changes since the last sync are kept apart. A power cut applies a random part of them, block by block,
//! and may turn a page that was being written into garbage. The power fails after a set number of operations: from then on
//! everything fails, and what would have reached the disk is in [`SimMedia::after_power_cut`].

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::media::Media;

const PAGE: u64 = 4096;

/// Called between two writes to the cold region, to let something else happen there.
pub type Interlude = Arc<dyn Fn() + Send + Sync>;

/// How a power cut treats what was not synced.
#[derive(Clone, Copy, Debug)]
pub struct CutStyle {
    /// Blocks of this many bytes are written whole or not at all.
    pub grain: u64,
    /// A page that was being written may hold anything.
    pub garbage: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, data: Vec<u8> },
    SetLen(u64),
}

#[derive(Clone, Default)]
struct State {
    /// As readers see it.
    now: Vec<u8>,
    /// As of the last sync.
    durable: Vec<u8>,
    unsynced: Vec<Change>,
    /// Operations until the power fails.
    fuel: Option<u64>,
    /// Syncs until one fails.
    sync_error_in: Option<u64>,
    /// Writes until one fails.
    write_error_in: Option<u64>,
    /// Syncs and writes that failed.
    failures: u64,
    /// Every so manieth sync does nothing.
    lie_every: Option<u64>,
    syncs: u64,
    /// Bytes the medium has; space is used in pages.
    capacity: Option<u64>,
    used: BTreeSet<u64>,
    /// Pages that were ever written.
    written: BTreeSet<u64>,
    interlude: Option<(u64, Interlude)>,
}

/// The medium.
#[derive(Default)]
pub struct SimMedia {
    state: Mutex<State>,
}

impl std::fmt::Debug for SimMedia {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimMedia")
    }
}

fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}

/// Counts down to an error; `true`: now.
fn comes_due(count: &mut Option<u64>) -> bool {
    let Some(left) = count else { return false };
    *left = left.saturating_sub(1);
    let due = *left == 0;
    if due {
        *count = None;
    }
    due
}

impl State {
    /// Takes one unit of fuel; the operation that finds none still counts as begun.
    fn burn(&mut self) -> io::Result<()> {
        match &mut self.fuel {
            Some(0) => Err(power_is_off()),
            Some(left) => {
                *left -= 1;
                if *left == 0 { Err(power_is_off()) } else { Ok(()) }
            }
            None => Ok(()),
        }
    }

    fn is_off(&self) -> bool {
        self.fuel == Some(0)
    }

    fn use_pages(&mut self, offset: u64, len: u64) -> io::Result<()> {
        let capacity = self.capacity.unwrap_or(u64::MAX);
        let pages = offset / PAGE..(offset + len).div_ceil(PAGE);
        let new = pages.clone().filter(|page| !self.used.contains(page)).count() as u64;
        if (self.used.len() as u64 + new) * PAGE > capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.used.extend(pages);
        Ok(())
    }
}

fn apply(image: &mut Vec<u8>, change: &Change) {
    match change {
        Change::SetLen(len) => image.resize(*len as usize, 0),
        Change::Write { offset, data } => {
            let at = *offset as usize;
            if image.len() < at + data.len() {
                image.resize(at + data.len(), 0);
            }
            image[at..at + data.len()].copy_from_slice(data);
        }
    }
}

impl SimMedia {
    /// A medium that holds `image`, all of it durable.
    #[must_use]
    pub fn holding(image: Vec<u8>) -> Self {
        let used: BTreeSet<u64> = (0..(image.len() as u64).div_ceil(PAGE)).collect();
        let written = used.clone();
        let state = State { now: image.clone(), durable: image, used, written, ..State::default() };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power fails at the `operations`th write, sync or length change from now on.
    pub fn cut_power_after(&self, operations: u64) {
        self.state().fuel = Some(operations.max(1));
    }

    /// As readers see it now.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        self.state().now.clone()
    }

    /// The power has failed.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.state().is_off()
    }

    /// The `n`th sync from now on fails.
    pub fn fail_sync(&self, n: u64) {
        self.state().sync_error_in = Some(n);
    }

    /// Every `n`th sync does nothing and says otherwise.
    pub fn lie_every(&self, n: u64) {
        self.state().lie_every = Some(n);
    }

    /// Bounds the medium; what is written already counts.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Nothing is left, and what was reserved is gone as well: only pages up to the file's end that were written stay.
    pub fn fill_up(&self) {
        let mut state = self.state();
        let written = state.written.clone();
        state.used = written;
        state.capacity = Some(state.used.len() as u64 * PAGE);
    }

    /// Calls `interlude` after each write at or behind `from`, but not from inside itself.
    pub fn set_interlude(&self, from: u64, interlude: Option<Interlude>) {
        self.state().interlude = interlude.map(|call| (from, call));
    }

    /// What the disk holds after the power failed: `random` decides.
    pub fn after_power_cut(&self, style: CutStyle, random: &mut dyn FnMut() -> u64) -> Self {
        let state = self.state();
        let mut image = state.durable.clone();
        for change in &state.unsynced {
            match change {
                Change::SetLen(_) if random().is_multiple_of(2) => {}
                Change::SetLen(_) => apply(&mut image, change),
                Change::Write { offset, data } => apply_part(&mut image, *offset, data, style, random),
            }
        }
        Self::holding(image)
    }
}

/// For whole processes on the medium.
#[cfg(feature = "simulation")]
impl SimMedia {
    /// The power fails now.
    pub fn cut_power(&self) {
        self.state().fuel = Some(0);
    }

    /// The power will not fail.
    pub fn keep_power(&self) {
        self.state().fuel = None;
    }

    /// The `n`th write from now on fails half done.
    pub fn fail_write(&self, n: u64) {
        self.state().write_error_in = Some(n);
    }

    /// A sync or a write is still to fail, or one has failed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        let state = self.state();
        state.sync_error_in.is_some() || state.write_error_in.is_some() || state.failures > 0
    }

    /// A sync or a write has failed.
    #[must_use]
    pub fn has_failed_once(&self) -> bool {
        self.state().failures > 0
    }

    /// Space in use.
    #[must_use]
    pub fn occupied_bytes(&self) -> u64 {
        self.state().used.len() as u64 * PAGE
    }

    /// No sync and no write fails any more.
    pub fn stop_failing(&self) {
        let mut state = self.state();
        (state.sync_error_in, state.write_error_in) = (None, None);
    }

    /// What the next process finds after this one was killed: everything written, synced or not.
    #[must_use]
    pub fn after_kill(&self) -> Self {
        let state = self.state();
        let kept = State {
            now: state.now.clone(),
            durable: state.durable.clone(),
            unsynced: state.unsynced.clone(),
            lie_every: state.lie_every,
            syncs: state.syncs,
            capacity: state.capacity,
            used: state.used.clone(),
            written: state.written.clone(),
            ..State::default()
        };
        Self { state: Mutex::new(kept) }
    }
}

fn apply_part(
    image: &mut Vec<u8>,
    offset: u64,
    data: &[u8],
    style: CutStyle,
    random: &mut dyn FnMut() -> u64,
) {
    let end = offset + data.len() as u64;
    let mut at = offset;
    while at < end {
        let next = ((at / style.grain + 1) * style.grain).min(end);
        if random().is_multiple_of(2) {
            let part = &data[(at - offset) as usize..(next - offset) as usize];
            apply(image, &Change::Write { offset: at, data: part.to_vec() });
        } else if style.garbage && random().is_multiple_of(8) {
            let page = (at / PAGE * PAGE) as usize;
            let page_end = (page + PAGE as usize).min(image.len());
            for byte in image.get_mut(page..page_end).into_iter().flatten() {
                *byte = random() as u8;
            }
        }
        at = next;
    }
}

impl Media for SimMedia {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        if state.is_off() {
            return Err(power_is_off());
        }
        let at = offset as usize;
        let bytes = state.now.get(at..at + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let interlude = {
            let mut state = self.state();
            if state.is_off() {
                return Err(power_is_off());
            }
            state.use_pages(offset, data.len() as u64)?;
            if comes_due(&mut state.write_error_in) {
                state.failures += 1;
                let change = Change::Write { offset, data: data[..data.len() / 2].to_vec() };
                apply(&mut state.now, &change);
                state.unsynced.push(change);
                return Err(io::Error::other("the medium failed"));
            }
            state.written.extend(offset / PAGE..(offset + data.len() as u64).div_ceil(PAGE));
            let change = Change::Write { offset, data: data.to_vec() };
            apply(&mut state.now, &change);
            state.unsynced.push(change);
            state.burn()?;
            // Taken out while it runs: it writes itself.
            match &state.interlude {
                Some((from, _)) if offset >= *from => state.interlude.take(),
                _ => None,
            }
        };
        if let Some((from, call)) = interlude {
            call();
            self.set_interlude(from, Some(call));
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.is_off() {
            return Err(power_is_off());
        }
        state.burn()?;
        if comes_due(&mut state.sync_error_in) {
            state.failures += 1;
            return Err(io::Error::other("the medium failed"));
        }
        state.syncs += 1;
        if state.lie_every.is_some_and(|n| state.syncs.is_multiple_of(n)) {
            return Ok(());
        }
        for change in state.unsynced.drain(..) {
            apply(&mut state.durable, &change);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        if state.is_off() {
            return Err(power_is_off());
        }
        apply(&mut state.now, &Change::SetLen(len));
        state.unsynced.push(Change::SetLen(len));
        state.used.retain(|page| page * PAGE < len);
        state.burn()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.state().now.len() as u64)
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut state = self.state();
        if state.is_off() { Err(power_is_off()) } else { state.use_pages(offset, len) }
    }

    fn release(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut state = self.state();
        if state.is_off() {
            return Err(power_is_off());
        }
        for page in offset / PAGE..(offset + len) / PAGE {
            state.used.remove(&page);
        }
        Ok(())
    }

    fn occupied(&self) -> io::Result<u64> {
        Ok(self.state().used.len() as u64 * PAGE)
    }

    fn free_space(&self) -> io::Result<u64> {
        let state = self.state();
        Ok(state.capacity.map_or(u64::MAX, |c| c.saturating_sub(state.used.len() as u64 * PAGE)))
    }
}
