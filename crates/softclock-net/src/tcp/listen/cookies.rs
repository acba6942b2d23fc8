//! SYN cookies: the state of a half-open connection, in the sequence number and time stamp of the SYN-ACK (RFC 4987,
//! 3.6).
//!
//! The layout is that of Linux, by Bernstein and Schenk, but for the stride:
//! `H1 + IRS + (minute << 24) + (H2(minute) + size * stride(minute)) mod 2^24`, where a minute has 64 seconds, and
//! `size` is the number of the largest of eight segment sizes that is at most that of the peer. The stride is keyed,
//! too: with one of 1, the seven numbers beside a cookie would be valid as well. If the peer sends time stamps, the low
//! six bits of ours hold the other options.

use softclock_core::Instant;

use super::isn::{FlowSecrets, message};
use crate::demux::Flow;
use crate::tcp::peer::{Ecn, PeerOptions};
use crate::tcp::seq::Seq;

/// The sequence number of a SYN-ACK that holds the peer's segment size.
pub(super) fn encode(
    secrets: &FlowSecrets,
    flow: &Flow,
    remote_initial: Seq,
    mss: u16,
    now: Instant,
) -> Seq {
    let minute = minute(now);
    let size = SEGMENT_SIZES
        .iter()
        .rposition(|size| *size <= mss)
        .unwrap_or(0) as u32;
    let (hash, stride) = size_hash(secrets, flow, remote_initial, minute);
    let low = hash.wrapping_add(size * stride) & LOW_BITS;
    base(secrets, flow, remote_initial) + (minute << 24) + low
}

/// The segment size in an acknowledged sequence number of this host. `None` if the number is not that of a cookie of
/// this minute or the previous one.
pub(super) fn decode(
    secrets: &FlowSecrets,
    flow: &Flow,
    remote_initial: Seq,
    cookie: Seq,
    now: Instant,
) -> Option<u16> {
    let rest = cookie.0.wrapping_sub(base(secrets, flow, remote_initial).0);
    let now = minute(now);
    let age = now.wrapping_sub(rest >> 24) & 0xff;
    if age >= MOST_AGE {
        return None;
    }
    let (hash, stride) = size_hash(secrets, flow, remote_initial, now.wrapping_sub(age));
    let distance = rest.wrapping_sub(hash) & LOW_BITS;
    let mut sizes = (0..).zip(SEGMENT_SIZES);
    let found = sizes.find(|(size, _)| (size * stride) & LOW_BITS == distance);
    found.map(|(_, size)| size)
}

/// A reading of the clock of time stamps, at most 64 units old, whose low bits hold the options.
pub(super) fn encode_options(reading: u32, peer: &PeerOptions) -> u32 {
    let scale = peer.window_scale.map_or(NO_SCALE, u32::from);
    let sack = if peer.is_sack_permitted { SACK } else { 0 };
    let ecn = match peer.ecn {
        Ecn::Off => 0,
        Ecn::Classic => ECN,
    };
    let options = scale | sack | ecn;
    let with_options = reading & !OPTION_BITS | options;
    // A time stamp of the future would go back with the next segment.
    match with_options > reading {
        true => with_options.wrapping_sub(OPTION_BITS + 1),
        false => with_options,
    }
}

/// The options in an echoed reading. `remote_timestamp` is that of the segment that echoes it.
pub(super) fn decode_options(reading: u32, remote_timestamp: u32, mss: u16) -> PeerOptions {
    let scale = reading & NO_SCALE;
    PeerOptions {
        mss,
        window_scale: (scale != NO_SCALE).then_some(scale as u8),
        is_sack_permitted: reading & SACK != 0,
        timestamps: Some(remote_timestamp),
        ecn: match reading & ECN {
            0 => Ecn::Off,
            _ => Ecn::Classic,
        },
    }
}

/// The longest time that a cookie is valid after it was sent.
pub(super) const LIFETIME_NS: u64 = MOST_AGE as u64 * MINUTE_NS;

fn base(secrets: &FlowSecrets, flow: &Flow, remote_initial: Seq) -> Seq {
    remote_initial + secrets.cookie.mac(&message(flow, 0)) as u32
}

/// The number that stands for the first segment size, and the distance between those of two sizes: 24 bits each. The
/// distance is odd, so that all eight differ.
fn size_hash(secrets: &FlowSecrets, flow: &Flow, remote_initial: Seq, minute: u32) -> (u32, u32) {
    let number = u64::from(remote_initial.0) << 32 | u64::from(minute);
    let hash = secrets.cookie_options.mac(&message(flow, number));
    let stride = (hash >> 24) as u32 & LOW_BITS | 1;
    (hash as u32 & LOW_BITS, stride)
}

/// Wraps after 272 years at the 32nd bit; cookies hold the lower eight bits.
fn minute(now: Instant) -> u32 {
    (now.as_ns() / MINUTE_NS) as u32
}

/// The segment sizes of common links and tunnels: none below the first, as small segments cost work.
const SEGMENT_SIZES: [u16; 8] = [48, 536, 1220, 1360, 1400, 1440, 1460, 8940];

/// A cookie is valid in the minute in which it was made and in the next. At each time 16 of 2^32 numbers are valid for
/// a flow, eight for each minute.
const MOST_AGE: u32 = 2;
const MINUTE_NS: u64 = 64_000_000_000;
const LOW_BITS: u32 = (1 << 24) - 1;

const NO_SCALE: u32 = 0xf;
const SACK: u32 = 1 << 4;
const ECN: u32 = 1 << 5;
const OPTION_BITS: u32 = 0x3f;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demux::{HashKey, Transport};
    use proptest::prelude::*;

    fn flow(port: u16) -> Flow {
        Flow {
            transport: Transport::Tcp,
            remote: ("2001:db8::1".parse().unwrap(), port),
            local: ("2001:db8::2".parse().unwrap(), 80),
        }
    }

    proptest! {
        #[test]
        fn a_cookie_holds_the_segment_size_for_one_to_two_minutes(
            key in any::<[u64; 2]>(),
            remote_initial in any::<u32>().prop_map(Seq),
            mss in 48..=u16::MAX,
            ns in 0..1_u64 << 60,
            later in 0..300_000_000_000_u64,
        ) {
            let secrets = FlowSecrets::new(HashKey(key));
            let cookie = encode(&secrets, &flow(1), remote_initial, mss, Instant::from_ns(ns));
            let then = Instant::from_ns(ns + later);
            let decoded = decode(&secrets, &flow(1), remote_initial, cookie, then);
            let minutes = (ns + later) / MINUTE_NS - ns / MINUTE_NS;
            prop_assert_eq!(decoded.is_some(), minutes < 2);
            if let Some(decoded) = decoded {
                let next = SEGMENT_SIZES.iter().find(|size| **size > decoded);
                prop_assert!(decoded <= mss && next.is_none_or(|next| *next > mss));
            }
        }

        #[test]
        fn options_are_in_a_time_stamp_that_is_not_of_the_future(
            reading in 64..=u32::MAX,
            window_scale in prop::option::of(0..=14_u8),
            is_sack_permitted in any::<bool>(),
            has_ecn in any::<bool>(),
            remote_timestamp in any::<u32>(),
        ) {
            let peer = PeerOptions {
                mss: 1460,
                window_scale,
                is_sack_permitted,
                timestamps: Some(remote_timestamp),
                ecn: if has_ecn { Ecn::Classic } else { Ecn::Off },
            };
            let sent = encode_options(reading, &peer);
            prop_assert!(sent <= reading && reading - sent < 64 + 64);
            prop_assert_eq!(decode_options(sent, remote_timestamp, 1460), peer);
        }
    }

    #[test]
    fn few_guesses_are_valid_cookies() {
        let secrets = FlowSecrets::new(HashKey([1, 2]));
        let now = Instant::from_ns(1_000 * MINUTE_NS);
        let guesses = (0..1_u32 << 20).map(|guess| Seq(guess.wrapping_mul(4099)));
        let valid =
            guesses.filter(|guess| decode(&secrets, &flow(1), Seq(9), *guess, now).is_some());
        // 2 * 8 of 2^32 numbers are valid: 0.004 of these.
        assert_eq!(valid.count(), 0);
    }

    #[test]
    fn the_numbers_beside_a_cookie_are_not_valid() {
        let secrets = FlowSecrets::new(HashKey([1, 2]));
        let now = Instant::from_ns(1_000 * MINUTE_NS);
        for mss in SEGMENT_SIZES {
            let cookie = encode(&secrets, &flow(1), Seq(9), mss, now);
            let is_valid = |cookie| decode(&secrets, &flow(1), Seq(9), cookie, now).is_some();
            assert!(is_valid(cookie));
            let beside = (1..100).flat_map(|distance| [cookie + distance, cookie - distance]);
            assert_eq!(beside.filter(|&cookie| is_valid(cookie)).count(), 0);
        }
    }

    #[test]
    fn a_cookie_is_valid_for_its_flow_and_its_beginning_only() {
        let secrets = FlowSecrets::new(HashKey([1, 2]));
        let now = Instant::from_ns(1_000 * MINUTE_NS);
        let cookie = encode(&secrets, &flow(1), Seq(9), 1460, now);
        assert_eq!(decode(&secrets, &flow(1), Seq(9), cookie, now), Some(1460));
        assert_eq!(decode(&secrets, &flow(2), Seq(9), cookie, now), None);
        assert_eq!(decode(&secrets, &flow(1), Seq(8), cookie, now), None);
    }
}
