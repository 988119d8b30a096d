//! Answers page requests: cold messages first, then hot ones.
//!
//! The index is looked at *before* the database: what a checkpoint moves in between is then found in the database, and never
//! neither here nor there.

use super::cold_read::{ColdQuery, ColdReader};
use super::contract::{Page, PageEntry, PageRequest, Seq};
use super::counters::add;
use super::error::StoreError;
use super::hot_queue::HotQueue;
use super::shared::Shared;

/// Sparse runs that one page looks past; behind them the next page goes on.
const RUNS_PER_PAGE_MAX: usize = 1024;

/// Serves one request.
///
/// # Errors
/// When the database cannot be read.
pub fn serve(shared: &Shared, reader: &mut ColdReader, request: &PageRequest) -> Result<Page, StoreError> {
    let (entries, next) = load(shared, reader, request)?;
    add(&shared.counters.pages_loaded, 1);
    add(&shared.counters.page_messages, entries.len() as u64);
    Ok(Page { queue: request.queue, from: request.from, entries, next })
}

/// What the index says about the request.
enum Plan {
    Hot(Vec<PageEntry>, Seq),
    Cold(ColdQuery),
}

fn load(
    shared: &Shared,
    reader: &mut ColdReader,
    request: &PageRequest,
) -> Result<(Vec<PageEntry>, Seq), StoreError> {
    let mut request = *request;
    loop {
        let plan = {
            let hot = shared.hot();
            match hot.queues.get(&request.queue) {
                Some(queue) => plan(queue, &request),
                None => return Ok((Vec::new(), request.from)),
            }
        };
        match plan {
            Plan::Hot(entries, next) => return Ok((entries, next)),
            Plan::Cold(query) => {
                let (entries, next) = reader.read(&shared.cold, &query, &shared.counters)?;
                if !entries.is_empty() {
                    return Ok((entries, next));
                }
                // All of it was settled: go on behind.
                request.from = next;
            }
        }
    }
}

fn plan(queue: &HotQueue, request: &PageRequest) -> Plan {
    let mut from = request.from.max(queue.floor);
    if let Some((_, end)) = queue.runs.range(..=from).next_back().filter(|(_, end)| from < **end) {
        from = *end;
    }
    if from >= queue.hot_first {
        return hot_page(queue, from, request);
    }
    let mut until = queue.hot_first;
    let mut runs: Vec<_> =
        queue.runs.range(from..).take(RUNS_PER_PAGE_MAX + 1).map(|(s, e)| (*s, *e)).collect();
    if runs.len() > RUNS_PER_PAGE_MAX
        && let Some((start, _)) = runs.pop()
    {
        until = until.min(start);
    }
    Plan::Cold(ColdQuery {
        queue: request.queue,
        from,
        until,
        runs,
        bytes_max: u64::from(request.bytes_max),
        messages_max: request.messages_max as usize,
    })
}

fn hot_page(queue: &HotQueue, from: Seq, request: &PageRequest) -> Plan {
    let mut entries = Vec::new();
    let mut bytes = 0;
    let skip = usize::try_from(from - queue.hot_first).unwrap_or(usize::MAX).min(queue.entries.len());
    for (entry, seq) in queue.entries.range(skip..).zip(queue.hot_first + skip as u64..) {
        let Some(message) = &entry.message else { continue };
        let full = entries.len() >= request.messages_max as usize || bytes >= u64::from(request.bytes_max);
        if full && !entries.is_empty() {
            return Plan::Hot(entries, seq);
        }
        bytes += u64::from(message.size());
        entries.push(PageEntry { seq, options: entry.options.clone(), message: message.clone() });
    }
    Plan::Hot(entries, queue.tail.max(request.from))
}
