//! Reason codes of MQTT 5.0 (2.4) and return codes of CONNACK in MQTT 3.1 and 3.1.1 (3.2.2.3).

use crate::types::{PacketType, Qos};
use core::fmt;

macro_rules! reason_codes {
    ($($name:ident = $code:literal, $text:literal, $($packet:ident)|+;)+) => {
        /// A reason code of MQTT 5.0. Value 0 has three names; see the associated constants.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum ReasonCode {
            $(#[doc = concat!($text, " (`", stringify!($code), "`).")] $name = $code,)+
        }

        impl ReasonCode {
            /// All reason codes in ascending order.
            pub const ALL: &'static [ReasonCode] = &[$(ReasonCode::$name,)+];

            /// The code with this value, or `None` if MQTT 5.0 has none.
            #[inline]
            pub const fn from_byte(byte: u8) -> Option<ReasonCode> {
                match byte {
                    $($code => Some(ReasonCode::$name),)+
                    _ => None,
                }
            }

            /// The specification's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(ReasonCode::$name => $text,)+
                }
            }

            /// Whether table 2-6 of MQTT 5.0 lets a packet of this kind carry the code, in either direction.
            pub const fn is_valid_in(self, packet: PacketType) -> bool {
                let allowed: u16 = match self {
                    $(ReasonCode::$name => 0 $(| 1 << PacketType::$packet as u8)+,)+
                };
                allowed & 1 << packet as u8 != 0
            }
        }
    };
}

reason_codes! {
    Success = 0x00, "Success",
        Connack | Puback | Pubrec | Pubrel | Pubcomp | Suback | Unsuback | Disconnect | Auth;
    GrantedQos1 = 0x01, "Granted QoS 1", Suback;
    GrantedQos2 = 0x02, "Granted QoS 2", Suback;
    DisconnectWithWill = 0x04, "Disconnect with Will Message", Disconnect;
    NoMatchingSubscribers = 0x10, "No matching subscribers", Puback | Pubrec;
    NoSubscriptionExisted = 0x11, "No subscription existed", Unsuback;
    ContinueAuthentication = 0x18, "Continue authentication", Auth;
    ReAuthenticate = 0x19, "Re-authenticate", Auth;
    UnspecifiedError = 0x80, "Unspecified error", Connack | Puback | Pubrec | Suback | Unsuback | Disconnect;
    MalformedPacket = 0x81, "Malformed Packet", Connack | Disconnect;
    ProtocolError = 0x82, "Protocol Error", Connack | Disconnect;
    ImplementationSpecificError = 0x83, "Implementation specific error",
        Connack | Puback | Pubrec | Suback | Unsuback | Disconnect;
    UnsupportedProtocolVersion = 0x84, "Unsupported Protocol Version", Connack;
    ClientIdentifierNotValid = 0x85, "Client Identifier not valid", Connack;
    BadUserNameOrPassword = 0x86, "Bad User Name or Password", Connack;
    NotAuthorized = 0x87, "Not authorized", Connack | Puback | Pubrec | Suback | Unsuback | Disconnect;
    ServerUnavailable = 0x88, "Server unavailable", Connack;
    ServerBusy = 0x89, "Server busy", Connack | Disconnect;
    Banned = 0x8A, "Banned", Connack;
    ServerShuttingDown = 0x8B, "Server shutting down", Disconnect;
    BadAuthenticationMethod = 0x8C, "Bad authentication method", Connack | Disconnect;
    KeepAliveTimeout = 0x8D, "Keep Alive timeout", Disconnect;
    SessionTakenOver = 0x8E, "Session taken over", Disconnect;
    TopicFilterInvalid = 0x8F, "Topic Filter invalid", Suback | Unsuback | Disconnect;
    TopicNameInvalid = 0x90, "Topic Name invalid", Connack | Puback | Pubrec | Disconnect;
    PacketIdentifierInUse = 0x91, "Packet Identifier in use", Puback | Pubrec | Suback | Unsuback;
    PacketIdentifierNotFound = 0x92, "Packet Identifier not found", Pubrel | Pubcomp;
    ReceiveMaximumExceeded = 0x93, "Receive Maximum exceeded", Disconnect;
    TopicAliasInvalid = 0x94, "Topic Alias invalid", Disconnect;
    PacketTooLarge = 0x95, "Packet too large", Connack | Disconnect;
    MessageRateTooHigh = 0x96, "Message rate too high", Disconnect;
    QuotaExceeded = 0x97, "Quota exceeded", Connack | Puback | Pubrec | Suback | Disconnect;
    AdministrativeAction = 0x98, "Administrative action", Disconnect;
    PayloadFormatInvalid = 0x99, "Payload format invalid", Connack | Puback | Pubrec | Disconnect;
    RetainNotSupported = 0x9A, "Retain not supported", Connack | Disconnect;
    QosNotSupported = 0x9B, "QoS not supported", Connack | Disconnect;
    UseAnotherServer = 0x9C, "Use another server", Connack | Disconnect;
    ServerMoved = 0x9D, "Server moved", Connack | Disconnect;
    SharedSubscriptionsNotSupported = 0x9E, "Shared Subscriptions not supported", Suback | Disconnect;
    ConnectionRateExceeded = 0x9F, "Connection rate exceeded", Connack | Disconnect;
    MaximumConnectTime = 0xA0, "Maximum connect time", Disconnect;
    SubscriptionIdentifiersNotSupported = 0xA1, "Subscription Identifiers not supported", Suback | Disconnect;
    WildcardSubscriptionsNotSupported = 0xA2, "Wildcard Subscriptions not supported", Suback | Disconnect;
}

impl ReasonCode {
    /// Value 0 in DISCONNECT.
    pub const NORMAL_DISCONNECTION: ReasonCode = ReasonCode::Success;
    /// Value 0 in SUBACK.
    pub const GRANTED_QOS_0: ReasonCode = ReasonCode::Success;

    /// The value on the wire.
    #[inline]
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// Whether the code reports a failure: 0x80 or greater (MQTT 5.0, 2.4).
    #[inline]
    pub const fn is_error(self) -> bool {
        self as u8 >= 0x80
    }

    /// The SUBACK code that grants a quality of service.
    pub const fn granted(qos: Qos) -> ReasonCode {
        match qos {
            Qos::AtMostOnce => ReasonCode::Success,
            Qos::AtLeastOnce => ReasonCode::GrantedQos1,
            Qos::ExactlyOnce => ReasonCode::GrantedQos2,
        }
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (0x{:02X})", self.name(), self.byte())
    }
}

/// The return code of CONNACK in MQTT 3.1 and 3.1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ConnectReturnCode {
    /// The connection is accepted.
    Accepted = 0,
    /// The server does not speak the protocol level.
    UnacceptableProtocolVersion = 1,
    /// The client identifier is correct UTF-8 but not allowed.
    IdentifierRejected = 2,
    /// The network connection is made but the service is not available.
    ServerUnavailable = 3,
    /// User name or password is wrong or malformed.
    BadUserNameOrPassword = 4,
    /// The client may not connect.
    NotAuthorized = 5,
}

impl ConnectReturnCode {
    /// The code with this value; 6 to 255 are reserved.
    pub const fn from_byte(byte: u8) -> Option<ConnectReturnCode> {
        Some(match byte {
            0 => ConnectReturnCode::Accepted,
            1 => ConnectReturnCode::UnacceptableProtocolVersion,
            2 => ConnectReturnCode::IdentifierRejected,
            3 => ConnectReturnCode::ServerUnavailable,
            4 => ConnectReturnCode::BadUserNameOrPassword,
            5 => ConnectReturnCode::NotAuthorized,
            _ => return None,
        })
    }

    /// The value on the wire.
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// The reason code of MQTT 5.0 with the same meaning.
    pub const fn reason(self) -> ReasonCode {
        match self {
            ConnectReturnCode::Accepted => ReasonCode::Success,
            ConnectReturnCode::UnacceptableProtocolVersion => ReasonCode::UnsupportedProtocolVersion,
            ConnectReturnCode::IdentifierRejected => ReasonCode::ClientIdentifierNotValid,
            ConnectReturnCode::ServerUnavailable => ReasonCode::ServerUnavailable,
            ConnectReturnCode::BadUserNameOrPassword => ReasonCode::BadUserNameOrPassword,
            ConnectReturnCode::NotAuthorized => ReasonCode::NotAuthorized,
        }
    }

    /// The nearest return code: what lies with the client's rights is "not authorized", what may pass with
    /// time or lies with the server is "server unavailable".
    pub const fn from_reason(reason: ReasonCode) -> ConnectReturnCode {
        match reason {
            reason if !reason.is_error() => ConnectReturnCode::Accepted,
            ReasonCode::UnsupportedProtocolVersion => ConnectReturnCode::UnacceptableProtocolVersion,
            ReasonCode::ClientIdentifierNotValid => ConnectReturnCode::IdentifierRejected,
            ReasonCode::BadUserNameOrPassword | ReasonCode::BadAuthenticationMethod => {
                ConnectReturnCode::BadUserNameOrPassword
            }
            ReasonCode::NotAuthorized
            | ReasonCode::Banned
            | ReasonCode::TopicNameInvalid
            | ReasonCode::PayloadFormatInvalid
            | ReasonCode::RetainNotSupported
            | ReasonCode::QosNotSupported => ConnectReturnCode::NotAuthorized,
            _ => ConnectReturnCode::ServerUnavailable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_code_is_read_from_the_byte_it_writes() {
        let known = (0..=255u8).filter_map(ReasonCode::from_byte);
        assert!(known.eq(ReasonCode::ALL.iter().copied()));
        assert!(ReasonCode::ALL.iter().all(|&code| ReasonCode::from_byte(code.byte()) == Some(code)));
        assert_eq!(ReasonCode::ALL.len(), 43);
    }

    #[test]
    fn return_codes_of_the_older_versions_survive_the_way_through_reason_codes() {
        for code in (0..=255).filter_map(ConnectReturnCode::from_byte) {
            assert_eq!(ConnectReturnCode::from_reason(code.reason()), code);
        }
        assert_eq!(ConnectReturnCode::from_byte(6), None);
    }

    #[test]
    fn no_error_of_connack_is_taken_for_acceptance() {
        for &reason in ReasonCode::ALL.iter().filter(|reason| reason.is_error()) {
            assert_ne!(ConnectReturnCode::from_reason(reason), ConnectReturnCode::Accepted, "{reason}");
        }
    }

    #[test]
    fn a_code_is_valid_only_where_the_specification_lists_it() {
        assert!(ReasonCode::ReceiveMaximumExceeded.is_valid_in(PacketType::Disconnect));
        assert!(!ReasonCode::ReceiveMaximumExceeded.is_valid_in(PacketType::Puback));
        assert!(!ReasonCode::PacketIdentifierInUse.is_valid_in(PacketType::Disconnect));
        assert!(ReasonCode::GrantedQos2.is_valid_in(PacketType::Suback));
        assert!(!ReasonCode::GrantedQos2.is_valid_in(PacketType::Unsuback));
    }
}
