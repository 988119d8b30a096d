//! Publishers and subscribers at full speed.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use super::settle;
use crate::check::now_ns;
use crate::histogram::Histogram;
use crate::link::Link;
use crate::load::{Job, Setup, Subscriber, publish, subscribe, wait};
use crate::process::{reset_peak, usage};
use crate::report::Report;

/// Every subscriber gets what every publisher sends.
pub async fn fan(setup: &Rc<Setup>) -> io::Result<Report> {
    let options = &setup.options;
    let mut subscribers = vec![];
    for at in 0..options.subscribers {
        let name = format!("subscriber-{at}");
        let login = setup.login(&name, options.persistent);
        let (link, _) = Link::open(options.subscribe_address(), login).await?;
        subscribers.push(subscribe(link, setup, &["load/+".to_owned()]).await?);
    }
    let mut links = vec![];
    for at in 0..options.publishers {
        links.push(Link::open(options.address, setup.login(&format!("publisher-{at}"), false)).await?.0);
    }
    settle().await;
    reset_peak(options.pid);
    let (before, start) = (usage(options.pid), now_ns());
    let each = options.count / u64::from(options.publishers);
    let start_one = |(at, link)| publish(link, setup, Job::to_topic(at, each, format!("load/{at}")));
    let sent: Vec<_> = (0..).zip(links).map(start_one).collect();

    let written = || sent.iter().map(|sent| sent.borrow().written).sum::<u64>();
    let acknowledged = || sent.iter().map(|sent| sent.borrow().acknowledged).sum::<u64>();
    let distinct = || subscribers.iter().map(|one| one.ledger.borrow().distinct).sum::<u64>();
    let finished = || sent.iter().all(|sent| sent.borrow().finished);
    let wanted = || written() * u64::from(options.subscribers);
    wait(options, || finished() && distinct() >= wanted(), || written() + acknowledged() + distinct()).await;
    let after = usage(options.pid);

    let mut report = Report::default();
    report.cost(before, after, written(), "message");
    report.set("cpu_us_per_delivery", (after.cpu_secs - before.cpu_secs) * 1e6 / distinct().max(1) as f64);
    report.set("messages", written() as f64);
    report.set("acknowledged", acknowledged() as f64);
    let last = subscribers.iter().map(|one| one.ledger.borrow().last_ns).max().unwrap_or(0);
    let time = Duration::from_nanos(last.saturating_sub(start));
    report.rate("messages", written(), time);
    report.rate("deliveries", distinct(), time);
    let mut acknowledgements = Histogram::default();
    for sent in &sent {
        acknowledgements.merge(&sent.borrow().latency);
        sent.borrow().error.iter().for_each(|error| report.fault(error));
    }
    report.latency("acknowledgement", &acknowledgements);
    conclude(setup, subscribers, wanted(), &mut report).await?;
    Ok(report)
}

async fn conclude(
    setup: &Rc<Setup>,
    subscribers: Vec<Subscriber>,
    wanted: u64,
    report: &mut Report,
) -> io::Result<()> {
    let ledgers: Vec<_> = subscribers.iter().map(|one| one.ledger.borrow().clone()).collect();
    let mut deliveries = Histogram::default();
    ledgers.iter().for_each(|ledger| deliveries.merge(&ledger.latency));
    report.latency("delivery", &deliveries);
    report.received(&setup.options, &ledgers.iter().collect::<Vec<_>>(), wanted);
    for (at, subscriber) in subscribers.into_iter().enumerate() {
        subscriber.task.abort();
        if setup.options.persistent {
            // No session stays behind that would collect the messages of the next run.
            let name = format!("subscriber-{at}");
            let login = setup.login(&name, false);
            Link::open(setup.options.subscribe_address(), login).await?.0.close().await;
        }
    }
    Ok(())
}
