//! A relay between a client and a server, with a delay, and a bottleneck for the server's datagrams, which it records.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use softclock::Instant;
use softclock::net::{BindOptions, RecvBatch, UdpSocket};
use softclock_core::wan::{Fate, Wan, WanOptions};

/// The kernel's time stamp and the length of a datagram.
pub(crate) type Arrival = (Instant, usize);

pub(crate) struct Relay {
    /// The address to which the client connects.
    pub(crate) address: SocketAddr,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Arrival>>,
}

impl Relay {
    /// Starts a relay to `server` that delays each datagram, in both directions.
    pub(crate) fn start(server: SocketAddr, delay: Duration) -> Self {
        let link = WanOptions {
            delay,
            ..WanOptions::default()
        };
        Self::over(server, link)
    }

    /// Starts a relay to `server` whose datagrams pass `link`. Those of the client have its delay only.
    pub(crate) fn over(server: SocketAddr, link: WanOptions) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let flag = ended.clone();
        let thread = thread::spawn(move || {
            let runtime = softclock::Runtime::new().unwrap();
            runtime.block_on(async {
                let [front, back] = [bind(), bind()];
                sender.send(front.local_addr().unwrap()).unwrap();
                run(front, back, server, link, &flag).await
            })
        });
        Self {
            address: receiver.recv().unwrap(),
            ended,
            thread,
        }
    }

    /// Ends the relay. Returns the datagrams that came from the server.
    pub(crate) fn end(self) -> Vec<Arrival> {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn bind() -> Rc<UdpSocket> {
    let mut options = BindOptions::default();
    options.receive.time_stamps = true;
    Rc::new(UdpSocket::bind_with((Ipv4Addr::LOCALHOST, 0), &options).unwrap())
}

async fn run(
    front: Rc<UdpSocket>,
    back: Rc<UdpSocket>,
    server: SocketAddr,
    options: WanOptions,
    ended: &AtomicBool,
) -> Vec<Arrival> {
    let client = Rc::new(Cell::new(server));
    let arrivals = Rc::new(Cell::new(Vec::new()));
    let (to, from) = (back.clone(), client.clone());
    let receiving = front.clone();
    softclock::spawn_local(async move {
        let mut batch = RecvBatch::new(64, 2000);
        while receiving.recv_batch(&mut batch).await.is_ok() {
            for datagram in batch.datagrams() {
                from.set(datagram.source);
                pass_on(&to, datagram.payload, server, options.delay);
            }
        }
    });
    let recorded = arrivals.clone();
    softclock::spawn_local(async move {
        let mut link = Wan::new(options, 1);
        let mut batch = RecvBatch::new(64, 2000);
        while back.recv_batch(&mut batch).await.is_ok() {
            let mut known = recorded.take();
            for datagram in batch.datagrams() {
                let (now, length) = (datagram.received.unwrap(), datagram.payload.len());
                known.push((now, length));
                // With the headers of IPv4 and UDP.
                if let Fate::Leaves { at, .. } = link.on_arrival(length as u64 + 28, now) {
                    pass_on(&front, datagram.payload, client.get(), at.since(now));
                }
            }
            recorded.set(known);
        }
    });
    while !ended.load(Ordering::Relaxed) {
        softclock::sleep(Duration::from_millis(1)).await;
    }
    arrivals.take()
}

fn pass_on(socket: &Rc<UdpSocket>, bytes: &[u8], to: SocketAddr, delay: Duration) {
    let (socket, bytes) = (socket.clone(), bytes.to_vec());
    softclock::spawn_local(async move {
        softclock::sleep(delay).await;
        let _ = socket.send_to(&bytes, to).await;
    });
}

/// The largest number of datagrams of full size within `window`.
pub(crate) fn most_within(arrivals: &[Arrival], window: Duration) -> usize {
    let times: Vec<_> = arrivals
        .iter()
        .filter(|(_, length)| *length > 1000)
        .map(|(at, _)| *at)
        .collect();
    let within = |first: usize| {
        let until = times[first] + window;
        times[first..].iter().take_while(|at| **at < until).count()
    };
    (0..times.len()).map(within).max().unwrap_or(0)
}
