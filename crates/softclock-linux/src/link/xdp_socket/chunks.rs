//! The chunks that frames are received into. Each belongs to the kernel, or is held by this process until it is given
//! back.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::{ptr, slice};

use rustix::net::xdp::{XdpDesc, XdpDescOptions};
use rustix::net::{RecvFlags, recv};

use super::channels::Credits;
use super::lock;
use super::ring::Producer;
use super::umem::{self, CHUNK_BYTES, Place, Share, Umem};

/// The chunks of a socket, and the record of those that are held. Any thread may hold a chunk and give it back.
pub(super) struct Chunks {
    umem: Arc<Umem>,
    share: Share,
    /// Gives chunks back to the kernel; `None` once the socket is closed. The ring has one producer at a time: the
    /// lock.
    fill: Mutex<Option<Fill>>,
    /// For each chunk, the account of its frame while this process holds it; [`Account::NONE`] while it belongs to the
    /// kernel.
    accounts: Box<[AtomicU32]>,
    held: AtomicUsize,
    /// The credits of each account, if the frames are limited by account.
    credits: Option<Arc<Credits>>,
}

/// The account that a frame is charged to while it is held: the index of its channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Account(pub(super) u32);

impl Account {
    /// The account of all frames of a socket without channels, and of the frames of no channel.
    pub(super) const COMMON: Self = Self(0);

    /// Stands for no account.
    const NONE: u32 = u32::MAX;
}

/// The fill ring and a descriptor of its socket, for wake-ups.
struct Fill {
    ring: Producer<u64>,
    socket: OwnedFd,
}

/// A received frame, in the memory that the kernel wrote it to. Dropping it gives the memory back to the kernel; after
/// the socket has been closed, the memory is freed with the last chunk.
///
/// An [`XdpSocket`](super::XdpSocket) has 2048 chunks. While all are held, frames that arrive are lost and counted
/// ([`XdpSocket::take_lost`](super::XdpSocket::take_lost)). A chunk from an [`XdpChannel`](super::XdpChannel) counts
/// against the limit of the channel.
pub struct Chunk {
    chunks: Arc<Chunks>,
    /// The frame's offset in the memory of all chunks.
    at: u32,
    bytes: u32,
}

impl Chunks {
    /// Gives all chunks of the share to the kernel by the fill ring of this socket.
    pub(super) fn new(
        umem: Arc<Umem>,
        share: Share,
        mut ring: Producer<u64>,
        socket: OwnedFd,
        credits: Option<Arc<Credits>>,
    ) -> Arc<Self> {
        share.to_receive().for_each(|chunk| ring.push(chunk));
        ring.submit();
        Arc::new(Self {
            umem,
            share,
            fill: Mutex::new(Some(Fill { ring, socket })),
            accounts: (0..share.receive())
                .map(|_| AtomicU32::new(Account::NONE))
                .collect(),
            held: AtomicUsize::new(0),
            credits,
        })
    }

    /// Takes the chunk with the frame that the kernel describes, and the time that the XDP program wrote before the
    /// frame, on this account. `None` if the description does not lie within a chunk, or the chunk is already held.
    pub(super) fn hold(
        self: &Arc<Self>,
        description: &XdpDesc,
        account: Account,
    ) -> Option<(Chunk, u64)> {
        let Place { at, bytes, index } = self.share.place(description)?;
        // Soundness does not depend on the kernel: a chunk that is described twice still has one owner.
        let entry = &self.accounts[index];
        // Relaxed, here and below: the chunk itself passes between threads by way of the rings.
        let is_free = entry.compare_exchange(
            Account::NONE,
            account.0,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        is_free.ok()?;
        self.held.fetch_add(1, Ordering::Relaxed);
        if let Some(credits) = &self.credits {
            credits.hold(account);
        }
        // SAFETY: the kernel has passed the chunk to this process, and `accounts` shows that it had no other owner
        // here.
        let stamp = unsafe { self.umem.take_stamp(at) };
        let chunk = Chunk {
            chunks: self.clone(),
            at: at as u32,
            bytes: bytes as u32,
        };
        Some((chunk, stamp))
    }

    /// The number of chunks that are held.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Gives the chunk with the byte at `at` back to the kernel. Called once for each [`Chunk`].
    fn give_back(&self, at: u32) {
        let start = at as usize & !(CHUNK_BYTES - 1);
        let entry = &self.accounts[self.share.index(start)];
        let account = entry.swap(Account::NONE, Ordering::Relaxed);
        self.held.fetch_sub(1, Ordering::Relaxed);
        self.refill(start);
        // After the chunk: each credit has a chunk in the fill ring.
        if let Some(credits) = &self.credits {
            credits.give_back(Account(account));
        }
    }

    /// Puts the chunk that begins at this offset into the fill ring, unless the socket is closed.
    fn refill(&self, start: usize) {
        let mut fill = lock(&self.fill);
        let Some(fill) = &mut *fill else { return };
        fill.ring.push(start as u64);
        fill.ring.submit();
        // A driver that has found no chunk may wait for this, and no frame arrives until then.
        fill.wake();
    }

    /// Makes the kernel look at the fill ring, if it asks for a system call.
    pub(super) fn wake(&self) {
        if let Some(fill) = &*lock(&self.fill) {
            fill.wake();
        }
    }

    /// Closes the ring and the descriptors of the socket, which would keep its queue busy while a chunk is held.
    pub(super) fn close(&self) {
        lock(&self.fill).take();
        if self.share.is_first() {
            self.umem.owner().take();
        }
    }
}

impl Fill {
    fn wake(&self) {
        if self.ring.needs_wakeup() {
            // Reads no data: the call itself is the wake-up.
            let _ = recv(&self.socket, &mut [0u8; 0], RecvFlags::DONTWAIT);
        }
    }
}

impl Chunk {
    /// The chunk's number in the whole memory, if it lies in this one.
    pub(super) fn number_in(&self, umem: &Umem) -> Option<usize> {
        ptr::eq(&*self.chunks.umem, umem).then(|| umem::chunk_of(self.at as usize))
    }

    /// The kernel's description of the frame, to send it.
    pub(super) fn description(&self) -> XdpDesc {
        XdpDesc {
            addr: self.at.into(),
            len: self.bytes,
            options: XdpDescOptions::empty(),
        }
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let frame = self.chunks.umem.at(self.at as usize);
        // SAFETY: `hold` has checked that the bytes lie within one chunk, which this value owns until it is dropped.
        unsafe { slice::from_raw_parts(frame.as_ptr(), self.bytes as usize) }
    }
}

impl DerefMut for Chunk {
    fn deref_mut(&mut self) -> &mut [u8] {
        let frame = self.chunks.umem.at(self.at as usize);
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(frame.as_ptr(), self.bytes as usize) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.chunks.give_back(self.at);
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk")
            .field("at", &self.at)
            .field("bytes", &self.bytes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::File;
    use std::iter;
    use std::os::unix::net::UnixDatagram;

    use proptest::prelude::*;

    use super::*;
    use crate::link::xdp_socket::ring::{Consumer, in_memory};

    /// Stands for the kernel: takes chunks from the fill ring and delivers frames in them.
    struct Kernel {
        fill: Consumer<u64>,
        lost: usize,
        sent: u64,
    }

    impl Kernel {
        /// Delivers a frame whose bytes are its number.
        fn receive(&mut self, umem: &Umem) -> Option<(XdpDesc, u64)> {
            let Some(start) = self.fill.pop() else {
                self.lost += 1;
                return None;
            };
            self.fill.release();
            self.sent += 1;
            let addr = start + 256;
            let number = self.sent.to_ne_bytes();
            // SAFETY: the chunk was in the fill ring, so this stand-in for the kernel owns it.
            unsafe { umem.at(addr as usize).cast::<[u8; 8]>().write(number) };
            let description = XdpDesc {
                addr,
                len: 8,
                options: XdpDescOptions::empty(),
            };
            Some((description, self.sent))
        }
    }

    fn both() -> (Arc<Chunks>, Kernel) {
        both_with(File::open("/dev/null").unwrap().into())
    }

    /// Both sides, with this in place of the socket.
    fn both_with(socket: OwnedFd) -> (Arc<Chunks>, Kernel) {
        let (ring, fill) = in_memory(2 * umem::RECEIVE as u32);
        let umem = Arc::new(Umem::new(1).unwrap());
        let share = umem.take_share().unwrap();
        let chunks = Chunks::new(umem, share, ring, socket, None);
        let kernel = Kernel {
            fill,
            lost: 0,
            sent: 0,
        };
        (chunks, kernel)
    }

    proptest! {
        /// Held frames do not change, no chunk has two owners, no chunk is lost, and the kernel counts frames that find
        /// no free chunk.
        #[test]
        fn chunks_are_the_kernels_or_held(
            steps in prop::collection::vec((0usize..1500, 0usize..1500, any::<prop::sample::Index>()), 1..20),
        ) {
            let (chunks, mut kernel) = both();
            let mut held: Vec<(Chunk, u64)> = Vec::new();
            for (arrive, leave, which) in steps {
                for _ in 0..arrive {
                    let lost = kernel.lost;
                    let Some((description, number)) = kernel.receive(&chunks.umem) else {
                        prop_assert_eq!((held.len(), kernel.lost), (umem::RECEIVE, lost + 1));
                        continue;
                    };
                    let (chunk, _) = chunks.hold(&description, Account::COMMON).expect("a chunk of ours");
                    prop_assert!(chunks.hold(&description, Account::COMMON).is_none(), "it has an owner");
                    held.push((chunk, number));
                }
                for (chunk, number) in &held {
                    prop_assert_eq!(&chunk[..], number.to_ne_bytes());
                }
                let places: BTreeSet<_> = held.iter().map(|(chunk, _)| chunk.at).collect();
                prop_assert_eq!(places.len(), held.len());
                for _ in 0..leave.min(held.len()) {
                    let place = which.index(held.len());
                    held.swap_remove(place);
                }
                prop_assert_eq!(chunks.held(), held.len());
            }
            held.clear();
            for _ in 0..umem::RECEIVE {
                prop_assert!(kernel.receive(&chunks.umem).is_some(), "all are there again");
            }
            prop_assert!(kernel.receive(&chunks.umem).is_none());
        }
    }

    /// A driver that has found no chunk may say so only after one has come back.
    #[test]
    fn each_chunk_wakes_a_driver_that_waits() {
        let (socket, caller) = UnixDatagram::pair().unwrap();
        caller.set_nonblocking(true).unwrap();
        let (chunks, mut kernel) = both_with(socket.into());
        let held: Vec<_> = iter::from_fn(|| kernel.receive(&chunks.umem))
            .map(|(description, _)| chunks.hold(&description, Account::COMMON).unwrap())
            .collect();
        assert_eq!(held.len(), umem::RECEIVE);
        let mut held = held.into_iter();
        drop(held.next());
        // A wake-up takes one.
        caller.send(b"1").unwrap();
        kernel.fill.ask_for_wakeup();
        drop(held.next());
        let left = lock(&chunks.fill);
        let socket = &left.as_ref().unwrap().socket;
        let taken = recv(socket, &mut [0u8; 1][..], RecvFlags::DONTWAIT);
        assert_eq!(taken.unwrap_err(), rustix::io::Errno::AGAIN);
        drop(left);
    }

    #[test]
    fn a_chunk_outlives_its_socket() {
        let (chunks, mut kernel) = both();
        let (description, number) = kernel.receive(&chunks.umem).unwrap();
        let (mut chunk, _) = chunks.hold(&description, Account::COMMON).unwrap();
        chunks.close();
        drop((chunks, kernel));
        assert_eq!(&chunk[..], number.to_ne_bytes());
        chunk[0] = 7;
    }
}
