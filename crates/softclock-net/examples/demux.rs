//! Prints the time of a look-up in the table of flows: singly, in batches, and with the classification of the frame.
//!
//! `cargo run --release -p softclock-net --example demux`

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use softclock_net::demux::{Class, Flow, HashKey, Table, Transport, classify};

fn main() {
    println!("ns a packet: the least of {ROUNDS} rounds");
    println!("  flows       single    batch   absent   classify + find");
    for is_v6 in [false, true] {
        for count in [1, 100, 10_000, 100_000, 1_000_000] {
            let version = if is_v6 { "IPv6" } else { "IPv4" };
            let [single, batch, absent, frame] = measure(count, is_v6);
            println!("{version} {count:8} {single:8.1} {batch:8.1} {absent:8.1} {frame:8.1}");
        }
    }
}

/// The times of single look-ups, of batches of 32, of batches without a connected flow, and of single frames. The
/// frames are of [`PACKETS`] flows at most, so their part of the table is in the cache.
fn measure(count: u32, is_v6: bool) -> [f64; 4] {
    // A program that meets other hosts draws the key at random.
    let mut table = Table::new(HashKey([1, 2]));
    let any: IpAddr = match is_v6 {
        false => Ipv4Addr::UNSPECIFIED.into(),
        true => Ipv6Addr::UNSPECIFIED.into(),
    };
    table
        .bind(Transport::Tcp, (any, 80), u32::MAX)
        .expect("a new table");
    let flows: Vec<Flow> = (0..count).map(|number| flow(number, is_v6)).collect();
    for (handle, flow) in (0..).zip(&flows) {
        table.connect(*flow, handle).expect("distinct flows");
    }
    // Packets arrive in another order than that of the connections.
    let packets: Vec<Flow> = (0..PACKETS.max(flows.len()))
        .map(|number| flows[number * STRIDE % flows.len()])
        .collect();
    let mut absent = packets.clone();
    for flow in &mut absent {
        flow.remote.1 = 1;
    }
    let frames: Vec<Vec<u8>> = packets.iter().take(PACKETS).map(frame).collect();
    [
        least(&packets, |flows| {
            for flow in flows {
                black_box(table.find(flow));
            }
        }),
        least(&packets, |flows| find_batch(&table, flows)),
        least(&absent, |flows| find_batch(&table, flows)),
        least(&frames, |frames| {
            for frame in frames {
                let class = classify(frame);
                let flow = class.ok().and_then(|class| match class {
                    Class::Flow(flow) => Some(flow),
                    _ => None,
                });
                black_box(flow.and_then(|flow| table.find(&flow)));
            }
        }),
    ]
}

fn find_batch(table: &Table<u32>, flows: &[Flow]) {
    let mut found = [None; BATCH];
    table.find_batch(flows, &mut found);
    black_box(found);
}

/// The least mean time of a packet among rounds over [`PACKETS`] packets each.
fn least<P>(packets: &[P], find: impl Fn(&[P])) -> f64 {
    let mut rounds = packets.chunks(PACKETS).cycle();
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        let packets = rounds.next().expect("there are packets");
        let start = Instant::now();
        packets.chunks(BATCH).for_each(&find);
        least = least.min(start.elapsed().as_nanos() as f64 / packets.len() as f64);
    }
    least
}

fn flow(number: u32, is_v6: bool) -> Flow {
    let [remote, local]: [IpAddr; 2] = match is_v6 {
        false => [0x0a00_0000 + number, 0xc000_0201].map(|bits| Ipv4Addr::from_bits(bits).into()),
        true => [number, u32::MAX].map(|bits| {
            let network = 0x2001_0db8 << 96;
            Ipv6Addr::from_bits(network + u128::from(bits)).into()
        }),
    };
    Flow {
        transport: Transport::Tcp,
        remote: (remote, 40_000),
        local: (local, 80),
    }
}

/// A segment of a flow without payload.
fn frame(flow: &Flow) -> Vec<u8> {
    let mut frame = vec![0; 12];
    match (flow.remote.0, flow.local.0) {
        (IpAddr::V4(remote), IpAddr::V4(local)) => {
            frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
            frame.extend(remote.octets());
            frame.extend(local.octets());
        }
        (remote, local) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
            for address in [remote, local] {
                if let IpAddr::V6(address) = address {
                    frame.extend(address.octets());
                }
            }
        }
    }
    frame.extend(flow.remote.1.to_be_bytes());
    frame.extend(flow.local.1.to_be_bytes());
    frame.extend([0; 16]);
    frame
}

/// The packets of one poll of a device.
const BATCH: usize = 32;

/// The packets of a round: a fraction of a millisecond, so that some rounds are not interrupted.
const PACKETS: usize = 4_096;

const ROUNDS: usize = 3_000;

/// Odd and no multiple of 5, so that the packets are of all flows.
const STRIDE: usize = 7_919_773;
