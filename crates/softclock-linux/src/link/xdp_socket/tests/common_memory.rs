//! Two sockets with common memory: frames pass from one link to another without a copy.

use super::*;

/// Two cables, the sockets at one end of each, and AF_PACKET at the other ends.
struct Relay {
    packets: [PacketSocket; 2],
    xdp: [XdpSocket; 2],
    cables: [Cable; 2],
}

/// Opens a relay, or skips the test if that is not possible.
macro_rules! relay {
    () => {{
        let cables = [cable!(), cable!()];
        let packets = cables.each_ref().map(|cable| {
            let [far, _] = cable.links();
            PacketSocket::open(&far, 8 << 20).unwrap()
        });
        let memory = XdpMemory::new(2).unwrap();
        let xdp = cables.each_ref().map(|cable| {
            let [_, near] = cable.links();
            XdpSocket::open_in(&memory, &near, whole(Copies::Allowed))
        });
        match xdp {
            [Ok(first), Ok(second)] => Relay {
                packets,
                xdp: [first, second],
                cables,
            },
            errors => softclock_testing::skip!("AF_XDP cannot be used here: {errors:?}"),
        }
    }};
}

impl Relay {
    /// Sends a frame to the first socket until it is there; returns it in its chunk.
    fn arrival(&self, sent: &[u8], offload: &Offload) -> Received {
        wait(|| {
            self.packets[0].send([(sent, offload)]).unwrap();
            pause();
            let mut found = None;
            let _ = self.xdp[0].receive_chunks(|received| {
                let received = received.unwrap().map(Buffer::from);
                if received.bytes[6..12] == SENDER {
                    found = Some(received);
                }
            });
            found
        })
    }

    /// The next frame of this test that left by the second socket.
    fn departure(&self) -> Vec<u8> {
        wait(|| {
            let mut found = None;
            let _ = self.packets[1].receive(|received| {
                let bytes = received.unwrap().bytes;
                if bytes[6..12] == SENDER {
                    found = Some(bytes.to_vec());
                }
            });
            pause();
            found
        })
    }
}

/// Each frame arrives once and in order, no buffer is copied, and all chunks come back.
#[test]
fn frames_pass_without_a_copy() {
    let relay = relay!();
    let [from, to] = &relay.xdp;
    let (mut passed, mut arrived) = (Vec::new(), Vec::new());
    let mut next = 0;
    while arrived.len() < 3 * XdpSocket::CHUNKS {
        let frames: Vec<_> = (0..BATCH as u32)
            .map(|index| {
                let mut frame = frame(&[], 60 + (next + index) as usize % 1400);
                frame[38..42].copy_from_slice(&(next + index).to_be_bytes());
                frame
            })
            .collect();
        next += BATCH as u32;
        let parts = frames.iter().map(|frame| (&frame[..], &Offload::NONE));
        assert_eq!(relay.packets[0].send(parts).unwrap(), BATCH);
        wait(|| {
            let _ = from.receive_chunks(|received| {
                let frame = Buffer::from(received.unwrap().bytes);
                if frame[6..12] == SENDER {
                    passed.push((frame, Offload::NONE));
                }
            });
            (passed.len() >= BATCH).then_some(())
        });
        let parts = passed.iter_mut().map(|(frame, offload)| (frame, &*offload));
        assert_eq!(to.send_buffers(parts).unwrap(), BATCH);
        assert!(passed.iter().all(|(frame, _)| frame.is_empty()));
        passed.clear();
        let before = arrived.len();
        wait(|| {
            let _ = relay.packets[1].receive(|received| {
                let bytes = received.unwrap().bytes;
                if bytes[6..12] == SENDER {
                    arrived.push((
                        bytes.to_vec(),
                        frames[(arrived.len() - before) % BATCH].clone(),
                    ));
                }
            });
            (arrived.len() >= before + BATCH).then_some(())
        });
    }
    for (bytes, sent) in &arrived {
        assert_eq!(bytes, sent);
    }
    assert_eq!(from.take_lost().unwrap(), 0);
    to.flush();
    assert_eq!((from.held(), to.held()), (0, 0));
}

#[test]
fn a_checksum_is_completed_in_place() {
    let relay = relay!();
    let left = Offload {
        segmentation: None,
        ..joined(1400)
    };
    let mut sent = frame(&[], 1000);
    let sum = sum_with(&sent, &[]);
    sent[50..52].copy_from_slice(&sum.to_be_bytes());
    let mut received = relay.arrival(&sent, &left);
    assert_eq!(received.offload, left);
    let parts = [(&mut received.bytes, &received.offload)];
    assert_eq!(relay.xdp[1].send_buffers(parts).unwrap(), 1);
    assert!(received.bytes.is_empty(), "not copied");
    let bytes = relay.departure();
    assert_eq!(
        sum_with(&bytes, &bytes[34..]),
        0xffff,
        "a finished checksum"
    );
}

/// A frame that cannot be sent keeps its buffer, and one from other memory is copied.
#[test]
fn other_buffers_stay() {
    let relay = relay!();
    let sent = frame(&[], 500);
    let mut received = relay.arrival(&sent, &Offload::NONE);
    let contradiction = Offload {
        checksum: joined(1400).checksum.map(|mut checksum| {
            checksum.start = 600;
            checksum
        }),
        segmentation: None,
    };
    let parts = [(&mut received.bytes, &contradiction)];
    let error = relay.xdp[1].send_buffers(parts).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert_eq!(received.bytes[..], sent);

    let mut pooled = Pool::new().copy_of(&sent);
    let parts = [(&mut pooled, &Offload::NONE)];
    assert_eq!(relay.xdp[1].send_buffers(parts).unwrap(), 1);
    assert_eq!(pooled[..], sent);
    assert_eq!(relay.departure(), sent);
}

/// While a link is down, the frames lent to it are held; when its socket is closed, they go back to theirs.
#[test]
fn a_socket_that_is_closed_returns_what_it_was_lent() {
    let Relay {
        packets,
        xdp: [from, to],
        cables,
    } = relay!();
    let sent = frame(&[], 300);
    let lent = wait(|| {
        packets[0].send([(&sent[..], &Offload::NONE)]).unwrap();
        cables[1].set(1, "down");
        let mut lent = 0;
        let _ = from.receive_chunks(|received| {
            let mut frame = Buffer::from(received.unwrap().bytes);
            lent += to.send_buffers([(&mut frame, &Offload::NONE)]).unwrap_or(0);
        });
        pause();
        (lent > 0).then_some(lent)
    });
    assert_eq!(from.held(), lent);
    drop(to);
    assert_eq!(from.held(), 0);
}

/// The memory outlives its first socket, but admits no other then.
#[test]
fn shares_are_used_once() {
    let relay = relay!();
    let sent = frame(&[], 700);
    let mut received = relay.arrival(&sent, &Offload::NONE);
    let Relay {
        packets: [_, packets],
        xdp: [from, to],
        cables: _cables,
    } = relay;
    drop(from);
    let parts = [(&mut received.bytes, &Offload::NONE)];
    assert_eq!(to.send_buffers(parts).unwrap(), 1);
    wait(|| {
        let mut found = None;
        let _ = packets.receive(|received| {
            found = Some(()).filter(|()| received.unwrap().bytes[..] == sent);
        });
        found
    });

    let cable = cable!();
    let [a, b] = cable.links();
    let memory = XdpMemory::new(1).unwrap();
    let only = XdpSocket::open_in(&memory, &a, whole(Copies::Allowed)).unwrap();
    let refused = XdpSocket::open_in(&memory, &b, whole(Copies::Allowed)).unwrap_err();
    let is_invalid = |refused: &XdpError| {
        matches!(refused, XdpError::Failed(XdpStep::Socket, error)
            if error.kind() == io::ErrorKind::InvalidInput)
    };
    assert!(is_invalid(&refused), "{refused:?}");
    drop(only);

    let memory = XdpMemory::new(2).unwrap();
    drop(XdpSocket::open_in(&memory, &a, whole(Copies::Allowed)).unwrap());
    let refused = XdpSocket::open_in(&memory, &b, whole(Copies::Allowed)).unwrap_err();
    assert!(is_invalid(&refused), "{refused:?}");
}
