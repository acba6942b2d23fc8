use std::time::Duration;

use softclock_wire::packet::{PartialChecksum, SCTP, complete_checksum};

use super::*;
use crate::bpf;
use crate::link::BATCH;
use crate::link::cable::{Cable, SENDER, cable, frame, joined};

fn sockets(cable: &Cable) -> [PacketSocket; 2] {
    cable
        .links()
        .map(|link| PacketSocket::open(&link, 1 << 20).unwrap())
}

/// Sends a frame until it arrives, since a new link takes some time to come up. Skips the frames that the host sends.
fn exchange(
    sockets: &[PacketSocket; 2],
    frame: &[u8],
    offload: &Offload,
) -> (Vec<u8>, Offload, Duration) {
    let [a, b] = sockets;
    for _ in 0..1000 {
        assert_eq!(a.send([(frame, offload)]).unwrap(), 1);
        std::thread::sleep(Duration::from_millis(10));
        let ours = all_there(b)
            .into_iter()
            .find(|(bytes, ..)| bytes.len() == frame.len());
        if let Some(found) = ours {
            return found;
        }
    }
    panic!("no frame")
}

/// The frames of this test that have arrived.
fn all_there(socket: &PacketSocket) -> Vec<(Vec<u8>, Offload, Duration)> {
    let mut frames = Vec::new();
    loop {
        let received = socket.receive(|received| {
            let received = received.unwrap();
            if received.bytes[6..12] == SENDER {
                frames.push((received.bytes.to_vec(), received.offload, received.age));
            }
        });
        match received {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return frames,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn frames_arrive_as_they_were_sent() {
    let cable = cable!();
    let sockets = sockets(&cable);
    for (tag, bytes) in [
        (&[][..], 1000),
        (&[0x81, 0, 0x20, 7], 1001),
        (&[0x88, 0xa8, 0, 9], 1002),
    ] {
        let sent = frame(tag, bytes);
        let (bytes, offload, age) = exchange(&sockets, &sent, &Offload::NONE);
        assert_eq!((bytes, offload), (sent, Offload::NONE), "{tag:?}");
        assert!(age < Duration::from_secs(5));
    }
    let [a, b] = sockets;
    let error = a
        .send([(&frame(&[], 2000)[..], &Offload::NONE)])
        .unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    assert_eq!(b.take_lost().unwrap(), 0);
}

/// Batches keep the order of frames, and end before a frame that cannot be sent.
#[test]
fn frames_go_in_batches() {
    let cable = cable!();
    let sockets = sockets(&cable);
    exchange(&sockets, &frame(&[], 100), &Offload::NONE);
    let [a, b] = sockets;
    all_there(&b);
    let lengths: Vec<usize> = (0..BATCH + 8).map(|index| 200 + 7 * index).collect();
    let mut frames: Vec<_> = lengths.iter().map(|&bytes| frame(&[], bytes)).collect();
    frames.insert(BATCH + 3, frame(&[], 3000));
    let send = |from: usize| {
        a.send(
            frames[from..]
                .iter()
                .map(|frame| (&frame[..], &Offload::NONE)),
        )
    };
    assert_eq!(send(0).unwrap(), BATCH);
    assert_eq!(send(BATCH).unwrap(), 3);
    let error = send(BATCH + 3).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    assert_eq!(send(BATCH + 4).unwrap(), 5);
    let mut arrived = Vec::new();
    for _ in 0..1000 {
        arrived.extend(all_there(&b).iter().map(|(bytes, ..)| bytes.len()));
        if arrived.len() >= lengths.len() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(arrived, lengths);
}

#[test]
fn offloads_go_along() {
    let cable = cable!();
    let offload = joined(1400);
    let (bytes, received, _) = exchange(&sockets(&cable), &frame(&[], 9000), &offload);
    assert_eq!(bytes.len(), 9000);
    assert_eq!(received.checksum, offload.checksum);
    let segmentation = received.segmentation.unwrap();
    assert_eq!(segmentation.segment_bytes, 1400);
}

/// SCTP of a host on the other end of a veth arrives with its checksum, since no other link could complete it. The VLAN
/// tag, which the kernel strips, is back in place before.
#[test]
fn the_checksum_of_sctp_is_completed() {
    let cable = cable!();
    let sockets = sockets(&cable);
    for tag in [&[][..], &[0x81, 0, 0x20, 7]] {
        let mut sent = frame(tag, 100);
        let transport = 34 + tag.len();
        sent[transport - 11] = SCTP;
        let checksum = PartialChecksum {
            start: transport as u16,
            offset: 8,
        };
        let partial = Offload {
            checksum: Some(checksum),
            segmentation: None,
        };
        let (bytes, offload, _) = exchange(&sockets, &sent, &partial);
        assert!(complete_checksum(&mut sent, checksum));
        assert_eq!((bytes, offload), (sent, Offload::NONE), "{tag:?}");
    }
}

/// A socket receives frames that the program at tcx keeps from the host.
#[test]
fn a_shut_link_is_still_seen() {
    let cable = cable!();
    let sockets = sockets(&cable);
    let [_, link] = cable.links();
    let shut = match bpf::shut_ingress(link.index()) {
        Ok(shut) => shut,
        Err(error) => softclock_testing::skip!("tcx cannot be used here: {error}"),
    };
    let (bytes, ..) = exchange(&sockets, &frame(&[], 100), &Offload::NONE);
    assert_eq!(bytes.len(), 100);
    drop(shut);
}
