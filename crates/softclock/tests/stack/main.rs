//! The life of a runtime's own network stack. Its sockets have the tests of all carriers (`tests/sockets`).

mod end;

use std::io::ErrorKind;
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use softclock::Runtime;
use softclock::net::stack::{
    self, CaptureOptions, CookieUse, DelayError, DropReason, InterruptDelay, Stack, StackError,
    StackMechanism, StackOptions, StackShare, TcpState,
};
use softclock::net::{Pacer, Pacing, TcpListener, TcpStream, UdpSocket};
use softclock_linux::link::{DelayHolder, InterruptDelays, Link};
use softclock_testing::lab::{Namespace, connect};

/// Options for a TAP device of this process.
fn options(name: &str) -> (String, StackOptions) {
    let name = format!("{name}{:x}", std::process::id());
    let mut options = StackOptions::new(format!("tap:{name}"));
    options.addresses.push("192.0.2.7/24".parse().unwrap());
    (name, options)
}

/// Opens a stack, or skips the test where that is not permitted.
macro_rules! open {
    ($options:expr) => {
        match stack::open($options) {
            Ok(stack) => stack,
            Err(error) => softclock_testing::skip!("{error}"),
        }
    };
}
use open;

const DELAY: InterruptDelay = InterruptDelay {
    rounds: 2,
    timeout: Duration::from_micros(500),
    suspension: Duration::ZERO,
};

#[test]
fn interrupts_are_delayed_while_a_stack_is_open() {
    softclock_testing::require!("ip", "unshare", "nsenter");
    let [near, far] = match [(); 2].map(|()| Namespace::new()) {
        [Ok(near), Ok(far)] => [near, far],
        [Err(reason), _] | [_, Err(reason)] => softclock_testing::skip!("{reason}"),
    };
    connect((&near, "near"), (&far, "far")).unwrap();
    let mut options = StackOptions::new("near");
    options.addresses.push("192.0.2.7/24".parse().unwrap());
    options.mechanism = StackMechanism::Xdp;
    options.interrupts = Some(DELAY);
    let link = || Link::named("near").unwrap();
    let open = || {
        let runtime = Runtime::new().unwrap();
        // The handle would keep the stack open after the runtime.
        let opened = runtime.block_on(async { stack::open(&options).map(drop) });
        let open = InterruptDelays::of(&link());
        drop(runtime);
        opened.map(|()| (open, InterruptDelays::of(&link()).holder))
    };
    let (open, left) = match near.inside(open).unwrap() {
        Err(StackError::Open(error)) => softclock_testing::skip!("{error}"),
        opened => opened.unwrap(),
    };
    assert_eq!(open.instances.unwrap(), [DELAY]);
    assert_eq!(open.holder, DelayHolder::Process(std::process::id()));
    assert_eq!(left, DelayHolder::None);
}

#[test]
fn a_device_without_interrupts_cannot_delay_them() {
    let (name, mut options) = options("scnoi");
    options.interrupts = Some(DELAY);
    Runtime::new().unwrap().block_on(async {
        match stack::open(&options) {
            Err(StackError::Interrupts(interface, DelayError::NoReceiveWork)) => {
                assert_eq!(interface, name);
            }
            Err(error) => softclock_testing::skip!("{error}"),
            Ok(stack) => {
                let link = Link::named(&name).unwrap();
                let delays = InterruptDelays::of(&link);
                assert!(delays.instances.is_err(), "{stack:?}");
                softclock_testing::skip!("this kernel does not list NAPI instances");
            }
        }
    });
    assert!(Link::named(&name).is_err(), "the TAP device is still there");
}

#[test]
fn a_runtime_has_one_stack() {
    let (_, one) = options("scone");
    let (name, two) = options("sctwo");
    Runtime::new().unwrap().block_on(async {
        let _stack = open!(&one);
        assert!(matches!(stack::open(&two), Err(StackError::Exists)));
        assert!(Link::named(&name).is_err());
    });
}

#[test]
fn other_addresses_are_the_kernels() {
    let (_, options) = options("scoth");
    Runtime::new().unwrap().block_on(async {
        let stack = open!(&options);
        let kernel = UdpSocket::bind(([127, 0, 0, 1], 0)).unwrap();
        let there = kernel.local_addr().unwrap();
        let std = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        std.send_to(b"kernel", there).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(kernel.recv_from(&mut buffer).await.unwrap().0, 6);
        let own = UdpSocket::bind(([192, 0, 2, 7], 0)).unwrap();
        let error = own.send_to(b"", ([127, 0, 0, 1], 9)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
        let again = UdpSocket::bind(own.local_addr().unwrap()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
        assert_eq!(stack.report().counts.datagrams_sent, 0);
    });
}

#[test]
fn options_that_cannot_work_are_refused_before_the_device_is_opened() {
    let (name, good) = options("scbad");
    Runtime::new().unwrap().block_on(async {
        let mut none = good.clone();
        none.addresses.clear();
        assert!(matches!(stack::open(&none), Err(StackError::NoAddress)));
        let mut apart = good.clone();
        apart.gateways.push("198.51.100.1".parse().unwrap());
        assert!(matches!(stack::open(&apart), Err(StackError::Routes(_))));
        let mut timeless = good.clone();
        timeless.tcp.time_wait.duration = Duration::ZERO;
        match stack::open(&timeless) {
            Err(StackError::Tcp(error)) => assert_eq!(error.setting, "time_wait.duration"),
            opened => panic!("{opened:?}"),
        }
        let mut nowhere = good;
        nowhere.interface = "no-such-link".into();
        assert!(matches!(stack::open(&nowhere), Err(StackError::Find(..))));
        assert!(Link::named(&name).is_err());
    });
    let outside = stack::open(&options("scout").1);
    assert!(matches!(outside, Err(StackError::Watch(_))));
}

/// A datagram that had arrived before the socket of another thread was connected to someone else is dropped and
/// counted.
#[test]
fn what_a_stranger_sent_before_the_connection_is_counted() {
    let (_, options) = options("scstr");
    Runtime::new().unwrap().block_on(async {
        let stack = open!(&options);
        let share = stack.share();
        let thread = std::thread::spawn(move || {
            let test = async {
                share.join().unwrap();
                let bind = || UdpSocket::bind(([192, 0, 2, 7], 0)).unwrap();
                let [socket, stranger, peer] = [bind(), bind(), bind()];
                let there = socket.local_addr().unwrap();
                stranger.send_to(b"stranger", there).await.unwrap();
                // Packets keep their order, so when this one has arrived, the stranger's waits in the socket's channel.
                let last = peer.local_addr().unwrap();
                stranger.send_to(b"last", last).await.unwrap();
                peer.recv(&mut [0; 4]).await.unwrap();
                socket.connect(last).unwrap();
                peer.send_to(b"peer", there).await.unwrap();
                let mut buffer = [0; 16];
                let length = socket.recv(&mut buffer).await.unwrap();
                assert_eq!(&buffer[..length], b"peer");
            };
            let limited = async { softclock::timeout(Duration::from_secs(10), test).await };
            let done = Runtime::new().unwrap().block_on(limited);
            done.expect("the test hangs");
        });
        while !thread.is_finished() {
            softclock::sleep(Duration::from_millis(1)).await;
        }
        thread.join().unwrap();
        let report = stack.report();
        assert_eq!(report.drops.of(DropReason::PortUnreachable), 1);
        assert_eq!(report.counts.datagrams_received, 2);
    });
}

/// An unanswered neighbor is asked three times, without a frame from outside that would wake the driver.
#[test]
fn a_neighbor_that_does_not_answer_is_given_up() {
    let (_, options) = options("scnei");
    Runtime::new().unwrap().block_on(async {
        let stack = open!(&options);
        let socket = UdpSocket::bind(([192, 0, 2, 7], 0)).unwrap();
        socket.send_to(b"", ([192, 0, 2, 99], 9)).await.unwrap();
        let given_up = async {
            while stack.report().drops.of(DropReason::NeighborUnreachable) == 0 {
                softclock::sleep(Duration::from_millis(10)).await;
            }
        };
        let limited = softclock::timeout(Duration::from_secs(20), given_up);
        limited.await.expect("the packet still waits");
    });
}

/// A datagram that the host sends to all hosts on the link reaches a socket of the thread that opened the stack, and
/// one of another thread.
#[test]
fn a_datagram_to_a_group_reaches_the_sockets_of_all_threads() {
    let namespace = softclock_testing::namespace_for_taps!();
    let (name, mut options) = options("scgrp");
    options.addresses.push("2001:db8::7/64".parse().unwrap());
    let test = async || {
        let stack = stack::open(&options).unwrap();
        let commands = format!(
            "link set {name} up\naddr add 192.0.2.1/24 dev {name}\naddr add 2001:db8::1/64 dev {name} nodad\n"
        );
        namespace.batch("ip", &commands).unwrap();
        for (here, there, group) in [
            ("0.0.0.0:4000", "224.0.0.1:4000", "224.0.0.1:4000"),
            ("224.0.0.1:4001", "0.0.0.0:4001", "224.0.0.1:4001"),
            ("[::]:4002", "[ff02::1]:4002", "[ff02::1]:4002"),
            ("[ff02::1]:4003", "[::]:4003", "[ff02::1]:4003"),
        ] {
            let [here, there, mut group] =
                [here, there, group].map(|at| at.parse::<SocketAddr>().unwrap());
            let source = match &mut group {
                SocketAddr::V4(_) => "192.0.2.1:0",
                SocketAddr::V6(group) => {
                    on_link(group, &namespace, &name);
                    "[2001:db8::1]:0"
                }
            };
            let host = std::net::UdpSocket::bind(source).unwrap();
            let socket = UdpSocket::bind(here).unwrap();
            let share = stack.share();
            let other = thread::spawn(move || receive_in_this_thread(&share, there));
            while !other.is_finished() {
                host.send_to(b"all", group).unwrap();
                softclock::sleep(Duration::from_millis(5)).await;
            }
            let expected = (b"all".to_vec(), host.local_addr().unwrap());
            assert_eq!(other.join().unwrap(), expected, "{there}");
            assert_eq!(receive(&socket).await, expected, "{here}");
        }
    };
    let run = || Runtime::new().unwrap().block_on(test());
    namespace.inside(run).unwrap();
}

/// Settings of the stack, of its listeners and of its connections reach the protocol: with the defaults, these
/// waits would last a minute or more.
#[test]
fn settings_of_tcp_take_effect() {
    let (_, mut options) = options("sctcp");
    options.tcp.time_wait.duration = Duration::from_secs(1);
    options.tcp.listen.cookies = CookieUse::Always;
    let keep_alive = &mut options.tcp.connection.keep_alive;
    keep_alive.is_on = true;
    keep_alive.idle = Duration::from_millis(50);
    keep_alive.interval = Duration::from_millis(50);
    Runtime::new().unwrap().block_on(async {
        let stack = open!(&options);
        let listener = TcpListener::bind(([192, 0, 2, 7], 80)).unwrap();
        let client = TcpStream::connect(([192, 0, 2, 7], 80)).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        assert_eq!(stack.report().tcp.listeners.cookies_accepted, 1);

        let before = stack.report().tcp.counts.segments_sent;
        let are_probed = || stack.report().tcp.counts.segments_sent >= before + 4;
        wait_for(&are_probed, "an idle connection is not probed").await;

        drop((client, server));
        let waiting = || connections(&stack, TcpState::TimeWait);
        wait_for(&|| waiting() > 0, "no connection is in TIME-WAIT").await;
        wait_for(&|| waiting() == 0, "TIME-WAIT lasts too long").await;
    });
}

/// The two ends of a connection within the stack.
async fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(([192, 0, 2, 7], 80)).unwrap();
    let client = TcpStream::connect(([192, 0, 2, 7], 80)).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (client, server)
}

/// A stream that the stack paces holds bytes back no longer once its pacing has ended.
#[test]
fn the_end_of_pacing_reaches_what_the_stack_holds_back() {
    let (_, options) = options("scpac");
    Runtime::new().unwrap().block_on(async {
        let _stack = open!(&options);
        let (client, _server) = connection().await;
        client.set_pacing(Some(Pacing::of_rate("9600bit".parse().unwrap())));
        client.write_all(&[1; 10_000]).await.unwrap();
        let is_held_back = || client.held_back_bytes() > 0;
        wait_for(&is_held_back, "the stack does not pace").await;
        client.set_pacing(None);
        assert_eq!(client.held_back_bytes(), 0);
    });
}

/// A stream in use, which the stack paces, shares the total rate as soon as there is one.
#[test]
fn a_total_rate_reaches_streams_that_the_stack_paces() {
    let (_, options) = options("sctot");
    Runtime::new().unwrap().block_on(async {
        let _stack = open!(&options);
        let (client, _server) = connection().await;
        let pacer = Pacer::new(Some(Pacing::of_rate("100mbit".parse().unwrap())));
        let client = client.paced(&pacer);
        let pieces = || softclock::statistics().pacing.pieces;
        client.write_all(&[1; 10_000]).await.unwrap();
        assert_eq!(pieces(), 0, "the stack paces");
        pacer.set_total(Some("10mbit".parse().unwrap()));
        client.write_all(&[1; 10_000]).await.unwrap();
        assert!(pieces() > 0, "the stream takes no part in the total rate");
    });
}

/// The connections of a stack in this state.
fn connections(stack: &Stack, state: TcpState) -> usize {
    stack.report().tcp.in_state(state)
}

/// Packets of another thread that find the queue of frames full follow in the next turns, without a frame from outside
/// that would wake the driver.
#[test]
fn packets_of_another_thread_that_find_no_room_follow_at_once() {
    /// Each in 41 frames: the queue has room for those of 25.
    const DATAGRAMS: u64 = 300;
    let namespace = softclock_testing::namespace_for_taps!();
    namespace.disable_ipv6().unwrap();
    let (_, options) = options("scroom");
    let test = async || {
        let stack = stack::open(&options).unwrap();
        let share = stack.share();
        let send = async move || {
            share.join().unwrap();
            let socket = UdpSocket::bind(([192, 0, 2, 7], 0)).unwrap();
            for _ in 0..DATAGRAMS {
                // To a group without members, so that nothing comes back.
                let sent = socket.send_to(&[0; 60_000], ([239, 1, 2, 3], 9)).await;
                sent.unwrap();
            }
        };
        // This thread, which has the device, goes on when all of them wait.
        let sender = thread::spawn(move || Runtime::new().unwrap().block_on(send()));
        sender.join().unwrap();
        let are_sent = || stack.report().counts.frames_sent >= DATAGRAMS * 41;
        wait_for(&are_sent, "packets of another thread still wait").await;
    };
    let run = || Runtime::new().unwrap().block_on(test());
    namespace.inside(run).unwrap();
}

/// The receiver puts fragments together by the addresses and the identification, whichever thread they come from.
#[test]
fn all_threads_have_one_sequence_of_identifications() {
    /// The link address of the group, to which no other packet goes.
    const GROUP: [u8; 6] = [1, 0, 0x5e, 1, 2, 3];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("frames.pcapng");
    let (_, mut options) = options("scident");
    options.capture = Some(CaptureOptions::new(&path));
    let send = async |port: u16| {
        let socket = UdpSocket::bind(([192, 0, 2, 7], port)).unwrap();
        socket.send_to(b"datagram", ([239, 1, 2, 3], 9)).await
    };
    Runtime::new().unwrap().block_on(async {
        let stack = open!(&options);
        for round in 0..2 {
            send(4000).await.unwrap();
            let share = stack.share();
            let other = thread::spawn(move || {
                Runtime::new().unwrap().block_on(async {
                    share.join().unwrap();
                    send(4001).await.unwrap();
                });
            });
            other.join().unwrap();
            let are_sent = || stack.report().counts.frames_sent >= 2 * (round + 1);
            wait_for(&are_sent, "the packet of another thread is not sent").await;
        }
        stack.finish_capture();
    });
    let capture = std::fs::read(&path).unwrap();
    let frames = capture.windows(20).filter(|bytes| bytes[..6] == GROUP);
    let sent: Vec<_> = frames
        .map(|frame| u16::from_be_bytes([frame[18], frame[19]]))
        .collect();
    let following = [0, 1, 2, 3].map(|more: u16| sent[0].wrapping_add(more));
    assert_eq!(sent, following);
}

/// A socket of another thread that is opened and closed while the device's thread is busy does not keep the address of an
/// earlier one, nor of a later one.
#[test]
fn sockets_that_the_device_has_not_seen_leave_their_address_free() {
    const PORT: u16 = 4000;
    let namespace = softclock_testing::namespace_for_taps!();
    let (_, options) = options("scport");
    let test = async || {
        let stack = stack::open(&options).unwrap();
        let share = stack.share();
        let is_known = Arc::new(AtomicBool::new(false));
        let (busy, is_busy) = mpsc::channel();
        let (release, is_released) = mpsc::channel();
        let known = is_known.clone();
        let member = async move || {
            share.join().unwrap();
            let bind = || UdpSocket::bind(([192, 0, 2, 7], PORT)).unwrap();
            let sender = UdpSocket::bind(([192, 0, 2, 7], 0)).unwrap();
            let to = ([192, 0, 2, 7], PORT);
            let first = bind();
            sender.send_to(b"first", to).await.unwrap();
            first.recv_from(&mut [0; 10]).await.unwrap();
            known.store(true, Ordering::Release);
            is_busy.recv().unwrap();
            drop(first);
            drop(bind());
            let last = bind();
            release.send(()).unwrap();
            sender.send_to(b"last", to).await.unwrap();
            let limit = Duration::from_secs(10);
            softclock::timeout(limit, async { last.recv_from(&mut [0; 10]).await })
                .await
                .expect("the last socket does not receive")
                .unwrap();
        };
        let member = thread::spawn(move || Runtime::new().unwrap().block_on(member()));
        wait_for(&|| is_known.load(Ordering::Acquire), "nothing arrives").await;
        busy.send(()).unwrap();
        is_released.recv().unwrap();
        wait_for(&|| member.is_finished(), "the thread goes on").await;
        member.join().unwrap();
    };
    let run = || Runtime::new().unwrap().block_on(test());
    namespace.inside(run).unwrap();
}

/// Waits until the condition holds, at most ten seconds.
async fn wait_for(condition: &dyn Fn() -> bool, otherwise: &str) {
    let holds = async {
        while !condition() {
            softclock::sleep(Duration::from_millis(5)).await;
        }
    };
    let limited = softclock::timeout(Duration::from_secs(10), holds).await;
    limited.expect(otherwise);
}

/// Names the link on which an address is meant.
fn on_link(address: &mut SocketAddrV6, namespace: &Namespace, name: &str) {
    let mut show = namespace.command("cat");
    let output = show.arg(format!("/sys/class/net/{name}/ifindex")).output();
    let index = String::from_utf8(output.unwrap().stdout).unwrap();
    address.set_scope_id(index.trim().parse().unwrap());
}

/// Joins the stack, binds a socket, and returns the first datagram for it.
fn receive_in_this_thread(share: &StackShare, at: SocketAddr) -> (Vec<u8>, SocketAddr) {
    Runtime::new().unwrap().block_on(async {
        share.join().unwrap();
        receive(&UdpSocket::bind(at).unwrap()).await
    })
}

/// The next datagram, and its sender.
async fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 16];
    let received = softclock::timeout(Duration::from_secs(10), socket.recv_from(&mut buffer)).await;
    let (length, source) = received.expect("nothing arrives").unwrap();
    (buffer[..length].to_vec(), source)
}
