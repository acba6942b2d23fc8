//! Polling over a veth pair: frames sent by AF_PACKET on one end, received by AF_XDP on the other.

use std::io::{self, BufRead, BufReader};
use std::net::UdpSocket;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use softclock_testing::KilledOnDrop;
use softclock_testing::lab::{Namespace, connect};
use softclock_wire::packet::Offload;

use super::{PollSettings, Poller, Polling};
use crate::link::cable::{Cable, cable, frame};
use crate::link::napi::Instances;
use crate::link::{Copies, InterruptDelay, Link, PacketSocket, XdpFilter, XdpSettings, XdpSocket};

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
    let timeout = || {
        let instances = Instances::of_queue(&link, 0).unwrap();
        instances.delay(instances.ids()[0]).unwrap().timeout
    };
    drop(polling);
    assert_eq!(timeout(), LONG, "a poller is left");
    let refused = Polling::of_queue(&link, 0, PollSettings::default()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
    drop(poller);
    assert_eq!(timeout(), Duration::ZERO);
    drop(socket);
}

const HOST: &str = "10.77.0.1";
const STACK: &str = "10.77.0.9";

/// The host with the link `near`, whose neighbor sends frames for the stack to the host's link address.
fn hosts() -> Result<[Namespace; 2], String> {
    let [near, far] = [Namespace::new()?, Namespace::new()?];
    let linked = || -> io::Result<()> {
        near.disable_ipv6()?;
        far.disable_ipv6()?;
        connect((&near, "near"), (&far, "far"))?;
        let address = "02:00:5e:10:00:01";
        near.run(&format!("ip link set near address {address}"))?;
        near.run(&format!("ip addr add {HOST}/24 dev near"))?;
        far.run("ip addr add 10.77.0.2/24 dev far")?;
        far.run(&format!("ip neigh add {STACK} lladdr {address} dev far"))
    };
    linked().map_err(|error| error.to_string())?;
    Ok([near, far])
}

fn settings() -> XdpSettings {
    XdpSettings {
        copies: Copies::Allowed,
        queue: None,
        filter: XdpFilter::Addresses(vec![STACK.parse().unwrap()]),
    }
}

/// The delay of interrupts of `near`, which has an XDP program.
fn delay(near: &Namespace) -> InterruptDelay {
    let read = || {
        let instances = Instances::of_queue(&Link::named("near").unwrap(), 0)?;
        instances.delay(instances.ids()[0])
    };
    near.inside(read).unwrap().unwrap()
}

fn state(near: &Namespace) -> String {
    let mut show = near.command("ip");
    let output = show.args(["-details", "link", "show", "near"]).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// Sends a datagram from one of the host's sockets to its neighbor's, and back.
fn exchange([near, far]: [&UdpSocket; 2]) {
    for (from, to) in [(near, far), (far, near)] {
        from.send_to(b"between hosts", to.local_addr().unwrap())
            .unwrap();
        let mut buffer = [0; 64];
        let (length, _) = to.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"between hosts");
    }
}

#[test]
fn a_killed_process_leaves_the_link_as_it_was() {
    softclock_testing::require!("ip", "unshare", "nsenter");
    let [near, far] = match hosts() {
        Ok(hosts) => hosts,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let socket = |address| {
        let socket = UdpSocket::bind((address, 0)).unwrap();
        socket.set_read_timeout(Some(LONG / 6)).unwrap();
        socket
    };
    let near_socket = near.inside(|| socket(HOST)).unwrap();
    let far_socket = far.inside(|| socket("10.77.0.2")).unwrap();
    let pair = [&near_socket, &far_socket];
    exchange(pair);
    let before = state(&near);
    let program = std::env::current_exe().unwrap();
    let mut child = near.command(program.to_str().unwrap());
    // Names of tests are without that of the crate.
    let (_, poller) = POLLER.split_once("::").unwrap();
    child
        .args(["--exact", "--nocapture", poller])
        .env(POLLS, "1");
    let mut child = KilledOnDrop::new(child.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    if !lines.any(|line| line.unwrap().ends_with(POLLING)) {
        assert!(child.wait().unwrap().success());
        softclock_testing::skip!("AF_XDP or polling by NAPI id cannot be used here");
    }
    assert_eq!(delay(&near).timeout, LONG);
    assert!(state(&near).contains("prog/xdp"));
    // The polls receive the host's frames, too. Behind a flood the link's ring would lose them.
    exchange(pair);
    for _ in 0..2000 {
        far_socket.send_to(b"to the stack", (STACK, 7)).unwrap();
    }
    drop(child);
    let begun = Instant::now();
    while state(&near) != before {
        assert!(begun.elapsed() < LONG, "{}", state(&near));
        thread::sleep(Duration::from_millis(5));
    }
    exchange(pair);
    // The next program has receive work with the settings of the kernel.
    let open = || XdpSocket::open(&Link::named("near").unwrap(), settings());
    let _again = near.inside(open).unwrap().unwrap();
    assert_eq!(delay(&near), InterruptDelay::NONE);
    exchange(pair);
}

/// The child process of the test above: polls until killed.
#[test]
fn a_process_that_polls() {
    if std::env::var_os(POLLS).is_none() {
        return;
    }
    let link = Link::named("near").unwrap();
    let Ok(socket) = XdpSocket::open(&link, settings()) else {
        return;
    };
    let polling = match Polling::of_queue(&link, 0, PollSettings { timeout: LONG }) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return,
        polling => polling.unwrap(),
    };
    let mut poller = polling.poller(&socket).unwrap();
    println!("{POLLING}");
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        while socket.receive(|_| ()).is_ok() {}
        poller.poll().unwrap();
    }
}

/// The variable that makes a process of the tests such a child.
const POLLS: &str = "SOFTCLOCK_POLLS";
const POLLER: &str = concat!(module_path!(), "::a_process_that_polls");
const POLLING: &str = "it polls";
