//! The scenarios: each prepares, reads the broker's use, loads, waits, reads again and reports.

mod crowd;
mod latency;
mod queue;
mod stream;
mod topics;

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use crate::check::Payloads;
use crate::load::Setup;
use crate::options::{Kind, Options};
use crate::report::Report;

/// Lets the broker come to rest before a reading.
const SETTLE: Duration = Duration::from_millis(300);

/// Runs the scenario. Returns whether the broker did nothing wrong.
pub async fn run(options: Options) -> io::Result<bool> {
    let payloads = Payloads::new(options.size);
    let setup = Rc::new(Setup { options: options.clone(), payloads });
    let result = match options.kind {
        Kind::Fan => stream::fan(&setup).await,
        Kind::Fill => queue::fill(&setup).await,
        Kind::Drain => queue::drain(&setup).await,
        Kind::PingPong => latency::ping_pong(&setup).await,
        Kind::Paced => latency::paced(&setup).await,
        Kind::Idle => crowd::idle(&setup).await,
        Kind::Connect => crowd::connect(&setup).await,
        Kind::Wildcard => topics::wildcard(&setup).await,
        Kind::Retained => topics::retained(&setup).await,
    };
    let report = result.unwrap_or_else(|error| {
        let mut report = Report::default();
        report.fault(error);
        report
    });
    Ok(report.print(&options))
}

async fn settle() {
    sleep(SETTLE).await;
}
