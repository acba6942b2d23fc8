//! Channels over a veth pair: frames to the endpoints of one link, sent by AF_PACKET on the other.

mod classification;
mod host;
mod measurements;
mod removal;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::super::{Copies, Transport, XdpFilter};
use super::*;
use crate::link::cable::{Cable, SENDER, cable};
use crate::link::{BATCH, PacketSocket, Pool};

const OURS: &str = "10.0.0.9";
const OURS_V6: &str = "fd00::9";
const LIMIT: u32 = 40;
const STREAM_LIMIT: u32 = 100;

fn udp(address: &str, port: u16) -> EndpointKey {
    EndpointKey {
        transport: Transport::Udp,
        address: address.parse().unwrap(),
        port,
    }
}

/// A frame to this endpoint, with its number at the end.
fn frame(to: &EndpointKey, number: u32) -> Vec<u8> {
    let protocol = to.transport.number();
    let mut frame = [&[0xff; 6][..], &SENDER].concat();
    match to.address {
        IpAddr::V4(address) => {
            frame.extend([8, 0, 0x45, 0, 0, 60, 0, 0, 0, 0, 64, protocol, 0, 0]);
            frame.extend([10, 0, 0, 1]);
            frame.extend(address.octets());
        }
        IpAddr::V6(address) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, protocol, 64]);
            frame.extend([0xfd; 16]);
            frame.extend(address.octets());
        }
    }
    frame.extend([0, 7]);
    frame.extend(to.port.to_be_bytes());
    frame.resize(96, 0);
    frame.extend(number.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> Option<u32> {
    let (_, number) = frame.split_last_chunk::<4>()?;
    (frame[6..12] == SENDER).then(|| u32::from_be_bytes(*number))
}

/// The numbers of the frames that have arrived in a channel.
fn taken(channel: &XdpChannel) -> Vec<u32> {
    let mut numbers = Vec::new();
    while channel
        .receive(|received| numbers.extend(number(&received.unwrap().bytes)))
        .is_ok()
    {}
    numbers
}

fn settings(channels: u32) -> ChannelSettings {
    ChannelSettings {
        link: XdpSettings {
            copies: Copies::Allowed,
            queue: None,
            filter: XdpFilter::Addresses([OURS, OURS_V6].map(|a| a.parse().unwrap()).into()),
        },
        channels,
        limit: LIMIT,
        streams: 1,
        stream_limit: STREAM_LIMIT,
        common_limit: 64,
        peers: 2,
    }
}

/// Channels on one end of a cable, and a sender on the other.
struct Setup {
    channels: XdpChannels,
    sender: PacketSocket,
    cable: Cable,
}

impl Setup {
    fn new(cable: Cable, settings: ChannelSettings) -> Result<Self, String> {
        let [a, b] = cable.links();
        let channels = match XdpChannels::open(&b, settings) {
            Ok(channels) => channels,
            Err(error @ XdpError::Failed(XdpStep::Program, _)) => panic!("{error:?}"),
            Err(error) => return Err(format!("AF_XDP cannot be used here: {error:?}")),
        };
        let setup = Self {
            channels,
            sender: PacketSocket::open(&a, 1 << 20).unwrap(),
            cable,
        };
        // The link may lose the first frames, while it comes up.
        let unclaimed = setup.channels.unclaimed();
        wait(|| {
            setup.send(&udp(OURS, 1), [0]);
            std::thread::sleep(Duration::from_millis(10));
            (!taken(unclaimed).is_empty()).then_some(())
        });
        Ok(setup)
    }

    fn send(&self, to: &EndpointKey, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            let frame = frame(to, number);
            let sent = self.sender.send([(&frame[..], &Offload::NONE)]);
            assert_eq!(sent.unwrap(), 1);
        }
    }

    /// Sends frames to the endpoint of this channel, and waits until the program has counted them.
    fn send_to(&self, to: &EndpointKey, channel: &XdpChannel, numbers: std::ops::Range<u32>) {
        let count = || channel.delivered() + channel.discarded();
        let expected = count() + numbers.len() as u64;
        self.send(to, numbers);
        wait(|| (count() == expected).then_some(()));
        settle();
    }
}

/// Makes a setup, or skips the test if the machine does not permit it.
macro_rules! setup {
    ($settings:expr) => {
        match Setup::new(cable!(), $settings) {
            Ok(setup) => setup,
            Err(reason) => softclock_testing::skip!("{reason}"),
        }
    };
}
use setup;

/// Waits until the frames that the program has counted are in their rings: the kernel publishes them after a batch.
fn settle() {
    std::thread::sleep(Duration::from_millis(2));
}

/// Calls `ask` until it returns a value, for up to 10 s.
fn wait<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..10_000 {
        match ask() {
            Some(answer) => return answer,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    panic!("no answer")
}

fn is_readable(channel: &XdpChannel) -> bool {
    let mut entry = [PollFd::new(channel, PollFlags::IN)];
    poll(&mut entry, Some(&Timespec::default())).unwrap();
    entry[0].revents().contains(PollFlags::IN)
}

#[test]
fn frames_arrive_in_the_channel_of_their_endpoint() {
    let setup = setup!(settings(4));
    let channels = &setup.channels;
    let tcp = EndpointKey {
        transport: Transport::Tcp,
        ..udp(OURS, 7)
    };
    let several = [udp(OURS, 9), udp(OURS_V6, 7)];
    let one = channels.add(&[udp(OURS, 7)], LIMIT).unwrap();
    let two = channels.add(&[tcp], LIMIT).unwrap();
    let three = channels.add(&several, LIMIT).unwrap();
    for channel in [&one, &two, &three] {
        assert!(!is_readable(channel));
    }
    setup.send_to(&udp(OURS, 7), &one, 100..120);
    assert_eq!(
        [&one, &two, &three].map(is_readable),
        [true, false, false],
        "each has its descriptor"
    );
    setup.send_to(&tcp, &two, 200..220);
    setup.send_to(&several[0], &three, 300..320);
    setup.send_to(&several[1], &three, 320..340);
    setup.send_to(&udp(OURS, 8), channels.unclaimed(), 400..420);
    let all = [&one, &two, &three, channels.unclaimed()];
    let expected = [100..120, 200..220, 300..340, 400..420].map(Vec::from_iter);
    assert_eq!(all.map(taken), expected);
    for channel in all {
        assert_eq!(channel.take_lost().unwrap(), 0);
        assert_eq!((channel.discarded(), channel.held()), (0, 0));
        assert!(!is_readable(channel));
    }
}

#[test]
fn a_flood_is_discarded_beyond_the_limit_of_its_channel() {
    let setup = setup!(settings(2));
    let channels = &setup.channels;
    let [flooded, served] = [udp(OURS, 7), udp(OURS, 8)];
    let flood = channels.add(&[flooded], LIMIT).unwrap();
    let other = channels.add(&[served], 20).unwrap();
    for round in 0..200 {
        setup.send_to(&flooded, &flood, 0..50);
        setup.send_to(&served, &other, round..round + 10);
        assert_eq!(taken(&other), Vec::from_iter(round..round + 10));
    }
    assert_eq!((other.delivered(), other.discarded()), (2000, 0));
    assert_eq!(flood.delivered(), u64::from(LIMIT));
    assert_eq!(flood.discarded(), 200 * 50 - u64::from(LIMIT));
    // The frames that wait are the first ones.
    let mut held = Vec::new();
    while flood
        .receive(|received| held.push(received.unwrap().bytes))
        .is_ok()
    {}
    let numbers: Vec<_> = held.iter().filter_map(|chunk| number(chunk)).collect();
    assert_eq!(numbers, Vec::from_iter(0..LIMIT));

    // Held frames count, and each chunk that is dropped makes room for one frame.
    assert_eq!(flood.held(), LIMIT as usize);
    let discarded = flood.discarded();
    setup.send_to(&flooded, &flood, 0..10);
    assert_eq!(flood.discarded(), discarded + 10);
    held.truncate(LIMIT as usize - 7);
    setup.send_to(&flooded, &flood, 500..510);
    assert_eq!(flood.discarded(), discarded + 13);
    assert_eq!(taken(&flood), Vec::from_iter(500..507));
    for (chunk, number) in held.iter().zip(0..) {
        assert_eq!(chunk[..], frame(&flooded, number), "held frames stay");
    }
    assert_eq!(flood.take_lost().unwrap() + other.take_lost().unwrap(), 0);
}

/// A flood of datagrams to closed ports, or of fragments, leaves room for ARP.
#[test]
fn frames_of_no_endpoint_have_channels_by_kind() {
    let setup = setup!(settings(1));
    let channels = &setup.channels;
    let key = udp(OURS, 7);
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = frame(&key, 5);
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let arp = with(12, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    let arp = [&arp[..38], &[10, 0, 0, 9], &arp[42..]].concat();
    let kinds = [
        (channels.control(), arp),
        (channels.control(), with(23, &[1])),
        (channels.fragments(), with(20, &[0x20, 0])),
        (channels.fragments(), with(20, &[0, 9])),
        (channels.unclaimed(), with(0, &[])),
    ];
    for round in 1..=100 {
        for (channel, frame) in &kinds {
            let sent = setup.sender.send([(&frame[..], &Offload::NONE)]);
            assert_eq!(sent.unwrap(), 1);
            wait(|| (channel.delivered() + channel.discarded() >= round).then_some(()));
        }
        settle();
        // Only the others are full.
        assert_eq!(taken(channels.control()), [5, 5]);
    }
    let counts = |channel: &XdpChannel| (channel.delivered(), channel.discarded());
    assert_eq!(counts(channels.control()), (200, 0));
    assert_eq!(counts(channels.fragments()), (64, 136));
    assert_eq!(taken(channels.unclaimed()).len(), 64);
}

fn tcp(port: u16) -> EndpointKey {
    EndpointKey {
        transport: Transport::Tcp,
        ..udp(OURS, port)
    }
}

/// A flood of SYNs to a port leaves half of its channel to its connections, and all room of the other channels.
#[test]
fn syns_leave_room_for_other_segments() {
    let setup = setup!(settings(1));
    let channels = &setup.channels;
    let send =
        |to: &EndpointKey, flags: u8, channel: &XdpChannel, numbers: std::ops::Range<u32>| {
            let expected = channel.delivered() + channel.discarded() + numbers.len() as u64;
            for number in numbers {
                let mut frame = frame(to, number);
                frame[14 + 20 + 13] = flags;
                assert_eq!(
                    setup.sender.send([(&frame[..], &Offload::NONE)]).unwrap(),
                    1
                );
            }
            wait(|| (channel.delivered() + channel.discarded() == expected).then_some(()));
            settle();
        };
    let (syn, ack) = (2, 16);
    let stream = channels.add_stream(&[tcp(7)]).unwrap();
    assert_eq!(stream.limit(), STREAM_LIMIT);
    send(&tcp(7), syn, &stream, 0..80);
    assert_eq!((stream.delivered(), stream.discarded()), (50, 30));
    send(&tcp(7), ack, &stream, 100..160);
    assert_eq!((stream.delivered(), stream.discarded()), (100, 40));
    let all: Vec<_> = (0..50).chain(100..150).collect();
    assert_eq!(taken(&stream), all);
    // All SYNs are discarded, but none that accepts a connection.
    stream.set_reserve(STREAM_LIMIT);
    send(&tcp(7), syn, &stream, 0..10);
    send(&tcp(7), syn | ack, &stream, 10..20);
    assert_eq!(taken(&stream), Vec::from_iter(10..20));
    stream.set_reserve(0);
    send(&tcp(7), syn, &stream, 0..STREAM_LIMIT);
    assert_eq!(taken(&stream), Vec::from_iter(0..STREAM_LIMIT));

    // Segments to other ports do not wait behind SYNs and datagrams.
    send(&tcp(8), syn, channels.unclaimed(), 0..80);
    send(&tcp(8), ack, channels.segments(), 0..120);
    assert_eq!(taken(channels.unclaimed()), Vec::from_iter(0..64));
    assert_eq!(taken(channels.segments()), Vec::from_iter(0..STREAM_LIMIT));

    // Another channel has its own slots, and no reserve of an earlier one.
    let quota = channels.add_stream(&[tcp(9)]).unwrap_err();
    assert_eq!(quota.kind(), io::ErrorKind::QuotaExceeded);
    let endpoint = channels.add(&[tcp(9)], LIMIT).unwrap();
    stream.set_reserve(STREAM_LIMIT);
    drop(stream);
    let stream = channels.add_stream(&[tcp(7)]).unwrap();
    send(&tcp(7), syn, &stream, 0..60);
    assert_eq!(taken(&stream), Vec::from_iter(0..50));
    send(&tcp(9), syn, &endpoint, 0..LIMIT);
    assert_eq!(taken(&endpoint), Vec::from_iter(0..LIMIT));
}

/// SYNs of preferred peers take the room that is kept from those of others.
#[test]
fn peers_are_preferred_by_address_or_network() {
    let setup = setup!(settings(1));
    let channels = &setup.channels;
    let v6 = EndpointKey {
        transport: Transport::Tcp,
        ..udp(OURS_V6, 7)
    };
    for (to, [same, other]) in [
        (tcp(7), ["10.0.0.1", "10.0.0.2"]),
        (v6, ["fdfd:fdfd:fdfd:fdfd::1", "fdfd:fdfd:fdfd:fdfc::1"]),
    ] {
        let channel = channels.add_stream(&[to]).unwrap();
        channel.set_reserve(STREAM_LIMIT);
        let [same, other] = [same, other].map(|address| address.parse().unwrap());
        let flags = match to.address {
            IpAddr::V4(_) => 14 + 20 + 13,
            IpAddr::V6(_) => 14 + 40 + 13,
        };
        let is_taken = |number| {
            let seen = channel.delivered() + channel.discarded();
            let mut syn = frame(&to, number);
            syn[flags] = 2;
            let sent = setup.sender.send([(&syn[..], &Offload::NONE)]);
            assert_eq!(sent.unwrap(), 1);
            wait(|| (channel.delivered() + channel.discarded() > seen).then_some(()));
            settle();
            taken(&channel).contains(&number)
        };
        assert!(!is_taken(1));
        channels.prefer_peer(other).unwrap();
        assert!(!is_taken(2), "{other} is preferred");
        channels.prefer_peer(same).unwrap();
        assert!(is_taken(3));
        let again = channels.prefer_peer(same).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        let full = channels
            .prefer_peer("10.0.0.3".parse().unwrap())
            .unwrap_err();
        assert_eq!(full.raw_os_error(), Some(libc::E2BIG));
        // Their room is bounded, too: now by half, and by all for any frame.
        setup.send_to(&to, &channel, 100..150);
        assert!(!is_taken(4), "half is full");
        channel.set_preferred_reserve(0);
        assert!(is_taken(5));
        setup.send_to(&to, &channel, 100..100 + STREAM_LIMIT);
        assert!(!is_taken(6), "all is full");
        channel.set_preferred_reserve(STREAM_LIMIT);
        assert!(!is_taken(7));
        channel.set_preferred_reserve(STREAM_LIMIT / 2);
        assert!(is_taken(8));
        channels.forget_peer(same).unwrap();
        assert!(!is_taken(9));
        channels.forget_peer(other).unwrap();
    }
}

#[test]
fn all_channels_can_be_full_at_once() {
    const CHANNELS: u32 = 8;
    let setup = setup!(settings(CHANNELS));
    let keys: Vec<_> = (0..CHANNELS as u16).map(|port| udp(OURS, port)).collect();
    let add = |key| setup.channels.add(&[key], LIMIT).unwrap();
    let full: Vec<_> = keys.iter().copied().map(add).collect();
    for (key, channel) in keys.iter().zip(&full) {
        setup.send_to(key, channel, 0..LIMIT + 10);
    }
    setup.send_to(&udp(OURS, 99), setup.channels.unclaimed(), 0..100);
    let limits = [LIMIT; CHANNELS as usize].into_iter().chain([64]);
    for (channel, limit) in full.iter().chain([setup.channels.unclaimed()]).zip(limits) {
        assert_eq!(taken(channel), Vec::from_iter(0..limit));
        assert_eq!(channel.take_lost().unwrap(), 0);
    }
}

/// Credits of frames that the kernel loses behind the program come back.
#[test]
fn lost_frames_do_not_cost_room() {
    let setup = setup!(settings(1));
    let key = udp(OURS, 7);
    let channel = setup.channels.add(&[key], LIMIT).unwrap();
    let (credits, account) = (&setup.channels.shared.maps.credits, channel.slot.account);
    // More credits than the ring has room for.
    let (room, lost) = (LIMIT.next_power_of_two(), 100);
    credits.grant(account, (room + lost - LIMIT).into());
    setup.send_to(&key, &channel, 0..room + lost);
    assert_eq!((channel.discarded(), credits.left(account)), (0, 0));
    let mut reported = 0;
    wait(|| {
        reported += channel.take_lost().unwrap();
        (reported == lost.into()).then_some(())
    });
    assert_eq!(taken(&channel), Vec::from_iter(0..room));
    assert_eq!(credits.left(account), (room + lost).into());

    // A receiver that only receives gets them back once the channel would stand still.
    credits.grant(account, -i64::from(lost));
    setup.send_to(&key, &channel, 0..room);
    credits.grant(account, lost.into());
    setup.send_to(&key, &channel, room..room + lost);
    assert_eq!(credits.left(account), 0);
    wait(|| (taken(&channel).is_empty() && credits.left(account) > 0).then_some(()));
    setup.send_to(&key, &channel, 900..910);
    wait(|| (taken(&channel) == Vec::from_iter(900..910)).then_some(()));
}

#[test]
fn the_host_keeps_the_frames_to_others() {
    let setup = setup!(settings(1));
    let [_, link] = setup.cable.links();
    let host = PacketSocket::open(&link, 1 << 20).unwrap();
    let channel = setup.channels.add(&[udp(OURS, 7)], LIMIT).unwrap();
    let mut kept = BTreeSet::new();
    wait(|| {
        setup.send(&udp("10.0.0.8", 7), 0..10);
        setup.send(&udp("fd00::8", 7), 10..20);
        setup.send(&udp(OURS, 7), 20..30);
        while host
            .receive(|received| kept.extend(number(&received.unwrap().bytes)))
            .is_ok()
        {}
        (kept.len() >= 20).then_some(())
    });
    assert_eq!(kept, BTreeSet::from_iter(0..20));
    assert!(channel.delivered() >= 10);
    let channels = &setup.channels;
    for channel in [
        channels.control(),
        channels.fragments(),
        channels.unclaimed(),
        channels.segments(),
    ] {
        assert_eq!(taken(channel), []);
    }
}

#[test]
fn an_endpoint_has_one_channel() {
    let setup = setup!(settings(2));
    let channels = &setup.channels;
    let refused = |keys: &[EndpointKey], limit| channels.add(keys, limit).unwrap_err().kind();
    let [first, second] = [udp(OURS, 7), udp(OURS, 8)];
    let channel = channels.add(&[first], LIMIT).unwrap();
    assert_eq!(
        refused(&[second, first], LIMIT),
        io::ErrorKind::AlreadyExists
    );
    assert_eq!(refused(&[], LIMIT), io::ErrorKind::InvalidInput);
    assert_eq!(refused(&[second], 0), io::ErrorKind::InvalidInput);
    assert_eq!(refused(&[second], LIMIT + 1), io::ErrorKind::InvalidInput);
    let many: Vec<_> = (0..17).map(|port| udp(OURS, port)).collect();
    assert_eq!(refused(&many, LIMIT), io::ErrorKind::InvalidInput);
    // The keys before the one that was refused are gone again.
    let other = channels.add(&[second], LIMIT).unwrap();
    setup.send_to(&first, &channel, 0..1);
    setup.send_to(&second, &other, 1..2);
    assert_eq!([taken(&channel), taken(&other)], [[0], [1]]);
}

#[test]
fn received_frames_are_sent_without_a_copy_and_give_their_credits_back() {
    let setup = setup!(settings(1));
    let key = udp(OURS, 7);
    let channel = setup.channels.add(&[key], LIMIT).unwrap();
    let mut echoed = 0;
    for round in 0..50 {
        setup.send_to(&key, &channel, round * 30..(round + 1) * 30);
        let mut frames = Vec::new();
        channel
            .receive(|received| frames.push(Buffer::from(received.unwrap().bytes)))
            .unwrap();
        assert_eq!(frames.len(), 30);
        let buffers = frames.iter_mut().map(|frame| (frame, &Offload::NONE));
        assert_eq!(setup.channels.send_buffers(buffers).unwrap(), 30);
        assert!(frames.iter().all(|frame| frame.is_empty()));
        while setup
            .sender
            .receive(|received| {
                echoed += usize::from(number(&received.unwrap().bytes).is_some());
            })
            .is_ok()
        {}
    }
    wait(|| {
        let _ = setup.sender.receive(|received| {
            echoed += usize::from(number(&received.unwrap().bytes).is_some());
        });
        (echoed == 1500).then_some(())
    });
    assert_eq!((channel.discarded(), channel.held()), (0, 0));
    let copied = frame(&key, 1);
    let mut copied = Pool::new().copy_of(&copied);
    let frames = [(&mut copied, &Offload::NONE)];
    assert_eq!(setup.channels.send_buffers(frames).unwrap(), 1);
    assert!(!setup.channels.is_behind() && setup.channels.take_refused() == 0);
}

#[test]
fn the_link_is_as_before_when_all_channels_are_dropped() {
    let cable = cable!();
    let before = cable.state();
    let setup = match Setup::new(cable, settings(3)) {
        Ok(setup) => setup,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let key = udp(OURS, 7);
    let channel = setup.channels.add(&[key], LIMIT).unwrap();
    setup.send_to(&key, &channel, 0..BATCH as u32);
    let mut held = Vec::new();
    channel
        .receive(|received| held.push(received.unwrap().bytes))
        .unwrap();
    let Setup {
        channels,
        sender,
        cable,
    } = setup;
    drop(channels);
    assert!(cable.state()[1].contains("prog/xdp"), "a channel is left");
    drop((sender, channel));
    // Also while frames are held.
    wait(|| (cable.state() == before).then_some(()));
    let [_, link] = cable.links();
    let again = XdpChannels::open(&link, settings(3)).unwrap();
    assert_eq!(held[5][..], frame(&key, 5));
    held.clear();
    drop(again);
    wait(|| (cable.state() == before).then_some(()));
}

#[test]
fn settings_without_frames_are_refused() {
    let cable = cable!();
    let before = cable.state();
    let [_, link] = cable.links();
    let refused = |settings: ChannelSettings| match XdpChannels::open(&link, settings) {
        Err(XdpError::Failed(step, error)) => Some((step, error.kind())),
        Err(XdpError::Queues(_)) => None,
        Ok(_) => panic!("opened"),
    };
    let invalid = Some((XdpStep::Program, io::ErrorKind::InvalidInput));
    if refused(ChannelSettings {
        limit: 0,
        ..settings(1)
    }) != invalid
    {
        softclock_testing::skip!("AF_XDP cannot be used here");
    }
    let mut nothing = settings(1);
    nothing.link.filter = XdpFilter::Addresses(Vec::new());
    assert_eq!(refused(nothing), invalid);
    let long = ChannelSettings {
        limit: u32::MAX,
        ..settings(u32::MAX)
    };
    let socket = Some((XdpStep::Socket, io::ErrorKind::InvalidInput));
    assert_eq!(refused(long), socket);
    wait(|| (cable.state() == before).then_some(()));
}
