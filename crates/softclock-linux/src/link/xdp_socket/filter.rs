//! The frames that an AF_XDP socket takes from its link, and the instructions that choose them.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

pub use softclock_wire::packet::Transport;
use softclock_wire::packet::{ARP, IPV4, IPV6};

use super::program::{CONTEXT, CONTEXT_DATA, CONTEXT_DATA_END};
use crate::bpf::{Assembler, Instruction, Label};
use crate::link::Link;
use crate::link::packet_socket::promiscuous;

/// The frames that an AF_XDP socket takes from its link. The host keeps the others, as without the socket.
///
/// Frames with VLAN tags in them are always others, unless all are taken.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum XdpFilter {
    /// All frames. Those of other queues are dropped if the link has no other.
    #[default]
    All,
    /// Frames to these addresses, for a stack that has them on this link beside the host: IP packets to them, ARP
    /// requests for them and replies to them, and IPv6 packets to their solicited-node groups (RFC 4291, 2.7.1). Add
    /// the multicast groups that the stack joins.
    Addresses(Vec<IpAddr>),
    /// UDP datagrams and TCP segments to these ports of these addresses, for a stack that shares them with the host.
    /// The host keeps ARP, neighbour discovery and ICMP; it also keeps fragments, and packets of IPv6 with extension
    /// headers.
    Ports {
        /// The addresses of the host.
        addresses: Vec<IpAddr>,
        /// The protocol and number of each port.
        ports: Vec<(Transport, u16)>,
    },
}

impl XdpFilter {
    /// The most addresses of a filter, and its most ports: a frame is compared with one after the other.
    pub const MOST_ENTRIES: usize = 512;

    /// Makes the link promiscuous, for frames to another link address than the link's, while the result is held. A
    /// stack that shares the host's addresses needs no other frames than the host does.
    pub(super) fn promiscuous(&self, link: &Link) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Ports { .. } => Ok(None),
            Self::All | Self::Addresses(_) => promiscuous(link).map(Some),
        }
    }

    /// Whether there are more addresses or ports than a program compares.
    pub(super) fn is_too_long(&self) -> bool {
        let (addresses, ports) = match self {
            Self::All => (0, 0),
            Self::Addresses(addresses) => (addresses.len(), 0),
            Self::Ports { addresses, ports } => (addresses.len(), ports.len()),
        };
        addresses.max(ports) > Self::MOST_ENTRIES
    }

    /// Whether there is no address or no port in it.
    pub(super) fn takes_nothing(&self) -> bool {
        match self {
            Self::All => false,
            Self::Addresses(addresses) => addresses.is_empty(),
            Self::Ports { addresses, ports } => addresses.is_empty() || ports.is_empty(),
        }
    }
}

/// Appends instructions that jump to `taken` with frames that the filter takes, and with others to `left`. They expect
/// the context in [`CONTEXT`] and use all registers but this one.
///
/// The program, in C, without the checks that each read field lies before `context->data_end`:
///
/// ```c
/// switch (ethernet->type) {
/// case IPV4: if (is_ours(ip->destination) && is_port_ours) goto taken; break;
/// case IPV6: if (is_ours(ip6->destination) && is_port_ours) goto taken; break;
/// case ARP:  if (is_ours(arp->target_address)) goto taken; break;
/// }
/// goto left;
/// ```
pub(super) fn append(filter: &XdpFilter, program: &mut Assembler, taken: Label, left: Label) {
    let (addresses, ports) = match filter {
        XdpFilter::All => return,
        XdpFilter::Addresses(addresses) => (addresses, None),
        XdpFilter::Ports { addresses, ports } => (addresses, Some(&ports[..])),
    };
    let v4: Vec<_> = addresses.iter().filter_map(v4_octets).collect();
    let mut v6: Vec<_> = addresses.iter().filter_map(v6_octets).collect();
    if ports.is_none() {
        let groups: Vec<_> = v6.iter().map(solicited_node).collect();
        v6.extend(groups);
    }

    program.extend([
        Instruction::load_u32(DATA, CONTEXT, CONTEXT_DATA),
        Instruction::load_u32(END, CONTEXT, CONTEXT_DATA_END),
    ]);
    check_length(program, ETHERNET, left);
    program.extend([Instruction::load_u16(VALUE, DATA, ETHER_TYPE)]);
    case(program, (IPV4, !v4.is_empty()), |program| {
        check_length(program, ETHERNET + 20, left);
        leave_other_addresses(program, ETHERNET + 16, &v4, left);
        match ports {
            Some(ports) => jump_if_port_v4(program, ports, taken, left),
            None => program.jump(Instruction::skip(0), taken),
        }
    });
    case(program, (IPV6, !v6.is_empty()), |program| {
        check_length(program, ETHERNET + 40, left);
        leave_other_addresses(program, ETHERNET + 24, &v6, left);
        match ports {
            Some(ports) => jump_if_port_v6(program, ports, taken, left),
            None => program.jump(Instruction::skip(0), taken),
        }
    });
    let takes_arp = ports.is_none() && !v4.is_empty();
    case(program, (ARP, takes_arp), |program| {
        check_length(program, ETHERNET + 28, left);
        leave_other_addresses(program, ETHERNET + 24, &v4, left);
        program.jump(Instruction::skip(0), taken);
    });
    program.jump(Instruction::skip(0), left);
}

/// Appends what `body` does with frames of this EtherType, if there is anything to do with them. What it does ends
/// with a jump.
fn case(
    program: &mut Assembler,
    (ether_type, is_used): (u16, bool),
    body: impl FnOnce(&mut Assembler),
) {
    if !is_used {
        return;
    }
    let next = program.label();
    let wanted = u32::from(ether_type.to_be());
    program.jump(Instruction::skip_if_not_u32(VALUE, wanted, 0), next);
    body(program);
    program.place(next);
}

/// Leaves a frame of less than `bytes` bytes, counted from [`DATA`].
pub(super) fn check_length(program: &mut Assembler, bytes: i16, left: Label) {
    program.extend([
        Instruction::copy(LIMIT, DATA),
        Instruction::add(LIMIT, bytes.into()),
    ]);
    program.jump(Instruction::skip_if_greater(LIMIT, END, 0), left);
}

/// Leaves a frame whose bytes at this offset are none of these addresses.
fn leave_other_addresses<const BYTES: usize>(
    program: &mut Assembler,
    at: i16,
    addresses: &[[u8; BYTES]],
    left: Label,
) {
    let is_ours = program.label();
    for address in addresses {
        let next = program.label();
        let (words, _) = address.as_chunks::<4>();
        for (word, at) in words.iter().zip((at..).step_by(4)) {
            program.extend([Instruction::load_u32(VALUE, DATA, at)]);
            let wanted = u32::from_ne_bytes(*word);
            program.jump(Instruction::skip_if_not_u32(VALUE, wanted, 0), next);
        }
        program.jump(Instruction::skip(0), is_ours);
        program.place(next);
    }
    program.jump(Instruction::skip(0), left);
    program.place(is_ours);
}

/// Jumps to `taken` with a whole packet of IPv4 to one of the ports, and otherwise to `left`.
fn jump_if_port_v4(program: &mut Assembler, ports: &[(Transport, u16)], taken: Label, left: Label) {
    program.extend([
        Instruction::load_u16(VALUE, DATA, ETHERNET + 6),
        Instruction::and(VALUE, u16::to_be(MORE_OR_OFFSET).into()),
    ]);
    program.jump(Instruction::skip_if_not_u32(VALUE, 0, 0), left);
    // The transport header begins behind the options, which the first byte tells in words.
    program.extend([
        Instruction::load_u8(PROTOCOL, DATA, ETHERNET + 9),
        Instruction::load_u8(VALUE, DATA, ETHERNET),
        Instruction::and(VALUE, 0x0f),
        Instruction::shift_left(VALUE, 2),
        Instruction::add_register(DATA, VALUE),
    ]);
    check_length(program, ETHERNET + 4, left);
    jump_if_port(program, ETHERNET + 2, ports, taken, left);
}

/// Jumps to `taken` with a packet of IPv6 without extension headers to one of the ports, and otherwise to `left`.
fn jump_if_port_v6(program: &mut Assembler, ports: &[(Transport, u16)], taken: Label, left: Label) {
    program.extend([Instruction::load_u8(PROTOCOL, DATA, ETHERNET + 6)]);
    check_length(program, ETHERNET + 44, left);
    jump_if_port(program, ETHERNET + 42, ports, taken, left);
}

/// Compares [`PROTOCOL`] and the destination port at this offset.
fn jump_if_port(
    program: &mut Assembler,
    at: i16,
    ports: &[(Transport, u16)],
    taken: Label,
    left: Label,
) {
    program.extend([Instruction::load_u16(VALUE, DATA, at)]);
    for (transport, port) in ports {
        let next = program.label();
        let protocol = transport.number();
        let port = u32::from(port.to_be());
        program.jump(
            Instruction::skip_if_not_u32(PROTOCOL, protocol.into(), 0),
            next,
        );
        program.jump(Instruction::skip_if_not_u32(VALUE, port, 0), next);
        program.jump(Instruction::skip(0), taken);
        program.place(next);
    }
    program.jump(Instruction::skip(0), left);
}

/// The group of all nodes with an address that ends in the same 24 bits (RFC 4291, 2.7.1).
fn solicited_node([.., a, b, c]: &[u8; 16]) -> [u8; 16] {
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, *a, *b, *c]
}

fn v4_octets(address: &IpAddr) -> Option<[u8; 4]> {
    match address {
        IpAddr::V4(address) => Some(address.octets()),
        IpAddr::V6(_) => None,
    }
}

fn v6_octets(address: &IpAddr) -> Option<[u8; 16]> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(address.octets()),
    }
}

/// The registers: the frame, its end, a limit to compare with the end, the field that was read, and the protocol.
pub(super) const DATA: u8 = 2;
pub(super) const END: u8 = 3;
const LIMIT: u8 = 4;
pub(super) const VALUE: u8 = 5;
pub(super) const PROTOCOL: u8 = 7;

/// The length of an Ethernet header without tags, and the offset of its type.
pub(super) const ETHERNET: i16 = 14;
pub(super) const ETHER_TYPE: i16 = 12;

/// The flag for more fragments and the offset of a fragment, in IPv4.
pub(super) const MORE_OR_OFFSET: u16 = 0x3fff;
