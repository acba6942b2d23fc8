//! The program chooses the same channel as a plain reading of the headers does, for any frame.

use std::hint::black_box;
use std::net::Ipv6Addr;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::credits::Peers;
use super::super::{key, program};
use super::*;
use crate::bpf::Program;

/// A loaded program with channels for these endpoints, attached to no link.
struct Loaded {
    program: Program,
    maps: Maps,
    keys: Vec<EndpointKey>,
    _slots: Vec<Slot>,
}

impl Loaded {
    fn new(queue: u32, filter: &XdpFilter) -> io::Result<Self> {
        let keys = keys();
        let maps = Maps::new(keys.len() as u32, 1)?;
        let mut slots = Vec::new();
        for index in 0..indices_of(&keys).end {
            let (socket, arrived) = slot::prepare(1)?;
            let slot = Slot::new(Account(index), socket, arrived);
            maps.connect(&slot)?;
            slots.push(slot);
        }
        for (key, index) in keys.iter().zip(indices_of(&keys)) {
            maps.keys.insert(&key.to_bytes(), index)?;
        }
        Ok(Self {
            program: program::load(&maps, queue, filter).expect("the kernel accepts the program"),
            maps,
            keys,
            _slots: slots,
        })
    }

    /// Runs the program on a frame; returns its action, and the index of the channel with this change of counters.
    fn run(&self, frame: &[u8]) -> (u32, Option<(u32, [i64; 3])>) {
        let credits = &self.maps.credits;
        let read = |index| {
            let account = Account(index);
            let counts = credits.counts(account);
            let [delivered, discarded] = [counts.delivered, counts.discarded];
            [credits.left(account), delivered as i64, discarded as i64]
        };
        let all = 0..indices_of(&self.keys).end;
        let before: Vec<_> = all.clone().map(read).collect();
        let (action, _) = self.program.run(frame, 1).unwrap();
        let changes = all.zip(before).map(|(index, before)| {
            let after = read(index);
            (index, [0, 1, 2].map(|word| after[word] - before[word]))
        });
        let mut changed = changes.filter(|(_, change)| *change != [0; 3]);
        let first = changed.next();
        assert_eq!(changed.next(), None, "one channel is charged");
        (action, first)
    }

    /// The index of the channel of a frame, by its headers.
    fn expected(&self, frame: &[u8]) -> u32 {
        if is_fragment(frame) {
            return FRAGMENTS.0;
        }
        let Some(key) = endpoint(frame) else {
            return CONTROL.0;
        };
        let mut indices = self.keys.iter().zip(indices_of(&self.keys));
        let found = indices.find(|(of, _)| **of == key);
        let common = match flags(frame) {
            Some(flags) if !is_syn(flags) => SEGMENTS,
            _ => UNCLAIMED,
        };
        found.map_or(common.0, |(_, index)| index)
    }
}

/// The indices of the channels of these endpoints.
fn indices_of(keys: &[EndpointKey]) -> std::ops::Range<u32> {
    let first = COMMON_CHANNELS as u32;
    first..first + keys.len() as u32
}

/// Whether a frame has a whole header of a fragment: of IPv6 with four bytes behind it.
fn is_fragment(frame: &[u8]) -> bool {
    match frame[12..14] {
        [8, 0] => frame.len() >= 34 && (frame[20] & 0x3f != 0 || frame[21] != 0),
        [0x86, 0xdd] => frame.len() >= 58 && frame[20] == 44,
        _ => false,
    }
}

/// The endpoint of a frame.
fn endpoint(frame: &[u8]) -> Option<EndpointKey> {
    let (ether_type, packet) = frame.get(12..)?.split_first_chunk::<2>()?;
    let (protocol, address, ports) = match *ether_type {
        [8, 0] => {
            let header = packet.first_chunk::<20>()?;
            let length = 4 * usize::from(header[0] & 15);
            if length < 20 {
                return None;
            }
            let address: [u8; 4] = header[16..].try_into().unwrap();
            (header[9], IpAddr::from(address), packet.get(length..)?)
        }
        [0x86, 0xdd] => {
            let (header, rest) = packet.split_first_chunk::<40>()?;
            let address: [u8; 16] = header[24..].try_into().unwrap();
            (header[6], IpAddr::from(address), rest)
        }
        _ => return None,
    };
    let &[_, _, high, low] = ports.first_chunk::<4>()?;
    let transport = match protocol {
        6 => Transport::Tcp,
        17 => Transport::Udp,
        _ => return None,
    };
    Some(EndpointKey {
        transport,
        address,
        port: u16::from_be_bytes([high, low]),
    })
}

/// The flags of a frame to an endpoint, if it is a segment of TCP.
fn flags(frame: &[u8]) -> Option<u8> {
    let is_tcp = endpoint(frame)?.transport == Transport::Tcp;
    let header = match frame[12..14] {
        [8, 0] => 14 + 4 * usize::from(frame[14] & 15),
        _ => 54,
    };
    let flags = frame.get(header + 13).copied();
    flags.filter(|_| is_tcp)
}

/// The source of a frame to an endpoint.
fn source(frame: &[u8]) -> IpAddr {
    match frame[12..14] {
        [8, 0] => IpAddr::from(*frame[26..].first_chunk::<4>().unwrap()),
        _ => IpAddr::from(*frame[22..].first_chunk::<16>().unwrap()),
    }
}

/// Whether a segment with these flags opens a connection.
fn is_syn(flags: u8) -> bool {
    let (syn, ack) = (flags & 2 != 0, flags & 16 != 0);
    syn && !ack
}

/// Frames most of which are nearly to an endpoint.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 14..120);
    let ether_type = prop_oneof![
        8 => Just([8u8, 0]),
        8 => Just([0x86, 0xdd]),
        1 => Just([8, 6]),
        1 => any::<[u8; 2]>(),
    ];
    let protocol = prop_oneof![4 => Just(17u8), 4 => Just(6), 1 => Just(44), 1 => any::<u8>()];
    let words = prop_oneof![3 => Just(5usize), 2 => 0..16usize];
    let fragment = prop_oneof![6 => Just([0u8, 0]), 1 => Just([0x40, 0]), 1 => any::<[u8; 2]>()];
    let last = prop_oneof![4 => Just(9u8), 1 => any::<u8>()];
    let port = prop_oneof![4 => 7..9u16, 1 => any::<u16>()];
    let fields = (ether_type, protocol, words, fragment, last, port);
    (bytes, fields).prop_map(
        |(mut bytes, (ether_type, protocol, words, fragment, last, port))| {
            let mut put = |at: usize, field: &[u8]| {
                for (byte, value) in bytes.iter_mut().skip(at).zip(field) {
                    *byte = *value;
                }
            };
            put(12, &ether_type);
            if ether_type == [8, 0] {
                put(14, &[0x40 | words as u8]);
                put(20, &fragment);
                put(23, &[protocol]);
                put(30, &[10, 0, 0, last]);
                put(14 + 4 * words + 2, &port.to_be_bytes());
            } else {
                put(20, &[protocol]);
                put(38, &v6(last));
                put(56, &port.to_be_bytes());
            }
            bytes
        },
    )
}

/// An address that differs from ours in the last byte.
fn v6(last: u8) -> [u8; 16] {
    let mut address = OURS_V6.parse::<Ipv6Addr>().unwrap().octets();
    address[15] = last;
    address
}

fn keys() -> Vec<EndpointKey> {
    let tcp = EndpointKey {
        transport: Transport::Tcp,
        ..udp(OURS_V6, 7)
    };
    vec![udp(OURS, 7), udp(OURS, 8), udp(OURS_V6, 7), tcp]
}

/// Loads the program, or skips the test.
macro_rules! loaded {
    ($queue:expr, $filter:expr) => {
        match Loaded::new($queue, $filter) {
            Ok(loaded) => loaded,
            Err(error) => softclock_testing::skip!("no BPF or AF_XDP: {error}"),
        }
    };
}

#[test]
fn the_program_reads_headers_as_this_test_does() {
    let loaded = loaded!(0, &XdpFilter::All);
    let runs = TestRunner::new(Config::with_cases(3000)).run(&frames(), |frame| {
        let expected = loaded.expected(&frame);
        let account = Account(expected);
        let credits = &loaded.maps.credits;
        // Without a credit, with one, and with one that is kept from SYNs.
        let dropped = (XDP_DROP, Some((expected, [0, 0, 1])));
        prop_assert_eq!(loaded.run(&frame), dropped);
        credits.grant(account, 1);
        let redirected = (XDP_REDIRECT, Some((expected, [-1, 1, 0])));
        prop_assert_eq!(loaded.run(&frame), redirected);
        prop_assert_eq!(credits.left(account), 0);
        credits.grant(account, 1);
        credits.reserve(account, Peers::Others, 1);
        let is_syn = !is_fragment(&frame) && flags(&frame).is_some_and(is_syn);
        let reserved = if is_syn { dropped } else { redirected };
        prop_assert_eq!(loaded.run(&frame), reserved);
        if is_syn {
            let peer = key::peer_key(source(&frame));
            loaded.maps.peers.insert(&peer, 0).unwrap();
            prop_assert_eq!(loaded.run(&frame), redirected, "a preferred peer");
            credits.grant(account, 1);
            credits.reserve(account, Peers::Preferred, 1);
            prop_assert_eq!(loaded.run(&frame), dropped);
            credits.reserve(account, Peers::Preferred, 0);
            loaded.maps.peers.remove(&peer).unwrap();
            prop_assert_eq!(loaded.run(&frame), dropped, "no longer");
        }
        credits.reserve(account, Peers::Others, 0);
        credits.grant(account, -credits.left(account));
        Ok(())
    });
    runs.unwrap();
}

#[test]
fn the_frames_of_others_are_not_charged() {
    let filter = settings(1).link.filter;
    let loaded = loaded!(0, &filter);
    let others = [udp("10.0.0.8", 7), udp("fd00::8", 7)];
    for key in others {
        assert_eq!(loaded.run(&frame(&key, 0)), (XDP_PASS, None));
    }
    for (key, index) in keys().iter().zip(COMMON_CHANNELS as u32..) {
        let dropped = (XDP_DROP, Some((index, [0, 0, 1])));
        assert_eq!(loaded.run(&frame(key, 0)), dropped);
    }
    let of_no_endpoint = loaded.run(&frame(&udp(OURS, 99), 0));
    assert_eq!(of_no_endpoint, (XDP_DROP, Some((UNCLAIMED.0, [0, 0, 1]))));
}

#[test]
fn the_host_keeps_the_other_queues() {
    // The kernel runs the program as for the first queue.
    let loaded = loaded!(1, &XdpFilter::All);
    for key in keys() {
        assert_eq!(loaded.run(&frame(&key, 0)), (XDP_PASS, None));
    }
}

/// Prints the time of the program for a frame, without that of the driver and of the delivery.
#[test]
fn time_of_a_run() {
    let times = std::env::var("SOFTCLOCK_FRAMES").map_or(10_000, |frames| frames.parse().unwrap());
    let filter = settings(1).link.filter;
    let loaded = loaded!(0, &filter);
    for key in [
        udp(OURS, 7),
        udp(OURS_V6, 7),
        udp(OURS, 99),
        udp("10.0.0.8", 7),
    ] {
        let frame = frame(&key, 0);
        let account = Account(loaded.expected(&frame));
        let time = || black_box(loaded.program.run(&frame, times).unwrap());
        let discarded = time();
        loaded.maps.credits.grant(account, times.into());
        let delivered = time();
        println!("{key:?}: without credit {discarded:?}, with {delivered:?} (action, ns)");
    }
}

/// include/uapi/linux/bpf.h.
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
