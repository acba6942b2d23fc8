//! Polling over a veth pair: frames sent by AF_PACKET on one end, received by AF_XDP on the other.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use softclock_wire::packet::Offload;

use super::{PollSettings, Poller, Polling};
use crate::link::cable::{Cable, cable, frame};
use crate::link::{Copies, PacketSocket, XdpFilter, XdpSettings, XdpSocket};

struct Setup {
    poller: Poller,
    polling: Polling,
    socket: XdpSocket,
    sender: PacketSocket,
    cable: Cable,
}

impl Setup {
    fn new(cable: Cable, timeout: Duration) -> Result<Self, String> {
        let [a, b] = cable.links();
        let settings = XdpSettings {
            copies: Copies::Allowed,
            queue: None,
            filter: XdpFilter::All,
        };
        let socket = XdpSocket::open(&b, settings)
            .map_err(|error| format!("AF_XDP cannot be used here: {error:?}"))?;
        let polling = Polling::of_queue(&b, 0, PollSettings { timeout });
        let polling = match polling {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                return Err("this kernel has no polling by NAPI id".into());
            }
            polling => polling.unwrap(),
        };
        let setup = Self {
            poller: polling.poller(&socket).unwrap(),
            polling,
            socket,
            sender: PacketSocket::open(&a, 1 << 20).unwrap(),
            cable,
        };
        // The link may lose the first frames, while it comes up.
        while setup.taken() == 0 {
            setup.send(1);
            thread::sleep(Duration::from_millis(10));
        }
        Ok(setup)
    }

    /// Sends frames, which the link may have no room for.
    fn send(&self, frames: usize) {
        let frame = frame(&[], 100);
        for _ in 0..frames {
            let _ = self.sender.send([(&frame[..], &Offload::NONE)]);
        }
    }

    fn taken(&self) -> usize {
        let mut taken = 0;
        while let Ok(frames) = self.socket.receive(|_| ()) {
            taken += frames;
        }
        taken
    }

    /// Makes an interrupt come, which masks further ones, and polls until nothing is left.
    fn mask(&mut self) {
        self.send(1);
        let mut received = 0;
        while self.poller.poll().unwrap() || received == 0 {
            received += self.taken();
        }
    }
}

macro_rules! setup {
    ($timeout:expr) => {
        match Setup::new(cable!(), $timeout) {
            Ok(setup) => setup,
            Err(reason) => softclock_testing::skip!("{reason}"),
        }
    };
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn after_a_poll_only_polls_receive() {
    let mut setup = setup!(LONG);
    setup.mask();
    setup.send(100);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(setup.taken(), 0);
    let mut received = 0;
    while setup.poller.poll().unwrap() {
        let taken = setup.taken();
        assert!((1..=Poller::MOST_FRAMES).contains(&taken), "{taken}");
        received += taken;
    }
    assert_eq!(received, 100);
}

#[test]
fn frames_beyond_the_ring_of_the_link_are_lost_there() {
    let mut setup = setup!(LONG);
    setup.mask();
    setup.send(1000);
    let mut received = 0;
    while setup.poller.poll().unwrap() {
        received += setup.taken();
    }
    // Some entries of its 256 are not used.
    assert!((240..=256).contains(&received), "{received}");
    assert_eq!(setup.socket.take_lost().unwrap(), 0);
}

#[test]
fn a_wait_that_finds_nothing_enables_interrupts() {
    let mut setup = setup!(LONG);
    setup.mask();
    assert!(!setup.poller.wait(Duration::from_millis(1)).unwrap());
    setup.send(1);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(setup.taken(), 1);
}

#[test]
fn a_wait_ends_when_a_frame_arrives() {
    let mut setup = setup!(LONG);
    for _ in 0..20 {
        setup.mask();
        let [near, _] = setup.cable.links();
        let begun = Instant::now();
        thread::scope(|scope| {
            scope.spawn(move || {
                let sender = PacketSocket::open(&near, 1 << 20).unwrap();
                thread::sleep(Duration::from_millis(5));
                let frame = frame(&[], 100);
                sender.send([(&frame[..], &Offload::NONE)]).unwrap();
            });
            assert!(setup.poller.wait(Duration::from_secs(20)).unwrap());
        });
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(setup.taken(), 1);
    }
}

#[test]
fn without_polls_an_interrupt_comes_after_the_timeout() {
    let mut setup = setup!(Duration::from_millis(100));
    setup.mask();
    setup.send(10);
    assert_eq!(setup.taken(), 0);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(setup.taken(), 10);
}

#[test]
fn the_link_is_as_before_when_polling_ends() {
    let mut setup = setup!(LONG);
    setup.mask();
    let Setup {
        poller,
        polling,
        socket,
        cable,
        ..
    } = setup;
    let [_, link] = cable.links();
    drop(polling);
    let again = Polling::of_queue(&link, 0, PollSettings::default()).unwrap();
    assert_eq!(again.0.before.timeout, LONG, "a poller is left");
    drop((again, poller));
    let again = Polling::of_queue(&link, 0, PollSettings::default()).unwrap();
    assert_eq!(again.0.before.timeout, Duration::ZERO);
    drop((again, socket));
}
