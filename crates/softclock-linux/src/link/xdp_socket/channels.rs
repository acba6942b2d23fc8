//! Channels of the network interface (NI-LRP of *Lazy Receiver Processing*, 3.2): the XDP program demultiplexes frames
//! into a ring for each channel, and discards those of a full channel before anything else is done with them.
//!
//! - [`channel`]: one channel.
//! - [`credits`]: the limit of each channel, kept in an array that the program and this process share.
//! - [`key`]: the endpoints by which the program finds a channel.
//! - [`program`]: the XDP program.
//! - [`slot`]: the socket of a channel.

mod channel;
mod credits;
mod key;
mod program;
mod slot;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::{fmt, io, mem};

use rustix::net::sockopt;
use rustix::net::xdp::XdpOptionsFlags;
use softclock_wire::packet::Offload;

use super::chunks::{Account, Chunks};
use super::sending::Sending;
use super::umem::{self, Umem};
use super::{
    Open, XdpError, XdpSettings, XdpStep, bind, lock, prepare, queue_of, retry_while_busy,
};
use crate::bpf::{Attachment, IndexMap, SocketMap};
use crate::link::{Buffer, Link, LongFrames};
pub use channel::XdpChannel;
pub(super) use credits::Credits;
pub use key::EndpointKey;
use program::Maps;
use slot::{Slot, Slots};

/// Receives the frames of a link's queue by AF_XDP into channels, one for each endpoint, with early discard: an XDP
/// program finds the channel of a frame by protocol, destination address and destination port, and drops the frame if
/// the channel has as many frames as its limit. A flood to one endpoint so costs the time of the program, and takes
/// nothing from the other endpoints.
///
/// Four further channels have the frames that belong to no endpoint, so that a flood of one kind leaves room for the
/// others: [`segments`](Self::segments) the TCP segments to other ports but SYNs, [`unclaimed`](Self::unclaimed) SYNs
/// and datagrams to other ports, [`fragments`](Self::fragments) fragments, and [`control`](Self::control) the rest,
/// such as ARP and ICMP. The host keeps the frames that the filter leaves.
///
/// A frame counts against the limit of its channel from the time when the program has chosen the channel until its
/// [`Chunk`](super::Chunk) is dropped, also while it is lent to [`send_buffers`](Self::send_buffers). There is a chunk
/// of memory for each frame within the limits, so a receiver that holds all of its frames stops its own channel only.
///
/// The link is given back when this value and all channels are dropped, or when the process ends: the program, its maps
/// and the sockets have no other holder. While channels are left without this value, the frames of no endpoint are
/// discarded. Closing takes the kernel 1 to 15 ms for each socket, of which there are five and one for each of the most
/// channels that existed at once.
///
/// # Threads
/// Any thread may add channels and send, and each channel may belong to another thread: it has a descriptor of its own
/// to wait for, and a ring of its own. The threads have one ring in common, by which chunks go back to the kernel: each
/// takes a lock for it when it drops a chunk, and no other. Keep `on_frame` of [`XdpChannel::receive`] short, and call
/// no method of the same channel in it, which would wait forever.
///
/// # Examples
/// ```no_run
/// use softclock_linux::link::{
///     ChannelSettings, Copies, EndpointKey, Link, Transport, XdpChannels, XdpFilter, XdpSettings,
/// };
///
/// let address = "192.0.2.9".parse()?;
/// let link = XdpSettings {
///     copies: Copies::Allowed,
///     queue: None,
///     filter: XdpFilter::Addresses(vec![address]),
/// };
/// let settings = ChannelSettings {
///     link,
///     channels: 16,
///     limit: 64,
///     streams: 0,
///     stream_limit: 64,
///     common_limit: 64,
///     peers: 0,
/// };
/// let channels = XdpChannels::open(&Link::named("eth0")?, settings)?;
/// let echo = EndpointKey { transport: Transport::Udp, address, port: 7 };
/// let channel = channels.add(&[echo], 64)?;
/// // Once the descriptor of `channel` is readable:
/// channel.receive(|received| {
///     let _chunk = received.expect("no frame is refused").bytes;
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct XdpChannels {
    /// The channels of the first accounts.
    common: [XdpChannel; COMMON_CHANNELS],
    shared: Arc<Shared>,
}

/// The settings to open channels with. Memory is reserved for all frames within the limits, 4 KiB for each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChannelSettings {
    /// The queue of the link, and the frames that are taken from the host.
    pub link: XdpSettings,
    /// The most channels of endpoints.
    pub channels: u32,
    /// The highest limit of an endpoint's channel, in frames.
    pub limit: u32,
    /// The most channels for TCP segments that [`XdpChannels::add_stream`] adds, beside those of `channels`.
    pub streams: u32,
    /// The limit of each of them, and of the channel of [`segments`](XdpChannels::segments).
    pub stream_limit: u32,
    /// The limit of each of the three other channels for frames of no endpoint.
    pub common_limit: u32,
    /// The most peers that [`XdpChannels::prefer_peer`] names; there is room for one at least.
    pub peers: u32,
}

impl XdpChannels {
    /// The most keys of one channel.
    pub const MOST_KEYS: usize = 16;

    /// Opens a link. Blocks for up to 1 s a queue, and 1 s more, if the link is busy.
    ///
    /// # Errors
    /// See [`XdpError`]. [`XdpStep::Socket`] with `InvalidInput` if the memory would be longer than 4 GiB;
    /// [`XdpStep::Program`] with `InvalidInput` if a limit is 0, or the filter takes no frames. After an error the link
    /// is unchanged.
    pub fn open(link: &Link, settings: ChannelSettings) -> Result<Self, XdpError> {
        let failed = |step| move |error| XdpError::Failed(step, error);
        let shared = Arc::new(Shared::open(link, settings)?);
        // The channels before the program, which delivers frames as soon as it is attached.
        let open = |account| {
            let slot = shared.slot(account)?;
            let limit = match account {
                SEGMENTS => shared.settings.stream_limit,
                _ => shared.settings.common_limit,
            };
            Ok(XdpChannel::over(slot, limit, &shared))
        };
        let common = [
            open(CONTROL),
            open(FRAGMENTS),
            open(UNCLAIMED),
            open(SEGMENTS),
        ];
        let [control, fragments, unclaimed, segments] =
            common.map(|opened| opened.map_err(failed(XdpStep::Queue)));
        let common = [control?, fragments?, unclaimed?, segments?];
        let filter = &shared.settings.link.filter;
        let program =
            program::load(&shared.maps, shared.queue, filter).map_err(failed(XdpStep::Program))?;
        let attachment = retry_while_busy(|| program.attach_xdp(link.index()));
        let attachment = attachment.map_err(failed(XdpStep::Driver))?;
        let _ = shared.attachment.set(attachment);
        Ok(Self { common, shared })
    }

    /// The channel of frames other than TCP, UDP and fragments: ARP, ICMP, neighbor discovery, IPv6 with extension
    /// headers; also of frames whose headers are cut off. Process them on the account of the stack, not of an endpoint.
    pub const fn control(&self) -> &XdpChannel {
        let [control, ..] = &self.common;
        control
    }

    /// The channel of fragments. The first of a datagram has its port; those of the others are known once it is there.
    pub const fn fragments(&self) -> &XdpChannel {
        let [_, fragments, ..] = &self.common;
        fragments
    }

    /// The channel of UDP datagrams and SYNs to no endpoint, which may deserve an answer (port unreachable, RST).
    pub const fn unclaimed(&self) -> &XdpChannel {
        let [.., unclaimed, _] = &self.common;
        unclaimed
    }

    /// The channel of TCP segments to no endpoint that do not open a connection, such as those of connections whose
    /// ports have no channel. It has the limit of [`ChannelSettings::stream_limit`].
    pub const fn segments(&self) -> &XdpChannel {
        let [.., segments] = &self.common;
        segments
    }

    /// Adds a channel for the frames to these endpoints, with room for `limit` frames. Makes a system call for each
    /// key, one for each removed channel that it looks at, and six for a socket if none of a removed channel is free.
    ///
    /// The channel is removed when it is dropped. Frames that the program handles during the removal are discarded, but
    /// such a frame may also arrive in a channel that is added at the same time, so receivers check the headers.
    ///
    /// # Errors
    /// `InvalidInput` for no keys, more than [`MOST_KEYS`](Self::MOST_KEYS), or a limit of 0 or above that of the
    /// settings; `AlreadyExists` if another channel has one of the keys; `QuotaExceeded` if as many channels exist as
    /// the settings say, counting removed ones some of whose frames are still held; those of socket(7) and bpf(2).
    /// After an error no channel is added.
    pub fn add(&self, keys: &[EndpointKey], limit: u32) -> io::Result<XdpChannel> {
        match (1..=self.shared.settings.limit).contains(&limit) {
            true => self.add_of(Class::Endpoint, keys, limit),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Adds a channel for the TCP segments to these endpoints as [`add`](Self::add) does, with the limit of
    /// [`ChannelSettings::stream_limit`]. Half of its room is kept from SYNs, so that a flood of them leaves the
    /// connections of the same port the other half; [`XdpChannel::set_reserve`] and
    /// [`XdpChannel::set_preferred_reserve`] change this.
    ///
    /// # Errors
    /// Those of [`add`](Self::add).
    pub fn add_stream(&self, keys: &[EndpointKey]) -> io::Result<XdpChannel> {
        let limit = self.shared.settings.stream_limit;
        let channel = self.add_of(Class::Stream, keys, limit)?;
        channel.set_reserve(limit / 2);
        channel.set_preferred_reserve(limit / 2);
        Ok(channel)
    }

    /// Prefers the SYNs of a peer: they have a reserve of their own ([`XdpChannel::set_preferred_reserve`]). A peer is an
    /// address of IPv4, or the /64 of an address of IPv6. A system call.
    ///
    /// # Errors
    /// `AlreadyExists` for a peer that is preferred; `ArgumentListTooLong` (E2BIG) beyond [`ChannelSettings::peers`].
    pub fn prefer_peer(&self, peer: IpAddr) -> io::Result<()> {
        self.shared.maps.peers.insert(&key::peer_key(peer), 0)
    }

    /// Undoes [`prefer_peer`](Self::prefer_peer). A system call.
    ///
    /// # Errors
    /// `NotFound` for a peer that is not preferred.
    pub fn forget_peer(&self, peer: IpAddr) -> io::Result<()> {
        self.shared.maps.peers.remove(&key::peer_key(peer))
    }

    fn add_of(&self, class: Class, keys: &[EndpointKey], limit: u32) -> io::Result<XdpChannel> {
        if !(1..=Self::MOST_KEYS).contains(&keys.len()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let shared = &self.shared;
        let channel = XdpChannel::over(shared.take_slot(class)?, limit, shared);
        for key in keys.iter().map(|key| key.to_bytes()) {
            if let Err(error) = shared.maps.keys.insert(&key, channel.slot.account.0) {
                // With the keys that it has so far.
                channel.undo();
                return Err(error);
            }
            lock(&channel.keys).push(key);
        }
        Ok(channel)
    }

    /// Sends frames as [`XdpSocket::send`](super::XdpSocket::send) does.
    ///
    /// # Errors
    /// Those of [`XdpSocket::send`](super::XdpSocket::send).
    pub fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        let mut sending = lock(&self.shared.sending);
        sending.send(self.shared.socket.as_fd(), frames)
    }

    /// Sends frames as [`XdpSocket::send_buffers`](super::XdpSocket::send_buffers) does: those that a channel has
    /// received are not copied, and count against the channel's limit until the link has sent them.
    ///
    /// # Errors
    /// Those of [`XdpSocket::send_buffers`](super::XdpSocket::send_buffers).
    pub fn send_buffers<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a mut Buffer, &'a Offload)>,
    ) -> io::Result<usize> {
        let mut sending = lock(&self.shared.sending);
        sending.send_buffers(self.shared.socket.as_fd(), frames)
    }

    /// Opens a socket to send frames with pending segmentation by, which [`send`](Self::send) would cut. Where frames
    /// are sent without copies there is none, and [`send`](Self::send) has to take them.
    ///
    /// # Errors
    /// Those of [`PacketSocket::open`](crate::link::PacketSocket::open).
    pub fn long_frames(&self, buffer_bytes: usize) -> io::Result<LongFrames> {
        match self.shared.is_copied {
            true => LongFrames::open(&self.shared.link, buffer_bytes),
            false => Ok(LongFrames::NONE),
        }
    }

    /// Whether the kernel had no room at the last call, so that frames may wait for [`flush`](Self::flush).
    pub fn is_behind(&self) -> bool {
        lock(&self.shared.sending).is_behind()
    }

    /// Asks the kernel to send the frames that wait.
    pub fn flush(&self) {
        let mut sending = lock(&self.shared.sending);
        sending.flush(self.shared.socket.as_fd());
    }

    /// Counts the frames to removed channels that no channel has counted, since the last call: the program handled them
    /// after the channel's counters were [frozen](XdpChannel::freeze), or after it was dropped. They are discarded.
    /// Reads memory.
    pub fn take_late(&self) -> u64 {
        let Shared { slots, maps, .. } = &*self.shared;
        let of_class = |slots: &Mutex<Slots>| {
            let mut slots = lock(slots);
            let before = mem::take(&mut slots.late);
            let idle = slots.idle.iter();
            before + idle.map(|slot| slot.take_late(&maps.credits)).sum::<u64>()
        };
        slots.iter().map(of_class).sum()
    }

    /// Takes back the memory of frames as [`XdpSocket::take_completions`](super::XdpSocket::take_completions) does.
    pub fn take_completions(&self) -> usize {
        lock(&self.shared.sending).reclaim()
    }

    /// Counts frames that [`send`](Self::send) accepted and the link then refused, since the last call.
    pub fn take_refused(&self) -> u64 {
        lock(&self.shared.sending).take_refused()
    }
}

/// The socket by which frames are sent. It receives none, so it never becomes readable.
impl AsFd for XdpChannels {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.socket.as_fd()
    }
}

impl fmt::Debug for XdpChannels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdpChannels")
            .field("link", &self.shared.link)
            .field("queue", &self.shared.queue)
            .finish_non_exhaustive()
    }
}

/// The parts that all channels have in common.
struct Shared {
    // In the order in which they have to be dropped: the program before its maps and the sockets, and these before the
    // memory.
    /// The attached program; empty while the link is opened.
    attachment: OnceLock<Attachment>,
    maps: Maps,
    _promiscuous: Option<OwnedFd>,
    /// Those of each class.
    slots: [Mutex<Slots>; 2],
    /// The first socket of the queue, by which all frames are sent. It receives none.
    socket: OwnedFd,
    chunks: Open,
    sending: Mutex<Sending>,
    umem: Arc<Umem>,
    link: Link,
    queue: u32,
    is_copied: bool,
    settings: ChannelSettings,
}

impl Shared {
    /// Opens the queue, without the program and the sockets of the channels.
    fn open(link: &Link, settings: ChannelSettings) -> Result<Self, XdpError> {
        let failed = |step| move |error| XdpError::Failed(step, error);
        let XdpSettings { copies, filter, .. } = &settings.link;
        let (queue, _) = queue_of(link, settings.link.queue)?;
        if [settings.limit, settings.stream_limit, settings.common_limit].contains(&0) {
            let error = io::ErrorKind::InvalidInput.into();
            return Err(XdpError::Failed(XdpStep::Program, error));
        }
        let promiscuous = filter
            .promiscuous(link)
            .map_err(failed(XdpStep::Promiscuity))?;
        let umem = umem_for(link, &settings).map_err(failed(XdpStep::Socket))?;
        let (socket, share, rings) = prepare(&umem).map_err(failed(XdpStep::Socket))?;
        let channels = settings.channels.checked_add(settings.streams);
        let maps = channels
            .ok_or_else(|| io::ErrorKind::InvalidInput.into())
            .and_then(|channels| Maps::new(channels, settings.peers))
            .map_err(failed(XdpStep::Program))?;
        let [waker, owner] = [(); 2].map(|()| socket.try_clone().map_err(failed(XdpStep::Socket)));
        let credits = Some(maps.credits.clone());
        let chunks = Chunks::new(umem.clone(), share, rings.fill, waker?, credits);
        let chunks = Open(chunks);
        retry_while_busy(|| bind(socket.as_fd(), &umem, link, *copies, queue))
            .map_err(failed(XdpStep::Queue))?;
        *umem.owner() = Some(owner?);
        let options = sockopt::xdp_options(&socket).unwrap_or(XdpOptionsFlags::empty());
        let is_copied = !options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        let mut sending = rings.sending;
        sending.on_bound(link.has_transmit_queue(queue), is_copied);
        Ok(Self {
            attachment: OnceLock::new(),
            maps,
            _promiscuous: promiscuous,
            slots: Default::default(),
            socket,
            sending: Mutex::new(sending),
            chunks,
            umem,
            link: link.clone(),
            queue,
            is_copied,
            settings,
        })
    }

    /// The slots of the class that this account belongs to.
    fn slots(&self, Account(account): Account) -> &Mutex<Slots> {
        let class = match account < self.settings.first_stream() {
            true => Class::Endpoint,
            false => Class::Stream,
        };
        &self.slots[class as usize]
    }

    /// A slot for another channel.
    fn take_slot(&self, class: Class) -> io::Result<Arc<Slot>> {
        let mut slots = lock(&self.slots[class as usize]);
        match self.take_idle(&mut slots.idle) {
            Some(slot) => {
                // The next channel counts those from here on.
                slots.late += slot.take_late(&self.maps.credits);
                Ok(slot)
            }
            None => self.open_slot(class, &mut slots.opened),
        }
    }

    /// Takes the slot of a removed channel all of whose frames are given back.
    fn take_idle(&self, idle: &mut VecDeque<Arc<Slot>>) -> Option<Arc<Slot>> {
        let is_free = |slot: &Arc<Slot>| {
            // An error leaves the slot without these credits, and so not free.
            let _ = slot.settle(&self.maps.credits);
            slot.drain(&self.chunks.0);
            self.maps.credits.left(slot.account) == 0
        };
        // The one removed first: the program has long finished with its frames.
        let index = idle.iter().position(is_free)?;
        idle.remove(index)
    }

    /// Opens the socket of another slot.
    fn open_slot(&self, class: Class, opened: &mut u32) -> io::Result<Arc<Slot>> {
        let (first, most) = match class {
            Class::Endpoint => (COMMON_CHANNELS as u32, self.settings.channels),
            Class::Stream => (self.settings.first_stream(), self.settings.streams),
        };
        if *opened >= most {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let slot = self.slot(Account(first + *opened))?;
        *opened += 1;
        Ok(slot)
    }

    /// Opens the socket of this account.
    fn slot(&self, account: Account) -> io::Result<Arc<Slot>> {
        let settings = &self.settings;
        let frames = match account {
            SEGMENTS => settings.stream_limit,
            Account(common) if common < COMMON_CHANNELS as u32 => settings.common_limit,
            Account(stream) if stream >= settings.first_stream() => settings.stream_limit,
            _ => settings.limit,
        };
        let (socket, arrived) = slot::prepare(frames)?;
        // As a further socket of the queue, which has the mode and the fill ring of the first.
        bind(
            socket.as_fd(),
            &self.umem,
            &self.link,
            settings.link.copies,
            self.queue,
        )?;
        let slot = Slot::new(account, socket, arrived);
        self.maps.connect(&slot)?;
        Ok(slot.into())
    }
}

/// Maps memory with a chunk for each frame within the limits.
fn umem_for(link: &Link, settings: &ChannelSettings) -> io::Result<Arc<Umem>> {
    // A device keeps chunks in its own ring, in which it receives even the frames that are discarded. On a virtual
    // link, the kernel takes a chunk only for a frame that has a credit.
    let spare = if link.is_virtual() { 0 } else { umem::RECEIVE };
    let all = [
        (settings.channels as usize, settings.limit),
        // With the channel of segments.
        (settings.streams as usize + 1, settings.stream_limit),
        (COMMON_CHANNELS - 1, settings.common_limit),
    ];
    let frames = all
        .into_iter()
        .try_fold(spare, |frames, (channels, limit)| {
            frames.checked_add(channels.checked_mul(limit as usize)?)
        });
    let frames = frames.ok_or(io::ErrorKind::InvalidInput)?;
    Umem::with_receive(1, frames).map(Arc::new)
}

impl ChannelSettings {
    /// The first account of the class of streams, whose accounts follow those of the other endpoints.
    const fn first_stream(&self) -> u32 {
        COMMON_CHANNELS as u32 + self.channels
    }
}

/// The kinds of channels of endpoints. Each has slots of its own, since their rings differ in length.
#[derive(Clone, Copy)]
enum Class {
    Endpoint,
    Stream,
}

/// The accounts of the channels that belong to no endpoint.
const CONTROL: Account = Account(0);
const FRAGMENTS: Account = Account(1);
const UNCLAIMED: Account = Account(2);
const SEGMENTS: Account = Account(3);
const COMMON_CHANNELS: usize = 4;

#[cfg(test)]
mod tests;
