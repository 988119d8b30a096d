//! What the store holds after a restart, compared with the book: each job in one place, each deal whole.

use std::collections::{BTreeMap, BTreeSet};

use crate::cast::{CAST, TAKER};
use crate::deals::{DONE, NOTHING, PREPARED};
use crate::jobs::{Book, JOBS_FROM, Job, Sure};
use crate::ledger::Verdict;
use crate::queues;

/// What was found.
#[derive(Debug, Default)]
pub struct Stock {
    /// Jobs by the name of their queue.
    pub queues: BTreeMap<String, Vec<u64>>,
    /// Jobs of committed transactions that are on their way to their queues.
    pub moving: Vec<u64>,
    /// Names of prepared transactions.
    pub prepared: BTreeSet<String>,
}

impl Book {
    /// Compares a store that was just opened.
    pub fn take_stock(&mut self, stock: &Stock) -> Verdict {
        self.deals_are_prepared(stock)?;
        let places = self.places(stock)?;
        for deal in 0..self.deals.len() {
            self.deal_is_whole(deal, &places)?;
        }
        for n in 0..self.jobs.len() {
            self.job_is_in_its_place(n, places.contains_key(&(JOBS_FROM + n as u64)))?;
        }
        Ok(())
    }

    /// What a store holds when it is opened is the truth, from which later ones follow.
    fn job_is_in_its_place(&mut self, n: usize, found: bool) -> Verdict {
        let job = &self.jobs[n];
        let (born, gone) = (self.born(job), self.gone(job));
        if found && born == Sure::No {
            return Err(format!("job {n} is there, although it was refused: {job:?}"));
        }
        if found && gone == Sure::Yes {
            return Err(format!("job {n} is there, although it was taken: {job:?}"));
        }
        if !found && self.must_be_there(job) {
            return Err(format!("I1: job {n} is lost: {job:?}"));
        }
        let vanishes = !found && born == Sure::Yes && gone == Sure::No && !self.may_expire(job);
        self.vanished += u64::from(vanishes);
        let comes_later = job.deal.is_some_and(|deal| self.deals[deal].can & PREPARED != 0);
        let job = &mut self.jobs[n];
        if found {
            (job.born, job.gone) = (Sure::Yes, Sure::No);
        } else if !comes_later {
            // Whatever became of it, it cannot come back.
            job.gone = Sure::Yes;
        }
        Ok(())
    }

    fn must_be_there(&self, job: &Job) -> bool {
        self.born(job) == Sure::Yes && self.gone(job) == Sure::No && !self.may_vanish(job)
    }

    fn deals_are_prepared(&mut self, stock: &Stock) -> Verdict {
        for deal in 0..self.deals.len() {
            let Some(xid) = &self.deals[deal].xid else { continue };
            let is_there = stock.prepared.contains(xid);
            let (to, why) = match is_there {
                true => (PREPARED, "it is prepared"),
                false => (NOTHING | DONE, "it is not prepared"),
            };
            self.narrow(deal, to, why)?;
        }
        Ok(())
    }

    /// Where each job is: in one queue.
    fn places(&self, stock: &Stock) -> Result<BTreeMap<u64, String>, String> {
        let on_their_way = stock.moving.iter().map(|job| (*job, "a committed transaction".to_owned()));
        let mut places: BTreeMap<u64, String> = on_their_way.collect();
        for (name, jobs) in &stock.queues {
            for number in jobs {
                let n = number - JOBS_FROM;
                let job = self.job(*number).ok_or_else(|| format!("nobody sent job {n} in queue {name}"))?;
                if let Some(other) = places.insert(*number, name.clone()) {
                    return Err(format!("I6: job {n} is in queue {other} and in {name}: {job:?}"));
                }
                let queue = queues::of_topic(name);
                let is_in_place = queue.is_some_and(|queue| job.places.contains(&queue));
                // What is for the taker with QoS 2 moves to the queue of its session.
                if !is_in_place && name != CAST[TAKER].name {
                    return Err(format!("job {n} is in queue {name}: {job:?}"));
                }
            }
        }
        Ok(places)
    }

    /// What was found of a deal must be all of it, or nothing.
    fn deal_is_whole(&mut self, deal: usize, places: &BTreeMap<u64, String>) -> Verdict {
        let of = self.deals[deal].clone();
        for number in &of.sends {
            let Some(job) = self.job(*number) else { continue };
            let may_be_gone = self.gone(job) != Sure::No || self.may_vanish(job);
            match places.contains_key(number) {
                true => self.narrow(deal, DONE, "a message that it sends is there")?,
                false if !may_be_gone => {
                    self.narrow(deal, NOTHING | PREPARED, "a message that it sends is missing")?;
                }
                false => {}
            }
        }
        for (number, ..) in &of.answers {
            let Some(job) = self.job(*number).cloned() else { continue };
            if !job.taken_by.contains(&deal) {
                continue;
            }
            let others =
                job.taken_by.iter().any(|other| *other != deal && self.deals[*other].can & DONE != 0);
            let may_be_gone = job.gone != Sure::No || others || self.may_vanish(&job);
            let was_there = self.born(&job) == Sure::Yes;
            match places.contains_key(number) {
                true => self.narrow(deal, NOTHING | PREPARED, "a message that it takes is there")?,
                false if was_there && !may_be_gone => {
                    self.narrow(deal, DONE, "a message that it takes is missing")?;
                }
                false => {}
            }
        }
        Ok(())
    }

    /// At the end every job was taken by somebody, but for as many as operators have removed and those whose time was over.
    pub fn check_all_taken(&self) -> Verdict {
        let mut missing = self.vanished;
        for (n, job) in self.jobs.iter().enumerate() {
            if self.born(job) != Sure::Yes || self.gone(job) != Sure::No {
                continue;
            }
            if !self.may_vanish(job) {
                return Err(format!("job {n} was never delivered: {job:?}"));
            }
            missing += u64::from(!self.may_expire(job));
        }
        if missing > self.removed {
            return Err(format!("{missing} jobs are missing, operators have removed {}", self.removed));
        }
        Ok(())
    }
}
