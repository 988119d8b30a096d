//! The queue of a subscriber that is away. `fill` and `drain` are two runs, so that each has its own cost, and a broker may be
//! restarted in between.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use super::settle;
use crate::check::now_ns;
use crate::link::Link;
use crate::load::{Job, Setup, publish, subscribe, wait};
use crate::process::{reset_peak, usage};
use crate::report::Report;

const CLIENT: &str = "away";

/// Makes the session, leaves it and fills its queue.
pub async fn fill(setup: &Rc<Setup>) -> io::Result<Report> {
    let options = &setup.options;
    let (mut link, _) = Link::open(options.address, setup.login(CLIENT, true)).await?;
    link.subscribe(&["queue/+".to_owned()], options.qos(), |_, _| Ok(())).await?;
    link.close().await;
    let (link, _) = Link::open(options.address, setup.login("filler", false)).await?;
    settle().await;
    reset_peak(options.pid);
    let (before, start) = (usage(options.pid), now_ns());
    let sent = publish(link, setup, Job::to_topic(0, options.count, "queue/a".to_owned()));
    wait(options, || sent.borrow().finished, || sent.borrow().acknowledged).await;
    let after = usage(options.pid);
    let sent = sent.borrow();

    let mut report = Report::default();
    report.cost(before, after, sent.acknowledged, "message");
    report.set("messages", sent.acknowledged as f64);
    report.rate("messages", sent.acknowledged, Duration::from_nanos(sent.last_ns.saturating_sub(start)));
    report.latency("acknowledgement", &sent.latency);
    let grown = after.peak_bytes.saturating_sub(before.rss_bytes) as f64;
    report.set("rss_growth_bytes", grown);
    report.set("rss_bytes_per_message", grown / sent.acknowledged.max(1) as f64);
    sent.error.iter().for_each(|error| report.fault(error));
    if sent.acknowledged < sent.written {
        report.fault(format!("{} not acknowledged", sent.written - sent.acknowledged));
    }
    Ok(report)
}

/// The subscriber comes back; `count` says how many messages wait for it.
pub async fn drain(setup: &Rc<Setup>) -> io::Result<Report> {
    let options = &setup.options;
    reset_peak(options.pid);
    let (before, start) = (usage(options.pid), now_ns());
    let (link, present) = Link::open(options.address, setup.login(CLIENT, true)).await?;
    let subscriber = subscribe(link, setup, &[]).await?;
    let distinct = || subscriber.ledger.borrow().distinct;
    let received = || subscriber.ledger.borrow().received();
    wait(options, || distinct() >= options.count, received).await;
    // The last acknowledgements, and messages that come too often, are on their way.
    settle().await;
    let after = usage(options.pid);
    let ledger = subscriber.ledger.borrow().clone();
    subscriber.task.abort();

    let mut report = Report::default();
    if !present {
        report.fault("the broker has forgotten the session");
    }
    report.cost(before, after, ledger.distinct, "message");
    report.set("messages", ledger.distinct as f64);
    report.rate("messages", ledger.distinct, Duration::from_nanos(ledger.last_ns.saturating_sub(start)));
    report.received(options, &[&ledger], options.count);
    Link::open(options.address, setup.login(CLIENT, false)).await?.0.close().await;
    Ok(report)
}
