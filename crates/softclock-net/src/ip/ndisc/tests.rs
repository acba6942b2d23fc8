use super::*;
use crate::checksum::is_transport_checksum_right;
use alloc::vec;
use proptest::prelude::*;

#[path = "target.rs"]
mod target;

const LINK: LinkAddress = LinkAddress([2, 0, 0, 0, 0, 1]);
const REFUSED: Result<Message, DropReason> = Err(DropReason::NeighborDiscovery);

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn addresses(source: &str, destination: &str) -> Addresses {
    Addresses {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    }
}

fn host() -> impl Strategy<Value = Ipv6Addr> {
    (any::<bool>(), any::<u64>()).prop_map(|(is_global, low)| {
        let prefix = if is_global {
            0x2001_0db8 << 96
        } else {
            0xfe80 << 112
        };
        Ipv6Addr::from(prefix | u128::from(low))
    })
}

proptest! {
    #[test]
    fn a_solicitation_is_read_as_it_was_written(source in host(), target in host(), has_link in any::<bool>()) {
        let addresses = request_addresses(source, target);
        let source_link = has_link.then_some(LINK);
        let bytes = write_solicitation(addresses, target, source_link);
        prop_assert!(is_transport_checksum_right(addresses, ICMPV6, &bytes));
        let expected = Message::Solicitation { target, source_link };
        prop_assert_eq!(parse(addresses, HOP_LIMIT, &bytes), Ok(expected));
        for length in (0..24).chain(25..bytes.len()) {
            prop_assert_eq!(parse(addresses, HOP_LIMIT, &bytes[..length]), REFUSED);
        }
    }

    #[test]
    fn an_advertisement_is_read_as_it_was_written(
        asker in prop_oneof![Just(Ipv6Addr::UNSPECIFIED), host()],
        target in host(),
        is_override in any::<bool>(),
    ) {
        let addresses = answer_addresses(asker, target);
        let bytes = write_advertisement(addresses, target, LINK, is_override);
        prop_assert!(is_transport_checksum_right(addresses, ICMPV6, &bytes));
        let expected = Message::Advertisement {
            target,
            target_link: Some(LINK),
            is_router: false,
            is_solicited: !asker.is_unspecified(),
            is_override,
        };
        prop_assert_eq!(parse(addresses, HOP_LIMIT, &bytes), Ok(expected));
    }

    #[test]
    fn any_bytes_are_refused_or_read(
        icmp_type in 130..=140u8,
        rest in prop::collection::vec(any::<u8>(), 0..80),
        options in prop::collection::vec((0..4u8, 0..3u8, any::<[u8; 6]>()), 0..5),
    ) {
        let mut bytes = vec![icmp_type, 0];
        bytes.extend(rest.iter().take(22));
        for (kind, units, value) in options {
            bytes.extend([kind, units]);
            bytes.extend(value);
        }
        bytes.extend(rest.iter().skip(22));
        for (source, destination) in [("fe80::1", "fe80::2"), ("::", "ff02::1:ff00:1")] {
            let [source, destination] = [source, destination].map(|address| v6(address).octets());
            target::check(&[&source[..], &destination, &bytes].concat());
        }
    }
}

#[test]
fn the_group_of_an_address_ends_with_its_last_three_bytes() {
    // The example of RFC 4291, 2.7.1.
    assert_eq!(
        solicited_node(v6("4037::01:800:200e:8c6c")),
        v6("ff02::1:ff0e:8c6c")
    );
}

#[test]
fn a_message_from_behind_a_router_is_refused() {
    let addresses = addresses("fe80::1", "fe80::2");
    let bytes = write_solicitation(addresses, v6("fe80::2"), None);
    assert_eq!(parse(addresses, 254, &bytes), REFUSED);
}

#[test]
fn codes_and_targets_are_checked() {
    let addresses = addresses("fe80::1", "fe80::2");
    let mut bytes = write_solicitation(addresses, v6("fe80::2"), None);
    bytes[1] = 1;
    assert_eq!(parse(addresses, HOP_LIMIT, &bytes), REFUSED);
    for target in ["ff02::1", "::", "::1"] {
        let target = v6(target);
        let solicitation = write_solicitation(addresses, target, None);
        assert_eq!(parse(addresses, HOP_LIMIT, &solicitation), REFUSED);
        let advertisement = write_advertisement(addresses, target, LINK, true);
        assert_eq!(parse(addresses, HOP_LIMIT, &advertisement), REFUSED);
    }
}

#[test]
fn duplicate_address_detection_is_checked() {
    let target = v6("fe80::2");
    let to_group = addresses("::", "ff02::1:ff00:2");
    let bytes = write_solicitation(to_group, target, None);
    let source_link = None;
    let expected = Message::Solicitation {
        target,
        source_link,
    };
    assert_eq!(parse(to_group, HOP_LIMIT, &bytes), Ok(expected));
    assert_eq!(
        parse(addresses("::", "fe80::2"), HOP_LIMIT, &bytes),
        REFUSED
    );
    assert_eq!(
        parse(addresses("::", "ff02::1"), HOP_LIMIT, &bytes),
        REFUSED
    );
    let with_link = write_solicitation(to_group, target, Some(LINK));
    assert_eq!(parse(to_group, HOP_LIMIT, &with_link), REFUSED);
}

#[test]
fn a_solicited_advertisement_to_a_group_is_refused() {
    let target = v6("fe80::2");
    let bytes = write_advertisement(addresses("fe80::2", "fe80::1"), target, LINK, true);
    assert_eq!(
        parse(addresses("fe80::2", "ff02::1"), HOP_LIMIT, &bytes),
        REFUSED
    );
    assert_eq!(
        parse(addresses("::", "fe80::1"), HOP_LIMIT, &bytes),
        REFUSED
    );
    assert_eq!(
        parse(addresses("ff02::1", "fe80::1"), HOP_LIMIT, &bytes),
        REFUSED
    );
}

#[test]
fn options_are_checked_and_others_skipped() {
    let addresses = addresses("fe80::1", "fe80::2");
    let target = v6("fe80::2");
    let parsed = |options: &[u8]| {
        let mut bytes = write_solicitation(addresses, target, None);
        bytes.extend(options);
        parse(addresses, HOP_LIMIT, &bytes)
    };
    let found = |source_link| {
        Ok(Message::Solicitation {
            target,
            source_link,
        })
    };
    let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
    let link = [1, 1, 2, 0, 0, 0, 0, 1];
    let other_link = [1, 1, 2, 0, 0, 0, 0, 9];
    assert_eq!(parsed(&[nonce, link].concat()), found(Some(LINK)));
    assert_eq!(parsed(&[link, other_link].concat()), found(Some(LINK)));
    assert_eq!(parsed(&nonce), found(None));
    assert_eq!(parsed(&[2, 1, 2, 0, 0, 0, 0, 1]), found(None));
    assert_eq!(parsed(&[14, 0, 0, 0, 0, 0, 0, 0]), REFUSED);
    assert_eq!(parsed(&[link, [14, 0, 0, 0, 0, 0, 0, 0]].concat()), REFUSED);
    assert_eq!(parsed(&[14, 2, 0, 0, 0, 0, 0, 0]), REFUSED);
    assert_eq!(parsed(&link[..7]), REFUSED);
    assert_eq!(parsed(&[14]), REFUSED);
    assert_eq!(
        parsed(&[1, 2, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        REFUSED
    );
    assert_eq!(parsed(&[1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), REFUSED);
}

#[test]
fn messages_of_routers_are_ignored_and_other_types_refused() {
    let addresses = addresses("fe80::1", "ff02::1");
    for icmp_type in [133, 134, 137] {
        assert_eq!(
            parse(addresses, HOP_LIMIT, &[icmp_type, 0, 0, 0]),
            Ok(Message::Ignored)
        );
        assert!(is_kind(icmp_type));
    }
    for icmp_type in [128, 130, 132, 138] {
        assert_eq!(parse(addresses, HOP_LIMIT, &[icmp_type, 0, 0, 0]), REFUSED);
        assert!(!is_kind(icmp_type));
    }
}
