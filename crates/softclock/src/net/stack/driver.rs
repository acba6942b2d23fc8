//! Moves frames between the interface and the stack, and wakes the sockets that have got datagrams.

mod backlog;
mod captured;
mod host;
mod lanes;
mod looks;
mod losses;
mod members;
mod news;
mod rings;
mod signalling;
mod tcp;
mod transmit;
mod wakeups;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::{self, Arc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use softclock_core::signalling::Policy;
use softclock_core::{Clock, FireWindow, Instant, SourceId};
use softclock_linux::link::{
    BATCH, Buffer, Claim, DelayedInterrupts, Link, LinkMonitor, Pool, Received, Refused,
};
use softclock_linux::readiness::Readiness;
use softclock_net::checksum::Verify;
use softclock_net::link::LinkAddress;
use softclock_net::routes::Prefix;
use softclock_net::stack::{Architecture, EndpointId, Stack, TcpId, TcpListenerId};
use softclock_wire::packet::{Headers, Offload, SegmentKind, segments};

use super::StackError;
use super::capture::Capture;
use super::interface::{Interface, Opened};
use super::open::HostParts;
use super::received::{arrival, verification};
use super::ring::RingChannel;
use super::shared::{Shared, SharedSocket};
use super::taking::Taken;
use crate::net::common::Common;
use crate::runtime::inner::Inner;
use crate::time::Sleep;
use backlog::Backlog;
use host::Host;
use lanes::Group;
use looks::Looks;
use losses::Losses;
use news::News;
use signalling::DeviceSignalling;
pub(super) use tcp::ends;
use transmit::Unsent;
use wakeups::Wakeups;

/// The parts from which a driver is made.
pub(super) struct Parts {
    pub(super) link: Link,
    pub(super) opened: Opened,
    pub(super) claim: Option<Claim>,
    pub(super) delayed: Option<DelayedInterrupts>,
    /// Reports the end of the link, if the device does not.
    pub(super) monitor: Option<LinkMonitor>,
    /// How the thread learns of frames.
    pub(super) signalling: Policy,
    pub(super) stack: Stack<Buffer>,
    pub(super) capture: Option<Arc<Capture>>,
    /// If the stack shares the host's addresses.
    pub(super) host: Option<HostParts>,
}

/// The stack of a runtime with its interface. A task of the runtime runs it ([`start`](Self::start)).
///
/// No `RefCell` is borrowed across a trigger state, whose handlers may send datagrams.
pub(crate) struct Driver {
    /// Dropped first: with some devices the receive work, which has the settings, ends.
    _delayed: Option<DelayedInterrupts>,
    interface: Interface,
    link: Link,
    _claim: Option<Claim>,
    pub(super) stack: RefCell<Stack<Buffer>>,
    pool: Pool,
    /// The source of each socket, by its endpoint.
    sockets: RefCell<HashMap<EndpointId, SourceId>>,
    /// The rings of sockets of all threads (NI-LRP), by their endpoints.
    rings: RefCell<HashMap<EndpointId, sync::Weak<RingChannel>>>,
    /// The sources of sockets that wait for room in the queue of frames to send.
    blocked: RefCell<Vec<SourceId>>,
    unsent: Unsent,
    /// Wakes the task of the driver.
    waker: RefCell<Option<Waker>>,
    /// The frames to take before a timeout is judged.
    backlog: Backlog,
    looks: Looks,
    signalling: DeviceSignalling,
    /// The time for which the task of the driver has set its timer. Timers that are due before run in any turn before.
    armed: Cell<Instant>,
    /// The tasks that wait for the end.
    ended: RefCell<Vec<Weak<EndWaiter>>>,
    is_gone: Cell<bool>,
    /// The part that other threads reach, if there are any.
    shared: OnceCell<Arc<Shared>>,
    /// The sockets of other threads, by their endpoints.
    members: RefCell<HashMap<EndpointId, Arc<SharedSocket>>>,
    /// The sources of TCP connections and listeners, by their numbers.
    connections: RefCell<HashMap<TcpId, SourceId>>,
    listeners: RefCell<HashMap<TcpListenerId, SourceId>>,
    /// Conditions of this thread's sockets that the runtime does not know yet.
    posts: RefCell<Vec<(SourceId, Readiness)>>,
    group: Group,
    losses: Losses,
    capture: Option<Arc<Capture>>,
    news: Option<News>,
    host: Option<Host>,
}

impl Driver {
    pub(super) fn new(parts: Parts) -> io::Result<Rc<Self>> {
        let shared = match &parts.host {
            Some(_) => parts.stack.routes().addresses(),
            None => &[],
        };
        let watch = |monitor| News::watch(monitor, shared);
        let news = parts.monitor.map(watch).transpose()?;
        let interface = Interface::watch(parts.opened)?;
        let now = interface.runtime().clock.now();
        Ok(Rc::new(Self {
            _delayed: parts.delayed,
            interface,
            link: parts.link,
            _claim: parts.claim,
            stack: RefCell::new(parts.stack),
            pool: Pool::new(),
            sockets: RefCell::default(),
            rings: RefCell::default(),
            blocked: RefCell::default(),
            unsent: Unsent::default(),
            waker: RefCell::default(),
            backlog: Backlog::default(),
            looks: Looks::default(),
            signalling: DeviceSignalling::new(parts.signalling, now),
            armed: Cell::new(Instant::FAR_FUTURE),
            ended: RefCell::default(),
            is_gone: Cell::new(false),
            shared: OnceCell::new(),
            members: RefCell::default(),
            connections: RefCell::default(),
            listeners: RefCell::default(),
            posts: RefCell::default(),
            group: Group::default(),
            losses: Losses::default(),
            capture: parts.capture,
            news,
            host: parts.host.map(Host::watch).transpose()?,
        }))
    }

    /// The stack of the current runtime.
    pub(crate) fn current() -> Option<Rc<Self>> {
        let runtime = Inner::current().ok()?;
        let stack = Common::of(&runtime).stack.borrow().clone()?;
        stack.upgrade()?.downcast().ok()
    }

    /// Makes this the stack of the current runtime, and starts its task.
    pub(super) fn start(self: &Rc<Self>) -> io::Result<()> {
        let runtime = Inner::current()?;
        // Weak references, since the driver holds the runtime: it ends with its task, the handles and the sockets.
        let driver: Weak<Self> = Rc::downgrade(self);
        *Common::of(&runtime).stack.borrow_mut() = Some(driver.clone());
        runtime
            .each_turn
            .borrow_mut()
            .push(Rc::new(Wakeups(driver)));
        self.start_looks();
        self.stack.borrow_mut().announce(runtime.clock.now());
        drop(crate::spawn_local(self.clone().run()));
        Ok(())
    }

    /// Receives, processes and sends until the interface is deleted.
    async fn run(self: Rc<Self>) {
        let _members = MembersEnd(self.clone());
        let mut sleep = pin!(crate::sleep_until(Instant::FAR_FUTURE));
        poll_fn(|cx| self.poll(cx, sleep.as_mut())).await;
        self.is_gone.set(true);
        self.signalling.cancel_look();
        self.post_end();
        self.leave_group();
        let waiting = self.ended.take();
        let waiting = waiting.iter().filter_map(Weak::upgrade);
        let wakers = waiting.filter_map(|waiter| waiter.take());
        wakers.for_each(Waker::wake);
    }

    /// Lets the owners of all sockets of this thread see that the interface is gone.
    fn post_end(&self) {
        let closed = Readiness::READ_CLOSED | Readiness::WRITE_CLOSED | Readiness::ERROR;
        let all = closed | Readiness::READABLE | Readiness::WRITABLE;
        let (connections, listeners) = (self.connections.borrow(), self.listeners.borrow());
        let sockets = self.sockets.borrow();
        let sources = connections.values().chain(listeners.values());
        let sources = sources.chain(sockets.values());
        (self.posts.borrow_mut()).extend(sources.map(|&source| (source, all)));
        self.blocked.borrow_mut().clear();
    }

    /// # Errors
    /// [`io::ErrorKind::NetworkDown`] if the interface is gone.
    pub(super) fn check_present(&self) -> io::Result<()> {
        match self.is_gone.get() {
            true => Err(io::ErrorKind::NetworkDown.into()),
            false => Ok(()),
        }
    }

    /// One turn: at most one batch of frames. The tasks that it makes ready run before the next, so that receivers keep
    /// up with what is demultiplexed for them; under overload, frames are lost in the device, before any work here.
    fn poll(&self, cx: &mut Context<'_>, mut sleep: Pin<&mut Sleep>) -> Poll<()> {
        let is_known = |waker: &Waker| waker.will_wake(cx.waker());
        if !self.waker.borrow().as_ref().is_some_and(is_known) {
            self.waker.replace(Some(cx.waker().clone()));
        }
        if self.poll_gone(cx).is_ready() {
            return Poll::Ready(());
        }
        self.look_at_group(self.interface.runtime().clock.now());
        let taken = match self.receive() {
            Err(error) if self.interface.is_end(&self.link, &error) => return Poll::Ready(()),
            Ok(taken) => taken,
            // The link is down, or a frame cannot be received: more may come.
            Err(_) => Taken {
                has_more: true,
                ..Taken::default()
            },
        };
        let now = self.interface.runtime().clock.now();
        let was_handed = self.take_handed(cx, now);
        let has_received = taken.frames > 0 || was_handed;
        let must_wait = self.serve_members(cx, now);
        let quota = self.quota();
        let mut stack = self.stack.borrow_mut();
        let processed = stack.process(now, quota);
        if stack.next_timeout().is_some_and(|due| due <= now) {
            stack.on_timer(now);
        }
        drop(stack);
        self.limit_syns();
        self.pass_peer_changes();
        self.serve_host(cx, now);
        self.hand_over();
        self.flush();
        // Segments to the stack itself have arrived now.
        let has_more = self.stack.borrow().has_work();
        self.hand_over();
        self.ask_for_neighbors();
        self.publish_counts(now, has_received);
        self.sort_woken();
        // Last, as it registers for the next report only if this turn leaves no work.
        let is_behind =
            taken.has_more || was_handed || has_more || processed == quota || self.await_report();
        self.on_turn(!is_behind);
        if is_behind {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.poll_room(cx);
        // There is room now for the packets of other threads. While the device refuses frames, the timer looks again.
        if must_wait && !self.unsent.has_refused() {
            cx.waker().wake_by_ref();
        }
        self.poll_timer(cx, sleep.as_mut(), now);
        Poll::Pending
    }

    /// Sets the timer of the driver's task: for the latest time of the stack's next timer, the next check of refused
    /// frames and rings, and the end of a wait for other threads.
    fn poll_timer(&self, cx: &mut Context<'_>, mut sleep: Pin<&mut Sleep>, now: Instant) {
        let interface = &self.interface;
        // Before it is set anew: this turn may be the timer's.
        if sleep.as_mut().poll(cx).is_ready() {
            interface.flush();
        }
        let paused = match interface.is_behind() || self.unsent.has_refused() {
            true => Some(FireWindow::from(now + ROOM_PAUSE)),
            false => self.next_ring_look(now).map(FireWindow::roughly),
        };
        let look = self.losses.next_look().map(FireWindow::roughly);
        let end = self.looks.end_of_wait().map(FireWindow::from);
        let next = [self.stack.borrow().next_wake(now), paused, look, end];
        let next = FireWindow::first(next.into_iter().flatten());
        let next = next.unwrap_or(FireWindow::roughly(Instant::FAR_FUTURE));
        self.armed.set(next.earliest);
        sleep.as_mut().get_mut().reset_within(next);
        if sleep.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    /// Whether the stack has timers that are due, or that must not wait until the timer of the driver's task.
    fn must_wake(&self, stack: &Stack<Buffer>, now: Instant) -> bool {
        let next = stack.next_wake(now);
        next.is_some_and(|wake| wake.earliest < self.armed.get())
    }

    fn on_received(&self, now: Instant, received: Result<Received, Refused>) {
        match received {
            Ok(received) => self.on_frame(&mut self.stack.borrow_mut(), now, received),
            Err(_) => {
                self.losses.add_lost(1);
            }
        }
    }

    fn on_frame(&self, stack: &mut Stack<Buffer>, now: Instant, received: Received) {
        let arrived = arrival(now, received.age);
        let Received { bytes, offload, .. } = received;
        if offload.segmentation.is_none() {
            self.accept(stack, now, arrived, bytes, verification(&offload));
            return;
        }
        if stays_whole(&offload) {
            let frame = match bytes.len() {
                ..=MOST_COPIED => self.pool.exact_copy_of(&bytes),
                _ => bytes,
            };
            self.accept(stack, now, arrived, frame, Verify::Trusted);
            return;
        }
        let headers = Headers::of_frame(&bytes);
        let Some(segments) = segments(&bytes, &headers, &offload) else {
            self.losses.add_lost(1);
            return;
        };
        for segment in segments {
            let frame = self.pool.copy_of(&segment);
            self.accept(stack, now, arrived, frame, Verify::Trusted);
        }
    }

    /// The packets of the stack's own account that a turn processes: those that a turn receives, and some that wait.
    fn quota(&self) -> usize {
        self.interface.most_received() + BATCH
    }

    /// Wakes the task of the driver, which then looks at its timeouts and queues.
    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    pub(super) fn add_socket(&self, id: EndpointId, source: SourceId) {
        self.sockets.borrow_mut().insert(id, source);
    }

    pub(super) fn remove_socket(&self, id: EndpointId, source: SourceId) {
        self.sockets.borrow_mut().remove(&id);
        self.blocked.borrow_mut().retain(|&other| other != source);
        self.forget_posts(source);
        self.close_endpoint(id);
    }

    fn forget_posts(&self, source: SourceId) {
        let mut posts = self.posts.borrow_mut();
        posts.retain(|&(other, _)| other != source);
    }

    /// Notes that a socket waits for room in the queue of frames to send.
    pub(super) fn on_blocked(&self, source: SourceId) {
        self.blocked.borrow_mut().push(source);
    }

    pub(super) fn addresses(&self) -> Vec<Prefix> {
        self.stack.borrow().routes().addresses().to_vec()
    }

    pub(super) fn link_address(&self) -> LinkAddress {
        self.stack.borrow().settings().link_address
    }

    pub(super) fn architecture(&self) -> Architecture {
        self.stack.borrow().settings().architecture
    }

    pub(super) fn mechanism(&self) -> &'static str {
        self.interface.mechanism()
    }

    pub(super) fn interface(&self) -> &str {
        self.link.name()
    }

    pub(super) async fn ended(&self) -> StackError {
        let waiter = Rc::new(EndWaiter::default());
        poll_fn(|cx| {
            if self.is_gone.get() {
                return Poll::Ready(());
            }
            if waiter.replace(Some(cx.waker().clone())).is_none() {
                let mut waiting = self.ended.borrow_mut();
                waiting.retain(|other| other.strong_count() > 0);
                waiting.push(Rc::downgrade(&waiter));
            }
            Poll::Pending
        })
        .await;
        StackError::Gone(self.link.name().into())
    }
}

/// The waker of a task that waits for the end. Its future owns this.
type EndWaiter = RefCell<Option<Waker>>;

/// Ends the sockets of other threads at the end of the driver's task, which receives and sends for them. The driver
/// itself may last longer: handles of the stack and sockets refer to it.
struct MembersEnd(Rc<Driver>);

impl Drop for MembersEnd {
    fn drop(&mut self) {
        // A thread without the device keeps its queues until its connections have sent their ends.
        if !self.0.is_without_device() {
            self.0.leave_group();
        }
    }
}

impl Drop for Driver {
    /// Sends what the last sockets have left to send when they were dropped, such as the ends of streams.
    fn drop(&mut self) {
        if !self.is_gone.get() {
            self.flush();
            self.interface.flush();
        }
        self.leave_group();
        // Other threads may still refer to it.
        self.finish_capture();
    }
}

/// Whether a frame that is longer than the link allows is processed whole: a segment of TCP may have any length, and
/// its receiver then works once for all those that it stands for. Datagrams must be cut.
const fn stays_whole(offload: &Offload) -> bool {
    match &offload.segmentation {
        Some(cut) => matches!(cut.kind, SegmentKind::Tcp4 | SegmentKind::Tcp6),
        None => false,
    }
}

/// As in docs/tcp.md, with the frames of this crate.
const _: () = assert!(Stack::<Buffer>::IDLE_CONNECTION_BYTES <= 704);

/// The longest frame above the link's MTU that is copied. It came in a buffer for 64 KiB, most of which would be held
/// in vain while it waits for its reader.
const MOST_COPIED: usize = 32 << 10;

/// The pause before retrying a link that had no room.
const ROOM_PAUSE: Duration = Duration::from_micros(100);
