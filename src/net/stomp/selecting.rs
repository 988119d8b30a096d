//! Selectors of consumers, as the broker asks them.

use crate::broker::api;
use crate::message::Message;
use crate::selector::{Field, Fields, Selector};

/// A message in a queue, with how often it came back.
struct Queued<'m> {
    message: &'m Message,
    redeliveries: u32,
}

impl Fields for Queued<'_> {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        match name {
            "redelivery-count" => Some(Field::Number(i64::from(self.redeliveries))),
            "redelivered" | "JMSRedelivered" => Some(Field::Bool(self.redeliveries > 0)),
            "JMSXDeliveryCount" => Some(Field::Number(i64::from(self.redeliveries) + 1)),
            _ => self.message.field(name),
        }
    }
}

impl api::Selector for Selector {
    fn wants(&self, message: &Message, redeliveries: u32) -> bool {
        self.selects(&Queued { message, redeliveries })
    }

    fn memory(&self) -> usize {
        Selector::memory(self)
    }
}
