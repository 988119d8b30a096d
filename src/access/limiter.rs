//! How many wrong passwords an address may send.
//!
//! Bound: [`ADDRESSES_MAX`]; beyond it the address that has failed least lately is forgotten.

use hashbrown::HashMap;

use super::AddressKey;
use crate::time::Mono;

/// Addresses that are remembered for their failures.
pub const ADDRESSES_MAX: usize = 4096;

const MINUTE_MILLIS: u64 = 60_000;

/// Failures of one address: so many were not yet made up for by time at that moment.
#[derive(Clone, Copy, Debug)]
struct Failures {
    /// In thousandths of a failure.
    weight: u64,
    at_millis: u64,
}

/// Counts failures by address.
#[derive(Debug)]
pub struct Limiter {
    per_minute: u32,
    failures: HashMap<AddressKey, Failures>,
}

impl Limiter {
    /// Lets every address fail so many times in a minute; 0: any number of times.
    #[must_use]
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute, failures: HashMap::new() }
    }

    /// Another bound; what was counted stays.
    pub fn set_per_minute(&mut self, per_minute: u32) {
        self.per_minute = per_minute;
    }

    /// Whether the address may try a password.
    #[must_use]
    pub fn allows(&self, address: AddressKey, now: Mono) -> bool {
        let left = self.failures.get(&address).map_or(0, |failures| self.weight(failures, now));
        self.per_minute == 0 || address.0.is_none() || left + 1000 <= u64::from(self.per_minute) * 1000
    }

    /// The address sent a wrong password.
    pub fn failed(&mut self, address: AddressKey, now: Mono) {
        if self.per_minute == 0 || address.0.is_none() {
            return;
        }
        if self.failures.len() >= ADDRESSES_MAX && !self.failures.contains_key(&address) {
            self.forget(now);
        }
        let before = self.failures.get(&address).map_or(0, |failures| self.weight(failures, now));
        self.failures.insert(address, Failures { weight: before + 1000, at_millis: now.as_millis() });
    }

    fn weight(&self, failures: &Failures, now: Mono) -> u64 {
        let passed = now.as_millis().saturating_sub(failures.at_millis);
        let regained = passed.saturating_mul(u64::from(self.per_minute) * 1000) / MINUTE_MILLIS;
        failures.weight.saturating_sub(regained)
    }

    /// Forgets all whose failures are made up for, or else the one that failed longest ago.
    fn forget(&mut self, now: Mono) {
        let mut failures = std::mem::take(&mut self.failures);
        failures.retain(|_, entry| self.weight(entry, now) > 0);
        if failures.len() >= ADDRESSES_MAX
            && let Some(oldest) =
                failures.iter().min_by_key(|(_, entry)| entry.at_millis).map(|(address, _)| *address)
        {
            failures.remove(&oldest);
        }
        self.failures = failures;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Mono {
        Mono(millis * 1000)
    }

    #[test]
    fn an_address_that_fails_too_often_has_to_wait_and_others_do_not() {
        let (bad, good) = (AddressKey(Some(1)), AddressKey(Some(2)));
        let mut limiter = Limiter::new(6);
        for _ in 0..6 {
            assert!(limiter.allows(bad, at(0)));
            limiter.failed(bad, at(0));
        }
        assert!(!limiter.allows(bad, at(9_999)));
        assert!(limiter.allows(good, at(0)));
        assert!(limiter.allows(bad, at(10_000)));
        limiter.failed(bad, at(10_000));
        assert!(!limiter.allows(bad, at(10_001)));
        assert!(limiter.allows(AddressKey(None), at(0)));
    }

    #[test]
    fn the_number_of_remembered_addresses_is_bounded() {
        let mut limiter = Limiter::new(1);
        for address in 0..2 * ADDRESSES_MAX as u128 {
            limiter.failed(AddressKey(Some(address)), at(address as u64));
        }
        assert_eq!(limiter.failures.len(), ADDRESSES_MAX);
        assert!(limiter.allows(AddressKey(Some(0)), at(0)));
        assert!(
            !limiter.allows(AddressKey(Some(2 * ADDRESSES_MAX as u128 - 1)), at(2 * ADDRESSES_MAX as u64))
        );
    }
}
