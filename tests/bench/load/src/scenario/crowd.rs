//! Connections that do nothing, and connections that come and go.

use std::io;
use std::rc::Rc;
use std::time::Instant;

use tidegate_mqtt::Packet;
use tokio::task::{JoinSet, spawn_local};

use super::settle;
use crate::link::Link;
use crate::load::Setup;
use crate::process::{reset_peak, usage};
use crate::report::Report;

/// Clients that log in at the same time.
const LANES: u32 = 50;

/// Opens connections, lets them rest, and pings each of them.
pub async fn idle(setup: &Rc<Setup>) -> io::Result<Report> {
    let options = &setup.options;
    reset_peak(options.pid);
    let (before, start) = (usage(options.pid), Instant::now());
    let lanes: Vec<_> = (0..LANES).map(|lane| spawn_local(open_lane(setup.clone(), lane))).collect();
    let mut links = vec![];
    for lane in lanes {
        links.extend(lane.await??);
    }
    let (time, opened) = (start.elapsed(), links.len() as u64);
    settle().await;
    let settled = usage(options.pid);
    let mut alive = 0;
    for link in &mut links {
        link.out.ping();
        link.turn().await?;
    }
    for link in &mut links {
        let answered = link.until(|packet, _| Ok(matches!(packet, Packet::Pingresp))).await;
        alive += u64::from(answered.is_ok());
    }
    let after = usage(options.pid);

    let mut report = Report::default();
    report.cost(before, settled, opened, "connection");
    report.rate("connections", opened, time);
    let grown = settled.rss_bytes.saturating_sub(before.rss_bytes) as f64;
    report.set("rss_bytes_per_connection", grown / opened.max(1) as f64);
    report.set("cpu_us_per_ping", (after.cpu_secs - settled.cpu_secs) * 1e6 / alive.max(1) as f64);
    if alive < u64::from(options.connections) {
        report.fault(format!("only {alive} of {} connections are alive", options.connections));
    }
    Ok(report)
}

async fn open_lane(setup: Rc<Setup>, lane: u32) -> io::Result<Vec<Link>> {
    let mut links = vec![];
    for at in (lane..setup.options.connections).step_by(LANES as usize) {
        links.push(Link::open(setup.options.address, setup.login(&format!("idle-{at}"), false)).await?.0);
    }
    Ok(links)
}

/// Connections that log in and close at once.
pub async fn connect(setup: &Rc<Setup>) -> io::Result<Report> {
    let options = &setup.options;
    reset_peak(options.pid);
    let (before, start) = (usage(options.pid), Instant::now());
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let setup = setup.clone();
        lanes.spawn_local(async move {
            for at in (lane..setup.options.connections).step_by(LANES as usize) {
                let name = format!("brief-{at}");
                Link::open(setup.options.address, setup.login(&name, false)).await?.0.close().await;
            }
            Ok::<(), io::Error>(())
        });
    }
    while let Some(lane) = lanes.join_next().await {
        lane??;
    }
    let time = start.elapsed();
    let after = usage(options.pid);
    let mut report = Report::default();
    report.cost(before, after, options.connections.into(), "connection");
    report.rate("connections", options.connections.into(), time);
    Ok(report)
}
