//! Carries out what operators ask of named queues and prepared transactions.

use std::rc::Rc;
use std::time::Duration;

use super::shell::Shell;
use crate::admin::desk::{Answer, DeskRequests, Peeked, Question, QueueLine, TransactionLine};
use crate::broker::Broker;
use crate::broker::api::TransactOutcome;
use crate::message::Message;
use crate::time::Now;
use crate::topic::QUEUE_PREFIX;

/// How often the store is looked at until it has what was done.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Looks before the asker is told that nothing is sure.
const LOOKS_MAX: u32 = 1500;
/// Characters of a payload that a peek shows.
const TEXT_CHARS_MAX: usize = 200;

/// Answers for ever, one after the other.
pub async fn serve(shell: Rc<Shell>, mut requests: DeskRequests) {
    while let Some((question, answer)) = requests.recv().await {
        let now = shell.now();
        let (result, batch) = {
            let mut hub = shell.hub.borrow_mut();
            let result = carry_out(hub.broker_mut(), &question, now);
            let batch = hub.broker_mut().write_at_once();
            hub.finish_turn(now);
            (result, batch)
        };
        shell.flush.notify_one();
        let mut looks = 0;
        while shell.hub.borrow().broker().committed() < batch && looks < LOOKS_MAX {
            looks += 1;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let result =
            if looks < LOOKS_MAX { result } else { Err("the store has not confirmed it yet".into()) };
        // The asker may have given up.
        let _ = answer.send(result);
    }
}

fn carry_out(broker: &mut Broker, question: &Question, now: Now) -> Result<Answer, String> {
    match question {
        Question::Queues => Ok(Answer::Queues(queues(broker))),
        Question::Peek(name, count) => {
            let (progress, messages) = broker.peek(name, *count, now).map_err(|error| error.to_string())?;
            Ok(Answer::Messages(messages.iter().map(peeked).collect(), progress.left))
        }
        Question::Purge(name) => {
            let progress = broker.purge_some(name, now).map_err(|error| error.to_string())?;
            Ok(Answer::Progress(progress.done, progress.left))
        }
        Question::Delete(name) => {
            let messages = broker.delete_queue(name).map_err(|error| error.to_string())?;
            Ok(Answer::Progress(messages, 0))
        }
        Question::Move(name, to) => {
            let progress = broker.move_some(name, to.as_deref(), now).map_err(|error| error.to_string())?;
            Ok(Answer::Progress(progress.done, progress.left))
        }
        Question::Transactions => Ok(Answer::Transactions(transactions(broker))),
        Question::Decide(xid, commit) => match broker.decide(xid, *commit, now) {
            TransactOutcome::Done => Ok(Answer::Done),
            TransactOutcome::Unknown => Err(format!("no transaction \"{xid}\" is prepared, or was lately")),
            TransactOutcome::DecidedOtherwise => {
                Err(format!("the opposite was decided for \"{xid}\" before"))
            }
            outcome => Err(format!("\"{xid}\" stays prepared: {outcome:?}")),
        },
    }
}

fn queues(broker: &Broker) -> Vec<QueueLine> {
    let mut lines: Vec<QueueLine> = broker
        .queues()
        .filter_map(|queue| {
            let name = queue.name.strip_prefix(QUEUE_PREFIX)?;
            Some(QueueLine {
                name: name.to_owned(),
                messages: queue.messages,
                bytes: queue.bytes,
                under_way: u64::from(queue.inflight),
                consumers: broker.consumers_of(queue.name)? as u64,
                enqueued: queue.counters.enqueued,
                taken: queue.counters.delivered,
                rejected: queue.counters.refused,
                expired: queue.counters.expired,
            })
        })
        .collect();
    lines.sort_by(|a, b| a.name.cmp(&b.name));
    lines
}

fn transactions(broker: &Broker) -> Vec<TransactionLine> {
    let lines = broker.prepared_transactions().map(|prepared| TransactionLine {
        xid: prepared.xid.into(),
        since: prepared.since.0,
        publishes: prepared.publishes as u64,
        settles: prepared.settles as u64,
    });
    lines.collect()
}

fn peeked(message: &Message) -> Peeked {
    let properties = message.properties().map_or(&[][..], |properties| &properties.user);
    let text = std::str::from_utf8(message.payload()).ok();
    Peeked {
        topic: message.topic().to_owned(),
        published: message.published().0,
        properties: properties.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        payload_bytes: message.payload().len() as u64,
        text: text.map(|text| text.chars().take(TEXT_CHARS_MAX).collect()),
    }
}
