//! Transactions in the reference: all of one, or nothing of it.
//!
//! Of each deal the book keeps what may have become of it: nothing, prepared, or done. Answers, deliveries and what the store
//! holds after a restart rule some of that out; a deal of which nothing is left, or which is half done, is a broken promise.

use crate::jobs::{Answer, Book, Sure};
use crate::ledger::{Number, Verdict};
use crate::queues::QUEUES;

/// Seconds after which a prepared transaction that nobody decided is rolled back.
pub const PREPARED_TIMEOUT_SECS: u32 = 60;
/// Milliseconds by which the reference may be wrong about that.
const TIMEOUT_SLACK_MILLIS: u64 = 2_000;

/// What may have become of a deal, as a set.
pub const NOTHING: u8 = 1;
pub const PREPARED: u8 = 2;
pub const DONE: u8 = 4;

/// A transaction.
#[derive(Clone, Debug)]
pub struct Deal {
    pub xid: Option<String>,
    /// Jobs that it sends, and messages to topics.
    pub sends: Vec<u64>,
    pub topics: Vec<Number>,
    /// Deliveries that it answers, with the queue that each came from.
    pub answers: Vec<(u64, usize, Answer)>,
    /// What may have become of it.
    pub can: u8,
    /// Whether it is prepared will not change but by a decision.
    pub settled: bool,
    /// Somebody has asked for a decision.
    asked: bool,
    /// The wall time at which it was to be prepared.
    prepared_at: Option<u64>,
    told: bool,
}

impl Deal {
    /// It has happened.
    pub fn is_done(&self) -> Sure {
        match self.can & DONE {
            0 => Sure::No,
            _ if self.can == DONE => Sure::Yes,
            _ => Sure::Maybe,
        }
    }
}

impl Book {
    pub fn begin(&mut self, xid: Option<String>) -> usize {
        let deal = Deal {
            xid,
            sends: vec![],
            topics: vec![],
            answers: vec![],
            can: NOTHING,
            settled: false,
            asked: false,
            prepared_at: None,
            told: false,
        };
        self.deals.push(deal);
        self.deals.len() - 1
    }

    /// A delivery is answered within a deal.
    pub fn answer_within(&mut self, deal: usize, job: u64, queue: usize, answer: Answer) {
        self.deals[deal].answers.push((job, queue, answer));
    }

    /// The deal is to be carried out, or prepared: from now on it answers its deliveries.
    pub fn ending(&mut self, deal: usize, prepare: bool) {
        let wall = self.wall;
        let of = &mut self.deals[deal];
        of.can |= if prepare { PREPARED } else { DONE };
        of.prepared_at = prepare.then_some(wall);
        for (job, queue, answer) in of.answers.clone() {
            if answer == Answer::Accept || (answer == Answer::Bury && QUEUES[queue].dead_letters.is_none()) {
                self.job_mut(job).taken_by.push(deal);
            } else {
                self.answer(job, queue, answer);
            }
            self.release(job);
        }
    }

    /// Somebody asks for a prepared deal to be decided.
    pub fn deciding(&mut self, deal: usize, commit: bool) {
        let of = &mut self.deals[deal];
        of.asked = true;
        if of.can & PREPARED != 0 {
            of.can |= if commit { DONE } else { NOTHING };
        }
    }

    /// Its worker is told that it is prepared; it may have been decided since.
    pub fn prepared(&mut self, deal: usize) -> Verdict {
        self.deals[deal].settled = true;
        let to = if self.deals[deal].asked { NOTHING | PREPARED | DONE } else { PREPARED };
        self.narrow(deal, to, "it was said to be prepared")
    }

    /// A decision was refused, for this reason.
    pub fn not_decided(&mut self, deal: usize, commit: bool, why: &str) -> Verdict {
        if why.contains("the other way") {
            return self.narrow(deal, if commit { NOTHING } else { DONE }, why);
        }
        if why.contains("no such transaction") {
            return self.narrow(deal, NOTHING, why);
        }
        Ok(())
    }

    /// What became of a deal is known: one of these.
    pub fn narrow(&mut self, deal: usize, to: u8, why: &str) -> Verdict {
        let of = &mut self.deals[deal];
        let left = of.can & to;
        if left == 0 {
            return Err(format!("a transaction is half done: {why}, but {of:?}"));
        }
        of.can = left;
        if matches!(left, NOTHING | DONE) && !std::mem::replace(&mut of.told, true) {
            let topics = of.topics.clone();
            self.decided.extend(topics.into_iter().map(|n| (n, left == DONE)));
        }
        Ok(())
    }

    /// A job that it sends was delivered.
    pub fn deal_is_done(&mut self, deal: usize) -> Verdict {
        self.narrow(deal, DONE, "a message that it sends was delivered")
    }

    /// A job that it takes was delivered to somebody.
    pub fn deal_did_not_take(&mut self, deal: usize) -> Verdict {
        self.narrow(deal, NOTHING, "a message that it takes was delivered again")
    }

    /// Nobody may have decided in time.
    pub fn deals_pass_time(&mut self) {
        let now = self.wall_max + TIMEOUT_SLACK_MILLIS;
        for deal in self.deals.iter_mut().filter(|deal| deal.can & PREPARED != 0) {
            if deal.prepared_at.is_some_and(|at| now >= at + u64::from(PREPARED_TIMEOUT_SECS) * 1000) {
                deal.can |= NOTHING;
                deal.asked = true;
            }
        }
    }

    /// Deals that were to be prepared, by number, whatever became of them.
    pub fn all_named(&self) -> Vec<usize> {
        (0..self.deals.len()).filter(|deal| self.deals[*deal].settled).collect()
    }

    /// Deals that may be prepared, by number.
    pub fn undecided(&self) -> Vec<usize> {
        let may_be = |deal: &usize| self.deals[*deal].can & PREPARED != 0 && self.deals[*deal].settled;
        (0..self.deals.len()).filter(may_be).collect()
    }
}
