//! A queue of datagrams, and the timer that sends those that are due.

use std::fmt;
use std::io;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use softclock_core::{FireWindow, Instant};

use super::queue::{Group, Queue, count};
use super::schedule::{Allowance, Schedule};
use super::timer::SendTimer;
use super::{Limits, Pacing};
use crate::timers::{SendJob, now};

/// Sends datagrams: a socket, for a [`PacedSender`].
pub trait Outlet: Send + Sync + 'static {
    /// The properties that datagrams must share to be sent by one call, such as their destination.
    type Flow: Clone + PartialEq + Send + 'static;

    /// Sends `bytes` as datagrams of `segment_bytes` each, the last of which may be shorter, without blocking. Returns
    /// the number of bytes sent, which may be fewer, but must be whole datagrams.
    ///
    /// Called by the timer, and by the threads that send. Never called by two threads at a time.
    ///
    /// # Errors
    /// `WouldBlock` if the socket takes no datagram now. After another error the datagrams are dropped.
    ///
    /// # Panics
    /// After a panic the datagrams are dropped, the next call that sends returns an error, and the timer goes on with
    /// the others. [`PacedSender::try_send`] passes on a panic within it.
    fn send(&self, flow: &Self::Flow, bytes: &[u8], segment_bytes: usize) -> io::Result<usize>;
}

/// A sender that spreads datagrams evenly over time.
///
/// Datagrams wait in a bounded queue, and a timer sends them when they are due, usually a
/// [timer thread](crate::Timers). A call that hands datagrams over sends those that are due by then itself: it is a
/// trigger state (*Soft Timers*, section 3), so a busy thread does not wait for the timer thread to get a processor. If
/// the socket takes none, the sender tries again every 200 us, and drops datagrams that it could not send for a second.
///
/// Datagrams in the queue are sent even if the handle is dropped meanwhile, as those in the buffer of a kernel's socket
/// are. [`poll_flushed`](Self::poll_flushed) waits for them.
///
/// # Example
/// ```
/// use std::io;
/// use std::net::{SocketAddr, UdpSocket};
/// use softclock_tokio::pacing::{Outlet, PacedSender};
/// use softclock_tokio::{Limits, Pacing, Timers};
///
/// struct Plain(UdpSocket);
///
/// impl Outlet for Plain {
///     type Flow = SocketAddr;
///
///     fn send(&self, to: &SocketAddr, bytes: &[u8], segment_bytes: usize) -> io::Result<usize> {
///         // One at a time: the sender calls again for the rest.
///         let first = &bytes[..bytes.len().min(segment_bytes)];
///         self.0.send_to(first, to)
///     }
/// }
///
/// # fn main() -> io::Result<()> {
/// let receiver = UdpSocket::bind("127.0.0.1:0")?;
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// socket.set_nonblocking(true)?;
/// let pacing = Pacing::of_rate("500mbit".parse().expect("a rate"));
/// let timer = Timers::new()?.sender_timer();
/// let sender = PacedSender::new(Plain(socket), Some(pacing), Limits::default(), timer);
/// // Ten datagrams of 1000 bytes.
/// sender.try_send(receiver.local_addr()?, &[0; 10_000], 1000)?;
/// let mut buffer = [0; 1500];
/// for _ in 0..10 {
///     assert_eq!(receiver.recv(&mut buffer)?, 1000);
/// }
/// # Ok(())
/// # }
/// ```
pub struct PacedSender<O: Outlet> {
    outlet: O,
    limits: Limits,
    state: Mutex<State<O::Flow>>,
}

struct State<F> {
    /// `None` sends without a rate.
    schedule: Option<Schedule>,
    queue: Queue<F>,
    /// Whether a thread sends, or a timer will: then other threads only add to the queue.
    is_running: bool,
    timer: Box<dyn SendTimer>,
    /// The time from which on datagrams are due, if the timer is set and has not fired.
    due: Option<Instant>,
    /// Since when the socket has taken no datagram.
    blocked_since: Option<Instant>,
    error: Option<io::Error>,
    waiting_for_room: Vec<Waker>,
    waiting_for_end: Vec<Waker>,
    counts: Counts,
}

/// Numbers of datagrams by outcome, and of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Datagrams sent.
    pub sent: u64,
    /// Calls that sent them: fewer if datagrams were joined.
    pub calls: u64,
    /// Datagrams dropped after an error, or after the socket had taken none for a second.
    pub dropped: u64,
    /// Datagrams that wait.
    pub queued: usize,
}

/// The next step of a thread that sends.
enum Step<F> {
    Send(Group<F>),
    Wait(Instant),
    End,
}

impl<O: Outlet> PacedSender<O> {
    /// Creates a sender that sends through `outlet`, timed by `timer`. `None` as pacing sends at once; use
    /// [`set_pacing`](Self::set_pacing) when the rate is known.
    pub fn new(
        outlet: O,
        pacing: Option<Pacing>,
        limits: Limits,
        timer: impl SendTimer,
    ) -> Arc<Self> {
        let limits = limits.valid();
        let state = State {
            schedule: pacing.map(|pacing| Schedule::new(pacing, limits.burst)),
            queue: Queue::new(limits.queue as usize),
            is_running: false,
            timer: Box::new(timer),
            due: None,
            blocked_since: None,
            error: None,
            waiting_for_room: Vec::new(),
            waiting_for_end: Vec::new(),
            counts: Counts::default(),
        };
        Arc::new(Self {
            outlet,
            limits,
            state: Mutex::new(state),
        })
    }

    /// Returns the outlet.
    pub fn outlet(&self) -> &O {
        &self.outlet
    }

    /// Changes the rate from the next transmission on, also of the datagrams that wait: the next one is due at the new
    /// rate after the last one that was sent. `None` sends at once. The limits stay.
    pub fn set_pacing(&self, pacing: Option<Pacing>) {
        let mut state = self.lock();
        state.set_pacing(pacing, self.limits.burst);
        if state.due.is_some() {
            let at = state.next_send(now());
            // If it has fired meanwhile, its run sees the new rate.
            let window = state.window(at);
            state.timer.reset(window);
            state.due = Some(at);
        }
    }

    /// Ready when `datagrams` can be added to the queue; otherwise the task is woken when half of the queue is free.
    /// Another task may fill the queue first. Sends the datagrams that are due.
    pub fn poll_room(self: &Arc<Self>, cx: &Context<'_>, datagrams: usize) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        if state.takes_over() {
            drop(state);
            self.send_due();
            state = self.lock();
        }
        if state.queue.has_room(datagrams) {
            return Poll::Ready(());
        }
        register(&mut state.waiting_for_room, waker);
        Poll::Pending
    }

    /// Ready when all datagrams have been sent or dropped.
    pub fn poll_flushed(&self, cx: &Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        if !state.is_running {
            return Poll::Ready(());
        }
        register(&mut state.waiting_for_end, waker);
        Poll::Pending
    }

    /// Hands over `bytes` as datagrams of `segment_bytes` each, the last of which may be shorter. Copies them, and
    /// sends those that are due.
    ///
    /// # Errors
    /// `WouldBlock` if the queue has no room for all of them; none is sent then. Otherwise the error of an earlier
    /// datagram, which was dropped; these are not sent then, either.
    pub fn try_send(
        self: &Arc<Self>,
        flow: O::Flow,
        bytes: &[u8],
        segment_bytes: usize,
    ) -> io::Result<()> {
        let mut state = self.lock();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        if !state.queue.push(flow, bytes, segment_bytes.max(1)) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let sends = !mem::replace(&mut state.is_running, true) || state.takes_over();
        drop(state);
        if sends {
            self.send_due();
        }
        Ok(())
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        let state = self.lock();
        Counts {
            queued: state.queue.len(),
            ..state.counts
        }
    }

    /// Sends the datagrams that are due, and sets the timer if datagrams are left. Called by the one thread that has
    /// set `is_running` or has cancelled the timer, and by the timer.
    fn send_due(self: &Arc<Self>) {
        let mut allowance = Allowance::default();
        loop {
            let mut state = self.lock();
            let now = now();
            match state.next_step(now, &mut allowance, self.limits) {
                Step::Send(group) => {
                    // Without the lock: other threads add to the queue meanwhile.
                    drop(state);
                    if let Some(retry) = self.send(now, group) {
                        self.set_timer(&mut self.lock(), retry);
                        break;
                    }
                }
                Step::Wait(at) => {
                    self.set_timer(&mut state, at);
                    break;
                }
                Step::End => break,
            }
        }
        self.wake();
    }

    /// Sets the timer for datagrams that are due at `at`, under the lock: it may fire at once, and its run clears it.
    fn set_timer(self: &Arc<Self>, state: &mut State<O::Flow>, at: Instant) {
        let window = state.window(at);
        state.timer.set(window, self.clone());
        state.due = Some(at);
    }

    /// Sends a group that is due at `at`. Returns the time of the next attempt if the socket takes no more.
    fn send(self: &Arc<Self>, at: Instant, mut group: Group<O::Flow>) -> Option<Instant> {
        let bytes = group.bytes.len();
        loop {
            let sent = self.call(at, bytes, &group);
            let mut state = self.lock();
            match sent {
                Ok(length) if length >= group.bytes.len() => {
                    state.on_sent(group.len());
                    state.charge(at, bytes, group.segment_bytes);
                    return None;
                }
                Ok(length @ 1..) => state.on_sent(group.split_off(length)),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    state.on_failed(&group, error);
                    state.charge(at, bytes, group.segment_bytes);
                    return None;
                }
                // Those that were not sent are charged when they are.
                Ok(0) | Err(_) => {
                    let sent = bytes - group.bytes.len();
                    if sent > 0 {
                        state.charge(at, sent, group.segment_bytes);
                    }
                    return Some(state.on_blocked(now(), group));
                }
            }
        }
    }

    /// Calls the outlet with the rest of a group of `bytes`. If it panics, the timer goes on with the datagrams that
    /// wait.
    fn call(
        self: &Arc<Self>,
        at: Instant,
        bytes: usize,
        group: &Group<O::Flow>,
    ) -> io::Result<usize> {
        let panicked = Panicked {
            sender: self,
            at,
            bytes,
            group,
        };
        let sent = self
            .outlet
            .send(&group.flow, &group.bytes, group.segment_bytes);
        mem::forget(panicked);
        sent
    }

    /// Wakes the tasks that have waited for the present state.
    fn wake(&self) {
        let mut state = self.lock();
        let mut wakers = Vec::new();
        if state.queue.len() <= self.limits.queue as usize / 2 {
            wakers.append(&mut state.waiting_for_room);
        }
        if !state.is_running {
            wakers.append(&mut state.waiting_for_end);
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State<O::Flow>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the sender go on when it is dropped, which is when the outlet has panicked.
struct Panicked<'a, O: Outlet> {
    sender: &'a Arc<PacedSender<O>>,
    at: Instant,
    bytes: usize,
    group: &'a Group<O::Flow>,
}

impl<O: Outlet> Drop for Panicked<'_, O> {
    fn drop(&mut self) {
        let mut state = self.sender.lock();
        state.on_failed(self.group, io::Error::other("the outlet has panicked"));
        state.charge(self.at, self.bytes, self.group.segment_bytes);
        // The run of the timer ends an empty queue, too: it wakes the tasks that wait for the end.
        self.sender.set_timer(&mut state, now());
    }
}

impl<O: Outlet> SendJob for PacedSender<O> {
    fn run(self: Arc<Self>) {
        self.lock().due = None;
        self.send_due();
    }
}

impl<F: Clone + PartialEq> State<F> {
    fn set_pacing(&mut self, pacing: Option<Pacing>, burst: u32) {
        match (&mut self.schedule, pacing) {
            (Some(schedule), Some(pacing)) => schedule.set_pacing(pacing),
            (schedule, pacing) => *schedule = pacing.map(|pacing| Schedule::new(pacing, burst)),
        }
    }

    /// Returns the time of the next transmission.
    fn next_send(&self, now: Instant) -> Instant {
        let next = |schedule: &Schedule| schedule.next(now);
        self.schedule.as_ref().map_or(now, next)
    }

    /// Returns when the timer fires for datagrams that are due at `at`: at once, or after a wait for a trigger state.
    fn window(&self, at: Instant) -> FireWindow {
        let schedule = self.schedule.as_ref();
        match schedule.map_or(Duration::ZERO, |schedule| schedule.patience(at)) {
            Duration::ZERO => FireWindow::from(at),
            patience => FireWindow::roughly(at + patience),
        }
    }

    /// Cancels the timer if datagrams are due and it has not fired. Then the calling thread sends in its place.
    fn takes_over(&mut self) -> bool {
        let due = self.due.take_if(|at| *at < now());
        due.is_some() && self.timer.cancel()
    }

    fn next_step(&mut self, now: Instant, allowance: &mut Allowance, limits: Limits) -> Step<F> {
        loop {
            if let Some(group) = self.queue.take(allowance) {
                return Step::Send(group);
            }
            if self.queue.is_empty() {
                self.is_running = false;
                self.blocked_since = None;
                if let Some(schedule) = &mut self.schedule {
                    schedule.end();
                }
                return Step::End;
            }
            // The allowance is used up.
            *allowance = match &self.schedule {
                None => Allowance::unlimited(limits.burst),
                Some(schedule) => {
                    let next = schedule.next(now);
                    if next > now {
                        return Step::Wait(next);
                    }
                    schedule.due(now)
                }
            };
        }
    }

    fn on_sent(&mut self, datagrams: usize) {
        self.blocked_since = None;
        self.counts.sent += datagrams as u64;
        self.counts.calls += 1;
    }

    /// Drops datagrams that cannot be sent.
    fn on_failed(&mut self, group: &Group<F>, error: io::Error) {
        self.on_dropped(group);
        self.error = Some(error);
    }

    /// Counts datagrams for the rate: those that were sent, and those that failed, so that a socket that always fails
    /// does not empty the queue at once.
    fn charge(&mut self, at: Instant, bytes: usize, segment_bytes: usize) {
        if let Some(schedule) = &mut self.schedule {
            schedule.on_sent(at, bytes, count(bytes, segment_bytes));
        }
    }

    /// Keeps the datagrams that the socket has not taken, if it has taken others lately. Returns the time of the next
    /// attempt.
    fn on_blocked(&mut self, now: Instant, group: Group<F>) -> Instant {
        let since = *self.blocked_since.get_or_insert(now);
        if now.since(since) > GIVE_UP {
            self.on_dropped(&group);
        } else {
            self.queue.put_back(group);
        }
        now + RETRY
    }

    fn on_dropped(&mut self, group: &Group<F>) {
        self.counts.dropped += group.len() as u64;
    }
}

impl Limits {
    fn valid(self) -> Self {
        let most = softclock_linux::socket::udp::MOST_SEGMENTS as u32;
        Self {
            burst: self.burst.clamp(1, most),
            queue: self.queue.max(1),
        }
    }
}

impl<O: Outlet> fmt::Debug for PacedSender<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedSender")
            .field("limits", &self.limits)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

/// Adds a waker, unless its task is registered.
fn register(wakers: &mut Vec<Waker>, waker: Waker) {
    if !wakers.iter().any(|known| known.will_wake(&waker)) {
        wakers.push(waker);
    }
}

/// The time after which a sender tries again, if the socket took no datagram. The send buffer of a socket holds some
/// milliseconds.
const RETRY: Duration = Duration::from_micros(200);

/// The time for which a sender tries to send a datagram.
const GIVE_UP: Duration = Duration::from_secs(1);
