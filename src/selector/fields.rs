//! What selectors find in a message.

use super::{Field, Fields};
use crate::message::{Message, Qos};

/// JMS names of what a message has beside its user properties.
const CORRELATION: [&str; 2] = ["correlation-id", "JMSCorrelationID"];
const REPLY_TO: [&str; 2] = ["reply-to", "JMSReplyTo"];
const EXPIRES: [&str; 2] = ["expires", "JMSExpiration"];
const TIMESTAMP: [&str; 2] = ["timestamp", "JMSTimestamp"];
const PRIORITY: [&str; 2] = ["priority", "JMSPriority"];
const TYPE: [&str; 2] = ["type", "JMSType"];

/// User properties by their names; what the message has beside them by the names of STOMP's headers and of JMS.
impl Fields for Message {
    fn field(&self, name: &str) -> Option<Field<'_>> {
        if let Some(value) = self.user_property(name) {
            return Some(Field::Text(value));
        }
        let properties = self.properties();
        match name {
            "content-type" => properties.and_then(|p| p.content_type.as_deref()).map(Field::Text),
            "qos" => Some(Field::Number(self.qos() as i64)),
            "persistent" => Some(Field::Bool(self.qos() != Qos::AtMostOnce)),
            "JMSDeliveryMode" => {
                let persistent = self.qos() != Qos::AtMostOnce;
                Some(Field::Text(if persistent { "PERSISTENT" } else { "NON_PERSISTENT" }))
            }
            "topic" => Some(Field::Text(self.topic())),
            _ if CORRELATION.contains(&name) => {
                let data = properties.and_then(|p| p.correlation_data.as_deref())?;
                std::str::from_utf8(data).ok().map(Field::Text)
            }
            _ if REPLY_TO.contains(&name) => {
                properties.and_then(|p| p.response_topic.as_deref()).map(Field::Text)
            }
            _ if EXPIRES.contains(&name) => self.expires().map(|at| Field::Number(whole(at.0))),
            _ if TIMESTAMP.contains(&name) => Some(Field::Number(whole(self.published().0))),
            _ if name == PRIORITY[1] => {
                Some(self.user_property(PRIORITY[0]).map_or(Field::Number(PRIORITY_DEFAULT), Field::Text))
            }
            _ if name == TYPE[1] => self.user_property(TYPE[0]).map(Field::Text),
            _ => None,
        }
    }
}

/// What JMS says of a message without a priority.
const PRIORITY_DEFAULT: i64 = 4;

fn whole(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}

impl Message {
    /// The value of the first user property of this name.
    #[must_use]
    pub fn user_property(&self, name: &str) -> Option<&str> {
        let user = &self.properties()?.user;
        user.iter().find(|(found, _)| **found == *name).map(|(_, value)| &**value)
    }
}
