//! A network with a server and a flood, and the rates that are measured on it.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use softclock_linux::priority::Priority;

use super::stopping::Threads;
use super::{Counts, Flood, Losses, Network, Server, Service, Target, Variant};
use crate::measure::processors::pin;

/// A running server with a flood to its first service. All ends when this is dropped.
#[derive(Debug)]
pub struct Stage {
    /// Sends nothing at first.
    pub flood: Flood,
    /// The server.
    pub server: Server,
    /// The namespaces.
    pub network: Arc<Network>,
}

/// Rates in packets a second, at one load.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rates {
    /// Offered to the server.
    pub offered: f64,
    /// Served by the first service.
    pub delivered: f64,
    /// Lost in the ring of the link, before any demultiplexing.
    pub ring: f64,
    /// Lost since the receive ring of AF_XDP was full, before any demultiplexing.
    pub device: f64,
    /// Discarded before any protocol work.
    pub early: f64,
    /// Dropped from the shared queue.
    pub shared: f64,
    /// Dropped after all protocol work.
    pub late: f64,
}

impl Stage {
    /// Builds a network and starts everything on it.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn new(variant: Variant, services: &[Service]) -> io::Result<Self> {
        let network = Arc::new(Network::new()?);
        let server = Server::start(&network, variant, services)?;
        let flood = Flood::start(&network, services[0].port)?;
        Ok(Self {
            flood,
            server,
            network,
        })
    }

    /// Floods at this rate for `settle`, and measures for `slice` more. The flood goes on.
    ///
    /// # Errors
    /// A counter cannot be read.
    pub fn rates(&self, rate: u64, settle: Duration, slice: Duration) -> io::Result<Rates> {
        self.flood.set(rate, Target::Server);
        thread::sleep(settle);
        let before = self.look()?;
        thread::sleep(slice);
        Ok(self.look()?.since(&before))
    }

    fn look(&self) -> io::Result<Look> {
        Ok(Look {
            at: Instant::now(),
            delivered: self.server.delivered(0),
            losses: self.network.losses()?,
            counts: self.server.counts(),
        })
    }
}

struct Look {
    at: Instant,
    delivered: u64,
    losses: Losses,
    counts: Counts,
}

impl Look {
    fn since(&self, before: &Self) -> Rates {
        let seconds = (self.at - before.at).as_secs_f64();
        let rate = |of: fn(&Self) -> u64| (of(self) - of(before)) as f64 / seconds;
        Rates {
            offered: rate(|look| look.losses.passed + look.losses.ring),
            delivered: rate(|look| look.delivered),
            ring: rate(|look| look.losses.ring),
            device: rate(|look| look.counts.device),
            early: rate(|look| look.counts.early),
            shared: rate(|look| look.counts.shared),
            late: rate(|look| look.counts.late),
        }
    }
}

/// Threads that compute at the lowest ordinary priority on both processors, as in the paper, so that a packet never
/// arrives at an idle one: a halted virtual processor wakes slowly. They end when this is dropped.
#[derive(Debug)]
pub struct Background {
    _threads: Threads,
}

impl Background {
    /// Starts the threads.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn start(network: &Network) -> io::Result<Self> {
        let mut threads = Threads::default();
        for processor in [network.processors.server, network.processors.clients] {
            threads.start("background", move |stop| {
                pin(processor);
                // Lowering its own priority needs no right.
                let _ = Priority::Nice(19).apply();
                while stop.goes_on() {
                    std::hint::spin_loop();
                }
            })?;
        }
        Ok(Self { _threads: threads })
    }
}
