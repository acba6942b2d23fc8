//! Clients in the clients' namespace, which use the kernel's sockets.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use softclock_core::Histogram;
use softclock_linux::priority::Priority;

use super::Network;
use super::network::Link;
use super::stopping::{Stop, Threads};
use crate::measure::processors::pin;

/// A client that sends a request, waits for its answer, pauses, and begins again. Ends when it is dropped.
#[derive(Debug)]
pub struct Pings {
    _threads: Threads,
    found: Arc<Mutex<PingResults>>,
}

/// The round trips of [`Pings`].
#[derive(Clone, Debug, Default)]
pub struct PingResults {
    /// Round-trip times, in nanoseconds.
    pub round_trips: Histogram,
    /// Requests without an answer within 20 ms.
    pub lost: u64,
}

impl Pings {
    /// Starts a client of the service at `port`, with requests of `bytes`, 1 or more.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn start(
        network: &Arc<Network>,
        port: u16,
        bytes: usize,
        pause: Duration,
    ) -> io::Result<Self> {
        let socket = connect(network, port)?;
        let mut pings = Self {
            _threads: Threads::default(),
            found: Arc::default(),
        };
        let (found, processor) = (pings.found.clone(), network.processors.clients);
        pings._threads.start("client", move |stop| {
            prepare(processor);
            let mut request = vec![0u8; bytes.max(1)];
            while stop.goes_on() {
                request[0] = request[0].wrapping_add(1);
                let round_trip = round_trip(&socket, &request);
                if let Ok(mut found) = found.lock() {
                    match round_trip {
                        Some(time) => found.round_trips.record(time.as_nanos() as u64),
                        None => found.lost += 1,
                    }
                }
                if !pause.is_zero() {
                    thread::sleep(pause);
                }
            }
        })?;
        Ok(pings)
    }

    /// Takes the results since the last call.
    pub fn take(&self) -> PingResults {
        let found = self.found.lock();
        found.map_or_else(
            |_| PingResults::default(),
            |mut found| std::mem::take(&mut *found),
        )
    }
}

/// The time until the answer to this request; `None` if it is lost.
fn round_trip(socket: &UdpSocket, request: &[u8]) -> Option<Duration> {
    let mut answer = [0; 2048];
    let begun = Instant::now();
    socket.send(request).ok()?;
    loop {
        let bytes = socket.recv(&mut answer).ok()?;
        // Late answers to requests that were given up are passed over.
        if answer[..bytes].first() == request.first() {
            return Some(begun.elapsed());
        }
        if begun.elapsed() > PATIENCE {
            return None;
        }
    }
}

/// A client that keeps a number of requests outstanding. Ends when it is dropped.
#[derive(Debug)]
pub struct Calls {
    _threads: Threads,
    answered: Arc<AtomicU64>,
}

impl Calls {
    /// Starts a client of the service at `port`, with `outstanding` requests of `bytes`. It looks for answers, and
    /// sends as many requests, each `pause`; if that is zero, a request follows each answer.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn start(
        network: &Arc<Network>,
        port: u16,
        bytes: usize,
        outstanding: u32,
        pause: Duration,
    ) -> io::Result<Self> {
        let socket = connect(network, port)?;
        socket.set_nonblocking(!pause.is_zero())?;
        let mut calls = Self {
            _threads: Threads::default(),
            answered: Arc::default(),
        };
        let (answered, processor) = (calls.answered.clone(), network.processors.clients);
        calls._threads.start("client", move |stop| {
            prepare(processor);
            let client = Caller {
                socket,
                outstanding,
                pause,
            };
            client.run(&vec![0; bytes], &answered, &stop);
        })?;
        Ok(calls)
    }

    /// The requests that were answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Relaxed)
    }
}

/// The thread of [`Calls`].
struct Caller {
    socket: UdpSocket,
    outstanding: u32,
    pause: Duration,
}

impl Caller {
    fn run(&self, request: &[u8], answered: &AtomicU64, stop: &Stop) {
        let mut missing = self.outstanding;
        let mut last = Instant::now();
        while stop.goes_on() {
            for _ in 0..missing {
                // A request that cannot be sent counts as lost.
                let _ = self.socket.send(request);
            }
            if !self.pause.is_zero() {
                thread::sleep(self.pause);
            }
            missing = self.answers();
            if missing > 0 {
                answered.fetch_add(missing.into(), Relaxed);
                last = Instant::now();
            } else if last.elapsed() > PATIENCE {
                // All are lost, or the server is slow: it then has more requests outstanding.
                missing = self.outstanding;
                last = Instant::now();
            }
        }
    }

    /// Takes the answers that are there; without pauses, waits for one.
    fn answers(&self) -> u32 {
        let mut answer = [0; 2048];
        let most = match self.pause.is_zero() {
            true => 1,
            false => self.outstanding,
        };
        (0..most)
            .take_while(|_| self.socket.recv(&mut answer).is_ok())
            .count() as u32
    }
}

/// Sends one request and waits up to `most` for the answer; returns the time that it took.
///
/// # Errors
/// The socket cannot be opened, or `TimedOut`.
pub fn call_once(network: &Network, port: u16, most: Duration) -> io::Result<Duration> {
    let socket = connect(network, port)?;
    socket.set_read_timeout(Some(most))?;
    let begun = Instant::now();
    socket.send(&[1])?;
    match socket.recv(&mut [0; 64]) {
        Ok(_) => Ok(begun.elapsed()),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

fn connect(network: &Network, port: u16) -> io::Result<UdpSocket> {
    let open = || {
        let socket = UdpSocket::bind((Link::Clients.address(), 0))?;
        socket.connect(Link::Server.port(port))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    };
    network.clients.inside(open)?
}

/// Places this thread. Clients go before the flood on the same processor, so that it does not delay them.
fn prepare(processor: Option<usize>) {
    pin(processor);
    // Without the right to it, round trips are longer under a flood.
    let _ = Priority::Fifo(5).apply();
}

const PATIENCE: Duration = Duration::from_millis(20);
