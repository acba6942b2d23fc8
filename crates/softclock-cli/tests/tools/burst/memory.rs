//! Memory is bounded, however large a capture is.

use std::io::Write;
use std::process::{Child, Stdio};

use serde_json::Value;

use super::capture::{BEGIN_NS, Format, Packet};
use super::{PCAP, burst};

/// Several times the memory that the analysis may use.
const CAPTURE_BYTES: usize = 200_000_000;

/// A reader's buffer, the longest queue, and the program itself.
const BOUND_KB: u64 = 40 << 10;

const KEPT_BYTES: usize = 96;
const PIECE_PACKETS: u64 = 50_000;
const EACH_NS: u64 = 10_000;

/// In the second case packets wait until there is no room for more.
#[test]
fn memory_does_not_grow_with_the_capture() {
    for (format, rate) in [(PCAP, "10gbit"), (Format::Pcapng { big: true }, "1kbit")] {
        let mut child = burst(["-", "--json", "--rate", rate])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let packets = write(&mut child, format);
        let peak = softclock_testing::peak_resident_kb(child.id()).expect("it runs");
        // This closes the child's input.
        let output = child.wait_with_output().expect("our own child");
        let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(figures["packets"], packets);
        assert!(peak < BOUND_KB, "{peak} KB for {format:?} at {rate}");
    }
}

/// Writes a capture while it is generated; returns its number of packets.
fn write(child: &mut Child, format: Format) -> u64 {
    let mut input = child.stdin.as_ref().expect("piped");
    let head_bytes = format.encode(&[]).len();
    let mut written = 0;
    let mut packets = 0;
    while written < CAPTURE_BYTES {
        let piece = format.encode(&piece(packets));
        let from = if packets == 0 { 0 } else { head_bytes };
        input.write_all(&piece[from..]).expect("it reads");
        written += piece.len();
        packets += PIECE_PACKETS;
    }
    packets
}

/// Packets with lengths that differ from those before, so that none can be shared.
fn piece(begin: u64) -> Vec<Packet> {
    let packet = |index: u64| Packet {
        at_ns: BEGIN_NS + index * EACH_NS,
        bytes: 60 + (index % 1_000) as u32,
        data: vec![0; KEPT_BYTES],
    };
    (begin..begin + PIECE_PACKETS).map(packet).collect()
}
