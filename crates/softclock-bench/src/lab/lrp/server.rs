//! A server: services on one processor, by one of the variants.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

use softclock_core::Histogram;
use softclock_linux::link::XdpChannel;
use softclock_linux::priority::Priority;
use softclock_linux::socket::udp::{BindOptions, RecvOptions, bind};
use softclock_net::stack::Architecture;

use super::channels::{self, Channels};
use super::eager_stack::{self, InterruptCounts, STACK_PACKETS};
use super::interrupt::{self, Plan};
use super::network::{Level, Link};
use super::polled::{self, Hub};
use super::receiver::{self, ServiceCounts, Worker};
use super::ring::ring;
use super::slice::Slice;
use super::stopping::{Stop, Threads};
use super::weights::Weights;
use super::{Driver, KernelReceive, Network, Service, Variant, kernel, work};
use crate::measure::processors::pin;

/// A running server, which ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    _threads: Threads,
    services: Vec<Arc<ServiceCounts>>,
    interrupt: Arc<InterruptCounts>,
    /// Those of NI-LRP.
    channels: Option<Arc<Channels>>,
    /// Dropped after the threads.
    _weights: Option<Arc<Weights>>,
}

/// The counters of what comes before the receivers, in frames since the start. All are 0 for the kernel's sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Taken from the device, or handled by the XDP program of NI-LRP.
    pub frames: u64,
    /// Discarded before any protocol work.
    pub early: u64,
    /// Dropped because the shared queue was full.
    pub shared: u64,
    /// Dropped after all protocol work.
    pub late: u64,
    /// Lost because the device's receive ring was full.
    pub device: u64,
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
            channels: None,
            _weights: None,
        };
        match variant {
            Variant::Stack(architecture, driver) => {
                server.start_stack(network, (architecture, driver), services)?;
                let level = Level::RealTime(DRIVER_PRIORITY);
                network.thread_napi(Link::Server, network.processors.server, level)?;
            }
            Variant::Kernel(receive) => {
                place_kernel(network, receive)?;
                server.start_kernel(network, receive, services)?;
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
        match (architecture, driver) {
            (Architecture::NiLrp, driver) => self.start_channels(network, driver, services),
            (_, Driver::Interrupts) => self.start_interrupts(network, architecture, services),
            (_, Driver::Receivers) => self.start_polled(network, services),
        }
    }

    /// Starts an interrupt level, and receivers with rings to it.
    fn start_interrupts(
        &mut self,
        network: &Arc<Network>,
        architecture: Architecture,
        services: &[Service],
    ) -> io::Result<()> {
        let mut endpoints = Vec::new();
        for (number, service) in services.iter().enumerate() {
            let (sender, mut receiver) = ring(SOCKET_PACKETS - STACK_PACKETS);
            endpoints.push((service.port, sender));
            let routes = eager_stack::routes()?;
            self.start_receiver(network, *service, number, move |worker, stop| {
                receiver::run(worker, &mut receiver, &routes, stop);
                Ok(())
            })?;
        }
        let plan = Plan {
            architecture,
            interface: network.name(Link::Server),
            processor: network.processors.server,
            endpoints,
            counts: self.interrupt.clone(),
        };
        self.start_level(network, |stop, opened| interrupt::run(plan, stop, opened))
    }

    /// Starts receivers that drive the link's receive work, and an interrupt level beside them.
    fn start_polled(&mut self, network: &Arc<Network>, services: &[Service]) -> io::Result<()> {
        let rings = services
            .iter()
            .map(|_| ring(SOCKET_PACKETS - STACK_PACKETS));
        let (senders, receivers): (Vec<_>, Vec<_>) = rings.unzip();
        let ports = services.iter().map(|service| service.port);
        let endpoints = ports.zip(senders).collect();
        let name = network.name(Link::Server);
        let open = || Hub::open(&name, endpoints, self.interrupt.clone());
        let hub = Arc::new(network.server.inside(open)??);
        let (of_level, processor) = (hub.clone(), network.processors.server);
        self.start_level(network, move |stop, opened| {
            polled::run(&of_level, processor, stop, opened);
        })?;
        for ((number, service), mut receiver) in services.iter().enumerate().zip(receivers) {
            let (hub, routes) = (hub.clone(), eager_stack::routes()?);
            self.start_receiver(network, *service, number, move |worker, stop| {
                receiver::run_polled(worker, &mut receiver, &routes, &hub, stop)
            })?;
        }
        Ok(())
    }

    /// Starts receivers with channels of the network interface.
    fn start_channels(
        &mut self,
        network: &Arc<Network>,
        driver: Driver,
        services: &[Service],
    ) -> io::Result<()> {
        let name = network.name(Link::Server);
        let ports: Vec<_> = services.iter().map(|service| service.port).collect();
        let is_polled = driver == Driver::Receivers;
        let open = || Channels::open(&name, &ports, SOCKET_PACKETS as u32, is_polled);
        let channels = Arc::new(network.server.inside(open)??);
        if is_polled {
            let (of_level, processor) = (channels.clone(), network.processors.server);
            self.start_level(network, move |stop, opened| {
                channels::run_level(&of_level, processor, stop, opened);
            })?;
        }
        for (number, service) in services.iter().enumerate() {
            let channels = channels.clone();
            self.start_receiver(network, *service, number, move |worker, stop| {
                channels::run(worker, &channels, number, stop)
            })?;
        }
        self.channels = Some(channels);
        Ok(())
    }

    /// Starts the thread of the interrupt level in the server's namespace.
    fn start_level(
        &mut self,
        network: &Arc<Network>,
        run: impl FnOnce(&Stop, &mpsc::Sender<io::Result<()>>) + Send + 'static,
    ) -> io::Result<()> {
        let (opened, result) = mpsc::channel();
        let network = network.clone();
        self._threads.start("interrupt", move |stop| {
            if let Err(error) = network.server.inside(|| run(&stop, &opened)) {
                let _ = opened.send(Err(error));
            }
        })?;
        result.recv().map_err(io::Error::other)?
    }

    /// Starts the thread of the service of this number, with a socket of the kernel's by which it answers, and receives
    /// if the variant is the kernel's.
    fn start_receiver(
        &mut self,
        network: &Network,
        service: Service,
        number: usize,
        run: impl FnOnce(&Worker<'_>, &Stop) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let options = BindOptions {
            receive: RecvOptions {
                time_stamps: service.answers,
                ..RecvOptions::default()
            },
            ..BindOptions::default()
        };
        let bind = || bind(Link::Server.port(service.port), &options);
        let socket = UdpSocket::from(network.server.inside(bind)??);
        let (counts, processor) = (self.services[number].clone(), network.processors.server);
        self._threads.start("receiver", move |stop| {
            pin(processor);
            // Before other work on this machine. Without the right to it, that disturbs.
            let _ = Priority::Nice(NICE).apply();
            let worker = Worker {
                service,
                socket: &socket,
                counts: &counts,
                slice: Slice::begin(),
            };
            // Without its receiver, the service delivers nothing, which the results show.
            if let Err(error) = run(&worker, &stop) {
                eprintln!("a receiver cannot start: {error}");
            }
        })
    }

    /// Starts receivers that use the kernel's sockets.
    fn start_kernel(
        &mut self,
        network: &Network,
        receive: KernelReceive,
        services: &[Service],
    ) -> io::Result<()> {
        if receive == KernelReceive::Weights {
            self._weights = Some(Arc::new(Weights::new(services.len())?));
        }
        for (number, service) in services.iter().enumerate() {
            let weights = self._weights.clone();
            self.start_receiver(network, *service, number, move |worker, stop| {
                weights.map_or(Ok(()), |weights| weights.join(number))?;
                kernel::run(worker, stop);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The datagrams that a service has served, by its place in the list of services.
    pub fn delivered(&self, service: usize) -> u64 {
        self.services[service].delivered.load(Relaxed)
    }

    /// The packets for a service that this project's stack has dropped after it had found the service.
    pub fn refused(&self, service: usize) -> u64 {
        match &self.channels {
            Some(channels) => channels.of_services[service].discarded(),
            None => self.interrupt.refused[service].load(Relaxed),
        }
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

    /// The counters of what comes before the receivers.
    pub fn counts(&self) -> Counts {
        let of = &self.interrupt;
        let counts = Counts {
            frames: of.frames.load(Relaxed),
            early: of.early.load(Relaxed),
            shared: of.shared.load(Relaxed),
            late: of.late.load(Relaxed),
            device: of.device.load(Relaxed),
        };
        let Some(channels) = &self.channels else {
            return counts;
        };
        let sum = |of: fn(&XdpChannel) -> u64| {
            let channels = channels.of_services.iter();
            channels.map(|channel| of(channel)).sum::<u64>()
        };
        let early = sum(XdpChannel::discarded);
        Counts {
            frames: early + sum(XdpChannel::delivered),
            early,
            ..counts
        }
    }
}

/// Places the kernel's receive work.
fn place_kernel(network: &Network, receive: KernelReceive) -> io::Result<()> {
    let processor = network.processors.server;
    let level = match receive {
        KernelReceive::Default => return Ok(()),
        KernelReceive::Rps | KernelReceive::Weights => {
            return network.steer(Link::Server, processor);
        }
        KernelReceive::ThreadedNapi => Level::Nice(NICE),
    };
    // NAPI without an XDP program takes part only if segments may be joined.
    let name = network.name(Link::Server);
    network.server.run(&format!("ethtool -K {name} gro on"))?;
    network.thread_napi(Link::Server, processor, level)
}

/// The packets of a channel, or of a socket's queue: as the kernel's default receive buffer, in which a short datagram
/// counts for 768 bytes of 212 992.
const SOCKET_PACKETS: usize = 256;

/// Receivers have ordinary priority among themselves.
pub(super) const NICE: i8 = -10;

/// Above the interrupt level: a network interface interrupts it, too.
const DRIVER_PRIORITY: u8 = 20;
