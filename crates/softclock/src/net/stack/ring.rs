//! The ring of a socket with NI-LRP: the frames that the XDP program has demultiplexed to it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::{io, mem};

use softclock_core::Instant;
use softclock_linux::link::{Chunk, EndpointKey, Received, Transport, XdpChannel, XdpChannels};
use softclock_net::routes::{Destination, Routes};
use softclock_net::stack::RingFrame;

use super::received::{arrival, verification};
use crate::net::Kernel;
use crate::runtime::sources::Direction;

/// The ring of a socket. The runtime watches its descriptor, so an idle one costs nothing.
pub(super) struct SocketRing {
    channel: Kernel<Arc<RingChannel>>,
    /// Frames that were taken out of the channel together: at most a batch, which counts against the channel's limit.
    batch: RefCell<VecDeque<Received<Chunk>>>,
}

/// The frames of a ring that is closed, without those that are counted already.
#[derive(Clone, Copy, Default)]
pub(super) struct Closed {
    /// Those that the kernel lost.
    pub(super) lost: u64,
    /// Those that the program discarded.
    pub(super) discarded: u64,
    /// Those that no receiver has taken.
    pub(super) waiting: u64,
}

/// The channel of a socket in the network interface, with its counters. The driver reads them, perhaps in another
/// thread than that of the socket.
pub(super) struct RingChannel {
    channel: XdpChannel,
    /// The frames that its receiver has taken.
    taken: AtomicU64,
    counted: Mutex<Counted>,
    /// The frames that the kernel has lost behind the program.
    lost: AtomicU64,
}

/// The frames of a ring that are already in the reports. Locked while the ring's counters are read, so that two threads
/// never report the same frames.
#[derive(Default)]
struct Counted {
    discarded: u64,
    /// Then no more is counted here.
    is_closed: bool,
}

impl SocketRing {
    /// Adds a channel of `limit` frames for a socket that is bound to `local`. `None` for a group, whose frames arrive
    /// by a common channel, since several sockets may receive them.
    pub(super) fn open(
        channels: &XdpChannels,
        routes: &Routes,
        local: SocketAddr,
        limit: usize,
    ) -> io::Result<Option<Self>> {
        let keys = keys(Transport::Udp, routes, local);
        if keys.is_empty() {
            return Ok(None);
        }
        let channel = channels.add(&keys, ring_limit(limit)).map_err(add_error)?;
        // The socket outlives its channel: another may use it.
        let channel = Kernel::duplicated(Arc::new(RingChannel::new(channel)))?;
        Ok(Some(Self {
            channel,
            batch: RefCell::default(),
        }))
    }

    /// The part that the driver counts.
    pub(super) fn channel(&self) -> &Arc<RingChannel> {
        self.channel.descriptor()
    }

    /// Takes the next frame. If there is none, the next one makes the ring ready.
    pub(super) fn next<B: From<Chunk>>(&self, now: Instant) -> Option<RingFrame<B>> {
        let mut batch = self.batch.borrow_mut();
        if batch.is_empty() {
            let channel = &self.channel().channel;
            // No frame of a channel is refused. An error is that there is none, or of the look for lost ones, which is
            // repeated with the next frame; it must not leave the ring ready.
            let _ = self.channel.quiet_call(Direction::Read, |_| {
                let received = channel.receive(|received| batch.extend(received));
                received.map_err(|_| io::ErrorKind::WouldBlock.into())
            });
        }
        let received = batch.pop_front()?;
        self.channel().on_taken();
        Some(RingFrame {
            arrived: arrival(now, received.age),
            verify: verification(&received.offload),
            bytes: received.bytes.into(),
        })
    }

    /// Ready if frames may have arrived. Else `cx` is woken when one arrives.
    pub(super) fn poll_ready(&self, cx: &Context<'_>) -> Poll<()> {
        let registration = self.channel.registration();
        registration.poll_ready(cx, Direction::Read)
    }
}

impl RingChannel {
    /// Adds a channel for the segments to a listener that is bound to `local`. `None` if it can have none: there are as
    /// many as the settings allow, or the listener is for more addresses than a channel, or another has the port at
    /// some of them. Its segments then arrive by the common channels.
    pub(super) fn of_listener(
        channels: &XdpChannels,
        routes: &Routes,
        local: SocketAddr,
    ) -> io::Result<Option<Self>> {
        use io::ErrorKind::{AlreadyExists, InvalidInput, QuotaExceeded};
        match channels.add_stream(&keys(Transport::Tcp, routes, local)) {
            Ok(channel) => Ok(Some(Self::new(channel))),
            Err(error) => match error.kind() {
                QuotaExceeded | AlreadyExists | InvalidInput => Ok(None),
                _ => Err(error),
            },
        }
    }

    fn new(channel: XdpChannel) -> Self {
        Self {
            channel,
            taken: AtomicU64::new(0),
            counted: Mutex::default(),
            lost: AtomicU64::new(0),
        }
    }

    /// The channel, of which [`on_taken`](Self::on_taken) counts the frames that are received.
    pub(super) const fn channel(&self) -> &XdpChannel {
        &self.channel
    }

    /// Counts a frame that was received.
    pub(super) fn on_taken(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the ring's part in demultiplexing.
    pub(super) fn stop(&self) {
        self.channel.stop();
    }

    /// Closes the ring; returns the frames that are to be counted. The XDP program may still handle a frame to it:
    /// [`XdpChannels::take_late`] counts these.
    pub(super) fn close(&self) -> Closed {
        let mut counted = self.counted();
        self.channel.stop();
        // Before the counters stand still, so that the lost frames are among those that arrived.
        let lost = self.count_lost();
        self.channel.freeze();
        counted.is_closed = true;
        Closed {
            lost,
            discarded: self.count_discarded(&mut counted),
            waiting: self.waiting(),
        }
    }

    /// Counts frames that the program discarded since the last call.
    pub(super) fn take_discarded(&self) -> u64 {
        self.count_discarded(&mut self.counted())
    }

    /// Counts frames that the kernel lost since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        let counted = self.counted();
        match counted.is_closed {
            true => 0,
            false => self.count_lost(),
        }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_discarded(&self, counted: &mut Counted) -> u64 {
        let discarded = self.channel.discarded();
        discarded - mem::replace(&mut counted.discarded, discarded)
    }

    fn count_lost(&self) -> u64 {
        // An error leaves them for the next call.
        let lost = self.channel.take_lost().unwrap_or(0);
        self.lost.fetch_add(lost, Ordering::Relaxed);
        lost
    }

    /// The number of frames that have arrived and that the receiver has not taken.
    pub(super) fn waiting(&self) -> u64 {
        let gone = self.taken.load(Ordering::Relaxed) + self.lost.load(Ordering::Relaxed);
        self.channel.delivered().saturating_sub(gone)
    }
}

impl AsFd for RingChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// The endpoints whose frames a socket at this address receives: with an unspecified one, those at all addresses of the
/// stack of that version of IP.
fn keys(transport: Transport, routes: &Routes, local: SocketAddr) -> Vec<EndpointKey> {
    let (ip, port) = (local.ip(), local.port());
    let key = |address: IpAddr| EndpointKey {
        transport,
        address,
        port,
    };
    if ip.is_unspecified() {
        let own = routes.addresses().iter().map(|prefix| prefix.address);
        let same_version = own.filter(|own| own.is_ipv4() == ip.is_ipv4());
        return same_version.map(key).collect();
    }
    match routes.classify(ip) {
        Destination::Ours => vec![key(ip)],
        _ => Vec::new(),
    }
}

/// Words an error of [`XdpChannels::add`](softclock_linux::link::XdpChannels::add) for the owner of the socket.
fn add_error(error: io::Error) -> io::Error {
    let (kind, reason) = match error.kind() {
        io::ErrorKind::AlreadyExists => (
            io::ErrorKind::AddrInUse,
            "with ni-lrp, sockets at one address and at all addresses cannot have the same port",
        ),
        io::ErrorKind::QuotaExceeded => (
            io::ErrorKind::QuotaExceeded,
            "with ni-lrp, a stack has at most StackOptions::sockets UDP sockets",
        ),
        io::ErrorKind::InvalidInput => (
            io::ErrorKind::InvalidInput,
            "with ni-lrp, a socket at an unspecified address receives for at most 16 addresses",
        ),
        _ => return error,
    };
    io::Error::new(kind, reason)
}

/// The limit of a ring for a channel of this many packets.
pub(super) fn ring_limit(packets: usize) -> u32 {
    u32::try_from(packets).unwrap_or(u32::MAX).max(1)
}
