//! The frames that the kernel has to send: copied to chunks of the socket's own, or in the chunks that they were
//! received into, which are lent to the kernel.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::{io, mem};

use rustix::io::Errno;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};
use rustix::net::{SendFlags, send};
use softclock_wire::packet::{Headers, Offload, complete_checksum, segments};

use super::XdpSocket;
use super::chunks::Chunk;
use super::ring::{Consumer, Producer};
use super::umem::{self, Share, Umem, chunk_of};
use crate::link::{BATCH, Buffer};

/// The sending half of the socket.
pub(super) struct Sending {
    leaving: Producer<XdpDesc>,
    completed: Consumer<u64>,
    umem: Arc<Umem>,
    share: Share,
    /// The chunks of the share to send from that hold no frame.
    free: Vec<u64>,
    /// The received frames that the kernel has to send, by the number of their chunk in the whole memory.
    lent: Box<[Option<Chunk>]>,
    /// Whether the link has a transmit queue for the socket.
    has_queue: bool,
    /// Whether the kernel copies frames, and so sends them within a call.
    is_copied: bool,
    /// The last wake-up failed, as while the link is down: no frame leaves until one succeeds.
    is_stuck: bool,
    /// The kernel had no room at the last call for the frames submitted, or there was no room for another frame.
    is_behind: bool,
    /// Frames that the kernel accepted and the link refused, not yet reported.
    refused: u64,
}

impl Sending {
    pub(super) fn new(
        umem: Arc<Umem>,
        share: Share,
        leaving: Producer<XdpDesc>,
        completed: Consumer<u64>,
    ) -> Self {
        Self {
            leaving,
            completed,
            free: share.to_send().collect(),
            lent: (0..umem.chunks()).map(|_| None).collect(),
            umem,
            share,
            has_queue: true,
            is_copied: false,
            is_stuck: false,
            is_behind: false,
            refused: 0,
        }
    }

    /// Notes whether the queue that the socket is bound to can send, and whether its frames are copied.
    pub(super) fn on_bound(&mut self, has_queue: bool, is_copied: bool) {
        (self.has_queue, self.is_copied) = (has_queue, is_copied);
    }

    /// Whether the link has a transmit queue for the socket.
    pub(super) const fn can_send(&self) -> bool {
        self.has_queue
    }

    /// Sends frames as [`XdpSocket::send`] does.
    pub(super) fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        frames: impl IntoIterator<Item = (&'a [u8], &'a Offload)>,
    ) -> io::Result<usize> {
        self.send_by(socket, frames, |sending, frame, offload| {
            sending.put_all(socket, frame, offload)
        })
    }

    /// Sends frames as [`XdpSocket::send_buffers`] does.
    pub(super) fn send_buffers<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        frames: impl IntoIterator<Item = (&'a mut Buffer, &'a Offload)>,
    ) -> io::Result<usize> {
        self.send_by(socket, frames, |sending, frame, offload| {
            if offload.segmentation.is_none()
                && let Some(chunk) = frame.chunk_mut()
                && let Some(number) = sending.number_of(chunk)
            {
                sending.prepare_lent(socket, chunk, offload)?;
                let chunk = frame.take_chunk().expect("it was just there");
                sending.lend(number, chunk);
                return Ok(());
            }
            sending.put_all(socket, frame, offload)
        })
    }

    /// Puts each frame into the ring by `put`, until it fails, and makes the kernel send them.
    fn send_by<F, O>(
        &mut self,
        socket: BorrowedFd<'_>,
        frames: impl IntoIterator<Item = (F, O)>,
        mut put: impl FnMut(&mut Self, F, O) -> Result<(), Errno>,
    ) -> io::Result<usize> {
        self.begin(socket)?;
        let mut sent = 0;
        for (frame, offload) in frames.into_iter().take(BATCH) {
            match put(self, frame, offload) {
                Ok(()) => sent += 1,
                Err(error) if sent == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        self.end(socket);
        Ok(sent)
    }

    /// Begins a batch.
    ///
    /// # Errors
    /// Those of the link, if it did not send the batch before; `NXIO` without a queue.
    fn begin(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        if !self.has_queue {
            // The kernel would accept the frames, and send none.
            return Err(Errno::NXIO);
        }
        if self.is_stuck {
            // Queueing frames while the link is down would make them leave as one burst when it comes up again.
            self.wake(socket)?;
        }
        self.reclaim();
        Ok(())
    }

    /// Makes the kernel send the frames that were put into the ring, and takes back the memory of those it has sent.
    fn end(&mut self, socket: BorrowedFd<'_>) {
        self.leaving.submit();
        // Submitted frames count as sent; the next batch begins with the error.
        let _ = self.wake(socket);
        self.reclaim();
    }

    /// Whether the kernel had no room at the last call.
    pub(super) const fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Asks the kernel to send the frames that it had no room for.
    pub(super) fn flush(&mut self, socket: BorrowedFd<'_>) {
        if self.is_behind {
            // The next batch begins with the error.
            let _ = self.wake(socket);
            self.reclaim();
        }
    }

    /// Counts frames that the kernel accepted and the link refused, since the last call.
    pub(super) fn take_refused(&mut self) -> u64 {
        mem::take(&mut self.refused)
    }

    /// Takes back the chunks whose frames have been sent, and returns their number. Those that were lent go back to
    /// their sockets.
    pub(super) fn reclaim(&mut self) -> usize {
        let mut completions = 0;
        while let Some(at) = self.completed.pop() {
            let lent = self.lent.get_mut(chunk_of(at as usize));
            if lent.and_then(Option::take).is_none() && self.share.is_to_send(at) {
                self.free.push(at);
            }
            completions += 1;
        }
        self.completed.release();
        completions
    }

    /// The number of a received chunk, if it lies in this socket's memory and so can be sent without a copy.
    fn number_of(&self, chunk: &Chunk) -> Option<usize> {
        chunk.number_in(&self.umem)
    }

    /// Makes room for a received frame and completes its checksum, so that it can be [lent](Self::lend).
    fn prepare_lent(
        &mut self,
        socket: BorrowedFd<'_>,
        frame: &mut Chunk,
        offload: &Offload,
    ) -> Result<(), Errno> {
        check_length(frame.len())?;
        self.make_room(
            socket,
            Room {
                chunks: 0,
                frames: 1,
            },
        )?;
        if let Some(checksum) = offload.checksum
            && !complete_checksum(frame, checksum)
        {
            return Err(Errno::INVAL);
        }
        Ok(())
    }

    /// Puts a received frame into the ring, which must have room for it, and keeps its chunk until it is sent.
    fn lend(&mut self, number: usize, chunk: Chunk) {
        self.leaving.push(chunk.description());
        self.lent[number] = Some(chunk);
    }

    /// Writes a frame, or all of its segments, to chunks and puts them into the ring, without submitting them. Puts
    /// either the whole frame or nothing.
    fn put_all(
        &mut self,
        socket: BorrowedFd<'_>,
        frame: &[u8],
        offload: &Offload,
    ) -> Result<(), Errno> {
        if offload.segmentation.is_none() {
            self.make_room(socket, Room::copied(1))?;
            return self.put(frame.len(), offload, |place| place.copy_from_slice(frame));
        }
        let headers = Headers::of_frame(frame);
        let mut segments = segments(frame, &headers, offload).ok_or(Errno::INVAL)?;
        self.make_room(socket, Room::copied(segments.len()))?;
        let offload = segments.offload();
        // An error can only come from the first segment, since it is the longest and all have the same headers. So no
        // frame is put in part.
        while let Some(bytes) = segments.next_bytes() {
            self.put(bytes, &offload, |place| {
                segments.write_next(place);
            })?;
        }
        Ok(())
    }

    /// Makes this room, by at most one system call. After that call has found no room, this makes no
    /// further calls until the next [`wake`](Self::wake).
    fn make_room(&mut self, socket: BorrowedFd<'_>, room: Room) -> Result<(), Errno> {
        if room.frames > umem::SEND {
            return Err(Errno::TOOBIG);
        }
        if !self.has(room) {
            self.reclaim();
        }
        if !self.has(room) && !self.is_behind {
            // The ring may be full of frames that are not submitted yet.
            self.leaving.submit();
            self.wake(socket)?;
            self.reclaim();
        }
        if self.has(room) {
            return Ok(());
        }
        self.is_behind = true;
        Err(Errno::AGAIN)
    }

    /// Whether there is this room now.
    fn has(&mut self, room: Room) -> bool {
        self.free.len() >= room.chunks
            && self.leaving.room(room.frames as u32) as usize >= room.frames
    }

    /// Puts a frame of `length` bytes, written by `write`, into the ring, which must have room for it.
    fn put(
        &mut self,
        length: usize,
        offload: &Offload,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Errno> {
        check_length(length)?;
        let chunk = *self.free.last().expect("there is room");
        // SAFETY: the chunk is free, so the kernel does not access it, and this is the only reference to it.
        let bytes = &mut unsafe { self.umem.chunk(chunk).as_mut() }[..length];
        write(bytes);
        if let Some(checksum) = offload.checksum
            && !complete_checksum(bytes, checksum)
        {
            return Err(Errno::INVAL);
        }
        // Only a complete frame takes its chunk from the free ones.
        self.free.pop();
        self.leaving.push(XdpDesc {
            addr: chunk,
            len: length as u32,
            options: XdpDescOptions::empty(),
        });
        Ok(())
    }

    /// Makes the kernel send the submitted frames, if it needs a system call for it, until it has no room. One call
    /// sends a limited number of frames, and ends at a frame that the link refuses, which is then dropped.
    fn wake(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        (self.is_stuck, self.is_behind) = (false, false);
        let submitted = self.leaving.pending();
        let mut pending = submitted;
        // Each call but the last consumes at least one frame, which bounds the loop.
        for _ in 0..=submitted {
            if !self.leaving.needs_wakeup() {
                return Ok(());
            }
            match send(socket, &[], SendFlags::DONTWAIT) {
                Ok(_) if !self.is_copied => return Ok(()),
                Err(Errno::BUSY) => self.refused += 1,
                // Before it said EAGAIN there, the kernel also returned 0 when no completion had room.
                Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {
                    let left = self.leaving.pending();
                    if left == 0 {
                        return Ok(());
                    }
                    // The kernel stopped without progress: it has no room. With progress, the call was only too short.
                    if left == pending {
                        self.is_behind = true;
                        return Ok(());
                    }
                    pending = left;
                }
                Err(error) => {
                    self.is_stuck = true;
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// # Errors
/// For a frame that the kernel does not send: it takes an empty one without ever giving its chunk back.
const fn check_length(length: usize) -> Result<(), Errno> {
    match length {
        0 => Err(Errno::INVAL),
        1..=XdpSocket::MOST_BYTES => Ok(()),
        _ => Err(Errno::MSGSIZE),
    }
}

/// The room that frames to send need: free chunks, and free entries of the ring.
#[derive(Clone, Copy)]
struct Room {
    chunks: usize,
    frames: usize,
}

impl Room {
    /// The room for this number of frames that are copied.
    const fn copied(frames: usize) -> Self {
        Self {
            chunks: frames,
            frames,
        }
    }
}
