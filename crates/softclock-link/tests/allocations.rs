//! Forwarding a frame allocates nothing once queues and pools have grown. Tested with the disciplines alone, in virtual
//! time, and with the whole engine between two links.

use std::rc::Rc;
use std::time::Duration;

use softclock_core::wan::{Wan, WanOptions};
use softclock_core::{Instant, Rate};
use softclock_link::{
    Class, Direction, Discipline, Emulator, EmulatorOptions, Frame, MechanismChoice, Next, Pacer,
    PacerOptions, Port, PortSpec,
};
use softclock_linux::allocations::{Counted, of_this_thread};
use softclock_linux::link::{Link, PacketSocket, Pool};
use softclock_testing::lab::VethPair;
use softclock_wire::packet::{Offload, PartialChecksum, SegmentKind, Segmentation};

#[global_allocator]
static COUNTED: Counted = Counted;

#[test]
fn a_paced_frame_allocates_nothing() {
    let mut pacer = pacer(&["rate 80mbit dport 80", "rate 400mbit dport 81"]);
    assert_eq!(allocations_of(&mut pacer), 0);
}

#[test]
fn an_emulated_frame_allocates_nothing() {
    let options = WanOptions {
        delay: Duration::from_millis(5),
        jitter: Duration::from_millis(1),
        rate: Rate::from_bps(1_000_000_000),
        ..WanOptions::default()
    };
    let mut emulator = Emulator::new(Wan::new(options, 7), EmulatorOptions::default());
    assert_eq!(allocations_of(&mut emulator), 0);
}

fn pacer(classes: &[&str]) -> Pacer {
    let classes: Vec<Class> = classes.iter().map(|text| text.parse().unwrap()).collect();
    let options = PacerOptions {
        link: Rate::from_bps(1_000_000_000).unwrap(),
        tolerance: Duration::ZERO,
        overhead_bytes: 24,
    };
    Pacer::new(&classes, options, Instant::ORIGIN)
}

/// Counts the allocations of 2000 rounds of frames of all kinds, after 2000 rounds that let the queues grow.
fn allocations_of(discipline: &mut impl Discipline) -> u64 {
    let pool = Pool::new();
    let mut now = Instant::ORIGIN;
    let mut pass = |frames: u32| {
        let mut sent = 0;
        for number in 0..frames {
            // A frame of class one, of class two, of no class; then three segments joined by an offload.
            for frame in [
                tcp(&pool, 80, 1400, false),
                tcp(&pool, 81, 60 + number as usize % 1000, false),
                tcp(&pool, 82, 10, false),
                tcp(&pool, 80, 4200, true),
            ] {
                discipline.on_frame(
                    Frame {
                        arrived: now,
                        ..frame
                    },
                    now,
                );
            }
            now = now.add_ns(700_000);
            while let Next::Send(_) = discipline.next(now) {
                sent += 1;
            }
        }
        sent
    };
    pass(2000);
    let before = of_this_thread();
    let sent = pass(2000);
    let allocations = of_this_thread() - before;
    assert!(sent > 2 * 2000, "{sent}");
    allocations
}

/// A frame of TCP over IPv4 from 10.0.0.1 to `port`.
fn tcp(pool: &Pool, port: u16, payload_bytes: usize, is_joined: bool) -> Frame {
    let mut bytes = pool.buffer(54 + payload_bytes);
    bytes.fill(0);
    bytes[..12].fill(2);
    bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    let length = (40 + payload_bytes) as u16;
    bytes[16..18].copy_from_slice(&length.to_be_bytes());
    bytes[22..34].copy_from_slice(&[64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[36..38].copy_from_slice(&port.to_be_bytes());
    bytes[46] = 0x50;
    let checksum = PartialChecksum {
        start: 34,
        offset: 16,
    };
    let segmentation = Segmentation {
        kind: SegmentKind::Tcp4,
        has_ecn: false,
        header_bytes: 54,
        segment_bytes: 1400,
    };
    Frame {
        bytes,
        offload: Offload {
            checksum: is_joined.then_some(checksum),
            segmentation: is_joined.then_some(segmentation),
        },
        arrived: Instant::ORIGIN,
    }
}

#[test]
fn a_frame_between_two_links_allocates_nothing_by_af_packet() {
    a_frame_between_two_links_allocates_nothing(MechanismChoice::Packet);
}

#[test]
fn a_frame_between_two_links_allocates_nothing_by_af_xdp() {
    a_frame_between_two_links_allocates_nothing(MechanismChoice::Xdp);
}

/// Sends paced frames, which wait one by one, and unpaced frames through the engine.
fn a_frame_between_two_links_allocates_nothing(choice: MechanismChoice) {
    softclock_testing::require!("ip");
    let cables = [VethPair::new(), VethPair::new()];
    let [Ok(left), Ok(right)] = cables else {
        softclock_testing::skip!("needs root for links of its own");
    };
    softclock::Runtime::new().unwrap().block_on(async {
        let [[left, from], [right, to]] = [left.names(), right.names()];
        let specs = [&left, &right].map(|name| PortSpec::named(name).unwrap());
        let ports = match Port::open_both(&specs, choice) {
            Ok((ports, _)) => ports.map(Rc::new),
            Err(error) => softclock_testing::skip!("{error}"),
        };
        let [a, b] = ports;
        let there = Direction::new(a, b, pacer(&["rate 50mbit dport 80"]));
        let carried = softclock::spawn_local(there.clone().run());
        let [sender, receiver] = [&from, &to].map(|name| {
            let link = Link::named(name).unwrap();
            PacketSocket::open(&link, 8 << 20).unwrap()
        });
        let pool = Pool::new();
        let frames = [tcp(&pool, 80, 1000, false), tcp(&pool, 81, 100, false)];
        let arrived = || {
            let mut count = 0;
            let _ = receiver.receive(|received| {
                count += usize::from(received.unwrap().bytes[..12] == [2; 12]);
            });
            count
        };
        // New links lose frames until they are up.
        let mut is_up = false;
        for _ in 0..500 {
            sender
                .send(
                    frames
                        .iter()
                        .map(|frame| (&frame.bytes[..], &frame.offload)),
                )
                .unwrap();
            softclock::sleep(Duration::from_millis(10)).await;
            is_up |= arrived() > 0;
            if is_up {
                break;
            }
        }
        assert!(is_up, "no frame arrived");
        // A larger burst than a busy machine causes later, so that queues and pools have reached their size.
        for _ in 0..20 {
            let burst = frames.iter().cycle().take(32);
            sender
                .send(burst.map(|frame| (&frame.bytes[..], &frame.offload)))
                .unwrap();
        }
        let mut before = 0;
        let mut count = 0;
        for round in 0..4000 {
            if round == 2000 {
                (before, count) = (of_this_thread(), 0);
            }
            // Three at a time, so that some wait for the pacer.
            for frame in [&frames[0], &frames[1], &frames[0]] {
                sender.send([(&frame.bytes[..], &frame.offload)]).unwrap();
            }
            softclock::sleep(Duration::from_micros(500)).await;
            count += arrived();
        }
        let allocations = of_this_thread() - before;
        let [class, unpaced] = &there.report().rows[..] else {
            panic!("a class and the rest");
        };
        assert!(count > 5000, "{count} arrived");
        assert!(class.sent_packets > 3500 && unpaced.sent_packets > 1700);
        assert_eq!(allocations, 0, "for {count} frames");
        drop(carried);
    });
}
