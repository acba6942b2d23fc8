//! The rate of a path, measured by datagrams that leave back to back.
//!
//! The slowest link of the path spreads a train of them: they arrive as far apart as it needs for each. So do their
//! acknowledgments, and the rate is known after one round trip, at a window far below it (packet trains: Dovrolis,
//! Ramanathan and Moore, *Packet-Dispersion Techniques and a Capacity-Estimation Methodology*, 2004, section II).
//!
//! The measurement is rough. What delays a datagram within a train makes the rate look lower, and what delays its first
//! one, or joins acknowledgments, makes it look higher.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The trains of a connection that wait in its sender or are on their way.
#[derive(Debug, Default)]
pub(crate) struct Trains {
    queued: VecDeque<Queued>,
    /// The last packet number that was handed over.
    last: Option<u64>,
    left: VecDeque<Train>,
    /// The largest packet number that was acknowledged.
    largest: u64,
    /// The trains that have left since the last measurement.
    in_vain: u32,
    /// The newest measurements, the oldest first.
    found: VecDeque<Dispersion>,
    /// The rate by them.
    bytes_per_second: Option<u64>,
}

/// Datagrams that were handed over to the sender together, with consecutive packet numbers.
#[derive(Clone, Copy, Debug)]
struct Queued {
    datagrams: usize,
    /// The packet number of the last one, or `None` if their numbers are unknown.
    last: Option<u64>,
    /// The payload of each.
    bytes: usize,
}

/// Datagrams that left back to back.
#[derive(Debug)]
struct Train {
    first: u64,
    last: u64,
    bytes: usize,
    /// The first acknowledgment within it: the largest packet number, and the time.
    acknowledged: Option<(u64, Instant)>,
}

/// The bytes that arrived in a time.
#[derive(Clone, Copy, Debug)]
struct Dispersion {
    bytes: u64,
    nanos: u64,
}

impl Trains {
    /// Adds datagrams to those that wait, the last of which has a packet number. The others have those before it if they
    /// follow those of the last call: quinn leaves out numbers at random (RFC 9000, section 21.4), and those of the
    /// handshake count from 0, too. Returns false if so many calls wait that their sender must have dropped some, of
    /// which nothing is known.
    pub(crate) fn queue(&mut self, datagrams: usize, bytes: usize, last: Option<u64>) -> bool {
        let before = last.and_then(|last| last.checked_sub(datagrams as u64));
        let follows = before.is_some() && before == self.last;
        self.last = last;
        self.queued.push_back(Queued {
            datagrams,
            last: last.filter(|_| follows),
            bytes,
        });
        self.queued.len() <= MOST_QUEUED
    }

    /// Removes those that were added last, as their sender has not taken them.
    pub(crate) fn cancel(&mut self) {
        self.queued.pop_back();
    }

    /// Records that datagrams that waited have left: back to back, or not at all.
    pub(crate) fn leave(&mut self, mut datagrams: usize, is_train: bool) {
        let mut train: Option<Train> = None;
        let mut is_known = is_train && datagrams >= SHORTEST;
        while datagrams > 0 {
            let Some(front) = self.queued.front_mut() else {
                return;
            };
            let taken = front.datagrams.min(datagrams);
            front.datagrams -= taken;
            datagrams -= taken;
            let rest = front.datagrams as u64;
            let last = front.last.and_then(|last| last.checked_sub(rest));
            match (last, &mut train) {
                (Some(last), Some(train)) if last.checked_sub(taken as u64) == Some(train.last) => {
                    train.last = last;
                }
                (Some(last), None) => {
                    train = Some(Train {
                        first: last.saturating_sub(taken as u64 - 1),
                        last,
                        bytes: front.bytes,
                        acknowledged: None,
                    });
                }
                _ => is_known = false,
            }
            if rest == 0 {
                self.queued.pop_front();
            }
        }
        if let Some(train) = train.filter(|_| is_known) {
            if self.left.len() == MOST_LEFT {
                self.left.pop_front();
            }
            self.left.push_back(train);
            self.in_vain += 1;
        }
    }

    /// Records an acknowledgment of packets up to `largest`.
    pub(crate) fn acknowledge(&mut self, now: Instant, largest: u64) {
        if largest < self.largest {
            // Another space of packet numbers.
            self.left.clear();
        }
        self.largest = largest;
        while self.left.front().is_some_and(|train| train.last < largest) {
            self.left.pop_front();
        }
        let Some(train) = self.left.front_mut() else {
            return;
        };
        if largest < train.first {
            return;
        }
        let Some((first, at)) = train.acknowledged else {
            train.acknowledged = Some((largest, now));
            return;
        };
        let packets = largest.saturating_sub(first);
        let nanos = now.saturating_duration_since(at).as_nanos();
        if packets < LEAST_PACKETS {
            return;
        }
        let dispersion = Dispersion {
            bytes: packets.saturating_mul(train.bytes as u64),
            nanos: u64::try_from(nanos).unwrap_or(u64::MAX),
        };
        self.left.pop_front();
        if self.found.len() == MOST_FOUND {
            self.found.pop_front();
        }
        self.found.push_back(dispersion);
        self.in_vain = 0;
        // Without a sound mean, such as after acknowledgments that arrived together, the last one stays.
        self.bytes_per_second =
            mean(self.found.iter().copied().collect()).or(self.bytes_per_second);
    }

    /// Whether there are enough measurements for a sound mean.
    pub(crate) fn is_settled(&self) -> bool {
        self.found.len() >= MOST_FOUND / 2
    }

    /// Whether trains seem to lead to no measurement, such as those to a receiver that acknowledges seldom.
    pub(crate) fn are_in_vain(&self) -> bool {
        self.in_vain > MOST_IN_VAIN
    }

    /// Returns the rate of the path in bytes of payload a second. `None` before the first measurement, and while they
    /// take so little time that wake-ups on the way distort them.
    pub(crate) fn bytes_per_second(&self) -> Option<u64> {
        self.bytes_per_second
    }
}

/// Returns the mean of the middle half. Of fewer than four, the slower ones do not count, as most disturbances spread a
/// train.
fn mean(mut found: Vec<Dispersion>) -> Option<u64> {
    let time_of = |one: &Dispersion, bytes: u64| u128::from(one.nanos) * u128::from(bytes);
    found.sort_by(|a, b| time_of(a, b.bytes).cmp(&time_of(b, a.bytes)));
    let fastest = found.len() / 4;
    let slowest = found.len() / if found.len() < 4 { 2 } else { 4 };
    let middle = &found[fastest..found.len() - slowest];
    let bytes: u128 = middle.iter().map(|one| u128::from(one.bytes)).sum();
    let nanos: u128 = middle.iter().map(|one| u128::from(one.nanos)).sum();
    let wake_ups = RESOLUTION.as_nanos() * middle.len() as u128;
    if middle.is_empty() || nanos < 3 * wake_ups {
        return None;
    }
    let rate = bytes * 1_000_000_000 / (nanos + wake_ups);
    Some(rate.try_into().unwrap_or(u64::MAX))
}

/// The datagrams of a train, if its sender may send so many back to back. Fewer are acknowledged once or twice, too
/// seldom for a measurement: receivers acknowledge every second one (RFC 9000, section 13.2.2).
pub(crate) const TRAIN: u32 = 4;

/// What a wake-up of the receiver takes away from a measurement: the first of two acknowledgments waits for it more
/// often than the second.
const RESOLUTION: Duration = Duration::from_micros(30);

/// The datagrams of the shortest train that is measured.
const SHORTEST: usize = 3;

/// The packets between the two acknowledgments of a measurement.
const LEAST_PACKETS: u64 = 2;

/// The most calls whose datagrams wait.
const MOST_QUEUED: usize = 1024;

/// The most trains in a row without a measurement.
const MOST_IN_VAIN: u32 = 64;

/// The most trains that are on their way; the oldest are forgotten.
const MOST_LEFT: usize = 256;

/// The measurements that count.
const MOST_FOUND: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 1250;

    /// After a packet with the number 0.
    fn trains() -> Trains {
        let mut trains = Trains::default();
        send(&mut trains, 1, 0);
        trains
    }

    /// Hands over a train whose last packet has this number, and lets it leave.
    fn send(trains: &mut Trains, datagrams: usize, last: u64) {
        assert!(trains.queue(datagrams, BYTES, Some(last)));
        trains.leave(datagrams, true);
    }

    /// Trains of four, each of which takes this time from the second packet to the fourth.
    fn measured(times_us: &[u64]) -> Option<u64> {
        let (mut trains, mut now) = (trains(), Instant::now());
        for (number, &time_us) in (4..).step_by(4).zip(times_us) {
            send(&mut trains, 4, number);
            now += Duration::from_millis(50);
            trains.acknowledge(now, number - 2);
            trains.acknowledge(now + Duration::from_micros(time_us), number);
        }
        trains.bytes_per_second()
    }

    #[test]
    fn two_acknowledgments_of_a_train_tell_the_rate() {
        // 2500 bytes in 2 ms.
        assert_eq!(measured(&[1970]), Some(1_250_000));
        assert_eq!(measured(&[]), None);
    }

    #[test]
    fn disturbed_trains_do_not_count() {
        assert_eq!(measured(&[90_000, 1970]), Some(1_250_000), "a late one");
        let mostly = [1970, 0, 1970, 1970, 50_000, 1970, 1970, 1970];
        assert_eq!(measured(&mostly), Some(1_250_000));
        // Only the newest count.
        let mut slower = vec![400; 100];
        slower.extend([1970; MOST_FOUND]);
        assert_eq!(measured(&slower), Some(1_250_000));
    }

    #[test]
    fn times_of_wake_ups_are_no_measurement() {
        assert_eq!(measured(&[0, 0, 0]), None);
        assert_eq!(measured(&[89; 8]), None);
        assert!(measured(&[90; 8]).is_some());
    }

    #[test]
    fn datagrams_of_several_transmissions_leave_as_one_train() {
        let (mut trains, now) = (trains(), Instant::now());
        assert!(trains.queue(3, BYTES, Some(3)));
        assert!(trains.queue(3, BYTES, Some(6)));
        trains.leave(1, true);
        // Packets 2 to 5.
        trains.leave(4, true);
        trains.acknowledge(now, 1);
        trains.acknowledge(now + Duration::from_millis(1), 3);
        trains.acknowledge(now + Duration::from_millis(2), 5);
        assert!(trains.bytes_per_second().is_some());
    }

    #[test]
    fn what_is_no_train_is_not_measured() {
        let leave = |datagrams: usize, last: Option<u64>, is_train: bool| {
            let (mut trains, now) = (trains(), Instant::now());
            assert!(trains.queue(datagrams, BYTES, last));
            trains.leave(datagrams, is_train);
            trains.acknowledge(now, 2);
            trains.acknowledge(now + Duration::from_millis(1), 4);
            trains.bytes_per_second()
        };
        assert!(leave(4, Some(4), true).is_some());
        assert_eq!(leave(4, None, true), None, "no packet numbers");
        assert_eq!(leave(4, Some(4), false), None, "by several calls");
        assert_eq!(leave(2, Some(2), true), None, "too short");
        assert_eq!(leave(4, Some(5), true), None, "a number left out");
        assert_eq!(leave(4, Some(3), true), None, "other numbers");
    }

    #[test]
    fn numbers_that_go_back_are_another_space() {
        let (mut trains, now) = (trains(), Instant::now());
        send(&mut trains, 4, 4);
        trains.acknowledge(now, 2);
        trains.acknowledge(now, 1);
        trains.acknowledge(now + Duration::from_millis(1), 4);
        assert_eq!(trains.bytes_per_second(), None);
    }

    #[test]
    fn a_refused_transmission_is_forgotten() {
        let (mut trains, now) = (trains(), Instant::now());
        assert!(trains.queue(4, BYTES, Some(4)));
        trains.cancel();
        // The same again.
        send(&mut trains, 4, 4);
        send(&mut trains, 4, 8);
        trains.acknowledge(now, 6);
        trains.acknowledge(now + Duration::from_millis(1), 8);
        assert!(trains.bytes_per_second().is_some());
    }

    #[test]
    fn measurements_that_fail_keep_the_last_rate() {
        let mut times = vec![1970; 2];
        times.extend([0; MOST_FOUND]);
        assert!(measured(&times).is_some());
    }

    #[test]
    fn trains_that_are_not_measured_are_in_vain() {
        let mut trains = trains();
        for number in (4..).step_by(4).take(70) {
            assert_eq!(trains.are_in_vain(), number > 4 * 65);
            send(&mut trains, 4, number);
            trains.acknowledge(Instant::now(), number);
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Call {
        Queue(usize, Option<u64>),
        Cancel,
        Leave(usize, bool),
        Acknowledge(u64, u64),
    }

    fn call() -> impl Strategy<Value = Call> {
        let number = prop_oneof![0..50_u64, Just(u64::MAX)];
        prop_oneof![
            (1..12_usize, proptest::option::of(number.clone()))
                .prop_map(|(a, b)| Call::Queue(a, b)),
            Just(Call::Cancel),
            (0..20_usize, any::<bool>()).prop_map(|(a, b)| Call::Leave(a, b)),
            (0..3_000_000_u64, number).prop_map(|(a, b)| Call::Acknowledge(a, b)),
        ]
    }

    proptest! {
        #[test]
        fn any_calls_leave_it_bounded(calls in proptest::collection::vec(call(), 0..3000)) {
            let (mut trains, mut now) = (Trains::default(), Instant::now());
            for call in calls {
                match call {
                    Call::Queue(datagrams, last) => {
                        if !trains.queue(datagrams, BYTES, last) {
                            trains = Trains::default();
                        }
                    }
                    Call::Cancel => trains.cancel(),
                    Call::Leave(datagrams, is_train) => trains.leave(datagrams, is_train),
                    Call::Acknowledge(later_ns, largest) => {
                        now += Duration::from_nanos(later_ns);
                        trains.acknowledge(now, largest);
                    }
                }
                prop_assert!(trains.queued.len() <= MOST_QUEUED);
                prop_assert!(trains.left.len() <= MOST_LEFT && trains.found.len() <= MOST_FOUND);
            }
        }
    }
}
