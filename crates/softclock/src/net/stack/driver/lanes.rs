//! The driver's part for several threads with connections of their own: frames for the connections of other threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Context;

use softclock_core::Instant;
use softclock_net::stack::ReceiverCounts;

use super::Driver;
use crate::net::stack::lane::{LaneCounts, LaneEnd};
use crate::net::stack::shared::Shared;

impl Driver {
    /// Gives frames to the threads that have their connections, as far as these have room.
    pub(super) fn hand_over(&self) {
        let mut stack = self.stack.borrow_mut();
        let Some((mut number, mut frame)) = stack.next_handed() else {
            return;
        };
        let lanes = self.group().map(|shared| shared.lanes());
        loop {
            let lane = lanes.as_ref().and_then(|lanes| lanes.of(number));
            // Before the copy.
            match lane.filter(|lane| !lane.is_full()) {
                Some(lane) => lane.push(frame.copied()),
                None => stack.on_not_handed(&frame),
            }
            match stack.next_handed() {
                Some(next) => (number, frame) = next,
                None => return,
            }
        }
    }

    /// What the threads have in common, if there are several.
    fn group(&self) -> Option<&Arc<Shared>> {
        let lane = self.interface.lane();
        lane.map(LaneEnd::shared).or(self.shared.get())
    }

    /// Lets the stack know which threads have ended since the last call.
    pub(super) fn look_at_group(&self) {
        let Some(shared) = self.group() else {
            return;
        };
        let changes = shared.lane_changes();
        if self.lane_changes.replace(changes) == changes {
            return;
        }
        let lanes = shared.lanes();
        let mut stack = self.stack.borrow_mut();
        for (number, is_replaced) in lanes.ended() {
            stack.set_absent(number, true);
            if is_replaced {
                stack.set_absent(number, false);
            }
        }
    }

    /// Takes the frames that other threads have handed over: at most a batch. Returns whether there were any.
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

    /// Notes what the stack of a thread without the device has done, for the report of the thread with it.
    pub(super) fn publish_counts(&self) {
        let Some(lane) = self.interface.lane() else {
            return;
        };
        let stack = self.stack.borrow();
        let counts = stack.counts();
        lane.publish(LaneCounts {
            received: ReceiverCounts {
                to_channels: counts.to_channels,
                to_control: counts.to_control,
                to_fragments: counts.to_fragments,
                demux_drops: counts.demux_drops,
                drops: stack.drops().clone(),
                ..ReceiverCounts::default()
            },
            tcp: stack.tcp_report(),
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
