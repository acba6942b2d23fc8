//! A socket for quinn that sends at an even rate.

use std::cell::Cell;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, UdpPoller};
use softclock_tokio::pacing::{Outlet, PacedSender};
use softclock_tokio::{Counts, Limits, Pacing, Rate, Timers};

use crate::runtime::{LoopTimer, is_on_softclock};
use crate::window::{LearntRate, take_sending};

/// Creates a socket that sends at the rate of `pacing`, which all connections of its endpoint share. Pass it to
/// [`quinn::Endpoint::new_with_abstract_socket`].
///
/// `runtime` receives, and is the one that the endpoint gets. A queue shorter than 20 datagrams is extended to 20,
/// since quinn hands over up to ten by one call.
///
/// A full queue delays all datagrams of quinn, also acknowledgments: 64 datagrams take 8 ms at 100 Mbit/s, and 78 ms at
/// 10 Mbit/s. quinn forgets a closed connection after three probe timeouts (75 ms and more), and the peer does not
/// learn of it if the queue takes longer. So keep the queue short at low rates.
///
/// # Errors
/// Those of `runtime` for the socket.
///
/// # Panics
/// If `runtime` is not softclock's and the [timer thread](Timers::global) cannot be started.
pub fn paced(
    socket: UdpSocket,
    runtime: &dyn Runtime,
    pacing: Pacing,
) -> io::Result<Arc<PacedSocket>> {
    let socket = Socket(runtime.wrap_udp_socket(socket)?);
    let limits = valid(pacing.limits());
    let sender = Timing::of(&socket).sender(&socket, Some(pacing), limits);
    Ok(Arc::new(PacedSocket {
        socket,
        rate: RateSource::Stated(sender),
    }))
}

/// Creates a socket that sends the datagrams of each connection at a rate learnt from its congestion window and round
/// trip. Requires [`observed`](crate::observed) in the transport configuration; other connections are not paced.
///
/// Each connection has a queue of its own with these `limits`, extended as for [`paced`]. Not paced are datagrams
/// before the first sample of the round trip, connections so fast that a burst takes less than 10 us, and datagrams of
/// no connection, such as stateless resets.
///
/// # Errors
/// Those of `runtime` for the socket.
///
/// # Panics
/// If `runtime` is not softclock's and the [timer thread](Timers::global) cannot be started.
pub fn paced_by_window(
    socket: UdpSocket,
    runtime: &dyn Runtime,
    limits: Limits,
) -> io::Result<Arc<PacedSocket>> {
    let socket = Socket(runtime.wrap_udp_socket(socket)?);
    let rate = RateSource::Window {
        limits: valid(limits),
        timing: Timing::of(&socket),
    };
    Ok(Arc::new(PacedSocket { socket, rate }))
}

fn valid(limits: Limits) -> Limits {
    Limits {
        queue: limits.queue.max(2 * MOST_SEGMENTS as u32),
        ..limits
    }
}

/// A socket for quinn, created by [`paced`] and [`paced_by_window`].
#[derive(Debug)]
pub struct PacedSocket {
    socket: Socket,
    rate: RateSource,
}

#[derive(Debug)]
enum RateSource {
    /// One sender for the socket.
    Stated(Arc<PacedSender<Socket>>),
    /// A sender for each connection, which its poller creates.
    Window { limits: Limits, timing: Timing },
}

/// What sends the datagrams that are due.
#[derive(Clone, Debug)]
enum Timing {
    Thread(Timers),
    /// The loop of the softclock runtime that quinn runs on.
    Loop,
}

impl Timing {
    /// Returns the timing for a socket that its runtime has just wrapped on this thread.
    fn of(socket: &Socket) -> Self {
        match is_on_softclock(&socket.0) {
            true => Self::Loop,
            false => Self::Thread(Timers::global()),
        }
    }

    fn sender(
        &self,
        socket: &Socket,
        pacing: Option<Pacing>,
        limits: Limits,
    ) -> Arc<PacedSender<Socket>> {
        let socket = socket.clone();
        match self {
            Self::Thread(timers) => PacedSender::new(socket, pacing, limits, timers.sender_timer()),
            Self::Loop => PacedSender::new(socket, pacing, limits, LoopTimer::new()),
        }
    }
}

thread_local! {
    /// The sender of the connection that has just found room for a transmission on this thread.
    static NEXT: Cell<Option<Arc<PacedSender<Socket>>>> = const { Cell::new(None) };
}

impl PacedSocket {
    /// Returns the numbers of datagrams sent, dropped and waiting, if the rate is stated. Keep a clone of the [`Arc`]
    /// for it, as the endpoint takes the other. The senders of connections are counted by quinn
    /// ([`quinn::Connection::stats`]).
    pub fn counts(&self) -> Option<Counts> {
        match &self.rate {
            RateSource::Stated(sender) => Some(sender.counts()),
            RateSource::Window { .. } => None,
        }
    }
}

impl AsyncUdpSocket for PacedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller {
            socket: self,
            connection: None,
        })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let sender = match &self.rate {
            RateSource::Stated(sender) => Some(sender.clone()),
            RateSource::Window { .. } => NEXT.take(),
        };
        let Some(sender) = sender else {
            return self.socket.0.try_send(transmit);
        };
        let flow = Flow {
            destination: transmit.destination,
            ecn: transmit.ecn,
            source: transmit.src_ip,
        };
        let segment_bytes = transmit.segment_size.unwrap_or(transmit.contents.len());
        match sender.try_send(flow.clone(), transmit.contents, segment_bytes) {
            // The error of an earlier datagram, which quinn treats as lost. This one was not queued.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                sender.try_send(flow, transmit.contents, segment_bytes)
            }
            result => result,
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.socket.0.poll_recv(cx, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.0.max_transmit_segments().min(MOST_SEGMENTS)
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.0.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.0.may_fragment()
    }
}

/// Waits for room in the queue of one connection.
#[derive(Debug)]
struct Poller {
    socket: Arc<PacedSocket>,
    connection: Option<Connection>,
}

/// The sender of a connection, and the rate that its congestion controller reports.
#[derive(Debug)]
struct Connection {
    sender: Arc<PacedSender<Socket>>,
    rate: Arc<LearntRate>,
    /// The rate that the sender has.
    current: Option<Rate>,
}

impl UdpPoller for Poller {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let (limits, timing) = match &this.socket.rate {
            RateSource::Stated(sender) => {
                return sender.poll_room(cx, MOST_SEGMENTS).map(Ok);
            }
            RateSource::Window { limits, timing } => (*limits, timing),
        };
        if let Some(rate) = take_sending() {
            let known = this.connection.take();
            let same = known.filter(|known| Arc::ptr_eq(&known.rate, &rate));
            this.connection = Some(same.unwrap_or_else(|| Connection {
                sender: timing.sender(&this.socket.socket, None, limits),
                rate,
                current: None,
            }));
        }
        let Some(connection) = &mut this.connection else {
            // The connection's congestion controller is not observed.
            NEXT.set(None);
            return Poll::Ready(Ok(()));
        };
        connection.update(limits);
        ready!(connection.sender.poll_room(cx, MOST_SEGMENTS));
        NEXT.set(Some(connection.sender.clone()));
        Poll::Ready(Ok(()))
    }
}

impl Connection {
    /// Passes a changed rate on to the sender.
    fn update(&mut self, limits: Limits) {
        let rate = self.rate.get().filter(|rate| {
            let burst = u64::from(limits.burst) * FULL_BYTES;
            rate.time_of(burst) >= SHORTEST_BURST
        });
        let is_same = match (self.current, rate) {
            (Some(current), Some(rate)) => {
                // Each change ends the sender's catching up, so small ones are not worth it.
                current.bps().abs_diff(rate.bps()) <= current.bps() / SMALL
            }
            (current, rate) => current == rate,
        };
        if !is_same {
            self.current = rate;
            self.sender.set_pacing(rate.map(Pacing::of_rate));
        }
    }
}

/// The socket of the runtime.
#[derive(Clone)]
struct Socket(Arc<dyn AsyncUdpSocket>);

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The properties that datagrams sent by one call share.
#[derive(Clone, PartialEq)]
struct Flow {
    destination: SocketAddr,
    ecn: Option<EcnCodepoint>,
    source: Option<IpAddr>,
}

impl Outlet for Socket {
    type Flow = Flow;

    fn send(&self, flow: &Flow, bytes: &[u8], segment_bytes: usize) -> io::Result<usize> {
        let transmit = |contents, segment_size| Transmit {
            destination: flow.destination,
            ecn: flow.ecn,
            contents,
            segment_size,
            src_ip: flow.source,
        };
        if bytes.len() <= segment_bytes {
            self.0.try_send(&transmit(bytes, None))?;
            return Ok(bytes.len());
        }
        // The limit falls to 1 when the device turns out to have no segmentation.
        let most = self.0.max_transmit_segments() * segment_bytes;
        let mut sent = 0;
        for part in bytes.chunks(most.max(segment_bytes)) {
            let size = (part.len() > segment_bytes).then_some(segment_bytes);
            match self.0.try_send(&transmit(part, size)) {
                Ok(()) => sent += part.len(),
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sent)
    }
}

/// The most datagrams that quinn may hand over by one call. quinn 0.11 hands over ten at most.
const MOST_SEGMENTS: usize = 10;

/// An IP packet of the usual MTU.
const FULL_BYTES: u64 = 1500;

/// A connection whose bursts take less is not paced: the timer would do little else.
const SHORTEST_BURST: Duration = Duration::from_micros(10);

/// A learnt rate is changed when it differs by more than one part in this many.
const SMALL: u64 = 128;
