//! A link whose frames are ours, by whatever mechanism they come and go.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use softclock_wire::packet::Offload;

use super::{
    Copies, Link, PacketSocket, Pool, Received, Refused, Tap, XdpError, XdpSettings, XdpSocket,
};
use crate::bpf::{Attachment, shut_ingress};

/// A link taken over, or made. The kernel undoes all of it when the process ends.
#[derive(Debug)]
pub enum Device {
    /// An AF_PACKET socket, and the program that keeps the host from also handling the frames. The socket sees them
    /// before the program, at tcx, drops them.
    Packet(PacketSocket, Attachment),
    /// An AF_XDP socket: a program in the driver leaves nothing to the host. Frames wait in buffers of the pool once
    /// half of the socket's own memory is held.
    Xdp(Box<XdpSocket>, Pool),
    /// The other end of a link that the host has from us.
    Tap(Tap),
}

/// Why a device cannot be opened: the interface, and what failed on it.
#[derive(Debug)]
pub struct DeviceError {
    /// The name of the interface.
    pub interface: String,
    /// What failed on it.
    pub failure: DeviceFailure,
}

/// What failed when a device was opened.
#[derive(Debug)]
pub enum DeviceFailure {
    /// Frames cannot be received by AF_PACKET: `PermissionDenied` without CAP_NET_RAW, `Unsupported` for links without
    /// Ethernet's headers.
    Packet(io::Error),
    /// The host cannot be kept from handling the frames: `PermissionDenied` without CAP_BPF and CAP_NET_ADMIN,
    /// `InvalidInput` where the kernel has no tcx (Linux 6.6).
    ShutIngress(io::Error),
    /// No AF_XDP.
    Xdp(XdpError),
    /// AF_XDP would copy each frame, as it always does on virtual links.
    XdpCopies,
    /// The device takes tags of VLANs off frames, which AF_XDP would miss.
    XdpMissesTags,
    /// No TAP device: see [`Tap::create`].
    Tap(io::Error),
}

impl Device {
    /// Takes a link over by AF_PACKET.
    ///
    /// # Errors
    /// [`DeviceFailure::Packet`] and [`DeviceFailure::ShutIngress`]. Nothing of the link is changed then.
    pub fn open_packet(link: &Link) -> Result<Self, DeviceError> {
        let socket = PacketSocket::open(link, BUFFER_BYTES)
            .map_err(|error| link.failed(DeviceFailure::Packet(error)))?;
        let shut = shut_ingress(link.index())
            .map_err(|error| link.failed(DeviceFailure::ShutIngress(error)))?;
        Ok(Self::Packet(socket, shut))
    }

    /// Takes a link over by AF_XDP.
    ///
    /// # Errors
    /// [`DeviceFailure::Xdp`].
    pub fn open_xdp(link: &Link, copies: Copies) -> Result<Self, DeviceError> {
        let settings = XdpSettings {
            copies,
            queue: None,
        };
        let socket = XdpSocket::open(link, settings);
        let socket = socket.map_err(|error| link.failed(DeviceFailure::Xdp(error)))?;
        Ok(Self::Xdp(Box::new(socket), Pool::new()))
    }

    /// Takes a link over by AF_XDP where that costs less than AF_PACKET, and no frame comes without something of it.
    ///
    /// # Errors
    /// Those of [`open_xdp`](Self::open_xdp) and [`check_xdp_without_copies`](Self::check_xdp_without_copies).
    pub fn open_xdp_without_copies(link: &Link) -> Result<Self, DeviceError> {
        let opened = Self::open_xdp(link, Copies::Never)?;
        // A program may have the driver change what it does for frames.
        Self::check_xdp_without_copies(link).map(|()| opened)
    }

    /// Looks, without touching the link, for reasons why
    /// [`open_xdp_without_copies`](Self::open_xdp_without_copies) would fail.
    ///
    /// # Errors
    /// The first such reason.
    pub fn check_xdp_without_copies(link: &Link) -> Result<(), DeviceError> {
        let failure = match link.receive_queues() {
            _ if link.is_virtual() => DeviceFailure::XdpCopies,
            queues @ 2.. => DeviceFailure::Xdp(XdpError::Queues(queues)),
            _ if link.takes_tags_off() => DeviceFailure::XdpMissesTags,
            _ => return Ok(()),
        };
        Err(link.failed(failure))
    }

    /// Makes a TAP device, which is up and goes with this; returns its link, too.
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

    /// Takes frames that are there, in order, each in the memory that the kernel wrote it to; returns how many,
    /// [`BATCH`](super::BATCH) at most.
    ///
    /// # Errors
    /// Those of the mechanism's `receive`; `WouldBlock` if there is none.
    pub fn receive(
        &self,
        mut on_frame: impl FnMut(Result<Received, Refused>),
    ) -> io::Result<usize> {
        match self {
            Self::Packet(socket, _) => socket.receive(on_frame),
            Self::Xdp(socket, pool) => socket.receive_chunks(|received| {
                on_frame(received.map(|received| {
                    // Else frames that wait would leave no memory for those that arrive.
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

    /// Sends frames in order; returns how many, [`BATCH`](super::BATCH) at most.
    ///
    /// # Errors
    /// Those of the first frame; see the mechanism's `send`.
    pub fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        match self {
            Self::Packet(socket, _) => socket.send(frames),
            Self::Xdp(socket, _) => socket.send(frames),
            Self::Tap(tap) => tap.send(frames),
        }
    }

    /// Whether the link had no room, so that some of what was taken to be sent may wait for [`flush`](Self::flush).
    pub fn is_behind(&self) -> bool {
        match self {
            Self::Xdp(socket, _) => socket.is_behind(),
            Self::Packet(..) | Self::Tap(_) => false,
        }
    }

    /// Sends what was taken to be sent, but found no room on the link.
    pub fn flush(&self) {
        match self {
            Self::Xdp(socket, _) => socket.flush(),
            Self::Packet(..) | Self::Tap(_) => {}
        }
    }

    /// Frames that were sent, and that the link refused since the last call.
    pub fn take_refused(&self) -> u64 {
        match self {
            Self::Xdp(socket, _) => socket.take_refused(),
            Self::Packet(..) | Self::Tap(_) => 0,
        }
    }

    /// Frames that were lost since the last call because they were not taken in time.
    ///
    /// # Errors
    /// Those of the mechanism's `take_lost`: a TAP device may be in another namespace.
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
            DeviceFailure::Packet(error) => write!(f, "no frames of {name} by AF_PACKET: {error}"),
            DeviceFailure::ShutIngress(error) => write!(f, "no tcx on {name}: {error}"),
            DeviceFailure::Xdp(XdpError::Queues(count)) => {
                write!(f, "no AF_XDP on {name}: it has {count} queues")
            }
            DeviceFailure::Xdp(XdpError::Failed(step, error)) => {
                write!(f, "no AF_XDP on {name}: {step:?}: {error}")
            }
            DeviceFailure::XdpCopies => write!(f, "AF_XDP copies the frames of {name}"),
            DeviceFailure::XdpMissesTags => write!(f, "AF_XDP misses tags of VLANs on {name}"),
            DeviceFailure::Tap(error) => write!(f, "no TAP device {name}: {error}"),
        }
    }
}

impl std::error::Error for DeviceError {}

/// Frames that wait in the kernel: 40 ms at 1 Gbit/s.
const BUFFER_BYTES: usize = 4 << 20;

/// Chunks of AF_XDP that are held at most: the others are for what arrives meanwhile.
const MOST_HELD: usize = XdpSocket::CHUNKS / 2;
