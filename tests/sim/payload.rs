//! Numbers in payloads, and which filters select which topics.

use crate::cast::GROUP_FILTER;
use crate::ledger::Number;

/// The payload of message `n`.
pub fn payload(n: Number, len: usize) -> Vec<u8> {
    let mut out = n.to_le_bytes().to_vec();
    out.resize(len.max(8), n as u8);
    out
}

/// The number in a payload, if it is one of ours.
pub fn number(payload: &[u8]) -> Option<Number> {
    let n = u64::from_le_bytes(*payload.first_chunk()?);
    payload[8..].iter().all(|byte| *byte == n as u8).then_some(n)
}

pub fn matches(filter: &str, topic: &str) -> bool {
    let filter = if filter == GROUP_FILTER { "t/#" } else { filter };
    let (mut f, mut t) = (filter.split('/'), topic.split('/'));
    loop {
        match (f.next(), t.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(a), Some(b)) if a == b => {}
            _ => return false,
        }
    }
}
