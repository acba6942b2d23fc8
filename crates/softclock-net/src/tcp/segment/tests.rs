//! Tests of the header and its options: round trips, malformed options, and properties for any input.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::checksum::{Addresses, Verify, is_transport_checksum_right};
use crate::drops::DropReason;
use crate::tcp::segment;

#[path = "target.rs"]
mod target;

fn addresses(is_v6: bool) -> Addresses {
    let pair = match is_v6 {
        true => ["2001:db8::1", "2001:db8::2"],
        false => ["10.0.0.1", "10.0.0.2"],
    };
    let [source, destination] = pair.map(|address| address.parse().unwrap());
    Addresses {
        source,
        destination,
    }
}

fn headers() -> impl Strategy<Value = Header> {
    let numbers = (any::<[u16; 4]>(), any::<[u32; 2]>(), 0..0x200_u16);
    numbers.prop_map(
        |([source, destination, window, urgent], [seq, ack], flags)| Header {
            source_port: source,
            destination_port: destination,
            sequence: Seq(seq),
            acknowledgment: Seq(ack),
            flags: Flags(flags),
            window,
            urgent,
        },
    )
}

fn timestamps() -> impl Strategy<Value = Option<Timestamps>> {
    any::<Option<[u32; 2]>>()
        .prop_map(|times| times.map(|[value, echo]| Timestamps { value, echo }))
}

/// Options that may stand beside SYN, or without it.
fn options(is_syn: bool) -> BoxedStrategy<Options> {
    let syn = (
        prop::option::of(1..=u16::MAX),
        prop::option::of(0..=14_u8),
        any::<bool>(),
    );
    let blocks = prop::collection::vec(any::<[u32; 2]>(), 0..=4);
    (syn, timestamps(), blocks)
        .prop_map(
            move |((mss, window_scale, is_sack_permitted), timestamps, blocks)| {
                let mut options = Options {
                    timestamps,
                    ..Options::default()
                };
                if is_syn {
                    return Options {
                        mss,
                        window_scale,
                        is_sack_permitted,
                        ..options
                    };
                }
                let most = if timestamps.is_some() { 3 } else { 4 };
                for [start, end] in blocks.into_iter().take(most) {
                    assert!(options.sack.push(SackBlock {
                        start: Seq(start),
                        end: Seq(end)
                    }));
                }
                options
            },
        )
        .boxed()
}

fn emitted(addresses: Addresses, header: &Header, options: &Options, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    emit(
        addresses,
        header,
        options,
        |out| out.extend(payload),
        &mut bytes,
    );
    bytes
}

/// The options that are read from these bytes, which are filled up with the end of options.
fn read(flags: Flags, option_bytes: &[u8]) -> Options {
    let header = Header {
        flags,
        ..Header::default()
    };
    let mut bytes = emitted(addresses(false), &header, &Options::default(), &[]);
    bytes.extend(option_bytes);
    bytes.resize(bytes.len().next_multiple_of(4), kind::END);
    bytes[12] = (bytes.len() as u8 / 4) << 4;
    parse(addresses(false), &bytes, Verify::Trusted)
        .unwrap()
        .options
}

proptest! {
    #[test]
    fn a_segment_is_read_as_it_was_written(
        is_v6 in any::<bool>(),
        (header, options) in headers().prop_flat_map(|header| {
            (Just(header), options(header.flags.contains(Flags::SYN)))
        }),
        payload in prop::collection::vec(any::<u8>(), 0..200),
        before in prop::collection::vec(any::<u8>(), 0..5),
    ) {
        let mut bytes = before.clone();
        emit(addresses(is_v6), &header, &options, |out| out.extend(&payload), &mut bytes);
        prop_assert!(bytes.starts_with(&before));
        prop_assert_eq!(bytes.len() - before.len(), header_bytes(&options) + payload.len());
        let segment = Segment { header, options, payload: &payload };
        let parsed = parse(addresses(is_v6), &bytes[before.len()..], Verify::Yes);
        prop_assert_eq!(parsed, Ok(segment));
    }

    #[test]
    fn a_changed_byte_is_seen_unless_the_link_is_trusted(
        is_v6 in any::<bool>(),
        payload in prop::collection::vec(any::<u8>(), 2..60),
        place in any::<prop::sample::Index>(),
        by in 1..=255_u8,
    ) {
        let mut bytes = emitted(addresses(is_v6), &Header::default(), &Options::default(), &payload);
        let place = HEADER_BYTES + place.index(payload.len());
        bytes[place] = bytes[place].wrapping_add(by);
        let parsed = parse(addresses(is_v6), &bytes, Verify::Yes);
        prop_assert_eq!(parsed, Err(DropReason::TcpChecksum));
        prop_assert!(parse(addresses(is_v6), &bytes, Verify::Trusted).is_ok());
    }

    #[test]
    fn a_device_completes_the_checksum_of_an_offloaded_segment(
        is_v6 in any::<bool>(),
        header in headers(),
        payload in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let addresses = addresses(is_v6);
        let mut bytes = Vec::new();
        let append = |out: &mut Vec<u8>| out.extend(&payload);
        emit_offloaded(addresses, &header, &Options::default(), append, &mut bytes);
        // The device sums the segment with this field in it.
        let sum = !softclock_wire::packet::ones_complement_sum(&bytes);
        bytes[16..18].copy_from_slice(&sum.to_be_bytes());
        prop_assert!(is_transport_checksum_right(addresses, softclock_wire::packet::TCP, &bytes));
    }

    #[test]
    fn any_bytes_satisfy_the_properties(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        target::check(&bytes);
        target::check_options(&bytes);
    }

    #[test]
    fn bytes_with_plausible_options_satisfy_the_properties(
        mut bytes in prop::collection::vec(any::<u8>(), 20),
        words in 0..=10_u8,
        kinds in prop::collection::vec((0..10_u8, prop_oneof![0..12_u8, 2..=2_u8, 10..=10_u8]), 10),
        filling in prop::collection::vec(any::<u8>(), 60),
    ) {
        bytes[12] = (5 + words) << 4;
        let mut options = Vec::new();
        for ((kind, length), part) in kinds.into_iter().zip(filling.chunks(6)) {
            options.extend([kind, length]);
            options.extend(&part[..usize::from(length).saturating_sub(2).min(6)]);
        }
        options.resize(40, 0);
        bytes.extend(options);
        target::check(&bytes);
    }
}

#[test]
fn lengths_that_contradict_are_refused() {
    let bytes = emitted(
        addresses(false),
        &Header::default(),
        &Options::default(),
        b"text",
    );
    for length in [0, 1, 4, 7, 15] {
        let mut bytes = bytes.clone();
        bytes[12] = length << 4;
        let parsed = parse(addresses(false), &bytes, Verify::Trusted);
        assert_eq!(parsed, Err(DropReason::TcpHeader), "{length}");
    }
    let cut = parse(addresses(false), &bytes[..19], Verify::Yes);
    assert_eq!(cut, Err(DropReason::TcpHeader));
}

#[test]
fn the_options_of_a_syn_are_in_the_order_of_linux() {
    let mut options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        is_sack_permitted: true,
        timestamps: Some(Timestamps { value: 1, echo: 2 }),
        ..Options::default()
    };
    let header = Header {
        flags: Flags::SYN,
        ..Header::default()
    };
    let bytes = emitted(addresses(false), &header, &options, &[]);
    let with_times = [
        2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7,
    ];
    assert_eq!(bytes[20..], with_times);

    options.timestamps = None;
    let bytes = emitted(addresses(false), &header, &options, &[]);
    assert_eq!(bytes[20..], [2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 7]);
}

#[test]
fn blocks_that_have_no_room_beside_time_stamps_are_left_out() {
    let mut options = Options {
        timestamps: Some(Timestamps::default()),
        ..Options::default()
    };
    for start in 0..4 {
        options.sack.push(SackBlock {
            start: Seq(start),
            end: Seq(start + 1),
        });
    }
    let bytes = emitted(addresses(false), &Header::default(), &options, &[]);
    assert_eq!((bytes.len(), header_bytes(&options)), (60, 60));
    options.sack.truncate(3);
    let parsed = parse(addresses(false), &bytes, Verify::Yes).unwrap();
    assert_eq!(parsed.options, options);
}

#[test]
fn a_malformed_option_ends_the_options_and_those_before_it_count() {
    for malformed in [
        vec![99, 0],
        vec![99, 1],
        vec![99, 41],
        vec![8, 10, 1],
        vec![99],
    ] {
        let mut bytes = vec![2, 4, 0, 100];
        bytes.extend(&malformed);
        bytes.resize(8, 99);
        bytes.extend([4, 2]);
        let expected = Options {
            mss: Some(100),
            ..Options::default()
        };
        assert_eq!(read(Flags::SYN, &bytes), expected, "{malformed:?}");
    }
}

#[test]
fn options_of_a_wrong_length_and_unknown_ones_are_skipped() {
    let bytes = [
        2, 3, 9, 3, 2, 4, 3, 1, 8, 4, 0, 0, 5, 4, 0, 0, 254, 4, 0, 0, 2, 4, 0, 0, 3, 3, 15,
    ];
    let expected = Options {
        window_scale: Some(14),
        ..Options::default()
    };
    assert_eq!(read(Flags::SYN, &bytes), expected);
}

#[test]
fn options_of_a_syn_have_no_effect_without_it() {
    let bytes = [2, 4, 5, 180, 4, 2, 3, 3, 7];
    assert_eq!(read(Flags::ACK, &bytes), Options::default());
    assert_eq!(
        read(Flags::SYN, &[5, 10, 0, 0, 0, 1, 0, 0, 0, 2]),
        Options::default()
    );
}

#[test]
fn options_behind_the_end_have_no_effect() {
    assert_eq!(read(Flags::SYN, &[0, 4, 2, 0]), Options::default());
}
