//! The driver's part for NI-LRP: the rings of sockets and listeners, and what the XDP program and the kernel have
//! dropped.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use softclock_core::Instant;
use softclock_net::stack::{EndpointId, Ring, TcpListenerId};

use super::Driver;
use crate::net::stack::ring::{RingChannel, SocketRing};
use crate::net::stack::udp::bind_error;

impl Driver {
    /// Binds an endpoint, whose port no socket of another thread has, and opens its ring, if it has one.
    pub(in super::super) fn bind(
        &self,
        local: SocketAddr,
    ) -> io::Result<(EndpointId, Option<SocketRing>)> {
        loop {
            let id = self.bind_endpoint(local)?;
            match self.open_ring(id) {
                Ok(ring) => return Ok((id, ring)),
                Err(error) => {
                    self.close_endpoint(id);
                    // A socket at all addresses has the port that was chosen for one address, or the reverse. The next
                    // port is another, and there are more ports than rings.
                    let is_chosen = local.port() == 0;
                    if !is_chosen || error.kind() != io::ErrorKind::AddrInUse {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Opens the ring of an endpoint, if the interface has rings and the endpoint is bound to an address of the stack.
    fn open_ring(&self, id: EndpointId) -> io::Result<Option<SocketRing>> {
        let Some(channels) = self.interface.channels() else {
            return Ok(None);
        };
        let stack = self.stack.borrow();
        let local = stack.bound(id).ok_or(io::ErrorKind::NotConnected)?;
        let limit = stack.settings().channel.packets;
        let routes = stack.routes().clone();
        drop(stack);
        let ring = SocketRing::open(channels.all(), &routes, local, limit)?;
        if let Some(ring) = &ring {
            self.add_ring(id, ring.channel());
        }
        Ok(ring)
    }

    /// Notes the ring of a socket, perhaps of another thread, to count what is dropped there.
    pub(super) fn add_ring(&self, id: EndpointId, ring: &Arc<RingChannel>) {
        self.rings.borrow_mut().insert(id, Arc::downgrade(ring));
    }

    /// The rings that still exist.
    fn existing_rings(&self) -> Vec<(EndpointId, Arc<RingChannel>)> {
        let rings = self.rings.borrow();
        let existing = |(&id, ring): (_, &Weak<_>)| Some((id, ring.upgrade()?));
        rings.iter().filter_map(existing).collect()
    }

    fn bind_endpoint(&self, local: SocketAddr) -> io::Result<EndpointId> {
        self.check_present()?;
        // A socket of another thread may have given the address back.
        self.make_changes();
        let local = match self.shared.get() {
            Some(shared) => shared.reserve(local).ok_or(io::ErrorKind::AddrInUse)?,
            None => local,
        };
        let bound = self.stack.borrow_mut().bind(local);
        bound.map_err(|error| {
            if let Some(shared) = self.shared.get() {
                shared.release(local);
            }
            bind_error(error)
        })
    }

    /// Closes an endpoint and its ring, and counts the frames that wait in it.
    pub(super) fn close_endpoint(&self, id: EndpointId) {
        let ring = self.rings.borrow_mut().remove(&id);
        let ring = ring.and_then(|ring| ring.upgrade());
        let mut stack = self.stack.borrow_mut();
        if let Some(ring) = ring {
            let closed = ring.close();
            stack.on_discards(Ring::Endpoint(id), closed.discarded);
            self.losses.add_lost(closed.lost);
            stack.on_ring_closed(closed.waiting);
        }
        if let (Some(shared), Some(local)) = (self.shared.get(), stack.bound(id)) {
            shared.release(local);
        }
        stack.close(id);
    }

    /// Opens the ring of a listener, if the interface has rings.
    pub(super) fn open_listener_ring(&self, id: TcpListenerId) -> io::Result<()> {
        let Some(channels) = self.interface.channels() else {
            return Ok(());
        };
        let stack = self.stack.borrow();
        let local = stack.tcp_listener_local(id);
        let local = local.ok_or(io::ErrorKind::NotConnected)?;
        let routes = stack.routes().clone();
        drop(stack);
        channels.add_listener(id, &routes, local)?;
        // The driver has to wait for frames of the ring, too.
        self.wake();
        Ok(())
    }

    /// Closes the ring of a listener. The segments in it may be those of connections, which stay.
    pub(super) fn close_listener_ring(&self, id: TcpListenerId) {
        let Some(channels) = self.interface.channels() else {
            return;
        };
        let Some(listener) = channels.remove_listener(id) else {
            return;
        };
        let ring = listener.ring();
        ring.stop();
        listener.drain(channels, |now, received| self.on_received(now, received));
        let closed = ring.close();
        self.losses.add_lost(closed.lost);
        let mut stack = self.stack.borrow_mut();
        stack.on_discards(Ring::Segments, closed.discarded);
        // Those that the kernel has not put into the ring yet.
        stack.on_ring_closed(closed.waiting);
        drop(stack);
        self.wake();
    }

    /// Lets the XDP program discard the SYNs that listeners have no room for. If several threads listen at a
    /// port, its ring has the SYNs of all of them, and another thread may have room.
    pub(super) fn limit_syns(&self) {
        let Some(channels) = self.interface.channels() else {
            return;
        };
        let stack = self.stack.borrow();
        if stack.settings().steering.is_none() {
            channels.for_listeners(|ring| ring.limit_syns(stack.tcp_syn_room(ring.id)));
        }
    }

    /// Passes changes of the proven peers to the XDP program; only NI-LRP has one that prefers them. In threads that do
    /// not have the device there is none, either: the ring of a port that several threads listen at discards no SYNs
    /// but for want of room.
    pub(super) fn pass_peer_changes(&self) {
        let mut stack = self.stack.borrow_mut();
        while let Some(change) = stack.tcp_next_peer_change() {
            let Some(channels) = self.interface.channels() else {
                continue;
            };
            // The program's map has as many places as the stack's, so neither fails.
            if let Some(displaced) = change.displaced {
                let _ = channels.all().forget_peer(displaced);
            }
            let _ = channels.all().prefer_peer(change.added);
        }
    }

    /// Returns when to look whether the frames that wait in rings are lost, if any wait: a pause after they were first
    /// seen. Looks if it is time.
    pub(super) fn next_ring_look(&self, now: Instant) -> Option<Instant> {
        let mut next = self.losses.ring_look.get();
        if next.is_some_and(|next| next <= now) {
            self.look_at_rings();
            next = None;
        }
        let is_waiting = self.has_waiting_rings();
        let next = is_waiting.then(|| next.unwrap_or(now + RING_PAUSE));
        self.losses.ring_look.set(next);
        next
    }

    /// Whether frames wait in rings: their owners are behind, or the kernel has lost the frames.
    fn has_waiting_rings(&self) -> bool {
        let rings = self.rings.borrow();
        let mut existing = rings.values().filter_map(Weak::upgrade);
        let mut is_waiting = existing.any(|ring| ring.waiting() > 0);
        if let Some(channels) = self.interface.channels() {
            channels.for_listeners(|listener| is_waiting |= listener.ring().waiting() > 0);
        }
        is_waiting
    }

    /// Finds channels whose room is with frames that the kernel has lost, so that no frame can arrive that would wake
    /// their receivers.
    pub(super) fn look_at_rings(&self) {
        let rings = self.existing_rings();
        let waiting = rings.iter().filter(|(_, ring)| ring.waiting() > 0);
        let lost: u64 = waiting.map(|(_, ring)| ring.take_lost()).sum();
        self.losses.add_lost(lost);
        if self.interface.channels().is_some() {
            let more = self.interface.take_lost().unwrap_or(0);
            self.losses.add_lost(more);
        }
    }

    /// Adds the frames to the stack's counters that the program has discarded.
    pub(super) fn count_discards(&self) {
        let Some(channels) = self.interface.channels() else {
            return;
        };
        let mut stack = self.stack.borrow_mut();
        let common = channels.discarded();
        let before = self
            .losses
            .discarded
            .replace(common.map(|(_, discarded)| discarded));
        for ((ring, discarded), before) in common.into_iter().zip(before) {
            stack.on_discards(ring, discarded - before);
        }
        channels.for_listeners(|listener| {
            stack.on_discards(Ring::Segments, listener.ring().take_discarded());
        });
        for (id, ring) in self.existing_rings() {
            stack.on_discards(Ring::Endpoint(id), ring.take_discarded());
        }
        // Those that the program handled while their ring was closed, in any thread.
        stack.on_ring_closed(channels.all().take_late());
    }
}

/// The pause before a look whether the frames that wait in rings are lost.
const RING_PAUSE: Duration = Duration::from_secs(1);
