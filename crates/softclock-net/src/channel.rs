//! The bounded queue of packets between demultiplexing and a receiver: the *NI channel* of *Lazy Receiver Processing*
//! (section 3).
//!
//! A full channel refuses packets before any protocol work is done for them (*early packet discard*), so a receiver
//! that is too slow costs the host only the demultiplexing of its packets. The receiver is woken only if it waits and
//! its channel was empty, so a busy receiver causes no wake-ups.

use alloc::collections::VecDeque;
use core::fmt;

/// A queue of packet handles, bounded in packets and in bytes.
///
/// `P` is the handle of a packet: a reference-counted buffer, the number of a chunk, or a frame. The channel allocates
/// its storage with the first packet, and gives most of it back when the receiver [waits](Self::wait).
///
/// ```
/// use softclock_net::channel::{Channel, ChannelLimits, Full, Wakeup};
///
/// let mut channel = Channel::new(ChannelLimits { packets: 2, bytes: 3000 });
/// assert!(channel.wait());
/// assert_eq!(channel.push("first", 1500), Ok(Wakeup::Needed));
/// assert_eq!(channel.push("second", 100), Ok(Wakeup::NotNeeded));
/// assert_eq!(channel.push("third", 100), Err(Full("third")));
/// assert_eq!(channel.discarded(), 1);
/// assert_eq!(channel.pop(), Some("first"));
/// ```
#[derive(Clone, Debug)]
pub struct Channel<P> {
    queue: VecDeque<(P, usize)>,
    bytes: usize,
    limits: ChannelLimits,
    discarded: u64,
    is_waited_for: bool,
}

/// The most that a channel holds. Each limit is at least 1; a channel takes 0 as 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelLimits {
    /// The most packets.
    pub packets: usize,
    /// The most bytes of all packets together. A packet longer than this is always refused, even if the channel is
    /// empty.
    pub bytes: usize,
}

/// Whether the receiver must be woken after a packet was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a receiver that waits does not look at its channel until it is woken"]
pub enum Wakeup {
    /// The receiver waits: wake it, once.
    Needed,
    /// The receiver does not wait, or was woken already.
    NotNeeded,
}

/// The channel is full: contains the packet, which the caller drops for
/// [`DropReason::ChannelFull`](crate::drops::DropReason::ChannelFull).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full<P>(pub P);

impl<P> Channel<P> {
    /// Creates an empty channel. Allocates nothing until the first packet.
    pub fn new(limits: ChannelLimits) -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            limits: limits.at_least_one(),
            discarded: 0,
            is_waited_for: false,
        }
    }

    /// Queues a packet that occupies `bytes` bytes. Takes constant time, amortized over the growth of the storage.
    ///
    /// Returns [`Wakeup::Needed`] if the receiver waits, which ends its wait.
    ///
    /// # Errors
    /// [`Full`] if the packet does not fit below both limits; it is counted as [discarded](Self::discarded).
    pub fn push(&mut self, packet: P, bytes: usize) -> Result<Wakeup, Full<P>> {
        if !self.has_room(bytes) {
            self.discarded += 1;
            return Err(Full(packet));
        }
        self.bytes += bytes;
        self.queue.push_back((packet, bytes));
        Ok(match core::mem::take(&mut self.is_waited_for) {
            true => Wakeup::Needed,
            false => Wakeup::NotNeeded,
        })
    }

    /// Takes the packet that has waited longest out of the channel.
    pub fn pop(&mut self) -> Option<P> {
        let (packet, bytes) = self.queue.pop_front()?;
        self.bytes -= bytes;
        Some(packet)
    }

    /// The packet that has waited longest.
    pub fn front(&self) -> Option<&P> {
        self.queue.front().map(|(packet, _)| packet)
    }

    /// Asks for a wake-up by the next packet. Returns whether the receiver may wait: `false`, and no wake-up, if
    /// packets are in the channel.
    ///
    /// Call it after the channel was found empty and before sleeping. It also gives storage back that a burst has left,
    /// so that idle endpoints hold little memory.
    pub fn wait(&mut self) -> bool {
        self.is_waited_for = self.queue.is_empty();
        if self.is_waited_for {
            self.queue.shrink_to(KEPT_PACKETS);
        }
        self.is_waited_for
    }

    /// Withdraws the request for a wake-up.
    pub fn cancel_wait(&mut self) {
        self.is_waited_for = false;
    }

    /// Whether the receiver waits for a wake-up.
    pub fn is_waited_for(&self) -> bool {
        self.is_waited_for
    }

    /// The number of packets in the channel.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no packet is in the channel.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a limit is reached, so that every packet is refused. A channel that is not full may still refuse a long
    /// packet.
    pub fn is_full(&self) -> bool {
        self.queue.len() >= self.limits.packets || self.bytes >= self.limits.bytes
    }

    /// Whether a packet that occupies `bytes` bytes fits below both limits.
    pub fn has_room(&self, bytes: usize) -> bool {
        // `is_full` goes first, since limits that were lowered may be below what the channel holds.
        !self.is_full() && bytes <= self.limits.bytes - self.bytes
    }

    /// The bytes of the packets in the channel.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The limits.
    pub fn limits(&self) -> ChannelLimits {
        self.limits
    }

    /// Changes the limits. Packets in the channel stay there, even if they are more than the new limits allow.
    pub fn set_limits(&mut self, limits: ChannelLimits) {
        self.limits = limits.at_least_one();
    }

    /// The number of packets that were refused so far.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }
}

impl ChannelLimits {
    fn at_least_one(self) -> Self {
        Self {
            packets: self.packets.max(1),
            bytes: self.bytes.max(1),
        }
    }
}

impl<P> fmt::Display for Full<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel is full")
    }
}

impl<P: fmt::Debug> core::error::Error for Full<P> {}

/// The packets whose storage a waiting receiver's channel keeps: few, since most endpoints are idle, but enough that
/// requests and responses in turn do not allocate each time.
const KEPT_PACKETS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(usize),
        Pop,
        Wait,
        CancelWait,
        SetLimits(ChannelLimits),
    }

    fn limits() -> impl Strategy<Value = ChannelLimits> {
        (0..6usize, 0..40usize).prop_map(|(packets, bytes)| ChannelLimits { packets, bytes })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => prop_oneof![0..20usize, Just(usize::MAX)].prop_map(Step::Push),
            5 => Just(Step::Pop),
            3 => Just(Step::Wait),
            1 => Just(Step::CancelWait),
            1 => limits().prop_map(Step::SetLimits),
        ]
    }

    proptest! {
        #[test]
        fn a_channel_is_a_queue_with_limits(
            first in limits(),
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut channel = Channel::new(first);
            let mut limits = first.at_least_one();
            let mut model = VecDeque::<(usize, usize)>::new();
            let (mut discarded, mut waits) = (0, false);
            for (number, step) in steps.into_iter().enumerate() {
                let held: usize = model.iter().map(|packet| packet.1).sum();
                match step {
                    Step::Push(bytes) => {
                        let fits = model.len() < limits.packets
                            && held < limits.bytes
                            && held.saturating_add(bytes) <= limits.bytes;
                        let expected = match (fits, waits) {
                            (false, _) => Err(Full(number)),
                            (true, true) => Ok(Wakeup::Needed),
                            (true, false) => Ok(Wakeup::NotNeeded),
                        };
                        prop_assert_eq!(channel.has_room(bytes), fits);
                        prop_assert_eq!(channel.push(number, bytes), expected);
                        match fits {
                            true => {
                                model.push_back((number, bytes));
                                waits = false;
                            }
                            false => discarded += 1,
                        }
                    }
                    Step::Pop => {
                        let expected = model.pop_front().map(|packet| packet.0);
                        prop_assert_eq!(channel.pop(), expected);
                    }
                    Step::Wait => {
                        waits = model.is_empty();
                        prop_assert_eq!(channel.wait(), waits);
                    }
                    Step::CancelWait => {
                        channel.cancel_wait();
                        waits = false;
                    }
                    Step::SetLimits(new) => {
                        channel.set_limits(new);
                        limits = new.at_least_one();
                    }
                }
                prop_assert_eq!(channel.len(), model.len());
                prop_assert_eq!(channel.is_empty(), model.is_empty());
                prop_assert_eq!(channel.bytes(), model.iter().map(|packet| packet.1).sum::<usize>());
                prop_assert_eq!(channel.limits(), limits);
                prop_assert_eq!(channel.discarded(), discarded);
                prop_assert_eq!(channel.is_waited_for(), waits);
                prop_assert!(!waits || channel.is_empty());
            }
        }
    }

    const SMALL: ChannelLimits = ChannelLimits {
        packets: 100,
        bytes: 100,
    };

    #[test]
    fn a_new_channel_allocates_nothing() {
        assert_eq!(Channel::<u64>::new(SMALL).queue.capacity(), 0);
    }

    #[test]
    fn a_packet_longer_than_the_limit_is_refused_by_an_empty_channel() {
        let mut channel = Channel::new(SMALL);
        assert_eq!(channel.push((), 101), Err(Full(())));
        assert_eq!(channel.push((), 100), Ok(Wakeup::NotNeeded));
        assert!(channel.is_full());
    }

    #[test]
    fn a_receiver_is_woken_once_for_each_wait() {
        let mut channel = Channel::new(SMALL);
        assert!(channel.wait() && channel.wait());
        assert_eq!(channel.push(1, 1), Ok(Wakeup::Needed));
        assert_eq!(channel.push(2, 1), Ok(Wakeup::NotNeeded));
        assert!(!channel.wait());
        assert_eq!(channel.push(3, 1), Ok(Wakeup::NotNeeded));
    }

    #[test]
    fn a_refused_packet_wakes_no_receiver() {
        let mut channel = Channel::new(SMALL);
        assert!(channel.wait());
        assert!(channel.push((), 101).is_err());
        assert_eq!(channel.push((), 1), Ok(Wakeup::Needed));
    }

    #[test]
    fn waiting_gives_the_storage_of_a_burst_back() {
        let mut channel = Channel::new(SMALL);
        while channel.push((), 1).is_ok() {}
        while channel.pop().is_some() {}
        assert!(channel.queue.capacity() >= 100);
        assert!(channel.wait());
        assert!(channel.queue.capacity() <= 2 * KEPT_PACKETS);
    }
}
