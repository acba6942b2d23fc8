//! Captures made byte by byte.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A packet: its time, its length, and its captured bytes.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) at_ns: u64,
    pub(super) bytes: u32,
    pub(super) data: Vec<u8>,
}

/// Packets of a length at these times, of which nothing was kept.
pub(super) fn packets(times_ns: impl IntoIterator<Item = u64>, bytes: u32) -> Vec<Packet> {
    let packet = |at_ns| Packet {
        at_ns,
        bytes,
        data: Vec::new(),
    };
    times_ns.into_iter().map(packet).collect()
}

/// Bursts of `size` packets of 9 KB at 10 Gbit/s, with as much time between them as they take (Table II).
pub(super) fn bursts(size: u64) -> Vec<Packet> {
    let slot = |index: u64| index / size * size * 2 + index % size;
    packets(
        (0..size * 20).map(|index| BEGIN_NS + slot(index) * 7_200),
        9_000,
    )
}

/// Formats that a capture can have.
#[derive(Clone, Copy, Debug)]
pub(super) enum Format {
    PcapMicroseconds { big: bool },
    PcapNanoseconds { big: bool },
    Pcapng { big: bool },
}

impl Format {
    /// The formats that hold nanoseconds.
    pub(super) const EXACT: [Self; 4] = [
        Self::PcapNanoseconds { big: false },
        Self::PcapNanoseconds { big: true },
        Self::Pcapng { big: false },
        Self::Pcapng { big: true },
    ];

    pub(super) fn encode(self, packets: &[Packet]) -> Vec<u8> {
        match self {
            Self::PcapMicroseconds { big } => pcap(Order { big }, 0xa1b2_c3d4, 1_000, packets),
            Self::PcapNanoseconds { big } => pcap(Order { big }, 0xa1b2_3c4d, 1, packets),
            Self::Pcapng { big } => pcapng(Order { big }, packets),
        }
    }
}

#[derive(Clone, Copy)]
struct Order {
    big: bool,
}

impl Order {
    fn words(self, words: &[u32]) -> Vec<u8> {
        let bytes = |word: &u32| match self.big {
            true => word.to_be_bytes(),
            false => word.to_le_bytes(),
        };
        words.iter().flat_map(bytes).collect()
    }

    fn halves(self, first: u16, second: u16) -> Vec<u8> {
        let (first, second) = (u32::from(first), u32::from(second));
        self.words(&[match self.big {
            true => first << 16 | second,
            false => second << 16 | first,
        }])
    }

    fn block(self, kind: u32, mut body: Vec<u8>) -> Vec<u8> {
        body.resize(body.len().next_multiple_of(4), 0);
        let length = body.len() as u32 + 12;
        [self.words(&[kind, length]), body, self.words(&[length])].concat()
    }
}

fn pcap(order: Order, magic: u32, unit_ns: u64, packets: &[Packet]) -> Vec<u8> {
    let mut capture = order.words(&[magic]);
    capture.extend(order.halves(2, 4));
    capture.extend(order.words(&[0, 0, 96, 1]));
    for packet in packets {
        let seconds = packet.at_ns / 1_000_000_000;
        let fraction = packet.at_ns % 1_000_000_000 / unit_ns;
        let kept = packet.data.len() as u32;
        capture.extend(order.words(&[seconds as u32, fraction as u32, kept, packet.bytes]));
        capture.extend(&packet.data);
    }
    capture
}

/// With an interface of microseconds without packets, and one of nanoseconds; a name, and a block of an unknown type.
fn pcapng(order: Order, packets: &[Packet]) -> Vec<u8> {
    let section = [
        order.words(&[0x1a2b_3c4d]),
        order.halves(1, 0),
        vec![0xff; 8],
    ]
    .concat();
    let interface = [order.halves(1, 0), order.words(&[96])].concat();
    let resolution = [order.halves(9, 1), vec![9, 0, 0, 0]].concat();
    let mut capture = [
        order.block(0x0a0d_0d0a, section),
        order.block(1, interface.clone()),
        order.block(1, [interface, resolution].concat()),
        order.block(0x4000_0bad, b"unknown".to_vec()),
    ]
    .concat();
    for packet in packets {
        let kept = packet.data.len() as u32;
        let (high, low) = ((packet.at_ns >> 32) as u32, packet.at_ns as u32);
        let mut body = order.words(&[1, high, low, kept, packet.bytes]);
        body.extend(&packet.data);
        capture.extend(order.block(6, body));
    }
    capture
}

/// A directory with files.
pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("a writable directory");
        path
    }

    pub(super) fn read(&self, name: &str) -> String {
        read(&self.path(name))
    }
}

pub(super) fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a file of text")
}

/// In 2023, where floating point no longer holds nanoseconds.
pub(super) const BEGIN_NS: u64 = 1_700_000_000_000_000_000;
