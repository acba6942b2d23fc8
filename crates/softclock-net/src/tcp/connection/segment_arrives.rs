//! SEGMENT ARRIVES in the synchronized states (RFC 9293, 3.10.7.4, with RFC 5961 and RFC 7323, 5.3).

use core::ops::Deref;

use softclock_core::Instant;

use super::{Connection, Error, Events, Open, Phase};
use crate::drops::DropReason;
use crate::tcp::challenge::ChallengeLimiter;
use crate::tcp::paws::Paws;
use crate::tcp::payload::Payload;
use crate::tcp::receive::{AckNeed, ResetVerdict};
use crate::tcp::segment::{Flags, Header, Options};
use crate::tcp::send::{Ack, AckVerdict};
use crate::tcp::seq::Seq;
use crate::tcp::settings::Linger;
use crate::tcp::state::State;

/// How a segment arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The time at which it is processed: timers and sending use it.
    pub now: Instant,
    /// The time at which it arrived: estimators use it.
    pub arrived: Instant,
    /// Whether its packet was marked on its way: congestion experienced (RFC 3168, 5).
    pub is_marked: bool,
}

/// A segment whose payload is apart.
pub(super) struct Arriving<'a> {
    pub(super) header: &'a Header,
    pub(super) options: &'a Options,
    /// The bytes of the payload.
    length: u32,
}

impl Arriving<'_> {
    /// The sequence numbers that the segment takes (SEG.LEN).
    fn sequence_length(&self) -> u32 {
        let controls = [Flags::SYN, Flags::FIN].map(|flag| self.header.flags.contains(flag));
        self.length + controls.map(u32::from).iter().sum::<u32>()
    }
}

impl<B: Deref<Target = [u8]>> Connection<B> {
    /// Processes a segment. `payload` is that of the segment. `limiter` limits the challenge ACKs of all connections.
    /// Takes constant time, but for the ranges that a SACK names and that a gap separates.
    pub fn on_segment(
        &mut self,
        arrival: Arrival,
        (header, options): (&Header, &Options),
        payload: Payload<B>,
        limiter: &mut ChallengeLimiter,
    ) -> Events {
        let Arrival { now, arrived, .. } = arrival;
        let segment = Arriving {
            header,
            options,
            length: payload.len() as u32,
        };
        match self.state {
            State::SynSent => self.on_segment_in_syn_sent(now, arrived, &segment, payload),
            State::SynReceived => {
                self.on_segment_in_syn_received(arrival, &segment, payload, limiter)
            }
            State::Closed | State::TimeWait => Events::dropped(DropReason::TcpState),
            _ => self.on_segment_synchronized(arrival, &segment, payload, limiter),
        }
    }

    fn on_segment_synchronized(
        &mut self,
        arrival: Arrival,
        segment: &Arriving<'_>,
        payload: Payload<B>,
        limiter: &mut ChallengeLimiter,
    ) -> Events {
        let Phase::Open(open) = &mut self.phase else {
            return Events::dropped(DropReason::TcpState);
        };
        open.segments_received = open.segments_received.wrapping_add(1);
        let flags = segment.header.flags;
        match open.check(arrival, segment, limiter) {
            Ok(()) => {}
            Err(Refused::Reset) => return self.on_reset(),
            Err(Refused::Syn) => return self.reset(Error::Reset),
            Err(Refused::Dropped(reason)) => {
                let dropped = Events {
                    may_send: true,
                    ..Events::dropped(reason)
                };
                let seq = segment.header.sequence;
                let is_probed = seq + 1 == open.receiver.next();
                if reason != DropReason::TcpUnacceptable || !is_probed {
                    return dropped;
                }
                // If both ends have probed a closed window at the same time, each has taken a byte that the other does
                // not count as sent, and drops all further segments. So the acknowledgment counts in the position of
                // a probe, too (draft-gont-tcpm-tcp-seq-validation).
                return match self.on_acknowledgment(arrival, segment, limiter) {
                    Ok(events) => events.and(dropped),
                    Err(_) => dropped,
                };
            }
        }
        // Fifth, the ACK. All segments but the first have one.
        let mut events = match self.on_acknowledgment(arrival, segment, limiter) {
            Ok(events) => events,
            Err(reason) => {
                return Events {
                    may_send: true,
                    ..Events::dropped(reason)
                };
            }
        };
        if events.is_over {
            return events;
        }
        self.note_timestamp(arrival.arrived, segment);
        // Sixth, URG: urgent data stays in the stream (RFC 6093). Seventh and eighth, text and FIN.
        if !payload.is_empty() || flags.contains(Flags::FIN) {
            let start = segment.header.sequence;
            let text = self.on_text(arrival.now, arrival.arrived, start, payload, flags);
            events = events.and(text);
        }
        events.may_send = true;
        events
    }

    /// Notes the time stamp of an accepted segment (RFC 7323, 5.3 R3). Call it after the acknowledgment was checked: an
    /// off-path attacker could otherwise set a later time, and PAWS would then drop the peer's own segments.
    fn note_timestamp(&mut self, arrived: Instant, segment: &Arriving<'_>) {
        if let Phase::Open(open) = &mut self.phase
            && let Some(times) = segment.options.timestamps
        {
            let last = open.receiver.last_ack_sent();
            let seq = segment.header.sequence;
            open.paws.on_accepted(arrived, times.value, seq, last);
        }
    }

    /// A reset that is believed (3.10.7.4, second).
    fn on_reset(&mut self) -> Events {
        // Also in CLOSING and LAST-ACK, where RFC 9293 has no signal to the owner: this end's FIN is not acknowledged,
        // so its last bytes may be lost. Linux and FreeBSD tell their owners, too.
        self.fail(Error::Reset)
    }

    /// Processes the acknowledgment and the window (3.10.7.4, fifth).
    fn on_acknowledgment(
        &mut self,
        arrival: Arrival,
        segment: &Arriving<'_>,
        limiter: &mut ChallengeLimiter,
    ) -> Result<Events, DropReason> {
        let Arrival { now, arrived, .. } = arrival;
        let offset = self.timestamp_offset;
        let Phase::Open(open) = &mut self.phase else {
            return Err(DropReason::TcpState);
        };
        let header = segment.header;
        if !header.flags.contains(Flags::ACK) {
            return Err(DropReason::TcpState);
        }
        let echo = segment
            .options
            .timestamps
            .filter(|_| open.flags.has_timestamps);
        let ack = Ack {
            acknowledgment: header.acknowledgment,
            window: u32::from(header.window) << open.peer_shift,
            sack: &segment.options.sack,
            echo: echo.map(|times| times.echo.wrapping_sub(offset)),
            ece: open.flags.has_ecn && header.flags.contains(Flags::ECE),
            carries_data: segment.sequence_length() > 0,
            seq: header.sequence,
        };
        let acked = open.sender.on_ack(now, arrived, &ack);
        match acked.verdict {
            // It acknowledges what was not sent yet: answered, since the other end is out of step (3.10.7.4).
            AckVerdict::Future => {
                open.challenge(now, limiter);
                return Err(DropReason::TcpAck);
            }
            // So old that it may be forged (RFC 5961, 5.2).
            AckVerdict::TooOld => {
                open.challenge(now, limiter);
                return Err(DropReason::TcpAck);
            }
            AckVerdict::New | AckVerdict::Duplicate | AckVerdict::Old => {}
        }
        self.reported = None;
        // A receiver that has sent no data has no better measure than what the peer echoes.
        let clock = self.settings.send.clock;
        if open.sender.srtt().is_none()
            && let Some(echoed) = ack.echo.and_then(|echo| clock.since(echo, arrived))
        {
            open.receiver.limit_round_trip(echoed);
        }
        // An owner that is gone leaves a time for progress, not for all of the data.
        if self.is_orphan && acked.bytes > 0 && self.settings.linger == Linger::Background {
            self.deadline = now + self.settings.orphan_timeout;
        }
        let mut events = Events {
            is_writable: acked.room,
            ..Events::default()
        };
        if acked.fin {
            events = events.and(self.on_fin_acknowledged(now));
        }
        Ok(events)
    }

    /// This end's FIN is acknowledged.
    fn on_fin_acknowledged(&mut self, now: Instant) -> Events {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.is_orphan {
                    // Nothing else ends the connection if the peer never closes its half.
                    self.deadline = now + self.settings.fin_wait_2;
                }
                Events::default()
            }
            State::Closing => self.enter_time_wait(),
            State::LastAck => self.end(),
            _ => Events::default(),
        }
    }

    /// Processes data and FIN (3.10.7.4, seventh and eighth). `seq` is the position of the first byte.
    pub(super) fn on_text(
        &mut self,
        now: Instant,
        arrived: Instant,
        seq: Seq,
        payload: Payload<B>,
        flags: Flags,
    ) -> Events {
        if !self.state.may_receive() {
            return Events::dropped(DropReason::TcpState);
        }
        let has_fin = flags.contains(Flags::FIN);
        let Phase::Open(open) = &mut self.phase else {
            return Events::default();
        };
        // The owner is gone and will not read what arrives: the peer must learn that it is lost (RFC 9293, 3.6.1;
        // RFC 2525, 2.17).
        let end = seq + payload.len() as u32;
        if open.flags.is_read_closed && open.receiver.next().is_before(end) {
            return self.reset(Error::Reset);
        }
        if let Some(round_trip) = open.sender.srtt() {
            open.receiver.set_round_trip(round_trip);
        }
        let was_due = open.receiver.ack_need() == AckNeed::Now;
        let received = open.receiver.on_data(now, arrived, seq, payload, has_fin);
        // An acknowledgment for each segment that arrives out of order.
        if was_due && received.ack == AckNeed::Now && open.receiver.has_gap() {
            open.acknowledge_now();
        }
        let mut events = Events {
            is_readable: received.readable,
            may_send: true,
            dropped: received.dropped,
            ..Events::default()
        };
        if received.fin_reached {
            events = events.and(self.on_fin(now));
        }
        events
    }

    /// The peer has closed its half, and all its bytes have arrived (3.10.7.4, eighth).
    fn on_fin(&mut self, _now: Instant) -> Events {
        match self.state {
            State::Established => self.state = State::CloseWait,
            // This end's FIN is not acknowledged yet, else the state were FIN-WAIT-2.
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => return self.enter_time_wait(),
            _ => {}
        }
        Events::default()
    }

    /// Makes the next [`poll_transmit`](Self::poll_transmit) return an acknowledgment.
    pub(super) fn acknowledge(&mut self) {
        if let Phase::Open(open) = &mut self.phase {
            open.acknowledge_now();
        }
    }
}

/// Why a segment is not processed further.
enum Refused {
    Dropped(DropReason),
    Reset,
    /// A SYN that is believed: the connection is reset (RFC 793, page 71).
    Syn,
}

impl<B: Deref<Target = [u8]>> Open<B> {
    /// The checks before a segment is believed: PAWS, sequence number, RST, SYN.
    fn check(
        &mut self,
        arrival: Arrival,
        segment: &Arriving<'_>,
        limiter: &mut ChallengeLimiter,
    ) -> Result<(), Refused> {
        let Arrival { now, arrived, .. } = arrival;
        let (header, flags) = (segment.header, segment.header.flags);
        let is_reset = flags.contains(Flags::RST);
        let seq = header.sequence;
        let length = segment.sequence_length();
        // RFC 7323, 5.3 R1: an old duplicate is answered, unless it is a reset.
        if let Some(paws) = self.paws()
            && !is_reset
        {
            let times = segment.options.timestamps;
            let is_old = times.is_some_and(|times| paws.is_old(arrived, times.value));
            if is_old && flags.contains(Flags::SYN) {
                // A challenge like that for any other SYN: see below.
                self.challenge(now, limiter);
            } else if is_old {
                self.acknowledge_if_allowed(now, header, length, limiter);
                // An original that its retransmission has overtaken: the peer learns that it was needless.
                if segment.length > 0 {
                    self.receiver.on_unacceptable(seq, segment.length);
                }
            }
            // Once negotiated, all segments carry time stamps (RFC 7323, 3.2).
            if is_old || (times.is_none() && self.flags.requires_timestamps) {
                return Err(Refused::Dropped(DropReason::TcpTimestamp));
            }
        }
        // First, the sequence number.
        let is_in_window = self.receiver.acceptable(seq, length);
        // Just behind the window, the acknowledgment is valid, and data is not taken: the next segment lies there if the
        // window is closed, or full but for what was lost.
        let is_behind_window = seq == self.receiver.next() + self.receiver.window();
        if !is_in_window && !is_behind_window && !is_reset {
            if self.shows_life(header) {
                self.probes.on_segment(arrived);
            }
            // An answer to each, or the other end would never learn of its loss of step. SYN is treated below.
            if !flags.contains(Flags::SYN) {
                self.acknowledge_if_allowed(now, header, length, limiter);
                if segment.length > 0 {
                    self.receiver.on_unacceptable(seq, segment.length);
                }
                return Err(Refused::Dropped(DropReason::TcpUnacceptable));
            }
        }
        // Second, RST (RFC 5961, 3.2).
        if is_reset {
            return Err(match self.receiver.judge_reset(seq) {
                ResetVerdict::Abort => Refused::Reset,
                ResetVerdict::Challenge if self.flags.trust.resets_in_window => Refused::Reset,
                ResetVerdict::Challenge => {
                    self.challenge(now, limiter);
                    Refused::Dropped(DropReason::TcpBlindReset)
                }
                ResetVerdict::Ignore => Refused::Dropped(DropReason::TcpUnacceptable),
            });
        }
        // Fourth, SYN: a challenge wherever it lies (RFC 5961, 4.2).
        if flags.contains(Flags::SYN) {
            if is_in_window && self.flags.trust.syns_in_window {
                return Err(Refused::Syn);
            }
            self.challenge(now, limiter);
            return Err(Refused::Dropped(DropReason::TcpBlindReset));
        }
        self.probes.on_segment(arrived);
        if self.flags.has_ecn {
            self.on_ecn(arrival.is_marked, flags, length);
        }
        Ok(())
    }

    /// Whether a segment that is not acceptable shows that the peer is alive: it repeats what has arrived, since the
    /// acknowledgment was lost, and its own acknowledgment is one that the peer can send. RFC 1122, 4.2.3.6 probes a
    /// connection only if neither data nor acknowledgments have arrived.
    fn shows_life(&self, header: &Header) -> bool {
        header.flags.contains(Flags::ACK)
            && header.sequence.is_before(self.receiver.next())
            && self.sender.may_acknowledge(header.acknowledgment)
    }

    /// Notes the marks of the network, and the peer's answer to their echo (RFC 3168, 6.1.3).
    fn on_ecn(&mut self, is_marked: bool, flags: Flags, length: u32) {
        if flags.contains(Flags::CWR) {
            self.flags.must_echo_ecn = false;
        }
        if is_marked && length > 0 {
            self.flags.must_echo_ecn = true;
            // The sender should learn of it at once (RFC 8257 shows why; RFC 3168 allows it).
            self.acknowledge_now();
        }
    }

    /// The newest time stamp of the peer, if both ends send time stamps.
    pub(super) fn paws(&self) -> Option<Paws> {
        self.flags.has_timestamps.then_some(self.paws)
    }

    /// Makes an acknowledgment due. Peers without SACK count duplicates, so each has its own, as far as there is a
    /// reason for several (RFC 5681, 3.2: three).
    pub(super) fn acknowledge_now(&mut self) {
        if self.receiver.ack_need() == AckNeed::Now && !self.flags.has_sack {
            self.extra_acks = (self.extra_acks + 1).min(MOST_EXTRA_ACKS);
        }
        self.receiver.request_ack();
    }

    /// Answers a segment that is not acceptable. Those with data or FIN show that an acknowledgment was lost; others
    /// are limited, since two ends out of step could answer each other forever. Probes of a peer that follows the
    /// protocol, of an idle connection or a closed window, are limited for each connection only: a peer without answers
    /// ends the connection (RFC 9293, 3.8.4 and 3.8.6.1).
    fn acknowledge_if_allowed(
        &mut self,
        now: Instant,
        header: &Header,
        length: u32,
        limiter: &mut ChallengeLimiter,
    ) {
        if length > 0 {
            self.acknowledge_now();
        } else if !self.shows_life(header) {
            self.challenge(now, limiter);
        } else if limiter.allows_answer(now, &mut self.challenges) {
            self.receiver.request_ack();
        }
    }

    /// Answers a segment that may be forged, if the limits allow it (RFC 5961, 7).
    fn challenge(&mut self, now: Instant, limiter: &mut ChallengeLimiter) {
        if limiter.allows(now, &mut self.challenges) {
            self.receiver.request_ack();
        }
    }
}

/// Together with the first, enough for a fast retransmission.
const MOST_EXTRA_ACKS: u8 = 3;
