//! Comparisons of the accounts with what the store holds, and with what was delivered.

use std::collections::BTreeMap;

use super::{Fate, Ledger, Number, Retained, Verdict};
use crate::cast::{CLIENTS, FOLLOWER, GROUP, GROUP_FILTER, is_member, name};
use crate::gateway::Content;

impl Ledger {
    fn owed(&self, session: usize) -> impl Iterator<Item = Number> + '_ {
        let lives = |n: &Number| self.sent[*n as usize - 1].expires.is_none_or(|at| self.wall_max < at);
        self.sessions[session].owed.iter().copied().filter(lives)
    }

    /// Compares what the store holds after a restart with what is owed. By queue: its name and its messages in order.
    pub fn check_content(&self, content: &Content) -> Verdict {
        let queues = &content.queues;
        self.check_retained(&content.retained)?;
        let none = vec![];
        let of = |name: &str| queues.get(name).unwrap_or(&none);
        for (queue, numbers) in queues {
            let mut counts: BTreeMap<Number, u32> = BTreeMap::new();
            for n in numbers {
                *counts.entry(*n).or_default() += 1;
                let sent =
                    self.sent(*n).ok_or_else(|| format!("queue {queue} holds {n}, which nobody sent"))?;
                if sent.fate == Fate::Refused {
                    return Err(format!("queue {queue} holds {n}, which was refused"));
                }
                if !sent.draft.retain && counts[n] > sent.attempts {
                    return Err(format!("I6: queue {queue} holds {n} {} times", counts[n]));
                }
            }
        }
        for session in (0..CLIENTS).chain([FOLLOWER]).filter(|session| !is_member(*session)) {
            if let Some(n) =
                self.owed(session).find(|n| !of(name(session)).contains(n) && !content.moving.contains(n))
            {
                return Err(format!("I1: message {n} for {} is lost", name(session)));
            }
        }
        let members: Vec<&str> = (0..CLIENTS).filter(|client| is_member(*client)).map(name).collect();
        let anywhere =
            |n: &Number| of(GROUP_FILTER).contains(n) || members.iter().any(|member| of(member).contains(n));
        match self.owed(GROUP).find(|n| !anywhere(n) && !content.moving.contains(n)) {
            Some(n) => Err(format!("I1: message {n} for the shared subscription is lost")),
            None => Ok(()),
        }
    }

    /// At the end nothing may be owed any more.
    pub fn check_paid(&self) -> Verdict {
        for session in 0..=FOLLOWER {
            if let Some(n) = self.owed(session).next() {
                let who = name(session);
                return Err(format!("message {n} for {who} was never delivered: {:?}", self.sent(n)));
            }
        }
        Ok(())
    }

    /// Retained topics have the last acknowledged value, or a later one.
    pub fn check_retained(&self, values: &BTreeMap<String, Number>) -> Verdict {
        if let Some(topic) = values.keys().find(|topic| !self.retained.contains_key(*topic)) {
            return Err(format!("{topic} has a value that nobody sent"));
        }
        let mut all = self.retained.iter();
        all.try_for_each(|(topic, retained)| self.check_value(topic, retained, values.get(topic).copied()))
    }

    fn check_value(&self, topic: &str, retained: &Retained, value: Option<Number>) -> Verdict {
        let allowed = &retained.values[retained.acknowledged..];
        let expired = |n: &Option<Number>| {
            let sent = n.and_then(|n| self.sent(n));
            sent.and_then(|sent| sent.expires).is_some_and(|at| self.wall_max >= at)
        };
        let late = value.and_then(|n| self.sent(n)).is_some_and(|sent| sent.maybe_refused);
        if late || allowed.contains(&value) || (value.is_none() && allowed.iter().any(expired)) {
            return Ok(());
        }
        Err(format!("I1: {topic} is {value:?}, allowed is {allowed:?}"))
    }
}
