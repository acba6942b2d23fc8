//! The ring of a socket with NI-LRP: the frames that the XDP program has demultiplexed to it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};

use softclock_core::Instant;
use softclock_linux::link::{Buffer, EndpointKey, Received, Transport, XdpChannel};
use softclock_net::routes::{Destination, Routes};
use softclock_net::stack::RingFrame;

use super::driver::{arrival, verification};
use super::interface::Channels;
use crate::net::Kernel;
use crate::runtime::sources::Direction;

/// The channel of a socket in the network interface. The runtime watches its descriptor, so an idle one costs nothing.
pub(super) struct SocketRing {
    channel: Kernel<XdpChannel>,
    /// Frames that were taken out of the channel together: at most a batch, which counts against the channel's limit.
    batch: RefCell<VecDeque<Received>>,
    /// The frames that the socket has taken.
    taken: Cell<u64>,
    /// The discarded frames that the stack has counted.
    counted: Cell<u64>,
    /// The frames that the kernel has lost behind the program.
    lost: Cell<u64>,
}

impl SocketRing {
    /// Adds a channel of `limit` frames for a socket that is bound to `local`. `None` for a group, whose frames arrive by
    /// a common channel, since several sockets may receive them.
    pub(super) fn open(
        channels: &Channels,
        routes: &Routes,
        local: SocketAddr,
        limit: u32,
    ) -> io::Result<Option<Self>> {
        let keys = keys(routes, local);
        if keys.is_empty() {
            return Ok(None);
        }
        let channel = channels.all().add(&keys, limit).map_err(add_error)?;
        // The socket outlives its channel: another may use it.
        let channel = Kernel::duplicated(channel)?;
        Ok(Some(Self {
            channel,
            batch: RefCell::default(),
            taken: Cell::new(0),
            counted: Cell::new(0),
            lost: Cell::new(0),
        }))
    }

    /// Takes the next frame. If there is none, the next one makes the ring ready.
    pub(super) fn next(&self, now: Instant) -> Option<RingFrame<Buffer>> {
        let mut batch = self.batch.borrow_mut();
        if batch.is_empty() {
            let channel = self.channel.descriptor();
            // No frame of a channel is refused. An error is that there is none, or of the look for lost ones, which is
            // repeated with the next frame; it must not leave the ring ready.
            let _ = self.channel.quiet_call(Direction::Read, |_| {
                let put = |received: Result<Received<_>, _>| {
                    let received = received.ok();
                    batch.extend(received.map(|received| received.map(Buffer::from)));
                };
                let received = channel.receive(put);
                received.map_err(|_| io::ErrorKind::WouldBlock.into())
            });
        }
        let received = batch.pop_front()?;
        self.taken.set(self.taken.get() + 1);
        Some(RingFrame {
            arrived: arrival(now, received.age),
            verify: verification(&received.offload),
            bytes: received.bytes,
        })
    }

    /// Ready if frames may have arrived. Else `cx` is woken when one arrives.
    pub(super) fn poll_ready(&self, cx: &Context<'_>) -> Poll<()> {
        let registration = self.channel.registration();
        registration.poll_ready(cx, Direction::Read)
    }

    /// Counts frames that the program discarded since the last call.
    pub(super) fn take_discarded(&self) -> u64 {
        let discarded = self.channel.descriptor().discarded();
        discarded - self.counted.replace(discarded)
    }

    /// Counts frames that the kernel lost since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        // An error leaves them for the next call.
        let lost = self.channel.descriptor().take_lost().unwrap_or(0);
        self.lost.set(self.lost.get() + lost);
        lost
    }

    /// The number of frames that have arrived and that the socket has not taken.
    pub(super) fn waiting(&self) -> u64 {
        let delivered = self.channel.descriptor().delivered();
        delivered.saturating_sub(self.taken.get() + self.lost.get())
    }
}

/// The endpoints whose frames a socket at this address receives: with an unspecified one, those at all addresses of the
/// stack of that version of IP.
fn keys(routes: &Routes, local: SocketAddr) -> Vec<EndpointKey> {
    let (ip, port) = (local.ip(), local.port());
    let key = |address: IpAddr| EndpointKey {
        transport: Transport::Udp,
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
            "with ni-lrp, a stack has at most StackOptions::sockets sockets",
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
