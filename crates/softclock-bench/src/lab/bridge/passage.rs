//! The time that datagrams of iperf3 take between two captures: the difference of the kernel's time stamps, paired by
//! the number that iperf3 gives each datagram.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use softclock_core::Instant;
use softclock_wire::packet::Headers;

use super::capture::each_packet;

/// The datagrams of a capture.
#[derive(Debug, Default)]
pub struct Datagrams {
    /// The number and time of each datagram.
    seen: Vec<(u32, Instant)>,
    /// Frames that tcpdump did not take from the kernel in time.
    pub(super) uncaptured: u64,
}

/// The datagrams that passed both captures.
#[derive(Clone, Debug, Default)]
pub struct Passage {
    /// The times between the captures, in ascending order.
    times_ns: Vec<i64>,
    /// Datagrams in the first capture only, between others that arrived.
    pub lost: usize,
    /// Frames that the second capture missed: up to this many of the lost datagrams did arrive.
    pub uncaptured: u64,
}

impl Datagrams {
    pub(super) fn decode(capture: &[u8]) -> io::Result<Self> {
        let mut datagrams = Self::default();
        each_packet(capture, |at, packet| {
            let number = number(packet.data);
            datagrams.seen.extend(number.map(|number| (number, at)));
        })?;
        Ok(datagrams)
    }
}

impl Passage {
    /// Pairs the datagrams of two captures.
    pub fn between(first: &Datagrams, second: &Datagrams) -> Self {
        let arrived: HashMap<u32, Instant> = second.seen.iter().copied().collect();
        let mut passage = Self {
            uncaptured: second.uncaptured,
            ..Self::default()
        };
        let mut missing = 0;
        for (number, left) in &first.seen {
            let Some(arrived) = arrived.get(number) else {
                // Datagrams before the first that arrived may have passed before the second capture began.
                missing += usize::from(!passage.times_ns.is_empty());
                continue;
            };
            // A later datagram arrived, so those before it are lost and not under way.
            passage.lost += std::mem::take(&mut missing);
            let time = arrived.as_ns().wrapping_sub(left.as_ns());
            passage.times_ns.push(time as i64);
        }
        passage.times_ns.sort_unstable();
        passage
    }

    /// Returns whether no datagram is in both captures.
    pub fn is_empty(&self) -> bool {
        self.times_ns.is_empty()
    }

    /// Returns the microseconds by which each datagram took longer than `delay`, in ascending order; negative for early
    /// ones.
    pub fn late_us(&self, delay: Duration) -> Vec<f64> {
        let delay_ns = delay.as_nanos() as i64;
        let late = self.times_ns.iter();
        late.map(|time| (time - delay_ns) as f64 / 1e3).collect()
    }
}

/// Reads the number of a datagram of iperf3, whose data begin with seconds, microseconds and number, four bytes each.
fn number(frame: &[u8]) -> Option<u32> {
    let data = frame.get(Headers::of_frame(frame).payload_offset?..)?;
    Some(u32::from_be_bytes(*data.get(8..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagrams(seen: &[(u32, u64)]) -> Datagrams {
        let seen = seen.iter();
        let seen = seen.map(|&(number, us)| (number, Instant::from_ns(us * 1_000)));
        Datagrams {
            seen: seen.collect(),
            uncaptured: 0,
        }
    }

    #[test]
    fn datagrams_are_paired_by_number() {
        // 1 was sent before the second capture began, 4 is lost, 6 is still under way.
        let mut first = datagrams(&[(1, 0), (2, 10), (3, 20), (4, 30), (5, 40), (6, 50)]);
        let mut second = datagrams(&[(2, 1_015), (5, 1_041), (3, 1_050)]);
        // Losses of the first capture do not count.
        (first.uncaptured, second.uncaptured) = (7, 3);
        let passage = Passage::between(&first, &second);
        assert_eq!(passage.late_us(Duration::from_millis(1)), [1.0, 5.0, 30.0]);
        assert_eq!(passage.late_us(Duration::from_micros(1_002))[0], -1.0);
        assert_eq!((passage.lost, passage.uncaptured), (1, 3));
        assert!(Passage::between(&first, &datagrams(&[])).is_empty());
    }

    #[test]
    fn numbers_stand_behind_the_time() {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 48, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9, 0, 28, 0, 0]);
        frame.extend([1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 1, 5]);
        assert_eq!(number(&frame), Some(0x105));
        assert_eq!(number(&frame[..frame.len() - 1]), None);
    }
}
