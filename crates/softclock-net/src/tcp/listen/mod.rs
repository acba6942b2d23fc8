//! Passive opens: from a SYN to a connection that can be accepted.
//!
//! A [`Listener`] keeps a small record for each half-open connection (RFC 4987, 3.3), and none while it answers by SYN
//! cookies (3.6). A [`Handshake`] comes out when the peer acknowledges the SYN-ACK; the caller makes the connection,
//! gives it the same segment, and [pushes](Listener::push) its handle onto the queue from which the owner
//! [accepts](Listener::accept). Sequence numbers and time stamps come from [`FlowSecrets`].

mod accept_queue;
mod by_cookie;
mod cookies;
mod isn;
mod outcome;
mod proven;
mod settings;
mod shared;
mod syn_queue;

use core::time::Duration;

use softclock_core::Instant;

use crate::demux::Flow;
use crate::drops::DropReason;
use crate::due::Slack;

use super::flow_map::Place;
use super::peer::{Offer, PeerOptions, mss_of_mtu};
use super::segment::{Flags, Options, Reply, Segment, Timestamps};
use super::seq::Seq;
use accept_queue::AcceptQueue;
pub use isn::{FlowSecrets, TimestampUnit};
pub use outcome::{Handshake, ListenStats, Outcome};
pub use proven::{PeerChange, ProvenPeers};
pub use settings::{CookieUse, ListenSettings, SharedSettings};
pub use shared::Shared;
use syn_queue::{Expired, HalfOpen, SynQueue};

/// An endpoint that connections are opened to. `T` is the caller's handle of a connection.
///
/// ```
/// use softclock_core::Instant;
/// use softclock_net::demux::{Flow, HashKey, Transport};
/// use softclock_net::tcp::listen::{ListenSettings, Listener, Outcome, Shared, SharedSettings};
/// use softclock_net::tcp::segment::{Flags, Header, Options, Segment};
/// use softclock_net::tcp::seq::Seq;
///
/// let mut shared = Shared::new(SharedSettings::default(), HashKey([1, 2])); // In earnest: random, and secret.
/// let mut listener = Listener::new(ListenSettings::default(), &shared);
/// let flow = Flow {
///     transport: Transport::Tcp,
///     remote: ("192.0.2.7".parse().unwrap(), 40_000),
///     local: ("192.0.2.1".parse().unwrap(), 80),
/// };
/// let segment = |header| Segment { header, options: Options::default(), payload: &[] };
/// let now = Instant::ORIGIN;
///
/// let syn = Header { sequence: Seq(7), flags: Flags::SYN, window: 1000, ..Header::default() };
/// let outcome = listener.on_segment(&mut shared, now, now, flow, &segment(syn));
/// let Outcome::Reply(syn_ack) = outcome else { panic!("{outcome:?}") };
/// assert_eq!(syn_ack.header.flags, Flags::SYN | Flags::ACK);
///
/// let ack = Header {
///     sequence: syn_ack.header.acknowledgment,
///     acknowledgment: syn_ack.header.sequence + 1,
///     flags: Flags::ACK,
///     ..syn
/// };
/// let outcome = listener.on_segment(&mut shared, now, now, flow, &segment(ack));
/// let Outcome::Completed(handshake) = outcome else { panic!("{outcome:?}") };
/// assert_eq!((handshake.remote_initial, handshake.window), (Seq(7), 1000));
/// listener.push("the connection").unwrap();
/// assert_eq!(listener.accept(), Some("the connection"));
/// ```
pub struct Listener<T> {
    settings: ListenSettings,
    half_open: SynQueue,
    complete: AcceptQueue<T>,
    /// The latest time that a cookie was sent. Without it no acknowledgment can hold a valid one.
    last_cookie: Option<Instant>,
    stats: ListenStats,
}

impl<T: PartialEq> Listener<T> {
    /// Creates a listener without connections. Allocates little.
    pub fn new(settings: ListenSettings, shared: &Shared) -> Self {
        let (timeout, retries) = (settings.initial_timeout, settings.retries);
        Self {
            settings,
            half_open: SynQueue::new(shared.table_key(), timeout, retries),
            complete: AcceptQueue::new(settings.backlog),
            last_cookie: None,
            stats: ListenStats::default(),
        }
    }

    /// Replaces the settings. Returns false, and changes nothing, if others than the use of cookies, the most half-open
    /// connections, the time until the listener counts as unattended, and the segments that it believes or drops would
    /// change: handshakes in progress depend on them.
    pub fn change_settings(&mut self, settings: ListenSettings) -> bool {
        let is_possible = settings
            == ListenSettings {
                half_open: settings.half_open,
                cookies: settings.cookies,
                unattended: settings.unattended,
                drops_syn_fin: settings.drops_syn_fin,
                trust: settings.trust,
                ..self.settings
            };
        if is_possible {
            self.settings = settings;
        }
        is_possible
    }

    /// Processes a segment of a flow that has no connection (RFC 9293, 3.10.7.2 and 3.10.7.4). `now` is for timers,
    /// `arrived` for the round-trip time and for the age of cookies. Takes constant time.
    pub fn on_segment(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        arrived: Instant,
        flow: Flow,
        segment: &Segment<'_>,
    ) -> Outcome {
        let flags = segment.header.flags;
        if flags.contains(Flags::RST) {
            self.on_rst(shared, now, flow, segment)
        } else if flags.contains(Flags::ACK) {
            self.on_ack(shared, now, arrived, flow, segment)
        } else if flags.contains(Flags::SYN) {
            self.on_syn(shared, now, flow, segment, None)
        } else {
            Outcome::Dropped(DropReason::TcpState)
        }
    }

    /// Processes a SYN without ACK. `previous` is the last sequence number of this end in a connection of the same flow
    /// that was in TIME-WAIT and has given way.
    pub fn on_syn(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        flow: Flow,
        syn: &Segment<'_>,
        previous: Option<Seq>,
    ) -> Outcome {
        // A listener that does not accept costs as little as possible (LRP, section 3.4).
        if self.complete.is_full() {
            return self.refuse_as_full();
        }
        if self.settings.drops_syn_fin && syn.header.flags.contains(Flags::FIN) {
            return Outcome::Dropped(DropReason::TcpState);
        }
        let offer = self.offer(&flow);
        let is_v4 = flow.remote.0.is_ipv4();
        let peer = PeerOptions::negotiate(&offer, syn.header.flags, &syn.options, is_v4);
        if self.half_open.find(&flow).is_some() {
            return self.on_syn_again(shared, now, flow, syn, &peer);
        }
        let is_full = self.is_half_open_full(shared);
        // The sequence number of a cookie does not lie behind those of a previous connection.
        let cookies = match previous {
            Some(_) => CookieUse::Never,
            None => self.settings.cookies,
        };
        match cookies {
            CookieUse::Always => return self.answer_by_cookie(shared, now, flow, syn, &peer),
            CookieUse::WhenFull if is_full => {
                return self.answer_by_cookie(shared, now, flow, syn, &peer);
            }
            CookieUse::Never if is_full => {
                if !self.half_open.remove_oldest() {
                    self.stats.syn_queue_full += 1;
                    return Outcome::Dropped(DropReason::TcpSynQueueFull);
                }
                shared.half_open -= 1;
                self.stats.displaced += 1;
            }
            _ => {}
        }
        let local_initial = match previous {
            Some(previous) => shared.secrets.initial_sequence_after(&flow, now, previous),
            None => shared.secrets.initial_sequence(&flow, now),
        };
        let half_open = HalfOpen::new(local_initial, syn.header.sequence, &peer);
        self.half_open.insert(now, &flow, half_open);
        shared.half_open += 1;
        Outcome::Reply(self.syn_ack(shared, now, flow, &half_open))
    }

    /// Processes a segment with ACK and without RST: the third of a handshake, or the first with data if that was lost.
    pub fn on_ack(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        arrived: Instant,
        flow: Flow,
        segment: &Segment<'_>,
    ) -> Outcome {
        let Some((place, half_open)) = self.half_open.find(&flow) else {
            return self.on_ack_without_state(shared, arrived, flow, segment);
        };
        let peer = half_open.peer();
        if let Some(reason) = self.refusal(&half_open, &peer, segment) {
            return self.challenge(shared, now, flow, reason);
        }
        if segment.header.acknowledgment != half_open.local_initial + 1 {
            return self.on_ack_of_cookie(shared, arrived, (place, flow), segment);
        }
        // The record stays: with the SYN-ACK, the peer sends its acknowledgment again.
        if self.complete.is_full() {
            return self.refuse_as_full();
        }
        let round_trip = self.half_open.round_trip(&half_open, arrived);
        self.half_open.remove(place);
        shared.half_open -= 1;
        let (local, remote) = (half_open.local_initial, half_open.remote_initial);
        let handshake = self.handshake(shared, flow, [local, remote], peer, segment, arrived);
        Outcome::Completed(Handshake {
            round_trip,
            is_retransmitted: half_open.is_retransmitted(),
            ..handshake
        })
    }

    /// An acknowledgment of another number than that of the half-open connection of its flow. The peer may have answered
    /// a cookie: its SYN was repeated when there was room again, while the cookie was on its way.
    fn on_ack_of_cookie(
        &mut self,
        shared: &mut Shared,
        arrived: Instant,
        (place, flow): (Place, Flow),
        segment: &Segment<'_>,
    ) -> Outcome {
        let outcome = self.on_ack_without_state(shared, arrived, flow, segment);
        match outcome {
            Outcome::Completed(_) => {
                self.half_open.remove(place);
                shared.half_open -= 1;
            }
            Outcome::Refused(..) => return refuse(flow, segment, DropReason::TcpAck),
            _ => {}
        }
        outcome
    }

    /// Processes a reset, which ends a half-open connection if it has exactly the expected sequence number (RFC 5961,
    /// 3.2).
    pub fn on_rst(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        flow: Flow,
        segment: &Segment<'_>,
    ) -> Outcome {
        let Some((place, half_open)) = self.half_open.find(&flow) else {
            return Outcome::Dropped(DropReason::TcpState);
        };
        let next = half_open.remote_initial + 1;
        let sequence = segment.header.sequence;
        let is_in_window = sequence.is_within(next, next + u32::from(self.own_window()));
        if sequence == next || (is_in_window && self.settings.trust.resets_in_window) {
            self.half_open.remove(place);
            shared.half_open -= 1;
            return Outcome::Reset;
        }
        match is_in_window {
            true => self.challenge(shared, now, flow, DropReason::TcpBlindReset),
            false => Outcome::Dropped(DropReason::TcpUnacceptable),
        }
    }

    /// Ends a half-open connection whose SYN-ACK a hard ICMP error quotes. `sequence` is that of the quoted segment,
    /// which an attacker must guess (RFC 5927, 4.1). Returns whether there was one.
    pub fn on_unreachable(&mut self, shared: &mut Shared, flow: &Flow, sequence: Seq) -> bool {
        let found = self.half_open.find(flow);
        let quoted = found.filter(|(_, half_open)| half_open.local_initial == sequence);
        let Some((place, _)) = quoted else {
            return false;
        };
        self.half_open.remove(place);
        shared.half_open -= 1;
        true
    }

    /// Retransmits one SYN-ACK that is due, and gives up those that have been retransmitted often enough. Call it until
    /// it returns `None`.
    pub fn on_timer(&mut self, shared: &mut Shared, now: Instant) -> Option<Reply> {
        loop {
            match self.half_open.expire(now)? {
                Expired::GivenUp => {
                    shared.half_open -= 1;
                    self.stats.timed_out += 1;
                }
                Expired::Retransmit(flow, half_open) => {
                    self.stats.retransmitted += 1;
                    return Some(self.syn_ack(shared, now, flow, &half_open));
                }
            }
        }
    }

    /// The time of the next call of [`on_timer`](Self::on_timer).
    pub fn next_timeout(&self) -> Option<Instant> {
        self.half_open.next_deadline()
    }

    /// How late [`on_timer`](Self::on_timer) may be.
    pub fn slack(&self) -> Duration {
        Slack::RETRANSMISSION.of_time(self.half_open.initial_timeout())
    }

    /// Adds the connection of a complete handshake to those that wait to be accepted.
    ///
    /// # Errors
    /// The connection, if as many wait as the backlog allows. [`Outcome::Completed`] implies room for one.
    pub fn push(&mut self, connection: T) -> Result<(), T> {
        self.complete.push(connection)
    }

    /// Takes the connection that has waited longest.
    pub fn accept(&mut self) -> Option<T> {
        self.complete.pop()
    }

    /// Removes a connection that was reset before it was accepted. Returns whether it waited. Takes time in proportion
    /// to the backlog.
    pub fn forget(&mut self, connection: &T) -> bool {
        self.complete.remove(connection)
    }

    /// The number of connections that wait to be accepted.
    pub fn waiting(&self) -> usize {
        self.complete.len()
    }

    /// Whether as many connections wait as the backlog allows. Until one is accepted, all SYNs and acknowledgments are
    /// dropped, so a demultiplexer may discard them at once.
    pub fn is_full(&self) -> bool {
        self.complete.is_full()
    }

    /// Whether the next SYN is answered by a cookie: always, or since there are as many half-open connections as the
    /// settings allow.
    pub fn needs_cookies(&self, shared: &Shared) -> bool {
        match self.settings.cookies {
            CookieUse::Always => true,
            CookieUse::WhenFull => self.is_half_open_full(shared),
            CookieUse::Never => false,
        }
    }

    fn is_half_open_full(&self, shared: &Shared) -> bool {
        self.half_open.len() >= self.settings.half_open || shared.is_full()
    }

    /// The number of half-open connections.
    pub const fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// Whether the handshake of this flow has begun.
    pub fn has_half_open(&self, flow: &Flow) -> bool {
        self.half_open.find(flow).is_some()
    }

    /// The settings.
    pub const fn settings(&self) -> &ListenSettings {
        &self.settings
    }

    /// The counts of events.
    pub const fn stats(&self) -> &ListenStats {
        &self.stats
    }

    /// Ends the listener. Returns the connections that wait to be accepted, which the caller must abort.
    pub fn close(mut self, shared: &mut Shared) -> impl Iterator<Item = T> {
        shared.half_open -= self.half_open.len();
        core::iter::from_fn(move || self.complete.pop())
    }

    /// A SYN for a flow that is half open. The same SYN is answered again, with the options of the new one: a peer
    /// leaves options out when it suspects that they get lost. A SYN with another sequence number is forged, or of a
    /// peer that has forgotten its first: a challenge ACK finds out, as such a peer answers it by the exact reset
    /// (RFC 5961, 4).
    fn on_syn_again(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        flow: Flow,
        syn: &Segment<'_>,
        peer: &PeerOptions,
    ) -> Outcome {
        let Some((place, mut half_open)) = self.half_open.find(&flow) else {
            return Outcome::Dropped(DropReason::TcpState);
        };
        if syn.header.sequence != half_open.remote_initial {
            return self.challenge(shared, now, flow, DropReason::TcpBlindReset);
        }
        half_open.set_peer(peer);
        half_open.set_retransmitted();
        self.half_open.replace(place, half_open);
        self.stats.retransmitted += 1;
        Outcome::Reply(self.syn_ack(shared, now, flow, &half_open))
    }

    /// The reason not to take a segment of a half-open connection, before its acknowledgment is looked at.
    fn refusal(
        &self,
        half_open: &HalfOpen,
        peer: &PeerOptions,
        segment: &Segment<'_>,
    ) -> Option<DropReason> {
        // RFC 5961, 4: irrespective of the sequence number.
        if segment.header.flags.contains(Flags::SYN) {
            return Some(DropReason::TcpBlindReset);
        }
        if let Some(recent) = peer.timestamps {
            let is_old = |times: Timestamps| Seq(times.value).is_before(Seq(recent));
            let is_refused = segment
                .options
                .timestamps
                .map_or(self.settings.requires_timestamps, is_old);
            if is_refused {
                return Some(DropReason::TcpTimestamp);
            }
        }
        // RFC 9293, 3.10.7.4, table 6. The window is never zero.
        let next = half_open.remote_initial + 1;
        let end = next + u32::from(self.own_window());
        let first = segment.header.sequence;
        let last = first + segment.sequence_length().saturating_sub(1);
        let is_acceptable = first.is_within(next, end) || last.is_within(next, end);
        (!is_acceptable).then_some(DropReason::TcpUnacceptable)
    }

    /// Acknowledges the SYN of a half-open connection, if the limits allow.
    fn challenge(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        flow: Flow,
        reason: DropReason,
    ) -> Outcome {
        let Some((place, mut half_open)) = self.half_open.find(&flow) else {
            return Outcome::Dropped(reason);
        };
        if !shared.challenges.allows(now, &mut half_open.last_challenge) {
            return Outcome::Dropped(reason);
        }
        self.half_open.replace(place, half_open);
        let (next, peer) = (half_open.local_initial + 1, half_open.peer());
        // Not that of a SYN-ACK: this window is scaled.
        let shift = self.settings.offer.agreed_shift(&peer);
        let window = self.own_window() >> shift;
        let acknowledgment = half_open.remote_initial + 1;
        let reply = Reply::new(flow, next, acknowledgment, Flags::ACK, window);
        let options = Options {
            timestamps: peer.timestamps.map(|echo| Timestamps {
                value: shared.timestamp(&flow, now),
                echo,
            }),
            ..Options::default()
        };
        Outcome::Refused(reply.with_options(options), reason)
    }

    /// Drops a segment since as many connections wait to be accepted as the backlog allows.
    fn refuse_as_full(&mut self) -> Outcome {
        self.stats.accept_queue_full += 1;
        Outcome::Dropped(DropReason::TcpAcceptQueueFull)
    }

    fn handshake(
        &self,
        shared: &Shared,
        flow: Flow,
        [local_initial, remote_initial]: [Seq; 2],
        peer: PeerOptions,
        segment: &Segment<'_>,
        arrived: Instant,
    ) -> Handshake {
        Handshake {
            flow,
            local_initial,
            remote_initial,
            peer,
            own_shift: self.settings.offer.agreed_shift(&peer),
            own_window: self.own_window(),
            timestamp_offset: shared.secrets.timestamp_offset(&flow),
            window: u32::from(segment.header.window) << peer.window_shift(),
            round_trip: None,
            is_retransmitted: false,
            arrived,
        }
    }

    fn syn_ack(&self, shared: &Shared, now: Instant, flow: Flow, half_open: &HalfOpen) -> Reply {
        let numbers = [half_open.local_initial, half_open.remote_initial];
        let timestamp = shared.timestamp(&flow, now);
        self.syn_ack_of(flow, numbers, &half_open.peer(), timestamp)
    }

    fn syn_ack_of(
        &self,
        flow: Flow,
        [local_initial, remote_initial]: [Seq; 2],
        peer: &PeerOptions,
        timestamp: u32,
    ) -> Reply {
        let flags = Offer::answer_flags(peer);
        let next = remote_initial + 1;
        Reply::new(flow, local_initial, next, flags, self.own_window())
            .with_options(self.offer(&flow).answer_options(peer, timestamp))
    }

    fn offer(&self, flow: &Flow) -> Offer {
        Offer {
            mss: mss_of_mtu(self.settings.mtu, flow.remote.0.is_ipv4()),
            ..self.settings.offer
        }
    }

    /// The window of a SYN-ACK, which is not scaled.
    fn own_window(&self) -> u16 {
        u16::try_from(self.settings.window.max(1)).unwrap_or(u16::MAX)
    }
}

/// Answers a segment that no connection can have caused by a reset.
fn refuse(flow: Flow, segment: &Segment<'_>, reason: DropReason) -> Outcome {
    match Reply::reset(flow, segment) {
        Some(reply) => Outcome::Refused(reply, reason),
        None => Outcome::Dropped(reason),
    }
}

#[cfg(test)]
mod tests;
