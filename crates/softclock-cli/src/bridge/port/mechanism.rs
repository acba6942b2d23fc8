//! By what frames come from a link and go to it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use softclock_core::packet::Offload;
use softclock_linux::bpf::{self, Attachment};
use softclock_linux::link::{Link, PacketSocket, Received, Refused};

use crate::bridge::BridgeError;

/// A link taken over. The kernel undoes all of it when the process ends.
#[derive(Debug)]
pub(super) enum Mechanism {
    /// An AF_PACKET socket, and what keeps the host from also handling what arrives.
    Packet(
        PacketSocket,
        #[expect(dead_code, reason = "held for its end")] Attachment,
    ),
}

impl Mechanism {
    pub(super) fn open(link: &Link) -> Result<Self, BridgeError> {
        let socket = PacketSocket::open(link, BUFFER_BYTES);
        let socket = socket.map_err(|error| not_taken(link, &error))?;
        let shut = bpf::shut_ingress(link.index()).map_err(|error| not_shut(link, &error))?;
        Ok(Self::Packet(socket, shut))
    }

    /// Takes frames that are there, in order.
    pub(super) fn receive(
        &self,
        on_frame: impl FnMut(Result<Received<'_>, Refused>),
    ) -> io::Result<usize> {
        match self {
            Self::Packet(socket, _) => socket.receive(on_frame),
        }
    }

    /// Sends frames in order; tells how many. The error is the first one's.
    pub(super) fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        match self {
            Self::Packet(socket, _) => socket.send(frames),
        }
    }

    /// Frames that were lost since the last call because nobody took them in time.
    pub(super) fn take_lost(&self) -> io::Result<u64> {
        match self {
            Self::Packet(socket, _) => socket.take_lost(),
        }
    }
}

impl AsFd for Mechanism {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Packet(socket, _) => socket.as_fd(),
        }
    }
}

fn not_taken(link: &Link, error: &io::Error) -> BridgeError {
    let name = link.name();
    BridgeError(match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("no permission to take frames from {name}: it needs root or CAP_NET_RAW")
        }
        io::ErrorKind::Unsupported => format!("{name} has no Ethernet frames"),
        _ => format!("cannot take frames from {name}: {error}"),
    })
}

fn not_shut(link: &Link, error: &io::Error) -> BridgeError {
    let name = link.name();
    BridgeError(match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "no permission to keep the host from handling the frames of {name}: it needs root, or CAP_BPF and CAP_NET_ADMIN"
        ),
        io::ErrorKind::InvalidInput => {
            format!("cannot keep the host from handling the frames of {name}: tcx needs Linux 6.6")
        }
        _ => format!("cannot keep the host from handling the frames of {name}: {error}"),
    })
}

/// Frames that wait in the kernel: 40 ms at 1 Gbit/s.
const BUFFER_BYTES: usize = 4 << 20;
