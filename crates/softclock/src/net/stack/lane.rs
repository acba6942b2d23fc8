//! Threads with connections of their own: the frames that the others hand to each of them.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use softclock_linux::link::BATCH;
use softclock_net::drops::DropReason;
use softclock_net::stack::{Frame, HandedFrame, ReceiverCounts, TcpReport};

use super::shared::Shared;
use crate::runtime::inner::Inner;

/// The bounded queue of frames to one thread.
pub(super) struct Lane {
    /// The number of the thread's stack.
    pub(super) number: u32,
    state: Mutex<State>,
    counts: Mutex<LaneCounts>,
}

#[derive(Default)]
struct State {
    frames: VecDeque<HandedFrame>,
    receiver: Option<Waker>,
    is_closed: bool,
}

impl Lane {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            state: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.state().frames.len() >= MOST_FRAMES
    }

    /// Queues a frame for which there is room, and wakes the driver of the thread.
    pub(super) fn push(&self, frame: HandedFrame) {
        let mut state = self.state();
        state.frames.push_back(frame);
        let receiver = state.receiver.take();
        drop(state);
        receiver.into_iter().for_each(Waker::wake);
    }

    /// Takes frames, at most a batch; if there are none, the task is woken when there is one.
    pub(super) fn take(&self, cx: &Context<'_>) -> VecDeque<HandedFrame> {
        let mut state = self.state();
        let count = state.frames.len().min(BATCH);
        if count == 0 {
            state.receiver = Some(cx.waker().clone());
        }
        state.frames.drain(..count).collect()
    }

    /// Notes that the stack has ended.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.frames.clear();
        let receiver = state.receiver.take();
        drop(state);
        receiver.into_iter().for_each(Waker::wake);
    }

    /// What the thread's stack has done so far.
    pub(super) fn counts(&self) -> LaneCounts {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.clone()
    }

    /// Drops the frames that wait for a thread that ends; returns what the thread has done, without connections.
    fn end(&self) -> LaneCounts {
        let mut counts = self.counts();
        counts.tcp = counts.tcp.ended();
        for frame in self.state().frames.drain(..) {
            counts.received.to_channels += u64::from(!frame.is_counted());
            counts.received.drops.count(DropReason::Closed);
        }
        counts
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads with connections of their own.
pub(super) struct Lanes {
    /// By the numbers of their stacks; `None` for a thread that has not joined, or has ended. The first, that of the
    /// thread with the device, is always there.
    lanes: Vec<Option<Arc<Lane>>>,
    /// Whether a thread with this number has ended.
    has_ended: Vec<bool>,
    /// The counts of threads that have ended.
    ended: LaneCounts,
}

impl Lanes {
    /// Room for this number of threads, of which the first is there.
    pub(super) fn new(stacks: u32) -> Self {
        let mut lanes = vec![None; stacks as usize];
        lanes[0] = Some(Arc::new(Lane::new(0)));
        Self {
            lanes,
            has_ended: vec![false; stacks as usize],
            ended: LaneCounts::default(),
        }
    }

    /// The lane of the stack with this number.
    pub(super) fn of(&self, number: u32) -> Option<&Arc<Lane>> {
        self.lanes.get(number as usize)?.as_ref()
    }

    /// The lanes of the threads that are there.
    pub(super) fn present(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.lanes.iter().flatten()
    }

    /// The numbers of the threads that have ended, and whether another has taken their place.
    pub(super) fn ended(&self) -> impl Iterator<Item = (u32, bool)> {
        let each = self.has_ended.iter().zip(&self.lanes).enumerate();
        let ended = each.filter(|(_, (has_ended, _))| **has_ended);
        ended.map(|(number, (_, lane))| (number as u32, lane.is_some()))
    }

    /// Adds a thread, with the first number that is free.
    pub(super) fn add(&mut self) -> Option<Arc<Lane>> {
        let place = self.lanes.iter().position(Option::is_none)?;
        let lane = Arc::new(Lane::new(place as u32));
        self.lanes[place] = Some(lane.clone());
        Some(lane)
    }

    /// Removes a thread that ends.
    pub(super) fn remove(&mut self, lane: &Lane) {
        let place = lane.number as usize;
        self.ended.add(&lane.end());
        self.lanes[place] = None;
        self.has_ended[place] = true;
    }

    /// What the stacks of all threads have done.
    pub(super) fn counts(&self) -> LaneCounts {
        let mut counts = self.ended.clone();
        self.present().for_each(|lane| counts.add(&lane.counts()));
        counts
    }
}

/// What the stack of a thread has done, and the connections that it has.
#[derive(Clone, Default)]
pub(super) struct LaneCounts {
    pub(super) received: ReceiverCounts,
    pub(super) tcp: TcpReport,
}

impl LaneCounts {
    pub(super) fn add(&mut self, more: &Self) {
        self.received.add(&more.received);
        self.tcp.add(&more.tcp);
    }
}

/// A packet of another thread.
pub(super) enum Leaving {
    /// From a UDP socket.
    Datagram(Vec<u8>),
    /// From the stack of a thread with connections.
    Packet(Frame),
}

/// The thread's end of its lane, in place of a device. Dropping it gives the lane back.
pub(super) struct LaneEnd {
    runtime: Rc<Inner>,
    shared: Arc<Shared>,
    lane: Arc<Lane>,
}

impl LaneEnd {
    pub(super) fn new(runtime: Rc<Inner>, shared: Arc<Shared>, lane: Arc<Lane>) -> Self {
        Self {
            runtime,
            shared,
            lane,
        }
    }

    pub(super) fn runtime(&self) -> &Rc<Inner> {
        &self.runtime
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Takes frames, at most a batch; if there are none, the task is woken when there is one.
    pub(super) fn take(&self, cx: &Context<'_>) -> VecDeque<HandedFrame> {
        self.lane.take(cx)
    }

    /// Ready with an error when the stack has ended. [`take`](Self::take) wakes the task then.
    pub(super) fn poll_end(&self) -> Poll<io::Result<usize>> {
        match self.lane.state().is_closed {
            true => Poll::Ready(Err(io::ErrorKind::NetworkDown.into())),
            false => Poll::Pending,
        }
    }

    /// Queues packets for the thread with the device; returns their number.
    pub(super) fn send(&self, packets: &VecDeque<Frame>) -> io::Result<usize> {
        self.shared.send_batch(packets.iter().cloned())
    }

    /// Ready if there is room for packets. Else the task is woken when there is.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        self.shared.poll_room(cx)
    }

    /// Notes what the thread's stack has done so far.
    pub(super) fn publish(&self, counts: LaneCounts) {
        let mut published = self
            .lane
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *published = counts;
    }
}

impl Drop for LaneEnd {
    fn drop(&mut self) {
        self.shared.give_lane_back(&self.lane);
    }
}

/// The most frames that wait for a thread: as many as wait in an AF_XDP socket.
const MOST_FRAMES: usize = 2048;
