//! Properties of messages of neighbor discovery that hold for any input. Called by the property tests and by the fuzzer
//! (`fuzz/`).

use core::net::{IpAddr, Ipv6Addr};

use super::{
    Addresses, DropReason, HOP_LIMIT, LinkAddress, Message, answer_addresses, is_kind, parse,
    request_addresses, write_advertisement, write_solicitation,
};

/// Takes the input as two addresses and a message from its type on. Checks the message between these addresses, and
/// between those of hosts, of a search for duplicates, and of IPv4.
pub(crate) fn check(input: &[u8]) {
    let Some((ends, message)) = input.split_first_chunk::<32>() else {
        check_hosts(input);
        return;
    };
    let (source, destination) = ends.split_at(16);
    let address = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).map(Ipv6Addr::from);
    if let (Ok(source), Ok(destination)) = (address(source), address(destination)) {
        check_message(between(source.into(), destination.into()), message);
    }
    check_hosts(message);
}

fn check_hosts(message: &[u8]) {
    let asker = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
    let to_own = between(asker.into(), OWN.into());
    check_message(to_own, message);
    check_message(request_addresses(asker, OWN), message);
    check_message(request_addresses(Ipv6Addr::UNSPECIFIED, OWN), message);
    let v4 = between([10, 0, 0, 2].into(), [10, 0, 0, 1].into());
    assert_eq!(parse(v4, HOP_LIMIT, message), REFUSED);
    // From behind a router.
    assert_eq!(parse(to_own, HOP_LIMIT - 1, message), REFUSED);
}

fn check_message(addresses: Addresses, message: &[u8]) {
    let parsed = match parse(addresses, HOP_LIMIT, message) {
        Ok(parsed) => parsed,
        Err(reason) => {
            assert_eq!(reason, DropReason::NeighborDiscovery);
            return;
        }
    };
    assert!(is_kind(message[0]) && message[1] == 0);
    let IpAddr::V6(source) = addresses.source else {
        panic!("a message of IPv4");
    };
    assert!(!source.is_multicast());
    match parsed {
        Message::Solicitation {
            target,
            source_link,
        } => {
            assert_target(target, source_link);
            assert!(source_link.is_none() || !source.is_unspecified());
            let written = write_solicitation(addresses, target, source_link);
            assert_eq!(parse(addresses, HOP_LIMIT, &written), Ok(parsed));
            // The answer is a message, too.
            let back = answer_addresses(source, target);
            let answer = write_advertisement(back, target, LINK, true);
            let expected = Message::Advertisement {
                target,
                target_link: Some(LINK),
                is_router: false,
                is_solicited: !source.is_unspecified(),
                is_override: true,
            };
            assert_eq!(parse(back, HOP_LIMIT, &answer), Ok(expected));
        }
        Message::Advertisement {
            target,
            target_link,
            is_solicited,
            ..
        } => {
            assert_target(target, target_link);
            assert!(!source.is_unspecified());
            assert!(!is_solicited || !addresses.destination.is_multicast());
        }
        Message::Ignored => {}
    }
}

/// Neither address can be that of a group.
fn assert_target(target: Ipv6Addr, link: Option<LinkAddress>) {
    assert!(!target.is_multicast() && !target.is_unspecified() && !target.is_loopback());
    assert!(link.is_none_or(|link| link.is_host()));
}

const fn between(source: IpAddr, destination: IpAddr) -> Addresses {
    Addresses {
        source,
        destination,
    }
}

const OWN: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

const LINK: LinkAddress = LinkAddress([2, 0, 0, 0, 0, 1]);

const REFUSED: Result<Message, DropReason> = Err(DropReason::NeighborDiscovery);
