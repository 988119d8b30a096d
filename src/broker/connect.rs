//! Opening and resuming sessions.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::access::Identity;
use crate::broker::Broker;
use crate::broker::api::{
    ClientEvent, CloseReason, ConnId, ConnectRequest, Connected, DeliveryId, Refusal, SessionExpiry, Will,
};
use crate::broker::effects::Effect;
use crate::broker::wills::PendingWill;
use crate::queue::{Owner, Queue, QueueKey};
use crate::session::inflight::Stage;
use crate::session::rows::{SessionRow, encode_will};
use crate::session::{Session, SessionKey};
use crate::store::contract::{BatchId, QueueId, Seq, Space};
use crate::time::{Now, Wall};
use crate::topic;

/// Deliveries under way to one client at most, so that identifiers are left for those that are to be repeated.
const WINDOW_MESSAGES_MAX: u16 = 32_767;

impl Broker {
    /// Opens a session for a client that has proved who it is.
    pub fn connect_as(&mut self, conn: ConnId, mut request: ConnectRequest, identity: Identity, now: Now) {
        if self.failed || self.stopping {
            self.stats.commands_ignored += 1;
            return;
        }
        if let Some(&key) = self.conns.get(&conn) {
            return self.violation(key, now);
        }
        request.expiry = self.granted_expiry(request.expiry);
        let assigned = request.client_id.is_empty().then(|| self.make_client_id());
        let client_id: Arc<str> = Arc::from(&**assigned.as_ref().unwrap_or(&request.client_id));
        let checked = self
            .check_connect(&request, &client_id)
            .and_then(|()| self.check_login(&request, &identity, &client_id));
        if let Err(refusal) = checked {
            self.stats.connects_refused += 1;
            self.effects.push(Effect::Client(conn, ClientEvent::Refused(refusal)));
            return;
        }
        self.take_over(&client_id, request.clean_start, now);
        if request.clean_start
            && let Some(&key) = self.clients.get(&client_id)
        {
            self.end_session(key, now);
        }
        self.cancel_will(&client_id);
        let present = self.clients.contains_key(&client_id);
        let mut after = None;
        let key = match self.clients.get(&client_id) {
            Some(&key) => {
                // What an earlier connection asked for and was not told yet, the session itself perhaps: once it is durable it
                // may be answered as something known when it is repeated.
                after = self.waiters.newest_of(key);
                key
            }
            None => self.create_session(&client_id, request.expiry),
        };
        self.attach(key, conn, &request);
        self.set_identity(key, identity);
        if self.write_session_row(key, request.expiry, !present) {
            after = Some(self.batch.id());
        }
        if let Some(will) = request.will {
            self.keep_will(key, will);
            after = Some(self.batch.id());
        }
        self.stats.connects += 1;
        self.stats.connected_max = self.stats.connected_max.max(self.conns.len() as u64);
        self.greet(key, after, present, assigned, now);
    }

    /// Life after the connection, within the limit.
    pub(super) fn granted_expiry(&self, asked: SessionExpiry) -> SessionExpiry {
        match (asked, self.limits.session_expiry_max_secs) {
            (SessionExpiry::After(0) | SessionExpiry::WithConnection, _) | (_, Some(0)) => {
                SessionExpiry::WithConnection
            }
            (SessionExpiry::Never, Some(max)) => SessionExpiry::After(max),
            (SessionExpiry::After(seconds), Some(max)) => SessionExpiry::After(seconds.min(max)),
            (granted, None) => granted,
        }
    }

    fn make_client_id(&mut self) -> Box<str> {
        loop {
            self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.seed;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let id = format!("auto-{:016x}", mixed ^ (mixed >> 31));
            if !self.clients.contains_key(&*id) {
                return id.into();
            }
        }
    }

    fn check_connect(&self, request: &ConnectRequest, client_id: &str) -> Result<(), Refusal> {
        let kept = request.expiry != SessionExpiry::WithConnection;
        if client_id.len() > usize::from(self.limits.client_id_bytes_max) {
            return Err(Refusal::ClientIdInvalid);
        }
        if let Some(will) = &request.will
            && !self.will_is_valid(will, request.internal)
        {
            return Err(Refusal::WillInvalid);
        }
        let old = self.clients.get(client_id).map(|key| &self.sessions[*key as usize]);
        if old.is_some_and(|session| session.is_durable() && !request.clean_start) {
            return Ok(());
        }
        let others = self.sessions.len() - usize::from(old.is_some());
        if (others >= self.limits.sessions_max as usize && !request.internal)
            || (kept && self.full && !old.is_some_and(Session::is_durable))
        {
            return Err(Refusal::QuotaExceeded);
        }
        Ok(())
    }

    fn will_is_valid(&self, will: &Will, internal: bool) -> bool {
        topic::check_name(&will.topic, &self.limits).is_ok()
            && (internal || !will.topic.starts_with(super::publish::SYS_PREFIX))
    }

    /// Another connection with the same client identifier ends. Its will is published at once when there is nothing to wait
    /// for: no delay, or its session ends too [MQTT-3.1.4-3]; otherwise the session is resumed before the delay has passed.
    fn take_over(&mut self, client_id: &Arc<str>, clean_start: bool, now: Now) {
        let Some(&key) = self.clients.get(client_id) else { return };
        let Some(conn) = self.sessions[key as usize].conn else { return };
        self.stats.takeovers += 1;
        self.effects.push(Effect::Client(conn, ClientEvent::Close(CloseReason::TakenOver)));
        let due =
            self.wills.get(client_id).is_some_and(|pending| pending.will.delay_secs == 0 || clean_start);
        self.detach(key, now);
        if due {
            self.fire_will(client_id, now);
        }
    }

    pub(super) fn create_queue(&mut self, owner: Owner, durable: bool, name: &str) -> QueueKey {
        let id = durable.then(|| {
            let id = self.next_queue;
            self.next_queue = QueueId(id.0.checked_add(1).expect("a queue each second lasts 136 years"));
            self.batch.create_queue(id);
            id
        });
        self.next_serial += 1;
        let queue = Queue::new(owner, self.next_serial, id, self.limits_of_queue(name));
        self.add_queue(queue)
    }

    pub(super) fn add_queue(&mut self, queue: Queue) -> QueueKey {
        let id = queue.id();
        let key = u32::try_from(self.queues.insert(queue)).expect("sessions and groups are bounded");
        if let Some(id) = id {
            self.queue_keys.insert(id, key);
        }
        key
    }

    fn create_session(&mut self, client_id: &Arc<str>, expiry: SessionExpiry) -> SessionKey {
        let key = u32::try_from(self.sessions.vacant_key()).expect("sessions are bounded");
        let durable = expiry != SessionExpiry::WithConnection;
        let queue = self.create_queue(Owner::Session(key), durable, client_id);
        let number = self.queues[queue as usize].id();
        self.sessions.insert(Session::new(client_id.clone(), queue, number));
        self.clients.insert(client_id.clone(), key);
        key
    }

    fn attach(&mut self, key: SessionKey, conn: ConnId, request: &ConnectRequest) {
        let window = if request.internal { u16::MAX } else { self.limits.inflight_messages_max }
            .min(WINDOW_MESSAGES_MAX);
        let session = &mut self.sessions[key as usize];
        session.internal = request.internal;
        session.conn = Some(conn);
        session.open = false;
        session.congested = false;
        session.waiting = 0;
        session.held = 0;
        session.window_max = request.receive_max.clamp(1, window.max(1));
        session.disconnected = Wall(0);
        let end_at = session.end_at.take();
        self.conns.insert(conn, key);
        self.stop_session_timer(key, end_at);
    }

    /// Stores that the session is connected. `true`: the client must not hear of it before it is durable. For a session whose
    /// time runs while it is away that is so each time: with the old row it might be over after a restart. The same for one
    /// whose messages wait: with the old row they would be sent after a restart as if for the first time.
    fn write_session_row(&mut self, key: SessionKey, expiry: SessionExpiry, is_new: bool) -> bool {
        let session = &mut self.sessions[key as usize];
        let changed = session.expiry != expiry;
        session.expiry = expiry;
        self.put_session_row(key);
        let runs_out = expiry != SessionExpiry::Never;
        let session = &self.sessions[key as usize];
        let waits = self.queues[session.queue as usize].messages() > 0;
        session.is_durable() && (is_new || changed || runs_out || waits)
    }

    /// Stores the session as it is now, if it is durable.
    pub(super) fn put_session_row(&mut self, key: SessionKey) {
        let session = &self.sessions[key as usize];
        let Some(queue) = session.number else { return };
        let row = SessionRow {
            queue,
            expiry: session.expiry,
            connected: session.conn.is_some(),
            disconnected: session.disconnected,
            sent_below: session.sent_below,
            owner: self.owner_of(key),
        };
        self.batch.put(Space::Session, session.client_id.as_bytes().into(), row.encode());
    }

    fn keep_will(&mut self, key: SessionKey, will: Will) {
        let client_id = self.sessions[key as usize].client_id.clone();
        let owner = self.will_owner(key);
        self.batch.put(Space::Will, client_id.as_bytes().into(), encode_will(&will));
        self.wills.insert(client_id, PendingWill { will, owner, due: None, grace_until: None });
    }

    fn greet(
        &mut self,
        key: SessionKey,
        after: Option<BatchId>,
        session_present: bool,
        assigned_client_id: Option<Box<str>>,
        now: Now,
    ) {
        let session = &self.sessions[key as usize];
        let connected = Connected {
            session_present,
            assigned_client_id,
            response_information: self.response_information(key),
            authentication_data: None,
            expiry: session.expiry,
            unreleased: session.inbound.durable_tags(self.committed),
        };
        if self.answer(key, after, ClientEvent::Connected(Box::new(connected))) {
            self.open(key, now);
        }
    }

    /// The client knows that it is connected: what is unfinished goes on. First PUBREL for what it has received, then what it
    /// has not acknowledged, in order, then the rest.
    pub(super) fn open(&mut self, key: SessionKey, now: Now) {
        let session = &mut self.sessions[key as usize];
        session.open = true;
        let mut releases: SmallVec<[(Seq, DeliveryId); 8]> = session
            .inflight
            .iter()
            .filter(|slot| slot.stage == Stage::AwaitCompleted)
            .map(|slot| (slot.seq, slot.id))
            .collect();
        releases.sort_unstable();
        let after = Some(session.qos2_batch);
        for (_, delivery) in releases {
            self.send_ordered(key, after, ClientEvent::DeliverRelease { delivery, known: true });
        }
        self.pump_session(key, now);
    }
}
