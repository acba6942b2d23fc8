//! smoltcp as a host in virtual time.

use std::collections::VecDeque;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp::{self, CongestionControl};
use smoltcp::time;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpListenEndpoint};
use softclock_core::Instant;

use crate::host::link_address;

/// A host with one connection of smoltcp, and the address 10.0.0.`number`.
///
/// ```
/// use softclock_core::Instant;
/// use softclock_model::smoltcp_peer::{Settings, SmoltcpHost};
///
/// let now = Instant::from_ns(1_000_000_000);
/// let mut host = SmoltcpHost::new(1, now, &Settings::default());
/// host.connect(2, 80);
/// host.poll(now);
/// // It asks for the link address first.
/// assert_eq!(&host.next_frame().unwrap()[12..14], [0x08, 0x06]);
/// ```
pub struct SmoltcpHost {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    link: Link,
}

/// The settings of the connection.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The longest packet.
    pub mtu: usize,
    /// The sizes of the buffers, in bytes.
    pub receive_buffer: usize,
    /// The size of the send buffer, in bytes.
    pub send_buffer: usize,
    /// The congestion control: 0 none, 1 Reno, 2 CUBIC.
    pub congestion: u8,
    /// Whether a short segment waits while another is in flight.
    pub has_nagle: bool,
    /// Whether acknowledgments are delayed.
    pub delays_ack: bool,
    /// The seed of its initial sequence numbers.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mtu: 1500,
            receive_buffer: 65_536,
            send_buffer: 65_536,
            congestion: 2,
            has_nagle: true,
            delays_ack: true,
            seed: 7,
        }
    }
}

impl SmoltcpHost {
    /// Creates a host with a closed connection.
    ///
    /// # Panics
    /// Never for a `number` of a host: the interface takes its one address.
    pub fn new(number: u8, now: Instant, settings: &Settings) -> Self {
        let mut link = Link {
            mtu: settings.mtu,
            ..Link::default()
        };
        let address = EthernetAddress(link_address(number).0);
        let mut config = Config::new(HardwareAddress::Ethernet(address));
        config.random_seed = settings.seed;
        let mut interface = Interface::new(config, &mut link, at(now));
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(IpAddress::v4(10, 0, 0, number), 24);
            addresses.push(own).expect("room for an address");
        });
        let buffer = |bytes| tcp::SocketBuffer::new(vec![0; bytes]);
        let mut socket = tcp::Socket::new(
            buffer(settings.receive_buffer),
            buffer(settings.send_buffer),
        );
        socket.set_congestion_control(match settings.congestion {
            0 => CongestionControl::None,
            1 => CongestionControl::Reno,
            _ => CongestionControl::Cubic,
        });
        socket.set_nagle_enabled(settings.has_nagle);
        if !settings.delays_ack {
            socket.set_ack_delay(None);
        }
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self {
            interface,
            sockets,
            handle,
            link,
        }
    }

    /// The connection.
    pub fn connection(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Listens at a port.
    ///
    /// # Panics
    /// If the connection is not closed.
    pub fn listen(&mut self, port: u16) {
        let endpoint = IpListenEndpoint { addr: None, port };
        self.connection().listen(endpoint).expect("closed");
    }

    /// Opens the connection, from port 40 000, to a port of the host 10.0.0.`number`.
    ///
    /// # Panics
    /// If the connection is not closed.
    pub fn connect(&mut self, number: u8, port: u16) {
        let remote = (IpAddress::v4(10, 0, 0, number), port);
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.handle);
        let opened = socket.connect(self.interface.context(), remote, 40_000);
        opened.expect("closed");
    }

    /// Takes a frame.
    pub fn on_frame(&mut self, frame: Vec<u8>) {
        self.link.arrived.push_back(frame);
    }

    /// Processes what has arrived and what is due.
    pub fn poll(&mut self, now: Instant) {
        self.interface
            .poll(at(now), &mut self.link, &mut self.sockets);
    }

    /// The next frame for the link.
    pub fn next_frame(&mut self) -> Option<Vec<u8>> {
        self.link.leaving.pop_front()
    }

    /// The time at which [`poll`](Self::poll) has work.
    pub fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        let due = self.interface.poll_at(at(now), &self.sockets)?;
        let due = Instant::from_ns(due.total_micros().max(0) as u64 * 1000);
        Some(due.max(now))
    }
}

fn at(now: Instant) -> time::Instant {
    time::Instant::from_micros((now.as_ns() / 1000) as i64)
}

/// A device whose frames are vectors.
#[derive(Default)]
struct Link {
    mtu: usize,
    arrived: VecDeque<Vec<u8>>,
    leaving: VecDeque<Vec<u8>>,
}

impl Device for Link {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Leaving<'a>;

    fn receive(&mut self, _now: time::Instant) -> Option<(Arrived, Leaving<'_>)> {
        let frame = self.arrived.pop_front()?;
        Some((Arrived(frame), Leaving(&mut self.leaving)))
    }

    fn transmit(&mut self, _now: time::Instant) -> Option<Leaving<'_>> {
        Some(Leaving(&mut self.leaving))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        // With the Ethernet header.
        capabilities.max_transmission_unit = self.mtu + 14;
        capabilities
    }
}

struct Arrived(Vec<u8>);

impl phy::RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

struct Leaving<'a>(&'a mut VecDeque<Vec<u8>>);

impl phy::TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let mut frame = vec![0; length];
        let result = write(&mut frame);
        self.0.push_back(frame);
        result
    }
}
