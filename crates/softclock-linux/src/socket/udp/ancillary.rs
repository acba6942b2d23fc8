//! Parses the data that recvmsg(2) returns beside the payload: the sender's address and the control messages.
//!
//! The parsers read bytes within their bounds, so malformed data yields no value instead of a wrong access.

use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU16;
use std::time::Duration;

use super::Ecn;

/// The values of a datagram's control messages. A kind that occurs twice has the last valid value, and a destination
/// is the one in the form of IPv6 if there are both.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Ancillary {
    pub(super) destination: Option<IpAddr>,
    pub(super) ecn: Option<Ecn>,
    /// The time of arrival by CLOCK_REALTIME.
    pub(super) stamp: Option<Duration>,
    pub(super) segment_bytes: Option<NonZeroU16>,
}

impl Ancillary {
    /// Parses the part of a control buffer that the kernel has filled in. Skips kinds that it does not know.
    pub(super) fn parse(control: &[u8]) -> Self {
        let mut parsed = Self::default();
        for (level, kind, data) in ControlMessages(control) {
            parsed.add(level, kind, data);
        }
        parsed
    }

    fn add(&mut self, level: i32, kind: i32, data: &[u8]) {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let address =
                    array(data, PKTINFO_ADDRESS).map(|bytes: [u8; 4]| Ipv4Addr::from(bytes).into());
                // An IPv6 socket may have both kinds. The mapped address is like that of the sender.
                let mapped = self.destination.filter(IpAddr::is_ipv6);
                self.destination = mapped.or(address).or(self.destination);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let address = array(data, PKTINFO6_ADDRESS)
                    .map(|bytes: [u8; 16]| Ipv6Addr::from(bytes).into());
                self.destination = address.or(self.destination);
            }
            // One byte for IPv4, and an integer for IPv6. The latter's lowest byte is the traffic class.
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                self.ecn = data
                    .first()
                    .map(|tos| Ecn::of_traffic_class(*tos))
                    .or(self.ecn);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                let class = integer(data).map(|class| Ecn::of_traffic_class(class as u8));
                self.ecn = class.or(self.ecn);
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => self.stamp = time(data).or(self.stamp),
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let bytes = integer(data).and_then(|bytes| u16::try_from(bytes).ok());
                self.segment_bytes = bytes.and_then(NonZeroU16::new).or(self.segment_bytes);
            }
            _ => {}
        }
    }
}

/// The control messages in a buffer, as level, type and data (cmsg(3)). Ends at the first malformed one.
struct ControlMessages<'a>(&'a [u8]);

impl<'a> Iterator for ControlMessages<'a> {
    type Item = (i32, i32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.0;
        let length = usize::from_ne_bytes(array(rest, 0)?);
        let level = array(rest, offset_of!(libc::cmsghdr, cmsg_level))?;
        let kind = array(rest, offset_of!(libc::cmsghdr, cmsg_type))?;
        // None if the length is below that of the header or goes beyond the buffer.
        let data = rest.get(HEADER_BYTES..length)?;
        // The kernel aligns headers to a word. The buffer may end before the padding of the last message.
        let padded = length.next_multiple_of(size_of::<usize>());
        self.0 = rest.get(padded..).unwrap_or_default();
        Some((i32::from_ne_bytes(level), i32::from_ne_bytes(kind), data))
    }
}

/// Parses an IPv4 or IPv6 socket address as the kernel writes it. Returns `None` for other families and if the bytes
/// are too few.
pub(super) fn address(name: &[u8]) -> Option<SocketAddr> {
    let family = libc::c_int::from(libc::sa_family_t::from_ne_bytes(array(name, 0)?));
    let port = u16::from_be_bytes(array(name, offset_of!(libc::sockaddr_in, sin_port))?);
    match family {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(array::<4>(name, offset_of!(libc::sockaddr_in, sin_addr))?);
            Some((ip, port).into())
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(array::<16>(
                name,
                offset_of!(libc::sockaddr_in6, sin6_addr),
            )?);
            let flow = array(name, offset_of!(libc::sockaddr_in6, sin6_flowinfo))?;
            let scope = array(name, offset_of!(libc::sockaddr_in6, sin6_scope_id))?;
            let [flow, scope] = [flow, scope].map(u32::from_ne_bytes);
            Some(SocketAddrV6::new(ip, port, flow, scope).into())
        }
        _ => None,
    }
}

/// Parses a `timespec`.
fn time(data: &[u8]) -> Option<Duration> {
    let seconds = libc::time_t::from_ne_bytes(array(data, 0)?);
    let ns = libc::c_long::from_ne_bytes(array(data, offset_of!(libc::timespec, tv_nsec))?);
    let ns = u32::try_from(ns).ok().filter(|ns| *ns < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(seconds).ok()?, ns))
}

fn integer(data: &[u8]) -> Option<i32> {
    array(data, 0).map(i32::from_ne_bytes)
}

/// Returns the `N` bytes from `at` on.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();

/// Where the destination is in the data of both kinds.
const PKTINFO_ADDRESS: usize = offset_of!(libc::in_pktinfo, ipi_addr);
const PKTINFO6_ADDRESS: usize = offset_of!(libc::in6_pktinfo, ipi6_addr);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A control message with this data, padded as the kernel does.
    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        let length = HEADER_BYTES + data.len();
        bytes[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
        let level_at = offset_of!(libc::cmsghdr, cmsg_level);
        bytes[level_at..level_at + 4].copy_from_slice(&level.to_ne_bytes());
        let kind_at = offset_of!(libc::cmsghdr, cmsg_type);
        bytes[kind_at..kind_at + 4].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(data);
        bytes.resize(length.next_multiple_of(size_of::<usize>()), 0);
        bytes
    }

    fn time_stamp(seconds: i64, ns: i64) -> Vec<u8> {
        let data = [seconds.to_ne_bytes(), ns.to_ne_bytes()].concat();
        message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &data)
    }

    fn gro(bytes: i32) -> Vec<u8> {
        message(libc::SOL_UDP, libc::UDP_GRO, &bytes.to_ne_bytes())
    }

    fn tos(tos: u8) -> Vec<u8> {
        message(libc::IPPROTO_IP, libc::IP_TOS, &[tos])
    }

    fn class(class: i32) -> Vec<u8> {
        message(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class.to_ne_bytes())
    }

    #[test]
    fn all_kinds_are_parsed() {
        let destination = [&[0; 8][..], &[10, 0, 0, 7]].concat();
        let control = [
            time_stamp(5, 6),
            message(libc::IPPROTO_IP, libc::IP_PKTINFO, &destination),
            message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &[9; 4]),
            tos(0xb9),
            gro(1200),
        ];
        let expected = Ancillary {
            destination: Some(Ipv4Addr::new(10, 0, 0, 7).into()),
            ecn: Some(Ecn::Ect1),
            stamp: Some(Duration::new(5, 6)),
            segment_bytes: NonZeroU16::new(1200),
        };
        assert_eq!(Ancillary::parse(&control.concat()), expected);

        let local = [&Ipv6Addr::LOCALHOST.octets()[..], &[1, 0, 0, 0]].concat();
        let control = [
            message(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &local),
            message(libc::IPPROTO_IP, libc::IP_PKTINFO, &destination),
            class(0xb8 | 3),
        ];
        let expected = Ancillary {
            destination: Some(Ipv6Addr::LOCALHOST.into()),
            ecn: Some(Ecn::Ce),
            ..Ancillary::default()
        };
        assert_eq!(Ancillary::parse(&control.concat()), expected);
    }

    #[test]
    fn odd_lengths_end_the_list() {
        let good = tos(2);
        let expected = Ancillary {
            ecn: Some(Ecn::Ect0),
            ..Ancillary::default()
        };
        for length in [
            0,
            1,
            HEADER_BYTES - 1,
            HEADER_BYTES + 9,
            1 << 20,
            usize::MAX,
        ] {
            let mut odd = gro(1200);
            odd[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
            // A length that fits into the buffer is only invalid at its end.
            let odd = &odd[..odd.len().min(HEADER_BYTES + 8)];
            assert_eq!(
                Ancillary::parse(&[&good, odd].concat()),
                expected,
                "{length}"
            );
            assert_eq!(Ancillary::parse(odd), Ancillary::default(), "{length}");
        }
        // A header that the buffer cuts off, and a last message without its padding.
        assert_eq!(Ancillary::parse(&[&good[..], &[0; 15]].concat()), expected);
        assert_eq!(Ancillary::parse(&good[..HEADER_BYTES + 1]), expected);
        // No data at all is one more message, without a value.
        let empty = message(libc::IPPROTO_IP, libc::IP_TOS, &[]);
        assert_eq!(Ancillary::parse(&[empty, good].concat()), expected);
    }

    #[test]
    fn odd_values_are_no_values() {
        for control in [
            time_stamp(-1, 0),
            time_stamp(1, -1),
            time_stamp(1, 1_000_000_000),
            message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &[0; 9]),
            gro(0),
            gro(-1),
            gro(1 << 16),
            message(libc::SOL_UDP, libc::UDP_GRO, &[1, 0]),
            message(libc::IPPROTO_IP, libc::IP_PKTINFO, &[1; 11]),
            message(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &[1; 15]),
            message(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &[1; 3]),
            // The type of one level in another.
            message(libc::IPPROTO_IPV6, libc::IP_TOS, &[2; 4]),
        ] {
            assert_eq!(Ancillary::parse(&control), Ancillary::default());
            // An odd value does not replace a good one.
            let good = [time_stamp(1, 2), gro(7), tos(3)].concat();
            let parsed = Ancillary::parse(&[good.clone(), control].concat());
            assert_eq!(parsed, Ancillary::parse(&good));
        }
    }

    #[test]
    fn addresses_are_parsed() {
        let [low, high] = (libc::AF_INET as u16).to_ne_bytes();
        let name = [low, high, 0x1f, 0x90, 127, 0, 0, 1];
        let expected = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        assert_eq!(address(&name), Some(expected));
        assert_eq!(address(&name[..7]), None);
        let [low, high] = (libc::AF_INET6 as u16).to_ne_bytes();
        let head = [low, high, 0x1f, 0x90, 1, 2, 3, 4];
        let scope = 7u32.to_ne_bytes();
        let name = [&head[..], &Ipv6Addr::LOCALHOST.octets(), &scope].concat();
        let flow = u32::from_ne_bytes([1, 2, 3, 4]);
        let expected = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 8080, flow, 7);
        assert_eq!(address(&name), Some(expected.into()));
        assert_eq!(address(&name[..27]), None);
        assert_eq!(address(&[libc::AF_UNIX as u8, 0, 0, 0]), None);
        assert_eq!(address(&[]), None);
    }

    proptest! {
        /// Any bytes end in some result; so do any bytes behind plausible headers.
        #[test]
        fn any_bytes_are_parsed(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            lengths in prop::collection::vec(0usize..80, 0..8),
        ) {
            Ancillary::parse(&bytes);
            address(&bytes);
            let mut bytes = bytes;
            let mut at = 0;
            for length in lengths {
                if let Some(header) = bytes.get_mut(at..at + size_of::<usize>()) {
                    header.copy_from_slice(&length.to_ne_bytes());
                    at += length.next_multiple_of(size_of::<usize>());
                }
            }
            assert!(ControlMessages(&bytes).count() <= bytes.len() / HEADER_BYTES);
            Ancillary::parse(&bytes);
        }
    }
}
