//! The receiving half of a synchronized connection: reassembly, acknowledgments, windows.
//!
//! - `acceptable`: which segments are acceptable (RFC 9293, 3.10.7.4), and which resets are believed (RFC 5961, 3).
//! - `reassembly`: bytes beyond a gap; selective acknowledgments (RFC 2018) and reports of duplicates (RFC 2883).
//! - `pieces`: bytes in order, in the memory of their packets or copied.
//! - `window`: the window that is offered (RFC 9293, 3.8.6; RFC 7323, 2), and the size of the buffer.
//! - `ack`: delayed acknowledgments (RFC 9293, 3.8.6.3; RFC 5681, 4.2).
//! - `settings`: limits and times.
//!
//! Where the RFCs leave a choice, a receiver does as FreeBSD does.

mod acceptable;
mod ack;
mod pieces;
mod reassembly;
mod settings;
#[cfg(test)]
mod tests;
mod window;

use alloc::boxed::Box;
use core::fmt;
use core::ops::Deref;
use core::time::Duration;

use softclock_core::Instant;

pub use self::acceptable::ResetVerdict;
pub use self::ack::AckNeed;
pub use self::settings::ReceiveSettings;

use self::ack::AckState;
use self::pieces::Pieces;
use self::reassembly::Reassembly;
use self::window::Window;
use crate::drops::DropReason;
use crate::tcp::payload::Payload;
use crate::tcp::segment::{SackBlock, SackBlocks};
use crate::tcp::seq::Seq;

/// The receiving half of a connection, from the handshake to the end of the stream.
///
/// Received bytes stay in the memory `B` of their packets, up to a limit. An empty receiver holds no memory.
///
/// ```
/// use softclock_core::Instant;
/// use softclock_net::tcp::payload::Payload;
/// use softclock_net::tcp::receive::{AckNeed, ReceiveSettings, Receiver};
/// use softclock_net::tcp::seq::Seq;
///
/// let now = Instant::from_ns(0);
/// let mut receiver = Receiver::new(Seq(100), &ReceiveSettings::default(), 0, 1460);
/// let segment = |bytes: &[u8]| Payload::new(bytes.to_vec(), 0..bytes.len());
///
/// // The second segment arrives first: it is reported by a selective acknowledgment.
/// let received = receiver.on_data(now, now, Seq(106), segment(b"world"), true);
/// assert_eq!((received.readable, received.ack), (false, AckNeed::Now));
/// assert_eq!(receiver.sack_blocks().as_slice()[0].start, Seq(106));
/// receiver.on_ack_sent();
///
/// let received = receiver.on_data(now, now, Seq(101), segment(b"hello"), false);
/// assert!(received.readable && received.fin_reached);
/// assert_eq!(receiver.next(), Seq(112));
/// let mut bytes = [0; 16];
/// assert_eq!(receiver.read(&mut bytes), 10);
/// assert!(receiver.is_finished());
/// ```
pub struct Receiver<B> {
    /// RCV.NXT.
    next: Seq,
    /// The acknowledgment that was sent last.
    last_ack_sent: Seq,
    /// The position of FIN, if it has arrived.
    fin: Option<Seq>,
    /// The bytes in order that the application has not read.
    ready: Pieces<B>,
    unread: u32,
    /// The memory of packets that bytes may keep.
    packet_memory: u32,
    /// The bytes behind a gap.
    beyond: Option<Box<Reassembly<B>>>,
    /// A duplicate that the next acknowledgment reports.
    duplicate: Option<SackBlock>,
    window: Window,
    ack: AckState,
    most_ranges: u16,
    is_fin_reached: bool,
}

/// The effects of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use = "a segment that must be acknowledged says so here"]
pub struct Received {
    /// Whether there are new bytes to read, or the end of the stream is reached.
    pub readable: bool,
    /// Whether this segment has completed the stream: all bytes up to FIN have arrived.
    pub fin_reached: bool,
    /// Whether an acknowledgment must be sent.
    pub ack: AckNeed,
    /// The reason for which nothing of the segment was kept.
    pub dropped: Option<DropReason>,
}

impl<B: Deref<Target = [u8]>> Receiver<B> {
    /// A receiver behind a handshake: `initial` is the sequence number of the other end's SYN (IRS). The window scale
    /// is our own, 0 if the handshake has not agreed on scales. `mss` is the size of a full segment, without options
    /// subtracted. SYN or SYN-ACK must have offered [`ReceiveSettings::syn_window`].
    pub fn new(initial: Seq, settings: &ReceiveSettings, own_scale: u8, mss: u16) -> Self {
        let next = initial + 1;
        Self {
            next,
            last_ack_sent: next,
            fin: None,
            ready: Pieces::new(),
            unread: 0,
            packet_memory: settings.packet_memory_bytes,
            beyond: None,
            duplicate: None,
            window: Window::new(next, settings, own_scale, mss),
            ack: AckState::new(settings),
            most_ranges: settings.out_of_order_ranges,
            is_fin_reached: false,
        }
    }

    /// The sequence number that is expected next, and the acknowledgment field of a segment that is sent now (RCV.NXT).
    pub fn next(&self) -> Seq {
        self.next
    }

    /// The acknowledgment that was sent last, for [`Paws::on_accepted`](crate::tcp::paws::Paws::on_accepted).
    pub fn last_ack_sent(&self) -> Seq {
        self.last_ack_sent
    }

    /// The window in which segments are acceptable (RCV.WND): the window that was advertised last, less the bytes that
    /// have arrived since, or the room in the buffer if that is larger. The window field may be too narrow to express
    /// it.
    pub fn window(&self) -> u32 {
        self.window.size(self.next, self.unread)
    }

    /// The size of the buffer, in bytes. It may grow.
    pub fn buffer_bytes(&self) -> u32 {
        self.window.buffer()
    }

    /// The memory that received bytes take, in bytes: packets, copies, and the queues of them. O(ranges beyond a gap).
    ///
    /// It is at most the sum of the setting `packet_memory_bytes`, two bytes for each byte that is held, half a
    /// kilobyte for each range, and the first payload, parts of which may have been read.
    pub fn memory_bytes(&self) -> usize {
        let beyond = self
            .beyond
            .as_ref()
            .map_or(0, |beyond| beyond.memory_bytes());
        self.ready.memory_bytes() + beyond
    }

    /// Whether a segment with `length` sequence numbers (bytes, and FIN) is acceptable (RFC 9293, 3.10.7.4). If not, it
    /// is dropped and answered by an ACK.
    pub fn acceptable(&self, seq: Seq, length: u32) -> bool {
        acceptable::is_acceptable(seq, length, self.next, self.window())
    }

    /// How to answer a reset (RFC 5961, 3.2).
    pub fn judge_reset(&self, seq: Seq) -> ResetVerdict {
        ResetVerdict::of(seq, self.next, self.window())
    }

    /// Takes in the bytes and the FIN of a segment, which begins at `seq` and arrived at `arrived`.
    ///
    /// Bytes outside the window and bytes that have arrived before are cut off. A segment without bytes and FIN has no
    /// effect if it is acceptable.
    pub fn on_data(
        &mut self,
        now: Instant,
        arrived: Instant,
        seq: Seq,
        mut payload: Payload<B>,
        mut has_fin: bool,
    ) -> Received {
        if let Some(round_trip) = self.ack.round_trip() {
            self.window.tune(now, round_trip);
        }
        let length = payload.len() as u32;
        let end = seq + length;
        let is_acceptable = self.acceptable(seq, length + u32::from(has_fin));
        if is_acceptable && length == 0 && !has_fin {
            return self.dropped(None);
        }
        if !is_acceptable || self.is_fin_reached {
            return self.refuse(seq, end);
        }

        // Bytes before the window have arrived before (RFC 2883, 4.1).
        let old = self.next.since(seq).min(length);
        let start = seq + old;
        if old > 0 {
            payload.advance(old as usize);
            self.report_duplicate(SackBlock {
                start: seq,
                end: start,
            });
        }
        // Bytes and FIN behind the window, or behind a FIN that has arrived, are cut off. FIN needs no room, so it may
        // be just behind the window.
        let limit = self.fin.unwrap_or(self.next + self.window());
        let room = limit.since(start) as usize;
        if payload.len() > room {
            payload.truncate(room);
            has_fin = false;
            self.ack.hurry();
        }

        let unread_before = self.unread;
        let dropped = match payload.is_empty() {
            true => (!has_fin).then_some(DropReason::TcpWindow),
            false => self.store(arrived, start, payload, old > 0),
        };
        if has_fin && dropped != Some(DropReason::TcpReassembly) {
            self.on_fin(end);
        }
        self.reach_fin();
        self.check();
        Received {
            fin_reached: self.is_fin_reached,
            readable: self.unread > unread_before || self.is_fin_reached,
            ..self.dropped(dropped)
        }
    }

    /// Takes note of a segment that is not [acceptable](Self::acceptable): the next acknowledgment reports its bytes if
    /// they have arrived before (RFC 2883, 4.1.1).
    pub fn on_unacceptable(&mut self, seq: Seq, bytes: u32) {
        let _ = self.refuse(seq, seq + bytes);
    }

    /// Moves bytes to `into`; returns their number, 0 if there are none or `into` is empty.
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        let bytes = self.ready.read(into);
        self.unread -= bytes as u32;
        self.window.on_read(bytes as u32);
        bytes
    }

    /// Copies bytes to `into` without reading them; returns their number.
    pub fn peek(&self, into: &mut [u8]) -> usize {
        self.ready.peek(into)
    }

    /// Reads the bytes of the first packet, without copying them. They may be a part of the packet, or a copy.
    pub fn take(&mut self) -> Option<Payload<B>> {
        let payload = self.ready.pop()?;
        self.unread -= payload.len() as u32;
        self.window.on_read(payload.len() as u32);
        Some(payload)
    }

    /// The number of bytes that can be read.
    pub fn readable(&self) -> usize {
        self.unread as usize
    }

    /// Whether bytes have arrived beyond a gap.
    pub fn has_gap(&self) -> bool {
        self.beyond.is_some()
    }

    /// Whether all bytes up to FIN have arrived.
    pub fn is_fin_reached(&self) -> bool {
        self.is_fin_reached
    }

    /// Whether all bytes up to FIN have been read.
    pub fn is_finished(&self) -> bool {
        self.is_fin_reached && self.unread == 0
    }

    /// The ranges for the next segment, if the other end understands selective acknowledgments: a duplicate first
    /// (RFC 2883), then the range that grew last (RFC 2018, 4). A duplicate is reported once, so the caller sends at
    /// least the first range.
    pub fn sack_blocks(&mut self) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        if let Some(duplicate) = self.duplicate.take() {
            blocks.push(duplicate);
        }
        if let Some(beyond) = &self.beyond {
            beyond.report(&mut blocks);
        }
        blocks
    }

    /// The window field of a segment that is sent now. The right edge moves as far as there is room for, and never back
    /// (RFC 9293, 3.8.6.2.2).
    pub fn advertise(&mut self) -> u16 {
        self.window.advertise(self.next, self.unread)
    }

    /// Whether the window has grown enough for a window update, a segment of its own.
    pub fn window_update_is_due(&self) -> bool {
        let is_ack_pending = self.ack.need() != AckNeed::None;
        !self.is_fin_reached
            && self
                .window
                .update_is_due(self.next, self.unread, is_ack_pending)
    }

    /// Whether an acknowledgment must be sent.
    pub fn ack_need(&self) -> AckNeed {
        self.ack.need()
    }

    /// When a delayed acknowledgment is due. May be in the past, as it counts from the arrival of the segment.
    pub fn next_ack_at(&self) -> Option<Instant> {
        self.ack.due()
    }

    /// Requests an acknowledgment without delay, for instance since a delayed one is due.
    pub fn request_ack(&mut self) {
        self.ack.hurry();
    }

    /// A segment was sent that acknowledges [`next`](Self::next).
    pub fn on_ack_sent(&mut self) {
        self.ack.on_sent();
        self.last_ack_sent = self.next;
    }

    /// The newest estimate of the round trip. It limits the delay of acknowledgments to a quarter, and is the time in
    /// which reads are counted to enlarge the buffer.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.ack.set_round_trip(round_trip);
    }

    /// Takes a time that the round trip does not exceed for its estimate, if there is none, or if that is longer. For a
    /// connection without a [better one](Self::set_round_trip): the peer may have waited before it sent the segment
    /// from which the time is known.
    pub fn limit_round_trip(&mut self, most: Duration) {
        let known = self.ack.round_trip();
        if known.is_none_or(|known| most < known) {
            self.ack.set_round_trip(most.max(LEAST_ECHOED));
        }
    }

    /// Drops a segment that brings nothing, and asks for an acknowledgment (RFC 9293, 3.10.7.4).
    fn refuse(&mut self, seq: Seq, end: Seq) -> Received {
        self.ack.hurry();
        let known = match self.fin {
            Some(fin) if self.is_fin_reached => fin,
            _ => self.next,
        };
        if !seq.is_before(self.next) {
            return self.dropped(Some(DropReason::TcpWindow));
        }
        let (start, end) = (seq, end.min(known));
        if start.is_before(end) {
            self.duplicate = Some(SackBlock { start, end });
        }
        self.dropped(Some(DropReason::TcpDuplicate))
    }

    /// Keeps bytes that are within the window and not in order before it. Returns why nothing was kept.
    fn store(
        &mut self,
        arrived: Instant,
        start: Seq,
        payload: Payload<B>,
        has_old: bool,
    ) -> Option<DropReason> {
        let (length, end) = (payload.len(), start + payload.len() as u32);
        let payload = self.settle(payload);
        if start == self.next && self.beyond.is_none() {
            self.ready.push(payload);
            self.deliver(end);
            // After a closed window, the other end needs the window of each acknowledgment to go on.
            match self.window.was_closed() || has_old {
                true => self.ack.hurry(),
                false => self.ack.on_in_order(arrived, length, self.window.mss()),
            }
            return None;
        }

        // A gap is begun, or filled at least partly: an acknowledgment must not wait (RFC 5681, 4.2).
        self.ack.hurry();
        let beyond = self
            .beyond
            .get_or_insert_with(|| Box::new(Reassembly::new()));
        let overlap = beyond.first_overlap(start, end);
        let inserted = beyond.insert(start, payload, self.next, usize::from(self.most_ranges));
        let in_order = beyond.take_from(self.next);
        if beyond.is_empty() {
            self.beyond = None;
        }
        if let Some((pieces, end)) = in_order {
            self.ready.append(pieces);
            self.deliver(end);
        }
        // Only one duplicate is reported: the first one, which may be before the window (RFC 2883, 4).
        if let (Some(overlap), false) = (overlap, has_old) {
            self.report_duplicate(overlap);
        }
        let is_duplicate = overlap == Some(SackBlock { start, end });
        match inserted {
            Err(_) => Some(DropReason::TcpReassembly),
            Ok(()) => is_duplicate.then_some(DropReason::TcpDuplicate),
        }
    }

    /// Leaves a payload in its packet, or copies it if packets hold too much memory.
    fn settle(&self, payload: Payload<B>) -> Payload<B> {
        let memory = self.memory_bytes() + pieces::cost(&payload);
        match memory > self.packet_memory as usize {
            true => Payload::copied(&payload),
            false => payload,
        }
    }

    /// Bytes up to `end` were appended to those that are ready.
    fn deliver(&mut self, end: Seq) {
        self.unread += end.since(self.next);
        self.next = end;
    }

    /// Notes that FIN is at `at`. The first one stays, unless another is in order. One before bytes that have arrived
    /// contradicts them, so it is ignored until it is in order.
    fn on_fin(&mut self, at: Seq) {
        self.ack.hurry();
        let end = self.beyond.as_ref().and_then(|beyond| beyond.end());
        let is_behind_all = end.unwrap_or(self.next).is_at_or_before(at);
        if at == self.next || self.fin.is_none() && is_behind_all {
            self.fin = Some(at);
        }
    }

    /// Takes FIN in if all bytes before it have arrived. Nothing can follow it.
    fn reach_fin(&mut self) {
        if self.fin == Some(self.next) && !self.is_fin_reached {
            self.is_fin_reached = true;
            self.next += 1;
            self.beyond = None;
            self.ack.hurry();
        }
    }

    fn report_duplicate(&mut self, block: SackBlock) {
        self.duplicate = Some(block);
        self.ack.hurry();
    }

    /// The effects of a segment that brings nothing to read.
    fn dropped(&self, reason: Option<DropReason>) -> Received {
        Received {
            ack: self.ack.need(),
            dropped: reason,
            ..Received::default()
        }
    }

    /// Checks invariants in builds with debug assertions.
    fn check(&self) {
        #[cfg(any(test, debug_assertions))]
        {
            assert_eq!(self.ready.count_bytes(), self.unread as usize);
            assert_eq!(self.ready.memory_bytes() == 0, self.unread == 0);
            if let Some(beyond) = &self.beyond {
                assert!(!beyond.is_empty());
                beyond.check(self.next);
            }
        }
    }
}

impl<B> fmt::Debug for Receiver<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("next", &self.next)
            .field("unread", &self.unread)
            .field("fin", &self.fin)
            .field("window", &self.window)
            .field("ack", &self.ack)
            .finish_non_exhaustive()
    }
}

const _: () = assert!(size_of::<Receiver<&[u8]>>() <= 160);

/// The least estimate of the round trip from the echo of a time stamp: the unit of most clocks.
const LEAST_ECHOED: Duration = Duration::from_millis(1);
