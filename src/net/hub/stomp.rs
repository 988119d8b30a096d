//! What the hub does for STOMP alone: branches, heart-beats, and deliveries that are settled when they are written.

use super::peer::Peer;
use super::{Hub, index};
use crate::broker::api::{ClientCommand, ConnId};
use crate::time::Now;

impl Hub {
    /// A branch's command: the branch is opened with its first and closed with its last one.
    pub(super) fn branch_command(&mut self, key: usize, number: u32, command: ClientCommand, now: Now) {
        let parent = self.slots[key].id;
        let Some(id) = self.branch(key, number, matches!(command, ClientCommand::Connect(_))) else { return };
        self.broker.take_refusal();
        match command {
            // It is the same client, whatever session it asks for.
            ClientCommand::Connect(request) => {
                let identity = self.broker.identity(parent);
                self.broker.connect_as(id, *request, identity, now);
            }
            command => self.branch_handle(id, command, now),
        }
        self.check_refusal(key, now);
    }

    /// The connection of a branch.
    fn branch(&mut self, key: usize, number: u32, opens: bool) -> Option<ConnId> {
        let parent = self.slots[key].id;
        let Peer::Stomp(adapter) = &mut self.slots[key].peer else { return None };
        let known = adapter.branches().get(&number).copied();
        if known.is_some() || !opens {
            return known;
        }
        let id = self.add(Peer::Branch { parent, number }, None);
        if let Peer::Stomp(adapter) = &mut self.slots[key].peer {
            adapter.branches().insert(number, id);
        }
        Some(id)
    }

    fn branch_handle(&mut self, id: ConnId, command: ClientCommand, now: Now) {
        let last = matches!(command, ClientCommand::Disconnect { .. } | ClientCommand::Lost);
        self.broker.handle(id, command, now);
        if last {
            self.forget_branch(id);
        }
    }

    fn forget_branch(&mut self, id: ConnId) {
        let Some(key) = self.key(id) else { return };
        let Peer::Branch { parent, number } = self.slots[key].peer else { return };
        self.slots.remove(key);
        if let Some(parent) = self.key(parent)
            && let Peer::Stomp(adapter) = &mut self.slots[parent].peer
        {
            adapter.branches().remove(&number);
        }
    }

    /// The connection ends, and its branches with it.
    pub(super) fn end_branches(&mut self, key: usize, now: Now) {
        let Peer::Stomp(adapter) = &mut self.slots[key].peer else { return };
        for id in std::mem::take(adapter.branches()).into_values() {
            self.broker.handle(id, ClientCommand::Lost, now);
            if self.key(id).is_some() {
                self.slots.remove(index(id));
            }
        }
    }

    /// A command that an event has led to.
    pub(super) fn follow_up(&mut self, id: ConnId, command: ClientCommand, now: Now) {
        match self.key(id).map(|key| &self.slots[key].peer) {
            Some(Peer::Branch { .. }) => self.branch_handle(id, command, now),
            _ => self.broker.handle(id, command, now),
        }
    }

    /// Commands that the last event or write has led to are carried out when all events have been heard.
    pub(super) fn gather_commands(&mut self, key: usize) {
        loop {
            let id = self.slots[key].id;
            let Peer::Stomp(adapter) = &mut self.slots[key].peer else { return };
            let Some((number, command)) = adapter.take_command() else { return };
            let id = if number == 0 { Some(id) } else { adapter.branches().get(&number).copied() };
            self.followups.extend(id.map(|id| (id, command)));
        }
    }

    /// If what the client has just asked for is refused, nothing that it has sent behind it is heard: ERROR ends the conversation.
    pub(super) fn check_refusal(&mut self, key: usize, now: Now) {
        let Some(refusal) = self.broker.take_refusal() else { return };
        self.answers.clear();
        if let Peer::Stomp(adapter) = &mut self.slots[key].peer {
            adapter.refused(&refusal, now, &mut self.answers);
        }
        self.flush_answers(key);
    }

    /// Heart-beats and the ends of waiting.
    pub(super) fn stomp_deadline(&mut self, key: usize, now: Now) {
        let slot = &mut self.slots[key];
        let excused = slot.must_wait() || now.mono < self.excused;
        let Peer::Stomp(adapter) = &mut slot.peer else { return };
        self.answers.clear();
        let goes_on = adapter.check_deadline(excused, now, &mut self.answers, &mut self.traffic);
        let next = adapter.deadline();
        self.flush_answers(key);
        match next {
            _ if !goes_on => self.end_unasked(key, now),
            Some(at) => self.list_deadline(key, at),
            None => {}
        }
    }

    /// The client has closed its side. `true`: it gets its receipts first.
    pub(super) fn half_closed(&mut self, key: usize, now: Now) -> bool {
        let slot = &mut self.slots[key];
        let Peer::Stomp(adapter) = &mut slot.peer else { return false };
        let waits = !slot.ending && slot.partial.is_empty() && adapter.said_all(now);
        self.note_deadline(key);
        waits
    }

    /// A read has arrived.
    pub(super) fn note_arrival(&mut self, key: usize, now: Now) {
        if let Peer::Stomp(adapter) = &mut self.slots[key].peer {
            adapter.heard(now);
        }
    }

    /// Lists the deadline of a connection if it has moved.
    pub(super) fn note_deadline(&mut self, key: usize) {
        if let Peer::Stomp(adapter) = &mut self.slots[key].peer
            && let Some(at) = adapter.moved_deadline()
        {
            self.list_deadline(key, at);
        }
    }

    /// A congested connection takes nothing from its branches either.
    pub(super) fn congest_branches(&mut self, key: usize, congested: bool, now: Now) {
        let Peer::Stomp(adapter) = &mut self.slots[key].peer else { return };
        for id in adapter.branches().values() {
            self.broker.set_congested(*id, congested, now);
        }
    }
}
