//! Stacks in virtual time: frames in, calls, and frames out.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use proptest::prelude::*;
use softclock_core::Instant;
use softclock_wire::packet::{ICMP, UDP};

use super::*;
use crate::channel::ChannelLimits;
use crate::checksum::{Addresses, Verify};
use crate::icmp::{self, Echo};
use crate::link::{Header, LinkAddress};
use crate::routes::Prefix;
use crate::{icmp_v6, ip, udp};

mod any_frames;
mod datagrams;
mod fragments;
mod groups;
mod icmp_messages;
mod limits;
mod neighbors;
mod rings;
pub(super) mod simulation;

type Host = Stack<Vec<u8>>;

fn host(number: u8, architecture: Architecture) -> Host {
    with(number, |settings| settings.architecture = architecture)
}

fn with(number: u8, change: impl FnOnce(&mut Settings)) -> Host {
    let prefixes = vec![
        alloc::format!("10.0.0.{number}/24").parse().unwrap(),
        alloc::format!("2001:db8::{number}/64").parse().unwrap(),
    ];
    let mut settings = Settings::new(link(number), 1500);
    change(&mut settings);
    let routes = Routes::new(prefixes, vec![]).unwrap();
    Stack::new(settings, routes, HashKey([number.into(), 7]))
}

const fn link(number: u8) -> LinkAddress {
    LinkAddress([2, 0, 0, 0, 0, number])
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Moves frames between two hosts until both are silent.
fn exchange(now: Instant, one: &mut Host, two: &mut Host) {
    for _ in 0..100 {
        let mut is_silent = true;
        for _ in 0..2 {
            if one.next_timeout().is_some_and(|due| due <= now) {
                one.on_timer(now);
            }
            while let Some(frame) = one.next_frame() {
                two.on_frame(now, now, frame, Verify::Yes);
                is_silent = false;
            }
            while two.process(now, 8) > 0 {}
            core::mem::swap(one, two);
        }
        if is_silent {
            return;
        }
    }
    panic!("the hosts never stop");
}

/// The frames of the device that have a verdict.
fn verdicts(host: &Host) -> u64 {
    host.counts()
        .verdicts()
        .iter()
        .map(|(_, frames)| frames)
        .sum()
}

/// A frame with a datagram from host 9 to port 7 of host 1.
fn datagram(source_port: u16, payload: &[u8]) -> Vec<u8> {
    packet(UDP, "10.0.0.1", |addresses, bytes| {
        udp::write(addresses, source_port, 7, payload, bytes).unwrap();
    })
}

/// A frame with a packet from host 9 to host 1, and the hop limit of neighbor discovery. `protocol` may be the number of
/// an extension header, with which `content` begins.
fn packet_v6(protocol: u8, content: &[u8]) -> Vec<u8> {
    let output = ip::Output {
        addresses: Addresses {
            source: "2001:db8::9".parse().unwrap(),
            destination: "2001:db8::1".parse().unwrap(),
        },
        protocol,
        hop_limit: 255,
        traffic_class: 0,
        identification: 1,
        may_fragment: true,
    };
    let header = Header {
        destination: link(1),
        source: link(9),
        ether_type: 0x86dd,
    };
    let mut frame = header.to_bytes().to_vec();
    ip::write_header(&output, content.len(), &mut frame);
    frame.extend(content);
    frame
}

fn packet(protocol: u8, to: &str, write: impl FnOnce(Addresses, &mut Vec<u8>)) -> Vec<u8> {
    let addresses = Addresses {
        source: "10.0.0.9".parse().unwrap(),
        destination: to.parse().unwrap(),
    };
    let mut body = Vec::new();
    write(addresses, &mut body);
    let output = ip::Output {
        addresses,
        protocol,
        hop_limit: 64,
        traffic_class: 0,
        identification: 1,
        may_fragment: true,
    };
    let destination = LinkAddress::of_group(addresses.destination);
    let header = Header {
        destination: destination.unwrap_or(link(1)),
        source: link(9),
        ether_type: 0x0800,
    };
    let mut frame = header.to_bytes().to_vec();
    ip::write_header(&output, body.len(), &mut frame);
    frame.extend(body);
    frame
}

/// A socket address of each of two hosts, of either version.
const PAIRS: [(&str, &str); 2] = [
    ("10.0.0.1:7", "10.0.0.2:8"),
    ("[2001:db8::1]:7", "[2001:db8::2]:8"),
];

/// The number of the fragment header of IPv6.
const FRAGMENT: u8 = 44;

const NOW: Instant = Instant::from_ns(1_000_000_000);

fn arrive(host: &mut Host, frame: Vec<u8>) {
    host.on_frame(NOW, NOW, frame, Verify::Yes);
}
