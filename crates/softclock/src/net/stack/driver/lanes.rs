//! The driver's part for several threads with connections of their own: frames for the connections of other threads.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Context;

use softclock_core::Instant;
use softclock_net::stack::ReceiverCounts;

use super::Driver;
use crate::net::stack::lane::{Lane, LaneCounts, LaneEnd};
use crate::net::stack::shared::Shared;

/// The threads with connections, as this one has seen them at last.
#[derive(Default)]
pub(super) struct Group {
    /// The changes of the group that the stack knows.
    changes: Cell<u32>,
    /// The lanes of the group after these changes, by the numbers of their stacks.
    lanes: RefCell<Vec<Option<Arc<Lane>>>>,
}

impl Driver {
    /// Gives frames to the threads that have their connections, as far as these have room.
    pub(super) fn hand_over(&self) {
        let mut stack = self.stack.borrow_mut();
        let Some((mut number, mut frame)) = stack.next_handed() else {
            return;
        };
        // As they were when the turn began, so that no other thread waits for a lock while frames are copied.
        let lanes = self.group.lanes.borrow();
        loop {
            let lane = lanes.get(number as usize).and_then(Option::as_ref);
            // Before the copy.
            let lane = lane.filter(|lane| lane.has_room(frame.is_common()));
            if !lane.is_some_and(|lane| lane.push(frame.copied())) {
                stack.on_not_handed(&frame);
            }
            match stack.next_handed() {
                Some(next) => (number, frame) = next,
                None => return,
            }
        }
    }

    /// Returns the state that the threads share, if there are several.
    pub(super) fn group(&self) -> Option<&Arc<Shared>> {
        let lane = self.interface.lane();
        lane.map(LaneEnd::shared).or(self.shared.get())
    }

    /// Notes which threads have ended or begun, passes that and answers about neighbors to the stack, and moves queues
    /// between the threads. Begins a look if another thread has asked for one. Costs a few locks if nothing has
    /// changed.
    pub(super) fn look_at_group(&self, now: Instant) {
        if let Some(lane) = self.interface.lane() {
            lane.adopt_queues();
            let mut stack = self.stack.borrow_mut();
            stack.set_sends(lane.queues().can_send());
            for (neighbor, link) in lane.take_neighbors() {
                stack.on_neighbor(now, neighbor, link);
            }
        }
        let Some(shared) = self.group() else {
            return;
        };
        self.begin_look(shared);
        let changes = shared.lane_changes();
        if self.group.changes.replace(changes) == changes {
            return;
        }
        if self.interface.lane().is_none()
            && let Some(queues) = self.interface.queues()
        {
            // Not under the lock, since a trigger state is passed.
            let left = shared.lanes().move_queues(queues);
            let unwatched = left
                .into_iter()
                .filter_map(|queue| queues.add(queue, None).err());
            let unwatched: Vec<_> = unwatched.collect();
            // Watching them is tried again at the next change.
            shared.lanes().take_back(unwatched);
        }
        let lanes = shared.lanes();
        self.group.lanes.replace(lanes.all().to_vec());
        let mut stack = self.stack.borrow_mut();
        for (number, is_replaced) in lanes.ended() {
            stack.set_absent(number, true);
            if is_replaced {
                stack.set_absent(number, false);
            }
        }
    }

    /// Ends this thread's part in the group. The thread with the device closes the stacks and sockets of all others;
    /// another thread gives its queues back.
    pub(super) fn leave_group(&self) {
        match (self.interface.lane(), self.shared.get()) {
            (Some(lane), _) => lane.leave_queues(),
            (None, Some(shared)) => {
                shared.close();
                let members = self.members.borrow();
                members.values().for_each(|socket| socket.wake());
            }
            (None, None) => {}
        }
    }

    /// Takes frames that other threads have handed over, at most a batch. Returns whether there were any.
    pub(super) fn take_handed(&self, cx: &Context<'_>, now: Instant) -> bool {
        let frames = match (self.interface.lane(), self.shared.get()) {
            (Some(lane), _) => lane.take(cx),
            (None, Some(shared)) => {
                let lane = shared.lanes().of(0).cloned();
                lane.map_or_else(VecDeque::new, |lane| lane.take(cx))
            }
            (None, None) => return false,
        };
        let has_received = !frames.is_empty();
        let mut stack = self.stack.borrow_mut();
        frames
            .into_iter()
            .for_each(|frame| stack.on_handed(now, frame));
        has_received
    }

    /// Asks the thread with the device for the neighbors that this thread sends to by a queue of its own.
    pub(super) fn ask_for_neighbors(&self) {
        let Some(lane) = self.interface.lane() else {
            return;
        };
        let mut stack = self.stack.borrow_mut();
        while let Some(neighbor) = stack.next_question() {
            lane.ask(neighbor);
        }
    }

    /// Publishes the counters of a thread without the device, for the report of the thread with it. `has_received` says
    /// that frames have arrived in this turn.
    pub(super) fn publish_counts(&self, now: Instant, has_received: bool) {
        let Some(lane) = self.interface.lane() else {
            return;
        };
        let has_queues = lane.queues().len() > 0;
        // Costs a system call for each queue.
        let more = match self.losses.is_look_due(now, has_received && has_queues) {
            true => self.interface.take_lost().unwrap_or(0),
            false => 0,
        };
        let lost = self.losses.add_lost(more);
        let refused = self.losses.add_refused(self.interface.take_refused());
        let signalling = self.signalling.report(now);
        let stack = self.stack.borrow();
        let counts = stack.counts();
        lane.publish(LaneCounts {
            received: ReceiverCounts {
                frames: counts.frames_received,
                to_channels: counts.to_channels,
                to_control: counts.to_control,
                to_fragments: counts.to_fragments,
                demux_drops: counts.demux_drops,
                drops: stack.drops().clone(),
                ..ReceiverCounts::default()
            },
            tcp: stack.tcp_report(),
            lost,
            sent: counts.frames_sent,
            refused,
            signalling: signalling.counts,
            soft_polling: signalling.soft_polling,
        });
    }

    /// Whether several threads have connections.
    pub(in super::super) fn has_threads(&self) -> bool {
        self.stack.borrow().settings().steering.is_some()
    }

    /// Whether the thread has connections, and another thread the device.
    pub(in super::super) fn is_without_device(&self) -> bool {
        self.interface.lane().is_some()
    }
}
