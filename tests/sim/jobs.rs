//! The reference for named queues: jobs, which are sent once and must be in exactly one place until somebody has taken them.
//!
//! As in the [ledger](crate::ledger), everything is judged from what the workers and the operator have seen. What nobody can know
//! is *maybe*, and then nothing is demanded. Transactions are in [`crate::deals`], the look into the store after a restart in
//! [`crate::stock`].

use std::collections::{BTreeMap, BTreeSet};

use tidegate::broker::api::ConnId;

use crate::deals::Deal;
use crate::ledger::{Number, Verdict};
use crate::queues::QUEUES;

/// Numbers of jobs begin here, so that a payload tells what it is.
pub const JOBS_FROM: u64 = 1 << 40;

/// What is known of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sure {
    No,
    Maybe,
    Yes,
}

/// How a delivery is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Accept,
    /// Back to its place.
    Return,
    /// Never again: a dead letter, if its queue has such.
    Bury,
}

/// A message of a named queue.
#[derive(Clone, Debug)]
pub struct Job {
    /// The connection that sent it.
    source: ConnId,
    pub queue: usize,
    len: usize,
    /// Wall time from which on it may be dropped.
    expires: Option<u64>,
    /// The gateway has it, apart from transactions.
    pub born: Sure,
    /// Somebody has taken it, apart from transactions.
    pub gone: Sure,
    /// An operator may have removed it.
    pub removable: bool,
    /// The deal that sends it.
    pub deal: Option<usize>,
    /// Deals that take it.
    pub taken_by: Vec<usize>,
    /// Queues where it may be.
    pub places: BTreeSet<usize>,
    /// Queues where a consumer has seen it since it came there.
    seen: BTreeSet<usize>,
    /// Those of them where it was seen without a mark: the first time that it was handed out there.
    seen_plain: BTreeSet<usize>,
    /// Who has seen it last; nothing is known of an MQTT client.
    seen_by: Option<ConnId>,
    /// The connection that it is under way on.
    holder: Option<ConnId>,
    /// The process in which its delivery settled it.
    settled_in: Option<u64>,
    /// An operator may have moved it, which changes the order.
    moved: bool,
    /// It came to the taker with QoS 2: nobody may get it any more.
    once: bool,
}

/// A delivery as a worker got it.
#[derive(Clone, Copy, Debug)]
pub struct Handed {
    pub job: u64,
    pub queue: usize,
    pub conn: ConnId,
    /// The subscription on that connection.
    pub subscription: u32,
    pub len: usize,
    pub redelivered: bool,
    pub browsed: bool,
    /// Its delivery settles it.
    pub auto: bool,
}

/// All jobs and deals.
#[derive(Default)]
pub struct Book {
    pub jobs: Vec<Job>,
    pub deals: Vec<Deal>,
    /// Messages of topics whose deals are decided: it happened, or it never did.
    pub decided: Vec<(Number, bool)>,
    /// The gateway's time: now, and the latest that it ever was.
    pub wall: u64,
    pub wall_max: u64,
    process: u64,
    /// Jobs that operators were told they removed, and those that were found missing.
    pub removed: u64,
    pub vanished: u64,
    /// The last job without a mark that came to a subscription from each source.
    last: BTreeMap<(ConnId, u32, ConnId), u64>,
    pub taken: u64,
}

impl Job {
    /// A consumer has it before its eyes.
    fn note_seen(&mut self, handed: &Handed) {
        self.seen.insert(handed.queue);
        self.seen_by = Some(handed.conn);
        if !handed.redelivered {
            self.seen_plain.insert(handed.queue);
        }
    }
}

impl Book {
    pub fn job(&self, job: u64) -> Option<&Job> {
        self.jobs.get(usize::try_from(job.checked_sub(JOBS_FROM)?).ok()?)
    }

    pub fn job_mut(&mut self, job: u64) -> &mut Job {
        &mut self.jobs[(job - JOBS_FROM) as usize]
    }

    /// A process has started.
    pub fn started(&mut self) {
        self.process += 1;
        self.last.clear();
        self.jobs.iter_mut().for_each(|job| job.holder = None);
    }

    pub fn pass_time(&mut self, wall: u64) {
        self.wall = wall;
        self.wall_max = self.wall_max.max(wall);
        self.deals_pass_time();
    }

    /// A job leaves its sender, as part of a deal or by itself.
    pub fn send(
        &mut self,
        source: ConnId,
        queue: usize,
        len: usize,
        ttl_millis: Option<u64>,
        deal: Option<usize>,
    ) -> u64 {
        let number = JOBS_FROM + self.jobs.len() as u64;
        self.jobs.push(Job {
            source,
            queue,
            len,
            expires: ttl_millis.map(|millis| self.wall + millis),
            born: Sure::Maybe,
            gone: Sure::No,
            removable: false,
            deal,
            taken_by: vec![],
            places: std::iter::once(queue).chain(QUEUES[queue].dead_letters).collect(),
            seen: BTreeSet::new(),
            seen_plain: BTreeSet::new(),
            seen_by: None,
            holder: None,
            settled_in: None,
            moved: false,
            once: false,
        });
        if let Some(deal) = deal {
            self.deals[deal].sends.push(number);
        }
        number
    }

    /// Its sender hears whether it was accepted.
    pub fn answered(&mut self, job: u64, accepted: bool) -> Verdict {
        let job_of = self.job_mut(job);
        if accepted {
            job_of.born = Sure::Yes;
            return Ok(());
        }
        let was_seen = !job_of.seen.is_empty();
        job_of.born = Sure::No;
        if was_seen { Err(format!("job {} was delivered and then refused", job - JOBS_FROM)) } else { Ok(()) }
    }

    /// The gateway has it.
    pub fn born(&self, job: &Job) -> Sure {
        match job.deal {
            Some(deal) => self.deals[deal].is_done(),
            None => job.born,
        }
    }

    /// Somebody has taken it.
    pub fn gone(&self, job: &Job) -> Sure {
        let by_deals = job.taken_by.iter().map(|deal| self.deals[*deal].is_done()).max();
        job.gone.max(by_deals.unwrap_or(Sure::No))
    }

    /// Its time may be over.
    pub fn may_expire(&self, job: &Job) -> bool {
        job.expires.is_some_and(|at| self.wall_max >= at)
    }

    /// It may be dropped without anybody having taken it.
    pub fn may_vanish(&self, job: &Job) -> bool {
        job.removable || self.may_expire(job)
    }

    /// A consumer gets a job. `lives` tells whether the gateway still has a connection.
    pub fn handed(&mut self, handed: &Handed, lives: &dyn Fn(ConnId) -> bool) -> Verdict {
        let n = handed.job.wrapping_sub(JOBS_FROM);
        let queue = QUEUES[handed.queue].name;
        let Some(job) = self.job(handed.job).cloned() else { return Err(format!("nobody sent job {n}")) };
        let bad = |what: &str| Err(format!("job {n} came from queue {queue} {what}: {job:?}"));
        if handed.len != job.len.max(8) || !job.places.contains(&handed.queue) {
            return bad("changed or from the wrong place");
        }
        if let Some(deal) = job.deal {
            self.deal_is_done(deal)?;
        }
        if self.born(&job) == Sure::No {
            return bad("although it was refused");
        }
        // What a connection that has ended left unread in its socket is read late: after what was handed out later.
        let lives_on = lives(handed.conn);
        let elsewhere = job.holder.is_some_and(|holder| holder != handed.conn && lives(holder));
        if handed.browsed {
            return Ok(());
        }
        let seen = if lives_on { &job.seen } else { &job.seen_plain };
        if seen.contains(&handed.queue) && !handed.redelivered {
            return bad("again without saying so");
        }
        let is_last = job.seen_by == Some(handed.conn);
        if !lives_on && !is_last && (elsewhere || self.gone(&job) == Sure::Yes) {
            let job = self.job_mut(handed.job);
            let last = job.seen_by;
            job.note_seen(handed);
            job.seen_by = last;
            return Ok(());
        }
        if self.gone(&job) == Sure::Yes {
            return bad("although it was taken");
        }
        if job.once {
            return bad("although it was delivered exactly once");
        }
        if job.settled_in == Some(self.process) {
            return bad("again in the process that settled it");
        }
        if elsewhere {
            return bad("while it was under way to another consumer");
        }
        for deal in &job.taken_by {
            self.deal_did_not_take(*deal)?;
        }
        self.in_order(handed, &job)?;
        self.note_handed(handed, lives_on);
        Ok(())
    }

    /// The MQTT client among the consumers gets a job.
    pub fn handed_to_taker(&mut self, number: u64, qos: u8, again: bool) -> Verdict {
        let n = number.wrapping_sub(JOBS_FROM);
        let Some(job) = self.job(number).cloned() else { return Err(format!("nobody sent job {n}")) };
        if let Some(deal) = job.deal {
            self.deal_is_done(deal)?;
        }
        if again {
            self.job_mut(number).gone = Sure::Maybe;
            return Ok(());
        }
        if self.born(&job) == Sure::No || self.gone(&job) == Sure::Yes {
            return Err(format!("job {n} came to the taker: {job:?}"));
        }
        if job.once {
            return Err(format!("I8: job {n} came twice with QoS 2: {job:?}"));
        }
        for deal in &job.taken_by {
            self.deal_did_not_take(*deal)?;
        }
        let job = self.job_mut(number);
        // It acknowledges at some time, and nobody tells it when that is durable.
        job.gone = Sure::Maybe;
        (job.holder, job.seen_by, job.once) = (None, None, qos == 2);
        Ok(())
    }

    fn in_order(&mut self, handed: &Handed, job: &Job) -> Verdict {
        if handed.redelivered || job.moved || job.deal.is_some() || handed.queue != job.queue {
            return Ok(());
        }
        let key = (handed.conn, handed.subscription, job.source);
        let last = self.last.insert(key, handed.job).unwrap_or(0);
        if last > handed.job {
            let queue = QUEUES[handed.queue].name;
            let (n, last) = (handed.job - JOBS_FROM, last - JOBS_FROM);
            return Err(format!("I3: queue {queue} hands out job {n} after {last}"));
        }
        Ok(())
    }

    fn note_handed(&mut self, handed: &Handed, lives: bool) {
        let process = self.process;
        self.taken += u64::from(handed.auto);
        let job = self.job_mut(handed.job);
        // That it is here shows that no earlier answer counts; it may have left before it was durable.
        job.gone = Sure::No;
        job.note_seen(handed);
        job.holder = Some(handed.conn).filter(|_| !handed.auto);
        if handed.auto {
            job.gone = Sure::Maybe;
            // What was still on its way when the gateway ended the connection goes back to its queue.
            job.settled_in = Some(process).filter(|_| lives);
        }
    }

    /// The consumer's socket had taken all of a job that settles itself, and its client never read it.
    pub fn settled_unseen(&mut self, job: u64) {
        if job >= JOBS_FROM && self.job(job).is_some() {
            let job = self.job_mut(job);
            job.gone = job.gone.max(Sure::Maybe);
        }
    }

    /// The delivery is under way to its consumer no longer.
    pub fn release(&mut self, job: u64) {
        self.job_mut(job).holder = None;
    }

    /// An answer to a delivery leaves its consumer.
    pub fn answer(&mut self, job: u64, queue: usize, answer: Answer) {
        let dead_letters = QUEUES[queue].dead_letters;
        let job = self.job_mut(job);
        job.holder = None;
        match answer {
            Answer::Accept => job.gone = job.gone.max(Sure::Maybe),
            Answer::Bury if dead_letters.is_none() => job.gone = job.gone.max(Sure::Maybe),
            Answer::Bury => job.places.extend(dead_letters),
            Answer::Return => {}
        }
    }

    /// The answer is durable.
    pub fn answer_is_durable(&mut self, job: u64, queue: usize, answer: Answer) {
        if answer == Answer::Accept || (answer == Answer::Bury && QUEUES[queue].dead_letters.is_none()) {
            self.job_mut(job).gone = Sure::Yes;
            self.taken += 1;
        }
    }

    // What operators do.

    /// All that waits, or some of it, was removed from a queue.
    pub fn removed(&mut self, queue: usize, count: u64, with_queue: bool) {
        self.removed += count;
        for job in self.jobs.iter_mut().filter(|job| count > 0 && job.places.contains(&queue)) {
            job.removable = true;
        }
        if with_queue {
            self.jobs.iter_mut().for_each(|job| {
                job.seen.remove(&queue);
                job.seen_plain.remove(&queue);
            });
        }
    }

    /// Some of what waits went to the other queue.
    pub fn moved(&mut self, from: usize, to: usize) {
        for job in self.jobs.iter_mut().filter(|job| job.places.contains(&from)) {
            job.places.insert(to);
            job.places.extend(QUEUES[to].dead_letters);
            job.seen.remove(&to);
            job.seen_plain.remove(&to);
            job.moved = true;
        }
    }
}
