//! SOFT-LRP whose receivers drive the receive work of the link.
//!
//! A receiver with an empty channel polls the link and demultiplexes what it finds, for all receivers, before it takes
//! its own packets or sleeps. The interrupt level sleeps as long as a receiver is awake, but for a backup: after a
//! millisecond without a poll it polls itself, since a receiver that computes for long does not.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
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

use super::demultiplexer::{Demultiplexer, InterruptCounts};
use super::interrupt::{BUDGET, LOOK_UP, PRIORITY};
use super::pace::Pace;
use super::receiver::{Inbox, Outbox};
use super::stopping::Stop;
use crate::measure::processors::pin;

/// The device and its demultiplexer, which the receivers and the interrupt level share.
pub(super) struct Hub {
    socket: SharedXdpSocket,
    polling: Polling,
    demultiplexer: Mutex<Demultiplexer<Vec<u8>>>,
    counts: Arc<InterruptCounts>,
    /// The receivers that are awake.
    awake: AtomicUsize,
    /// The time of the last poll, in nanoseconds.
    polled: AtomicU64,
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
        let awake = AtomicUsize::new(endpoints.len());
        let demultiplexer = Demultiplexer::new(Architecture::SoftLrp, endpoints, |packet| packet)?;
        Ok(Self {
            socket: socket.map_err(|error| io::Error::other(format!("{error:?}")))?,
            polling: Polling::of_queue(&link, 0, PollSettings::default())?,
            demultiplexer: Mutex::new(demultiplexer),
            counts,
            awake,
            polled: AtomicU64::new(0),
            interrupt_level: OnceLock::new(),
        })
    }

    /// The calling thread's means to poll.
    pub(super) fn poller(&self) -> io::Result<Poller> {
        self.polling.poller(&self.socket)
    }

    /// Polls the link and demultiplexes what has arrived.
    pub(super) fn poll(&self, poller: &mut Poller, pace: &mut Pace) {
        let begun = monotonic_ns();
        // An error is that of a link that is down.
        let _ = poller.poll();
        let frames = self.demultiplex();
        let ended = monotonic_ns();
        self.polled.store(ended, Relaxed);
        pace.polled(begun, ended, frames > 0);
    }

    /// Sleeps until packets for the receiver arrive, at most for `most`.
    pub(super) fn sleep(&self, inbox: &Inbox, most: Duration) {
        if self.awake.fetch_sub(1, SeqCst) == 1
            && let Some(thread) = self.interrupt_level.get()
        {
            thread.unpark();
        }
        // The demultiplexer counts the receivers that it wakes.
        if !inbox.wait(most) {
            self.awake.fetch_add(1, SeqCst);
        }
    }

    /// Demultiplexes the frames that the socket has, at most a budget; returns their number.
    fn demultiplex(&self) -> usize {
        let lock = self.demultiplexer.lock();
        let mut demultiplexer = lock.unwrap_or_else(PoisonError::into_inner);
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
                    demultiplexer.on_frame(now, frame);
                }
            })
        {
            taken += frames;
        }
        let woken = demultiplexer.process(now, &self.counts);
        self.awake.fetch_add(woken, SeqCst);
        self.counts.frames.fetch_add(taken as u64, Relaxed);
        taken
    }

    /// One turn of the interrupt level.
    fn turn(&self, poller: &mut Poller) {
        if self.awake.load(SeqCst) == 0 {
            // With interrupts, which the first frame masks again.
            let _ = poller.wait(LOOK_UP);
            self.demultiplex();
            return;
        }
        thread::park_timeout(BACKUP);
        let idle_ns = monotonic_ns().saturating_sub(self.polled.load(Relaxed));
        if self.awake.load(SeqCst) > 0 && idle_ns >= BACKUP.as_nanos() as u64 {
            self.poll(poller, &mut Pace::default());
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
    let begun = Priority::Fifo(PRIORITY).apply().and_then(|()| hub.poller());
    // The starter waits for this message.
    match begun {
        Ok(mut poller) => {
            let _ = opened.send(Ok(()));
            while stop.goes_on() {
                hub.turn(&mut poller);
            }
        }
        Err(error) => {
            let _ = opened.send(Err(error));
        }
    }
}

/// The longest time without a poll while receivers are awake.
const BACKUP: Duration = Duration::from_millis(1);
