//! The receivers: ordinary threads that take datagrams, compute for each, and answer.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use softclock_core::Histogram;
use softclock_linux::clock::monotonic_ns;
use softclock_net::checksum::Verify;
use softclock_net::drops::DropReason;
use softclock_net::link::Header;
use softclock_net::{ip, udp};

use super::ring::{Content, Packet, RingReceiver};
use super::server::Service;
use super::stopping::Stop;
use super::work;

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
    }
}

/// Serves the packets of a ring until `stop`.
pub(super) fn run(worker: &Worker<'_>, ring: &mut RingReceiver, stop: &Stop) {
    while stop.goes_on() {
        let Some(packet) = ring.pop() else {
            ring.wait(LOOK_UP);
            continue;
        };
        if let Ok((source, payload)) = datagram(&packet) {
            worker.serve(source, payload, packet.arrived_ns);
        }
        ring.give_back(packet);
    }
}

/// The datagram in a packet: for a frame, the protocols are processed here, in the receiver's context.
fn datagram(packet: &Packet) -> Result<(SocketAddr, &[u8]), DropReason> {
    match packet.content {
        Content::Datagram(source) => Ok((source, &packet.bytes)),
        Content::Frame(verify) => of_frame(&packet.bytes, verify),
    }
}

fn of_frame(frame: &[u8], verify: Verify) -> Result<(SocketAddr, &[u8]), DropReason> {
    let (_, packet) = Header::parse(frame)?;
    let packet = ip::parse(packet)?;
    let datagram = udp::parse(packet.addresses, packet.payload, verify)?;
    let source = SocketAddr::new(packet.addresses.source, datagram.source_port);
    Ok((source, datagram.payload))
}

/// Binds the socket by which a service answers. Call it in the server's namespace.
pub(super) fn answering_socket(port: u16) -> io::Result<UdpSocket> {
    UdpSocket::bind(super::network::Link::Server.port(port))
}

/// Answers are as long as requests, up to this.
const MOST_ANSWER: usize = 64;

pub(super) const LOOK_UP: Duration = Duration::from_millis(20);
