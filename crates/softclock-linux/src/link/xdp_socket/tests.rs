use softclock_core::packet::{PartialChecksum, SegmentKind, Segmentation, ones_complement_sum};

use super::*;
use crate::link::PacketSocket;
use crate::link::cable::{Cable, SENDER, frame};

fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

/// Asks until there is an answer: the kernel does things at leisure.
fn wait<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1000 {
        match ask() {
            Some(answer) => return answer,
            None => pause(),
        }
    }
    panic!("no answer")
}

/// The next frame of ours, with its age.
fn next(socket: &XdpSocket) -> Option<(Vec<u8>, Offload, Duration)> {
    let mut found = None;
    let _ = socket.receive(|received| {
        let received = received.unwrap();
        if received.bytes[6..12] == SENDER {
            found = Some((received.bytes.to_vec(), received.offload, received.age));
        }
    });
    found
}

#[test]
fn frames_arrive_and_leave() {
    softclock_testing::require!("ip");
    let cable = match Cable::new("scx") {
        Ok(cable) => cable,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let [a, b] = cable.links();
    let before = cable.state();
    let packets = PacketSocket::open(&a, 1 << 20).unwrap();
    let xdp = match XdpSocket::open(&b, Copies::Allowed) {
        Ok(xdp) => xdp,
        Err(error) => softclock_testing::skip!("AF_XDP cannot be used here: {error:?}"),
    };
    let sent = frame(&[], 1000);
    let (bytes, offload, age) = wait(|| {
        assert_eq!(packets.send([(&sent[..], &Offload::NONE)]).unwrap(), 1);
        pause();
        next(&xdp)
    });
    assert_eq!((&bytes, offload), (&sent, Offload::NONE));
    assert!(
        age > Duration::from_millis(1) && age < Duration::from_secs(5),
        "{age:?}"
    );

    // More frames than chunks: they are used again and again.
    for round in 0..300 {
        let lengths: Vec<_> = (0..BATCH).map(|index| 100 + round + index).collect();
        let frames: Vec<_> = lengths.iter().map(|&bytes| frame(&[], bytes)).collect();
        let parts = || frames.iter().map(|frame| (&frame[..], &Offload::NONE));
        assert_eq!(xdp.send(parts()).unwrap(), BATCH);
        let mut arrived = Vec::new();
        wait(|| {
            let _ = packets.receive(|received| {
                let bytes = received.unwrap().bytes;
                if bytes[6..12] == SENDER {
                    arrived.push(bytes.len());
                }
            });
            (arrived.len() >= BATCH).then_some(())
        });
        assert_eq!(arrived, lengths);
        assert_eq!(packets.send(parts()).unwrap(), BATCH);
        let mut arrived = Vec::new();
        wait(|| {
            let _ = xdp.receive(|received| {
                let bytes = received.unwrap().bytes;
                if bytes[6..12] == SENDER {
                    arrived.push(bytes.len());
                }
            });
            (arrived.len() >= BATCH).then_some(())
        });
        assert_eq!(arrived, lengths);
    }
    assert_eq!(xdp.take_lost().unwrap(), 0);
    let long = vec![0; XdpSocket::MOST_BYTES + 1];
    let error = xdp.send([(&long[..], &Offload::NONE)]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));

    drop((packets, xdp));
    wait(|| (cable.state() == before).then_some(()));
}

/// The sum of a TCP frame's pseudo-header and what `of` adds to it.
fn sum_with(frame: &[u8], of: &[u8]) -> u16 {
    let length = (frame.len() - 34) as u16;
    ones_complement_sum(&[&frame[26..34], &[0, 6], &length.to_be_bytes(), of].concat())
}

/// Partial checksums are told from finished ones, and what leaves has all done that was left to the link.
#[test]
fn offloads_are_done() {
    softclock_testing::require!("ip");
    let cable = match Cable::new("scz") {
        Ok(cable) => cable,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let [a, b] = cable.links();
    let packets = PacketSocket::open(&a, 1 << 20).unwrap();
    let xdp = match XdpSocket::open(&b, Copies::Allowed) {
        Ok(xdp) => xdp,
        Err(error) => softclock_testing::skip!("AF_XDP cannot be used here: {error:?}"),
    };
    let checksum = Some(PartialChecksum {
        start: 34,
        offset: 16,
    });
    let partial = |bytes| {
        let mut frame = frame(&[], bytes);
        let sum = sum_with(&frame, &[]);
        frame[50..52].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let left = Offload {
        checksum,
        segmentation: None,
    };
    let short = partial(1000);
    let (bytes, offload, _) = wait(|| {
        assert_eq!(packets.send([(&short[..], &left)]).unwrap(), 1);
        pause();
        next(&xdp)
    });
    assert_eq!((bytes, offload), (short, left));

    let joined = partial(54 + 2 * 1400 + 600);
    let left = joined_by(1400);
    assert_eq!(xdp.send([(&joined[..], &left)]).unwrap(), 1);
    let mut arrived = Vec::new();
    wait(|| {
        let _ = packets.receive(|received| {
            let received = received.unwrap();
            if received.bytes[6..12] == SENDER {
                assert_eq!(received.offload, Offload::NONE);
                arrived.push(received.bytes.to_vec());
            }
        });
        (arrived.len() >= 3).then_some(())
    });
    let lengths: Vec<_> = arrived.iter().map(Vec::len).collect();
    assert_eq!(lengths, [1454, 1454, 654]);
    for frame in arrived {
        assert_eq!(
            sum_with(&frame, &frame[34..]),
            0xffff,
            "a finished checksum"
        );
    }
}

/// What is left to do with a frame of TCP whose segments are to have so many bytes.
fn joined_by(segment_bytes: u16) -> Offload {
    Offload {
        checksum: Some(PartialChecksum {
            start: 34,
            offset: 16,
        }),
        segmentation: Some(Segmentation {
            kind: SegmentKind::Tcp4,
            has_ecn: false,
            header_bytes: 54,
            segment_bytes,
        }),
    }
}

/// A frame has room for all of its segments, or none of them leaves.
#[test]
fn segments_leave_together() {
    softclock_testing::require!("ip");
    let cable = match Cable::new("scs") {
        Ok(cable) => cable,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let [a, b] = cable.links();
    let packets = PacketSocket::open(&a, 8 << 20).unwrap();
    let xdp = match XdpSocket::open(&b, Copies::Allowed) {
        Ok(xdp) => xdp,
        Err(error) => softclock_testing::skip!("AF_XDP cannot be used here: {error:?}"),
    };
    let left = joined_by(100);
    let never = frame(&[], 54 + 100 * umem::SEND + 1);
    let error = xdp.send([(&never[..], &left)]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::E2BIG));

    // Nothing leaves meanwhile, so that chunks run out within a frame.
    cable.set(1, "down");
    let (segments, count) = (umem::SEND / BATCH + 1, BATCH);
    let joined = frame(&[], 54 + 100 * segments);
    let mut frames = vec![(&joined[..], &left); count];
    let sent = xdp.send(frames.iter().copied()).unwrap();
    assert_eq!(sent, umem::SEND / segments);
    let error = xdp.send(frames.iter().copied()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NetworkDown);

    cable.set(1, "up");
    frames.drain(..sent);
    let mut arrived = Vec::new();
    wait(|| {
        let sent = xdp.send(frames.iter().copied()).unwrap();
        frames.drain(..sent);
        let _ = packets.receive(|received| {
            let bytes = received.unwrap().bytes;
            if bytes[6..12] == SENDER {
                arrived.push(u32::from_be_bytes(bytes[38..42].try_into().unwrap()));
            }
        });
        (arrived.len() >= count * segments).then_some(())
    });
    pause();
    let expected: Vec<_> = (0..count * segments)
        .map(|index| (index % segments * 100) as u32)
        .collect();
    assert_eq!(arrived, expected);
}

#[test]
fn a_link_that_cannot_is_left_alone() {
    softclock_testing::require!("ip");
    let cable = match Cable::new("scy") {
        Ok(cable) => cable,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let [_, link] = cable.links();
    assert!(link.takes_tags_off());
    let before = cable.state();
    let copied = XdpSocket::open(&link, Copies::Never);
    let Err(XdpError::Failed(XdpStep::Queue, error)) = copied else {
        panic!("nothing is copied on a virtual link: {copied:?}");
    };
    assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
    // The driver cannot run programs on what the other end may send.
    cable.set(0, "mtu 9000");
    let refused = XdpSocket::open(&link, Copies::Allowed);
    assert!(
        matches!(refused, Err(XdpError::Failed(XdpStep::Driver, _))),
        "{refused:?}"
    );
    cable.set(0, "mtu 1500");
    wait(|| (cable.state() == before).then_some(()));
}
