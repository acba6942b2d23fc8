//! Properties of the messages of ICMP and ICMPv6 that hold for any input. Called by the property tests and by the
//! fuzzer (`fuzz/`).

use alloc::vec::Vec;

use super::{Addresses, DropReason, Verify, icmp, icmp_v6};
use icmp::{Original, Report};

/// Takes `bytes` as a message, as the payload of a packet, and as a packet that was not delivered.
pub(crate) fn check(bytes: &[u8]) {
    let of = |pair: [&str; 2]| {
        let [source, destination] = pair.map(|address| address.parse().unwrap());
        Addresses {
            source,
            destination,
        }
    };
    let v4 = of(["192.0.2.1", "192.0.2.2"]);
    let v6 = of(["2001:db8::1", "2001:db8::2"]);
    check_message(bytes);
    check_message_v6(v6, bytes);
    check_payload(v4, v6, bytes);
    for reason in [Report::PortUnreachable, Report::ProtocolUnreachable] {
        let message = icmp::write_report(reason, bytes);
        assert!(message.len() <= 576 - 20);
        let parsed = icmp::parse(&message, Verify::Yes);
        assert!(matches!(
            parsed,
            Ok(icmp::Message::Error(_)) | Err(DropReason::Icmp)
        ));

        let message = icmp_v6::write_report(v6, reason, bytes);
        assert!(message.len() <= 1280 - 40);
        let parsed = icmp_v6::parse(v6, &message, Verify::Yes);
        assert!(matches!(
            parsed,
            Ok(icmp_v6::Message::Error(_)) | Err(DropReason::Icmp)
        ));
    }
}

/// Verification only refuses more, and an echo is read as it was written.
fn check_message(bytes: &[u8]) {
    let verified = icmp::parse(bytes, Verify::Yes);
    let trusted = icmp::parse(bytes, Verify::Trusted);
    assert!(verified == trusted || verified == Err(DropReason::Icmp));
    match trusted {
        Ok(icmp::Message::EchoRequest(echo) | icmp::Message::EchoReply(echo)) => {
            let mut reply = Vec::new();
            icmp::write_echo_reply(&echo, &mut reply);
            let parsed = icmp::parse(&reply, Verify::Yes);
            assert_eq!(parsed, Ok(icmp::Message::EchoReply(echo)));
        }
        Ok(icmp::Message::Error(error)) => {
            assert!(error.quoted.addresses.source.is_ipv4());
            assert!(
                error
                    .next_hop_mtu
                    .is_none_or(|mtu| (68..1 << 16).contains(&mtu))
            );
            let _ = error.quoted.tcp_sequence();
        }
        Ok(icmp::Message::Other) => {}
        Err(reason) => assert!(matches!(reason, DropReason::Icmp | DropReason::IcmpIgnored)),
    }
}

/// The same over IPv6.
fn check_message_v6(addresses: Addresses, bytes: &[u8]) {
    let verified = icmp_v6::parse(addresses, bytes, Verify::Yes);
    let trusted = icmp_v6::parse(addresses, bytes, Verify::Trusted);
    assert!(verified == trusted || verified == Err(DropReason::Icmp));
    match trusted {
        Ok(icmp_v6::Message::EchoRequest(echo) | icmp_v6::Message::EchoReply(echo)) => {
            let mut reply = Vec::new();
            icmp_v6::write_echo_reply(addresses, &echo, &mut reply);
            let parsed = icmp_v6::parse(addresses, &reply, Verify::Yes);
            assert_eq!(parsed, Ok(icmp_v6::Message::EchoReply(echo)));
        }
        Ok(icmp_v6::Message::Error(error)) => {
            assert!(error.quoted.addresses.source.is_ipv6());
            assert!(error.next_hop_mtu.is_none_or(|mtu| mtu >= 1280));
            let _ = error.quoted.tcp_sequence();
        }
        Ok(icmp_v6::Message::NeighborDiscovery(message)) => assert_eq!(message, bytes),
        Ok(icmp_v6::Message::Other) => {}
        Err(reason) => assert!(matches!(reason, DropReason::Icmp | DropReason::IcmpIgnored)),
    }
}

/// No error message is answered by an error message, so that two hosts never send them to and fro.
fn check_payload(v4: Addresses, v6: Addresses, bytes: &[u8]) {
    let may_answer = |addresses, protocol| {
        icmp::may_answer(&Original {
            addresses,
            is_to_group: false,
            is_later_fragment: false,
            protocol,
            payload: bytes,
        })
    };
    if let Ok(icmp::Message::Error(_)) = icmp::parse(bytes, Verify::Trusted) {
        assert!(!may_answer(v4, 1));
    }
    if let Ok(icmp_v6::Message::Error(_)) = icmp_v6::parse(v6, bytes, Verify::Trusted) {
        assert!(!may_answer(v6, 58));
    }
}
