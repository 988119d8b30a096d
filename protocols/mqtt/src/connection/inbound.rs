//! Messages from the client: identifiers in use, quota, aliases.

use super::alias::InboundAliases;
use super::event::{DuplicateAnswer, Event, InboundPublish, Received, TopicRef, Violation};
use super::{Connection, Extras};
use crate::codec::{Frame, decode_publish};
use crate::id_table::IdTable;
use crate::packet::Publish;
use crate::property::{Properties, PropertyId};
use crate::types::{PacketId, Qos, TopicAlias, Version};

/// QoS 1; PUBACK not written.
const PENDING_1: u8 = 0;
/// QoS 2; PUBREC not written.
const PENDING_2: u8 = 1;
/// QoS 2; PUBREC written, PUBREL not received.
const AWAIT_RELEASE: u8 = 2;
/// QoS 2; PUBREL received, PUBCOMP not written.
const RELEASED: u8 = 3;
/// The low bits of a state, which hold one of the values above.
const STAGE: u8 = 0x03;
/// The message counts against the client's quota.
const COUNTED: u8 = 0x04;
/// Beside the QoS 2 message there is one of QoS 1 with the same identifier; PUBACK not written. It counts for itself.
const BESIDE: u8 = 0x08;

/// The limits that identifiers are held to.
#[derive(Clone, Copy)]
struct Window {
    version: Version,
    in_flight_max: u16,
    unreleased_max: u16,
}

/// Identifiers of inbound messages without a final acknowledgement.
#[derive(Debug)]
pub(super) struct InboundIds {
    table: IdTable,
    in_flight: u16,
}

/// What is to be done with a message, by its identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// New: publish it and note the identifier.
    New,
    /// New as well, though its identifier belongs to a QoS 2 message that was not released.
    Beside,
    /// Known: answer it. If it does not count against the quota yet, it does from now on.
    Duplicate(DuplicateAnswer),
    /// Its turn has not come.
    Wait,
}

impl InboundIds {
    pub(super) const fn new() -> InboundIds {
        InboundIds { table: IdTable::new(), in_flight: 0 }
    }

    #[inline]
    pub(super) const fn in_flight(&self) -> u16 {
        self.in_flight
    }

    pub(super) fn release_memory(&mut self) {
        self.table.release_memory();
    }

    /// Notes a message of an earlier connection whose PUBREC was sent. It does not count against the quota,
    /// which starts anew with the connection (MQTT 5.0, 4.9).
    pub(super) fn seed(&mut self, id: PacketId) {
        self.table.set(id, AWAIT_RELEASE);
    }

    #[inline]
    fn judge(&self, window: Window, id: PacketId, qos: Qos, dup: bool) -> Result<Verdict, Violation> {
        let Some(state) = self.table.get(id) else {
            return self.judge_new(window);
        };
        if qos == Qos::AtLeastOnce && state & STAGE == AWAIT_RELEASE {
            return self.judge_beside(window, id, state, dup);
        }
        match (qos, state & STAGE) {
            (Qos::AtLeastOnce, PENDING_1) if dup => Ok(Verdict::Duplicate(DuplicateAnswer::Pending)),
            (Qos::ExactlyOnce, PENDING_2) => Ok(Verdict::Duplicate(DuplicateAnswer::Pending)),
            (Qos::ExactlyOnce, AWAIT_RELEASE) => Ok(Verdict::Duplicate(DuplicateAnswer::Pubrec)),
            // Small clients of the older versions use one identifier for everything; they have to wait for
            // themselves.
            (Qos::AtLeastOnce, PENDING_1) | (_, RELEASED) if !window.version.is_v5() => Ok(Verdict::Wait),
            _ => Err(Violation::PacketIdInUse(id)),
        }
    }

    /// A device that has lost what it knew of its session counts identifiers from 1 again and will never release the QoS 2
    /// message of its former life. Refusing it would shut it out for as long as its session is kept.
    #[cold]
    fn judge_beside(&self, window: Window, id: PacketId, state: u8, dup: bool) -> Result<Verdict, Violation> {
        let full = self.in_flight >= window.in_flight_max;
        match window.version.is_v5() {
            _ if state & BESIDE != 0 && dup => Ok(Verdict::Duplicate(DuplicateAnswer::Pending)),
            true if state & BESIDE != 0 => Err(Violation::PacketIdInUse(id)),
            true if full => Err(Violation::ReceiveMaximum),
            false if full || state & BESIDE != 0 => Ok(Verdict::Wait),
            _ => Ok(Verdict::Beside),
        }
    }

    /// Older versions know no quota; their clients are slowed down instead.
    #[inline]
    fn judge_new(&self, window: Window) -> Result<Verdict, Violation> {
        let full = self.in_flight >= window.in_flight_max;
        match window.version.is_v5() {
            true if full => Err(Violation::ReceiveMaximum),
            false if full => Ok(Verdict::Wait),
            false if self.table.len() >= usize::from(window.unreleased_max) => Err(Violation::ReceiveMaximum),
            _ => Ok(Verdict::New),
        }
    }

    #[inline]
    fn insert(&mut self, id: PacketId, qos: Qos) {
        let stage = if qos == Qos::ExactlyOnce { PENDING_2 } else { PENDING_1 };
        self.table.set(id, stage | COUNTED);
        self.in_flight += 1;
    }

    fn insert_beside(&mut self, id: PacketId) {
        if let Some(state) = self.table.get(id) {
            self.table.set(id, state | BESIDE);
            self.in_flight += 1;
        }
    }

    /// Lets the repetition of a seeded message count: the client counts what it sends (MQTT 5.0, 4.9).
    fn count(&mut self, id: PacketId, max: u16) -> Result<(), Violation> {
        match self.table.get(id) {
            Some(state) if state & COUNTED == 0 => {
                if self.in_flight >= max {
                    return Err(Violation::ReceiveMaximum);
                }
                self.table.set(id, state | COUNTED);
                self.in_flight += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// PUBREL was received. `Some(known)`, or `None` if its time has not come: PUBREC was not sent.
    pub(super) fn release(&mut self, id: PacketId) -> Option<bool> {
        match self.table.get(id) {
            Some(state) if matches!(state & STAGE, AWAIT_RELEASE | RELEASED) => {
                self.table.set(id, state & (COUNTED | BESIDE) | RELEASED);
                Some(true)
            }
            Some(_) => None,
            None => Some(false),
        }
    }

    /// PUBACK is about to be written; whether the identifier awaits it.
    #[inline]
    pub(super) fn acknowledge(&mut self, id: PacketId) -> bool {
        match self.table.get(id) {
            Some(state) if state & STAGE == PENDING_1 => self.finish(id),
            Some(state) if state & BESIDE != 0 => {
                self.table.set(id, state & !BESIDE);
                self.in_flight -= 1;
                true
            }
            _ => false,
        }
    }

    /// PUBREC is about to be written; whether the identifier awaits it. With an error the exchange is over.
    pub(super) fn take(&mut self, version: Version, id: PacketId, error: bool) -> bool {
        match self.table.get(id) {
            Some(state) if matches!(state & STAGE, PENDING_2 | AWAIT_RELEASE) => {
                if error {
                    return self.finish(id);
                }
                // Before MQTT 5.0 only what the server owes counts: it is what unblocks the client.
                let counted = state & COUNTED;
                let keeps_count = version.is_v5();
                if counted != 0 && !keeps_count {
                    self.in_flight -= 1;
                }
                let kept = state & BESIDE | if keeps_count { counted } else { 0 };
                self.table.set(id, kept | AWAIT_RELEASE);
                true
            }
            _ => false,
        }
    }

    /// PUBCOMP is about to be written; whether the identifier awaits it.
    pub(super) fn complete(&mut self, id: PacketId) -> bool {
        self.table.get(id).is_some_and(|state| state & STAGE == RELEASED) && self.finish(id)
    }

    #[inline]
    fn finish(&mut self, id: PacketId) -> bool {
        let Some(state) = self.table.remove(id) else {
            return false;
        };
        if state & COUNTED != 0 {
            self.in_flight -= 1;
        }
        if state & BESIDE != 0 {
            self.table.set(id, PENDING_1 | COUNTED);
        }
        true
    }
}

impl Connection {
    /// Notes the QoS 2 messages of a resumed session whose PUBREC was sent and whose PUBREL is missing, so
    /// that their repetition is recognised `[MQTT-4.3.3-10]`. The caller bounds their number; each takes up
    /// to 16 bytes.
    pub fn seed_inbound(&mut self, ids: impl IntoIterator<Item = PacketId>) {
        ids.into_iter().for_each(|id| self.inbound.seed(id));
    }

    /// Handles a PUBLISH. Nothing changes unless the message is taken.
    #[inline]
    pub(super) fn receive_publish<'a>(
        &mut self,
        frame: &Frame,
        body: &'a [u8],
        now: u64,
    ) -> Result<Received<'a>, Violation> {
        let publish = decode_publish(self.version, frame.first_byte, body, &self.limits.decode)?;
        let Publish { dup, qos, retain, topic, packet_id, properties, payload } = publish;
        if properties.contains(PropertyId::SubscriptionIdentifier) {
            return Err(Violation::SubscriptionIdentifier);
        }
        let verdict = match packet_id {
            None => Verdict::New,
            Some(id) => self.inbound.judge(self.window(), id, qos, dup)?,
        };
        if verdict == Verdict::Wait {
            self.blocked = true;
            return Ok(Received::Blocked);
        }
        let topic = match properties.is_empty() {
            true => TopicRef::Name(topic),
            false => self.apply_alias(topic, &properties)?,
        };
        let consumed = frame.total_len();
        self.note_packet(now);
        match (verdict, packet_id) {
            (Verdict::Duplicate(answer), Some(packet_id)) => {
                self.count_repetition(packet_id)?;
                return Ok(Received::Event { consumed, event: Event::Duplicate { packet_id, answer } });
            }
            (Verdict::Beside, Some(packet_id)) => self.inbound.insert_beside(packet_id),
            (_, Some(packet_id)) => self.inbound.insert(packet_id, qos),
            (_, None) => {}
        }
        let event =
            Event::Publish(InboundPublish { dup, qos, retain, topic, packet_id, properties, payload });
        Ok(Received::Event { consumed, event })
    }

    #[inline]
    fn window(&self) -> Window {
        let in_flight_max = self.limits.inflight_publishes_max.max(1);
        Window {
            version: self.version,
            in_flight_max,
            unreleased_max: self.limits.unreleased_publishes_max.max(in_flight_max),
        }
    }

    fn count_repetition(&mut self, packet_id: PacketId) -> Result<(), Violation> {
        let Window { version, in_flight_max, .. } = self.window();
        if version.is_v5() { self.inbound.count(packet_id, in_flight_max) } else { Ok(()) }
    }

    /// Stores a topic under its alias, or finds the topic of an alias.
    fn apply_alias<'a>(
        &mut self,
        topic: &'a str,
        properties: &Properties<'_>,
    ) -> Result<TopicRef<'a>, Violation> {
        let Some(alias) = properties.topic_alias() else {
            return Ok(TopicRef::Name(topic));
        };
        if alias.get() > self.limits.inbound_aliases_max {
            return Err(Violation::TopicAlias(alias.get()));
        }
        if topic.is_empty() {
            return self.known_alias(alias);
        }
        let bytes_max = self.limits.inbound_alias_bytes_max;
        let aliases: &mut InboundAliases = &mut self.extras().inbound_aliases;
        aliases.set(alias, topic, bytes_max)?;
        Ok(TopicRef::Name(topic))
    }

    fn known_alias<'a>(&self, alias: TopicAlias) -> Result<TopicRef<'a>, Violation> {
        let extras: Option<&Extras> = self.extras.as_deref();
        match extras.and_then(|extras| extras.inbound_aliases.topic(alias)) {
            Some(_) => Ok(TopicRef::Alias(alias)),
            None => Err(Violation::UnknownTopicAlias(alias.get())),
        }
    }
}
