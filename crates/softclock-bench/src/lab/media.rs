//! Arrivals of media streams, and the evenness of their gaps.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use softclock::net::{BindOptions, RecvBatch, RecvOptions, UdpSocket};
use softclock::{Histogram, Instant, Runtime, timeout};
use softclock_linux::priority::set_realtime_priority;

use crate::measure::processors::pin;
use crate::peers::media::{Streams, stream_of};

/// A thread that receives streams, and takes the kernel's time stamps.
pub struct Receiver {
    address: SocketAddr,
    is_counting: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Arrivals>>,
}

/// The packets of a measurement.
#[derive(Default)]
pub struct Arrivals {
    /// Packets.
    pub packets: u64,
    /// By how much the gaps between two packets of a stream differed from its period.
    pub errors: Histogram,
    /// By how much the gaps between two packets of any streams differed from the period divided by their number.
    pub spacing: Histogram,
}

impl Receiver {
    /// Starts to receive, on this processor if there is one, ahead of its other threads if that is allowed.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn start(streams: Streams, processor: Option<usize>) -> io::Result<Self> {
        let is_counting = Arc::new(AtomicBool::new(false));
        let counting = is_counting.clone();
        let (bound, address) = mpsc::channel();
        let thread = thread::spawn(move || {
            pin(processor);
            let _ = set_realtime_priority(1);
            Runtime::new()?.block_on(async {
                let receive = RecvOptions {
                    time_stamps: true,
                    ..RecvOptions::default()
                };
                let options = BindOptions {
                    receive,
                    ..BindOptions::default()
                };
                let socket = UdpSocket::bind_with((Ipv4Addr::LOCALHOST, 0), &options)?;
                let _ = bound.send(socket.local_addr()?);
                receive_until_quiet(&socket, streams, &counting).await
            })
        });
        match address.recv() {
            Ok(address) => Ok(Self {
                address,
                is_counting,
                thread,
            }),
            // The thread has ended with an error.
            Err(_) => match thread.join() {
                Ok(Err(error)) => Err(error),
                _ => Err(io::Error::other("the receiver has ended")),
            },
        }
    }

    /// The address to send to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts or stops to count packets.
    pub fn count(&self, is_counting: bool) {
        self.is_counting.store(is_counting, Ordering::Relaxed);
    }

    /// Returns the packets that arrived while they were counted. Waits until the streams have stopped.
    ///
    /// # Errors
    /// Those of receiving.
    pub fn end(self) -> io::Result<Arrivals> {
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the receiver has ended")))
    }
}

async fn receive_until_quiet(
    socket: &UdpSocket,
    streams: Streams,
    is_counting: &AtomicBool,
) -> io::Result<Arrivals> {
    let mut batch = RecvBatch::new(64, 256);
    let mut arrivals = Arrivals::default();
    let mut last: Vec<Option<Instant>> = vec![None; streams.count as usize];
    let mut last_of_all = None;
    let mut patience = PATIENCE;
    while let Ok(received) = timeout(patience, socket.recv_batch(&mut batch)).await {
        received?;
        patience = QUIET;
        let counts = is_counting.load(Ordering::Relaxed);
        for datagram in batch.datagrams() {
            let stream =
                stream_of(datagram.payload).and_then(|stream| last.get_mut(stream as usize));
            let (Some(last), Some(now)) = (stream, datagram.received) else {
                continue;
            };
            let (before, before_of_all) = (last.replace(now), last_of_all.replace(now));
            if counts && let (Some(before), Some(before_of_all)) = (before, before_of_all) {
                let error =
                    |since: Instant, expected| now.since(since).abs_diff(expected).as_nanos();
                arrivals.packets += 1;
                arrivals.errors.record(error(before, streams.period) as u64);
                let expected = streams.period / streams.count;
                arrivals
                    .spacing
                    .record(error(before_of_all, expected) as u64);
            }
        }
    }
    Ok(arrivals)
}

/// The longest wait for the first packet, and the time without any after which streams have stopped.
const PATIENCE: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_millis(200);
