//! Opening: SYN-SENT, and SYN-RECEIVED when both ends open at the same time (RFC 9293, 3.5 and 3.10.7.3).

use alloc::sync::Arc;
use core::ops::Deref;
use core::time::Duration;

use softclock_core::Instant;

use super::segment_arrives::{Arrival, Arriving};
use super::{Connection, Error, Events, Open, OpenFlags, Outgoing, Phase};
use crate::demux::Flow;
use crate::drops::DropReason;
use crate::tcp::challenge::{ChallengeLimiter, LastChallenge};
use crate::tcp::keepalive::Probes;
use crate::tcp::paws::Paws;
use crate::tcp::payload::Payload;
use crate::tcp::peer::{Ecn, EcnMode, Offer, PeerOptions, mss_of_mtu};
use crate::tcp::receive::Receiver;
use crate::tcp::segment::{Flags, Header, Options, Reply, Timestamps};
use crate::tcp::send::{RetransmissionCause, Sender};
use crate::tcp::seq::Seq;
use crate::tcp::settings::Settings;
use crate::tcp::state::State;

/// A connection that is being opened by this end.
pub(super) struct Opening {
    /// The initial sequence number of this end (ISS).
    iss: Seq,
    /// The peer's SYN, once it has arrived.
    peer: Option<(Seq, PeerOptions)>,
    /// When the SYN was sent first: its answer is the first sample of the round trip.
    sent: Instant,
    /// How often the SYN was sent again. A sample after that is ambiguous (RFC 6298, 3).
    repeated: u8,
    /// Whether a SYN or a SYN-ACK must be sent now.
    is_due: bool,
}

/// What both ends know of each other after the handshake.
pub(super) struct Synchronized {
    pub(super) iss: Seq,
    pub(super) irs: Seq,
    pub(super) peer: PeerOptions,
    /// The peer's window in bytes.
    pub(super) window: u32,
    pub(super) arrived: Instant,
    pub(super) round_trip: Option<Duration>,
    /// Whether this end's SYN or SYN-ACK was sent more than once.
    pub(super) is_retransmitted: bool,
}

impl<B: Deref<Target = [u8]>> Connection<B> {
    /// Opens a connection: SYN-SENT. `iss` and `timestamp_offset` must be unpredictable for other hosts
    /// ([`FlowSecrets`](crate::tcp::listen::FlowSecrets)); `mtu` is that of the path.
    pub fn connect(
        now: Instant,
        flow: Flow,
        settings: Arc<Settings>,
        (iss, timestamp_offset): (Seq, u32),
        mtu: usize,
    ) -> Self {
        let mut connection = Self::new(flow, settings, mtu, timestamp_offset);
        connection.phase = Phase::Opening(Opening {
            iss,
            peer: None,
            sent: now,
            repeated: 0,
            is_due: true,
        });
        connection.state = State::SynSent;
        connection
    }

    /// What the SYN of this end offers.
    fn offer(&self) -> Offer {
        let mut offer = self.settings.offer(self.mtu.into(), self.is_v4());
        // A peer whose SYN crosses one without ECN does not use ECN, so this end must not accept it either.
        if offer.ecn == EcnMode::Accept {
            offer.ecn = EcnMode::Off;
        }
        offer
    }

    /// SEGMENT ARRIVES in SYN-SENT (RFC 9293, 3.10.7.3).
    pub(super) fn on_segment_in_syn_sent(
        &mut self,
        now: Instant,
        arrived: Instant,
        segment: &Arriving<'_>,
        payload: Payload<B>,
    ) -> Events {
        let Phase::Opening(opening) = &self.phase else {
            return Events::default();
        };
        let (header, flags) = (segment.header, segment.header.flags);
        let has_ack = flags.contains(Flags::ACK);
        // First, the ACK bit: only the SYN can be acknowledged.
        if has_ack && header.acknowledgment != opening.iss + 1 {
            return match flags.contains(Flags::RST) {
                true => Events::dropped(DropReason::TcpAck),
                false => Events {
                    reply: Some(self.refusal(header)),
                    ..Events::dropped(DropReason::TcpAck)
                },
            };
        }
        // Second, the RST bit: believed only if it acknowledges the SYN.
        if flags.contains(Flags::RST) {
            return match has_ack {
                true => self.fail(Error::Refused),
                false => Events::dropped(DropReason::TcpState),
            };
        }
        // Fourth, the SYN bit.
        if !flags.contains(Flags::SYN) {
            return Events::dropped(DropReason::TcpState);
        }
        if self.settings.drops_syn_fin && flags.contains(Flags::FIN) {
            return Events::dropped(DropReason::TcpState);
        }
        let peer = PeerOptions::negotiate(&self.offer(), flags, segment.options, self.is_v4());
        if !has_ack {
            return self.on_crossing_syn(now, header.sequence, peer);
        }
        let synchronized = Synchronized {
            iss: opening.iss,
            irs: header.sequence,
            peer,
            // The window of a SYN is not scaled (RFC 7323, 2.2).
            window: header.window.into(),
            arrived,
            round_trip: (opening.repeated == 0).then(|| arrived.since(opening.sent)),
            is_retransmitted: opening.repeated > 0,
        };
        self.become_established(now, &synchronized);
        self.acknowledge();
        let mut events = Events {
            is_connected: true,
            is_writable: true,
            may_send: true,
            ..Events::default()
        };
        // Data and FIN may come with the SYN-ACK.
        if !payload.is_empty() || flags.contains(Flags::FIN) {
            let rest = self.on_text(now, arrived, header.sequence + 1, payload, flags);
            events = events.and(rest);
        }
        events
    }

    /// The peer's SYN has crossed this end's: SYN-RECEIVED, and a SYN-ACK for the answer.
    fn on_crossing_syn(&mut self, now: Instant, irs: Seq, peer: PeerOptions) -> Events {
        let (timeout, limit) = (self.settings.syn_timeout, self.settings.connect_timeout);
        if let Phase::Opening(opening) = &mut self.phase {
            opening.peer = Some((irs, peer));
            opening.is_due = true;
            self.state = State::SynReceived;
            self.deadline = opening.gives_up_at(limit).min(now + timeout);
        }
        Events {
            may_send: true,
            ..Events::default()
        }
    }

    /// SEGMENT ARRIVES in SYN-RECEIVED after a simultaneous open (RFC 9293, 3.10.7.4).
    pub(super) fn on_segment_in_syn_received(
        &mut self,
        arrival: Arrival,
        segment: &Arriving<'_>,
        payload: Payload<B>,
        limiter: &mut ChallengeLimiter,
    ) -> Events {
        if let Some(events) = self.refused_in_syn_received(arrival.now, segment, limiter) {
            return events;
        }
        let Phase::Opening(opening) = &self.phase else {
            return Events::default();
        };
        let Some((irs, peer)) = opening.peer else {
            return Events::default();
        };
        let (header, flags) = (segment.header, segment.header.flags);
        // The window of a SYN-ACK is not scaled, and its data begins behind the SYN.
        let (shift, start) = match flags.contains(Flags::SYN) {
            true => (0, header.sequence + 1),
            false => (peer.window_shift(), header.sequence),
        };
        let Arrival { now, arrived, .. } = arrival;
        let synchronized = Synchronized {
            iss: opening.iss,
            irs,
            peer,
            window: u32::from(header.window) << shift,
            arrived,
            round_trip: None,
            is_retransmitted: opening.repeated > 0,
        };
        self.become_established(now, &synchronized);
        let events = Events {
            is_connected: true,
            is_writable: true,
            may_send: true,
            ..Events::default()
        };
        match payload.is_empty() && !flags.contains(Flags::FIN) {
            true => events,
            false => events.and(self.on_text(now, arrived, start, payload, flags)),
        }
    }

    /// The checks of a segment in SYN-RECEIVED, before it completes the handshake. Returns its events if it does not.
    fn refused_in_syn_received(
        &mut self,
        now: Instant,
        segment: &Arriving<'_>,
        limiter: &mut ChallengeLimiter,
    ) -> Option<Events> {
        let mss = u32::from(mss_of_mtu(self.mtu.into(), self.is_v4())).max(1);
        let Phase::Opening(opening) = &mut self.phase else {
            return Some(Events::default());
        };
        let Some((irs, peer)) = opening.peer else {
            return Some(Events::default());
        };
        let (header, flags) = (segment.header, segment.header.flags);
        let next = irs + 1;
        // The buffer will have whole segments.
        let window = self.settings.receive.buffer_bytes.next_multiple_of(mss);
        let is_syn_ack = flags.contains(Flags::SYN) && header.sequence == irs;
        // First, the sequence number. The peer's SYN-ACK repeats its SYN, which lies before the window.
        if !is_syn_ack && !header.sequence.is_within(next, next + window) {
            opening.is_due |= !flags.contains(Flags::RST);
            return Some(Events {
                may_send: true,
                ..Events::dropped(DropReason::TcpUnacceptable)
            });
        }
        // Second, RST: by RFC 5961, 3.2 with the exact number only.
        if flags.contains(Flags::RST) {
            let is_believed = header.sequence == next || self.settings.trust.resets_in_window;
            return Some(match is_believed {
                true => self.fail(Error::Refused),
                false => {
                    let numbers = (opening.iss + 1, next);
                    Events {
                        reply: limiter
                            .allows_any(now)
                            .then(|| self.challenge_in_handshake(now, numbers, &peer)),
                        ..Events::dropped(DropReason::TcpBlindReset)
                    }
                }
            });
        }
        if !flags.contains(Flags::ACK) {
            // The SYN again: the SYN-ACK was lost.
            opening.is_due |= is_syn_ack;
            return Some(Events {
                may_send: true,
                ..Events::dropped(DropReason::TcpState)
            });
        }
        // Fifth, the ACK.
        match header.acknowledgment == opening.iss + 1 {
            true => None,
            false => Some(Events {
                reply: Some(self.refusal(header)),
                ..Events::dropped(DropReason::TcpAck)
            }),
        }
    }

    /// A challenge ACK before the handshake is complete. Unlike that of a SYN-ACK its window is scaled.
    fn challenge_in_handshake(
        &self,
        now: Instant,
        (next, acknowledgment): (Seq, Seq),
        peer: &PeerOptions,
    ) -> Reply {
        let window = self.settings.receive.syn_window() >> self.offer().agreed_shift(peer);
        let options = Options {
            timestamps: peer.timestamps.map(|echo| Timestamps {
                value: self.timestamp(now),
                echo,
            }),
            ..Options::default()
        };
        Reply::new(self.flow, next, acknowledgment, Flags::ACK, window).with_options(options)
    }

    /// Both ends know each other: ESTABLISHED.
    pub(super) fn become_established(&mut self, now: Instant, known: &Synchronized) {
        let peer = &known.peer;
        let offer = self.offer();
        let own_shift = offer.agreed_shift(peer);
        let mss = self.send_mss(peer.mss);
        let send = PeerOptions { mss, ..*peer };
        let mut sender = Sender::new(known.iss + 1, &self.settings.send, &send, known.window, now);
        if let Some(round_trip) = known.round_trip {
            sender.on_handshake_rtt(known.arrived, round_trip);
        }
        if known.is_retransmitted {
            sender.on_handshake_loss();
        }
        sender.set_window_seq(known.irs);
        let receiver = Receiver::new(
            known.irs,
            &self.settings.receive,
            own_shift,
            mss_of_mtu(self.mtu.into(), self.is_v4()),
        );
        self.phase = Phase::Open(Open {
            receiver,
            sender,
            paws: Paws::new(known.arrived, peer.timestamps.unwrap_or(0))
                .with_clock(self.settings.send.clock),
            challenges: LastChallenge::default(),
            probes: Probes::new(known.arrived),
            segments_received: 0,
            extra_acks: 0,
            peer_shift: peer.window_shift(),
            own_shift,
            flags: OpenFlags {
                has_sack: peer.is_sack_permitted,
                has_timestamps: peer.timestamps.is_some(),
                requires_timestamps: self.settings.requires_timestamps,
                has_ecn: peer.ecn == Ecn::Classic,
                trust: self.settings.trust,
                ..OpenFlags::default()
            },
        });
        self.state = State::Established;
        self.deadline = Instant::FAR_FUTURE;
        if core::mem::take(&mut self.is_closing_early) {
            self.shutdown_write();
        }
    }

    /// The RST that answers a segment with an unacceptable acknowledgment: <SEQ=SEG.ACK><CTL=RST>.
    fn refusal(&self, header: &Header) -> Reply {
        Reply::new(self.flow, header.acknowledgment, Seq(0), Flags::RST, 0)
    }

    /// Sends the SYN again, or gives up. Called when the deadline has passed.
    pub(super) fn on_syn_timer(&mut self, now: Instant) -> Events {
        let (timeout, retries) = (self.settings.syn_timeout, self.settings.syn_retries);
        let (longest, slop) = (self.settings.send.maximum_timeout, self.settings.syn_slop);
        let limit = self.settings.connect_timeout;
        let Phase::Opening(opening) = &mut self.phase else {
            return Events::default();
        };
        let gives_up_at = opening.gives_up_at(limit);
        if opening.repeated >= retries || now >= gives_up_at {
            return self.fail(self.reason_of_timeout());
        }
        opening.repeated += 1;
        opening.is_due = true;
        let backed_off = timeout.saturating_mul(1 << opening.repeated.min(16)) + slop;
        self.deadline = gives_up_at.min(now + backed_off.min(longest));
        Events {
            may_send: true,
            ..Events::default()
        }
    }

    /// The SYN or SYN-ACK, if one is due.
    pub(super) fn poll_syn(&mut self, now: Instant) -> Option<Outgoing> {
        let (offer, timestamp) = (self.offer(), self.timestamp(now));
        let ecn_retries = self.settings.ecn_retries;
        let Phase::Opening(opening) = &mut self.phase else {
            return None;
        };
        if !core::mem::take(&mut opening.is_due) {
            return None;
        }
        let (flags, options, acknowledgment) = match &opening.peer {
            // A path that loses SYNs with ECN gets one without (RFC 3168, 6.1.1.1).
            None if opening.repeated > ecn_retries => {
                (Flags::SYN, offer.syn_options(timestamp), Seq(0))
            }
            None => (offer.syn_flags(), offer.syn_options(timestamp), Seq(0)),
            Some((irs, peer)) => (
                Offer::answer_flags(peer),
                offer.answer_options(peer, timestamp),
                *irs + 1,
            ),
        };
        let (iss, repeated) = (opening.iss, opening.repeated);
        // The deadline of a SYN-ACK was set when the peer's SYN arrived. A repeated SYN is answered, but does not move it.
        if repeated == 0 && opening.peer.is_none() {
            // The time from a call to its first SYN is not part of the round trip.
            opening.sent = now;
            let limit = self.settings.connect_timeout;
            self.deadline = opening
                .gives_up_at(limit)
                .min(now + self.settings.syn_timeout);
        }
        let header = Header {
            sequence: iss,
            acknowledgment,
            window: self.settings.receive.syn_window(),
            ..self.header(flags)
        };
        Some(Outgoing {
            cause: (repeated > 0).then_some(RetransmissionCause::Timeout),
            ..Outgoing::without_payload(header, options)
        })
    }
}

impl Opening {
    pub(super) const fn iss(&self) -> Seq {
        self.iss
    }

    /// When an attempt fails that may take as long as `limit`.
    fn gives_up_at(&self, limit: Option<Duration>) -> Instant {
        limit.map_or(Instant::FAR_FUTURE, |limit| self.sent + limit)
    }

    /// The acknowledgment of the peer's SYN, if one has arrived.
    pub(super) fn acknowledgment(&self) -> Option<Seq> {
        self.peer.map(|(irs, _)| irs + 1)
    }
}
