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
    /// What was read of something that is not complete.
    pub half: Vec<u8>,
    /// The gateway has closed it, or will read no more.
    pub ended: bool,
    /// The gateway waits until it has answered.
    pub blocked: bool,
}

impl Wire {
    pub fn new(id: ConnId) -> Self {
        Self { id, up: VecDeque::new(), down: vec![], half: vec![], ended: false, blocked: false }
    }

    /// All that has arrived and was not understood yet.
    pub fn take_input(&mut self) -> Vec<u8> {
        let mut input = std::mem::take(&mut self.half);
        input.append(&mut self.down);
        input
    }
}
