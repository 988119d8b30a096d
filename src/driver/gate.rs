//! Who is let in: bounds on connections before anything is known about their client, and counts of those turned away.
//!
//! Shared by the broker's thread and the doors'. A connection that a bound counts holds a [`Pass`] for as long as it lives.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::Limits;
use crate::settings::Listener;

/// What befell connections that never became clients, since the process started.
#[derive(Debug, Default)]
pub struct Refusals {
    /// The listener's bound was reached.
    pub listener_full: AtomicU64,
    /// The bound of the peer's address was reached.
    pub address_full: AtomicU64,
    /// A handshake (PROXY protocol, TLS, WebSocket) failed.
    pub handshake_failed: AtomicU64,
    /// A handshake took too long.
    pub handshake_late: AtomicU64,
    /// The oldest handshake made room for a new one.
    pub handshake_displaced: AtomicU64,
    /// `accept` failed for want of descriptors or memory.
    pub accept_failed: AtomicU64,
    /// Connections that waited because of the bound on their rate.
    pub accept_delayed: AtomicU64,
}

impl Refusals {
    /// The counts by their names.
    #[must_use]
    pub fn by_cause(&self) -> [(&'static str, u64); 7] {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("listener_full", get(&self.listener_full)),
            ("address_full", get(&self.address_full)),
            ("handshake_failed", get(&self.handshake_failed)),
            ("handshake_late", get(&self.handshake_late)),
            ("handshake_displaced", get(&self.handshake_displaced)),
            ("accept_failed", get(&self.accept_failed)),
            ("accept_delayed", get(&self.accept_delayed)),
        ]
    }
}

/// One more.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[derive(Debug, Default)]
struct Counts {
    listeners: Vec<u32>,
    addresses: HashMap<IpAddr, u32>,
}

/// The bounds and what counts towards them.
#[derive(Debug)]
pub struct Gate {
    /// By listener.
    listeners_max: Vec<Option<u32>>,
    per_address_max: Option<u32>,
    counts: Mutex<Counts>,
    /// Who was turned away.
    pub refusals: Refusals,
}

/// A place that a connection holds.
#[derive(Debug)]
pub struct Pass {
    gate: Arc<Gate>,
    listener: Option<u16>,
    address: Option<IpAddr>,
}

impl Gate {
    /// For these listeners.
    #[must_use]
    pub fn new(listeners: &[Listener], limits: &Limits) -> Self {
        let counts = Counts { listeners: vec![0; listeners.len()], addresses: HashMap::new() };
        Self {
            listeners_max: listeners.iter().map(|listener| listener.connections_max).collect(),
            per_address_max: limits.connections_per_address_max,
            counts: Mutex::new(counts),
            refusals: Refusals::default(),
        }
    }

    /// A place for a connection of `listener` from `address`, which is not known while a proxy has yet to tell it. `Ok(None)`:
    /// nothing is bounded.
    ///
    /// # Errors
    /// A bound is reached; counted.
    pub fn enter(self: &Arc<Self>, listener: u16, address: Option<IpAddr>) -> Result<Option<Box<Pass>>, ()> {
        let bounded = self.listeners_max.get(usize::from(listener)).copied().flatten();
        if bounded.is_none() && self.per_address_max.is_none() {
            return Ok(None);
        }
        let mut pass = Pass { gate: Arc::clone(self), listener: None, address: None };
        if let Some(most) = bounded {
            let mut counts = self.counts();
            let taken = &mut counts.listeners[usize::from(listener)];
            if *taken >= most {
                count(&self.refusals.listener_full);
                return Err(());
            }
            *taken += 1;
            drop(counts);
            pass.listener = Some(listener);
        }
        if let Some(address) = address {
            pass.comes_from(address)?;
        }
        Ok(Some(Box::new(pass)))
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Counts are whole at every moment, whoever panicked.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass {
    /// The address has become known.
    ///
    /// # Errors
    /// Its bound is reached; counted.
    pub fn comes_from(&mut self, address: IpAddr) -> Result<(), ()> {
        let Some(most) = self.gate.per_address_max else { return Ok(()) };
        let address = address.to_canonical();
        let mut counts = self.gate.counts();
        let taken = counts.addresses.entry(address).or_default();
        if *taken >= most {
            count(&self.gate.refusals.address_full);
            return Err(());
        }
        *taken += 1;
        drop(counts);
        self.address = Some(address);
        Ok(())
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut counts = self.gate.counts();
        if let Some(listener) = self.listener {
            counts.listeners[usize::from(listener)] -= 1;
        }
        if let Some(address) = self.address
            && let Some(taken) = counts.addresses.get_mut(&address)
        {
            *taken -= 1;
            if *taken == 0 {
                counts.addresses.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn gate(listener: Option<u32>, address: Option<u32>) -> Arc<Gate> {
        let mut settings = Settings::default();
        settings.listeners[0].connections_max = listener;
        settings.limits.connections_per_address_max = address;
        Arc::new(Gate::new(&settings.listeners, &settings.limits))
    }

    #[test]
    fn without_bounds_nothing_is_counted() {
        assert!(gate(None, None).enter(0, None).unwrap().is_none());
    }

    #[test]
    fn places_are_given_back_and_refusals_are_counted() {
        let (here, there) = (Some([127, 0, 0, 1].into()), Some([10, 0, 0, 1].into()));
        let gate = gate(Some(2), Some(1));
        let first = gate.enter(0, here).unwrap();
        assert!(gate.enter(0, here).is_err(), "the address is full");
        let second = gate.enter(0, there).unwrap();
        assert!(gate.enter(0, None).is_err(), "the listener is full");
        let causes = gate.refusals.by_cause();
        assert_eq!(causes[..2], [("listener_full", 1), ("address_full", 1)]);
        drop((first, second));
        assert!(gate.counts().addresses.is_empty());
        assert!(gate.enter(0, here).is_ok());
    }

    #[test]
    fn an_address_of_version_4_is_the_same_in_the_clothes_of_version_6() {
        let gate = gate(None, Some(1));
        let _first = gate.enter(0, Some([127, 0, 0, 1].into())).unwrap();
        assert!(gate.enter(0, Some("::ffff:127.0.0.1".parse().unwrap())).is_err());
    }
}
