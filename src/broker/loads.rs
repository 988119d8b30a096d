//! Reading back what lives in the store alone, within the memory budget.
//!
//! One page is under way per queue, and [`LOADS_MAX`] altogether. Its memory is reserved when it is asked for. When memory is
//! short, windows that can be loaded again are cut down and pages are small; if that is not enough, the request waits, but when
//! no page is under way at all, a single message is asked for: so every queue moves on.

use crate::broker::Broker;
use crate::broker::effects::Effect;
use crate::queue::window::ENTRY_OVERHEAD_BYTES;
use crate::queue::{Load, Owner, QueueKey};
use crate::session::SessionKey;
use crate::store::contract::{Page, PageRequest, Seq};
use crate::time::Now;

/// Pages under way at a time.
const LOADS_MAX: u32 = 64;
/// Messages of one page.
const PAGE_MESSAGES_MAX: u32 = 512;
/// Bytes of one page, whatever the configured window.
const PAGE_BYTES_MIN: u32 = 4 << 10;

/// Bounds of one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageSize {
    bytes_max: u32,
    messages_max: u32,
}

impl PageSize {
    /// What it may take in memory, but for the last message, which may be larger.
    pub(super) fn memory(self) -> usize {
        self.bytes_max as usize + self.messages_max as usize * ENTRY_OVERHEAD_BYTES
    }
}

impl Broker {
    /// Asks for more of a spilled queue: because its consumer could take a message and none is in memory, or ahead of need
    /// while memory is plentiful. Other windows are cut down for the former alone: a page that nobody can take yet must not
    /// push out another that nobody can take yet, without end.
    pub(super) fn refill(&mut self, key: QueueKey) {
        let queue = &self.queues[key as usize];
        if !queue.is_spilled() || queue.load() != Load::Idle {
            return;
        }
        let (ready, takes) = self.consumer(queue.owner());
        if queue.window_len() == 0 && takes {
            return self.request_load(key);
        }
        let low = self.limits.queue_window_bytes_max as usize / 2;
        let page = self.full_page();
        if ready
            && queue.window_memory() <= low
            && self.loads < LOADS_MAX
            && self.budget.has_room(page.memory())
        {
            self.ask(key, page);
        }
    }

    /// Somebody consumes the queue; somebody has room in a window.
    fn consumer(&self, owner: Owner) -> (bool, bool) {
        let one = |session: SessionKey| {
            let session = &self.sessions[session as usize];
            (session.ready().is_some(), session.takes(0, self.limits.inflight_bytes_max))
        };
        match owner {
            Owner::Session(session) => one(session),
            Owner::Group(group) => {
                let members = self.groups[group as usize].members().iter();
                members.fold((false, false), |(ready, takes), member| {
                    let (is_ready, has_room) = one(member.session);
                    (ready || is_ready, takes || has_room)
                })
            }
        }
    }

    /// Asks for the next page of a spilled queue, now or when there is memory for it.
    pub(super) fn request_load(&mut self, key: QueueKey) {
        let queue = &self.queues[key as usize];
        if queue.load() != Load::Idle || !queue.is_spilled() {
            return;
        }
        let Some(page) = self.page_size() else {
            let wanted = self.queue_ref(key);
            self.queues[key as usize].set_wanted(true);
            self.loads_wanted.push_back(wanted);
            return;
        };
        self.ask(key, page);
    }

    pub(super) fn ask(&mut self, key: QueueKey, page: PageSize) {
        self.budget.reserve(page.memory());
        self.loads += 1;
        self.stats.loads += 1;
        let queue = &mut self.queues[key as usize];
        let from = queue.asked(page.memory());
        let id = queue.id().expect("only durable queues are spilled");
        let PageSize { bytes_max, messages_max } = page;
        // The page is to hold what the batch holds.
        self.batch.end_hold();
        self.effects.push(Effect::Load(PageRequest { queue: id, from, bytes_max, messages_max }));
    }

    /// Asks for a page that is looked at and thrown away, now or when there is memory for it.
    pub(super) fn ask_probe(&mut self, key: QueueKey, from: Seq) {
        let Some(page) = self.page_size() else {
            let wanted = self.queue_ref(key);
            self.queues[key as usize].set_wanted(true);
            self.loads_wanted.push_back(wanted);
            return;
        };
        self.budget.reserve(page.memory());
        self.loads += 1;
        self.stats.loads += 1;
        let queue = &mut self.queues[key as usize];
        queue.probed_from(from, page.memory());
        let id = queue.id().expect("only durable queues are spilled");
        self.batch.end_hold();
        let PageSize { bytes_max, messages_max } = page;
        self.effects.push(Effect::Load(PageRequest { queue: id, from, bytes_max, messages_max }));
    }

    /// The page that memory allows: a full one, a small one, and a single message when nothing else is under way.
    fn page_size(&mut self) -> Option<PageSize> {
        if self.loads >= LOADS_MAX {
            return None;
        }
        let full = self.full_page();
        if !self.budget.has_room(full.memory()) {
            self.reclaim(full.memory());
        }
        let small = PageSize { bytes_max: full.bytes_max / 8, messages_max: (full.messages_max / 8).max(1) };
        let fitting = [full, small].into_iter().find(|page| self.budget.has_room(page.memory()));
        let single = (self.loads == 0).then_some(PageSize { bytes_max: 1, messages_max: 1 });
        fitting.or(single)
    }

    pub(super) fn full_page(&self) -> PageSize {
        let bytes_max = (self.limits.queue_window_bytes_max / 4).max(PAGE_BYTES_MIN);
        let messages_max = PAGE_MESSAGES_MAX.min(bytes_max / ENTRY_OVERHEAD_BYTES as u32);
        PageSize { bytes_max, messages_max }
    }

    /// A page is there. It may belong to a queue that is gone or whose cursor has moved meanwhile.
    pub(super) fn page(&mut self, page: Page, now: Now) {
        let page = if self.spills.is_idle() { Some(page) } else { self.move_page(page, now) };
        let Some(page) = page else { return };
        if let Some(&key) = self.queue_keys.get(&page.queue) {
            let queue = &mut self.queues[key as usize];
            let page = queue.completed(page);
            if let Owner::Group(group) = queue.owner()
                && queue.is_probing()
            {
                self.look_at_page(group, page, now);
                self.pump_queue(key, now);
                return self.serve_wanted();
            }
            if !queue.ingest(page, &mut self.budget) {
                return;
            }
            self.loads -= 1;
            while self.queues[key as usize].is_over_bound() && self.drop_oldest(key) {}
            self.go_on_with_pass(key, now);
            self.pump_queue(key, now);
        }
        self.serve_wanted();
    }

    fn pump_queue(&mut self, key: QueueKey, now: Now) {
        match self.queues[key as usize].owner() {
            Owner::Session(session) => self.pump_session(session, now),
            Owner::Group(group) => {
                self.pump_group(group, now);
                self.refill(key);
            }
        }
    }

    /// Page requests that had to wait: as many as there is room for.
    pub(super) fn serve_wanted(&mut self) {
        for _ in 0..self.loads_wanted.len() {
            if self.loads >= LOADS_MAX {
                return;
            }
            let Some(wanted) = self.loads_wanted.pop_front() else { return };
            let Some(queue) = self.queues.get_mut(wanted.key as usize) else { continue };
            if queue.serial() != wanted.serial || queue.load() != Load::Wanted {
                continue;
            }
            queue.set_wanted(false);
            if queue.is_over_bound() {
                self.request_load(wanted.key);
            } else {
                self.refill(wanted.key);
                self.probe_again(wanted.key);
            }
            if self.queues[wanted.key as usize].load() == Load::Wanted {
                return;
            }
        }
    }

    /// Cuts windows that can be loaded again, the largest first, until `memory` bytes more fit and a part of the budget is
    /// free again, so that this is rarely done.
    pub(super) fn reclaim(&mut self, memory: usize) {
        let spare = self.budget.bytes_max() / 4;
        if self.budget.reclaimable() <= spare {
            return;
        }
        let mut windows: Vec<(usize, QueueKey)> = self
            .queues
            .iter()
            .filter(|(_, queue)| !queue.is_volatile() && queue.window_len() > 0)
            .map(|(key, queue)| (queue.window_memory(), key as QueueKey))
            .collect();
        windows.sort_unstable_by(|a, b| b.cmp(a));
        for part in [2, usize::MAX] {
            for &(held, key) in &windows {
                if self.budget.has_room(memory + spare) {
                    return;
                }
                self.stats.windows_trimmed += 1;
                self.queues[key as usize].trim(held / part, &mut self.budget);
            }
        }
    }

    /// Takes a quarter of the largest queue that has no copy in the store, unless `but` is large itself.
    pub(super) fn reclaim_volatile(&mut self, but: QueueKey) -> bool {
        let large = self.budget.bytes_max() / 16;
        if self.queues[but as usize].window_memory() >= large {
            return false;
        }
        let largest = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.is_volatile())
            .map(|(key, queue)| (queue.window_memory(), key))
            .max();
        let Some((held, key)) = largest.filter(|(held, key)| *held >= large || *key != but as usize) else {
            return false;
        };
        let queue = &mut self.queues[key];
        while queue.window_memory() > held / 4 * 3 && queue.discard_newest(&mut self.budget) {
            self.stats.dropped_oldest += 1;
        }
        true
    }
}
