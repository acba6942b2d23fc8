//! By what frames come from a link and go to it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use clap::ValueEnum;
use softclock_linux::bpf::Attachment;
use softclock_linux::link::{Copies, Link, PacketSocket, Received, Refused, Tap, XdpSocket};
use softclock_wire::packet::Offload;

use super::{packet, xdp};
use crate::bridge::BridgeError;
use crate::bridge::side::{Side, make_tap};

/// A link taken over, or made. The kernel undoes all of it when the process ends.
#[derive(Debug)]
pub(super) enum Mechanism {
    /// An AF_PACKET socket, and what keeps the host from also handling what arrives.
    Packet(
        PacketSocket,
        #[expect(dead_code, reason = "held for its end")] Attachment,
    ),
    /// An AF_XDP socket, which leaves nothing to the host.
    Xdp(Box<XdpSocket>),
    /// The other end of a link that the host has from us.
    Tap(Tap),
}

/// What the user asks for.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MechanismChoice {
    /// AF_XDP where the drivers of both interfaces do it without copies, and both have one queue and rxvlan off; else AF_PACKET
    Auto,
    /// AF_PACKET
    Packet,
    /// AF_XDP, with copies if need be
    Xdp,
}

impl Mechanism {
    /// Takes both links over by the same, or makes those that are to be made; says by what and why.
    pub(super) fn open_both(
        sides: &[Side; 2],
        choice: MechanismChoice,
    ) -> Result<([(Link, Self); 2], String), BridgeError> {
        if sides.iter().all(|side| side.link().is_none()) {
            return Ok((both(sides, packet::open)?, "TAP".into()));
        }
        match choice {
            MechanismChoice::Packet => Ok((both(sides, packet::open)?, "AF_PACKET".into())),
            MechanismChoice::Xdp => {
                let no_xdp = |why| BridgeError(format!("no AF_XDP: {why}"));
                let take = |link: &Link| xdp::open(link, Copies::Allowed).map_err(no_xdp);
                Ok((both(sides, take)?, "AF_XDP".into()))
            }
            MechanismChoice::Auto => {
                // Without copies, drivers set rings up anew: not before it is known that both links may do.
                let mut links = sides.iter().filter_map(Side::link);
                let may_serve = links.try_for_each(xdp::may_serve);
                let take = |link: &Link| xdp::open_where_it_serves(link).map_err(BridgeError);
                match may_serve
                    .map_err(BridgeError)
                    .and_then(|()| both(sides, take))
                {
                    Ok(opened) => Ok((opened, "AF_XDP".into())),
                    Err(BridgeError(why)) => {
                        let opened = both(sides, packet::open)?;
                        Ok((opened, format!("AF_PACKET rather than AF_XDP, since {why}")))
                    }
                }
            }
        }
    }

    /// How it is called in reports.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Packet(..) => "packet",
            Self::Xdp(_) => "xdp",
            Self::Tap(_) => "tap",
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
            Self::Tap(tap) => tap.receive(on_frame),
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
            Self::Tap(tap) => tap.send(frames),
        }
    }

    /// Whether the link had no room, so that some of what was taken to be sent may wait for [`flush`](Self::flush).
    pub(super) fn is_behind(&self) -> bool {
        match self {
            Self::Xdp(socket) => socket.is_behind(),
            Self::Packet(..) | Self::Tap(_) => false,
        }
    }

    /// Sends what was taken to be sent, but found no room on the link.
    pub(super) fn flush(&self) {
        match self {
            Self::Xdp(socket) => socket.flush(),
            Self::Packet(..) | Self::Tap(_) => {}
        }
    }

    /// Frames that were sent, and that the link refused since the last call.
    pub(super) fn take_refused(&self) -> u64 {
        match self {
            Self::Xdp(socket) => socket.take_refused(),
            Self::Packet(..) | Self::Tap(_) => 0,
        }
    }

    /// Frames that were lost since the last call because nobody took them in time.
    pub(super) fn take_lost(&self) -> io::Result<u64> {
        match self {
            Self::Packet(socket, _) => socket.take_lost(),
            Self::Xdp(socket) => socket.take_lost(),
            Self::Tap(tap) => tap.take_lost(),
        }
    }
}

impl AsFd for Mechanism {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Packet(socket, _) => socket.as_fd(),
            Self::Xdp(socket) => socket.as_fd(),
            Self::Tap(tap) => tap.as_fd(),
        }
    }
}

/// Takes over those links that are there, and then makes the others.
fn both(
    [a, b]: &[Side; 2],
    take: impl Fn(&Link) -> Result<Mechanism, BridgeError>,
) -> Result<[(Link, Mechanism); 2], BridgeError> {
    let open = |side: &Side| match side {
        Side::Link(link) => Ok((link.clone(), take(link)?)),
        Side::Tap(name) => {
            let tap = make_tap(name)?;
            Ok((tap.link().clone(), Mechanism::Tap(tap)))
        }
    };
    match (a, b) {
        (Side::Tap(_), Side::Link(_)) => {
            let b = open(b)?;
            Ok([open(a)?, b])
        }
        _ => Ok([open(a)?, open(b)?]),
    }
}
