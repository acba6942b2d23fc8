//! AF_XDP sockets and channels for receivers in several threads: one lock around everything.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use softclock_wire::packet::Offload;

use super::{
    ChannelSettings, Chunk, EndpointKey, XdpChannel, XdpChannels, XdpError, XdpSettings, XdpSocket,
    XdpStep,
};
use crate::link::{Link, Received, Refused};

/// An [`XdpSocket`] from which several threads receive, in turn, under a lock. Clones share the socket.
///
/// Frames are lent to the receiver while it holds the lock, so keep the closures short, and call no method of this socket
/// in them: that would block forever.
#[derive(Clone)]
pub struct SharedXdpSocket {
    socket: Arc<Mutex<Confined<XdpSocket>>>,
    fd: Arc<OwnedFd>,
}

impl SharedXdpSocket {
    /// Opens a link as [`XdpSocket::open`] does.
    ///
    /// # Errors
    /// Those of [`XdpSocket::open`].
    pub fn open(link: &Link, settings: XdpSettings) -> Result<Self, XdpError> {
        let socket = XdpSocket::open(link, settings)?;
        let fd = duplicate(&socket)?;
        Ok(Self {
            socket: Arc::new(Mutex::new(Confined(socket))),
            fd,
        })
    }

    /// Passes frames to `on_frame` as [`XdpSocket::receive`] does.
    ///
    /// # Errors
    /// `WouldBlock` if no frame has arrived.
    pub fn receive(
        &self,
        on_frame: impl FnMut(Result<Received<&[u8]>, Refused>),
    ) -> io::Result<usize> {
        lock(&self.socket).0.receive(on_frame)
    }

    /// Sends frames as [`XdpSocket::send`] does.
    ///
    /// # Errors
    /// Those of [`XdpSocket::send`].
    pub fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        lock(&self.socket).0.send(frames)
    }

    /// Counts lost frames as [`XdpSocket::take_lost`] does.
    ///
    /// # Errors
    /// Those of [`XdpSocket::take_lost`].
    pub fn take_lost(&self) -> io::Result<u64> {
        lock(&self.socket).0.take_lost()
    }
}

impl AsFd for SharedXdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for SharedXdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedXdpSocket").field(&self.fd).finish()
    }
}

/// [`XdpChannels`] whose channels belong to receivers in several threads: each has its own descriptor to wait for, and its
/// own bounded room. One lock is around all of them, since they have one fill ring. Clones share the channels.
///
/// Frames are lent to the receiver while it holds the lock, so keep the closures short, and call no method of these
/// channels in them: that would block forever.
///
/// # Examples
/// ```no_run
/// use std::thread;
/// use softclock_linux::link::{
///     ChannelSettings, Copies, EndpointKey, Link, SharedXdpChannels, Transport, XdpFilter, XdpSettings,
/// };
///
/// let address = "192.0.2.9".parse()?;
/// let filter = XdpFilter::Addresses(vec![address]);
/// let link = XdpSettings { copies: Copies::Allowed, queue: None, filter };
/// let settings = ChannelSettings { link, channels: 2, limit: 64, common_limit: 64 };
/// let channels = SharedXdpChannels::open(&Link::named("eth0")?, settings).expect("AF_XDP");
/// for port in [7, 9] {
///     let key = EndpointKey { transport: Transport::Udp, address, port };
///     let channel = channels.add(&[key], 64)?;
///     thread::spawn(move || {
///         let mut frames = Vec::new();
///         // Once the descriptor of `channel` is readable:
///         let _ = channel.receive(|received| frames.extend(received.map(|frame| frame.bytes.to_vec())));
///     });
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedXdpChannels {
    parts: Arc<Mutex<Confined<Parts>>>,
    fd: Arc<OwnedFd>,
}

/// A channel of [`SharedXdpChannels`]. Dropping it removes the channel.
pub struct SharedXdpChannel {
    shared: SharedXdpChannels,
    /// The place in [`Parts::added`].
    place: usize,
    fd: Arc<OwnedFd>,
}

/// The three channels of frames to no endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CommonXdpChannel {
    /// [`XdpChannels::control`].
    Control,
    /// [`XdpChannels::fragments`].
    Fragments,
    /// [`XdpChannels::unclaimed`].
    Unclaimed,
}

/// All that the lock protects.
struct Parts {
    added: Vec<Option<XdpChannel>>,
    channels: XdpChannels,
}

impl SharedXdpChannels {
    /// Opens a link as [`XdpChannels::open`] does.
    ///
    /// # Errors
    /// Those of [`XdpChannels::open`].
    pub fn open(link: &Link, settings: ChannelSettings) -> Result<Self, XdpError> {
        let channels = XdpChannels::open(link, settings)?;
        let fd = duplicate(&channels)?;
        let added = Vec::new();
        let parts = Parts { added, channels };
        let parts = Arc::new(Mutex::new(Confined(parts)));
        Ok(Self { parts, fd })
    }

    /// Adds a channel as [`XdpChannels::add`] does.
    ///
    /// # Errors
    /// Those of [`XdpChannels::add`].
    pub fn add(&self, keys: &[EndpointKey], limit: u32) -> io::Result<SharedXdpChannel> {
        let mut guard = lock(&self.parts);
        let Parts { added, channels } = &mut guard.0;
        let channel = channels.add(keys, limit)?;
        let fd = Arc::new(channel.as_fd().try_clone_to_owned()?);
        // As many places as channels existed at once, which the settings bound.
        let place = added.iter().position(Option::is_none);
        let place = place.unwrap_or_else(|| {
            added.push(None);
            added.len() - 1
        });
        added[place] = Some(channel);
        drop(guard);
        Ok(SharedXdpChannel {
            shared: self.clone(),
            place,
            fd,
        })
    }

    /// Passes the frames of a common channel to `on_frame`, as [`XdpChannel::receive`] does.
    ///
    /// # Errors
    /// `WouldBlock` if no frame has arrived.
    pub fn receive_common(
        &self,
        channel: CommonXdpChannel,
        on_frame: impl FnMut(Result<Received<&[u8]>, Refused>),
    ) -> io::Result<usize> {
        let guard = lock(&self.parts);
        let channels = &guard.0.channels;
        let channel = match channel {
            CommonXdpChannel::Control => channels.control(),
            CommonXdpChannel::Fragments => channels.fragments(),
            CommonXdpChannel::Unclaimed => channels.unclaimed(),
        };
        receive(channel, on_frame)
    }

    /// Sends frames as [`XdpChannels::send`] does.
    ///
    /// # Errors
    /// Those of [`XdpChannels::send`].
    pub fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        lock(&self.parts).0.channels.send(frames)
    }
}

/// The socket by which frames are sent. It receives none, so it never becomes readable.
impl AsFd for SharedXdpChannels {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for SharedXdpChannels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedXdpChannels").finish_non_exhaustive()
    }
}

impl SharedXdpChannel {
    /// Passes the frames that have arrived to `on_frame`, in order; returns their number, at most
    /// [`BATCH`](crate::link::BATCH). The channel has room for another frame once `on_frame` returns.
    ///
    /// # Errors
    /// `WouldBlock` if no frame has arrived.
    pub fn receive(
        &self,
        on_frame: impl FnMut(Result<Received<&[u8]>, Refused>),
    ) -> io::Result<usize> {
        self.with(|channel| receive(channel, on_frame))
    }

    /// Counts the frames that the program put into the channel.
    pub fn delivered(&self) -> u64 {
        self.with(XdpChannel::delivered)
    }

    /// Counts the frames that the program discarded since the channel was full.
    pub fn discarded(&self) -> u64 {
        self.with(XdpChannel::discarded)
    }

    /// Counts lost frames as [`XdpChannel::take_lost`] does.
    ///
    /// # Errors
    /// Those of [`XdpChannel::take_lost`].
    pub fn take_lost(&self) -> io::Result<u64> {
        self.with(XdpChannel::take_lost)
    }

    fn with<R: Send>(&self, call: impl FnOnce(&XdpChannel) -> R) -> R {
        let guard = lock(&self.shared.parts);
        let channel = guard.0.added[self.place].as_ref();
        call(channel.expect("the place is this channel's until it is dropped"))
    }
}

impl AsFd for SharedXdpChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for SharedXdpChannel {
    fn drop(&mut self) {
        lock(&self.shared.parts).0.added[self.place] = None;
    }
}

impl fmt::Debug for SharedXdpChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedXdpChannel").field(&self.fd).finish()
    }
}

/// Lends the frames of a channel.
fn receive(
    channel: &XdpChannel,
    mut on_frame: impl FnMut(Result<Received<&[u8]>, Refused>),
) -> io::Result<usize> {
    channel.receive(|received: Result<Received<Chunk>, Refused>| {
        on_frame(match &received {
            Ok(received) => Ok(Received {
                bytes: &received.bytes,
                offload: received.offload,
                age: received.age,
            }),
            Err(refused) => Err(*refused),
        });
    })
}

/// A socket, or channels, with all values that share its reference counts and cells.
struct Confined<T>(T);

// SAFETY: the counters of references (`Rc`), the cells and the rings of an `XdpSocket` or of `XdpChannels` are reached
// only by values within it: each is opened here with memory of its own, no method of this module returns a `Chunk` or
// another part with a share in them, and frames are lent as slices that end with the closure. So all of them move
// together, and the lock lets one thread at a time use them. They do not refer to a thread: descriptors and mappings
// belong to the process, and memory may be freed by another thread.
unsafe impl Send for Confined<XdpSocket> {}
// SAFETY: as above.
unsafe impl Send for Confined<Parts> {}

/// Takes the lock. A closure that has panicked leaves the rings consistent: they are updated by whole frames.
fn lock<T>(of: &Mutex<Confined<T>>) -> MutexGuard<'_, Confined<T>> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn duplicate(socket: &impl AsFd) -> Result<Arc<OwnedFd>, XdpError> {
    let fd = socket.as_fd().try_clone_to_owned();
    let fd = fd.map_err(|error| XdpError::Failed(XdpStep::Socket, error))?;
    Ok(Arc::new(fd))
}

#[cfg(test)]
mod tests;
