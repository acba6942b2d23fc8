//! By what frames come from a link and go to it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use clap::ValueEnum;
use softclock_core::packet::Offload;
use softclock_linux::bpf::Attachment;
use softclock_linux::link::{Copies, Link, PacketSocket, Received, Refused, XdpSocket};

use super::{packet, xdp};
use crate::bridge::BridgeError;

/// A link taken over. The kernel undoes all of it when the process ends.
#[derive(Debug)]
pub(super) enum Mechanism {
    /// An AF_PACKET socket, and what keeps the host from also handling what arrives.
    Packet(
        PacketSocket,
        #[expect(dead_code, reason = "held for its end")] Attachment,
    ),
    /// An AF_XDP socket, which leaves nothing to the host.
    Xdp(XdpSocket),
}

/// What the user asks for.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MechanismChoice {
    /// AF_XDP where the drivers of both interfaces do it without copies, else AF_PACKET
    Auto,
    /// AF_PACKET
    Packet,
    /// AF_XDP, with copies if need be
    Xdp,
}

impl Mechanism {
    /// Takes both links over by the same, and says by what and why.
    pub(super) fn open_both(
        links: [&Link; 2],
        choice: MechanismChoice,
    ) -> Result<([Self; 2], String), BridgeError> {
        match choice {
            MechanismChoice::Packet => Ok((both(links, packet::open)?, "AF_PACKET".into())),
            MechanismChoice::Xdp => {
                let opened = both(links, |link| xdp::open(link, Copies::Allowed));
                let opened = opened.map_err(|why| BridgeError(format!("no AF_XDP: {why}")))?;
                Ok((opened, "AF_XDP".into()))
            }
            MechanismChoice::Auto => match both(links, xdp::open_where_it_serves) {
                Ok(opened) => Ok((opened, "AF_XDP".into())),
                Err(why) => {
                    let opened = both(links, packet::open)?;
                    Ok((opened, format!("AF_PACKET rather than AF_XDP, since {why}")))
                }
            },
        }
    }

    /// How it is called in reports.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Packet(..) => "packet",
            Self::Xdp(_) => "xdp",
        }
    }

    /// Takes frames that are there, in order; tells how many.
    pub(super) fn receive(
        &self,
        on_frame: impl FnMut(Result<Received<'_>, Refused>),
    ) -> io::Result<usize> {
        match self {
            Self::Packet(socket, _) => socket.receive(on_frame),
            Self::Xdp(socket) => socket.receive(on_frame),
        }
    }

    /// Sends frames in order; tells how many. The error is the first one's.
    pub(super) fn send<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        match self {
            Self::Packet(socket, _) => socket.send(frames),
            Self::Xdp(socket) => socket.send(frames),
        }
    }

    /// Frames that were lost since the last call because nobody took them in time.
    pub(super) fn take_lost(&self) -> io::Result<u64> {
        match self {
            Self::Packet(socket, _) => socket.take_lost(),
            Self::Xdp(socket) => socket.take_lost(),
        }
    }
}

impl AsFd for Mechanism {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Packet(socket, _) => socket.as_fd(),
            Self::Xdp(socket) => socket.as_fd(),
        }
    }
}

fn both<E>(
    [a, b]: [&Link; 2],
    open: impl Fn(&Link) -> Result<Mechanism, E>,
) -> Result<[Mechanism; 2], E> {
    Ok([open(a)?, open(b)?])
}
