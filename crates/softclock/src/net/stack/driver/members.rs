//! The driver's part for sockets of other threads.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::Context;

use softclock_core::Instant;
use softclock_linux::link::Buffer;
use softclock_linux::readiness::Readiness;
use softclock_net::drops::DropReason;
use softclock_net::stack::{EndpointId, SendError, Stack};

use super::Driver;
use crate::net::stack::lane::Leaving;
use crate::net::stack::shared::{Change, Shared, SharedParts, SharedSocket};

impl Driver {
    /// The part that other threads reach. Ports that are bound already are reserved in it.
    pub(in super::super) fn share(&self) -> Arc<Shared> {
        let shared = self.shared.get_or_init(|| {
            let stack = self.stack.borrow();
            let channels = self.interface.channels();
            let shared = Shared::new(SharedParts {
                link: self.link.clone(),
                routes: stack.routes().clone(),
                settings: stack.settings().clone(),
                ports: self.ports().map(Vec::from),
                channels: channels.map(|channels| channels.all().clone()),
                capture: self.capture.clone(),
                signalling: self.signalling.policy(),
                identifications: stack.identifications().clone(),
            });
            for id in self.sockets.borrow().keys() {
                if let Some(local) = stack.bound(*id) {
                    shared.reserve(local);
                }
            }
            Arc::new(shared)
        });
        match self.check_present() {
            // The driver looks at what is shared from its next turn on.
            Ok(()) => self.wake(),
            Err(_) => shared.close(),
        }
        shared.clone()
    }

    /// Makes the changes that sockets of other threads have asked for.
    pub(super) fn make_changes(&self) {
        let Some(shared) = self.shared.get() else {
            return;
        };
        let mut stack = self.stack.borrow_mut();
        let mut members = self.members.borrow_mut();
        for change in shared.take_changes() {
            let find = |members: &HashMap<EndpointId, Arc<SharedSocket>>, local| {
                let mut members = members.iter();
                members.find_map(|(&id, socket)| (socket.local == local).then_some(id))
            };
            match change {
                Change::Bind(socket) => {
                    if let Ok(id) = stack.bind(socket.local) {
                        stack.wait(id);
                        if let Some(ring) = socket.ring.as_ref().and_then(Weak::upgrade) {
                            self.add_ring(id, &ring);
                        }
                        members.insert(id, socket);
                    }
                }
                Change::Connect(local, remote) => {
                    if let Some(id) = find(&members, local) {
                        let _ = stack.connect(id, remote);
                    }
                }
                Change::Close(local) => {
                    if let Some(id) = find(&members, local) {
                        stack.close(id);
                        members.remove(&id);
                        self.rings.borrow_mut().remove(&id);
                    }
                }
            }
        }
    }

    /// Makes the changes that sockets of other threads have asked for, and sends their packets. Returns whether some of
    /// these found no room.
    pub(super) fn serve_members(&self, cx: &Context<'_>, now: Instant) -> bool {
        let Some(shared) = self.shared.get() else {
            return false;
        };
        shared.set_driver(cx.waker());
        // Before the changes: a packet may be to a socket of the same thread, which was bound before it was sent.
        let packets = shared.take_packets();
        self.make_changes();
        let mut stack = self.stack.borrow_mut();
        for frame in shared.take_returned() {
            let bytes = self.pool.copy_of(&frame.bytes);
            self.accept(&mut stack, now, frame.arrived, bytes, frame.verify);
        }
        shared.send_all(packets, |packet| {
            if let Leaving::Question(thread, neighbor) = packet {
                let link = stack.link_address_of(now, neighbor);
                let lane = shared.lanes().of(thread).cloned();
                if let (Some(link), Some(lane)) = (link, lane) {
                    lane.answer(neighbor, link);
                }
                return Ok(());
            }
            if stack.frames_waiting() >= stack.settings().send_queue {
                return Err(packet);
            }
            let sent = match packet {
                Leaving::Datagram(packet) => stack.send_packet(now, packet),
                Leaving::Packet(packet) => stack.forward(now, packet),
                Leaving::Question(..) => Ok(()),
            };
            if let Err(error) = sent {
                shared.count_drop(not_sent(error));
            }
            Ok(())
        })
    }

    /// Adds to the stack's counters what other threads have done.
    pub(super) fn count_members(&self) {
        let Some(shared) = self.shared.get() else {
            return;
        };
        let mut stack = self.stack.borrow_mut();
        let closed = shared.take_counts();
        stack.add_counts(&closed.received);
        self.losses.add_lost(closed.lost);
        for socket in self.members.borrow().values() {
            stack.add_counts(&socket.take_counts());
        }
    }

    /// Sorts the endpoints that have got something: notes the sockets of this thread, and copies the packets for those
    /// of others into their channels.
    pub(super) fn sort_woken(&self) {
        let mut stack = self.stack.borrow_mut();
        let (sockets, members) = (self.sockets.borrow(), self.members.borrow());
        while let Some(id) = stack.next_woken() {
            if let Some(&source) = sockets.get(&id) {
                let mut posts = self.posts.borrow_mut();
                posts.push((source, Readiness::READABLE));
            } else if let Some(socket) = members.get(&id) {
                hand_over(&mut stack, id, socket);
            }
        }
        drop((sockets, members));
        self.sort_woken_tcp(&mut stack);
    }
}

/// The reason for which a packet of another thread is dropped.
const fn not_sent(error: SendError) -> DropReason {
    match error {
        SendError::Remote => DropReason::IpSource,
        SendError::Full => DropReason::SendQueueFull,
        // The other errors are those of sockets.
        _ => DropReason::NoRoute,
    }
}

/// Copies the packets for a socket of another thread into its channel, and discards those for which it has no room.
fn hand_over(stack: &mut Stack<Buffer>, id: EndpointId, socket: &SharedSocket) {
    if let Some(error) = stack.take_error(id) {
        socket.fail(error);
    }
    loop {
        while let Some(packet) = stack.take_pending(id) {
            match socket.is_full(packet.bytes()) {
                true => stack.count_drop(id, DropReason::ChannelFull),
                false => socket.push(packet.copied()),
            }
        }
        if stack.wait(id) || stack.has_error(id) {
            return;
        }
    }
}
