//! A flood of datagrams at a stated rate, by AF_XDP from the clients' namespace.

use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use softclock_linux::clock::monotonic_ns;
use softclock_linux::link::{BATCH, Buffer, Copies, Device, Link as Interface, Pool, XdpFilter};
use softclock_linux::priority::Priority;
use softclock_net::checksum::Addresses;
use softclock_net::link::Header;
use softclock_net::{ip, udp};
use softclock_wire::packet::{IPV4, Offload, UDP};

use super::Network;
use super::network::{Level, Link};
use super::stopping::{Stop, Threads};
use crate::measure::processors::pin;

/// A thread that sends datagrams of 14 bytes, as the paper's, at a rate that may be changed. It ends when this is
/// dropped.
#[derive(Debug)]
pub struct Flood {
    _threads: Threads,
    orders: Arc<Orders>,
}

/// The destination of a flood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The server.
    Server,
    /// The reference, for the cost of the same flood without the server's.
    Reference,
}

#[derive(Debug, Default)]
struct Orders {
    /// Datagrams a second.
    rate: AtomicU64,
    into_reference: AtomicBool,
    /// Datagrams that the links accepted.
    sent: AtomicU64,
}

impl Flood {
    /// Starts the thread, which sends nothing yet. It takes the link's XDP program, and makes a kernel thread receive on
    /// the clients' end of the link to the server, so that answers are processed on the clients' processor.
    ///
    /// # Errors
    /// The devices cannot be opened.
    pub fn start(network: &Arc<Network>, port: u16) -> io::Result<Self> {
        let mut flood = Self {
            _threads: Threads::default(),
            orders: Arc::default(),
        };
        let (opened, result) = mpsc::channel();
        let (of_thread, orders) = (network.clone(), flood.orders.clone());
        flood._threads.start("flood", move |stop| {
            pin(of_thread.processors.clients);
            let inside = || match Generator::open(&of_thread, port) {
                Ok(mut generator) => {
                    let _ = opened.send(Ok(()));
                    generator.run(&orders, &stop);
                }
                Err(error) => {
                    let _ = opened.send(Err(error));
                }
            };
            // The first result is that of `open`: the starter no longer listens to another.
            if let Err(error) = of_thread.clients.inside(inside) {
                let _ = opened.send(Err(error));
            }
        })?;
        result.recv().map_err(io::Error::other)??;
        let level = Level::RealTime(DRIVER_PRIORITY);
        network.thread_napi(Link::Clients, network.processors.clients, level)?;
        Ok(flood)
    }

    /// Sets the rate, in datagrams a second, and the destination.
    pub fn set(&self, rate: u64, target: Target) {
        let into_reference = target == Target::Reference;
        self.orders.into_reference.store(into_reference, Relaxed);
        self.orders.rate.store(rate, Relaxed);
    }

    /// The datagrams that the links have accepted so far.
    pub fn sent(&self) -> u64 {
        self.orders.sent.load(Relaxed)
    }
}

/// The thread's own.
struct Generator {
    server: Outlet,
    reference: Outlet,
}

impl Generator {
    fn open(network: &Network, port: u16) -> io::Result<Self> {
        Ok(Self {
            server: Outlet::open(network, [Link::Clients, Link::Server], port)?,
            reference: Outlet::open(network, [Link::ToReference, Link::Reference], port)?,
        })
    }

    fn run(&mut self, orders: &Orders, stop: &Stop) {
        // Before ordinary threads, but not before the kernel's.
        let _ = Priority::Nice(-15).apply();
        let (mut credit_ns, mut before) = (0, monotonic_ns());
        while stop.goes_on() {
            let rate = orders.rate.load(Relaxed);
            if rate == 0 {
                thread::sleep(Duration::from_millis(1));
                (credit_ns, before) = (0, monotonic_ns());
                continue;
            }
            let gap_ns = 1e9 / rate as f64;
            let now = monotonic_ns();
            // After an interruption the flood does not catch up in one long burst.
            credit_ns = (credit_ns + now - before).min(MOST_CREDIT_NS);
            before = now;
            let due = (credit_ns as f64 / gap_ns) as usize;
            if due == 0 || credit_ns < BURST_NS {
                spin_loop();
                continue;
            }
            let outlet = match orders.into_reference.load(Relaxed) {
                true => &mut self.reference,
                false => &mut self.server,
            };
            let sent = outlet.send(due);
            credit_ns = credit_ns.saturating_sub((due as f64 * gap_ns) as u64);
            orders.sent.fetch_add(sent, Relaxed);
        }
    }
}

/// One of the links to send on.
struct Outlet {
    device: Device,
    frames: Vec<Buffer>,
}

impl Outlet {
    fn open(network: &Network, [from, to]: [Link; 2], port: u16) -> io::Result<Self> {
        let link = Interface::named(&network.name(from))?;
        // The socket receives nothing: the host keeps all that is sent to its own address.
        let filter = XdpFilter::Addresses(vec![to.address().into()]);
        let device = Device::share_xdp(&link, Copies::Allowed, filter).map_err(io::Error::other)?;
        let frame = frame(from, to, port)?;
        let pool = Pool::new();
        Ok(Self {
            device,
            frames: (0..BATCH).map(|_| pool.copy_of(&frame)).collect(),
        })
    }

    /// Sends frames; returns the number that the link accepted.
    fn send(&mut self, frames: usize) -> u64 {
        let mut sent = 0;
        for begin in (0..frames).step_by(BATCH) {
            self.device.flush();
            let batch = self.frames[..BATCH.min(frames - begin)].iter_mut();
            sent += self
                .device
                .send(batch.map(|frame| (frame, &NO_OFFLOAD)))
                .unwrap_or(0) as u64;
        }
        sent.saturating_sub(self.device.take_refused())
    }
}

fn frame(from: Link, to: Link, port: u16) -> io::Result<Vec<u8>> {
    let addresses = Addresses {
        source: from.address().into(),
        destination: to.address().into(),
    };
    let mut datagram = Vec::new();
    udp::write(addresses, SOURCE_PORT, port, &PAYLOAD, &mut datagram).map_err(io::Error::other)?;
    let destination = match to {
        // An address of none: the reference's kernel drops the frame at once.
        Link::Reference => softclock_net::link::LinkAddress([2, 0, 0, 0, 0, 0xff]),
        _ => to.link_address(),
    };
    let header = Header {
        destination,
        source: from.link_address(),
        ether_type: IPV4,
    };
    let output = ip::Output {
        addresses,
        protocol: UDP,
        hop_limit: 64,
        traffic_class: 0,
        identification: 0,
        may_fragment: false,
    };
    let mut frame = header.to_bytes().to_vec();
    ip::write_header(&output, datagram.len(), &mut frame);
    frame.extend(datagram);
    // The shortest frame of Ethernet, without its checksum.
    frame.resize(frame.len().max(60), 0);
    Ok(frame)
}

const NO_OFFLOAD: Offload = Offload::NONE;
/// 14 bytes, as in the paper.
const PAYLOAD: [u8; 14] = [0; 14];
const SOURCE_PORT: u16 = 9;
/// The interval of bursts: 5000 interrupts a second, as network interfaces moderate them. On a virtual machine, a wake-up
/// across processors takes 20 us of the receiver's, so one for each frame would be all that is measured.
const BURST_NS: u64 = 200_000;
const MOST_CREDIT_NS: u64 = 2 * BURST_NS;
const DRIVER_PRIORITY: u8 = 20;
