//! The end of a run: everything owed must be paid.

use crate::action::Pace;
use crate::cast::{CLIENTS, READER};
use crate::ledger::Verdict;
use crate::random::Random;
use crate::world::World;

/// Rounds in which any answer has come.
const ANSWER_ROUNDS_MAX: usize = 60;
/// Attempts to drain every queue; far more than any run needs.
const DRAINS_MAX: usize = 600;
/// Time that devices with a will stay away: longer than any delay and than the grace after a restart.
const WILL_WAIT_MILLIS: u64 = 60_000;

impl World {
    /// Space, power and all clients come back; then the accounts are settled.
    pub fn finish(&mut self) -> Verdict {
        self.random = Random(0xf1_4151);
        self.ledger.step += 1;
        self.give_space();
        self.media.stop_failing();
        self.media.keep_power();
        self.restart()?;
        self.wait_for_wills()?;
        self.black_hole = false;
        for _ in 0..DRAINS_MAX {
            self.reconnect();
            self.finish_work()?;
            for _ in 0..4 {
                self.round(Pace::Swift)?;
            }
            self.check()?;
            let gauges = self.gateway().hub.broker().gauges();
            let mut publishers = self.clients.iter().filter(|client| client.part.publishes);
            let quiet = publishers.all(|client| client.is_open() && client.is_done());
            let there = self.clients.iter().all(|client| client.is_open() || client.part.will);
            if quiet && there && self.work_is_done() && gauges.queued == 0 && gauges.waiting_for_store == 0 {
                break;
            }
        }
        self.check_end()
    }

    /// Devices with a will stay away until it has come.
    fn wait_for_wills(&mut self) -> Verdict {
        for _ in 0..10 {
            self.pass(WILL_WAIT_MILLIS / 10);
            self.round(Pace::Swift)?;
        }
        let wills: Vec<_> = self.clients.iter().filter_map(|client| client.will).collect();
        wills.into_iter().for_each(|n| self.ledger.will_is_due(n));
        Ok(())
    }

    fn reconnect(&mut self) {
        for number in 0..CLIENTS {
            let client = &self.clients[number];
            if client.conn.is_none() && !client.part.will {
                self.connect(number, false);
            }
        }
    }

    /// What a new subscription gets.
    fn read_retained(&mut self) -> Verdict {
        self.connect(READER, true);
        for _ in 0..ANSWER_ROUNDS_MAX {
            if !self.clients[READER].is_open() {
                self.round(Pace::Swift)?;
            }
        }
        let now = self.gateway().now();
        self.clients[READER].retained.clear();
        self.clients[READER].subscribe("r/#", 1, &mut self.ledger, now);
        for _ in 0..ANSWER_ROUNDS_MAX {
            self.round(Pace::Swift)?;
        }
        self.ledger.check_retained(&self.clients[READER].retained)
    }

    fn check_end(&mut self) -> Verdict {
        self.ledger.check_paid()?;
        self.check_work()?;
        let stuck = self.clients.iter().find(|client| client.part.publishes && !client.is_done());
        if let Some(client) = stuck {
            return Err(format!("a publisher is stuck: {}", client.describe()));
        }
        self.read_retained()?;
        self.tally.count("messages published", self.ledger.messages() as u64);
        self.tally.count("messages received", self.ledger.received);
        self.end_process()?;
        Ok(())
    }
}
