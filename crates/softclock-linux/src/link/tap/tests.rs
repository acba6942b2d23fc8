use std::process::Command;

use softclock_testing::lab::Namespace;

use super::*;
use crate::link::cable::{SENDER, frame, joined};

/// A TAP device for this test, or the reason why it cannot be created.
fn tap(name: &str) -> Result<Tap, String> {
    let name = format!("{name}{}", std::process::id());
    match Tap::create(&name) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err("needs root for TAP devices".into())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!("no {DEVICE}")),
        tap => Ok(tap.unwrap()),
    }
}

macro_rules! tap {
    ($name:literal) => {
        match tap($name) {
            Ok(tap) => tap,
            Err(reason) => softclock_testing::skip!("{reason}"),
        }
    };
}

type OnFrame<'a> = &'a mut dyn FnMut(Result<Received, Refused>);

/// The next frame of this test. Skips the frames that the host sends.
fn next(receive: impl Fn(OnFrame<'_>) -> io::Result<usize>) -> (Vec<u8>, Offload) {
    for _ in 0..2000 {
        let mut found = None;
        let taken = receive(&mut |received| {
            let received = received.unwrap();
            if received.bytes[6..12] == SENDER {
                found = Some((received.bytes.to_vec(), received.offload));
            }
        });
        match (found, taken) {
            (Some(found), _) => return found,
            (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => panic!("{error}"),
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    panic!("no frame")
}

#[test]
fn frames_pass_both_ways_as_they_are() {
    let tap = tap!("sct");
    let host = PacketSocket::open(tap.link(), 1 << 20).unwrap();
    for (tag, bytes, offload) in [
        (&[][..], 1000, Offload::NONE),
        (&[0x81, 0, 0x20, 7], 1001, Offload::NONE),
        (&[0x88, 0xa8, 0, 9], 1002, Offload::NONE),
        (&[], 9000, joined(1400)),
        (&[0x81, 0, 0x20, 7], 9000, joined(1400).shifted(4)),
    ] {
        let sent = frame(tag, bytes);
        host.send([(&sent[..], &offload)]).unwrap();
        let (arrived, left) = next(|on_frame| tap.receive(on_frame));
        assert_eq!((&arrived, left.checksum), (&sent, offload.checksum));
        let size = |offload: Offload| offload.segmentation.map(|how| how.segment_bytes);
        assert_eq!(size(left), size(offload), "{tag:?}");
        tap.send([(&sent[..], &offload)]).unwrap();
        let (arrived, left) = next(|on_frame| host.receive(on_frame));
        assert_eq!((&arrived, left.checksum), (&sent, offload.checksum));
        assert_eq!(size(left), size(offload), "{tag:?}");
    }
}

#[test]
fn a_tap_is_new_and_goes_with_its_descriptor() {
    let tap = tap!("scn");
    let link = tap.link().clone();
    let error = Tap::create(link.name()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    assert!(link.exists(), "the one that is there stays");
    drop(tap);
    assert!(!link.exists());
}

#[test]
fn frames_that_nobody_takes_are_counted() {
    let tap = tap!("scl");
    tap.take_lost().unwrap();
    lose_frames(tap.link());
    let lost = tap.take_lost().unwrap();
    assert!(lost >= 1000, "{lost}");
    assert!(tap.take_lost().unwrap() < lost);
}

fn lose_frames(link: &Link) {
    let host = PacketSocket::open(link, 1 << 20).unwrap();
    for _ in 0..5000 {
        // The queue has room for at most 1000 frames.
        let _ = host.send([(&frame(&[], 100)[..], &Offload::NONE)]);
    }
}

/// Losses are those of the renamed link, not of another link that has taken its name.
#[test]
fn losses_are_its_own_under_another_name() {
    softclock_testing::require!("ip");
    let tap = tap!("scm");
    let (name, other) = (tap.link().name(), format!("{}x", tap.link().name()));
    ip(&format!("link set dev {name} down"));
    ip(&format!("link set dev {name} name {other}"));
    ip(&format!("link set dev {other} up"));
    let namesake = Tap::create(name).unwrap();
    tap.take_lost().unwrap();
    lose_frames(namesake.link());
    assert!(tap.take_lost().unwrap() < 1000);
    lose_frames(tap.link());
    assert!(tap.take_lost().unwrap() >= 1000);
}

/// The counters of a moved link are in another namespace, even if another link has taken its name here.
#[test]
fn losses_of_a_link_that_was_moved_are_not_known() {
    softclock_testing::require!("ip", "unshare");
    let tap = tap!("scd");
    let name = tap.link().name();
    let away = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    ip(&format!("link set dev {name} netns {}", away.id()));
    let _namesake = Tap::create(name).unwrap();
    tap.take_lost().unwrap_err();
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status();
    assert!(status.unwrap().success(), "ip {words}");
}

#[test]
fn what_can_be_no_name() {
    for name in ["", "a%d", "0123456789abcdef"] {
        let error = Tap::create(name).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
    }
}
