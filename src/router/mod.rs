//! Routing: which sinks want a message on a topic, and the retained messages.
//!
//! A *sink* is what a matching message is put into: a session, or the group of a shared subscription. The [`Router`] holds
//! every subscription in a trie and the routes of the topics published lately in a cache, so that a publish to a known topic
//! costs one look-up however many subscriptions there are.
//!
//! Invariants: a route holds each sink once, in ascending order; the cache holds no route that a change since has made wrong
//! and stays within both of its limits; nothing of a removed subscription stays in the trie.
//! Bounds: the number of subscriptions is the broker's to bound ([`Router::subscriptions`], [`Router::memory`]);
//! [`ROUTE_CACHE_TOPICS_MAX`] and [`ROUTE_CACHE_BYTES_MAX`] bound the cache.

mod cache;
mod node;
mod nodes;
pub mod retained;
#[cfg(test)]
mod tests;
mod trie;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::broker::api::SubscribeOptions;
use crate::message::Qos;
use crate::topic;

use cache::Cache;
use trie::{Inserted, Trie};

pub use retained::{Retained, RetainedLimit, RetainedSlice, SetOutcome};

/// Topics whose routes are remembered.
pub const ROUTE_CACHE_TOPICS_MAX: usize = 16_384;
/// Memory for remembered routes, in bytes.
pub const ROUTE_CACHE_BYTES_MAX: usize = 4 << 20;
/// Subscriptions of one route for which working memory is kept between calls.
const SCRATCH_SUBSCRIPTIONS_MAX: usize = 1024;

/// What a matching message is put into. The broker gives the numbers.
#[derive(Clone, Copy, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Sink {
    /// A session.
    Session(u32),
    /// The group of a shared subscription.
    Group(u32),
}

/// How a sink wants a message: the sum of its subscriptions that match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The highest of the subscriptions' [MQTT-3.3.4-2].
    pub qos: Qos,
    /// One of the subscriptions asks for it.
    pub retain_as_published: bool,
    /// The identifiers of all of them, ascending; an identifier that several of them carry comes several times (MQTT 5.0,
    /// 3.3.4). `None` when there are none.
    pub subscription_ids: Option<Arc<[u32]>>,
}

/// One sink that wants the messages of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The sink.
    pub sink: Sink,
    /// How it wants a message from anybody else.
    pub grant: Grant,
    /// How it wants a message that it published itself: from the subscriptions without No Local alone; `None` when it does
    /// not want it [MQTT-3.8.3-3]. For a group, which publishes nothing, this has no meaning.
    pub own: Option<Grant>,
}

/// What a subscription asks of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Terms {
    /// 0: none.
    subscription_id: u32,
    qos: Qos,
    no_local: bool,
    retain_as_published: bool,
}

/// All subscriptions.
#[derive(Debug)]
pub struct Router {
    trie: Trie,
    cache: Cache,
    nowhere: Arc<[Route]>,
    scratch: Vec<(Sink, Terms)>,
}

impl Default for Router {
    fn default() -> Self {
        Self::new()
    }
}

impl Router {
    /// No subscriptions.
    #[must_use]
    pub fn new() -> Self {
        Self::with_cache(ROUTE_CACHE_TOPICS_MAX, ROUTE_CACHE_BYTES_MAX)
    }

    /// No subscriptions, and other bounds of the cache; 0 switches it off.
    #[must_use]
    pub fn with_cache(topics_max: usize, bytes_max: usize) -> Self {
        Self {
            trie: Trie::new(),
            cache: Cache::new(topics_max, bytes_max),
            nowhere: Arc::from([]),
            scratch: Vec::new(),
        }
    }

    /// Adds a subscription, or replaces the terms of the one that `sink` has with the same filter. `filter` was checked by
    /// [`topic::Filter::parse`] and comes without `$share/<group>/`. True: it is new; false: replaced.
    pub fn subscribe(
        &mut self,
        filter: &str,
        sink: Sink,
        options: SubscribeOptions,
        subscription_id: Option<u32>,
    ) -> bool {
        let terms = Terms {
            subscription_id: subscription_id.unwrap_or(0),
            qos: options.qos,
            no_local: options.no_local,
            retain_as_published: options.retain_as_published,
        };
        let inserted = self.trie.insert(filter, sink, terms);
        if inserted != Inserted::Same {
            self.changed(filter);
        }
        inserted == Inserted::New
    }

    /// Removes the subscription that `sink` has with exactly this filter. True: there was one.
    pub fn unsubscribe(&mut self, filter: &str, sink: Sink) -> bool {
        let existed = self.trie.remove(filter, sink);
        if existed {
            self.changed(filter);
        }
        existed
    }

    /// The sinks that want messages on `topic`, in ascending order, each once.
    pub fn route(&mut self, topic: &str) -> Arc<[Route]> {
        if !self.cache.is_of_use() {
            return self.walk(topic);
        }
        let hash = self.cache.hash(topic);
        match self.cache.find(hash, topic) {
            Ok(routes) => routes,
            Err(miss) => {
                let routes = self.walk(topic);
                self.cache.put(hash, topic, miss, &routes);
                routes
            }
        }
    }

    fn walk(&mut self, topic: &str) -> Arc<[Route]> {
        let mut found = std::mem::take(&mut self.scratch);
        self.trie.collect(topic, &mut found);
        found.sort_unstable_by_key(|(sink, _)| *sink);
        let routes = if found.is_empty() { self.nowhere.clone() } else { merge(&found) };
        found.clear();
        found.shrink_to(SCRATCH_SUBSCRIPTIONS_MAX);
        self.scratch = found;
        routes
    }

    /// Subscriptions: pairs of a sink and a filter.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.trie.subscriptions()
    }

    /// Estimated memory in bytes, the cache included.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.trie.memory() + self.cache.memory() + self.scratch.capacity() * size_of::<(Sink, Terms)>()
    }

    /// Topics and bytes in the cache, for gauges.
    #[must_use]
    pub fn cached(&self) -> (usize, usize) {
        (self.cache.len(), self.cache.memory())
    }

    fn changed(&mut self, filter: &str) {
        if topic::has_wildcard(filter) {
            self.cache.forget_all();
        } else {
            self.cache.forget(filter);
        }
    }
}

impl Route {
    /// Heap memory of the identifiers.
    fn ids_bytes(&self) -> usize {
        let one = |ids: &Arc<[u32]>| heap_bytes(size_of_val(&**ids) + 16);
        let grant = self.grant.subscription_ids.as_ref();
        let own = self.own.as_ref().and_then(|own| own.subscription_ids.as_ref());
        let shared = grant.zip(own).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        grant.map_or(0, one) + if shared { 0 } else { own.map_or(0, one) }
    }
}

/// One route for each sink of `found`, which is ordered by sink.
fn merge(found: &[(Sink, Terms)]) -> Arc<[Route]> {
    if let [(sink, terms)] = found {
        return Arc::from([route_of(*sink, std::slice::from_ref(terms))]);
    }
    let of_one_sink = |subscriptions: &[(Sink, Terms)]| {
        let terms: SmallVec<[Terms; 4]> = subscriptions.iter().map(|(_, terms)| *terms).collect();
        route_of(subscriptions[0].0, &terms)
    };
    let routes: SmallVec<[Route; 2]> = found.chunk_by(|(a, _), (b, _)| a == b).map(of_one_sink).collect();
    Arc::from_iter(routes)
}

/// What all `terms` of a sink's subscriptions come to.
fn route_of(sink: Sink, terms: &[Terms]) -> Route {
    let grant = grant_of(terms.iter());
    let local = terms.iter().filter(|terms| !terms.no_local);
    let own = match local.clone().count() {
        0 => None,
        n if n == terms.len() => Some(grant.clone()),
        _ => Some(grant_of(local)),
    };
    Route { sink, grant, own }
}

fn grant_of<'a>(subscriptions: impl Iterator<Item = &'a Terms>) -> Grant {
    let mut grant = Grant { qos: Qos::AtMostOnce, retain_as_published: false, subscription_ids: None };
    let mut ids: SmallVec<[u32; 8]> = SmallVec::new();
    for terms in subscriptions {
        grant.qos = grant.qos.max(terms.qos);
        grant.retain_as_published |= terms.retain_as_published;
        if terms.subscription_id != 0 {
            ids.push(terms.subscription_id);
        }
    }
    ids.sort_unstable();
    if !ids.is_empty() {
        grant.subscription_ids = Some(Arc::from(&ids[..]));
    }
    grant
}

/// What an allocation of `bytes` takes from the system: allocators round up and keep a header.
fn heap_bytes(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) }
}

/// Makes room for one more entry and grows by a quarter, where `Vec` would double: the large tables of the router are most
/// of its memory.
fn reserve_one<T>(entries: &mut Vec<T>) {
    if entries.len() == entries.capacity() {
        entries.reserve_exact(entries.len() / 4 + 8);
    }
}
