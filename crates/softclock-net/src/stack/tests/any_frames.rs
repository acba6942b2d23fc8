//! Frames of any content.

use super::*;

#[path = "../target.rs"]
mod target;

proptest! {
    #[test]
    fn the_architectures_agree_about_any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        target::check(&bytes);
    }

    /// Like any bytes, but most frames are datagrams, echo requests or ARP with a few bytes changed.
    #[test]
    fn the_architectures_agree_about_damaged_frames(
        steps in prop::collection::vec(
            (any::<u8>(), 0..6usize, prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3)),
            1..40,
        ),
    ) {
        let mut input = Vec::new();
        for (control, kind, changes) in steps {
            let mut frame = sample(kind);
            for (place, value) in changes {
                let place = place.index(frame.len());
                frame[place] = value;
            }
            input.push(control);
            input.extend((frame.len() as u16).to_be_bytes());
            input.extend(frame);
        }
        target::check(&input);
    }

    /// No frame makes a stack panic, and each is accounted for.
    #[test]
    fn any_frame_is_handled(
        architecture in prop::sample::select(&Architecture::ALL[..]),
        frames in prop::collection::vec((0..6u8, prop::collection::vec(any::<u8>(), 0..120)), 1..40),
    ) {
        let mut host = host(1, architecture);
        let id = host.bind(at("0.0.0.0:7")).unwrap();
        let all = frames.len() as u64;
        for (kind, bytes) in frames {
            let mut frame = bytes;
            if kind > 0 && frame.len() > 34 {
                frame[..6].copy_from_slice(&link(1).0);
                let ether_type = [0x0800u16, 0x86dd, 0x0806][usize::from(kind) % 3];
                frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
                frame[14] = if ether_type == 0x86dd { 0x60 } else { 0x45 };
                if kind > 3 {
                    frame[30..34].copy_from_slice(&[10, 0, 0, 1]);
                }
            }
            host.on_frame(NOW, NOW, frame, Verify::Trusted);
        }
        host.process(NOW, 1_000);
        let mut received = 0;
        while host.receive(id).is_some() {
            received += 1;
        }
        let counts = host.counts();
        prop_assert_eq!(counts.frames_received, all);
        prop_assert_eq!(verdicts(&host), all);
        prop_assert!(received <= counts.to_channels);
        prop_assert!(host.drops().total() + received <= all);
        host.on_timer(NOW + Duration::from_secs(100));
        prop_assert!(!host.has_work());
    }
}

/// A frame of a kind that the stack handles.
fn sample(kind: usize) -> Vec<u8> {
    let mut peer = host(9, Architecture::SoftLrp);
    let id = peer.bind(at("[::]:5")).unwrap();
    let frame = match kind {
        0 => return datagram(5, b"hello"),
        1 => {
            return packet(ICMP, "10.0.0.1", |_, bytes| {
                let echo = Echo {
                    identifier: 1,
                    sequence: 1,
                    data: b"echo",
                };
                icmp::write_echo_request(&echo, bytes);
            });
        }
        // A solicitation, then a datagram to a group, an announcement, and a first fragment.
        2 => peer
            .send_to(NOW, id, at("[2001:db8::1]:7"), b"v6")
            .map(|()| peer.on_timer(NOW)),
        3 => peer.send_to(NOW, id, at("[ff02::1]:7"), b"to all"),
        4 => {
            peer.announce(NOW);
            Ok(())
        }
        _ => peer.send_to(NOW, id, at("[ff02::1]:7"), &[1; 1600]),
    };
    frame.unwrap();
    peer.next_frame().unwrap()
}
