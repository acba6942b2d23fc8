//! Sockets whose frames the XDP program demultiplexes, with a peer on the kernel's stack across a link. What all
//! carriers have in common is in `tests/sockets`.

mod streams;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket as KernelSocket};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use softclock::Runtime;
use softclock::net::UdpSocket;
use softclock::net::stack::{
    self, Architecture, DropReason, Stack, StackError, StackMechanism, StackOptions,
};
use softclock_testing::lab::{Namespace, connect};
use softclock_testing::{require, skip};

const ADDRESSES: [&str; 2] = ["10.78.0.7", "fd78::7"];

/// A namespace for the stack, and one for the peer, with a link between them.
struct Lab {
    server: Namespace,
    peer: Namespace,
}

impl Lab {
    fn new() -> Result<Self, String> {
        use softclock_linux::probe::{xdp_program, xdp_socket};
        let supported = xdp_socket().and_then(|()| xdp_program());
        supported.map_err(|error| format!("AF_XDP cannot be used here: {error}"))?;
        let lab = Self {
            server: Namespace::new()?,
            peer: Namespace::new()?,
        };
        lab.link().map_err(|error| error.to_string())?;
        Ok(lab)
    }

    fn link(&self) -> io::Result<()> {
        connect((&self.server, "host"), (&self.peer, "peer"))?;
        let addresses = "addr add 10.78.0.1/24 dev peer\naddr add fd78::1/64 dev peer nodad\n";
        self.peer.batch("ip", addresses)
    }

    /// Runs `test` in a runtime with a stack on the link.
    fn run(
        &self,
        change: impl FnOnce(&mut StackOptions) + Send,
        test: impl AsyncFnOnce(Stack) + Send,
    ) {
        let run = || {
            let mut options = options();
            change(&mut options);
            Runtime::new().unwrap().block_on(async {
                let stack = stack::open(&options).unwrap();
                let limited = softclock::timeout(LIMIT, test(stack));
                limited.await.expect("the test hangs");
            });
        };
        self.server.inside(run).unwrap();
    }

    /// Frames of the peer for which the ring of the link had no room, which a busy machine empties late.
    fn lost_in_link(&self) -> u64 {
        let mut show = self.peer.command("ip");
        let output = show
            .args(["-s", "-j", "link", "show", "dev", "peer"])
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let (_, sent) = text.split_once("\"tx\":").unwrap();
        let (_, dropped) = sent.split_once("\"dropped\":").unwrap();
        let end = dropped.find(|c: char| !c.is_ascii_digit()).unwrap();
        dropped[..end].parse().unwrap()
    }

    /// A socket of the peer's kernel that is connected to this socket of the stack.
    fn peer_of(&self, socket: &UdpSocket, address: &str) -> KernelSocket {
        let ip: IpAddr = address.parse().unwrap();
        self.peer_at(SocketAddr::new(ip, socket.local_addr().unwrap().port()))
    }

    /// A socket of the peer's kernel that is connected to this address and port.
    fn peer_at(&self, there: SocketAddr) -> KernelSocket {
        let any = if there.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        let open = || {
            let peer = KernelSocket::bind(any)?;
            peer.connect(there)?;
            peer.set_nonblocking(true)?;
            io::Result::Ok(peer)
        };
        self.peer.inside(open).unwrap().unwrap()
    }
}

/// Creates a lab, or skips the test where that is not permitted.
macro_rules! lab {
    () => {{
        require!("ip", "unshare", "nsenter");
        match Lab::new() {
            Ok(lab) => lab,
            Err(reason) => skip!("{reason}"),
        }
    }};
}
use lab;

fn options() -> StackOptions {
    let mut options = StackOptions::new("host");
    options.architecture = Architecture::NiLrp;
    let addresses = ["10.78.0.7/24", "fd78::7/64"];
    options.addresses = addresses.map(|prefix| prefix.parse().unwrap()).into();
    options
}

/// Sends from the peer until the socket receives: the first frames wait for the peer's kernel to find the link address.
async fn exchange(peer: &KernelSocket, socket: &UdpSocket, bytes: &[u8]) {
    let mut buffer = [0; 2048];
    peer.send(bytes).unwrap();
    let (length, source) = socket.recv_from(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..length], bytes);
    socket.send_to(&buffer[..length], source).await.unwrap();
    assert_eq!(answer(peer, &mut buffer).await.unwrap(), length);
}

/// Waits for an answer, or an error, at the peer.
async fn answer(peer: &KernelSocket, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match peer.recv(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                softclock::sleep(Duration::from_millis(1)).await;
            }
            result => return result,
        }
    }
}

/// Waits until this holds for the stack's counters.
async fn until(stack: &Stack, holds: impl Fn(&stack::StackReport) -> bool) {
    while !holds(&stack.report()) {
        softclock::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn datagrams_come_by_the_ring_of_a_socket() {
    let lab = lab!();
    lab.run(
        |_| {},
        async |stack| {
            assert_eq!(stack.mechanism(), "xdp");
            for (bound, address) in [
                ("10.78.0.7:0", ADDRESSES[0]),
                ("0.0.0.0:0", ADDRESSES[0]),
                ("[fd78::7]:0", ADDRESSES[1]),
                ("[::]:0", ADDRESSES[1]),
            ] {
                let socket = UdpSocket::bind(bound.parse::<SocketAddr>().unwrap()).unwrap();
                let peer = lab.peer_of(&socket, address);
                for _ in 0..3 {
                    exchange(&peer, &socket, b"hello").await;
                }
            }
            let report = stack.report();
            assert_eq!(report.counts.to_channels, 12);
            assert_eq!(report.counts.datagrams_received, 12);
            assert_eq!((report.lost, report.refused), (Some(0), 0));
        },
    );
}

#[test]
fn a_flood_to_one_socket_is_discarded_by_the_program() {
    let lab = lab!();
    lab.run(
        |options| options.channel.packets = 8,
        async |stack| {
            let [flooded, other] = [(); 2].map(|()| UdpSocket::bind(([10, 78, 0, 7], 0)).unwrap());
            let [flood, peer] = [&flooded, &other].map(|to| lab.peer_of(to, ADDRESSES[0]));
            exchange(&peer, &other, b"first").await;
            let mut sent = 0;
            for _ in 0..20 {
                for _ in 0..100 {
                    sent += u64::from(flood.send(b"flood").is_ok());
                }
                // The ring is full by now; the frames of others find theirs as empty as before.
                let full = |report: &stack::StackReport| report.drops.of(DropReason::ChannelFull);
                until(&stack, |report| full(report) > 0).await;
                softclock::sleep(Duration::from_millis(2)).await;
                exchange(&peer, &other, b"other").await;
            }
            let report = stack.report();
            let discarded = report.drops.of(DropReason::ChannelFull);
            assert!(discarded > 100 && discarded <= sent - 8, "{report:?}");
            // Only the frames within the limit reach the socket, and those behind them when it has taken some.
            let mut received = 0;
            let receive = async || flooded.recv(&mut [0; 16]).await;
            while softclock::timeout(Duration::from_millis(50), receive())
                .await
                .is_ok()
            {
                received += 1;
            }
            assert_eq!(received, 8);
            let report = stack.report();
            assert_eq!(report.counts.datagrams_received, 21 + 8);
            assert_eq!(report.counts.to_channels, 21 + 8 + discarded);
            assert_eq!(report.drops.total(), discarded);
        },
    );
}

#[test]
fn a_waiting_receiver_is_woken_by_its_ring_and_by_the_stack() {
    let lab = lab!();
    lab.run(
        |_| {},
        async |_| {
            let socket = UdpSocket::bind(([10, 78, 0, 7], 0)).unwrap();
            let peer = lab.peer_of(&socket, ADDRESSES[0]);
            exchange(&peer, &socket, b"first").await;
            let own = UdpSocket::bind(([10, 78, 0, 7], 0)).unwrap();
            let there = socket.local_addr().unwrap();
            let mut buffer = [0; 16];
            for round in 0..10u8 {
                let receive = socket.recv(&mut buffer);
                let send = async {
                    softclock::sleep(Duration::from_millis(2)).await;
                    match round % 2 {
                        0 => drop(peer.send(&[round])),
                        _ => drop(own.send_to(&[round], there).await),
                    }
                };
                let (received, ()) = futures_lite::future::zip(receive, send).await;
                assert_eq!((received.unwrap(), buffer[0]), (1, round));
            }
        },
    );
}

/// A socket that is connected to the first of two peers.
async fn connected(lab: &Lab) -> (UdpSocket, KernelSocket, KernelSocket) {
    let socket = UdpSocket::bind(([10, 78, 0, 7], 0)).unwrap();
    let [peer, stranger] = [(); 2].map(|()| lab.peer_of(&socket, ADDRESSES[0]));
    exchange(&peer, &socket, b"first").await;
    socket.connect(peer.local_addr().unwrap()).unwrap();
    (socket, peer, stranger)
}

#[test]
fn a_connected_socket_hears_its_peer_and_others_are_refused() {
    let lab = lab!();
    lab.run(
        |_| {},
        async |stack| {
            let (socket, peer, stranger) = connected(&lab).await;
            stranger.send(b"stranger").unwrap();
            exchange(&peer, &socket, b"peer").await;
            let error = answer(&stranger, &mut [0; 16]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            let drops = stack.report().drops;
            assert_eq!(drops.of(DropReason::PortUnreachable), 1);
        },
    );
}

/// A connected socket takes the frames of strangers out of its ring, too. Between two batches of them other tasks run.
#[test]
fn a_flood_of_strangers_lets_other_tasks_run() {
    let lab = lab!();
    lab.run(
        |_| {},
        async |stack| {
            let (socket, peer, stranger) = connected(&lab).await;
            let before = stack.report().counts.frames_received;
            for _ in 0..200 {
                // An error is the answer to an earlier one.
                let _ = stranger.send(b"stranger");
            }
            softclock::sleep(Duration::from_millis(10)).await;
            let mut buffer = [0; 16];
            let mut receive = pin!(socket.recv(&mut buffer));
            let mut polls = 0;
            while stack.report().counts.frames_received < before + 200 {
                let received = futures_lite::future::poll_once(receive.as_mut()).await;
                assert!(received.is_none(), "{received:?}");
                polls += 1;
                futures_lite::future::yield_now().await;
            }
            assert!(polls > 4, "{polls} polls for 200 frames");
            peer.send(b"peer").unwrap();
            assert_eq!(receive.await.unwrap(), 4);
        },
    );
}

/// Each frame of a flood is received, or counted once.
#[test]
fn frames_to_sockets_that_come_and_go_are_counted_once() {
    let lab = lab!();
    lab.run(
        |_| {},
        async |stack| {
            let bind = || UdpSocket::bind(([10, 78, 0, 7], 4000)).unwrap();
            let socket = bind();
            let peer = lab.peer_of(&socket, ADDRESSES[0]);
            exchange(&peer, &socket, b"first").await;
            drop(socket);
            let is_over = Arc::new(AtomicBool::new(false));
            let flood = std::thread::spawn({
                let is_over = is_over.clone();
                move || {
                    let mut sent = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        // Less than the link holds, which loses few frames before the program so.
                        for _ in 0..100 {
                            sent += u64::from(peer.send(b"flood").is_ok());
                        }
                        std::thread::sleep(Duration::from_micros(100));
                    }
                    sent
                }
            });
            let mut received = 0;
            for round in 0..1000 {
                let socket = bind();
                for _ in 0..round % 5 {
                    socket.recv(&mut [0; 16]).await.unwrap();
                    received += 1;
                }
            }
            is_over.store(true, Ordering::Relaxed);
            let sent = flood.join().unwrap();
            let lost = lab.lost_in_link();
            let counted = |report: &stack::StackReport| {
                report.drops.total() + report.lost.unwrap() + received + lost
            };
            let all = until(&stack, |report| counted(report) == sent);
            // The difference, if there is one, tells whether frames are missing or counted twice.
            let _ = softclock::timeout(LIMIT / 2, all).await;
            let report = stack.report();
            assert_eq!(counted(&report), sent, "{report:?}, lost {lost}");
        },
    );
}

#[test]
fn a_closed_socket_leaves_its_port_and_its_ring_to_others() {
    let lab = lab!();
    lab.run(
        |options| options.sockets = 1,
        async |stack| {
            let socket = UdpSocket::bind(([10, 78, 0, 7], 0)).unwrap();
            let local = socket.local_addr().unwrap();
            let peer = lab.peer_of(&socket, ADDRESSES[0]);
            exchange(&peer, &socket, b"first").await;
            for _ in 0..3 {
                peer.send(b"unread").unwrap();
            }
            softclock::sleep(Duration::from_millis(10)).await;
            drop(socket);
            assert_eq!(stack.report().drops.of(DropReason::Closed), 3);
            peer.send(b"closed").unwrap();
            let error = answer(&peer, &mut [0; 16]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            let again = UdpSocket::bind(local).unwrap();
            exchange(&peer, &again, b"again").await;
        },
    );
}

#[test]
fn sockets_beyond_the_limit_are_refused() {
    let lab = lab!();
    lab.run(
        |options| options.sockets = 2,
        async |_| {
            let bind = || UdpSocket::bind(([10, 78, 0, 7], 0));
            let two = [bind().unwrap(), bind().unwrap()];
            let error = bind().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
            assert!(error.to_string().contains("StackOptions::sockets"));
            drop(two);
            let _again = [bind().unwrap(), bind().unwrap()];
        },
    );
}

#[test]
fn a_port_is_bound_at_one_address_or_at_all() {
    let lab = lab!();
    lab.run(
        |_| {},
        async |_| {
            for [one, two] in [["10.78.0.7:1", "0.0.0.0:1"], ["[::]:2", "[fd78::7]:2"]] {
                let bind = |at: &str| UdpSocket::bind(at.parse::<SocketAddr>().unwrap());
                let first = bind(one).unwrap();
                assert_eq!(bind(two).unwrap_err().kind(), ErrorKind::AddrInUse);
                drop(first);
                bind(two).unwrap();
            }
            // The versions of IP have ports of their own.
            let _v4 = UdpSocket::bind(([0; 4], 3)).unwrap();
            let _v6 = UdpSocket::bind(([0; 16], 3)).unwrap();
        },
    );
}

/// Some of the ports that the stack tries belong to sockets at all addresses: some seven, by the numbers here.
#[test]
fn a_chosen_port_is_free_at_all_addresses() {
    let lab = lab!();
    lab.run(
        |options| options.sockets = 64,
        async |_| {
            let bind = |ip: [u8; 4], port| UdpSocket::bind((ip, port));
            let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
            let everywhere: Vec<_> = (0..60).map(|_| bind([0; 4], 0).unwrap()).collect();
            for _ in 0..2000 {
                let chosen = bind([10, 78, 0, 7], 0).unwrap();
                assert!(everywhere.iter().all(|other| port(other) != port(&chosen)));
            }
        },
    );
}

/// Runs `test` in a runtime of another thread that has joined the stack.
fn in_another_thread<R: Send + 'static>(
    stack: &Stack,
    test: impl AsyncFnOnce() -> R + Send + 'static,
) -> Pin<Box<dyn Future<Output = R>>> {
    let share = stack.share();
    let thread = std::thread::spawn(move || {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            share.join().unwrap();
            let limited = softclock::timeout(LIMIT, test());
            limited.await.expect("the test hangs")
        })
    });
    Box::pin(async {
        while !thread.is_finished() {
            softclock::sleep(Duration::from_millis(1)).await;
        }
        thread.join().unwrap()
    })
}

/// Once the peer knows the link address, datagrams reach a socket of another thread while the thread that opened the
/// stack does nothing at all.
#[test]
fn another_thread_receives_from_a_ring_of_its_own() {
    let lab = lab!();
    lab.run(
        |_| {},
        async |stack| {
            let (to_peer, at) = mpsc::channel();
            let (paused, pause) = mpsc::channel::<()>();
            let (resume, resumed) = mpsc::channel::<()>();
            let other = in_another_thread(&stack, async move || {
                let socket = UdpSocket::bind(([10, 78, 0, 7], 0)).unwrap();
                to_peer.send(socket.local_addr().unwrap()).unwrap();
                let mut buffer = [0; 16];
                let (length, source) = socket.recv_from(&mut buffer).await.unwrap();
                socket.send_to(&buffer[..length], source).await.unwrap();
                pause.recv().unwrap();
                for number in 0..100u8 {
                    assert_eq!(socket.recv(&mut buffer).await.unwrap(), 1);
                    assert_eq!(buffer[0], number);
                }
                resume.send(()).unwrap();
            });
            let there = at.recv().unwrap();
            let peer = lab.peer_at(there);
            peer.send(b"first").unwrap();
            assert_eq!(answer(&peer, &mut [0; 16]).await.unwrap(), 5);
            paused.send(()).unwrap();
            for number in 0..100u8 {
                peer.send(&[number]).unwrap();
            }
            // This thread blocks, and so does its driver.
            resumed.recv().unwrap();
            other.await;
            let counts = stack.report().counts;
            assert_eq!(counts.to_channels, 101);
            assert_eq!((counts.datagrams_received, counts.datagrams_sent), (101, 1));
            assert_eq!(stack.report().drops.total(), 0);
        },
    );
}

/// Strangers to a connected socket are refused by the thread that opened the stack, up to the limit of such answers.
#[test]
fn another_thread_hears_its_peer_and_others_are_refused() {
    let lab = lab!();
    lab.run(
        |options| options.channel.packets = 8,
        async |stack| {
            let (to_peer, at) = mpsc::channel();
            let (to_socket, from_peer) = mpsc::channel();
            let other = in_another_thread(&stack, async move || {
                let socket = UdpSocket::bind(([10, 78, 0, 7], 0)).unwrap();
                to_peer.send(socket.local_addr().unwrap()).unwrap();
                let mut buffer = [0; 16];
                let (length, source) = socket.recv_from(&mut buffer).await.unwrap();
                socket.connect(source).unwrap();
                socket.send(&buffer[..length]).await.unwrap();
                assert_eq!(socket.recv(&mut buffer).await.unwrap(), 4);
                // The rest finds the ring full, or waits in it when the socket is closed.
                from_peer.recv().unwrap();
            });
            let there = at.recv().unwrap();
            let [peer, stranger] = [(); 2].map(|()| lab.peer_at(there));
            peer.send(b"first").unwrap();
            assert_eq!(answer(&peer, &mut [0; 16]).await.unwrap(), 5);
            stranger.send(b"stranger").unwrap();
            let error = answer(&stranger, &mut [0; 16]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            peer.send(b"peer").unwrap();
            for _ in 0..20 {
                peer.send(b"flood").unwrap();
            }
            softclock::sleep(Duration::from_millis(10)).await;
            to_socket.send(()).unwrap();
            other.await;
            let report = stack.report();
            let [refused, full, closed] = [
                DropReason::PortUnreachable,
                DropReason::ChannelFull,
                DropReason::Closed,
            ]
            .map(|reason| report.drops.of(reason));
            assert_eq!(refused, 1, "{report:?}");
            assert!(full > 0 && closed <= 8 && full + closed == 20, "{report:?}");
            assert_eq!(report.counts.datagrams_received, 2);
        },
    );
}

#[test]
fn threads_cannot_bind_one_port() {
    let lab = lab!();
    lab.run(
        |options| options.sockets = 2,
        async |stack| {
            let mine = UdpSocket::bind(([10, 78, 0, 7], 4000)).unwrap();
            let other = in_another_thread(&stack, async || {
                let bind = |ip: [u8; 4], port| UdpSocket::bind((ip, port));
                let busy = bind([10, 78, 0, 7], 4000).unwrap_err();
                assert_eq!(busy.kind(), ErrorKind::AddrInUse);
                let at_all = bind([0; 4], 4000).unwrap_err();
                assert_eq!(at_all.kind(), ErrorKind::AddrInUse);
                // A ring is free again as soon as its socket is closed.
                for _ in 0..10 {
                    drop(bind([10, 78, 0, 7], 0).unwrap());
                }
                let socket = bind([10, 78, 0, 7], 0).unwrap();
                let error = bind([10, 78, 0, 7], 0).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
                socket.local_addr().unwrap()
            });
            let theirs = other.await;
            drop(mine);
            UdpSocket::bind(theirs).unwrap();
        },
    );
}

#[test]
fn it_needs_af_xdp() {
    Runtime::new().unwrap().block_on(async {
        let mut packet = options();
        packet.mechanism = StackMechanism::Packet;
        let mut tap = options();
        tap.interface = "tap:host".into();
        for options in [packet, tap] {
            assert!(matches!(stack::open(&options), Err(StackError::NeedsXdp)));
        }
    });
}

const LIMIT: Duration = Duration::from_secs(30);
