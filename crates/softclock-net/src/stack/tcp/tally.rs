//! The counters of all connections. None is found by a look at the connections: each change of state, and each event of
//! a connection, is counted when it happens.

use core::ops::{AddAssign, Deref};

use super::Tcp;
use crate::stack::Stack;
use crate::tcp::challenge::ChallengeCounts;
use crate::tcp::connection::Connection;
use crate::tcp::listen::ListenStats;
use crate::tcp::send::{RetransmissionCause, SendEvent, SendEvents};
use crate::tcp::state::State;

/// The segments and connections of a stack so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct TcpCounts {
    /// Segments that were given to connections.
    pub segments_received: u64,
    /// Segments that were sent, retransmissions included.
    pub segments_sent: u64,
    /// Ranges of selective acknowledgments that were received (RFC 2018), those of duplicates included.
    pub sack_blocks: u64,
    /// Resets that were sent.
    pub resets_sent: u64,
    /// Connections that this end began to open.
    pub opened: u64,
    /// Handshakes that listeners completed.
    pub accepted: u64,
    /// Connections that failed.
    pub failed: u64,
    /// Connections that were reset on closing, since too many were without owners.
    pub orphans_reset: u64,
    /// Connections whose segments were processed by a timer, since the owner did not come.
    pub late_owners: u64,
    /// SYNs, and segments that may complete handshakes, that were discarded before any work since the channel of their
    /// listener was full.
    pub handshakes_discarded: u64,
    /// SYNs that came while earlier ones waited, since their listener had sent as many cookies as it may
    /// ([`cookies_per_second`](crate::tcp::listen::ListenSettings::cookies_per_second)): they wait, too, or are
    /// discarded. Not those that the network interface discards ([`NiLrp`](crate::stack::Architecture::NiLrp)).
    pub cookies_withheld: u64,
    retransmitted: [u64; RetransmissionCause::ALL.len()],
    events: [u64; SendEvent::ALL.len()],
}

impl TcpCounts {
    /// The segments that were sent again for this reason. Segments to several peers count together.
    pub const fn retransmitted(&self, cause: RetransmissionCause) -> u64 {
        self.retransmitted[cause as usize]
    }

    /// How often this has happened to connections.
    pub const fn of(&self, event: SendEvent) -> u64 {
        self.events[event as usize]
    }

    pub(super) const fn note_retransmitted(&mut self, cause: RetransmissionCause, segments: u64) {
        self.retransmitted[cause as usize] += segments;
    }

    /// Adds the counts of another stack.
    fn add(&mut self, more: &Self) {
        // Each field by its name: one that is added to the counts must be added here.
        let Self {
            segments_received,
            segments_sent,
            sack_blocks,
            resets_sent,
            opened,
            accepted,
            failed,
            orphans_reset,
            late_owners,
            handshakes_discarded,
            cookies_withheld,
            retransmitted,
            events,
        } = more;
        self.segments_received += segments_received;
        self.segments_sent += segments_sent;
        self.sack_blocks += sack_blocks;
        self.resets_sent += resets_sent;
        self.opened += opened;
        self.accepted += accepted;
        self.failed += failed;
        self.orphans_reset += orphans_reset;
        self.late_owners += late_owners;
        self.handshakes_discarded += handshakes_discarded;
        self.cookies_withheld += cookies_withheld;
        add_each(&mut self.retransmitted, retransmitted);
        add_each(&mut self.events, events);
    }

    #[cold]
    fn note(&mut self, events: SendEvents) {
        for (event, count) in SendEvent::ALL.into_iter().zip(&mut self.events) {
            *count += u64::from(events.contains(event));
        }
    }
}

/// The counters, and the connections by state.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) counts: TcpCounts,
    states: [usize; State::ALL.len()],
    /// Those of listeners that are closed.
    pub(super) closed_listeners: ListenStats,
}

impl Tally {
    /// Calls `work` with a connection, and counts what that changes.
    pub(super) fn observe<B: Deref<Target = [u8]>, R>(
        &mut self,
        connection: &mut Connection<B>,
        work: impl FnOnce(&mut Connection<B>) -> R,
    ) -> R {
        let before = connection.state();
        let result = work(connection);
        let after = connection.state();
        if before != after {
            self.remove(before);
            self.add(after);
        }
        let events = connection.take_events();
        if !events.is_empty() {
            self.counts.note(events);
        }
        result
    }

    /// Counts a new connection.
    pub(super) const fn add(&mut self, state: State) {
        self.states[state as usize] += 1;
    }

    /// Counts a connection no more.
    pub(super) const fn remove(&mut self, state: State) {
        self.states[state as usize] -= 1;
    }
}

/// The connections of a stack at present, and what has happened to them so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct TcpReport {
    /// Segments and connections.
    pub counts: TcpCounts,
    /// The events of all listeners, closed ones included.
    pub listeners: ListenStats,
    /// Challenge ACKs (RFC 5961).
    pub challenges: ChallengeCounts,
    /// Connections that wait to be accepted. They count by their state, too.
    pub waiting: usize,
    /// Connections without an owner, which send their rest. They count by their state, too.
    pub orphans: usize,
    /// The memory of all that has arrived and is not read, or waits to be sent or acknowledged, in bytes.
    pub memory: usize,
    states: [usize; State::ALL.len()],
}

impl TcpReport {
    /// The connections in a state: see [`Stack::tcp_states`].
    pub const fn in_state(&self, state: State) -> usize {
        self.states[state as usize]
    }

    /// Adds the connections of another stack with the same addresses: see [`Steering`](crate::stack::Steering).
    pub fn add(&mut self, more: &Self) {
        self.counts.add(&more.counts);
        self.listeners.add(&more.listeners);
        self.challenges.add(&more.challenges);
        self.waiting += more.waiting;
        self.orphans += more.orphans;
        self.memory += more.memory;
        add_each(&mut self.states, &more.states);
    }

    /// Only what stays when a stack ends: its counters.
    #[must_use]
    pub fn ended(self) -> Self {
        Self {
            counts: self.counts,
            listeners: self.listeners,
            challenges: self.challenges,
            ..Self::default()
        }
    }
}

fn add_each<T: Copy + AddAssign, const N: usize>(all: &mut [T; N], more: &[T; N]) {
    for (all, &more) in all.iter_mut().zip(more) {
        *all += more;
    }
}

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// The segments and connections of the stack so far.
    pub const fn tcp_counts(&self) -> &TcpCounts {
        &self.tcp.tally.counts
    }

    /// The memory of all that has arrived and is not read, or waits to be sent or acknowledged, in bytes.
    pub const fn tcp_memory(&self) -> usize {
        self.tcp.memory
    }

    /// The connections by state, those in TIME-WAIT and those that are half open included. One whose owner has not
    /// closed it yet, although it is over, is in [`State::Closed`]. Takes constant time.
    pub fn tcp_states(&self) -> impl Iterator<Item = (State, usize)> {
        State::ALL.into_iter().zip(self.tcp.states())
    }

    /// The connections, and what has happened to them. Looks at each listener, but at no connection.
    pub fn tcp_report(&self) -> TcpReport {
        let tcp = &self.tcp;
        let mut listeners = tcp.tally.closed_listeners;
        let mut waiting = 0;
        for (_, listening) in tcp.listeners.iter() {
            listeners.add(listening.listener.stats());
            waiting += listening.listener.waiting();
        }
        TcpReport {
            counts: tcp.tally.counts.clone(),
            listeners,
            challenges: tcp.shared.challenge_counts(),
            waiting,
            orphans: tcp.orphans,
            memory: tcp.memory,
            states: tcp.states(),
        }
    }
}

impl<B> Tcp<B> {
    /// The connections by state.
    fn states(&self) -> [usize; State::ALL.len()] {
        let mut states = self.tally.states;
        // The table counts them all, also those whose owners hold the rest of a connection.
        states[State::TimeWait as usize] = self.time_wait.len();
        states[State::SynReceived as usize] += self.shared.half_open();
        states
    }
}
