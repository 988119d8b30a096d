//! A full scan that compares every counter and every link between the broker's tables (invariants I2, I4, I5), for tests and
//! simulations.

use crate::broker::Broker;
use crate::broker::subscribe::subscription_bytes;
use crate::broker::tick::Timer;
use crate::queue::expiry::Pass;
use crate::queue::window::entry_memory;
use crate::queue::{Load, Owner};
use crate::session::Session;
use crate::session::inflight::Stage;

impl Broker {
    /// Compares every counter and every link with a full scan.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn check(&self) {
        self.check_queues();
        let s = &self.stats;
        let gone =
            s.settled + s.settled_refused + s.dropped_expired + s.dropped_oldest + s.dropped_with_session;
        let gone = gone + s.dropped_denied + s.purged;
        assert_eq!(s.enqueued + s.restored, gone + self.gauges().queued, "I4: every copy is accounted for");
        for (key, session) in &self.sessions {
            self.check_session(key as u32, session);
        }
        assert_eq!(self.clients.len(), self.sessions.len(), "every session has its client identifier");
        for (conn, key) in &self.conns {
            assert_eq!(
                self.sessions[*key as usize].conn,
                Some(*conn),
                "connections and sessions know each other"
            );
        }
        let of_session = |session: &Session| {
            session.subscriptions.len() + session.consumers.as_ref().map_or(0, |own| own.len())
        };
        let subscriptions: usize = self.sessions.iter().map(|(_, session)| of_session(session)).sum();
        assert_eq!(subscriptions, self.subscriptions, "I4: subscriptions");
        let all = self.sessions.iter().flat_map(|(_, session)| session.subscriptions.keys());
        let sys = all.filter(|filter| super::sys::is_sys_filter(filter)).count();
        assert_eq!(sys, self.sys.subscriptions, "I4: subscriptions to the broker's own topics");
        let open = self.sessions.iter().filter_map(|(_, session)| session.transactions.as_deref());
        let held: u64 = open.flat_map(|own| own.values()).map(|transaction| transaction.bytes).sum();
        let prepared: u64 = self.prepared.open.values().map(|prepared| prepared.bytes).sum();
        assert_eq!(held + prepared, self.transaction_bytes, "I4: memory of transactions");
        let filters = self.sessions.iter().flat_map(|(_, session)| session.subscriptions.keys());
        let members = self.groups.iter().flat_map(|(_, group)| group.members());
        let consumers: usize = members.filter_map(|m| m.consumer.as_ref()).map(|c| c.memory()).sum();
        let bytes = consumers + filters.map(|filter| subscription_bytes(filter)).sum::<usize>();
        assert_eq!(bytes, self.subscription_bytes, "I4: memory of subscriptions");
        let timers = self.sessions.iter().filter(|(_, session)| session.end_at.is_some()).count()
            + self.wills.values().filter(|pending| pending.due.is_some()).count()
            + self.queues.iter().filter(|(_, queue)| matches!(queue.pass, Pass::Due(_))).count()
            + self.prepared.open.values().filter(|prepared| prepared.deadline.is_some()).count();
        assert_eq!(timers, self.timers.len(), "I4: deadlines");
        for (client, pending) in &self.wills {
            let set = pending.due.is_none_or(|at| self.timers.contains(&(at, Timer::Will(client.clone()))));
            assert!(set, "a will's deadline is set");
        }
    }

    fn check_queues(&self) {
        let mut memory = 0;
        let mut loads = 0;
        for (key, queue) in &self.queues {
            queue.check();
            memory += queue.window_memory();
            loads += u32::from(matches!(queue.load(), Load::Asked { .. }));
            let owned = match queue.owner() {
                Owner::Session(session) => self.sessions[session as usize].queue,
                Owner::Group(group) => self.groups[group as usize].queue(),
            };
            assert_eq!(owned as usize, key, "a queue and its owner know each other");
            let queue_ref = self.queue_ref(key as u32);
            let slots = self.sessions.iter().flat_map(|(_, session)| session.inflight.iter());
            let under_way = slots
                .chain(self.prepared_slots())
                .filter(|slot| matches!(slot.stage, Stage::AwaitAck | Stage::AwaitReceived))
                .filter(|slot| slot.queue == queue_ref)
                .count();
            assert_eq!(under_way, queue.unsettled() as usize, "I4: deliveries under way");
        }
        let slots = self.sessions.iter().flat_map(|(_, session)| session.inflight.iter());
        memory += slots
            .chain(self.prepared_slots())
            .filter_map(|slot| slot.held.as_ref())
            .map(|held| entry_memory(&held.message))
            .sum::<usize>();
        assert_eq!(memory, self.budget.used(), "I4: memory of queued messages");
        assert_eq!(loads, self.loads, "I4: pages under way");
    }

    fn check_session(&self, key: u32, session: &Session) {
        session.inflight.check();
        assert_eq!(
            self.clients.get(&session.client_id),
            Some(&key),
            "a session is found by its client identifier"
        );
        if let Some(conn) = session.conn {
            assert_eq!(self.conns.get(&conn), Some(&key), "a session's connection is known");
            // Those that wait for PUBCOMP may come from a connection with a larger window.
            let slots = session.inflight.iter();
            let sent =
                slots.filter(|slot| matches!(slot.stage, Stage::AwaitAck | Stage::AwaitReceived)).count();
            assert!(sent <= usize::from(session.window_max), "the window is kept");
        }
        let parked = session.inflight.iter().filter(|slot| slot.stage == Stage::Parked);
        let mut parked: Vec<_> = parked.map(|slot| (slot.seq, slot.id)).collect();
        parked.sort_unstable();
        let resend: Vec<_> = session.resend.iter().map(|(seq, id)| (*seq, *id)).collect();
        assert_eq!(parked, resend, "what is parked is sent again");
        if let Some(at) = session.end_at {
            assert!(session.conn.is_none() && self.timers.contains(&(at, Timer::SessionEnd(key))));
        }
        for group in &session.groups {
            let members = self.groups[*group as usize].members();
            assert!(members.iter().any(|member| member.session == key), "a group knows its members");
        }
    }
}
