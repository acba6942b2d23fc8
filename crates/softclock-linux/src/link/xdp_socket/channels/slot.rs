//! The socket of a channel. It outlives the channel, since opening and closing sockets is slow.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::{io, mem};

use rustix::net::xdp::{XDP_PGOFF_RX_RING, XdpDesc};
use rustix::net::{AddressFamily, SocketType, socket_with, sockopt};

use super::super::chunks::{Account, Chunk, Chunks};
use super::super::lock;
use super::super::receiving::take_batch;
use super::super::ring::Consumer;
use super::credits::{Counts, Credits};
use crate::link::{Received, Refused};
use crate::socket::NEW_SOCKET;

/// A socket with a receive ring, which has no fill ring of its own.
pub(super) struct Slot {
    /// Also the index of the socket in the program's maps.
    pub(super) account: Account,
    /// Dropped before the descriptor: a mapped ring would keep the socket open.
    arrived: Mutex<Consumer<XdpDesc>>,
    pub(super) socket: OwnedFd,
    losses: Mutex<Losses>,
    /// The program's counts up to which each frame is counted: by a channel that is removed, or as late.
    counted: Mutex<Counts>,
}

/// The frames that the kernel had lost at the last look, and those of them that are reported.
#[derive(Default)]
struct Losses {
    found: u64,
    reported: u64,
}

/// The slots of the channels of a class.
#[derive(Default)]
pub(super) struct Slots {
    /// Those of removed channels. Some of their frames may be held still.
    pub(super) idle: VecDeque<Arc<Slot>>,
    /// The number of all.
    pub(super) opened: u32,
    /// The late frames of slots that have another channel since, without those that were taken.
    pub(super) late: u64,
}

impl Slot {
    pub(super) fn new(account: Account, socket: OwnedFd, arrived: Consumer<XdpDesc>) -> Self {
        Self {
            account,
            arrived: Mutex::new(arrived),
            socket,
            losses: Mutex::default(),
            counted: Mutex::default(),
        }
    }

    /// Begins a channel, which has no credits yet; returns the counts from which on the frames are its own.
    pub(super) fn begin(&self) -> Counts {
        // Those of the removed channel are among the frames that it counted as delivered.
        self.take_lost();
        *lock(&self.counted)
    }

    /// Ends a channel that has counted the frames up to `end`.
    pub(super) fn end(&self, end: Counts) {
        *lock(&self.counted) = end;
    }

    /// Counts the frames that the program has handled since the channel ended, or since the last call.
    pub(super) fn take_late(&self, credits: &Credits) -> u64 {
        let mut counted = lock(&self.counted);
        let now = credits.counts(self.account);
        let late = now.since(mem::replace(&mut *counted, now));
        late.delivered + late.discarded
    }

    /// Passes the frames that have arrived to `on_frame`.
    pub(super) fn receive(
        &self,
        chunks: &Arc<Chunks>,
        is_copied: bool,
        on_frame: impl FnMut(Result<Received<Chunk>, Refused>),
    ) -> io::Result<usize> {
        let mut arrived = lock(&self.arrived);
        take_batch(&mut arrived, chunks, self.account, is_copied, on_frame)
    }

    /// Discards the frames that have arrived. Ends, since a removed channel has no credits for others.
    pub(super) fn drain(&self, chunks: &Arc<Chunks>) {
        while self.receive(chunks, false, drop).is_ok() {}
    }

    /// Gives the credits of frames back that the kernel has lost behind the program, since no chunk was free, the ring
    /// was full or the frame was too long. A system call.
    pub(super) fn settle(&self, credits: &Credits) -> io::Result<()> {
        // Before the look, so that another thread's look is not an earlier one.
        let mut losses = lock(&self.losses);
        let statistics = sockopt::xdp_statistics(&self.socket)?;
        let lost = statistics.rx_dropped + statistics.rx_ring_full.unwrap_or(0);
        let fresh = lost - losses.found;
        losses.found = lost;
        if fresh > 0 {
            credits.grant(self.account, fresh as i64);
        }
        Ok(())
    }

    /// The losses found since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        let mut losses = lock(&self.losses);
        let fresh = losses.found - losses.reported;
        losses.reported = losses.found;
        fresh
    }
}

/// Creates a socket with a receive ring for this number of frames, not yet bound to a queue.
pub(super) fn prepare(frames: u32) -> io::Result<(OwnedFd, Consumer<XdpDesc>)> {
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, NEW_SOCKET, None)?;
    let entries = frames.next_power_of_two();
    sockopt::set_xdp_rx_ring_size(&socket, entries)?;
    let offsets = sockopt::xdp_mmap_offsets(&socket)?;
    let arrived = Consumer::map(socket.as_fd(), XDP_PGOFF_RX_RING, &offsets.rx, entries)?;
    Ok((socket, arrived))
}
