//! Connections of TCP.
//!
//! The caller does the same as for datagrams: [`on_frame`](super::Stack::on_frame), [`process`](super::Stack::process),
//! [`on_timer`](super::Stack::on_timer) at [`next_timeout`](super::Stack::next_timeout), and
//! [`next_frame`](super::Stack::next_frame) until it returns `None`.
//!
//! | calls | |
//! |---|---|
//! | [`tcp_listen`](super::Stack::tcp_listen), [`tcp_accept`](super::Stack::tcp_accept) | connections that others open |
//! | [`tcp_connect`](super::Stack::tcp_connect) | connections that this end opens |
//! | [`tcp_read`](super::Stack::tcp_read), [`tcp_take`](super::Stack::tcp_take), [`tcp_write`](super::Stack::tcp_write) | bytes |
//! | [`tcp_shutdown_write`](super::Stack::tcp_shutdown_write), [`tcp_close`](super::Stack::tcp_close), [`tcp_abort`](super::Stack::tcp_abort) | the end |
//! | [`tcp_wait`](super::Stack::tcp_wait), [`tcp_next_woken`](super::Stack::tcp_next_woken) | wake-ups |
//!
//! **On whose account.** Demultiplexing puts a segment into the channel of its connection. Lazily
//! ([`Architecture::SoftLrp`](super::Architecture)), the protocol runs when the owner reads, writes or waits. If it
//! does none of these, a timer does the work after a quarter of the round trip, so that acknowledgments are not late
//! (the asynchronous protocol thread of *LRP*, 3.4). Segments that cannot wait are processed by
//! [`process`](super::Stack::process): SYN, FIN and RST, gaps, and acknowledgments for which data waits. SYNs, and the
//! acknowledgments that complete handshakes, have channels of their own at each listener. A SYN flood to a listener
//! that does not accept fills its channel, and costs no more than demultiplexing.
//!
//! **Output.** [`next_frame`](super::Stack::next_frame) asks the connections that can send for one segment each, in
//! turn, so one with much to send does not hold others up. It uses the time of the latest other call.
//!
//! An error of a connection, such as a reset, is returned once, by the next read or write or by `tcp_take_error`.

mod accept;
mod arrivals;
mod bands;
mod calls;
mod check;
mod glance;
mod icmp;
mod input;
mod output;
mod settings;
mod tally;
#[cfg(test)]
mod tests;
mod timers;
mod write;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use softclock_core::{Instant, TimerKey};

use self::accept::Listening;
use self::arrivals::{Arrivals, SpareChannels};
use self::bands::{Band, Bands};
use self::tally::Tally;
use super::endpoint::Arrived;
use super::slots::{SlotId, Slots};
use crate::channel::Channel;
use crate::demux::HashKey;
use crate::due::Window;
use crate::rate_limit::TokenBucket;
use crate::tcp::connection::{Connection, Error};
use crate::tcp::listen::{PeerChange, ProvenPeers, Shared, TimestampUnit};
use crate::tcp::send::ClockUnit;
use crate::tcp::seq::Seq;
use crate::tcp::settings::Settings;
use crate::tcp::state::State;
use crate::tcp::time_wait::TimeWaitTable;

pub use check::TcpSettingsError;
pub(super) use glance::is_opening;
pub(super) use input::TcpTarget;
pub use settings::{TcpListenSettings, TcpSettings};
pub use tally::{TcpCounts, TcpReport};

/// The number of a connection in its stack. The number of a closed connection is never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpId(pub(super) SlotId);

/// The number of a listener in its stack. The number of a closed listener is never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpListenerId(pub(super) SlotId);

/// What an owner waits for, or what a connection is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Interest {
    /// Bytes, the end of the stream, or an error.
    pub readable: bool,
    /// Room for bytes, or an error. A connection that is being opened becomes writable when it is established.
    pub writable: bool,
}

/// The owner to wake: see [`Stack::tcp_next_woken`](super::Stack::tcp_next_woken).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TcpWoken {
    /// A connection is ready for what its owner waits for.
    Connection(TcpId),
    /// A listener has a connection to accept.
    Listener(TcpListenerId),
}

/// The room of a listener for SYNs that wait: see [`Stack::tcp_syn_room`](super::Stack::tcp_syn_room). `None` stands for
/// half of a channel, or more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SynRoom {
    /// For those of [proven](crate::tcp::listen::SharedSettings::proven_peers) peers.
    pub of_proven: Option<usize>,
    /// For those of other peers.
    pub of_others: Option<usize>,
}

/// Why a read or a write does not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TcpError {
    /// There is nothing to read, or no room to write: wait for readiness. Also while the connection is being opened.
    WouldBlock,
    /// This half of the connection is closed by its owner (EPIPE), or the number is not that of a connection.
    Closed,
    /// The connection has failed. Returned once; then reads return the end of the stream, and writes `Closed`.
    Failed(Error),
}

/// What a stack has for TCP.
pub(super) struct Tcp<B> {
    /// The settings of connections without settings of their own.
    defaults: Arc<Settings>,
    connections: Slots<TcpEndpoint<B>>,
    listeners: Slots<Listening<B>>,
    shared: Shared,
    /// The peers whose SYNs go before those of others.
    proven: ProvenPeers,
    /// The changes of them that the caller has not taken.
    proven_changes: VecDeque<PeerChange>,
    time_wait: TimeWaitTable,
    /// The storage of channels that are empty, for others.
    spare: SpareChannels<B>,
    /// Segments to connections in TIME-WAIT.
    old: Channel<Arrived<B>>,
    /// Connections that may have something to send, in turn.
    ready: VecDeque<SlotId>,
    /// Connections with segments that cannot wait for the owner.
    prompt: VecDeque<SlotId>,
    /// Connections with segments that wait for the owner, each with the time before which it needs no timer for that.
    waiting: VecDeque<(SlotId, Instant)>,
    /// Listeners with something in their channels.
    busy: VecDeque<SlotId>,
    woken: VecDeque<TcpWoken>,
    timers: Bands,
    /// No listener has work before this.
    listeners_due: Window,
    reset_rate: TokenBucket,
    /// The memory of all connections, in bytes.
    memory: usize,
    /// The most memory of all connections, and that which each may always hold.
    most_memory: usize,
    least_memory: usize,
    /// Connections whose owners wait for room, in turn, of which the memory for all has none.
    starved: VecDeque<SlotId>,
    orphans: usize,
    /// The latest time that the caller has given.
    latest: Instant,
    ports_given: u32,
    tally: Tally,
}

/// A connection and what the stack keeps with it.
pub(super) struct TcpEndpoint<B> {
    connection: Connection<B>,
    /// Segments that have arrived and are not processed.
    channel: Arrivals<B>,
    timer: Option<TimerKey>,
    /// That of the timer among all.
    band: Band,
    /// The listener whose owner has not accepted the connection yet.
    listener: Option<SlotId>,
    /// The memory that is counted in the sum of all.
    memory: u32,
    /// The sequence number behind the segments in the channel, if they are in order.
    expected: Seq,
    owner: Owner,
    listed: Listed,
}

/// The lists that a connection is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Listed(u8);

impl Listed {
    /// That of connections with segments that cannot wait.
    const PROMPT: Self = Self(1);
    /// That of connections whose owners wait for memory.
    const STARVED: Self = Self(2);
    /// That of connections with segments that wait for the owner.
    const WAITING: Self = Self(4);
    /// That of connections that may have something to send.
    const READY: Self = Self(8);

    const fn contains(self, list: Self) -> bool {
        self.0 & list.0 != 0
    }

    const fn insert(&mut self, list: Self) {
        self.0 |= list.0;
    }

    const fn remove(&mut self, list: Self) {
        self.0 &= !list.0;
    }
}

/// What the owner of a connection is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Busy,
    Waits(Interest),
    /// It is in the list of those to wake.
    Woken,
}

impl Owner {
    /// The owner when it waits for this, too: one task may wait to read while another waits to write. An owner that
    /// will be woken looks at both again.
    fn waiting_for(self, interest: Interest) -> Self {
        match self {
            Self::Busy => Self::Waits(interest),
            Self::Waits(before) => Self::Waits(Interest {
                readable: before.readable || interest.readable,
                writable: before.writable || interest.writable,
            }),
            Self::Woken => Self::Woken,
        }
    }

    /// Whether it waits for one of these.
    fn waits_for(self, event: Interest) -> bool {
        match self {
            Self::Waits(interest) => interest.intersects(event),
            Self::Busy | Self::Woken => false,
        }
    }
}

impl<B: Deref<Target = [u8]>> Tcp<B> {
    pub(super) fn new(settings: &TcpSettings, key: HashKey) -> Self {
        let key = HashKey([key.mac(b"tcp"), key.mac(b"TCP")]);
        let proven_key = HashKey([key.mac(b"proven"), key.mac(b"PROVEN")]);
        let mut shared_settings = settings.shared;
        shared_settings.timestamps = match settings.connection.send.clock {
            ClockUnit::Milliseconds => TimestampUnit::Millisecond,
            ClockUnit::Microseconds => TimestampUnit::Microsecond,
        };
        let shared = Shared::new(shared_settings, key);
        Self {
            defaults: Arc::new(settings.connection.clone()),
            connections: Slots::new(),
            listeners: Slots::new(),
            time_wait: TimeWaitTable::new(settings.time_wait, &shared),
            proven: ProvenPeers::new(settings.shared.proven_peers, proven_key),
            proven_changes: VecDeque::new(),
            shared,
            spare: SpareChannels::new(),
            old: Channel::new(settings.time_wait_channel),
            ready: VecDeque::new(),
            prompt: VecDeque::new(),
            waiting: VecDeque::new(),
            busy: VecDeque::new(),
            woken: VecDeque::new(),
            timers: Bands::new(),
            listeners_due: Window::NEVER,
            reset_rate: TokenBucket::new(settings.resets_per_second, super::BURST),
            memory: 0,
            most_memory: settings.memory,
            least_memory: settings.least_memory,
            starved: VecDeque::new(),
            orphans: 0,
            latest: Instant::ORIGIN,
            ports_given: 0,
            tally: Tally::default(),
        }
    }

    /// The settings of a connection: the defaults unless it has its own, which take the clock of the defaults, since
    /// handshakes and TIME-WAIT have no other (RFC 7323, 5.4).
    pub(super) fn with_common_clock(&self, own: Option<Settings>) -> Arc<Settings> {
        match own {
            Some(mut settings) => {
                settings.send.clock = self.defaults.send.clock;
                Arc::new(settings)
            }
            None => self.defaults.clone(),
        }
    }

    pub(super) fn has_work(&self) -> bool {
        !(self.old.is_empty() && self.prompt.is_empty() && self.busy.is_empty())
    }

    pub(super) fn may_send(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Lists a connection among those that may have something to send.
    fn mark_ready(&mut self, id: SlotId) {
        if let Some(endpoint) = self.connections.get_mut(id)
            && !endpoint.listed.contains(Listed::READY)
        {
            endpoint.listed.insert(Listed::READY);
            self.ready.push_back(id);
        }
    }

    /// Wakes the owner of a connection if it waits for this.
    fn wake(&mut self, id: SlotId, event: Interest) {
        let Some(endpoint) = self.connections.get_mut(id) else {
            return;
        };
        if endpoint.owner.waits_for(event) {
            endpoint.owner = Owner::Woken;
            self.woken.push_back(TcpWoken::Connection(TcpId(id)));
        }
    }

    /// Wakes the owner of a connection, whatever it waits for.
    fn wake_for_end(&mut self, id: SlotId) {
        if let Some(endpoint) = self.connections.get_mut(id)
            && endpoint.owner != Owner::Woken
            && !endpoint.connection.is_orphan()
        {
            endpoint.owner = Owner::Woken;
            self.woken.push_back(TcpWoken::Connection(TcpId(id)));
        }
    }

    /// Brings the sum of all memory up to date, and wakes owners that wait for memory.
    fn account(&mut self, id: SlotId) {
        if let Some(endpoint) = self.connections.get_mut(id) {
            let bytes = endpoint.connection.memory_bytes() + endpoint.channel.bytes();
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.memory -= endpoint.memory as usize;
            self.memory += bytes as usize;
            endpoint.memory = bytes;
            let may_hold_more = endpoint.connection.send_memory_bytes() < self.least_memory;
            if may_hold_more && endpoint.listed.contains(Listed::STARVED) {
                self.wake(id, Interest::WRITABLE);
            }
            self.feed();
        }
    }

    /// Wakes owners that wait for memory, the first first, as many as can have a share of it. Not for each byte that
    /// gets free: they would all compete for it.
    fn feed(&mut self) {
        let is_scarce = self.memory > self.most_memory - self.most_memory / FREE_PART;
        if self.starved.is_empty() || is_scarce {
            return;
        }
        let shares = (self.most_memory - self.memory) / self.least_memory.max(1);
        for _ in 0..shares.max(1) {
            let Some(id) = self.starved.pop_front() else {
                return;
            };
            if let Some(endpoint) = self.connections.get_mut(id) {
                endpoint.listed.remove(Listed::STARVED);
                self.wake(id, Interest::WRITABLE);
            }
        }
    }

    /// What a connection is ready for. It is writable only if there is memory for what is written.
    fn readiness(&self, id: SlotId) -> Interest {
        let Some(endpoint) = self.connections.get(id) else {
            return Interest::default();
        };
        let ready = endpoint.readiness();
        let may_write = endpoint.connection.room() == 0 || self.room(endpoint) > 0;
        Interest {
            writable: ready.writable && may_write,
            ..ready
        }
    }

    /// The bytes that a connection may take from its owner. Each may hold a little to send, whatever the others hold:
    /// it makes progress, and has its turn again. What has arrived does not count for it, since an owner may have to
    /// write before it reads.
    fn room(&self, endpoint: &TcpEndpoint<B>) -> usize {
        let free = self.most_memory.saturating_sub(self.memory);
        let own = self
            .least_memory
            .saturating_sub(endpoint.connection.send_memory_bytes());
        endpoint.connection.room().min(free.max(own))
    }
}

impl<B: Deref<Target = [u8]>> TcpEndpoint<B> {
    fn new(connection: Connection<B>) -> Self {
        Self {
            connection,
            channel: Arrivals::new(),
            timer: None,
            band: Band::default(),
            listener: None,
            memory: 0,
            expected: Seq(0),
            owner: Owner::Busy,
            listed: Listed::default(),
        }
    }

    /// What the connection is ready for.
    fn readiness(&self) -> Interest {
        let connection = &self.connection;
        let has_ended = connection.has_error() || connection.state() == State::Closed;
        let is_opening = matches!(connection.state(), State::SynSent | State::SynReceived);
        Interest {
            readable: has_ended || connection.readable() > 0 || connection.is_at_end(),
            // A write to a half that is closed returns an error at once.
            writable: has_ended
                || connection.room() > 0
                || !(is_opening || connection.state().may_write()),
        }
    }
}

/// Owners that wait for memory are woken when this part of all is free.
const FREE_PART: usize = 16;

impl<B> super::Stack<B> {
    /// The bytes of an idle connection, without its entries in the tables of flows and timers.
    pub const IDLE_CONNECTION_BYTES: usize = size_of::<TcpEndpoint<B>>();
}

/// As in docs/tcp.md.
const _: () = assert!(super::Stack::<Vec<u8>>::IDLE_CONNECTION_BYTES <= 704);

impl Interest {
    /// Readable only.
    pub const READABLE: Self = Self {
        readable: true,
        writable: false,
    };
    /// Writable only.
    pub const WRITABLE: Self = Self {
        readable: false,
        writable: true,
    };
    /// Both.
    pub const BOTH: Self = Self {
        readable: true,
        writable: true,
    };

    const fn intersects(self, other: Self) -> bool {
        (self.readable && other.readable) || (self.writable && other.writable)
    }
}

impl fmt::Display for TcpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("the connection is not ready"),
            Self::Closed => f.write_str("the connection is closed"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for TcpError {}
