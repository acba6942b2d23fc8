//! The Address Resolution Protocol for IPv4 over Ethernet (RFC 826), with the probes and announcements of RFC 5227.
//!
//! This module parses and writes messages. [`Neighbors`](crate::neighbors::Neighbors) holds the state of the protocol.

use core::net::Ipv4Addr;

use softclock_wire::packet::IPV4;

use crate::drops::DropReason;
use crate::link::LinkAddress;

/// A message of ARP.
///
/// ```
/// use softclock_net::ip::arp::{Message, Operation};
///
/// let [ours, theirs] = ["02:00:00:00:00:01", "02:00:00:00:00:02"].map(|link| link.parse().unwrap());
/// let asker = (theirs, "10.0.0.2".parse().unwrap());
/// let request = Message::request(asker, "10.0.0.1".parse().unwrap());
///
/// let parsed = Message::parse(&request.to_bytes()).unwrap();
/// assert_eq!(parsed, request);
/// let reply = parsed.reply(ours);
/// assert_eq!(reply.operation, Operation::Reply);
/// assert_eq!(reply.sender, (ours, "10.0.0.1".parse().unwrap()));
/// assert_eq!(reply.target, asker);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Whether the message asks or answers.
    pub operation: Operation,
    /// The addresses of the sender. The IP address is 0.0.0.0 in a [probe](Self::is_probe).
    pub sender: (LinkAddress, Ipv4Addr),
    /// The addresses of the receiver. The link address has no meaning in a request.
    pub target: (LinkAddress, Ipv4Addr),
}

/// The operation of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Asks the target for its link address.
    Request,
    /// Answers with the link address of the sender.
    Reply,
}

impl Message {
    /// The length of a message.
    pub const BYTES: usize = 28;

    /// Parses the payload of an Ethernet frame. Padding behind the message is ignored.
    ///
    /// # Errors
    /// [`DropReason::Arp`] if the message is cut off, is not about IPv4 over Ethernet, is neither a request nor a
    /// reply, or if an address in it cannot be that of a single host: RFC 1812 (3.3.2) forbids to believe that a host
    /// has the link address of a group.
    pub fn parse(payload: &[u8]) -> Result<Self, DropReason> {
        let (head, rest) = payload.split_first_chunk::<8>().ok_or(DropReason::Arp)?;
        let (sender, rest) = rest.split_first_chunk().ok_or(DropReason::Arp)?;
        let target = rest.first_chunk().ok_or(DropReason::Arp)?;
        let operation = match head {
            [fixed @ .., 0, 1] if *fixed == IPV4_OVER_ETHERNET => Operation::Request,
            [fixed @ .., 0, 2] if *fixed == IPV4_OVER_ETHERNET => Operation::Reply,
            _ => return Err(DropReason::Arp),
        };
        let message = Self {
            operation,
            sender: pair_from(sender),
            target: pair_from(target),
        };
        match message.is_consistent() {
            true => Ok(message),
            false => Err(DropReason::Arp),
        }
    }

    /// Returns the request of `sender` for the link address of `target`. It is sent to [`LinkAddress::BROADCAST`], or
    /// to the last known link address to confirm that this is still valid.
    #[must_use]
    pub const fn request(sender: (LinkAddress, Ipv4Addr), target: Ipv4Addr) -> Self {
        Self {
            operation: Operation::Request,
            sender,
            target: (UNKNOWN, target),
        }
    }

    /// Returns the request with which a host looks whether another one has the address that it wants to use (RFC 5227,
    /// 2.1.1). It is broadcast.
    #[must_use]
    pub const fn probe(link: LinkAddress, wanted: Ipv4Addr) -> Self {
        Self::request((link, Ipv4Addr::UNSPECIFIED), wanted)
    }

    /// Returns the request with which a host announces its address (RFC 5227, 2.3). It is broadcast.
    #[must_use]
    pub const fn announcement(sender: (LinkAddress, Ipv4Addr)) -> Self {
        Self::request(sender, sender.1)
    }

    /// Returns the reply to this request from the target, which has the link address `link`. It is sent to the sender's
    /// link address.
    #[must_use]
    pub const fn reply(&self, link: LinkAddress) -> Self {
        Self {
            operation: Operation::Reply,
            sender: (link, self.target.1),
            target: self.sender,
        }
    }

    /// Whether the sender asks for an address that it wants to use. The sender's addresses must not be remembered.
    pub const fn is_probe(&self) -> bool {
        matches!(self.operation, Operation::Request) && self.sender.1.is_unspecified()
    }

    /// Whether the sender announces its own addresses.
    pub fn is_announcement(&self) -> bool {
        self.sender.1 == self.target.1
    }

    /// The bytes of the message.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..6].copy_from_slice(&IPV4_OVER_ETHERNET);
        bytes[7] = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        bytes[8..14].copy_from_slice(&self.sender.0.0);
        bytes[14..18].copy_from_slice(&self.sender.1.octets());
        bytes[18..24].copy_from_slice(&self.target.0.0);
        bytes[24..].copy_from_slice(&self.target.1.octets());
        bytes
    }

    /// Whether the sender and the target can be single hosts.
    fn is_consistent(&self) -> bool {
        let (link, sender) = self.sender;
        let is_sender_possible = can_be_host(sender) || self.is_probe();
        // The target of a reply to a probe is 0.0.0.0.
        let is_target_possible = can_be_host(self.target.1)
            || (self.operation == Operation::Reply && self.target.1.is_unspecified());
        link.is_host() && is_sender_possible && is_target_possible
    }
}

fn pair_from(bytes: &[u8; 10]) -> (LinkAddress, Ipv4Addr) {
    let [l0, l1, l2, l3, l4, l5, a, b, c, d] = *bytes;
    (
        LinkAddress([l0, l1, l2, l3, l4, l5]),
        Ipv4Addr::new(a, b, c, d),
    )
}

const fn can_be_host(address: Ipv4Addr) -> bool {
    !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !address.is_broadcast()
}

/// The link address in a request for one.
const UNKNOWN: LinkAddress = LinkAddress([0; 6]);

/// The types and lengths of the addresses with which a message begins: Ethernet (1), IPv4, 6 bytes, 4 bytes.
const IPV4_OVER_ETHERNET: [u8; 6] = {
    let [high, low] = IPV4.to_be_bytes();
    [0, 1, high, low, 6, 4]
};

#[cfg(test)]
mod tests;
