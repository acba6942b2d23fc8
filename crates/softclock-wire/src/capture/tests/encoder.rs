//! The encoder, by the decoder: what is written is read back.

use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::super::*;
use super::target;

/// A packet to encode, with its bytes.
#[derive(Clone, Debug)]
struct Given {
    at_ns: u64,
    is_sent: bool,
    original_bytes: u32,
    data: Vec<u8>,
    missed: u64,
    comment: Option<String>,
}

impl Given {
    fn record(&self) -> Record<'_> {
        Record {
            at: Instant::from_ns(self.at_ns),
            heading: match self.is_sent {
                true => Heading::Outbound,
                false => Heading::Inbound,
            },
            original_bytes: self.original_bytes,
            data: &self.data,
            missed: self.missed,
            comment: self.comment.as_deref(),
        }
    }
}

prop_compose! {
    fn given()(
        at_ns: u64, is_sent: bool, original_bytes: u32, missed in prop_oneof![Just(0), any::<u64>()],
        data in prop::collection::vec(any::<u8>(), 0..200), comment: Option<String>,
    ) -> Given {
        Given { at_ns, is_sent, original_bytes, data, missed, comment }
    }
}

/// The packets of a capture, which must be whole.
fn decoded(mut rest: &[u8]) -> Vec<(u64, u32, Vec<u8>, LinkType)> {
    let mut decoder = Decoder::new();
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let used = match decoder.decode(rest) {
            Ok(Decoded::Packet(packet, used)) => {
                let at = packet.at.expect("a timestamp").as_ns();
                let Packet {
                    original_bytes,
                    data,
                    link,
                    ..
                } = packet;
                packets.push((at, original_bytes, data.to_vec(), link));
                used
            }
            Ok(Decoded::Other(used)) => used,
            other => panic!("{other:?}"),
        };
        rest = &rest[used..];
    }
    packets
}

proptest! {
    #[test]
    fn packets_are_read_back(all in prop::collection::vec(given(), 0..8), name: String, snap in 0u32..300, link: u16) {
        let mut capture = Vec::new();
        let encoder = Encoder::begin(&mut capture, &name, LinkType(link), snap);
        // The ends of blocks that are known: before the first, and after the header.
        let mut ends = [0, capture.len()].to_vec();
        for given in &all {
            encoder.packet(&mut capture, &given.record());
            ends.push(capture.len());
        }
        target::check(&capture);
        let expected: Vec<_> = all
            .iter()
            .map(|given| {
                let captured = given.data.len().min(snap.max(1) as usize);
                (given.at_ns, given.original_bytes, given.data[..captured].to_vec(), LinkType(link))
            })
            .collect();
        prop_assert_eq!(decoded(&capture), expected);
        // Any cut leaves whole blocks, as far as there are any before it.
        for bytes in 0..=capture.len() {
            let whole = whole_blocks(&capture, bytes);
            let least = ends.iter().copied().filter(|&end| end <= bytes).max();
            prop_assert!(whole <= bytes && Some(whole) >= least);
            if whole > 0 {
                decoded(&capture[..whole]);
            }
        }
    }

    #[test]
    fn any_bytes_have_whole_blocks_within_them(bytes in prop::collection::vec(any::<u8>(), 0..60), written in 0usize..80) {
        prop_assert!(whole_blocks(&bytes, written) <= written);
    }
}

/// Byte for byte as the format's specification has it (draft-ietf-opsawg-pcapng, 4.3).
#[test]
fn a_packet_has_the_options_of_the_specification() {
    let mut capture = Vec::new();
    let encoder = Encoder::begin(&mut capture, "lo", LinkType::ETHERNET, 4);
    let from = capture.len();
    encoder.packet(
        &mut capture,
        &Record {
            at: Instant::from_ns(0x0000_0001_0000_0002),
            heading: Heading::Outbound,
            original_bytes: 60,
            data: b"abcdef",
            missed: 3,
            comment: Some("why"),
        },
    );
    let words: Vec<u8> = [
        6_u32, 68, 0, 1, 2, 4,
        60, // Kind, length, interface, time, captured and original length.
    ]
    .into_iter()
    .flat_map(u32::to_le_bytes)
    .collect();
    let options = [
        &b"abcd"[..],
        &[2, 0, 4, 0, 2, 0, 0, 0],
        &[4, 0, 8, 0, 3, 0, 0, 0, 0, 0, 0, 0],
        &[1, 0, 3, 0, b'w', b'h', b'y', 0],
        &[0, 0, 0, 0],
        &68_u32.to_le_bytes(),
    ];
    assert_eq!(capture[from..], [words, options.concat()].concat());
}

#[test]
fn a_comment_too_long_for_an_option_is_cut_between_characters() {
    let mut capture = Vec::new();
    let encoder = Encoder::begin(&mut capture, "lo", LinkType::ETHERNET, 4);
    let comment = "\u{e9}".repeat(40_000);
    let given = Given {
        at_ns: 1,
        is_sent: false,
        original_bytes: 1,
        data: [1].to_vec(),
        missed: 0,
        comment: Some(comment),
    };
    encoder.packet(&mut capture, &given.record());
    assert_eq!(decoded(&capture).len(), 1);
    assert!(capture.len() < 66_000);
}
