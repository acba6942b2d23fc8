//! A link opened by one of the three mechanisms: its frames are this process's alone, or it is shared with the host.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use softclock_wire::packet::Offload;

use super::{
    Buffer, Copies, Link, PacketSocket, Received, Refused, Tap, XdpDevice, XdpError, XdpFilter,
    XdpMemory, XdpQueue, XdpSettings, XdpSocket, XdpStep,
};
use crate::bpf::{Attachment, shut_ingress};

/// An open link, or a TAP device. Closing it, or the end of the process, undoes all changes to the link.
///
/// - `open_*` takes a link from the host, which then handles none of its frames: for a bridge.
/// - `share_*` leaves a link to the host, which keeps its own addresses there: for a network stack with a link address
///   and IP addresses of its own. The host and the stack do not reach each other over a shared link, since neither
///   receives the frames that the other sends.
///
/// ```no_run
/// use softclock_linux::link::{Copies, Device, Link, XdpFilter};
///
/// let link = Link::named("eth0")?;
/// let bridged = Device::open_packet(&link)?;
/// drop(bridged);
/// let stack = XdpFilter::Addresses(vec!["192.0.2.9".parse()?]);
/// let shared = Device::share_xdp(&link, Copies::Allowed, stack)?;
/// assert_eq!(shared.mechanism(), "xdp");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum Device {
    /// An AF_PACKET socket. If the link is taken from the host, a BPF program at tcx ingress, too, that drops the
    /// frames after the socket has received them and before the host does.
    Packet(PacketSocket, Option<Attachment>),
    /// An AF_XDP socket, to which a program in the driver directs all frames, or those that a filter takes. Frames are
    /// copied while half of the socket's own memory is held by frames that wait.
    Xdp(Box<XdpDevice>),
    /// A TAP device: the host has the other end.
    Tap(Tap),
}

/// Why a device cannot be opened: the interface and the failed step.
#[derive(Debug)]
pub struct DeviceError {
    /// The name of the interface.
    pub interface: String,
    /// The failed step.
    pub failure: DeviceFailure,
}

/// The step that failed when a device was opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceFailure {
    /// The AF_PACKET socket: `PermissionDenied` without CAP_NET_RAW, `Unsupported` for links without Ethernet headers.
    Packet(io::Error),
    /// The program that drops frames at tcx: `PermissionDenied` without CAP_BPF and CAP_NET_ADMIN, `InvalidInput` for
    /// kernels without tcx (before Linux 6.6).
    ShutIngress(io::Error),
    /// The AF_XDP socket.
    Xdp(XdpError),
    /// AF_XDP without copies was asked for, and the link is virtual, where AF_XDP always copies.
    XdpCopies,
    /// The device strips VLAN tags from frames, and AF_XDP would lose them.
    XdpMissesTags,
    /// The TAP device; see [`Tap::create`].
    Tap(io::Error),
}

impl Device {
    /// Opens a link by AF_PACKET and takes its frames from the host.
    ///
    /// # Errors
    /// [`DeviceFailure::Packet`] and [`DeviceFailure::ShutIngress`]. After an error the link is unchanged.
    pub fn open_packet(link: &Link) -> Result<Self, DeviceError> {
        // The socket first: the program drops all frames, and none should be dropped that the socket has not received.
        let socket = packet_socket(link)?;
        let shut = shut_ingress(link.index())
            .map_err(|error| link.failed(DeviceFailure::ShutIngress(error)))?;
        Ok(Self::Packet(socket, Some(shut)))
    }

    /// Opens a link by AF_PACKET and shares it with the host: both receive all frames, and each ignores those that are
    /// not for it.
    ///
    /// A stack on this device has a link address of its own, other than [`hardware_address`](Link::hardware_address).
    /// Since the kernel marks frames to another unicast link address than the link's (PACKET_OTHERHOST of packet(7)),
    /// the host drops those to the stack before its ARP and IP, and neither answers nor forwards them. The host does
    /// handle broadcasts and multicasts, but answers ARP requests and neighbour solicitations only for addresses that
    /// it has, or is a proxy for. The device receives the frames for the host, too, and the stack has to drop them by
    /// their link address.
    ///
    /// While the device is open, the link is in promiscuous mode, without which hardware drops frames to the stack's
    /// link address. A network that admits only the host's link address, as at many cloud providers, needs
    /// [`share_xdp`](Self::share_xdp) with [`XdpFilter::Ports`].
    ///
    /// # Errors
    /// [`DeviceFailure::Packet`]. After an error the link is unchanged.
    pub fn share_packet(link: &Link) -> Result<Self, DeviceError> {
        Ok(Self::Packet(packet_socket(link)?, None))
    }

    /// Opens a link by AF_XDP and takes its frames from the host, with a share of `memory`. Frames from another device
    /// with the same memory are sent without a copy.
    ///
    /// # Errors
    /// [`DeviceFailure::Xdp`].
    pub fn open_xdp(memory: &XdpMemory, link: &Link, copies: Copies) -> Result<Self, DeviceError> {
        let settings = XdpSettings {
            copies,
            queue: None,
            filter: XdpFilter::All,
        };
        Self::of_xdp(XdpSocket::open_in(memory, link, settings), link)
    }

    /// Opens a link by AF_XDP and shares it with the host: the device receives the frames that the filter takes, and
    /// the host the others. [`XdpFilter::All`] leaves none to the host.
    ///
    /// A stack with addresses of its own ([`XdpFilter::Addresses`]) may have a link address of its own, and the link is
    /// in promiscuous mode then. The filter does not compare link addresses: frames to the stack's IP addresses are
    /// taken whatever link address they are sent to. The host loses the multicast groups in the filter, even those that
    /// it has joined. The link must have one queue; see [`share_xdp_queues`](Self::share_xdp_queues). Opening and
    /// closing may reset the link, which interrupts the host's traffic for a moment.
    ///
    /// # Errors
    /// [`DeviceFailure::Xdp`]. After an error the link is unchanged.
    pub fn share_xdp(link: &Link, copies: Copies, filter: XdpFilter) -> Result<Self, DeviceError> {
        let settings = XdpSettings {
            copies,
            queue: None,
            filter,
        };
        Self::of_xdp(XdpSocket::open(link, settings), link)
    }

    /// Opens all queues of a link as [`share_xdp`](Self::share_xdp) opens the only one: a device for each, in the order
    /// of the queues.
    ///
    /// # Errors
    /// [`DeviceFailure::Xdp`]. After an error the link is unchanged.
    pub fn share_xdp_queues(
        link: &Link,
        copies: Copies,
        filter: &XdpFilter,
    ) -> Result<Vec<Self>, DeviceError> {
        let sockets = XdpSocket::open_queues(link, copies, filter);
        let sockets = sockets.map_err(|error| link.failed(DeviceFailure::Xdp(error)))?;
        let device = |socket| {
            let device = XdpDevice::with_long(socket, link, BUFFER_BYTES);
            let device = device.map_err(|error| link.failed(DeviceFailure::Packet(error)))?;
            Ok(Self::Xdp(Box::new(device)))
        };
        sockets.into_iter().map(device).collect()
    }

    /// Creates a device that receives from a queue and sends by it. If the link is given and the kernel copies frames,
    /// frames with pending segmentation leave whole.
    pub fn of_queue(queue: XdpQueue, link: Option<&Link>) -> Self {
        Self::Xdp(Box::new(XdpDevice::of_queue(queue, link, BUFFER_BYTES)))
    }

    /// Returns the queue of a device by AF_XDP, for another thread, or `None` for any other device.
    pub fn into_queue(self) -> Option<XdpQueue> {
        match self {
            Self::Xdp(device) => Some(device.into_queue()),
            Self::Packet(..) | Self::Tap(_) => None,
        }
    }

    fn of_xdp(socket: Result<XdpSocket, XdpError>, link: &Link) -> Result<Self, DeviceError> {
        let socket = socket.map_err(|error| link.failed(DeviceFailure::Xdp(error)))?;
        Ok(Self::Xdp(Box::new(XdpDevice::new(socket))))
    }

    /// Opens a link by AF_XDP only if the driver writes frames to the socket's memory without copying, and loses no
    /// VLAN tags: in the other cases AF_PACKET serves better.
    ///
    /// # Errors
    /// Those of [`open_xdp`](Self::open_xdp) and [`check_xdp_without_copies`](Self::check_xdp_without_copies).
    pub fn open_xdp_without_copies(memory: &XdpMemory, link: &Link) -> Result<Self, DeviceError> {
        let opened = Self::open_xdp(memory, link, Copies::Never)?;
        // Loading the program may change the driver's features, so they are checked again.
        Self::check_xdp_without_copies(link).map(|()| opened)
    }

    /// Checks, without changing the link, whether [`open_xdp_without_copies`](Self::open_xdp_without_copies) would
    /// fail.
    ///
    /// # Errors
    /// The first reason found. Success does not mean that the driver supports AF_XDP.
    pub fn check_xdp_without_copies(link: &Link) -> Result<(), DeviceError> {
        match link.receive_queues() {
            Ok(queues @ 2..) if !link.is_virtual() => {
                Err(link.failed(DeviceFailure::Xdp(XdpError::Queues(queues))))
            }
            _ => Self::check_queues_without_copies(link),
        }
    }

    /// Checks, without changing the link, whether [`share_xdp_queues`](Self::share_xdp_queues) with [`Copies::Never`]
    /// would fail, or lose VLAN tags.
    ///
    /// # Errors
    /// The first reason found. Success does not mean that the driver supports AF_XDP.
    pub fn check_queues_without_copies(link: &Link) -> Result<(), DeviceError> {
        let failure = match link.receive_queues() {
            _ if link.is_virtual() => DeviceFailure::XdpCopies,
            Err(error) => DeviceFailure::Xdp(XdpError::Failed(XdpStep::Queues, error)),
            Ok(queues) if queues > XdpSocket::MOST_QUEUES => {
                DeviceFailure::Xdp(XdpError::Queues(queues))
            }
            _ if link.strips_vlan_tags() => DeviceFailure::XdpMissesTags,
            _ => return Ok(()),
        };
        Err(link.failed(failure))
    }

    /// Creates a TAP device, which is up, and is deleted on drop; also returns its link.
    ///
    /// # Errors
    /// [`DeviceFailure::Tap`].
    pub fn create_tap(name: &str) -> Result<(Link, Self), DeviceError> {
        let tap = Tap::create(name).map_err(|error| DeviceError {
            interface: name.into(),
            failure: DeviceFailure::Tap(error),
        })?;
        Ok((tap.link().clone(), Self::Tap(tap)))
    }

    /// Whether frames can be sent. By AF_XDP not by a queue beyond the link's transmit queues, of which there may be
    /// fewer than receive queues.
    pub fn can_send(&self) -> bool {
        match self {
            Self::Packet(..) | Self::Tap(_) => true,
            Self::Xdp(device) => device.can_send(),
        }
    }

    /// The mechanism's name in reports: `packet`, `xdp` or `tap`.
    pub const fn mechanism(&self) -> &'static str {
        match self {
            Self::Packet(..) => "packet",
            Self::Xdp(..) => "xdp",
            Self::Tap(_) => "tap",
        }
    }

    /// Whether the segmentation that the [`Offload`] of a frame asks for is done behind
    /// [`send_bytes`](Self::send_bytes), by the kernel or the hardware. By AF_XDP only where frames are copied and the
    /// link is shared with the host; else AF_XDP sockets do it themselves, frame by frame.
    pub const fn takes_offloads(&self) -> bool {
        match self {
            Self::Packet(..) | Self::Tap(_) => true,
            Self::Xdp(device) => device.takes_offloads(),
        }
    }

    /// Passes the frames that have arrived to `on_frame`, in order, each in the memory that the kernel wrote it to;
    /// returns their number, at most [`BATCH`](super::BATCH).
    ///
    /// # Errors
    /// Those of the mechanism's `receive`; `WouldBlock` if no frame has arrived.
    pub fn receive(&self, on_frame: impl FnMut(Result<Received, Refused>)) -> io::Result<usize> {
        match self {
            Self::Packet(socket, _) => socket.receive(on_frame),
            Self::Xdp(device) => device.receive(on_frame),
            Self::Tap(tap) => tap.receive(on_frame),
        }
    }

    /// Sends frames in order; returns the number sent, at most [`BATCH`](super::BATCH). Buffers of frames that are sent
    /// may be empty afterwards: AF_XDP takes the memory of frames that it has in common with this device, and only
    /// copies others.
    ///
    /// # Errors
    /// Those of the first frame; see the mechanism's `send`.
    pub fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a mut Buffer, &'a Offload)>,
    ) -> io::Result<usize> {
        let bytes = |(frame, offload): (&'a mut Buffer, _)| {
            let frame: &'a Buffer = frame;
            (&frame[..], offload)
        };
        match self {
            Self::Packet(socket, _) => socket.send(frames.into_iter().map(bytes)),
            Self::Xdp(device) => device.send(frames),
            Self::Tap(tap) => tap.send(frames.into_iter().map(bytes)),
        }
    }

    /// Sends frames in order as [`send`](Self::send) does, from memory of the caller's, which AF_XDP copies.
    ///
    /// # Errors
    /// Those of the first frame; see the mechanism's `send`.
    pub fn send_bytes<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload), IntoIter: Clone>,
    ) -> io::Result<usize> {
        match self {
            Self::Packet(socket, _) => socket.send(frames),
            Self::Xdp(device) => device.send_bytes(frames.into_iter()),
            Self::Tap(tap) => tap.send(frames),
        }
    }

    /// Whether an error of [`receive`](Self::receive) or [`send`](Self::send) says that the interface was deleted. Only
    /// TAP devices report it so; for other interfaces there is [`LinkMonitor`](super::LinkMonitor).
    pub fn is_deletion(&self, error: &io::Error) -> bool {
        matches!(self, Self::Tap(_)) && error.raw_os_error() == Some(libc::EBADFD)
    }

    /// Whether the link had no room at the last call, so that frames accepted by [`send`](Self::send) may still wait
    /// for [`flush`](Self::flush).
    pub fn is_behind(&self) -> bool {
        match self {
            Self::Xdp(device) => device.socket.is_behind(),
            Self::Packet(..) | Self::Tap(_) => false,
        }
    }

    /// Sends the frames that [`send`](Self::send) accepted and the link had no room for.
    pub fn flush(&self) {
        match self {
            Self::Xdp(device) => device.socket.flush(),
            Self::Packet(..) | Self::Tap(_) => {}
        }
    }

    /// Takes back the memory of frames that AF_XDP has sent, and returns their number, without those that
    /// [`send`](Self::send) has found before. Reads memory. The other mechanisms copy frames, and have no completions:
    /// 0.
    pub fn take_completions(&self) -> usize {
        match self {
            Self::Xdp(device) => device.socket.take_completions(),
            Self::Packet(..) | Self::Tap(_) => 0,
        }
    }

    /// Counts frames that [`send`](Self::send) accepted and the link then refused, since the last call.
    pub fn take_refused(&self) -> u64 {
        match self {
            Self::Xdp(device) => device.socket.take_refused(),
            Self::Packet(..) | Self::Tap(_) => 0,
        }
    }

    /// Counts frames lost since the last call because the receive buffer was full.
    ///
    /// # Errors
    /// Those of the mechanism's `take_lost`, as for a TAP device that was moved to another namespace.
    pub fn take_lost(&self) -> io::Result<u64> {
        match self {
            Self::Packet(socket, _) => socket.take_lost(),
            Self::Xdp(device) => device.socket.take_lost(),
            Self::Tap(tap) => tap.take_lost(),
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Packet(socket, _) => socket.as_fd(),
            Self::Xdp(device) => device.as_fd(),
            Self::Tap(tap) => tap.as_fd(),
        }
    }
}

fn packet_socket(link: &Link) -> Result<PacketSocket, DeviceError> {
    PacketSocket::open(link, BUFFER_BYTES)
        .map_err(|error| link.failed(DeviceFailure::Packet(error)))
}

impl Link {
    fn failed(&self, failure: DeviceFailure) -> DeviceError {
        DeviceError {
            interface: self.name().into(),
            failure,
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.interface;
        match &self.failure {
            DeviceFailure::Packet(error) => write!(f, "cannot open {name} by AF_PACKET: {error}"),
            DeviceFailure::ShutIngress(error) => {
                write!(f, "cannot attach a tcx program to {name}: {error}")
            }
            DeviceFailure::Xdp(error) => write!(f, "cannot open {name} by AF_XDP: {error}"),
            DeviceFailure::XdpCopies => write!(f, "AF_XDP copies the frames of {name}"),
            DeviceFailure::XdpMissesTags => write!(f, "AF_XDP loses VLAN tags on {name}"),
            DeviceFailure::Tap(error) => write!(f, "cannot create TAP device {name}: {error}"),
        }
    }
}

impl std::error::Error for DeviceError {}

/// The size of the receive and send buffers of AF_PACKET: about 40 ms at 1 Gbit/s.
const BUFFER_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests;
