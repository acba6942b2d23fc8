//! A link opened by one of the three mechanisms, so that its frames are this process's alone.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use softclock_wire::packet::Offload;

use super::{
    Buffer, Copies, Link, PacketSocket, Pool, Received, Refused, Tap, XdpError, XdpFilter,
    XdpMemory, XdpSettings, XdpSocket,
};
use crate::bpf::{Attachment, shut_ingress};

/// An open link, whose frames the host does not handle, or a TAP device. Closing it, or the end of the process, undoes
/// all changes to the link.
#[derive(Debug)]
pub enum Device {
    /// An AF_PACKET socket, and a BPF program at tcx ingress that drops the frames, after the socket has received them
    /// and before the host does.
    Packet(PacketSocket, Attachment),
    /// An AF_XDP socket, to which a program in the driver directs all frames. Frames are copied to buffers of the pool
    /// while half of the socket's own memory is held by frames that wait.
    Xdp(Box<XdpSocket>, Pool),
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
    /// Opens a link by AF_PACKET.
    ///
    /// # Errors
    /// [`DeviceFailure::Packet`] and [`DeviceFailure::ShutIngress`]. After an error the link is unchanged.
    pub fn open_packet(link: &Link) -> Result<Self, DeviceError> {
        // The socket first: the program drops all frames, and none should be dropped that the socket has not received.
        let socket = PacketSocket::open(link, BUFFER_BYTES)
            .map_err(|error| link.failed(DeviceFailure::Packet(error)))?;
        let shut = shut_ingress(link.index())
            .map_err(|error| link.failed(DeviceFailure::ShutIngress(error)))?;
        Ok(Self::Packet(socket, shut))
    }

    /// Opens a link by AF_XDP, with a share of `memory`. Frames from another device with the same memory are sent without
    /// a copy.
    ///
    /// # Errors
    /// [`DeviceFailure::Xdp`].
    pub fn open_xdp(memory: &XdpMemory, link: &Link, copies: Copies) -> Result<Self, DeviceError> {
        let settings = XdpSettings {
            copies,
            queue: None,
            filter: XdpFilter::All,
        };
        let socket = XdpSocket::open_in(memory, link, settings);
        let socket = socket.map_err(|error| link.failed(DeviceFailure::Xdp(error)))?;
        Ok(Self::Xdp(Box::new(socket), Pool::new()))
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
        let failure = match link.receive_queues() {
            _ if link.is_virtual() => DeviceFailure::XdpCopies,
            queues @ 2.. => DeviceFailure::Xdp(XdpError::Queues(queues)),
            _ if link.takes_tags_off() => DeviceFailure::XdpMissesTags,
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

    /// The mechanism's name in reports: `packet`, `xdp` or `tap`.
    pub const fn mechanism(&self) -> &'static str {
        match self {
            Self::Packet(..) => "packet",
            Self::Xdp(..) => "xdp",
            Self::Tap(_) => "tap",
        }
    }

    /// Passes the frames that have arrived to `on_frame`, in order, each in the memory that the kernel wrote it to;
    /// returns their number, at most [`BATCH`](super::BATCH).
    ///
    /// # Errors
    /// Those of the mechanism's `receive`; `WouldBlock` if no frame has arrived.
    pub fn receive(
        &self,
        mut on_frame: impl FnMut(Result<Received, Refused>),
    ) -> io::Result<usize> {
        match self {
            Self::Packet(socket, _) => socket.receive(on_frame),
            Self::Xdp(socket, pool) => socket.receive_chunks(|received| {
                on_frame(received.map(|received| {
                    // Frames that wait must leave chunks for those that arrive: above the limit they are copied.
                    let is_full = socket.held() > MOST_HELD;
                    received.map(|chunk| match is_full {
                        true => pool.copy_of(&chunk),
                        false => chunk.into(),
                    })
                }))
            }),
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
            Self::Xdp(socket, _) => socket.send_buffers(frames),
            Self::Tap(tap) => tap.send(frames.into_iter().map(bytes)),
        }
    }

    /// Whether the link had no room at the last call, so that frames accepted by [`send`](Self::send) may still wait
    /// for [`flush`](Self::flush).
    pub fn is_behind(&self) -> bool {
        match self {
            Self::Xdp(socket, _) => socket.is_behind(),
            Self::Packet(..) | Self::Tap(_) => false,
        }
    }

    /// Sends the frames that [`send`](Self::send) accepted and the link had no room for.
    pub fn flush(&self) {
        match self {
            Self::Xdp(socket, _) => socket.flush(),
            Self::Packet(..) | Self::Tap(_) => {}
        }
    }

    /// Counts frames that [`send`](Self::send) accepted and the link then refused, since the last call.
    pub fn take_refused(&self) -> u64 {
        match self {
            Self::Xdp(socket, _) => socket.take_refused(),
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
            Self::Xdp(socket, _) => socket.take_lost(),
            Self::Tap(tap) => tap.take_lost(),
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Packet(socket, _) => socket.as_fd(),
            Self::Xdp(socket, _) => socket.as_fd(),
            Self::Tap(tap) => tap.as_fd(),
        }
    }
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
            DeviceFailure::Xdp(XdpError::Queues(count)) => {
                write!(f, "cannot open {name} by AF_XDP: it has {count} queues")
            }
            DeviceFailure::Xdp(XdpError::Failed(step, error)) => {
                write!(f, "cannot open {name} by AF_XDP: {step:?}: {error}")
            }
            DeviceFailure::XdpCopies => write!(f, "AF_XDP copies the frames of {name}"),
            DeviceFailure::XdpMissesTags => write!(f, "AF_XDP loses VLAN tags on {name}"),
            DeviceFailure::Tap(error) => write!(f, "cannot create TAP device {name}: {error}"),
        }
    }
}

impl std::error::Error for DeviceError {}

/// The size of the receive and send buffers of AF_PACKET: about 40 ms at 1 Gbit/s.
const BUFFER_BYTES: usize = 4 << 20;

/// The most chunks of AF_XDP that waiting frames may hold. The others remain for frames that arrive.
const MOST_HELD: usize = XdpSocket::CHUNKS / 2;
