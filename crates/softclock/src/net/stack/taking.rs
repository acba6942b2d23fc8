//! Frames taken from the devices of a stack.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use softclock_linux::link::BATCH;

use crate::net::Kernel;
use crate::runtime::sources::Direction;

/// The result of taking frames.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Taken {
    pub(super) frames: usize,
    /// Whether a device may have more, because it gave as many as are taken at a time.
    pub(super) has_more: bool,
}

impl Taken {
    /// Adds what another device gave.
    pub(super) const fn and(self, more: Self) -> Self {
        Self {
            frames: self.frames + more.frames,
            has_more: self.has_more || more.has_more,
        }
    }
}

/// The meaning of a batch of fewer frames than are taken at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Short {
    /// The device was empty at its end, as with AF_XDP.
    Empty,
    /// An error may have ended it, which the next call returns.
    Unknown,
}

/// Takes a batch of frames from a device by `receive`, which reports `WouldBlock` if there is none.
pub(super) fn take<F: AsFd>(
    device: &Kernel<F>,
    short: Short,
    receive: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
) -> io::Result<Taken> {
    match device.quiet_call(Direction::Read, receive) {
        Ok(frames) => {
            let has_more = frames >= BATCH;
            if !has_more && short == Short::Empty {
                // What arrives from now on is reported.
                device.on_short(Direction::Read);
            }
            Ok(Taken { frames, has_more })
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Taken::default()),
        Err(error) => Err(error),
    }
}
