//! The demo's bookkeeping: which message of which device was published, acknowledged and seen at the datacenter. Pure.
//!
//! Messages of a device are numbered from 1 without gaps. A message that arrives again is a duplicate, whatever its place: at
//! least once allows that. A message that arrives for the first time behind a later one is out of order. A message is lost
//! when it was acknowledged and never arrived. Memory: one byte for each message, at most [`MESSAGES_MAX`] for each device.

/// Messages of one device.
pub const MESSAGES_MAX: u32 = 1_000_000;

const ACKNOWLEDGED: u8 = 1;
const ARRIVED: u8 = 2;

/// What is known of all devices.
#[derive(Debug, Default)]
pub struct Checker {
    devices: Vec<Track>,
    published: u64,
    acknowledged: u64,
    arrived: u64,
    unsettled: u64,
    duplicates: u64,
    out_of_order: u64,
    foreign: u64,
    resent: u64,
    reconnects: u64,
}

#[derive(Debug, Default)]
struct Track {
    marks: Vec<u8>,
    newest_arrived: u32,
}

/// The counts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Different messages that devices made.
    pub published: u64,
    /// Of these, acknowledged by the gateway.
    pub acknowledged: u64,
    /// Of these, seen at the datacenter at least once.
    pub arrived: u64,
    /// Acknowledged and not seen at the datacenter: under way while the demo runs, lost at its end.
    pub missing: u64,
    /// Arrivals beyond the first.
    pub duplicates: u64,
    /// First arrivals behind a later message of the same device.
    pub out_of_order: u64,
    /// Arrivals that no device has published.
    pub foreign: u64,
    /// Messages that devices sent again after a lost connection.
    pub resent: u64,
    /// Connections of devices beyond the first of each.
    pub reconnects: u64,
}

impl Tally {
    /// Every message is acknowledged and has arrived.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.acknowledged == self.published && self.arrived == self.published
    }
}

impl Checker {
    /// For `devices` devices that have not published anything.
    #[must_use]
    pub fn new(devices: usize) -> Self {
        Self { devices: (0..devices).map(|_| Track::default()).collect(), ..Self::default() }
    }

    /// The device makes its next message. Returns its number; `None` when it has made [`MESSAGES_MAX`] or does not exist.
    pub fn publish(&mut self, device: usize) -> Option<u32> {
        let track = self.devices.get_mut(device)?;
        let number = u32::try_from(track.marks.len()).ok()? + 1;
        if number > MESSAGES_MAX {
            return None;
        }
        track.marks.push(0);
        self.published += 1;
        Some(number)
    }

    /// The gateway acknowledged the message.
    pub fn acknowledge(&mut self, device: usize, number: u32) {
        let Some(mark) = self.mark(device, number) else {
            self.foreign += 1;
            return;
        };
        let before = *mark;
        *mark |= ACKNOWLEDGED;
        if before & ACKNOWLEDGED == 0 {
            self.acknowledged += 1;
            self.unsettled += u64::from(before & ARRIVED == 0);
        }
    }

    /// The message was seen at the datacenter.
    pub fn arrive(&mut self, device: usize, number: u32) {
        let Some(mark) = self.mark(device, number) else {
            self.foreign += 1;
            return;
        };
        let before = *mark;
        *mark |= ARRIVED;
        if before & ARRIVED != 0 {
            self.duplicates += 1;
            return;
        }
        self.arrived += 1;
        self.unsettled -= u64::from(before & ACKNOWLEDGED);
        let track = &mut self.devices[device];
        self.out_of_order += u64::from(number < track.newest_arrived);
        track.newest_arrived = track.newest_arrived.max(number);
    }

    /// Something arrived that is no message of a device.
    pub fn arrive_foreign(&mut self) {
        self.foreign += 1;
    }

    /// A device connected again and sent `messages` again.
    pub fn reconnect(&mut self, messages: usize) {
        self.reconnects += 1;
        self.resent += messages as u64;
    }

    /// The counts.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally {
            published: self.published,
            acknowledged: self.acknowledged,
            arrived: self.arrived,
            missing: self.unsettled,
            duplicates: self.duplicates,
            out_of_order: self.out_of_order,
            foreign: self.foreign,
            resent: self.resent,
            reconnects: self.reconnects,
        }
    }

    /// Up to `count_max` messages, as device and number, that were acknowledged and have not arrived.
    #[must_use]
    pub fn examples_of_missing(&self, count_max: usize) -> Vec<(usize, u32)> {
        let marks = self.devices.iter().enumerate().flat_map(|(device, track)| {
            track.marks.iter().zip(1u32..).map(move |(mark, number)| (*mark, device, number))
        });
        marks
            .filter(|(mark, _, _)| *mark == ACKNOWLEDGED)
            .map(|(_, device, number)| (device, number))
            .take(count_max)
            .collect()
    }

    fn mark(&mut self, device: usize, number: u32) -> Option<&mut u8> {
        let place = usize::try_from(number.checked_sub(1)?).ok()?;
        self.devices.get_mut(device)?.marks.get_mut(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_published(devices: usize, messages: u32) -> Checker {
        let mut checker = Checker::new(devices);
        for device in 0..devices {
            for number in 1..=messages {
                assert_eq!(checker.publish(device), Some(number));
            }
        }
        checker
    }

    #[test]
    fn an_acknowledged_message_that_does_not_arrive_is_missing_and_named() {
        let mut checker = with_published(2, 3);
        for number in 1..=3 {
            checker.acknowledge(1, number);
        }
        checker.arrive(1, 1);
        checker.arrive(1, 3);
        assert_eq!(checker.tally().missing, 1);
        assert_eq!(checker.examples_of_missing(10), [(1, 2)]);
        assert!(!checker.tally().is_drained());
    }

    #[test]
    fn a_message_that_arrives_before_its_acknowledgement_is_never_missing() {
        let mut checker = with_published(1, 1);
        checker.arrive(0, 1);
        assert_eq!((checker.tally().missing, checker.tally().is_drained()), (0, false));
        checker.acknowledge(0, 1);
        assert_eq!((checker.tally().missing, checker.tally().is_drained()), (0, true));
    }

    #[test]
    fn a_repetition_is_a_duplicate_and_not_out_of_order() {
        let mut checker = with_published(1, 3);
        for number in [1, 2, 1, 2, 3] {
            checker.arrive(0, number);
        }
        let tally = checker.tally();
        assert_eq!((tally.arrived, tally.duplicates, tally.out_of_order), (3, 2, 0));
    }

    #[test]
    fn a_first_arrival_behind_a_later_message_is_out_of_order_for_its_device_only() {
        let mut checker = with_published(2, 3);
        for (device, number) in [(0, 2), (1, 1), (0, 1), (0, 3)] {
            checker.arrive(device, number);
        }
        assert_eq!(checker.tally().out_of_order, 1);
    }

    #[test]
    fn acknowledging_twice_counts_once() {
        let mut checker = with_published(1, 1);
        checker.acknowledge(0, 1);
        checker.acknowledge(0, 1);
        assert_eq!((checker.tally().acknowledged, checker.tally().missing), (1, 1));
    }

    #[test]
    fn what_nobody_has_published_is_foreign() {
        let mut checker = with_published(1, 1);
        for (device, number) in [(0, 0), (0, 2), (1, 1)] {
            checker.arrive(device, number);
        }
        checker.arrive_foreign();
        assert_eq!((checker.tally().foreign, checker.tally().arrived), (4, 0));
    }
}
