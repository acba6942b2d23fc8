//! The end with smoltcp.

use core::time::Duration;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::Read as _;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{CongestionControl, RecvError, Socket, SocketBuffer, State};
use smoltcp::time::Instant as TheirInstant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use softclock_core::Instant;
use softclock_model::host::{address_v4, link_address};

use crate::random::Random;
use crate::world::{End, Read, client_port, server_port};

/// The settings.
#[derive(Clone, Debug)]
pub(crate) struct SmoltcpPlan {
    mtu: usize,
    received: usize,
    sent: usize,
    has_nagle: bool,
    ack_delay: Option<u64>,
    has_timestamps: bool,
    congestion: CongestionControl,
}

impl SmoltcpPlan {
    pub(crate) fn random(random: &mut Random) -> Self {
        Self {
            mtu: random.pick(&[1500, 1500, 576, 1280]),
            received: random.magnitude(1000..=200_000) as usize,
            sent: random.magnitude(500..=200_000) as usize,
            has_nagle: random.chance(600),
            ack_delay: random.chance(700).then(|| random.magnitude(1..=100)),
            has_timestamps: random.chance(500),
            congestion: random.pick(&[
                CongestionControl::None,
                CongestionControl::Reno,
                CongestionControl::Cubic,
            ]),
        }
    }
}

pub(crate) struct Smoltcp {
    interface: Interface,
    sockets: SocketSet<'static>,
    handles: Vec<SocketHandle>,
    link: Link,
    opens: bool,
    /// The rest of the streams of connections in TIME-WAIT. When that is over, after ten seconds, smoltcp forgets what
    /// its owner has not read.
    kept: Vec<Option<VecDeque<u8>>>,
}

impl Smoltcp {
    pub(crate) fn new(
        plan: &SmoltcpPlan,
        seed: u64,
        now: Instant,
        number: usize,
        opens: bool,
    ) -> Self {
        let mut link = Link {
            mtu: plan.mtu,
            arrived: VecDeque::new(),
            sent: VecDeque::new(),
        };
        let address = HardwareAddress::Ethernet(EthernetAddress(link_address(2).0));
        let mut config = Config::new(address);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut link, their(now));
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(address_v4(2).into(), 24);
            addresses.push(own).expect("there is room");
        });
        let mut sockets = SocketSet::new(Vec::new());
        let handles = (0..number).map(|connection| {
            let buffer = |bytes| SocketBuffer::new(vec![0; bytes]);
            let mut tcp = Socket::new(buffer(plan.received), buffer(plan.sent));
            tcp.set_nagle_enabled(plan.has_nagle);
            tcp.set_ack_delay(plan.ack_delay.map(smoltcp::time::Duration::from_millis));
            // A peer that is reset while all is acknowledged would never learn of it otherwise.
            tcp.set_keep_alive(Some(smoltcp::time::Duration::from_secs(20)));
            tcp.set_congestion_control(plan.congestion);
            if plan.has_timestamps {
                tcp.set_tsval_generator(Some(|| MILLISECONDS.get()));
            }
            match opens {
                true => {
                    let remote = (IpAddress::from(address_v4(1)), server_port(connection));
                    tcp.connect(interface.context(), remote, client_port(connection))
                        .expect("it is closed");
                }
                false => tcp.listen(server_port(connection)).expect("it is closed"),
            }
            sockets.add(tcp)
        });
        let handles = handles.collect();
        Self {
            interface,
            sockets,
            handles,
            link,
            opens,
            kept: vec![None; number],
        }
    }

    /// Takes the bytes of connections in TIME-WAIT: nothing follows them.
    fn keep(&mut self) {
        for connection in 0..self.handles.len() {
            let socket = self.socket(connection);
            if socket.state() != State::TimeWait || !socket.can_recv() {
                continue;
            }
            let mut rest = vec![0; socket.recv_queue()];
            let read = socket.recv_slice(&mut rest).expect("it has bytes");
            let kept = self.kept[connection].get_or_insert_default();
            kept.extend(&rest[..read]);
        }
    }

    fn socket(&mut self, connection: usize) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handles[connection])
    }
}

impl End for Smoltcp {
    fn on_frame(&mut self, _now: Instant, frame: Vec<u8>) {
        self.link.arrived.push_back(frame);
    }

    fn work(&mut self, now: Instant) -> Vec<Vec<u8>> {
        MILLISECONDS.set((now.as_ns() / 1_000_000) as u32);
        let (link, sockets) = (&mut self.link, &mut self.sockets);
        self.interface.poll(their(now), link, sockets);
        self.keep();
        self.link.sent.drain(..).collect()
    }

    fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        let at = self.interface.poll_at(their(now), &self.sockets)?;
        // It rounds to microseconds.
        let at = Instant::from_ns(at.total_micros() as u64 * 1000);
        Some(at.max(now + Duration::from_micros(1)))
    }

    fn accept(&mut self, _now: Instant) {}

    fn is_open(&self, connection: usize) -> bool {
        let state = self
            .sockets
            .get::<Socket<'_>>(self.handles[connection])
            .state();
        self.opens || !matches!(state, State::Listen | State::SynReceived)
    }

    fn read(&mut self, _now: Instant, connection: usize, into: &mut [u8]) -> Read {
        if let Some(kept) = &mut self.kept[connection] {
            let read = kept.read(into).expect("it is memory");
            return if read == 0 {
                Read::End
            } else {
                Read::Bytes(read)
            };
        }
        let socket = self.socket(connection);
        if matches!(socket.state(), State::SynSent | State::SynReceived) {
            return Read::Nothing;
        }
        match socket.recv_slice(into) {
            Ok(0) => Read::Nothing,
            Ok(read) => Read::Bytes(read),
            Err(RecvError::Finished) => Read::End,
            Err(RecvError::InvalidState) => Read::Reset,
        }
    }

    fn write(&mut self, _now: Instant, connection: usize, bytes: &[u8]) -> Option<usize> {
        let socket = self.socket(connection);
        match socket.state() {
            State::SynSent | State::SynReceived => Some(0),
            _ => socket.send_slice(bytes).ok(),
        }
    }

    fn shut(&mut self, _now: Instant, connection: usize) -> bool {
        let socket = self.socket(connection);
        let may_close = !matches!(socket.state(), State::SynSent | State::SynReceived);
        if may_close {
            socket.close();
        }
        may_close
    }

    fn leave(&mut self, _now: Instant, _connection: usize) {}

    fn abort(&mut self, _now: Instant, connection: usize) {
        self.socket(connection).abort();
    }

    fn left(&self) -> Option<String> {
        let states: Vec<_> = self
            .sockets
            .iter()
            .map(|(_, socket)| match socket {
                smoltcp::socket::Socket::Tcp(tcp) => tcp.state(),
            })
            // A client that was reset before its handshake was complete leaves a listener.
            .filter(|state| !matches!(state, State::Closed | State::Listen))
            .collect();
        (!states.is_empty()).then(|| format!("smoltcp: {states:?}"))
    }
}

/// The frames at the link of smoltcp.
struct Link {
    mtu: usize,
    arrived: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
}

struct Arrived(Vec<u8>);

struct Sending<'a>(&'a mut VecDeque<Vec<u8>>);

impl Device for Link {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _now: TheirInstant) -> Option<(Arrived, Sending<'_>)> {
        let frame = self.arrived.pop_front()?;
        Some((Arrived(frame), Sending(&mut self.sent)))
    }

    fn transmit(&mut self, _now: TheirInstant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + 14;
        capabilities
    }
}

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let mut frame = vec![0; length];
        let result = f(&mut frame);
        self.0.push_back(frame);
        result
    }
}

fn their(now: Instant) -> TheirInstant {
    TheirInstant::from_micros((now.as_ns() / 1000) as i64)
}

thread_local! {
    /// The virtual time for smoltcp's time stamps, whose generator has no argument.
    static MILLISECONDS: Cell<u32> = const { Cell::new(0) };
}
