//! What must hold for any bytes; the entry of the property tests and of the fuzzer (`fuzz/`).

use super::{Decoded, Decoder};

/// Decodes to the end: each step takes something or asks for more than there is, packets lie in what is taken, and it makes
/// no difference how much of the capture is there already.
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

/// The same with no more input than is asked for.
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
