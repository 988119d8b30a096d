//! CONNECT: who a client is and what it asks for.

use std::io;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32};

use tidegate_mqtt::packet::{Connect, Will as WireWill};
use tidegate_mqtt::{Encode, Property, Qos, Version};

use super::client::Client;

/// Session expiry that never comes.
const NEVER: u32 = u32::MAX;

/// A will message.
#[derive(Clone, Debug, Default)]
pub struct Will {
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub retain: bool,
    pub delay: Option<u32>,
    pub expiry: Option<u32>,
}

impl Will {
    pub fn new(topic: &str, payload: impl AsRef<[u8]>, qos: u8) -> Self {
        Self { topic: topic.into(), payload: payload.as_ref().to_vec(), qos, ..Self::default() }
    }

    pub fn with_delay(self, seconds: u32) -> Self {
        Self { delay: Some(seconds), ..self }
    }

    fn properties(&self) -> Vec<Property<'static>> {
        let delay = self.delay.map(Property::WillDelayInterval);
        delay.into_iter().chain(self.expiry.map(Property::MessageExpiryInterval)).collect()
    }
}

/// What goes into CONNECT.
#[derive(Clone, Debug)]
pub struct Login {
    pub version: Version,
    pub id: String,
    pub clean: bool,
    pub expiry: Option<u32>,
    pub keep_alive: u16,
    pub will: Option<Will>,
    pub receive_max: Option<u16>,
    pub packet_max: Option<u32>,
    pub aliases: Option<u16>,
    pub receive_buffer: Option<usize>,
    pub user: Option<String>,
    pub password: Option<Vec<u8>>,
    /// Method and first message of an extended authentication.
    pub extended: Option<(String, Vec<u8>)>,
    /// Asks for Response Information, or says that it does not want it.
    pub response_information: Option<bool>,
    /// Says whether it wants reason strings.
    pub problem_information: Option<bool>,
}

impl Login {
    /// A session that ends with the connection.
    pub fn fresh(version: Version, id: &str) -> Self {
        Self {
            version,
            id: id.into(),
            clean: true,
            expiry: None,
            keep_alive: 0,
            will: None,
            receive_max: None,
            packet_max: None,
            aliases: None,
            receive_buffer: None,
            user: None,
            password: None,
            extended: None,
            response_information: None,
            problem_information: None,
        }
    }

    /// A session that outlives the connection, and resumes an older one.
    pub fn persistent(version: Version, id: &str) -> Self {
        Self { clean: false, expiry: version.is_v5().then_some(NEVER), ..Self::fresh(version, id) }
    }

    pub fn clean(self, clean: bool) -> Self {
        Self { clean, ..self }
    }

    pub fn expiry(self, seconds: u32) -> Self {
        Self { expiry: Some(seconds), ..self }
    }

    pub fn keep_alive(self, seconds: u16) -> Self {
        Self { keep_alive: seconds, ..self }
    }

    pub fn will(self, will: Will) -> Self {
        Self { will: Some(will), ..self }
    }

    pub fn receive_max(self, messages: u16) -> Self {
        Self { receive_max: Some(messages), ..self }
    }

    pub fn packet_max(self, bytes: u32) -> Self {
        Self { packet_max: Some(bytes), ..self }
    }

    pub fn aliases(self, count: u16) -> Self {
        Self { aliases: Some(count), ..self }
    }

    /// A user name and a password, or a token.
    pub fn user(self, user: &str, password: impl AsRef<[u8]>) -> Self {
        Self { user: Some(user.into()), password: Some(password.as_ref().to_vec()), ..self }
    }

    /// Asks for extended authentication.
    pub fn extended(self, method: &str, message: impl AsRef<[u8]>) -> Self {
        Self { extended: Some((method.into(), message.as_ref().to_vec())), ..self }
    }

    /// Says whether it wants Response Information.
    pub fn response_information(self, wanted: bool) -> Self {
        Self { response_information: Some(wanted), ..self }
    }

    /// A small receive buffer of the socket makes a client that does not read felt early.
    pub fn receive_buffer(self, bytes: usize) -> Self {
        Self { receive_buffer: Some(bytes), ..self }
    }

    fn properties(&self) -> Vec<Property<'_>> {
        let mut list = Vec::new();
        list.extend(self.response_information.map(Property::RequestResponseInformation));
        list.extend(self.problem_information.map(Property::RequestProblemInformation));
        if let Some((method, message)) = &self.extended {
            list.push(Property::AuthenticationMethod(method));
            list.push(Property::AuthenticationData(message));
        }
        list.extend(self.expiry.map(Property::SessionExpiryInterval));
        list.extend(self.receive_max.and_then(NonZeroU16::new).map(Property::ReceiveMaximum));
        list.extend(self.packet_max.and_then(NonZeroU32::new).map(Property::MaximumPacketSize));
        list.extend(self.aliases.map(Property::TopicAliasMaximum));
        list
    }

    /// The CONNECT packet.
    pub fn encode(&self) -> Vec<u8> {
        let properties = self.properties();
        let will_properties = self.will.as_ref().map(Will::properties).unwrap_or_default();
        let will = self.will.as_ref().map(|will| WireWill {
            qos: Qos::from_bits(will.qos).expect("tests use QoS 0 to 2"),
            retain: will.retain,
            topic: &will.topic,
            payload: &will.payload,
            properties: will_properties.as_slice(),
        });
        let connect = Connect {
            version: self.version,
            bridge: false,
            clean_start: self.clean,
            keep_alive: self.keep_alive,
            client_id: &self.id,
            will,
            user_name: self.user.as_deref(),
            password: self.password.as_deref(),
            properties: properties.as_slice(),
        };
        let mut out = Vec::new();
        connect.encode(self.version, &mut out).expect("tests send what can be encoded");
        out
    }

    /// Connects and waits for CONNACK.
    ///
    /// # Errors
    /// No connection, no CONNACK in time, or a refusal (`ConnectionRefused` with the reason code in its text).
    pub fn open(&self, address: SocketAddr) -> io::Result<Client> {
        let client = self.ask(address)?;
        if client.connack.reason != 0 {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                format!("CONNACK 0x{:02x} for {self:?}", client.connack.reason),
            ));
        }
        Ok(client)
    }

    /// As [`Self::open`], but a refusal is an answer like any other.
    ///
    /// # Errors
    /// No connection, or no CONNACK in time.
    pub fn ask(&self, address: SocketAddr) -> io::Result<Client> {
        let mut client = Client::dial(address, self.version, self.receive_buffer)?;
        client.raw(&self.encode())?;
        client.await_connack()?;
        Ok(client)
    }
}
