//! The receivers: ordinary threads that take datagrams, compute for each, and answer.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use softclock_core::Histogram;
use softclock_linux::clock::monotonic_ns;
use softclock_net::routes::Routes;
use softclock_net::stack::{Datagram, Pending};

use super::pace::Pace;
use super::polled::Hub;
use super::ring::{RingReceiver, RingSender};
use super::slice::Slice;
use super::stopping::Stop;
use super::work;
use super::{STOP_CHECK, Service};

/// The interrupt level's end of the ring to a receiver.
pub(super) type Outbox = RingSender<Pending<Vec<u8>>, Datagram<Vec<u8>>>;

/// The receiver's end.
pub(super) type Inbox = RingReceiver<Pending<Vec<u8>>, Datagram<Vec<u8>>>;

/// The counters of a service.
#[derive(Debug, Default)]
pub(super) struct ServiceCounts {
    pub(super) delivered: AtomicU64,
    /// Times from arrival to departure of the answer, in nanoseconds.
    pub(super) latency: Mutex<Histogram>,
}

/// A service's work for a datagram that the protocols have processed.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    pub(super) service: Service,
    /// A socket in the server's namespace.
    pub(super) socket: &'a UdpSocket,
    pub(super) counts: &'a ServiceCounts,
    pub(super) slice: Slice,
}

impl Worker<'_> {
    pub(super) fn serve(&self, source: SocketAddr, payload: &[u8], arrived_ns: u64) {
        work::compute(self.service.work);
        if self.service.answers {
            let answer = &payload[..payload.len().min(MOST_ANSWER)];
            // A lost answer is the client's loss, which it counts.
            let _ = self.socket.send_to(answer, source);
            let ns = monotonic_ns().saturating_sub(arrived_ns);
            if let Ok(mut latency) = self.counts.latency.lock() {
                latency.record(ns);
            }
        }
        self.counts.delivered.fetch_add(1, Relaxed);
        self.slice.served();
    }
}

/// Serves the packets of a ring until `stop`. What the protocols have not done yet for a packet is done here.
pub(super) fn run(worker: &Worker<'_>, ring: &mut Inbox, routes: &Routes, stop: &Stop) {
    while stop.goes_on() {
        if !serve_next(worker, ring, routes) {
            worker.slice.waits();
            ring.wait(STOP_CHECK);
        }
    }
}

/// The same, by a receiver that drives the receive work of the link.
pub(super) fn run_polled(
    worker: &Worker<'_>,
    ring: &mut Inbox,
    routes: &Routes,
    hub: &Hub,
    stop: &Stop,
) -> io::Result<()> {
    let mut poller = hub.poller()?;
    let mut pace = Pace::of_work();
    while stop.goes_on() {
        if serve_next(worker, ring, routes) {
            hub.keep_pace(&mut poller, &mut pace);
            continue;
        }
        worker.slice.waits();
        hub.poll(&mut poller);
        // Packets of others are their business.
        hub.sleep(ring, stop);
    }
    Ok(())
}

/// Serves the next packet, if there is one.
fn serve_next(worker: &Worker<'_>, ring: &mut Inbox, routes: &Routes) -> bool {
    let Some(packet) = ring.pop() else {
        return false;
    };
    // No client sends malformed packets.
    if let Ok(datagram) = packet.into_datagram(routes) {
        let arrived = datagram.arrived.as_ns();
        worker.serve(datagram.source, datagram.payload(), arrived);
        ring.give_back(datagram);
    }
    true
}

/// Answers are as long as requests, up to this.
const MOST_ANSWER: usize = 64;
