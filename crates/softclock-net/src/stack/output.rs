//! From a datagram to frames for the link.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::ops::Deref;

use softclock_core::Instant;
use softclock_wire::packet::{ICMPV6, IPV4, IPV6, UDP};

use super::absent::Route;
use super::endpoint::{Arrived, DatagramOptions, HOP_LIMIT, Memory};
use super::{BindError, EndpointId, Frame, Stack};
use crate::checksum::{Addresses, Verify};
use crate::drops::DropReason;
use crate::ip::{self, Identifications};
use crate::link::{Header, LinkAddress};
use crate::neighbors::Resolved;
use crate::routes::{Destination, NextHop};
use crate::udp;

/// Why a datagram cannot be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SendError {
    /// The endpoint is closed.
    Closed,
    /// The endpoint is not connected, and no receiver was given.
    NotConnected,
    /// The receiver's port is 0, or its address is of the other family than the endpoint's.
    Remote,
    /// No route leads to the receiver.
    NoRoute,
    /// The payload is longer than a datagram can be.
    TooLong,
    /// The queue of frames for the link is full: try again when some have left.
    Full,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the endpoint is closed",
            Self::NotConnected => "the endpoint is not connected",
            Self::Remote => "the endpoint cannot send to this address",
            Self::NoRoute => "no route leads to the receiver",
            Self::TooLong => "the datagram is too long",
            Self::Full => "the queue of the link is full",
        })
    }
}

impl core::error::Error for SendError {}

impl From<SendError> for BindError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NoRoute => Self::NoRoute,
            SendError::Remote => Self::Remote,
            _ => Self::Closed,
        }
    }
}

/// A packet that the stack builds: the fields of its IP header.
#[derive(Clone, Copy)]
pub(super) struct Outgoing {
    pub(super) addresses: Addresses,
    pub(super) protocol: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) may_fragment: bool,
    /// Whether the stack receives the packet, too, if it is to a group that it has joined.
    pub(super) loops_groups: bool,
}

impl Outgoing {
    pub(super) const fn new(addresses: Addresses, protocol: u8) -> Self {
        Self {
            addresses,
            protocol,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
            may_fragment: true,
            loops_groups: false,
        }
    }

    /// A datagram of UDP.
    fn of_datagram(addresses: Addresses, options: &DatagramOptions) -> Self {
        Self {
            hop_limit: options.hop_limit_to(addresses.destination),
            traffic_class: options.traffic_class,
            loops_groups: options.loops_groups,
            ..Self::new(addresses, UDP)
        }
    }

    /// The header of a whole packet. That of IPv6 has no identification.
    fn output(&self, identifications: &Identifications) -> ip::Output {
        self.output_with(match self.addresses.source {
            IpAddr::V4(_) if self.may_fragment => identifications.next(self.addresses),
            _ => 0,
        })
    }

    const fn output_with(&self, identification: u32) -> ip::Output {
        ip::Output {
            identification,
            addresses: self.addresses,
            protocol: self.protocol,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            may_fragment: self.may_fragment,
        }
    }
}

/// The ports of a datagram to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ports {
    /// The sender's.
    pub source: u16,
    /// The receiver's.
    pub destination: u16,
}

/// Builds the packet of a datagram for [`Stack::send_packet`]: room for an Ethernet header, then the IP header, the UDP
/// header and the payload. `identifications` are those of the [stack](Stack::identifications), so that they do not
/// repeat for a pair of addresses.
///
/// # Errors
/// [`SendError::TooLong`], and [`SendError::Remote`] if the addresses are of different versions of IP.
pub fn datagram_packet(
    addresses: Addresses,
    ports: Ports,
    options: &DatagramOptions,
    identifications: &Identifications,
    payload: &[u8],
) -> Result<Vec<u8>, SendError> {
    if addresses.source.is_ipv4() != addresses.destination.is_ipv4() {
        return Err(SendError::Remote);
    }
    if payload.len() > udp::MOST_PAYLOAD_V6 {
        return Err(SendError::TooLong);
    }
    let outgoing = Outgoing::of_datagram(addresses, options);
    let payload_bytes = udp::HEADER_BYTES + payload.len();
    let output = outgoing.output(identifications);
    let mut frame = Vec::with_capacity(packet_bytes(&output, payload_bytes));
    begin(&output, payload_bytes, &mut frame);
    udp::write(
        addresses,
        ports.source,
        ports.destination,
        payload,
        &mut frame,
    )
    .map_err(|_| SendError::TooLong)?;
    Ok(frame)
}

/// Begins a packet in an empty buffer: room for the Ethernet header, and an IP header for a payload of this length,
/// which the caller appends.
fn begin(output: &ip::Output, payload_bytes: usize, frame: &mut Vec<u8>) {
    frame.extend([0; Header::BYTES]);
    ip::write_header(output, payload_bytes, frame);
}

/// The length of a packet with room for the Ethernet header.
const fn packet_bytes(output: &ip::Output, payload_bytes: usize) -> usize {
    Header::BYTES + ip::header_bytes(&output.addresses.source) + payload_bytes
}

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Sends a datagram from an endpoint, from its own address or that of the route.
    ///
    /// # Errors
    /// [`SendError`]. A datagram that was accepted may still be lost, as any other in the network; the reason is then
    /// counted in [`drops`](Self::drops).
    pub fn send_to(
        &mut self,
        now: Instant,
        id: EndpointId,
        remote: SocketAddr,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let endpoint = self.endpoints.get(id.0).ok_or(SendError::Closed)?;
        let address = remote.ip();
        let source = endpoint.source.filter(|source| !source.is_multicast());
        let source = source.or_else(|| self.routes.source_for(address));
        self.send_from(now, id, source.ok_or(SendError::NoRoute)?, remote, payload)
    }

    /// Sends a datagram to the remote endpoint that the endpoint is connected to.
    ///
    /// # Errors
    /// [`SendError::NotConnected`], and those of [`send_to`](Self::send_to).
    pub fn send(&mut self, now: Instant, id: EndpointId, payload: &[u8]) -> Result<(), SendError> {
        let endpoint = self.endpoints.get(id.0).ok_or(SendError::Closed)?;
        let remote = endpoint.remote.ok_or(SendError::NotConnected)?;
        self.send_to(now, id, remote, payload)
    }

    /// Sends a datagram with one of the stack's addresses as its source, such as the one that a request was sent to.
    ///
    /// # Errors
    /// [`SendError`]: [`Remote`](SendError::Remote) also for a source that is none of the stack's addresses.
    pub fn send_from(
        &mut self,
        now: Instant,
        id: EndpointId,
        source: IpAddr,
        remote: SocketAddr,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let endpoint = self.endpoints.get(id.0).ok_or(SendError::Closed)?;
        let (port, options) = (endpoint.local.1, endpoint.options);
        let destination = remote.ip();
        if remote.port() == 0
            || destination.is_unspecified()
            || source.is_ipv4() != destination.is_ipv4()
            || self.routes.classify(source) != Destination::Ours
        {
            return Err(SendError::Remote);
        }
        if self.leaving.len() >= self.settings.send_queue {
            return Err(SendError::Full);
        }
        let addresses = Addresses {
            source,
            destination,
        };
        let outgoing = Outgoing::of_datagram(addresses, &options);
        let ports = Ports {
            source: port,
            destination: remote.port(),
        };
        let frame = datagram_packet(addresses, ports, &options, &self.identifications, payload)?;
        self.transmit(now, &outgoing, frame, None)?;
        self.counts.datagrams_sent += 1;
        if let Some(endpoint) = self.endpoints.get_mut(id.0) {
            endpoint.counts.sent += 1;
        }
        Ok(())
    }

    /// Begins a packet, in the memory of one that has left; see [`begin`].
    pub(super) fn begin(&mut self, outgoing: &Outgoing, payload_bytes: usize) -> Vec<u8> {
        let output = outgoing.output(&self.identifications);
        let mut frame = self.spare.take(packet_bytes(&output, payload_bytes));
        begin(&output, payload_bytes, &mut frame);
        frame
    }

    /// Takes the memory of a frame that [`next_frame`](Self::next_frame) has returned and that has left, to build
    /// others in it. Frames that are not given back are allocated.
    pub fn give_back(&mut self, frame: Vec<u8>) {
        self.spare.give_back(frame);
    }

    /// Sends a packet that [`datagram_packet`] has built, in another thread for instance.
    ///
    /// # Errors
    /// [`SendError::Remote`] if the source is not an address of the stack, [`SendError::Full`], and
    /// [`SendError::NoRoute`].
    pub fn send_packet(&mut self, now: Instant, frame: Vec<u8>) -> Result<(), SendError> {
        if self.leaving.len() >= self.settings.send_queue {
            return Err(SendError::Full);
        }
        let packet = ip::parse(frame.get(Header::BYTES..).unwrap_or_default());
        let packet = packet.map_err(|_| SendError::Remote)?;
        if !self.is_own(packet.addresses.source) {
            return Err(SendError::Remote);
        }
        let outgoing = Outgoing {
            addresses: packet.addresses,
            protocol: packet.protocol,
            hop_limit: packet.hop_limit,
            traffic_class: packet.traffic_class,
            may_fragment: true,
            loops_groups: true,
        };
        self.transmit(now, &outgoing, frame, None)?;
        self.counts.datagrams_sent += 1;
        Ok(())
    }

    /// Sends a whole packet, in fragments if it is longer than the path allows and the device does not cut it. `frame`
    /// is what [`begin`](Self::begin) returned, with its payload; `to` is the receiver's link address, if it is known
    /// without the neighbor cache. One that is too long and must not be fragmented is dropped.
    pub(super) fn transmit(
        &mut self,
        now: Instant,
        outgoing: &Outgoing,
        frame: impl Into<Frame>,
        to: Option<LinkAddress>,
    ) -> Result<(), SendError> {
        let frame = frame.into();
        if self.has_no_link() {
            return self.send_up(now, outgoing, frame);
        }
        let destination = outgoing.addresses.destination;
        match self.routes.classify(destination) {
            Destination::Ours => {
                self.loop_back(now, frame.bytes, outgoing);
                return Ok(());
            }
            Destination::Group if outgoing.loops_groups => {
                self.loop_back(now, frame.bytes.clone(), outgoing);
            }
            _ => {}
        }
        // For this host only (RFC 1112, 6.1).
        if outgoing.hop_limit == 0 {
            return Ok(());
        }
        let hop = match to {
            Some(link) => NextHop::Link(link),
            None => self
                .routes
                .next_hop(destination)
                .ok_or(SendError::NoRoute)?,
        };
        let mtu = self.longest_whole(now, outgoing);
        if frame.packet_bytes() <= mtu {
            self.send_by(now, hop, frame);
            return Ok(());
        }
        if !outgoing.may_fragment || frame.offload.segmentation.is_some() {
            self.drops.count(DropReason::TooLong);
            return Ok(());
        }
        let start = Header::BYTES + ip::header_bytes(&outgoing.addresses.source);
        // A whole packet of IPv4 has the number of its fragments.
        let output = match frame.bytes.get(Header::BYTES..) {
            Some(&[0x40..0x50, _, _, _, i0, i1, ..]) => {
                outgoing.output_with(u16::from_be_bytes([i0, i1]).into())
            }
            _ => outgoing.output_with(self.identifications.next(outgoing.addresses)),
        };
        let payload = frame.bytes.get(start..).unwrap_or_default();
        for packet in ip::fragments(&output, payload, mtu) {
            let mut frame = vec![0; Header::BYTES];
            frame.extend(packet);
            self.send_by(now, hop, frame.into());
        }
        Ok(())
    }

    /// The longest packet to this destination that needs no fragments.
    fn longest_whole(&self, now: Instant, outgoing: &Outgoing) -> usize {
        let destination = outgoing.addresses.destination;
        let path = self.path_mtus.of(now, destination);
        let mtu = path.map_or(self.settings.mtu, |path| path.min(self.settings.mtu));
        // A report that a message of ICMPv6 is too long names no endpoint by which it could be told from a forged one.
        // The length that all paths carry needs no reports (RFC 8200, 5).
        match outgoing.protocol {
            ICMPV6 if destination.is_ipv6() => mtu.min(LEAST_MTU_V6),
            _ => mtu,
        }
    }

    /// Sends a packet that fits, once the link address of its next hop is known.
    pub(super) fn send_by(&mut self, now: Instant, hop: NextHop, frame: Frame) {
        match hop {
            NextHop::Link(link) => self.send_frame(link, frame),
            NextHop::Neighbor(neighbor) => match self.neighbors.resolve(now, neighbor, frame) {
                Resolved::Send(link, frame) => self.send_frame(link, frame),
                Resolved::Waits => {}
                Resolved::Dropped(_, reason) => self.drops.count(reason),
            },
        }
    }

    /// Completes the Ethernet header of a frame with an IP packet, and puts it into the queue for the link.
    pub(super) fn send_frame(&mut self, to: LinkAddress, frame: impl Into<Frame>) {
        let mut frame = frame.into();
        let version = frame.bytes.get(Header::BYTES).map(|byte| byte >> 4);
        let header = Header {
            destination: to,
            source: self.settings.link_address,
            ether_type: if version == Some(6) { IPV6 } else { IPV4 },
        };
        if let Some(place) = frame.bytes.first_chunk_mut() {
            *place = header.to_bytes();
        }
        self.queue_frame(frame);
    }

    /// Puts a whole frame into the queue for the link.
    pub(super) fn queue_frame(&mut self, frame: Frame) {
        // A datagram in fragments may exceed the limit that was checked for its first frame.
        if self.leaving.len() >= self.settings.send_queue + MOST_FRAGMENTS {
            self.drops.count(DropReason::SendQueueFull);
            return;
        }
        self.leaving.push_back(frame);
    }

    /// Delivers a packet to the stack itself.
    pub(super) fn loop_back(&mut self, now: Instant, mut frame: Vec<u8>, outgoing: &Outgoing) {
        let link = self.settings.link_address;
        let header = Header {
            destination: link,
            source: link,
            ether_type: match outgoing.addresses.destination {
                IpAddr::V4(_) => IPV4,
                IpAddr::V6(_) => IPV6,
            },
        };
        if let Some(place) = frame.first_chunk_mut() {
            *place = header.to_bytes();
        }
        self.enqueue(
            now,
            Arrived {
                memory: Memory::Copy(frame),
                at: now,
                verify: Verify::Trusted,
                is_own: true,
                is_counted: true,
                route: Route::Direct,
            },
        );
    }
}

/// The length of a packet that each link of IPv6 carries (RFC 8200, 5).
const LEAST_MTU_V6: usize = 1280;

/// The frames of the longest datagram on a link with the smallest MTU.
const MOST_FRAGMENTS: usize = 65_535 / (552 - 20) + 2;
