//! The channels of NI-LRP that the stack itself receives from: those of listeners' ports, and those of frames that
//! belong to no endpoint.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::{io, mem};

use softclock_core::{Clock, Instant};
use softclock_linux::link::{Chunk, LongFrames, Pool, Received, Refused, XdpChannel, XdpChannels};
use softclock_net::routes::Routes;
use softclock_net::stack::{Ring, SynRoom, TcpListenerId};

use super::queues::all;
use super::ring::RingChannel;
use super::taking::{Short, Taken, take};
use crate::net::{Kernel, Watched};
use crate::runtime::inner::Inner;

/// A ring of a stack with [`Architecture::NiLrp`](super::Architecture::NiLrp), with its counters since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RingReport {
    /// The frames that the XDP program puts into the ring.
    pub kind: RingKind,
    /// The most frames that wait in the ring, or are in use.
    pub limit: u32,
    /// The frames that the XDP program has put into the ring.
    pub delivered: u64,
    /// The frames that it has discarded, since the ring was full.
    pub discarded: u64,
}

/// The frames of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RingKind {
    /// ARP, neighbor discovery, ICMP, and other packets that are neither UDP nor TCP, or have extension headers of
    /// IPv6.
    Control,
    /// Fragments.
    Fragments,
    /// Datagrams and SYNs to ports without a ring.
    Unclaimed,
    /// Other segments of TCP to ports without a ring, such as those of connections that the stack has opened.
    Segments,
    /// Segments to a listener at this address.
    Listener(SocketAddr),
}

/// The channels of NI-LRP: those of UDP sockets are theirs, and the stack receives from the others.
pub(super) struct Channels {
    all: Arc<XdpChannels>,
    long: LongFrames,
    common: [Kernel<CommonChannel>; COMMON],
    listeners: RefCell<Vec<Rc<ListenerRing>>>,
    pool: Pool,
}

/// A channel of frames that belong to no endpoint.
struct CommonChannel {
    channels: Arc<XdpChannels>,
    kind: RingKind,
}

/// The channel of a listener's port, with the segments of all connections to the port.
pub(super) struct ListenerRing {
    pub(super) id: TcpListenerId,
    local: SocketAddr,
    channel: Kernel<RingChannel>,
}

/// The number of common channels.
pub(super) const COMMON: usize = 4;

impl Channels {
    /// Makes the current runtime watch the common channels.
    pub(super) fn watch(all: Arc<XdpChannels>, long: LongFrames) -> io::Result<Self> {
        let kinds = [
            RingKind::Control,
            RingKind::Fragments,
            RingKind::Unclaimed,
            RingKind::Segments,
        ];
        let [control, fragments, unclaimed, segments] = kinds.map(|kind| {
            let channels = all.clone();
            Kernel::duplicated(CommonChannel { channels, kind })
        });
        Ok(Self {
            common: [control?, fragments?, unclaimed?, segments?],
            all,
            long,
            listeners: RefCell::default(),
            pool: Pool::new(),
        })
    }

    pub(super) fn runtime(&self) -> &Rc<Inner> {
        self.common[0].runtime()
    }

    /// All channels, to add those of sockets.
    pub(super) const fn all(&self) -> &Arc<XdpChannels> {
        &self.all
    }

    pub(super) const fn long(&self) -> &LongFrames {
        &self.long
    }

    /// The number of channels that the stack receives from.
    pub(super) fn len(&self) -> usize {
        COMMON + self.listeners.borrow().len()
    }

    /// Adds a channel for the segments to a listener, if it can have one.
    pub(super) fn add_listener(
        &self,
        id: TcpListenerId,
        routes: &Routes,
        local: SocketAddr,
    ) -> io::Result<()> {
        let Some(channel) = RingChannel::of_listener(&self.all, routes, local)? else {
            return Ok(());
        };
        // The socket outlives its channel: another may use it.
        let channel = Kernel::duplicated(channel)?;
        let ring = ListenerRing { id, local, channel };
        self.listeners.borrow_mut().push(Rc::new(ring));
        Ok(())
    }

    /// Takes the channel of a listener out, if it has one.
    pub(super) fn remove_listener(&self, id: TcpListenerId) -> Option<Rc<ListenerRing>> {
        let mut listeners = self.listeners.borrow_mut();
        let index = listeners.iter().position(|ring| ring.id == id)?;
        Some(listeners.swap_remove(index))
    }

    /// Calls `f` for the channel of each listener. The call may add and remove channels.
    pub(super) fn for_listeners(&self, mut f: impl FnMut(&ListenerRing)) {
        let mut index = 0;
        while let Some(ring) = self.listener(index) {
            f(&ring);
            index += 1;
        }
    }

    fn listener(&self, index: usize) -> Option<Rc<ListenerRing>> {
        self.listeners.borrow().get(index).cloned()
    }

    /// The program's counts of frames that it discarded since a common channel was full, with the ring of the stack
    /// that they are for.
    pub(super) fn discarded(&self) -> [(Ring, u64); COMMON] {
        self.common.each_ref().map(|one| {
            let one = one.descriptor();
            let ring = match one.kind {
                RingKind::Control | RingKind::Unclaimed => Ring::Control,
                RingKind::Fragments => Ring::Fragments,
                RingKind::Segments | RingKind::Listener(_) => Ring::Segments,
            };
            (ring, one.channel().discarded())
        })
    }

    /// Counts frames that were lost since the last call, without those of sockets' channels.
    pub(super) fn take_lost(&self) -> io::Result<u64> {
        let common = self.common.iter().map(|one| one.descriptor().channel());
        let mut lost = common.map(XdpChannel::take_lost).sum::<io::Result<u64>>()?;
        // Lost frames are among those that wait.
        self.for_listeners(|listener| {
            let ring = listener.ring();
            if ring.waiting() > 0 {
                lost += ring.take_lost();
            }
        });
        Ok(lost)
    }

    pub(super) fn report(&self) -> Vec<RingReport> {
        let common = self.common.iter().map(|one| {
            let one = one.descriptor();
            RingReport::of(one.kind, one.channel())
        });
        let mut rings: Vec<_> = common.collect();
        self.for_listeners(|ring| {
            let kind = RingKind::Listener(ring.local);
            rings.push(RingReport::of(kind, ring.ring().channel()));
        });
        rings
    }

    /// Calls `f` with each channel that the stack receives from.
    pub(super) fn for_watched(&self, f: &mut dyn FnMut(&dyn Watched)) {
        self.common.iter().for_each(|channel| f(channel));
        self.for_listeners(|ring| f(&ring.channel));
    }

    /// Passes frames that have arrived to `on_frame`, with the time now: at most a batch of each channel, so that each
    /// has its turn. Takes the completions of transmissions.
    pub(super) fn take_frames(
        &self,
        mut on_frame: impl FnMut(Instant, Result<Received, Refused>),
    ) -> io::Result<Taken> {
        let each = self.common.iter().map(|one| {
            take(one, Short::Empty, |_| {
                self.receive(one.descriptor().channel(), || {}, &mut on_frame)
            })
        });
        let mut taken = all(each).map(|taken| Taken {
            completions: self.all.take_completions(),
            ..taken
        });
        self.for_listeners(|ring| {
            let more = ring.take_frames(self, &mut on_frame);
            let before = mem::replace(&mut taken, Ok(Taken::default()));
            taken = all([before, more].into_iter());
        });
        taken
    }

    /// Passes a batch of frames of a channel to `on_frame`, and calls `on_taken` for each.
    fn receive(
        &self,
        channel: &XdpChannel,
        on_taken: impl Fn(),
        on_frame: &mut impl FnMut(Instant, Result<Received, Refused>),
    ) -> io::Result<usize> {
        let now = self.runtime().clock.now();
        channel.receive(|received| {
            on_taken();
            let received = received.map(|received| self.bounded(channel, received));
            on_frame(now, received);
        })
    }

    /// A frame as the stack may hold it. It may wait for a receiver that is behind, and must leave room for others:
    /// above half of the channel's limit it is copied.
    fn bounded(&self, channel: &XdpChannel, received: Received<Chunk>) -> Received {
        let is_full = channel.held() > channel.limit() as usize / 2;
        received.map(|chunk| match is_full {
            true => self.pool.copy_of(&chunk),
            false => chunk.into(),
        })
    }
}

impl ListenerRing {
    pub(super) fn ring(&self) -> &RingChannel {
        self.channel.descriptor()
    }

    fn take_frames(
        &self,
        channels: &Channels,
        on_frame: &mut impl FnMut(Instant, Result<Received, Refused>),
    ) -> io::Result<Taken> {
        let ring = self.ring();
        take(&self.channel, Short::Empty, |_| {
            channels.receive(ring.channel(), || ring.on_taken(), &mut *on_frame)
        })
    }

    /// Passes all frames that have arrived to `on_frame`. Call it after [`RingChannel::stop`]: then at most a few more
    /// frames arrive, and the loop ends.
    pub(super) fn drain(
        &self,
        channels: &Channels,
        mut on_frame: impl FnMut(Instant, Result<Received, Refused>),
    ) {
        let ring = self.ring();
        let mut receive = || channels.receive(ring.channel(), || ring.on_taken(), &mut on_frame);
        while receive().is_ok() {}
    }

    /// Lets the program discard SYNs beyond those that the listener has room for, or those for which half of the ring's
    /// room is taken.
    pub(super) fn limit_syns(&self, room: SynRoom) {
        let channel = self.ring().channel();
        let (limit, half) = (channel.limit(), channel.limit() / 2);
        let reserve = |room: Option<usize>| match room {
            Some(room) if room < half as usize => limit - room as u32,
            _ => half,
        };
        channel.set_preferred_reserve(reserve(room.of_proven));
        channel.set_reserve(reserve(room.of_others));
    }
}

impl RingReport {
    fn of(kind: RingKind, channel: &XdpChannel) -> Self {
        Self {
            kind,
            limit: channel.limit(),
            delivered: channel.delivered(),
            discarded: channel.discarded(),
        }
    }
}

impl CommonChannel {
    fn channel(&self) -> &XdpChannel {
        match self.kind {
            RingKind::Control => self.channels.control(),
            RingKind::Fragments => self.channels.fragments(),
            RingKind::Unclaimed => self.channels.unclaimed(),
            RingKind::Segments | RingKind::Listener(_) => self.channels.segments(),
        }
    }
}

impl AsFd for CommonChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel().as_fd()
    }
}
