//! What answers say: a reason code each, and beside most of what is refused a text for people. The connection leaves texts out where the client
//! does not want them, or has no room.

use tidegate_mqtt::{Property, ReasonCode};

use super::qos_out;
use crate::broker::api::{CloseReason, Refusal, SubscribeOutcome};

/// A text as a property.
pub(super) fn text(text: &'static str) -> Property<'static> {
    Property::ReasonString(text)
}

/// Whether the identifier of the packet that is answered belongs to anything.
pub(super) fn found(known: bool) -> ReasonCode {
    if known { ReasonCode::Success } else { ReasonCode::PacketIdentifierNotFound }
}

/// Why the first filter that is refused is refused; `None`: all are granted.
pub(super) fn about_filters(outcomes: &[SubscribeOutcome]) -> Option<&'static str> {
    outcomes.iter().find_map(|outcome| match outcome {
        SubscribeOutcome::Granted(_) => None,
        SubscribeOutcome::FilterInvalid => Some("the filter is not valid"),
        SubscribeOutcome::QuotaExceeded => Some("there are as many subscriptions as there may be"),
        SubscribeOutcome::NotAuthorized => Some("no rule lets this client read anything of this filter"),
        SubscribeOutcome::SharedNoLocal => Some("a shared subscription cannot have No Local"),
    })
}

/// The code of a subscription.
pub(super) fn suback_code(outcome: &SubscribeOutcome) -> ReasonCode {
    match outcome {
        SubscribeOutcome::Granted(qos) => ReasonCode::granted(qos_out(*qos)),
        SubscribeOutcome::FilterInvalid => ReasonCode::TopicFilterInvalid,
        SubscribeOutcome::QuotaExceeded => ReasonCode::QuotaExceeded,
        SubscribeOutcome::NotAuthorized => ReasonCode::NotAuthorized,
        SubscribeOutcome::SharedNoLocal => ReasonCode::TopicFilterInvalid,
    }
}

/// The code of the end of a subscription: whether it existed, or `None` for a filter that is not valid.
pub(super) fn unsuback_code(existed: &Option<bool>) -> ReasonCode {
    match existed {
        Some(true) => ReasonCode::Success,
        Some(false) => ReasonCode::NoSubscriptionExisted,
        None => ReasonCode::TopicFilterInvalid,
    }
}

/// Why a client is not let in. Whoever guesses learns nothing from it.
pub(super) fn refusal(refusal: Refusal) -> (ReasonCode, &'static str) {
    match refusal {
        Refusal::ClientIdInvalid => {
            (ReasonCode::ClientIdentifierNotValid, "the client identifier is not valid")
        }
        Refusal::QuotaExceeded => (ReasonCode::QuotaExceeded, "there is no room for another session"),
        Refusal::WillInvalid => {
            (ReasonCode::TopicNameInvalid, "clients cannot publish to the topic of the will")
        }
        Refusal::NotAuthorized => (ReasonCode::NotAuthorized, "this client may not connect in this way"),
        Refusal::BadCredentials => {
            (ReasonCode::BadUserNameOrPassword, "the user name, the password or the token is not accepted")
        }
        Refusal::BadMethod => {
            (ReasonCode::BadAuthenticationMethod, "the authentication method is not offered")
        }
        Refusal::Busy => (ReasonCode::ServerBusy, "too many logins wait or have failed: try again later"),
    }
}

/// Why the broker ends a connection.
pub(super) fn close(reason: CloseReason) -> (ReasonCode, &'static str) {
    match reason {
        CloseReason::TakenOver => {
            (ReasonCode::SessionTakenOver, "another connection uses this client identifier now")
        }
        CloseReason::ShuttingDown => (ReasonCode::ServerShuttingDown, "the gateway is shutting down"),
        CloseReason::Administrative => {
            (ReasonCode::AdministrativeAction, "an operator has ended the connection")
        }
        CloseReason::ProtocolViolation => {
            (ReasonCode::ProtocolError, "a packet does not belong to what goes on")
        }
        CloseReason::QuotaExceeded => (ReasonCode::QuotaExceeded, "a limit is exceeded"),
        CloseReason::NotAuthorized => (ReasonCode::NotAuthorized, "the login no longer counts"),
    }
}
