//! The bounded queue from the interrupt level to one receiver: a channel of *LRP*, or the queue of a socket.
//!
//! Wait-free on both sides, since the real-time thread would otherwise wait for an ordinary thread that it keeps from
//! running. The memory of packets goes back by a second queue, so that neither side allocates.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};
use softclock_net::checksum::Verify;

/// A packet in the queue.
#[derive(Debug)]
pub(super) struct Packet {
    /// The time of arrival, by CLOCK_MONOTONIC.
    pub(super) arrived_ns: u64,
    pub(super) content: Content,
    pub(super) bytes: Vec<u8>,
}

/// What the bytes of a packet are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// A frame, for which no protocol work is done yet.
    Frame(Verify),
    /// The payload of a datagram from this sender.
    Datagram(SocketAddr),
}

/// The side of the interrupt level.
#[derive(Debug)]
pub(super) struct RingSender {
    packets: Producer<Packet>,
    empties: Consumer<Vec<u8>>,
    bell: Arc<Bell>,
    has_new: bool,
}

/// The side of the receiver.
#[derive(Debug)]
pub(super) struct RingReceiver {
    packets: Consumer<Packet>,
    empties: Producer<Vec<u8>>,
    bell: Arc<Bell>,
}

/// The request of a receiver to be woken.
#[derive(Debug, Default)]
struct Bell {
    is_waited_for: AtomicBool,
    thread: OnceLock<Thread>,
}

/// Creates a queue for at most `packets`.
pub(super) fn ring(packets: usize) -> (RingSender, RingReceiver) {
    let (sender, receiver) = RingBuffer::new(packets);
    // One packet may be in the receiver's hands.
    let (give_back, empties) = RingBuffer::new(packets + 1);
    let bell = Arc::new(Bell::default());
    let sender = RingSender {
        packets: sender,
        empties,
        bell: bell.clone(),
        has_new: false,
    };
    let receiver = RingReceiver {
        packets: receiver,
        empties: give_back,
        bell,
    };
    (sender, receiver)
}

impl RingSender {
    pub(super) fn is_full(&self) -> bool {
        self.packets.is_full()
    }

    /// Puts a copy of these bytes into the queue; returns whether there was room.
    pub(super) fn push(&mut self, bytes: &[u8], content: Content, arrived_ns: u64) -> bool {
        if self.packets.is_full() {
            return false;
        }
        let mut memory = self.empties.pop().unwrap_or_default();
        memory.clear();
        memory.extend_from_slice(bytes);
        let packet = Packet {
            arrived_ns,
            content,
            bytes: memory,
        };
        self.has_new = true;
        self.packets.push(packet).is_ok()
    }

    /// Wakes the receiver if it waits and packets were put into the queue since the last call.
    pub(super) fn ring_bell(&mut self) {
        if !std::mem::take(&mut self.has_new) {
            return;
        }
        // Orders the packet before the look at the request, as the receiver orders its request before its look.
        fence(SeqCst);
        if self.bell.is_waited_for.swap(false, SeqCst)
            && let Some(thread) = self.bell.thread.get()
        {
            thread.unpark();
        }
    }
}

impl RingReceiver {
    pub(super) fn pop(&mut self) -> Option<Packet> {
        self.packets.pop().ok()
    }

    /// Gives the memory of a packet back.
    pub(super) fn give_back(&mut self, packet: Packet) {
        // There is always room, as there are not more packets.
        let _ = self.empties.push(packet.bytes);
    }

    /// Waits for a packet, at most for `most`. The thread must always be the same.
    pub(super) fn wait(&self, most: Duration) {
        self.bell.thread.get_or_init(thread::current);
        self.bell.is_waited_for.store(true, SeqCst);
        fence(SeqCst);
        // A packet that came before the request has rung no bell.
        if self.packets.is_empty() {
            thread::park_timeout(most);
        }
        self.bell.is_waited_for.store(false, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_refuses_packets_and_memory_goes_round() {
        let (mut sender, mut receiver) = ring(2);
        let content = Content::Frame(Verify::Yes);
        assert!(sender.push(b"first", content, 1) && sender.push(b"second", content, 2));
        assert!(sender.is_full() && !sender.push(b"third", content, 3));
        let first = receiver.pop().unwrap();
        assert_eq!((first.arrived_ns, &first.bytes[..]), (1, &b"first"[..]));
        let memory = first.bytes.as_ptr();
        receiver.give_back(first);
        assert!(sender.push(b"4th", content, 4));
        receiver.pop().unwrap();
        let last = receiver.pop().unwrap();
        assert_eq!(
            (&last.bytes[..], last.bytes.as_ptr()),
            (&b"4th"[..], memory)
        );
    }

    #[test]
    fn a_waiting_receiver_is_woken() {
        let (mut sender, mut receiver) = ring(1);
        let waiting = thread::spawn(move || {
            loop {
                if let Some(packet) = receiver.pop() {
                    return packet.arrived_ns;
                }
                receiver.wait(Duration::from_secs(20));
            }
        });
        thread::sleep(Duration::from_millis(5));
        assert!(sender.push(b"", Content::Frame(Verify::Yes), 7));
        sender.ring_bell();
        assert_eq!(waiting.join().unwrap(), 7);
    }
}
