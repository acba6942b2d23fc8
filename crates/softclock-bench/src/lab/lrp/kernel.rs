//! Receivers that use the kernel's sockets.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use softclock_core::Clock;
use softclock_linux::clock::{ThreadClock, monotonic_ns};
use softclock_linux::socket::udp::{RecvBatch, recv_batch};

use super::STOP_CHECK;
use super::receiver::Worker;
use super::stopping::Stop;

/// Serves the datagrams of the worker's own socket until `stop`.
pub(super) fn run(worker: &Worker<'_>, stop: &Stop) {
    let clock = ThreadClock::monotonic();
    let mut batch = RecvBatch::new(BATCH, SLOT_BYTES);
    while stop.goes_on() {
        if recv_batch(worker.socket.as_fd(), &mut batch, &clock).is_err() {
            wait(worker.socket);
            continue;
        }
        // The queue has no more, so the thread will wait.
        if batch.iter().count() < BATCH {
            worker.slice.waits();
        }
        let (now, now_ns) = (clock.now(), monotonic_ns());
        for datagram in batch.iter() {
            let age = datagram.received.map_or(0, |at| now.ns_since(at));
            worker.serve(datagram.source, datagram.payload, now_ns - age);
        }
    }
}

fn wait(socket: &UdpSocket) {
    let wait = Timespec::try_from(STOP_CHECK).unwrap_or_default();
    let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait));
}

const BATCH: usize = 32;
const SLOT_BYTES: usize = 2048;
