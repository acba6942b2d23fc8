//! Packets of IP as bytes, both ways. Written apart from the stack's own parsers, so that neither hides the other's
//! mistakes.

mod build;
mod option;
mod parse;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};

use softclock_net::tcp::segment::Header;

pub use build::{icmp_packet, tcp_packet, udp_packet};
pub use option::TcpOption;
pub use parse::{Packet, Quote, parse, quote};

/// The fields of the IP header that scripts name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpHeader {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// The time to live, or hop limit.
    pub ttl: u8,
    /// The type of service, or traffic class; its low two bits are ECN.
    pub class: u8,
}

/// A segment of TCP in a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpPacket {
    /// The header of IP.
    pub ip: IpHeader,
    /// The header of TCP.
    pub header: Header,
    /// The options, in the order of the header.
    pub options: Vec<TcpOption>,
    /// The bytes behind the options.
    pub payload: Vec<u8>,
}

impl TcpPacket {
    /// The sender's address and port.
    pub fn source(&self) -> SocketAddr {
        SocketAddr::new(self.ip.source, self.header.source_port)
    }

    /// The receiver's address and port.
    pub fn destination(&self) -> SocketAddr {
        SocketAddr::new(self.ip.destination, self.header.destination_port)
    }
}

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP_V4: u8 = 1;
pub(crate) const ICMP_V6: u8 = 58;
