//! SOFT-LRP whose receivers drive the receive work of the link.
//!
//! A receiver with an empty channel polls the link and demultiplexes what it finds, for all receivers, before it takes
//! its own packets or sleeps. The interrupt level sleeps as long as a receiver is awake, but for a backup: after a
//! millisecond without a poll it polls itself, since a receiver that computes for long does not.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

use softclock_core::Instant;
use softclock_linux::clock::monotonic_ns;
use softclock_linux::link::{
    Copies, Link as Interface, PollSettings, Poller, Polling, SharedXdpSocket, XdpFilter,
    XdpSettings,
};
use softclock_linux::priority::Priority;
use softclock_net::stack::Architecture;

use super::eager_stack::{EagerStack, InterruptCounts};
use super::pace::{Busy, Pace};
use super::receiver::{Inbox, Outbox};
use super::stopping::Stop;
use super::{BUDGET, INTERRUPT_PRIORITY, STOP_CHECK};
use crate::measure::processors::pin;

/// The device and its stack, which the receivers and the interrupt level share.
pub(super) struct Hub {
    socket: SharedXdpSocket,
    polling: Polling,
    stack: Mutex<EagerStack<Vec<u8>>>,
    counts: Arc<InterruptCounts>,
    receivers: usize,
    /// The receivers that are awake.
    awake: AtomicUsize,
    busy: Busy,
    interrupt_level: OnceLock<Thread>,
}

impl Hub {
    /// Opens the interface, for receivers that are all awake. Call it in the server's namespace.
    pub(super) fn open(
        interface: &str,
        endpoints: Vec<(u16, Outbox)>,
        counts: Arc<InterruptCounts>,
    ) -> io::Result<Self> {
        let link = Interface::named(interface)?;
        let settings = XdpSettings {
            copies: Copies::Allowed,
            queue: None,
            filter: XdpFilter::All,
        };
        let socket = SharedXdpSocket::open(&link, settings);
        let receivers = endpoints.len();
        let stack = EagerStack::new(Architecture::SoftLrp, endpoints, |packet| packet)?;
        Ok(Self {
            socket: socket.map_err(io::Error::other)?,
            polling: Polling::of_queue(&link, 0, PollSettings::default())?,
            stack: Mutex::new(stack),
            counts,
            receivers,
            awake: AtomicUsize::new(receivers),
            busy: Busy::default(),
            interrupt_level: OnceLock::new(),
        })
    }

    /// The calling thread's means to poll.
    pub(super) fn poller(&self) -> io::Result<Poller> {
        self.polling.poller(&self.socket)
    }

    /// Polls the link, and demultiplexes what has arrived; returns the number of frames.
    pub(super) fn poll(&self, poller: &mut Poller) -> usize {
        // First the frames that interrupts have received: a poll leaves the link alone as long as there are some.
        let waiting = self.demultiplex();
        if waiting > 0 {
            return waiting;
        }
        loop {
            // An error is that of a link that is down.
            let was_readable = matches!(poller.poll(), Ok(true));
            let frames = self.demultiplex();
            // Else another thread has taken the frames of an earlier poll, and this one has not looked at the link.
            if frames > 0 || !was_readable {
                self.busy.polled(monotonic_ns(), frames);
                return frames;
            }
        }
    }

    /// Polls if that is due although the receiver has packets.
    pub(super) fn keep_pace(&self, poller: &mut Poller, pace: &mut Pace) {
        let begun = monotonic_ns();
        if pace.is_due(begun) {
            let has_found = self.poll(poller) > 0;
            pace.polled(begun, monotonic_ns(), has_found);
        }
    }

    /// Sleeps until packets for the receiver arrive, or `stop`. Meanwhile the interrupt level polls.
    pub(super) fn sleep(&self, inbox: &Inbox, stop: &Stop) {
        while inbox.is_empty() && stop.goes_on() {
            self.awake.fetch_sub(1, SeqCst);
            if let Some(thread) = self.interrupt_level.get() {
                thread.unpark();
            }
            // The stack's turn counts the receivers that it wakes.
            if inbox.wait(STOP_CHECK) {
                return;
            }
            self.awake.fetch_add(1, SeqCst);
        }
    }

    /// Demultiplexes the frames that the socket has, at most a budget; returns their number.
    fn demultiplex(&self) -> usize {
        let lock = self.stack.lock();
        let mut stack = lock.unwrap_or_else(PoisonError::into_inner);
        let now = Instant::from_ns(monotonic_ns());
        let mut taken = 0;
        while taken < BUDGET
            && let Ok(frames) = self.socket.receive(|frame| {
                // No client sends frames that a device refuses.
                if let Ok(frame) = frame {
                    let frame = softclock_linux::link::Received {
                        bytes: frame.bytes.to_vec(),
                        offload: frame.offload,
                        age: frame.age,
                    };
                    stack.on_frame(now, frame);
                }
            })
        {
            taken += frames;
        }
        let woken = stack.process(now, &self.counts);
        self.awake.fetch_add(woken, SeqCst);
        self.counts.frames.fetch_add(taken as u64, Relaxed);
        taken
    }

    /// One turn of the interrupt level. It polls at a pace of its own while receivers wait and others are awake: a
    /// receiver that polled for itself would have used its turn when a packet comes.
    fn turn(&self, poller: &mut Poller, pace: &mut Pace) {
        let awake = self.awake.load(SeqCst);
        if awake == 0 && !self.busy.is_busy(monotonic_ns()) {
            // With interrupts, which the first frame masks again.
            let _ = poller.wait(STOP_CHECK);
            self.demultiplex();
            pace.restart(monotonic_ns());
            return;
        }
        let pause = match awake {
            0 => Busy::PAUSE,
            awake if awake == self.receivers => BACKUP,
            _ => pace.pause(monotonic_ns()).min(BACKUP),
        };
        thread::park_timeout(pause);
        let (awake, now) = (self.awake.load(SeqCst), monotonic_ns());
        if awake == 0 || self.busy.idle(now) >= BACKUP {
            self.poll(poller);
        } else if awake < self.receivers && pace.is_due(now) {
            pace.drain(|| self.poll(poller));
        }
        let lost = self.socket.take_lost().unwrap_or(0);
        self.counts.device.fetch_add(lost, Relaxed);
    }
}

/// The interrupt level: reports on `opened`, and runs until `stop`.
pub(super) fn run(
    hub: &Hub,
    processor: Option<usize>,
    stop: &Stop,
    opened: &mpsc::Sender<io::Result<()>>,
) {
    pin(processor);
    hub.interrupt_level.get_or_init(thread::current);
    let begun = Priority::Fifo(INTERRUPT_PRIORITY)
        .apply()
        .and_then(|()| hub.poller());
    // The starter waits for this message.
    match begun {
        Ok(mut poller) => {
            let _ = opened.send(Ok(()));
            let mut pace = Pace::of_waiting();
            while stop.goes_on() {
                hub.turn(&mut poller, &mut pace);
            }
        }
        Err(error) => {
            let _ = opened.send(Err(error));
        }
    }
}

/// The longest time without a poll while receivers are awake.
const BACKUP: Duration = Duration::from_millis(1);
