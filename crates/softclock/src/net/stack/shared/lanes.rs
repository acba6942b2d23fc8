//! The threads with connections, and the queues that they receive from.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use softclock_linux::link::{Buffer, XdpQueue};
use softclock_net::demux::HashKey;
use softclock_net::stack::Stack;

use super::{MOST_OUTGOING, Shared, lock};
use crate::net::stack::lane::{Lane, LaneEnd, Lanes, Leaving};
use crate::net::stack::random::random;
use crate::runtime::inner::Inner;

impl Shared {
    /// The lanes of the threads with connections. Keep the lock for a moment only.
    pub(in super::super) fn lanes(&self) -> MutexGuard<'_, Lanes> {
        lock(&self.lanes)
    }

    /// Asks the thread with the device for the link address of a neighbor, if there is room for the question. It is
    /// repeated if there is no answer.
    pub(in super::super) fn ask_for(&self, thread: u32, neighbor: IpAddr) {
        let mut outgoing = lock(&self.outgoing);
        if outgoing.packets.len() >= MOST_OUTGOING {
            return;
        }
        outgoing
            .packets
            .push_back(Leaving::Question(thread, neighbor));
        let is_first = outgoing.packets.len() == 1;
        drop(outgoing);
        if is_first {
            self.wake_driver();
        }
    }

    /// Gives the current thread a stack with connections of its own: the end of its lane, and the stack. `None` if all
    /// threads are there, or the stack has ended.
    pub(in super::super) fn take_lane(
        self: &Arc<Self>,
        runtime: Rc<Inner>,
    ) -> Option<(LaneEnd, Stack<Buffer>)> {
        let mut lanes = lock(&self.lanes);
        // Under the lock, as the end of the stack closes the lanes later than it is noted.
        if self.is_closed() {
            return None;
        }
        let lane = lanes.add()?;
        drop(lanes);
        self.on_lane_change();
        let mut settings = self.settings.clone();
        settings.steering = settings
            .steering
            .map(|steering| steering.of_stack(lane.number));
        let key = HashKey([random(), random()]);
        let stack = Stack::new(settings, self.routes.clone(), key);
        Some((LaneEnd::new(runtime, self.clone(), lane), stack))
    }

    /// Ends the part of a thread with connections.
    pub(in super::super) fn give_lane_back(&self, lane: &Lane) {
        lock(&self.lanes).remove(lane);
        self.on_lane_change();
    }

    /// Notes that a thread has begun or ended, or has given queues back. Drivers look at this before they receive.
    fn on_lane_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.wake_driver();
    }

    /// Takes queues back from a thread, to give them to another. Drops them if the stack has ended.
    pub(in super::super) fn give_queues_back(&self, queues: Vec<XdpQueue>) {
        let mut lanes = lock(&self.lanes);
        // After the end of the stack no thread would receive from them.
        if !self.is_closed() && !queues.is_empty() {
            lanes.take_back(queues);
            drop(lanes);
            self.on_lane_change();
        }
    }

    /// Asks the threads other than this one that receive from the interface for a look. Returns the number of the look;
    /// `None` if there is no such thread.
    pub(in super::super) fn ask_for_look(&self, thread: u32) -> Option<u32> {
        let receivers = lock(&self.lanes).begin_wait(thread);
        if receivers.is_empty() {
            return None;
        }
        // Before they are woken: a driver compares it after it has said how to wake it.
        let look = self.looks.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        receivers.iter().for_each(|lane| lane.wake());
        Some(look)
    }

    /// The number of the last look that was asked for.
    pub(in super::super) fn last_look(&self) -> u32 {
        self.looks.load(Ordering::Acquire)
    }

    /// Notes that a thread has made a look, and wakes the threads that wait for it.
    pub(in super::super) fn on_look(&self, thread: u32, look: u32) {
        let waiting = lock(&self.lanes).on_look(thread, look);
        waiting.iter().for_each(|lane| lane.wake());
    }

    /// The number of changes of the group so far.
    pub(in super::super) fn lane_changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }
}
