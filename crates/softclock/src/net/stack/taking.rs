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
    /// Completions of transmissions.
    pub(super) completions: usize,
    /// Whether a device may have more: it has filled a batch.
    pub(super) has_more: bool,
}

impl Taken {
    /// Adds the frames and completions of another device.
    pub(super) const fn and(self, more: Self) -> Self {
        Self {
            frames: self.frames + more.frames,
            completions: self.completions + more.completions,
            has_more: self.has_more || more.has_more,
        }
    }
}

/// The state of a device after a batch that is not full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Short {
    /// It is empty, as with AF_XDP.
    Empty,
    /// An error may have ended the batch. The next call returns it.
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
                // The poller reports the next arrival.
                device.on_short(Direction::Read);
            }
            Ok(Taken {
                frames,
                has_more,
                ..Taken::default()
            })
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Taken::default()),
        Err(error) => Err(error),
    }
}
