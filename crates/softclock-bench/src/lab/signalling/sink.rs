//! A receiver of datagrams under a flood.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use softclock::signalling::Policy;

use super::host::{self, Role};
use super::{PORT, RECEIVER, RECEIVER_LINK_ADDRESS};
use crate::lab::frames::{Ends, datagram};
use crate::lab::lrp::{Flood, Level, Link, Network, Rates, Target, Threads, work};

/// A host that computes for each datagram, and a flood to it. All ends when this is dropped.
#[derive(Debug)]
pub struct Sink {
    flood: Flood,
    _threads: Threads,
    delivered: Arc<AtomicU64>,
    network: Arc<Network>,
}

impl Sink {
    /// Starts a host that computes for `time` for each datagram, and a flood, which sends nothing yet. The kernel
    /// thread that moves frames from the link to the host's stack has this level.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn start(policy: Policy, time: Duration, level: Level) -> io::Result<Self> {
        work::calibrate();
        let network = Arc::new(Network::new()?);
        let mut threads = Threads::default();
        let delivered = Arc::default();
        let sink = (Role::Sink(time), policy);
        host::start(&mut threads, &network, sink, None, &delivered)?;
        network.thread_napi(Link::Server, network.processors.server, level)?;
        let ends = Ends {
            source: Link::Clients.link_address(),
            destination: RECEIVER_LINK_ADDRESS,
        };
        let source = SocketAddrV4::new(Link::Clients.address(), PORT);
        let frame = datagram(ends, source, SocketAddrV4::new(RECEIVER, PORT))?;
        Ok(Self {
            flood: Flood::with(&network, vec![frame])?,
            _threads: threads,
            delivered,
            network,
        })
    }

    /// Floods at this rate for `settle`, and measures for `slice` more: the offered and the delivered datagrams, and
    /// those lost in the ring of the link. The flood goes on.
    ///
    /// # Errors
    /// A counter cannot be read.
    pub fn rates(&self, rate: u64, settle: Duration, slice: Duration) -> io::Result<Rates> {
        self.flood.set(rate, Target::Server);
        thread::sleep(settle);
        let (begun, before) = (Instant::now(), self.network.losses()?);
        let served = self.delivered.load(Relaxed);
        thread::sleep(slice);
        let after = self.network.losses()?;
        let served = self.delivered.load(Relaxed) - served;
        let seconds = begun.elapsed().as_secs_f64();
        let ring = (after.ring - before.ring) as f64 / seconds;
        Ok(Rates {
            offered: (after.passed - before.passed) as f64 / seconds + ring,
            delivered: served as f64 / seconds,
            ring,
            ..Rates::default()
        })
    }
}
