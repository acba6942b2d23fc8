//! The link types of captures, which determine the first header of a packet.

use crate::packet::Headers;

/// The type of a captured link, by its number in the registry of link-layer header types (LINKTYPE_ values of
/// tcpdump.org).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet (LINKTYPE_ETHERNET).
    pub const ETHERNET: Self = Self(1);

    /// Parses the headers of a packet that begins with `data`. Returns `None` for link types other than Ethernet, raw
    /// IP, BSD loopback and Linux's "cooked" captures.
    pub fn headers(self, data: &[u8]) -> Option<Headers> {
        let ip_from = match self.0 {
            1 => return Some(Headers::of_frame(data)),
            12 | 14 | 101 | 228 | 229 => 0,
            0 | 108 => 4,
            113 => 16,
            276 => 20,
            _ => return None,
        };
        Some(Headers::of_ip(data.get(ip_from..).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn ip_is_found_behind_links() {
        let mut ip = vec![0; 28];
        ip[0] = 0x45;
        ip[9] = 17;
        ip[23] = 53;
        for (link, length) in [(101, 0), (228, 0), (0, 4), (108, 4), (113, 16), (276, 20)] {
            let packet = [vec![0; length], ip.clone()].concat();
            let headers = LinkType(link).headers(&packet).unwrap();
            assert_eq!(headers.ports, Some((0, 53)), "link {link}");
            assert_eq!(LinkType(link).headers(&[]).unwrap().ports, None);
        }
        let frame = [vec![0; 12], vec![8, 0], ip].concat();
        let headers = LinkType::ETHERNET.headers(&frame).unwrap();
        assert_eq!(headers.ports, Some((0, 53)));
        assert_eq!(LinkType(147).headers(&frame), None);
    }
}
