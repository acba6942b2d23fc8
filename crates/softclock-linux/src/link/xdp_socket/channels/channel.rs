//! One channel.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::{fmt, io, mem};

use super::super::chunks::Chunk;
use super::super::lock;
use super::credits::{Counts, Peers};
use super::slot::Slot;
use super::{EndpointKey, Shared};
use crate::link::{Received, Refused};

/// A bounded queue of the frames to one endpoint, filled by the XDP program. Dropping it removes the channel; frames in
/// it are discarded, and those held stay valid. Its descriptor is readable while it has frames.
pub struct XdpChannel {
    pub(super) slot: Arc<Slot>,
    pub(super) keys: Mutex<Vec<[u8; EndpointKey::BYTES]>>,
    limit: u32,
    /// The counts when the channel was added: its slot may have had another before.
    before: Counts,
    /// The counts when they were frozen.
    end: OnceLock<Counts>,
    shared: Arc<Shared>,
}

impl XdpChannel {
    /// Opens the channel by granting its credits.
    pub(super) fn over(slot: Arc<Slot>, limit: u32, shared: &Arc<Shared>) -> Self {
        let credits = &shared.maps.credits;
        let before = slot.begin();
        // The slot may have had a channel with another before.
        credits.reserve(slot.account, Peers::Preferred, 0);
        credits.reserve(slot.account, Peers::Others, 0);
        credits.grant(slot.account, limit.into());
        Self {
            keys: Mutex::default(),
            limit,
            before,
            end: OnceLock::new(),
            slot,
            shared: shared.clone(),
        }
    }

    /// Passes the frames that have arrived to `on_frame`, in order; returns their number, at most
    /// [`BATCH`](crate::link::BATCH). Reads memory, without a system call in most cases. The channel has room for
    /// another frame once a chunk is dropped.
    ///
    /// # Errors
    /// `WouldBlock` if no frame has arrived.
    pub fn receive(
        &self,
        on_frame: impl FnMut(Result<Received<Chunk>, Refused>),
    ) -> io::Result<usize> {
        let shared = &self.shared;
        let taken = self
            .slot
            .receive(&shared.chunks.0, shared.is_copied, on_frame);
        let credits = &shared.maps.credits;
        if taken.is_err()
            && credits.held(self.slot.account) == 0
            && credits.left(self.slot.account) <= 0
        {
            // All credits are with frames that the kernel is about to deliver, or has lost.
            self.slot.settle(credits)?;
        }
        taken
    }

    /// Ends the channel's part in demultiplexing: frames whose channel the program looks up from now on are to no
    /// endpoint. A frame whose channel it has found already may still arrive in the channel, or be discarded there, a
    /// little later. Makes a system call for each key.
    pub fn stop(&self) {
        for key in mem::take(&mut *lock(&self.keys)) {
            // The entry is there: no other channel can remove it.
            let _ = self.shared.maps.keys.remove(&key);
        }
    }

    /// Stops the channel as [`stop`](Self::stop) does, and then the counters of [`delivered`](Self::delivered) and
    /// [`discarded`](Self::discarded). Frames that the program still handles are counted by
    /// [`XdpChannels::take_late`](super::XdpChannels::take_late) once the channel is dropped. To count each frame once,
    /// neither receive frames nor call [`take_lost`](Self::take_lost) afterwards, which may find such a frame.
    pub fn freeze(&self) {
        self.end();
    }

    /// Freezes the counters, unless they are; returns the program's counts as they were then.
    fn end(&self) -> Counts {
        self.stop();
        *self.end.get_or_init(|| self.program_counts())
    }

    /// Undoes the adding of a channel: all of its frames count as late.
    pub(super) fn undo(self) {
        let _ = self.end.set(self.before);
    }

    /// The frames that the program has counted, of all channels of the slot.
    fn program_counts(&self) -> Counts {
        self.shared.maps.credits.counts(self.slot.account)
    }

    /// The frames of this channel.
    fn counts(&self) -> Counts {
        let end = self.end.get().copied();
        let end = end.unwrap_or_else(|| self.program_counts());
        end.since(self.before)
    }

    /// Keeps room for this number of frames from the SYNs of peers that are not
    /// [preferred](super::XdpChannels::prefer_peer): the program discards such a SYN, a segment that opens a connection,
    /// unless the channel has room for more frames. With [`limit`](Self::limit) it discards all of them. Writes memory.
    pub fn set_reserve(&self, frames: u32) {
        (self.shared.maps.credits).reserve(self.slot.account, Peers::Others, frames);
    }

    /// Like [`set_reserve`](Self::set_reserve), for the SYNs of preferred peers.
    pub fn set_preferred_reserve(&self, frames: u32) {
        (self.shared.maps.credits).reserve(self.slot.account, Peers::Preferred, frames);
    }

    /// The most frames that wait in the channel or are held.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The number of frames that were received from the channel and are held.
    pub fn held(&self) -> usize {
        self.shared.maps.credits.held(self.slot.account)
    }

    /// Counts the frames that the program put into the channel. Reads memory.
    pub fn delivered(&self) -> u64 {
        self.counts().delivered
    }

    /// Counts the frames that the program discarded since the channel was full. Reads memory.
    pub fn discarded(&self) -> u64 {
        self.counts().discarded
    }

    /// Counts frames that the kernel lost behind the program since the last call, and gives their room back to the
    /// channel. There are none unless the driver needs more memory than is spare, or frames are longer than
    /// [`XdpSocket::MOST_BYTES`](crate::link::XdpSocket::MOST_BYTES).
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn take_lost(&self) -> io::Result<u64> {
        self.slot.settle(&self.shared.maps.credits)?;
        Ok(self.slot.take_lost())
    }
}

impl AsFd for XdpChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.slot.socket.as_fd()
    }
}

impl fmt::Debug for XdpChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdpChannel")
            .field("socket", &self.slot.socket)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Drop for XdpChannel {
    fn drop(&mut self) {
        let end = self.end();
        let Shared { maps, .. } = &*self.shared;
        // Without credits, the program discards frames whose entry it has already found.
        maps.credits
            .grant(self.slot.account, -i64::from(self.limit));
        self.slot.drain(&self.shared.chunks.0);
        self.slot.end(end);
        lock(self.shared.slots(self.slot.account))
            .idle
            .push_back(self.slot.clone());
    }
}
