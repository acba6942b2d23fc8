//! A connection: the state machine of RFC 9293, 3.10.
//!
//! [`connect`](Connection::connect) opens one (SYN-SENT), [`accepted`](Connection::accepted) makes one of a handshake
//! that a [listener](super::listen) has completed (ESTABLISHED). From then on:
//!
//! - [`on_segment`](Connection::on_segment) processes a segment, which may have arrived earlier: estimators use the
//!   time of its arrival, timers the current time;
//! - [`poll_transmit`](Connection::poll_transmit) returns the next segment to send: one at a time, paced;
//! - [`next_timeout`](Connection::next_timeout) is the time at which [`on_timer`](Connection::on_timer) has work;
//! - [`read`](Connection::read), [`write`](Connection::write) and [`shutdown_write`](Connection::shutdown_write) are
//!   its owner's calls. [`close`](Connection::close) says that the owner is gone: the connection sends what is left,
//!   and ends.
//!
//! When the state becomes [`State::TimeWait`], the caller moves the connection to its
//! [table](super::time_wait::TimeWaitTable), and keeps this object only until its owner has read what has arrived.
//!
//! | file | contents |
//! |---|---|
//! | `open.rs` | SYN-SENT, and SYN-RECEIVED of a simultaneous open |
//! | `segment_arrives.rs` | the segments of a synchronized connection (3.10.7.4) |
//! | `output.rs` | segments to send |
//! | `train.rs` | segments that a device cuts out of one |
//! | `timers.rs` | what is due when |
//! | `close.rs` | the ends of a connection: FIN, RST, and errors |
//! | `calls.rs` | the owner's calls |

mod calls;
mod close;
mod open;
mod output;
mod segment_arrives;
#[cfg(test)]
mod tests;
mod timers;
mod train;

use alloc::sync::Arc;
use core::fmt;
use core::ops::Deref;

use softclock_core::Instant;

use self::open::Opening;
use super::challenge::{LastChallenge, Trust};
use super::keepalive::Probes;
use super::listen::Handshake;
use super::paws::Paws;
use super::receive::Receiver;
use super::segment::{Flags, Header, Reply};
use super::send::Sender;
use super::settings::Settings;
use super::state::State;
use crate::demux::Flow;
use crate::drops::DropReason;

pub use close::IcmpError;
pub use output::Outgoing;
pub use segment_arrives::Arrival;
pub use train::Train;

/// A connection. `B` is the memory of a received packet.
///
/// ```
/// use softclock_core::Instant;
/// use softclock_net::demux::{Flow, HashKey, Transport};
/// use softclock_net::tcp::challenge::{ChallengeLimiter, ChallengeSettings};
/// use softclock_net::tcp::connection::{Arrival, Connection, Error};
/// use softclock_net::tcp::payload::Payload;
/// use softclock_net::tcp::segment::{Flags, Header, Options};
/// use softclock_net::tcp::seq::Seq;
/// use softclock_net::tcp::settings::Settings;
/// use softclock_net::tcp::state::State;
///
/// let flow = Flow {
///     transport: Transport::Tcp,
///     remote: ("192.0.2.7".parse().unwrap(), 80),
///     local: ("192.0.2.1".parse().unwrap(), 40_000),
/// };
/// let now = Instant::from_ns(1_000_000_000);
/// let mut connection = Connection::connect(now, flow, Settings::default().into(), (Seq(7), 0), 1500);
/// let syn = connection.poll_transmit(now).unwrap().header;
/// assert_eq!((syn.flags, syn.sequence), (Flags::SYN, Seq(7)));
///
/// // The port is closed.
/// let reset = Header { acknowledgment: Seq(8), flags: Flags::RST | Flags::ACK, ..Header::default() };
/// let arrival = Arrival { now, arrived: now, is_marked: false };
/// let mut limiter = ChallengeLimiter::new(ChallengeSettings::default(), HashKey([1, 2]));
/// let none = Payload::new(Vec::new(), 0..0);
/// let events = connection.on_segment(arrival, (&reset, &Options::default()), none, &mut limiter);
/// assert!(events.is_over && connection.state() == State::Closed);
/// assert_eq!(connection.take_error(), Some(Error::Refused));
/// ```
pub struct Connection<B> {
    settings: Arc<Settings>,
    flow: Flow,
    phase: Phase<B>,
    /// When the SYN is sent again; later, when the connection ends if its owner is gone.
    deadline: Instant,
    /// What makes the clock of this connection's time stamps differ from those of others (RFC 7323, 7.1).
    timestamp_offset: u32,
    /// The longest IP packet of the path.
    mtu: u16,
    state: State,
    error: Option<Error>,
    /// The last error that the network has reported since the peer was heard: the reason if the connection times out.
    reported: Option<Error>,
    /// Whether the owner is gone.
    is_orphan: bool,
    /// Whether the owner has closed its half before the handshake was complete.
    is_closing_early: bool,
}

/// The parts of a connection that depend on its phase.
#[expect(clippy::large_enum_variant, reason = "nearly all connections are open")]
enum Phase<B> {
    Opening(Opening),
    Open(Open<B>),
    /// The connection has failed before it was open.
    Failed,
}

/// A connection whose handshake is complete.
struct Open<B> {
    receiver: Receiver<B>,
    sender: Sender,
    /// The newest time stamp of the peer. Of no meaning unless both ends send time stamps: see [`Open::paws`].
    paws: Paws,
    challenges: LastChallenge,
    probes: Probes,
    /// The segments that were received, modulo 2^32.
    segments_received: u32,
    /// The acknowledgments that must be sent beside the one that is due: peers without SACK count duplicates
    /// (RFC 5681, 3.2).
    extra_acks: u8,
    peer_shift: u8,
    own_shift: u8,
    flags: OpenFlags,
}

/// The facts about an open connection that are true or false.
#[derive(Clone, Copy, Debug, Default)]
struct OpenFlags {
    has_sack: bool,
    has_timestamps: bool,
    /// Whether segments without time stamps are dropped, once both ends have agreed on them.
    requires_timestamps: bool,
    /// Whether both ends understand explicit congestion notification (RFC 3168).
    has_ecn: bool,
    /// A packet arrived with congestion experienced, and no CWR since: acknowledgments carry ECE.
    must_echo_ecn: bool,
    /// A keep-alive probe must be sent.
    is_probe_due: bool,
    /// The owner will not read any more: data that arrives is answered by RST.
    is_read_closed: bool,
    /// What ends the connection although it may be forged.
    trust: Trust,
}

/// What happened to a connection in a call.
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "the owner must be woken, and the reply sent"]
pub struct Events {
    /// There is something new to read: bytes, the end of the stream, or an error.
    pub is_readable: bool,
    /// There is room to write again, or an error.
    pub is_writable: bool,
    /// The handshake is complete.
    pub is_connected: bool,
    /// The state has become [`State::TimeWait`] or [`State::Closed`].
    pub is_over: bool,
    /// [`poll_transmit`](Connection::poll_transmit) may have something.
    pub may_send: bool,
    /// The segment was dropped.
    pub dropped: Option<DropReason>,
    /// A segment without place in the stream: a reset.
    pub reply: Option<Reply>,
}

/// Why a connection has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The peer has no listener at this port (ECONNREFUSED).
    Refused,
    /// The peer has reset the connection (ECONNRESET).
    Reset,
    /// The peer did not answer in time (ETIMEDOUT).
    TimedOut,
    /// The peer did not answer in time, and a router had reported that it cannot be reached (EHOSTUNREACH).
    Unreachable,
    /// The same, with a report that no route leads to its network (ENETUNREACH).
    NetworkUnreachable,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "the peer refused the connection",
            Self::Reset => "the peer has reset the connection",
            Self::TimedOut => "the peer did not answer in time",
            Self::Unreachable => "the peer is unreachable",
            Self::NetworkUnreachable => "the peer's network is unreachable",
        })
    }
}

impl core::error::Error for Error {}

impl Events {
    fn dropped(reason: DropReason) -> Self {
        Self {
            dropped: Some(reason),
            ..Self::default()
        }
    }

    /// The events of both.
    fn and(self, later: Self) -> Self {
        Self {
            is_readable: self.is_readable | later.is_readable,
            is_writable: self.is_writable | later.is_writable,
            is_connected: self.is_connected | later.is_connected,
            is_over: self.is_over | later.is_over,
            may_send: self.may_send | later.may_send,
            dropped: self.dropped.or(later.dropped),
            reply: self.reply.or(later.reply),
        }
    }
}

impl<B: Deref<Target = [u8]>> Connection<B> {
    /// The connection of a handshake that a listener has completed: ESTABLISHED.
    pub fn accepted(
        now: Instant,
        handshake: &Handshake,
        settings: Arc<Settings>,
        mtu: usize,
    ) -> Self {
        let mut connection = Self::new(handshake.flow, settings, mtu, handshake.timestamp_offset);
        let synchronized = open::Synchronized {
            iss: handshake.local_initial,
            irs: handshake.remote_initial,
            peer: handshake.peer,
            window: handshake.window,
            arrived: handshake.arrived,
            round_trip: handshake.round_trip,
            is_retransmitted: handshake.is_retransmitted,
        };
        connection.become_established(now, &synchronized);
        connection
    }

    fn new(flow: Flow, settings: Arc<Settings>, mtu: usize, timestamp_offset: u32) -> Self {
        Self {
            settings,
            flow,
            phase: Phase::Failed,
            deadline: Instant::FAR_FUTURE,
            timestamp_offset,
            mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
            state: State::Closed,
            error: None,
            reported: None,
            is_orphan: false,
            is_closing_early: false,
        }
    }

    /// The state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The longest packet of the path.
    pub(crate) const fn mtu(&self) -> u16 {
        self.mtu
    }

    /// The addresses and ports.
    pub const fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Whether [`close`](Self::close) was called: the connection ends by itself.
    pub const fn is_orphan(&self) -> bool {
        self.is_orphan
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The settings, as a handle that other connections may share.
    pub fn shared_settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// Takes the error with which the connection has failed, once.
    pub const fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// Whether [`take_error`](Self::take_error) has an error.
    pub const fn has_error(&self) -> bool {
        self.error.is_some()
    }

    fn is_v4(&self) -> bool {
        self.flow.local.0.is_ipv4()
    }

    /// The header of a segment of this connection, without what depends on the segment.
    fn header(&self, flags: Flags) -> Header {
        Header {
            source_port: self.flow.local.1,
            destination_port: self.flow.remote.1,
            flags,
            ..Header::default()
        }
    }

    /// The clock of this connection's time stamps.
    fn timestamp(&self, at: Instant) -> u32 {
        let clock = self.settings.send.clock;
        clock.reading(at).wrapping_add(self.timestamp_offset)
    }
}

impl<B> fmt::Debug for Connection<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("flow", &self.flow)
            .field("state", &self.state)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}
