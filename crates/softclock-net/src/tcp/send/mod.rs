//! The sending half of a synchronized connection: what to send, when, and when again.
//!
//! A [`Sender`] holds the bytes that are not yet acknowledged, and gives out one segment at a time. Losses are found by
//! RACK (RFC 8985), or by duplicate acknowledgments if the peer has no selective ones (RFC 6582); at the end of a
//! flight by a tail loss probe; and as a last resort by the retransmission timeout (RFC 6298). A needless reduction of
//! the congestion window is taken back (RFC 3522, 3708, 5682).
//!
//! - `queue`: the bytes. `flight`: the state while segments are in flight. `scoreboard`: those segments; `delivery`:
//!   those that one acknowledgment delivers.
//! - `rtt`, `rack`, `tlp`: round trips, losses by time, probes. `prr`: the window during fast recovery (RFC 9937).
//!   `pace`: the pacer.
//! - `undo`: reductions that can be taken back.
//! - `ack`, `recovery`, `transmit`, `timers`, `narrow`: the events of a sender; `events`: their names for counters.
//!
//! An idle sender holds no memory outside itself: what belongs to a flight is allocated with its first segment, and
//! freed when everything is acknowledged.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use softclock_core::Instant;

use super::congestion::Controller;
use super::peer::{Ecn, PeerOptions};
use super::seq::Seq;
use flight::{Early, Flight, Spurious};
use pace::Pace;
use queue::SendQueue;
use rack::Reordering;
use rtt::RoundTrip;
use scoreboard::Record;
use settings::Limits;
use tlp::TailProbe;
use undo::Undo;

pub use events::{RetransmissionCause, SendEvent, SendEvents};
pub use settings::{ClockUnit, SendSettings};
pub use stats::SendStats;
pub use types::{Ack, AckVerdict, Acked, TimerOutcome, Transmit, TransmitKind};

mod ack;
mod delivery;
mod events;
mod flight;
mod narrow;
mod pace;
mod prr;
mod queue;
mod rack;
mod recovery;
mod rtt;
mod scoreboard;
mod settings;
mod stats;
mod timers;
mod tlp;
mod transmit;
mod types;
mod undo;

/// The sending half of a connection whose handshake is complete.
///
/// After every call of [`write`](Self::write), [`close`](Self::close), [`on_ack`](Self::on_ack),
/// [`on_timer`](Self::on_timer) or one of the setters, call [`poll_transmit`](Self::poll_transmit) until it returns
/// `None`, and then ask for the [`next_timeout`](Self::next_timeout).
///
/// ```
/// use softclock_core::Instant;
/// use softclock_net::tcp::peer::{Ecn, PeerOptions};
/// use softclock_net::tcp::segment::SackBlocks;
/// use softclock_net::tcp::send::{Ack, SendSettings, Sender};
/// use softclock_net::tcp::seq::Seq;
///
/// let peer = PeerOptions { mss: 1000, window_scale: None, is_sack_permitted: true, timestamps: None, ecn: Ecn::Off };
/// let now = Instant::from_ns(1_000_000);
/// let mut sender = Sender::new(Seq(1), &SendSettings::default(), &peer, 65_535, now);
///
/// sender.write(b"hello".as_slice().into()).unwrap();
/// let segment = sender.poll_transmit(now).unwrap();
/// assert_eq!((segment.seq, segment.length, segment.push), (Seq(1), 5, true));
/// let mut payload = Vec::new();
/// sender.copy_payload(segment.seq, segment.length, &mut payload);
/// assert_eq!(payload, b"hello");
/// assert!(sender.poll_transmit(now).is_none());
///
/// let later = Instant::from_ns(9_000_000);
/// let acked = sender.on_ack(later, later, &Ack {
///     acknowledgment: Seq(6),
///     window: 65_535,
///     sack: &SackBlocks::default(),
///     echo: None,
///     ece: false,
///     carries_data: false,
///     seq: Seq(700),
/// });
/// assert_eq!(acked.bytes, 5);
/// assert!(sender.is_all_acked() && sender.next_timeout().is_none());
/// ```
#[derive(Debug)]
pub struct Sender {
    controller: Controller,
    pace: Pace,
    queue: SendQueue,
    /// What belongs to the segments in flight.
    flight: Option<Box<Flight>>,
    stats: SendStats,
    limits: Limits,
    rtt: RoundTrip,
    reordering: Reordering,
    undo: Undo,
    tail_probe: TailProbe,
    /// When the timer in `timer` expires.
    timer_at: Instant,
    /// When the pacer allows the segment that waits for it; [`Instant::FAR_FUTURE`] if none waits.
    paced_at: Instant,
    /// Since when the peer has not acknowledged more, although there is something to acknowledge or to send;
    /// [`Instant::FAR_FUTURE`] if there is nothing.
    waits_since: Instant,
    /// SND.UNA, SND.NXT, SND.WND, and the segment of the last window update (SND.WL1).
    una: Seq,
    next: Seq,
    window: u32,
    window_seq: Seq,
    most_window: u32,
    /// The sequence numbers that were acknowledged, or the most that the field can hold.
    acknowledged: u32,
    /// The end of the last short segment (Nagle, in Minshall's form).
    short_end: Seq,
    mss: u16,
    timer: Timer,
    phase: Phase,
    fin: Fin,
    /// The exponent by which timeouts are backed off.
    backoff: u8,
    /// The timeouts since the peer was last heard from.
    unanswered: u8,
    flags: Flags,
    /// What has happened since the caller last asked.
    events: SendEvents,
}

/// Conditions of a sender that are either true or not.
#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    has_ecn: bool,
    /// The next new segment reports that the window is reduced (CWR).
    reports_reduction: bool,
    /// A writer was refused.
    is_writer_waiting: bool,
    /// A probe of the closed window is to be sent.
    probes_window: bool,
    /// A probe beyond SND.NXT was sent, so an acknowledgment can be one position further.
    has_probed_window: bool,
    /// The persist timer has expired although the window has some room: a short segment may go.
    overrides_avoidance: bool,
    /// A tail loss probe is to be sent.
    probes_tail: bool,
    /// One retransmission may go whatever the congestion window is.
    forces_retransmission: bool,
    /// The timeout of a retransmission that has not left was put off.
    has_put_off_timeout: bool,
    /// SND.UNA is just behind all that was in flight when the last recovery began.
    is_at_recovery_point: bool,
}

/// The phases of loss recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No loss is known.
    Open,
    /// Fast recovery.
    Recovery,
    /// Recovery after a retransmission timeout.
    Loss,
}

/// What the retransmission timer is set for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Timer {
    Off,
    Retransmission,
    Persist,
}

/// How far the end of the stream is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fin {
    Open,
    Queued,
    Sent,
    Acked,
}

impl Sender {
    /// Creates the sending half of a connection whose first byte has the number `next`. `window` is that of the segment
    /// that completed the handshake, scaled. Segments carry the peer's `mss` less the 12 bytes of time stamps, if there
    /// are any; see [`set_mss`](Self::set_mss).
    pub fn new(
        next: Seq,
        settings: &SendSettings,
        peer: &PeerOptions,
        window: u32,
        now: Instant,
    ) -> Self {
        let options = if peer.timestamps.is_some() { 12 } else { 0 };
        let mss = peer.mss.saturating_sub(options).max(1);
        Self {
            controller: Controller::new(settings.congestion.algorithm, &settings.congestion, mss),
            pace: Pace::new(&settings.pacing),
            queue: SendQueue::new(next),
            flight: None,
            stats: SendStats::default(),
            limits: Limits::new(settings, peer.is_sack_permitted),
            rtt: RoundTrip::default(),
            reordering: Reordering::new(),
            undo: Undo::default(),
            tail_probe: TailProbe::default(),
            timer_at: now,
            paced_at: Instant::FAR_FUTURE,
            waits_since: Instant::FAR_FUTURE,
            una: next,
            next,
            window,
            window_seq: Seq::default(),
            most_window: window,
            acknowledged: 0,
            short_end: next,
            mss,
            timer: Timer::Off,
            phase: Phase::Open,
            fin: Fin::Open,
            backoff: 0,
            unanswered: 0,
            flags: Flags {
                has_ecn: peer.ecn != Ecn::Off,
                ..Flags::default()
            },
            events: SendEvents::default(),
        }
    }

    /// Takes the round trip of the handshake as the first sample. Not for a SYN that was sent twice (RFC 6298, 3),
    /// unless time stamps tell the transmissions apart.
    pub fn on_handshake_rtt(&mut self, now: Instant, rtt: Duration) {
        self.rtt.on_sample(rtt);
        self.rtt.on_least(rtt, now);
        self.update_pace();
    }

    /// Learns that SYN, or its answer, was sent more than once: the first flight is one segment (RFC 5681, 3.1), and
    /// its timeout 3 s at least, since the path may be longer than the timeout before (RFC 6298, 5.7).
    pub fn on_handshake_loss(&mut self) {
        self.controller.on_handshake_loss();
        self.limits
            .raise_initial_timeout(TIMEOUT_AFTER_HANDSHAKE_LOSS);
    }

    /// Notes the sequence number of the peer's segment that completed the handshake (SND.WL1).
    pub fn set_window_seq(&mut self, seq: Seq) {
        self.window_seq = seq;
    }

    /// Appends bytes. They are refused, and returned, if they are longer than the [`room`](Self::room), or after
    /// [`close`](Self::close); then [`Acked::room`] says when a writer can go on.
    pub fn write(&mut self, bytes: Bytes) -> Result<(), Bytes> {
        let is_open = self.fin == Fin::Open;
        if !is_open || bytes.len() > self.room() {
            self.flags.is_writer_waiting |= is_open;
            return Err(bytes);
        }
        self.queue.push(bytes);
        // Another writer may wait for more room than is left.
        self.flags.is_writer_waiting |= self.room() == 0;
        Ok(())
    }

    /// The bytes that can be written. Each write counts for at least 128 bytes.
    pub fn room(&self) -> usize {
        self.buffer().saturating_sub(self.queue.charged()) as usize
    }

    /// Ends the stream: FIN goes behind all bytes that were written.
    pub fn close(&mut self) {
        if self.fin == Fin::Open {
            self.fin = Fin::Queued;
        }
    }

    /// Appends the bytes of a segment to `out`.
    pub fn copy_payload(&self, seq: Seq, length: u32, out: &mut Vec<u8>) {
        self.queue.copy(seq, length, out);
    }

    /// The first position that is not acknowledged (SND.UNA).
    pub fn una(&self) -> Seq {
        self.una
    }

    /// The position behind all that was sent (SND.NXT).
    pub fn next(&self) -> Seq {
        self.next
    }

    /// The window of the peer (SND.WND).
    pub fn window(&self) -> u32 {
        self.window
    }

    /// The longest payload of a segment.
    pub fn mss(&self) -> u16 {
        self.mss
    }

    /// The congestion window, in bytes.
    pub fn congestion_window(&self) -> u32 {
        match (self.phase, &self.flight) {
            (Phase::Recovery, Some(flight)) => flight.reduction.window(),
            _ => self.controller.window(),
        }
    }

    /// The sequence numbers that are sent and not acknowledged (FlightSize of RFC 5681).
    fn flight_size(&self) -> u32 {
        self.next.since(self.una)
    }

    /// The bytes that the peer's window has room for.
    fn open_window(&self) -> u32 {
        (self.una + self.window).since(self.next)
    }

    /// Returns the bytes in flight from which congestion reduces the window: `size`, and the bytes that only the pacer
    /// of the congestion window holds back, but no more than the larger of `size` and this window. A sender without
    /// pacing would have these bytes in flight. RFC 9438, 4.6 allows to reduce from the whole window.
    fn flight_with_paced(&self, size: u32) -> u32 {
        let is_held_back = self.paced_at != Instant::FAR_FUTURE && !self.pace.is_stated();
        let held_back = match is_held_back {
            true => self.unsent().min(self.open_window()),
            false => 0,
        };
        size.saturating_add(held_back)
            .min(size.max(self.controller.window()))
    }

    /// The bytes presumed to be under way.
    pub fn in_flight(&self) -> u32 {
        self.flight.as_ref().map_or(0, |flight| flight.in_flight())
    }

    /// Whether everything that was written, and FIN if the stream is closed, is acknowledged.
    pub fn is_all_acked(&self) -> bool {
        self.una == self.queue.end() && self.fin == Fin::Open || self.fin == Fin::Acked
    }

    /// Whether FIN is acknowledged.
    pub fn is_fin_acked(&self) -> bool {
        self.fin == Fin::Acked
    }

    /// Whether bytes or FIN wait to be sent for the first time.
    pub fn has_unsent(&self) -> bool {
        self.unsent() > 0 || self.fin == Fin::Queued
    }

    /// The bytes that were written and are not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        match self.is_all_acked() {
            true => 0,
            false => self.queue.end().since(self.una) as usize,
        }
    }

    /// The bytes of the buffer that are in use, with what their pieces cost.
    pub fn buffered(&self) -> usize {
        self.queue.charged() as usize
    }

    /// The timeouts since the peer was last heard from.
    pub fn timeouts_in_a_row(&self) -> u8 {
        self.unanswered
    }

    /// The payload of the first segment in flight, which a timeout sends again. 0 if none is.
    pub(in crate::tcp) fn first_payload(&self) -> u32 {
        let flight = self.flight.as_ref();
        let first = flight.and_then(|flight| flight.board.records.front());
        first.map_or(0, Record::payload)
    }

    /// Forgets all that is not acknowledged, so that nothing is [unacknowledged](Self::unacknowledged): the connection
    /// is over. SND.UNA and SND.NXT stay as they are.
    pub fn clear(&mut self) {
        self.flight = None;
        self.queue = SendQueue::new(self.una);
        self.timer = Timer::Off;
        self.paced_at = Instant::FAR_FUTURE;
        self.waits_since = Instant::FAR_FUTURE;
    }

    /// The smoothed round-trip time, once there is a sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// The retransmission timeout, without backing off.
    pub fn timeout(&self) -> Duration {
        self.rtt.timeout(&self.limits)
    }

    /// Takes what has happened since the last call: call it after each other one that may change something, as each
    /// event is noted once.
    pub fn take_events(&mut self) -> SendEvents {
        core::mem::take(&mut self.events)
    }

    /// Counters from the start of the connection.
    pub fn stats(&self) -> &SendStats {
        &self.stats
    }

    /// Limits the rate of sending, in bytes per second, below that of congestion control. `None` lifts the limit.
    pub fn set_rate(&mut self, bytes_per_second: Option<u64>) {
        self.pace.set_rate(bytes_per_second);
        self.update_pace();
    }

    /// Lets short segments wait for acknowledgments of others, or not (RFC 9293, 3.7.4).
    pub fn set_nagle(&mut self, has_nagle: bool) {
        self.limits.has_nagle = has_nagle;
    }

    /// Returns whether a short segment waits while another is in flight.
    pub const fn has_nagle(&self) -> bool {
        self.limits.has_nagle
    }

    /// Sets the time without progress after which the connection is given up. Counts for a wait that has begun, too.
    pub fn set_user_timeout(&mut self, user_timeout: Option<Duration>) {
        self.limits.set_user_timeout(user_timeout);
    }

    /// The present size of the buffer: twice the congestion window, within the settings. In a fast recovery it is
    /// twice the flight, if that is more: the receiver acknowledges nothing for a round trip, in which 0.7 of the
    /// former window may be sent besides the flight.
    fn buffer(&self) -> u32 {
        let flight = match self.phase {
            Phase::Recovery => self.flight_size(),
            Phase::Open | Phase::Loss => 0,
        };
        let wanted = self.controller.window().max(flight).saturating_mul(2);
        wanted.clamp(self.limits.buffer, self.limits.most_buffer)
    }

    /// The unsent bytes, without FIN.
    fn unsent(&self) -> u32 {
        self.queue.end().since(self.next)
    }

    fn update_pace(&mut self) {
        let window = self.congestion_window().max(self.in_flight());
        let is_in_slow_start = self.controller.is_in_slow_start();
        if let Some(pacer) = self.pace.pacer() {
            pacer.update(window, self.rtt.smoothed(), is_in_slow_start);
        }
    }
}

/// The most memory of an idle sending half, in bytes, with congestion control and pacing.
pub const IDLE_BYTES: usize = 400;

const _: () = assert!(size_of::<Sender>() <= IDLE_BYTES);

/// The least first timeout after SYN, or its answer, was lost (RFC 6298, 5.7).
const TIMEOUT_AFTER_HANDSHAKE_LOSS: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests;
