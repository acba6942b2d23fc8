//! Threads with connections of their own: the frames that the others hand to each of them.

mod looks;

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use softclock_core::signalling::SignallingCounts;
use softclock_linux::link::{BATCH, XdpQueue};
use softclock_net::drops::DropReason;
use softclock_net::link::LinkAddress;
use softclock_net::stack::{Frame, HandedFrame, ReceiverCounts, TcpReport};

use super::ThreadFrames;
use super::queues::Queues;
use super::shared::Shared;
use crate::runtime::inner::Inner;
use looks::Looks;

/// The bounded queue of frames to one thread.
pub(super) struct Lane {
    /// The number of the thread's stack.
    pub(super) number: u32,
    state: Mutex<State>,
    counts: Mutex<LaneCounts>,
    /// Whether the thread could not watch a queue, and gets no other.
    refuses_queues: AtomicBool,
}

#[derive(Default)]
struct State {
    frames: VecDeque<HandedFrame>,
    /// Queues of the interface that the thread is to receive from, and has not taken yet.
    queues: Vec<XdpQueue>,
    /// The link addresses of neighbors that the thread has asked for: one for each question.
    neighbors: Vec<(IpAddr, LinkAddress)>,
    receiver: Option<Waker>,
    /// Whether the thread or the whole stack has ended.
    is_closed: bool,
}

impl Lane {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            state: Mutex::default(),
            counts: Mutex::default(),
            refuses_queues: AtomicBool::new(false),
        }
    }

    /// Whether there is room for a frame. Frames other than TCP (`is_common`), such as a flood of datagrams, may fill
    /// half of the room.
    pub(super) fn has_room(&self, is_common: bool) -> bool {
        let most = MOST_FRAMES >> u32::from(is_common);
        self.state().frames.len() < most
    }

    /// Queues a frame for which there is room, and wakes the driver of the thread. Returns false, and drops the frame,
    /// if the thread has ended.
    pub(super) fn push(&self, frame: HandedFrame) -> bool {
        let mut state = self.state();
        if state.is_closed {
            return false;
        }
        state.frames.push_back(frame);
        let receiver = state.receiver.take();
        drop(state);
        receiver.into_iter().for_each(Waker::wake);
        true
    }

    /// Takes frames, at most a batch. If there are none, the task is woken when there is one, or a queue, or an answer.
    pub(super) fn take(&self, cx: &Context<'_>) -> VecDeque<HandedFrame> {
        let mut state = self.state();
        let count = state.frames.len().min(BATCH);
        if !state.queues.is_empty() || !state.neighbors.is_empty() || state.is_closed {
            // They came after the task had looked for them in this turn.
            cx.waker().wake_by_ref();
        } else if count == 0 {
            state.receiver = Some(cx.waker().clone());
        }
        state.frames.drain(..count).collect()
    }

    /// Gives a queue of the interface to the thread.
    fn give_queue(&self, queue: XdpQueue) {
        self.state().queues.push(queue);
        self.wake();
    }

    /// Answers a question of the thread.
    pub(super) fn answer(&self, neighbor: IpAddr, link: LinkAddress) {
        self.state().neighbors.push((neighbor, link));
        self.wake();
    }

    /// Wakes the driver of the thread.
    pub(super) fn wake(&self) {
        let receiver = self.state().receiver.take();
        receiver.into_iter().for_each(Waker::wake);
    }

    /// Takes the queues that the thread has to receive from.
    fn take_queues(&self) -> Vec<XdpQueue> {
        mem::take(&mut self.state().queues)
    }

    /// Notes that the stack has ended.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.frames.clear();
        state.queues.clear();
        let receiver = state.receiver.take();
        drop(state);
        receiver.into_iter().for_each(Waker::wake);
    }

    /// What the thread's stack has done so far.
    pub(super) fn counts(&self) -> LaneCounts {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.clone()
    }

    /// Drops the frames that wait for a thread that ends. Returns the counters of the thread, without open connections.
    fn end(&self) -> LaneCounts {
        let mut counts = self.counts();
        counts.tcp = counts.tcp.ended();
        counts.soft_polling = 0;
        let mut state = self.state();
        // Other threads may refer to the lane until their next turns.
        state.is_closed = true;
        for frame in state.frames.drain(..) {
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
    /// The frames of threads that have ended, by their numbers.
    frames: Vec<ThreadFrames>,
    /// Queues that no thread receives from at the moment: the thread with the device takes them next.
    queues: Vec<XdpQueue>,
    /// By the numbers of the threads.
    looks: Vec<Looks>,
}

impl Lanes {
    /// Room for this number of threads, of which the first is there.
    pub(super) fn new(stacks: u32) -> Self {
        let mut lanes = vec![None; stacks as usize];
        lanes[0] = Some(Arc::new(Lane::new(0)));
        let mut looks = vec![Looks::default(); stacks as usize];
        looks[0].receives = true;
        Self {
            lanes,
            has_ended: vec![false; stacks as usize],
            ended: LaneCounts::default(),
            frames: vec![ThreadFrames::default(); stacks as usize],
            queues: Vec::new(),
            looks,
        }
    }

    /// The lane of the stack with this number.
    pub(super) fn of(&self, number: u32) -> Option<&Arc<Lane>> {
        self.lanes.get(number as usize)?.as_ref()
    }

    /// The lanes, by the numbers of their stacks.
    pub(super) fn all(&self) -> &[Option<Arc<Lane>>] {
        &self.lanes
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

    /// Removes a thread that ends, and adds its counters to those of the ended threads.
    pub(super) fn remove(&mut self, lane: &Lane) {
        let place = lane.number as usize;
        let counts = lane.end();
        self.frames[place].add(&counts);
        self.ended.add(&counts);
        self.queues.extend(lane.take_queues());
        self.lanes[place] = None;
        self.looks[place] = Looks::default();
        self.has_ended[place] = true;
    }

    /// The lane of the thread that is to receive from a queue; `None` for the thread with the device.
    fn of_queue(&self, queue: u32) -> Option<&Arc<Lane>> {
        let number = queue % self.lanes.len() as u32;
        let lane = self.of(number).filter(|_| number != 0);
        lane.filter(|lane| !lane.refuses_queues.load(Ordering::Relaxed))
    }

    /// Gives each queue to its thread: those in `here`, which the thread with the device receives from, and those that
    /// were given back. Returns the queues that this thread is to add, such as those of threads that have ended.
    pub(super) fn move_queues(&mut self, here: &Queues) -> Vec<XdpQueue> {
        self.queues
            .extend(here.take(|queue| self.of_queue(queue).is_some()));
        let mut left = Vec::new();
        for queue in mem::take(&mut self.queues) {
            let Some(lane) = self.of_queue(queue.number()) else {
                left.push(queue);
                continue;
            };
            let number = lane.number as usize;
            lane.give_queue(queue);
            self.looks[number].receives = true;
        }
        left
    }

    /// Keeps queues that a thread has given back until the thread with the device moves them.
    pub(super) fn take_back(&mut self, queues: Vec<XdpQueue>) {
        self.queues.extend(queues);
    }

    /// Closes the queues that no thread receives from.
    pub(super) fn close_queues(&mut self) {
        self.queues.clear();
    }

    /// The counters of the stacks of all threads without the device, and the frames of each thread, if `first` are
    /// those of the thread with the device. Looks once at the counters of each thread, so that both agree.
    pub(super) fn counts(&self, first: ThreadFrames) -> (LaneCounts, Vec<ThreadFrames>) {
        let (mut counts, mut frames) = (self.ended.clone(), self.frames.clone());
        for lane in self.present() {
            let of_lane = lane.counts();
            counts.add(&of_lane);
            frames[lane.number as usize].add(&of_lane);
        }
        frames[0] = first;
        (counts, frames)
    }
}

/// What the stack of a thread has done, and the connections that it has.
#[derive(Clone, Default)]
pub(super) struct LaneCounts {
    pub(super) received: ReceiverCounts,
    pub(super) tcp: TcpReport,
    /// Frames that were lost in its queues.
    pub(super) lost: u64,
    /// Frames that it has sent by its queues.
    pub(super) sent: u64,
    /// Those of them that the link refused.
    pub(super) refused: u64,
    pub(super) signalling: SignallingCounts,
    /// The threads that poll softly at present.
    pub(super) soft_polling: u32,
}

impl LaneCounts {
    pub(super) fn add(&mut self, more: &Self) {
        self.received.add(&more.received);
        self.tcp.add(&more.tcp);
        self.lost += more.lost;
        self.sent += more.sent;
        self.refused += more.refused;
        self.signalling.add(&more.signalling);
        self.soft_polling += more.soft_polling;
    }
}

impl ThreadFrames {
    fn add(&mut self, counts: &LaneCounts) {
        self.received += counts.received.frames;
        self.sent += counts.sent;
    }
}

/// A packet of another thread.
pub(super) enum Leaving {
    /// From a UDP socket.
    Datagram(Vec<u8>),
    /// From the stack of a thread with connections.
    Packet(Frame),
    /// The question of the thread with this number for the link address of a neighbor.
    Question(u32, IpAddr),
}

/// The thread's end of its lane, in place of a device. Dropping it gives the lane back.
pub(super) struct LaneEnd {
    runtime: Rc<Inner>,
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    queues: Queues,
    /// Whether frames wait for room in a queue, and not in that of the thread with the device.
    waits_for_queue: Cell<bool>,
}

impl LaneEnd {
    pub(super) fn new(runtime: Rc<Inner>, shared: Arc<Shared>, lane: Arc<Lane>) -> Self {
        Self {
            runtime,
            shared,
            lane,
            queues: Queues::default(),
            waits_for_queue: Cell::new(false),
        }
    }

    pub(super) fn runtime(&self) -> &Rc<Inner> {
        &self.runtime
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The number of the thread's stack.
    pub(super) fn number(&self) -> u32 {
        self.lane.number
    }

    /// Takes frames, at most a batch; if there are none, the task is woken when there is one.
    pub(super) fn take(&self, cx: &Context<'_>) -> VecDeque<HandedFrame> {
        self.lane.take(cx)
    }

    /// Whether the stack has ended. [`take`](Self::take) wakes the task then.
    pub(super) fn is_closed(&self) -> bool {
        self.lane.state().is_closed
    }

    /// The queues that this thread receives from.
    pub(super) const fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Begins to receive from the queues that the thread with the device has given to this one. Gives back those that
    /// cannot be watched, and refuses further ones then.
    pub(super) fn adopt_queues(&self) {
        for queue in self.lane.take_queues() {
            if let Err(queue) = self.queues.add(queue, Some(&self.shared.link)) {
                self.lane.refuses_queues.store(true, Ordering::Relaxed);
                self.shared.give_queues_back(vec![queue]);
            }
        }
    }

    /// Stops receiving from all queues, and gives them back unless the stack has ended.
    pub(super) fn leave_queues(&self) {
        let queues = self.queues.take(|_| true);
        if !self.is_closed() {
            self.shared.give_queues_back(queues);
        }
    }

    /// Sends frames with link addresses by a queue of this thread, and queues packets without for the thread with the
    /// device. Takes only frames of the same kind as the first; returns their number.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room, and `NetworkDown` if the stack has ended, or the first frame has link
    /// addresses and the thread has no queue any more.
    pub(super) fn send(&self, frames: &VecDeque<Frame>) -> io::Result<usize> {
        let is_complete = frames.front().is_some_and(Frame::is_complete);
        let run = frames.iter();
        let run = run.take_while(|frame| frame.is_complete() == is_complete);
        self.waits_for_queue.set(false);
        if is_complete {
            let parts = run.clone();
            let parts = parts.map(|frame| (&frame.bytes[..], &frame.offload));
            // Without a queue the frame is lost. The thread with the device would capture and count it once more.
            let sent = self.queues.send(parts);
            let sent = sent.unwrap_or(Err(io::ErrorKind::NetworkDown.into()));
            self.waits_for_queue.set(sent.is_err());
            return sent;
        }
        self.shared.send_batch(run.cloned())
    }

    /// Ready if there may be room for the frames that [`send`](Self::send) had none for. Else the task is woken when
    /// there is.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        match self.waits_for_queue.get() {
            true => self.queues.poll_room(cx),
            false => self.shared.poll_room(cx),
        }
    }

    /// Asks the thread with the device for the link address of a neighbor.
    pub(super) fn ask(&self, neighbor: IpAddr) {
        self.shared.ask_for(self.lane.number, neighbor);
    }

    /// Takes the answers.
    pub(super) fn take_neighbors(&self) -> Vec<(IpAddr, LinkAddress)> {
        mem::take(&mut self.lane.state().neighbors)
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
        self.leave_queues();
        self.shared.give_lane_back(&self.lane);
    }
}

/// The most frames that wait for a thread: as many as wait in an AF_XDP socket.
const MOST_FRAMES: usize = 2048;
