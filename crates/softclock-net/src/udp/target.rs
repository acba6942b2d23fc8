//! Properties of UDP datagrams that hold for any input. Called by the property tests and by the fuzzer (`fuzz/`).

use alloc::vec::Vec;

use super::{Addresses, DropReason, Verify, udp};

/// Parses `bytes` as a datagram over both versions of IP. Checks that verification only refuses more, that errors are
/// those of UDP, and that a parsed datagram is parsed again as it was after it is written.
pub(crate) fn check(bytes: &[u8]) {
    for pair in [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]] {
        let [source, destination] = pair.map(|address| address.parse().unwrap());
        check_over(
            Addresses {
                source,
                destination,
            },
            bytes,
        );
    }
}

fn check_over(addresses: Addresses, bytes: &[u8]) {
    let verified = udp::parse(addresses, bytes, Verify::Yes);
    match udp::parse(addresses, bytes, Verify::Trusted) {
        Err(reason) => {
            assert_eq!(reason, DropReason::UdpHeader);
            assert_eq!(verified, Err(reason));
        }
        Ok(datagram) => {
            assert!(matches!(verified, Err(DropReason::UdpChecksum)) || verified == Ok(datagram));
            let (from, to) = (datagram.source_port, datagram.destination_port);
            let mut written = Vec::new();
            if udp::write(addresses, from, to, datagram.payload, &mut written).is_err() {
                assert!(
                    addresses.destination.is_ipv4() && datagram.payload.len() > udp::MOST_PAYLOAD
                );
                return;
            }
            assert_eq!(udp::parse(addresses, &written, Verify::Yes), Ok(datagram));
        }
    }
}
