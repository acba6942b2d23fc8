//! The bounded queue from the interrupt level to one receiver: a channel of *LRP*, or the queue of a socket.
//!
//! Wait-free on both sides, since the real-time thread would otherwise wait for an ordinary thread that it keeps from
//! running. For the same reason the memory of datagrams goes back by a second queue: the allocator has locks, which
//! threads rarely share as long as each frees its own memory.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};

/// The side of the interrupt level: packets `P` go out, used memory `U` comes back.
#[derive(Debug)]
pub(super) struct RingSender<P, U> {
    packets: Producer<P>,
    used: Consumer<U>,
    bell: Arc<Bell>,
    has_new: bool,
}

/// The side of the receiver.
#[derive(Debug)]
pub(super) struct RingReceiver<P, U> {
    packets: Consumer<P>,
    used: Producer<U>,
    bell: Arc<Bell>,
}

/// The request of a receiver to be woken.
#[derive(Debug, Default)]
struct Bell {
    is_waited_for: AtomicBool,
    thread: OnceLock<Thread>,
}

/// Creates a queue for at most `packets`.
pub(super) fn ring<P, U>(packets: usize) -> (RingSender<P, U>, RingReceiver<P, U>) {
    let (sender, receiver) = RingBuffer::new(packets);
    let (give_back, used) = RingBuffer::new(2 * packets);
    let bell = Arc::new(Bell::default());
    let sender = RingSender {
        packets: sender,
        used,
        bell: bell.clone(),
        has_new: false,
    };
    let receiver = RingReceiver {
        packets: receiver,
        used: give_back,
        bell,
    };
    (sender, receiver)
}

impl<P, U> RingSender<P, U> {
    pub(super) fn is_full(&self) -> bool {
        self.packets.is_full()
    }

    /// Puts a packet into the queue; returns whether there was room.
    pub(super) fn push(&mut self, packet: P) -> bool {
        let is_in = self.packets.push(packet).is_ok();
        self.has_new |= is_in;
        is_in
    }

    /// Frees the memory that the receiver has used.
    pub(super) fn free(&mut self) {
        while self.used.pop().is_ok() {}
    }

    /// Wakes the receiver if it waits and packets were put into the queue since the last call; returns whether it does.
    pub(super) fn ring_bell(&mut self) -> bool {
        if !std::mem::take(&mut self.has_new) {
            return false;
        }
        // Orders the packet before the look at the request, as the receiver orders its request before its look.
        fence(SeqCst);
        let was_waited_for = self.bell.is_waited_for.swap(false, SeqCst);
        if was_waited_for && let Some(thread) = self.bell.thread.get() {
            thread.unpark();
        }
        was_waited_for
    }
}

impl<P, U> RingReceiver<P, U> {
    pub(super) fn pop(&mut self) -> Option<P> {
        self.packets.pop().ok()
    }

    /// Gives used memory back.
    pub(super) fn give_back(&mut self, used: U) {
        // If there is no room it is freed here: the interrupt level has not run for long.
        let _ = self.used.push(used);
    }

    /// Waits for a packet, at most for `most`; returns whether the bell was rung. The thread must always be the same.
    pub(super) fn wait(&self, most: Duration) -> bool {
        self.bell.thread.get_or_init(thread::current);
        self.bell.is_waited_for.store(true, SeqCst);
        fence(SeqCst);
        // A packet that came before the request has rung no bell.
        if self.packets.is_empty() {
            thread::park_timeout(most);
        }
        !self.bell.is_waited_for.swap(false, SeqCst)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_refuses_packets_and_memory_comes_back() {
        let (mut sender, mut receiver) = ring::<u32, Arc<()>>(2);
        assert!(sender.push(1) && sender.push(2));
        assert!(sender.is_full() && !sender.push(3));
        assert_eq!(receiver.pop(), Some(1));
        assert!(sender.push(4));
        assert_eq!(
            [receiver.pop(), receiver.pop(), receiver.pop()],
            [Some(2), Some(4), None]
        );
        let used = Arc::new(());
        receiver.give_back(used.clone());
        assert_eq!(Arc::strong_count(&used), 2);
        sender.free();
        assert_eq!(Arc::strong_count(&used), 1);
    }

    #[test]
    fn a_waiting_receiver_is_woken() {
        let (mut sender, mut receiver) = ring::<u32, ()>(1);
        let waiting = thread::spawn(move || {
            loop {
                if let Some(packet) = receiver.pop() {
                    return packet;
                }
                receiver.wait(Duration::from_secs(20));
            }
        });
        while !sender.bell.is_waited_for.load(SeqCst) {
            thread::yield_now();
        }
        assert!(sender.push(7));
        assert!(sender.ring_bell() && !sender.ring_bell());
        assert_eq!(waiting.join().unwrap(), 7);
    }
}
