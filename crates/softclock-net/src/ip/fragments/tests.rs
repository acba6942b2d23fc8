//! Tests of single rules of reassembly, and a comparison with a model that marks each byte.

use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::ip::{fragments, parse};

const SECOND_NS: u64 = 1_000_000_000;
const UDP: u8 = 17;

fn at(seconds: u64) -> Instant {
    Instant::from_ns(seconds * SECOND_NS)
}

/// A fragment of an IPv4 packet from host `source`.
fn v4(
    source: u8,
    identification: u32,
    offset: usize,
    has_more: bool,
    payload: &[u8],
) -> Packet<'_> {
    Packet {
        addresses: Addresses {
            source: [10, 0, 0, source].into(),
            destination: [10, 0, 1, 1].into(),
        },
        protocol: UDP,
        hop_limit: 64,
        traffic_class: 0,
        fragment: Some(Fragment {
            identification,
            offset,
            has_more,
        }),
        has_fragment_header: false,
        payload,
        header_bytes: 20,
    }
}

/// A fragment of an IPv6 packet.
fn v6(protocol: u8, offset: usize, has_more: bool, payload: &[u8]) -> Packet<'_> {
    Packet {
        addresses: Addresses {
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
        },
        protocol,
        has_fragment_header: true,
        header_bytes: 48,
        ..v4(1, 1, offset, has_more, payload)
    }
}

fn small() -> ReassemblyLimits {
    ReassemblyLimits {
        packets: 8,
        bytes: 4 * 2 * (PART_BYTES + 64),
        fragments_of_packet: 3,
        ..ReassemblyLimits::default()
    }
}

#[test]
fn fragments_in_any_order_become_the_packet() {
    let payload: Vec<u8> = (0..20).collect();
    let mut reassembly = Reassembly::default();
    for (order, (offset, end)) in [(16, 20), (0, 8), (8, 16)].into_iter().enumerate() {
        let fragment = v4(1, 1, offset, end < 20, &payload[offset..end]);
        let whole = reassembly.on_fragment(at(0), &fragment).unwrap();
        assert_eq!(whole.is_some(), order == 2);
        if let Some(whole) = whole {
            assert_eq!(whole.payload, payload);
            assert_eq!(whole.as_packet().fragment, None);
        }
    }
    assert!(reassembly.is_empty());
    assert_eq!(reassembly.next_timeout(), None);
}

#[test]
fn a_packet_that_is_no_fragment_is_returned() {
    let packet = Packet {
        fragment: None,
        ..v4(1, 1, 0, false, b"whole")
    };
    let mut reassembly = Reassembly::default();
    let whole = reassembly.on_fragment(at(0), &packet).unwrap().unwrap();
    assert_eq!(whole.as_packet(), packet);
}

#[test]
fn packets_with_other_addresses_numbers_or_protocols_are_apart() {
    let first = v4(1, 1, 0, true, &[0; 8]);
    let mut others = [
        v4(2, 1, 8, false, &[0; 8]),
        v4(1, 2, 8, false, &[0; 8]),
        first,
    ];
    others[2] = Packet {
        protocol: 6,
        ..v4(1, 1, 8, false, &[0; 8])
    };
    let mut reassembly = Reassembly::default();
    for packet in [first].iter().chain(&others) {
        assert_eq!(reassembly.on_fragment(at(0), packet), Ok(None));
    }
    assert_eq!(reassembly.len(), 4);
}

#[test]
fn a_duplicate_is_ignored() {
    let mut reassembly = Reassembly::default();
    let fragment = v4(1, 1, 8, false, b"last");
    assert_eq!(reassembly.on_fragment(at(0), &fragment), Ok(None));
    let bytes = reassembly.bytes();
    assert_eq!(reassembly.on_fragment(at(1), &fragment), Ok(None));
    assert_eq!(reassembly.bytes(), bytes);
    let first = v4(1, 1, 0, true, b"8 bytes.");
    assert!(reassembly.on_fragment(at(1), &first).unwrap().is_some());
}

#[test]
fn an_overlap_refuses_the_packet_until_its_time_is_over() {
    let overlap = Err(DropReason::FragmentOverlap);
    let mut reassembly = Reassembly::default();
    let first = v4(1, 1, 0, true, &[0; 16]);
    assert_eq!(reassembly.on_fragment(at(0), &first), Ok(None));
    let changed = v4(1, 1, 0, true, &[1; 16]);
    assert_eq!(reassembly.on_fragment(at(1), &changed), overlap);
    assert_eq!((reassembly.len(), reassembly.bytes()), (1, 0));
    assert_eq!(reassembly.on_fragment(at(29), &first), overlap);
    let last = v4(1, 1, 16, false, &[0; 8]);
    assert_eq!(reassembly.on_fragment(at(29), &last), overlap);

    // The packet was counted as an overlap, so it does not time out besides.
    assert_eq!(reassembly.expire(at(30), drop), 0);
    assert_eq!(reassembly.on_fragment(at(30), &first), Ok(None));
    assert!(reassembly.on_fragment(at(30), &last).unwrap().is_some());
}

#[test]
fn payload_behind_the_end_refuses_the_packet() {
    let invalid = Err(DropReason::FragmentInvalid);
    let last = v4(1, 1, 16, false, &[0; 8]);
    let behind = v4(1, 1, 24, true, &[0; 8]);
    let other_last = v4(1, 1, 8, false, &[0; 8]);
    let last_with_more = v4(1, 1, 16, true, &[0; 8]);
    for (before, after) in [
        (last, behind),
        (behind, last),
        (last, other_last),
        (other_last, last),
        (last, last_with_more),
        (last_with_more, last),
    ] {
        let mut reassembly = Reassembly::default();
        assert_eq!(reassembly.on_fragment(at(0), &before), Ok(None));
        assert_eq!(reassembly.on_fragment(at(0), &after), invalid);
        assert_eq!(reassembly.on_fragment(at(0), &before), invalid);
        assert_eq!(reassembly.bytes(), 0);
    }
}

#[test]
fn an_impossible_fragment_takes_no_memory() {
    let mut reassembly = Reassembly::default();
    for fragment in [
        v4(1, 1, 0, true, &[]),
        v4(1, 1, 8, false, &[]),
        v4(1, 1, 0, true, &[0; 7]),
        v4(1, 1, 4, true, &[0; 8]),
        v4(1, 1, 65_528, false, &[0; 8]),
        v4(1, 1, usize::MAX - 7, false, &[0; 8]),
    ] {
        let result = reassembly.on_fragment(at(0), &fragment);
        assert_eq!(result, Err(DropReason::FragmentInvalid));
    }
    assert!(reassembly.is_empty());
}

#[test]
fn incomplete_packets_time_out() {
    let mut reassembly = Reassembly::default();
    for second in 0..3 {
        let fragment = v4(1, second, 0, true, &[0; 8]);
        assert_eq!(
            reassembly.on_fragment(at(second.into()), &fragment),
            Ok(None)
        );
    }
    // The time counts from the first fragment that arrived.
    let more = v4(1, 0, 8, true, &[0; 8]);
    assert_eq!(reassembly.on_fragment(at(20), &more), Ok(None));
    assert_eq!(reassembly.next_timeout(), Some(at(30)));
    assert_eq!(reassembly.expire(at(29), drop), 0);
    let mut first_fragments = Vec::new();
    let expired = reassembly.expire(at(31), |packet| first_fragments.push(packet));
    assert_eq!(expired, 2);
    for (packet, number) in first_fragments.iter().zip(0..) {
        assert_eq!(parse(packet), Ok(v4(1, number, 0, true, &[0; 8])));
    }
    assert_eq!(first_fragments.len(), 2);
    assert_eq!(reassembly.next_timeout(), Some(at(32)));
    assert_eq!(reassembly.expire(at(100), drop), 1);
    assert_eq!((reassembly.next_timeout(), reassembly.bytes()), (None, 0));
}

#[test]
fn a_source_that_needs_more_gives_up_its_own_oldest_packet() {
    let mut reassembly = Reassembly::new(small());
    let other = v4(2, 1, 0, true, &[0; 8]);
    assert_eq!(reassembly.on_fragment(at(0), &other), Ok(None));
    for identification in 0..5 {
        let fragment = v4(1, identification, 0, true, &[0; 8]);
        assert_eq!(reassembly.on_fragment(at(1), &fragment), Ok(None));
    }
    assert_eq!((reassembly.len(), reassembly.take_evicted()), (3, 3));
    assert_eq!(reassembly.take_evicted(), 0);
    let last = v4(2, 1, 8, false, &[0; 8]);
    assert!(reassembly.on_fragment(at(1), &last).unwrap().is_some());
}

#[test]
fn the_oldest_packet_gives_way_where_all_memory_is_in_use() {
    let mut reassembly = Reassembly::new(small());
    for source in 0..8 {
        let fragment = v4(source, 1, 0, true, &[0; 8]);
        assert_eq!(
            reassembly.on_fragment(at(source.into()), &fragment),
            Ok(None)
        );
    }
    let ninth = v4(8, 1, 0, true, &[0; 8]);
    assert_eq!(reassembly.on_fragment(at(8), &ninth), Ok(None));
    assert_eq!((reassembly.len(), reassembly.take_evicted()), (8, 1));
    for source in 1..=8 {
        let last = v4(source, 1, 8, false, &[0; 8]);
        let whole = reassembly.on_fragment(at(8), &last).unwrap();
        assert!(whole.is_some(), "the packet of source {source}");
    }
    assert!(reassembly.is_empty());
}

#[test]
fn a_packet_longer_than_its_share_is_refused_and_frees_its_memory() {
    let memory = Err(DropReason::FragmentMemory);
    let mut reassembly = Reassembly::new(small());
    let first = v4(1, 1, 0, true, &[0; 64]);
    assert_eq!(reassembly.on_fragment(at(0), &first), Ok(None));
    let second = v4(1, 1, 64, true, &[0; 72]);
    assert_eq!(reassembly.on_fragment(at(0), &second), memory);
    assert_eq!((reassembly.len(), reassembly.bytes()), (1, 0));
    let last = v4(1, 1, 64, false, &[0; 8]);
    assert_eq!(reassembly.on_fragment(at(0), &last), memory);
}

#[test]
fn a_packet_of_too_many_fragments_is_refused() {
    let limits = ReassemblyLimits {
        fragments_of_packet: 3,
        ..ReassemblyLimits::default()
    };
    let mut reassembly = Reassembly::new(limits);
    for offset in [0, 16, 32] {
        let fragment = v4(1, 1, offset, true, &[0; 8]);
        assert_eq!(reassembly.on_fragment(at(0), &fragment), Ok(None));
    }
    let fourth = v4(1, 1, 48, true, &[0; 8]);
    let result = reassembly.on_fragment(at(0), &fourth);
    assert_eq!(result, Err(DropReason::FragmentMemory));
}

#[test]
fn limits_of_zero_refuse_all_fragments() {
    let limits = ReassemblyLimits {
        packets: 0,
        ..ReassemblyLimits::default()
    };
    let mut reassembly = Reassembly::new(limits);
    let result = reassembly.on_fragment(at(0), &v4(1, 1, 0, true, &[0; 8]));
    assert_eq!(result, Err(DropReason::FragmentMemory));
}

#[test]
fn the_longest_packet_fits_the_default_limits() {
    let longest = vec![7; 65_535 - 20];
    let mut reassembly = Reassembly::default();
    let mut whole = None;
    for (number, part) in longest.chunks(1232).enumerate() {
        let fragment = v4(1, 1, number * 1232, part.len() == 1232, part);
        whole = reassembly.on_fragment(at(0), &fragment).unwrap();
    }
    assert_eq!(whole.unwrap().payload, longest);
}

#[test]
fn the_first_fragment_decides_the_fields_of_an_ipv6_packet() {
    // The protocol in other fragments than the first does not count (RFC 8200, 4.5).
    let last = Packet {
        hop_limit: 3,
        ..v6(6, 8, false, b"load")
    };
    let mut reassembly = Reassembly::default();
    assert_eq!(reassembly.on_fragment(at(0), &last), Ok(None));
    let first = v6(UDP, 0, true, b"the pay-");
    let whole = reassembly.on_fragment(at(0), &first).unwrap().unwrap();
    assert_eq!((whole.protocol, whole.hop_limit), (UDP, 64));
    assert_eq!(whole.payload, b"the pay-load");
}

#[test]
fn extension_headers_in_fragments_are_skipped_once_the_packet_is_whole() {
    let whole = |options: &[u8; 8]| {
        let mut reassembly = Reassembly::default();
        assert_eq!(
            reassembly.on_fragment(at(0), &v6(60, 0, true, options)),
            Ok(None)
        );
        let result = reassembly.on_fragment(at(0), &v6(60, 8, false, b"payload"));
        assert!(reassembly.is_empty());
        result
    };
    let skipped = whole(&[UDP, 0, 1, 4, 0, 0, 0, 0]).unwrap().unwrap();
    assert_eq!(
        (skipped.protocol, &skipped.payload[..]),
        (UDP, &b"payload"[..])
    );
    assert_eq!(
        whole(&[UDP, 0, 0x80, 4, 0, 0, 0, 0]),
        Err(DropReason::IpOption)
    );
    assert_eq!(whole(&[44, 0, 1, 4, 0, 0, 0, 0]), Err(DropReason::IpHeader));
}

#[test]
fn the_mark_of_congestion_survives() {
    let whole = |first: u8, last: u8| {
        let mut reassembly = Reassembly::default();
        let first = Packet {
            traffic_class: first,
            ..v4(1, 1, 0, true, &[0; 8])
        };
        let last = Packet {
            traffic_class: last,
            ..v4(1, 1, 8, false, &[0; 8])
        };
        assert_eq!(reassembly.on_fragment(at(0), &first), Ok(None));
        let whole = reassembly.on_fragment(at(0), &last);
        whole.map(|whole| whole.unwrap().traffic_class)
    };
    assert_eq!(whole(0xb8, 0), Ok(0xb8));
    assert_eq!(whole(0b10, 0b11), Ok(0b11));
    assert_eq!(whole(0b11, 0b01), Ok(0b11));
    assert_eq!(whole(0b11, 0), Err(DropReason::FragmentInvalid));
    assert_eq!(whole(0, 0b11), Err(DropReason::FragmentInvalid));
}

/// A packet of the model: a mark for each byte, and the fragments for the recognition of duplicates.
struct Model {
    deadline: Instant,
    fragments: Vec<(usize, Vec<u8>, bool)>,
    marks: Vec<bool>,
    end: Option<usize>,
    refused: Option<DropReason>,
}

impl Model {
    const BYTES: usize = 256;

    fn new(deadline: Instant) -> Self {
        Self {
            deadline,
            fragments: Vec::new(),
            marks: vec![false; Self::BYTES],
            end: None,
            refused: None,
        }
    }

    /// Returns the payload if it is whole.
    fn take(
        &mut self,
        offset: usize,
        payload: &[u8],
        has_more: bool,
    ) -> Result<Option<Vec<u8>>, DropReason> {
        if let Some(reason) = self.refused {
            return Err(reason);
        }
        let end = offset + payload.len();
        let mut same = self
            .fragments
            .iter()
            .filter(|fragment| fragment.0 == offset && fragment.1 == payload);
        if let Some(&(_, _, same_has_more)) = same.next() {
            return match same_has_more == has_more {
                true => Ok(None),
                false => self.refuse(DropReason::FragmentInvalid),
            };
        }
        if self.marks[offset..end].contains(&true) {
            return self.refuse(DropReason::FragmentOverlap);
        }
        self.marks[offset..end].fill(true);
        self.fragments.push((offset, payload.to_vec(), has_more));
        let ends: Vec<usize> = self
            .fragments
            .iter()
            .filter(|f| !f.2)
            .map(|f| f.0 + f.1.len())
            .collect();
        let highest = self.fragments.iter().map(|f| (f.0 + f.1.len(), f.2)).max();
        self.end = ends.first().copied();
        // The highest fragment is the last one, and no other is.
        let is_consistent = match ends[..] {
            [] => true,
            [end] => highest == Some((end, false)),
            _ => false,
        };
        if !is_consistent {
            return self.refuse(DropReason::FragmentInvalid);
        }
        let Some(end) = self.end.filter(|&end| !self.marks[..end].contains(&false)) else {
            return Ok(None);
        };
        let mut whole = vec![0; end];
        for (offset, payload, _) in &self.fragments {
            whole[*offset..][..payload.len()].copy_from_slice(payload);
        }
        Ok(Some(whole))
    }

    fn refuse(&mut self, reason: DropReason) -> Result<Option<Vec<u8>>, DropReason> {
        self.refused = Some(reason);
        Err(reason)
    }
}

/// A step of the comparison: a fragment, or time that passes.
#[derive(Clone, Debug)]
enum Step {
    Fragment {
        packet: (u8, u32),
        units: (usize, usize),
        is_odd: bool,
        contradicts: bool,
        version: u8,
    },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let fragment = (
        (0..2u8, 0..2u32),
        (0..5usize, 1..4usize),
        prop::bool::weighted(0.02),
        prop::bool::weighted(0.04),
        prop_oneof![30 => Just(0u8), 1 => Just(1)],
    );
    let fragment =
        fragment.prop_map(
            |(packet, units, is_odd, contradicts, version)| Step::Fragment {
                packet,
                units,
                is_odd,
                contradicts,
                version,
            },
        );
    prop_oneof![12 => fragment, 1 => (0..20u64).prop_map(Step::Wait)]
}

proptest! {
    #[test]
    fn reassembly_agrees_with_the_model(steps in prop::collection::vec(step(), 1..150)) {
        let mut now = at(1);
        let mut reassembly = Reassembly::default();
        let mut model = BTreeMap::<(u8, u32), Model>::new();
        for step in steps {
            match step {
                Step::Wait(seconds) => {
                    now += Duration::from_secs(seconds);
                    let is_over = |packet: &Model| packet.deadline <= now;
                    let timed_out = |packet: &&Model| is_over(packet) && packet.refused.is_none();
                    let expected = model.values().filter(timed_out).count() as u64;
                    prop_assert_eq!(reassembly.expire(now, drop), expected);
                    model.retain(|_, packet| !is_over(packet));
                }
                Step::Fragment { packet, units: (start, length), is_odd, contradicts, version } => {
                    // Fragments end at 48 at the latest, so that packets are often whole.
                    let end = (start + length).min(6) * 8;
                    let byte = |at: usize| at as u8 ^ version;
                    let mut payload: Vec<u8> = (start * 8..end).map(byte).collect();
                    payload.truncate(payload.len() - usize::from(is_odd));
                    let has_more = (end < 48) != contradicts;
                    let (source, identification) = packet;
                    let fragment = v4(source, identification, start * 8, has_more, &payload);
                    let result = reassembly.on_fragment(now, &fragment);
                    let result = result.map(|whole| whole.map(|whole| whole.payload));
                    if has_more && is_odd {
                        prop_assert_eq!(result, Err(DropReason::FragmentInvalid));
                        continue;
                    }
                    let deadline = now + Duration::from_secs(30);
                    let known = model.entry(packet).or_insert_with(|| Model::new(deadline));
                    prop_assert_eq!(&result, &known.take(start * 8, &payload, has_more));
                    if let Ok(Some(_)) = result {
                        model.remove(&packet);
                    }
                }
            }
            prop_assert_eq!(reassembly.len(), model.len());
            let next = model.values().map(|packet| packet.deadline).min();
            prop_assert_eq!(reassembly.next_timeout(), next);
        }
        prop_assert_eq!(reassembly.take_evicted(), 0);
    }

    #[test]
    fn packets_survive_reordering_and_duplicates_and_are_never_changed(
        is_v6 in any::<bool>(),
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 60..2000), 1..8),
        mtu in 120..600usize,
        (has_loss, is_small) in any::<(bool, bool)>(),
        shuffle in any::<u64>(),
    ) {
        let mut queue = Vec::new();
        for (identification, payload) in payloads.iter().enumerate() {
            let hosts = match is_v6 {
                true => ["2001:db8::1", "2001:db8::2"],
                false => ["10.0.0.1", "10.0.0.2"],
            };
            let [source, destination] = hosts.map(|address| address.parse().unwrap());
            let output = Output {
                addresses: Addresses { source, destination },
                protocol: UDP,
                hop_limit: 64,
                traffic_class: 0,
                identification: identification as u32,
                may_fragment: true,
            };
            queue.extend(fragments(&output, payload, mtu).map(|packet| (identification, packet)));
        }
        // A linear congruential generator shuffles, duplicates and loses.
        let mut state = shuffle;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut order: Vec<usize> = (0..queue.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random(at + 1));
        }
        let limits = match is_small {
            true => ReassemblyLimits { packets: 8, bytes: 16_384, ..ReassemblyLimits::default() },
            false => ReassemblyLimits::default(),
        };
        let mut reassembly = Reassembly::new(limits);
        let mut whole = vec![0; payloads.len()];
        for at in order {
            if has_loss && random(10) == 0 {
                continue;
            }
            let (identification, bytes) = &queue[at];
            let packet = parse(bytes).unwrap();
            // A duplicate of the fragment that made a packet whole would begin the packet anew.
            let mut copies = 1 + usize::from(random(4) == 0);
            while copies > 0 {
                copies -= 1;
                let result = reassembly.on_fragment(Instant::ORIGIN, &packet);
                if !is_small {
                    prop_assert!(result.is_ok());
                }
                if let Ok(Some(packet)) = result {
                    prop_assert_eq!(&packet.payload, &payloads[*identification]);
                    whole[*identification] += 1;
                    copies = 0;
                }
            }
        }
        let are_all_whole = whole.iter().all(|&times| times == 1);
        prop_assert!(are_all_whole || has_loss || is_small);
        prop_assert!(whole.iter().all(|&times| times <= 1));
    }
}
