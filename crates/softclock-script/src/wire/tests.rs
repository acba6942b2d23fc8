use std::net::IpAddr;

use proptest::prelude::*;
use softclock_net::tcp::segment::{Flags, Header};
use softclock_net::tcp::seq::Seq;

use super::*;

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(one, two)| (one.into(), two.into())),
        any::<([u8; 16], [u8; 16])>().prop_map(|(one, two)| (one.into(), two.into())),
    ]
}

fn ip() -> impl Strategy<Value = IpHeader> {
    (addresses(), any::<(u8, u8)>()).prop_map(|((source, destination), (ttl, class))| IpHeader {
        source,
        destination,
        ttl,
        class,
    })
}

fn option() -> impl Strategy<Value = TcpOption> {
    prop_oneof![
        Just(TcpOption::Nop),
        any::<u16>().prop_map(TcpOption::Mss),
        any::<u8>().prop_map(TcpOption::WindowScale),
        Just(TcpOption::SackPermitted),
        prop::collection::vec(any::<(u32, u32)>(), 1..3).prop_map(TcpOption::Sack),
        any::<(u32, u32)>().prop_map(|(value, echo)| TcpOption::Timestamps { value, echo }),
        (9..=255u8, prop::collection::vec(any::<u8>(), 0..4))
            .prop_map(|(kind, data)| TcpOption::Other { kind, data }),
    ]
}

prop_compose! {
    fn packet()(
        ip in ip(),
        ports in any::<(u16, u16)>(),
        numbers in any::<(u32, u32)>(),
        flags in 0..0x200u16,
        rest in any::<(u16, u16)>(),
        options in prop::collection::vec(option(), 0..3),
        payload in prop::collection::vec(any::<u8>(), 0..50),
    ) -> TcpPacket {
        TcpPacket {
            ip,
            header: Header {
                source_port: ports.0,
                destination_port: ports.1,
                sequence: Seq(numbers.0),
                acknowledgment: Seq(numbers.1),
                flags: Flags(flags),
                window: rest.0,
                urgent: rest.1,
            },
            options,
            payload,
        }
    }
}

proptest! {
    #[test]
    fn segments_survive_the_wire(packet in packet()) {
        let Packet::Tcp(mut read) = parse(&tcp_packet(&packet).unwrap()).unwrap() else {
            panic!("not TCP");
        };
        // The list of options is padded.
        while read.options.last() == Some(&TcpOption::EndOfList) {
            read.options.pop();
        }
        prop_assert_eq!(read, packet);
    }

    #[test]
    fn a_changed_bit_never_goes_unseen(packet in packet(), bit in any::<prop::sample::Index>()) {
        let mut bytes = tcp_packet(&packet).unwrap();
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // The header of IPv6 has no checksum.
        let is_covered = parse(&bytes).map_or(true, |read| read != Packet::Tcp(packet.clone()));
        prop_assert!(is_covered || packet.ip.source.is_ipv6());
    }

    #[test]
    fn datagrams_and_messages_survive_the_wire(ip in ip(), ports in any::<(u16, u16)>(), bytes in any::<[u8; 8]>()) {
        prop_assert_eq!(parse(&udp_packet(ip, ports, &bytes).unwrap()), Ok(Packet::Udp(ip, ports, bytes.to_vec())));
        let message = parse(&icmp_packet(ip, (3, 4), 1400, (ip, TCP, &bytes)).unwrap());
        let Ok(Packet::Icmp(read, (3, 4), body)) = message else {
            panic!("{message:?}");
        };
        prop_assert_eq!(read, ip);
        prop_assert_eq!(&body[..4], &1400u32.to_be_bytes());
        prop_assert!(body.ends_with(&bytes));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = parse(&bytes);
    }
}
