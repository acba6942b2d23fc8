//! Properties of TCP segments that hold for any input. Called by the property tests and by the fuzzer (`fuzz/`).

use alloc::vec::Vec;

use super::{Addresses, DropReason, Verify, segment};

/// Parses `bytes` as a segment over both versions of IP. Checks that verification only refuses more, that errors are
/// those of TCP, and that a parsed segment is parsed again as it was after it is emitted.
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
    let verified = segment::parse(addresses, bytes, Verify::Yes);
    match segment::parse(addresses, bytes, Verify::Trusted) {
        Err(reason) => {
            assert_eq!(reason, DropReason::TcpHeader);
            assert_eq!(verified, Err(reason));
        }
        Ok(parsed) => {
            let is_wrong = matches!(verified, Err(DropReason::TcpChecksum));
            assert!(is_wrong || verified.as_ref() == Ok(&parsed));
            let mut options = parsed.options;
            let mut emitted = Vec::new();
            let payload = |out: &mut Vec<u8>| out.extend(parsed.payload);
            segment::emit(addresses, &parsed.header, &options, payload, &mut emitted);
            let header_bytes = segment::header_bytes(&options);
            assert!(header_bytes <= 60 && emitted.len() == header_bytes + parsed.payload.len());

            // A foreign header may pack more blocks beside its other options than alignment leaves room for.
            let again = segment::parse(addresses, &emitted, Verify::Yes).unwrap();
            let blocks = again.options.sack.as_slice().len();
            assert!(blocks >= 3.min(options.sack.as_slice().len()));
            options.sack.truncate(blocks);
            assert_eq!(again.options, options);
            assert_eq!(
                (again.header, again.payload),
                (parsed.header, parsed.payload)
            );
        }
    }
}
