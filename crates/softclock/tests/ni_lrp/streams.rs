//! TCP: a ring for each listener's port, and one for the segments to other ports.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener as KernelListener, TcpStream as KernelStream};
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use softclock::net::stack::{RingKind, RingReport};
use softclock::net::{ListenOptions, TcpListener, TcpStream};
use softclock_linux::link::{Link, PacketSocket};
use softclock_net::checksum::Addresses;
use softclock_net::ip::{Output, write_header};
use softclock_net::link::{Header as LinkHeader, LinkAddress};
use softclock_net::tcp::segment::{Flags, Header, Options, emit};
use softclock_wire::packet::{IPV4, Offload, TCP};

use super::*;

/// Runs `call` in a thread in the peer's namespace.
fn at_peer<R: Send + 'static>(
    lab: &Lab,
    call: impl FnOnce() -> R + Send + 'static,
) -> JoinHandle<R> {
    let entry = lab.peer.entry().unwrap();
    thread::spawn(move || {
        entry.enter().unwrap();
        call()
    })
}

async fn ended<R>(thread: JoinHandle<R>) -> R {
    while !thread.is_finished() {
        softclock::sleep(Duration::from_millis(1)).await;
    }
    thread.join().unwrap()
}

/// The ring of this kind, if there is one.
fn ring(stack: &Stack, kind: RingKind) -> Option<RingReport> {
    let rings = stack.report().rings;
    rings.into_iter().find(|ring| ring.kind == kind)
}

fn ring_of(stack: &Stack, listener: &TcpListener) -> Option<RingReport> {
    ring(stack, RingKind::Listener(listener.local_addr().unwrap()))
}

fn ours(port: u16) -> SocketAddr {
    SocketAddr::new(ADDRESSES[0].parse().unwrap(), port)
}

/// Sends a SYN to this port of the stack.
fn syn(port: u16) -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    // An error is that the connection is not open yet.
    let _ = rustix::net::connect(&socket, &ours(port));
    socket
}

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// Sends this number of bytes from the peer, and returns the answer.
fn send_from_peer(lab: &Lab, to: SocketAddr, length: usize) -> JoinHandle<String> {
    at_peer(lab, move || {
        let mut stream = KernelStream::connect(to).unwrap();
        let bytes: Vec<u8> = (0..length).map(byte).collect();
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    })
}

/// Receives what [`send_from_peer`] sends, and answers with the number of bytes.
async fn receive_all(stream: TcpStream) {
    let (mut received, mut buffer) = (0, vec![0; 64 << 10]);
    loop {
        let length = stream.read(&mut buffer).await.unwrap();
        let expected = |(at, &value): (usize, &u8)| value == byte(received + at);
        assert!(buffer[..length].iter().enumerate().all(expected));
        received += length;
        if length == 0 {
            break;
        }
    }
    stream
        .write_all(received.to_string().as_bytes())
        .await
        .unwrap();
}

/// SYNs to a port whose owner does not accept, and datagrams to closed ports, are discarded in rings of their own, also
/// while the thread of the stack is busy.
#[test]
fn floods_displace_no_segment_of_another_port() {
    const LENGTH: usize = 16 << 20;
    let lab = lab!();
    lab.run(
        |_| {},
        async |stack| {
            let served = TcpListener::bind(ours(4001)).unwrap();
            let options = ListenOptions {
                backlog: 1,
                ..ListenOptions::default()
            };
            let flooded = TcpListener::bind_with(ours(4002), &options).unwrap();
            let is_over = Arc::new(AtomicBool::new(false));
            let flood = at_peer(&lab, {
                let is_over = is_over.clone();
                move || {
                    let datagrams = KernelSocket::bind("0.0.0.0:0").unwrap();
                    let mut opening = VecDeque::new();
                    while !is_over.load(Ordering::Relaxed) {
                        for port in 5000..5200 {
                            // An error is the answer to an earlier one.
                            let _ = datagrams.send_to(b"closed", ours(port));
                        }
                        opening.extend((0..20).map(|_| syn(4002)));
                        while opening.len() > 200 {
                            opening.pop_front();
                        }
                        thread::sleep(Duration::from_micros(100));
                    }
                }
            });
            let is_busy = is_over.clone();
            let busy = softclock::spawn_local(async move {
                while !is_busy.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(2));
                    softclock::sleep(Duration::from_millis(1)).await;
                }
            });
            let client = send_from_peer(&lab, ours(4001), LENGTH);
            let (stream, _) = served.accept().await.unwrap();
            receive_all(stream).await;
            assert_eq!(ended(client).await, LENGTH.to_string());

            let discarded = |kind| ring(&stack, kind).unwrap().discarded;
            let of_flooded = RingKind::Listener(flooded.local_addr().unwrap());
            while discarded(RingKind::Unclaimed) == 0 || discarded(of_flooded) == 0 {
                softclock::sleep(Duration::from_millis(1)).await;
            }
            is_over.store(true, Ordering::Relaxed);
            ended(flood).await;
            busy.await;
            let ring = ring_of(&stack, &served).unwrap();
            assert_eq!(
                (ring.limit, ring.discarded),
                (2048, 0),
                "{:?}",
                stack.report()
            );
            // At least one frame for 64 KiB.
            assert!(ring.delivered >= (LENGTH >> 16) as u64, "{ring:?}");
            assert_eq!(discarded(RingKind::Segments), 0);

            // Once its owner accepts, SYNs pass again.
            let client = send_from_peer(&lab, ours(4002), 5);
            let mut accepted = Vec::new();
            let peer = loop {
                let (stream, peer) = flooded.accept().await.unwrap();
                let mut bytes = [0; 8];
                let read = stream.read(&mut bytes);
                // A stream of the flood sends nothing.
                match softclock::timeout(Duration::from_millis(100), read).await {
                    Ok(Ok(5)) => {
                        stream.write_all(b"5").await.unwrap();
                        break peer;
                    }
                    _ => accepted.push(stream),
                }
            };
            assert!(peer.ip().is_ipv4());
            assert_eq!(ended(client).await, "5");
        },
    );
}

/// The frame of a SYN to a port of the stack, from an address of none.
fn forged_syn(destination: LinkAddress, port: u16, number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let addresses = Addresses {
        source: IpAddr::from([10, 79, high, low]),
        destination: ours(port).ip(),
    };
    let header = Header {
        source_port: 1024,
        destination_port: port,
        flags: Flags::SYN,
        window: 1000,
        ..Header::default()
    };
    let mut segment = Vec::new();
    emit(
        addresses,
        &header,
        &Options::default(),
        |_| (),
        &mut segment,
    );
    let link = LinkHeader {
        destination,
        source: LinkAddress([2, 0, 0, 0, 0, 1]),
        ether_type: IPV4,
    };
    let output = Output {
        addresses,
        protocol: TCP,
        hop_limit: 64,
        traffic_class: 0,
        identification: 0,
        may_fragment: false,
    };
    let mut frame = link.to_bytes().to_vec();
    write_header(&output, segment.len(), &mut frame);
    frame.extend(segment);
    frame
}

/// A flood of SYNs to a served port, most of which find no cookie, keeps no client out that was there before.
#[test]
fn forged_syns_leave_proven_peers_a_way() {
    let lab = lab!();
    lab.run(
        |options| {
            options.tcp.listen.half_open = 1;
            options.tcp.listen.cookies_per_second = 1000;
        },
        async |stack| {
            let listener = TcpListener::bind(ours(4001)).unwrap();
            let connects = async || {
                let client = at_peer(&lab, || {
                    KernelStream::connect_timeout(&ours(4001), Duration::from_secs(10))
                });
                let accepted = softclock::timeout(Duration::from_secs(10), listener.accept()).await;
                accepted.is_ok() && ended(client).await.is_ok()
            };
            assert!(connects().await, "before the flood");
            let is_over = Arc::new(AtomicBool::new(false));
            let flood = at_peer(&lab, {
                let (is_over, to) = (is_over.clone(), stack.link_address());
                move || {
                    let socket = PacketSocket::open(&Link::named("peer").unwrap(), 1 << 20);
                    let socket = socket.unwrap();
                    let syns: Vec<_> = (0..u16::MAX).map(|n| forged_syn(to, 4001, n)).collect();
                    for batch in syns.chunks(32).cycle() {
                        let frames = batch.iter().map(|frame| (&frame[..], &Offload::NONE));
                        // Those for which the link has no room are lost.
                        let _ = socket.send(frames);
                        thread::sleep(Duration::from_micros(100));
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                }
            });
            let has_cookies = |report: &stack::StackReport| report.tcp.listeners.cookies_sent > 100;
            until(&stack, has_cookies).await;
            for attempt in 0..20 {
                assert!(connects().await, "attempt {attempt}: {:?}", stack.report());
            }
            is_over.store(true, Ordering::Relaxed);
            ended(flood).await;
            assert!(ring_of(&stack, &listener).unwrap().discarded > 1000);
        },
    );
}

/// A ring has the SYNs of all threads that listen at its port: a thread that does not accept holds up its own only.
#[test]
fn a_thread_that_does_not_accept_leaves_syns_to_the_others() {
    let lab = lab!();
    lab.run(
        |options| options.threads = 2,
        async |stack| {
            let options = ListenOptions {
                backlog: 1,
                ..ListenOptions::default()
            };
            let unserved = TcpListener::bind_with(ours(4001), &options).unwrap();
            let share = stack.share();
            let is_over = Arc::new(AtomicBool::new(false));
            let ends = is_over.clone();
            let serve = async move || {
                share.join().unwrap();
                let listener = TcpListener::bind(ours(4001)).unwrap();
                while !ends.load(Ordering::Relaxed) {
                    let accept = softclock::timeout(Duration::from_millis(10), listener.accept());
                    if let Ok(Ok((stream, _))) = accept.await {
                        let _ = stream.write_all(b"!").await;
                    }
                }
            };
            let server = thread::spawn(move || Runtime::new().unwrap().block_on(serve()));
            let flood: Vec<_> =
                ended(at_peer(&lab, || (0..1500).map(|_| syn(4001)).collect())).await;
            // More SYNs of the first thread wait than it has room for.
            softclock::sleep(Duration::from_millis(50)).await;
            let answered = at_peer(&lab, || {
                let is_answered = |_: &i32| {
                    let connect =
                        KernelStream::connect_timeout(&ours(4001), Duration::from_millis(300));
                    let Ok(mut stream) = connect else {
                        return false;
                    };
                    stream
                        .set_read_timeout(Some(Duration::from_millis(300)))
                        .unwrap();
                    stream.read_exact(&mut [0]).is_ok()
                };
                (0..40).filter(is_answered).count()
            });
            assert!(ended(answered).await > 0);
            drop(flood);
            is_over.store(true, Ordering::Relaxed);
            ended(server).await;
            drop(unserved);
        },
    );
}

#[test]
fn a_closed_listener_gives_its_ring_back() {
    let lab = lab!();
    lab.run(
        |options| options.listeners = 1,
        async |stack| {
            for round in 0..1000 {
                let listener = TcpListener::bind(ours(0)).unwrap();
                assert!(ring_of(&stack, &listener).is_some(), "round {round}");
                // One more has none.
                if round == 0 {
                    let more = TcpListener::bind(ours(0)).unwrap();
                    assert!(ring_of(&stack, &more).is_none());
                }
            }
            // Also after it was used.
            for _ in 0..10 {
                let listener = loop {
                    // The ring is free again once all segments in it are processed.
                    let listener = TcpListener::bind(ours(4001)).unwrap();
                    if ring_of(&stack, &listener).is_some() {
                        break listener;
                    }
                    drop(listener);
                    softclock::sleep(Duration::from_millis(1)).await;
                };
                let client = send_from_peer(&lab, ours(4001), 100_000);
                receive_all(listener.accept().await.unwrap().0).await;
                assert_eq!(ended(client).await, "100000");
                assert!(ring_of(&stack, &listener).unwrap().delivered > 0);
            }
            assert_eq!(stack.report().rings.len(), 4);
        },
    );
}

/// Listeners beyond the limit, connections whose listener is closed, and those of the stack itself have a ring in
/// common.
#[test]
fn segments_to_ports_without_a_ring_arrive() {
    let lab = lab!();
    lab.run(
        |options| options.listeners = 1,
        async |stack| {
            let delivered = || ring(&stack, RingKind::Segments).unwrap().delivered;
            let first = TcpListener::bind("0.0.0.0:4001".parse::<SocketAddr>().unwrap()).unwrap();
            let second = TcpListener::bind(ours(4002)).unwrap();
            assert!(ring_of(&stack, &second).is_none());
            let client = send_from_peer(&lab, ours(4002), 1 << 20);
            receive_all(second.accept().await.unwrap().0).await;
            assert_eq!(ended(client).await, (1 << 20).to_string());
            let before = delivered();
            assert!(before > 0);

            let client = send_from_peer(&lab, ours(4001), 1 << 20);
            let (stream, _) = first.accept().await.unwrap();
            assert!(ring_of(&stack, &first).unwrap().delivered > 0);
            // Nothing is read yet, so that more than a window is left to come.
            drop(first);
            receive_all(stream).await;
            assert_eq!(ended(client).await, (1 << 20).to_string());

            let before = delivered();
            let echo = at_peer(&lab, || {
                let listener = KernelListener::bind("10.78.0.1:4003").unwrap();
                let (mut stream, _) = listener.accept().unwrap();
                let mut bytes = [0; 4];
                stream.read_exact(&mut bytes).unwrap();
                stream.write_all(&bytes).unwrap();
            });
            let there: SocketAddr = "10.78.0.1:4003".parse().unwrap();
            let stream = loop {
                match TcpStream::connect(there).await {
                    Ok(stream) => break stream,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
                }
            };
            stream.write_all(b"echo").await.unwrap();
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"echo");
            ended(echo).await;
            assert!(delivered() > before);
            let discarded = stack
                .report()
                .rings
                .iter()
                .map(|ring| ring.discarded)
                .sum::<u64>();
            assert_eq!(discarded, 0);
        },
    );
}
