use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, OwnedFd};

use super::super::super::common::testing::{loopbacks, until_readable};
use super::super::super::local_addr;
use super::super::*;
use super::*;
use crate::clock::ThreadClock;

fn receive(socket: &OwnedFd, batch: &mut RecvBatch) -> usize {
    until_readable(socket.as_fd());
    recv_batch(socket.as_fd(), batch, &ThreadClock::new()).unwrap()
}

fn bound(address: SocketAddr, receive: RecvOptions) -> (OwnedFd, SocketAddr) {
    let options = BindOptions {
        v6_only: Some(false),
        receive,
        ..BindOptions::default()
    };
    let socket = bind(address, &options).unwrap();
    let address = local_addr(socket.as_fd()).unwrap();
    (socket, address)
}

#[test]
fn a_batch_has_the_datagrams_in_order() {
    for address in loopbacks() {
        let (here, from) = bound(address, RecvOptions::default());
        let (there, to) = bound(address, RecvOptions::default());
        let mut batch = RecvBatch::new(3, 4);
        for payload in [&b"one"[..], b"", b"three", b"four"] {
            send_to(here.as_fd(), payload, to).unwrap();
        }
        assert_eq!(receive(&there, &mut batch), 3);
        let mut truncated = Datagram::new(b"thre", from);
        truncated.is_truncated = true;
        let expected = [
            Datagram::new(b"one", from),
            Datagram::new(b"", from),
            truncated,
        ];
        assert!(
            batch.iter().eq(expected),
            "{:?}",
            batch.iter().collect::<Vec<_>>()
        );
        // The batch may move between two calls.
        let mut batch = Box::new(batch);
        assert_eq!(receive(&there, &mut batch), 1);
        assert!(batch.iter().eq([Datagram::new(b"four", from)]));
        let error = recv_batch(there.as_fd(), &mut batch, &ThreadClock::new());
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(batch.is_empty());
    }
}

#[test]
fn all_facts_fit_into_the_control_buffer() {
    let all = RecvOptions {
        destinations: true,
        ecn: true,
        time_stamps: true,
        gro: true,
    };
    for loopback in loopbacks() {
        let any = match loopback {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let (there, to) = bound((any, 0).into(), all);
        if loopback.is_ipv6() {
            // Both kinds of destinations for IPv4, more than this library asks for.
            set_option(&there, libc::IPPROTO_IP, libc::IP_PKTINFO);
            set_option(&there, libc::SOL_SOCKET, libc::SO_RXQ_OVFL);
        }
        let before = ThreadClock::new().now();
        // An IPv6 socket receives both.
        for loopback in loopbacks()
            .into_iter()
            .filter(|other| *other == loopback || any.is_ipv6())
        {
            let (here, from) = bound(loopback, RecvOptions::default());
            set_ecn(here.as_fd(), Ecn::Ect1).unwrap();
            let peer = SocketAddr::new(loopback.ip(), to.port());
            let sent = send_segments(here.as_fd(), b"abcdefgh", 3, Some(peer));
            if sent.is_err_and(|error| is_without_segments(&error)) {
                println!("skipped: this kernel does not segment datagrams");
                return;
            }
            let mut batch = RecvBatch::new(4, RecvBatch::MOST_BYTES);
            assert_eq!(receive(&there, &mut batch), 1);
            let datagram = batch.get(0).unwrap();
            let as_seen = |ip: IpAddr| match ip {
                IpAddr::V4(v4) if any.is_ipv6() => v4.to_ipv6_mapped().into(),
                ip => ip,
            };
            assert_eq!(datagram.source.ip(), as_seen(from.ip()));
            assert_eq!(datagram.destination, Some(as_seen(loopback.ip())));
            assert_eq!(datagram.ecn, Some(Ecn::Ect1));
            assert_eq!(datagram.segment_bytes, NonZeroU16::new(3));
            assert!(datagram.segments().eq([&b"abc"[..], b"def", b"gh"]));
            let received = datagram.received.unwrap();
            // Both clocks are precise to about 1 us, and so is the conversion.
            let slack = 1_000_000;
            assert!(received.add_ns(slack) >= before);
            assert!(received <= ThreadClock::new().now().add_ns(slack));
            let header = &batch.headers().messages[0].msg_hdr;
            assert_eq!(header.msg_flags & libc::MSG_CTRUNC, 0);
        }
    }
}

fn set_option(fd: &OwnedFd, level: i32, option: i32) {
    crate::socket::common::set_option(fd.as_fd(), level, option, 1u32).unwrap();
}

#[test]
fn other_families_are_an_error() {
    let (here, there) = std::os::unix::net::UnixDatagram::pair().unwrap();
    here.send(b"abc").unwrap();
    let mut batch = RecvBatch::new(2, 10);
    there.set_nonblocking(true).unwrap();
    let error = recv_batch(there.as_fd(), &mut batch, &ThreadClock::new());
    assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(batch.is_empty());
}

#[test]
fn implausible_stamps_are_no_times() {
    let (now, real) = (Instant::from_ns(1 << 40), Duration::from_secs(1 << 30));
    let stamp = |age| received(real - age, now, real);
    assert_eq!(stamp(Duration::ZERO), Some(now));
    assert_eq!(stamp(Duration::from_micros(7)), Some(now.sub_ns(7_000)));
    assert_eq!(stamp(Duration::from_secs(11)), None);
    assert_eq!(received(real + Duration::from_nanos(1), now, real), None);
}

#[test]
fn clocks_are_read_again_after_an_interruption() {
    /// A clock that is interrupted for 1 s between some of its readings.
    struct Interrupted(std::cell::Cell<u64>, u64);
    impl Clock for Interrupted {
        fn now(&self) -> Instant {
            let reading = self.0.replace(self.0.get() + 1);
            Instant::from_ns(reading.min(self.1) * 1_000_000_000 + reading)
        }
    }
    for (interruptions, expected) in [(0, 0), (1, 1), (2, 2), (9, 2)] {
        let clock = Interrupted(Default::default(), interruptions);
        let (now, _) = readings(&clock);
        assert_eq!(now.as_ns() / 1_000_000_000, expected);
    }
}
