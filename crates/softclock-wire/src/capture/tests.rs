//! Tests of captures built byte by byte as the formats' specifications describe, and properties for any input.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

mod encoder;
#[path = "target.rs"]
mod target;

/// The end of a capture: complete, in the middle of a block, or an error.
#[derive(Debug, PartialEq)]
enum End {
    Whole,
    Cut,
    Wrong(CaptureError),
}

/// The time in nanoseconds, the original length, and the captured bytes of a packet.
type Told = (Option<u64>, u32, Vec<u8>);

fn decoded(capture: &[u8]) -> (Vec<Told>, End) {
    let mut packets = Vec::new();
    let mut decoder = Decoder::new();
    let mut rest = capture;
    loop {
        match decoder.decode(rest) {
            Ok(Decoded::Packet(packet, used)) => {
                let at = packet.at.map(Instant::as_ns);
                packets.push((at, packet.original_bytes, packet.data.to_vec()));
                rest = &rest[used..];
            }
            Ok(Decoded::Other(used)) => rest = &rest[used..],
            Ok(Decoded::More(_)) if rest.is_empty() => return (packets, End::Whole),
            Ok(Decoded::More(_)) => return (packets, End::Cut),
            Err(error) => return (packets, End::Wrong(error)),
        }
    }
}

/// Writes numbers in one byte order.
struct Writer {
    big: bool,
    bytes: Vec<u8>,
}

impl Writer {
    fn new(big: bool) -> Self {
        let bytes = Vec::new();
        Self { big, bytes }
    }

    fn u16(mut self, number: u16) -> Self {
        self.bytes.extend(match self.big {
            true => number.to_be_bytes(),
            false => number.to_le_bytes(),
        });
        self
    }

    fn u32(mut self, number: u32) -> Self {
        self.bytes.extend(match self.big {
            true => number.to_be_bytes(),
            false => number.to_le_bytes(),
        });
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }

    fn block(self, kind: u32, body: impl FnOnce(Self) -> Self) -> Self {
        let mut inner = body(Self::new(self.big)).bytes;
        inner.resize(inner.len().next_multiple_of(4), 0);
        let length = inner.len() as u32 + 12;
        self.u32(kind).u32(length).bytes(&inner).u32(length)
    }

    fn section(self) -> Self {
        self.block(0x0a0d_0d0a, |body| {
            body.u32(0x1a2b_3c4d).u16(1).u16(0).bytes(&[0xff; 8])
        })
    }

    fn interface(self, snap: u32, options: impl FnOnce(Self) -> Self) -> Self {
        self.block(1, |body| options(body.u16(1).u16(0).u32(snap)))
    }

    fn enhanced(self, interface: u32, ticks: u64, original: u32, data: &[u8]) -> Self {
        self.block(6, |body| {
            let body = body
                .u32(interface)
                .u32((ticks >> 32) as u32)
                .u32(ticks as u32);
            body.u32(data.len() as u32).u32(original).bytes(data)
        })
    }

    fn pcap(self, magic: u32) -> Self {
        let header = self.u32(magic).u16(2).u16(4).u32(0).u32(0);
        header.u32(96).u32(1)
    }

    fn record(self, seconds: u32, fraction: u32, original: u32, data: &[u8]) -> Self {
        let header = self.u32(seconds).u32(fraction).u32(data.len() as u32);
        header.u32(original).bytes(data)
    }
}

#[test]
fn pcap_in_both_orders_and_units() {
    for big in [false, true] {
        for (magic, ns) in [(0xa1b2_c3d4, 7_000), (0xa1b2_3c4d, 7)] {
            let writer = Writer::new(big).pcap(magic);
            let capture = writer.record(3, 7, 1500, b"abc").record(4, 0, 60, b"");
            let expected = [
                (Some(3_000_000_000 + ns), 1500, b"abc".to_vec()),
                (Some(4_000_000_000), 60, Vec::new()),
            ];
            let (packets, end) = decoded(&capture.bytes);
            assert_eq!((packets.as_slice(), end), (&expected[..], End::Whole));
        }
    }
}

#[test]
fn pcapng_in_both_orders_with_all_kinds_of_packets() {
    for big in [false, true] {
        let writer = Writer::new(big).section();
        let writer = writer.interface(0, |options| options);
        let writer = writer.interface(4, |options| options.u16(9).u16(1).bytes(&[9, 0, 0, 0]));
        let writer = writer.block(0x0bad, |body| body.bytes(b"unknown"));
        let writer = writer.enhanced(0, 5, 1500, b"abcde");
        let writer = writer.enhanced(1, 1 << 33, 60, b"");
        let writer = writer.block(2, |body| {
            let body = body.u16(1).u16(99).u32(0).u32(8).u32(1).u32(64);
            body.bytes(b"x")
        });
        let capture = writer.block(3, |body| body.u32(3).bytes(b"abc"));
        let expected = [
            (Some(5_000), 1500, b"abcde".to_vec()),
            (Some(1 << 33), 60, Vec::new()),
            (Some(8), 64, b"x".to_vec()),
            (None, 3, b"abc".to_vec()),
        ];
        let (packets, end) = decoded(&capture.bytes);
        assert_eq!((packets.as_slice(), end), (&expected[..], End::Whole));
    }
}

#[test]
fn sections_have_their_own_interfaces_and_order() {
    let first = Writer::new(false).section().interface(0, |options| options);
    let first = first.enhanced(0, 1, 60, b"").bytes;
    let second = Writer::new(true).section();
    let second = second.interface(0, |options| {
        options.u16(9).u16(1).bytes(&[3, 0, 0, 0]).u16(0).u16(0)
    });
    let second = second.enhanced(0, 1, 60, b"").bytes;
    let (packets, end) = decoded(&[first.clone(), second].concat());
    let times: Vec<_> = packets.iter().map(|packet| packet.0).collect();
    assert_eq!(
        (times, end),
        ([Some(1_000), Some(1_000_000)].to_vec(), End::Whole)
    );

    let third = Writer::new(false).section().enhanced(0, 1, 60, b"").bytes;
    let (packets, end) = decoded(&[first, third].concat());
    assert_eq!(packets.len(), 1);
    assert_eq!(end, End::Wrong(CaptureError::Interface(0)));
}

#[test]
fn resolutions_and_offsets() {
    let in_order = |big: bool, resolution: u8, offset_s: i64, ticks: u64| {
        let offset = match big {
            true => offset_s.to_be_bytes(),
            false => offset_s.to_le_bytes(),
        };
        let capture = Writer::new(big).section().interface(0, |options| {
            let options = options.u16(2).u16(3).bytes(b"lo\0\0");
            let options = options.u16(9).u16(1).bytes(&[resolution, 0, 0, 0]);
            options.u16(14).u16(8).bytes(&offset)
        });
        let (packets, _) = decoded(&capture.enhanced(0, ticks, 60, b"").bytes);
        packets[0].0.unwrap()
    };
    let at = |resolution, offset_s, ticks| {
        let [little, big] = [false, true].map(|big| in_order(big, resolution, offset_s, ticks));
        assert_eq!(little, big);
        big
    };
    assert_eq!(at(6, 0, 1_500_000), 1_500_000_000);
    assert_eq!(at(9, 0, 1_500_000), 1_500_000);
    assert_eq!(at(12, 0, 1_999), 1);
    assert_eq!(at(127, 0, u64::MAX), 0);
    assert_eq!(at(0, 0, 7), 7_000_000_000);
    assert_eq!(at(0x80 | 10, 0, 1536), 1_500_000_000);
    assert_eq!(at(0xff, 0, u64::MAX), 0);
    assert_eq!(at(6, 2, 1), 2_000_001_000);
    assert_eq!(at(6, -2, 3_000_000), 1_000_000_000);
    assert_eq!(at(6, -2, 1_000_000), 0, "before the origin");
    assert_eq!(at(0, i64::MAX, u64::MAX), u64::MAX);
}

#[test]
fn what_is_wrong_is_told() {
    let wrong = |bytes: &[u8]| match decoded(bytes) {
        (_, End::Wrong(error)) => error,
        (_, end) => panic!("{end:?}"),
    };
    assert_eq!(wrong(b"GET / HTTP/1.1\r\n"), CaptureError::NotACapture);
    assert_eq!(wrong(&[0; 4]), CaptureError::NotACapture);
    assert_eq!(wrong(b"\x1f\x8b\x08\0"), CaptureError::Compressed);
    let magic = Writer::new(false).u32(0xa1b2_c3d4);
    assert_eq!(
        wrong(&magic.u16(3).u16(1).bytes(&[0; 16]).bytes),
        CaptureError::Version(3, 1)
    );
    let long = Writer::new(false).pcap(0xa1b2_c3d4);
    let long = long.u32(0).u32(0).u32(300_000).u32(60);
    assert_eq!(wrong(&long.bytes), CaptureError::Length(300_000));
    for length in [0, 8, 13, MOST_BLOCK_BYTES + 4, u32::MAX] {
        let block = Writer::new(false).section().u32(6).u32(length).u32(0);
        assert_eq!(wrong(&block.bytes), CaptureError::Length(length));
    }
    let trailer = Writer::new(false).section().u32(7).u32(12).u32(16);
    assert_eq!(wrong(&trailer.bytes), CaptureError::Trailer(12, 16));
    let short = Writer::new(false).section().block(6, |body| body.u32(0));
    assert_eq!(wrong(&short.bytes), CaptureError::Length(16));
    let order = Writer::new(false).u32(0x0a0d_0d0a).u32(28).u32(0);
    assert_eq!(wrong(&order.bytes), CaptureError::NotACapture);
}

#[test]
fn every_cut_is_told_but_between_packets() {
    let pcap = Writer::new(false).pcap(0xa1b2_3c4d);
    let pcap = pcap.record(1, 1, 60, b"abcd").record(1, 2, 60, b"efgh");
    let pcapng = Writer::new(true).section().interface(0, |options| options);
    let pcapng = pcapng
        .enhanced(0, 1, 60, b"abcd")
        .enhanced(0, 2, 60, b"efgh");
    for (whole, begin, each) in [(pcap.bytes, 24, 20), (pcapng.bytes, 48, 36)] {
        for length in 1..whole.len() {
            let (packets, end) = decoded(&whole[..length]);
            assert_eq!(packets.len(), length.saturating_sub(begin) / each);
            let is_between = length >= begin && (length - begin).is_multiple_of(each)
                // The end of the section header of pcapng, before the interface description.
                || each == 36 && length == 28;
            let expected = if is_between { End::Whole } else { End::Cut };
            assert_eq!(end, expected, "{length} bytes");
        }
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        target::check(&bytes);
    }

    #[test]
    fn any_change_of_a_capture(changes in prop::collection::vec((0usize..400, any::<u8>()), 1..6), big: bool, ng: bool) {
        let writer = Writer::new(big);
        let mut bytes = match ng {
            true => {
                let writer = writer.section().interface(96, |options| options.u16(9).u16(1).bytes(&[0x8a, 0, 0, 0]));
                let writer = writer.enhanced(0, 1, 60, b"abcd").section().interface(0, |options| options);
                writer.block(3, |body| body.u32(5).bytes(b"abcde")).enhanced(0, 9, 1500, &[7; 40]).bytes
            }
            false => writer.pcap(0xa1b2_3c4d).record(1, 1, 60, b"abcd").record(1, 2, 60, &[7; 96]).bytes,
        };
        for (place, byte) in changes {
            let length = bytes.len();
            bytes[place % length] = byte;
        }
        target::check(&bytes);
    }
}
