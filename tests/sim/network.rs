//! The wires between the cast and the gateway, and what one round of the gateway's driver does.

use tidegate::broker::api::ConnId;
use tidegate::net::hub::{Output, Turn};
use tidegate::net::origin::{Origin, PeerAddress, Protocol};

use crate::action::Pace;
use crate::cast::{CLIENTS, LINK};
use crate::ledger::Verdict;
use crate::speech;
use crate::wire::Wire;
use crate::worker::WORKERS;
use crate::world::World;

/// Bytes that a socket holds.
const SOCKET_BYTES: usize = 1 << 10;
/// Bytes of one read.
const READ_BYTES_MAX: u64 = 2 << 10;
/// All ends of wires.
const PEERS: usize = CLIENTS + WORKERS;

impl World {
    /// The wire of a client, or behind those of a worker.
    fn wire(&mut self, peer: usize) -> Option<&mut Wire> {
        if peer < CLIENTS {
            return self.clients[peer].conn.as_mut().map(|conn| &mut conn.wire);
        }
        self.workers[peer - CLIENTS].wire.as_mut()
    }

    pub(super) fn connect(&mut self, client: usize, clean: bool) {
        let now = self.gateway().now();
        if let Some(old) = &self.clients[client].conn {
            self.orphans.push(old.wire.id);
        }
        let hub = &mut self.gateway().hub;
        let id = if client == LINK {
            Some(hub.open_port())
        } else {
            hub.open(Protocol::Mqtt, Origin::plain(PeerAddress::Local), now)
        };
        let Some(id) = id else { return };
        self.clients[client].connect(id, clean, &mut self.random, &mut self.ledger, now);
        self.clients[client].holding = client == LINK && self.black_hole;
    }

    pub(super) fn drop_connection(&mut self, client: usize) {
        let now = self.gateway().now();
        let Some(id) = self.clients[client].conn.as_ref().map(|conn| conn.wire.id) else { return };
        self.clients[client].lose(&mut self.ledger);
        self.gateway().hub.lost(id, now);
        self.orphans.push(id);
    }

    /// One round of the gateway: sockets are read, the store gets its batch, sockets are written, the store works. `true`:
    /// the process ended and another one has been started.
    pub(super) fn round(&mut self, pace: Pace) -> Result<bool, String> {
        self.pass(1);
        let first = self.random.below(PEERS as u64) as usize;
        for peer in (0..PEERS).map(|n| (first + n) % PEERS) {
            self.read_from(peer);
        }
        self.gateway().tick();
        self.count_refusals();
        // A driver that commits a lone batch itself writes first what does not wait for it.
        let now = self.gateway().now();
        if self.gateway().hub.is_calm(now) {
            self.write_all()?;
            self.gateway().submit();
        } else {
            self.gateway().submit();
            self.write_all()?;
        }
        self.gateway().work(pace);
        self.gateway().hear_store();
        if let Some(ended) = self.look_for_the_end()? {
            return Ok(ended);
        }
        // Answers to what the store said leave in the same round half of the time.
        if self.random.chance(2) {
            self.gateway().submit();
            self.write_all()?;
        }
        Ok(false)
    }

    /// The power or the store may have failed.
    fn look_for_the_end(&mut self) -> Result<Option<bool>, String> {
        let failed = self.gateway().failed.clone();
        if !self.media.is_off() && failed.is_none() {
            return Ok(None);
        }
        let in_checkpoint = self.gateway().store.is_mid_fold();
        if self.media.is_off() {
            self.tally.count("power cuts", 1);
            self.tally.count("power cuts during a checkpoint", u64::from(in_checkpoint));
        } else {
            self.tally.count("disk failures", 1);
            if !self.media.has_failed_once() {
                return Err(format!("the store failed on a good disk: {}", failed.unwrap_or_default()));
            }
            // The driver may still write once before it stops.
            self.write_all()?;
        }
        let again = if self.media.is_off() { self.cut.again } else { 0 };
        let media = self.media.clone();
        self.end_process()?;
        self.media = media;
        // After a failed sync the cache may hold what the disk does not: that is lost, as it is with the power.
        self.lose_power();
        self.start(again)?;
        Ok(Some(true))
    }

    /// What a client has sent reaches the gateway, in pieces.
    fn read_from(&mut self, peer: usize) {
        let factor = u64::from(self.setting.scale.factor());
        let most = 1 + self.random.below(READ_BYTES_MAX * factor) as usize;
        let Some(gateway) = &self.gateway else { return };
        if gateway.store_is_behind() {
            return;
        }
        if peer == LINK {
            return self.read_from_link();
        }
        let Some(mut wire) = self.wire(peer).filter(|wire| !wire.ended) else { return };
        if wire.blocked {
            let id = wire.id;
            if self.gateway().hub.is_blocked(id) {
                return;
            }
            let Some(again) = self.wire(peer) else { return };
            wire = again;
        }
        wire.blocked = false;
        let bytes: Vec<u8> = wire.up.drain(..most.min(wire.up.len())).collect();
        if !bytes.is_empty() {
            let id = wire.id;
            self.hand_over(peer, id, &bytes);
        }
    }

    fn hand_over(&mut self, peer: usize, id: ConnId, bytes: &[u8]) {
        let gives_up = self.random.chance(2);
        let gateway = self.gateway();
        let now = gateway.now();
        let turn = gateway.hub.received(id, bytes, now);
        if turn == Turn::Congested && gives_up {
            gateway.hub.give_up_waiting();
        }
        gateway.submit_if_large();
        if let Some(wire) = self.wire(peer) {
            wire.ended |= turn == Turn::End;
            wire.blocked = turn == Turn::Blocked;
        }
    }

    fn read_from_link(&mut self) {
        let Some(gateway) = &mut self.gateway else { return };
        let now = gateway.now();
        let Some(conn) = self.clients[LINK].conn.as_mut().filter(|conn| !conn.wire.ended) else { return };
        while let Some(command) = conn.commands.pop_front() {
            gateway.hub.command(conn.wire.id, command, now);
            gateway.submit_if_large();
        }
        gateway.hub.finish_turn(now);
    }

    /// Writes what waits, lets clients read it, and closes what has ended.
    pub(super) fn write_all(&mut self) -> Verdict {
        let now = self.gateway().now();
        let mut left = self.gateway().hub.dirty_len();
        while left > 0
            && let Some(id) = self.gateway().hub.next_dirty()
        {
            left -= 1;
            self.write(id)?;
        }
        self.gateway().hub.finish_turn(now);
        self.gateway().hub.take_unblocked().for_each(drop);
        let ends = self.gateway().hub.take_finished();
        for peer in 0..PEERS {
            let Some(id) = self.wire(peer).map(|wire| wire.id) else { continue };
            let stalls = match peer.checked_sub(CLIENTS) {
                None => self.clients[peer].stalled,
                Some(worker) => self.workers[worker].stalled,
            };
            if !stalls {
                self.read_at(peer)?;
                self.gateway().hub.touch(id);
            }
            if self.gateway().hub.is_finished(id) || ends.contains(&id) {
                self.read_at(peer)?;
                self.close(peer)?;
                self.gateway().hub.closed(id, now);
            }
        }
        for id in std::mem::take(&mut self.orphans) {
            self.gateway().hub.abandon(id, now);
            self.gateway().hub.closed(id, now);
        }
        self.settle_deals()
    }

    /// A client reads what has arrived.
    fn read_at(&mut self, peer: usize) -> Verdict {
        if let Some(worker) = peer.checked_sub(CLIENTS) {
            return self.read_worker(worker);
        }
        let now = self.gateway().now();
        self.clients[peer].read(&mut self.ledger, now)
    }

    fn close(&mut self, peer: usize) -> Verdict {
        if let Some(worker) = peer.checked_sub(CLIENTS) {
            return self.workers[worker].lose(&mut self.book, &mut self.ledger);
        }
        self.clients[peer].closed(&mut self.ledger);
        Ok(())
    }

    fn write(&mut self, id: ConnId) -> Verdict {
        let now = self.gateway().now();
        let owner = (0..PEERS).find(|peer| self.wire(*peer).is_some_and(|wire| wire.id == id));
        let Some(peer) = owner else {
            self.gateway().hub.abandon(id, now);
            return Ok(());
        };
        if peer == LINK {
            while let Some(event) = self.gateway().hub.next_port_event(id) {
                self.clients[LINK].hear(speech::event(event), &mut self.ledger, now)?;
            }
            return Ok(());
        }
        let most = SOCKET_BYTES * self.setting.scale.factor() as usize;
        loop {
            let before = self.wire(peer).map_or(most, |wire| wire.down.len());
            let room = most.saturating_sub(before);
            let bytes: Vec<u8> = match self.gateway().hub.output(id) {
                None => return Ok(()),
                Some(Output::Single(bytes)) => bytes.iter().take(room).copied().collect(),
                Some(Output::Many(slices)) => {
                    slices.iter().flat_map(|slice| slice.iter()).take(room).copied().collect()
                }
            };
            if bytes.is_empty() {
                return Ok(());
            }
            if let Some(wire) = self.wire(peer) {
                wire.down.extend(&bytes);
            }
            self.gateway().hub.wrote(id, bytes.len(), now);
        }
    }
}
