//! Builds the control messages of a datagram to send (cmsg(3)).

use std::mem::offset_of;
use std::net::IpAddr;

/// The control messages of one datagram, aligned for their headers.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control {
    bytes: [u8; BYTES],
    length: usize,
}

impl Control {
    pub(super) const EMPTY: Self = Self {
        bytes: [0; BYTES],
        length: 0,
    };

    /// Lets the kernel cut the payload into datagrams of this length.
    pub(super) fn add_segment_bytes(&mut self, bytes: u16) {
        self.add(libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes());
    }

    /// Sets the traffic class. The kernel uses the message of the destination's family, and skips the other.
    pub(super) fn add_traffic_class(&mut self, class: u8) {
        let class = i32::from(class).to_ne_bytes();
        self.add(libc::IPPROTO_IP, libc::IP_TOS, &class);
        self.add(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class);
    }

    /// Sets the address that the datagram is sent from.
    pub(super) fn add_source(&mut self, source: IpAddr) {
        match source {
            IpAddr::V4(address) => {
                let mut info = [0; size_of::<libc::in_pktinfo>()];
                info[SPEC_DST..][..4].copy_from_slice(&address.octets());
                self.add(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            IpAddr::V6(address) => {
                let mut info = [0; size_of::<libc::in6_pktinfo>()];
                info[ADDRESS..][..16].copy_from_slice(&address.octets());
                self.add(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    /// Returns the messages.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }

    fn add(&mut self, level: i32, kind: i32, data: &[u8]) {
        let length = HEADER_BYTES + data.len();
        let message = &mut self.bytes[self.length..][..length];
        message[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
        message[LEVEL..][..4].copy_from_slice(&level.to_ne_bytes());
        message[KIND..][..4].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER_BYTES..].copy_from_slice(data);
        self.length += length.next_multiple_of(size_of::<usize>());
    }
}

const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();

const LEVEL: usize = offset_of!(libc::cmsghdr, cmsg_level);

const KIND: usize = offset_of!(libc::cmsghdr, cmsg_type);

const SPEC_DST: usize = offset_of!(libc::in_pktinfo, ipi_spec_dst);

const ADDRESS: usize = offset_of!(libc::in6_pktinfo, ipi6_addr);

/// Room for one message of each kind: 24 bytes each for the length of segments and the two traffic classes, and 40 for
/// the longer source.
const BYTES: usize = 112;
