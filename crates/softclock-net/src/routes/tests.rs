use super::*;
use alloc::string::ToString;
use alloc::vec;
use proptest::prelude::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn routes(addresses: &[&str], gateways: &[&str]) -> Result<Routes, RouteError> {
    let addresses = addresses.iter().map(|text| prefix(text)).collect();
    Routes::new(addresses, gateways.iter().map(|text| ip(text)).collect())
}

fn both() -> Routes {
    let addresses = [
        "10.0.0.1/24",
        "192.168.0.9/16",
        "fe80::1/64",
        "2001:db8::1/64",
        "fd00::1/48",
    ];
    routes(&addresses, &["10.0.0.254", "fe80::ffff"]).unwrap()
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
        any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
        // A few networks, so that addresses meet.
        (0..3u32, 0..4u32)
            .prop_map(|(net, host)| IpAddr::V4((0x0a00_0000 + net * 256 + host).into())),
        (0..3u128, 0..4u128).prop_map(|(net, host)| {
            let prefix = [0xfe80 << 112, 0x2001_0db8 << 96, 0xff02 << 112];
            IpAddr::V6((prefix[net as usize] + host).into())
        }),
        Just(ip("255.255.255.255")),
        Just(ip("224.0.0.1")),
    ]
}

fn any_prefix() -> impl Strategy<Value = Prefix> {
    (any_address(), any::<u8>()).prop_map(|(address, bits)| {
        let most = if address.is_ipv4() { 33 } else { 129 };
        Prefix {
            address,
            bits: bits % most,
        }
    })
}

proptest! {
    #[test]
    fn a_prefix_is_read_as_it_was_written(prefix in any_prefix()) {
        prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
    }

    #[test]
    fn a_prefix_contains_exactly_the_addresses_with_its_leading_bits(
        address in any::<u128>(), other in any::<u128>(), shared in 0..=128u32, bits in 0..=128u8,
    ) {
        let mask = |bits: u32| u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        let other = (address & mask(shared)) | (other & !mask(shared));
        let v6 = |bits: u128| IpAddr::V6(bits.into());
        let prefix = Prefix { address: v6(address), bits };
        let same = (address ^ other) & mask(bits.into()) == 0;
        prop_assert_eq!(prefix.contains(v6(other)), same);
        prop_assert_eq!(prefix.network(), v6(address & mask(bits.into())));

        let v4 = |bits: u128| Ipv4Addr::from((bits >> 96) as u32);
        let prefix = Prefix { address: v4(address).into(), bits: bits.min(32) };
        let network = v4(address & mask(prefix.bits.into()));
        let same = v4((address ^ other) & mask(prefix.bits.into())).is_unspecified();
        prop_assert_eq!(prefix.contains(v4(other).into()), same);
        prop_assert_eq!(prefix.network(), IpAddr::V4(network));
        let last = v4(address | !mask(prefix.bits.into()));
        prop_assert_eq!(prefix.broadcast(), (prefix.bits < 31).then_some(last));
    }

    #[test]
    fn more_bits_than_the_address_has_mean_all(address in any_address(), bits in 128..=255u8) {
        let prefix = Prefix { address, bits };
        prop_assert!(prefix.contains(address));
        prop_assert_eq!(prefix.network(), address);
        prop_assert_eq!(prefix.broadcast(), None);
        prop_assert!(Routes::new(vec![prefix], vec![]).is_err() || bits == 128 && address.is_ipv6());
    }

    #[test]
    fn routes_agree_with_each_other(
        prefixes in prop::collection::vec(any_prefix(), 0..8),
        gateways in prop::collection::vec(any_address(), 0..3),
        destinations in prop::collection::vec(any_address(), 1..20),
    ) {
        let mut routes = Routes::new(vec![], vec![]).unwrap();
        for prefix in prefixes {
            let _ = routes.add_address(prefix);
        }
        for gateway in gateways {
            let _ = routes.add_gateway(gateway);
        }
        for destination in destinations {
            let hop = routes.next_hop(destination);
            let source = routes.source_for(destination);
            let is_ours = routes.classify(destination) == Destination::Ours;
            prop_assert!(!is_ours || (hop.is_none() && source == Some(destination)));
            prop_assert!(source.is_none() || hop.is_some() || is_ours);
            prop_assert!(source.is_none_or(|source| routes.is_ours(source)));
            prop_assert!(source.is_none_or(|source| source.is_ipv4() == destination.is_ipv4()));
            match hop {
                Some(NextHop::Link(link)) => {
                    prop_assert!(link.is_group());
                    prop_assert_eq!(link == LinkAddress::BROADCAST, !destination.is_multicast());
                }
                Some(NextHop::Neighbor(hop)) => {
                    prop_assert!(can_be_host(hop) && !routes.is_ours(hop) && routes.is_on_link(hop));
                    prop_assert_eq!(hop == destination, routes.is_on_link(destination));
                }
                None => {}
            }
        }
    }

    #[test]
    fn a_group_is_joined_as_long_as_it_has_members(steps in prop::collection::vec((any::<bool>(), 2..6u8), 0..60)) {
        let mut routes = both();
        let mut members = [0usize; 6];
        for (joins, group) in steps {
            let address = IpAddr::V4(Ipv4Addr::new(224, 0, 0, group));
            let members = &mut members[usize::from(group)];
            if joins {
                prop_assert_eq!(routes.join(address), Ok(*members == 0));
                *members += 1;
            } else {
                prop_assert_eq!(routes.leave(address), *members == 1);
                *members = members.saturating_sub(1);
            }
            let is_joined = routes.classify(address) == Destination::Group;
            prop_assert_eq!(is_joined, *members > 0);
            prop_assert_eq!(routes.groups().any(|joined| joined == address), is_joined);
        }
    }
}

#[test]
fn texts_that_are_no_prefix() {
    for text in [
        "",
        "10.0.0.1",
        "10.0.0.1/",
        "10.0.0.1/33",
        "10.0.0.1/+8",
        "10.0.0/8",
        "::1/129",
        "::1/256",
        "/8",
    ] {
        assert_eq!(text.parse::<Prefix>(), Err(InvalidPrefix), "{text}");
    }
}

#[test]
fn unusable_addresses_are_refused() {
    for text in [
        "0.0.0.0/24",
        "0.1.2.3/8",
        "127.0.0.1/8",
        "224.0.0.1/24",
        "255.255.255.255/32",
        "10.0.0.0/24",
        "10.0.0.255/24",
        "::/64",
        "::1/128",
        "ff02::1/64",
        "::ffff:10.0.0.1/96",
    ] {
        let address = prefix(text).address;
        assert_eq!(
            routes(&[text], &[]),
            Err(RouteError::UnusableAddress(address)),
            "{text}"
        );
    }
    for text in [
        "10.0.0.0/31",
        "10.0.0.255/31",
        "10.0.0.0/32",
        "10.0.1.0/16",
        "fe80::1/64",
        "2001:db8::/64",
    ] {
        assert!(routes(&[text], &[]).is_ok(), "{text}");
    }
}

#[test]
fn addresses_are_bounded_and_distinct() {
    let duplicate = Err(RouteError::DuplicateAddress(ip("10.0.0.1")));
    assert_eq!(routes(&["10.0.0.1/24", "10.0.0.1/8"], &[]), duplicate);
    let mut routes = Routes::new(vec![], vec![]).unwrap();
    let address = |host: usize| Prefix {
        address: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + host as u32)),
        bits: 8,
    };
    for host in 0..Routes::MOST_ADDRESSES {
        routes.add_address(address(host)).unwrap();
    }
    let one_more = address(Routes::MOST_ADDRESSES);
    assert_eq!(
        routes.add_address(one_more),
        Err(RouteError::TooManyAddresses)
    );
    assert_eq!(routes.remove_address(address(3).address), Some(address(3)));
    assert_eq!(routes.remove_address(address(3).address), None);
    assert_eq!(routes.add_address(one_more), Ok(()));
}

#[test]
fn groups_are_bounded() {
    let mut routes = both();
    let group = |number: usize| IpAddr::V4(Ipv4Addr::from_bits(0xe100_0000 + number as u32));
    for number in 0..Routes::MOST_GROUPS {
        assert_eq!(routes.join(group(number)), Ok(true));
    }
    assert_eq!(
        routes.join(group(Routes::MOST_GROUPS)),
        Err(RouteError::TooManyGroups)
    );
    assert_eq!(routes.join(group(0)), Ok(false));
    assert_eq!(
        routes.join(ip("10.0.0.1")),
        Err(RouteError::NotAGroup(ip("10.0.0.1")))
    );
}

#[test]
fn gateways_must_be_on_the_link() {
    let with = |gateway| routes(&["10.0.0.1/24"], &[gateway]).map(drop);
    assert_eq!(with("10.0.0.254"), Ok(()));
    assert_eq!(
        with("10.0.1.1"),
        Err(RouteError::GatewayNotOnLink(ip("10.0.1.1")))
    );
    assert_eq!(
        with("fe80::1"),
        Err(RouteError::GatewayNotOnLink(ip("fe80::1")))
    );
    for gateway in ["10.0.0.1", "10.0.0.255", "0.0.0.0", "224.0.0.1"] {
        assert_eq!(with(gateway), Err(RouteError::UnusableGateway(ip(gateway))));
    }
    let twice = routes(&["10.0.0.1/24"], &["10.0.0.2", "10.0.0.2"]);
    assert_eq!(twice, Err(RouteError::UnusableGateway(ip("10.0.0.2"))));
}

#[test]
fn a_gateway_is_used_while_an_address_is_on_its_prefix() {
    let mut routes = routes(&["10.0.0.1/24", "10.1.0.1/24"], &["10.0.0.2", "10.1.0.2"]).unwrap();
    let hop = |routes: &Routes| routes.next_hop(ip("192.0.2.1"));
    assert_eq!(hop(&routes), Some(NextHop::Neighbor(ip("10.0.0.2"))));
    let removed = routes.remove_address(ip("10.0.0.1")).unwrap();
    assert_eq!(hop(&routes), Some(NextHop::Neighbor(ip("10.1.0.2"))));
    routes.remove_address(ip("10.1.0.1"));
    assert_eq!(hop(&routes), None);
    routes.add_address(removed).unwrap();
    assert_eq!(hop(&routes), Some(NextHop::Neighbor(ip("10.0.0.2"))));
}

#[test]
fn destinations_are_classified() {
    let mut routes = both();
    routes.join(ip("ff05::7")).unwrap();
    for (destination, expected) in [
        ("10.0.0.1", Destination::Ours),
        ("2001:db8::1", Destination::Ours),
        ("255.255.255.255", Destination::Broadcast),
        ("10.0.0.255", Destination::Broadcast),
        ("192.168.255.255", Destination::Broadcast),
        ("224.0.0.1", Destination::Group),
        ("ff02::1", Destination::Group),
        ("ff02::1:ff00:1", Destination::Group),
        ("ff05::7", Destination::Group),
        ("ff02::1:ff00:2", Destination::Other),
        ("224.0.0.2", Destination::Other),
        ("10.0.0.2", Destination::Other),
        ("10.0.0.0", Destination::Other),
        ("::", Destination::Other),
    ] {
        assert_eq!(routes.classify(ip(destination)), expected, "{destination}");
    }
}

#[test]
fn an_own_address_that_ends_another_prefix_is_ours() {
    let routes = routes(&["10.0.0.255/16", "10.0.0.1/24"], &[]).unwrap();
    assert_eq!(routes.classify(ip("10.0.0.255")), Destination::Ours);
    assert_eq!(routes.next_hop(ip("10.0.0.255")), None);
}

#[test]
fn next_hops_and_sources() {
    let routes = both();
    let neighbor = |hop| Some(NextHop::Neighbor(ip(hop)));
    let link = |link: &str| Some(NextHop::Link(link.parse().unwrap()));
    for (destination, hop, source) in [
        ("10.0.0.7", neighbor("10.0.0.7"), Some("10.0.0.1")),
        ("192.168.7.7", neighbor("192.168.7.7"), Some("192.168.0.9")),
        ("192.0.2.1", neighbor("10.0.0.254"), Some("10.0.0.1")),
        (
            "255.255.255.255",
            link("ff:ff:ff:ff:ff:ff"),
            Some("10.0.0.1"),
        ),
        (
            "192.168.255.255",
            link("ff:ff:ff:ff:ff:ff"),
            Some("192.168.0.9"),
        ),
        ("224.0.0.5", link("01:00:5e:00:00:05"), Some("10.0.0.1")),
        ("fe80::7", neighbor("fe80::7"), Some("fe80::1")),
        ("ff02::5", link("33:33:00:00:00:05"), Some("fe80::1")),
        ("ff0e::5", link("33:33:00:00:00:05"), Some("2001:db8::1")),
        ("2001:db8::7", neighbor("2001:db8::7"), Some("2001:db8::1")),
        ("2001:db8:1::7", neighbor("fe80::ffff"), Some("2001:db8::1")),
        ("fd00:0:0:9::7", neighbor("fd00:0:0:9::7"), Some("fd00::1")),
        ("fd99::7", neighbor("fe80::ffff"), Some("fd00::1")),
        ("10.0.0.1", None, Some("10.0.0.1")),
        ("127.0.0.1", None, None),
        ("0.0.0.0", None, None),
        ("::1", None, None),
        ("::ffff:10.0.0.7", None, None),
    ] {
        assert_eq!(routes.next_hop(ip(destination)), hop, "{destination}");
        assert_eq!(
            routes.source_for(ip(destination)),
            source.map(ip),
            "{destination}"
        );
    }
}

#[test]
fn link_local_addresses_are_not_used_through_a_gateway() {
    let routes = routes(
        &["fe80::1/64", "169.254.0.1/16"],
        &["fe80::2", "169.254.0.2"],
    )
    .unwrap();
    assert_eq!(routes.source_for(ip("2001:db8::1")), None);
    assert_eq!(routes.source_for(ip("192.0.2.1")), None);
    assert_eq!(routes.source_for(ip("fe80::2")), Some(ip("fe80::1")));
}

#[test]
fn a_stack_of_one_family_has_no_routes_for_the_other() {
    let routes = routes(&["10.0.0.1/24"], &["10.0.0.2"]).unwrap();
    for destination in ["ff02::1", "fe80::1", "2001:db8::1"] {
        assert_eq!(routes.next_hop(ip(destination)), None, "{destination}");
        assert_eq!(routes.source_for(ip(destination)), None, "{destination}");
    }
}
