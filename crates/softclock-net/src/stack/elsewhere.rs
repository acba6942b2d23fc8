//! Receivers without access to the stack, such as those in other threads: they do the protocols' work for the frames in
//! the ring of an endpoint themselves ([`Architecture::NiLrp`](super::Architecture::NiLrp)).

use core::net::SocketAddr;
use core::ops::Deref;

use super::Stack;
use super::absent::Route;
use super::endpoint::{Arrived, Datagram, Memory, RingFrame};
use crate::demux::{Class, Transport, classify};
use crate::drops::{DropReason, Drops};
use crate::link::{Header, LinkAddress};
use crate::routes::{Destination, Routes};

/// An endpoint of a stack as its receiver in another thread sees it.
///
/// ```
/// use softclock_core::Instant;
/// use softclock_net::checksum::Verify;
/// use softclock_net::drops::DropReason;
/// use softclock_net::link::LinkAddress;
/// use softclock_net::routes::Routes;
/// use softclock_net::stack::{ReceiverCounts, RingEndpoint, RingFrame, RingReceived};
///
/// let routes = Routes::new(vec!["10.0.0.2/24".parse()?], vec![])?;
/// let endpoint = RingEndpoint {
///     routes: &routes,
///     link_address: LinkAddress([2, 0, 0, 0, 0, 2]),
///     local: "10.0.0.2:7".parse()?,
///     remote: None,
/// };
/// let frame = RingFrame {
///     bytes: vec![0; 60],
///     arrived: Instant::ORIGIN,
///     verify: Verify::Yes,
/// };
/// let mut counts = ReceiverCounts::default();
/// assert!(matches!(endpoint.receive(frame, &mut counts), RingReceived::Dropped));
/// assert_eq!(counts.drops.of(DropReason::OtherHost), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RingEndpoint<'a> {
    /// The addresses and routes of the stack.
    pub routes: &'a Routes,
    /// The stack's address on the link.
    pub link_address: LinkAddress,
    /// The address and port as they were bound.
    pub local: SocketAddr,
    /// The remote endpoint that the endpoint is connected to.
    pub remote: Option<SocketAddr>,
}

/// The fate of a frame from a ring.
#[derive(Debug)]
pub enum RingReceived<B> {
    /// A datagram of the endpoint.
    Datagram(Datagram<B>),
    /// The packet is dropped, and counted.
    Dropped,
    /// Another endpoint, or the stack itself, has to handle the frame: [`Stack::on_frame`].
    Elsewhere(RingFrame<B>),
}

/// The frames and packets that receivers in other threads have handled.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReceiverCounts {
    /// Frames from rings that were datagrams of their endpoints, or dropped. Those that the stack has to handle are not
    /// among them.
    pub frames: u64,
    /// Those of them that belonged to their endpoints.
    pub to_channels: u64,
    /// Those for the control channel. Only stacks of other threads have any, and not receivers.
    pub to_control: u64,
    /// Those for the channel of fragments, as above.
    pub to_fragments: u64,
    /// Those that were dropped when they were demultiplexed.
    pub demux_drops: u64,
    /// Datagrams that receivers took.
    pub datagrams: u64,
    /// Packets that receivers dropped.
    pub drops: Drops,
}

impl RingEndpoint<'_> {
    /// Demultiplexes a frame from the endpoint's ring again, as [`Stack::receive_next`] does, and does the protocols'
    /// work for it. Counts it, unless the stack has to handle it.
    pub fn receive<B: Deref<Target = [u8]>>(
        &self,
        frame: RingFrame<B>,
        counts: &mut ReceiverCounts,
    ) -> RingReceived<B> {
        let is_own = self.is_own(&frame.bytes);
        if is_own == Ok(false) {
            return RingReceived::Elsewhere(frame);
        }
        counts.frames += 1;
        let datagram = match is_own {
            Ok(_) => {
                counts.to_channels += 1;
                self.process(frame)
            }
            Err(reason) => {
                counts.demux_drops += 1;
                Err(reason)
            }
        };
        match datagram {
            Ok(datagram) => {
                counts.datagrams += 1;
                RingReceived::Datagram(datagram)
            }
            Err(reason) => {
                counts.drops.count(reason);
                RingReceived::Dropped
            }
        }
    }

    fn process<B: Deref<Target = [u8]>>(
        &self,
        frame: RingFrame<B>,
    ) -> Result<Datagram<B>, DropReason> {
        let arrived = Arrived {
            memory: Memory::Frame(frame.bytes),
            at: frame.arrived,
            verify: frame.verify,
            is_own: false,
            is_counted: true,
            route: Route::Direct,
        };
        arrived.into_datagram(self.routes)
    }

    /// Whether the stack's demultiplexer would find this endpoint for the frame. An error is a frame that it drops.
    fn is_own(&self, frame: &[u8]) -> Result<bool, DropReason> {
        let (header, _) = Header::parse(frame)?;
        if header.destination != self.link_address {
            // A packet to a single host has no business in a frame to several (RFC 1122, 3.3.6), but this one may be to
            // a group.
            return match header.destination.is_group() {
                true => Ok(false),
                false => Err(DropReason::OtherHost),
            };
        }
        let Class::Flow(flow) = classify(frame)? else {
            return Ok(false);
        };
        let (address, port) = flow.local;
        let bound = self.local.ip();
        let is_bound = match bound.is_unspecified() {
            true => address.is_ipv4() == bound.is_ipv4(),
            false => address == bound,
        };
        let is_accepted = self
            .remote
            .is_none_or(|remote| (remote.ip(), remote.port()) == flow.remote);
        Ok(flow.transport == Transport::Udp
            && self.routes.classify(address) == Destination::Ours
            && is_bound
            && port == self.local.port()
            && is_accepted)
    }
}

impl ReceiverCounts {
    /// Adds other counts.
    pub fn add(&mut self, more: &Self) {
        self.frames += more.frames;
        self.to_channels += more.to_channels;
        self.to_control += more.to_control;
        self.to_fragments += more.to_fragments;
        self.demux_drops += more.demux_drops;
        self.datagrams += more.datagrams;
        self.drops.add(&more.drops);
    }
}

impl<B> Stack<B> {
    /// Adds to the counters what receivers in other threads have done.
    pub fn add_counts(&mut self, more: &ReceiverCounts) {
        self.counts.add_received(more);
        self.drops.add(&more.drops);
    }
}
