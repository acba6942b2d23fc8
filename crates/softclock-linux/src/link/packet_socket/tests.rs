use std::process::Command;

use super::*;
use crate::bpf;
use softclock_core::packet::{PartialChecksum, SegmentKind, Segmentation};

/// Two links joined by a cable, or why there can be none here.
struct Cable(String);

impl Cable {
    fn new(name: &str) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("needs root for AF_PACKET sockets".into());
        }
        let cable = Self(format!("{name}{}", std::process::id()));
        let [a, b] = cable.ends();
        let pair = format!("link add name {a} type veth peer name {b}");
        match ip(&pair) && ip(&format!("link set {a} up")) && ip(&format!("link set {b} up")) {
            true => Ok(cable),
            false => Err("links cannot be made here".into()),
        }
    }

    fn ends(&self) -> [String; 2] {
        ["a", "b"].map(|end| format!("{}{end}", self.0))
    }

    fn sockets(&self) -> [PacketSocket; 2] {
        self.ends().map(|name| {
            let link = Link::named(&name).unwrap();
            PacketSocket::open(&link, 1 << 20).unwrap()
        })
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        ip(&format!("link delete {}", self.ends()[0]));
    }
}

fn ip(words: &str) -> bool {
    let status = Command::new("ip").args(words.split(' ')).status();
    status.is_ok_and(|status| status.success())
}

/// Sends a frame until it arrives: the kernel sets new links up at leisure. The host sends frames of its own, too.
fn exchange(sockets: &[PacketSocket; 2], frame: &[u8], offload: &Offload) -> (Vec<u8>, Received) {
    let [a, b] = sockets;
    let mut buffer = vec![0; PacketSocket::MOST_BYTES];
    for _ in 0..1000 {
        a.send(frame, offload).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        loop {
            match b.receive(&mut buffer) {
                Ok(received) if buffer[6..12] == SENDER && received.bytes == frame.len() => {
                    return (buffer[..received.bytes].to_vec(), received);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    panic!("no frame")
}

fn frame(tag: &[u8], bytes: usize) -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &SENDER, tag, &[0x08, 0x00]].concat();
    // IPv4 and TCP, as far as a kernel looks at them.
    let length = (bytes - 14 - tag.len()) as u16;
    frame.extend([0x45, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 1]);
    frame.resize(bytes, 7);
    frame
}

const SENDER: [u8; 6] = [2, 0, 0, 0, 0x5c, 1];

#[test]
fn frames_arrive_as_they_were_sent() {
    softclock_testing::require!("ip");
    let cable = match Cable::new("scf") {
        Ok(cable) => cable,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let sockets = cable.sockets();
    for (tag, bytes) in [
        (&[][..], 1000),
        (&[0x81, 0, 0x20, 7], 1001),
        (&[0x88, 0xa8, 0, 9], 1002),
    ] {
        let sent = frame(tag, bytes);
        let (bytes, received) = exchange(&sockets, &sent, &Offload::NONE);
        assert_eq!((bytes, received.offload), (sent, Offload::NONE), "{tag:?}");
        assert!(received.age < Duration::from_secs(5));
    }
    let [a, b] = sockets;
    let error = a.send(&frame(&[], 2000), &Offload::NONE).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    assert_eq!(b.take_lost().unwrap(), 0);
}

#[test]
fn offloads_go_along() {
    softclock_testing::require!("ip");
    let cable = match Cable::new("sco") {
        Ok(cable) => cable,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let offload = Offload {
        checksum: Some(PartialChecksum {
            start: 34,
            offset: 16,
        }),
        segmentation: Some(Segmentation {
            kind: SegmentKind::Tcp4,
            has_ecn: false,
            header_bytes: 54,
            segment_bytes: 1400,
        }),
    };
    let (bytes, received) = exchange(&cable.sockets(), &frame(&[], 9000), &offload);
    assert_eq!(bytes.len(), 9000);
    assert_eq!(received.offload.checksum, offload.checksum);
    let segmentation = received.offload.segmentation.unwrap();
    assert_eq!(segmentation.segment_bytes, 1400);
}

/// A socket sees frames that the host does not.
#[test]
fn a_shut_link_is_still_seen() {
    softclock_testing::require!("ip");
    let cable = match Cable::new("scs") {
        Ok(cable) => cable,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let sockets = cable.sockets();
    let link = Link::named(&cable.ends()[1]).unwrap();
    let shut = match bpf::shut_ingress(link.index()) {
        Ok(shut) => shut,
        Err(error) => softclock_testing::skip!("tcx cannot be used here: {error}"),
    };
    let (bytes, _) = exchange(&sockets, &frame(&[], 100), &Offload::NONE);
    assert_eq!(bytes.len(), 100);
    drop(shut);
}
