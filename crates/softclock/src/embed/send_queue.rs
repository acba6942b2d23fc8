//! Sends the data of one socket evenly over time.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use softclock_core::pacing::RateClock;
use softclock_core::{Instant, Rate};
use softclock_linux::socket;

/// A bounded queue of data that is sent to a connected socket at an even rate.
///
/// The program [pushes](Self::push) data at any time. It schedules an event for [`next_due`](Self::next_due), and when
/// the event fires, calls [`send_due`](Self::send_due). Each push to a socket with messages, such as one of UDP, is one
/// message; the data of a stream is cut into pieces. If the event was late, as many pieces are sent together as are
/// due, within the burst rate.
///
/// All memory is allocated by [`new`](Self::new).
///
/// # Example
/// ```
/// use softclock::embed::{FireWindow, LoopTimers, SendOptions, SendQueue};
/// use std::net::UdpSocket;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let receiver = UdpSocket::bind("127.0.0.1:0")?;
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// socket.connect(receiver.local_addr()?)?;
///
/// let mut timers = LoopTimers::new();
/// let mut queue = SendQueue::new(socket, &SendOptions::of_rate("20mbit".parse()?))?;
/// for _ in 0..5 {
///     queue.push(&[0; 1200])?; // one every 480 us
/// }
/// while let Some(due) = queue.next_due(timers.now()) {
///     timers.schedule(FireWindow::from(due), ());
///     while timers.next_overdue().is_none() {
///         std::thread::sleep(timers.before_wait().expect("an event is pending"));
///         timers.after_wait(false);
///     }
///     queue.send_due(timers.now())?;
/// }
/// assert!(queue.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SendQueue<S> {
    socket: S,
    clock: RateClock,
    piece: usize,
    bytes: VecDeque<u8>,
    /// The lengths of the messages in `bytes`; `None` for a stream.
    messages: Option<VecDeque<usize>>,
    /// The error of the first data that waits, which the next call of `send_due` returns.
    failed: Option<io::Error>,
    most_bytes: usize,
    most_messages: usize,
}

/// The settings of a [`SendQueue`].
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// The rate at which data is sent.
    pub rate: Rate,
    /// The rate at which the queue catches up after events were late. A value below `rate` counts as `rate`.
    pub burst: Rate,
    /// The size of a full message, or of a piece of a stream, in bytes, at least 1. Shorter messages take
    /// proportionally less time, and longer ones more.
    pub piece: usize,
    /// The most bytes that wait.
    pub most_bytes: usize,
    /// The most messages that wait.
    pub most_messages: usize,
}

impl SendOptions {
    /// Returns settings with this rate, a burst rate of twice as much, pieces of 1448 bytes, and room for 256 KiB in at
    /// most 1024 messages.
    pub fn of_rate(rate: Rate) -> Self {
        let twice = Rate::from_bps(rate.bps().saturating_mul(2));
        Self {
            rate,
            burst: twice.unwrap_or(rate),
            piece: 1448,
            most_bytes: 256 * 1024,
            most_messages: 1024,
        }
    }
}

/// The queue has no room for the data: send what is due, and push it again later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueFull;

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the send queue has no room for the data: push it again after a send")
    }
}

impl Error for QueueFull {}

impl<S: AsFd> SendQueue<S> {
    /// Creates an empty queue for a connected socket, which may be blocking: the queue never waits.
    ///
    /// # Errors
    /// If `socket` is not a socket, and [`OutOfMemory`](io::ErrorKind::OutOfMemory) if there is no memory for as much
    /// as `options` allow to wait: a byte for each byte, and 8 bytes for each message.
    pub fn new(socket: S, options: &SendOptions) -> io::Result<Self> {
        let has_messages = socket::has_messages(socket.as_fd())?;
        let messages = has_messages.then(|| with_capacity(options.most_messages));
        let mut queue = Self {
            socket,
            clock: RateClock::new(Default::default(), Default::default()),
            piece: options.piece.max(1),
            bytes: with_capacity(options.most_bytes)?,
            messages: messages.transpose()?,
            failed: None,
            most_bytes: options.most_bytes,
            most_messages: options.most_messages,
        };
        let [target, minimum] = queue.intervals(options.rate, options.burst);
        queue.clock.set_intervals(target, minimum);
        Ok(queue)
    }

    /// Changes the rates. The data that waits is sent at the new ones.
    pub fn set_rates(&mut self, rate: Rate, burst: Rate) {
        let [target, minimum] = self.intervals(rate, burst);
        self.clock.set_rates(target, minimum);
    }

    /// Adds a copy of `data`: one message, or the next bytes of the stream. Without data, does nothing.
    ///
    /// # Errors
    /// [`QueueFull`] if there is no room for all of it; then none is added.
    pub fn push(&mut self, data: &[u8]) -> Result<(), QueueFull> {
        if data.is_empty() {
            return Ok(());
        }
        if data.len() > self.most_bytes - self.bytes.len() {
            return Err(QueueFull);
        }
        if let Some(messages) = &mut self.messages {
            if messages.len() == self.most_messages {
                return Err(QueueFull);
            }
            messages.push_back(data.len());
        }
        self.bytes.extend(data);
        Ok(())
    }

    /// Returns the time at which the next data is due: `now` if it may be sent at once, and `None` if none waits. While
    /// the socket has no room, wait for the socket instead.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        (!self.is_empty()).then(|| self.clock.next_send(now))
    }

    /// Sends the data that is due at `now`, at most 64 pieces, and returns the number of bytes sent. One system call a
    /// piece.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if the socket has no room and nothing was sent: call again once the
    /// socket is writable. Other errors are those of sendmsg(2); a message that causes one is removed, so that it does
    /// not hold up those behind it, and the data of a stream stays. If other data was sent before the error, this call
    /// returns the number of its bytes and the next call the error; until then the message waits.
    pub fn send_due(&mut self, now: Instant) -> io::Result<usize> {
        if self.next_due(now).is_none_or(|due| due > now) {
            return Ok(0);
        }
        if let Some(error) = self.failed.take() {
            return Err(self.on_error(error));
        }
        let mut sent = 0;
        for _ in 0..MOST_PIECES {
            let is_due = self.clock.next_send(now) <= now;
            let Some(length) = self.next_length().filter(|_| is_due) else {
                break;
            };
            match self.send(length) {
                Ok(length) => {
                    sent += length;
                    // Each counts by its own size, so that long messages do not exceed the burst rate.
                    self.clock
                        .on_transmit_bytes(now, length as u64, self.piece as u64);
                }
                Err(error) if sent == 0 => return Err(self.on_error(error)),
                Err(error) => {
                    // A socket without room says so again. The kernel reports other errors only once.
                    self.failed = Some(error).filter(|error| !is_full(error));
                    break;
                }
            }
        }
        if self.is_empty() {
            self.clock.end();
        }
        Ok(sent)
    }

    /// Returns the number of bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether no data waits.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the socket.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    fn intervals(&self, rate: Rate, burst: Rate) -> [std::time::Duration; 2] {
        [rate, burst.max(rate)].map(|rate| rate.time_of(self.piece as u64))
    }

    fn next_length(&self) -> Option<usize> {
        match &self.messages {
            Some(messages) => messages.front().copied(),
            None => (!self.is_empty()).then(|| self.bytes.len().min(self.piece)),
        }
    }

    /// Sends the first `length` bytes, or for a stream, as many of them as the socket has room for.
    fn send(&mut self, length: usize) -> io::Result<usize> {
        let (first, second) = self.bytes.as_slices();
        let first = &first[..length.min(first.len())];
        let second = &second[..length - first.len()];
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        let sent = socket::send_now(self.socket.as_fd(), &parts);
        let sent = sent?;
        match self.messages {
            Some(_) => self.remove_message(),
            None => drop(self.bytes.drain(..sent)),
        }
        Ok(sent)
    }

    /// Removes the message that has caused `error`, unless the socket only has no room.
    fn on_error(&mut self, error: io::Error) -> io::Error {
        if !is_full(&error) {
            self.remove_message();
            if self.is_empty() {
                self.clock.end();
            }
        }
        error
    }

    /// Removes the first message. Does nothing to a stream.
    fn remove_message(&mut self) {
        let length = self.messages.as_mut().and_then(VecDeque::pop_front);
        self.bytes.drain(..length.unwrap_or(0));
    }
}

/// Returns an empty queue with memory for `capacity` values.
fn with_capacity<T>(capacity: usize) -> io::Result<VecDeque<T>> {
    let mut queue = VecDeque::new();
    queue.try_reserve_exact(capacity)?;
    Ok(queue)
}

/// Returns whether the error says that the socket has no room.
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Most pieces sent by one call.
const MOST_PIECES: u64 = 64;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    /// 100 bytes take 100 us, or 50 us to catch up.
    fn options() -> SendOptions {
        SendOptions {
            piece: 100,
            most_bytes: 1_000,
            most_messages: 4,
            ..SendOptions::of_rate(Rate::from_bps(8_000_000).unwrap())
        }
    }

    #[test]
    fn messages_leave_one_by_one() {
        let (here, there) = UnixDatagram::pair().unwrap();
        there.set_nonblocking(true).unwrap();
        let mut queue = SendQueue::new(here, &options()).unwrap();
        assert_eq!(queue.next_due(at(0)), None);
        for length in [100, 50, 100] {
            queue.push(&vec![1; length]).unwrap();
        }
        assert_eq!(queue.next_due(at(7)), Some(at(7)));
        let mut due = vec![(at(7), queue.send_due(at(7)).unwrap())];
        while let Some(next) = queue.next_due(at(7)) {
            let early = queue.send_due(next.sub_ns(1));
            assert_eq!(early.unwrap(), 0);
            due.push((next, queue.send_due(next).unwrap()));
        }
        assert_eq!(due, [(at(7), 100), (at(107), 50), (at(157), 100)]);
        let mut buffer = [0; 200];
        let lengths: Vec<_> = std::iter::from_fn(|| there.recv(&mut buffer).ok()).collect();
        assert_eq!(lengths, [100, 50, 100]);
    }

    #[test]
    fn late_pieces_leave_together() {
        let (here, _there) = UnixStream::pair().unwrap();
        let mut queue = SendQueue::new(here, &options()).unwrap();
        queue.push(&[1; 900]).unwrap();
        assert_eq!(queue.send_due(at(0)).unwrap(), 100);
        // 3 more are due by 400 us, and the burst rate allows 7.
        assert_eq!(queue.send_due(at(400)).unwrap(), 400);
        assert_eq!(queue.len(), 400);
    }

    #[test]
    fn the_queue_is_bounded_and_takes_all_or_nothing() {
        let (here, _there) = UnixDatagram::pair().unwrap();
        let mut queue = SendQueue::new(here, &options()).unwrap();
        assert_eq!(queue.push(&[1; 1_001]), Err(QueueFull));
        (0..4).for_each(|_| queue.push(b"message").unwrap());
        assert_eq!(queue.push(b"message"), Err(QueueFull));
        assert_eq!(queue.len(), 28);
        assert_eq!(queue.push(b""), Ok(()), "no message");
    }

    #[test]
    fn a_full_socket_keeps_the_data() {
        let (here, there) = UnixStream::pair().unwrap();
        there.set_nonblocking(true).unwrap();
        while socket::send_now(here.as_fd(), &[IoSlice::new(&[0; 4_096])]).is_ok() {}
        let mut queue = SendQueue::new(here, &options()).unwrap();
        queue.push(&[1; 300]).unwrap();
        let error = queue.send_due(at(0)).unwrap_err();
        assert_eq!(
            (error.kind(), queue.len()),
            (io::ErrorKind::WouldBlock, 300)
        );
        while io::Read::read(&mut &there, &mut [0; 4_096]).is_ok() {}
        assert_eq!(queue.send_due(at(0)).unwrap(), 100);
    }

    #[test]
    fn a_message_that_cannot_be_sent_does_not_hold_up_others() {
        let (here, there) = UnixDatagram::pair().unwrap();
        drop(there);
        let mut queue = SendQueue::new(here, &options()).unwrap();
        queue.push(b"lost").unwrap();
        queue.push(b"next").unwrap();
        assert!(queue.send_due(at(0)).is_err());
        assert_eq!(queue.len(), 4);
    }

    #[test]
    fn an_error_after_others_were_sent_is_returned_by_the_next_call() {
        let there = UdpSocket::bind("127.0.0.1:0").unwrap();
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        here.connect(there.local_addr().unwrap()).unwrap();
        let mut queue = SendQueue::new(here, &options()).unwrap();
        (0..4).for_each(|_| queue.push(&[1; 100]).unwrap());
        assert_eq!(queue.send_due(at(0)).unwrap(), 100);
        drop(there);
        // Three are due. The port is closed, which the second one learns.
        assert_eq!(queue.send_due(at(300)).unwrap(), 100);
        assert!(queue.next_due(at(300)).unwrap() <= at(300));
        let error = queue.send_due(at(300)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(queue.len(), 100, "the message with the error is removed");
        assert_eq!(queue.send_due(at(300)).unwrap(), 100);
    }

    #[test]
    fn long_messages_keep_to_the_rate() {
        let (here, _there) = UnixDatagram::pair().unwrap();
        let mut queue = SendQueue::new(here, &options()).unwrap();
        // Each is pushed when the queue is empty, and takes as long as ten pieces.
        for ms in 0..10 {
            queue.push(&[1; 1_000]).unwrap();
            assert_eq!(queue.next_due(at(0)), Some(at(ms * 1_000)));
            assert_eq!(queue.send_due(at(ms * 1_000)).unwrap(), 1_000);
        }
    }

    #[test]
    fn late_messages_leave_together_by_their_size() {
        let (here, _there) = UnixDatagram::pair().unwrap();
        let mut queue = SendQueue::new(here, &options()).unwrap();
        for length in [100, 300, 300, 300] {
            queue.push(&vec![1; length]).unwrap();
        }
        assert_eq!(queue.send_due(at(0)).unwrap(), 100);
        // 400 bytes are due: after the first message, the second may still begin.
        assert_eq!(queue.send_due(at(400)).unwrap(), 600);
        assert_eq!(queue.next_due(at(400)), Some(at(700)));
    }

    #[test]
    fn a_queue_for_which_there_is_no_memory_is_refused() {
        let (here, _there) = UnixDatagram::pair().unwrap();
        let most_bytes = SendOptions {
            most_bytes: isize::MAX as usize,
            ..options()
        };
        let most_messages = SendOptions {
            most_messages: usize::MAX,
            ..options()
        };
        for options in [most_bytes, most_messages] {
            let error = SendQueue::new(&here, &options).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        }
    }

    #[test]
    fn other_descriptors_are_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(SendQueue::new(file, &options()).is_err());
    }
}
