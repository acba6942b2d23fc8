//! The owner's calls (RFC 9293, 3.9.1).

use alloc::sync::Arc;
use core::ops::Deref;
use core::time::Duration;

use bytes::Bytes;

use super::{Connection, Phase};
use crate::tcp::payload::Payload;
use crate::tcp::receive::Receiver;
use crate::tcp::send::{SendEvents, Sender};
use crate::tcp::seq::Seq;
use crate::tcp::settings::Settings;
use crate::tcp::state::State;
use crate::tcp::stats::ConnectionStats;

impl<B: Deref<Target = [u8]>> Connection<B> {
    /// Moves bytes that have arrived to `into` and returns their number.
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        self.receiver_mut()
            .map_or(0, |receiver| receiver.read(into))
    }

    /// Copies bytes that have arrived to `into`, without reading them, and returns their number.
    pub fn peek(&self, into: &mut [u8]) -> usize {
        self.receiver().map_or(0, |receiver| receiver.peek(into))
    }

    /// Reads the bytes of the first segment without copying them.
    pub fn take(&mut self) -> Option<Payload<B>> {
        self.receiver_mut()?.take()
    }

    /// The number of bytes that can be read.
    pub fn readable(&self) -> usize {
        self.receiver().map_or(0, Receiver::readable)
    }

    /// The size of the receive buffer, in bytes. Before the handshake is complete, that of the settings.
    pub fn receive_buffer(&self) -> u32 {
        let chosen = self.settings.receive.buffer_bytes;
        self.receiver().map_or(chosen, Receiver::buffer_bytes)
    }

    /// Whether no byte will follow those that have arrived: the peer has closed its half, or the connection is over.
    pub fn is_at_end(&self) -> bool {
        let is_finished = self.receiver().is_some_and(Receiver::is_finished);
        is_finished || (self.state == State::Closed && self.readable() == 0)
    }

    /// Appends bytes to those to send.
    ///
    /// # Errors
    /// Returns the bytes if there is no [room](Self::room) for all of them, or if this half is not open.
    pub fn write(&mut self, bytes: Bytes) -> Result<(), Bytes> {
        if !self.state.may_write() {
            return Err(bytes);
        }
        match &mut self.phase {
            Phase::Open(open) => open.sender.write(bytes),
            _ => Err(bytes),
        }
    }

    /// The bytes that [`write`](Self::write) takes now. 0 unless this half is open.
    pub fn room(&self) -> usize {
        match self.state.may_write() {
            true => self.sender().map_or(0, Sender::room),
            false => 0,
        }
    }

    /// Learns that a writer waits for room: [`Events::is_writable`](super::Events::is_writable) says when there is
    /// some.
    pub fn await_room(&mut self) {
        if let Phase::Open(open) = &mut self.phase {
            open.sender.await_room();
        }
    }

    /// Whether an acknowledgment could free what a writer waits for: bytes that are not sent yet, or a full buffer.
    pub fn waits_for_acknowledgment(&self) -> bool {
        self.sender().is_some_and(Sender::has_unsent)
    }

    /// Limits the rate of sending, in bytes a second, headers not counted; `None`: as congestion control allows.
    pub fn set_pace(&mut self, bytes_per_second: Option<u64>) {
        if let Phase::Open(open) = &mut self.phase {
            open.sender.set_rate(bytes_per_second);
        }
    }

    /// The bytes that wait for the stated rate: see [`Sender::held_back`].
    pub fn held_back(&self) -> usize {
        self.sender().map_or(0, Sender::held_back)
    }

    /// The position that is expected next (RCV.NXT). 0 before the peer's SYN has arrived.
    pub fn receive_next(&self) -> Seq {
        self.receiver().map_or(Seq(0), Receiver::next)
    }

    /// Whether bytes have arrived beyond a gap.
    pub fn has_gap(&self) -> bool {
        self.receiver().is_some_and(Receiver::has_gap)
    }

    /// The next position to send and the next to receive (SND.NXT, RCV.NXT). 0 before the handshake is complete.
    pub fn numbers(&self) -> (Seq, Seq) {
        let next = self.sender().map_or(Seq(0), Sender::next);
        (next, self.receive_next())
    }

    /// Whether an acknowledgment repeats the last one while data is outstanding: a sign of loss.
    pub fn is_duplicate(&self, acknowledgment: Seq) -> bool {
        let sender = self.sender().filter(|sender| !sender.is_all_acked());
        sender.is_some_and(|sender| sender.una() == acknowledgment)
    }

    /// The smoothed round-trip time.
    pub fn round_trip(&self) -> Option<Duration> {
        self.sender()?.srtt()
    }

    /// Notes that the owner is gone: errors are not kept for it.
    pub const fn set_orphan(&mut self) {
        self.is_orphan = true;
        self.error = None;
    }

    /// The bytes that were written and that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.sender().map_or(0, Sender::unacknowledged)
    }

    /// Sets whether a short segment waits while another is in flight. Has no effect before the connection is open.
    /// Unlike a change of the settings, this takes no memory.
    pub fn set_nagle(&mut self, has_nagle: bool) {
        if let Phase::Open(open) = &mut self.phase {
            open.sender.set_nagle(has_nagle);
        }
    }

    /// Returns whether a short segment waits while another is in flight.
    pub fn has_nagle(&self) -> bool {
        let sender = self.sender();
        sender.map_or(self.settings.send.has_nagle, Sender::has_nagle)
    }

    /// Changes the settings, of which the connection then has a copy of its own. Those of buffers, of the handshake, of
    /// Nagle's algorithm and of congestion control count for new connections only; the user timeout and all of this
    /// module count at once. The clock of the time stamps stays.
    pub fn change_settings(&mut self, change: impl FnOnce(&mut Settings)) {
        let settings = Arc::make_mut(&mut self.settings);
        let clock = settings.send.clock;
        change(settings);
        settings.send.clock = clock;
        if let Phase::Open(open) = &mut self.phase {
            open.sender
                .set_user_timeout(self.settings.send.user_timeout);
        }
    }

    /// The memory of the bytes that have arrived and of those to send.
    pub fn memory_bytes(&self) -> usize {
        match &self.phase {
            Phase::Open(open) => open.receiver.memory_bytes() + open.sender.buffered(),
            _ => 0,
        }
    }

    /// The memory of the bytes that have arrived.
    pub fn received_memory_bytes(&self) -> usize {
        self.receiver().map_or(0, Receiver::memory_bytes)
    }

    /// The memory of the bytes to send.
    pub fn send_memory_bytes(&self) -> usize {
        self.sender().map_or(0, Sender::buffered)
    }

    /// Takes what has happened to the sending half since the last call.
    pub fn take_events(&mut self) -> SendEvents {
        match &mut self.phase {
            Phase::Open(open) => open.sender.take_events(),
            _ => SendEvents::default(),
        }
    }

    /// The counters, and the state of congestion control.
    pub fn stats(&self) -> ConnectionStats {
        match &self.phase {
            Phase::Open(open) => {
                ConnectionStats::of(self.state, open.segments_received, &open.sender)
            }
            _ => ConnectionStats::new(self.state),
        }
    }

    fn receiver(&self) -> Option<&Receiver<B>> {
        match &self.phase {
            Phase::Open(open) => Some(&open.receiver),
            _ => None,
        }
    }

    fn receiver_mut(&mut self) -> Option<&mut Receiver<B>> {
        match &mut self.phase {
            Phase::Open(open) => Some(&mut open.receiver),
            _ => None,
        }
    }

    fn sender(&self) -> Option<&Sender> {
        match &self.phase {
            Phase::Open(open) => Some(&open.sender),
            _ => None,
        }
    }
}
