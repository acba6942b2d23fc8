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

/// Parses `options` as those of a segment, after a first byte with its flags. Most segments of random bytes end in the
/// wrong length of the header.
pub(crate) fn check_options(bytes: &[u8]) {
    let Some((flags, options)) = bytes.split_first() else {
        return;
    };
    let options = &options[..options.len().min(40)];
    let header_bytes = 20 + options.len().next_multiple_of(4);
    let mut segment = Vec::from([0; 20]);
    segment[12] = (header_bytes / 4) as u8 * 16;
    segment[13] = *flags;
    segment.extend_from_slice(options);
    segment.resize(header_bytes, 0);
    check(&segment);
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
