//! Frames on their way, and what treats them on it.

use std::collections::BTreeMap;
use std::time::Duration;

use softclock_core::Instant;
use softclock_linux::link::{Buffer, Pool};
use softclock_wire::packet::Offload;

/// A frame of Ethernet, in the memory that it was received into. That is used again when the frame is dropped.
#[derive(Debug)]
pub struct Frame {
    /// From the header of Ethernet on, without the check sequence.
    pub bytes: Buffer,
    /// What is left to do with it.
    pub offload: Offload,
    /// When the kernel received it.
    pub arrived: Instant,
}

impl Frame {
    /// A copy, in a buffer of the pool.
    pub(crate) fn copy(&self, pool: &Pool) -> Self {
        Self {
            bytes: pool.copy_of(&self.bytes),
            ..*self
        }
    }
}

/// Decides when each frame of one direction leaves. Pure: time is an argument.
pub trait Discipline: 'static {
    /// Takes a frame, or drops it and counts that. Allocates nothing for it, as a rule: queues grow.
    fn on_frame(&mut self, frame: Frame, now: Instant);

    /// The next frame that may leave at `now`, or when that will be.
    fn next(&mut self, now: Instant) -> Next;

    /// What happened so far, by class.
    fn rows(&self) -> Vec<Row>;
}

/// What to do now.
#[derive(Debug)]
pub enum Next {
    /// This frame leaves.
    Send(Frame),
    /// Nothing before this instant.
    Wait(Instant),
    /// Nothing until another frame arrives.
    Empty,
}

/// What one class did so far.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// How it is treated.
    pub rule: String,
    /// Packets sent.
    pub sent_packets: u64,
    /// Their bytes on the wire.
    pub sent_bytes: u64,
    /// Packets that wait.
    pub queued_packets: usize,
    /// Their bytes on the wire.
    pub queued_bytes: u64,
    /// When it sent, and how much waited at most.
    pub activity: Activity,
    /// Drops and other events.
    pub events: Counts,
}

/// When a class sent, and how much waited in it at most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Activity {
    first: Option<Sent>,
    last: Option<Sent>,
    /// Packets that waited at most.
    pub most_queued_packets: usize,
    /// Bytes that waited at most.
    pub most_queued_bytes: u64,
}

/// The bytes that a class had sent in all, just after a frame.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    bytes: u64,
}

impl Activity {
    /// So much waits, a frame that has just arrived included.
    pub fn on_queued(&mut self, packets: usize, bytes: u64) {
        self.most_queued_packets = self.most_queued_packets.max(packets);
        self.most_queued_bytes = self.most_queued_bytes.max(bytes);
    }

    /// A frame leaves, with which the class has sent so many bytes in all.
    pub fn on_sent(&mut self, bytes: u64, at: Instant) {
        let sent = Sent { at, bytes };
        self.first.get_or_insert(sent);
        self.last = Some(sent);
    }

    /// From the first frame to the last.
    pub fn duration(&self) -> Duration {
        let both = self.first.zip(self.last);
        both.map_or(Duration::ZERO, |(first, last)| last.at.since(first.at))
    }

    /// The mean rate of what followed the first frame; `None` if all left at once.
    pub fn bits_per_second(&self) -> Option<f64> {
        let (first, last) = self.first.zip(self.last)?;
        let seconds = self.duration().as_secs_f64();
        (seconds > 0.0).then(|| (last.bytes - first.bytes) as f64 * 8.0 / seconds)
    }
}

/// Counts by name: drops and other events.
pub type Counts = BTreeMap<&'static str, u64>;

#[cfg(test)]
impl Frame {
    /// TCP over IPv4 to port 80: a frame, or several segments that an offload has joined.
    pub(crate) fn tcp4(payload_bytes: usize, segment_bytes: Option<u16>) -> Self {
        use softclock_wire::packet::{PartialChecksum, SegmentKind, Segmentation};

        let mut bytes = vec![2; 12];
        bytes.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0]);
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 80]);
        bytes.resize(46, 0);
        bytes.push(0x50);
        bytes.resize(54 + payload_bytes, 0);
        let checksum = PartialChecksum {
            start: 34,
            offset: 16,
        };
        let segmentation = segment_bytes.map(|segment_bytes| Segmentation {
            kind: SegmentKind::Tcp4,
            has_ecn: false,
            header_bytes: 54,
            segment_bytes,
        });
        Self {
            bytes: Pool::new().copy_of(&bytes),
            offload: Offload {
                checksum: Some(checksum),
                segmentation,
            },
            arrived: Instant::ORIGIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time before and after does not count.
    #[test]
    fn rates_are_of_the_time_of_activity() {
        let ms = |ms: u64| Instant::from_ns(ms * 1_000_000);
        let mut activity = Activity::default();
        assert_eq!(
            (activity.duration(), activity.bits_per_second()),
            (Duration::ZERO, None)
        );
        activity.on_sent(1000, ms(5000));
        assert_eq!(activity.bits_per_second(), None, "a frame has no rate");
        activity.on_sent(2000, ms(5001));
        activity.on_sent(3000, ms(5002));
        assert_eq!(activity.duration(), Duration::from_millis(2));
        assert_eq!(activity.bits_per_second(), Some(8e6));
        activity.on_queued(3, 3000);
        activity.on_queued(2, 4000);
        let most = (activity.most_queued_packets, activity.most_queued_bytes);
        assert_eq!(most, (3, 4000));
    }
}
