//! Moves frames between the interface and the stack, and wakes the sockets that have got datagrams.

mod backlog;
mod captured;
mod host;
mod lanes;
mod members;
mod news;
mod rings;
mod tcp;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::{self, Arc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use softclock_core::{Clock, Instant, SourceId};
use softclock_linux::link::{BATCH, Buffer, Claim, Link, LinkMonitor, Pool, Received, Refused};
use softclock_linux::readiness::Readiness;
use softclock_net::checksum::Verify;
use softclock_net::link::LinkAddress;
use softclock_net::routes::Prefix;
use softclock_net::stack::{Architecture, EndpointId, Frame, Stack, TcpId, TcpListenerId};
use softclock_wire::packet::{Headers, Offload, SegmentKind, segments};

use super::capture::Capture;
use super::channels::{COMMON, Channels};
use super::interface::{Interface, Opened};
use super::open::HostParts;
use super::received::{arrival, verification};
use super::ring::RingChannel;
use super::shared::{Shared, SharedSocket};
use super::{StackError, StackReport, ThreadFrames};
use crate::net::common::Common;
use crate::runtime::each_turn::{EachTurn, TurnEnd};
use crate::runtime::inner::Inner;
use crate::runtime::sources::Sources;
use crate::time::Sleep;
use backlog::Backlog;
use host::Host;
use news::News;
pub(super) use tcp::ends;

/// What a driver is made of.
pub(super) struct Parts {
    pub(super) link: Link,
    pub(super) opened: Opened,
    pub(super) claim: Option<Claim>,
    /// Reports the end of the link, if the device does not.
    pub(super) monitor: Option<LinkMonitor>,
    pub(super) stack: Stack<Buffer>,
    pub(super) capture: Option<Arc<Capture>>,
    /// If the stack shares the host's addresses.
    pub(super) host: Option<HostParts>,
}

/// The stack of a runtime with its interface. A task of the runtime runs it ([`start`](Self::start)).
///
/// No `RefCell` is borrowed across a trigger state, whose handlers may send datagrams.
pub(crate) struct Driver {
    interface: Interface,
    link: Link,
    _claim: Option<Claim>,
    pub(super) stack: RefCell<Stack<Buffer>>,
    pool: Pool,
    /// The source of each socket, by its endpoint.
    sockets: RefCell<HashMap<EndpointId, SourceId>>,
    /// The rings of sockets of all threads (NI-LRP), by their endpoints.
    rings: RefCell<HashMap<EndpointId, sync::Weak<RingChannel>>>,
    /// The frames of the common channels that the program had discarded at the last look.
    discarded: Cell<[u64; COMMON]>,
    /// The sources of sockets that wait for room in the queue of frames to send.
    blocked: RefCell<Vec<SourceId>>,
    /// Frames that the device had no room for, oldest first: less than a batch.
    leaving: RefCell<VecDeque<Frame>>,
    /// The calls that have left frames to send since the last time that such frames were sent.
    unsent_calls: Cell<u32>,
    /// Whether the driver sends at the end of this turn.
    ends_turn: Cell<bool>,
    /// Wakes the task of the driver.
    waker: RefCell<Option<Waker>>,
    /// The frames to take before a timeout is judged.
    backlog: Backlog,
    /// The time for which the task of the driver has set its timer.
    armed: Cell<Instant>,
    /// The tasks that wait for the end.
    ended: RefCell<Vec<Waker>>,
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
    /// The changes of the group of threads that the stack knows.
    lane_changes: Cell<u32>,
    turns_without_look: Cell<u32>,
    lost: Cell<u64>,
    refused: Cell<u64>,
    capture: Option<Arc<Capture>>,
    news: Option<News>,
    host: Option<Host>,
}

/// The wake-ups of a stack's sockets, which the runtime looks at in each turn.
struct Wakeups(Weak<Driver>);

impl TurnEnd for Driver {
    fn at_turn_end(&self) {
        self.ends_turn.set(false);
        self.send_now();
    }
}

impl EachTurn for Wakeups {
    fn look(&self, sources: &mut Sources) {
        let Some(driver) = self.0.upgrade() else {
            return;
        };
        driver.sort_woken();
        for (source, readiness) in driver.posts.borrow_mut().drain(..) {
            sources.post(source, readiness);
        }
        let stack = driver.stack.borrow();
        if stack.frames_waiting() < stack.settings().send_queue {
            for source in driver.blocked.borrow_mut().drain(..) {
                sources.post(source, Readiness::WRITABLE);
            }
        }
    }

    fn catch_up(&self) {
        if let Some(driver) = self.0.upgrade() {
            driver.catch_up();
        }
    }

    fn has_caught_up(&self) -> bool {
        self.0.upgrade().is_none_or(|driver| driver.has_caught_up())
    }
}

impl Driver {
    pub(super) fn new(parts: Parts) -> io::Result<Rc<Self>> {
        let shared = match &parts.host {
            Some(_) => parts.stack.routes().addresses(),
            None => &[],
        };
        let watch = |monitor| News::watch(monitor, shared);
        let news = parts.monitor.map(watch).transpose()?;
        Ok(Rc::new(Self {
            interface: Interface::watch(parts.opened)?,
            link: parts.link,
            _claim: parts.claim,
            stack: RefCell::new(parts.stack),
            pool: Pool::new(),
            sockets: RefCell::default(),
            rings: RefCell::default(),
            discarded: Cell::default(),
            blocked: RefCell::default(),
            leaving: RefCell::default(),
            unsent_calls: Cell::new(0),
            ends_turn: Cell::new(false),
            waker: RefCell::default(),
            backlog: Backlog::default(),
            armed: Cell::new(Instant::FAR_FUTURE),
            ended: RefCell::default(),
            is_gone: Cell::new(false),
            shared: OnceCell::new(),
            members: RefCell::default(),
            connections: RefCell::default(),
            listeners: RefCell::default(),
            posts: RefCell::default(),
            lane_changes: Cell::new(0),
            turns_without_look: Cell::new(0),
            lost: Cell::new(0),
            refused: Cell::new(0),
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
        self.stack.borrow_mut().announce(runtime.clock.now());
        drop(crate::spawn_local(self.clone().run()));
        Ok(())
    }

    /// Receives, processes and sends until the interface is deleted.
    async fn run(self: Rc<Self>) {
        let mut sleep = pin!(crate::sleep_until(Instant::FAR_FUTURE));
        poll_fn(|cx| self.poll(cx, sleep.as_mut())).await;
        self.is_gone.set(true);
        self.post_end();
        self.leave_group();
        self.ended.take().into_iter().for_each(Waker::wake);
    }

    /// One turn: at most one batch of frames. The tasks that it makes ready run before the next, so that receivers keep
    /// up with what is demultiplexed for them; under overload, frames are lost in the device, before any work here.
    fn poll(&self, cx: &mut Context<'_>, mut sleep: Pin<&mut Sleep>) -> Poll<()> {
        self.waker.replace(Some(cx.waker().clone()));
        if self.poll_gone(cx).is_ready() {
            return Poll::Ready(());
        }
        self.look_at_group(self.interface.runtime().clock.now());
        let received = self
            .interface
            .poll_receive(cx, |now, received| self.on_received(now, received));
        let has_received = match received {
            Poll::Ready(Err(error)) if self.interface.is_end(&self.link, &error) => {
                return Poll::Ready(());
            }
            // The link is down, or a frame cannot be received: more may come.
            Poll::Ready(_) => true,
            Poll::Pending => false,
        };
        let now = self.interface.runtime().clock.now();
        let has_received = self.take_handed(cx, now) || has_received;
        self.serve_members(cx, now);
        let quota = self.quota();
        let mut stack = self.stack.borrow_mut();
        let processed = stack.process(now, quota);
        if stack.next_timeout().is_some_and(|due| due <= now) {
            stack.on_timer(now);
        }
        drop(stack);
        self.limit_syns();
        self.serve_host(cx, now);
        self.hand_over();
        self.flush();
        // Segments to the stack itself have arrived now.
        let has_more = self.stack.borrow().has_work();
        self.hand_over();
        self.ask_for_neighbors();
        self.publish_counts(!has_received);
        self.sort_woken();
        let is_behind = has_received || has_more || processed == quota;
        self.backlog.on_turn(!is_behind);
        if is_behind {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.poll_room(cx);
        self.poll_timer(cx, sleep.as_mut(), now);
        Poll::Pending
    }

    /// Waits until the device has room for the frames that it refused.
    fn poll_room(&self, cx: &mut Context<'_>) {
        let is_waiting = !self.leaving.borrow().is_empty();
        if is_waiting && self.interface.poll_room(cx).is_ready() {
            self.flush();
        }
    }

    /// Waits for the next timeout of the stack, and for the next look at what frames wait for.
    fn poll_timer(&self, cx: &mut Context<'_>, mut sleep: Pin<&mut Sleep>, now: Instant) {
        let interface = &self.interface;
        // Before it is set anew: this turn may be the timer's.
        if sleep.as_mut().poll(cx).is_ready() {
            interface.flush();
            self.look_at_rings();
        }
        let pause = match interface.is_behind() || !self.leaving.borrow().is_empty() {
            true => Some(ROOM_PAUSE),
            false => self.has_waiting_rings().then_some(RING_PAUSE),
        };
        let next = self.stack.borrow().next_timeout();
        let next = next.into_iter().chain(pause.map(|pause| now + pause)).min();
        let next = next.unwrap_or(Instant::FAR_FUTURE);
        self.armed.set(next);
        sleep.as_mut().get_mut().reset(next);
        if sleep.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    fn on_received(&self, now: Instant, received: Result<Received, Refused>) {
        match received {
            Ok(received) => self.on_frame(&mut self.stack.borrow_mut(), now, received),
            Err(Refused::UnknownOffload | Refused::TooLong) => {
                self.lost.set(self.lost.get() + 1);
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
            self.lost.set(self.lost.get() + 1);
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

    /// Sends the frames that wait, as far as the interface has room.
    fn flush(&self) {
        let mut leaving = self.leaving.borrow_mut();
        loop {
            let mut stack = self.stack.borrow_mut();
            while leaving.len() < BATCH
                && let Some(frame) = stack.next_link_frame()
            {
                self.capture_sent(&frame);
                leaving.push_back(frame);
            }
            drop(stack);
            if leaving.is_empty() {
                return;
            }
            match self.interface.send(&leaving) {
                Ok(sent) => {
                    let mut stack = self.stack.borrow_mut();
                    (leaving.drain(..sent)).for_each(|frame| stack.give_back(frame.bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An error is always the first frame's, such as one that is longer than an MTU that was lowered.
                Err(_) => {
                    leaving.pop_front();
                    self.refused.set(self.refused.get() + 1);
                }
            }
        }
    }

    /// Calls `f` with the stack, and sends what it leaves to send at the end of the turn, together with what other
    /// tasks send meanwhile.
    pub(super) fn with_stack<R>(
        self: &Rc<Self>,
        f: impl FnOnce(&mut Stack<Buffer>, Instant) -> R,
    ) -> R {
        let runtime = self.interface.runtime();
        let now = runtime.clock.now();
        let mut stack = self.stack.borrow_mut();
        let result = f(&mut stack, now);
        // A neighbor whose address is unknown is asked at once.
        if stack.next_timeout().is_some_and(|due| due <= now) {
            stack.on_timer(now);
        }
        // A packet to the stack itself. Eager work follows at once, as a kernel's software interrupt does.
        if stack.has_work() && !stack.settings().architecture.is_lazy() {
            stack.process(now, self.quota());
        }
        let is_leaving = stack.frames_waiting() > 0;
        let next = stack.next_timeout();
        let must_run = stack.has_work() || next.is_some_and(|next| next < self.armed.get());
        drop(stack);
        if must_run {
            self.wake();
        }
        if is_leaving {
            self.send_soon();
        }
        result
    }

    /// Lets frames leave at the end of the turn, so that those of several tasks leave by one system call; or at the end
    /// of the running task, if many calls have left some.
    fn send_soon(self: &Rc<Self>) {
        let runtime = self.interface.runtime();
        let calls = self.unsent_calls.get() + 1;
        self.unsent_calls.set(calls);
        if !self.ends_turn.replace(true) {
            runtime.turn_end.borrow_mut().push(self.clone());
        }
        if calls == MOST_UNSENT_CALLS {
            let driver = self.clone();
            let send = move || driver.send_now();
            runtime.deferred.borrow_mut().push(Box::new(send));
        }
    }

    /// Sends what tasks have left.
    fn send_now(&self) {
        self.unsent_calls.set(0);
        self.flush();
        let is_full = !self.leaving.borrow().is_empty();
        if is_full || self.interface.is_behind() {
            self.wake();
        }
    }

    /// Wakes the task of the driver, which then looks at its timeouts and queues.
    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
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

    pub(super) fn report(&self) -> StackReport {
        let refused = self.refused.get() + self.interface.take_refused();
        self.refused.set(refused);
        self.count_discards();
        self.look_at_rings();
        let more = self.interface.take_lost().ok();
        let mut lost = more.map(|more| self.lost.get() + more);
        self.lost.set(lost.unwrap_or(self.lost.get()));
        self.count_members();
        let stack = self.stack.borrow();
        let (mut counts, mut drops) = (stack.counts().clone(), stack.drops().clone());
        let mut tcp = stack.tcp_report();
        let own = ThreadFrames {
            received: counts.frames_received,
            sent: counts.frames_sent,
        };
        let mut threads = vec![own];
        let mut refused = refused;
        if let Some(shared) = self.shared.get() {
            let lanes = shared.lanes().counts();
            threads = shared.lanes().frames(own);
            refused += lanes.refused;
            counts.frames_sent += lanes.sent;
            lost = lost.map(|lost| lost + lanes.lost);
            counts.add_received(&lanes.received);
            drops.add(&lanes.received.drops);
            tcp.add(&lanes.tcp);
        }
        StackReport {
            counts,
            drops,
            lost,
            refused,
            capture: self.capture.as_ref().map(|capture| capture.report()),
            tcp,
            threads,
            rings: (self.interface.channels()).map_or_else(Vec::new, Channels::report),
        }
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
        poll_fn(|cx| {
            if self.is_gone.get() {
                return Poll::Ready(());
            }
            self.ended.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
        StackError::Gone(self.link.name().into())
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

/// The longest frame above the link's MTU that is copied. It came in a buffer for 64 KiB, most of which would be held
/// in vain while it waits for its reader.
const MOST_COPIED: usize = 32 << 10;

/// The most calls whose frames wait for the end of the turn, so that a frame waits for a few tasks at most.
const MOST_UNSENT_CALLS: u32 = 16;

/// The pause before retrying a link that had no room.
const ROOM_PAUSE: Duration = Duration::from_micros(100);

/// The pause before a look whether the frames that wait in rings are lost.
const RING_PAUSE: Duration = Duration::from_secs(1);
