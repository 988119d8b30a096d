//! The router against a list of subscriptions and [`topic::matches`].

use proptest::prelude::*;

use super::*;

const LEVELS: [&str; 4] = ["a", "b", "", "$s"];
const CACHE_TOPICS: usize = 8;
const CACHE_BYTES: usize = 4096;

/// Every text of one to `depth` levels out of `levels`.
fn texts(levels: &[&str], depth: usize) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    let mut longest: Vec<String> = levels.iter().map(ToString::to_string).collect();
    for _ in 0..depth {
        all.extend(longest.iter().filter(|text| !text.is_empty()).cloned());
        let longer =
            longest.iter().flat_map(|text| levels.iter().map(move |level| format!("{text}/{level}")));
        longest = longer.collect();
    }
    all
}

fn filters(depth: usize) -> Vec<String> {
    let levels: Vec<&str> = LEVELS.into_iter().chain(["+", "#"]).collect();
    let limits = crate::limits::Limits::default();
    texts(&levels, depth).into_iter().filter(|text| topic::Filter::parse(text, &limits).is_ok()).collect()
}

fn options(qos: Qos, no_local: bool, retain_as_published: bool) -> SubscribeOptions {
    SubscribeOptions { qos, no_local, retain_as_published, ..SubscribeOptions::default() }
}

/// Subscriptions as a list: (filter, sink, options, identifier).
#[derive(Default)]
struct Model(Vec<(String, Sink, SubscribeOptions, Option<u32>)>);

impl Model {
    fn subscribe(&mut self, filter: &str, sink: Sink, options: SubscribeOptions, id: Option<u32>) -> bool {
        let existed = self.unsubscribe(filter, sink);
        self.0.push((filter.into(), sink, options, id));
        !existed
    }

    fn unsubscribe(&mut self, filter: &str, sink: Sink) -> bool {
        let before = self.0.len();
        self.0.retain(|(f, s, ..)| !(f == filter && *s == sink));
        self.0.len() < before
    }

    fn route(&self, topic: &str) -> Vec<Route> {
        let mut sinks: Vec<Sink> = self.0.iter().map(|subscription| subscription.1).collect();
        sinks.sort();
        sinks.dedup();
        let route = |sink| {
            let grant = self.grant(topic, sink, true)?;
            Some(Route { sink, grant, own: self.grant(topic, sink, false) })
        };
        sinks.into_iter().filter_map(route).collect()
    }

    fn grant(&self, topic: &str, sink: Sink, with_no_local: bool) -> Option<Grant> {
        let hits: Vec<_> = self
            .0
            .iter()
            .filter(|(filter, s, options, _)| {
                *s == sink && (with_no_local || !options.no_local) && topic::matches(filter, topic)
            })
            .collect();
        let mut ids: Vec<u32> = hits.iter().filter_map(|hit| hit.3).collect();
        ids.sort();
        Some(Grant {
            qos: hits.iter().map(|hit| hit.2.qos).max()?,
            retain_as_published: hits.iter().any(|hit| hit.2.retain_as_published),
            subscription_ids: (!ids.is_empty()).then(|| ids.into()),
        })
    }
}

fn assert_bounded(router: &Router) {
    let (topics, bytes) = router.cached();
    assert!(topics <= CACHE_TOPICS, "{topics} topics");
    assert!(bytes <= CACHE_BYTES, "{bytes} bytes");
}

#[derive(Clone, Debug)]
enum Step {
    Subscribe { filter: String, sink: Sink, options: SubscribeOptions, id: Option<u32> },
    Unsubscribe { filter: String, sink: Sink },
    Route { topic: String },
}

fn sink() -> impl Strategy<Value = Sink> {
    prop_oneof![(0..4_u32).prop_map(Sink::Session), (0..2_u32).prop_map(Sink::Group)]
}

fn step() -> impl Strategy<Value = Step> {
    let filter = || prop::sample::select(filters(3));
    let qos = prop::sample::select(vec![Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce]);
    let terms = (qos, any::<bool>(), any::<bool>()).prop_map(|(qos, nl, rap)| options(qos, nl, rap));
    prop_oneof![
        3 => (filter(), sink(), terms, prop::option::of(1..4_u32))
            .prop_map(|(filter, sink, options, id)| Step::Subscribe { filter, sink, options, id }),
        2 => (filter(), sink()).prop_map(|(filter, sink)| Step::Unsubscribe { filter, sink }),
        3 => prop::sample::select(texts(&LEVELS, 3)).prop_map(|topic| Step::Route { topic }),
    ]
}

proptest! {
    #[test]
    fn routes_equal_those_of_a_plain_list_whatever_was_cached_before(
        steps in prop::collection::vec(step(), 1..120),
        removals in any::<u64>(),
    ) {
        let mut router = Router::with_cache(CACHE_TOPICS, CACHE_BYTES);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Subscribe { filter, sink, options, id } => {
                    let new = router.subscribe(&filter, sink, options, id);
                    prop_assert_eq!(new, model.subscribe(&filter, sink, options, id));
                }
                Step::Unsubscribe { filter, sink } => {
                    prop_assert_eq!(router.unsubscribe(&filter, sink), model.unsubscribe(&filter, sink));
                }
                Step::Route { topic } => {
                    prop_assert_eq!(&router.route(&topic)[..], &model.route(&topic)[..]);
                }
            }
            prop_assert_eq!(router.subscriptions(), model.0.len());
            assert_bounded(&router);
        }
        for topic in texts(&LEVELS, 3) {
            prop_assert_eq!(&router.route(&topic)[..], &model.route(&topic)[..], "{}", topic);
        }
        router.trie.assert_sound();
        while !model.0.is_empty() {
            let (filter, sink, ..) = model.0[removals as usize % model.0.len()].clone();
            prop_assert!(router.unsubscribe(&filter, sink) && model.unsubscribe(&filter, sink));
            router.trie.assert_sound();
        }
        prop_assert!(texts(&LEVELS, 3).iter().all(|topic| router.route(topic).is_empty()));
    }
}

/// The specification's words as a recursion over levels.
fn matches_by_recursion(filter: &[&str], topic: &[&str]) -> bool {
    match (filter, topic) {
        (["#"], _) => true,
        ([], []) => true,
        (["+", filter @ ..], [_, topic @ ..]) => matches_by_recursion(filter, topic),
        ([level, filter @ ..], [name, topic @ ..]) => level == name && matches_by_recursion(filter, topic),
        _ => false,
    }
}

#[test]
fn every_short_filter_matches_every_short_topic_as_the_specification_says() {
    let mut router = Router::new();
    let filters = filters(3);
    for (n, filter) in (0..).zip(&filters) {
        assert!(router.subscribe(filter, Sink::Session(n), SubscribeOptions::default(), None));
    }
    for topic in texts(&LEVELS, 4) {
        let levels: Vec<&str> = topic.split('/').collect();
        let expected: Vec<Sink> = (0..)
            .zip(&filters)
            .filter(|(_, filter)| {
                let reserved = topic.starts_with('$') && filter.starts_with(['+', '#']);
                let hit = !reserved && matches_by_recursion(&filter.split('/').collect::<Vec<_>>(), &levels);
                assert_eq!(topic::matches(filter, &topic), hit, "{filter} {topic}");
                hit
            })
            .map(|(n, _)| Sink::Session(n))
            .collect();
        let routed: Vec<Sink> = router.route(&topic).iter().map(|route| route.sink).collect();
        assert_eq!(routed, expected, "{topic}");
    }
}

#[test]
fn overlapping_subscriptions_of_one_sink_are_merged() {
    let mut router = Router::new();
    let me = Sink::Session(7);
    router.subscribe("a/#", me, options(Qos::AtLeastOnce, false, false), Some(9));
    router.subscribe("a/+", me, options(Qos::ExactlyOnce, true, true), Some(3));
    router.subscribe("a/b", me, options(Qos::AtMostOnce, false, false), Some(9));
    router.subscribe("+/b", me, options(Qos::AtMostOnce, false, false), None);
    let routes = router.route("a/b");
    assert_eq!(routes.len(), 1);
    assert_eq!(routes[0].sink, me);
    let grant = &routes[0].grant;
    assert_eq!((grant.qos, grant.retain_as_published), (Qos::ExactlyOnce, true));
    assert_eq!(grant.subscription_ids.as_deref(), Some(&[3, 9, 9][..]));
    let own = routes[0].own.as_ref().unwrap();
    assert_eq!((own.qos, own.retain_as_published), (Qos::AtLeastOnce, false));
    assert_eq!(own.subscription_ids.as_deref(), Some(&[9, 9][..]));
}

#[test]
fn a_message_does_not_come_back_over_no_local_subscriptions_alone() {
    let mut router = Router::new();
    router.subscribe("a", Sink::Session(1), options(Qos::AtLeastOnce, true, false), None);
    router.subscribe("#", Sink::Session(1), options(Qos::AtLeastOnce, true, false), None);
    assert_eq!(router.route("a")[0].own, None);
    assert_eq!(router.route("a")[0].grant.qos, Qos::AtLeastOnce);
}

#[test]
fn a_replaced_subscription_has_the_new_terms_and_sinks_come_in_order() {
    let mut router = Router::new();
    for sink in [Sink::Group(0), Sink::Session(2), Sink::Session(1)] {
        assert!(router.subscribe("a/+", sink, options(Qos::AtMostOnce, false, false), Some(1)));
    }
    let sinks: Vec<Sink> = router.route("a/x").iter().map(|route| route.sink).collect();
    assert_eq!(sinks, [Sink::Session(1), Sink::Session(2), Sink::Group(0)]);
    assert!(!router.subscribe("a/+", Sink::Session(2), options(Qos::ExactlyOnce, false, false), None));
    let route = &router.route("a/x")[1];
    assert_eq!((route.grant.qos, route.grant.subscription_ids.as_deref()), (Qos::ExactlyOnce, None));
    assert_eq!(router.subscriptions(), 3);
}

#[test]
fn a_change_without_wildcards_leaves_other_topics_in_the_cache() {
    let mut router = Router::new();
    router.subscribe("a", Sink::Session(1), SubscribeOptions::default(), None);
    let (a, b) = (router.route("a"), router.route("b"));
    router.subscribe("b", Sink::Session(2), SubscribeOptions::default(), None);
    assert!(Arc::ptr_eq(&a, &router.route("a")));
    assert!(b.is_empty());
    assert_eq!(router.route("b").len(), 1);
    router.subscribe("+", Sink::Session(1), SubscribeOptions::default(), None);
    let again = router.route("a");
    assert!(!Arc::ptr_eq(&a, &again));
    router.subscribe("+", Sink::Session(1), SubscribeOptions::default(), None);
    assert!(Arc::ptr_eq(&again, &router.route("a")), "nothing changed");
}

#[test]
fn the_cache_stays_within_both_limits_and_keeps_what_is_used() {
    let mut router = Router::with_cache(CACHE_TOPICS, CACHE_BYTES);
    for n in 0..3 {
        router.subscribe("#", Sink::Session(n), SubscribeOptions::default(), Some(n + 1));
    }
    let hot = router.route("hot");
    for n in 0..1000_usize {
        let topic = "x".repeat(1 + n % 700);
        assert_eq!(router.route(&format!("{n}/{topic}")).len(), 3);
        assert_bounded(&router);
        router.route("hot");
        assert_bounded(&router);
    }
    assert!(Arc::ptr_eq(&hot, &router.route("hot")));
    assert_eq!(router.route(&"y".repeat(CACHE_BYTES)).len(), 3, "too long to be remembered");
    assert_bounded(&router);
}

#[test]
fn a_cache_that_is_of_no_use_rests_and_is_tried_again() {
    let mut router = Router::with_cache(CACHE_TOPICS, CACHE_BYTES);
    router.subscribe("+", Sink::Session(1), SubscribeOptions::default(), None);
    let fresh = |router: &mut Router, topic: &str| !Arc::ptr_eq(&router.route(topic), &router.route(topic));
    (0..20_000).for_each(|n| assert_eq!(router.route(&n.to_string()).len(), 1));
    assert!((0..10_000).any(|_| !fresh(&mut router, "often")), "one topic alone is remembered");
    assert!((0..20_000).all(|_| !fresh(&mut router, "often")), "as long as nothing else comes");
    (0..20_000).for_each(|n| assert_eq!(router.route(&n.to_string()).len(), 1));
    // A change while the cache rests is heard all the same.
    router.subscribe("often", Sink::Session(2), SubscribeOptions::default(), None);
    assert!((0..20_000).all(|_| router.route("often").len() == 2));
}

#[test]
fn a_router_without_a_cache_routes_all_the_same() {
    let mut router = Router::with_cache(0, 0);
    router.subscribe("a", Sink::Session(1), SubscribeOptions::default(), None);
    assert_eq!(router.route("a").len(), 1);
    assert_eq!(router.route("a").len(), 1);
    assert_eq!(router.cached(), (0, 0));
}

#[test]
fn the_deepest_topic_a_packet_can_carry_is_walked_without_recursion() {
    let mut router = Router::new();
    let topic = "/".repeat(65_535);
    let plus = "+/".repeat(65_535) + "+";
    for (n, filter) in [topic.as_str(), &plus, "#"].into_iter().enumerate() {
        router.subscribe(filter, Sink::Session(n as u32), SubscribeOptions::default(), None);
    }
    assert_eq!(router.route(&topic).len(), 3);
    assert!(router.unsubscribe(&topic, Sink::Session(0)) && router.unsubscribe(&plus, Sink::Session(1)));
    assert_eq!(router.route(&topic).len(), 1);
    router.trie.assert_sound();
}

#[test]
fn a_hundred_thousand_wildcard_subscriptions_take_less_than_300_bytes_each() {
    let mut router = Router::new();
    let filters = |n: u32| match n % 3 {
        0 => format!("plant/{}/device-{n}/+/temperature", n % 100),
        1 => format!("site-{n}/#"),
        _ => format!("plant/{}/+/{n}/#", n % 100),
    };
    for n in 0..100_000 {
        assert!(router.subscribe(&filters(n), Sink::Session(n), SubscribeOptions::default(), Some(n + 1)));
    }
    let each = router.memory() / router.subscriptions();
    assert!(each < 300, "{each} bytes");
    assert_eq!(router.route("plant/33/device-33/x/temperature").len(), 1);
    for n in 0..100_000 {
        assert!(router.unsubscribe(&filters(n), Sink::Session(n)));
    }
    assert_eq!(router.subscriptions(), 0);
    router.trie.assert_sound();
}
