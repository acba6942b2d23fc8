//! A server: services on one processor, by one of the variants.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use softclock_core::Histogram;
use softclock_linux::priority::Priority;
use softclock_linux::socket::udp::{BindOptions, RecvOptions, bind};
use softclock_net::stack::Architecture;

use super::interrupt::{self, InterruptCounts, Plan, STACK_PACKETS};
use super::network::{Level, Link};
use super::receiver::{self, Inbox, ServiceCounts, Worker};
use super::ring::ring;
use super::stopping::Threads;
use super::{Driver, KernelReceive, Network, Service, Variant, kernel, work};
use crate::measure::processors::pin;

/// A running server, which ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    _threads: Threads,
    services: Vec<Arc<ServiceCounts>>,
    interrupt: Arc<InterruptCounts>,
}

/// The counters of the interrupt level, in frames since the start. All are 0 for the kernel's sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Taken from the device.
    pub frames: u64,
    /// Discarded before any protocol work.
    pub early: u64,
    /// Dropped because the shared queue was full.
    pub shared: u64,
    /// Dropped after all protocol work.
    pub late: u64,
    /// Not for a service.
    pub other: u64,
    /// Lost because the device's receive ring was full.
    pub device: u64,
    /// Rounds of the interrupt level that found frames.
    pub rounds: u64,
}

impl Server {
    /// Starts the services, on the network's processor for servers.
    ///
    /// # Errors
    /// The device cannot be opened, or the receive work cannot be placed.
    pub fn start(
        network: &Arc<Network>,
        variant: Variant,
        services: &[Service],
    ) -> io::Result<Self> {
        work::calibrate();
        let mut server = Self {
            _threads: Threads::default(),
            services: services.iter().map(|_| Arc::default()).collect(),
            interrupt: Arc::new(InterruptCounts {
                refused: services.iter().map(|_| AtomicU64::new(0)).collect(),
                ..InterruptCounts::default()
            }),
        };
        let processor = network.processors.server;
        match variant {
            Variant::Stack(architecture, driver) => {
                server.start_stack(network, (architecture, driver), services)?;
                match driver {
                    Driver::Sender => {}
                    Driver::Receiver => {
                        let level = Level::RealTime(DRIVER_PRIORITY);
                        network.thread_napi(Link::Server, processor, level)?;
                    }
                    Driver::Thread => {
                        network.thread_napi(Link::Server, processor, Level::Nice(NICE))?;
                    }
                }
            }
            Variant::Kernel(receive) => {
                match receive {
                    KernelReceive::Default => {}
                    KernelReceive::Rps => network.steer(Link::Server, processor)?,
                    KernelReceive::ThreadedNapi => {
                        // NAPI without an XDP program takes part only if segments may be joined.
                        let name = network.name(Link::Server);
                        network.server.run(&format!("ethtool -K {name} gro on"))?;
                        network.thread_napi(Link::Server, processor, Level::Nice(NICE))?;
                    }
                }
                server.start_kernel(network, services)?;
            }
        }
        Ok(server)
    }

    fn start_stack(
        &mut self,
        network: &Arc<Network>,
        (architecture, driver): (Architecture, Driver),
        services: &[Service],
    ) -> io::Result<()> {
        let processor = network.processors.server;
        let mut endpoints = Vec::new();
        for (service, counts) in services.iter().zip(&self.services) {
            let (sender, receiver) = ring(SOCKET_PACKETS - STACK_PACKETS);
            endpoints.push((service.port, sender));
            let bind = || receiver::answering_socket(service.port);
            let socket = network.server.inside(bind)??;
            start_receiver(
                &mut self._threads,
                processor,
                *service,
                socket,
                counts,
                Some(receiver),
            )?;
        }
        let plan = Plan {
            architecture,
            interface: network.name(Link::Server),
            processor,
            pause: (driver == Driver::Sender).then_some(MODERATION),
            endpoints,
            counts: self.interrupt.clone(),
        };
        let (opened, result) = mpsc::channel();
        let network = network.clone();
        self._threads.start("interrupt", move |stop| {
            let inside = || interrupt::run(plan, &stop, &opened);
            if let Err(error) = network.server.inside(inside) {
                let _ = opened.send(Err(error));
            }
        })?;
        result.recv().map_err(io::Error::other)?
    }

    fn start_kernel(&mut self, network: &Network, services: &[Service]) -> io::Result<()> {
        for (service, counts) in services.iter().zip(&self.services) {
            let options = BindOptions {
                receive: RecvOptions {
                    time_stamps: service.answers,
                    ..RecvOptions::default()
                },
                ..BindOptions::default()
            };
            let bind = || bind(Link::Server.port(service.port), &options);
            let socket = UdpSocket::from(network.server.inside(bind)??);
            let processor = network.processors.server;
            start_receiver(
                &mut self._threads,
                processor,
                *service,
                socket,
                counts,
                None,
            )?;
        }
        Ok(())
    }

    /// The datagrams that a service has served, by its place in the list of services.
    pub fn delivered(&self, service: usize) -> u64 {
        self.services[service].delivered.load(Relaxed)
    }

    /// The packets for a service that this project's stack has dropped after it had found the service.
    pub fn refused(&self, service: usize) -> u64 {
        self.interrupt.refused[service].load(Relaxed)
    }

    /// Takes the times that a service's answers took from the arrival of the request, by the kernel's or the XDP
    /// program's stamp, to the end of the call that sent the answer.
    pub fn take_latency(&self, service: usize) -> Histogram {
        let latency = self.services[service].latency.lock();
        latency.map_or_else(
            |_| Histogram::new(),
            |mut latency| std::mem::take(&mut *latency),
        )
    }

    /// The counters of the interrupt level.
    pub fn counts(&self) -> Counts {
        let of = &self.interrupt;
        Counts {
            frames: of.frames.load(Relaxed),
            early: of.early.load(Relaxed),
            shared: of.shared.load(Relaxed),
            late: of.late.load(Relaxed),
            other: of.other.load(Relaxed),
            device: of.device.load(Relaxed),
            rounds: of.rounds.load(Relaxed),
        }
    }
}

/// Starts the thread of a service: by a ring, or else by the kernel's socket.
fn start_receiver(
    threads: &mut Threads,
    processor: Option<usize>,
    service: Service,
    socket: UdpSocket,
    counts: &Arc<ServiceCounts>,
    ring: Option<Inbox>,
) -> io::Result<()> {
    let (counts, routes) = (counts.clone(), interrupt::routes()?);
    threads.start("receiver", move |stop| {
        pin(processor);
        // Before other work on this machine. Without the right to it, that disturbs.
        let _ = Priority::Nice(NICE).apply();
        let worker = Worker {
            service,
            socket: &socket,
            counts: &counts,
        };
        match ring {
            Some(mut ring) => receiver::run(&worker, &mut ring, &routes, &stop),
            None => kernel::run(&worker, &stop),
        }
    })
}

/// The packets of a channel, or of a socket's queue: as the kernel's default receive buffer, in which a short datagram
/// counts for 768 bytes of 212 992.
const SOCKET_PACKETS: usize = 256;

/// Receivers have ordinary priority among themselves.
pub(super) const NICE: i8 = -10;

/// As that of the flood's bursts.
const MODERATION: Duration = Duration::from_micros(200);

/// Above the interrupt level: a network interface interrupts it, too.
const DRIVER_PRIORITY: u8 = 20;
