//! Frames, the [`Discipline`]s that decide when they leave, and their counters.

use std::collections::BTreeMap;
use std::time::Duration;

use softclock_core::Instant;
use softclock_linux::link::{Buffer, Pool};
use softclock_wire::packet::{Headers, Offload};

/// An Ethernet frame, in the buffer that it was received into. Dropping the frame returns the buffer to its pool.
#[derive(Debug)]
pub struct Frame {
    /// The frame from the Ethernet header on, without the frame check sequence.
    pub bytes: Buffer,
    /// Checksum and segmentation that are still to be done by the sending link.
    pub offload: Offload,
    /// When the kernel received it.
    pub arrived: Instant,
}

impl Frame {
    /// Copies the frame into a buffer of `pool`.
    pub(crate) fn copy(&self, pool: &Pool) -> Self {
        Self {
            bytes: pool.copy_of(&self.bytes),
            ..*self
        }
    }

    /// Whether these are joined packets in a tunnel: the offload is that of the packet inside. A link would drop or
    /// damage them, since the offload does not say that there is a tunnel.
    pub(crate) fn is_joined_in_tunnel(&self, headers: &Headers) -> bool {
        let Offload {
            checksum,
            segmentation,
        } = self.offload;
        let is_of_ip = segmentation.is_some() && headers.protocol.is_some();
        let start = checksum.map(|checksum| usize::from(checksum.start));
        is_of_ip && start.is_some_and(|start| start != headers.transport_offset)
    }
}

/// Decides when each frame of one direction leaves. An implementation reads no clock: time is an argument.
pub trait Discipline: 'static {
    /// Queues a frame that arrived, or drops and counts it. Implementations allocate only when a queue grows.
    fn on_frame(&mut self, frame: Frame, now: Instant);

    /// Returns the next frame that may leave at `now`, or the time at which one may. Call it until it returns no frame.
    fn next(&mut self, now: Instant) -> Next;

    /// Whether frames may leave late by the lateness of a blocking wait, so that the thread does not spin before they
    /// are due. Always the same for a discipline.
    fn is_rough(&self) -> bool {
        false
    }

    /// Returns the counters of each class.
    fn rows(&self) -> Vec<Row>;
}

/// The answer of [`Discipline::next`].
#[derive(Debug)]
pub enum Next {
    /// Send this frame.
    Send(Frame),
    /// No frame may leave before this instant.
    Wait(Instant),
    /// No frame is queued.
    Empty,
}

/// The counters of one class since the start.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The class's name.
    pub name: String,
    /// The class's rate as reports show it; empty for classes without one.
    pub rule: String,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent, on the wire.
    pub sent_bytes: u64,
    /// Packets queued.
    pub queued_packets: usize,
    /// Bytes queued, on the wire.
    pub queued_bytes: u64,
    /// The time of its first and last packet, and its longest queue.
    pub activity: Activity,
    /// Drops and other events.
    pub events: NamedCounts,
}

/// The time between the first and the last packet of a class, its mean rate, and its longest queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Activity {
    first: Option<Sent>,
    last: Option<Sent>,
    /// The most packets that were queued at a time.
    pub most_queued_packets: usize,
    /// The most bytes that were queued at a time.
    pub most_queued_bytes: u64,
}

/// The total of bytes sent, at the time of a frame and including it.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    bytes: u64,
}

impl Activity {
    /// Records the length of the queue after an arrival.
    pub fn on_queued(&mut self, packets: usize, bytes: u64) {
        self.most_queued_packets = self.most_queued_packets.max(packets);
        self.most_queued_bytes = self.most_queued_bytes.max(bytes);
    }

    /// Records that a frame left at `at`; `bytes` is the total sent, including this frame.
    pub fn on_sent(&mut self, bytes: u64, at: Instant) {
        let sent = Sent { at, bytes };
        self.first.get_or_insert(sent);
        self.last = Some(sent);
    }

    /// The time from the first frame sent to the last.
    pub fn duration(&self) -> Duration {
        let both = self.first.zip(self.last);
        both.map_or(Duration::ZERO, |(first, last)| last.at.since(first.at))
    }

    /// The mean rate of the frames after the first, in bits per second; `None` if all frames left at one instant.
    pub fn bits_per_second(&self) -> Option<f64> {
        let (first, last) = self.first.zip(self.last)?;
        let seconds = self.duration().as_secs_f64();
        (seconds > 0.0).then(|| (last.bytes - first.bytes) as f64 * 8.0 / seconds)
    }
}

/// Counts by name: drops and other events.
pub type NamedCounts = BTreeMap<&'static str, u64>;

/// The event of frames that are [joined in a tunnel](Frame::is_joined_in_tunnel) and cannot be cut.
pub(crate) const UNKNOWN_TUNNEL: &str = "dropped for a tunnel that cannot be cut";

#[cfg(test)]
impl Frame {
    /// A frame of TCP over IPv4 to port 80; with `segment_bytes`, several segments joined by an offload.
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

    /// Several segments of 1400 bytes, joined by an offload, over IPv4 in an IPv4 tunnel with this protocol and header.
    pub(crate) fn tcp4_in_tunnel(segments: usize, protocol: u8, header: &[u8]) -> Self {
        let inner = Self::tcp4(segments * 1400, Some(1400));
        let mut inside = inner.bytes[14..].to_vec();
        let length = inside.len() as u16;
        inside[2..4].copy_from_slice(&length.to_be_bytes());
        let mut bytes = inner.bytes[..34].to_vec();
        bytes[23] = protocol;
        bytes.extend(header);
        bytes.extend(inside);
        let shift = bytes.len() - inner.bytes.len();
        Self {
            bytes: Pool::new().copy_of(&bytes),
            offload: inner.offload.shifted(shift as u16),
            arrived: Instant::ORIGIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean rate leaves out the time before the first frame and after the last.
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
