//! Properties of the decoder that hold for any input. Called by the property tests and by the fuzzer (`fuzz/`).

use super::{Decoded, Decoder};

/// Decodes to the end, and checks that each step takes bytes or asks for more than there are, that a packet is shorter
/// than the bytes taken, and that the result does not depend on the length of the input.
pub(crate) fn check(capture: &[u8]) {
    let mut decoder = Decoder::new();
    let mut rest = capture;
    loop {
        let mut sparing = decoder.clone();
        let Ok(decoded) = decoder.decode(rest) else {
            return;
        };
        let used = match decoded {
            Decoded::Packet(packet, used) => {
                assert!(packet.data.len() < used);
                let _ = packet.link.headers(packet.data);
                used
            }
            Decoded::Other(used) => used,
            Decoded::More(needed) => {
                assert!(needed > rest.len());
                return;
            }
        };
        assert!(used > 0 && used <= rest.len());
        assert_eq!(step_by_step(&mut sparing, rest), decoded);
        rest = &rest[used..];
    }
}

/// Decodes one item, passing no more input than the decoder asks for.
fn step_by_step<'a>(decoder: &mut Decoder, input: &'a [u8]) -> Decoded<'a> {
    let mut length = 0;
    loop {
        match decoder.decode(&input[..length]) {
            Ok(Decoded::More(needed)) => {
                assert!(needed > length && needed <= input.len());
                length = needed;
            }
            Ok(decoded) => return decoded,
            Err(error) => panic!("an error that needs less input: {error}"),
        }
    }
}
