//! The rings in which an AF_XDP socket and the kernel exchange descriptors of frames
//! (Documentation/networking/af_xdp.rst). One side produces entries, the other consumes them, and each publishes its
//! count.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, mem};

use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

use crate::memory::Memory;

/// A ring that this process fills and the kernel empties.
pub(super) struct Producer<T>(Ring<T>);

/// A ring that the kernel fills and this process empties.
pub(super) struct Consumer<T>(Ring<T>);

/// The common part of both. Counts wrap at 2^32.
struct Ring<T> {
    memory: Memory,
    places: Places,
    entries: u32,
    /// The count of this side. Ahead of the published count by the entries not yet submitted or released.
    ours: u32,
    /// The kernel's count when it was last read.
    theirs: u32,
    kind: PhantomData<T>,
}

/// The offsets of a ring's parts in its memory, in bytes.
#[derive(Clone, Copy)]
struct Places {
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
}

impl<T: Copy> Producer<T> {
    /// Maps one of the socket's rings, of `entries` entries, which must be a power of two.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        offsets: &XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        Ring::map(socket, page_offset, offsets, entries).map(Self)
    }

    /// The number of free entries. Reads the kernel's count, which is another processor's cache line, only if fewer
    /// than
    /// `wanted` are known to be free.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let ring = &mut self.0;
        let room = |ring: &Ring<T>| ring.entries - ring.ours.wrapping_sub(ring.theirs);
        if room(ring) < wanted {
            ring.theirs = ring.count(ring.places.consumer).load(Ordering::Acquire);
        }
        room(ring)
    }

    /// The number of entries that the kernel has not taken, by its published count.
    pub(super) fn pending(&mut self) -> u32 {
        let ring = &mut self.0;
        ring.theirs = ring.count(ring.places.consumer).load(Ordering::Acquire);
        ring.ours.wrapping_sub(ring.theirs)
    }

    /// Writes an entry. The kernel does not see it before [`submit`](Self::submit).
    ///
    /// # Panics
    /// If the ring is full.
    pub(super) fn push(&mut self, entry: T) {
        assert!(self.room(1) > 0, "no room in the ring");
        let ring = &mut self.0;
        // SAFETY: the place is within the memory and aligned, and the kernel does not access it until it is submitted.
        unsafe { ring.place(ring.ours).write(entry) };
        ring.ours = ring.ours.wrapping_add(1);
    }

    /// Publishes all written entries to the kernel.
    pub(super) fn submit(&self) {
        let ring = &self.0;
        // Release: the entries are visible before the count.
        ring.count(ring.places.producer)
            .store(ring.ours, Ordering::Release);
    }

    /// Whether the kernel needs a system call to look at the ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        let ring = &self.0;
        let flags = ring.count(ring.places.flags).load(Ordering::Relaxed);
        flags & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }
}

impl<T: Copy> Consumer<T> {
    /// Maps a ring as [`Producer::map`] does.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        offsets: &XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        Ring::map(socket, page_offset, offsets, entries).map(Self)
    }

    /// Takes the next entry, without a system call. The kernel may reuse its place after [`release`](Self::release).
    pub(super) fn pop(&mut self) -> Option<T> {
        let ring = &mut self.0;
        if ring.ours == ring.theirs {
            ring.theirs = ring.count(ring.places.producer).load(Ordering::Acquire);
            if ring.ours == ring.theirs {
                return None;
            }
        }
        // SAFETY: the place is within the memory and aligned, and the kernel has written it.
        let entry = unsafe { ring.place(ring.ours).read() };
        ring.ours = ring.ours.wrapping_add(1);
        Some(entry)
    }

    /// Gives the places of all taken entries back to the kernel.
    pub(super) fn release(&self) {
        let ring = &self.0;
        // Release: the entries have been read before the kernel sees the count.
        ring.count(ring.places.consumer)
            .store(ring.ours, Ordering::Release);
    }
}

impl<T> Ring<T> {
    fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        offsets: &XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        let places = Places {
            producer: offsets.producer as usize,
            consumer: offsets.consumer as usize,
            flags: offsets.flags.ok_or(io::ErrorKind::Unsupported)? as usize,
            entries: offsets.desc as usize,
        };
        let bytes = places.entries + entries as usize * mem::size_of::<T>();
        Ok(Self::over(
            Memory::of_file(socket, page_offset, bytes)?,
            places,
            entries,
        ))
    }

    /// Creates a ring in this memory.
    ///
    /// # Panics
    /// If `entries` is not a power of two, or `places` are misaligned or outside the memory.
    fn over(memory: Memory, places: Places, entries: u32) -> Self {
        assert!(entries.is_power_of_two());
        let counts = [places.producer, places.consumer, places.flags];
        assert!(
            counts
                .iter()
                .all(|at| at % 4 == 0 && at + 4 <= memory.bytes)
        );
        let end = places.entries + entries as usize * mem::size_of::<T>();
        assert!(places.entries.is_multiple_of(mem::align_of::<T>()) && end <= memory.bytes);
        Self {
            memory,
            places,
            entries,
            ours: 0,
            theirs: 0,
            kind: PhantomData,
        }
    }

    /// The count or the flags at this offset.
    fn count(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `over` has checked that the offset is aligned and within the memory, which lives as long as `self`;
        // both sides access the word atomically.
        unsafe { AtomicU32::from_ptr(self.memory.start.byte_add(at).cast().as_ptr()) }
    }

    /// The place of the entry with this count.
    fn place(&self, count: u32) -> NonNull<T> {
        let index = (count & (self.entries - 1)) as usize;
        // SAFETY: the index is less than `entries`, and `over` has checked that all entries are within the memory.
        unsafe {
            self.memory
                .start
                .byte_add(self.places.entries)
                .cast::<T>()
                .add(index)
        }
    }
}

#[cfg(test)]
impl<T> Consumer<T> {
    /// Asks the producer for a system call, in place of the kernel.
    pub(super) fn ask_for_wakeup(&self) {
        let flags = XdpRingFlags::XDP_RING_NEED_WAKEUP.bits();
        (self.0.count(self.0.places.flags)).store(flags, Ordering::Relaxed);
    }
}

/// Creates both sides of a ring in memory, for tests. The memory is freed with the producer, so drop the consumer
/// first.
#[cfg(test)]
pub(super) fn in_memory<T>(entries: u32) -> (Producer<T>, Consumer<T>) {
    let bytes = PLACES.entries + entries as usize * mem::size_of::<T>();
    let memory = Memory::anonymous(bytes).unwrap();
    let other = Memory {
        start: memory.start,
        bytes,
    };
    let producer = Ring::over(memory, PLACES, entries);
    let mut consumer = Ring::over(other, PLACES, entries);
    // The consumer does not unmap the memory again.
    consumer.memory.bytes = 0;
    (Producer(producer), Consumer(consumer))
}

#[cfg(test)]
const PLACES: Places = Places {
    producer: 0,
    consumer: 64,
    flags: 128,
    entries: 192,
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides of a ring of four entries whose counts start at `count`.
    fn both_sides(count: u32) -> (Producer<u64>, Consumer<u64>) {
        let (mut producer, mut consumer) = in_memory(4);
        for ring in [&mut producer.0, &mut consumer.0] {
            (ring.ours, ring.theirs) = (count, count);
        }
        for at in [PLACES.producer, PLACES.consumer] {
            producer.0.count(at).store(count, Ordering::Relaxed);
        }
        (producer, consumer)
    }

    #[test]
    fn entries_pass_in_order_and_counts_wrap() {
        let (mut producer, mut consumer) = both_sides(u32::MAX - 5);
        for round in 0..10u64 {
            assert_eq!(producer.room(4), 4);
            for entry in 0..4 {
                producer.push(round * 10 + entry);
            }
            assert_eq!(
                (producer.room(1), consumer.pop()),
                (0, None),
                "not submitted"
            );
            producer.submit();
            let taken: Vec<_> = std::iter::from_fn(|| consumer.pop()).collect();
            assert_eq!(taken, [0, 1, 2, 3].map(|entry| round * 10 + entry));
            assert_eq!(
                (producer.room(1), producer.pending()),
                (0, 4),
                "not released"
            );
            consumer.release();
            assert_eq!(producer.pending(), 0);
        }
    }

    #[test]
    fn the_kernel_says_when_it_sleeps() {
        let (producer, _consumer) = both_sides(0);
        assert!(!producer.needs_wakeup());
        producer.0.count(PLACES.flags).store(1, Ordering::Relaxed);
        assert!(producer.needs_wakeup());
    }

    #[test]
    #[should_panic(expected = "no room")]
    fn a_full_ring_takes_nothing() {
        let (mut producer, _consumer) = both_sides(7);
        (0..5).for_each(|entry| producer.push(entry));
    }
}
