//! The discipline of a wide-area link: frames wait until the time that the model sets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use softclock_core::Instant;
use softclock_core::pacing::wire_bytes;
use softclock_core::wan::{Fate, Wan};
use softclock_linux::link::Pool;
use softclock_wire::packet::{Headers, Offload, complete_checksum, segments};

use crate::frame::{Discipline, Frame, Next, Row, UNKNOWN_TUNNEL};
use crate::tolerance::Tolerance;

/// The settings of a direction that are not the model's. The default adds nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmulatorOptions {
    /// How late a frame may leave, so that frames that are due within this time leave by one system call. Zero for
    /// none. It includes the usual lateness of a wait: from [`LATE_WAIT`](crate::LATE_WAIT) on, the thread does not
    /// spin before departures. No frame leaves before the model's time, and frames keep their order.
    pub tolerance: Duration,
    /// Bytes on the wire that each frame adds to its own length: 24 on Ethernet.
    pub overhead_bytes: u32,
}

/// One direction of an emulated wide-area link, with the frames on their way.
#[derive(Debug)]
pub struct Emulator {
    model: Wan,
    tolerance: Tolerance,
    overhead_bytes: u32,
    /// Buffers for segments and duplicates.
    pool: Pool,
    /// Ordered by departure, then by arrival.
    on_the_way: BinaryHeap<Reverse<Departure>>,
    arrivals: u64,
    row: Row,
}

#[derive(Debug)]
struct Departure {
    at: Instant,
    arrival: u64,
    frame: Frame,
}

impl Emulator {
    /// Creates a link that delays, drops and changes frames as `model` decides.
    pub fn new(model: Wan, options: EmulatorOptions) -> Self {
        Self {
            model,
            tolerance: Tolerance::of(options.tolerance),
            overhead_bytes: options.overhead_bytes,
            pool: Pool::new(),
            on_the_way: BinaryHeap::new(),
            arrivals: 0,
            row: Row {
                name: "link".into(),
                ..Row::default()
            },
        }
    }

    /// Handles the arrival of one frame on the wire, after segmentation.
    fn on_segment(&mut self, mut frame: Frame) {
        let wire = wire_bytes(frame.bytes.len() as u32, None, self.overhead_bytes);
        let Fate::Leaves {
            at,
            doubled,
            corrupted,
        } = self.fate(wire, frame.arrived)
        else {
            return;
        };
        // Before the duplication, so that both copies have the same error.
        if let Some(bit) = corrupted {
            corrupt(&mut frame, bit);
            self.count("corrupted");
        }
        if doubled {
            self.count("duplicated");
            let copy = frame.copy(&self.pool);
            self.put_on_way(at, copy);
        }
        self.put_on_way(at, frame);
    }

    /// Asks the model for the fate of a frame, and counts losses and the longest queue.
    fn fate(&mut self, wire_bytes: u64, arrived: Instant) -> Fate {
        let fate = self.model.on_arrival(wire_bytes, arrived);
        let queued = self.model.last_queued_packets() as u64;
        if queued > 0 {
            let most = self.row.events.entry(MOST_QUEUED).or_default();
            *most = queued.max(*most);
        }
        match fate {
            Fate::Lost => self.count("lost"),
            Fate::QueueFull => self.count("dropped by a full queue"),
            Fate::Leaves { .. } => {}
        }
        fate
    }

    fn put_on_way(&mut self, at: Instant, frame: Frame) {
        let bytes = frame.bytes.len() as u64;
        if self.row.queued_bytes + bytes > MOST_BYTES {
            return self.count("dropped for too many bytes on the way");
        }
        self.row.queued_bytes += bytes;
        self.row.queued_packets += 1;
        let (packets, bytes) = (self.row.queued_packets, self.row.queued_bytes);
        self.row.activity.on_queued(packets, bytes);
        self.arrivals += 1;
        self.on_the_way.push(Reverse(Departure {
            at,
            arrival: self.arrivals,
            frame,
        }));
    }

    fn count(&mut self, event: &'static str) {
        *self.row.events.entry(event).or_default() += 1;
    }
}

impl Discipline for Emulator {
    fn on_frame(&mut self, frame: Frame, _now: Instant) {
        let headers = Headers::of_frame(&frame.bytes);
        let Some(mut segments) = segments(&frame.bytes, &headers, &frame.offload) else {
            return match frame.is_joined_in_tunnel(&headers) {
                true => self.count(UNKNOWN_TUNNEL),
                false => self.on_segment(frame),
            };
        };
        let (offload, arrived) = (segments.offload(), frame.arrived);
        while let Some(bytes) = segments.next_bytes() {
            let mut bytes = self.pool.buffer(bytes);
            segments.write_next(&mut bytes);
            self.on_segment(Frame {
                bytes,
                offload,
                arrived,
            });
        }
    }

    fn next(&mut self, now: Instant) -> Next {
        match self.on_the_way.peek() {
            None => Next::Empty,
            Some(Reverse(first)) if first.at > now => Next::Wait(first.at + self.tolerance.wait),
            Some(_) => {
                let Reverse(first) = self.on_the_way.pop().expect("it was there");
                let bytes = first.frame.bytes.len() as u32;
                self.row.queued_packets -= 1;
                self.row.queued_bytes -= u64::from(bytes);
                self.row.sent_packets += 1;
                self.row.sent_bytes += wire_bytes(bytes, None, self.overhead_bytes);
                self.row.activity.on_sent(self.row.sent_bytes, now);
                Next::Send(first.frame)
            }
        }
    }

    fn is_rough(&self) -> bool {
        self.tolerance.is_rough
    }

    fn rows(&self) -> Vec<Row> {
        vec![self.row.clone()]
    }
}

/// Flips a bit behind the Ethernet header. A partial checksum is completed first, so that the receiver can detect the
/// error as on a real link.
fn corrupt(frame: &mut Frame, bit: u64) {
    if let Some(checksum) = frame.offload.checksum {
        complete_checksum(&mut frame.bytes, checksum);
    }
    frame.offload = Offload::NONE;
    let bits = frame.bytes.len().saturating_sub(ETHERNET_HEADER) as u64 * 8;
    if bits > 0 {
        let bit = bit % bits;
        frame.bytes[ETHERNET_HEADER + (bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

impl PartialEq for Departure {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Departure {}

impl PartialOrd for Departure {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Departure {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.arrival).cmp(&(other.at, other.arrival))
    }
}

const ETHERNET_HEADER: usize = 14;

/// The most bytes on their way: 2 s at 1 Gbit/s. Their buffers take up to eight times as much memory, if all frames
/// have 253 bytes.
const MOST_BYTES: u64 = 256 << 20;

const MOST_QUEUED: &str = "queued at most at the bottleneck";

#[cfg(test)]
mod tests {
    use super::*;
    use softclock_core::Rate;
    use softclock_core::wan::{Chance, WanOptions};
    use std::time::Duration;

    fn frame(byte: u8, arrived: Instant) -> Frame {
        Frame {
            bytes: Pool::new().copy_of(&[byte; 100]),
            offload: Offload::NONE,
            arrived,
        }
    }

    fn emulator(options: WanOptions) -> Emulator {
        Emulator::new(Wan::new(options, 1), EmulatorOptions::default())
    }

    #[test]
    fn frames_leave_when_the_model_says() {
        let at = |us: u64| Instant::from_ns(us * 1000);
        let mut emulator = emulator(WanOptions {
            delay: Duration::from_micros(100),
            ..WanOptions::default()
        });
        // Both frames are handled late: the delay counts from their arrival.
        emulator.on_frame(frame(1, at(0)), at(30));
        emulator.on_frame(frame(2, at(10)), at(30));
        assert!(matches!(emulator.next(at(99)), Next::Wait(due) if due == at(100)));
        assert!(matches!(emulator.next(at(100)), Next::Send(frame) if frame.bytes[0] == 1));
        assert!(matches!(emulator.next(at(100)), Next::Wait(due) if due == at(110)));
        assert!(matches!(emulator.next(at(111)), Next::Send(_)));
        assert!(matches!(emulator.next(at(111)), Next::Empty));
        assert_eq!(
            (emulator.row.queued_bytes, emulator.row.sent_bytes),
            (0, 200)
        );
    }

    /// The frames that are due within the tolerance of the first leave together, in order, and none before its time.
    #[test]
    fn a_tolerance_lets_frames_leave_together() {
        let at = |us: u64| Instant::from_ns(us * 1000);
        let model = WanOptions {
            delay: Duration::from_micros(500),
            ..WanOptions::default()
        };
        let options = EmulatorOptions {
            tolerance: Duration::from_micros(250),
            ..EmulatorOptions::default()
        };
        let mut emulator = Emulator::new(Wan::new(model, 1), options);
        assert!(emulator.is_rough());
        for (byte, us) in [(1, 0), (2, 150), (3, 200), (4, 201)] {
            emulator.on_frame(frame(byte, at(us)), at(us));
        }
        let mut leave = |now| {
            let mut bytes = Vec::new();
            loop {
                match emulator.next(now) {
                    Next::Send(frame) => bytes.push(frame.bytes[0]),
                    Next::Wait(due) => return (bytes, Some(due)),
                    Next::Empty => return (bytes, None),
                }
            }
        };
        // The wake-up takes 50 us of the tolerance.
        assert_eq!(leave(at(499)), (vec![], Some(at(700))));
        assert_eq!(leave(at(700)), (vec![1, 2, 3], Some(at(901))));
        assert_eq!(leave(at(700)), (vec![], Some(at(901))));
        assert_eq!(leave(at(901)), (vec![4], None));
    }

    /// The overhead counts for each frame, in the bottleneck and in the counters.
    #[test]
    fn overhead_counts_for_each_frame() {
        for (frame, sent_after_us) in [
            (Frame::tcp4(46, None), vec![124]),
            (
                Frame::tcp4(3 * 1400, Some(1400)),
                vec![1478, 2 * 1478, 3 * 1478],
            ),
        ] {
            let options = WanOptions {
                rate: Rate::from_bps(8_000_000),
                ..WanOptions::default()
            };
            let on_ethernet = EmulatorOptions {
                overhead_bytes: 24,
                ..EmulatorOptions::default()
            };
            let mut emulator = Emulator::new(Wan::new(options, 1), on_ethernet);
            emulator.on_frame(frame, Instant::ORIGIN);
            let mut now = Instant::ORIGIN;
            let mut sent = Vec::new();
            loop {
                match emulator.next(now) {
                    Next::Send(_) => sent.push(now.as_ns() / 1000),
                    Next::Wait(due) => now = due,
                    Next::Empty => break,
                }
            }
            assert_eq!(sent, sent_after_us);
            assert_eq!(emulator.row.sent_bytes, sent[sent.len() - 1]);
        }
    }

    #[test]
    fn joined_packets_in_a_tunnel_are_cut_or_counted() {
        const GRE: u8 = 47;
        let mut emulator = emulator(WanOptions::default());
        for header in [&[0, 0, 8, 0][..], &[0x80, 0, 8, 0, 0, 0, 0, 0]] {
            let frame = Frame::tcp4_in_tunnel(3, GRE, header);
            emulator.on_frame(frame, Instant::ORIGIN);
        }
        assert_eq!(emulator.row.queued_packets, 3);
        assert_eq!(emulator.row.events[UNKNOWN_TUNNEL], 1);
    }

    #[test]
    fn one_bit_changes_and_copies_are_alike() {
        let mut emulator = emulator(WanOptions {
            corrupt: Chance::of_share(1.0),
            duplicate: Chance::of_share(1.0),
            ..WanOptions::default()
        });
        emulator.on_frame(frame(0, Instant::ORIGIN), Instant::ORIGIN);
        let mut sent = std::iter::from_fn(|| match emulator.next(Instant::ORIGIN) {
            Next::Send(frame) => Some(frame.bytes.to_vec()),
            _ => None,
        });
        let (first, second) = (sent.next().unwrap(), sent.next().unwrap());
        assert_eq!(first, second);
        assert_eq!(first.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        assert_eq!(first[..ETHERNET_HEADER], [0; ETHERNET_HEADER]);
        assert_eq!(sent.next(), None);
    }
}
