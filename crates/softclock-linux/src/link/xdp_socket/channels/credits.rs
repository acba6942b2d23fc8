//! The credits of channels: a channel has one for each frame that it has room for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::Account;
use crate::bpf::SharedArray;

/// The credits and counters of all channels, in an array that the XDP program and this process share.
///
/// The program takes a credit for each frame that it puts into a channel, and discards a frame that finds none. This
/// process gives the credit back with the frame's chunk. Credits are added and subtracted, never set, so neither side
/// loses a change of the other. The reserves are set, and by this process only.
#[derive(Debug)]
pub(in super::super) struct Credits {
    array: SharedArray,
    /// The number of frames of each account that this process holds.
    held: Box<[AtomicUsize]>,
}

impl Credits {
    /// Creates this number of accounts without credits.
    pub(super) fn new(accounts: u32) -> io::Result<Self> {
        Ok(Self {
            array: SharedArray::new(accounts)?,
            held: (0..accounts).map(|_| AtomicUsize::new(0)).collect(),
        })
    }

    /// Changes the credits of an account by this number.
    pub(super) fn grant(&self, account: Account, credits: i64) {
        // Two's complement: adding a negative number wraps.
        self.array.entry(account.0)[CREDITS].fetch_add(credits as u64, Relaxed);
    }

    /// Keeps this number of credits from SYNs of these peers.
    pub(super) fn reserve(&self, account: Account, from: Peers, credits: u32) {
        // Negative, since the program adds it.
        let reserve = (-i64::from(credits)) as u64;
        let entry = &self.array.entry(account.0)[from.reserve()];
        // The program writes to the same cache line.
        if entry.load(Relaxed) != reserve {
            entry.store(reserve, Relaxed);
        }
    }

    /// Counts a frame that this process has taken.
    pub(in super::super) fn hold(&self, account: Account) {
        self.held[account.0 as usize].fetch_add(1, Relaxed);
    }

    /// Gives the credit of a frame back whose chunk is in the fill ring again.
    pub(in super::super) fn give_back(&self, account: Account) {
        self.held[account.0 as usize].fetch_sub(1, Relaxed);
        // The program reads the credits only to choose the action: the fill ring orders the accesses to the chunk.
        self.grant(account, 1);
    }

    /// The number of frames that this process holds.
    pub(super) fn held(&self, account: Account) -> usize {
        self.held[account.0 as usize].load(Relaxed)
    }

    /// The number of further frames that the program may put into the channel. Negative for a removed channel with
    /// frames that are held or on their way.
    pub(super) fn left(&self, account: Account) -> i64 {
        self.array.entry(account.0)[CREDITS].load(Relaxed) as i64
    }

    /// Counts the frames that the program has handled on this account.
    pub(super) fn counts(&self, account: Account) -> Counts {
        let entry = self.array.entry(account.0);
        Counts {
            delivered: entry[DELIVERED].load(Relaxed),
            discarded: entry[DISCARDED].load(Relaxed),
        }
    }
}

/// The frames of an account since it was created: of all channels that had it, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Those that the program put into channels.
    pub(super) delivered: u64,
    /// Those that it discarded.
    pub(super) discarded: u64,
}

impl Counts {
    /// The frames since these counts were `before`.
    pub(super) const fn since(self, before: Self) -> Self {
        Self {
            delivered: self.delivered.wrapping_sub(before.delivered),
            discarded: self.discarded.wrapping_sub(before.discarded),
        }
    }
}

impl AsFd for Credits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.array.as_fd()
    }
}

/// The words of an account.
pub(super) const CREDITS: usize = 0;
pub(super) const DELIVERED: usize = 1;
pub(super) const DISCARDED: usize = 2;

/// The senders of SYNs, by whether they are preferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Peers {
    Preferred,
    Others,
}

impl Peers {
    /// The word of the credits that their SYNs leave to other segments, negative.
    pub(super) const fn reserve(self) -> usize {
        match self {
            Self::Others => 3,
            Self::Preferred => 4,
        }
    }
}
