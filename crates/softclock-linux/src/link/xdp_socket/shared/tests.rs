//! Receivers in several threads over one veth pair.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::super::{ChannelSettings, Copies, EndpointKey, Transport, XdpChannels, XdpFilter};
use super::*;
use crate::link::cable::{Cable, SENDER, cable, frame};
use crate::link::{BATCH, PacketSocket};

const LIMIT: u32 = 64;
const THREADS: u16 = 4;
const EACH: usize = 3000;

fn xdp() -> XdpSettings {
    XdpSettings {
        copies: Copies::Allowed,
        queue: None,
        filter: XdpFilter::Addresses(vec![[10, 0, 0, 2].into()]),
    }
}

/// A datagram to 10.0.0.2.
fn datagram(port: u16) -> Vec<u8> {
    let mut frame = frame(&[], 100);
    frame[23] = 17;
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame
}

/// Sends datagrams to each port in turn, slowly enough for the receivers, until `is_done`.
fn send_until(cable: &Cable, is_done: impl Fn() -> bool) {
    let [link, _] = cable.links();
    let sender = PacketSocket::open(&link, 1 << 20).unwrap();
    let frames: Vec<_> = (0..THREADS).map(datagram).collect();
    let begun = Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < Duration::from_secs(30), "frames are lost");
        for frame in &frames {
            let _ = sender.send((0..8).map(|_| (&frame[..], &Offload::NONE)));
        }
        thread::sleep(Duration::from_micros(200));
    }
}

fn wait(fd: &impl AsFd) {
    let wait = Timespec::try_from(Duration::from_millis(20)).unwrap();
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&wait)).unwrap();
}

#[test]
fn each_thread_receives_the_frames_of_its_channel() {
    let cable = cable!();
    let [_, link] = cable.links();
    let settings = ChannelSettings {
        link: xdp(),
        channels: THREADS.into(),
        limit: LIMIT,
        streams: 0,
        stream_limit: LIMIT,
        common_limit: LIMIT,
        peers: 0,
    };
    let channels = match XdpChannels::open(&link, settings) {
        Ok(channels) => channels,
        Err(error) => softclock_testing::skip!("AF_XDP cannot be used here: {error:?}"),
    };
    let finished = AtomicUsize::new(0);
    thread::scope(|scope| {
        for port in 0..THREADS {
            let (channels, finished) = (&channels, &finished);
            scope.spawn(move || {
                let key = EndpointKey {
                    transport: Transport::Udp,
                    address: [10, 0, 0, 2].into(),
                    port,
                };
                let channel = channels.add(&[key], LIMIT).unwrap();
                let (mut received, mut held) = (0, Vec::new());
                while received < EACH {
                    let taken = channel.receive(|frame| {
                        let frame = frame.unwrap().bytes;
                        assert_eq!(frame[36..38], port.to_be_bytes());
                        held.push(frame);
                        received += 1;
                    });
                    // Chunks go back while other threads give theirs back.
                    held.clear();
                    match taken {
                        Ok(taken) => assert!(taken <= BATCH),
                        Err(_) => wait(&channel),
                    }
                }
                assert!(channel.delivered() >= EACH as u64);
                assert_eq!(channel.take_lost().unwrap(), 0);
                drop(channel);
                finished.fetch_add(1, Relaxed);
            });
        }
        send_until(&cable, || finished.load(Relaxed) == THREADS.into());
    });
    // The channels are removed: their frames are now of no endpoint.
    let mut unclaimed = 0;
    send_until(&cable, || true);
    let [near, _] = cable.links();
    let sender = PacketSocket::open(&near, 1 << 20).unwrap();
    while unclaimed == 0 {
        let _ = sender.send([(&datagram(1)[..], &Offload::NONE)]);
        let _ = channels.unclaimed().receive(|_| unclaimed += 1);
    }
}

#[test]
fn threads_take_turns_with_the_frames_of_a_socket() {
    let cable = cable!();
    let [_, link] = cable.links();
    let socket = match SharedXdpSocket::open(&link, xdp()) {
        Ok(socket) => socket,
        Err(error) => softclock_testing::skip!("AF_XDP cannot be used here: {error:?}"),
    };
    let received = AtomicUsize::new(0);
    let is_done = || received.load(Relaxed) >= EACH;
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (socket, received) = (socket.clone(), &received);
            scope.spawn(move || {
                while !is_done() {
                    let taken = socket.receive(|frame| {
                        let frame = frame.unwrap().bytes;
                        assert_eq!((frame.len(), &frame[6..12]), (100, &SENDER[..]));
                        received.fetch_add(1, Relaxed);
                    });
                    if taken.is_err() {
                        wait(&socket);
                    }
                }
            });
        }
        send_until(&cable, is_done);
    });
    socket.take_lost().unwrap();
}
