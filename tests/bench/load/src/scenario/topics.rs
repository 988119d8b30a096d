//! Many subscriptions, and many retained messages.

use std::fmt::Write;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::settle;
use crate::check::now_ns;
use crate::link::Link;
use crate::load::{Job, Setup, Subscriber, publish, subscribe, wait};
use crate::process::{reset_peak, usage};
use crate::report::Report;

/// Clients that share the filters of `wildcard`.
const CLIENTS: u64 = 100;
/// Filters of one SUBSCRIBE.
const FILTERS_PER_REQUEST: usize = 100;
/// Coprime to any round number of filters: messages visit them in scattered order.
const STRIDE: u64 = 7919;

/// Filter number `at`: half of them have their wildcard inside, half begin with it.
fn filter(at: u64) -> String {
    if at.is_multiple_of(2) { format!("in/{at}/+/x") } else { format!("+/first/{at}/x") }
}

/// The topic that only this filter matches.
fn topic(at: u64, out: &mut String) {
    let written =
        if at.is_multiple_of(2) { write!(out, "in/{at}/y/x") } else { write!(out, "z/first/{at}/x") };
    written.expect("writing to a string cannot fail");
}

/// Subscribes to many filters, then publishes messages that match one each.
pub async fn wildcard(setup: &Rc<Setup>) -> io::Result<Report> {
    let options = &setup.options;
    reset_peak(options.pid);
    let (before, start) = (usage(options.pid), Instant::now());
    let clients: Vec<_> =
        (0..CLIENTS).map(|at| tokio::task::spawn_local(wildcard_client(setup.clone(), at))).collect();
    let mut subscribers = vec![];
    for client in clients {
        subscribers.push(client.await??);
    }
    let time = start.elapsed();
    settle().await;
    let subscribed = usage(options.pid);
    let (link, _) = Link::open(options.address, setup.login("wildcard-publisher", false)).await?;
    let (filters, first) = (options.filters, now_ns());
    let mut job = Job::to_topic(0, options.count, String::new());
    job.topic = Box::new(move |number, out| topic(number.wrapping_mul(STRIDE) % filters, out));
    let sent = publish(link, setup, job);
    let distinct = || subscribers.iter().map(|one| one.ledger.borrow().distinct).sum::<u64>();
    let written = || sent.borrow().written;
    wait(options, || sent.borrow().finished && distinct() >= written(), || distinct() + written()).await;
    let after = usage(options.pid);

    let mut report = Report::default();
    report.cost(subscribed, after, written(), "message");
    report.set("messages", written() as f64);
    let last = subscribers.iter().map(|one| one.ledger.borrow().last_ns).max().unwrap_or(0);
    report.rate("messages", distinct(), Duration::from_nanos(last.saturating_sub(first)));
    report.rate("subscriptions", filters, time);
    report.set("cpu_us_per_subscription", (subscribed.cpu_secs - before.cpu_secs) * 1e6 / filters as f64);
    let grown = subscribed.rss_bytes.saturating_sub(before.rss_bytes) as f64;
    report.set("rss_bytes_per_subscription", grown / filters as f64);
    one_stream(&subscribers, written(), &mut report);
    sent.borrow().error.iter().for_each(|error| report.fault(error));
    Ok(report)
}

async fn wildcard_client(setup: Rc<Setup>, at: u64) -> io::Result<Subscriber> {
    let options = &setup.options;
    let name = format!("wildcard-{at}");
    let (mut link, _) = Link::open(options.address, setup.login(&name, false)).await?;
    let filters: Vec<_> = (at..options.filters).step_by(CLIENTS as usize).map(filter).collect();
    for some in filters.chunks(FILTERS_PER_REQUEST) {
        link.subscribe(some, options.qos(), |_, _| Ok(())).await?;
    }
    subscribe(link, &setup, &[]).await
}

/// Many subscribers share one publisher's numbers: each of them sees gaps, and only the sum tells a loss.
fn one_stream(subscribers: &[Subscriber], written: u64, report: &mut Report) {
    let sum = |of: fn(&crate::check::Ledger) -> u64| {
        subscribers.iter().map(|one| of(&one.ledger.borrow())).sum::<u64>()
    };
    let faults = [
        ("lost", written.saturating_sub(sum(|ledger| ledger.distinct))),
        ("repeated", sum(|ledger| ledger.repeated)),
        ("disordered", sum(|ledger| ledger.disordered)),
        ("damaged", sum(|ledger| ledger.damaged)),
    ];
    for (name, count) in faults {
        report.set(name, count as f64);
        if count > 0 {
            report.fault(format!("{count} {name}"));
        }
    }
}

/// Sets retained messages on as many topics, then takes them all with one filter.
pub async fn retained(setup: &Rc<Setup>) -> io::Result<Report> {
    let options = &setup.options;
    let (link, _) = Link::open(options.address, setup.login("retained-publisher", false)).await?;
    settle().await;
    reset_peak(options.pid);
    let (before, start) = (usage(options.pid), now_ns());
    let topic = Box::new(|number: u64, out: &mut String| {
        write!(out, "retained/{}/{number}", number / 1000).expect("writing to a string cannot fail");
    });
    let sent = publish(link, setup, Job { publisher: 0, count: options.count, retain: true, topic });
    wait(options, || sent.borrow().finished, || sent.borrow().acknowledged + sent.borrow().written).await;
    let set_time = Duration::from_nanos(sent.borrow().last_ns.saturating_sub(start));
    settle().await;
    let set = usage(options.pid);
    let (link, _) = Link::open(options.address, setup.login("retained-subscriber", false)).await?;
    let asked = now_ns();
    let subscriber = subscribe(link, setup, &["retained/#".to_owned()]).await?;
    let distinct = || subscriber.ledger.borrow().distinct;
    let written = sent.borrow().written;
    wait(options, || distinct() >= written, distinct).await;
    let after = usage(options.pid);
    let ledger = subscriber.ledger.borrow().clone();

    let mut report = Report::default();
    report.cost(before, set, written, "message");
    report.set("messages", written as f64);
    report.rate("messages", written, set_time);
    report.rate("deliveries", ledger.distinct, Duration::from_nanos(ledger.last_ns.saturating_sub(asked)));
    report.set("cpu_us_per_delivery", (after.cpu_secs - set.cpu_secs) * 1e6 / ledger.distinct.max(1) as f64);
    let grown = set.rss_bytes.saturating_sub(before.rss_bytes) as f64;
    report.set("rss_bytes_per_message", grown / written.max(1) as f64);
    // Retained messages come in any order.
    for (name, count) in [
        ("lost", written.saturating_sub(ledger.distinct)),
        ("repeated", ledger.repeated),
        ("damaged", ledger.damaged),
        ("without_retain_flag", ledger.distinct - ledger.retained.min(ledger.distinct)),
    ] {
        report.set(name, count as f64);
        if count > 0 {
            report.fault(format!("{count} {name}"));
        }
    }
    sent.borrow().error.iter().for_each(|error| report.fault(error));
    Ok(report)
}
