//! Sockets of other threads: the channel between the driver and a receiver.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};

use softclock_linux::link::Chunk;
use softclock_net::channel::ChannelLimits;
use softclock_net::stack::{NetworkError, Pending, ReceiverCounts};

use super::lock;
use crate::net::stack::ring::{RingChannel, SocketRing};

/// The channel of a socket of another thread. With NI-LRP it has what does not come by the socket's ring.
pub(in super::super) struct SharedSocket {
    /// The address and port that it is bound to.
    pub(in super::super) local: SocketAddr,
    /// The ring, while the socket is open.
    pub(in super::super) ring: Option<Weak<RingChannel>>,
    limits: ChannelLimits,
    state: Mutex<State>,
    pub(in super::super) counts: Mutex<ReceiverCounts>,
}

#[derive(Default)]
struct State {
    packets: VecDeque<Pending<Chunk>>,
    bytes: usize,
    receivers: Vec<Waker>,
    error: Option<NetworkError>,
}

impl SharedSocket {
    pub(in super::super) fn new(
        local: SocketAddr,
        ring: Option<&SocketRing>,
        limits: ChannelLimits,
    ) -> Self {
        Self {
            local,
            ring: ring.map(|ring| Arc::downgrade(ring.channel())),
            limits,
            state: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    /// Whether a packet of `bytes` bytes has no room.
    pub(in super::super) fn is_full(&self, bytes: usize) -> bool {
        let state = lock(&self.state);
        state.packets.len() >= self.limits.packets || bytes > self.limits.bytes - state.bytes
    }

    /// Queues a packet for which there is room, and wakes the tasks that wait for it.
    pub(in super::super) fn push(&self, packet: Pending<Chunk>) {
        let mut state = lock(&self.state);
        state.bytes += packet.bytes();
        state.packets.push_back(packet);
        State::wake_receivers(state);
    }

    /// Notes an error that the network has reported.
    pub(in super::super) fn fail(&self, error: NetworkError) {
        let mut state = lock(&self.state);
        state.error = Some(error);
        State::wake_receivers(state);
    }

    /// Wakes the tasks that wait for a packet.
    pub(in super::super) fn wake(&self) {
        State::wake_receivers(lock(&self.state));
    }

    /// Ready if there is a packet or an error. Else the task is woken when there is one.
    pub(in super::super) fn poll_ready(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.error.is_some() || !state.packets.is_empty() {
            return Poll::Ready(());
        }
        if !state.receivers.iter().any(|old| old.will_wake(cx.waker())) {
            state.receivers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Takes the error that the network has reported.
    pub(in super::super) fn take_error(&self) -> Option<NetworkError> {
        lock(&self.state).error.take()
    }

    /// Takes the next packet, if there is one.
    pub(in super::super) fn next(&self) -> Option<Pending<Chunk>> {
        lock(&self.state).pop()
    }

    /// Counts a datagram that the socket has taken out of this channel.
    pub(in super::super) fn count_datagram(&self) {
        lock(&self.counts).datagrams += 1;
    }

    /// Takes the counts of what the socket has done.
    pub(in super::super) fn take_counts(&self) -> ReceiverCounts {
        mem::take(&mut lock(&self.counts))
    }
}

impl State {
    /// Wakes the tasks that wait for a packet, after the lock has ended.
    fn wake_receivers(mut state: MutexGuard<'_, Self>) {
        let receivers = mem::take(&mut state.receivers);
        drop(state);
        receivers.into_iter().for_each(Waker::wake);
    }

    fn pop(&mut self) -> Option<Pending<Chunk>> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.bytes();
        Some(packet)
    }
}
