//! The socket takes the frames that its filter chooses, and the host keeps the others.

use std::net::{IpAddr, Ipv6Addr};

use super::*;

const OURS: &str = "10.0.0.9";
const OURS_V6: &str = "fd00::9";

/// A frame of this EtherType to everyone, padded to the shortest length, with its number at the end.
fn with(ether_type: u16, content: &[&[u8]], number: u8) -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &SENDER, &ether_type.to_be_bytes()].concat();
    frame.extend(content.concat());
    frame.resize(frame.len().max(99), 0);
    frame.push(number);
    frame
}

fn v4(to: &str, options: usize, fragment: u16, protocol: u8, port: u16) -> Vec<u8> {
    let IpAddr::V4(to) = to.parse().unwrap() else {
        panic!("an address of IPv4")
    };
    let mut packet = vec![0x45 + options as u8, 0, 0, 60, 0, 0];
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, 1]);
    packet.extend(to.octets());
    packet.extend(vec![1; 4 * options]);
    packet.extend([0, 7]);
    packet.extend(port.to_be_bytes());
    packet
}

fn v6(to: &str, next: u8, port: u16) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 20, next, 64];
    packet.extend("fd00::1".parse::<Ipv6Addr>().unwrap().octets());
    packet.extend(to.parse::<Ipv6Addr>().unwrap().octets());
    packet.extend([0, 7]);
    packet.extend(port.to_be_bytes());
    packet
}

fn arp(target: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0x5c, 1, 10, 0, 0, 1];
    packet.extend([0; 6]);
    packet.extend(target);
    packet
}

/// Sends the frames to a socket with this filter; returns the numbers of those that it took, and of those that the
/// host kept. An error says why the machine cannot do it.
fn taken_and_kept(filter: XdpFilter, frames: &[Vec<u8>]) -> Result<[Vec<u8>; 2], String> {
    let cable = Cable::new()?;
    let [a, b] = cable.links();
    let settings = XdpSettings {
        filter,
        ..whole(Copies::Allowed)
    };
    let xdp = match XdpSocket::open(&b, settings) {
        Ok(xdp) => xdp,
        Err(error @ XdpError::Failed(XdpStep::Program, _)) => panic!("{error:?}"),
        Err(error) => return Err(format!("no AF_XDP: {error:?}")),
    };
    let host = PacketSocket::open(&b, 1 << 20).unwrap();
    let packets = PacketSocket::open(&a, 1 << 20).unwrap();
    let number = |bytes: &[u8]| bytes.last().copied().filter(|_| bytes[6..12] == SENDER);
    let mut seen = [Vec::new(), Vec::new()];
    wait(|| {
        for frame in frames {
            packets.send([(&frame[..], &Offload::NONE)]).unwrap();
        }
        pause();
        let [taken, kept] = &mut seen;
        while xdp
            .receive(|frame| taken.extend(number(frame.unwrap().bytes)))
            .is_ok()
        {}
        while host
            .receive(|frame| kept.extend(number(&frame.unwrap().bytes)))
            .is_ok()
        {}
        // The link may lose the first frames, while it comes up.
        (taken.len() + kept.len() >= 3 * frames.len()).then_some(())
    });
    Ok(seen.map(|mut numbers| {
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }))
}

/// Sends frames with their numbers, and expects the socket to take those that are marked.
fn expect(filter: XdpFilter, contents: &[(u16, Vec<u8>, bool)]) {
    softclock_testing::require!("ip");
    let frames: Vec<_> = (0..)
        .zip(contents)
        .map(|(number, (ether_type, content, _))| with(*ether_type, &[content], number))
        .collect();
    let marked = |is_taken: bool| -> Vec<u8> {
        let numbers = (0..).zip(contents);
        let those = numbers.filter(|(_, (.., taken))| *taken == is_taken);
        those.map(|(number, _)| number).collect()
    };
    match taken_and_kept(filter, &frames) {
        Ok(seen) => assert_eq!(seen, [marked(true), marked(false)]),
        Err(reason) => softclock_testing::skip!("{reason}"),
    }
}

#[test]
fn addresses_are_taken() {
    let addresses = [OURS, "10.0.0.200", OURS_V6].map(|address| address.parse().unwrap());
    expect(
        XdpFilter::Addresses(addresses.into()),
        &[
            (0x0800, v4(OURS, 0, 0, 17, 5), true),
            (0x0800, v4("10.0.0.200", 3, 0x2000, 6, 5), true),
            (0x0800, v4("10.0.0.8", 0, 0, 17, 5), false),
            (0x0806, arp([10, 0, 0, 9]), true),
            (0x0806, arp([10, 0, 0, 8]), false),
            (0x86dd, v6(OURS_V6, 58, 5), true),
            (0x86dd, v6("fd00::8", 58, 5), false),
            (0x86dd, v6("ff02::1:ff00:9", 58, 5), true),
            (0x86dd, v6("ff02::1:ff00:8", 58, 5), false),
            (0x86dd, v6("ff02::1", 58, 5), false),
            (0x88cc, vec![1; 50], false),
            (
                0x8100,
                [&[0, 5, 8, 0][..], &v4(OURS, 0, 0, 17, 5)].concat(),
                false,
            ),
        ],
    );
}

#[test]
fn ports_are_taken() {
    let addresses = [OURS, OURS_V6].map(|address| address.parse().unwrap());
    expect(
        XdpFilter::Ports {
            addresses: addresses.into(),
            ports: vec![(Transport::Udp, 7), (Transport::Tcp, 0x8050)],
        },
        &[
            (0x0800, v4(OURS, 0, 0, 17, 7), true),
            (0x0800, v4(OURS, 10, 0x4000, 17, 7), true),
            (0x0800, v4(OURS, 0, 0, 6, 0x8050), true),
            (0x0800, v4(OURS, 0, 0, 6, 7), false),
            (0x0800, v4(OURS, 0, 0, 17, 8), false),
            (0x0800, v4(OURS, 0, 0x2000, 17, 7), false),
            (0x0800, v4(OURS, 0, 0x0007, 17, 7), false),
            (0x0800, v4("10.0.0.8", 0, 0, 17, 7), false),
            (0x0806, arp([10, 0, 0, 9]), false),
            (0x86dd, v6(OURS_V6, 17, 7), true),
            (0x86dd, v6(OURS_V6, 6, 0x8050), true),
            (0x86dd, v6(OURS_V6, 44, 7), false),
            (0x86dd, v6("fd00::8", 17, 7), false),
        ],
    );
}

#[test]
fn one_version_of_ip_is_enough() {
    expect(
        XdpFilter::Addresses(vec![OURS.parse().unwrap()]),
        &[
            (0x0800, v4(OURS, 0, 0, 17, 7), true),
            (0x86dd, v6(OURS_V6, 17, 7), false),
        ],
    );
    expect(
        XdpFilter::Ports {
            addresses: vec![OURS_V6.parse().unwrap()],
            ports: vec![(Transport::Udp, 7)],
        },
        &[
            (0x0800, v4(OURS, 0, 0, 17, 7), false),
            (0x86dd, v6(OURS_V6, 17, 7), true),
        ],
    );
}

#[test]
fn a_filter_without_addresses_or_ports_leaves_all() {
    let without_ports = XdpFilter::Ports {
        addresses: vec![OURS.parse().unwrap()],
        ports: Vec::new(),
    };
    for filter in [XdpFilter::Addresses(Vec::new()), without_ports] {
        expect(
            filter,
            &[
                (0x0800, v4(OURS, 0, 0, 17, 7), false),
                (0x0806, arp([10, 0, 0, 9]), false),
            ],
        );
    }
}

#[test]
fn a_filter_has_so_many_entries() {
    softclock_testing::require!("ip");
    let addresses = |count: usize| -> Vec<IpAddr> {
        let numbers = 0..count as u128;
        let address = |number| Ipv6Addr::from_bits(0xfd00 << 112 | number).into();
        numbers.map(address).collect()
    };
    let last = Ipv6Addr::from_bits(0xfd00 << 112 | 511).to_string();
    let contents = [
        (0x86dd, v6(&last, 17, 7), true),
        (0x86dd, v6("fd00::200", 17, 7), false),
    ];
    expect(XdpFilter::Addresses(addresses(512)), &contents);
    let cable = cable!();
    let [_, link] = cable.links();
    let settings = XdpSettings {
        filter: XdpFilter::Addresses(addresses(513)),
        ..whole(Copies::Allowed)
    };
    let Err(XdpError::Failed(XdpStep::Program, error)) = XdpSocket::open(&link, settings) else {
        panic!("too many addresses");
    };
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}
