//! The paced socket: datagrams arrive evenly, in order, and the queue is bounded.

use std::io;
use std::net::{SocketAddr, UdpSocket as StdUdpSocket};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use softclock_core::Instant;
use softclock_linux::clock::ThreadClock;
use softclock_linux::socket::local_addr;
use softclock_linux::socket::udp::{self, BindOptions, RecvBatch};
use softclock_testing::lab::Namespace;
use softclock_tokio::{Limits, Pacing, Timers, UdpSocket};

const MS: Duration = Duration::from_millis(1);

/// The kernel's time stamp, the length and the first byte of a datagram.
type Arrival = (Instant, usize, u8);

/// A receiver that records the datagrams of at least one byte. An empty one ends it.
struct Receiver {
    address: SocketAddr,
    thread: JoinHandle<Vec<Arrival>>,
}

impl Receiver {
    fn start() -> Self {
        let mut options = BindOptions::default();
        options.receive.time_stamps = true;
        let socket = udp::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &options).unwrap();
        let address = local_addr(socket.as_fd()).unwrap();
        let thread = thread::spawn(move || receive(socket.as_fd()));
        Self { address, thread }
    }

    fn end(self) -> Vec<Arrival> {
        let socket = StdUdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[], self.address).unwrap();
        self.thread.join().unwrap()
    }
}

fn receive(socket: BorrowedFd<'_>) -> Vec<Arrival> {
    let (clock, mut batch) = (ThreadClock::monotonic(), RecvBatch::new(64, 4000));
    let mut arrivals = Vec::new();
    loop {
        match udp::recv_batch(socket, &mut batch, &clock) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_micros(200));
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        for datagram in batch.datagrams() {
            let Some(first) = datagram.payload.first() else {
                return arrivals;
            };
            let at = datagram.received.expect("a time stamp");
            arrivals.push((at, datagram.payload.len(), *first));
        }
    }
}

/// The largest number of arrivals within `window`.
fn most_within(arrivals: &[Arrival], window: Duration) -> usize {
    let within = |first: usize| {
        let until = arrivals[first].0 + window;
        arrivals[first..]
            .iter()
            .take_while(|(at, ..)| *at < until)
            .count()
    };
    (0..arrivals.len()).map(within).max().unwrap_or(0)
}

fn rate(text: &str) -> Pacing {
    Pacing::of_rate(text.parse().unwrap())
}

fn current_thread() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

async fn paced(pacing: Pacing) -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0", pacing).await.unwrap()
}

#[tokio::test]
async fn a_burst_is_spread_evenly() {
    // 1.2 ms each.
    let (receiver, sender) = (Receiver::start(), paced(rate("8192kbit")).await);
    let unpaced = Receiver::start();
    let plain = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for i in 0..50 {
        sender.send_to(&[i; 1200], receiver.address).await.unwrap();
        plain.send_to(&[i; 1200], unpaced.address).await.unwrap();
    }
    sender.flush().await;
    assert_eq!(sender.counts().sent, 50);
    let (arrivals, unpaced) = (receiver.end(), unpaced.end());
    assert_eq!(arrivals.len(), 50);
    assert!(
        arrivals.iter().map(|arrival| arrival.2).eq(0..50),
        "in order"
    );
    let took = arrivals[49].0.since(arrivals[0].0);
    assert!(
        took >= 49 * Duration::from_micros(1199) - 5 * MS,
        "{took:?}"
    );
    let most = most_within(&arrivals, 4 * MS);
    let without = most_within(&unpaced, 4 * MS);
    assert!(
        2 * most < without,
        "{most} of 50 within 4 ms, {without} without pacing"
    );
}

#[tokio::test]
async fn many_small_datagrams_by_number() {
    let per_second = NonZeroU32::new(2_000).unwrap();
    let (receiver, sender) = (
        Receiver::start(),
        paced(Pacing::of_datagrams(per_second)).await,
    );
    let start = std::time::Instant::now();
    for i in 0..100 {
        sender
            .send_to(&[1; 100][..=i], receiver.address)
            .await
            .unwrap();
    }
    sender.flush().await;
    assert!(start.elapsed() >= 99 * MS / 2);
    let lengths = receiver.end().into_iter().map(|(_, length, _)| length);
    assert!(lengths.eq(1..=100));
}

#[tokio::test]
async fn datagrams_are_joined_where_the_rate_is_high() {
    let (receiver, sender) = (Receiver::start(), paced(rate("1gbit")).await);
    for _ in 0..400 {
        sender.send_to(&[7; 1200], receiver.address).await.unwrap();
    }
    sender.flush().await;
    let counts = sender.counts();
    assert_eq!((counts.sent, counts.dropped, counts.queued), (400, 0, 0));
    // Up to four: fewer calls than datagrams, and no fewer than a quarter of them.
    assert!((100..350).contains(&counts.calls), "{counts:?}");
    let arrivals = receiver.end();
    assert!(
        arrivals
            .iter()
            .all(|&(_, length, byte)| (length, byte) == (1200, 7))
    );
}

#[test]
fn datagrams_longer_than_the_mtu_are_fragmented() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    namespace.run("ip link set lo mtu 1500 up").unwrap();
    let send = || {
        let (receiver, runtime) = (Receiver::start(), current_thread());
        let counts = runtime.block_on(async {
            // Up to four are joined.
            let per_second = NonZeroU32::new(100_000).unwrap();
            let sender = paced(Pacing::of_datagrams(per_second)).await;
            for bytes in [3000, 1200] {
                for _ in 0..16 {
                    let datagram = vec![7; bytes];
                    sender.send_to(&datagram, receiver.address).await.unwrap();
                }
            }
            sender.flush().await;
            sender.counts()
        });
        assert_eq!((counts.sent, counts.dropped), (32, 0));
        let arrivals = receiver.end();
        let long = arrivals.iter().filter(|(_, length, _)| *length == 3000);
        assert_eq!((long.count(), arrivals.len()), (16, 32));
    };
    namespace.inside(send).unwrap();
}

#[tokio::test]
async fn a_full_queue_makes_senders_wait() {
    let limits = Limits { burst: 1, queue: 5 };
    let pacing = Pacing::of_datagrams(NonZeroU32::new(100).unwrap()).with_limits(limits);
    let (receiver, sender) = (Receiver::start(), paced(pacing).await);
    // One is sent at once, and five wait.
    let mut accepted = 0;
    let full = loop {
        match sender.try_send_to(&[1], receiver.address) {
            Ok(1) => accepted += 1,
            other => break other.unwrap_err(),
        }
    };
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    assert!((6..=7).contains(&accepted), "{accepted}");
    let start = std::time::Instant::now();
    sender.send_to(&[2], receiver.address).await.unwrap();
    assert!(start.elapsed() >= 5 * MS);
    assert!(sender.counts().queued <= 5);
    // Given up while it waits: not sent.
    while sender.try_send_to(&[1], receiver.address).is_ok() {
        accepted += 1;
    }
    let given_up = tokio::time::timeout(MS, sender.send_to(&[3], receiver.address));
    if given_up.await.is_ok() {
        accepted += 1;
    }
    sender.flush().await;
    assert_eq!(receiver.end().len(), accepted + 1);
}

#[tokio::test]
async fn senders_of_several_tasks_share_the_queue() {
    let limits = Limits { burst: 4, queue: 3 };
    let (receiver, sender) = (
        Receiver::start(),
        paced(rate("50mbit").with_limits(limits)).await,
    );
    let sender = std::sync::Arc::new(sender);
    let tasks = (0..8).map(|i| {
        let (sender, peer) = (sender.clone(), receiver.address);
        tokio::spawn(async move {
            for _ in 0..20 {
                sender.send_to(&[i; 1000], peer).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    sender.flush().await;
    assert_eq!(receiver.end().len(), 160);
}

#[tokio::test]
async fn what_waits_is_sent_after_the_socket_was_dropped() {
    let receiver = Receiver::start();
    let timers = Timers::new().unwrap();
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let sender = UdpSocket::new(socket, rate("5mbit"), timers);
    for i in 0..10 {
        sender.send_to(&[i; 1000], receiver.address).await.unwrap();
    }
    let probe = sender.local_addr().unwrap();
    drop(sender);
    // The address is free once the last datagram has left.
    let freed = || StdUdpSocket::bind(probe);
    assert!(freed().is_err());
    while freed().is_err() {
        tokio::time::sleep(MS).await;
    }
    assert_eq!(receiver.end().len(), 10);
}

#[test]
fn what_waits_is_sent_after_the_runtime_has_ended() {
    let receiver = Receiver::start();
    let runtime = current_thread();
    let sender = runtime.block_on(async {
        let sender = paced(rate("5mbit")).await;
        for i in 0..10 {
            sender.send_to(&[i; 1000], receiver.address).await.unwrap();
        }
        sender
    });
    drop(runtime);
    while sender.counts().queued > 0 {
        thread::sleep(MS);
    }
    thread::sleep(5 * MS);
    assert_eq!(sender.counts().sent, 10);
    assert_eq!(receiver.end().len(), 10);
}

#[tokio::test]
async fn the_rate_can_be_changed_while_datagrams_wait() {
    let (receiver, sender) = (Receiver::start(), paced(rate("10kbit")).await);
    for _ in 0..10 {
        sender.send_to(&[1; 1000], receiver.address).await.unwrap();
    }
    // At 10 kbit/s they would take 7 s.
    let start = std::time::Instant::now();
    sender.set_pacing(rate("100mbit"));
    sender.flush().await;
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(receiver.end().len(), 10);
}

#[tokio::test]
async fn a_connected_socket_reports_that_nobody_listens() {
    let sender = paced(rate("10mbit")).await;
    let peer = {
        let gone = StdUdpSocket::bind("127.0.0.1:0").unwrap();
        gone.local_addr().unwrap()
    };
    sender.connect(peer).await.unwrap();
    let error = loop {
        if let Err(error) = sender.send(&[1]).await {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert!(sender.counts().dropped > 0);
}

#[tokio::test]
async fn answers_are_received() {
    let (here, there) = (paced(rate("10mbit")).await, paced(rate("10mbit")).await);
    let mut buffer = [0; 10];
    here.send_to(b"ping", there.local_addr().unwrap())
        .await
        .unwrap();
    let (length, peer) = there.recv_from(&mut buffer).await.unwrap();
    assert_eq!(
        (&buffer[..length], peer),
        (&b"ping"[..], here.local_addr().unwrap())
    );
    there.connect(peer).await.unwrap();
    there.send(b"pong").await.unwrap();
    let (length, _) = here.recv_from(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..length], b"pong");
}
