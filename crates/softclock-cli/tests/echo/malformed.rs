//! Malformed packets: each is a drop that is counted once, for the right reason, and the server still answers.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;
use softclock_wire::packet::{ARP, ICMP, ICMPV6, IPV4, IPV6, TCP, UDP};

use crate::frame::{
    BROADCAST, CLIENT_V4, CLIENT_V6, DESTINATION_OPTIONS, FROM, HOP_BY_HOP, ROUTING, STACK_V4,
    STACK_V6, V4, V6, arp, ethernet,
};
use crate::lab::{ARCHITECTURES, Carrier, LINK_ADDRESS, Lab, dropped, lab};

/// Frames, each with the reason for which the stack must drop it.
type Cases = Vec<(&'static str, Vec<u8>)>;

fn link() -> Cases {
    let good = V4::udp(7, b"good").bytes();
    let tagged = |tag: &[u8], packet: &[u8]| [tag, packet].concat();
    vec![
        ("ether_type", ethernet(LINK_ADDRESS, 0x1234, &good)),
        // A length, as of 802.3.
        ("ether_type", ethernet(LINK_ADDRESS, 46, &good)),
        ("ether_type", ethernet(LINK_ADDRESS, 0x8847, &good)),
        // Tags of VLANs: one, one inside of another, and one without a VLAN.
        (
            "ether_type",
            ethernet(LINK_ADDRESS, 0x8100, &tagged(&[0, 5, 8, 0], &good)),
        ),
        (
            "ether_type",
            ethernet(
                LINK_ADDRESS,
                0x88a8,
                &tagged(&[0, 6, 0x81, 0, 0, 5, 8, 0], &good),
            ),
        ),
        (
            "ether_type",
            ethernet(LINK_ADDRESS, 0x8100, &tagged(&[0, 0, 8, 0], &good)),
        ),
        ("other_host", ethernet([2, 0, 0, 0, 0, 9], IPV4, &good)),
        // A packet to a single host in a frame to all.
        ("not_our_address", ethernet(BROADCAST, IPV4, &good)),
        ("too_short", ethernet(LINK_ADDRESS, IPV4, &[])),
        ("too_short", ethernet(LINK_ADDRESS, IPV6, &[])),
        ("too_short", ethernet(LINK_ADDRESS, IPV4, &good[..19])),
        (
            "too_short",
            ethernet(LINK_ADDRESS, IPV6, &V6::udp(7, b"good").bytes()[..39]),
        ),
    ]
}

fn ip_v4() -> Cases {
    let good = V4::udp(7, b"good");
    let from = |source: [u8; 4]| V4 {
        source: source.into(),
        ..good.clone()
    };
    let with_options = |options: &[u8]| V4 {
        options: options.to_vec(),
        ..good.clone()
    };
    let mut wrong_checksum = good.frame();
    wrong_checksum[14 + 10] ^= 1;
    vec![
        ("ip_header", good.frame_with(&[(0, 0x55)])),
        ("ip_header", good.frame_with(&[(0, 0x44)])),
        // Longer than the frame, and shorter than the header.
        ("ip_header", good.frame_with(&[(2, 0x05)])),
        ("ip_header", good.frame_with(&[(3, 19)])),
        ("ip_checksum", wrong_checksum),
        // Loose and strict source routes.
        (
            "ip_option",
            with_options(&[131, 7, 4, 10, 78, 0, 9, 0]).frame(),
        ),
        (
            "ip_option",
            with_options(&[1, 137, 7, 4, 10, 78, 0, 9]).frame(),
        ),
        // Lengths of options: none, and longer than the header.
        ("ip_header", with_options(&[7, 0, 0, 0]).frame()),
        ("ip_header", with_options(&[68, 40, 5, 0]).frame()),
        ("ip_source", from([127, 0, 0, 1]).frame()),
        ("ip_source", from([224, 0, 0, 1]).frame()),
        ("ip_source", from([255; 4]).frame()),
        ("ip_source", from([10, 78, 0, 255]).frame()),
        ("ip_source", from([10, 78, 0, 7]).frame()),
        ("protocol", V4::new(253, vec![0; 20]).frame()),
        (
            "protocol",
            V4::new(ICMPV6, vec![128, 0, 0, 0, 0, 0, 0, 0]).frame(),
        ),
        ("tcp_checksum", V4::new(TCP, vec![0x50; 20]).frame()),
        ("tcp_header", V4::new(TCP, vec![0; 3]).frame()),
    ]
}

fn fragments_v4() -> Cases {
    vec![
        // Not a multiple of eight bytes though others follow, nothing at all, and beyond the longest packet.
        ("fragment_invalid", V4::fragment(1, 0, true, 9).frame()),
        ("fragment_invalid", V4::fragment(2, 8, true, 0).frame()),
        (
            "fragment_invalid",
            V4::fragment(3, 65_528, false, 100).frame(),
        ),
    ]
}

/// Fragments that contradict each other. The first of each group is good and waits for others.
fn overlaps_v4() -> [Vec<u8>; 6] {
    [
        V4::fragment(10, 0, true, 16).frame(),
        V4::fragment(10, 8, true, 16).frame(),
        V4::fragment(11, 8, true, 16).frame(),
        V4::fragment(11, 0, true, 16).frame(),
        V4::fragment(12, 0, true, 24).frame(),
        V4::fragment(12, 8, false, 8).frame(),
    ]
}

fn udp() -> Cases {
    let good = V4::udp(7, b"good");
    let with = |changes: &[(usize, u8)]| {
        let mut packet = good.clone();
        changes
            .iter()
            .for_each(|&(place, value)| packet.payload[place] = value);
        packet.frame()
    };
    let mut without_checksum = V6::udp(7, b"good");
    without_checksum.payload[6..8].fill(0);
    let mut wrong_checksum = V6::udp(7, b"good");
    wrong_checksum.payload[6] ^= 1;
    let mut long = V6::udp(7, b"good");
    long.payload[5] = 200;
    vec![
        ("udp_header", V4::new(UDP, vec![0; 3]).frame()),
        (
            "udp_header",
            V4::new(UDP, good.payload[..7].to_vec()).frame(),
        ),
        ("udp_header", with(&[(5, 7)])),
        ("udp_header", with(&[(4, 1)])),
        ("udp_checksum", with(&[(8, b'b')])),
        ("udp_checksum", with(&[(6, 0x12), (7, 0x34)])),
        ("udp_header", long.frame()),
        ("udp_checksum", wrong_checksum.frame()),
        ("udp_checksum", without_checksum.frame()),
        ("port_unreachable", V4::udp(0, b"port").frame()),
        ("port_unreachable", V6::udp(1007, b"port").frame()),
    ]
}

fn icmp() -> Cases {
    let echo = [0, 1, 0, 1, 1, 2, 3, 4];
    let mut wrong_checksum = V4::icmp(8, 0, &echo);
    wrong_checksum.payload[2] ^= 1;
    let mut wrong_checksum_v6 = V6::icmp(128, 0, &echo);
    wrong_checksum_v6.payload[2] ^= 1;
    let to_all = V4 {
        destination: Ipv4Addr::new(10, 78, 0, 255),
        ..V4::icmp(8, 0, &echo)
    };
    // An error about a datagram that the stack never sent.
    let sent = V4 {
        source: STACK_V4,
        destination: CLIENT_V4,
        ..V4::udp(4000, b"never")
    };
    let error = [&[0; 4], &sent.bytes()[..]].concat();
    vec![
        ("icmp", V4::new(ICMP, vec![8, 0]).frame()),
        ("icmp", V4::new(ICMP, vec![]).frame()),
        ("icmp", wrong_checksum.frame()),
        ("icmp", wrong_checksum_v6.frame()),
        ("icmp", V6::new(ICMPV6, vec![128, 0]).frame()),
        // An unexpected reply, a request for the time, and an unknown type.
        ("icmp_ignored", V4::icmp(0, 0, &echo).frame()),
        ("icmp_ignored", V4::icmp(13, 0, &[0; 16]).frame()),
        ("icmp_ignored", V4::icmp(200, 0, &[0; 16]).frame()),
        ("icmp_ignored", V6::icmp(129, 0, &echo).frame()),
        ("icmp_ignored", V6::icmp(200, 0, &echo).frame()),
        ("icmp_ignored", ethernet(BROADCAST, IPV4, &to_all.bytes())),
        (
            "icmp_ignored",
            ethernet(BROADCAST, IPV4, &V4::icmp(8, 0, &echo).bytes()),
        ),
        ("icmp_ignored", V4::icmp(3, 3, &error).frame()),
    ]
}

fn ip_v6() -> Cases {
    let good = V6::udp(7, b"good");
    let from = |source: Ipv6Addr| V6 {
        source,
        ..good.clone()
    };
    let mut long = good.frame();
    long[14 + 4] = 5;
    let chain = (0..9).fold(good.clone(), |packet, _| {
        packet.behind(DESTINATION_OPTIONS, &[1, 4, 0, 0, 0, 0])
    });
    let misplaced = good.clone().behind(HOP_BY_HOP, &[1, 4, 0, 0, 0, 0]);
    let misplaced = misplaced.behind(DESTINATION_OPTIONS, &[1, 4, 0, 0, 0, 0]);
    let cut_off = V6::new(DESTINATION_OPTIONS, vec![UDP, 4, 1, 4, 0, 0, 0, 0]);
    vec![
        ("ip_header", ethernet(LINK_ADDRESS, IPV6, &[0x40; 60])),
        ("ip_header", long),
        ("ip_option", chain.frame()),
        ("too_short", cut_off.frame()),
        ("ip_header", misplaced.frame()),
        // A source route with segments left.
        (
            "ip_option",
            good.clone().behind(ROUTING, &[0, 1, 0, 0, 0, 0]).frame(),
        ),
        // An option that must be known.
        (
            "ip_option",
            good.clone()
                .behind(DESTINATION_OPTIONS, &[0x80, 4, 0, 0, 0, 0])
                .frame(),
        ),
        (
            "ip_option",
            good.clone()
                .behind(HOP_BY_HOP, &[0xc2, 4, 0, 1, 0, 0])
                .frame(),
        ),
        // An option that is longer than its header.
        (
            "ip_header",
            good.clone()
                .behind(DESTINATION_OPTIONS, &[1, 5, 0, 0, 0, 0])
                .frame(),
        ),
        ("ip_source", from(Ipv6Addr::LOCALHOST).frame()),
        (
            "ip_source",
            from("ff02::1".parse().expect("an address")).frame(),
        ),
        ("ip_source", from(STACK_V6).frame()),
        ("ip_source", from(Ipv6Addr::UNSPECIFIED).frame()),
        ("ip_source", from(CLIENT_V4.to_ipv6_mapped()).frame()),
        ("protocol", V6::new(253, vec![0; 20]).frame()),
        // No header follows.
        ("protocol", V6::new(59, vec![]).frame()),
        (
            "protocol",
            V6::new(ICMP, vec![8, 0, 0, 0, 0, 0, 0, 0]).frame(),
        ),
        (
            "fragment_invalid",
            V6::new(UDP, vec![0; 9]).fragment(1, 0, true).frame(),
        ),
        (
            "fragment_invalid",
            V6::new(UDP, vec![0; 100])
                .fragment(2, 65_528, false)
                .frame(),
        ),
        // A first fragment without the whole header of UDP.
        (
            "fragment_invalid",
            V6::new(DESTINATION_OPTIONS, vec![UDP, 1, 1, 4, 0, 0, 0, 0])
                .fragment(3, 0, true)
                .frame(),
        ),
    ]
}

fn discovery() -> Cases {
    let target = |address: Ipv6Addr| [&[0; 4], &address.octets()[..]].concat();
    let asked = target(STACK_V6);
    let with = |option: &[u8]| [&asked[..], option].concat();
    let far = V6 {
        hop_limit: 64,
        ..V6::discovery(135, 0, &asked)
    };
    let whole = V6::discovery(135, 0, &with(&[1, 1, 2, 0, 0, 0, 0, 1]));
    // An atomic fragment is a whole packet, but not for neighbor discovery.
    let cut = |from: usize, to: usize, has_more| {
        let mut part = whole.clone();
        part.payload = whole.payload[from..to].to_vec();
        part.fragment(20, from as u16, has_more).frame()
    };
    let end = whole.payload.len();
    let mut cases = vec![
        ("neighbor_discovery", far.frame()),
        ("neighbor_discovery", V6::discovery(135, 1, &asked).frame()),
        (
            "neighbor_discovery",
            V6::discovery(135, 0, &asked[..12]).frame(),
        ),
        (
            "neighbor_discovery",
            V6::discovery(135, 0, &with(&[1, 0, 0, 0, 0, 0, 0, 0])).frame(),
        ),
        (
            "neighbor_discovery",
            V6::discovery(135, 0, &with(&[1, 2, 2, 0, 0, 0, 0, 1])).frame(),
        ),
        (
            "neighbor_discovery",
            V6::discovery(136, 0, &target("ff02::1".parse().expect("one"))).frame(),
        ),
        ("neighbor_discovery", cut(16, end, false)),
    ];
    // The first part waits, and the second completes the message.
    let first = ("", cut(0, 16, true));
    cases.insert(6, first);
    // Routers and redirects are of no use to a host whose routes are given.
    for kind in [133, 134, 137] {
        let message = V6::discovery(kind, 0, &[0; 36]);
        cases.push(("icmp_ignored", message.frame()));
    }
    cases
}

fn arp_nonsense() -> Cases {
    let good = arp(1, (&FROM, CLIENT_V4), STACK_V4);
    let with = |place: usize, value: u8| {
        let mut frame = good.clone();
        frame[14 + place] = value;
        frame
    };
    let sender = |link: [u8; 6], address: [u8; 4]| arp(1, (&link, address.into()), STACK_V4);
    vec![
        ("arp", good[..41].to_vec()),
        ("arp", ethernet(BROADCAST, ARP, &[])),
        // Hardware, protocol, their lengths, the operation.
        ("arp", with(1, 6)),
        ("arp", with(2, 0x86)),
        ("arp", with(4, 8)),
        ("arp", with(5, 16)),
        ("arp", with(7, 0)),
        ("arp", with(7, 3)),
        ("arp", sender(BROADCAST, [10, 78, 0, 1])),
        ("arp", sender([1, 0, 0, 0, 0, 1], [10, 78, 0, 1])),
        ("arp", sender([0; 6], [10, 78, 0, 1])),
        ("arp", sender(FROM, [255; 4])),
        ("arp", sender(FROM, [224, 0, 0, 1])),
        ("arp", sender(FROM, [127, 0, 0, 1])),
    ]
}

fn all() -> Cases {
    [
        link(),
        ip_v4(),
        fragments_v4(),
        udp(),
        icmp(),
        ip_v6(),
        discovery(),
        arp_nonsense(),
    ]
    .concat()
}

/// Sends all cases, checks that the server still answers, and returns the summary.
fn attacked(lab: &Lab, arguments: &[&str]) -> Value {
    let server = lab.serve(arguments);
    let mut frames: Vec<_> = all().into_iter().map(|(_, frame)| frame).collect();
    frames.extend(overlaps_v4());
    lab.inject(&frames);
    lab.assert_answers();
    server.end()
}

/// Checks that exactly the cases were dropped, each for its reason.
fn assert_counted(summary: &Value) {
    let mut expected = BTreeMap::from([("fragment_overlap", 3)]);
    for (reason, _) in all().iter().filter(|(reason, _)| !reason.is_empty()) {
        *expected.entry(*reason).or_insert(0) += 1;
    }
    let drops = summary["drops"].as_object().expect("an object");
    for reason in drops.keys() {
        assert!(
            expected.contains_key(reason.as_str()),
            "{reason}: {summary}"
        );
    }
    for (reason, count) in expected {
        let counted = dropped(summary, reason);
        match reason {
            // The kernels on the link look for routers, report their groups, and talk to each other.
            "not_our_address" | "other_host" => assert!(counted >= count, "{reason}: {summary}"),
            _ => assert_eq!(counted, count, "{reason}: {summary}"),
        }
    }
    assert_eq!(summary["address_conflicts"], 0);
}

/// Checks that each frame of the device has one verdict, and returns those of the kinds `channel`, `control`,
/// `fragment` and `drop`.
fn verdicts(summary: &Value) -> [u64; 4] {
    let of = |name| summary["verdicts"][name].as_u64().expect("a count");
    let verdicts = ["channel", "control", "fragment", "drop"].map(of);
    let received = summary["frames_received"].as_u64();
    assert_eq!(Some(verdicts.iter().sum::<u64>()), received, "{summary}");
    verdicts
}

/// Checks the verdicts on the cases, for a stack that receives all of them.
fn assert_demultiplexed(summary: &Value) {
    let [channel, control, fragment, drop] = verdicts(summary);
    // Three more are of IPv6, and two of neighbor discovery.
    let fragments = fragments_v4().len() + overlaps_v4().len() + 3 + 2;
    assert_eq!(fragment, fragments as u64, "{summary}");
    assert!(channel > 10 && control > 20, "{summary}");
    let reasons = ["ether_type", "other_host"].map(|reason| dropped(summary, reason));
    assert!(drop >= reasons.iter().sum::<u64>(), "{summary}");
    // The protocols drop the rest.
    let drops = summary["drops"].as_object().expect("an object").values();
    assert!(
        drop < drops.filter_map(Value::as_u64).sum::<u64>(),
        "{summary}"
    );
}

#[test]
fn each_is_counted_for_its_reason_by_af_packet() {
    let lab = lab!(Carrier::Packet);
    for architecture in ARCHITECTURES {
        let summary = attacked(&lab, &["--architecture", architecture]);
        assert_counted(&summary);
        assert_demultiplexed(&summary);
    }
}

#[test]
fn each_is_counted_for_its_reason_over_a_tap_device() {
    let lab = lab!(Carrier::Tap);
    let summary = attacked(&lab, &[]);
    assert_counted(&summary);
    assert_demultiplexed(&summary);
}

/// The filter gives the host all packets in which it does not find the stack's addresses, and none is counted twice.
#[test]
fn none_is_counted_twice_by_af_xdp() {
    let lab = lab!(Carrier::Xdp);
    for architecture in ["bsd", "early-demux", "soft-lrp", "ni-lrp"] {
        let summary = attacked(&lab, &["--architecture", architecture]);
        verdicts(&summary);
        for reason in [
            "udp_checksum",
            "ip_checksum",
            "icmp_ignored",
            "fragment_overlap",
        ] {
            assert!(dropped(&summary, reason) >= 1, "{reason}: {summary}");
        }
        for (reason, count) in summary["drops"].as_object().expect("an object") {
            let sent = all().iter().filter(|(of, _)| of == reason).count() as u64;
            let most = if reason == "fragment_overlap" {
                3
            } else {
                sent
            };
            assert!(count.as_u64() <= Some(most), "{reason}: {summary}");
        }
    }
}

/// Packets that look odd and are right are answered: options, extension headers, atomic fragments, no checksum,
/// padding.
#[test]
fn odd_packets_are_answered() {
    let lab = lab!(Carrier::Packet);
    let server = lab.serve(&[]);
    let good = V4::udp(7, b"good");
    let mut without_checksum = good.clone();
    without_checksum.payload[6..8].fill(0);
    // No operation, the end of the options and what follows it; a record of the route.
    let with_options = [&[1, 0, 131, 7][..], &[7, 7, 4, 0, 0, 0, 0, 0]].map(|options| V4 {
        options: options.to_vec(),
        ..good.clone()
    });
    let mut padded = good.frame();
    padded.extend([0x5a; 100]);
    let v6 = V6::udp(7, b"good");
    let mut frames = vec![without_checksum.frame(), padded];
    frames.extend(with_options.map(|packet| packet.frame()));
    frames.extend([
        v6.clone()
            .behind(DESTINATION_OPTIONS, &[1, 4, 0, 0, 0, 0])
            .frame(),
        v6.clone().behind(ROUTING, &[0, 0, 0, 0, 0, 0]).frame(),
        v6.clone()
            .behind(HOP_BY_HOP, &[0, 0x1e, 3, 0, 0, 0])
            .frame(),
        v6.fragment(7, 0, false).frame(),
    ]);
    lab.inject(&frames);
    lab.assert_answers();
    let summary = server.end();
    assert_eq!(summary["echo"]["datagrams"], 2 + frames.len(), "{summary}");
}

/// Another host that claims the stack's addresses is reported, and the stack keeps them.
#[test]
fn another_owner_of_an_address_is_reported() {
    let lab = lab!(Carrier::Packet);
    let server = lab.serve(&[]);
    let claim = [
        &[0x20, 0, 0, 0][..],
        &STACK_V6.octets(),
        &[2, 1, 2, 0, 0, 0, 0, 1],
    ]
    .concat();
    lab.inject(&[
        arp(1, (&FROM, STACK_V4), STACK_V4),
        arp(2, (&FROM, STACK_V4), CLIENT_V4),
        V6 {
            destination: STACK_V6,
            source: CLIENT_V6,
            ..V6::discovery(136, 0, &claim)
        }
        .frame(),
    ]);
    // The client's kernel may believe the claims until it asks again.
    lab.configure_client("ip neighbor flush dev client");
    lab.assert_answers();
    assert_eq!(server.end()["address_conflicts"], 3);
}

/// Errors from the network about datagrams that the stack did not send change nothing (RFC 5927).
#[test]
fn forged_reports_of_small_paths_change_nothing() {
    let lab = lab!(Carrier::Packet);
    let server = lab.serve(&[]);
    let sent = V4 {
        source: STACK_V4,
        destination: CLIENT_V4,
        ..V4::udp(40_000, b"never")
    };
    let mut quoted = sent.bytes();
    quoted[20..22].copy_from_slice(&7u16.to_be_bytes());
    for mtu in [0u16, 1, 68, 1280] {
        let rest = [&[0, 0], &mtu.to_be_bytes()[..], &quoted].concat();
        lab.inject(&[V4::icmp(3, 4, &rest).frame()]);
    }
    lab.assert_answers();
    lab.assert_echo("10.78.0.7", &[1; 1472]);
    server.end();
}
