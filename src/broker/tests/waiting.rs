use super::queues::QUEUE;
use super::*;
use crate::limits::{Overflow, QueueDef, QueueLimits};
use crate::store::contract::Capacity;

/// One message fills every queue; those whose name begins with `b` block.
fn rig() -> Rig {
    let limits = |overflow| QueueLimits { messages_max: Some(1), bytes_max: None, overflow };
    let blocks = QueueDef { name: "b*".into(), limits: limits(Overflow::Block), ..QueueDef::default() };
    let queue_defs = vec![blocks];
    Rig::with(Limits { queue: limits(Overflow::Reject), queue_defs, ..Limits::default() })
}

impl Rig {
    fn offer(&mut self, conn: ConnId, topic: &str, patient: bool) -> Option<Box<ClientCommand>> {
        let message = self.message(topic, "x", Qos::AtLeastOnce, false);
        let command = ClientCommand::Publish(PublishRequest { tag: ReplyTag(7), message });
        self.try_again(conn, command, patient)
    }

    fn try_again(
        &mut self,
        conn: ConnId,
        command: ClientCommand,
        patient: bool,
    ) -> Option<Box<ClientCommand>> {
        let left = self.broker.handle_or_wait(conn, command, patient, self.now());
        self.turn();
        left
    }
}

#[test]
fn a_message_that_waits_is_as_if_it_had_never_come_until_there_is_room() {
    let mut rig = rig();
    let (worker, publisher) = (rig.worker("w"), rig.transient("p"));
    rig.put(publisher, &["1"]);
    let sent = rig.deliveries(worker);
    rig.heard(publisher);
    let published = rig.broker.stats().published;
    let before = rig.broker.room_made();
    let command = rig.offer(publisher, QUEUE, true).expect("it waits");
    assert!(rig.heard(publisher).is_empty());
    assert_eq!((rig.broker.stats().published, rig.broker.stats().refused_quota), (published, 0));
    let command = rig.try_again(publisher, *command, true).expect("it still waits");
    assert_eq!(rig.broker.room_made(), before);
    rig.ack(worker, sent[0].id.unwrap());
    assert_ne!(rig.broker.room_made(), before);
    assert!(rig.try_again(publisher, *command, true).is_none());
    assert!(matches!(
        rig.heard(publisher)[..],
        [ClientEvent::Published { tag: ReplyTag(7), outcome: PublishOutcome::Accepted, .. }]
    ));
}

#[test]
fn only_queues_that_block_make_others_wait_and_one_that_rejects_is_enough_to_be_told() {
    let mut rig = rig();
    let publisher = rig.transient("p");
    for topic in ["$queue/blocks", "$queue/rejects"] {
        assert!(rig.offer(publisher, topic, false).is_none());
    }
    rig.heard(publisher);
    assert!(rig.offer(publisher, "$queue/blocks", false).is_some());
    assert!(rig.offer(publisher, "$queue/rejects", false).is_none());
    let heard = rig.heard(publisher);
    assert!(matches!(heard[..], [ClientEvent::Published { outcome: PublishOutcome::QuotaExceeded, .. }]));
}

#[test]
fn who_waits_for_everything_waits_for_the_disk_too() {
    let mut rig = rig();
    let publisher = rig.transient("p");
    rig.broker.store_event(StoreEvent::Capacity(Capacity::Full), rig.now());
    let before = rig.broker.room_made();
    let command = rig.offer(publisher, "$queue/new", true).expect("it waits");
    assert!(rig.offer(publisher, "$queue/new", false).is_none());
    rig.heard(publisher);
    rig.broker.store_event(StoreEvent::Capacity(Capacity::Free), rig.now());
    assert_ne!(rig.broker.room_made(), before);
    assert!(rig.try_again(publisher, *command, true).is_none());
    assert_eq!(rig.queue("$queue/new").messages, 1);
}

#[test]
fn a_commit_that_waits_keeps_its_transaction() {
    let mut rig = rig();
    let (worker, publisher) = (rig.worker("w"), rig.transient("p"));
    let transaction = TransactionId(1);
    rig.put(publisher, &["1"]);
    let sent = rig.deliveries(worker);
    rig.begin(publisher, transaction);
    rig.act_publish(publisher, transaction, QUEUE, "2");
    rig.heard(publisher);
    let commit = ClientCommand::Commit { tag: ReplyTag(3), transaction };
    let command = rig.try_again(publisher, commit, true).expect("it waits");
    assert!(rig.heard(publisher).is_empty());
    rig.ack(worker, sent[0].id.unwrap());
    assert!(rig.try_again(publisher, *command, true).is_none());
    assert_eq!(rig.payloads(worker), ["2"]);
    assert_eq!(rig.broker.stats().transactions_committed, 1);
}
