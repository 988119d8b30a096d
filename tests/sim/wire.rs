//! One end of a simulated socket.

use std::collections::VecDeque;

use tidegate::broker::api::ConnId;

/// What is between a client and the gateway.
#[derive(Debug)]
pub struct Wire {
    pub id: ConnId,
    /// Bytes on their way to the gateway, and from it.
    pub up: VecDeque<u8>,
    pub down: Vec<u8>,
    /// The gateway has closed it, or will read no more.
    pub ended: bool,
    /// The gateway waits until it has answered.
    pub blocked: bool,
}

impl Wire {
    pub fn new(id: ConnId) -> Self {
        Self { id, up: VecDeque::new(), down: vec![], ended: false, blocked: false }
    }
}
