//! Segments that the device cuts and completes: the same on the wire as without.

use alloc::rc::Rc;
use core::cell::RefCell;

use proptest::prelude::*;
use softclock_wire::packet::{Headers, IPV4, complete_checksum, segments};

use super::transfer::{bad_path, exchange};
use super::*;
use crate::ip;
use crate::link::Header;
use crate::stack::Frame;

/// What a device puts on the wire for a frame: its segments, with their checksums. Or the whole frame with a checksum,
/// as a virtual link hands it over.
pub(super) fn on_the_wire(frame: &Frame, whole: bool) -> Vec<Vec<u8>> {
    let complete = |mut bytes: Vec<u8>| {
        if let Some(checksum) = frame.offload.checksum {
            assert!(
                complete_checksum(&mut bytes, checksum),
                "it is in the frame"
            );
        }
        bytes
    };
    if whole || frame.offload.segmentation.is_none() {
        return vec![complete(frame.bytes.clone())];
    }
    let headers = Headers::of_frame(&frame.bytes);
    let cut = segments(&frame.bytes, &headers, &frame.offload).expect("it fits the frame");
    cut.map(complete).collect()
}

/// The frame without the identification of its IP packet, which a cut frame counts otherwise.
fn without_identification(frame: &[u8]) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    if frame.get(12..14) == Some(&IPV4.to_be_bytes()) {
        bytes[18..20].fill(0);
        bytes[24..26].fill(0);
    }
    bytes
}

/// The frames of an exchange of two streams over a bad path, and the longest that was not cut.
fn trace(offloads: [bool; 2], seed: u64, lengths: [usize; 2]) -> (Vec<Vec<u8>>, usize) {
    let mut pair = Pair::with(|number, settings| settings.offloads_tcp = offloads[number]);
    let ids = pair.connected();
    let frames = Rc::new(RefCell::new(Vec::new()));
    let mut path = bad_path(seed);
    let seen = frames.clone();
    pair.fate = alloc::boxed::Box::new(move |number, frame| {
        seen.borrow_mut().push(without_identification(frame));
        path(number, frame)
    });
    assert_streams(&mut pair, ids, lengths, seed);
    let frames = frames.take();
    let longest = frames.iter().map(Vec::len).max().unwrap_or(0);
    (frames, longest)
}

fn assert_streams(pair: &mut Pair, ids: [TcpId; 2], lengths: [usize; 2], seed: u64) {
    let streams = lengths.map(stream);
    let both = [&streams[0][..], &streams[1][..]];
    let read = exchange(pair, ids, both, Duration::from_secs(3600));
    assert!(
        read[0] == streams[1] && read[1] == streams[0],
        "seed {seed}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Each segment leaves at the same time, with the same bytes, and so each loss is found and repaired in the same
    /// way.
    #[test]
    fn a_device_that_cuts_puts_the_same_segments_on_the_wire(
        seed in 1..u64::MAX,
        lengths in [0..200_000usize, 0..60_000usize],
    ) {
        let (plain, _) = trace([false, false], seed, lengths);
        let (cut, longest) = trace([true, true], seed, lengths);
        prop_assert!(longest <= Header::BYTES + 1500);
        prop_assert_eq!(plain.len(), cut.len());
        prop_assert!(plain == cut);
    }

    /// Whole trains get lost, repeated, delayed and damaged: a receiver takes those that arrive as they are.
    #[test]
    fn long_segments_that_arrive_whole_carry_the_same_streams(
        seed in 1..u64::MAX,
        lengths in [0..200_000usize, 0..60_000usize],
    ) {
        for architecture in Architecture::ALL {
            let mut pair = Pair::with(|_, settings| {
                settings.architecture = architecture;
                settings.offloads_tcp = true;
            });
            pair.arrives_whole = true;
            let ids = pair.connected();
            pair.fate = bad_path(seed);
            assert_streams(&mut pair, ids, lengths, seed);
        }
    }
}

/// A frame for the device has the payload of many segments, and the packets that it becomes are as long as the path
/// allows.
#[test]
fn a_bulk_transfer_leaves_in_few_frames() {
    let frames_of = |arrives_whole: bool| {
        let mut pair = Pair::with(|_, settings| settings.offloads_tcp = true);
        pair.arrives_whole = arrives_whole;
        let ids = pair.connected();
        let before = pair.sent;
        let longest = Rc::new(RefCell::new(0));
        let seen = longest.clone();
        pair.fate = alloc::boxed::Box::new(move |_, frame| {
            let packet = ip::parse(&frame[Header::BYTES..]).expect("it is whole");
            let mut longest = seen.borrow_mut();
            *longest = packet.payload.len().max(*longest);
            vec![Duration::ZERO]
        });
        assert_streams(&mut pair, ids, [1_000_000, 0], 0);
        let segments = pair.hosts[0].tcp_counts().segments_sent;
        let longest = *longest.borrow();
        (
            pair.sent[0] - before[0],
            pair.sent[1] - before[1],
            longest,
            segments,
        )
    };
    let (cut, _, longest, segments) = frames_of(false);
    assert_eq!(longest, 1480);
    // All segments count, those of the handshake included.
    assert_eq!(segments, cut as u64 + 2);
    let (whole, acknowledgments, longest, _) = frames_of(true);
    assert!(longest > 10_000, "{longest}");
    assert!(whole * 2 < cut, "{whole} of {cut}");
    assert!(acknowledgments * 2 < cut, "{acknowledgments} of {cut}");
}

/// After the path has become narrower, trains are cut into shorter segments, also those that are sent again.
#[test]
fn trains_keep_to_the_mtu_of_the_path() {
    let mut pair = Pair::with(|_, settings| settings.offloads_tcp = true);
    let [client, server] = pair.connected();
    let bytes = stream(200_000);
    pair.write(0, client, &bytes[..20_000]);
    pair.settle();
    // Packets of more than 1000 bytes are lost, and a router says so once.
    pair.flying
        .retain(|(_, _, frame)| frame.len() <= Header::BYTES + 1000);
    let now = pair.now;
    let endpoint = pair.hosts[0].tcp.connections.get_mut(client.0).unwrap();
    let events = endpoint.connection.on_path_mtu(1000);
    pair.hosts[0].tcp_apply(now, client.0, events);
    pair.fate = alloc::boxed::Box::new(|_, frame| {
        assert!(frame.len() <= Header::BYTES + 1000, "{}", frame.len());
        vec![Duration::ZERO]
    });
    pair.transfer([client, server], &bytes, 20_000);
}

/// Frames of AF_XDP are single segments. Those of one turn wake the owner once, and are acknowledged together.
#[test]
fn a_batch_of_segments_costs_one_wake_up_and_one_acknowledgment() {
    let mut pair = Pair::new(Architecture::SoftLrp);
    let [client, server] = pair.connected();
    assert!(pair.hosts[1].tcp_wait(pair.now, server, Interest::READABLE));
    pair.write(0, client, &stream(8 * 1448));
    pair.settle();
    assert_eq!(pair.flying.len(), 8);
    let before = pair.sent[1];
    pair.step(pair.now + ms(100));
    let woken = TcpWoken::Connection(server);
    assert_eq!(pair.hosts[1].tcp_next_woken(), Some(woken));
    assert_eq!(pair.hosts[1].tcp_next_woken(), None);
    let mut read = 0;
    while let Ok(bytes) = pair.read(1, server) {
        read += bytes.len();
    }
    pair.settle();
    assert_eq!((read, pair.sent[1] - before), (8 * 1448, 1));
}
