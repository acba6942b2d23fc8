//! A paced sender over a socket of the test's own: changes of the rate, and sockets that fail.

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use softclock_tokio::pacing::{Outlet, PacedSender};
use softclock_tokio::{Limits, Pacing, Timers};

/// Sends each datagram to itself.
struct Itself {
    socket: UdpSocket,
    address: SocketAddr,
    /// Runs before each call with the number of calls before it.
    before: fn(usize) -> io::Result<()>,
    calls: AtomicUsize,
}

impl Outlet for Itself {
    type Flow = ();

    fn send(&self, (): &(), bytes: &[u8], segment_bytes: usize) -> io::Result<usize> {
        (self.before)(self.calls.fetch_add(1, Ordering::Relaxed))?;
        let first = &bytes[..bytes.len().min(segment_bytes)];
        self.socket.send_to(first, self.address)
    }
}

impl Itself {
    fn new() -> Self {
        Self::with(|_| Ok(()))
    }

    fn with(before: fn(usize) -> io::Result<()>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        Self {
            socket,
            address,
            before,
            calls: AtomicUsize::new(0),
        }
    }

    /// The number of datagrams that have arrived since the last call.
    fn arrivals(&self) -> usize {
        let mut buffer = [0; 2000];
        std::iter::from_fn(|| self.socket.recv(&mut buffer).ok()).count()
    }
}

/// A sender that hands the datagrams over one by one, even if it is late.
fn sender<O: Outlet>(outlet: O, pacing: Pacing) -> Arc<PacedSender<O>> {
    let limits = Limits {
        burst: 1,
        ..Limits::default()
    };
    PacedSender::new(
        outlet,
        Some(pacing),
        limits,
        Timers::global().sender_timer(),
    )
}

fn rate(text: &str) -> Pacing {
    Pacing::of_rate(text.parse().unwrap())
}

/// Waits until all datagrams are sent or dropped. Panics after a third of the time that one takes at [`SLOW`].
async fn flush<O: Outlet>(sender: &PacedSender<O>) {
    let flushed = poll_fn(|cx| sender.poll_flushed(cx));
    let flushed = tokio::time::timeout(Duration::from_secs(30), flushed);
    flushed.await.expect("the datagrams are not sent");
}

/// A rate at which a datagram of 1200 bytes takes 98 s.
const SLOW: &str = "100bit";

#[tokio::test]
async fn a_new_rate_ends_a_wait_at_the_former_one() {
    for pacing in [Some(rate("100mbit")), None] {
        let sender = sender(Itself::new(), rate(SLOW));
        sender.try_send((), &[0; 3600], 1200).unwrap();
        assert_eq!(sender.counts().queued, 2);
        sender.set_pacing(pacing);
        flush(&sender).await;
        assert_eq!(sender.outlet().arrivals(), 3);
    }
}

#[tokio::test]
async fn an_outlet_may_panic() {
    let panics = |call| match call {
        1 => panic!("expected by the test"),
        _ => Ok(()),
    };
    // On the timer thread: the second of three.
    let sender = sender(Itself::with(panics), rate("10mbit"));
    sender.try_send((), &[0; 3600], 1200).unwrap();
    flush(&sender).await;
    let counts = sender.counts();
    assert_eq!((counts.sent, counts.dropped, counts.queued), (2, 1, 0));
    sender.try_send((), &[0; 1200], 1200).unwrap_err();
    sender.try_send((), &[0; 1200], 1200).unwrap();
    flush(&sender).await;
    assert_eq!(sender.outlet().arrivals(), 3);
}

#[tokio::test]
async fn the_caller_sees_a_panic_of_its_own() {
    let panics = |call| match call {
        0 => panic!("expected by the test"),
        _ => Ok(()),
    };
    let sender = sender(Itself::with(panics), rate("10mbit"));
    let send = AssertUnwindSafe(|| sender.try_send((), &[0; 3600], 1200));
    catch_unwind(send).unwrap_err();
    flush(&sender).await;
    assert_eq!(sender.outlet().arrivals(), 2);
}

#[tokio::test]
async fn an_attempt_that_is_repeated_counts_once() {
    let blocks = |call| match call {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    };
    let sender = sender(Itself::with(blocks), rate(SLOW));
    sender.try_send((), &[0; 1200], 1200).unwrap();
    flush(&sender).await;
    assert_eq!(sender.outlet().arrivals(), 1);
}

/// Blocks the thread that calls it until it is released.
struct Blocking(Arc<Barrier>);

impl Outlet for Blocking {
    type Flow = ();

    fn send(&self, (): &(), bytes: &[u8], segment_bytes: usize) -> io::Result<usize> {
        if thread::current().name() == Some("softclock-timers") {
            self.0.wait();
            self.0.wait();
        }
        Ok(bytes.len().min(segment_bytes))
    }
}

#[test]
fn a_call_sends_in_place_of_a_late_timer_thread() {
    let timers = Timers::new().unwrap();
    let (limits, pacing) = (Limits::default(), Some(rate("20mbit")));
    let barrier = Arc::new(Barrier::new(2));
    let blocking = PacedSender::new(
        Blocking(barrier.clone()),
        pacing,
        limits,
        timers.sender_timer(),
    );
    blocking.try_send((), &[0; 2400], 1200).unwrap();
    // The timer thread is in the second call, until it is released.
    barrier.wait();
    let sender = PacedSender::new(Itself::new(), pacing, limits, timers.sender_timer());
    sender.try_send((), &[0; 2400], 1200).unwrap();
    assert_eq!(sender.counts().sent, 1);
    // The second datagram is due, and the third only after it.
    thread::sleep(Duration::from_millis(1));
    sender.try_send((), &[0; 1200], 1200).unwrap();
    assert!(sender.counts().sent >= 2);
    barrier.wait();
}
