//! Publishes the status below `$SYS/`: at an interval while somebody has subscribed to it, and at once to new subscriptions.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use crate::admin::sys_topics::SysTopics;
use crate::driver::shell::Shell;
use crate::driver::status::Reporter;

/// Publishes for ever, at most every `interval` to everybody.
pub async fn run(shell: Rc<Shell>, reporter: Rc<Reporter>, interval: Duration) {
    shell.hub.borrow_mut().enable_sys();
    let mut topics = SysTopics::default();
    // The first subscriptions are answered anyway.
    let mut ticks = tokio::time::interval_at(Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let to_everybody = tokio::select! {
            _ = ticks.tick() => true,
            () = shell.sys_asked.notified() => false,
        };
        publish(&shell, &reporter, &mut topics, to_everybody);
    }
}

fn publish(shell: &Shell, reporter: &Reporter, topics: &mut SysTopics, to_everybody: bool) {
    let now = shell.now();
    let mut hub = shell.hub.borrow_mut();
    let broker = hub.broker();
    if !(to_everybody && broker.sys_is_wanted() || broker.sys_is_asked()) {
        return;
    }
    let status = shell
        .with_store(|store| reporter.status(&hub, Some(store.counters()), now))
        .unwrap_or_else(|| reporter.status(&hub, None, now));
    let values = topics.make(&status);
    hub.publish_sys(values.iter().map(|(topic, value)| (&**topic, &**value)), to_everybody, now);
    drop(hub);
    shell.flush.notify_one();
}
