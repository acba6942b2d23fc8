//! The stack: frames in, datagrams out, and the reverse.
//!
//! A [`Stack`] owns endpoints, the neighbor cache and the queues. Its caller owns the device, the clock and the thread:
//!
//! 1. [`on_frame`](Stack::on_frame) takes each frame that the device has received. It demultiplexes the frame and puts
//!    it into a bounded channel, or drops it.
//! 2. [`process`](Stack::process) does what runs on the stack's own account: ARP, neighbor discovery, ICMP, fragments,
//!    and all protocol work of the eager architectures.
//! 3. [`next_woken`](Stack::next_woken) names the endpoints whose receivers wait and have got something.
//! 4. [`receive`](Stack::receive) returns an endpoint's next datagram. In [lazy](Architecture::is_lazy) architectures
//!    the protocols run here, in the receiver's context.
//! 5. [`next_frame`](Stack::next_frame) returns the frames to send, and [`next_timeout`](Stack::next_timeout) the time
//!    at which [`on_timer`](Stack::on_timer) has work.
//!
//! With [`Architecture::NiLrp`] the network interface does the first step for most frames. Receivers take the frames to
//! their endpoints by [`receive_next`](Stack::receive_next), and only the others go to `on_frame`.
//! [`on_discards`](Stack::on_discards) adds what the interface discarded to the counters.
//!
//! **On whose account:** demultiplexing is charged to the caller of `on_frame`; control packets and fragments to the
//! caller of `process`, which bounds them by its quota; UDP, in lazy architectures, to the receiver. A flood to one
//! endpoint fills that endpoint's channel, and the rest of it costs the demultiplexer only.
//!
//! | file | contents |
//! |---|---|
//! | `tcp/` | connections |
//! | `settings.rs` | the settings and their defaults |
//! | `endpoint.rs` | endpoints, their channels and counters |
//! | `counts.rs` | the counters of the stack |
//! | `elsewhere.rs` | receivers in other threads, with rings of their own |
//! | `input.rs` | from a frame to a channel, and from there to a datagram |
//! | `rings.rs` | frames that the network interface demultiplexes |
//! | `control.rs` | packets for the stack itself, or without an endpoint; timers |
//! | `icmp.rs` | ICMP and ICMPv6: echo, errors |
//! | `reassembly.rs` | fragments, and packets put together from them |
//! | `discovery.rs` | ARP and neighbor discovery |
//! | `slots.rs` | numbered entries |
//! | `steering.rs` | several stacks with the same addresses |
//! | `hops.rs` | neighbors to which stacks without the link send |
//! | `absent.rs` | the flows of stacks that have ended |
//! | `path_mtu.rs` | what routers have said about the lengths of packets |
//! | `output.rs` | from a datagram to frames; routes and neighbors |

mod absent;
mod control;
mod counts;
mod discovery;
mod elsewhere;
mod endpoint;
mod frame;
mod groups;
mod hops;
mod icmp;
mod input;
mod output;
mod path_mtu;
mod reassembly;
mod rings;
mod settings;
mod slots;
mod steering;
mod tcp;
#[cfg(test)]
mod tests;
mod timers;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::ops::Deref;

use softclock_core::Instant;

use self::absent::Absences;
use self::endpoint::{Arrived, Endpoint};
pub use self::frame::Frame;
use self::frame::Spare;
use self::hops::Hops;
use self::input::EagerTarget;
use self::path_mtu::PathMtus;
use self::slots::{SlotId, Slots};
use self::tcp::Tcp;
use crate::channel::Channel;
use crate::demux::{HashKey, InUse, Table, Transport};
use crate::drops::{DropReason, Drops};
use crate::ip::Identifications;
use crate::ip::fragments::Reassembly;
use crate::neighbors::Neighbors;
use crate::ports::DynamicPorts;
use crate::random::Random;
use crate::rate_limit::{SourceBuckets, TokenBucket};
use crate::routes::Routes;

pub use counts::StackCounts;
pub use elsewhere::{ReceiverCounts, RingEndpoint, RingReceived};
pub use endpoint::{
    Datagram, DatagramOptions, EndpointCounts, EndpointId, NetworkError, Pending, Ring, RingFrame,
    Taken,
};
pub use groups::GroupError;
pub use output::{Ports, SendError, datagram_packet};
pub use settings::{Architecture, Settings};
pub use steering::{Handed, HandedFrame, Steering};
pub use tcp::{
    Interest, SynRoom, TcpCounts, TcpError, TcpId, TcpListenSettings, TcpListenerId, TcpReport,
    TcpSettings, TcpSettingsError, TcpWoken,
};

/// A network stack for one link. `B` is the memory of a received frame, such as a buffer that returns to its pool when
/// it is dropped; a channel holds it until the receiver has taken its datagram.
///
/// ```
/// use softclock_core::Instant;
/// use softclock_net::checksum::Verify;
/// use softclock_net::demux::HashKey;
/// use softclock_net::link::LinkAddress;
/// use softclock_net::routes::Routes;
/// use softclock_net::stack::{Settings, Stack};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let stack = |address: &str, link: u8| -> Result<Stack<Vec<u8>>, Box<dyn std::error::Error>> {
///     let routes = Routes::new(vec![address.parse()?], vec![])?;
///     let settings = Settings::new(LinkAddress([2, 0, 0, 0, 0, link]), 1500);
///     Ok(Stack::new(settings, routes, HashKey([1, 2])))
/// };
/// let (mut client, mut server) = (stack("10.0.0.1/24", 1)?, stack("10.0.0.2/24", 2)?);
/// let now = Instant::ORIGIN;
///
/// let port = client.bind("0.0.0.0:0".parse()?)?;
/// let echo = server.bind("0.0.0.0:7".parse()?)?;
/// client.send_to(now, port, "10.0.0.2:7".parse()?, b"hello")?;
///
/// // The client asks for the server's link address first, so frames go both ways.
/// for _ in 0..2 {
///     client.on_timer(now);
///     while let Some(frame) = client.next_frame() {
///         server.on_frame(now, now, frame, Verify::Yes);
///     }
///     server.process(now, 10);
///     while let Some(frame) = server.next_frame() {
///         client.on_frame(now, now, frame, Verify::Yes);
///     }
///     client.process(now, 10);
/// }
/// let datagram = server.receive(echo).unwrap();
/// assert_eq!(datagram.payload(), b"hello");
/// assert_eq!(datagram.source.ip().to_string(), "10.0.0.1");
/// # Ok(())
/// # }
/// ```
pub struct Stack<B> {
    settings: Settings,
    routes: Routes,
    table: Table<SlotId>,
    endpoints: Slots<Endpoint<B>>,
    /// Endpoints whose receivers must be woken.
    woken: VecDeque<EndpointId>,
    /// Frames that wait for eager processing, each with its endpoint if it is demultiplexed.
    ip_queue: Channel<(Option<EagerTarget>, Arrived<B>)>,
    /// Frames for [`process`](Stack::process) in all architectures but BSD.
    control: Channel<Arrived<B>>,
    /// Frames for other stacks, each with the number of its stack.
    handed: Channel<(u32, Arrived<B>)>,
    /// The stacks of the group that have ended.
    absences: Absences,
    fragments: Channel<Arrived<B>>,
    reassembly: Reassembly,
    /// Packets that wait for the link addresses of their next hops: frames whose Ethernet header is not written yet.
    neighbors: Neighbors<Frame>,
    /// When the addresses are announced again.
    announce_again: Option<Instant>,
    /// The neighbors of a stack without the link.
    hops: Hops,
    /// Whether a stack without the link has a queue to send by.
    sends: bool,
    /// Neighbors whose link addresses the caller has to find.
    questions: VecDeque<IpAddr>,
    path_mtus: PathMtus,
    tcp: Tcp<B>,
    /// Frames for the link.
    leaving: VecDeque<Frame>,
    /// Memory of frames that have left.
    spare: Spare,
    echo_rate: SourceBuckets,
    error_rate: TokenBucket,
    identifications: Arc<Identifications>,
    /// For what other hosts must not foresee, where no other key is at hand.
    random: Random,
    drops: Drops,
    counts: StackCounts,
}

/// Why an endpoint cannot be bound or connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BindError {
    /// Another endpoint has the port, or no port is free.
    InUse,
    /// The address is none of the stack's.
    NotOurAddress,
    /// No endpoint has this number.
    Closed,
    /// The remote address is no host's, or of the other family, or its port is 0.
    Remote,
    /// No route leads to the remote address.
    NoRoute,
    /// There are as many endpoints as the stack may have.
    TooMany,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InUse => "the port is in use",
            Self::NotOurAddress => "the address is not one of this stack",
            Self::Closed => "the endpoint is closed",
            Self::Remote => "the remote address cannot be that of an endpoint",
            Self::NoRoute => "no route leads to the remote address",
            Self::TooMany => "there are too many endpoints",
        })
    }
}

impl core::error::Error for BindError {}

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Creates a stack without endpoints. `key` must be random, so that attackers cannot choose flows that collide in
    /// the demultiplexer's table.
    pub fn new(settings: Settings, routes: Routes, key: HashKey) -> Self {
        Self {
            routes,
            table: Table::new(key),
            endpoints: Slots::new(),
            woken: VecDeque::new(),
            ip_queue: Channel::new(settings.ip_queue),
            control: Channel::new(settings.control),
            handed: Channel::new(settings.ip_queue),
            absences: Absences::default(),
            fragments: Channel::new(settings.fragments),
            reassembly: Reassembly::new(settings.reassembly),
            neighbors: Neighbors::new(settings.neighbors),
            announce_again: None,
            hops: Hops::default(),
            sends: false,
            questions: VecDeque::new(),
            path_mtus: PathMtus::new(settings.path_mtu_lifetime),
            tcp: Tcp::new(&settings.tcp, key),
            leaving: VecDeque::new(),
            spare: Spare::default(),
            echo_rate: SourceBuckets::new(
                TokenBucket::new(settings.echoes_of_source_per_second, BURST),
                TokenBucket::new(settings.echoes_per_second, BURST),
                key,
            ),
            error_rate: TokenBucket::new(settings.errors_per_second, BURST),
            identifications: Arc::new(Identifications::new(key)),
            random: Random::new(key),
            drops: Drops::default(),
            counts: StackCounts::default(),
            settings,
        }
    }

    /// Binds a UDP port, for one of the stack's addresses, or for all of one version of IP if the address is
    /// unspecified, and returns its endpoint. Port 0 stands for any free one of 49152 to 65535 (RFC 6335, 6), from one
    /// on that other hosts cannot foresee (RFC 6056).
    ///
    /// # Errors
    /// [`BindError::InUse`], [`BindError::NotOurAddress`], and [`BindError::TooMany`] for more than 65 536 endpoints.
    pub fn bind(&mut self, local: SocketAddr) -> Result<EndpointId, BindError> {
        let (address, port) = (local.ip(), local.port());
        if !address.is_unspecified() && !self.is_own_or_group(address) {
            return Err(BindError::NotOurAddress);
        }
        if self.endpoints.len() >= MOST_ENDPOINTS {
            return Err(BindError::TooMany);
        }
        if port != 0 {
            return self.bind_port((address, port));
        }
        let mut ports = DynamicPorts::new(self.random.draw());
        let bound = ports.find(|port| match self.bind_port((address, port)) {
            Err(BindError::InUse) => None,
            bound => Some(bound),
        });
        bound.unwrap_or(Err(BindError::InUse))
    }

    fn bind_port(&mut self, local: (IpAddr, u16)) -> Result<EndpointId, BindError> {
        let endpoint = Endpoint::new(local, self.settings.channel);
        let id = self.endpoints.insert(endpoint);
        match self.table.bind(Transport::Udp, local, id) {
            Ok(()) => Ok(EndpointId(id)),
            Err(InUse) => {
                self.endpoints.remove(id);
                Err(BindError::InUse)
            }
        }
    }

    /// Connects an endpoint: from now on it receives from this remote endpoint only, and learns of the errors that the
    /// network reports ([`take_error`](Self::take_error)). Datagrams that wait already stay in its channel.
    ///
    /// # Errors
    /// [`BindError::Closed`], [`BindError::Remote`], and [`BindError::NoRoute`].
    pub fn connect(&mut self, id: EndpointId, remote: SocketAddr) -> Result<(), BindError> {
        let endpoint = self.endpoints.get_mut(id.0).ok_or(BindError::Closed)?;
        let address = remote.ip();
        if remote.port() == 0 || address.is_unspecified() || address.is_multicast() {
            return Err(BindError::Remote);
        }
        if endpoint.local.0.is_ipv4() != address.is_ipv4() {
            return Err(BindError::Remote);
        }
        let bound = endpoint.bound_source();
        let source = bound.or_else(|| self.routes.source_for(address));
        endpoint.source = Some(source.ok_or(BindError::NoRoute)?);
        // Frames have neither scope nor flow label.
        endpoint.remote = Some(SocketAddr::new(address, remote.port()));
        Ok(())
    }

    /// Closes an endpoint, which leaves its groups. The packets in its channel are dropped.
    pub fn close(&mut self, id: EndpointId) {
        let Some(mut endpoint) = self.endpoints.remove(id.0) else {
            return;
        };
        self.table.unbind(Transport::Udp, endpoint.local);
        for group in endpoint.groups {
            self.routes.leave(group);
        }
        while endpoint.channel.pop().is_some() {
            self.drops.count(DropReason::Closed);
        }
    }

    /// The address and port of an endpoint. `None` if it is closed. The address is unspecified if the endpoint is bound
    /// to all, until it is connected.
    pub fn local(&self, id: EndpointId) -> Option<SocketAddr> {
        let endpoint = self.endpoints.get(id.0)?;
        let address = endpoint.source.unwrap_or(endpoint.local.0);
        Some((address, endpoint.local.1).into())
    }

    /// The address and port that an endpoint was bound to. `None` if it is closed.
    pub fn bound(&self, id: EndpointId) -> Option<SocketAddr> {
        let (address, port) = self.endpoints.get(id.0)?.local;
        Some((address, port).into())
    }

    /// Sets the options of the datagrams that an endpoint sends.
    pub fn set_datagram_options(&mut self, id: EndpointId, options: DatagramOptions) {
        if let Some(endpoint) = self.endpoints.get_mut(id.0) {
            endpoint.options = options;
        }
    }

    /// The remote endpoint that an endpoint is connected to.
    pub fn remote(&self, id: EndpointId) -> Option<SocketAddr> {
        self.endpoints.get(id.0)?.remote
    }

    /// Takes the last error that the network reported to a connected endpoint.
    pub fn take_error(&mut self, id: EndpointId) -> Option<NetworkError> {
        self.endpoints.get_mut(id.0)?.error.take()
    }

    /// Whether [`take_error`](Self::take_error) has an error.
    pub fn has_error(&self, id: EndpointId) -> bool {
        let endpoint = self.endpoints.get(id.0);
        endpoint.is_some_and(|endpoint| endpoint.error.is_some())
    }

    /// Asks that the endpoint is named by [`next_woken`](Self::next_woken) when its channel, empty now, gets a packet.
    /// Returns false, and asks for nothing, if something is there already or the endpoint is closed.
    pub fn wait(&mut self, id: EndpointId) -> bool {
        let Some(endpoint) = self.endpoints.get_mut(id.0) else {
            return false;
        };
        endpoint.error.is_none() && endpoint.channel.wait()
    }

    /// Returns the next endpoint to wake: one whose [`wait`](Self::wait) returned true and that has got a packet since,
    /// or one with a new [error](Self::take_error), waiting or not. An endpoint is listed once at a time.
    pub fn next_woken(&mut self) -> Option<EndpointId> {
        while let Some(id) = self.woken.pop_front() {
            if let Some(endpoint) = self.endpoints.get_mut(id.0) {
                endpoint.is_woken = false;
                return Some(id);
            }
        }
        None
    }

    /// The next frame for the link, as [`next_link_frame`](Self::next_link_frame) returns it, for devices that do no
    /// work on frames: those for which [`Settings::offloads_tcp`] is not set.
    pub fn next_frame(&mut self) -> Option<Vec<u8>> {
        self.next_link_frame().map(|frame| frame.bytes)
    }

    /// The next frame for the link. Asks connections for their segments when no other frame waits, each in turn for
    /// one, or for as many as the device cuts out of one frame.
    pub fn next_link_frame(&mut self) -> Option<Frame> {
        if self.leaving.is_empty() {
            self.tcp_send_next();
        }
        // The first segment to a neighbor may ask for its link address.
        let now = self.tcp_latest();
        if self.leaving.is_empty() && self.neighbors.next_timeout().is_some_and(|due| due <= now) {
            self.neighbors_on_timer(now);
        }
        let frame = self.leaving.pop_front()?;
        // The stack with the link counts those that it completes.
        let is_sent = frame.is_complete() || !self.has_no_link();
        self.counts.frames_sent += u64::from(is_sent);
        Some(frame)
    }

    /// The frames that wait for the link. One stands for the segments of all connections that may have some: these are
    /// made when [`next_frame`](Self::next_frame) asks for them.
    pub fn frames_waiting(&self) -> usize {
        self.leaving.len() + usize::from(self.tcp.may_send())
    }

    /// Whether [`process`](Self::process) has work, [`next_question`](Self::next_question) a question, or
    /// [`next_handed`](Self::next_handed) a frame.
    pub fn has_work(&self) -> bool {
        let is_idle =
            self.control.is_empty() && self.fragments.is_empty() && self.ip_queue.is_empty();
        let is_asking = !self.questions.is_empty() || !self.handed.is_empty();
        !is_idle || is_asking || self.tcp.has_work()
    }

    /// The packets that were dropped, by reason. Those of the endpoints are among them.
    pub const fn drops(&self) -> &Drops {
        &self.drops
    }

    /// The frames and packets so far.
    pub const fn counts(&self) -> &StackCounts {
        &self.counts
    }

    /// The counters of an endpoint. `None` if it is closed.
    pub fn endpoint_counts(&self, id: EndpointId) -> Option<&EndpointCounts> {
        Some(&self.endpoints.get(id.0)?.counts)
    }

    /// The identifications of the stack's packets, for other threads that build some by [`datagram_packet`].
    pub const fn identifications(&self) -> &Arc<Identifications> {
        &self.identifications
    }

    /// The stack's addresses and routes.
    pub const fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The settings.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Adds `id` to the list of endpoints to wake.
    fn wake(&mut self, id: EndpointId) {
        if let Some(endpoint) = self.endpoints.get_mut(id.0)
            && !endpoint.is_woken
        {
            endpoint.is_woken = true;
            self.woken.push_back(id);
        }
    }
}

impl<B> fmt::Debug for Stack<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("settings", &self.settings)
            .field("endpoints", &self.endpoints.len())
            .field("counts", &self.counts)
            .field("drops", &self.drops)
            .finish_non_exhaustive()
    }
}

/// A port for each endpoint, and some connected ones.
const MOST_ENDPOINTS: usize = 1 << 16;

/// The answers that may leave at once.
const BURST: u32 = 50;
