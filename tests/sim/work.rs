//! Workers and operators in the world.

use crate::deals::{DONE, NOTHING};
use crate::deeds::{Deed, Desk};
use crate::ledger::Verdict;
use crate::queues::QUEUES;
use crate::world::World;

use tidegate::net::origin::{Origin, PeerAddress, Protocol};

/// Which worker takes the durable subscription in the end.
const FOLLOWING_WORKER: usize = 3;

impl World {
    pub(super) fn work(&mut self, number: usize, deed: &Deed) -> Verdict {
        let Self { workers, book, ledger, random, .. } = self;
        let worker = &mut workers[number];
        match deed {
            Deed::Connect => return self.connect_worker(number),
            Deed::Drop => return self.drop_worker(number),
            Deed::Goodbye => worker.goodbye(),
            Deed::Send { parcel, count } => (0..*count).for_each(|_| worker.send(parcel, book, ledger)),
            Deed::Consume(how) => worker.consume(how),
            Deed::Follow => worker.follow(ledger),
            Deed::StopConsuming => worker.stop_consuming(),
            Deed::Answer { answer, count, within } => worker.answer(*answer, *count, *within, book),
            Deed::Diligent { on } => worker.diligent = *on,
            Deed::Stall { on } => worker.stalled = *on,
            Deed::Begin { with_xid } => worker.begin(*with_xid, book),
            Deed::Commit { prepare } => worker.commit(*prepare, book),
            Deed::Abort => return worker.abort(book),
            Deed::Decide { commit, again } => {
                let open = if *again { book.all_named() } else { book.undecided() };
                if !open.is_empty() {
                    worker.decide(*random.pick(&open), *commit, book);
                }
            }
        }
        Ok(())
    }

    /// Opens a connection; an old one is dropped.
    pub(super) fn connect_worker(&mut self, number: usize) -> Verdict {
        self.drop_worker(number)?;
        let now = self.gateway().now();
        let id = self.gateway().hub.open(Protocol::Stomp, Origin::plain(PeerAddress::Local), now);
        if let Some(id) = id {
            self.workers[number].connect(id);
        }
        Ok(())
    }

    fn drop_worker(&mut self, number: usize) -> Verdict {
        let now = self.gateway().now();
        let Some(id) = self.workers[number].wire.as_ref().map(|wire| wire.id) else { return Ok(()) };
        self.workers[number].lose(&mut self.book, &mut self.ledger)?;
        self.gateway().hub.lost(id, now);
        self.orphans.push(id);
        Ok(())
    }

    /// Reads what has arrived for a worker.
    pub(super) fn read_worker(&mut self, number: usize) -> Verdict {
        let Self { workers, book, ledger, gateway, .. } = self;
        let lives = |id| {
            let broker = gateway.as_ref().map(|gateway| gateway.hub.broker());
            broker.is_some_and(|broker| broker.logins().any(|(conn, _)| conn == id))
        };
        workers[number].read(book, ledger, &lives)
    }

    /// Carries what is known of transactions to the ledger of topics, and back.
    pub(super) fn settle_deals(&mut self) -> Verdict {
        for (job, qos, again) in std::mem::take(&mut self.ledger.jobs_seen) {
            self.book.handed_to_taker(job, qos, again)?;
        }
        for deal in std::mem::take(&mut self.ledger.deals_seen) {
            self.book.deal_is_done(deal)?;
        }
        for (n, happened) in std::mem::take(&mut self.book.decided) {
            if happened {
                self.ledger.answered(n, 0)?;
            } else {
                self.ledger.will_is_cancelled(n);
            }
        }
        Ok(())
    }

    /// An operator's command, as the broker's desk does it.
    pub(super) fn desk(&mut self, desk: Desk) {
        let now = self.gateway().now();
        let broker = self.gateway().hub.broker_mut();
        match desk {
            Desk::Purge { queue } => {
                let done = broker.purge_some(QUEUES[queue].name, now).map_or(0, |progress| progress.done);
                self.book.removed(queue, done, false);
                self.tally.count("jobs purged", done);
            }
            Desk::Move { from, to } => {
                let target = to.map(|to| QUEUES[to].name);
                let done =
                    broker.move_some(QUEUES[from].name, target, now).map_or(0, |progress| progress.done);
                let targets = if let Some(to) = to { vec![to] } else { (0..QUEUES.len()).collect() };
                if done > 0 {
                    targets.into_iter().filter(|to| *to != from).for_each(|to| self.book.moved(from, to));
                }
                self.tally.count("jobs moved", done);
            }
            Desk::Delete { queue } => {
                if let Ok(count) = broker.delete_queue(QUEUES[queue].name) {
                    self.book.removed(queue, count, true);
                    self.tally.count("queues deleted", 1);
                }
            }
        }
        self.gateway().hub.finish_turn(now);
    }

    // The end of a run.

    /// All workers take what is left; the first of them decides what is prepared.
    pub(super) fn finish_work(&mut self) -> Verdict {
        for number in 0..self.workers.len() {
            if self.workers[number].wire.is_none() {
                self.connect_worker(number)?;
            }
            let worker = &mut self.workers[number];
            worker.diligent = true;
            worker.stalled = false;
            worker.take_everything(number, &mut self.book);
            if number == FOLLOWING_WORKER && worker.is_open() {
                worker.follow(&mut self.ledger);
            }
        }
        let open = self.book.undecided();
        for deal in open {
            let commit = deal % 2 == 0;
            self.workers[0].decide(deal, commit, &mut self.book);
        }
        Ok(())
    }

    /// Nothing is left to be done for any worker.
    pub(super) fn work_is_done(&self) -> bool {
        self.book.undecided().is_empty() && self.workers.iter().all(|worker| !worker.has_requests())
    }

    pub(super) fn check_work(&mut self) -> Verdict {
        if !self.work_is_done() {
            let workers: Vec<String> = self.workers.iter().map(|worker| worker.describe()).collect();
            let open: Vec<_> =
                self.book.undecided().iter().map(|deal| self.book.deals[*deal].clone()).collect();
            return Err(format!("workers are stuck: {workers:?}, undecided: {open:?}"));
        }
        self.book.check_all_taken()?;
        let became = |to: u8| self.book.deals.iter().filter(|deal| deal.can == to).count() as u64;
        self.tally.count("jobs sent", self.book.jobs.len() as u64);
        self.tally.count("jobs taken", self.book.taken);
        self.tally.count("transactions done", became(DONE));
        self.tally.count("transactions without effect", became(NOTHING));
        Ok(())
    }
}
